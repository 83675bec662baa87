/* Trains the runs of a sweep, each in a process of its own. */
#define _POSIX_C_SOURCE 200809L
#include "study/sweep_internal.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/lock.h"
#include "base/process.h"
#include "train/train_config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Between polls of processes and signals. A scheduler that sends SIGTERM to all processes of a job, and then
 * the sweep's own SIGTERM, must look like one signal to a run: cli/terminal.c ignores repetitions for 0.1 s.
 */
enum { POLL_MILLISECONDS = 40 };
static const double read_every = 1; /* seconds between looks at the metrics */

/* They bind the threads of every process to the same processors. */
static const char *const binding[] = { "OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY",
                                       NULL };

enum { EXIT_STOPPED = 3 }; /* of ddl train after a signal, with a checkpoint */

struct job {
    struct ddl_sweep_run *run;
    long pid;
};
struct runner {
    struct ddl_sweep *sweep;
    const struct ddl_sweep_callbacks *callbacks;
    struct job *jobs; /* n_jobs of at most max_jobs */
    size_t n_jobs, max_jobs;
    size_t threads; /* for --threads; 0: the run's own choice */
    bool *tried;    /* (n_runs) started by this sweep */
    bool stopping;
    double read_at;
};

static void report(const struct runner *r, const struct ddl_sweep_run *run)
{
    if (r->callbacks->event)
        r->callbacks->event(r->callbacks->user, r->sweep, run);
}

/* ---- start ---- */

static bool is_ready(const struct runner *r, const struct ddl_sweep_run *run)
{
    const struct ddl_sweep_setting *setting = &r->sweep->settings[run->setting];
    bool open = run->state == DDL_SWEEP_WAITING || run->state == DDL_SWEEP_STOPPED;
    return open && !r->tried[run - r->sweep->runs] &&
           (run->is_candidate || !setting->key || setting->is_chosen);
}

static ddl_status start_process(struct runner *r, struct ddl_sweep_run *run, long *pid, struct ddl_error *err)
{
    char recipe[2048], log[2048], threads[32];
    const char *argv[8] = { "ddl", "train", recipe };
    size_t n = 3;
    const struct ddl_process_options options = { argv, log, r->max_jobs > 1 ? binding : NULL };
    if (!ddl_path_join(recipe, sizeof recipe, run->folder, "recipe.yaml") ||
        !ddl_path_join(log, sizeof log, run->folder, "log.txt"))
        return ddl_error_set(err, DDL_E_USAGE, "%.200s: the path is too long", run->folder);
    ddl_status status = ddl_file_make_dir(run->folder, err);
    if (!status && !sweep_has_started(run))
        status = ddl_train_save_recipe(run->config, recipe, err);
    if (status)
        return status;
    if (sweep_has_started(run))
        argv[n++] = "--resume";
    if (r->threads && !run->config->threads) {
        snprintf(threads, sizeof threads, "%zu", r->threads);
        argv[n++] = "--threads";
        argv[n++] = threads;
    }
    return ddl_process_start(pid, &options, err);
}

/* A run that cannot be started, or whose folder has another run. */
static void refuse(struct ddl_sweep_run *run, const struct ddl_error *why)
{
    run->state = DDL_SWEEP_FAILED;
    run->is_blocked = true;
    snprintf(run->message, sizeof run->message, "not started: %.1000s", why->text);
}

/* Starts a run, unless another process trains it: one that a killed sweep has left needs a moment to stop. */
static ddl_status start_run(struct runner *r, struct ddl_sweep_run *run, struct ddl_error *err)
{
    struct ddl_error why;
    if (ddl_lock_is_held(run->folder)) {
        snprintf(run->message, sizeof run->message, "waiting for another process that trains it");
        return DDL_OK;
    }
    r->tried[run - r->sweep->runs] = true;
    ddl_status status = sweep_read_run(r->sweep, run, &why);
    if (!status && run->state != DDL_SWEEP_FINISHED) {
        long pid = 0;
        status = start_process(r, run, &pid, &why);
        if (!status) {
            run->state = DDL_SWEEP_RUNNING;
            r->jobs[r->n_jobs++] = (struct job){ run, pid };
        }
    }
    if (status)
        refuse(run, &why);
    status = sweep_save(r->sweep, err);
    report(r, run);
    return status;
}

