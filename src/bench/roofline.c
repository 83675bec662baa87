/* What the machine does at best, by the backend's own ops: a few large products, and memory far beyond its
 * caches. */
#include "bench/bench.h"
#include "base/clock.h"
#include "ops/defaults.h"

enum { LARGEST = 4096 * 4096, TRIES = 7 };
/* seconds of all tries of a shape; of one, roughly; of a try at least, so that launches and waits do not
 * count */
static const double enough = 0.6, too_slow = 0.5, shortest = 2e-3;

static double seconds_of(const ddl_backend *backend, bench_fn *fn, void *user, size_t calls)
{
    double start = ddl_clock_seconds();
    for (size_t i = 0; i < calls; i++)
        fn(user);
    backend->ops->synchronize(backend->ctx);
    return (ddl_clock_seconds() - start) / (double)calls;
}

/* Seconds of a call in the fastest of some tries. */
static double best_of(const ddl_backend *backend, bench_fn *fn, void *user)
{
    double best = seconds_of(backend, fn, user, 1), spent = best;
    size_t calls = best < shortest ? (size_t)(shortest / (best + 1e-9)) + 1 : 1;
    for (size_t i = 1; i < TRIES && (i < 2 || spent < enough); i++) {
        double seconds = seconds_of(backend, fn, user, calls);
        best = seconds < best ? seconds : best;
        spent += seconds * (double)calls;
    }
    return best;
}

struct job {
    ddl_backend *backend;
    struct matmul_args product;
    struct matmul_bf16_args product16;
    struct copy_args copy;
    struct sum_squares_args read;
};

static void multiply(void *user)
{
    const struct job *job = user;
    job->backend->ops->matmul(job->backend->ctx, &job->product);
}

static void multiply16(void *user)
{
    const struct job *job = user;
    job->backend->ops->matmul_bf16(job->backend->ctx, &job->product16);
}

static void copy(void *user)
{
    const struct job *job = user;
    job->backend->ops->copy(job->backend->ctx, &job->copy);
}

static void read_once(void *user)
{
    const struct job *job = user;
    job->backend->ops->sum_squares(job->backend->ctx, &job->read);
}

/* Operations a second of the fastest shape; larger ones are left out where smaller ones take too long. */
static double fastest_product(struct job *job, bench_fn *fn)
{
    static const size_t shapes[][3] = {
        { 1024, 1024, 1024 }, { 2048, 2048, 2048 }, { 1024, 4096, 2048 }, { 4096, 4096, 2048 }
    };
    double most = 0;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        size_t M = shapes[i][0], N = shapes[i][1], K = shapes[i][2];
        job->product.M = job->product16.M = M;
        job->product.N = job->product16.N = job->product.ldc = job->product16.ldc = N;
        job->product.K = job->product16.K = K;
        job->product.lda = job->product.ldb = job->product16.lda = job->product16.ldb = K;
        double seconds = best_of(job->backend, fn, job), rate = 2 * (double)(M * N * K) / seconds;
        most = rate > most ? rate : most;
        if (4 * seconds > too_slow) /* the next has up to four times as many operations */
            break;
    }
    return most;
}

static void measure(struct ddl_bench_roofline *out, struct job *job, void *a, void *b, void *c, size_t n)
{
    enum { ROWS = 1024 };
    const struct ddl_ops *ops = job->backend->ops;
    void *ctx = job->backend->ctx;
    /* numbers that stay in range, and pages that are there */
    ops->fill(ctx, &(struct fill_args){ n, 0.5f, a });
    ops->fill(ctx, &(struct fill_args){ n, 0.5f, b });
    ops->fill(ctx, &(struct fill_args){ LARGEST, 0.5f, c });
    job->product = (struct matmul_args){ .trans_b = true, .alpha = 1, .A = a, .B = b, .C = c };
    out->gemm_f32 = fastest_product(job, multiply);
    job->copy = (struct copy_args){
        .rows = ROWS, .width = n / ROWS, .src = a, .src_stride = n / ROWS, .dst = b, .dst_stride = n / ROWS
    };
    int64_t *part = (int64_t *)c + 1; /* after the sum */
    job->read = bench_read_args(job->backend, n, a, part, c);
    out->copy = 2 * (double)n * sizeof(float) / best_of(job->backend, copy, job);
    out->read = (double)n * sizeof(float) / best_of(job->backend, read_once, job);
    ops->cast_bf16(ctx, &(struct cast_bf16_args){ LARGEST, c, a });
    ops->cast_bf16(ctx, &(struct cast_bf16_args){ LARGEST, c, b });
    job->product16 = (struct matmul_bf16_args){ .trans_b = true, .alpha = 1, .A = a, .B = b, .C = c };
    out->gemm_bf16 = fastest_product(job, multiply16);
}

ddl_status bench_roofline(struct ddl_bench_roofline *out, ddl_backend *backend, struct ddl_error *err)
{
    const enum ddl_op *timed =
        DDL_OP_LIST(DDL_OP_matmul, DDL_OP_matmul_bf16, DDL_OP_cast_bf16, DDL_OP_copy, DDL_OP_sum_squares);
    ddl_status status = ddl_ops_require(backend, timed, "the roofline (see --no-roofline)", err);
    if (status)
        return status;
    /* 256 MiB an array, or a sixteenth of a small machine's memory */
    size_t n = (size_t)64 << 20, most = backend->ops->memory_capacity(backend->ctx) / 16 / sizeof(float);
    n = n < most ? n : most / 1024 * 1024;
    n = n > LARGEST ? n : LARGEST;
    void *block[3];
    size_t numbers[3] = { n, n, LARGEST };
    bool whole = true;
    for (size_t i = 0; i < 3; i++) {
        block[i] = backend->ops->alloc(backend->ctx, numbers[i] * sizeof(float));
        whole = whole && block[i];
    }
    struct job job = { .backend = backend };
    if (whole)
        measure(out, &job, block[0], block[1], block[2], n);
    for (size_t i = 0; i < 3; i++) {
        if (block[i])
            backend->ops->free(backend->ctx, block[i]);
    }
    return whole ? DDL_OK
                 : ddl_error_set(err, DDL_E_MEMORY,
                                 "bench: out of memory for measuring the machine's limits (%zu MiB; "
                                 "--no-roofline leaves them out)",
                                 2 * n * sizeof(float) >> 20);
}
