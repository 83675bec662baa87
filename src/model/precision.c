/* The form in which products read the weights: float32 as they are, rounded to bfloat16, or in eight-bit
 * tiles. In training the reduced form is a copy that follows the values: the optimiser writes the rounded
 * one itself, everything else marks it stale, and the next pass makes it again. A model for inference has no
 * other form of these rows: what is written to it is reduced as it comes. */
#include "model/precision.h"

#include "base/mem.h"
#include "ddl/option.h"
#include "model/flat.h"
#include "model/measure.h"

enum {
    PIECE = 1 << 16,      /* numbers on their way between host and backend; a wider row is a piece too */
    PIECE_ROWS = 1 << 10, /* rows of a matrix that are reduced or widened at a time                    */
};

size_t precision_row_bytes(const struct params *params, size_t i, enum ddl_precision precision)
{
    const struct ddl_param *row = &params->row[i];
    if (!params->in_products[i] || precision == DDL_PRECISION_F32)
        return row->count * sizeof(float);
    if (precision == DDL_PRECISION_BF16)
        return row->count * sizeof(uint16_t);
    size_t above = params->above[i]; /* joined rows share tiles */
    return (ddl_q8_tiles(above + row->shape[0], row->shape[1]) - ddl_q8_tiles(above, row->shape[1])) *
           sizeof(struct ddl_q8);
}

size_t ddl_model_pass_bytes(const ddl_model *model)
{
    size_t bytes = 0;
    for (size_t i = 0; i < model->params.n; i++)
        bytes += model->params.row[i].active ? precision_row_bytes(&model->params, i, model->precision) : 0;
    return bytes;
}

/* ---- making and dropping ---- */

/* Where the rows that products read stand, joined ones without a gap; in tiles, where their whole matrix
 * does. Returns the bytes of all. */
