/* One pass through the model, forward or backward: what every part of the model is given. */
#ifndef DDL_MODEL_PASS_H
#define DDL_MODEL_PASS_H

#include "model/pass/model.h"
#include "model/pass/rope.h"

enum { ATTN, MLP }; /* the two sublayers of a block */

/* Added to the mean square of every RMSNorm. */
#define NORM_EPS 1e-5f

struct pass {
    struct ddl_model *m;
    struct ddl_workspace *ws;
    struct ddl_cache *cache; /* NULL: dense sequences that start empty */
    struct ddl_probe *probe; /* the workspace's */
    const struct rope *rope; /* the cache's, or the workspace's    */
    const struct ddl_config *config;
    const struct ddl_ops *ops;
    void *ctx;
    size_t B, T, N;           /* N = B T */
    struct ddl_ragged ragged; /* with a cache; then B = 1, T = N */
};

/* Copies n floats from src to dst. */
static inline void pass_copy(const struct pass *p, size_t n, const float *src, float *dst)
{
    p->ops->copy(p->ctx, &(struct copy_args){ .rows = 1, .width = n, .src = src, .dst = dst });
}

#endif
