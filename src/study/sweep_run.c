/* Trains the runs of a sweep, each in a process of its own.
 *
 * Ranks take turns: in each, every rank reports what has become of one of its runs, and all derive from the
 * reports the states of the runs and which rank starts which run. Rank 0 alone writes sweep.json. */
#define _POSIX_C_SOURCE 200809L
#include "study/sweep_internal.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/lock.h"
#include "base/process.h"
#include "comm/comm.h"
#include "train/config/recipe_writer.h"
#include "train/config/train_config.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Between polls of processes and signals. A scheduler that sends SIGTERM to all processes of a job, and then
 * the sweep's own SIGTERM, must look like one signal to a run: cli/output/terminal.c ignores repetitions for
 * 0.1 s.
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
    size_t place; /* below max_jobs, which no other job of this rank has: of the devices in turn */
};
/* What a rank reports in a turn. */
struct turn {
    bool stop;         /* the runs are to be stopped */
    uint64_t busy;     /* its processes, and events that it has not reported */
    uint64_t max_jobs; /* runs that it trains at a time, of which */
    uint64_t free;     /* it can start so many now */
    struct sweep_event event;
};
struct runner {
    struct ddl_sweep *sweep;
    const struct ddl_sweep_callbacks *callbacks;
    ddl_comm *comm;
    const struct ddl_lock *lock; /* of the folder, on rank 0 */
    struct job *jobs;            /* n_jobs of at most max_jobs: of this rank */
    size_t n_jobs, max_jobs;
    struct sweep_event *events; /* n_events of at most SWEEP_MAX_RUNS, which have not been reported */
    size_t n_events;
    struct turn *turns; /* (ranks) */
    size_t threads;     /* for --threads; 0: the run's own choice */
    bool retrain;       /* stale runs are trained again */
    bool *tried;        /* (SWEEP_MAX_RUNS) started by this sweep */
    bool stopping;
    double read_at;
};

static bool is_root(const struct runner *r)
{
    return ddl_comm_rank(r->comm) == 0;
}

static void report(const struct runner *r, const struct ddl_sweep_run *run)
{
    if (r->callbacks->event && is_root(r))
        r->callbacks->event(r->callbacks->user, r->sweep, run);
}

/* Rank 0 has sweep.json. A sweep whose folder was moved or removed ends: its runs are at the paths of the
 * file. */
static ddl_status save(const struct runner *r, struct ddl_error *err)
{
    ddl_status status = is_root(r) ? ddl_lock_check_in_place(r->lock, err) : DDL_OK;
    return status || !is_root(r) ? status : sweep_save(r->sweep, err);
}

/* Makes the state of the run an event, and restores that before it: states change on all ranks in the same
 * turn. */
static void add_event(struct runner *r, struct ddl_sweep_run *run, const struct sweep_event *before,
                      bool is_held)
{
    r->events[r->n_events] = sweep_event_of(r->sweep, run);
    r->events[r->n_events++].is_held = is_held;
    sweep_apply_event(run, before);
}

/* ---- start ---- */

/* Whether the run is still to be trained. */
static bool is_open(const struct runner *r, const struct ddl_sweep_run *run)
{
    return run->state == DDL_SWEEP_WAITING || run->state == DDL_SWEEP_STOPPED ||
           (run->state == DDL_SWEEP_STALE && r->retrain);
}

static bool is_ready(const struct runner *r, const struct ddl_sweep_run *run)
{
    const struct ddl_sweep_setting *setting = &r->sweep->settings[run->setting];
    return is_open(r, run) && !r->tried[run - r->sweep->runs] &&
           (run->is_candidate || !setting->n_values || setting->is_chosen);
}

/* The recipe of a stale run that is trained again is not written to recipe.yaml: until ddl train has removed
 * the files of the earlier run, they must not be in the same folder. */
static const char new_recipe[] = ".recipe-new.yaml";

