#include "support/simulated_device.h"

#include "support/simulated_memory.h"

#include "ops/operands.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { CAPACITY = 1024 };

/* A call in the queue, with pointers to what ops use. `staged` has the bytes of a synchronous upload, and
 * those of an asynchronous download from its execution on. */
struct call {
    enum { OP, ZERO, UPLOAD, DOWNLOAD, FREE } kind;
    enum ddl_op op;
    union ddl_op_args args;
    void *dst;
    const void *src;
    size_t bytes;
    void *staged;
    struct simulated_block *block;
};

struct device {
    struct ddl_ops ops; /* of simulated_device_wrap */
    struct ddl_backend real;
    struct simulated_device_options options;
    struct simulated_block *blocks, *host_blocks;
    size_t allocated; /* bytes of `blocks` */
    /* Call number i, from 1, is queue[i % CAPACITY]. Calls up to `delivered` are done, and the host knows. */
    struct call queue[CAPACITY];
    uint64_t submitted, delivered;
    /* Shared with the thread. */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t wanted, done;
    uint64_t executed;      /* ops */
    struct ddl_error error; /* of the first op that failed */
    bool stopped;
    pthread_t thread;
    pid_t process; /* that has the thread */
};

/* ---- memory ---- */

/* Where ops find [at, at + bytes) of the device's memory. */
static void *translate(const struct device *device, const void *at, size_t bytes, const char *message)
{
    const struct simulated_block *block = simulated_block_find(device->blocks, at, bytes);
    if (!block && bytes)
        simulated_stop(message);
    return block ? block->numbers + ((const unsigned char *)at - block->at) : NULL;
}

/* ---- the thread ---- */

static void execute_op(struct device *device, const struct call *call)
{
    const struct ddl_backend *real = &device->real;
    struct ddl_error err;
    if (++device->executed == device->options.fail_at) {
        ddl_error_set(&device->error, DDL_E_DEVICE, "the device failed in op %s (simulated)",
                      ddl_op_name(call->op));
        return;
    }
    ddl_op_call(call->op, real, &call->args);
    real->ops->synchronize(real->ctx);
    if (real->ops->check_error(real->ctx, &err) && !device->error.status)
        device->error = err;
}

/* A device that failed computes and transfers nothing. */
static void execute(struct device *device, struct call *call)
{
    const struct ddl_backend *real = &device->real;
    bool failed = device->error.status == DDL_E_DEVICE;
    switch (call->kind) {
    case OP:
        if (!failed)
            execute_op(device, call);
        break;
    case ZERO:
        if (!failed)
            real->ops->zero(real->ctx, call->dst, call->bytes);
        break;
    case UPLOAD:
        if (!failed)
            memcpy(call->dst, call->src, call->bytes);
        break;
    case DOWNLOAD:
        if (failed)
            memset(call->staged, SIMULATED_POISON, call->bytes);
        else
            memcpy(call->staged, call->src, call->bytes);
        break;
    case FREE:
        simulated_block_free(call->block);
        break;
    }
}

static void *run(void *user)
{
    struct device *device = user;
    pthread_mutex_lock(&device->lock);
    while (!device->stopped) {
        if (device->done == device->wanted) {
            pthread_cond_wait(&device->changed, &device->lock);
            continue;
        }
        struct call *call = &device->queue[(device->done + 1) % CAPACITY];
        pthread_mutex_unlock(&device->lock);
        execute(device, call);
        pthread_mutex_lock(&device->lock);
        device->done++;
        pthread_cond_broadcast(&device->changed);
    }
    pthread_mutex_unlock(&device->lock);
    return NULL;
}

/* A process that fork made has no threads but the caller's. The thread was idle then: it only works while the
 * host waits. */
static void start(struct device *device)
{
    if (device->process == getpid())
        return;
    device->process = getpid();
    if (pthread_mutex_init(&device->lock, NULL) || pthread_cond_init(&device->changed, NULL) ||
        pthread_create(&device->thread, NULL, run, device))
        simulated_stop("could not start a thread");
}

/* What the host finds once it waited: results of asynchronous downloads. */
static void deliver(struct device *device, uint64_t until)
{
    for (; device->delivered < until; device->delivered++) {
        struct call *call = &device->queue[(device->delivered + 1) % CAPACITY];
        if (call->kind == DOWNLOAD)
            memcpy(call->dst, call->staged, call->bytes);
        if (call->staged)
            munmap(call->staged, call->bytes);
    }
}

static void wait_for(struct device *device, uint64_t event)
{
    if (event > device->submitted)
        simulated_stop("wait for an event that was not returned");
    start(device);
    pthread_mutex_lock(&device->lock);
    if (event > device->wanted) {
        device->wanted = event;
        pthread_cond_broadcast(&device->changed);
    }
    while (device->done < event)
        pthread_cond_wait(&device->changed, &device->lock);
    pthread_mutex_unlock(&device->lock);
    deliver(device, event);
}

