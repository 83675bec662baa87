/* The results of ddl compare as JSON and CSV. */
#include "cli/cli.h"
#include "cli/compare/compare.h"
#include "cli/output/escape.h"
#include "cli/model/folder.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- figures: a name, and the field of a struct ---- */

struct figure {
    const char *name;
    size_t offset; /* of a double */
};
static const struct figure mean_figures[] = { { "mean", offsetof(struct ddl_mean, mean) },
                                              { "sd", offsetof(struct ddl_mean, sd) },
                                              { "low", offsetof(struct ddl_mean, low) },
                                              { "high", offsetof(struct ddl_mean, high) },
                                              { 0 } };
static const struct figure test_figures[] = { { "difference", offsetof(struct ddl_test, difference) },
                                              { "welch_p", offsetof(struct ddl_test, welch_p) },
                                              { "paired_p", offsetof(struct ddl_test, paired_p) },
                                              { 0 } };
static const struct figure reach_figures[] = { { "tokens", offsetof(struct ddl_reach, tokens) },
                                               { "flops", offsetof(struct ddl_reach, flops) },
                                               { "seconds", offsetof(struct ddl_reach, seconds) },
                                               { "tokens_ratio", offsetof(struct ddl_reach, tokens_ratio) },
                                               { "flops_ratio", offsetof(struct ddl_reach, flops_ratio) },
                                               { "seconds_ratio", offsetof(struct ddl_reach, seconds_ratio) },
                                               { 0 } };
/* Of a run. */
struct costs {
    double train_loss, val_loss, tokens_per_s, tokens, flops, seconds, train_seconds, peak_memory;
};
static const struct figure cost_figures[] = { { "train_loss", offsetof(struct costs, train_loss) },
                                              { "val_loss", offsetof(struct costs, val_loss) },
                                              { "tokens_per_s", offsetof(struct costs, tokens_per_s) },
                                              { "tokens", offsetof(struct costs, tokens) },
                                              { "flops", offsetof(struct costs, flops) },
                                              { "seconds", offsetof(struct costs, seconds) },
                                              { "train_seconds", offsetof(struct costs, train_seconds) },
                                              { "peak_memory", offsetof(struct costs, peak_memory) },
                                              { 0 } };

static double value_of(const struct figure *figure, const void *object)
{
    return *(const double *)(const void *)((const char *)object + figure->offset);
}

static struct costs costs_of(const struct ddl_run_log *log)
{
    const struct ddl_run_point *last = &log->points[log->n - 1];
    return (struct costs){ .train_loss = ddl_run_log_final_train(log),
                           .val_loss = ddl_run_log_final_val(log),
                           .tokens_per_s = ddl_run_log_speed(log),
                           .tokens = last->tokens,
                           .flops = last->flops,
                           .seconds = last->seconds,
                           .train_seconds = last->train_seconds,
                           .peak_memory = last->peak_memory };
}

/* ---- JSON ---- */

static void write_figures(struct ddl_json *json, const struct figure *figures, const void *object)
{
    for (; figures->name; figures++)
        ddl_json_number(json, figures->name, value_of(figures, object), 10);
}

static void write_reach(struct ddl_json *json, const struct ddl_reach *reach)
{
    ddl_json_open(json, "reach", '{');
    write_figures(json, reach_figures, reach);
    ddl_json_close(json, '}');
}

/* Each task's last score, if there are any. */
static void write_scores(struct ddl_json *json, const struct ddl_run_log *log)
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

static void write_run(struct ddl_json *json, const struct compared *c, size_t r)
{
    const struct ddl_run_log *log = &c->logs[r];
    const struct costs costs = costs_of(log);
    ddl_json_open(json, NULL, '{');
    ddl_json_string(json, "run", c->names[r]);
    print_saved_model_json(json, &c->models[r]);
    ddl_json_string(json, "model", compared_preset(log));
    ddl_json_count(json, "parameters", log->n_params);
    if (log->recipe)
        ddl_json_count(json, "seed", log->recipe->seed);
    ddl_json_count(json, "group", c->result.group_of[r]);
    ddl_json_bool(json, "repeats", c->result.repeats[r]);
    ddl_json_count(json, "steps", log->points[log->n - 1].step);
    write_figures(json, cost_figures, &costs);
    write_reach(json, &c->result.reach[r]);
    write_scores(json, log);
    ddl_json_close(json, '}');
}

/* The values of a group's runs, and their statistics. */
static void write_statistics(struct ddl_json *json, const double *values, size_t n,
                             const struct ddl_mean *mean, const struct ddl_test *test)
{
    ddl_json_open(json, "values", '[');
    for (size_t i = 0; i < n; i++)
        ddl_json_number(json, NULL, values[i], 10);
    ddl_json_close(json, ']');
    write_figures(json, mean_figures, mean);
    write_figures(json, test_figures, test);
    ddl_json_count(json, "pairs", test->n_pairs);
}

/* The scores on the tasks that all runs of the group have scored, if there are any. */
static void write_group_scores(struct ddl_json *json, const struct ddl_compare_group *group)
{
    if (group->n_scores == 0)
        return;
    ddl_json_open(json, "tasks", '{');
    for (size_t i = 0; i < group->n_scores; i++) {
        const struct ddl_group_score *score = &group->scores[i];
        ddl_json_open(json, score->task, '{');
        ddl_json_string(json, "metric", score->value_name);
        write_statistics(json, score->values, group->n, &score->mean, &score->test);
        ddl_json_close(json, '}');
    }
    ddl_json_close(json, '}');
}

