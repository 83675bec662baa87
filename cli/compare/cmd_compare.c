/* ddl compare RUN RUN ...: loss curves on one chart, what each run cost and reached, and statistics over
 * seeds. */
#define _POSIX_C_SOURCE 200809L
#include "cli/cli.h"
#include "cli/output/chart.h"
#include "cli/compare/compare.h"
#include "ddl/file.h"
#include "ddl/sweep.h"
#include "cli/output/escape.h"
#include "cli/model/folder.h"
#include "cli/output/page.h"

#include <assert.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Repeated from the first if there are more runs. */
static const char marks[] = "o*+x#%@&abcdefghijklmnpqrstuvwyz";

struct compare_options {
    char which[32], baseline[1024], svg[1024], html[PAGE_PATH];
    struct figure_options figure;
    bool any, json, csv, markdown;
    size_t width, height;
    char contrasts[8192];
    struct ddl_contrast_options tests;
    int correction;
    struct ddl_sweep_protocol protocol; /* of a sweep whose runs are compared */
};

enum correction { CORRECTION_HOLM, CORRECTION_NONE };
static const char *const correction_names[] = { "holm", "none", NULL };
static const char *const figure_names[] = { "curves", "final", NULL };

#define AT(field) offsetof(struct compare_options, field)
static const struct ddl_option options[] = {
    WHICH_ROW(compare_options),
    { .name = "baseline",
      .type = DDL_OPTION_PATH,
      .offset = AT(baseline),
      .size = sizeof(((struct compare_options *)0)->baseline),
      .value = "RUN",
      .help = "group that the others are tested against, or a run of it (empty: the first)" },
    { .name = "contrast",
      .type = DDL_OPTION_STRINGS,
      .offset = AT(contrasts),
      .size = sizeof(((struct compare_options *)0)->contrasts),
      .value = "'A - B'",
      .help = "test the mean of groups minus that of others, 'A + B - C'; a term is a group, a model or a "
              "pattern with *; may be repeated" },
    { .name = "correction",
      .type = DDL_OPTION_CHOICE,
      .offset = AT(correction),
      .choices = correction_names,
      .value = "NAME",
      .help = "correction of the p-values over the contrasts" },
    { .name = "margin",
      .type = DDL_OPTION_DOUBLE,
      .offset = AT(tests.margin),
      .min = 0,
      .max = 1e6,
      .value = "X",
      .help = "test contrasts for equivalence within +-X as well (0: do not)" },
    { .name = "detect",
      .type = DDL_OPTION_DOUBLE,
      .offset = AT(tests.detect),
      .min = 0,
      .max = 1e6,
      .value = "X",
      .help = "compute the seeds that contrasts need to detect a difference of X (0: of the margin)" },
    { .name = "power",
      .type = DDL_OPTION_DOUBLE,
      .offset = AT(tests.power),
      .min = 0.05,
      .max = 0.9999,
      .value = "P",
      .help = "probability of detecting it" },
    { .name = "level",
      .type = DDL_OPTION_DOUBLE,
      .offset = AT(tests.level),
      .min = 1e-6,
      .max = 0.4,
      .value = "P",
      .help = "level of the tests of contrasts; intervals have the confidence 1 - P" },
    { .name = "any",
      .type = DDL_OPTION_BOOL,
      .offset = AT(any),
      .help = "also compare runs that differ in data, sequence length or vocabulary; take each group at its "
              "own last step" },
    { .name = "x",
      .type = DDL_OPTION_CHOICE,
      .offset = AT(figure.axis),
      .choices = axis_names,
      .value = "AXIS",
      .help = "horizontal axis of the chart and of --svg" },
    { .name = "val",
      .type = DDL_OPTION_BOOL,
      .offset = AT(figure.val),
      .help = "draw validation loss instead of training loss" },
    { .name = "max_loss",
      .type = DDL_OPTION_DOUBLE,
      .offset = AT(figure.highest),
      .min = 0,
      .max = 1e6,
      .value = "X",
      .help = "do not draw losses above this (0: draw all)" },
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
    { .name = "json", .type = DDL_OPTION_BOOL, .offset = AT(json), .help = "results as JSON, no chart" },
    { .name = "csv",
      .type = DDL_OPTION_BOOL,
      .offset = AT(csv),
      .help = "results as CSV, a line per run, or per contrast with --contrast, no chart" },
    { .name = "markdown",
      .type = DDL_OPTION_BOOL,
      .offset = AT(markdown),
      .help = "tables in Markdown, no chart" },
    { .name = "svg",
      .type = DDL_OPTION_PATH,
      .offset = AT(svg),
      .size = sizeof(((struct compare_options *)0)->svg),
      .value = "FILE",
      .help = "also write a figure to this SVG file" },
    { .name = "figure",
      .type = DDL_OPTION_CHOICE,
      .offset = AT(figure.kind),
      .choices = figure_names,
      .value = "KIND",
      .help = "figure of --svg: curves (means of groups, bands over seeds), or final (the last losses, their "
              "means and 95 % intervals)" },
    HTML_ROW(struct compare_options),
    { 0 },
};

