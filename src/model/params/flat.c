#include "model/params/flat.h"

#include "model/params/gradients.h"
#include "model/params/precision.h"
#include "model/pass/workspace.h"

size_t ddl_model_flat_size(const ddl_model *model)
{
    return model->params.total;
}

float *ddl_model_flat_values(ddl_model *model)
{
    model->stale = true;
    return model->value;
}

uint16_t *ddl_model_flat_bf16(const ddl_model *model, size_t *numbers)
{
    *numbers = model->precision == DDL_PRECISION_BF16 ? model->reduced_bytes / sizeof(uint16_t) : 0;
    return *numbers ? (void *)model->reduced : NULL;
}

struct ddl_flat_param ddl_model_flat_param(const ddl_model *model, size_t i)
{
    size_t offset = model->params.offset[i];
    return (struct ddl_flat_param){ offset, model->value + offset, precision_bf16(model, i) };
}

float *ddl_model_flat_grad(ddl_model *model, size_t i)
{
    return gradient_of(model, i);
}

float *ddl_model_flat_grads(ddl_model *model)
{
    gradients_zero_flagged(model, 0);
    return model->grad;
}

void ddl_workspace_set_grads_final(ddl_workspace *ws, ddl_grads_final_fn *call, void *user)
{
    ws->grads_final = call;
    ws->grads_user = user;
}
