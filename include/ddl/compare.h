/* Comparison of runs: the points of metrics.jsonl, groups of runs that differ in the seed only, and
 * statistics over them. docs/sweep.md has the rules and formulas. */
#ifndef DDL_COMPARE_H
#define DDL_COMPARE_H

#include "ddl/config.h"
#include "ddl/status.h"
#include "ddl/train.h"

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
    size_t n_params;                 /* numbers in the model */
    struct ddl_train_config *recipe; /* values of recipe.yaml; NULL if the file cannot be used */
    char recipe_error[1024];         /* then why; "" without the file                         */
};

/* Reads metrics.jsonl of a run folder, its configuration if there is one, and its recipe.yaml. A malformed
 * line is an error that names it; a last line without a newline (a run that is being written) is left out.
 * Free with ddl_run_log_free. */
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

/* ---- groups ---- */

/* The mean of a figure over runs. NaN: `mean` without runs; the others with fewer than two. */
struct ddl_mean {
    size_t n;         /* runs                                   */
    double mean, sd;  /* arithmetic; sample standard deviation  */
    double low, high; /* 95 % confidence interval of the mean   */
};
/* A group against the baseline group. NaN where a value is not defined: in the baseline itself, with fewer
 * than two runs, without variance. */
struct ddl_test {
    double difference; /* of the means: group - baseline                          */
    double welch_p;    /* two-sided p-value of Welch's t-test                     */
    size_t n_pairs;    /* runs, if both groups have the same seeds; else 0        */
    double paired_p;   /* two-sided p-value of the t-test of the pairs            */
};
/* What it took to reach the target, the baseline's final validation loss. NaN: not reached. */
struct ddl_reach {
    double tokens, flops, seconds;                   /* training time                  */
    double tokens_ratio, flops_ratio, seconds_ratio; /* to the totals of the baseline  */
};
/* The range of the losses of a group's runs at a point. NaN where the mean is. */
struct ddl_band {
    double loss_low, loss_high; /* training loss   */
    double val_low, val_high;   /* validation loss */
};
/* The scores of a group's runs on a task: each run's last one up to the step of the comparison. */
struct ddl_group_score {
    const char *task;       /* its title; borrowed from the log of the group's first run */
    const char *value_name; /* "acc_norm" or "acc"; borrowed likewise                    */
    double *values;         /* (n of the group) of the runs                              */
    struct ddl_mean mean;   /* of values                                                 */
    struct ddl_test test;   /* of mean; all NaN if the baseline has no such mean         */
};
/* Runs whose recipes differ in the seed only. */
struct ddl_compare_group {
    size_t *runs;                   /* (n) indices, one run of each seed                        */
    size_t n;                       /* at least 1                                               */
    uint64_t step;                  /* at which train_loss is taken                             */
    uint64_t val_step;              /* at which val_loss is taken; 0 if there is none           */
    double *train_losses;           /* (n) of the runs: ddl_run_log_final_train up to `step`    */
    double *val_losses;             /* (n) of the runs, at `val_step`; NaN if it is 0           */
    struct ddl_mean train_loss;     /* of train_losses                                          */
    struct ddl_mean val_loss;       /* of val_losses                                            */
    struct ddl_test train_test;     /* of train_loss                                            */
    struct ddl_test val_test;       /* of val_loss                                              */
    struct ddl_reach reach;         /* of the curve                                             */
    struct ddl_run_point *curve;    /* (n_points) means over the runs, of the steps that all of them have */
    struct ddl_band *band;          /* (n_points)                                               */
    size_t n_points;                /* at least 0                                               */
    struct ddl_group_score *scores; /* (n_scores) on the tasks that all of the runs have scored */
    size_t n_scores;                /* at least 0                                               */
};
/* The result of ddl_compare. */
struct ddl_comparison {
    struct ddl_compare_group *groups; /* (n_groups), ordered by their first run                     */
    size_t n_groups, baseline;        /* baseline: an index of groups                               */
    double target;                    /* the baseline's final validation loss; NaN if it has none   */
    size_t n_runs;                    /* as given                                                   */
    size_t *group_of;        /* (n_runs) index of the run's group                                   */
    bool *repeats;           /* (n_runs) the seed occurs earlier in the group: the run is not in it */
    struct ddl_reach *reach; /* (n_runs)                                                            */
};
/* How to compare. */
struct ddl_compare_options {
    size_t baseline;   /* a run of the baseline group                                              */
    bool any;          /* runs with different data, vocabulary or sequence length are compared too */
    ddl_warn_fn *note; /* one message: what was left out or could not be checked; may be NULL      */
    void *user;        /* handed to `note`                                                         */
};

/* Compares the n >= 1 runs `logs` (n), whose names for messages are `names` (n), into *out, as the `options`
 * say. Runs whose train_data, seq or vocab_size differ, or val_data or val_tokens if both were validated, are
 * DDL_E_FORMAT with a message that names the run, the key and both values; with `any` a note instead. The
 * losses of all groups are taken at the last step that all runs have; with `any` at the last step that all
 * runs of the group have. A run without a recipe is a group of its own, and nothing is checked. Free with
 * ddl_comparison_free, after an error too. */
DDL_API ddl_status ddl_compare(struct ddl_comparison *out, const struct ddl_run_log *logs,
                               const char *const *names, size_t n, const struct ddl_compare_options *options,
                               struct ddl_error *err);
/* Frees what the comparison points to; it becomes empty. */
DDL_API void ddl_comparison_free(struct ddl_comparison *comparison);

#ifdef __cplusplus
}
#endif
#endif
