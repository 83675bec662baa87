#include "run/step.h"

#include <math.h>

static size_t count_targets(const int32_t *targets, size_t n)
{
    size_t counted = 0;
    for (size_t i = 0; i < n; i++)
        counted += targets[i] >= 0;
    return counted;
}

ddl_status ddl_step_run(const struct ddl_step *step, double lr, struct ddl_step_result *out,
                        struct ddl_error *err)
{
    size_t rows = step->batch * step->seq;
    /* The mean is over the whole step, so its targets are counted before the first micro-batch. */
    size_t counted = count_targets(step->targets, step->accumulate * rows);
    double scale = counted ? 1 / (double)counted : 0, sum = 0;
    ddl_model_zero_grad(step->model);
    for (size_t k = 0; k < step->accumulate; k++) {
        struct ddl_loss loss;
        struct ddl_batch batch = { step->batch, step->seq, step->tokens + k * rows,
                                   step->targets + k * rows };
        ddl_status status = ddl_model_backward(step->model, step->ws, &batch, scale, &loss, err);
        if (status)
            return status;
        sum += loss.sum;
    }
    out->loss = sum * scale;
    out->grad_norm = ddl_optim_grad_norm(step->optim);
    if (!isfinite(out->loss) || !isfinite(out->grad_norm))
        return ddl_error_set(err, DDL_E_NUMERIC, "the %s is not finite (loss %g, gradient norm %g)",
                             isfinite(out->loss) ? "gradient" : "loss", out->loss, out->grad_norm);
    ddl_optim_step(step->optim, lr, out->grad_norm);
    return DDL_OK;
}
