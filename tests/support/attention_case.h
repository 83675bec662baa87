/* Forward passes of attention, dense and ragged, compared with "ref". */
#ifndef DDL_TEST_ATTENTION_CASE_H
#define DDL_TEST_ATTENTION_CASE_H

#include "support/backends.h"

enum attention_format { FLOAT32, CACHE_BF16, ALL_BF16, ATTENTION_FORMATS };

/* The arguments `a` (B, T, H, h, past or ragged) with queries, `spread` wide, and `caches` times keys and
 * values of `span` tokens, in rows with gaps; until release_all. */
struct attention_args attention_case(struct attention_args a, size_t caches, size_t span, float spread,
                                     enum attention_format format);
/* Compares y and lse, then y without lse, where the backend has scratch for `span` tokens and no more. */
void compare_attention(struct attention_args a, size_t span, double limit);
/* With queries in bfloat16, y is a rounded result converted to float32. */
void call_attention_fwd(const struct ddl_backend *backend, const void *args);

#endif
