/* Parameter gradients with lazy zeroing. ddl_model_zero_grad() only sets a flag per parameter; the buffer is
 * not cleared. The first GEMM of a step overwrites a flagged gradient (beta = 0) instead of accumulating into
 * it; any other access goes through gradient_of(), which clears it first. This saves one pass over all
 * gradients per step. No other file takes the address of a gradient. */
#include "model/params/gradients.h"
#include "model/params/precision.h"
#include "model/pass/workspace.h"

#include <string.h>

void ddl_model_zero_grad(ddl_model *model)
{
    for (size_t i = 0; model->grad_is_zero && i < model->params.n; i++)
        model->grad_is_zero[i] = true;
}

float *gradient_of(struct ddl_model *model, size_t i)
{
    float *grad = model->grad + model->params.offset[i];
    if (model->grad_is_zero[i])
        model->backend->ops->zero(model->backend->ctx, grad, model->params.row[i].count * sizeof *grad);
    model->grad_is_zero[i] = false;
    return grad;
}

void ddl_model_read_grad(const ddl_model *model, size_t i, float *out)
{
    size_t bytes = model->params.row[i].count * sizeof *out;
    if (model->grad_is_zero[i])
        memset(out, 0, bytes);
    else
        model->backend->ops->download(model->backend->ctx, out, model->grad + model->params.offset[i], bytes);
}

float *param_grad(const struct pass *p, int param)
{
    return param < 0 ? NULL : gradient_of(p->m, (size_t)param);
}

/* Adds the gradient of row `param` and of the rows fused with it, and clears their flags. Where only some
 * were set, those gradients are zeroed, as the product that writes all of them must accumulate. */
static struct weight with_grad(const struct pass *p, int param, struct weight W)
{
    struct ddl_model *model = p->m;
    const size_t *next = model->params.fused_next;
    W.grad = model->grad + model->params.offset[param];
    W.grad_is_zero = true;
    for (size_t i = (size_t)param; i != DDL_NO_ROW; i = next[i])
        W.grad_is_zero &= model->grad_is_zero[i];
    for (size_t i = (size_t)param; i != DDL_NO_ROW; i = next[i]) {
        if (W.grad_is_zero)
            model->grad_is_zero[i] = false;
        else
            gradient_of(model, i);
    }
    return W;
}

struct weight param_weight_bwd(const struct pass *p, int param)
{
    return with_grad(p, param, param_weight(p, param));
}

struct weight param_exact_bwd(const struct pass *p, int param)
{
    return with_grad(p, param, param_exact(p, param));
}

void gradients_zero_flagged(struct ddl_model *model, size_t first)
{
    for (size_t i = first; i < model->params.n; i++) {
        if (model->grad_is_zero[i])
            (void)gradient_of(model, i);
    }
}

void gradients_are_final(const struct pass *p, size_t first)
{
    const struct ddl_workspace *ws = p->ws;
    if (!ws->grads_final)
        return;
    gradients_zero_flagged(p->m, first);
    ws->grads_final(ws->grads_user, p->m->grad, first ? p->m->params.offset[first] : 0);
}
