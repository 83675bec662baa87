/* Timing the exchanges between ranks, and the latency and rate that explain the times. */
#include "bench/bench.h"

#include "base/clock.h"
#include "base/mem.h"
#include "comm/comm.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SMALLEST_BYTES = 1024, STEP = 4, SIZES = 16 };

struct job {
    const struct ddl_bench_comm_config *config;
    size_t ranks, capacity; /* floats */
    struct ddl_comm_exchange *exchange;
    float *x;
    uint64_t *nanoseconds; /* (steps) */
    double *seconds;       /* (steps) */
};

/* One collective on n floats. */
typedef void collective_fn(struct job *job, size_t n);

static void sum(struct job *job, size_t n)
{
    double x = (double)n;
    ddl_comm_sum_f64(job->config->comm, 1, &x);
}

static void reduce_scatter(struct job *job, size_t n)
{
    ddl_comm_reduce_scatter_start(job->exchange, n, job->x);
    ddl_comm_finish(job->exchange);
}

static void all_gather(struct job *job, size_t n)
{
    ddl_comm_all_gather_start(job->exchange, n, job->x);
    ddl_comm_finish(job->exchange);
}

/* Time of the slowest rank, from the moment when all are ready. */
static struct ddl_bench_row *time_collective(struct job *job, struct ddl_bench_report *out, const char *name,
                                             collective_fn *fn, size_t n)
{
    ddl_comm *comm = job->config->comm;
    size_t steps = job->config->steps;
    ddl_comm_describe(comm, "the benchmark of %s", name);
    for (size_t i = 0; i < job->config->warmup + steps; i++) {
        ddl_comm_barrier(comm);
        double start = ddl_clock_seconds();
        fn(job, n);
        double seconds = ddl_clock_seconds() - start;
        if (i >= job->config->warmup)
            job->nanoseconds[i - job->config->warmup] = (uint64_t)(1e9 * seconds) + 1;
    }
    ddl_comm_max_u64(comm, steps, job->nanoseconds);
    for (size_t i = 0; i < steps; i++)
        job->seconds[i] = 1e-9 * (double)job->nanoseconds[i];
    return bench_row(out, name, job->seconds, steps);
}

/* Values that bfloat16 represents exactly, and whose sums float32 does: factors up to 32, times 0 to 4. */
static size_t factor_of(size_t rank)
{
    return rank % 32 + 1;
}

/* Both collectives on the largest array: each rank contributes other values, and gets the sums of all. */
static ddl_status check(struct job *job, struct ddl_bench_report *out, struct ddl_error *err)
{
    ddl_comm *comm = job->config->comm;
    size_t rank = ddl_comm_rank(comm), n = job->capacity, wrong = 0, factor = 0;
    for (size_t r = 0; r < job->ranks; r++)
        factor += factor_of(r);
    for (size_t i = 0; i < n; i++)
        job->x[i] = (float)(factor_of(rank) * (i % 5));
    ddl_comm_describe(comm, "the check of the benchmark");
    reduce_scatter(job, n);
    all_gather(job, n);
    for (size_t i = 0; i < n; i++)
        wrong += job->x[i] != (float)(factor * (i % 5));
    snprintf(out->check, sizeof out->check, "sums of all ranks are exact");
    return wrong == 0 ? DDL_OK
                      : ddl_error_set(err, DDL_E_NUMERIC,
                                      "bench comm: %zu of %zu sums are wrong: a wrong result is not timed",
                                      wrong, n);
}

/* Least squares of relative errors for seconds = latency messages + bytes / rate. */
struct fit {
    size_t n;
    double a[SIZES], b[SIZES]; /* messages and bytes, per second of the median */
};

static void fit_report(const struct fit *fit, struct ddl_bench_report *out, const char *name)
{
    double aa = 0, ab = 0, bb = 0, a = 0, b = 0, squares = 0;
    for (size_t i = 0; i < fit->n; i++) {
        aa += fit->a[i] * fit->a[i];
        ab += fit->a[i] * fit->b[i];
        bb += fit->b[i] * fit->b[i];
        a += fit->a[i];
        b += fit->b[i];
    }
    double latency = (a * bb - b * ab) / (aa * bb - ab * ab), cost = (b * aa - a * ab) / (aa * bb - ab * ab);
    for (size_t i = 0; i < fit->n; i++)
        squares += pow(latency * fit->a[i] + cost * fit->b[i] - 1, 2);
    char figure[32];
    snprintf(figure, sizeof figure, "%s_latency_us", name);
    bench_figure(out, figure, 1e6 * latency);
    snprintf(figure, sizeof figure, "%s_mb_per_s", name);
    bench_figure(out, figure, 1e-6 / cost);
    snprintf(figure, sizeof figure, "%s_fit_error", name);
    bench_figure(out, figure, sqrt(squares / (double)fit->n));
}

