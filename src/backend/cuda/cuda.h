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

enum { CUDA_SHARED_BYTES = 48 << 10 }; /* shared memory that any kernel may have, static and dynamic */
enum { CUDA_STATE_SHARED = 96 << 10 }; /* that a block with a token's state may have on any device */
enum { CUDA_STATE_THREADS = 512 };     /* of a block that has a token's state, at most */
enum { CUDA_STATE_BLOCKS = 2 };        /* of a multiprocessor that hold states and gradients */
enum { CUDA_STEP_ROWS = 64 };          /* ops->step_rows */
enum { CUDA_WORKSPACE = 32 << 20 };    /* bytes for cuBLASLt */
enum { CUDA_REPACKED = 16 << 20 };     /* bytes for copies of operands with aligned rows */
enum { CUDA_EVENTS = 64 };             /* the newest; older ones are complete when the oldest of these is */

struct cuda_device {
    struct ddl_context context; /* first */
    const struct cuda_driver *driver;
    CUdevice device;
    CUcontext primary;
    CUstream stream;
    CUmemoryPool pool; /* NULL: the device has none, memory is allocated without a stream */
    CUmodule modules[CUDA_FILE_COUNT];
    CUfunction functions[CUDA_KERNEL_COUNT];
    size_t argument_bytes[CUDA_KERNEL_COUNT];
    size_t shared[CUDA_KERNEL_COUNT]; /* dynamic shared memory that the kernel was allowed */
    CUevent events[CUDA_EVENTS];      /* event e is in events[e % CUDA_EVENTS] */
    ddl_event recorded;               /* the newest event */
    size_t memory, free_memory;       /* bytes of the device; free when it was opened */
    unsigned multiprocessors;
    unsigned capability; /* 10 major + minor */
    double clock;        /* largest, Hz; 0: unknown, in a plan */
    float *scratch;      /* partial sums: (cuda_blocks_of_sums, summed) */
    size_t summed;
    void *op_memory; /* of the op that is submitted: cuda_op_memory */
    size_t op_bytes;
    struct cuda_products *products; /* products.c */
    void *workspace;                /* CUDA_WORKSPACE bytes, then CUDA_REPACKED */
    struct cuda_graphs *graphs;     /* graph.c */
    bool is_recording;              /* commands are recorded, not submitted: only those for `stream` */
    bool no_memory;                 /* an op could not allocate */
    CUresult error;                 /* the first error of the device; it remains */
    const char *error_at;           /* the call that reported it */
    const char *error_text;         /* of cuBLASLt, or NULL: the driver's */
};

/* error.c: makes the device's context that of the calling thread. */
const struct cuda_driver *cuda_enter(struct cuda_device *device);
/* Records an error of a call for check_error. */
void cuda_note(struct cuda_device *device, CUresult result, const char *at);

/* ops->check_error */
ddl_status cuda_check_error(void *ctx, struct ddl_error *err);

/* graph.c */

/* Zeroes the padding of a kernel's arguments: equal ones are equal bytes then, as the graphs need it. */
#ifdef __has_builtin
#if __has_builtin(__builtin_clear_padding)
#define CUDA_CLEAR_PADDING(arguments) __builtin_clear_padding(arguments)
enum { CUDA_HAS_GRAPHS = true };
#endif
#endif
#ifndef CUDA_CLEAR_PADDING
#define CUDA_CLEAR_PADDING(arguments) (void)(arguments)
enum { CUDA_HAS_GRAPHS = false };
#endif

/* Submits a command to the device's stream. */
typedef void cuda_execute(struct cuda_device *device, const void *command);
/* A command in a list; what execute() is called with follows. */
struct cuda_command {
    cuda_execute *execute;
    size_t bytes; /* with this struct */
};
/* While commands are recorded: memory for one with so many bytes, which are 0, that execute() gets when the
 * command is submitted. NULL: the caller submits it. */
void *cuda_record_command(struct cuda_device *device, cuda_execute *execute, size_t bytes);
/* Records a command again. */
void cuda_repeat_command(struct cuda_device *device, const struct cuda_command *command);
/* Submits what is recorded. */
void cuda_submit(struct cuda_device *device);
/* ops->begin_graph and end_graph. */
void cuda_begin_graph(void *ctx);
const char *cuda_warning(void *ctx); /* why there are no graphs, or NULL */
void cuda_end_graph(void *ctx);
ddl_status cuda_graphs_open(struct cuda_device *device, struct ddl_error *err);
void cuda_graphs_close(struct cuda_device *device);

/* fuse.c: records a kernel that replaces the first of n commands, with what it does not replace among them.
 * Returns how many commands that were; 0: no kernel does. */
size_t cuda_fuse(struct cuda_device *device, const struct cuda_command *const *commands, size_t n);

/* launch.c */

/* What a command launches: the arguments if it is this kernel, else NULL. */
const void *cuda_launched(const struct cuda_command *command, enum cuda_kernel kernel);
/* The blocks of a command that launches a kernel. */
size_t cuda_launched_blocks(const struct cuda_command *command);

