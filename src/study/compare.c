#include "ddl/compare.h"

#include "study/recipes.h"
#include "study/statistics.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct comparing {
    const struct ddl_run_log *logs; /* (n) */
    const char *const *names;       /* (n) */
    size_t n;
    const struct ddl_compare_options *options;
    double *scratch; /* (2 n) */
};

static ddl_status out_of_memory(struct ddl_error *err)
{
    return ddl_error_set(err, DDL_E_MEMORY, "out of memory for the comparison of the runs");
}

__attribute__((format(printf, 2, 3))) static void note(const struct comparing *c, const char *format, ...)
{
    char text[1024];
    va_list arguments;
    if (!c->options->note)
        return;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    c->options->note(c->options->user, text);
}

/* ---- what can be compared ---- */

static bool is_validated(const struct ddl_run_log *log)
{
    return !isnan(ddl_run_log_final_val(log));
}

/* The first run that has a recipe, and was validated if that is required; c->n if there is none. */
static size_t first_run(const struct comparing *c, bool validated)
{
    size_t first = 0;
    while (first < c->n && (!c->logs[first].recipe || (validated && !is_validated(&c->logs[first]))))
        first++;
    return first;
}

/* Run r against the first that has a recipe; their validation data against the first that was validated. */
static ddl_status check_run(const struct comparing *c, size_t r, struct ddl_error *err)
{
    const struct ddl_run_log *run = &c->logs[r];
    struct recipe_difference d;
    size_t first = first_run(c, false);
    bool differ = recipes_differ_in_data(c->logs[first].recipe, run->recipe, false, &d);
    if (!differ && is_validated(run)) {
        first = first_run(c, true);
        differ = recipes_differ_in_data(c->logs[first].recipe, run->recipe, true, &d);
    }
    if (!differ)
        return DDL_OK;
    char text[900];
    snprintf(text, sizeof text, "%.200s: %s differs from %.200s: expected %.200s, found %.200s", c->names[r],
             d.key, c->names[first], *d.a ? d.a : "nothing", *d.b ? d.b : "nothing");
    if (!c->options->any)
        return ddl_error_set(err, DDL_E_FORMAT, "%s", text);
    note(c, "%s", text);
    return DDL_OK;
}

static ddl_status check_data(const struct comparing *c, struct ddl_error *err)
{
    ddl_status status = DDL_OK;
    for (size_t r = 0; !status && c->n > 1 && r < c->n; r++) {
        if (c->logs[r].recipe)
            status = check_run(c, r, err);
        else
            note(c, "%.400s: %.500s: a group of its own, data not checked", c->names[r],
                 *c->logs[r].recipe_error ? c->logs[r].recipe_error : "no recipe.yaml");
    }
    return status;
}

/* ---- groups ---- */

static size_t find_group(const struct comparing *c, const struct ddl_comparison *out, size_t run)
{
    const struct ddl_train_config *recipe = c->logs[run].recipe;
    for (size_t g = 0; recipe && g < out->n_groups; g++) {
        const struct ddl_train_config *other = c->logs[out->groups[g].runs[0]].recipe;
        if (other && recipes_are_replicates(other, recipe))
            return g;
    }
    return out->n_groups;
}

/* Which run of the group has the seed of `run`, or SIZE_MAX. */
static size_t same_seed(const struct comparing *c, const struct ddl_compare_group *group, size_t run)
{
    for (size_t i = 0; c->logs[run].recipe && i < group->n; i++) {
        const struct ddl_train_config *other = c->logs[group->runs[i]].recipe;
        if (other && other->seed == c->logs[run].recipe->seed)
            return i;
    }
    return SIZE_MAX;
}

