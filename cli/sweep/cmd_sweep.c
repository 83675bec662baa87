/* ddl sweep: trains the runs that a file describes. */
#include "cli/cli.h"
#include "cli/output/escape.h"
#include "cli/sweep/sweep.h"

#include <stdlib.h>

struct flags {
    size_t jobs, threads;
    bool retry, retrain, status, dry_run, json, quiet;
    ddl_comm *comm;
};

#define FLAG(field, help)                                                                                    \
    {                                                                                                        \
#field, DDL_OPTION_BOOL, offsetof(struct flags, field), 0, 0, 0, NULL, NULL, help                    \
    }
#define NUMBER(field, lo, hi, ...)                                                                           \
    {                                                                                                        \
#field, DDL_OPTION_SIZE, offsetof(struct flags, field), 0, lo, hi, NULL, "N", __VA_ARGS__            \
    }
static const struct ddl_option rows[] = {
    NUMBER(jobs, 1, 1024,
           "number of runs that each process trains at a time, each with its share of the processors"),
    NUMBER(threads, 0, 4096, "threads of each run whose recipe has threads 0 (0: the processors / jobs)",
           .aliases = DDL_THREADS_ALIASES),
    FLAG(retry, "start failed runs again, from their last checkpoints"),
    FLAG(retrain, "train stale runs again; their files are removed"),
    FLAG(status, "print the states of the runs; start nothing"),
    FLAG(dry_run, "print the plan with parameters, memory, time and disk space; write nothing"),
    FLAG(json, "print the result as JSON"),
    FLAG(quiet, "print nothing but errors (and the result with --json)"),
    { 0 },
};

static const struct flags initial = { .jobs = 1 };
static const void *defaults(void)
{
    return &initial;
}

static void print_result(const struct ddl_sweep *sweep, const struct flags *flags)
{
    if (flags->json)
        ddl_sweep_write_json(sweep, stdout);
    else if (!flags->quiet)
        print_states(sweep);
}

static int show_status(struct ddl_sweep *sweep, const struct flags *flags)
{
    struct ddl_error err;
    if (ddl_sweep_read(sweep, false, &err))
        return report_error(&err);
    print_result(sweep, flags);
    return EXIT_OK;
}

/* The plan is printed whether or not data and tokenizers are in order. */
static int dry_run(struct ddl_sweep *sweep, const struct flags *flags)
{
    const struct ddl_sweep_options options = { .jobs = flags->jobs, .threads = flags->threads };
    struct sweep_display display = sweep_display_on_stderr(flags->quiet);
    const struct ddl_sweep_callbacks callbacks = sweep_display_callbacks(&display);
    struct ddl_error err;
    exit_on_interrupt(true); /* nothing is written */
    ddl_status status = ddl_sweep_read(sweep, false, &err);
    struct ddl_sweep_forecast *forecast = calloc(sweep->n_runs, sizeof *forecast);
    if (!status && !forecast) {
        ddl_error_set(&err, DDL_E_MEMORY, "out of memory for %zu runs", sweep->n_runs);
        return report_error(&err);
    }
    if (!status) {
        status = ddl_sweep_predict(sweep, &options, &callbacks, forecast, &err);
        sweep_display_end(&display);
        if (flags->json)
            print_forecast_json(sweep, forecast, flags->jobs);
        else if (!flags->quiet)
            print_forecast(sweep, forecast, flags->jobs);
    }
    free(forecast);
    return status ? report_error(&err) : EXIT_OK;
}

static size_t report_failed(const struct ddl_sweep *sweep)
{
    size_t n = 0;
    for (size_t i = 0; i < sweep->n_runs; i++)
        n += ddl_sweep_matters(sweep, &sweep->runs[i]);
    if (n)
        fprintf(stderr,
                "ddl: %s: %zu of %zu runs failed: see log.txt in their folders; --retry starts them again\n",
                printable(sweep->path), n, sweep->n_runs);
    return n;
}

/* The candidates without which no value can be chosen. */
static void report_missing(const struct ddl_sweep *sweep)
{
    for (size_t i = 0; i < sweep->n_runs; i++) {
        const struct ddl_sweep_run *run = &sweep->runs[i];
        const struct ddl_sweep_setting *setting = &sweep->settings[run->setting];
        if (ddl_sweep_is_missing(run))
            fprintf(stderr,
                    "ddl: %s: %s: no %s is chosen before %s has finished or diverged (it failed: %s); "
                    "--retry continues it\n",
                    sweep->path, setting->name, setting->key, run->name, run->message);
    }
}

static size_t report_stale(const struct ddl_sweep *sweep)
{
    size_t n = ddl_sweep_count(sweep, DDL_SWEEP_STALE);
    const struct ddl_sweep_run *first = sweep->runs;
    while (n && first->state != DDL_SWEEP_STALE)
        first++;
    if (n)
        fprintf(stderr, "ddl: %s: %zu of %zu runs %s stale: %s: %s; --retrain trains such runs again\n",
                printable(sweep->path), n, sweep->n_runs, n == 1 ? "is" : "are", printable(first->name),
                printable(first->message));
    return n;
}

