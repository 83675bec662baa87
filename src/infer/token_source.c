#include "infer/token_source.h"

#include <string.h>

void ddl_token_source_read(const struct ddl_token_source *source, uint64_t start, size_t n, int32_t *out)
{
    if (source->shards)
        ddl_shards_read(source->shards, start, n, out);
    else
        memcpy(out, source->ids + start, n * sizeof *out);
}

void ddl_token_source_read_targets(const struct ddl_token_source *source, uint64_t start, size_t n,
                                   int32_t *out)
{
    if (source->shards)
        ddl_shards_read_targets(source->shards, start, n, out);
    else
        memcpy(out, source->ids + start, n * sizeof *out);
}

void ddl_token_source_read_groups(const struct ddl_token_source *source, uint64_t start, size_t n,
                                  unsigned char *out)
{
    if (source->shards)
        ddl_shards_read_groups(source->shards, start, n, out);
    else
        memset(out, 1, n);
}
