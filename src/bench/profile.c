#include "bench/profile.h"

#include "base/clock.h"

static void note(struct ddl_profile *profile, int row, double start)
{
    profile->store[row].seconds += ddl_clock_seconds() - start;
    profile->store[row].calls++;
}

#define WRAP(name, args)                                                                                     \
    static void timed_##name(void *ctx, const struct args *a)                                                \
    {                                                                                                        \
        struct ddl_profile *profile = ctx;                                                                   \
        if (profile->watch)                                                                                  \
            profile->watch(profile->watch_user, DDL_PROFILE_##name, a);                                      \
        double start = ddl_clock_seconds();                                                                  \
        profile->real->ops->name(profile->real->ctx, a);                                                     \
        note(profile, DDL_PROFILE_##name, start);                                                            \
    }
DDL_OPS(WRAP)
#undef WRAP

static double timed_sum_squares(void *ctx, size_t n, const float *x)
{
    struct ddl_profile *profile = ctx;
    double start = ddl_clock_seconds();
    double sum = profile->real->ops->sum_squares(profile->real->ctx, n, x);
    note(profile, DDL_PROFILE_sum_squares, start);
    return sum;
}

static void timed_zero(void *ctx, void *dst, size_t bytes)
{
    struct ddl_profile *profile = ctx;
    double start = ddl_clock_seconds();
    profile->real->ops->zero(profile->real->ctx, dst, bytes);
    note(profile, DDL_PROFILE_zero, start);
}

/* What moves memory or prepares is handed on untimed. */
static ddl_status pass_reserve(void *ctx, const struct ddl_limits *extent, struct ddl_error *err)
{
    struct ddl_backend *real = ((struct ddl_profile *)ctx)->real;
    return real->ops->reserve(real->ctx, extent, err);
}

static size_t pass_overhead(void *ctx, const struct ddl_memory_request *demand)
{
    struct ddl_backend *real = ((struct ddl_profile *)ctx)->real;
    return real->ops->memory_estimate(real->ctx, demand);
}

static ddl_status pass_verdict(void *ctx, struct ddl_error *err)
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

void ddl_profile_init(struct ddl_profile *profile, struct ddl_backend *real)
{
    static const char *const names[] = {
#define NAME(name, args) #name,
        DDL_OPS(NAME)
#undef NAME
            "sum_squares",
        "zero",
    };
    *profile = (struct ddl_profile){ .real = real, .ops = *real->ops };
    profile->backend = *real;
    profile->backend.ops = &profile->ops;
    profile->backend.ctx = profile;
    profile->ops.reserve = pass_reserve;
    profile->ops.memory_estimate = pass_overhead;
    profile->ops.check_error = pass_verdict;
    profile->ops.alloc = pass_alloc;
    profile->ops.free = pass_free;
    profile->ops.upload = pass_upload;
    profile->ops.download = pass_download;
    profile->ops.zero = timed_zero;
    profile->ops.sum_squares = timed_sum_squares;
#define REPLACE(name, args) profile->ops.name = timed_##name;
    DDL_OPS(REPLACE)
#undef REPLACE
    _Static_assert(DDL_PROFILE_ROWS < sizeof profile->store / sizeof *profile->store,
                   "a row for every op and an end");
    for (size_t i = 0; i < DDL_PROFILE_ROWS; i++)
        profile->store[i].name = names[i];
    profile->rows = profile->store;
}

void ddl_profile_reset(struct ddl_profile *profile)
{
    for (size_t i = 0; i < DDL_PROFILE_ROWS; i++) {
        profile->store[i].seconds = 0;
        profile->store[i].calls = 0;
    }
}
