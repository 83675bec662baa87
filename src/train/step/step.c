#include "train/step/step.h"

#include <math.h>

size_t ddl_step_sequences(const struct ddl_step *step, size_t k)
{
    return k + 1 == step->accumulate && step->last ? step->last : step->batch;
}

/* The mean is over the whole step, so its targets are counted before the first micro-batch. */
static double scale_of(const struct ddl_step *step)
{
    uint64_t counted = 0;
    for (size_t k = 0; k < step->accumulate; k++) {
        const int32_t *targets = step->targets + k * step->batch * step->seq;
        for (size_t i = 0; i < ddl_step_sequences(step, k) * step->seq; i++)
            counted += targets[i] >= 0;
    }
    ddl_comm_sum_u64(step->comm, 1, &counted);
    return counted ? 1 / (double)counted : 0;
}

/* The gradient of this rank's micro-batches; ends at the first whose loss is not finite. */
static ddl_status own_gradient(const struct ddl_step *step, struct ddl_step_result *out,
                               struct ddl_error *err)
{
    size_t rows = step->batch * step->seq;
    ddl_model_zero_grad(step->model);
    for (size_t k = 0; k < step->accumulate; k++) {
        struct ddl_loss loss;
        struct ddl_batch batch = { ddl_step_sequences(step, k), step->seq, step->tokens + k * rows,
                                   step->targets + k * rows };
        if (step->overlap && k + 1 == step->accumulate)
            ddl_exchange_overlap(step->exchange, step->ws);
        ddl_workspace_set_probe(step->ws, k == 0 ? step->probe : NULL);
        ddl_status status = ddl_model_backward(step->model, step->ws, &batch, out->scale, &loss, err);
        ddl_workspace_set_probe(step->ws, NULL);
        if (status)
            return status;
        out->loss += loss.sum * out->scale;
        out->failed = k;
        if (!isfinite(loss.sum))
            return ddl_error_set(err, DDL_E_NUMERIC, "the loss of micro-batch %zu of %zu is not finite",
                                 k + 1, step->accumulate);
    }
    out->failed = step->accumulate;
    return DDL_OK;
}

/* Combines the results of all ranks: loss, norm and status. */
static ddl_status combine(const struct ddl_step *step, ddl_status status, struct ddl_step_result *out,
                          struct ddl_error *err)
{
    size_t ranks = ddl_comm_size(step->comm);
    double sums[] = { out->loss, ddl_optim_grad_square(step->optim), status != DDL_OK };
    ddl_comm_sum_f64(step->comm, sizeof sums / sizeof *sums, sums);
    out->loss = sums[0];
    out->grad_norm = sqrt(sums[1]);
    out->rank = ranks;
    if (sums[2] > 0) {
        uint64_t first = status ? ranks - ddl_comm_rank(step->comm) : 0;
        ddl_comm_max_u64(step->comm, 1, &first);
        out->rank = ranks - (size_t)first;
        return ddl_comm_agree(step->comm, status, err);
    }
    if (!isfinite(out->grad_norm))
        return ddl_error_set(err, DDL_E_NUMERIC, "the gradient is not finite, the loss is %.6g", out->loss);
    return DDL_OK;
}

/* All ranks exchange their gradients, also one that could not compute its own: the others wait for it. */
static ddl_status gradient(const struct ddl_step *step, struct ddl_step_result *out, struct ddl_error *err)
{
    out->scale = scale_of(step);
    ddl_status status = own_gradient(step, out, err);
    if (!step->comm && status)
        return status;
    ddl_exchange_gradients(step->exchange, step->ws);
    return combine(step, status, out, err);
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
    if (out->decision != DDL_SPIKE_SKIP) {
        ddl_optim_step(step->optim, lr, out->grad_norm);
        ddl_exchange_parameters(step->exchange);
    }
    return DDL_OK;
}