static void remove_new_recipe(const struct ddl_sweep_run *run)
{
    char path[2048];
    if (ddl_path_join(path, sizeof path, run->folder, new_recipe))
        (void)unlink(path); /* most runs have none */
}

static bool has_job(const struct runner *r, size_t place)
{
    for (size_t i = 0; i < r->n_jobs; i++) {
        if (r->jobs[i].place == place)
            return true;
    }
    return false;
}

static ddl_status start_process(struct runner *r, struct job *job, struct ddl_error *err)
{
    struct ddl_sweep_run *run = job->run;
    char recipe[2048], log[2048], threads[32], rank[48];
    const char *argv[8] = { "ddl", "train", recipe };
    size_t n = 3;
    bool again = run->state == DDL_SWEEP_STALE, started = !again && sweep_has_started(run);
    const char *const set[] = { "DDL_COMM=none", rank, NULL };
    const struct ddl_process_options options = { argv, log, r->max_jobs > 1 ? binding : NULL, set };
    snprintf(rank, sizeof rank, "DDL_LOCAL_RANK=%zu", ddl_process_local_rank() * r->max_jobs + job->place);
    if (!ddl_path_join(recipe, sizeof recipe, run->folder, again ? new_recipe : "recipe.yaml") ||
        !ddl_path_join(log, sizeof log, run->folder, "log.txt"))
        return ddl_error_set(err, DDL_E_USAGE, "%.200s: the path is too long", run->folder);
    ddl_status status = ddl_lock_check_in_place(r->lock, err);
    if (!status)
        status = ddl_file_check_no_link(run->folder, err);
    if (!status)
        status = ddl_file_make_dir(run->folder, err);
    if (!status && !started)
        status = ddl_train_save_recipe(run->config, recipe, err);
    if (status)
        return status;
    if (started || again)
        argv[n++] = started ? "--resume" : "--overwrite";
    if (r->threads && !run->config->threads) {
        snprintf(threads, sizeof threads, "%zu", r->threads);
        argv[n++] = "--threads";
        argv[n++] = threads;
    }
    return ddl_process_start(&job->pid, &options, err);
}

/* A run that cannot be started, or whose folder has another run. */
static void refuse(struct ddl_sweep_run *run, const struct ddl_error *why)
{
    run->state = DDL_SWEEP_FAILED;
    run->is_blocked = true;
    snprintf(run->message, sizeof run->message, "not started: %.1000s", why->text);
}

/* Starts a run, unless another process trains it: one that a killed sweep has left needs a moment to stop. */
static void start_run(struct runner *r, struct ddl_sweep_run *run)
{
    const struct sweep_event before = sweep_event_of(r->sweep, run);
    struct ddl_error why;
    if (ddl_lock_is_held(run->folder)) {
        snprintf(run->message, sizeof run->message, "waiting for another process that trains it");
        add_event(r, run, &before, true);
        return;
    }
    ddl_status status = sweep_read_run(r->sweep, run, &why);
    if (!status && is_open(r, run)) {
        struct job job = { .run = run };
        while (has_job(r, job.place))
            job.place++;
        status = start_process(r, &job, &why);
        if (!status) {
            snprintf(run->used, sizeof run->used, "%s", sweep_planned_value(r->sweep, run));
            *run->message = '\0';
            run->is_diverged = false;
            run->state = DDL_SWEEP_RUNNING;
            r->jobs[r->n_jobs++] = job;
        }
    }
    if (status)
        refuse(run, &why);
    add_event(r, run, &before, false);
}

/* The rank with the largest part of its jobs free, the first of equals; the number of ranks if none is. */
static size_t freest_rank(const struct runner *r)
{
    size_t ranks = ddl_comm_size(r->comm), best = ranks;
    for (size_t i = 0; i < ranks; i++) {
        const struct turn *turn = &r->turns[i], *most = &r->turns[best < ranks ? best : i];
        if (turn->free > 0 && (best == ranks || turn->free * most->max_jobs > most->free * turn->max_jobs))
            best = i;
    }
    return best;
}

