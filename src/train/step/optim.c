#include "train/step/optim.h"

#include "base/mem.h"
#include "model/params/flat.h"
#include "ops/defaults.h"
#include "ops/uploads.h"

#include <math.h>

enum { PARAMETER, FIRST_MOMENT, SECOND_MOMENT, KINDS };

/* Numbers [start, start + n) of parameter `row`, whose moments begin at `at`. */
struct part {
    size_t row, start, n, at;
};

/* The arrays of the ops over all parts, in one block: first of host memory, whose contents the block of the
 * backend receives. Parts that an op skips have size 0. */
struct lists {
    int64_t *begin, *moments, *copy; /* (n_parts) where each begins: in the parameters, in m and v, in p16 */
    int64_t *active, *trained;      /* (n_parts) sizes: of active parameters, and those that are not frozen */
    int32_t *row;                   /* (n_parts) */
    float *lr_scale, *weight_decay; /* (n_parts) */
};

struct ddl_optim {
    ddl_model *model;
    struct ddl_optim_config config;
    uint64_t steps;
    struct part *parts; /* (n_parts) in ascending order: with one rank, each parameter is one part */
    size_t n_parts;
    size_t n_moments;
    float *m, *v; /* (n_moments) of all parts */
    unsigned char *host_block, *block;
    size_t block_bytes;
    struct lists host, lists;
    size_t active, trained;     /* numbers of the parts with these sizes */
    bool is_listed;             /* the lists are up to date with what is frozen, and with this: */
    const uint16_t *listed_for; /* bfloat16 numbers of the parameters */
    double *sums;               /* (KINDS, n_params) of the backend: sums of squares */
    double *host_sums;          /* the same in host memory */
    float *factor;              /* (1) of the backend: of clipping */
    double *rates;              /* (DDL_RATES) of the backend: of the next update */
    struct ddl_uploads uploads; /* of the rates */
    bool *frozen;               /* (n_params) */
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

/* Measures or places the lists: struct ddl_arena. */
static struct lists place_lists(struct ddl_arena *arena, size_t n)
{
    struct lists l;
    int64_t **longs[] = { &l.begin, &l.moments, &l.copy, &l.active, &l.trained };
    for (size_t i = 0; i < sizeof longs / sizeof *longs; i++)
        *longs[i] = ddl_arena_take(arena, n, sizeof **longs[i]);
    l.row = ddl_arena_take(arena, n, sizeof *l.row);
    l.lr_scale = ddl_arena_take(arena, n, sizeof *l.lr_scale);
    l.weight_decay = ddl_arena_take(arena, n, sizeof *l.weight_decay);
    return l;
}

size_t ddl_optim_list_bytes(size_t n_params)
{
    struct ddl_arena arena = { 0 };
    place_lists(&arena, n_params);
    return arena.used + (KINDS * n_params + DDL_RATES) * sizeof(double) + sizeof(float);
}

static bool allocate(struct ddl_optim *optim)
{
    ddl_backend *backend = ddl_model_backend(optim->model);
    size_t n_params = ddl_model_n_params(optim->model), sums = KINDS * n_params * sizeof *optim->sums;
    size_t bytes = optim->n_moments * sizeof *optim->m;
    struct ddl_arena arena = { 0 };
    place_lists(&arena, optim->n_parts);
    optim->block_bytes = arena.used;
    optim->parts = ddl_mem_alloc(optim->n_parts * sizeof *optim->parts);
    optim->m = backend->ops->alloc(backend->ctx, bytes);
    optim->v = backend->ops->alloc(backend->ctx, bytes);
    optim->sums = backend->ops->alloc(backend->ctx, sums);
    optim->factor = backend->ops->alloc(backend->ctx, sizeof *optim->factor);
    optim->rates = backend->ops->alloc(backend->ctx, DDL_RATES * sizeof *optim->rates);
    optim->block = backend->ops->alloc(backend->ctx, arena.used);
    optim->host_block = ddl_mem_zalloc(arena.used);
    optim->host_sums = ddl_mem_alloc(sums);
    optim->frozen = ddl_mem_zalloc(n_params * sizeof *optim->frozen);
    if (!optim->parts || !optim->m || !optim->v || !optim->sums || !optim->factor || !optim->rates ||
        !optim->block || !optim->host_block || !optim->host_sums || !optim->frozen ||
        !ddl_uploads_init(&optim->uploads, backend, DDL_RATES * sizeof *optim->rates))
        return false;
    optim->host = place_lists(&(struct ddl_arena){ .base = optim->host_block }, optim->n_parts);
    optim->lists = place_lists(&(struct ddl_arena){ .base = optim->block }, optim->n_parts);
    backend->ops->zero(backend->ctx, optim->m, bytes);
    backend->ops->zero(backend->ctx, optim->v, bytes);
    return true;
}

ddl_status ddl_optim_create_part(struct ddl_optim **out, ddl_model *model,
                                 const struct ddl_optim_config *config, const struct ddl_partition *partition,
                                 size_t rank, struct ddl_error *err)
{
    const enum ddl_op *needed = DDL_OP_LIST(DDL_OP_sum_squares, DDL_OP_clip, DDL_OP_adamw);
    *out = NULL;
    ddl_status status = ddl_ops_require(ddl_model_backend(model), needed, "the optimizer", err);
    if (status)
        return status;
    size_t numbers, n_parts = list_parts(model, partition, rank, NULL, &numbers);
    struct ddl_optim *optim = ddl_mem_zalloc(sizeof *optim);
    if (optim)
        *optim =
            (struct ddl_optim){ .model = model, .config = *config, .n_parts = n_parts, .n_moments = numbers };
    if (!optim || !allocate(optim)) {
        ddl_optim_free(optim);
        return ddl_error_set(err, DDL_E_MEMORY, "optimizer: out of memory for two moments of %zu bytes",
                             numbers * sizeof(float));
    }
    ddl_backend *backend = ddl_model_backend(model);
    status = backend->ops->reserve(backend->ctx, &(struct ddl_limits){ .parts = n_parts }, err);
    if (status) {
        ddl_optim_free(optim);
        return status;
    }
    (void)list_parts(model, partition, rank, optim->parts, &numbers);
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
    void *blocks[] = { optim->m, optim->v, optim->sums, optim->factor, optim->rates, optim->block };
    ddl_uploads_free(&optim->uploads, backend);
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
        if (blocks[i])
            backend->ops->free(backend->ctx, blocks[i]);
    }
    ddl_mem_free(optim->parts);
    ddl_mem_free(optim->host_block);
    ddl_mem_free(optim->host_sums);
    ddl_mem_free(optim->frozen);
    ddl_mem_free(optim);
}