static ddl_status make_groups(const struct comparing *c, struct ddl_comparison *out, struct ddl_error *err)
{
    for (size_t r = 0; r < c->n; r++) {
        size_t g = find_group(c, out, r);
        struct ddl_compare_group *group = &out->groups[g];
        if (g == out->n_groups) {
            group->runs = calloc(c->n, sizeof *group->runs);
            if (!group->runs)
                return out_of_memory(err);
            out->n_groups++;
        }
        out->group_of[r] = g;
        size_t earlier = same_seed(c, group, r);
        out->repeats[r] = earlier != SIZE_MAX;
        if (out->repeats[r])
            note(c, "%.400s: same options and seed as %.400s: left out of the statistics", c->names[r],
                 c->names[group->runs[earlier]]);
        else
            group->runs[group->n++] = r;
    }
    out->baseline = out->group_of[c->options->baseline];
    return DDL_OK;
}

/* ---- the step of the comparison ---- */

/* NULL if the log has no point of the step. */
static const struct ddl_run_point *point_at(const struct ddl_run_log *log, uint64_t step)
{
    size_t low = 0, high = log->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (log->points[middle].step < step)
            low = middle + 1;
        else
            high = middle;
    }
    return low < log->n && log->points[low].step == step ? &log->points[low] : NULL;
}

/* The last steps that some runs have in common: of all, and of those with a validation after training began
 * (0: none). */
struct common {
    uint64_t step, val_step;
};

static bool all_validated_at(const struct comparing *c, const size_t *runs, size_t n, uint64_t step)
{
    for (size_t i = 0; i < n; i++) {
        const struct ddl_run_log *log = &c->logs[runs[i]];
        const struct ddl_run_point *point = point_at(log, step);
        if (is_validated(log) && (!point || isnan(point->val_loss)))
            return false;
    }
    return true;
}

static struct common common_steps(const struct comparing *c, const size_t *runs, size_t n)
{
    struct common out = { UINT64_MAX, 0 };
    const struct ddl_run_log *first = NULL;
    for (size_t i = 0; i < n; i++) {
        const struct ddl_run_log *log = &c->logs[runs[i]];
        uint64_t last = log->points[log->n - 1].step;
        out.step = last < out.step ? last : out.step;
        if (!first && is_validated(log))
            first = log;
    }
    for (size_t i = first ? first->n : 0; i-- > 0;) {
        if (first->points[i].step > 0 && !isnan(first->points[i].val_loss) &&
            all_validated_at(c, runs, n, first->points[i].step)) {
            out.val_step = first->points[i].step;
            break;
        }
    }
    return out;
}

static ddl_status set_steps(const struct comparing *c, struct ddl_comparison *out, struct ddl_error *err)
{
    size_t *all = calloc(c->n, sizeof *all), n = 0;
    bool shortened = false;
    if (!all)
        return out_of_memory(err);
    for (size_t r = 0; r < c->n; r++) {
        if (!out->repeats[r])
            all[n++] = r;
    }
    struct common common = common_steps(c, all, n);
    free(all);
    for (size_t g = 0; g < out->n_groups; g++) {
        struct ddl_compare_group *group = &out->groups[g];
        if (c->options->any)
            common = common_steps(c, group->runs, group->n);
        group->step = common.step;
        group->val_step = common.val_step;
        for (size_t i = 0; i < group->n; i++) {
            const struct ddl_run_log *log = &c->logs[group->runs[i]];
            shortened = shortened || log->points[log->n - 1].step > common.step;
        }
    }
    if (shortened && c->options->any)
        note(c, "last steps differ: each group is compared at the last step that all of its runs have");
    else if (shortened)
        note(c, "last steps differ: all groups are compared at step %llu, the last that all runs have",
             (unsigned long long)common.step);
    return DDL_OK;
}

/* ---- losses ---- */

static double val_loss_of(const struct ddl_compare_group *group, const struct ddl_run_log *log)
{
    const struct ddl_run_point *point = point_at(log, group->val_step);
    return point && group->val_step > 0 ? point->val_loss : NAN;
}

static double train_loss_of(const struct ddl_compare_group *group, const struct ddl_run_log *log)
{
    struct ddl_run_log first = *log; /* shallow: its first points */
    while (first.n > 0 && first.points[first.n - 1].step > group->step)
        first.n--;
    return ddl_run_log_final_train(&first);
}