/* Sets the curve of n points; its numbers are malloc'ed. */
static bool make_curve(const struct ddl_run_point *points, size_t n, const struct compare_options *o,
                       struct curve *curve, double **numbers)
{
    *numbers = malloc(2 * n * sizeof **numbers);
    if (!*numbers)
        return false;
    for (size_t i = 0; i < n; i++) {
        (*numbers)[i] = axis_value(&points[i], o->figure.axis);
        (*numbers)[n + i] = drawn_loss(&points[i], o->figure.val, o->figure.highest);
    }
    curve->n = n;
    curve->x = *numbers;
    curve->y = *numbers + n;
    return true;
}

/* A curve for each run or, with more runs than marks, for the mean of each group. Those without a loss to
 * draw are named below the chart. */
static int chart(const struct compared *c, const struct compare_options *o)
{
    const size_t n_marks = sizeof marks - 1;
    const bool by_group = c->n > n_marks && c->result.n_groups < c->n;
    const size_t n = by_group ? c->result.n_groups : c->n;
    const char *what = o->figure.val ? "validation loss" : "training loss";
    struct curve *curves = calloc(n, sizeof *curves);
    double **numbers = calloc(n, sizeof *numbers);
    char title[64];
    bool made = curves && numbers;
    for (size_t i = 0; made && i < n; i++) {
        const struct ddl_compare_group *group = &c->result.groups[by_group ? i : 0];
        curves[i].name = by_group ? c->group_names[i] : c->names[i];
        curves[i].mark = marks[i % n_marks];
        made = by_group ? make_curve(group->curve, group->n_points, o, &curves[i], &numbers[i])
                        : make_curve(c->logs[i].points, c->logs[i].n, o, &curves[i], &numbers[i]);
    }
    snprintf(title, sizeof title, "%s%s", what, by_group ? ", means of groups" : "");
    if (made)
        draw_chart(axis_names[o->figure.axis], title, curves, n, o->width, o->height);
    else
        fprintf(stderr, "ddl: out of memory for the chart\n");
    for (size_t i = 0; made && i < n; i++) {
        if (!curve_has_points(&curves[i]))
            printf("          -  %s: no %s\n", printable(curves[i].name), what);
    }
    for (size_t i = 0; numbers && i < n; i++)
        free(numbers[i]);
    free(numbers);
    free(curves);
    return made ? EXIT_OK : EXIT_FAILED;
}

/* The folder's own name: "runs/a" is "a". */
static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

static const struct compare_options initial = { .which = "last",
                                                .figure = { .axis = AXIS_TOKENS },
                                                .width = 72,
                                                .height = 17,
                                                .tests = { .power = 0.8, .level = 0.05 } };
static const void *defaults(void)
{
    return &initial;
}

/* Reads run r. With --which other than last, what it logged after the chosen model is left out. */
static ddl_status read_run(struct compared *c, size_t r, char *folder, const char *which,
                           struct ddl_error *err)
{
    struct ddl_run_log *log = &c->logs[r];
    struct ddl_run_model *model = &c->models[r];
    bool last = strcmp(which, "last") == 0;
    trim_slashes(folder);
    ddl_status status = ddl_run_log_read(log, folder, err);
    if (!status && (!last || log->has_config))
        status = folder_find(model, folder, which, true, true, err);
    if (!status && !last && model->has_step)
        status = ddl_run_log_truncate(log, model->step, folder, err);
    c->names[r] = last_part(folder);
    return status;
}

/* The length of a run's name without the seed that ddl sweep appends. */
static size_t stem_length(const char *name)
{
    static const char mark[] = "_seed=";
    const char *last = NULL;
    for (const char *at = strstr(name, mark); at; at = strstr(at + 1, mark))
        last = at;
    return last && last > name ? (size_t)(last - name) : strlen(name);
}

static bool is_group_name(const char *name, const char *run)
{
    size_t n = stem_length(run);
    return strlen(name) == n && memcmp(name, run, n) == 0;
}

