/* The formats in which products read the weights: float32 (f32 and tf32), bfloat16, or 8-bit in a format of
 * the backend.
 * During training the reduced format is a copy of the values: the optimizer writes bfloat16 itself, any other
 * write marks it stale, and the next pass recomputes it. An inference-only model has no other format of these
 * rows: values are reduced as they are written. */
#include "model/params/precision.h"

#include "base/mem.h"
#include "ddl/option.h"

enum {
    PIECE = 1 << 16, /* numbers that are transferred between host and backend at a time, or one wider row */
};

size_t precision_row_bytes(const struct params *params, size_t i, enum ddl_precision precision,
                           const struct ddl_backend *backend)
{
    const struct ddl_param *row = &params->row[i];
    if (!params->in_products[i] || precision_is_float32(precision))
        return row->count * sizeof(float);
    if (precision == DDL_PRECISION_BF16)
        return row->count * sizeof(uint16_t);
    size_t offset = params->row_offset[i]; /* fused rows are one matrix */
    return backend->ops->q8_bytes(backend->ctx, offset + row->shape[0], row->shape[1]) -
           backend->ops->q8_bytes(backend->ctx, offset, row->shape[1]);
}

/* ---- allocation ---- */

/* Offsets of the rows that products read: fused ones without a gap; in 8 bits, the offset of their whole
 * matrix. Returns the bytes of all. */
static size_t place(const struct params *params, enum ddl_precision precision,
                    const struct ddl_backend *backend, size_t *offset)
{
    size_t begin = 0, end = 0;
    for (size_t first = 0; first < params->n; first++) {
        if (!params->in_products[first] || params->row_offset[first])
            continue;
        begin = end = (end + DDL_ALIGN - 1) / DDL_ALIGN * DDL_ALIGN;
        for (size_t i = first; i != DDL_NO_ROW; i = params->fused_next[i]) {
            offset[i] = precision == DDL_PRECISION_INT8 ? begin : end;
            end += precision_row_bytes(params, i, precision, backend);
        }
    }
    return end;
}

static ddl_status make_reduced(struct ddl_model *model, enum ddl_precision precision, struct ddl_error *err)
{
    const struct ddl_backend *backend = model->backend;
    size_t bytes = 0;
    model->reduced_offset = ddl_mem_zalloc(model->params.n * sizeof *model->reduced_offset);
    if (model->reduced_offset) {
        bytes = model->reduced_bytes = place(&model->params, precision, backend, model->reduced_offset);
        model->reduced = backend->ops->alloc(backend->ctx, bytes);
    }
    if (!model->reduced) {
        precision_drop(model);
        return ddl_error_set(err, DDL_E_MEMORY, "model: out of memory for %zu bytes of %s weights", bytes,
                             ddl_precision_names[precision]);
    }
    backend->ops->zero(backend->ctx, model->reduced, bytes);
    model->precision = precision;
    model->stale = true;
    return DDL_OK;
}

size_t precision_largest_piece(const ddl_model *model)
{
    size_t most = PIECE;
    for (size_t i = 0; i < model->params.n; i++) {
        if (model->params.in_products[i] && model->params.row[i].shape[1] > most)
            most = model->params.row[i].shape[1];
    }
    return most;
}

ddl_status precision_make_only(struct ddl_model *model, enum ddl_precision precision, struct ddl_error *err)
{
    const struct ddl_backend *backend = model->backend;
    size_t bytes = precision_largest_piece(model) * sizeof *model->staging;
    ddl_status status = make_reduced(model, precision, err);
    if (status)
        return status;
    model->inference_only = true;
    model->staging = backend->ops->alloc(backend->ctx, bytes);
    if (!model->staging)
        return ddl_error_set(err, DDL_E_MEMORY, "model: out of memory for %zu bytes to reduce weights in",
                             bytes);
    return DDL_OK;
}

void precision_drop(struct ddl_model *model)
{
    const struct ddl_backend *backend = model->backend;
    void *blocks[] = { model->reduced, model->staging };
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
        if (blocks[i])
            backend->ops->free(backend->ctx, blocks[i]);
    }
    ddl_mem_free(model->reduced_offset);
    model->reduced = NULL;
    model->staging = NULL;
    model->reduced_offset = NULL;
    model->precision = DDL_PRECISION_F32;
}

ddl_status precision_change(struct ddl_model *model, enum ddl_precision precision, struct ddl_error *err)
{
    precision_drop(model);
    if (!precision_is_float32(precision))
        return make_reduced(model, precision, err);
    model->precision = precision;
    return DDL_OK;
}

enum ddl_precision ddl_model_precision(const ddl_model *model)
{
    return model->precision;
}

#define TRAINING [DDL_PRECISION_F32] = "f32", [DDL_PRECISION_BF16] = "bf16", [DDL_PRECISION_TF32] = "tf32"
const char *const ddl_training_precision_names[] = { TRAINING, NULL };
const char *const ddl_precision_names[] = { TRAINING, [DDL_PRECISION_INT8] = "int8", NULL };
#undef TRAINING

ddl_status precision_check(enum ddl_precision precision, struct ddl_error *err)
{
    return ddl_choice_check("precision", ddl_precision_names, (int)precision, err);
}

