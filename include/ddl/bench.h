/* How long a training step takes, and where its time goes. */
#ifndef DDL_BENCH_H
#define DDL_BENCH_H

#include "ddl/backend.h"
#include "ddl/config.h"
#include "ddl/model.h"
#include "ddl/status.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A step: forward, backward, clipping, AdamW, on random tokens. */
struct ddl_bench_config {
    struct ddl_config model;
    enum ddl_precision precision;
    size_t batch, seq;
    size_t warmup, steps; /* untimed, timed (at most DDL_BENCH_STEPS) */
    size_t profiled;      /* further steps with every op timed: a profile costs a little itself; may be 0 */
};
enum { DDL_BENCH_STEPS = 1000, DDL_BENCH_OPS = 64 };

struct ddl_bench_op {
    const char *name;
    double seconds, calls; /* of one step */
};
struct ddl_bench_result {
    size_t n_params;
    double median, best, worst;            /* seconds of a step       */
    double tokens_per_s;                   /* at the median           */
    double flops;                          /* of a step               */
    double peak_memory;                    /* bytes, of the process   */
    double profiled;                       /* seconds of a profiled step */
    struct ddl_bench_op op[DDL_BENCH_OPS]; /* longest first */
    size_t n_ops;
};
DDL_API ddl_status ddl_bench_step(const struct ddl_bench_config *config, ddl_backend *backend,
                                  struct ddl_bench_result *out, struct ddl_error *err);

#ifdef __cplusplus
}
#endif
#endif
