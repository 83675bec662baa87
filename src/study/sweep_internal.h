/* What the files of a sweep share: configurations of its runs, their states on disk, choices. */
#ifndef DDL_STUDY_SWEEP_INTERNAL_H
#define DDL_STUDY_SWEEP_INTERNAL_H

#include "ddl/json.h"
#include "ddl/sweep.h"
#include "train/config/recipe.h"

/* ---- sweep_plan.c ---- */

/* Of a grid, and of the keys that are chosen. */
enum { SWEEP_MAX_RUNS = 4096, SWEEP_MAX_KEYS = 64 };
/* Sets run->config, with value `value` of its setting if that has values. */
ddl_status sweep_configure(const struct ddl_sweep *sweep, struct ddl_sweep_run *run, size_t value,
                           struct ddl_error *err);
/* Appends a run to sweep->runs, which has space for SWEEP_MAX_RUNS; `value` is the index of the value that a
 * candidate tries, of another run that of its seed. */
ddl_status sweep_add_run(struct ddl_sweep *sweep, size_t setting, bool is_candidate, size_t value,
                         struct ddl_error *err);

/* Appends a value of a further key to "0.001", which gives "0.001/0.02"; truncated. */
void sweep_join(char *out, size_t size, const char *text);
/* Appends a value to the setting, one of each chosen key; takes `combination`, which is empty afterwards. */
ddl_status sweep_append_value(struct ddl_sweep *sweep, size_t setting, struct ddl_recipe *combination,
                              bool is_added, struct ddl_error *err);

/* ---- sweep_extend.c ---- */

/* Whether the chosen value of a key is the smallest or the largest of several; texts are not. */
bool sweep_is_at_edge(const struct ddl_sweep *sweep, size_t setting);
/* If the value with the lowest loss, setting->chosen, is at an edge and the limit is not reached, adds the
 * next value beyond it, with the same values of other keys, and its candidate, the last run. *added: whether
 * it did. A value that the key does not allow is not added. */
ddl_status sweep_extend(struct ddl_sweep *sweep, size_t setting, bool *added, struct ddl_error *err);
/* Adds a value to the setting, one of each chosen key, and its candidate; takes `combination`. */
ddl_status sweep_add_value(struct ddl_sweep *sweep, size_t setting, struct ddl_recipe *combination,
                           struct ddl_error *err);

/* ---- sweep_progress.c ---- */

/* Sets what a run has logged from the end of its metrics.jsonl; without the file it has logged nothing. After
 * an error the run is as before. */
ddl_status sweep_read_progress(struct ddl_sweep_run *run, struct ddl_error *err);
/* Sets run->message to the last line of its log.txt. */
void sweep_read_message(struct ddl_sweep_run *run);
/* Estimates sweep->seconds_left for `jobs` runs at a time, from the runs that have logged something. */
void sweep_estimate(struct ddl_sweep *sweep, size_t jobs);

/* ---- sweep_state.c ---- */

/* Whether a run has logged something in its folder, and must be resumed to continue. */
bool sweep_has_started(const struct ddl_sweep_run *run);
/* Sets the state of a run from its folder: waiting, stopped, stale or finished; is_diverged of a stopped run
 * whose training diverged. DDL_E_FORMAT if the recipe there is another one. */
ddl_status sweep_read_run(const struct ddl_sweep *sweep, struct ddl_sweep_run *run, struct ddl_error *err);
/* The value of the choice that the run has if it starts now; "" if there is none. */
const char *sweep_planned_value(const struct ddl_sweep *sweep, const struct ddl_sweep_run *run);
/* As ddl_sweep_read; `running`: a run that the record has as running is taken to be running. */
ddl_status sweep_read_states(struct ddl_sweep *sweep, bool retry, bool running, struct ddl_error *err);
/* Replaces sweep.json in `out`. */
ddl_status sweep_save(const struct ddl_sweep *sweep, struct ddl_error *err);

/* ---- sweep_predict.c ---- */

/* The threads of each run whose recipe does not set them; 0: as many as it would use alone. */
size_t sweep_threads(const struct ddl_sweep_options *options);

/* ---- sweep_protocol.c ---- */

/* The member "protocol", if one is set. */
void sweep_write_protocol(struct ddl_json *json, const struct ddl_sweep_protocol *protocol);
/* Returns DDL_E_USAGE if the protocol is not the one of sweep.json; for a sweep whose runs have started. */
ddl_status sweep_check_recorded_protocol(const struct ddl_sweep *sweep,
                                         const struct ddl_sweep_protocol *recorded, struct ddl_error *err);
/* Returns DDL_E_USAGE if a contrast of a sweep's protocol is not of its settings, or if a run has the seed or
 * the validation data of a candidate of its setting. */
ddl_status sweep_check_protocol(const struct ddl_sweep *sweep, struct ddl_error *err);

/* ---- sweep_choose.c ---- */

/* Whether all candidates of the setting have finished or diverged. */
bool sweep_choice_is_due(const struct ddl_sweep *sweep, size_t setting);
/* Sets the losses of the values whose candidates have finished, NaN for the others: of the validation, or of
 * the training if any of these candidates has no validation. */
ddl_status sweep_read_losses(struct ddl_sweep *sweep, size_t setting, struct ddl_error *err);
/* Chooses a value of a setting whose candidates have ended, and configures its other runs with it; or extends
 * the list of values by one more, whose candidate is the last run. If none has finished, the setting's other
 * runs become failed. */
ddl_status sweep_choose(struct ddl_sweep *sweep, size_t setting, struct ddl_error *err);
/* What follows from the index of the value that is chosen, n_values if none is. */
ddl_status sweep_apply_choice(struct ddl_sweep *sweep, size_t setting, struct ddl_error *err);

/* ---- sweep_ranks.c ---- */

/* What has become of a run that a rank was to start. */
struct sweep_event {
    uint64_t run; /* index + 1; 0: no event */
    bool is_held; /* it was not started: another process trains it */
    bool is_blocked;
    bool is_diverged;
    int state, exit_status, signal;
    char message[sizeof((struct ddl_sweep_run *)0)->message];
    char used[sizeof((struct ddl_sweep_run *)0)->used];
};
/* The event of a run of this rank; its state on another rank. */
struct sweep_event sweep_event_of(const struct ddl_sweep *sweep, const struct ddl_sweep_run *run);
void sweep_apply_event(struct ddl_sweep_run *run, const struct sweep_event *event);

/* Returns an error on all ranks if one has an error, or another plan or options than rank 0. */
ddl_status sweep_compare_ranks(const struct ddl_sweep *sweep, const struct ddl_sweep_options *options,
                               ddl_status status, struct ddl_error *err);
/* Copies the states of the runs and the choices that rank 0 has read to the other ranks. */
ddl_status sweep_share_states(struct ddl_sweep *sweep, ddl_comm *comm, struct ddl_error *err);
/* As sweep_choose, on all ranks, until a value is chosen or a candidate that was added is to be trained: rank
 * 0 reads the losses, and again the states of the other runs of the setting, which depend on the choice. */
ddl_status sweep_choose_on_ranks(struct ddl_sweep *sweep, size_t setting, ddl_comm *comm,
                                 struct ddl_error *err);

#endif