static ddl_status start_ready(struct runner *r, struct ddl_error *err)
{
    ddl_status status = DDL_OK;
    for (size_t i = 0; !status && i < r->sweep->n_runs && r->n_jobs < r->max_jobs; i++) {
        if (is_ready(r, &r->sweep->runs[i]))
            status = start_run(r, &r->sweep->runs[i], err);
    }
    return status;
}

static bool any_ready(const struct runner *r)
{
    bool found = false;
    for (size_t i = 0; i < r->sweep->n_runs; i++)
        found = found || is_ready(r, &r->sweep->runs[i]);
    return found;
}

/* ---- end ---- */

static void set_failed(struct ddl_sweep_run *run, const struct ddl_process_end *end)
{
    run->state = DDL_SWEEP_FAILED;
    run->signal = end->signal;
    run->exit_status = end->status;
    if (end->signal)
        snprintf(run->message, sizeof run->message, "ended by signal %d", end->signal);
    else
        sweep_read_message(run);
}

/* The state of a run whose process has ended. */
static void set_ended(const struct runner *r, struct ddl_sweep_run *run, const struct ddl_process_end *end)
{
    struct ddl_error why;
    if (sweep_read_run(r->sweep, run, &why)) {
        set_failed(run, end);
        snprintf(run->message, sizeof run->message, "%s", why.text);
    } else if (run->state == DDL_SWEEP_FINISHED) {
        return;
    } else if (end->signal == 0 && end->status == EXIT_STOPPED) {
        run->state = DDL_SWEEP_STOPPED;
    } else {
        set_failed(run, end);
    }
}

/* Chooses a value of the candidate's setting if it was the last one. */
static ddl_status choose(struct runner *r, const struct ddl_sweep_run *candidate, struct ddl_error *err)
{
    const size_t setting = candidate->setting;
    if (!candidate->is_candidate || !sweep_choice_is_due(r->sweep, setting))
        return DDL_OK;
    ddl_status status = sweep_choose(r->sweep, setting, err);
    if (!status && r->sweep->settings[setting].is_chosen && r->callbacks->choice)
        r->callbacks->choice(r->callbacks->user, r->sweep, &r->sweep->settings[setting]);
    for (size_t i = 0; !status && i < r->sweep->n_runs; i++) {
        if (r->sweep->runs[i].setting == setting && r->sweep->runs[i].is_blocked)
            report(r, &r->sweep->runs[i]);
    }
    return status;
}

static ddl_status end_run(struct runner *r, size_t job, const struct ddl_process_end *end,
                          struct ddl_error *err)
{
    struct ddl_sweep_run *run = r->jobs[job].run;
    r->jobs[job] = r->jobs[--r->n_jobs];
    set_ended(r, run, end);
    report(r, run);
    ddl_status status = choose(r, run, err);
    sweep_estimate(r->sweep, r->max_jobs);
    return status ? status : sweep_save(r->sweep, err);
}

static ddl_status collect_ended(struct runner *r, struct ddl_error *err)
{
    ddl_status status = DDL_OK;
    for (size_t i = r->n_jobs; i-- > 0;) {
        struct ddl_process_end end;
        struct ddl_error why;
        if (!ddl_process_poll(r->jobs[i].pid, &end))
            continue;
        ddl_status ended = end_run(r, i, &end, &why);
        if (ended && !status) {
            status = ended;
            if (err)
                *err = why;
        }
    }
    return status;
}

/* ---- the loop ---- */

static void stop_all(struct runner *r)
{
    for (size_t i = 0; !r->stopping && i < r->n_jobs; i++)
        ddl_process_terminate(r->jobs[i].pid);
    r->stopping = true;
}

