/* Shared by the kinds of cases: reading test vectors and comparing results with them. */
#ifndef DDL_VERIFY_INTERNAL_H
#define DDL_VERIFY_INTERNAL_H

#include "ddl/backend.h"
#include "ddl/model.h"
#include "ddl/verify.h"
#include "tensor/safetensors.h"

#include <stdbool.h>
#include <stdint.h>

/* The limits of every quantity. */
#define LIMIT_LOGITS 5e-6
#define LIMIT_LOSS 2e-6
#define LIMIT_GRADIENT 1e-4
#define LIMIT_TRACE 1e-5 /* beta, readout, target */
#define LIMIT_TRAIN_LOSS 5e-5
#define LIMIT_AFTER 5e-4
#define LIMIT_OPERATOR 1e-5
#define LIMIT_DECODE 1e-5
#define LIMIT_CURVE 1e-4
#define LIMIT_INSPECT 1e-4 /* figures and losses under forced updates */
#define LIMIT_ZERO 1e-7    /* of any number of a tensor that should be all zero */

/* Memory that is freed at the end of a case; zero-initialize. */
struct pool {
    void *first;
};
void *pool_take(struct pool *pool, size_t count, size_t size); /* NULL: out of memory */
void pool_free(struct pool *pool);

/* A running case. */
struct context {
    struct ddl_verify_case *result;
    const struct ddl_verify_config *config;
    const char *path;     /* of the case                */
    ddl_backend *backend; /* NULL where none computes   */
    struct pool pool;     /* freed when the case is over */
};

/* Adds the outcome of a case to the totals. */
void verify_count(struct ddl_verify_totals *totals, const struct ddl_verify_case *result);

/* Whether backend number i of all is left out because creating it returned `status`: a plugin whose device is
 * missing. */
bool verify_skips_backend(const struct ddl_verify_config *config, size_t i, ddl_status status);

/* Records one error of a quantity; the largest, as a share of its limit, is kept. A case fails above a limit.
 */
void measure(struct context *c, const char *quantity, double limit, const char *tensor, double error);

/* found against expected, n numbers each: see verify.h. `floor`: the least denominator. */
void compare(struct context *c, const char *quantity, double limit, const char *tensor, size_t n,
             const float *found, const double *expected, double floor);
/* |found - expected| / |expected| of one number. */
void compare_number(struct context *c, const char *quantity, double limit, const char *tensor, double found,
                    double expected);

/* Tensor `name` with its shape checked, as numbers from the case's pool. A missing or misshapen one is an
 * error with its message. */
struct want {
    const char *name;
    size_t ndim, shape[4];
};
ddl_status read_floats(struct context *c, const ddl_safetensors *file, struct want want, float **out,
                       struct ddl_error *err);
ddl_status read_doubles(struct context *c, const ddl_safetensors *file, struct want want, double **out,
                        struct ddl_error *err);
ddl_status read_ids(struct context *c, const ddl_safetensors *file, struct want want, int32_t **out,
                    struct ddl_error *err);
/* The tensor, with exactly ndim dimensions. */
ddl_status find_tensor(const ddl_safetensors *file, const char *path, const char *name, size_t ndim,
                       const struct ddl_tensor **out, struct ddl_error *err);
/* count floats of NaN from the pool. */
ddl_status take_floats(struct context *c, size_t count, float **out, struct ddl_error *err);

/* A list of gradients, compared together: their common floor comes from the largest. */
struct gradient {
    const char *name; /* "dX", "grad.transformer.wte.weight" */
    size_t n;
    const float *found;
    const double *expected;
};
void compare_gradients(struct context *c, double limit, const struct gradient *list, size_t n);

/* The batch of a model case: tokens and targets (B, T), in the case's pool. */
ddl_status read_model_batch(struct context *c, const ddl_safetensors *expect, struct ddl_batch *out,
                            struct ddl_error *err);
/* out (B, T, V) = the batch's logits, decoded one token at a time. */
ddl_status decode_by_token(struct context *c, ddl_model *model, const struct ddl_batch *batch, float *out,
                           struct ddl_error *err);
/* A model case in bfloat16. */
ddl_status check_model_bf16(struct context *c, const ddl_safetensors *expect, struct ddl_error *err);

/* The kinds. Each runs the case at c->path; what cannot be read is an error. */
typedef ddl_status check_fn(struct context *c, struct ddl_error *err);
check_fn check_model, check_operator, check_block, check_elementwise, check_tokenizer, check_curve,
    check_inspect, check_tasks, check_dump;

/* Kinds of a safetensors file, by the tensors in it: NULL where it is none of ours. */
struct kind {
    const char *name;
    bool computes; /* runs once per backend */
    check_fn *check;
};
const struct kind *kind_of_file(const ddl_safetensors *file);

#endif
