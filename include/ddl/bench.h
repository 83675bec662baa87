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
    struct ddl_config model;      /* whose step it is */
    enum ddl_precision precision; /* of matrix products */
    size_t batch, seq;            /* sequences of a step, tokens of each */
    size_t warmup, steps;         /* untimed, timed (at most DDL_BENCH_STEPS) */
    size_t profiled; /* further steps with every op timed: a profile costs a little itself; may be 0 */
};
enum {
    DDL_BENCH_STEPS = 1000, /* timed steps at most */
    DDL_BENCH_OPS = 64,     /* rows of a profile   */
};

/* One op of the profile. */
struct ddl_bench_op {
    const char *name;      /* as in src/ops/ops.h */
    double seconds, calls; /* of one step */
};
/* What a step took. */
struct ddl_bench_result {
    size_t n_params;                       /* numbers in the model    */
    double median, best, worst;            /* seconds of a step       */
    double tokens_per_s;                   /* at the median           */
    double flops;                          /* of a step               */
    double peak_memory;                    /* bytes, of the process   */
    double profiled;                       /* seconds of a profiled step */
    struct ddl_bench_op op[DDL_BENCH_OPS]; /* longest first */
    size_t n_ops;                          /* rows of op that are set; 0 without a profile */
};
/* Makes the model and its optimiser on the backend, and times steps. DDL_E_USAGE for a configuration that is
 * none, DDL_E_MEMORY where it does not fit. */
DDL_API ddl_status ddl_bench_step(const struct ddl_bench_config *config, ddl_backend *backend,
                                  struct ddl_bench_result *out, struct ddl_error *err);

#ifdef __cplusplus
}
#endif
#endif
