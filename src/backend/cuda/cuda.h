/* The CUDA backend: its state, and what its files share. One stream executes everything in the order of the
 * calls. */
#ifndef DDL_CUDA_H
#define DDL_CUDA_H

#include "backend/cuda/driver.h"
#include "backend/cuda/kernels/kernels.h"
#include "ops/ops.h"

/* The kernels by number: CUDA_copy, ... */
enum cuda_kernel {
#define CUDA_KERNEL_NUMBER(file, name, threads) CUDA_##name,
    CUDA_KERNELS(CUDA_KERNEL_NUMBER)
#undef CUDA_KERNEL_NUMBER
        CUDA_KERNEL_COUNT
};

/* The files of kernels by number: CUDA_FILE_rows, ... Each is a module of the driver. */
enum cuda_file {
#define CUDA_FILE_NUMBER(file) CUDA_FILE_##file,
    CUDA_FILES(CUDA_FILE_NUMBER)
#undef CUDA_FILE_NUMBER
        CUDA_FILE_COUNT
};

enum { CUDA_SHARED_BYTES = 48 << 10 }; /* dynamic shared memory that any kernel may have */
enum { CUDA_STEP_ROWS = 64 };          /* ops->step_rows */
enum { CUDA_WORKSPACE = 32 << 20 };    /* bytes for cuBLASLt */
enum { CUDA_EVENTS = 64 };             /* the newest; older ones are complete when the oldest of these is */

struct cuda_device {
    struct ddl_context context; /* first */
    const struct cuda_driver *driver;
    CUdevice device;
    CUcontext primary;
    CUstream stream;
    CUmodule modules[CUDA_FILE_COUNT];
    CUfunction functions[CUDA_KERNEL_COUNT];
    size_t shared[CUDA_KERNEL_COUNT]; /* dynamic shared memory that the kernel was allowed, past
                                         CUDA_SHARED_BYTES */
    CUevent events[CUDA_EVENTS];      /* event e is in events[e % CUDA_EVENTS] */
    ddl_event recorded;               /* the newest event */
    size_t memory;                    /* bytes of the device */
    unsigned multiprocessors;
    float *scratch; /* partial sums: (cuda_blocks_of_sums, summed) */
    size_t summed;
    struct cuda_products *products; /* products.c */
    void *workspace;                /* CUDA_WORKSPACE bytes */
    bool no_memory;                 /* an op could not allocate */
    CUresult error;                 /* the first error of the device; it remains */
    const char *error_at;           /* the call that reported it */
    const char *error_text;         /* of cuBLASLt, or NULL: the driver's */
};

/* Makes the device's context that of the calling thread. */
const struct cuda_driver *cuda_enter(struct cuda_device *device);
/* Records an error of a call for check_error. */
void cuda_note(struct cuda_device *device, CUresult result, const char *at);

/* Memory of an op: cuda_alloc, recorded for check_error if there is none. */
void *cuda_alloc_for_op(struct cuda_device *device, size_t bytes);

/* Launches a kernel with blocks of its `threads`; `arguments` are copied. `shared`: bytes of dynamic shared
 * memory. */
void cuda_launch(struct cuda_device *device, enum cuda_kernel kernel, size_t blocks, size_t shared,
                 const void *arguments);
/* The same with blocks of `threads` threads, at most those of the kernel. */
void cuda_launch_threads(struct cuda_device *device, enum cuda_kernel kernel, size_t blocks, size_t threads,
                         size_t shared, const void *arguments);
/* Blocks for `n` items of which each block handles `each`, at most as many as keep the device busy: kernels
 * loop. */
size_t cuda_blocks(const struct cuda_device *device, size_t n, size_t each);

/* y += the partial sums that a kernel has written to scratch for `blocks` blocks: (blocks, width). */
void cuda_add_columns(struct cuda_device *device, size_t blocks, size_t width, float *y);

/* Blocks of a kernel that writes partial sums over n rows. */
size_t cuda_blocks_of_sums(const struct cuda_device *device, size_t n);
/* Blocks of rows where each of n rows takes `across` blocks, and a block of rows `width` numbers of scratch.
 */
size_t cuda_row_blocks(const struct cuda_device *device, size_t n, size_t across, size_t width);
/* As cuda_add_columns, of `width` numbers from number `first` on of each block's `stride`. */
void cuda_add_part(struct cuda_device *device, size_t blocks, size_t stride, size_t first, size_t width,
                   float *y);

/* products.c: cuBLASLt of a device, and what it has chosen per shape. After a failure of open, close too. */
ddl_status cuda_products_open(struct cuda_device *device, struct ddl_error *err);
void cuda_products_close(struct cuda_device *device);

/* memory.c: members of struct ddl_ops */
void *cuda_alloc(void *ctx, size_t bytes);
void cuda_free(void *ctx, void *block);
void *cuda_alloc_host(void *ctx, size_t bytes);
void cuda_free_host(void *ctx, void *block);
ddl_event cuda_upload_async(void *ctx, void *dst, const void *host, size_t bytes);
ddl_event cuda_download_async(void *ctx, void *host, const void *src, size_t bytes);
void cuda_upload(void *ctx, void *dst, const void *host, size_t bytes);
void cuda_download(void *ctx, void *host, const void *src, size_t bytes);
void cuda_zero(void *ctx, void *dst, size_t bytes);
ddl_event cuda_record(void *ctx);
bool cuda_is_done(void *ctx, ddl_event event);
void cuda_wait(void *ctx, ddl_event event);
void cuda_synchronize(void *ctx);

