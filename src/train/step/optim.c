#include "train/step/optim.h"

#include "base/mem.h"
#include "model/params/flat.h"
#include "ops/ops.h"

#include <math.h>

enum { PARAMETER, FIRST_MOMENT, SECOND_MOMENT, KINDS };

/* Numbers [start, start + n) of parameter `row`, whose moments begin at `at`. */
struct part {
    size_t row, start, n, at;
};

struct ddl_optim {
    ddl_model *model;
    struct ddl_optim_config config;
    uint64_t steps;
    struct part *parts; /* (n_parts) in ascending order: with one rank, each parameter is one part */
    size_t n_parts;
    float *m, *v;      /* of all parts */
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

/* Lists what the rank owns of each parameter in `parts` (NULL: only counts) and returns how many they are.
 * *numbers: floats that their moments take, with each part aligned to a cache line. */
static size_t list_parts(const ddl_model *model, const struct ddl_partition *partition, size_t rank,
                         struct part *parts, size_t *numbers)
{
    const size_t line = DDL_ALIGN / sizeof(float);
    size_t n = 0;
    *numbers = 0;
    for (size_t i = 0; i < ddl_model_n_params(model); i++) {
        size_t offset = ddl_model_flat_param(model, i).offset;
        struct ddl_range left = { offset, offset + ddl_model_param(model, i)->count };
        while (left.begin < left.end) {
            struct ddl_range own = ddl_partition_next(partition, rank, left);
            left.begin = own.end;
            if (own.begin == own.end)
                continue;
            if (parts)
                parts[n] = (struct part){ i, own.begin - offset, own.end - own.begin, *numbers };
            *numbers += (own.end - own.begin + line - 1) / line * line;
            n++;
        }
    }
    return n;
}

ddl_status ddl_optim_create_part(struct ddl_optim **out, ddl_model *model,
                                 const struct ddl_optim_config *config, const struct ddl_partition *partition,
                                 size_t rank, struct ddl_error *err)
{
    *out = NULL;
    ddl_backend *backend = ddl_model_backend(model);
    size_t numbers, n_parts = list_parts(model, partition, rank, NULL, &numbers);
    size_t bytes = numbers * sizeof(float);
    size_t sums = KINDS * ddl_model_n_params(model) * sizeof(double);
    struct ddl_optim *optim = ddl_mem_zalloc(sizeof *optim);
    if (optim) {
        *optim = (struct ddl_optim){ .model = model, .config = *config, .n_parts = n_parts };
        optim->parts = ddl_mem_alloc(n_parts * sizeof *optim->parts);
        optim->m = backend->ops->alloc(backend->ctx, bytes);
        optim->v = backend->ops->alloc(backend->ctx, bytes);
        optim->sums = backend->ops->alloc(backend->ctx, sums);
        optim->host_sums = ddl_mem_alloc(sums);
        optim->frozen = ddl_mem_zalloc(ddl_model_n_params(model) * sizeof *optim->frozen);
    }
    if (!optim || !optim->parts || !optim->m || !optim->v || !optim->sums || !optim->host_sums ||
        !optim->frozen) {
        ddl_optim_free(optim);
        return ddl_error_set(err, DDL_E_MEMORY, "optimizer: out of memory for two moments of %zu bytes",
                             bytes);
    }
    (void)list_parts(model, partition, rank, optim->parts, &numbers);
    backend->ops->zero(backend->ctx, optim->m, bytes);
    backend->ops->zero(backend->ctx, optim->v, bytes);
    *out = optim;
    return DDL_OK;
}

ddl_status ddl_optim_create(struct ddl_optim **out, ddl_model *model, const struct ddl_optim_config *config,
                            struct ddl_error *err)
{
    const struct ddl_partition whole = ddl_partition_of(ddl_model_flat_size(model), 0, 1);
    return ddl_optim_create_part(out, model, config, &whole, 0, err);
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
    ddl_mem_free(optim->parts);
    ddl_mem_free(optim->host_sums);
    ddl_mem_free(optim->frozen);
    ddl_mem_free(optim);
}

void ddl_optim_freeze(struct ddl_optim *optim, size_t i, bool frozen)
{
    optim->frozen[i] = frozen;
}

/* Whether gradients of the parameter count and are applied. */
static bool is_trained(const struct ddl_optim *optim, size_t row)
{
    return ddl_model_param(optim->model, row)->active && !optim->frozen[row];
}

/* One download: the sum over all parameters is accumulated in backend memory. */
double ddl_optim_grad_square(const struct ddl_optim *optim)
{
    ddl_model *model = optim->model;
    const ddl_backend *backend = ddl_model_backend(model);
    struct sum_args args = { .sum = optim->sums };
    double sum = 0;
    for (const struct part *part = optim->parts; part < optim->parts + optim->n_parts; part++) {
        if (!is_trained(optim, part->row))
            continue;
        args.n = part->n;
        args.x = ddl_model_flat_grad(model, part->row) + part->start;
        backend->ops->sum_squares(backend->ctx, &args);
        args.accumulate = true;
    }
    if (args.accumulate)
        backend->ops->download(backend->ctx, &sum, optim->sums, sizeof sum);
    return sum;
}

double ddl_optim_grad_norm(const struct ddl_optim *optim)
{
    return sqrt(ddl_optim_grad_square(optim));
}

/* Adds the sum of squares of x (n) to one that begins with the part if it is the first of its row. */
static void add_squares(const struct ddl_optim *optim, const struct part *part, const float *x, double *sum)
{
    const ddl_backend *backend = ddl_model_backend(optim->model);
    bool first = part == optim->parts || part[-1].row != part->row;
    backend->ops->sum_squares(backend->ctx,
                              &(struct sum_args){ .n = part->n, .x = x, .sum = sum, .accumulate = !first });
}

void ddl_optim_grad_squares(const struct ddl_optim *optim, double *squares)
{
    ddl_model *model = optim->model;
    const ddl_backend *backend = ddl_model_backend(model);
    size_t bytes = ddl_model_n_params(model) * sizeof *squares;
    backend->ops->zero(backend->ctx, optim->sums, bytes);
    for (const struct part *part = optim->parts; part < optim->parts + optim->n_parts; part++) {
        if (is_trained(optim, part->row))
            add_squares(optim, part, ddl_model_flat_grad(model, part->row) + part->start,
                        optim->sums + part->row);
    }
    backend->ops->download(backend->ctx, squares, optim->sums, bytes);
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
    for (const struct part *part = optim->parts; part < optim->parts + optim->n_parts; part++) {
        const struct ddl_param *row = ddl_model_param(model, part->row);
        const struct ddl_flat_param flat = ddl_model_flat_param(model, part->row);
        if (!is_trained(optim, part->row))
            continue;
        args.n = part->n;
        args.p = flat.value + part->start;
        args.p16 = flat.bf16 ? flat.bf16 + part->start : NULL;
        args.g = ddl_model_flat_grad(model, part->row) + part->start;
        args.m = optim->m + part->at;
        args.v = optim->v + part->at;
        args.lr = (float)(lr * (k->use_lr_scale ? (double)row->lr_scale : 1));
        args.weight_decay = k->weight_decay[row->group];
        backend->ops->adamw(backend->ctx, &args);
    }
}

/* The numbers of a part, of one kind. */
static const float *numbers_of(const struct ddl_optim *optim, const struct part *part, int kind)
{
    if (kind == PARAMETER)
        return ddl_model_flat_param(optim->model, part->row).value + part->start;
    return (kind == FIRST_MOMENT ? optim->m : optim->v) + part->at;
}

/* The counts of the first part of a row that is not finite, of one kind. */
static struct ddl_values values_of(const struct ddl_optim *optim, size_t row, int kind)
{
    struct ddl_values values = { 0 };
    for (const struct part *part = optim->parts; part < optim->parts + optim->n_parts; part++) {
        if (part->row != row || values.nan + values.inf > 0)
            continue;
        values = ddl_values_of(ddl_model_backend(optim->model), numbers_of(optim, part, kind), part->n);
        values.first += part->start;
    }
    return values;
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
    for (const struct part *part = optim->parts; part < optim->parts + optim->n_parts; part++) {
        for (int kind = 0; kind < KINDS && ddl_model_param(model, part->row)->active; kind++)
            add_squares(optim, part, numbers_of(optim, part, kind),
                        optim->sums + KINDS * part->row + (size_t)kind);
    }
    backend->ops->download(backend->ctx, optim->host_sums, optim->sums, n * sizeof *optim->host_sums);
    for (size_t i = 0; i < n; i++) {
        if (isfinite(optim->host_sums[i]))
            continue;
        *row = i / KINDS;
        *values = values_of(optim, *row, (int)(i % KINDS));
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

/* The part of `part` among numbers [start, start + n) of row i; n 0 if there is none. */
static struct part clip(const struct part *part, size_t i, size_t start, size_t n)
{
    size_t begin = part->start > start ? part->start : start;
    size_t end = part->start + part->n < start + n ? part->start + part->n : start + n;
    if (part->row != i || begin >= end)
        return (struct part){ 0 };
    return (struct part){ i, begin, end - begin, part->at + (begin - part->start) };
}

void ddl_optim_read(const struct ddl_optim *optim, size_t i, size_t start, size_t n, float *m, float *v)
{
    ddl_backend *backend = ddl_model_backend(optim->model);
    for (const struct part *part = optim->parts; part < optim->parts + optim->n_parts; part++) {
        const struct part own = clip(part, i, start, n);
        if (m && own.n)
            backend->ops->download(backend->ctx, m + (own.start - start), optim->m + own.at,
                                   own.n * sizeof *m);
        if (v && own.n)
            backend->ops->download(backend->ctx, v + (own.start - start), optim->v + own.at,
                                   own.n * sizeof *v);
    }
}

void ddl_optim_write(struct ddl_optim *optim, size_t i, size_t start, size_t n, const float *m,
                     const float *v)
{
    ddl_backend *backend = ddl_model_backend(optim->model);
    for (const struct part *part = optim->parts; part < optim->parts + optim->n_parts; part++) {
        const struct part own = clip(part, i, start, n);
        if (m && own.n)
            backend->ops->upload(backend->ctx, optim->m + own.at, m + (own.start - start), own.n * sizeof *m);
        if (v && own.n)
            backend->ops->upload(backend->ctx, optim->v + own.at, v + (own.start - start), own.n * sizeof *v);
    }
}
