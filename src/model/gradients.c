/* Gradients of the parameters. To zero them all is to write as many zeros as the model has weights, for the
 * first products of the step to read and add to. So ddl_model_zero_grad marks each row blank and leaves it: a
 * blank row's gradient is 0, whatever its memory holds. Who comes first makes that true: products write a
 * blank matrix instead of adding to it, everybody else gets the row from gradient_of, which zeroes it. No
 * other file takes its address. */
#include "model/gradients.h"
#include "model/flat.h"
#include "model/model.h"
#include "model/precision.h"

#include <string.h>

void ddl_model_zero_grad(ddl_model *model)
{
    for (size_t i = 0; model->blank && i < model->params.n; i++)
        model->blank[i] = true;
}

float *gradient_of(struct ddl_model *model, size_t i)
{
    float *grad = model->grad + model->params.offset[i];
    if (model->blank[i])
        model->backend->ops->zero(model->backend->ctx, grad, model->params.row[i].count * sizeof *grad);
    model->blank[i] = false;
    return grad;
}

void ddl_model_read_grad(const ddl_model *model, size_t i, float *out)
{
    size_t bytes = model->params.row[i].count * sizeof *out;
    if (model->blank[i])
        memset(out, 0, bytes);
    else
        model->backend->ops->download(model->backend->ctx, out, model->grad + model->params.offset[i], bytes);
}

float *param_grad(const struct pass *p, int slot)
{
    return slot < 0 ? NULL : gradient_of(p->m, (size_t)slot);
}

/* Whether row i and those joined to it are blank, which they are no longer. Where only some are, those are
 * zeroed: the product that fills all of them can but add. */
static bool take_blank(struct ddl_model *model, size_t i)
{
    const size_t *next = model->params.fused_next;
    bool blank = true;
    for (size_t j = i; j != DDL_NO_ROW; j = next[j])
        blank &= model->blank[j];
    for (; i != DDL_NO_ROW; i = next[i]) {
        if (blank)
            model->blank[i] = false;
        else
            gradient_of(model, i);
    }
    return blank;
}

static struct weight with_grad(const struct pass *p, int slot, struct weight W)
{
    W.grad = p->m->grad + p->m->params.offset[slot];
    W.blank = take_blank(p->m, (size_t)slot);
    return W;
}

struct weight param_weight_bwd(const struct pass *p, int slot)
{
    return with_grad(p, slot, param_weight(p, slot));
}

struct weight param_exact_bwd(const struct pass *p, int slot)
{
    return with_grad(p, slot, param_exact(p, slot));
}

float *ddl_model_flat_grad(ddl_model *model, size_t i)
{
    return gradient_of(model, i);
}
