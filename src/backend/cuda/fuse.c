/* Fused kernels. Between two sublayers the state is updated, compressed and normalized by ops of their own,
 * each of which reads it from memory. In a list of commands they are neighbors, and one kernel that has the
 * state in registers can take their place. It computes the same bits:
 *
 *   forward   delta_fwd, [fold_fwd, compress_fwd,] rmsnorm_fwd, [project_fwd, project_fwd]
 *   backward  [compress_bwd and what adds up its sums,] delta_bwd, [fold_fwd, compress_fwd,] rmsnorm_fwd
 *
 * scale_fwd, gated_fwd, highway_fwd and laurel_fwd are fused like delta_fwd, and gated_bwd like delta_bwd.
 * Where another op is between an update and the norm, the norm and what projects its rows are one kernel:
 *
 *   forward   rmsnorm_fwd, project_fwd[, project_fwd]
 *
 * The gradients of a gate, of the norm that it reads, and of a target that reads what is normalized, are one
 * kernel too:
 *
 *   backward  [project_bwd,] rmsnorm_bwd[, project_bwd]
 *
 * fold_fwd, which reads parameters alone, comes before the kernel; sums over rows are added up after it.
 * compress_fwd over tokens reads other tokens' states, and remains an op of its own. */
#include "backend/cuda/cuda.h"

#include <stddef.h>
#include <string.h>

/* Commands, of which those before `at` are part of the pattern. */
struct cursor {
    const struct cuda_command *const *commands;
    size_t n, at;
};

/* The arguments of the next command, if it launches this kernel. */
static const void *take(struct cursor *c, enum cuda_kernel kernel)
{
    const void *arguments = c->at < c->n ? cuda_launched(c->commands[c->at], kernel) : NULL;
    c->at += arguments != NULL;
    return arguments;
}

/* ---- a norm and projections ---- */

/* rmsnorm_fwd, and as many project_fwd of its rows or of its results as follow; c = 0 where none does.
 * Returns false, and *c is as before, if there is no norm. */
static bool take_norm(struct cursor *c, struct cuda_projected_norm *out)
{
    const struct rmsnorm_args *norm = take(c, CUDA_rmsnorm_fwd);
    *out = (struct cuda_projected_norm){ 0 };
    if (!norm)
        return false;
    out->norm = *norm;
    for (size_t i = 0; norm->y != norm->x && i < CUDA_NORM_PROJECTIONS; i++) {
        struct cursor at = *c;
        const struct project_args *a = take(&at, CUDA_project_fwd);
        if (!a || a->N != norm->N || a->d != norm->d || a->c > CUDA_PROJECTED_OUTPUTS ||
            (a->x != norm->x && a->x != norm->y))
            break;
        out->project[i] = *a;
        *c = at;
    }
    return true;
}

/* Bytes of shared memory that hold a row. */
static size_t row_bytes(size_t d)
{
    return (d + 3) / 4 * 4 * sizeof(float);
}

/* Updates of rows X, by their arguments, which begin with N and d; with_norm has these arguments too, and
 * then a struct cuda_projected_norm. */
static const struct update {
    enum cuda_kernel alone, with_norm;
    size_t bytes, X; /* of the arguments, and where X is in them */
} updates[] = {
#define UPDATE(name, args)                                                                                   \
    {                                                                                                        \
        CUDA_##name, CUDA_##name##_read, sizeof(struct args), offsetof(struct args, X)                       \
    }
    UPDATE(scale_fwd, scale_args),     UPDATE(gated_fwd, gated_args),   UPDATE(gated_bwd, gated_grad_args),
    UPDATE(highway_fwd, highway_args), UPDATE(laurel_fwd, laurel_args),
#undef UPDATE
};
enum { MOST_ARGUMENTS = sizeof(struct gated_grad_args) };
_Static_assert(sizeof(struct laurel_args) <= MOST_ARGUMENTS &&
                   sizeof(struct highway_args) <= MOST_ARGUMENTS &&
                   sizeof(struct scale_args) <= MOST_ARGUMENTS,
               "the arguments of an update are longer");

