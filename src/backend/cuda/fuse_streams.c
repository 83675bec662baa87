/* The streams of hyper-connections: what writes them, mixes them and normalizes what is read. */
#include "backend/cuda/fuse.h"

/* hyper_fwd and the norm of its result, perhaps after an update of the streams. */
static size_t fuse_forward(struct cuda_device *device, struct cuda_cursor c)
{
    const struct streams_write_args *write = cuda_take(&c, CUDA_streams_write_fwd);
    const struct cuda_command *fold = write && c.at < c.n ? c.commands[c.at] : NULL;
    if (!write || !cuda_take(&c, CUDA_streams_fold_fwd))
        fold = NULL;
    const struct cuda_hyper *hyper = cuda_take(&c, CUDA_hyper_fwd);
    struct cuda_hyper_read fused = { 0 };
    if (!hyper || !cuda_take_norm(&c, &fused.then))
        return 0;
    fused.op = hyper->op;
    if (write)
        fused.write = *write;
    const struct rmsnorm_args *norm = &fused.then.norm;
    const size_t shared = fused.op.n * fused.op.d * sizeof(float) + cuda_row_bytes(fused.op.d);
    if ((write && (write->X_out != fused.op.X || write->N != fused.op.N)) || norm->x != fused.op.x_in ||
        norm->y == norm->x || norm->N != fused.op.N || norm->d != fused.op.d || shared > CUDA_STATE_SHARED)
        return 0;
    if (fold) /* of parameters alone */
        cuda_repeat_command(device, fold);
    CUDA_CLEAR_PADDING(&fused);
    cuda_launch(device, CUDA_hyper_fwd_read, cuda_blocks(device, fused.op.N, 1), shared, &fused);
    return c.at;
}

/* Whether one of the commands adds to what `zero` zeroes. */
static bool is_added_to(const struct cuda_cursor *c, const struct cuda_command *zero)
{
    const void *at = cuda_zeroed(zero);
    for (size_t i = 0; i < c->at; i++) {
        const struct cuda_columns *sums = cuda_launched(c->commands[i], CUDA_add_columns);
        const struct streams_fold_grad_args *fold = cuda_launched(c->commands[i], CUDA_streams_fold_bwd);
        if ((sums && sums->y == at) ||
            (fold && (fold->dnorm == at || fold->dW[0] == at || fold->dW[1] == at || fold->dW[2] == at)))
            return true;
    }
    return false;
}

/* Takes the commands that add up the sums of hyper_bwd and unfold them, with those that zero the gradients
 * that they add to. */
static void take_sums(struct cuda_cursor *c)
{
    const size_t first = c->at;
    while (c->at < c->n &&
           (cuda_zeroed(c->commands[c->at]) || cuda_launched(c->commands[c->at], CUDA_add_columns) ||
            cuda_launched(c->commands[c->at], CUDA_streams_fold_bwd)))
        c->at++;
    for (size_t i = first; i < c->at; i++) {
        if (cuda_zeroed(c->commands[i]) && !is_added_to(c, c->commands[i]))
            c->at = i;
    }
}

/* hyper_bwd, and streams_write_bwd of the same streams; perhaps the norm of what was read there. */
static size_t fuse_backward(struct cuda_device *device, struct cuda_cursor c)
{
    const struct cuda_hyper_grad *hyper = cuda_take(&c, CUDA_hyper_bwd);
    if (!hyper || !hyper->held)
        return 0;
    const size_t sums = c.at;
    take_sums(&c);
    const size_t sums_end = c.at;
    const struct streams_write_grad_args *write = cuda_take(&c, CUDA_streams_write_bwd);
    const struct hyper_grad_args *op = &hyper->op;
    const size_t held = op->n + (op->Wf ? op->n + 2 : 0);
    const size_t shared = cuda_row_bytes(op->d) + held * op->d * sizeof(float);
    if (!write || write->G != op->dX || write->N != op->N || write->d != op->d || write->n != op->n ||
        shared > CUDA_STATE_SHARED)
        return 0;
    struct cuda_hyper_grad_write fused = { .op = *op, .partial = hyper->partial, .write = *write };
    const struct cuda_cursor before_norm = c;
    const struct rmsnorm_args *norm = &fused.then.norm;
    if (!write->x_in || !cuda_take_norm(&c, &fused.then) || norm->x != write->x_in || norm->y == norm->x ||
        norm->N != op->N || norm->d != op->d) {
        fused.then = (struct cuda_projected_norm){ 0 };
        c = before_norm;
    }
    CUDA_CLEAR_PADDING(&fused);
    cuda_launch(device, CUDA_hyper_bwd_write, cuda_launched_blocks(c.commands[0]), shared, &fused);
    for (size_t i = sums; i < sums_end; i++)
        cuda_repeat_command(device, c.commands[i]);
    return c.at;
}

size_t cuda_fuse_streams(struct cuda_device *device, struct cuda_cursor c)
{
    const size_t taken = fuse_forward(device, c);
    return taken ? taken : fuse_backward(device, c);
}
