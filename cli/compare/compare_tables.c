/* The results of ddl compare as tables, in text and in Markdown. */
#include "cli/cli.h"
#include "cli/compare/compare.h"
#include "cli/output/escape.h"
#include "cli/output/table.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

const char *compared_preset(const struct ddl_run_log *log)
{
    const char *name = log->has_config ? ddl_config_preset_name(&log->config) : NULL;
    return name ? name : "-";
}

const char *compared_group_name(const struct compared *c, size_t group)
{
    return c->group_names[group];
}

const char **compared_tasks(const struct compared *c, size_t *n_tasks)
{
    size_t most = 0;
    for (size_t r = 0; r < c->n; r++)
        most += c->logs[r].n_scores;
    const char **names = malloc((most ? most : 1) * sizeof *names);
    *n_tasks = 0;
    for (size_t r = 0; names && r < c->n; r++) {
        for (size_t i = 0; i < c->logs[r].n_scores; i++) {
            const char *name = c->logs[r].scores[i].task;
            size_t at = 0;
            while (at < *n_tasks && strcmp(names[at], name) != 0)
                at++;
            if (at == *n_tasks)
                names[(*n_tasks)++] = name;
        }
    }
    if (!names)
        fprintf(stderr, "ddl: out of memory for the table of tasks\n");
    return names;
}

static const struct ddl_group_score *group_score(const struct compared *c, size_t group, const char *task)
{
    const struct ddl_compare_group *g = &c->result.groups[group];
    for (size_t i = 0; i < g->n_scores; i++) {
        if (strcmp(g->scores[i].task, task) == 0)
            return &g->scores[i];
    }
    return NULL;
}

/* Widths of columns of names, so that longer ones than usual do not move the next columns. */
static int name_width(const char *const *names, size_t n)
{
    size_t width = 20;
    for (size_t i = 0; i < n; i++) {
        const size_t length = strlen(names[i]);
        width = length > width && length < 100 ? length : width;
    }
    return -(int)width;
}

static int run_width(const struct compared *c)
{
    return name_width(c->names, c->n);
}

static int group_width(const struct compared *c)
{
    return name_width((const char *const *)c->group_names, c->result.n_groups);
}

static void print_runs(const struct compared *c, bool markdown)
{
    const struct column columns[] = {
        { "run", run_width(c) }, { "model", -10 },     { "parameters", 10 }, { "steps", 7 },
        { "train loss", 10 },    { "val loss", 9 },    { "perplexity", 10 }, { "tokens/s", 9 },
        { "peak MiB", 9 },       { "saved model", 0 },
    };
    struct table t = begin_table(columns, COUNT(columns), markdown);
    for (size_t r = 0; r < c->n; r++) {
        const struct ddl_run_log *log = &c->logs[r];
        const struct ddl_run_point *last = &log->points[log->n - 1];
        double val = ddl_run_log_final_val(log);
        print_text_cell(&t, c->names[r]);
        print_text_cell(&t, compared_preset(log));
        print_number_cell(&t, log->has_config ? (double)log->n_params : NAN, 0);
        print_number_cell(&t, (double)last->step, 0);
        print_number_cell(&t, ddl_run_log_final_train(log), 4);
        print_number_cell(&t, val, 4);
        print_number_cell(&t, exp(val), 2);
        print_number_cell(&t, ddl_run_log_speed(log), 0);
        print_number_cell(&t, last->peak_memory / 1048576, 0);
        print_text_cell(&t, *c->models[r].name ? c->models[r].name : "-");
    }
}

static void print_statistics(struct table *t, const struct ddl_mean *mean, const struct ddl_test *test)
{
    print_number_cell(t, (double)mean->n, 0);
    print_number_cell(t, mean->mean, 4);
    print_number_cell(t, mean->sd, 4);
    print_number_cell(t, mean->low, 4);
    print_number_cell(t, mean->high, 4);
    print_number_cell(t, test->difference, 4);
    print_p_cell(t, test->welch_p);
    print_p_cell(t, test->paired_p);
}