static size_t fuse_update(struct cuda_device *device, struct cursor c)
{
    const void *arguments = NULL;
    const struct update *u = updates;
    for (size_t i = 0; !arguments && i < sizeof updates / sizeof *updates; i++) {
        u = &updates[i];
        arguments = take(&c, u->alone);
    }
    struct cuda_projected_norm then;
    if (!arguments || !take_norm(&c, &then))
        return 0;
    struct {
        size_t N, d;
    } of;
    const float *X;
    memcpy(&of, arguments, sizeof of);
    memcpy(&X, (const char *)arguments + u->X, sizeof X);
    if (then.norm.x != X || then.norm.y == X || then.norm.N != of.N || then.norm.d != of.d ||
        row_bytes(of.d) > CUDA_SHARED_BYTES / 2)
        return 0;
    _Alignas(8) char fused[MOST_ARGUMENTS + sizeof then];
    CUDA_CLEAR_PADDING(&then);
    memcpy(fused, arguments, u->bytes);
    memcpy(fused + u->bytes, &then, sizeof then);
    cuda_launch(device, u->with_norm, cuda_blocks(device, of.N, 1), row_bytes(of.d), fused);
    return c.at;
}

static size_t fuse_norm_forward(struct cuda_device *device, struct cursor c)
{
    struct cuda_projected_norm fused;
    if (!take_norm(&c, &fused) || fused.project[0].c == 0)
        return 0;
    const size_t row = row_bytes(fused.norm.d);
    if (row > CUDA_SHARED_BYTES / 2)
        return 0;
    CUDA_CLEAR_PADDING(&fused);
    cuda_launch(device, CUDA_projected_norm_fwd, cuda_blocks(device, fused.norm.N, 1), row, &fused);
    return c.at;
}

/* ---- reading a state ---- */

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

/* Commands that read the state: [fold_fwd, compress_fwd,] and those of take_norm. False, and *c is as before,
 * if there are others. */
static bool take_reading(struct cursor *c, const struct state *s, struct cuda_reading *read,
                         const struct cuda_command **fold)
{
    struct cursor at = *c;
    const float *x_in = s->X;
    *fold = NULL;
    if (s->c > 1) {
        *fold = at.at < at.n ? at.commands[at.at] : NULL;
        const struct fold_args *weights = take(&at, CUDA_fold_fwd);
        const struct compress_args *a = weights ? take(&at, CUDA_compress_fwd) : NULL;
        if (!a || a->X != s->X || a->taps != 1 || a->e != weights->e || !can_fold_before(weights, s))
            return false;
        read->e = a->e;
        read->x_in = a->x_in;
        x_in = a->x_in;
    }
    const struct rmsnorm_args *norm = &read->then.norm;
    if (!take_norm(&at, &read->then) || norm->x != x_in || norm->y == x_in || norm->N != s->N ||
        norm->d != s->d)
        return false;
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
    s.shared = (s.shared + 15) / 16 * 16 + ((d + 3) / 4 * 4 + s.threads / 32 + weights) * sizeof(float);
    s.held = s.held && s.shared <= CUDA_STATE_SHARED;
    return s;
}

/* ---- patterns ---- */

static size_t fuse_forward(struct cuda_device *device, struct cursor c)
{
    const struct cuda_delta *delta = take(&c, CUDA_delta_fwd);
    const struct cuda_command *fold;
    if (!delta)
        return 0;
    struct cuda_delta_read fused = { .op = delta->op };
    const struct ddl_delta_args *op = &fused.op;
    const struct cuda_state_launch launch = launch_of(op->d, op->c, 0);
    const struct state after = { op->N, op->d, op->c, op->X_out, NULL, NULL };
    if (!launch.held || !take_reading(&c, &after, &fused.read, &fold))
        return 0;
    if (fold)
        cuda_repeat_command(device, fold);
    CUDA_CLEAR_PADDING(&fused);
    cuda_launch_threads(device, CUDA_delta_fwd_read, cuda_blocks(device, op->N, 1), launch.threads,
                        launch.shared, &fused);
    return c.at;
}

