/* ddl compare RUN RUN ...: loss curves on one chart, and a table of what each run cost and reached. */
#include "cli.h"
#include "chart.h"

#include "ddl/compare.h"
#include "ddl/json.h"
#include "folder.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_RUNS = 8 };
static const char marks[] = "o*+x#%@&";

struct compare_options {
    char which[32];
    int x;
    bool val, json;
    size_t width, height;
};

enum axis { STEPS, TOKENS, FLOPS, SECONDS, TRAIN_SECONDS };
static const char *const axes[] = { "steps", "tokens", "flops", "seconds", "train_seconds", NULL };

#define AT(field) offsetof(struct compare_options, field)
static const struct ddl_option options[] = {
    WHICH_ROW(compare_options),
    { .name = "x",
      .type = DDL_OPTION_CHOICE,
      .offset = AT(x),
      .choices = axes,
      .value = "AXIS",
      .help = "horizontal axis of the chart" },
    { .name = "val",
      .type = DDL_OPTION_BOOL,
      .offset = AT(val),
      .help = "draw validation loss instead of training loss" },
    { .name = "width",
      .type = DDL_OPTION_SIZE,
      .offset = AT(width),
      .min = 20,
      .max = 400,
      .value = "N",
      .help = "columns of the chart" },
    { .name = "height",
      .type = DDL_OPTION_SIZE,
      .offset = AT(height),
      .min = 4,
      .max = 100,
      .value = "N",
      .help = "rows of the chart" },
    { .name = "json", .type = DDL_OPTION_BOOL, .offset = AT(json), .help = "the table as JSON, no chart" },
    { 0 },
};

/* A run, and the model of it that --which names. */
struct run {
    const char *name;
    struct ddl_run_log log;
    struct ddl_run_model model; /* its name is "" if none is saved yet */
};

static double coordinate(const struct ddl_run_point *point, int axis)
{
    const double of[] = { [STEPS] = (double)point->step,
                          [TOKENS] = point->tokens,
                          [FLOPS] = point->flops,
                          [SECONDS] = point->seconds,
                          [TRAIN_SECONDS] = point->train_seconds };
    return of[axis];
}

static bool has_points(const struct curve *curve)
{
    for (size_t i = 0; i < curve->n; i++) {
        if (isfinite(curve->y[i]))
            return true;
    }
    return false;
}

/* Runs without a loss to draw are named below the chart. */
static int chart(const struct run *runs, size_t n, const struct compare_options *o)
{
    struct curve curves[MAX_RUNS] = { 0 };
    double *numbers[MAX_RUNS] = { 0 };
    const char *what = o->val ? "validation loss" : "training loss", *empty[MAX_RUNS];
    size_t n_curves = 0, n_empty = 0;
    int status = EXIT_OK;
    for (size_t r = 0; r < n; r++) {
        const struct ddl_run_log *log = &runs[r].log;
        numbers[r] = malloc(2 * log->n * sizeof *numbers[r]);
        if (!numbers[r]) {
            status = EXIT_FAILED;
            break;
        }
        for (size_t i = 0; i < log->n; i++) {
            numbers[r][i] = coordinate(&log->points[i], o->x);
            numbers[r][log->n + i] = o->val ? log->points[i].val_loss : log->points[i].loss;
        }
        curves[n_curves] = (struct curve){ runs[r].name, marks[r], log->n, numbers[r], numbers[r] + log->n };
        if (has_points(&curves[n_curves]))
            n_curves++;
        else
            empty[n_empty++] = runs[r].name;
    }
    if (status == EXIT_OK)
        draw_chart(axes[o->x], what, curves, n_curves, o->width, o->height);
    else
        fprintf(stderr, "ddl: out of memory for the chart\n");
    for (size_t i = 0; i < n_empty; i++)
        printf("          -  %s: no %s\n", empty[i], what);
    for (size_t r = 0; r < n; r++)
        free(numbers[r]);
    return status;
}

static const char *preset_of(const struct ddl_run_log *log)
{
    const char *name = log->has_config ? ddl_config_preset_name(&log->config) : NULL;
    return name ? name : "-";
}

