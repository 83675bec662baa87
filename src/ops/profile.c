#include "ops/profile.h"

#include "base/clock.h"

/* Waits for what was submitted at `start` and records its time. */
static void note(struct ddl_profile *profile, int row, double start)
{
    profile->real->ops->synchronize(profile->real->ctx);
    profile->store[row].seconds += ddl_clock_seconds() - start;
    profile->store[row].calls++;
}

static void timed(struct ddl_profile *profile, enum ddl_op op, const void *args)
{
    struct ddl_op_use use;
    if (profile->watch)
        profile->watch(profile->watch_user, (int)op, args);
    double start = ddl_clock_seconds();
    ddl_op_call(op, profile->real, args);
    note(profile, (int)op, start);
    ddl_op_describe(op, args, &use);
    profile->store[op].flops += use.flops;
    profile->store[op].bytes += ddl_op_traffic(&use, args, profile->real);
    if (profile->after)
        profile->after(profile->watch_user, (int)op, args);
}

#define WRAP(name, args)                                                                                     \
    static void timed_##name(void *ctx, const struct args *a)                                                \
    {                                                                                                        \
        timed(ctx, DDL_OP_##name, a);                                                                        \
    }
DDL_OPS(WRAP)
#undef WRAP

static void timed_zero(void *ctx, void *dst, size_t bytes)
{
    struct ddl_profile *profile = ctx;
    double start = ddl_clock_seconds();
    profile->real->ops->zero(profile->real->ctx, dst, bytes);
    note(profile, DDL_PROFILE_ZERO, start);
    profile->store[DDL_PROFILE_ZERO].bytes += (double)bytes;
}

/* The other members are forwarded without timing. */
static ddl_status pass_reserve(void *ctx, const struct ddl_limits *limits, struct ddl_error *err)
{
    struct ddl_backend *real = ((struct ddl_profile *)ctx)->real;
    return real->ops->reserve(real->ctx, limits, err);
}

static size_t pass_memory_estimate(void *ctx, const struct ddl_limits *limits)
{
    struct ddl_backend *real = ((struct ddl_profile *)ctx)->real;
    return real->ops->memory_estimate(real->ctx, limits);
}

static size_t pass_logit_block(void *ctx)
{
    struct ddl_backend *real = ((struct ddl_profile *)ctx)->real;
    return real->ops->logit_block ? real->ops->logit_block(real->ctx) : 0;
}

static size_t pass_memory_capacity(void *ctx)
{
    struct ddl_backend *real = ((struct ddl_profile *)ctx)->real;
    return real->ops->memory_capacity(real->ctx);
}

static void pass_synchronize(void *ctx)
{
    struct ddl_backend *real = ((struct ddl_profile *)ctx)->real;
    real->ops->synchronize(real->ctx);
}

static ddl_status pass_check_error(void *ctx, struct ddl_error *err)
{
    struct ddl_backend *real = ((struct ddl_profile *)ctx)->real;
    return real->ops->check_error(real->ctx, err);
}

static void *pass_alloc(void *ctx, size_t bytes)
{
    struct ddl_backend *real = ((struct ddl_profile *)ctx)->real;
    return real->ops->alloc(real->ctx, bytes);
}

static void pass_free(void *ctx, void *block)
{
    struct ddl_backend *real = ((struct ddl_profile *)ctx)->real;
    real->ops->free(real->ctx, block);
}

static void pass_upload(void *ctx, void *dst, const void *host, size_t bytes)
{
    struct ddl_backend *real = ((struct ddl_profile *)ctx)->real;
    real->ops->upload(real->ctx, dst, host, bytes);
}

static void pass_download(void *ctx, void *host, const void *src, size_t bytes)
{
    struct ddl_backend *real = ((struct ddl_profile *)ctx)->real;
    real->ops->download(real->ctx, host, src, bytes);
}

static void *pass_alloc_host(void *ctx, size_t bytes)
{
    struct ddl_backend *real = ((struct ddl_profile *)ctx)->real;
    return real->ops->alloc_host(real->ctx, bytes);
}

static void pass_free_host(void *ctx, void *block)
{
    struct ddl_backend *real = ((struct ddl_profile *)ctx)->real;
    real->ops->free_host(real->ctx, block);
}

static ddl_event pass_upload_async(void *ctx, void *dst, const void *host, size_t bytes)
{
    struct ddl_backend *real = ((struct ddl_profile *)ctx)->real;
    return real->ops->upload_async(real->ctx, dst, host, bytes);
}

static ddl_event pass_download_async(void *ctx, void *host, const void *src, size_t bytes)
{
    struct ddl_backend *real = ((struct ddl_profile *)ctx)->real;
    return real->ops->download_async(real->ctx, host, src, bytes);
}

static ddl_event pass_record(void *ctx)
{
    struct ddl_backend *real = ((struct ddl_profile *)ctx)->real;
    return real->ops->record(real->ctx);
}

static bool pass_is_done(void *ctx, ddl_event event)
{
    struct ddl_backend *real = ((struct ddl_profile *)ctx)->real;
    return real->ops->is_done(real->ctx, event);
}

static void pass_wait(void *ctx, ddl_event event)
{
    struct ddl_backend *real = ((struct ddl_profile *)ctx)->real;
    real->ops->wait(real->ctx, event);
}

static size_t pass_q8_bytes(void *ctx, size_t rows, size_t width)
{
    struct ddl_backend *real = ((struct ddl_profile *)ctx)->real;
    return real->ops->q8_bytes(real->ctx, rows, width);
}

void ddl_profile_init(struct ddl_profile *profile, struct ddl_backend *real)
{
    *profile = (struct ddl_profile){ .real = real, .ops = *real->ops };
    profile->backend = *real;
    profile->backend.ops = &profile->ops;
    profile->backend.ctx = profile;
    profile->ops.reserve = pass_reserve;
    profile->ops.memory_estimate = pass_memory_estimate;
    profile->ops.logit_block = pass_logit_block;
    profile->ops.memory_capacity = pass_memory_capacity;
    profile->ops.check_error = pass_check_error;
    profile->ops.synchronize = pass_synchronize;
    profile->ops.alloc = pass_alloc;
    profile->ops.free = pass_free;
    profile->ops.alloc_host = pass_alloc_host;
    profile->ops.free_host = pass_free_host;
    profile->ops.upload_async = pass_upload_async;
    profile->ops.download_async = pass_download_async;
    profile->ops.record = pass_record;
    profile->ops.is_done = pass_is_done;
    profile->ops.wait = pass_wait;
    profile->ops.upload = pass_upload;
    profile->ops.download = pass_download;
    profile->ops.zero = timed_zero;
    profile->ops.q8_bytes = pass_q8_bytes;
    profile->ops.begin_graph = profile->ops.end_graph = NULL; /* each op is waited for */
    profile->ops.group = NULL;                                /* its functions take the real context */
    profile->ops.memory_used = NULL;                          /* these likewise */
    profile->ops.warning = NULL;
    profile->ops.peak_rate = NULL; /* not passed on: ops are timed one by one */
#define REPLACE(name, args) profile->ops.name = real->ops->name ? timed_##name : NULL;
    DDL_OPS(REPLACE)
#undef REPLACE
    for (size_t i = 0; i < DDL_PROFILE_ROWS; i++)
        profile->store[i].name = i == DDL_PROFILE_ZERO ? "zero" : ddl_op_name((enum ddl_op)i);
    profile->ops.attention_products_fwd = NULL;
    profile->ops.attention_products_bwd = NULL;
    profile->rows = profile->store;
}

void ddl_profile_reset(struct ddl_profile *profile)
{
    for (size_t i = 0; i < DDL_PROFILE_ROWS; i++)
        profile->store[i] = (struct ddl_profile_row){ .name = profile->store[i].name };
}
