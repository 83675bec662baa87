/* Sweeps: the runs of models x options x seeds that a file describes, each in a folder of its own, and the
 * processes that train them. docs/sweep.md has the file format and the rules. */
#ifndef DDL_SWEEP_H
#define DDL_SWEEP_H

#include "ddl/comm.h"
#include "ddl/status.h"
#include "ddl/train.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What has become of a run. */
enum ddl_sweep_state {
    DDL_SWEEP_WAITING,  /* not started                                                  */
    DDL_SWEEP_RUNNING,  /* a process trains it                                          */
    DDL_SWEEP_STOPPED,  /* started and not finished: it continues from its last checkpoint */
    DDL_SWEEP_FINISHED, /* the final model is saved, or only its recipe and complete metrics are left */
    DDL_SWEEP_FAILED,   /* its process failed, or it cannot be started                  */
    DDL_SWEEP_STALE,    /* trained with another value than the one that is chosen, or before one is */
    DDL_SWEEP_STATES
};
/* "waiting", "running", "stopped", "finished", "failed", "stale". */
DDL_API extern const char *const ddl_sweep_state_names[DDL_SWEEP_STATES];

/* A run of a sweep. */
struct ddl_sweep_run {
    char name[256];                  /* its folder below `out`: "ddl-1_lr=0.002_seed=0"                   */
    char folder[1536];               /* that folder                                                       */
    size_t setting;                  /* index of the sweep's settings                                     */
    bool is_candidate;               /* it is trained to choose a value of the setting                    */
    size_t value;                    /* of a candidate: index of the setting's values                     */
    struct ddl_train_config *config; /* of the run; with the first value of the setting until one is chosen */
    enum ddl_sweep_state state;      /* what has become of it */
    bool is_blocked;    /* failed: no value could be chosen, or the folder has a run of another recipe */
    int exit_status;    /* of a failed process                                  */
    int signal;         /* that ended it, or 0                                  */
    bool is_diverged;   /* failed: the training itself ended it, because of a non-finite value */
    char message[1024]; /* failed: what it reported last; waiting, stale: the reason, or "" */
    char used[128];     /* of a setting with a choice: the value with which it is or was trained, truncated;
                           "" if it has not started and none is chosen */
    /* from metrics.jsonl; NaN or 0 without a line */
    uint64_t step;
    double loss, val_loss; /* nats                                       */
    double seconds;        /* wall time                                  */
    double tokens_per_s;   /* as in struct ddl_train_progress            */
    double seconds_left;   /* estimated wall time; NaN if unknown        */
};

/* A value of each key that is chosen; a candidate tries it. */
struct ddl_sweep_value {
    char *text;    /* "0.001"; of several keys "0.001/0.02", in the order of `key`; owned */
    double loss;   /* NaN: the run has not finished               */
    bool is_added; /* the sweep added it; otherwise it is in the file */
};
/* Runs that differ in the seed only, and the choice that is made for them. */
struct ddl_sweep_setting {
    char name[224];                 /* of the entry and the values of the grid: "ddl-1_lr=0.002" */
    char key[256];                  /* whose value is chosen: "lr"; several: "lr/init_std", truncated */
    struct ddl_sweep_value *values; /* (n_values); none: nothing is chosen                      */
    size_t n_values;
    size_t n_added;        /* of them, the last ones: values that the sweep added at an edge that won */
    size_t max_added;      /* limit of n_added: the file's `extend`; 0: the list is not extended      */
    bool is_chosen;        /* all candidates have finished or diverged, and at least one has finished */
    size_t chosen;         /* index of values                                          */
    bool at_edge;          /* a smallest or largest value of a key: a better one may be outside  */
    const char *loss_name; /* "val_loss" or "loss": what was compared */
};

