#include "train/step/step.h"

#include "base/mem.h"
#include "model/pass/model.h"
#include "ops/ops.h"

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

static size_t sums_bytes(const struct ddl_step *step)
{
    return (1 + step->accumulate) * sizeof *step->sums;
}

ddl_status ddl_step_reserve(struct ddl_step *step, struct ddl_error *err)
{
    ddl_backend *backend = ddl_model_backend(step->model);
    step->sums = backend->ops->alloc(backend->ctx, sums_bytes(step));
    step->host_sums = ddl_mem_zalloc(sums_bytes(step));
    if (step->sums && step->host_sums)
        return DDL_OK;
    ddl_step_release(step);
    return ddl_error_set(err, DDL_E_MEMORY, "out of memory for the losses of %zu micro-batches",
                         step->accumulate);
}

void ddl_step_release(struct ddl_step *step)
{
    if (step->sums) {
        ddl_backend *backend = ddl_model_backend(step->model);
        backend->ops->free(backend->ctx, step->sums);
    }
    ddl_mem_free(step->host_sums);
    step->sums = step->host_sums = NULL;
}

/* The gradient of this rank's micro-batches, and their losses in backend memory. */
static ddl_status own_gradient(const struct ddl_step *step, double scale, struct ddl_error *err)
{
    const ddl_backend *backend = ddl_model_backend(step->model);
    size_t rows = step->batch * step->seq;
    ddl_status status = DDL_OK;
    ddl_model_zero_grad(step->model);
    for (size_t k = 0; k < step->accumulate && !status; k++) {
        struct ddl_batch batch = { ddl_step_sequences(step, k), step->seq, step->tokens + k * rows,
                                   step->targets + k * rows };
        if (step->overlap && k + 1 == step->accumulate)
            ddl_exchange_overlap(step->exchange, step->ws);
        ddl_workspace_set_probe(step->ws, k == 0 ? step->probe : NULL);
        status = ddl_model_backward_into(step->model, step->ws, &batch, scale, step->sums + 1 + k, err);
        ddl_workspace_set_probe(step->ws, NULL);
    }
    return status ? status : backend->ops->check_error(backend->ctx, err);
}

/* Downloads the numbers of the step, which waits for the device, and sums the losses up to the first that is
 * not finite. */
static ddl_status read_sums(const struct ddl_step *step, struct ddl_step_result *out, struct ddl_error *err)
{
    ddl_status status =
        ddl_download(ddl_model_backend(step->model), step->host_sums, step->sums, sums_bytes(step), err);
    if (status)
        return status;
    for (size_t k = 0; k < step->accumulate; k++) {
        double sum = step->host_sums[1 + k];
        out->loss += sum * out->scale;
        out->failed = k;
        if (!isfinite(sum))
            return ddl_error_set(err, DDL_E_NUMERIC, "the loss of micro-batch %zu of %zu is not finite",
                                 k + 1, step->accumulate);
    }
    out->failed = step->accumulate;
    out->rank = ddl_comm_size(step->comm);
    out->grad_norm = sqrt(step->host_sums[0]);
    return DDL_OK;
}

/* Combines the results of all ranks: loss, status and norm, whose square is uploaded. */
static ddl_status combine(const struct ddl_step *step, ddl_status status, struct ddl_step_result *out,
                          struct ddl_error *err)
{
    const ddl_backend *backend = ddl_model_backend(step->model);
    size_t ranks = ddl_comm_size(step->comm);
    double sums[] = { out->loss, step->host_sums[0], status != DDL_OK };
    ddl_comm_sum_f64(step->comm, sizeof sums / sizeof *sums, sums);
    backend->ops->upload(backend->ctx, step->sums, &sums[1], sizeof sums[1]);
    out->loss = sums[0];
    out->grad_norm = sqrt(sums[1]);
    out->rank = ranks;
    if (sums[2] > 0) {
        uint64_t first = status ? ranks - ddl_comm_rank(step->comm) : 0;
        ddl_comm_max_u64(step->comm, 1, &first);
        out->rank = ranks - (size_t)first;
        return ddl_comm_agree(step->comm, status, err);
    }
    return DDL_OK;
}

/* After an exchange of parameters, which through host memory sends what a failed device has left there: then
 * no rank uses them. A CPU does not fail in an update. */
static ddl_status check_device(const struct ddl_step *step, struct ddl_error *err)
{
    const ddl_backend *backend = ddl_model_backend(step->model);
    if (backend->ops->host_memory)
        return DDL_OK;
    return ddl_comm_agree(step->comm, backend->ops->check_error(backend->ctx, err), err);
}

/* Whether there is an update without a look at the numbers of the step. Those that are not finite make it
 * change nothing. */
static bool updates_unread(const struct ddl_step *step, const struct ddl_step_result *out)
{
    return !step->comm && step->spike.z <= 0 && out->scale != 0;
}

/* All ranks exchange their gradients, also one that could not compute its own: the others wait for it. */
ddl_status ddl_step_submit(const struct ddl_step *step, double lr, struct ddl_step_result *out,
                           struct ddl_error *err)
{
    *out = (struct ddl_step_result){ .scale = scale_of(step) };
    ddl_status status = own_gradient(step, out->scale, err);
    if (!step->comm && status)
        return status;
    ddl_exchange_gradients(step->exchange, step->ws);
    ddl_optim_square(step->optim, step->sums);
    if (updates_unread(step, out)) {
        ddl_optim_clip(step->optim, step->sums, step->accumulate, step->sums + 1);
        ddl_optim_update(step->optim, lr);
    }
    return status;
}

ddl_status ddl_step_finish(const struct ddl_step *step, ddl_status status, double lr,
                           struct ddl_step_result *out, struct ddl_error *err)
{
    if (!step->comm && status)
        return status;
    if (!status)
        status = read_sums(step, out, err);
    if (step->comm)
        status = combine(step, status, out, err);
    if (!status && !isfinite(out->grad_norm))
        status = ddl_error_set(err, DDL_E_NUMERIC, "the gradient is not finite, the loss is %.6g", out->loss);
    if (updates_unread(step, out)) {
        if (status)
            ddl_optim_set_steps(step->optim, ddl_optim_steps(step->optim) - 1);
        return status;
    }
    if (status)
        return status;
    if (out->scale == 0) {
        out->decision = DDL_SPIKE_SKIP;
        if (step->spike_state)
            step->spike_state->skipped++;
    } else if (step->spike.z > 0) {
        out->decision = ddl_spike_decide(&step->spike, step->spike_state, out->grad_norm, &out->spike);
    }
    if (out->decision != DDL_SPIKE_SKIP) {
        ddl_optim_clip(step->optim, step->sums, 0, NULL);
        ddl_optim_update(step->optim, lr);
        ddl_exchange_parameters(step->exchange);
        status = check_device(step, err);
    }
    return status;
}

ddl_status ddl_step_run(const struct ddl_step *step, double lr, struct ddl_step_result *out,
                        struct ddl_error *err)
{
    return ddl_step_finish(step, ddl_step_submit(step, lr, out, err), lr, out, err);
}