/* Loads the modules and finds the kernels. After a failure, which is stored in *result, returns the failed
 * call; unload too. */
const char *cuda_kernels_load(struct cuda_device *device, CUresult *result);
void cuda_kernels_unload(struct cuda_device *device);

/* Memory of an op until the next call: reserved for the sizes of the limits, else allocated now. NULL, which
 * check_error reports, if there is none. */
void *cuda_op_memory(struct cuda_device *device, size_t bytes);
/* Bytes of it that ops need: the gradients of attention; attention of so many heads, each of a sequence with
 * one query and up to `span` keys; sums of squares. */
size_t cuda_attention_bytes(size_t rows, size_t heads);
size_t cuda_attention_part_bytes(size_t heads, size_t span, size_t h);
size_t cuda_squares_bytes(size_t parts);

/* Launches a kernel with blocks of its `threads`, if there is one; `arguments` are copied. `shared`: bytes of
 * dynamic shared memory. */
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
/* As cuda_add_columns, of partial sums elsewhere. */
void cuda_add_blocks(struct cuda_device *device, size_t blocks, size_t width, const float *partial, float *y);

/* delta.c: the launch of a kernel that has a token's state. */
struct cuda_state_launch {
    size_t threads, shared; /* bytes of shared memory */
    bool held, staged;      /* whether the state is in registers, the direction in shared memory */
};
struct cuda_state_launch cuda_state_launch(size_t d, size_t c);
/* compress.c: blocks of columns of compress_bwd. */
size_t cuda_compress_across(size_t numbers);

/* group.c */
extern const struct ddl_group_ops cuda_group;

/* products.c: cuBLASLt of a device, and what it has chosen per shape. After a failure of open, close too. */
ddl_status cuda_products_open(struct cuda_device *device, struct ddl_error *err);
void cuda_products_close(struct cuda_device *device);

/* memory.c: members of struct ddl_ops */
void *cuda_alloc(void *ctx, size_t bytes);
void cuda_free(void *ctx, void *block);
/* Frees a block of cuda_alloc after what was submitted to the stream. */
CUresult cuda_release(const struct cuda_device *d, void *block);
/* Replaces a block with fewer bytes than needed. Its contents are lost. */
bool cuda_enlarge(struct cuda_device *device, void **block, size_t *bytes, size_t needed);
void *cuda_alloc_host(void *ctx, size_t bytes);
void cuda_free_host(void *ctx, void *block);
ddl_event cuda_upload_async(void *ctx, void *dst, const void *host, size_t bytes);
ddl_event cuda_download_async(void *ctx, void *host, const void *src, size_t bytes);
void cuda_upload(void *ctx, void *dst, const void *host, size_t bytes);
void cuda_download(void *ctx, void *host, const void *src, size_t bytes);
void cuda_zero(void *ctx, void *dst, size_t bytes);
/* What a command zeroes; NULL if it is another one. */
const void *cuda_zeroed(const struct cuda_command *command);
ddl_event cuda_record(void *ctx);
/* The driver's event that is complete no sooner than `event`, which is not 0. */
CUevent cuda_event_of(const struct cuda_device *device, ddl_event event);
bool cuda_is_done(void *ctx, ddl_event event);
void cuda_wait(void *ctx, ddl_event event);
void cuda_synchronize(void *ctx);

/* Parts of `each` items that n items take. */
static inline size_t cuda_parts(size_t n, size_t each)
{
    return n / each + (n % each != 0);
}

/* The most channels of a state with the divisibility of c: a thread has up to 4 of a feature's c numbers. */
static inline size_t cuda_most_channels(size_t c)
{
    return CUDA_STATE_THREADS * (size_t)(c % 4 == 0 ? 4 : c % 2 == 0 ? 2 : 1);
}

/* Defines an op on a->N rows, a block each. */
#define CUDA_ROW_OP(name, args)                                                                              \
    void cuda_##name(void *ctx, const struct args *a)                                                        \
    {                                                                                                        \
        struct cuda_device *d = ctx;                                                                         \
        cuda_launch(d, CUDA_##name, cuda_blocks(d, a->N, 1), 0, a);                                          \
    }

/* The same, with a kernel for rows of at most CUDA_SHORT_ROW numbers and one for longer ones. */
#define CUDA_LONG_ROW_OP(name, args)                                                                         \
    void cuda_##name(void *ctx, const struct args *a)                                                        \
    {                                                                                                        \
        struct cuda_device *d = ctx;                                                                         \
        cuda_launch(d, a->d > CUDA_SHORT_ROW ? CUDA_##name##_long : CUDA_##name, cuda_blocks(d, a->N, 1), 0, \
                    a);                                                                                      \
    }

#define CUDA_DECLARE(name, args) void cuda_##name(void *ctx, const struct args *a);
DDL_OPS(CUDA_DECLARE)
#undef CUDA_DECLARE

#endif