/* delta_bwd and a reading of the state before the update. */
static size_t fuse_backward(struct cuda_device *device, struct cursor c)
{
    const struct cuda_delta_grad *delta = take(&c, CUDA_delta_bwd);
    const struct cuda_command *fold;
    if (!delta || !delta->op.X_next)
        return 0;
    struct cuda_delta_grad_read fused = { .op = delta->op };
    const struct ddl_delta_grad_args *op = &fused.op;
    const struct cuda_state_launch launch = launch_of(op->d, op->c, 0);
    const struct state before = { op->N, op->d, op->c, op->X_next, NULL, NULL };
    if (!launch.held || !take_reading(&c, &before, &fused.read, &fold))
        return 0;
    if (fold)
        cuda_repeat_command(device, fold);
    CUDA_CLEAR_PADDING(&fused);
    cuda_launch_threads(device, CUDA_delta_bwd_read, cuda_blocks(device, op->N, 1), launch.threads,
                        launch.shared, &fused);
    return c.at;
}

/* The commands that add up the sums of compress_bwd and unfold them, with those that zero the gradients that
 * they add to. NULL: there are others. */
static const struct fold_grad_args *take_sums(struct cursor *c)
{
    const void *zeroed[2] = { NULL, NULL };
    size_t n = 0;
    if (!take(c, CUDA_add_columns))
        return NULL;
    for (; c->at < c->n && n < 2 && (zeroed[n] = cuda_zeroed(c->commands[c->at])); n++)
        c->at++;
    const struct fold_grad_args *a = take(c, CUDA_fold_bwd);
    take(c, CUDA_fold_read_bwd);
    for (size_t i = 0; a && i < n; i++) {
        if (zeroed[i] != a->dw && zeroed[i] != a->dr)
            return NULL;
    }
    return a;
}

/* compress_bwd of the state after the update, delta_bwd, and perhaps a reading of the state before it. */
static size_t fuse_between(struct cuda_device *device, struct cursor c)
{
    const struct cuda_compress_grad *compress = take(&c, CUDA_compress_bwd);
    const struct cuda_command *fold = NULL;
    if (!compress)
        return 0;
    const struct compress_grad_args *after = &compress->op;
    const size_t rows = cuda_launched_blocks(c.commands[0]) / cuda_compress_across(after->d * after->c);
    const size_t sums = c.at; /* the commands that add them up, up to delta_bwd */
    const struct fold_grad_args *folded = take_sums(&c);
    const size_t sums_end = c.at;
    const struct cuda_delta_grad *delta = folded ? take(&c, CUDA_delta_bwd) : NULL;
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
    if (fused.reads_again && fold)
        cuda_repeat_command(device, fold);
    CUDA_CLEAR_PADDING(&fused);
    cuda_launch_threads(device, CUDA_read_delta_bwd, rows, launch.threads, launch.shared, &fused);
    for (size_t i = sums; i < sums_end; i++)
        cuda_repeat_command(device, c.commands[i]);
    return c.at;
}

/* ---- gradients of a norm and of projections ---- */

/* A kernel with sums over rows: n commands from `first` on launch it, add up its sums, and zero what they are
 * added to. */
struct summed_kernel {
    const void *arguments; /* NULL: there is none */
    size_t blocks;         /* of its launch */
    size_t first, n;
};

/* Takes the commands that zero a gradient, the kernel, and those that add up its sums, `sums` of them. */
static struct summed_kernel take_summed(struct cursor *c, enum cuda_kernel kernel, size_t sums)
{
    struct cursor at = *c;
    struct summed_kernel k = { .first = c->at };
    while (at.at > 0 && at.at < at.n && cuda_zeroed(at.commands[at.at]))
        at.at++;
    const size_t launch = at.at;
    const void *arguments = take(&at, kernel);
    bool known = arguments != NULL;
    for (size_t i = 0; i < sums; i++)
        known = known && take(&at, CUDA_add_columns);
    for (size_t i = k.first; known && i < launch; i++) { /* what is zeroed is added to */
        bool is_sum = false;
        for (size_t j = launch + 1; j < at.at; j++) {
            const struct cuda_columns *a = cuda_launched(c->commands[j], CUDA_add_columns);
            is_sum = is_sum || a->y == cuda_zeroed(c->commands[i]);
        }
        known = is_sum;
    }
    if (!known)
        return k;
    k.arguments = arguments;
    k.blocks = cuda_launched_blocks(c->commands[launch]);
    k.n = at.at - c->at;
    *c = at;
    return k;
}

