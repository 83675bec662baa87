/* The operations that a backend provides, and the table that holds them: struct ddl_ops.
 *
 * ops/args.h has the equation and the arguments of each. Argument structs are copied by the call; pointers in
 * them are backend memory. Ops return no status: scratch memory was reserved before (ops->reserve), sizes are
 * the caller's responsibility, and a failed allocation or an error of the device is reported later
 * (ops->check_error). Parameter gradients are summed in an order that depends on the sizes and
 * the backend's thread count alone. */
#ifndef DDL_OPS_OPS_H
#define DDL_OPS_OPS_H

#include "ddl/backend.h"
#include "ddl/status.h"
#include "ops/args.h"
#include "ops/group.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The largest sizes of a model and its passes, from which a backend derives its scratch memory, allocated
 * before the first op. 0: not used. */
struct ddl_limits {
    size_t N;       /* rows of a pass                                                           */
    size_t T;       /* positions of a sequence, past included                                   */
    size_t d;       /* width of the stream                                                      */
    size_t c;       /* value channels of the state                                              */
    size_t H;       /* heads of an attention whose gradients are computed                       */
    size_t h;       /* width of a head                                                          */
    size_t queries; /* heads times the sequences with one row in a pass with a cache           */
    size_t K;       /* numbers of a row that a product with few rows reads                      */
    size_t summed;  /* numbers of the largest parameter whose gradient an op sums over rows:
                       norms, biases, convolutions, weights of mixtures; not the weights of products */
    size_t parts;   /* of the arrays that sum_squares takes                                     */
    bool bf16;      /* products in bfloat16; for memory_estimate alone */
};

/* Every op: its name, and that of its argument struct. The table below and wrappers of all ops
 * (ops/profile.c) are generated from these rows. */
/* clang-format off */
#define DDL_OPS(OP) \
    OP(copy,            copy_args) \
    OP(copy_bf16,          copy_bf16_args) \
    OP(cache_append,    cache_append_args) \
    OP(history_push,    history_push_args) \
    OP(matmul,          matmul_args) \
    OP(cast_bf16,         cast_bf16_args) \
    OP(widen_bf16,        widen_bf16_args) \
    OP(matmul_bf16,        matmul_bf16_args) \
    OP(quantize_q8,       quantize_q8_args) \
    OP(dequantize_q8,     dequantize_q8_args) \
    OP(matmul_q8,         matmul_q8_args) \
    OP(gather,       gather_args) \
    OP(gather_bf16,     gather_bf16_args) \
    OP(gather_q8,      gather_q8_args) \
    OP(embed_bwd,       embed_grad_args) \
    OP(init_state_fwd,      init_state_args) \
    OP(init_state_bwd,      init_state_grad_args) \
    OP(fold_fwd,    fold_args) \
    OP(fold_bwd,    fold_grad_args) \
    OP(compress_fwd,    compress_args) \
    OP(compress_bwd,    compress_grad_args) \
    OP(rmsnorm_fwd,     rmsnorm_args) \
    OP(rmsnorm_bwd,     rmsnorm_grad_args) \
    OP(rope_fwd,        rope_args) \
    OP(rope_bwd,        rope_grad_args) \
    OP(mix_values_fwd,  mix_values_args) \
    OP(mix_values_bwd,  mix_values_grad_args) \
    OP(attention_fwd,   attention_args) \
    OP(attention_bwd,   attention_grad_args) \
    OP(swiglu_fwd,      swiglu_args) \
    OP(swiglu_bwd,      swiglu_grad_args) \
    OP(project_fwd,     project_args) \
    OP(project_bwd,     project_grad_args) \
    OP(f_norm_fwd,      f_norm_args) \
    OP(f_norm_bwd,      f_norm_grad_args) \
    OP(scale_fwd,       scale_args) \
    OP(scale_bwd,       scale_grad_args) \
    OP(weighted_sum,     weighted_sum_args) \
    OP(weighted_sum_bwd, weighted_sum_grad_args) \
    OP(gated_fwd,       gated_args) \
    OP(gated_bwd,       gated_grad_args) \
    OP(highway_fwd,     highway_args) \
    OP(highway_bwd,     highway_grad_args) \
    OP(streams_fold_fwd, streams_fold_args) \
    OP(streams_fold_bwd, streams_fold_grad_args) \
    OP(streams_sum,     streams_sum_args) \
    OP(streams_write_fwd, streams_write_args) \
    OP(streams_write_bwd, streams_write_grad_args) \
    OP(hyper_fwd,       hyper_args) \
    OP(hyper_bwd,       hyper_grad_args) \
    OP(mhc_fwd,         mhc_args) \
    OP(mhc_bwd,         mhc_grad_args) \
    OP(laurel_fwd,      laurel_args) \
    OP(laurel_bwd,      laurel_grad_args) \
    OP(depth_fwd,       depth_args) \
    OP(depth_bwd,       depth_grad_args) \
    OP(source_bwd,      source_grad_args) \
    OP(tanh_fwd,        tanh_args) \
    OP(tanh_bwd,        tanh_grad_args) \
    OP(fill,            fill_args) \
    OP(sum,             sum_args) \
    OP(sum_squares,     sum_squares_args) \
    OP(delta_fwd,       ddl_delta_args) \
    OP(delta_bwd,       ddl_delta_grad_args) \
    OP(delta_inverse,   ddl_delta_inverse_args) \
    OP(elementwise_fwd, ddl_elementwise_args) \
    OP(elementwise_bwd, ddl_elementwise_grad_args) \
    OP(gelu_fwd,        gelu_args) \
    OP(gelu_bwd,        gelu_grad_args) \
    OP(bias_fwd,        bias_args) \
    OP(bias_bwd,        bias_grad_args) \
    OP(pool_fwd,        pool_args) \
    OP(pool_bwd,        pool_grad_args) \
    OP(cross_entropy,   cross_entropy_args) \
    OP(loss_tile,       loss_tile_args) \
    OP(loss_grad,       loss_grad_args) \
    OP(rank,            rank_args) \
    OP(likeliest,       likeliest_args) \
    OP(choose,          choose_args) \
    OP(clip,            clip_args) \
    OP(adamw,           adamw_args)