/* Divides the runs that are ready between the ranks, and starts those of this rank: candidates first, also
 * those that were added. */
static void start_ready(struct runner *r)
{
    const size_t n = r->sweep->n_runs;
    for (size_t at = 0; at < 2 * n; at++) {
        const size_t i = at % n;
        struct ddl_sweep_run *run = &r->sweep->runs[i];
        if (!is_ready(r, run) || run->is_candidate != (at < n))
            continue;
        size_t rank = freest_rank(r);
        if (rank == ddl_comm_size(r->comm))
            return;
        r->tried[i] = true;
        r->turns[rank].free--;
        if (rank == ddl_comm_rank(r->comm))
            start_run(r, run);
    }
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

/* Whether a process was stopped: with a checkpoint, or, before it catches signals, by the signal itself,
 * which may be that of the terminal to all processes. */
static bool is_stopped(const struct ddl_process_end *end)
{
    static const int signals[] = { SIGHUP, SIGINT, SIGTERM, SIGUSR1 };
    bool found = end->signal == 0 && end->status == EXIT_STOPPED;
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        found = found || end->signal == signals[i];
    return found;
}

/* The state of a run whose process has ended. */
static void set_ended(const struct runner *r, struct ddl_sweep_run *run, const struct ddl_process_end *end)
{
    struct ddl_error why;
    remove_new_recipe(run);
    if (sweep_read_run(r->sweep, run, &why)) {
        set_failed(run, end);
        snprintf(run->message, sizeof run->message, "%s", why.text);
    } else if (run->state == DDL_SWEEP_FINISHED) {
        return;
    } else if (is_stopped(end)) {
        run->state = run->state == DDL_SWEEP_STALE ? DDL_SWEEP_STALE : DDL_SWEEP_STOPPED;
    } else {
        set_failed(run, end);
    }
}

/* Chooses a value of the candidate's setting if it was the last one. */
static ddl_status choose(struct runner *r, const struct ddl_sweep_run *candidate, struct ddl_error *err)
{
    const size_t setting = candidate->setting, n_added = r->sweep->settings[setting].n_added;
    if (!candidate->is_candidate || !sweep_choice_is_due(r->sweep, setting))
        return DDL_OK;
    ddl_status status = sweep_choose_on_ranks(r->sweep, setting, r->comm, err);
    if (!status && r->sweep->settings[setting].is_chosen && r->callbacks->choice && is_root(r))
        r->callbacks->choice(r->callbacks->user, r->sweep, &r->sweep->settings[setting]);
    else if (!status && r->sweep->settings[setting].n_added > n_added && r->callbacks->extend && is_root(r))
        r->callbacks->extend(r->callbacks->user, r->sweep, &r->sweep->settings[setting]);
    for (size_t i = 0; !status && i < r->sweep->n_runs; i++) {
        if (r->sweep->runs[i].setting == setting && r->sweep->runs[i].is_blocked)
            report(r, &r->sweep->runs[i]);
    }
    return status;
}

/* The processes of this rank that have ended. */
static void collect_ended(struct runner *r)
{
    for (size_t i = r->n_jobs; i-- > 0;) {
        struct ddl_process_end end;
        struct ddl_sweep_run *run = r->jobs[i].run;
        if (!ddl_process_poll(r->jobs[i].pid, &end))
            continue;
        const struct sweep_event before = sweep_event_of(r->sweep, run);
        r->jobs[i] = r->jobs[--r->n_jobs];
        set_ended(r, run, &end);
        add_event(r, run, &before, false);
    }
}

/* ---- turns ---- */

static void stop_all(struct runner *r)
{
    for (size_t i = 0; !r->stopping && i < r->n_jobs; i++)
        ddl_process_terminate(r->jobs[i].pid);
    r->stopping = true;
}

/* What a rank has reported of a run. */
static ddl_status take_event(struct runner *r, const struct sweep_event *event, struct ddl_error *err)
{
    if (event->run == 0)
        return DDL_OK;
    struct ddl_sweep_run *run = &r->sweep->runs[event->run - 1];
    bool ended = event->state != DDL_SWEEP_RUNNING;
    sweep_apply_event(run, event);
    if (event->is_held) {
        r->tried[event->run - 1] = false;
        return DDL_OK;
    }
    ddl_status status = DDL_OK;
    if (is_root(r) && ended && !run->is_blocked) /* another rank may have trained it */
        status = sweep_read_progress(run, err);
    report(r, run);
    status = ddl_comm_agree(r->comm, status, err);
    if (!status && ended)
        status = choose(r, run, err);
    sweep_estimate(r->sweep, r->max_jobs * ddl_comm_size(r->comm));
    return status ? status : save(r, err);
}

/* Exchanges reports, and applies them in the order of the ranks. *busy: whether any rank is. */
static ddl_status take_turns(struct runner *r, bool stop, bool *busy, struct ddl_error *err)
{
    struct turn own = { .stop = stop,
                        .busy = r->n_jobs + r->n_events,
                        .max_jobs = r->max_jobs,
                        .free = r->max_jobs - r->n_jobs };
    ddl_status status = DDL_OK;
    if (r->n_events) {
        own.event = r->events[0];
        memmove(r->events, r->events + 1, --r->n_events * sizeof *r->events);
    }
    ddl_comm_describe(r->comm, "the states of the runs of %.64s", r->sweep->path);
    ddl_comm_gather(r->comm, sizeof own, &own, r->turns);
    *busy = false;
    for (size_t i = 0; i < ddl_comm_size(r->comm); i++) {
        struct ddl_error why;
        *busy = *busy || r->turns[i].busy > 0;
        if (r->turns[i].stop)
            stop_all(r);
        ddl_status taken = take_event(r, &r->turns[i].event, &why);
        if (taken && !status) {
            status = taken;
            *err = why;
        }
    }
    return status;
}

static void update(struct runner *r)
{
    double now = ddl_clock_seconds();
    if (!is_root(r))
        return;
    if (now >= r->read_at + read_every) {
        r->read_at = now;
        for (size_t i = 0; i < r->sweep->n_runs; i++) {
            if (r->sweep->runs[i].state == DDL_SWEEP_RUNNING)
                (void)sweep_read_progress(&r->sweep->runs[i], NULL); /* next time */
        }
        sweep_estimate(r->sweep, r->max_jobs * ddl_comm_size(r->comm));
    }
    if (r->callbacks->update)
        r->callbacks->update(r->callbacks->user, r->sweep);
}

/* Until all runs have ended, or after a stop or an error those that were running. */
static ddl_status loop(struct runner *r, struct ddl_error *err)
{
    const struct timespec pause = { 0, POLL_MILLISECONDS * 1000000L };
    ddl_status status = DDL_OK;
    for (;;) {
        struct ddl_error why;
        bool stop = r->callbacks->stop && r->callbacks->stop(r->callbacks->user), busy;
        if (r->n_events == 0)
            collect_ended(r);
        ddl_status now = take_turns(r, stop || status, &busy, &why);
        if (now && !status) {
            status = now;
            *err = why;
        }
        if (!busy && (r->stopping || !any_ready(r)))
            return ddl_comm_agree(r->comm, status, err);
        if (!r->stopping)
            start_ready(r);
        update(r);
        if (r->n_events == 0)
            nanosleep(&pause, NULL);
    }
}

/* ---- the sweep ---- */

/* A ddl_progress_fn. */
static int show_check(void *user, uint64_t done, uint64_t total)
{
    const struct runner *r = user;
    ddl_comm_still_working(r->comm);
    return r->callbacks->check ? r->callbacks->check(r->callbacks->user, done, total) : 0;
}

/* Data, tokenizers, init_from and memory of the first open candidate of each setting, which may have other
 * data, and of its first other open run: the rest differs in the seed and the chosen value only. */
static ddl_status check_inputs(struct runner *r, struct ddl_error *err)
{
    const struct ddl_train_callbacks callbacks = { .user = r, .check = show_check };
    const struct ddl_sweep *sweep = r->sweep;
    bool *checked = calloc(2 * sweep->n_settings, sizeof *checked); /* runs, candidates */
    ddl_status status = DDL_OK;
    if (!checked)
        return ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory", sweep->path);
    for (size_t i = 0; !status && i < sweep->n_runs; i++) {
        const struct ddl_sweep_run *run = &sweep->runs[i];
        bool *done = &checked[2 * run->setting + run->is_candidate];
        if (*done || !is_open(r, run))
            continue;
        *done = true;
        status = ddl_train_check_inputs(run->config, &callbacks, err);
        if (status && status != DDL_E_INTERRUPTED)
            (void)ddl_error_prefix(err, status, run->name);
    }
    free(checked);
    return status;
}

/* Rank 0: the folder of the sweep, what is there, and whether the runs can start. */
static ddl_status prepare(struct runner *r, struct ddl_lock *lock, bool retry, struct ddl_error *err)
{
    ddl_status status = ddl_file_make_dir(r->sweep->out, err);
    if (!status)
        status = ddl_lock_take(lock, r->sweep->out, err);
    if (!status)
        status = sweep_read_states(r->sweep, retry, false, err);
    if (!status)
        status = check_inputs(r, err);
    return status ? status : sweep_save(r->sweep, err);
}

/* Whether the same command would continue the run: it does not wait for a candidate that failed. */
static bool is_to_do(const struct runner *r, const struct ddl_sweep_run *run)
{
    const struct ddl_sweep_setting *setting = &r->sweep->settings[run->setting];
    if (!is_open(r, run) || run->is_candidate || !setting->n_values || setting->is_chosen)
        return is_open(r, run);
    for (size_t i = 0; i < r->sweep->n_runs; i++) {
        if (r->sweep->runs[i].setting == run->setting && ddl_sweep_is_missing(&r->sweep->runs[i]))
            return false;
    }
    return true;
}

static ddl_status run(struct runner *r, struct ddl_lock *lock, bool retry, struct ddl_error *err)
{
    ddl_status status = DDL_OK;
    ddl_comm_describe(r->comm, "the check of the data of %.64s", r->sweep->path);
    if (is_root(r)) {
        status = prepare(r, lock, retry, err);
        ddl_comm_done_working(r->comm);
    } else {
        ddl_comm_wait_for_root(r->comm);
    }
    status = ddl_comm_agree(r->comm, status, err);
    if (!status)
        status = sweep_share_states(r->sweep, r->comm, err);
    if (!status)
        status = loop(r, err);
    if (status)
        return status;
    size_t open = 0;
    for (size_t i = 0; i < r->sweep->n_runs; i++)
        open += is_to_do(r, &r->sweep->runs[i]);
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
                        .comm = options->comm,
                        .max_jobs = jobs,
                        .threads = sweep_threads(options),
                        .retrain = options->retrain,
                        .jobs = calloc(jobs, sizeof *r.jobs),
                        .events = calloc(SWEEP_MAX_RUNS, sizeof *r.events),
                        .turns = calloc(ddl_comm_size(options->comm), sizeof *r.turns),
                        .tried = calloc(SWEEP_MAX_RUNS, sizeof *r.tried) };
    struct ddl_lock lock = { 0 };
    r.lock = &lock;
    struct ddl_error unused;
    ddl_status status = DDL_OK;
    err = err ? err : &unused;
    if (!r.jobs || !r.events || !r.turns || !r.tried)
        status = ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory for %zu jobs", sweep->path, jobs);
    status = sweep_compare_ranks(sweep, options, status, err);
    if (!status)
        status = run(&r, &lock, options->retry, err);
    ddl_lock_release(&lock);
    free(r.jobs);
    free(r.events);
    free(r.turns);
    free(r.tried);
    return status;
}