/* A projection of rows of d numbers, of few outputs, whose blocks have the rows that rmsnorm_bwd's have. */
static const struct project_grad_args *projection(const struct summed_kernel *k,
                                                  const struct summed_kernel *norm)
{
    const struct cuda_project_grad *a = k->arguments;
    const struct cuda_rmsnorm_grad *of = norm->arguments;
    const size_t across = cuda_parts(of->op.d, CUDA_PROJECT_COLUMNS);
    return a && a->op.c <= CUDA_PROJECTED_OUTPUTS && a->op.d == of->op.d && a->op.N == of->op.N &&
                   k->blocks == norm->blocks * across
               ? &a->op
               : NULL;
}

/* Repeats the commands of a kernel but its launch. Its partial sums, which began at `partial`, are now at
 * `offset` of each `stride` numbers of the scratch. */
static void add_up(struct cuda_device *device, const struct cursor *c, const struct summed_kernel *k,
                   const float *partial, size_t stride, size_t offset)
{
    for (size_t i = k->first; k->arguments && i < k->first + k->n; i++) {
        const struct cuda_columns *sums = cuda_launched(c->commands[i], CUDA_add_columns);
        if (sums)
            cuda_add_part(device, sums->blocks, stride, offset + (size_t)(sums->partial - partial),
                          sums->width, sums->y);
        else if (cuda_zeroed(c->commands[i]))
            cuda_repeat_command(device, c->commands[i]);
    }
}

/* Numbers that a block sums. */
static size_t sums_of(const struct project_grad_args *a)
{
    return a->c * (a->d + 1);
}

/* rmsnorm_bwd, between the projections of its result and of its input. The gradient of the result is not
 * written: nothing else reads it. */
static size_t fuse_norm_backward(struct cuda_device *device, struct cursor c)
{
    const struct cursor begin = c;
    const struct summed_kernel normalized = take_summed(&c, CUDA_project_bwd, 2);
    const struct summed_kernel norm = take_summed(&c, CUDA_rmsnorm_bwd, 1);
    const struct cuda_rmsnorm_grad *a = norm.arguments;
    if (!a)
        return 0;
    const struct cursor before_row = c;
    struct summed_kernel row = take_summed(&c, CUDA_project_bwd, 2);
    const struct project_grad_args *of_y = projection(&normalized, &norm), *of_x = projection(&row, &norm);
    if (of_x && (of_x->x != a->op.x || of_x->dx != a->op.dx || (a->op.dx16 && a->op.dx16 != of_x->dx16)))
        of_x = NULL;
    if (!of_x) {
        row.arguments = NULL;
        c = before_row;
    }
    /* What has the gradient of y as its input's has y as its input. */
    if (normalized.arguments && (!of_y || of_y->dx != a->op.dy || of_y->dx16))
        return 0;
    struct cuda_projected_norm_grad fused = { .op = a->op, .partial = device->scratch };
    if (of_y)
        fused.normalized = *of_y;
    if (of_x)
        fused.row = *of_x;
    const size_t d = a->op.d, stride = sums_of(&fused.normalized) + d + sums_of(&fused.row);
    if ((!of_y && !of_x) || d > CUDA_PROJECTED_WIDTH || !a->op.dx ||
        norm.blocks * stride > cuda_blocks_of_sums(device, SIZE_MAX) * device->summed)
        return 0;
    CUDA_CLEAR_PADDING(&fused);
    cuda_launch(device, CUDA_projected_norm_bwd, norm.blocks, 0, &fused);
    add_up(device, &begin, &normalized, device->scratch, stride, 0);
    add_up(device, &begin, &norm, device->scratch, stride, sums_of(&fused.normalized));
    add_up(device, &begin, &row, device->scratch, stride, sums_of(&fused.normalized) + d);
    return c.at;
}

size_t cuda_fuse(struct cuda_device *device, const struct cuda_command *const *commands, size_t n)
{
    const struct cursor c = { commands, n, 0 };
    size_t taken = fuse_forward(device, c);
    if (taken == 0)
        taken = fuse_backward(device, c);
    if (taken == 0)
        taken = fuse_between(device, c);
    if (taken == 0)
        taken = fuse_update(device, c);
    if (taken == 0)
        taken = fuse_norm_forward(device, c);
    return taken ? taken : fuse_norm_backward(device, c);
}
