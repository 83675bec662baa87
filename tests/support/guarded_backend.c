#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "support/guarded_backend.h"

#include "ops/operands.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct block {
    unsigned char *start;
    size_t bytes; /* whole pages */
    struct block *next;
};

struct guard {
    struct ddl_ops ops;
    struct ddl_backend real;
    struct block *blocks;
};

static void stop(const char *what)
{
    fprintf(stderr, "guarded backend: %s\n", what);
    abort();
}

static void protect(const struct guard *guard, int protection)
{
    for (const struct block *block = guard->blocks; block; block = block->next) {
        if (mprotect(block->start, block->bytes, protection))
            stop("mprotect failed");
    }
}

static const struct guard *enter(void *ctx)
{
    const struct guard *guard = ctx;
    protect(guard, PROT_READ | PROT_WRITE);
    return guard;
}

static void leave(const struct guard *guard)
{
    guard->real.ops->synchronize(guard->real.ctx);
    protect(guard, PROT_NONE);
}

/* Aborts unless [at, at + bytes) is in one block. */
static void check_range(const struct guard *guard, const void *at, size_t bytes, const char *call)
{
    uintptr_t from = (uintptr_t)at;
    for (const struct block *block = guard->blocks; block; block = block->next) {
        uintptr_t start = (uintptr_t)block->start;
        if (from >= start && from <= start + block->bytes && bytes <= start + block->bytes - from)
            return;
    }
    if (bytes)
        stop(call);
}

/* Aborts unless every operand of the call lies in one block. */
static void check_operands(const struct guard *guard, enum ddl_op op, const void *args)
{
    struct ddl_op_use use;
    ddl_op_describe(op, args, &use);
    for (size_t i = 0; i < use.n; i++) {
        char call[96];
        snprintf(call, sizeof call, "%s: %s exceeds its memory", ddl_op_name(op), use.operand[i].name);
        if (ddl_operand_get(&use.operand[i], args))
            check_range(guard, ddl_operand_get(&use.operand[i], args),
                        ddl_operand_bytes(&use.operand[i], &guard->real), call);
    }
}

#define GUARD(name, args)                                                                                    \
    static void guarded_##name(void *ctx, const struct args *a)                                              \
    {                                                                                                        \
        const struct guard *guard = enter(ctx);                                                              \
        guard->real.ops->name(guard->real.ctx, a);                                                           \
        leave(guard);                                                                                        \
    }
#define GUARD_OP(name, args)                                                                                 \
    static void guarded_##name(void *ctx, const struct args *a)                                              \
    {                                                                                                        \
        check_operands(ctx, DDL_OP_##name, a);                                                               \
        const struct guard *guard = enter(ctx);                                                              \
        guard->real.ops->name(guard->real.ctx, a);                                                           \
        leave(guard);                                                                                        \
    }
DDL_OPS(GUARD_OP)
GUARD(attention_products_fwd, attention_args)
GUARD(attention_products_bwd, attention_grad_args)
#undef GUARD_OP
#undef GUARD

static void *guarded_alloc(void *ctx, size_t bytes)
{
    struct guard *guard = ctx;
    size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = (bytes / page + 1) * page;
    struct block *block = bytes < SIZE_MAX / 2 ? malloc(sizeof *block) : NULL;
    if (!block)
        return NULL;
    void *start = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) {
        free(block);
        return NULL;
    }
    memset(start, 0xff, bytes);
    *block = (struct block){ start, whole, guard->blocks };
    guard->blocks = block;
    if (mprotect(start, whole, PROT_NONE))
        stop("mprotect failed");
    return start;
}

static void guarded_free(void *ctx, void *at)
{
    struct guard *guard = ctx;
    for (struct block **link = &guard->blocks; *link; link = &(*link)->next) {
        struct block *block = *link;
        if (block->start != at)
            continue;
        *link = block->next;
        munmap(block->start, block->bytes);
        free(block);
        return;
    }
    if (at)
        stop("free of a pointer that alloc did not return");
}

static void guarded_upload(void *ctx, void *dst, const void *host, size_t bytes)
{
    check_range(ctx, dst, bytes, "upload to memory that is not the backend's");
    const struct guard *guard = enter(ctx);
    guard->real.ops->upload(guard->real.ctx, dst, host, bytes);
    leave(guard);
}

static void guarded_download(void *ctx, void *host, const void *src, size_t bytes)
{
    check_range(ctx, src, bytes, "download from memory that is not the backend's");
    const struct guard *guard = enter(ctx);
    guard->real.ops->download(guard->real.ctx, host, src, bytes);
    leave(guard);
}