static size_t place(const struct params *params, enum ddl_precision precision, size_t *offset)
{
    size_t begin = 0, end = 0;
    for (size_t first = 0; first < params->n; first++) {
        if (!params->in_products[first] || params->above[first])
            continue;
        begin = end = (end + DDL_ALIGN - 1) / DDL_ALIGN * DDL_ALIGN;
        for (size_t i = first; i != DDL_NO_ROW; i = params->fused_next[i]) {
            offset[i] = precision == DDL_PRECISION_INT8 ? begin : end;
            end += precision_row_bytes(params, i, precision);
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
        bytes = place(&model->params, precision, model->reduced_offset);
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
    int32_t rows[PIECE_ROWS];
    for (int32_t i = 0; i < PIECE_ROWS; i++)
        rows[i] = i;
    size_t bytes = precision_largest_piece(model) * sizeof *model->staging;
    ddl_status status = make_reduced(model, precision, err);
    if (status)
        return status;
    model->lean = true;
    model->staging = backend->ops->alloc(backend->ctx, bytes);
    model->staging_rows = backend->ops->alloc(backend->ctx, sizeof rows);
    if (!model->staging || !model->staging_rows)
        return ddl_error_set(err, DDL_E_MEMORY, "model: out of memory for %zu bytes to reduce weights in",
                             bytes);
    backend->ops->upload(backend->ctx, model->staging_rows, rows, sizeof rows);
    return DDL_OK;
}

void precision_drop(struct ddl_model *model)
{
    const struct ddl_backend *backend = model->backend;
    void *blocks[] = { model->reduced, model->staging, model->staging_rows };
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
        if (blocks[i])
            backend->ops->free(backend->ctx, blocks[i]);
    }
    ddl_mem_free(model->reduced_offset);
    model->reduced = NULL;
    model->staging = NULL;
    model->staging_rows = NULL;
    model->reduced_offset = NULL;
    model->precision = DDL_PRECISION_F32;
}

ddl_status ddl_model_set_precision(ddl_model *model, enum ddl_precision precision, struct ddl_error *err)
{
    ddl_status status = precision_check(precision, err);
    if (status)
        return status;
    if (model->lean && precision != model->precision)
        return ddl_error_set(err, DDL_E_USAGE, "the model holds its weights in %s alone; load it anew for %s",
                             ddl_precision_names[model->precision], ddl_precision_names[precision]);
    if (model->lean)
        return DDL_OK;
    precision_drop(model);
    return precision == DDL_PRECISION_F32 ? DDL_OK : make_reduced(model, precision, err);
}

enum ddl_precision ddl_model_precision(const ddl_model *model)
{
    return model->precision;
}

#define TRAINING [DDL_PRECISION_F32] = "f32", [DDL_PRECISION_BF16] = "bf16"
const char *const ddl_training_precision_names[] = { TRAINING, NULL };
const char *const ddl_precision_names[] = { TRAINING, [DDL_PRECISION_INT8] = "int8", NULL };
#undef TRAINING

ddl_status precision_check(enum ddl_precision precision, struct ddl_error *err)
{
    return ddl_choice_check("precision", ddl_precision_names, (int)precision, err);
}

ddl_status precision_check_values(const ddl_model *model, const char *what, struct ddl_error *err)
{
    return model->lean ? ddl_error_set(err, DDL_E_USAGE,
                                       "the model holds its weights in %s alone, for inference; %s it in f32",
                                       ddl_precision_names[model->precision], what)
                       : DDL_OK;
}

/* ---- writing and reading ---- */

static unsigned char *reduced_row(const ddl_model *model, size_t i, enum ddl_precision precision)
{
    bool there = model->reduced && model->precision == precision && model->params.in_products[i];
    return there ? model->reduced + model->reduced_offset[i] : NULL;
}

uint16_t *precision_rounded(const ddl_model *model, size_t i)
{
    return (void *)reduced_row(model, i, DDL_PRECISION_BF16);
}

static struct ddl_q8 *tiles_of(const ddl_model *model, size_t i)
{
    return (void *)reduced_row(model, i, DDL_PRECISION_INT8);
}

static bool has_value(const ddl_model *model, size_t i)
{
    return model->params.offset[i] != DDL_NO_PLACE;
}

static struct operand form_of(const ddl_model *model, size_t i)
{
    return (struct operand){ .value = has_value(model, i) ? model->value + model->params.offset[i] : NULL,
                             .rounded = precision_rounded(model, i),
                             .tiles = tiles_of(model, i),
                             .first = model->params.above[i] };
}

/* Numbers [start, start + n) of row i, whole rows of the matrix, from `from` on the backend. */
static void reduce(const ddl_model *model, size_t i, size_t start, size_t n, const float *from)
{
    const struct ddl_backend *backend = model->backend;
    size_t width = model->params.row[i].shape[1];
    struct operand to = form_of(model, i);
    if (to.rounded)
        backend->ops->cast_bf16(backend->ctx,
                                &(struct cast_bf16_args){ n, from, precision_rounded(model, i) + start });
    else if (to.tiles)
        backend->ops->quantize_q8(backend->ctx,
                                  &(struct quantize_q8_args){ n / width, width, to.first + start / width,
                                                              from, tiles_of(model, i) });
}

void precision_refresh(struct ddl_model *model)
{
    for (size_t i = 0; model->stale && !model->lean && model->reduced && i < model->params.n; i++) {
        if (model->params.in_products[i])
            reduce(model, i, 0, model->params.row[i].count, model->value + model->params.offset[i]);
    }
    model->stale = false;
}

size_t precision_piece(const ddl_model *model, size_t i)
{
    if (has_value(model, i))
        return PIECE;
    size_t width = model->params.row[i].shape[1], rows = PIECE / width;
    rows = rows < 1 ? 1 : rows < PIECE_ROWS ? rows : PIECE_ROWS;
    return rows * width;
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
    const float *from = model->staging;
    if (has_value(model, i)) {
        from = model->value + model->params.offset[i] + start;
    } else {
        size_t width = model->params.row[i].shape[1];
        struct operand rows = operand_rows(form_of(model, i), start / width, width);
        operand_gather(backend, rows, width, n / width, model->staging_rows, model->staging);
    }
    backend->ops->download(backend->ctx, host, from, n * sizeof *host);
}

/* ---- for a pass ---- */

float *param_value(const struct pass *p, int slot)
{
    const struct ddl_model *m = p->m;
    return slot < 0 || !has_value(m, (size_t)slot) ? NULL : m->value + m->params.offset[slot];
}

struct weight param_exact(const struct pass *p, int slot)
{
    return (struct weight){ .form = { .value = param_value(p, slot) } };
}

struct weight param_weight(const struct pass *p, int slot)
{
    return (struct weight){ .form = form_of(p->m, (size_t)slot) };
}

/* ---- for the optimizer ---- */

size_t ddl_model_flat_size(const ddl_model *model)
{
    return model->params.total;
}

struct ddl_flat_param ddl_model_flat_param(const ddl_model *model, size_t i)
{
    size_t offset = model->params.offset[i];
    return (struct ddl_flat_param){ offset, model->value + offset, precision_rounded(model, i) };
}