/* The next call of the queue; it is submitted by counting it. */
static struct call *next_call(struct device *device)
{
    if (device->submitted - device->delivered == CAPACITY)
        wait_for(device, device->submitted);
    struct call *call = &device->queue[(device->submitted + 1) % CAPACITY];
    memset(call, 0, sizeof *call);
    return call;
}

/* ---- members of the table ---- */

/* Checks that every operand lies in one block, and queues the op with pointers to what it uses. */
static void submit_op(struct device *device, enum ddl_op op, const void *args)
{
    struct ddl_op_use use;
    struct call *call = next_call(device);
    call->kind = OP;
    call->op = op;
    memcpy(&call->args, args, ddl_op_args_size(op));
    ddl_op_describe(op, args, &use);
    for (size_t i = 0; i < use.n; i++) {
        const struct ddl_operand *operand = &use.operand[i];
        const void *at = ddl_operand_get(operand, args);
        char message[96];
        snprintf(message, sizeof message, "%s: %s exceeds its memory", ddl_op_name(op), operand->name);
        if (at)
            ddl_operand_set(operand, &call->args,
                            translate(device, at, ddl_operand_bytes(operand, &device->real), message));
    }
    device->submitted++;
}

#define SUBMIT_OP(name, args)                                                                                \
    static void simulated_##name(void *ctx, const struct args *a)                                            \
    {                                                                                                        \
        submit_op(ctx, DDL_OP_##name, a);                                                                    \
    }
DDL_OPS(SUBMIT_OP)
#undef SUBMIT_OP

static void *simulated_alloc(void *ctx, size_t bytes)
{
    struct device *device = ctx;
    size_t memory = device->options.memory;
    struct simulated_block *block =
        memory && bytes > memory - device->allocated ? NULL : simulated_block_create(bytes, true);
    if (!block)
        return NULL;
    block->next = device->blocks;
    device->blocks = block;
    device->allocated += bytes;
    return block->at;
}

static void simulated_free(void *ctx, void *at)
{
    struct device *device = ctx;
    struct call *call = next_call(device);
    call->kind = FREE;
    call->block = simulated_block_take(&device->blocks, at, "free of a pointer that alloc did not return");
    device->allocated -= call->block->bytes;
    device->submitted++;
}

static void *simulated_alloc_host(void *ctx, size_t bytes)
{
    struct device *device = ctx;
    struct simulated_block *block = simulated_block_create(bytes, false);
    if (!block)
        return NULL;
    block->next = device->host_blocks;
    device->host_blocks = block;
    return block->at;
}

static void simulated_free_host(void *ctx, void *at)
{
    struct device *device = ctx;
    struct simulated_block *block = simulated_block_take(
        &device->host_blocks, at, "free_host of a pointer that alloc_host did not return");
    if (block->last_use > device->delivered)
        simulated_stop("free_host of memory that a transfer uses: its event was not waited for");
    simulated_block_free(block);
}

/* Notes that the next call transfers [at, at + bytes) of alloc_host. */
static void use_host_memory(struct device *device, const void *at, size_t bytes, const char *message)
{
    struct simulated_block *block = simulated_block_find(device->host_blocks, at, bytes);
    if (!block && bytes)
        simulated_stop(message);
    if (block)
        block->last_use = device->submitted + 1;
}

static ddl_event simulated_upload_async(void *ctx, void *dst, const void *host, size_t bytes)
{
    struct device *device = ctx;
    struct call *call = next_call(device);
    use_host_memory(device, host, bytes, "upload_async from memory that is not of alloc_host");
    call->kind = UPLOAD;
    call->dst = translate(device, dst, bytes, "upload to memory that is not the device's");
    call->src = host;
    call->bytes = bytes;
    return bytes ? ++device->submitted : 0;
}

static void simulated_upload(void *ctx, void *dst, const void *host, size_t bytes)
{
    struct device *device = ctx;
    struct call *call = next_call(device);
    if (!bytes)
        return;
    call->kind = UPLOAD;
    call->dst = translate(device, dst, bytes, "upload to memory that is not the device's");
    call->staged = simulated_map(bytes, PROT_READ | PROT_WRITE);
    if (!call->staged)
        simulated_stop("out of memory");
    memcpy(call->staged, host, bytes);
    call->src = call->staged;
    call->bytes = bytes;
    device->submitted++;
}

static ddl_event submit_download(struct device *device, void *host, const void *src, size_t bytes)
{
    struct call *call = next_call(device);
    call->kind = DOWNLOAD;
    call->dst = host;
    call->src = translate(device, src, bytes, "download from memory that is not the device's");
    call->bytes = bytes;
    call->staged = simulated_map(bytes, PROT_READ | PROT_WRITE);
    if (!call->staged)
        simulated_stop("out of memory");
    memset(host, SIMULATED_POISON, bytes);
    return ++device->submitted;
}

static ddl_event simulated_download_async(void *ctx, void *host, const void *src, size_t bytes)
{
    use_host_memory(ctx, host, bytes, "download_async to memory that is not of alloc_host");
    return bytes ? submit_download(ctx, host, src, bytes) : 0;
}

static void simulated_download(void *ctx, void *host, const void *src, size_t bytes)
{
    if (bytes)
        wait_for(ctx, submit_download(ctx, host, src, bytes));
}

static void simulated_zero(void *ctx, void *dst, size_t bytes)
{
    struct device *device = ctx;
    struct call *call = next_call(device);
    call->kind = ZERO;
    call->dst = translate(device, dst, bytes, "zero of memory that is not the device's");
    call->bytes = bytes;
    device->submitted += bytes > 0;
}

static ddl_event simulated_record(void *ctx)
{
    const struct device *device = ctx;
    return device->submitted;
}

/* The first question about an event finds it incomplete. */
static bool simulated_is_done(void *ctx, ddl_event event)
{
    struct device *device = ctx;
    if (event <= device->delivered)
        return true;
    wait_for(device, event);
    return false;
}

static void simulated_wait(void *ctx, ddl_event event)
{
    wait_for(ctx, event);
}

static void simulated_synchronize(void *ctx)
{
    struct device *device = ctx;
    wait_for(device, device->submitted);
}

static ddl_status simulated_check_error(void *ctx, struct ddl_error *err)
{
    struct device *device = ctx;
    const struct ddl_error error = device->error;
    if (error.status != DDL_E_DEVICE)
        device->error = (struct ddl_error){ .status = DDL_OK };
    if (error.status && err)
        *err = error;
    return error.status;
}

static ddl_status simulated_reserve(void *ctx, const struct ddl_limits *limits, struct ddl_error *err)
{
    const struct device *device = ctx;
    simulated_synchronize(ctx);
    return device->real.ops->reserve(device->real.ctx, limits, err);
}

static size_t simulated_memory_estimate(void *ctx, const struct ddl_limits *limits)
{
    const struct device *device = ctx;
    return device->real.ops->memory_estimate(device->real.ctx, limits);
}

static size_t simulated_logit_block(void *ctx)
{
    const struct device *device = ctx;
    return device->real.ops->logit_block ? device->real.ops->logit_block(device->real.ctx) : 0;
}

static size_t simulated_memory_capacity(void *ctx)
{
    const struct device *device = ctx;
    return device->options.memory ? device->options.memory
                                  : device->real.ops->memory_capacity(device->real.ctx);
}

static size_t simulated_q8_bytes(void *ctx, size_t rows, size_t width)
{
    const struct device *device = ctx;
    return device->real.ops->q8_bytes(device->real.ctx, rows, width);
}

static void simulated_close(void *ctx)
{
    struct device *device = ctx;
    simulated_synchronize(ctx);
    if (device->blocks || device->host_blocks)
        simulated_stop("memory was not freed");
    pthread_mutex_lock(&device->lock);
    device->stopped = true;
    pthread_cond_broadcast(&device->changed);
    pthread_mutex_unlock(&device->lock);
    pthread_join(device->thread, NULL);
    device->real.ops->close(device->real.ctx);
    free(device);
}

struct ddl_ops simulated_device_table(const struct ddl_ops *real)
{
    struct ddl_ops table = { .name = real->name,
                             .has_tf32 = real->has_tf32,
                             .step_rows = real->step_rows,
                             .close = simulated_close,
                             .reserve = simulated_reserve,
                             .memory_estimate = simulated_memory_estimate,
                             .logit_block = simulated_logit_block,
                             .memory_capacity = simulated_memory_capacity,
                             .check_error = simulated_check_error,
                             .alloc = simulated_alloc,
                             .free = simulated_free,
                             .alloc_host = simulated_alloc_host,
                             .free_host = simulated_free_host,
                             .upload_async = simulated_upload_async,
                             .download_async = simulated_download_async,
                             .upload = simulated_upload,
                             .download = simulated_download,
                             .zero = simulated_zero,
                             .record = simulated_record,
                             .is_done = simulated_is_done,
                             .wait = simulated_wait,
                             .synchronize = simulated_synchronize,
                             .q8_bytes = simulated_q8_bytes,
#define FILL_OP(op, args) .op = real->op ? simulated_##op : NULL,
                             DDL_OPS(FILL_OP)
#undef FILL_OP
    };
    return table;
}

void *simulated_device_create(const struct ddl_backend *real, const struct simulated_device_options *options)
{
    struct device *device = calloc(1, sizeof *device);
    if (!device)
        return NULL;
    device->real = *real;
    device->options = *options;
    return device;
}

void simulated_device_wrap(struct ddl_backend *backend)
{
    struct device *device = simulated_device_create(backend, &(struct simulated_device_options){ 0 });
    if (!device)
        simulated_stop("out of memory");
    device->ops = simulated_device_table(backend->ops);
    backend->ops = &device->ops;
    backend->ctx = device;
}