static ddl_status set_losses(const struct comparing *c, struct ddl_compare_group *group,
                             struct ddl_error *err)
{
    group->train_losses = calloc(group->n, sizeof *group->train_losses);
    group->val_losses = calloc(group->n, sizeof *group->val_losses);
    if (!group->train_losses || !group->val_losses)
        return out_of_memory(err);
    for (size_t i = 0; i < group->n; i++) {
        const struct ddl_run_log *log = &c->logs[group->runs[i]];
        group->train_losses[i] = train_loss_of(group, log);
        group->val_losses[i] = val_loss_of(group, log);
    }
    group->train_loss = statistics_mean(group->train_losses, group->n);
    group->val_loss = statistics_mean(group->val_losses, group->n);
    return DDL_OK;
}

/* ---- task scores ---- */

/* The run's last score on the task up to `step`; NULL if there is none. */
static const struct ddl_run_score *score_at(const struct ddl_run_log *log, const char *task, uint64_t step)
{
    struct ddl_run_log first = *log; /* shallow: its first scores */
    while (first.n_scores > 0 && first.scores[first.n_scores - 1].step > step)
        first.n_scores--;
    return ddl_run_log_score(&first, task);
}

/* The values of all runs of the group on the task of `score`, which is its first run's; false if a run has
 * none. */
static bool read_scores(const struct comparing *c, const struct ddl_compare_group *group,
                        const struct ddl_run_score *score, double *values)
{
    for (size_t i = 0; i < group->n; i++) {
        const struct ddl_run_score *own = score_at(&c->logs[group->runs[i]], score->task, group->step);
        if (!own || strcmp(own->value_name, score->value_name) != 0)
            return false;
        values[i] = own->value;
    }
    return true;
}

static ddl_status set_scores(const struct comparing *c, struct ddl_compare_group *group,
                             struct ddl_error *err)
{
    const struct ddl_run_log *log = &c->logs[group->runs[0]];
    group->scores = calloc(log->n_scores ? log->n_scores : 1, sizeof *group->scores);
    if (!group->scores)
        return out_of_memory(err);
    for (size_t i = 0; i < log->n_scores; i++) {
        const struct ddl_run_score *score = &log->scores[i];
        struct ddl_group_score *out = &group->scores[group->n_scores];
        if (score_at(log, score->task, group->step) != score || !read_scores(c, group, score, c->scratch))
            continue;
        out->values = calloc(group->n, sizeof *out->values);
        if (!out->values)
            return out_of_memory(err);
        memcpy(out->values, c->scratch, group->n * sizeof *out->values);
        out->task = score->task;
        out->value_name = score->value_name;
        out->mean = statistics_mean(out->values, group->n);
        group->n_scores++;
    }
    return DDL_OK;
}

/* ---- tests ---- */

/* The values of a group's runs, and their mean. */
struct sample {
    const double *values;
    const struct ddl_mean *mean;
};

/* The values of the pairs of equal seed into the scratch memory; 0 unless the groups have the same seeds. */
static size_t pair(const struct comparing *c, const struct ddl_compare_group *a, const double *values_a,
                   const struct ddl_compare_group *b, const double *values_b)
{
    if (a->n != b->n || !c->logs[a->runs[0]].recipe)
        return 0;
    for (size_t i = 0; i < a->n; i++) {
        size_t other = same_seed(c, b, a->runs[i]);
        if (other == SIZE_MAX)
            return 0;
        c->scratch[i] = values_a[i];
        c->scratch[c->n + i] = values_b[other];
    }
    return a->n;
}

static struct ddl_test test_against(const struct comparing *c, const struct ddl_compare_group *group,
                                    struct sample a, const struct ddl_compare_group *baseline,
                                    struct sample b)
{
    struct ddl_test test = { .difference = NAN, .welch_p = NAN, .paired_p = NAN };
    if (group == baseline)
        return test;
    test.difference = a.mean->mean - b.mean->mean;
    test.welch_p = statistics_welch(a.mean, b.mean);
    test.n_pairs = pair(c, group, a.values, baseline, b.values);
    test.paired_p = statistics_paired(c->scratch, c->scratch + c->n, test.n_pairs);
    return test;
}