/* clang-format on */

/* A point in the order of a backend's calls. It is complete when everything submitted before it is done. 0 is
 * always complete. */
typedef uint64_t ddl_event;

/* logit_block of a device with memory of its own: a product reads and writes two matrices besides its block
 * of logits, and adds to a third in float32. With 1,500 rows or more of up to 2^16 logits that takes less
 * time than the multiplications. */
enum { DDL_DEVICE_LOGITS = 1 << 27 };
/* The same in host memory: enough rows for products at full speed, few enough that logits never weigh more
 * than a layer or two. */
enum { DDL_HOST_LOGITS = 1 << 24 };

/* Formats of a product's operands, as far as devices multiply them at different rates. */
enum ddl_rate { DDL_RATE_F32, DDL_RATE_TF32, DDL_RATE_BF16 };

struct ddl_ops;
/* The beginning of the state of a backend that leaves ops out (members of struct ddl_ops that are NULL). */
struct ddl_context {
    const struct ddl_ops
        *ops; /* set by ddl_backend_create: the table with the compositions of ops/defaults.c */
};

struct ddl_ops {
    const char *name;
    bool host_memory; /* backend memory is host memory: ops accept any host array */
    bool has_tf32;    /* products with the argument tf32 */
    size_t step_rows; /* products of at most so many rows give a row the same bits for any number of rows */
    /* Number of devices on this machine; 0 if there is none or it is unknown, then open reports the reason.
     */
    size_t (*devices)(void);
    /* Opens device number `device` of them. *ctx is the backend's state, passed to every other member. `text`
     * receives one line of description. */
    ddl_status (*open)(void **ctx, size_t device, size_t threads, char *text, size_t text_size,
                       struct ddl_error *err);
    void (*close)(void *ctx);
    /* Instead of open, for plans: the state of a device with `bytes` of memory, which need not be there. Only
     * memory_estimate, memory_capacity, logit_block and close may be called. NULL: not supported. */
    ddl_status (*plan)(void **ctx, size_t bytes, char *text, size_t text_size, struct ddl_error *err);
    /* Allocates the scratch memory that ops of these sizes need. Limits of several calls are combined. */
    ddl_status (*reserve)(void *ctx, const struct ddl_limits *limits, struct ddl_error *err);

    /* Bytes that the backend will use besides those of alloc: scratch, and its library's code and buffers.
     * The latter are an estimate. SIZE_MAX for sizes out of range. */
    size_t (*memory_estimate)(void *ctx, const struct ddl_limits *limits);
    /* Numbers of a block of whole rows of logits with which the head's products run at the device's full
     * rate. NULL or 0: as DDL_HOST_LOGITS in float32; in bfloat16 tiles that a cache holds, of logits that
     * are computed twice, for a CPU that multiplies bfloat16 much faster than it reads memory. */
    size_t (*logit_block)(void *ctx);
    /* Bytes of memory that the machine has, or that other programs had left on the device when it was opened;
     * SIZE_MAX if unknown. */
    size_t (*memory_capacity)(void *ctx);
    /* The most bytes of a device's memory that the process has used at a time; 0 if unknown. NULL: the
     * backend's memory is that of the process. */
    size_t (*memory_used)(void *ctx);
    /* One line about what the device cannot do and is slower without, so far; NULL if there is nothing. May
     * be NULL. */
    const char *(*warning)(void *ctx);
    /* Operations per second of dense products with sums in float32 at the device's largest clock, which may
     * be above that of its data sheet. 0 or NULL: unknown, as of a CPU and of a planned device. */
    double (*peak_rate)(void *ctx, enum ddl_rate rate);