/* What a sweep is to decide, written before it starts. "" and 0: not set. */
struct ddl_sweep_protocol {
    char question[1024];  /* that the results are to answer */
    char primary[512];    /* contrast, as in ddl_contrasts_test; tested alone, without a correction */
    char secondary[4096]; /* contrasts, a line each; Holm's correction is over them                  */
    char stopping[1024];  /* rule that ends the experiment                                           */
    double margin;        /* of the equivalence tests */
    double power;         /* of the number of seeds that the margin needs */
    double level;         /* of the tests; 0.05 unless the file sets it   */
    /* Of ddl_sweep_protocol_read only; candidates of a choice are not counted. */
    size_t n_runs;  /* planned                                 */
    size_t n_ended; /* of them, finished or failed: of the rest, a result is yet to come */
};

/* A planned sweep. */
struct ddl_sweep {
    char path[1024];            /* of the sweep file, as given */
    char out[1024];             /* folder of the runs           */
    struct ddl_sweep_run *runs; /* (n_runs) in the order in which they are started; candidates of added values
                                   are the last ones, and start before other runs */
    size_t n_runs;
    struct ddl_sweep_setting *settings; /* (n_settings) */
    size_t n_settings;
    double seconds_left;                /* estimated wall time until all runs have ended; NaN if unknown */
    struct ddl_sweep_protocol protocol; /* as in the file */
    struct ddl_sweep_file *file;        /* internal */
};

/* Reads the sweep file `path` and plans its runs into *out, which must not be copied or moved. Every run's
 * configuration is checked; nothing is written. DDL_E_USAGE with file, line and key for what is wrong in the
 * file. Close with ddl_sweep_close. */
DDL_API ddl_status ddl_sweep_open(struct ddl_sweep *out, const char *path, struct ddl_error *err);
/* Frees what `sweep` points to; a zeroed one is allowed. */
DDL_API void ddl_sweep_close(struct ddl_sweep *sweep);

/* Sets the states of the runs, and the choices, from the files in `out`. DDL_E_FORMAT if a run's folder has
 * a run of another recipe: the message has the key and both values. A run that differs only in the value of a
 * choice is stale instead. With `retry`, failures that an earlier sweep recorded are ignored, other than the
 * divergence of a candidate, which is a result. Adds the values, each with a candidate, by which lists are
 * extended because the lowest loss is at an edge: n_runs may grow. */
DDL_API ddl_status ddl_sweep_read(struct ddl_sweep *sweep, bool retry, struct ddl_error *err);

/* Number of runs of `sweep` in `state`. */
DDL_API size_t ddl_sweep_count(const struct ddl_sweep *sweep, enum ddl_sweep_state state);
/* Whether `run` of `sweep` has failed and its failure matters: that of a candidate does not if the other
 * candidates have decided the value of its setting. */
DDL_API bool ddl_sweep_matters(const struct ddl_sweep *sweep, const struct ddl_sweep_run *run);
/* Whether `run` is a candidate that failed without a result: it did not diverge, but its process was killed
 * or had an error. No value of its setting is chosen until it has ended. */
DDL_API bool ddl_sweep_is_missing(const struct ddl_sweep_run *run);

/* How runs are trained. */
struct ddl_sweep_options {
    size_t jobs;    /* runs at a time, of each rank; 0: one */
    size_t threads; /* of each run whose recipe has threads 0; 0: the processors divided by the host's jobs */
    bool retry;     /* failed runs are started again                                           */
    bool retrain;   /* stale runs are trained again: their files are removed                   */
    /* Ranks divide the runs: all call ddl_sweep_run with the same sweep and options, and have the same status
     * and error. They share the file system of `out`. NULL: one rank. */
    ddl_comm *comm;
};
/* All may be NULL; all are called from the caller's thread and handed `user`. With several ranks those of
 * rank 0 are called, and `stop` of all of them. */