static void set_score_tests(const struct comparing *c, struct ddl_compare_group *group,
                            const struct ddl_compare_group *baseline)
{
    for (size_t i = 0; i < group->n_scores; i++) {
        struct ddl_group_score *own = &group->scores[i];
        own->test = (struct ddl_test){ .difference = NAN, .welch_p = NAN, .paired_p = NAN };
        for (size_t j = 0; j < baseline->n_scores; j++) {
            const struct ddl_group_score *other = &baseline->scores[j];
            if (strcmp(own->task, other->task) == 0 && strcmp(own->value_name, other->value_name) == 0)
                own->test = test_against(c, group, (struct sample){ own->values, &own->mean }, baseline,
                                         (struct sample){ other->values, &other->mean });
        }
    }
}

static void set_tests(const struct comparing *c, struct ddl_compare_group *group,
                      const struct ddl_compare_group *baseline)
{
    group->train_test =
        test_against(c, group, (struct sample){ group->train_losses, &group->train_loss }, baseline,
                     (struct sample){ baseline->train_losses, &baseline->train_loss });
    group->val_test = test_against(c, group, (struct sample){ group->val_losses, &group->val_loss }, baseline,
                                   (struct sample){ baseline->val_losses, &baseline->val_loss });
    set_score_tests(c, group, baseline);
}

/* ---- curves ---- */

/* Fields of a point whose mean over runs is taken. */
static const size_t fields[] = {
    offsetof(struct ddl_run_point, loss),         offsetof(struct ddl_run_point, val_loss),
    offsetof(struct ddl_run_point, tokens),       offsetof(struct ddl_run_point, flops),
    offsetof(struct ddl_run_point, seconds),      offsetof(struct ddl_run_point, train_seconds),
    offsetof(struct ddl_run_point, tokens_per_s), offsetof(struct ddl_run_point, peak_memory),
};

static double *field_of(struct ddl_run_point *point, size_t field)
{
    return (double *)(void *)((char *)point + fields[field]);
}

/* Adds the mean of the runs' points of the step to the curve; nothing if a run has none. */
static void add_point(const struct comparing *c, struct ddl_compare_group *group, uint64_t step)
{
    struct ddl_run_point mean = { .step = step };
    struct ddl_band band = { INFINITY, -INFINITY, INFINITY, -INFINITY };
    for (size_t i = 0; i < group->n; i++) {
        const struct ddl_run_point *found = point_at(&c->logs[group->runs[i]], step);
        if (!found)
            return;
        struct ddl_run_point point = *found;
        for (size_t f = 0; f < sizeof fields / sizeof *fields; f++)
            *field_of(&mean, f) += *field_of(&point, f) / (double)group->n;
        band.loss_low = fmin(band.loss_low, point.loss);
        band.loss_high = fmax(band.loss_high, point.loss);
        band.val_low = fmin(band.val_low, point.val_loss);
        band.val_high = fmax(band.val_high, point.val_loss);
    }
    if (isnan(mean.loss))
        band.loss_low = band.loss_high = NAN;
    if (isnan(mean.val_loss))
        band.val_low = band.val_high = NAN;
    group->curve[group->n_points] = mean;
    group->band[group->n_points++] = band;
}

static ddl_status make_curve(const struct comparing *c, struct ddl_compare_group *group,
                             struct ddl_error *err)
{
    const struct ddl_run_log *first = &c->logs[group->runs[0]];
    group->curve = calloc(first->n, sizeof *group->curve);
    group->band = calloc(first->n, sizeof *group->band);
    if (!group->curve || !group->band)
        return out_of_memory(err);
    for (size_t i = 0; i < first->n; i++)
        add_point(c, group, first->points[i].step);
    return DDL_OK;
}