/* Transfers are complete when they return, and every event is. */
static ddl_event guarded_upload_async(void *ctx, void *dst, const void *host, size_t bytes)
{
    guarded_upload(ctx, dst, host, bytes);
    return 0;
}

static ddl_event guarded_download_async(void *ctx, void *host, const void *src, size_t bytes)
{
    guarded_download(ctx, host, src, bytes);
    return 0;
}

static void *guarded_alloc_host(void *ctx, size_t bytes)
{
    const struct guard *guard = ctx;
    return guard->real.ops->alloc_host(guard->real.ctx, bytes);
}

static void guarded_free_host(void *ctx, void *block)
{
    const struct guard *guard = ctx;
    guard->real.ops->free_host(guard->real.ctx, block);
}

static ddl_event guarded_record(void *ctx)
{
    (void)ctx;
    return 0;
}

static bool guarded_is_done(void *ctx, ddl_event event)
{
    (void)ctx;
    (void)event;
    return true;
}

static void guarded_wait(void *ctx, ddl_event event)
{
    (void)ctx;
    (void)event;
}

static void guarded_zero(void *ctx, void *dst, size_t bytes)
{
    check_range(ctx, dst, bytes, "zero of memory that is not the backend's");
    const struct guard *guard = enter(ctx);
    guard->real.ops->zero(guard->real.ctx, dst, bytes);
    leave(guard);
}

static void guarded_close(void *ctx)
{
    struct guard *guard = ctx;
    if (guard->blocks)
        stop("memory was not freed");
    guard->real.ops->close(guard->real.ctx);
    free(guard);
}

static ddl_status guarded_reserve(void *ctx, const struct ddl_limits *limits, struct ddl_error *err)
{
    const struct guard *guard = ctx;
    return guard->real.ops->reserve(guard->real.ctx, limits, err);
}

static size_t guarded_memory_estimate(void *ctx, const struct ddl_memory_request *request)
{
    const struct guard *guard = ctx;
    return guard->real.ops->memory_estimate(guard->real.ctx, request);
}

static size_t guarded_memory_capacity(void *ctx)
{
    const struct guard *guard = ctx;
    return guard->real.ops->memory_capacity(guard->real.ctx);
}

static ddl_status guarded_check_error(void *ctx, struct ddl_error *err)
{
    const struct guard *guard = ctx;
    return guard->real.ops->check_error(guard->real.ctx, err);
}

static void guarded_synchronize(void *ctx)
{
    const struct guard *guard = ctx;
    guard->real.ops->synchronize(guard->real.ctx);
}

static size_t guarded_q8_bytes(void *ctx, size_t rows, size_t width)
{
    const struct guard *guard = ctx;
    return guard->real.ops->q8_bytes(guard->real.ctx, rows, width);
}

void guarded_backend_wrap(struct ddl_backend *backend)
{
    struct guard *guard = calloc(1, sizeof *guard);
    if (!guard)
        stop("out of memory");
    guard->real = *backend;
    guard->ops = (struct ddl_ops){ .name = backend->ops->name,
                                   .step_rows = backend->ops->step_rows,
                                   .close = guarded_close,
                                   .reserve = guarded_reserve,
                                   .memory_estimate = guarded_memory_estimate,
                                   .memory_capacity = guarded_memory_capacity,
                                   .check_error = guarded_check_error,
                                   .synchronize = guarded_synchronize,
                                   .upload_async = guarded_upload_async,
                                   .download_async = guarded_download_async,
                                   .alloc_host = guarded_alloc_host,
                                   .free_host = guarded_free_host,
                                   .record = guarded_record,
                                   .is_done = guarded_is_done,
                                   .wait = guarded_wait,
                                   .alloc = guarded_alloc,
                                   .free = guarded_free,
                                   .upload = guarded_upload,
                                   .download = guarded_download,
                                   .zero = guarded_zero,
                                   .q8_bytes = guarded_q8_bytes,
#define FILL_OP(op, args) .op = guarded_##op,
                                   DDL_OPS(FILL_OP)
#undef FILL_OP
    };
    if (backend->ops->attention_products_fwd) {
        guard->ops.attention_products_fwd = guarded_attention_products_fwd;
        guard->ops.attention_products_bwd = guarded_attention_products_bwd;
    }
    backend->ops = &guard->ops;
    backend->ctx = guard;
}
