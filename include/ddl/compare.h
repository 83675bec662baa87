/* What runs left behind, read back to be compared: the points of metrics.jsonl. */
#ifndef DDL_COMPARE_H
#define DDL_COMPARE_H

#include "ddl/config.h"
#include "ddl/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A logged step. */
struct ddl_run_point {
    uint64_t step;                 /* 0: before the first step                  */
    double loss;                   /* mean over the step's targets, nats        */
    double val_loss;               /* NaN where the step was not followed by a validation */
    double tokens, flops;          /* cumulative */
    double seconds, train_seconds; /* cumulative: wall time, and the steps' share of it */
    double tokens_per_s;           /* of the steps since the point before */
    double peak_memory;            /* bytes */
};

/* The main value of a task (ddl_task_main_value) after a step. */
struct ddl_run_score {
    uint64_t step;
    char task[128];      /* its title */
    char value_name[16]; /* "acc_norm", "acc" */
    double value, error; /* error: standard error, NaN where there is none */
};
/* A run: its points, and what trained. */
struct ddl_run_log {
    struct ddl_run_point *points; /* n of them, steps rising */
    size_t n;
    struct ddl_run_score *scores; /* n_scores of them, steps rising */
    size_t n_scores;
    bool has_config; /* the run has saved a model; config and n_params are set */
    struct ddl_config config;
    size_t n_params; /* numbers in the model */
};

/* Reads metrics.jsonl of a run folder, and its configuration if there is one. A malformed line is
 * an error that names it; a last line without a newline (a run that is being written) is left out. Free with
 * ddl_run_log_free. */
DDL_API ddl_status ddl_run_log_read(struct ddl_run_log *out, const char *folder, struct ddl_error *err);
DDL_API void ddl_run_log_free(struct ddl_run_log *log); /* what the log points to; it becomes empty */

/* Leaves out the points and scores of `log` after `step`. DDL_E_FORMAT, naming `folder`, if none is left. */
DDL_API ddl_status ddl_run_log_truncate(struct ddl_run_log *log, uint64_t step, const char *folder,
                                        struct ddl_error *err);

/* The last score of `log` for the task; NULL if there is none. Borrowed. */
DDL_API const struct ddl_run_score *ddl_run_log_score(const struct ddl_run_log *log, const char *task);

/* Figures over the points; NaN where there are none. */
DDL_API double ddl_run_log_final_val(const struct ddl_run_log *log);   /* the log's last validation loss   */
DDL_API double ddl_run_log_final_train(const struct ddl_run_log *log); /* mean loss of the log's last tenth */
DDL_API double ddl_run_log_speed(const struct ddl_run_log *log); /* the log's median tokens a second    */

#ifdef __cplusplus
}
#endif
#endif
