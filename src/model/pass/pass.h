/* A model, and one pass through it, forward or backward: what every part of the model is given. Types only.
 */
#ifndef DDL_MODEL_PASS_H
#define DDL_MODEL_PASS_H

#include "ddl/force.h"
#include "model/params/params.h"
#include "model/pass/rope.h"
#include "ops/ops.h"

struct ddl_model {
    struct ddl_config config;
    ddl_backend *backend;
    struct params params;
    float *value,
        *grad; /* flat buffers of the backend; grad NULL until enabled, accessed by gradients.c only */
    bool *grad_is_zero; /* by row: its gradient is known to be 0, whatever grad holds there */
    enum ddl_precision precision;
    unsigned char *reduced; /* of the backend: what products read, in bfloat16 or 8 bits; NULL in float32 */
    size_t reduced_bytes;
    size_t *reduced_offset;   /* offset of row i in it, in bytes; of rows in products only */
    bool stale;               /* values were written since `reduced` was computed */
    bool inference_only;      /* inference-only: rows in products have no other format, and no gradients */
    float *staging;           /* inference-only, of the backend: one piece of a row during conversion */
    struct ddl_force *forces; /* (n_layers, 2), host memory; NULL until an update is forced */
    size_t n_forced;          /* sublayers in which something is forced */
};

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
    size_t B, T, N;            /* N = B T */
    struct ddl_ragged ragged;  /* with a cache; then B = 1, T = N */
    struct ddl_ragged queries; /* the same for attention, see ddl_cache_options.exact */
};

/* Copies n floats from src to dst. */
static inline void pass_copy(const struct pass *p, size_t n, const float *src, float *dst)
{
    p->ops->copy(p->ctx, &(struct copy_args){ .rows = 1, .width = n, .src = src, .dst = dst });
}

#endif
