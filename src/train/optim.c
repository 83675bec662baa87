#include "train/optim.h"

#include "base/mem.h"
#include "model/flat.h"
#include "ops/ops.h"

#include <math.h>

enum { PARAMETER, FIRST_MOMENT, SECOND_MOMENT, KINDS };

struct ddl_optim {
    ddl_model *model;
    struct ddl_optim_config config;
    uint64_t steps;
    float *m, *v;      /* flat, laid out as the parameters are */
    double *sums;      /* (n_params, KINDS) of the backend: sums of squares */
    double *host_sums; /* the same in host memory */
    bool *frozen;      /* (n_params) */
};

struct ddl_optim_config ddl_optim_defaults(void)
{
    struct ddl_optim_config config = {
        .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .clip = 1, .use_lr_scale = true
    };
    for (int group = 0; group < DDL_GROUPS; group++)
        config.weight_decay[group] = 0.1f;
    return config;
}

ddl_status ddl_optim_create(struct ddl_optim **out, ddl_model *model, const struct ddl_optim_config *config,
                            struct ddl_error *err)
{
    *out = NULL;
    ddl_backend *backend = ddl_model_backend(model);
    size_t bytes = ddl_model_flat_size(model) * sizeof(float);
    size_t sums = KINDS * ddl_model_n_params(model) * sizeof(double);
    struct ddl_optim *optim = ddl_mem_zalloc(sizeof *optim);
    if (optim) {
        *optim = (struct ddl_optim){ .model = model, .config = *config };
        optim->m = backend->ops->alloc(backend->ctx, bytes);
        optim->v = backend->ops->alloc(backend->ctx, bytes);
        optim->sums = backend->ops->alloc(backend->ctx, sums);
        optim->host_sums = ddl_mem_alloc(sums);
        optim->frozen = ddl_mem_zalloc(ddl_model_n_params(model) * sizeof *optim->frozen);
    }
    if (!optim || !optim->m || !optim->v || !optim->sums || !optim->host_sums || !optim->frozen) {
        ddl_optim_free(optim);
        return ddl_error_set(err, DDL_E_MEMORY, "optimizer: out of memory for two moments of %zu bytes",
                             bytes);
    }
    backend->ops->zero(backend->ctx, optim->m, bytes);
    backend->ops->zero(backend->ctx, optim->v, bytes);
    *out = optim;
    return DDL_OK;
}

void ddl_optim_free(struct ddl_optim *optim)
{
    if (!optim)
        return;
    ddl_backend *backend = ddl_model_backend(optim->model);
    void *blocks[] = { optim->m, optim->v, optim->sums };
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
        if (blocks[i])
            backend->ops->free(backend->ctx, blocks[i]);
    }
    ddl_mem_free(optim->host_sums);
    ddl_mem_free(optim->frozen);
    ddl_mem_free(optim);
}

void ddl_optim_freeze(struct ddl_optim *optim, size_t i, bool frozen)
{
    optim->frozen[i] = frozen;
}

/* One download: the sum over all parameters is accumulated in backend memory. */
double ddl_optim_grad_norm(const struct ddl_optim *optim)
{
    ddl_model *model = optim->model;
    const ddl_backend *backend = ddl_model_backend(model);
    struct sum_args args = { .sum = optim->sums };
    double sum = 0;
    for (size_t i = 0; i < ddl_model_n_params(model); i++) {
        const struct ddl_param *row = ddl_model_param(model, i);
        if (!row->active || optim->frozen[i])
            continue;
        args.n = row->count;
        args.x = ddl_model_flat_grad(model, i);
        backend->ops->sum_squares(backend->ctx, &args);
        args.accumulate = true;
    }
    if (args.accumulate)
        backend->ops->download(backend->ctx, &sum, optim->sums, sizeof sum);
    return sqrt(sum);
}

void ddl_optim_grad_squares(const struct ddl_optim *optim, double *squares)
{
    ddl_model *model = optim->model;
    const ddl_backend *backend = ddl_model_backend(model);
    size_t n = ddl_model_n_params(model);
    backend->ops->zero(backend->ctx, optim->sums, n * sizeof *optim->sums);
    for (size_t i = 0; i < n; i++) {
        const struct ddl_param *row = ddl_model_param(model, i);
        if (row->active && !optim->frozen[i])
            backend->ops->sum_squares(backend->ctx, &(struct sum_args){ .n = row->count,
                                                                        .x = ddl_model_flat_grad(model, i),
                                                                        .sum = optim->sums + i });
    }
    backend->ops->download(backend->ctx, squares, optim->sums, n * sizeof *squares);
}

