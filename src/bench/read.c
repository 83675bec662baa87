/* How fast a backend reads memory that is in no cache: beside decoding, which reads all weights for each
 * token. */
#include "bench/bench.h"

#include "base/clock.h"
#include "ops/defaults.h"

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
    r->part = ops->alloc(ctx, 2 * sizeof *r->part);
    r->sum = ops->alloc(ctx, sizeof *r->sum);
    if (!r->numbers || !r->part || !r->sum) {
        bench_reader_close(r);
        return ddl_error_set(err, DDL_E_MEMORY,
                             "bench: out of memory for reading as much as the weights have (%zu MiB; "
                             "--no-roofline leaves it out)",
                             bytes >> 20);
    }
    ops->fill(ctx, &(struct fill_args){ n, 0.5f, r->numbers });
    ops->upload(ctx, r->part, (int64_t[]){ 0, (int64_t)n }, 2 * sizeof *r->part);
    r->read = (struct sum_squares_args){
        .parts = { 1, n, n, r->part, r->part + 1 }, .x = r->numbers, .sums = 1, .sum = r->sum
    };
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
