/* Runs test vectors against the library: models with their gradients, traces and optimizer steps, the
 * operator, the generic block, the tokenizer, training curves, downstream tasks, figures and forced losses of
 * ddl/inspect.h, and dumps of training steps with non-finite values.
 *
 * Errors are rms(found - expected) / rms(expected) by tensor; of a gradient, divided by
 * max(rms(expected), 0.01 x the largest rms of the case's gradients), except for the operator, where dq at a
 * tiny q would hide the rest. A tensor whose expected value is all zero must be zero to 1e-7.
 *
 * With dtype bf16, models are compared with the backend "ref" in bfloat16. Errors are relative to the
 * distance of "ref" in bfloat16 from "ref" in float32. Two correct backends round some numbers in different
 * directions, with errors of the same distribution. The limits are therefore sqrt(2) for all gradients
 * together, and 3 sqrt(2) (three standard deviations) for one tensor. "ops" is the largest error of an op
 * relative to a bound derived from its operands: limit 1. */
#ifndef DDL_VERIFY_H
#define DDL_VERIFY_H

#include "ddl/option.h"
#include "ddl/status.h"

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How cases are run. */
struct ddl_verify_config {
    char backend[48];     /* "all", or as ddl_backend_create                                         */
    size_t threads;       /* of the backend; 0: all cores                                            */
    int dtype;            /* enum ddl_precision, f32 or bf16: products of models; others are skipped */
    int recompute;        /* enum ddl_recompute of models and curves; a dump's is its run's          */
    char tokenizer[1024]; /* as ddl_tokenizer_load, for the tokenizer's cases; "": they are skipped  */
    char data[1024];      /* folder of the files named by a files.json; "": they are skipped         */
};
DDL_API struct ddl_verify_config ddl_verify_defaults(void); /* all backends, all cores, f32, no texts */
DDL_API const struct ddl_option *ddl_verify_options(void);  /* rows of struct ddl_verify_config */

/* The largest error of one quantity ("logits", "gradient", ...) and the tensor that has it. */
struct ddl_verify_measure {
    char quantity[16];
    double error, limit; /* passes if error <= limit; a NaN does not */
    char tensor[128];
};

/* The outcome of a case. */
enum ddl_verify_outcome {
    DDL_VERIFY_PASS, /* every measure within its limit           */
    DDL_VERIFY_FAIL, /* one is not, or the case cannot be read   */
    DDL_VERIFY_SKIP, /* nothing here that this program can check */
};
enum { DDL_VERIFY_MEASURES = 16 /* of one case at most */ };

/* One case on one backend. Valid during the call only. */
struct ddl_verify_case {
    const char *path;    /* the case's folder or file                                                     */
    const char *kind;    /* "model", "operator", "block", "elementwise", "tokenizer", "curve", "tasks",
                            "inspect", "trouble", "op"; "backend": of all, one whose device is missing;
                            of what is not recognized "unknown"                                           */
    const char *backend; /* its name, or NULL where none computes                                         */
    int outcome;         /* enum ddl_verify_outcome                                                       */
    size_t n_measures;   /* of them are set */
    struct ddl_verify_measure measures[DDL_VERIFY_MEASURES]; /* the largest error of each quantity */
    char message[1024]; /* why it failed or was skipped, or what of it was skipped; of a "trouble" where
                            it happens, passed or not; or ""                                              */
    double seconds;     /* that it took */
};
/* Receives the result of one case. */
typedef void ddl_verify_fn(void *user, const struct ddl_verify_case *result);

/* Cases by their outcome, each backend counted. */
struct ddl_verify_totals {
    size_t passed, failed, skipped; /* cases */
};

/* Walks the paths in the order given, folders in name order, and runs every case found; `each` is called
 * after each. A case that cannot be read has failed, with a message. An error is returned for what
 * prevents the run itself: an unknown backend, a path that does not exist, or one that holds nothing. */
DDL_API ddl_status ddl_verify_run(const struct ddl_verify_config *config, const char *const *paths,
                                  size_t n_paths, ddl_verify_fn *each, void *user,
                                  struct ddl_verify_totals *totals, struct ddl_error *err);

/* Compares every op of the chosen backends (other than "ref") with "ref", at sizes that are awkward for
 * vectors and blocks; `each` is called for each op and variant, with kind "op" and its name as the path. With
 * `names`, only those whose name contains one of them ("matmul", "delta_bwd.erase"). What is checked, and how
 * the limits are derived: src/ops/trial.h; errors are shares of their limits. DDL_E_USAGE for an unknown
 * backend, for "ref", and for a name that none contains. */
DDL_API ddl_status ddl_verify_ops(const struct ddl_verify_config *config, const char *const *names,
                                  size_t n_names, ddl_verify_fn *each, void *user,
                                  struct ddl_verify_totals *totals, struct ddl_error *err);

#ifdef __cplusplus
}
#endif
#endif