void ddl_optim_freeze(struct ddl_optim *optim, size_t i, bool frozen)
{
    optim->frozen[i] = frozen;
    optim->is_listed = false;
}

/* ---- lists ---- */

/* Brings the lists up to date. */
static void list(struct ddl_optim *optim)
{
    const struct ddl_optim_config *k = &optim->config;
    const ddl_backend *backend = ddl_model_backend(optim->model);
    struct lists *to = &optim->host;
    size_t copies;
    const uint16_t *bf16 = ddl_model_flat_bf16(optim->model, &copies);
    if (optim->is_listed && optim->listed_for == bf16)
        return;
    optim->active = optim->trained = 0;
    for (size_t i = 0; i < optim->n_parts; i++) {
        const struct part *part = &optim->parts[i];
        const struct ddl_param *row = ddl_model_param(optim->model, part->row);
        const struct ddl_flat_param flat = ddl_model_flat_param(optim->model, part->row);
        size_t active = row->active ? part->n : 0, trained = optim->frozen[part->row] ? 0 : active;
        to->begin[i] = (int64_t)(flat.offset + part->start);
        to->moments[i] = (int64_t)part->at;
        to->copy[i] = flat.bf16 ? (int64_t)(flat.bf16 - bf16) + (int64_t)part->start : -1;
        to->active[i] = (int64_t)active;
        to->trained[i] = (int64_t)trained;
        to->row[i] = (int32_t)part->row;
        to->lr_scale[i] = k->use_lr_scale ? row->lr_scale : 1;
        to->weight_decay[i] = k->weight_decay[row->group];
        optim->active += active;
        optim->trained += trained;
    }
    backend->ops->upload(backend->ctx, optim->block, optim->host_block, optim->block_bytes);
    optim->is_listed = true;
    optim->listed_for = bf16;
}

/* The parameters. */
static float *parameters(const struct ddl_optim *optim)
{
    const struct ddl_flat_param first = ddl_model_flat_param(optim->model, 0);
    return first.value - first.offset;
}

/* Where the parts that are trained are in the parameters. */
static struct ddl_parts trained_parts(const struct ddl_optim *optim)
{
    return (struct ddl_parts){ .n = optim->n_parts,
                               .total = ddl_model_flat_size(optim->model),
                               .numbers = optim->trained,
                               .begin = optim->lists.begin,
                               .size = optim->lists.trained };
}

/* All gradients; those of trained parameters that are flagged as zero are zeroed. */
static const float *gradients(const struct ddl_optim *optim)
{
    for (size_t i = 0; i < optim->n_parts; i++) {
        if (optim->host.trained[i])
            (void)ddl_model_flat_grad(optim->model, optim->parts[i].row);
    }
    return ddl_model_flat_grad(optim->model, 0) - ddl_model_flat_param(optim->model, 0).offset;
}

/* Squares of all gradients into `sum`, (1) of the backend, or those of each row: (n_params). */
static void add_squares(struct ddl_optim *optim, bool by_row, double *sum)
{
    const ddl_backend *backend = ddl_model_backend(optim->model);
    list(optim);
    backend->ops->sum_squares(
        backend->ctx, &(struct sum_squares_args){ .parts = trained_parts(optim),
                                                  .x = gradients(optim),
                                                  .into = by_row ? optim->lists.row : NULL,
                                                  .sums = by_row ? ddl_model_n_params(optim->model) : 1,
                                                  .sum = sum });
}