/* The exit status: candidates that diverged count only if no value could be chosen without them. */
static int report_unfinished(const struct ddl_sweep *sweep)
{
    size_t failed = report_failed(sweep);
    report_missing(sweep);
    return failed + report_stale(sweep) ? EXIT_FAILED : EXIT_OK;
}

static int train_all(struct ddl_sweep *sweep, const struct flags *flags)
{
    const struct ddl_sweep_options options = { .jobs = flags->jobs,
                                               .threads = flags->threads,
                                               .retry = flags->retry,
                                               .retrain = flags->retrain,
                                               .comm = flags->comm };
    struct sweep_display display = sweep_display_on_stderr(flags->quiet);
    const struct ddl_sweep_callbacks callbacks = sweep_display_callbacks(&display);
    struct ddl_error err;
    ddl_status status = ddl_sweep_run(sweep, &options, &callbacks, &err);
    sweep_display_end(&display);
    if (ddl_comm_rank(flags->comm) > 0)
        return error_exit(status);
    if (status && status != DDL_E_INTERRUPTED)
        return report_error(&err);
    print_result(sweep, flags);
    return status ? report_error(&err) : report_unfinished(sweep);
}

static void print_note(void *user, const char *message)
{
    (void)user;
    fprintf(stderr, "ddl: %s\n", printable(message));
}

/* Ranks train the runs together; rank 0 does the rest. */
static int run_rank(ddl_comm *comm, int argc, char **argv)
{
    struct flags flags = initial;
    struct ddl_error err = { 0 };
    struct ddl_sweep sweep;
    int n = 0;
    ddl_status status = ddl_option_parse(rows, &flags, NULL, NULL, argc, argv, &n, &err);
    if (!status)
        status = check_arguments("sweep", n, argv, 1, 1, "a sweep file (SWEEP.yaml)", &err);
    if (!status && flags.status && flags.dry_run)
        status =
            ddl_error_set(&err, DDL_E_USAGE, "sweep: expected one of --status and --dry-run, found both");
    ddl_status opened = status ? status : ddl_sweep_open(&sweep, argv[1], &err);
    status = ddl_comm_agree(comm, opened, &err);
    if (status) {
        if (!opened)
            ddl_sweep_close(&sweep);
        return report_agreed(comm, &err);
    }
    flags.comm = comm;
    flags.quiet = flags.quiet || ddl_comm_rank(comm) > 0;
    int exit_status = EXIT_OK;
    if (!flags.status && !flags.quiet)
        ddl_sweep_note(&sweep, print_note, NULL);
    if (!flags.status && !flags.dry_run)
        exit_status = train_all(&sweep, &flags);
    else if (ddl_comm_rank(comm) == 0)
        exit_status = flags.status ? show_status(&sweep, &flags) : dry_run(&sweep, &flags);
    ddl_sweep_close(&sweep);
    return exit_status;
}

static int cmd_sweep(int argc, char **argv)
{
    catch_interrupts();
    return on_ranks(run_rank, argc, argv);
}

const struct command sweep_command = {
    .name = "sweep",
    .usage = "SWEEP.yaml [--jobs N] [--retry] [--retrain] [--dry-run | --status] [--json]",
    .about = "train models x options x seeds, resumable",
    .text =
        (const char *const[]){
            "SWEEP.yaml lists models, values of recipe keys (grid) and seeds; each combination is a run in a",
            "folder of its own below out, trained by a process of its own ('ddl train'). The section",
            "choose lists values of keys, such as lr: for each model and each combination of grid values, a",
            "shorter run is first trained with each combination of the listed values, and the one with the",
            "lowest loss is used; with extend, a list whose smallest or largest value wins is continued.",
            "The file is checked before anything runs.",
            "After SIGINT, SIGTERM, SIGHUP or SIGUSR1 the runs write checkpoints and end; exit status 3. The",
            "same command continues: finished runs are skipped, stopped ones are resumed, failed ones are",
            "skipped unless --retry is given. A failed run does not stop the others; then the exit status",
            "is 1. A value is chosen when every run that it is chosen from has finished or diverged. If",
            "the choice changes, runs with the earlier value are stale, and skipped unless --retrain is",
            "given.", "'ddl compare OUT' compares the runs.",
            "Processes that mpirun or srun starts together divide the runs between them, --jobs at a time",
            "each. They share the file system of out.", NULL },
    .options = { { .rows = rows, .defaults = defaults } },
    .examples =
        (const struct note[]){ { "ddl sweep recipes/study-cpu.yaml --dry-run", "the plan with its cost" },
                               { "ddl sweep recipes/study-cpu.yaml --jobs 2", "two runs at a time" },
                               { "ddl sweep recipes/study-cpu.yaml --status", "the states of the runs" },
                               { "mpirun -n 8 ddl sweep recipes/study-cpu.yaml", "by eight processes" },
                               { 0 } },
    .files = (const struct note[]){ { "OUT/sweep.json", "states of the runs, choices, failures" },
                                    { "OUT/NAME/", "run folder, as of ddl train" },
                                    { "OUT/NAME/log.txt", "output of its process" },
                                    { "OUT/choose/NAME/", "runs that a value is chosen from" },
                                    { 0 } },
    .processes = ALL_PROCESSES,
    .run = cmd_sweep,
};
