/* The delta rule: updates of a state, and readings of it. */
#include "backend/cuda/fuse.h"

/* A state in memory, and the weights that the kernel reads another state with (or NULL). */
struct state {
    size_t N, d, c;
    const float *X, *e;
    const struct fold_grad_args *folded; /* what these were folded from */
};

/* Whether weights can be folded before the kernel reads others: those are elsewhere, or the same. */
static bool can_fold_before(const struct fold_args *weights, const struct state *s)
{
    return weights->e != s->e || (weights->w == s->folded->w && weights->r == s->folded->r);
}

/* Commands that read the state: [fold_fwd, compress_fwd,] and those of cuda_take_norm; *fold is the first of
 * them or NULL. False, and *c is as before, if there are others. */
static bool take_reading(struct cuda_cursor *c, const struct state *s, struct cuda_reading *read,
                         const struct cuda_command **fold)
{
    struct cuda_cursor at = *c;
    const struct cuda_command *first = at.at < at.n ? at.commands[at.at] : NULL;
    const float *x_in = s->X;
    *fold = NULL;
    if (s->c > 1) {
        const struct fold_args *weights = cuda_take(&at, CUDA_fold_fwd);
        const struct compress_args *a = weights ? cuda_take(&at, CUDA_compress_fwd) : NULL;
        if (!a || a->X != s->X || a->taps != 1 || a->e != weights->e || !can_fold_before(weights, s))
            return false;
        read->e = a->e;
        read->x_in = a->x_in;
        x_in = a->x_in;
    }
    const struct rmsnorm_args *norm = &read->then.norm;
    if (!cuda_take_norm(&at, &read->then) || norm->x != x_in || norm->y == x_in || norm->N != s->N ||
        norm->d != s->d)
        return false;
    *fold = s->c > 1 ? first : NULL;
    *c = at;
    return true;
}

/* The launch of a fused kernel that adds up the gradients of so many weights; `held` is false if it cannot
 * have the state. */
static struct cuda_state_launch launch_of(size_t d, size_t c, size_t weights)
{
    struct cuda_state_launch s = cuda_state_launch(d, c);
    s.held = s.held && s.staged && (c == 1 || c == 2 || c == 4);
    /* aligned, a row and the sums of its warps */
    s.shared = (s.shared + 15) / 16 * 16 + cuda_row_bytes(d) + (s.threads / 32 + weights) * sizeof(float);
    s.held = s.held && s.shared <= CUDA_STATE_SHARED;
    return s;
}

/* Records the kernel, after what folds the weights that it reads a state with. */
static void record(struct cuda_device *device, const struct cuda_command *fold, enum cuda_kernel kernel,
                   size_t blocks, struct cuda_state_launch launch, const void *arguments)
{
    if (fold)
        cuda_repeat_command(device, fold);
    cuda_launch_threads(device, kernel, blocks, launch.threads, launch.shared, arguments);
}

/* ---- patterns ---- */

static size_t fuse_forward(struct cuda_device *device, struct cuda_cursor c)
{
    const struct cuda_delta *delta = cuda_take(&c, CUDA_delta_fwd);
    const struct cuda_command *fold;
    if (!delta)
        return 0;
    struct cuda_delta_read fused = { .op = delta->op };
    const struct ddl_delta_args *op = &fused.op;
    const struct cuda_state_launch launch = launch_of(op->d, op->c, 0);
    const struct state after = { op->N, op->d, op->c, op->X_out, NULL, NULL };
    if (!launch.held || !take_reading(&c, &after, &fused.read, &fold))
        return 0;
    CUDA_CLEAR_PADDING(&fused);
    record(device, fold, CUDA_delta_fwd_read, cuda_blocks(device, op->N, 1), launch, &fused);
    return c.at;
}

/* delta_bwd and a reading of the state before the update. */
static size_t fuse_backward(struct cuda_device *device, struct cuda_cursor c)
{
    const struct cuda_delta_grad *delta = cuda_take(&c, CUDA_delta_bwd);
    const struct cuda_command *fold;
    if (!delta || !delta->op.X_next)
        return 0;
    struct cuda_delta_grad_read fused = { .op = delta->op };
    const struct ddl_delta_grad_args *op = &fused.op;
    const struct cuda_state_launch launch = launch_of(op->d, op->c, 0);
    const struct state before = { op->N, op->d, op->c, op->X_next, NULL, NULL };
    if (!launch.held || !take_reading(&c, &before, &fused.read, &fold))
        return 0;
    CUDA_CLEAR_PADDING(&fused);
    record(device, fold, CUDA_delta_bwd_read, cuda_blocks(device, op->N, 1), launch, &fused);
    return c.at;
}

/* The commands that add up the sums of compress_bwd and unfold them, with those that zero the gradients that
 * they add to. NULL: there are others. */
static const struct fold_grad_args *take_sums(struct cuda_cursor *c)
{
    const void *zeroed[2] = { NULL, NULL };
    size_t n = 0;
    if (!cuda_take(c, CUDA_add_columns))
        return NULL;
    for (; c->at < c->n && n < 2 && (zeroed[n] = cuda_zeroed(c->commands[c->at])); n++)
        c->at++;
    const struct fold_grad_args *a = cuda_take(c, CUDA_fold_bwd);
    cuda_take(c, CUDA_fold_read_bwd);
    for (size_t i = 0; a && i < n; i++) {
        if (zeroed[i] != a->dw && zeroed[i] != a->dr)
            return NULL;
    }
    return a;
}

/* compress_bwd of the state after the update, delta_bwd, and perhaps a reading of the state before it. */
static size_t fuse_between(struct cuda_device *device, struct cuda_cursor c)
{
    const struct cuda_compress_grad *compress = cuda_take(&c, CUDA_compress_bwd);
    const struct cuda_command *fold;
    if (!compress)
        return 0;
    const struct compress_grad_args *after = &compress->op;
    const size_t rows = cuda_launched_blocks(c.commands[0]) / cuda_compress_across(after->d * after->c);
    const size_t sums = c.at; /* the commands that add them up, up to delta_bwd */
    const struct fold_grad_args *folded = take_sums(&c);
    const size_t sums_end = c.at;
    const struct cuda_delta_grad *delta = folded ? cuda_take(&c, CUDA_delta_bwd) : NULL;
    if (!delta)
        return 0;
    struct cuda_read_delta_grad fused = { .op = delta->op,
                                          .T = after->T,
                                          .taps = after->taps,
                                          .e = after->e,
                                          .dx_in = after->dx_in,
                                          .partial = compress->partial };
    const struct ddl_delta_grad_args *op = &fused.op;
    const struct cuda_state_launch launch = launch_of(op->d, op->c, after->taps * op->d * op->c);
    const struct state before = { op->N, op->d, op->c, op->X_next, after->e, folded };
    if (!launch.held || !op->X_next || op->X_next != after->X || op->G != after->dX || op->dX != op->G ||
        op->N != after->B * after->T)
        return 0;
    fused.reads_again = take_reading(&c, &before, &fused.read, &fold);
    CUDA_CLEAR_PADDING(&fused);
    record(device, fold, CUDA_read_delta_bwd, rows, launch, &fused);
    for (size_t i = sums; i < sums_end; i++)
        cuda_repeat_command(device, c.commands[i]);
    return c.at;
}

size_t cuda_fuse_delta(struct cuda_device *device, struct cuda_cursor c)
{
    size_t taken = fuse_forward(device, c);
    if (taken == 0)
        taken = fuse_backward(device, c);
    return taken ? taken : fuse_between(device, c);
}