/* The first crossing of the target by straight lines between validations. `total`: the baseline's. */
static struct ddl_reach reach_of(const struct ddl_run_point *points, size_t n, double target,
                                 const struct ddl_run_point *total)
{
    const struct ddl_run_point *before = NULL;
    for (size_t i = 0; i < n && !isnan(target); i++) {
        const struct ddl_run_point *p = &points[i];
        if (isnan(p->val_loss))
            continue;
        if (p->val_loss > target) {
            before = p;
            continue;
        }
        const struct ddl_run_point *from = before ? before : p;
        double share = before ? (before->val_loss - target) / (before->val_loss - p->val_loss) : 0;
        struct ddl_reach out = { .tokens = from->tokens + share * (p->tokens - from->tokens),
                                 .flops = from->flops + share * (p->flops - from->flops),
                                 .seconds =
                                     from->train_seconds + share * (p->train_seconds - from->train_seconds) };
        out.tokens_ratio = out.tokens / total->tokens;
        out.flops_ratio = out.flops / total->flops;
        out.seconds_ratio = out.seconds / total->train_seconds;
        return out;
    }
    return (struct ddl_reach){ NAN, NAN, NAN, NAN, NAN, NAN };
}

static void set_reach(const struct comparing *c, struct ddl_comparison *out)
{
    const struct ddl_compare_group *baseline = &out->groups[out->baseline];
    struct ddl_run_point total = { .val_loss = NAN };
    for (size_t i = 0; i < baseline->n_points; i++) {
        if (baseline->val_step > 0 && baseline->curve[i].step == baseline->val_step)
            total = baseline->curve[i];
    }
    out->target = total.val_loss; /* not val_loss.mean, which may be rounded differently */
    for (size_t g = 0; g < out->n_groups; g++)
        out->groups[g].reach = reach_of(out->groups[g].curve, out->groups[g].n_points, out->target, &total);
    for (size_t r = 0; r < c->n; r++)
        out->reach[r] = reach_of(c->logs[r].points, c->logs[r].n, out->target, &total);
}

/* ---- putting it together ---- */

static ddl_status compare(const struct comparing *c, struct ddl_comparison *out, struct ddl_error *err)
{
    ddl_status status = check_data(c, err);
    if (!status)
        status = make_groups(c, out, err);
    if (!status)
        status = set_steps(c, out, err);
    for (size_t g = 0; !status && g < out->n_groups; g++) {
        struct ddl_compare_group *group = &out->groups[g];
        status = set_losses(c, group, err);
        if (!status)
            status = set_scores(c, group, err);
        if (!status)
            status = make_curve(c, group, err);
    }
    if (status)
        return status;
    for (size_t g = 0; g < out->n_groups; g++)
        set_tests(c, &out->groups[g], &out->groups[out->baseline]);
    set_reach(c, out);
    return DDL_OK;
}

ddl_status ddl_compare(struct ddl_comparison *out, const struct ddl_run_log *logs, const char *const *names,
                       size_t n, const struct ddl_compare_options *options, struct ddl_error *err)
{
    struct comparing c = { logs, names, n, options, calloc(2 * n, sizeof *c.scratch) };
    *out = (struct ddl_comparison){ .n_runs = n,
                                    .groups = calloc(n, sizeof *out->groups),
                                    .group_of = calloc(n, sizeof *out->group_of),
                                    .repeats = calloc(n, sizeof *out->repeats),
                                    .reach = calloc(n, sizeof *out->reach) };
    bool allocated = c.scratch && out->groups && out->group_of && out->repeats && out->reach;
    ddl_status status = allocated ? compare(&c, out, err) : out_of_memory(err);
    free(c.scratch);
    return status;
}

void ddl_comparison_free(struct ddl_comparison *comparison)
{
    for (size_t g = 0; g < comparison->n_groups; g++) {
        free(comparison->groups[g].runs);
        free(comparison->groups[g].train_losses);
        free(comparison->groups[g].val_losses);
        free(comparison->groups[g].curve);
        free(comparison->groups[g].band);
        for (size_t i = 0; i < comparison->groups[g].n_scores; i++)
            free(comparison->groups[g].scores[i].values);
        free(comparison->groups[g].scores);
    }
    free(comparison->groups);
    free(comparison->group_of);
    free(comparison->repeats);
    free(comparison->reach);
    *comparison = (struct ddl_comparison){ 0 };
}
