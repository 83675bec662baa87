/* A training step that is not computed: its ops are counted, and the time that a device of given rates would
 * need for them is predicted. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS, MAP_NORESERVE */
#include "bench/planned.h"

#include "base/locale.h"
#include "ops/operands.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* A block of address space begins with its size; nothing else of it is ever read or written. */
struct block {
    size_t bytes;
};
enum { BLOCK_HEADER = 4096 };

/* An operand that one of the ops before this one has read or written. */
struct held {
    const void *at;
    int access;
};
enum { HELD = 64 };
/* Width of projected_norm_bwd, outputs of a projection in it and in kernels that end with a norm. */
enum { MOST_PROJECTED = 1024, MOST_PROJECTIONS = 4 };

struct bench_planned {
    ddl_backend backend;
    struct ddl_ops ops;
    ddl_backend *real; /* for the size of 8-bit matrices */
    struct ddl_bench_device device;
    struct ddl_bench_share share[DDL_OP_COUNT + 1]; /* by op; the last is zero */
    struct held held[HELD];                         /* what the ops of a fused kernel have in registers */
    size_t n_held;
    bool ends; /* the last op was one that such a kernel ends with, unless a projection follows */
    struct project_grad_args waiting; /* not counted yet: perhaps a fused kernel's, if there are outputs */
    struct rmsnorm_grad_args norm;    /* the op before this one, if it has rows */
};

