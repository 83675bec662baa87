/* Cases of vectors, run through the public pieces: models with their gradients, traces and optimiser steps,
 * the operator, the generic block, the tokenizer, training curves, and dumps of training runs whose numbers
 * ended.
 *
 * Errors are rms(found - expected) / rms(expected) by tensor; of a gradient, divided by
 * max(rms(expected), 0.01 x the largest rms among the case's gradients), but for the operator, whose dq at a
 * tiny q would hide the rest. A tensor whose expected value is
 * all zero must be zero to 1e-7. */
#ifndef DDL_VERIFY_H
#define DDL_VERIFY_H

#include "ddl/option.h"
#include "ddl/status.h"

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What cases are held against. */
struct ddl_verify_config {
    char backend[16];     /* "all", or one name of ddl_backend_list                                       */
    size_t threads;       /* of the backend; 0: all cores                                                 */
    int recompute;        /* enum ddl_recompute of models and curves; a dump's is its run's               */
    char tokenizer[1024]; /* as ddl_tokenizer_load, for the tokenizer's cases; "": they are skipped       */
    char data[1024];      /* folder that the files named by a files.json lie below; "": they are skipped  */
};
DDL_API struct ddl_verify_config ddl_verify_defaults(void); /* all backends, all cores, no texts */
DDL_API const struct ddl_option *ddl_verify_options(void);  /* rows of struct ddl_verify_config */

/* The largest error of one quantity ("logits", "gradient", ...) and the tensor that has it. */
struct ddl_verify_measure {
    char quantity[16];
    double error, limit; /* passes if error <= limit; a NaN does not */
    char tensor[128];
};

/* What became of a case. */
enum ddl_verify_outcome {
    DDL_VERIFY_PASS, /* every measure within its limit           */
    DDL_VERIFY_FAIL, /* one is not, or the case cannot be read   */
    DDL_VERIFY_SKIP, /* nothing here that this program can check */
};
enum { DDL_VERIFY_MEASURES = 16 /* of one case at most */ };

/* One case on one backend. Lent for the length of the call. */
struct ddl_verify_case {
    const char *path;    /* the case's folder or file                                                     */
    const char *kind;    /* "model", "operator", "block", "elementwise", "tokenizer", "curve", "trouble"; of
                            what is skipped "inspect", "tasks" or "unknown"    */
    const char *backend; /* its name, or NULL where none computes                                         */
    int outcome;         /* enum ddl_verify_outcome                                                       */
    size_t n_measures;   /* of them are set */
    struct ddl_verify_measure measures[DDL_VERIFY_MEASURES]; /* the largest error of each quantity */
    char sentence[1024]; /* why it failed or was skipped, or what of it was skipped; of a "trouble" where
                            it happens, passed or not; or ""                                              */
    double seconds;      /* that it took */
};
/* Hears the result of one case. */
typedef void ddl_verify_fn(void *user, const struct ddl_verify_case *result);

/* Cases by their outcome, each backend counted. */
struct ddl_verify_totals {
    size_t passed, failed, skipped; /* cases */
};

/* Walks the paths in the order given, folders in name order, and runs every case found; `each` is called
 * after each. A case that cannot be read has failed, with its sentence. An error is returned for what
 * prevents the run itself: an unknown backend, a path that does not exist, or one that holds nothing. */
DDL_API ddl_status ddl_verify_run(const struct ddl_verify_config *config, const char *const *paths,
                                  size_t n_paths, ddl_verify_fn *each, void *user,
                                  struct ddl_verify_totals *totals, struct ddl_error *err);

#ifdef __cplusplus
}
#endif
#endif