void ddl_optim_step(struct ddl_optim *optim, double lr, double norm)
{
    const struct ddl_optim_config *k = &optim->config;
    ddl_model *model = optim->model;
    const ddl_backend *backend = ddl_model_backend(model);
    double t = (double)++optim->steps;
    struct adamw_args args = { .g_scale = k->clip > 0 ? (float)fmin(1, (double)k->clip / (norm + 1e-6)) : 1,
                               .beta1 = k->beta1,
                               .beta2 = k->beta2,
                               .eps = k->eps,
                               .bias1 = (float)(1 - pow((double)k->beta1, t)),
                               .bias2 = (float)(1 - pow((double)k->beta2, t)) };
    for (size_t i = 0; i < ddl_model_n_params(model); i++) {
        const struct ddl_param *row = ddl_model_param(model, i);
        const struct ddl_flat_param flat = ddl_model_flat_param(model, i);
        if (!row->active || optim->frozen[i])
            continue;
        args.n = row->count;
        args.p = flat.value;
        args.p16 = flat.bf16;
        args.g = ddl_model_flat_grad(model, i);
        args.m = optim->m + flat.offset;
        args.v = optim->v + flat.offset;
        args.lr = (float)(lr * (k->use_lr_scale ? (double)row->lr_scale : 1));
        args.weight_decay = k->weight_decay[row->group];
        backend->ops->adamw(backend->ctx, &args);
    }
}

/* The numbers of parameter i, of one kind. */
static const float *numbers_of(const struct ddl_optim *optim, size_t i, int kind)
{
    const struct ddl_flat_param flat = ddl_model_flat_param(optim->model, i);
    return kind == PARAMETER ? flat.value : (kind == FIRST_MOMENT ? optim->m : optim->v) + flat.offset;
}

const char *ddl_optim_spoiled(const struct ddl_optim *optim, size_t *row, struct ddl_values *values)
{
    static const char *const names[] = { "parameter", "first moment", "second moment" };
    const ddl_model *model = optim->model;
    ddl_backend *backend = ddl_model_backend(model);
    size_t n = KINDS * ddl_model_n_params(model);
    /* A sum is in double: squares of float32 numbers do not overflow it. Those of inactive parameters are 0.
     */
    backend->ops->zero(backend->ctx, optim->sums, n * sizeof *optim->sums);
    for (size_t i = 0; i < n; i++) {
        const struct ddl_param *param = ddl_model_param(model, i / KINDS);
        if (param->active)
            backend->ops->sum_squares(backend->ctx,
                                      &(struct sum_args){ .n = param->count,
                                                          .x = numbers_of(optim, i / KINDS, (int)(i % KINDS)),
                                                          .sum = optim->sums + i });
    }
    backend->ops->download(backend->ctx, optim->host_sums, optim->sums, n * sizeof *optim->sums);
    for (size_t i = 0; i < n; i++) {
        if (isfinite(optim->host_sums[i]))
            continue;
        *row = i / KINDS;
        *values = ddl_values_of(backend, numbers_of(optim, *row, (int)(i % KINDS)),
                                ddl_model_param(model, *row)->count);
        return names[i % KINDS];
    }
    return NULL;
}

uint64_t ddl_optim_steps(const struct ddl_optim *optim)
{
    return optim->steps;
}

void ddl_optim_set_steps(struct ddl_optim *optim, uint64_t steps)
{
    optim->steps = steps;
}

void ddl_optim_read(const struct ddl_optim *optim, size_t i, size_t start, size_t n, float *m, float *v)
{
    ddl_backend *backend = ddl_model_backend(optim->model);
    size_t at = ddl_model_flat_param(optim->model, i).offset + start;
    if (m)
        backend->ops->download(backend->ctx, m, optim->m + at, n * sizeof *m);
    if (v)
        backend->ops->download(backend->ctx, v, optim->v + at, n * sizeof *v);
}

void ddl_optim_write(struct ddl_optim *optim, size_t i, size_t start, size_t n, const float *m,
                     const float *v)
{
    ddl_backend *backend = ddl_model_backend(optim->model);
    size_t at = ddl_model_flat_param(optim->model, i).offset + start;
    if (m)
        backend->ops->upload(backend->ctx, optim->m + at, m, n * sizeof *m);
    if (v)
        backend->ops->upload(backend->ctx, optim->v + at, v, n * sizeof *v);
}