static void time_sizes(struct job *job, struct ddl_bench_report *out, const char *name, collective_fn *fn,
                       enum ddl_comm_dtype dtype)
{
    struct fit fit = { 0 };
    for (size_t bytes = SMALLEST_BYTES; bytes <= job->config->bytes && fit.n < SIZES; bytes *= STEP) {
        size_t n = bytes / sizeof(float);
        char row_name[DDL_BENCH_NAME];
        bool is_large = bytes >= 1024 * 1024;
        snprintf(row_name, sizeof row_name, "%s %zu %s", name, bytes / (is_large ? 1024 * 1024 : 1024),
                 is_large ? "MiB" : "KiB");
        struct ddl_bench_row *row = time_collective(job, out, row_name, fn, n);
        row->bytes = (double)ddl_comm_exchange_traffic(n, job->ranks, dtype);
        row->units = 1e-6 * row->bytes;
        snprintf(row->unit, sizeof row->unit, "MB");
        fit.a[fit.n] = (double)(job->ranks - 1) / row->median;
        fit.b[fit.n++] = row->bytes / row->median;
    }
    fit_report(&fit, out, name);
}

static ddl_status open_job(struct job *job, struct ddl_error *err)
{
    const struct ddl_bench_comm_config *config = job->config;
    job->ranks = ddl_comm_size(config->comm);
    job->capacity = config->bytes / sizeof(float);
    if (job->ranks < 2)
        return ddl_error_set(err, DDL_E_USAGE,
                             "bench comm: expected several ranks, found one: start them with mpirun");
    if (config->bytes < (size_t)STEP * SMALLEST_BYTES)
        return ddl_error_set(err, DDL_E_USAGE, "bench comm: bytes: expected at least %d, found %zu",
                             STEP * SMALLEST_BYTES, config->bytes);
    ddl_status status = bench_check_steps(config->steps, err);
    if (status)
        return status;
    job->x = ddl_mem_zalloc(job->capacity * sizeof *job->x);
    job->nanoseconds = calloc(config->steps, sizeof *job->nanoseconds);
    job->seconds = calloc(config->steps, sizeof *job->seconds);
    if (!job->x || !job->nanoseconds || !job->seconds)
        return ddl_error_set(err, DDL_E_MEMORY, "bench comm: out of memory for %zu bytes", config->bytes);
    return ddl_comm_exchange_create(&job->exchange, config->comm, job->capacity,
                                    config->bf16 ? DDL_COMM_BF16 : DDL_COMM_F32, err);
}

static size_t count_hosts(const ddl_comm *comm)
{
    size_t hosts = 0;
    for (size_t r = 0; r < ddl_comm_size(comm); r++) {
        size_t first = 0;
        while (strcmp(ddl_comm_host(comm, first), ddl_comm_host(comm, r)) != 0)
            first++;
        hosts += first == r;
    }
    return hosts;
}

ddl_status ddl_bench_comm(const struct ddl_bench_comm_config *config, struct ddl_bench_report *out,
                          struct ddl_error *err)
{
    struct job job = { .config = config };
    struct ddl_error unused;
    err = err ? err : &unused;
    enum ddl_comm_dtype dtype = config->bf16 ? DDL_COMM_BF16 : DDL_COMM_F32;
    bench_begin(out, "comm", NULL);
    ddl_comm_library(out->backend, sizeof out->backend);
    ddl_status status = ddl_comm_agree(config->comm, open_job(&job, err), err);
    if (!status)
        status = ddl_comm_agree(config->comm, check(&job, out, err), err);
    if (!status) {
        bench_set(out, "ranks", "%zu", job.ranks);
        bench_set(out, "hosts", "%zu", count_hosts(config->comm));
        bench_set(out, "dtype", config->bf16 ? "bf16" : "f32");
        bench_figure(out, "sum_us", 1e6 * time_collective(&job, out, "sum", sum, 1)->median);
        time_sizes(&job, out, "reduce_scatter", reduce_scatter, dtype);
        time_sizes(&job, out, "all_gather", all_gather, DDL_COMM_F32);
    }
    ddl_comm_exchange_free(job.exchange);
    ddl_mem_free(job.x);
    free(job.nanoseconds);
    free(job.seconds);
    return status;
}