struct ddl_sweep_callbacks {
    void *user;
    ddl_progress_fn *check; /* while data is checked, in tokens, before anything is written    */
    void (*update)(void *user, const struct ddl_sweep *sweep); /* several times a second      */
    /* The run has started, or has ended: its state says how. */
    void (*event)(void *user, const struct ddl_sweep *sweep, const struct ddl_sweep_run *run);
    /* A value was chosen. */
    void (*choice)(void *user, const struct ddl_sweep *sweep, const struct ddl_sweep_setting *setting);
    /* A value was added, the last one of the setting, because the lowest loss is at an edge. */
    void (*extend)(void *user, const struct ddl_sweep *sweep, const struct ddl_sweep_setting *setting);
    int (*stop)(void *user); /* called several times a second: not zero stops the runs with checkpoints */
};

/* Trains the runs of `sweep` that are not finished, as `options` say, with reports to `callbacks` (may be
 * NULL): one process each, "train RECIPE" with DDL_COMM=none, of the executable of the calling process, whose
 * main must therefore be that of the program `ddl`. Locks `out`, reads states as ddl_sweep_read, and checks
 * data, tokenizers and memory of every setting before it writes. Each run's folder gets recipe.yaml, log.txt
 * with the output of its process, and the run's files; `out` gets sweep.json. A failed run is recorded and
 * the others go on. DDL_OK if nothing is left to do, also with failed runs; DDL_E_INTERRUPTED if runs were
 * stopped. */
DDL_API ddl_status ddl_sweep_run(struct ddl_sweep *sweep, const struct ddl_sweep_options *options,
                                 const struct ddl_sweep_callbacks *callbacks, struct ddl_error *err);

/* Calls `note` for what is unexpected in the configurations that `sweep` plans: a head_dim that was computed
 * and is not that of the named size. Runs with the same values have one message, with the name of the first.
 */
DDL_API void ddl_sweep_note(const struct ddl_sweep *sweep, ddl_warn_fn *note, void *user);

/* The prediction of a run. */
struct ddl_sweep_forecast {
    struct ddl_train_plan plan; /* work and memory */
    double seconds;             /* wall time of the whole run; NaN: not measured */
    double disk;                /* bytes of its checkpoints and final model      */
};
/* Predicts every run of `sweep` into out (n_runs). `callbacks` (may be NULL): check. Time is measured once
 * for each setting, as by ddl_train_dry_run, with the threads of `options`. If data, a tokenizer or init_from
 * are in error, *out is complete but for the seconds, and the error is returned. */
DDL_API ddl_status ddl_sweep_predict(const struct ddl_sweep *sweep, const struct ddl_sweep_options *options,
                                     const struct ddl_sweep_callbacks *callbacks,
                                     struct ddl_sweep_forecast *out, struct ddl_error *err);

/* Writes the states and choices to `out` as one JSON object, the content of sweep.json. */
DDL_API void ddl_sweep_write_json(const struct ddl_sweep *sweep, FILE *out);

/* Into *names (*n): the run folders in a sweep's folder `out`, in the order of its sweep.json, or if there is
 * none the subfolders with a metrics.jsonl, by name; without candidates, runs that have logged nothing, and
 * stale runs, of which `note` (may be NULL) gets a message. Each is a path. Free each and the list
 * (malloc'ed) with free. */
DDL_API ddl_status ddl_sweep_list(const char *out, char ***names, size_t *n, ddl_warn_fn *note, void *user,
                                  struct ddl_error *err);
/* Reads the protocol in the sweep.json of the folder `folder` into *out; not set without one. */
DDL_API ddl_status ddl_sweep_protocol_read(struct ddl_sweep_protocol *out, const char *folder,
                                           struct ddl_error *err);
/* Whether `protocol` has a primary contrast: one without is no protocol. */
DDL_API bool ddl_sweep_protocol_is_set(const struct ddl_sweep_protocol *protocol);
/* Whether the sweep.json beside the run folder `folder` has it as stale; then the reason into out[size],
 * truncated. */
DDL_API bool ddl_sweep_run_is_stale(const char *folder, char *out, size_t size);

#ifdef __cplusplus
}
#endif
#endif
