/* The tokens that a model is evaluated on: those of shards, or of a text in memory. */
#ifndef DDL_INFER_TOKEN_SOURCE_H
#define DDL_INFER_TOKEN_SOURCE_H

#include "ddl/data.h"

struct ddl_token_source {
    const ddl_shards *shards; /* NULL: ids, all of which are counted, in group 1 */
    const int32_t *ids;       /* (count) */
    uint64_t count;
};

/* The following copy n values from position `start` on, all inside, to out: the tokens; the tokens, but -1 in
 * place of ignored ones; and the groups. */
void ddl_token_source_read(const struct ddl_token_source *source, uint64_t start, size_t n, int32_t *out);
void ddl_token_source_read_targets(const struct ddl_token_source *source, uint64_t start, size_t n,
                                   int32_t *out);
void ddl_token_source_read_groups(const struct ddl_token_source *source, uint64_t start, size_t n,
                                  unsigned char *out);

#endif