static void print_group_row(struct table *t, const char *name, const char *loss, const struct ddl_mean *mean,
                            const struct ddl_test *test)
{
    print_text_cell(t, name);
    print_text_cell(t, loss);
    print_statistics(t, mean, test);
}

/* Validation losses, if there are any, then training losses. */
static void print_groups(const struct compared *c, bool markdown)
{
    const struct column columns[] = {
        { "group", group_width(c) },
        { "loss", -5 },
        { "seeds", 5 },
        { "mean", 9 },
        { "sd", 8 },
        { "95 % low", 9 },
        { "95 % high", 9 },
        { "difference", 10 },
        { "Welch p", 8 },
        { "paired p", 8 },
    };
    struct table t = begin_table(columns, COUNT(columns), markdown);
    for (size_t g = 0; g < c->result.n_groups; g++) {
        const struct ddl_compare_group *group = &c->result.groups[g];
        if (!isnan(group->val_loss.mean))
            print_group_row(&t, compared_group_name(c, g), "val", &group->val_loss, &group->val_test);
    }
    for (size_t g = 0; g < c->result.n_groups; g++) {
        const struct ddl_compare_group *group = &c->result.groups[g];
        print_group_row(&t, compared_group_name(c, g), "train", &group->train_loss, &group->train_test);
    }
}

/* A line for each group of several runs. */
static void print_members(const struct compared *c, bool markdown)
{
    bool any = false;
    for (size_t g = 0; g < c->result.n_groups; g++) {
        const struct ddl_compare_group *group = &c->result.groups[g];
        if (group->n < 2)
            continue;
        printf("%sgroup ", any ? "" : "\n");
        print_foreign_name(compared_group_name(c, g), markdown);
        for (size_t i = 0; i < group->n; i++) {
            fputs(i ? ", " : ": ", stdout);
            print_foreign_name(c->names[group->runs[i]], markdown);
        }
        printf("\n");
        any = true;
    }
}

static bool is_reached(const struct ddl_reach *reach)
{
    return !isnan(reach->tokens);
}

static void print_reaching(const struct compared *c, bool markdown)
{
    const struct column columns[] = {
        { "group", group_width(c) }, { "tokens", 14 },  { "relative", 9 }, { "GFLOPs", 14 },
        { "relative", 9 },           { "seconds", 10 }, { "relative", 9 },
    };
    struct table t = begin_table(columns, COUNT(columns), markdown);
    for (size_t g = 0; g < c->result.n_groups; g++) {
        const struct ddl_reach *reach = &c->result.groups[g].reach;
        if (!is_reached(reach))
            continue;
        print_text_cell(&t, compared_group_name(c, g));
        print_number_cell(&t, reach->tokens, 0);
        print_number_cell(&t, reach->tokens_ratio, 3);
        print_number_cell(&t, reach->flops / 1e9, 1);
        print_number_cell(&t, reach->flops_ratio, 3);
        print_number_cell(&t, reach->seconds, 1);
        print_number_cell(&t, reach->seconds_ratio, 3);
    }
}

/* A row for each group that reaches the baseline's loss, if there is one beside the baseline, and a line with
 * the others. */
static void print_reach(const struct compared *c, bool markdown)
{
    const char *baseline = compared_group_name(c, c->result.baseline), *join = "";
    size_t n_reaching = 0;
    if (isnan(c->result.target))
        return;
    for (size_t g = 0; g < c->result.n_groups; g++)
        n_reaching += is_reached(&c->result.groups[g].reach);
    if (n_reaching > 1) {
        printf("\nto reach the validation loss %.4f of ", c->result.target);
        print_foreign_name(baseline, markdown);
        printf(", relative to its totals:\n");
        print_reaching(c, markdown);
    }
    if (n_reaching == c->result.n_groups)
        return;
    printf("\nthe validation loss %.4f of ", c->result.target);
    print_foreign_name(baseline, markdown);
    printf(" is not reached by ");
    for (size_t g = 0; g < c->result.n_groups; g++) {
        if (!is_reached(&c->result.groups[g].reach)) {
            fputs(join, stdout);
            print_foreign_name(compared_group_name(c, g), markdown);
            join = ", ";
        }
    }
    printf("\n");
}