    /* DDL_E_MEMORY if an op since the last call could not allocate memory, DDL_E_DEVICE if the device failed,
     * which every later call reports too: results computed meanwhile are invalid. Does not wait; it reports
     * at least the errors of what was waited for. Called at the end of every pass. */
    ddl_status (*check_error)(void *ctx, struct ddl_error *err);

    /* Backend memory, aligned to 64; NULL if there is none left. free may be called while submitted ops use
     * the block: they complete. NULL is not allowed. */
    void *(*alloc)(void *ctx, size_t bytes);
    void (*free)(void *ctx, void *block);
    /* Host memory for asynchronous transfers, aligned to 64 (pinned: the device reads and writes it
     * directly). Before free_host all transfers with the block must be complete. */
    void *(*alloc_host)(void *ctx, size_t bytes);
    void (*free_host)(void *ctx, void *block);

    /* Ops, zero and transfers run in the order of the calls and may return before they are done.
     * The asynchronous transfers need memory of alloc_host; until the event that they return is complete, the
     * caller may not write the source of an upload, nor read or write the destination of a download. */
    ddl_event (*upload_async)(void *ctx, void *dst, const void *host, size_t bytes);
    ddl_event (*download_async)(void *ctx, void *host, const void *src, size_t bytes);
    /* Transfers with any host memory. On return the source of an upload may be written again, and a download
     * is complete. */
    void (*upload)(void *ctx, void *dst, const void *host, size_t bytes);
    void (*download)(void *ctx, void *host, const void *src, size_t bytes);
    void (*zero)(void *ctx, void *dst, size_t bytes);

    ddl_event (*record)(void *ctx); /* the point after everything submitted so far */
    bool (*is_done)(void *ctx, ddl_event event);
    void (*wait)(void *ctx, ddl_event event);
    void (*synchronize)(void *ctx); /* waits for everything submitted */

    /* Around ops, and zero, of a pass that may be repeated with the same arguments: the backend may submit
     * them together, at end_graph or before a call of another member. Not nested. NULL: every op is submitted
     * when it is called. */
    void (*begin_graph)(void *ctx);
    void (*end_graph)(void *ctx);

    /* Bytes of an 8-bit matrix. Does not decrease with rows. */
    size_t (*q8_bytes)(void *ctx, size_t rows, size_t width);

/* A member's name takes no parentheses. NOLINTNEXTLINE(bugprone-macro-parentheses) */
#define DDL_OP_MEMBER(name, args) void (*name)(void *ctx, const struct args *a);
    DDL_OPS(DDL_OP_MEMBER)
#undef DDL_OP_MEMBER

    /* For benchmarks: the matrix products of attention_fwd and attention_bwd alone, on the same operands.
     * What they write is meaningless. NULL where the products cannot be separated from the op. */
    void (*attention_products_fwd)(void *ctx, const struct attention_args *a);
    void (*attention_products_bwd)(void *ctx, const struct attention_grad_args *a);

    /* Collectives between devices; NULL where the backend has none. */
    const struct ddl_group_ops *group;
};

static inline void ddl_begin_graph(const struct ddl_ops *ops, void *ctx)
{
    if (ops->begin_graph)
        ops->begin_graph(ctx);
}

static inline void ddl_end_graph(const struct ddl_ops *ops, void *ctx)
{
    if (ops->end_graph)
        ops->end_graph(ctx);
}

/* What ddl_backend_create returns: the table and its state. */
struct ddl_backend {
    const struct ddl_ops *ops;
    void *ctx;
    char description[160];
};

/* ops->download of `bytes` bytes to host memory, with the error of the device: unless it is DDL_OK, they are
 * undefined. */
static inline ddl_status ddl_download(const struct ddl_backend *backend, void *host, const void *x,
                                      size_t bytes, struct ddl_error *err)
{
    backend->ops->download(backend->ctx, host, x, bytes);
    return backend->ops->check_error(backend->ctx, err);
}

#endif