/* A right-aligned number, or a dash where there is none. */
static void print_cell(int width, int digits, double value)
{
    if (isfinite(value))
        printf(" %*.*f", width, digits, value);
    else
        printf(" %*s", width, "-");
}

static void table(const struct run *runs, size_t n)
{
    printf("\n%-20s %-10s %10s %7s %10s %9s %10s %9s %9s  %s\n", "run", "model", "parameters", "steps",
           "train loss", "val loss", "perplexity", "tokens/s", "peak MiB", "saved model");
    for (size_t r = 0; r < n; r++) {
        const struct ddl_run_log *log = &runs[r].log;
        const struct ddl_run_point *last = &log->points[log->n - 1];
        double val = ddl_run_log_final_val(log);
        printf("%-20s %-10s", runs[r].name, preset_of(log));
        print_cell(10, 0, log->has_config ? (double)log->n_params : NAN);
        print_cell(7, 0, (double)last->step);
        print_cell(10, 4, ddl_run_log_final_train(log));
        print_cell(9, 4, val);
        print_cell(10, 2, exp(val));
        print_cell(9, 0, ddl_run_log_speed(log));
        print_cell(9, 0, last->peak_memory / 1048576);
        printf("  %s\n", *runs[r].model.name ? runs[r].model.name : "-");
    }
}

/* Names of the tasks that any of the runs has scored, in the order of their first scores; malloc'ed. */
static const char **tasks_of(const struct run *runs, size_t n, size_t *n_tasks)
{
    size_t most = 0;
    for (size_t r = 0; r < n; r++)
        most += runs[r].log.n_scores;
    const char **names = malloc((most ? most : 1) * sizeof *names);
    *n_tasks = 0;
    for (size_t r = 0; names && r < n; r++) {
        for (size_t i = 0; i < runs[r].log.n_scores; i++) {
            const char *name = runs[r].log.scores[i].task;
            size_t at = 0;
            while (at < *n_tasks && strcmp(names[at], name) != 0)
                at++;
            if (at == *n_tasks)
                names[(*n_tasks)++] = name;
        }
    }
    return names;
}

/* The last scores of each run, a line for each task. */
static int print_scores(const struct run *runs, size_t n)
{
    size_t n_tasks;
    const char **tasks = tasks_of(runs, n, &n_tasks);
    if (!tasks) {
        fprintf(stderr, "ddl: out of memory for the table of tasks\n");
        return EXIT_FAILED;
    }
    if (n_tasks)
        printf("\n%-20s %-20s %-9s %9s %9s %7s\n", "task", "run", "metric", "value", "stderr", "step");
    for (size_t t = 0; t < n_tasks; t++) {
        for (size_t r = 0; r < n; r++) {
            const struct ddl_run_score *score = ddl_run_log_score(&runs[r].log, tasks[t]);
            if (!score)
                continue;
            printf("%-20s %-20s %-9s", tasks[t], runs[r].name, score->value_name);
            print_cell(9, 4, score->value);
            print_cell(9, 4, score->error);
            printf(" %7llu\n", (unsigned long long)score->step);
        }
    }
    free(tasks);
    return EXIT_OK;
}

/* Each task's last score, if there are any. */
static void print_scores_json(struct ddl_json *json, const struct ddl_run_log *log)
{
    if (log->n_scores == 0)
        return;
    ddl_json_open(json, "tasks", '{');
    for (size_t i = 0; i < log->n_scores; i++) {
        const struct ddl_run_score *score = &log->scores[i];
        char key[32];
        if (ddl_run_log_score(log, score->task) != score)
            continue;
        snprintf(key, sizeof key, "%s_stderr", score->value_name);
        ddl_json_open(json, score->task, '{');
        ddl_json_count(json, "step", score->step);
        ddl_json_number(json, score->value_name, score->value, 9);
        ddl_json_number(json, key, score->error, 9);
        ddl_json_close(json, '}');
    }
    ddl_json_close(json, '}');
}

