/* What the ranks of a sweep have in common: its plan, the states of its runs, the choices. */
#include "study/sweep_file.h"
#include "study/sweep_internal.h"

#include "comm/comm.h"

#include <stdio.h>
#include <string.h>

/* ---- events ---- */

struct sweep_event sweep_event_of(const struct ddl_sweep *sweep, const struct ddl_sweep_run *run)
{
    struct sweep_event event = { .run = (uint64_t)(run - sweep->runs) + 1,
                                 .is_blocked = run->is_blocked,
                                 .is_diverged = run->is_diverged,
                                 .state = (int)run->state,
                                 .exit_status = run->exit_status,
                                 .signal = run->signal };
    memcpy(event.message, run->message, sizeof event.message);
    memcpy(event.used, run->used, sizeof event.used);
    return event;
}

void sweep_apply_event(struct ddl_sweep_run *run, const struct sweep_event *event)
{
    run->state = (enum ddl_sweep_state)event->state;
    run->is_blocked = event->is_blocked;
    run->is_diverged = event->is_diverged;
    run->exit_status = event->exit_status;
    run->signal = event->signal;
    memcpy(run->message, event->message, sizeof run->message);
    memcpy(run->used, event->used, sizeof run->used);
}

/* ---- the start ---- */

ddl_status sweep_compare_ranks(const struct ddl_sweep *sweep, const struct ddl_sweep_options *options,
                               ddl_status status, struct ddl_error *err)
{
    status = ddl_comm_agree(options->comm, status, err);
    if (status || !options->comm)
        return status;
    ddl_comm_list *list = ddl_comm_list_create();
    ddl_comm_list_add(list, "out: %s", sweep->out);
    ddl_comm_list_add(list, "jobs: %zu", options->jobs);
    ddl_comm_list_add(list, "threads: %zu", options->threads);
    ddl_comm_list_add(list, "retry: %d", options->retry);
    ddl_comm_list_add(list, "retrain: %d", options->retrain);
    ddl_comm_list_add(list, "runs: %zu", sweep->n_runs);
    for (size_t i = 0; i < sweep->n_runs; i++)
        ddl_comm_list_add(list, "run %zu: %s", i + 1, sweep->runs[i].name);
    return ddl_comm_list_compare(options->comm, list, err);
}

/* The choice of a setting as rank 0 has it. */
static ddl_status share_choice(struct ddl_sweep *sweep, size_t setting, ddl_comm *comm, struct ddl_error *err)
{
    struct ddl_sweep_setting *s = &sweep->settings[setting];
    uint64_t chosen = s->chosen;
    ddl_comm_broadcast(comm, 0, sizeof chosen, &chosen);
    s->chosen = (size_t)chosen;
    return ddl_comm_rank(comm) == 0 ? DDL_OK : sweep_apply_choice(sweep, setting, err);
}

/* Into `out`: value `index` of a setting as rank 0 has it. */
static ddl_status share_value(const struct ddl_sweep *sweep, size_t setting, size_t index, ddl_comm *comm,
                              struct ddl_recipe *out, struct ddl_error *err)
{
    const struct sweep_pick *pick = &sweep->file->picks[setting];
    const struct ddl_recipe *keys = &pick->candidates[0]; /* which all values of the setting have */
    ddl_status status = DDL_OK;
    for (size_t k = 0; k < keys->n; k++) {
        char text[DDL_RECIPE_VALUE] = "";
        if (ddl_comm_rank(comm) == 0)
            snprintf(text, sizeof text, "%s", pick->candidates[index].entries[k].value);
        ddl_comm_broadcast(comm, 0, sizeof text, text);
        if (!status)
            status = ddl_recipe_append(out, keys->entries[k].key, text, keys->entries[k].line, err);
    }
    return status;
}

