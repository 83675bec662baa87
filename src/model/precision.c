/* The form in which products read the weights: float32 as they are, a copy rounded to bfloat16, or a copy in
 * eight-bit groups. Copies follow the values: the optimiser writes the rounded one itself, everything else
 * marks them stale, and the next pass makes them again. */
#include "model/internal.h"

static size_t groups_in(size_t width)
{
    return width / DDL_GROUP + (width % DDL_GROUP != 0);
}

/* Groups of a row of the parameter table; vectors and kernels have none, no product reads them. */
static size_t groups_of(const struct ddl_param *row)
{
    bool matrix = row->group == DDL_GROUP_MATRIX || row->group == DDL_GROUP_EMBEDDING;
    size_t width = matrix ? row->shape[1] : 0, rows = matrix ? row->shape[0] : 0;
    return rows * groups_in(width);
}

static ddl_status alloc_copy(const struct ddl_model *model, size_t bytes, void **out, const char *what,
                             struct ddl_error *err)
{
    *out = model->backend->ops->alloc(model->backend->ctx, bytes);
    return *out ? DDL_OK
                : ddl_error_set(err, DDL_E_MEMORY, "model: out of memory for %zu bytes of %s weights", bytes,
                                what);
}

static ddl_status make_groups(struct ddl_model *model, struct ddl_error *err)
{
    size_t total = 0;
    model->group_offset = ddl_mem_alloc(model->params.n * sizeof *model->group_offset);
    if (!model->group_offset)
        return ddl_error_set(err, DDL_E_MEMORY, "model: out of memory");
    for (size_t i = 0; i < model->params.n; i++) {
        model->group_offset[i] = total;
        total += groups_of(&model->params.row[i]);
    }
    return alloc_copy(model, total * sizeof *model->groups, (void **)&model->groups, "eight-bit", err);
}

void precision_drop(struct ddl_model *model)
{
    const struct ddl_backend *backend = model->backend;
    if (model->rounded)
        backend->ops->free(backend->ctx, model->rounded);
    if (model->groups)
        backend->ops->free(backend->ctx, model->groups);
    ddl_mem_free(model->group_offset);
    model->rounded = NULL;
    model->groups = NULL;
    model->group_offset = NULL;
    model->precision = DDL_PRECISION_F32;
}

ddl_status ddl_model_set_precision(ddl_model *model, enum ddl_precision precision, struct ddl_error *err)
{
    ddl_status status = DDL_OK;
    precision_drop(model);
    if (precision == DDL_PRECISION_BF16)
        status = alloc_copy(model, model->params.total * sizeof *model->rounded, (void **)&model->rounded,
                            "bfloat16", err);
    else if (precision == DDL_PRECISION_INT8)
        status = make_groups(model, err);
    if (status) {
        precision_drop(model);
        return status;
    }
    model->precision = precision;
    model->stale = true;
    return DDL_OK;
}

enum ddl_precision ddl_model_precision(const ddl_model *model)
{
    return model->precision;
}

#define TRAINING [DDL_PRECISION_F32] = "f32", [DDL_PRECISION_BF16] = "bf16"
const char *const ddl_training_precision_names[] = { TRAINING, NULL };
const char *const ddl_precision_names[] = { TRAINING, [DDL_PRECISION_INT8] = "int8", NULL };
#undef TRAINING

void precision_refresh(struct ddl_model *model)
{
    const struct ddl_ops *ops = model->backend->ops;
    void *ctx = model->backend->ctx;
    if (!model->stale)
        return;
    if (model->rounded)
        ops->round16(ctx, &(struct round16_args){ model->params.total, model->value, model->rounded });
    for (size_t i = 0; model->groups && i < model->params.n; i++) {
        const struct ddl_param *row = &model->params.row[i];
        if (groups_of(row))
            ops->quantize8(ctx, &(struct quantize8_args){ row->shape[0], row->shape[1],
                                                          model->value + model->params.offset[i],
                                                          model->groups + model->group_offset[i] });
    }
    model->stale = false;
}

struct weight param_exact(const struct pass *p, int slot)
{
    return (struct weight){ .form = { .value = param_value(p, slot) },
                            .grad = p->m->grad ? param_grad(p, slot) : NULL };
}

struct weight param_weight(const struct pass *p, int slot)
{
    const struct ddl_model *m = p->m;
    struct weight weight = param_exact(p, slot);
    weight.form.rounded = m->rounded ? m->rounded + m->params.offset[slot] : NULL;
    weight.form.groups = m->groups ? m->groups + m->group_offset[slot] : NULL;
    return weight;
}

struct operand operand_rows(struct operand x, size_t first, size_t width)
{
    size_t at = first * width;
    return (struct operand){ .value = x.value ? x.value + at : NULL,
                             .rounded = x.rounded ? x.rounded + at : NULL,
                             .groups = x.groups ? x.groups + first * groups_in(width) : NULL };
}

struct weight weight_rows(struct weight W, size_t first, size_t width)
{
    return (struct weight){ .form = operand_rows(W.form, first, width),
                            .grad = W.grad ? W.grad + first * width : NULL };
}