static void print_json(const struct run *runs, size_t n)
{
    fputs("[", stdout);
    for (size_t r = 0; r < n; r++) {
        struct ddl_json json = { stdout, false };
        const struct ddl_run_log *log = &runs[r].log;
        const struct ddl_run_point *last = &log->points[log->n - 1];
        fputs(r ? ",\n " : "", stdout); /* a line for each run */
        ddl_json_open(&json, NULL, '{');
        ddl_json_string(&json, "run", runs[r].name);
        print_saved_model_json(&json, &runs[r].model);
        ddl_json_string(&json, "model", preset_of(log));
        ddl_json_count(&json, "parameters", log->n_params);
        ddl_json_count(&json, "steps", last->step);
        ddl_json_number(&json, "train_loss", ddl_run_log_final_train(log), 10);
        ddl_json_number(&json, "val_loss", ddl_run_log_final_val(log), 10);
        ddl_json_number(&json, "tokens_per_s", ddl_run_log_speed(log), 10);
        ddl_json_number(&json, "tokens", last->tokens, 10);
        ddl_json_number(&json, "flops", last->flops, 10);
        ddl_json_number(&json, "seconds", last->seconds, 10);
        ddl_json_number(&json, "train_seconds", last->train_seconds, 10);
        ddl_json_number(&json, "peak_memory", last->peak_memory, 10);
        print_scores_json(&json, log);
        ddl_json_close(&json, '}');
    }
    fputs("]\n", stdout);
}

/* The folder's own name: "runs/a/" is "a". */
static const char *last_part(char *path)
{
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/')
        path[--length] = '\0';
    char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

static const struct compare_options initial = { .which = "last", .x = TOKENS, .width = 72, .height = 17 };
static const void *defaults(void)
{
    return &initial;
}

/* Reads a run. With --which other than last, what it logged after the chosen model is left out. */
static ddl_status read_run(struct run *run, char *folder, const char *which, struct ddl_error *err)
{
    bool last = strcmp(which, "last") == 0;
    ddl_status status = ddl_run_log_read(&run->log, folder, err);
    if (!status && (!last || run->log.has_config))
        status = folder_find(&run->model, folder, which, true, err);
    if (!status && !last && run->model.has_step)
        status = ddl_run_log_truncate(&run->log, run->model.step, folder, err);
    run->name = last_part(folder);
    return status;
}

static int cmd_compare(int argc, char **argv)
{
    struct compare_options o = initial;
    struct ddl_error err;
    int n = 0, status = EXIT_OK;
    if (ddl_option_parse(options, &o, NULL, NULL, argc, argv, &n, &err))
        return report_error(&err);
    if (check_arguments("compare", n, argv, 1, MAX_RUNS, "a run folder (RUN)", &err))
        return report_error(&err);
    struct run runs[MAX_RUNS] = { 0 };
    for (int r = 0; r < n && status == EXIT_OK; r++) {
        if (read_run(&runs[r], argv[1 + r], o.which, &err))
            status = report_error(&err);
    }
    if (status == EXIT_OK && o.json) {
        print_json(runs, (size_t)n);
    } else if (status == EXIT_OK) {
        status = chart(runs, (size_t)n, &o);
        table(runs, (size_t)n);
        if (status == EXIT_OK)
            status = print_scores(runs, (size_t)n);
    }
    for (int r = 0; r < n; r++)
        ddl_run_log_free(&runs[r].log);
    return status;
}

const struct command compare_command = {
    .name = "compare",
    .usage = "RUN [RUN ...] [--which last|best|final|STEP] [--x AXIS] [--val] [--json]",
    .about = "plot loss curves of runs and list their costs",
    .text =
        (const char *const[]){
            "RUN is a run folder of ddl train; the run need not be finished. The last column has the",
            "saved model that --which selects. With best, final or a step, what the run logged after that",
            "step is ignored. If runs were evaluated on tasks (key tasks), a second table has the last "
            "scores.",
            NULL },
    .options = { { .rows = options, .defaults = defaults } },
    .examples = (const struct note[]){ { "ddl compare runs/baseline runs/ddl-cc-ec --x flops",
                                         "two runs at equal FLOPs" },
                                       { "ddl compare runs/baseline runs/ddl-cc-ec --which best",
                                         "two runs, each up to its best checkpoint" },
                                       { 0 } },
    .run = cmd_compare,
};
