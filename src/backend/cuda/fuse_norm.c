/* Norms of rows, with what updates the rows before them, and with projections. */
#include "backend/cuda/fuse.h"

#include <stddef.h>
#include <string.h>

enum { MOST_ROW = CUDA_SHARED_BYTES / 2 }; /* bytes of a row that a kernel here has in shared memory */

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

size_t cuda_fuse_update(struct cuda_device *device, struct cuda_cursor c)
{
    const void *arguments = NULL;
    const struct update *u = updates;
    for (size_t i = 0; !arguments && i < sizeof updates / sizeof *updates; i++) {
        u = &updates[i];
        arguments = cuda_take(&c, u->alone);
    }
    struct cuda_projected_norm then;
    if (!arguments || !cuda_take_norm(&c, &then))
        return 0;
    struct {
        size_t N, d;
    } of;
    const float *X;
    memcpy(&of, arguments, sizeof of);
    memcpy(&X, (const char *)arguments + u->X, sizeof X);
    if (then.norm.x != X || then.norm.y == X || then.norm.N != of.N || then.norm.d != of.d ||
        cuda_row_bytes(of.d) > MOST_ROW)
        return 0;
    _Alignas(8) char fused[MOST_ARGUMENTS + sizeof then];
    CUDA_CLEAR_PADDING(&then);
    memcpy(fused, arguments, u->bytes);
    memcpy(fused + u->bytes, &then, sizeof then);
    cuda_launch(device, u->with_norm, cuda_blocks(device, of.N, 1), cuda_row_bytes(of.d), fused);
    return c.at;
}

size_t cuda_fuse_norm(struct cuda_device *device, struct cuda_cursor c)
{
    struct cuda_projected_norm fused;
    if (!cuda_take_norm(&c, &fused) || fused.project[0].c == 0)
        return 0;
    const size_t row = cuda_row_bytes(fused.norm.d);
    if (row > MOST_ROW)
        return 0;
    CUDA_CLEAR_PADDING(&fused);
    cuda_launch(device, CUDA_projected_norm_fwd, cuda_blocks(device, fused.norm.N, 1), row, &fused);
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
static struct summed_kernel take_summed(struct cuda_cursor *c, enum cuda_kernel kernel, size_t sums)
{
    struct cuda_cursor at = *c;
    struct summed_kernel k = { .first = c->at };
    while (at.at > 0 && at.at < at.n && cuda_zeroed(at.commands[at.at]))
        at.at++;
    const size_t launch = at.at;
    const void *arguments = cuda_take(&at, kernel);
    bool known = arguments != NULL;
    for (size_t i = 0; i < sums; i++)
        known = known && cuda_take(&at, CUDA_add_columns);
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
static void add_up(struct cuda_device *device, const struct cuda_cursor *c, const struct summed_kernel *k,
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
size_t cuda_fuse_norm_grad(struct cuda_device *device, struct cuda_cursor c)
{
    const struct cuda_cursor begin = c;
    const struct summed_kernel normalized = take_summed(&c, CUDA_project_bwd, 2);
    const struct summed_kernel norm = take_summed(&c, CUDA_rmsnorm_bwd, 1);
    const struct cuda_rmsnorm_grad *a = norm.arguments;
    if (!a)
        return 0;
    const struct cuda_cursor before_row = c;
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