/* The last scores of each run, a line for each of the n tasks. */
static void print_scores(const struct compared *c, const char *const *tasks, size_t n, bool markdown)
{
    const struct column columns[] = {
        { "task", -20 }, { "run", run_width(c) }, { "metric", -9 },
        { "value", 9 },  { "stderr", 9 },         { "step", 7 },
    };
    struct table table = begin_table(columns, COUNT(columns), markdown);
    for (size_t t = 0; t < n; t++) {
        for (size_t r = 0; r < c->n; r++) {
            const struct ddl_run_score *score = ddl_run_log_score(&c->logs[r], tasks[t]);
            if (!score)
                continue;
            print_text_cell(&table, tasks[t]);
            print_text_cell(&table, c->names[r]);
            print_text_cell(&table, score->value_name);
            print_number_cell(&table, score->value, 4);
            print_number_cell(&table, score->error, 4);
            print_number_cell(&table, (double)score->step, 0);
        }
    }
}

/* The scores of groups, a line for each of the n tasks. */
static void print_group_scores(const struct compared *c, const char *const *tasks, size_t n, bool markdown)
{
    const struct column columns[] = {
        { "task", -20 },      { "group", group_width(c) },
        { "metric", -9 },     { "seeds", 5 },
        { "mean", 9 },        { "sd", 8 },
        { "95 % low", 9 },    { "95 % high", 9 },
        { "difference", 10 }, { "Welch p", 8 },
        { "paired p", 8 },
    };
    struct table table = begin_table(columns, COUNT(columns), markdown);
    for (size_t t = 0; t < n; t++) {
        for (size_t g = 0; g < c->result.n_groups; g++) {
            const struct ddl_group_score *score = group_score(c, g, tasks[t]);
            if (!score)
                continue;
            print_text_cell(&table, tasks[t]);
            print_text_cell(&table, compared_group_name(c, g));
            print_text_cell(&table, score->value_name);
            print_statistics(&table, &score->mean, &score->test);
        }
    }
}

/* Whether a group has several runs. */
static bool has_seeds(const struct compared *c)
{
    for (size_t g = 0; g < c->result.n_groups; g++) {
        if (c->result.groups[g].n > 1)
            return true;
    }
    return false;
}

/* Whether a group has scores of a task, which all of its runs have then. */
static bool has_group_scores(const struct compared *c, const char *const *tasks, size_t n)
{
    for (size_t t = 0; t < n; t++) {
        for (size_t g = 0; g < c->result.n_groups; g++) {
            if (group_score(c, g, tasks[t]))
                return true;
        }
    }
    return false;
}

/* The tables of task scores, if there are any. */
static int print_tasks(const struct compared *c, bool markdown)
{
    size_t n;
    const char **tasks = compared_tasks(c, &n);
    if (!tasks)
        return EXIT_FAILED;
    if (n)
        print_scores(c, tasks, n, markdown);
    if (has_seeds(c) && has_group_scores(c, tasks, n))
        print_group_scores(c, tasks, n, markdown);
    free(tasks);
    return EXIT_OK;
}

static const char needs_seeds[] =
    "standard deviations, intervals and p-values need a second run that differs only in its seed";

int print_compared_tables(const struct compared *c, bool markdown)
{
    print_runs(c, markdown);
    if (has_seeds(c)) {
        print_groups(c, markdown);
        print_members(c, markdown);
    }
    if (c->result.n_groups > 1) {
        if (!has_seeds(c))
            printf("\neach group has one run: %s\n", needs_seeds);
        print_reach(c, markdown);
    }
    print_contrast_tables(c, markdown);
    return print_tasks(c, markdown);
}