static void write_group(struct ddl_json *json, const struct compared *c, size_t g)
{
    const struct ddl_compare_group *group = &c->result.groups[g];
    ddl_json_open(json, NULL, '{');
    ddl_json_string(json, "name", compared_group_name(c, g));
    ddl_json_open(json, "runs", '[');
    for (size_t i = 0; i < group->n; i++)
        ddl_json_string(json, NULL, c->names[group->runs[i]]);
    ddl_json_close(json, ']');
    ddl_json_count(json, "seeds", group->n);
    ddl_json_count(json, "step", group->step);
    ddl_json_count(json, "val_step", group->val_step);
    ddl_json_open(json, "train_loss", '{');
    write_statistics(json, group->train_losses, group->n, &group->train_loss, &group->train_test);
    ddl_json_close(json, '}');
    ddl_json_open(json, "val_loss", '{');
    write_statistics(json, group->val_losses, group->n, &group->val_loss, &group->val_test);
    ddl_json_close(json, '}');
    write_reach(json, &group->reach);
    write_group_scores(json, group);
    ddl_json_close(json, '}');
}

void write_compared_json(struct ddl_json *json, const char *key, const struct compared *c)
{
    ddl_json_open(json, key, '{');
    ddl_json_count(json, "baseline", c->result.baseline);
    ddl_json_number(json, "target", c->result.target, 10);
    ddl_json_open(json, "runs", '[');
    for (size_t r = 0; r < c->n; r++)
        write_run(json, c, r);
    ddl_json_close(json, ']');
    ddl_json_open(json, "groups", '[');
    for (size_t g = 0; g < c->result.n_groups; g++)
        write_group(json, c, g);
    ddl_json_close(json, ']');
    write_contrasts(json, c);
    ddl_json_close(json, '}');
}

int print_compared_json(const struct compared *c)
{
    struct ddl_json json = { stdout, false };
    write_compared_json(&json, NULL, c);
    putchar('\n');
    return EXIT_OK;
}

/* ---- CSV ---- */

static void print_names(const char *prefix, const struct figure *figures)
{
    for (; figures->name; figures++)
        printf(",%s%s", prefix, figures->name);
}

/* Empty if it is not finite. */
static void print_value(double value)
{
    putchar(',');
    if (isfinite(value))
        printf("%.10g", value);
}

static void print_values(const struct figure *figures, const void *object)
{
    for (; figures->name; figures++)
        print_value(value_of(figures, object));
}

static void print_heads(const struct compared *c, const char *const *tasks, size_t n_tasks)
{
    printf("run,group,repeats,seed,model,saved_model,parameters,steps");
    print_names("", cost_figures);
    print_names("reach_", reach_figures);
    printf(",group_seeds,group_step,group_val_step");
    print_names("group_train_", mean_figures);
    print_names("group_train_", test_figures);
    print_names("group_val_", mean_figures);
    print_names("group_val_", test_figures);
    print_names("group_reach_", reach_figures);
    for (size_t t = 0; t < n_tasks; t++) {
        const struct ddl_run_score *score = NULL;
        for (size_t r = 0; r < c->n && !score; r++)
            score = ddl_run_log_score(&c->logs[r], tasks[t]);
        char name[160];
        snprintf(name, sizeof name, "%s_%s", tasks[t], score ? score->value_name : "");
        putchar(',');
        print_csv_field(name);
    }
    putchar('\n');
}

static void print_row(const struct compared *c, size_t r, const char *const *tasks, size_t n_tasks)
{
    const struct ddl_run_log *log = &c->logs[r];
    const struct ddl_compare_group *group = &c->result.groups[c->result.group_of[r]];
    const struct costs costs = costs_of(log);
    print_csv_field(c->names[r]);
    putchar(',');
    print_csv_field(compared_group_name(c, c->result.group_of[r]));
    printf(",%s,", c->result.repeats[r] ? "true" : "false");
    if (log->recipe)
        printf("%llu", (unsigned long long)log->recipe->seed);
    printf(",%s,%s,%zu,%llu", compared_preset(log), c->models[r].name, log->n_params,
           (unsigned long long)log->points[log->n - 1].step);
    print_values(cost_figures, &costs);
    print_values(reach_figures, &c->result.reach[r]);
    printf(",%zu,%llu,%llu", group->n, (unsigned long long)group->step, (unsigned long long)group->val_step);
    print_values(mean_figures, &group->train_loss);
    print_values(test_figures, &group->train_test);
    print_values(mean_figures, &group->val_loss);
    print_values(test_figures, &group->val_test);
    print_values(reach_figures, &group->reach);
    for (size_t t = 0; t < n_tasks; t++) {
        const struct ddl_run_score *score = ddl_run_log_score(log, tasks[t]);
        print_value(score ? score->value : NAN);
    }
    putchar('\n');
}

int print_compared_csv(const struct compared *c)
{
    size_t n_tasks;
    if (c->n_contrasts > 0)
        return print_contrasts_csv(c);
    const char **tasks = compared_tasks(c, &n_tasks);
    if (!tasks)
        return EXIT_FAILED;
    print_heads(c, tasks, n_tasks);
    for (size_t r = 0; r < c->n; r++)
        print_row(c, r, tasks, n_tasks);
    free(tasks);
    return EXIT_OK;
}
