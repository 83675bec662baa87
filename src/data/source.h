/* A stream of bytes from a file, unpacked on the way. */
#ifndef DDL_DATA_SOURCE_H
#define DDL_DATA_SOURCE_H

#include "ddl/status.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ddl_packing { DDL_PACKING_NONE, DDL_PACKING_GZIP, DDL_PACKING_ZSTD };

struct ddl_source {
    const char *path; /* borrowed; "-" is standard input */
    enum ddl_packing packing;
    const atomic_bool *stop; /* borrowed: a read that waits for standard input gives up when it is set */
    int fd;
    bool eof;    /* the file has been read to its end                              */
    bool inside; /* a member (gzip) or frame (zstd) has begun and not ended       */
    unsigned char *packed;
    size_t packed_at, packed_size; /* not yet unpacked: packed[packed_at .. packed_size)      */
    uint64_t consumed;             /* bytes of the file read so far                           */
    void *decoder;
    struct {
        bool begun;
        uint64_t promised, given; /* bytes: by its header (UINT64_MAX: unsaid), and so far */
    } frame;                      /* of zstd                                               */
};

/* After a failed open nothing needs to be closed. */
ddl_status ddl_source_open(struct ddl_source *source, const char *path, enum ddl_packing packing,
                           const atomic_bool *stop, struct ddl_error *err);
/* At least one byte and at most `capacity` into out; *n = 0 only at the end. What is damaged or truncated is
 * named with its place in the packed file. DDL_E_INTERRUPTED after *stop. */
ddl_status ddl_source_read(struct ddl_source *source, void *out, size_t capacity, size_t *n,
                           struct ddl_error *err);
void ddl_source_close(struct ddl_source *source); /* a zeroed or closed source is allowed */

#endif
