/* Time of reading as many bytes as the weights of a model have, for comparison with decoding. What is smaller
 * than a cache may stay there. */
#include "bench/bench.h"

#include "base/clock.h"
#include "ops/defaults.h"

struct sum_squares_args bench_read_args(ddl_backend *backend, size_t n, const float *x, int64_t *part,
                                        double *sum)
{
    enum { PARTS = BENCH_READ_PARTS };
    int64_t parts[2][PARTS]; /* begin, size */
    for (size_t i = 0; i < PARTS; i++) {
        parts[0][i] = (int64_t)(n / PARTS * i);
        parts[1][i] = (int64_t)(i + 1 < PARTS ? n / PARTS : n - n / PARTS * i);
    }
    backend->ops->upload(backend->ctx, part, parts, sizeof parts);
    return (struct sum_squares_args){
        .parts = { PARTS, n, n, part, part + PARTS }, .x = x, .sums = 1, .sum = sum
    };
}

ddl_status bench_reader_open(struct bench_reader *r, ddl_backend *backend, size_t bytes,
                             struct ddl_error *err)
{
    const struct ddl_ops *ops = backend->ops;
    void *ctx = backend->ctx;
    const size_t n = bytes / sizeof(float);
    *r = (struct bench_reader){ .backend = backend };
    ddl_status status = ddl_ops_require(backend, DDL_OP_LIST(DDL_OP_fill, DDL_OP_sum_squares),
                                        "reading memory (see --no-roofline)", err);
    if (status)
        return status;
    r->numbers = ops->alloc(ctx, n * sizeof *r->numbers);
    r->part = ops->alloc(ctx, 2 * BENCH_READ_PARTS * sizeof *r->part);
    r->sum = ops->alloc(ctx, sizeof *r->sum);
    if (!r->numbers || !r->part || !r->sum) {
        bench_reader_close(r);
        return ddl_error_set(err, DDL_E_MEMORY,
                             "bench: out of memory for reading as much as the weights have (%zu MiB; "
                             "--no-roofline leaves it out)",
                             bytes >> 20);
    }
    ops->fill(ctx, &(struct fill_args){ n, 0.5f, r->numbers });
    r->read = bench_read_args(backend, n, r->numbers, r->part, r->sum);
    return DDL_OK;
}

double bench_read(const struct bench_reader *r)
{
    double start = ddl_clock_seconds();
    r->backend->ops->sum_squares(r->backend->ctx, &r->read);
    r->backend->ops->synchronize(r->backend->ctx);
    return ddl_clock_seconds() - start;
}

void bench_reader_close(struct bench_reader *r)
{
    void *blocks[] = { r->numbers, r->part, r->sum };
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
        if (blocks[i])
            r->backend->ops->free(r->backend->ctx, blocks[i]);
    }
}