/* The values that rank 0 has added, with their candidates. */
static ddl_status share_values(struct ddl_sweep *sweep, size_t setting, ddl_comm *comm, struct ddl_error *err)
{
    struct ddl_sweep_setting *s = &sweep->settings[setting];
    const size_t listed = s->n_values - s->n_added;
    uint64_t n = s->n_values;
    ddl_status status = DDL_OK;
    ddl_comm_broadcast(comm, 0, sizeof n, &n);
    for (size_t i = listed; i < n; i++) {
        struct ddl_recipe combination = { 0 };
        ddl_status shared = share_value(sweep, setting, i, comm, &combination, err);
        status = status ? status : shared;
        if (!status && i == s->n_values)
            status = sweep_add_value(sweep, setting, &combination, err);
        ddl_recipe_free(&combination);
    }
    return ddl_comm_agree(comm, status, err);
}

ddl_status sweep_share_states(struct ddl_sweep *sweep, ddl_comm *comm, struct ddl_error *err)
{
    ddl_status status = DDL_OK;
    ddl_comm_describe(comm, "the states of the runs of %.64s", sweep->path);
    for (size_t i = 0; comm && !status && i < sweep->n_settings; i++)
        status = share_values(sweep, i, comm, err);
    if (status)
        return status;
    for (size_t i = 0; comm && i < sweep->n_settings; i++) {
        uint64_t is_chosen = sweep->settings[i].is_chosen;
        ddl_comm_broadcast(comm, 0, sizeof is_chosen, &is_chosen);
        if (is_chosen) {
            ddl_status applied = share_choice(sweep, i, comm, err);
            status = status ? status : applied;
        }
    }
    for (size_t i = 0; comm && i < sweep->n_runs; i++) {
        struct sweep_event event = sweep_event_of(sweep, &sweep->runs[i]);
        ddl_comm_broadcast(comm, 0, sizeof event, &event);
        sweep_apply_event(&sweep->runs[i], &event);
    }
    return ddl_comm_agree(comm, status, err);
}

/* ---- choices ---- */

/* The states of the runs that are trained with the value that was chosen, or of the candidate that was added:
 * what a run has done with the value before is kept. */
static void read_chosen(struct ddl_sweep *sweep, size_t setting)
{
    for (size_t i = 0; i < sweep->n_runs; i++) {
        struct ddl_sweep_run *run = &sweep->runs[i];
        struct ddl_error why;
        bool is_open = run->state == DDL_SWEEP_WAITING || run->state == DDL_SWEEP_STALE;
        if (run->setting != setting || !is_open || !sweep_read_run(sweep, run, &why))
            continue;
        run->state = DDL_SWEEP_FAILED;
        run->is_blocked = true;
        snprintf(run->message, sizeof run->message, "not started: %.1000s", why.text);
    }
}

static void share_runs(struct ddl_sweep *sweep, size_t setting, ddl_comm *comm)
{
    for (size_t i = 0; comm && i < sweep->n_runs; i++) {
        struct sweep_event event = sweep_event_of(sweep, &sweep->runs[i]);
        if (sweep->runs[i].setting != setting)
            continue;
        ddl_comm_broadcast(comm, 0, sizeof event, &event);
        sweep_apply_event(&sweep->runs[i], &event);
    }
}

static ddl_status choose_once(struct ddl_sweep *sweep, size_t setting, ddl_comm *comm, struct ddl_error *err)
{
    ddl_status status = ddl_comm_rank(comm) == 0 ? sweep_choose(sweep, setting, err) : DDL_OK;
    status = ddl_comm_agree(comm, status, err);
    if (!status && comm)
        status = ddl_comm_agree(comm, share_choice(sweep, setting, comm, err), err);
    if (status)
        return status;
    if (ddl_comm_rank(comm) == 0)
        read_chosen(sweep, setting);
    share_runs(sweep, setting, comm);
    return DDL_OK;
}

ddl_status sweep_choose_on_ranks(struct ddl_sweep *sweep, size_t setting, ddl_comm *comm,
                                 struct ddl_error *err)
{
    ddl_status status = DDL_OK;
    size_t n;
    do { /* a candidate that was added may have finished earlier */
        n = sweep->n_runs;
        status = choose_once(sweep, setting, comm, err);
    } while (!status && sweep->n_runs > n && sweep_choice_is_due(sweep, setting));
    return status;
}
