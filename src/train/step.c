#include "train/step.h"

#include <math.h>

double ddl_step_scale(const struct ddl_step *step)
{
    size_t n = step->accumulate * step->batch * step->seq, counted = 0;
    for (size_t i = 0; i < n; i++)
        counted += step->targets[i] >= 0;
    return counted ? 1 / (double)counted : 0;
}

/* All micro-batches; ends at the first whose loss is not finite. */
static ddl_status gradient(const struct ddl_step *step, struct ddl_step_result *out, struct ddl_error *err)
{
    size_t rows = step->batch * step->seq;
    /* The mean is over the whole step, so its targets are counted before the first micro-batch. */
    double scale = ddl_step_scale(step);
    ddl_model_zero_grad(step->model);
    for (size_t k = 0; k < step->accumulate; k++) {
        struct ddl_loss loss;
        struct ddl_batch batch = { step->batch, step->seq, step->tokens + k * rows,
                                   step->targets + k * rows };
        ddl_workspace_set_probe(step->ws, k == 0 ? step->probe : NULL);
        ddl_status status = ddl_model_backward(step->model, step->ws, &batch, scale, &loss, err);
        ddl_workspace_set_probe(step->ws, NULL);
        if (status)
            return status;
        out->loss += loss.sum * scale;
        out->failed = k;
        if (!isfinite(loss.sum))
            return ddl_error_set(err, DDL_E_NUMERIC, "the loss of micro-batch %zu of %zu is not finite",
                                 k + 1, step->accumulate);
    }
    out->failed = step->accumulate;
    out->grad_norm = ddl_optim_grad_norm(step->optim);
    if (!isfinite(out->grad_norm))
        return ddl_error_set(err, DDL_E_NUMERIC, "the gradient is not finite, the loss is %.6g", out->loss);
    return DDL_OK;
}

ddl_status ddl_step_run(const struct ddl_step *step, double lr, struct ddl_step_result *out,
                        struct ddl_error *err)
{
    *out = (struct ddl_step_result){ 0 };
    ddl_status status = gradient(step, out, err);
    if (status)
        return status;
    if (step->spike.z > 0)
        out->decision = ddl_spike_decide(&step->spike, step->spike_state, out->grad_norm, &out->spike);
    if (out->decision != DDL_SPIKE_SKIP)
        ddl_optim_step(step->optim, lr, out->grad_norm);
    return DDL_OK;
}