ddl_status precision_check_backend(enum ddl_precision precision, const struct ddl_backend *backend,
                                   struct ddl_error *err)
{
    if (precision != DDL_PRECISION_TF32 || backend->ops->has_tf32)
        return DDL_OK;
    return ddl_error_set(err, DDL_E_UNSUPPORTED,
                         "dtype tf32: backend %s does not have it: use f32 or bf16, or backend cuda",
                         backend->ops->name);
}

ddl_status precision_check_values(const ddl_model *model, const char *what, struct ddl_error *err)
{
    return model->inference_only
               ? ddl_error_set(err, DDL_E_USAGE,
                               "the model holds its weights in %s alone, for inference; %s it in f32",
                               ddl_precision_names[model->precision], what)
               : DDL_OK;
}

/* ---- writing and reading ---- */

static void *reduced_row(const ddl_model *model, size_t i, enum ddl_precision precision)
{
    bool there = model->reduced && model->precision == precision && model->params.in_products[i];
    return there ? model->reduced + model->reduced_offset[i] : NULL;
}

uint16_t *precision_bf16(const ddl_model *model, size_t i)
{
    return reduced_row(model, i, DDL_PRECISION_BF16);
}

static void *precision_q8(const ddl_model *model, size_t i)
{
    return reduced_row(model, i, DDL_PRECISION_INT8);
}

static bool has_value(const ddl_model *model, size_t i)
{
    return model->params.offset[i] != DDL_NO_PLACE;
}

/* Writes numbers [start, start + n) of row i, whole rows of the matrix, from `from` on the backend. */
static void reduce(const ddl_model *model, size_t i, size_t start, size_t n, const float *from)
{
    const struct ddl_backend *backend = model->backend;
    size_t width = model->params.row[i].shape[1];
    uint16_t *bf16 = precision_bf16(model, i);
    if (bf16)
        backend->ops->cast_bf16(backend->ctx, &(struct cast_bf16_args){ n, from, bf16 + start });
    else
        backend->ops->quantize_q8(
            backend->ctx, &(struct quantize_q8_args){ .rows = n / width,
                                                      .width = width,
                                                      .first = model->params.row_offset[i] + start / width,
                                                      .x = from,
                                                      .W = precision_q8(model, i) });
}

/* Reads them back into `to` on the backend. */
static void restore(const ddl_model *model, size_t i, size_t start, size_t n, float *to)
{
    const struct ddl_backend *backend = model->backend;
    size_t width = model->params.row[i].shape[1];
    const uint16_t *bf16 = precision_bf16(model, i);
    if (bf16)
        backend->ops->widen_bf16(backend->ctx, &(struct widen_bf16_args){ n, bf16 + start, to });
    else
        backend->ops->dequantize_q8(
            backend->ctx, &(struct dequantize_q8_args){ .rows = n / width,
                                                        .width = width,
                                                        .first = model->params.row_offset[i] + start / width,
                                                        .W = precision_q8(model, i),
                                                        .x = to });
}

void precision_refresh(struct ddl_model *model)
{
    for (size_t i = 0; model->stale && !model->inference_only && model->reduced && i < model->params.n; i++) {
        if (model->params.in_products[i])
            reduce(model, i, 0, model->params.row[i].count, model->value + model->params.offset[i]);
    }
    model->stale = false;
}

size_t precision_piece(const ddl_model *model, size_t i)
{
    if (has_value(model, i))
        return PIECE;
    size_t width = model->params.row[i].shape[1];
    return width < PIECE ? PIECE / width * width : width;
}

void precision_write(ddl_model *model, size_t i, size_t start, size_t n, const float *host)
{
    const struct ddl_backend *backend = model->backend;
    bool in_place = has_value(model, i);
    float *to = in_place ? model->value + model->params.offset[i] + start : model->staging;
    backend->ops->upload(backend->ctx, to, host, n * sizeof *host);
    if (!in_place)
        reduce(model, i, start, n, to);
    model->stale = true;
}

void precision_read(const ddl_model *model, size_t i, size_t start, size_t n, float *host)
{
    const struct ddl_backend *backend = model->backend;
    bool in_place = has_value(model, i);
    if (!in_place)
        restore(model, i, start, n, model->staging);
    const float *from = in_place ? model->value + model->params.offset[i] + start : model->staging;
    backend->ops->download(backend->ctx, host, from, n * sizeof *host);
}

/* ---- for a pass ---- */

float *param_value(const struct pass *p, int param)
{
    const struct ddl_model *m = p->m;
    return param < 0 || !has_value(m, (size_t)param) ? NULL : m->value + m->params.offset[param];
}

struct weight param_exact(const struct pass *p, int param)
{
    return (struct weight){ .form = { .value = param_value(p, param) } };
}

struct weight param_weight(const struct pass *p, int param)
{
    const ddl_model *m = p->m;
    size_t i = (size_t)param;
    return (struct weight){ .form = { .value = has_value(m, i) ? m->value + m->params.offset[i] : NULL,
                                      .bf16 = reduced_row(m, i, DDL_PRECISION_BF16),
                                      .q8 = reduced_row(m, i, DDL_PRECISION_INT8),
                                      .first = m->params.row_offset[i] },
                            .tf32 = m->precision == DDL_PRECISION_TF32 };
}