/* Ops, by the file of their kernels. */
#define CUDA_OPS(OP)                                                                                         \
    OP(copy, copy_args)                                                                                      \
    OP(copy_bf16, copy_bf16_args)                                                                            \
    OP(cast_bf16, cast_bf16_args)                                                                            \
    OP(widen_bf16, widen_bf16_args)                                                                          \
    OP(fill, fill_args)                                                                                      \
    OP(rmsnorm_fwd, rmsnorm_args)                                                                            \
    OP(rmsnorm_bwd, rmsnorm_grad_args)                                                                       \
    OP(swiglu_fwd, swiglu_args)                                                                              \
    OP(swiglu_bwd, swiglu_grad_args)                                                                         \
    OP(tanh_fwd, tanh_args)                                                                                  \
    OP(tanh_bwd, tanh_grad_args)                                                                             \
    OP(gelu_fwd, gelu_args)                                                                                  \
    OP(gelu_bwd, gelu_grad_args)                                                                             \
    OP(bias_fwd, bias_args)                                                                                  \
    OP(bias_bwd, bias_grad_args)                                                                             \
    OP(matmul, matmul_args)                                                                                  \
    OP(matmul_bf16, matmul_bf16_args)                                                                        \
    OP(matmul_q8, matmul_q8_args)                                                                            \
    OP(quantize_q8, quantize_q8_args)                                                                        \
    OP(dequantize_q8, dequantize_q8_args)                                                                    \
    OP(gather_q8, gather_q8_args)                                                                            \
    OP(cross_entropy, cross_entropy_args)                                                                    \
    OP(loss_fold, loss_fold_args)                                                                            \
    OP(loss_grad, loss_grad_args)                                                                            \
    OP(rank, rank_args)                                                                                      \
    OP(gather, gather_args)                                                                                  \
    OP(gather_bf16, gather_bf16_args)                                                                        \
    OP(sum, sum_args)                                                                                        \
    OP(sum_squares, sum_squares_args)                                                                        \
    OP(clip, clip_args)                                                                                      \
    OP(adamw, adamw_args)                                                                                    \
    OP(attention_fwd, attention_args)                                                                        \
    OP(attention_bwd, attention_grad_args)                                                                   \
    OP(rope_fwd, rope_args)                                                                                  \
    OP(rope_bwd, rope_grad_args)                                                                             \
    OP(mix_values_fwd, mix_values_args)                                                                      \
    OP(mix_values_bwd, mix_values_grad_args)                                                                 \
    OP(cache_append, cache_append_args)                                                                      \
    OP(history_push, history_push_args)                                                                      \
    OP(delta_fwd, ddl_delta_args)                                                                            \
    OP(delta_bwd, ddl_delta_grad_args)                                                                       \
    OP(delta_inverse, ddl_delta_inverse_args)                                                                \
    OP(f_norm_fwd, f_norm_args)                                                                              \
    OP(f_norm_bwd, f_norm_grad_args)                                                                         \
    OP(scale_fwd, scale_args)                                                                                \
    OP(scale_bwd, scale_grad_args)                                                                           \
    OP(gated_fwd, gated_args)                                                                                \
    OP(gated_bwd, gated_grad_args)                                                                           \
    OP(highway_fwd, highway_args)                                                                            \
    OP(highway_bwd, highway_grad_args)                                                                       \
    OP(laurel_fwd, laurel_args)                                                                              \
    OP(laurel_bwd, laurel_grad_args)                                                                         \
    OP(weighted_sum, weighted_sum_args)                                                                      \
    OP(weighted_sum_bwd, weighted_sum_grad_args)                                                             \
    OP(elementwise_fwd, ddl_elementwise_args)                                                                \
    OP(elementwise_bwd, ddl_elementwise_grad_args)                                                           \
    OP(init_state_fwd, init_state_args)                                                                      \
    OP(init_state_bwd, init_state_grad_args)                                                                 \
    OP(fold_fwd, fold_args)                                                                                  \
    OP(fold_bwd, fold_grad_args)                                                                             \
    OP(compress_fwd, compress_args)                                                                          \
    OP(compress_bwd, compress_grad_args)                                                                     \
    OP(project_fwd, project_args)                                                                            \
    OP(project_bwd, project_grad_args)                                                                       \
    OP(embed_bwd, embed_grad_args)                                                                           \
    OP(depth_fwd, depth_args)                                                                                \
    OP(depth_bwd, depth_grad_args)                                                                           \
    OP(source_bwd, source_grad_args)                                                                         \
    OP(streams_sum, streams_sum_args)                                                                        \
    OP(streams_fold_fwd, streams_fold_args)                                                                  \
    OP(streams_fold_bwd, streams_fold_grad_args)                                                             \
    OP(streams_write_fwd, streams_write_args)                                                                \
    OP(streams_write_bwd, streams_write_grad_args)                                                           \
    OP(hyper_fwd, hyper_args)                                                                                \
    OP(hyper_bwd, hyper_grad_args)                                                                           \
    OP(mhc_fwd, mhc_args)                                                                                    \
    OP(mhc_bwd, mhc_grad_args)                                                                               \
    OP(pool_fwd, pool_args)                                                                                  \
    OP(pool_bwd, pool_grad_args)

#define CUDA_DECLARE(name, args) void cuda_##name(void *ctx, const struct args *a);
CUDA_OPS(CUDA_DECLARE)
#undef CUDA_DECLARE

#endif
