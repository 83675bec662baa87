/* Recognizes the format of a shard. */
#ifndef DDL_DATA_SHARD_LAYOUT_H
#define DDL_DATA_SHARD_LAYOUT_H

#include "ddl/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ddl_shard_layout {
    size_t offset; /* of the first token, in bytes */
    int width;     /* bytes per token, 2 or 4 */
    uint64_t tokens;
    int32_t end_of_text; /* token that begins a document, by convention */
    bool assumed;        /* without a header, by its name and size only */
};

/* Determines the layout of a file of `size` bytes; format is an enum ddl_shards_format. */
ddl_status ddl_shard_layout_find(struct ddl_shard_layout *out, const char *path, const unsigned char *data,
                                 size_t size, int format, struct ddl_error *err);

#endif