static void *reserve_space(void *ctx, size_t bytes)
{
    (void)ctx;
    if (bytes > SIZE_MAX / 2)
        return NULL;
    struct block *block = mmap(NULL, bytes + BLOCK_HEADER, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (block == MAP_FAILED)
        return NULL;
    block->bytes = bytes + BLOCK_HEADER;
    return (char *)block + BLOCK_HEADER;
}

static void release_space(void *ctx, void *at)
{
    (void)ctx;
    struct block *block = at ? (struct block *)(void *)((char *)at - BLOCK_HEADER) : NULL;
    if (block)
        munmap(block, block->bytes);
}

static void ignore_upload(void *ctx, void *dst, const void *host, size_t bytes)
{
    (void)ctx;
    (void)dst;
    (void)host;
    (void)bytes;
}

static void download_zeros(void *ctx, void *host, const void *src, size_t bytes)
{
    (void)ctx;
    (void)src;
    memset(host, 0, bytes);
}

static ddl_event ignore_upload_async(void *ctx, void *dst, const void *host, size_t bytes)
{
    ignore_upload(ctx, dst, host, bytes);
    return 0;
}

static ddl_event download_zeros_async(void *ctx, void *host, const void *src, size_t bytes)
{
    download_zeros(ctx, host, src, bytes);
    return 0;
}

/* An op that a fused kernel computes has less traffic than alone, and no launch if it is not the first. */
static void count(struct bench_planned *p, size_t row, double flops, double bytes, double fused_bytes,
                  unsigned launches)
{
    struct ddl_bench_share *share = &p->share[row];
    share->calls++;
    share->flops += flops;
    share->bytes += bytes;
    share->seconds += launches * p->device.seconds_per_call +
                      fmax(flops / p->device.flops_per_s, fused_bytes / p->device.bytes_per_s);
}

static void count_zero(void *ctx, void *dst, size_t bytes)
{
    (void)dst;
    count(ctx, DDL_OP_COUNT, 0, (double)bytes, (double)bytes, 1);
}

/* ---- fused kernels ---- */

static bool is_update_of_rows(enum ddl_op op)
{
    return op == DDL_OP_scale_fwd || op == DDL_OP_gated_fwd || op == DDL_OP_gated_bwd ||
           op == DDL_OP_highway_fwd || op == DDL_OP_laurel_fwd;
}

/* Ops of parameters alone, which are kernels of their own beside a fused one. */
static bool is_folding(enum ddl_op op)
{
    return op == DDL_OP_fold_fwd || op == DDL_OP_fold_bwd || op == DDL_OP_streams_fold_fwd ||
           op == DDL_OP_streams_fold_bwd;
}

/* Whether a fused kernel that updates a state or normalizes rows computes this op (src/backend/cuda/fuse.c):
 * the first of a run, or one that continues it. Other than 1, 2 or 4 channels are not among them. */
static bool is_fused(enum ddl_op op, const void *args, bool first)
{
    const struct ddl_delta_args *fwd = args;
    const struct ddl_delta_grad_args *bwd = args;
    const struct compress_args *read = args;
    const struct compress_grad_args *read_bwd = args;
    const struct project_args *project = args;
    if (is_update_of_rows(op))
        return true;
    switch (op) {
    case DDL_OP_delta_fwd:
        return fwd->c == 1 || fwd->c == 2 || fwd->c == 4;
    case DDL_OP_delta_bwd:
        return bwd->X_next && (bwd->c == 1 || bwd->c == 2 || bwd->c == 4);
    case DDL_OP_compress_fwd:
        return !first && !read->ragged.B && (read->c == 2 || read->c == 4);
    case DDL_OP_compress_bwd:
        return read_bwd->c == 2 || read_bwd->c == 4;
    case DDL_OP_project_fwd:
        return !first && project->c <= MOST_PROJECTIONS;
    case DDL_OP_rmsnorm_fwd:
    case DDL_OP_streams_write_fwd:
    case DDL_OP_hyper_fwd:
    case DDL_OP_hyper_bwd:
        return true;
    case DDL_OP_streams_write_bwd:
        return !first;
    default:
        return !first && is_folding(op);
    }
}

/* The part of the operand's accesses that the kernel has not made yet: of what it has read or written it
 * reads nothing, and what is written several times is written once. */
static int new_access(struct bench_planned *p, const void *at, int access)
{
    for (size_t i = 0; i < p->n_held; i++) {
        struct held *h = &p->held[i];
        if (h->at == at) {
            const int added = access & DDL_WRITE & ~h->access;
            h->access |= access;
            return added;
        }
    }
    if (p->n_held < HELD)
        p->held[p->n_held++] = (struct held){ at, access };
    return access;
}

/* A projection's gradients. `joins`: they are part of the kernel that has rows x and dx in registers. */
static void count_projection(struct bench_planned *p, const struct project_grad_args *a, bool joins)
{
    struct ddl_op_use use;
    ddl_op_describe(DDL_OP_project_bwd, a, &use);
    const double bytes = ddl_op_traffic(&use, a, &p->backend);
    for (size_t i = 0; joins && i < use.n; i++) {
        const void *at = ddl_operand_get(&use.operand[i], a);
        if (at == a->x || at == a->dx)
            use.operand[i].access = 0;
    }
    count(p, DDL_OP_project_bwd, use.flops, bytes, ddl_op_traffic(&use, a, &p->backend), !joins);
}

/* projected_norm_bwd: what of a projection's gradients is computed by the kernel of rmsnorm_bwd. Those of its
 * result come before it, and wait; those of its input come after it. True: the op is, or will be, counted. */
static bool count_with_norm(struct bench_planned *p, enum ddl_op op, const void *args)
{
    const struct rmsnorm_grad_args *norm = op == DDL_OP_rmsnorm_bwd ? args : NULL, last = p->norm;
    const struct project_grad_args *a = op == DDL_OP_project_bwd ? args : NULL;
    if (p->waiting.c)
        count_projection(p, &p->waiting, norm && norm->dy == p->waiting.dx);
    p->waiting.c = 0;
    p->norm = (struct rmsnorm_grad_args){ 0 };
    if (norm && norm->d <= MOST_PROJECTED)
        p->norm = *norm;
    if (!a || a->d > MOST_PROJECTED || a->c > MOST_PROJECTIONS)
        return false;
    if (last.N && last.x == a->x && last.dx == a->dx)
        count_projection(p, a, true);
    else
        p->waiting = *a;
    return true;
}

static void count_op(struct bench_planned *p, enum ddl_op op, const void *args)
{
    struct ddl_op_use use;
    if (count_with_norm(p, op, args)) {
        p->n_held = 0;
        return;
    }
    const bool first = p->n_held == 0 || is_update_of_rows(op) || (p->ends && op != DDL_OP_project_fwd);
    const bool fused = is_fused(op, args, first);
    ddl_op_describe(op, args, &use);
    const double bytes = ddl_op_traffic(&use, args, &p->backend);
    if (first || !fused)
        p->n_held = 0;
    p->ends = fused && (op == DDL_OP_rmsnorm_fwd || op == DDL_OP_project_fwd);
    for (size_t i = 0; fused && i < use.n; i++) {
        struct ddl_operand *o = &use.operand[i];
        if (ddl_operand_get(o, args))
            o->access = (enum ddl_access)new_access(p, ddl_operand_get(o, args), (int)o->access);
    }
    const bool joins = fused && !first && !is_folding(op);
    count(p, (size_t)op, use.flops, bytes, ddl_op_traffic(&use, args, &p->backend), !joins);
}

#define COUNT(name, args)                                                                                    \
    static void count_##name(void *ctx, const struct args *a)                                                \
    {                                                                                                        \
        count_op(ctx, DDL_OP_##name, a);                                                                     \
    }
DDL_OPS(COUNT)
#undef COUNT

static size_t q8_bytes(void *ctx, size_t rows, size_t width)
{
    const struct bench_planned *p = ctx;
    return p->real->ops->q8_bytes(p->real->ctx, rows, width);
}

static ddl_status nothing_to_reserve(void *ctx, const struct ddl_limits *limits, struct ddl_error *err)
{
    (void)ctx;
    (void)limits;
    (void)err;
    return DDL_OK;
}

static ddl_status no_error(void *ctx, struct ddl_error *err)
{
    (void)ctx;
    (void)err;
    return DDL_OK;
}

static size_t no_memory_of_its_own(void *ctx, const struct ddl_limits *limits)
{
    (void)ctx;
    (void)limits;
    return 0;
}

static size_t logits_of_device(void *ctx)
{
    (void)ctx;
    return DDL_DEVICE_LOGITS;
}

static size_t unlimited(void *ctx)
{
    (void)ctx;
    return SIZE_MAX;
}

static ddl_event always_complete(void *ctx)
{
    (void)ctx;
    return 0;
}

static bool is_complete(void *ctx, ddl_event event)
{
    (void)ctx;
    return event == 0;
}

static void wait_for_nothing(void *ctx, ddl_event event)
{
    (void)ctx;
    (void)event;
}

static void nothing_to_wait_for(void *ctx)
{
    (void)ctx;
}

struct bench_planned *bench_planned_create(ddl_backend *real, const struct ddl_bench_device *device)
{
    struct bench_planned *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->real = real;
    p->device = *device;
    p->ops = (struct ddl_ops){ .name = real->ops->name,
                               .has_tf32 = true, /* nothing is computed */
                               .step_rows = real->ops->step_rows,
                               .reserve = nothing_to_reserve,
                               .memory_estimate = no_memory_of_its_own,
                               .logit_block = logits_of_device,
                               .memory_capacity = unlimited,
                               .check_error = no_error,
                               .synchronize = nothing_to_wait_for,
                               .alloc = reserve_space,
                               .free = release_space,
                               .alloc_host = reserve_space,
                               .free_host = release_space,
                               .upload_async = ignore_upload_async,
                               .download_async = download_zeros_async,
                               .record = always_complete,
                               .is_done = is_complete,
                               .wait = wait_for_nothing,
                               .upload = ignore_upload,
                               .download = download_zeros,
                               .zero = count_zero,
                               .q8_bytes = q8_bytes,
#define FILL_OP(op, args) .op = count_##op,
                               DDL_OPS(FILL_OP)
#undef FILL_OP
    };
    p->backend =
        (ddl_backend){ .ops = &p->ops, .ctx = p, .description = "no backend: counted, not computed" };
    return p;
}

void bench_planned_free(struct bench_planned *p)
{
    free(p);
}

ddl_backend *bench_planned_backend(struct bench_planned *p)
{
    return &p->backend;
}

void bench_planned_reset(struct bench_planned *p)
{
    memset(p->share, 0, sizeof p->share);
    p->n_held = 0;
}

double bench_planned_report(const struct bench_planned *p, struct ddl_bench_report *report)
{
    double seconds = 0;
    for (size_t i = 0; i <= DDL_OP_COUNT; i++) {
        if (p->share[i].calls == 0 || report->n_shares == DDL_BENCH_SHARES)
            continue;
        struct ddl_bench_share *share = &report->share[report->n_shares++];
        *share = p->share[i];
        snprintf(share->op, sizeof share->op, "%s", i == DDL_OP_COUNT ? "zero" : ddl_op_name((enum ddl_op)i));
        seconds += share->seconds;
    }
    bench_sort_shares(report);
    return seconds;
}

ddl_status ddl_bench_device_parse(const char *text, struct ddl_bench_device *out, struct ddl_error *err)
{
    static const char prefixes[] = "GTP";
    static const double scales[] = { 1e9, 1e12, 1e15 };
    double *const rates[] = { &out->bytes_per_s, &out->flops_per_s };
    static const char *const units[] = { "B/s", "FLOP/s" };
    const char *at = text;
    for (size_t i = 0; i < 2; i++) {
        char *end;
        *rates[i] = ddl_parse_double(at, &end);
        const char *prefix = end != at && *end ? strchr(prefixes, *end) : NULL;
        if (!prefix || !(*rates[i] > 0) || strncmp(end + 1, units[i], strlen(units[i])) != 0)
            return ddl_error_set(err, DDL_E_USAGE,
                                 "device model: expected rates of memory and products, such as '3.0TB/s "
                                 "790TFLOP/s', found '%s'",
                                 text);
        *rates[i] *= scales[prefix - prefixes];
        at = end + 1 + strlen(units[i]);
        at += strspn(at, " ,");
    }
    out->seconds_per_call = 0;
    if (*at) {
        char *end;
        const double microseconds = ddl_parse_double(at, &end);
        if (end != at && microseconds >= 0 && strcmp(end, "us") == 0) {
            out->seconds_per_call = 1e-6 * microseconds;
            return DDL_OK;
        }
    }
    return *at ? ddl_error_set(err, DDL_E_USAGE, "device model: unexpected '%s' after the rates", at)
               : DDL_OK;
}
