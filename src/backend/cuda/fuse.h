/* Patterns of commands that a fused kernel replaces. */
#ifndef DDL_CUDA_FUSE_H
#define DDL_CUDA_FUSE_H

#include "backend/cuda/cuda.h"

/* Commands, of which those before `at` are part of the pattern. */
struct cuda_cursor {
    const struct cuda_command *const *commands;
    size_t n, at;
};

/* Bytes of shared memory that hold a row of d numbers, aligned. */
static inline size_t cuda_row_bytes(size_t d)
{
    return (d + 3) / 4 * 4 * sizeof(float);
}

/* The arguments of the next command, if it launches this kernel. */
const void *cuda_take(struct cuda_cursor *c, enum cuda_kernel kernel);

/* rmsnorm_fwd, and as many project_fwd of its rows or of its results as follow; c = 0 where none does.
 * Returns false, and *c is as before, if there is no norm. */
bool cuda_take_norm(struct cuda_cursor *c, struct cuda_projected_norm *out);

/* Each records a kernel that replaces the commands from the first on, and returns how many; 0: none. */
size_t cuda_fuse_delta(struct cuda_device *device, struct cuda_cursor c);
size_t cuda_fuse_streams(struct cuda_device *device, struct cuda_cursor c);
size_t cuda_fuse_update(struct cuda_device *device, struct cuda_cursor c);
size_t cuda_fuse_norm(struct cuda_device *device, struct cuda_cursor c);
size_t cuda_fuse_norm_grad(struct cuda_device *device, struct cuda_cursor c);

#endif