/* ---- a step ---- */

void ddl_optim_square(struct ddl_optim *optim, double *square)
{
    add_squares(optim, false, square);
}

double ddl_optim_grad_norm(struct ddl_optim *optim)
{
    const ddl_backend *backend = ddl_model_backend(optim->model);
    double square;
    ddl_optim_square(optim, optim->sums);
    backend->ops->download(backend->ctx, &square, optim->sums, sizeof square);
    return sqrt(square);
}

ddl_status ddl_optim_grad_squares(struct ddl_optim *optim, double *squares, struct ddl_error *err)
{
    add_squares(optim, true, optim->sums);
    return ddl_download(ddl_model_backend(optim->model), squares, optim->sums,
                        ddl_model_n_params(optim->model) * sizeof *squares, err);
}

void ddl_optim_clip(struct ddl_optim *optim, const double *square, size_t n, const double *losses)
{
    const ddl_backend *backend = ddl_model_backend(optim->model);
    backend->ops->clip(backend->ctx, &(struct clip_args){ .clip = optim->config.clip,
                                                          .n = n,
                                                          .losses = losses,
                                                          .square = square,
                                                          .factor = optim->factor });
}

void ddl_optim_update(struct ddl_optim *optim, double lr)
{
    const struct ddl_optim_config *k = &optim->config;
    const ddl_backend *backend = ddl_model_backend(optim->model);
    double t = (double)++optim->steps, *rates = ddl_uploads_next(&optim->uploads, backend);
    struct adamw_args args = { .moments = optim->lists.moments,
                               .lr_scale = optim->lists.lr_scale,
                               .weight_decay = optim->lists.weight_decay,
                               .p = parameters(optim),
                               .n_moments = optim->n_moments,
                               .m = optim->m,
                               .v = optim->v,
                               .g_scale = optim->factor,
                               .rates = optim->rates,
                               .beta1 = k->beta1,
                               .beta2 = k->beta2,
                               .eps = k->eps };
    rates[0] = lr;
    rates[1] = (double)(float)(1 - pow((double)k->beta1, t));
    rates[2] = (double)(float)(1 - pow((double)k->beta2, t));
    ddl_uploads_send(&optim->uploads, backend, optim->rates, rates, DDL_RATES * sizeof *rates);
    list(optim);
    args.parts = trained_parts(optim);
    args.g = gradients(optim);
    args.p16 = ddl_model_flat_bf16(optim->model, &args.copies);
    args.copy = args.p16 ? optim->lists.copy : NULL;
    backend->ops->adamw(backend->ctx, &args);
}

void ddl_optim_step(struct ddl_optim *optim, double lr)
{
    ddl_optim_square(optim, optim->sums);
    ddl_optim_clip(optim, optim->sums, 0, NULL);
    ddl_optim_update(optim, lr);
}

/* ---- numbers that are not finite ---- */

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

ddl_status ddl_optim_find_corrupted(struct ddl_optim *optim, struct ddl_corrupted *out, struct ddl_error *err)
{
    static const char *const names[KINDS] = { "parameter", "first moment", "second moment" };
    ddl_backend *backend = ddl_model_backend(optim->model);
    const struct lists *l = &optim->lists;
    const float *numbers[KINDS] = { parameters(optim), optim->m, optim->v };
    size_t n = ddl_model_n_params(optim->model);
    list(optim);
    /* A sum is in double: squares of float32 numbers do not overflow it. Those of inactive parameters are 0.
     */
    for (size_t kind = 0; kind < KINDS; kind++) {
        struct sum_squares_args args = {
            .parts = { .n = optim->n_parts, .numbers = optim->active, .size = l->active },
            .x = numbers[kind],
            .into = l->row,
            .sums = n,
            .sum = optim->sums + kind * n
        };
        args.parts.begin = kind == PARAMETER ? l->begin : l->moments;
        args.parts.total = kind == PARAMETER ? ddl_model_flat_size(optim->model) : optim->n_moments;
        backend->ops->sum_squares(backend->ctx, &args);
    }
    *out = (struct ddl_corrupted){ 0 };
    ddl_status status =
        ddl_download(backend, optim->host_sums, optim->sums, KINDS * n * sizeof *optim->host_sums, err);
    for (size_t i = 0; i < KINDS * n && !status && !out->kind; i++) {
        size_t kind = i % KINDS, row = i / KINDS;
        if (!isfinite(optim->host_sums[kind * n + row]))
            *out = (struct ddl_corrupted){ names[kind], row, values_of(optim, row, (int)kind) };
    }
    return status ? status : backend->ops->check_error(backend->ctx, err);
}

/* ---- state ---- */

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