static ddl_status name_groups(struct compared *c, struct ddl_error *err)
{
    c->group_names = calloc(c->result.n_groups, sizeof *c->group_names);
    for (size_t g = 0; c->group_names && g < c->result.n_groups; g++) {
        const char *run = c->names[c->result.groups[g].runs[0]];
        c->group_names[g] = strndup(run, stem_length(run));
        if (!c->group_names[g])
            return ddl_error_set(err, DDL_E_MEMORY, "out of memory");
    }
    return c->group_names ? DDL_OK : ddl_error_set(err, DDL_E_MEMORY, "out of memory");
}

/* The run that --baseline names, by its folder as given, by its name or by its group's. */
static ddl_status find_baseline(const struct compared *c, char **folders, char *baseline, size_t *out,
                                struct ddl_error *err)
{
    trim_slashes(baseline);
    *out = 0;
    if (!*baseline)
        return DDL_OK;
    for (size_t r = 0; r < c->n; r++) {
        if (strcmp(folders[r], baseline) == 0) {
            *out = r;
            return DDL_OK;
        }
    }
    for (size_t r = 0; r < c->n; r++) {
        if (strcmp(c->names[r], baseline) == 0 || is_group_name(baseline, c->names[r])) {
            *out = r;
            return DDL_OK;
        }
    }
    return ddl_error_set(err, DDL_E_USAGE,
                         "--baseline: not among the runs: expected one of %.400s to %.400s, found %.400s",
                         c->names[0], c->names[c->n - 1], baseline);
}

/* Prints a note and keeps it for the page; without memory it is printed only. */
static void take_note(void *user, const char *text)
{
    struct compared *c = user;
    print_compare_note(NULL, text);
    char **grown = realloc(c->notes, (c->n_notes + 1) * sizeof *grown);
    if (!grown)
        return;
    c->notes = grown;
    c->notes[c->n_notes] = strdup(text);
    c->n_notes += c->notes[c->n_notes] != NULL;
}

static int print_results(const struct compared *c, const struct compare_options *o)
{
    if (o->json)
        return print_compared_json(c);
    if (o->csv)
        return print_compared_csv(c);
    int status = o->markdown ? EXIT_OK : chart(c, o);
    return status == EXIT_OK ? print_compared_tables(c, o->markdown) : status;
}

static ddl_status compare_runs(struct compared *c, char **folders, struct compare_options *o,
                               struct ddl_error *err)
{
    struct ddl_compare_options how = { .any = o->any, .note = take_note, .user = c };
    ddl_status status = DDL_OK;
    for (size_t r = 0; !status && r < c->n; r++)
        status = read_run(c, r, folders[r], o->which, err);
    if (!status)
        status = find_baseline(c, folders, o->baseline, &how.baseline, err);
    if (!status)
        status = ddl_compare(&c->result, c->logs, c->names, c->n, &how, err);
    if (status == DDL_E_FORMAT && c->result.n_runs > 0)
        print_compare_note(NULL, "--any compares them anyway");
    if (!status)
        status = name_groups(c, err);
    o->tests.holm = o->correction == CORRECTION_HOLM;
    if (!status)
        status = *o->contrasts ? test_contrasts(c, o->contrasts, &o->tests, err)
                               : test_protocol(c, &o->protocol, &o->tests, err);
    if (!status && *o->svg)
        status = write_compared_svg(c, o->svg, &o->figure, err);
    if (!status && *o->html)
        status = write_compared_html(c, o->html, &o->figure, err);
    return status;
}

static int compare_folders(char **folders, size_t runs, struct compare_options *o)
{
    struct ddl_error err;
    assert(runs > 0);
    struct compared c = { .n = runs,
                          .names = calloc(runs, sizeof *c.names),
                          .logs = calloc(runs, sizeof *c.logs),
                          .models = calloc(runs, sizeof *c.models) };
    ddl_status failed = DDL_E_MEMORY;
    if (c.names && c.logs && c.models)
        failed = compare_runs(&c, folders, o, &err);
    else
        ddl_error_set(&err, DDL_E_MEMORY, "out of memory for %zu runs", runs);
    int status = failed ? report_error(&err) : print_results(&c, o);
    for (size_t r = 0; c.logs && r < runs; r++)
        ddl_run_log_free(&c.logs[r]);
    for (size_t i = 0; i < c.n_notes; i++)
        free(c.notes[i]);
    free(c.notes);
    free(c.contrasts);
    free(c.contrast_text);
    free(c.secondary_text);
    for (size_t g = 0; c.group_names && g < c.result.n_groups; g++)
        free(c.group_names[g]);
    free(c.group_names);
    ddl_comparison_free(&c.result);
    free(c.names);
    free(c.logs);
    free(c.models);
    return status;
}

