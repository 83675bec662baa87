/* The choice of a value by the losses of the candidates that tried each. */
#include "study/sweep_internal.h"

#include "ddl/compare.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static bool is_candidate_of(const struct ddl_sweep_run *run, size_t setting)
{
    return run->is_candidate && run->setting == setting;
}

bool sweep_choice_is_due(const struct ddl_sweep *sweep, size_t setting)
{
    for (size_t i = 0; i < sweep->n_runs; i++) {
        const struct ddl_sweep_run *run = &sweep->runs[i];
        bool has_result =
            run->state == DDL_SWEEP_FINISHED || (run->state == DDL_SWEEP_FAILED && run->is_diverged);
        if (is_candidate_of(run, setting) && !has_result)
            return false;
    }
    return sweep->settings[setting].n_values > 0;
}

ddl_status sweep_read_losses(struct ddl_sweep *sweep, size_t setting, struct ddl_error *err)
{
    struct ddl_sweep_setting *s = &sweep->settings[setting];
    double train[SWEEP_MAX_RUNS];
    bool validated = strcmp(s->loss_name, "val_loss") == 0;
    for (size_t i = 0; i < s->n_values; i++)
        s->values[i].loss = train[i] = (double)NAN;
    for (size_t i = 0; i < sweep->n_runs; i++) {
        const struct ddl_sweep_run *run = &sweep->runs[i];
        struct ddl_run_log log;
        if (!is_candidate_of(run, setting) || run->state != DDL_SWEEP_FINISHED)
            continue;
        ddl_status status = ddl_run_log_read(&log, run->folder, err);
        if (status)
            return status;
        s->values[run->value].loss = ddl_run_log_final_val(&log);
        train[run->value] = ddl_run_log_final_train(&log);
        validated = validated && !isnan(s->values[run->value].loss);
        ddl_run_log_free(&log);
    }
    for (size_t i = 0; !validated && i < s->n_values; i++)
        s->values[i].loss = train[i];
    s->loss_name = validated ? "val_loss" : "loss";
    return DDL_OK;
}

/* The index of the lowest loss, the first of equals; n without any. */
static size_t lowest(const struct ddl_sweep_value *values, size_t n)
{
    size_t best = n;
    for (size_t i = 0; i < n; i++) {
        if (!isnan(values[i].loss) && (best == n || values[i].loss < values[best].loss))
            best = i;
    }
    return best;
}

ddl_status sweep_choose(struct ddl_sweep *sweep, size_t setting, struct ddl_error *err)
{
    struct ddl_sweep_setting *s = &sweep->settings[setting];
    ddl_status status = sweep_read_losses(sweep, setting, err);
    if (status)
        return status;
    s->chosen = lowest(s->values, s->n_values);
    return sweep_apply_choice(sweep, setting, err);
}

ddl_status sweep_apply_choice(struct ddl_sweep *sweep, size_t setting, struct ddl_error *err)
{
    struct ddl_sweep_setting *s = &sweep->settings[setting];
    ddl_status status = DDL_OK;
    bool added;
    status = sweep_extend(sweep, setting, &added, err);
    if (status || added)
        return status;
    s->is_chosen = s->chosen < s->n_values;
    s->at_edge = s->is_chosen && sweep_is_at_edge(sweep, setting);
    for (size_t i = 0; !status && i < sweep->n_runs; i++) {
        struct ddl_sweep_run *run = &sweep->runs[i];
        if (run->setting != setting || run->is_candidate)
            continue;
        if (s->is_chosen) {
            status = sweep_configure(sweep, run, s->chosen, err);
            continue;
        }
        run->state = DDL_SWEEP_FAILED;
        run->is_blocked = true;
        snprintf(run->message, sizeof run->message, "not started: no run with a value of %s has finished",
                 s->key);
    }
    return status;
}
