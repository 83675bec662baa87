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

/* What reads the state, and the commands that it replaces. */
struct reading {
    struct cuda_reading arguments;
    const struct cuda_command *fold; /* fold_fwd, or NULL */
    struct compress_args compress;   /* with several taps, else zero */
};

/* Takes [fold_fwd, compress_fwd,] and those of cuda_take_norm. False, and *c is as before, if there are
 * others. */
static bool take_reading(struct cuda_cursor *c, const struct state *s, struct reading *read)
{
    struct cuda_cursor at = *c;
    const struct cuda_command *first = at.at < at.n ? at.commands[at.at] : NULL;
    const float *x_in = s->X;
    *read = (struct reading){ 0 };
    if (s->c > 1) {
        const struct fold_args *weights = cuda_take(&at, CUDA_fold_fwd);
        const struct compress_args *a = weights ? cuda_take(&at, CUDA_compress_fwd) : NULL;
        if (!a || a->X != s->X || a->ragged.B || a->B * a->T != s->N || a->e != weights->e ||
            !can_fold_before(weights, s))
            return false;
        read->arguments.T = a->T;
        read->arguments.taps = a->taps;
        read->arguments.e = a->e;
        read->arguments.x_in = a->x_in;
        if (a->taps > 1)
            read->compress = *a;
        x_in = a->x_in;
    }
    struct cuda_projected_norm *then = &read->arguments.then;
    if (!cuda_take_norm(&at, then) || then->norm.x != x_in || then->norm.y == x_in || then->norm.N != s->N ||
        then->norm.d != s->d)
        return false;
    read->fold = s->c > 1 ? first : NULL;
    *c = at;
    return true;
}

/* The launch of a fused kernel with that reading that adds up the gradients of so many weights; `held` is
 * false if it cannot have the state. */
static struct cuda_state_launch launch_of(size_t d, size_t c, const struct reading *read, size_t weights)
{
    struct cuda_state_launch s = cuda_state_launch(d, c);
    const size_t row = cuda_row_bytes(d), taps = read->compress.taps;
    s.held = s.held && s.staged && (c == 1 || c == 2 || c == 4);
    /* aligned, a row, the sums of its warps, and a row for each tap */
    s.shared = (s.shared + 15) / 16 * 16 + row + (s.threads / 32 + weights) * sizeof(float) + taps * row;
    s.held = s.held && s.shared <= CUDA_STATE_SHARED;
    return s;
}

/* Blocks of a kernel that reads N rows afterwards. */
static size_t blocks_of(const struct cuda_device *device, size_t N, const struct reading *read)
{
    const size_t resident = CUDA_STATE_BLOCKS * (size_t)device->multiprocessors;
    return !read->compress.taps ? cuda_blocks(device, N, 1) : N < resident ? N : resident;
}

/* Records the kernel, after what folds the weights that it reads a state with, and before what reads the
 * first rows of its blocks. */
static void record(struct cuda_device *device, const struct reading *read, enum cuda_kernel kernel,
                   size_t blocks, struct cuda_state_launch launch, const void *arguments)
{
    if (read->fold)
        cuda_repeat_command(device, read->fold);
    cuda_launch_threads(device, kernel, blocks, launch.threads, launch.shared, arguments);
    if (!read->compress.taps)
        return;
    struct cuda_first_readings first = { read->compress, read->arguments.then, blocks };
    CUDA_CLEAR_PADDING(&first);
    cuda_launch(device, CUDA_first_readings, blocks * (first.op.taps - 1), cuda_row_bytes(first.op.d),
                &first);
}

/* ---- patterns ---- */

static size_t fuse_forward(struct cuda_device *device, struct cuda_cursor c)
{
    const struct cuda_delta *delta = cuda_take(&c, CUDA_delta_fwd);
    struct reading read;
    if (!delta)
        return 0;
    const struct ddl_delta_args *op = &delta->op;
    const struct state after = { op->N, op->d, op->c, op->X_out, NULL, NULL };
    if (!take_reading(&c, &after, &read))
        return 0;
    const struct cuda_state_launch launch = launch_of(op->d, op->c, &read, 0);
    if (!launch.held)
        return 0;
    struct cuda_delta_read fused = { *op, read.arguments };
    CUDA_CLEAR_PADDING(&fused);
    record(device, &read, CUDA_delta_fwd_read, blocks_of(device, op->N, &read), launch, &fused);
    return c.at;
}

/* delta_bwd and a reading of the state before the update. */
static size_t fuse_backward(struct cuda_device *device, struct cuda_cursor c)
{
    const struct cuda_delta_grad *delta = cuda_take(&c, CUDA_delta_bwd);
    struct reading read;
    if (!delta || !delta->op.X_next)
        return 0;
    const struct ddl_delta_grad_args *op = &delta->op;
    const struct state before = { op->N, op->d, op->c, op->X_next, NULL, NULL };
    if (!take_reading(&c, &before, &read))
        return 0;
    const struct cuda_state_launch launch = launch_of(op->d, op->c, &read, 0);
    if (!launch.held)
        return 0;
    struct cuda_delta_grad_read fused = { *op, read.arguments };
    CUDA_CLEAR_PADDING(&fused);
    record(device, &read, CUDA_delta_bwd_read, blocks_of(device, op->N, &read), launch, &fused);
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
    if (!compress)
        return 0;
    const struct compress_grad_args *after = &compress->op;
    const size_t rows = cuda_launched_blocks(c.commands[0]) / cuda_compress_across(after->d * after->c);
    const size_t weights = after->taps * after->d * after->c;
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
    const struct state before = { op->N, op->d, op->c, op->X_next, after->e, folded };
    if (!op->X_next || op->X_next != after->X || op->G != after->dX || op->dX != op->G ||
        op->N != after->B * after->T)
        return 0;
    const struct cuda_cursor before_reading = c;
    struct reading read;
    fused.reads_again = take_reading(&c, &before, &read);
    if (fused.reads_again && !launch_of(op->d, op->c, &read, weights).held) {
        fused.reads_again = false;
        c = before_reading;
    }
    if (!fused.reads_again)
        read = (struct reading){ 0 };
    fused.read = read.arguments;
    const struct cuda_state_launch launch = launch_of(op->d, op->c, &read, weights);
    if (!launch.held)
        return 0;
    CUDA_CLEAR_PADDING(&fused);
    record(device, &read, CUDA_read_delta_bwd, rows, launch, &fused);
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