static void update(struct runner *r)
{
    double now = ddl_clock_seconds();
    if (now >= r->read_at + read_every) {
        r->read_at = now;
        for (size_t i = 0; i < r->n_jobs; i++)
            sweep_read_progress(r->jobs[i].run);
        sweep_estimate(r->sweep, r->max_jobs);
    }
    if (r->callbacks->update)
        r->callbacks->update(r->callbacks->user, r->sweep);
}

/* Until all runs have ended, or after a stop or an error those that were running. */
static ddl_status loop(struct runner *r, struct ddl_error *err)
{
    const struct timespec pause = { 0, POLL_MILLISECONDS * 1000000L };
    ddl_status status = DDL_OK;
    struct ddl_error why;
    for (;;) {
        if (r->callbacks->stop && r->callbacks->stop(r->callbacks->user))
            stop_all(r);
        ddl_status now = collect_ended(r, &why);
        if (!now && !r->stopping)
            now = start_ready(r, &why);
        if (now && !status) {
            status = now;
            if (err)
                *err = why;
            stop_all(r);
        }
        if (r->n_jobs == 0 && (r->stopping || !any_ready(r)))
            return status;
        update(r);
        nanosleep(&pause, NULL);
    }
}

/* ---- the sweep ---- */

/* Data, tokenizers and memory of the first open run of each setting: its others differ in the seed only. */
static ddl_status check_inputs(const struct runner *r, struct ddl_error *err)
{
    const struct ddl_train_callbacks callbacks = { .user = r->callbacks->user, .check = r->callbacks->check };
    const struct ddl_sweep *sweep = r->sweep;
    bool *checked = calloc(sweep->n_settings, sizeof *checked);
    ddl_status status = DDL_OK;
    if (!checked)
        return ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory", sweep->path);
    for (size_t i = 0; !status && i < sweep->n_runs; i++) {
        const struct ddl_sweep_run *run = &sweep->runs[i];
        if (checked[run->setting] || (run->state != DDL_SWEEP_WAITING && run->state != DDL_SWEEP_STOPPED))
            continue;
        checked[run->setting] = true;
        status = ddl_train_check_inputs(run->config, &callbacks, err);
        if (status && status != DDL_E_INTERRUPTED)
            (void)ddl_error_prefix(err, status, run->name);
    }
    free(checked);
    return status;
}

static ddl_status run_locked(struct runner *r, bool retry, struct ddl_error *err)
{
    ddl_status status = sweep_read_states(r->sweep, retry, false, err);
    if (!status)
        status = check_inputs(r, err);
    if (!status)
        status = sweep_save(r->sweep, err);
    if (!status)
        status = loop(r, err);
    if (status)
        return status;
    size_t open = ddl_sweep_count(r->sweep, DDL_SWEEP_WAITING) + ddl_sweep_count(r->sweep, DDL_SWEEP_STOPPED);
    return open ? ddl_error_set(err, DDL_E_INTERRUPTED,
                                "%s: stopped with %zu of %zu runs to do; the same command continues",
                                r->sweep->path, open, r->sweep->n_runs)
                : DDL_OK;
}

ddl_status ddl_sweep_run(struct ddl_sweep *sweep, const struct ddl_sweep_options *options,
                         const struct ddl_sweep_callbacks *callbacks, struct ddl_error *err)
{
    static const struct ddl_sweep_callbacks silent = { 0 };
    const size_t jobs = options->jobs ? options->jobs : 1;
    struct runner r = { .sweep = sweep,
                        .callbacks = callbacks ? callbacks : &silent,
                        .max_jobs = jobs,
                        .threads = sweep_threads(options),
                        .jobs = calloc(jobs, sizeof *r.jobs),
                        .tried = calloc(sweep->n_runs, sizeof *r.tried) };
    struct ddl_lock lock = { 0 };
    ddl_status status = DDL_OK;
    if (!r.jobs || !r.tried)
        status = ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory for %zu jobs", sweep->path, jobs);
    if (!status)
        status = ddl_file_make_dir(sweep->out, err);
    if (!status)
        status = ddl_lock_take(&lock, sweep->out, err);
    if (!status)
        status = run_locked(&r, options->retry, err);
    ddl_lock_release(&lock);
    free(r.jobs);
    free(r.tried);
    return status;
}