/* What a protocol has decided is not decided by options. */
static ddl_status check_with_protocol(const struct compare_options *o, struct ddl_error *err)
{
    const char *option = o->tests.margin != initial.tests.margin ? "margin"
                         : o->tests.level != initial.tests.level ? "level"
                         : o->tests.power != initial.tests.power ? "power"
                         : o->correction != initial.correction   ? "correction"
                         : strcmp(o->which, initial.which) != 0  ? "which"
                         : o->any                                ? "any"
                                                                 : NULL;
    return option
               ? ddl_error_set(err, DDL_E_USAGE,
                               "compare: --%s: the protocol of the sweep has decided it: expected --contrast "
                               "as well, for tests that were not planned",
                               option)
               : DDL_OK;
}

/* That each option has an effect. */
static ddl_status check_effects(const struct compare_options *o, const bool *given, struct ddl_error *err)
{
    static const char *const of_tests[] = { "correction", "margin", "detect", "power", "level", NULL };
    static const char *const of_figures[] = { "figure", NULL };
    const bool tests = *o->contrasts || ddl_sweep_protocol_is_set(&o->protocol);
    ddl_status status = tests ? DDL_OK : check_needs(options, given, of_tests, "--contrast", err);
    return status || *o->svg ? status : check_needs(options, given, of_figures, "--svg", err);
}

static int cmd_compare(int argc, char **argv)
{
    struct compare_options o = initial;
    bool given[sizeof options / sizeof *options];
    struct ddl_error err;
    int n = 0;
    ddl_option_find_given(options, NULL, argc, argv, given); /* the parser reorders the arguments */
    if (ddl_option_parse(options, &o, NULL, NULL, argc, argv, &n, &err))
        return report_error(&err);
    if (check_arguments("compare", n, argv, 1, INT_MAX, "a run folder (RUN)", &err))
        return report_error(&err);
    if (o.json + o.csv + o.markdown > 1) {
        ddl_error_set(&err, DDL_E_USAGE,
                      "compare: expected one of --json, --csv and --markdown, found several");
        return report_error(&err);
    }
    if (page_check(o.html, &err))
        return report_error(&err);
    struct folders folders = { 0 };
    ddl_status status = DDL_OK;
    for (int i = 1; !status && i <= n; i++)
        status = add_runs(&folders, argv[i], &err);
    if (!status && n == 1)
        status = ddl_sweep_protocol_read(&o.protocol, argv[1], &err);
    if (!status)
        status = check_effects(&o, given, &err);
    if (!status && !*o.contrasts && ddl_sweep_protocol_is_set(&o.protocol))
        status = check_with_protocol(&o, &err);
    int exit_status = status ? report_error(&err) : compare_folders(folders.paths, folders.n, &o);
    free_folders(&folders);
    return exit_status;
}

const struct command compare_command = {
    .name = "compare",
    .usage = "RUN [RUN ...] [--which last|best|final|STEP] [--baseline RUN] [--x AXIS] [--val] [--json]",
    .about = "plot loss curves of runs, list their costs, test differences",
    .text =
        (const char *const[]){
            "RUN is a run folder of ddl train, or a folder of runs, such as OUT of ddl sweep; a run",
            "need not be finished. The column 'saved model' shows the model that --which selects. With best,",
            "final or a step, what the run logged after that step is ignored.",
            "Runs that differ only in their seeds are one group, with mean, standard deviation and",
            "95 % interval of the final losses, and p-values of t-tests against the group of --baseline.",
            "--contrast tests a difference that was planned in advance, paired by seed.",
            "If runs were evaluated on tasks (key tasks), the last tables have the last scores of the runs,",
            "and their statistics by group.", NULL },
    .options = { { .rows = options, .defaults = defaults } },
    .examples =
        (const struct note[]){
            { "ddl compare runs/baseline runs/ddl-cc-ec --x flops", "two runs at equal FLOPs" },
            { "ddl compare runs/* --baseline runs/baseline-0 --markdown",
              "groups of seeds against a baseline, as tables" },
            { "ddl compare runs/* --contrast 'ddl-1 - ddl-1-write' --margin 0.03",
              "a planned contrast, with a test of equivalence" },
            { "ddl compare runs/* --val --max-loss 4 --svg loss.svg", "validation losses as a figure" },
            { "ddl compare runs/* --val --svg final.svg --figure final", "final losses with intervals" },
            { "ddl compare runs/* --html compare.html", "a page with curves and tables for a browser" },
            { "ddl compare runs/baseline runs/ddl-cc-ec --which best",
              "two runs, each up to its best checkpoint" },
            { 0 } },
    .run = cmd_compare,
};
