/* Fused kernels. Between two sublayers the state is updated, compressed and normalized by ops of their own,
 * each of which reads it from memory. In a list of commands they are neighbors, and one kernel that has the
 * state in registers can take their place. It computes the same bits:
 *
 *   forward   delta_fwd, [fold_fwd, compress_fwd,] rmsnorm_fwd, [project_fwd, project_fwd]
 *   backward  [compress_bwd and what adds up its sums,] delta_bwd, [fold_fwd, compress_fwd,] rmsnorm_fwd
 *
 * scale_fwd, gated_fwd, highway_fwd and laurel_fwd are fused like delta_fwd, and gated_bwd like delta_bwd.
 * The streams of hyper-connections likewise:
 *
 *   forward   [streams_write_fwd, streams_fold_fwd,] hyper_fwd, rmsnorm_fwd
 *   backward  hyper_bwd and what adds up its sums, streams_write_bwd[, rmsnorm_fwd]
 *
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
 * compress_fwd over tokens reads the states of earlier tokens too: blocks have consecutive rows, and those
 * that read a state of another block are read by a kernel of their own (first_readings). */
#include "backend/cuda/fuse.h"

const void *cuda_take(struct cuda_cursor *c, enum cuda_kernel kernel)
{
    const void *arguments = c->at < c->n ? cuda_launched(c->commands[c->at], kernel) : NULL;
    c->at += arguments != NULL;
    return arguments;
}

bool cuda_take_norm(struct cuda_cursor *c, struct cuda_projected_norm *out)
{
    const struct rmsnorm_args *norm = cuda_take(c, CUDA_rmsnorm_fwd);
    if (!norm)
        norm = cuda_take(c, CUDA_rmsnorm_fwd_long);
    *out = (struct cuda_projected_norm){ 0 };
    if (!norm)
        return false;
    out->norm = *norm;
    for (size_t i = 0; norm->y != norm->x && i < CUDA_NORM_PROJECTIONS; i++) {
        struct cuda_cursor at = *c;
        const struct project_args *a = cuda_take(&at, CUDA_project_fwd);
        if (!a || a->N != norm->N || a->d != norm->d || a->c > CUDA_PROJECTED_OUTPUTS ||
            (a->x != norm->x && a->x != norm->y))
            break;
        out->project[i] = *a;
        *c = at;
    }
    return true;
}

size_t cuda_fuse(struct cuda_device *device, const struct cuda_command *const *commands, size_t n)
{
    static size_t (*const patterns[])(struct cuda_device *, struct cuda_cursor) = {
        cuda_fuse_delta, cuda_fuse_streams, cuda_fuse_update, cuda_fuse_norm, cuda_fuse_norm_grad
    };
    size_t taken = 0;
    for (size_t i = 0; taken == 0 && i < sizeof patterns / sizeof *patterns; i++)
        taken = patterns[i](device, (struct cuda_cursor){ commands, n, 0 });
    return taken;
}
