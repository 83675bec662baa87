#include "ddl/contrast.h"

#include "study/contrast_terms.h"
#include "study/statistics.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TERM = 512 };
static const double USUAL_LEVEL = 0.05;

struct testing {
    const struct ddl_comparison *comparison;
    const struct ddl_run_log *logs;
    struct contrast_groups groups;
    double *weights; /* (n_groups) of a contrast */
    double *values;  /* (2 n_runs)              */
    bool val;
};

/* ---- the form of a contrast ---- */

/* Whether `*` in the pattern, for any characters, makes it the name. */
static bool matches(const char *pattern, const char *name)
{
    while (*pattern && *pattern != '*') {
        if (*pattern++ != *name++)
            return false;
    }
    if (!*pattern)
        return !*name;
    while (*pattern == '*')
        pattern++;
    for (;; name++) {
        if (matches(pattern, name))
            return true;
        if (!*name)
            return false;
    }
}

enum match { MATCH_NAME, MATCH_MODEL, MATCH_PATTERN, N_MATCHES };

static bool is_match(const struct contrast_groups *groups, size_t g, const char *term, enum match how)
{
    if (how == MATCH_NAME)
        return strcmp(groups->names[g], term) == 0;
    if (how == MATCH_PATTERN)
        return matches(term, groups->names[g]);
    return groups->models[g] && strcmp(groups->models[g], term) == 0;
}

/* A term of a contrast. */
struct term {
    char text[MAX_TERM];
    int sign;
};

/* Adds the sign of a term to the weights of its groups. */
static ddl_status add_term(const struct contrast_groups *groups, const char *text, const struct term *term,
                           double *weights, struct ddl_error *err)
{
    size_t n = 0;
    for (int how = 0; how < N_MATCHES && n == 0; how++) {
        for (size_t g = 0; g < groups->n; g++) {
            if (!is_match(groups, g, term->text, (enum match)how))
                continue;
            if (weights[g] != 0 && (weights[g] > 0) != (term->sign > 0))
                return ddl_error_set(err, DDL_E_USAGE,
                                     "%s '%.300s': %.300s is on both sides: expected different groups",
                                     groups->source, text, groups->names[g]);
            weights[g] = term->sign;
            n++;
        }
        if (how == MATCH_NAME && n > 1)
            return ddl_error_set(err, DDL_E_USAGE,
                                 "%s '%.300s': %.300s: expected the name of one group, found %zu groups; "
                                 "compare the runs of one folder, or rename the folders of the others",
                                 groups->source, text, term->text, n);
    }
    if (n == 0)
        return ddl_error_set(err, DDL_E_USAGE,
                             "%s '%.300s': no such group: expected a group, such as %.300s, a model or "
                             "a pattern with *, found '%.300s'",
                             groups->source, text, groups->names[0], term->text);
    return DDL_OK;
}

/* The next " + " or " - " of the text, or its end. */
static const char *next_operator(const char *at)
{
    while (*at && strncmp(at, " + ", 3) != 0 && strncmp(at, " - ", 3) != 0)
        at++;
    return at;
}

ddl_status contrast_set_weights(const struct contrast_groups *groups, const char *text, double *weights,
                                struct ddl_error *err)
{
    const char *at = text;
    struct term term = { .sign = 1 };
    double left = 0, right = 0;
    for (size_t g = 0; g < groups->n; g++)
        weights[g] = 0;
    for (;;) {
        const char *end = next_operator(at);
        while (*at == ' ')
            at++;
        int length = at < end ? (int)(end - at) : 0;
        while (length > 0 && at[length - 1] == ' ')
            length--;
        snprintf(term.text, sizeof term.text, "%.*s", length, at);
        ddl_status status = add_term(groups, text, &term, weights, err);
        if (status)
            return status;
        if (!*end)
            break;
        term.sign = end[1] == '+' ? 1 : -1;
        at = end + 3;
    }
    for (size_t g = 0; g < groups->n; g++) {
        left += weights[g] > 0;
        right += weights[g] < 0;
    }
    if (!(left > 0) || !(right > 0))
        return ddl_error_set(err, DDL_E_USAGE, "%s '%.300s': expected 'A - B', found no ' - '",
                             groups->source, text);
    for (size_t g = 0; g < groups->n; g++)
        weights[g] /= weights[g] > 0 ? left : right;
    return DDL_OK;
}

/* ---- estimates ---- */

static const double *losses_of(const struct testing *t, const struct ddl_compare_group *group)
{
    return t->val ? group->val_losses : group->train_losses;
}

/* The run of the seed in the group; SIZE_MAX if there is none. */
static size_t run_of_seed(const struct testing *t, const struct ddl_compare_group *group, uint64_t seed)
{
    for (size_t i = 0; i < group->n; i++) {
        const struct ddl_train_config *recipe = t->logs[group->runs[i]].recipe;
        if (recipe && recipe->seed == seed)
            return i;
    }
    return SIZE_MAX;
}

enum side { BOTH, LEFT, RIGHT };

static bool is_of(double weight, enum side side)
{
    return weight != 0 && (side == BOTH || (weight > 0) == (side == LEFT));
}

/* The weighted sum of the runs with the seed on a side; NaN unless all of its groups have one. */
static double of_seed(const struct testing *t, enum side side, uint64_t seed)
{
    double sum = 0;
    for (size_t g = 0; g < t->comparison->n_groups; g++) {
        const struct ddl_compare_group *group = &t->comparison->groups[g];
        if (!is_of(t->weights[g], side))
            continue;
        size_t run = run_of_seed(t, group, seed);
        if (run == SIZE_MAX)
            return NAN;
        sum += t->weights[g] * losses_of(t, group)[run];
    }
    return sum;
}

/* The sums of a side, or their differences, for the seeds that all of its groups have. */
static struct ddl_mean mean_of(struct testing *t, enum side side)
{
    double *subtracted = t->values + t->comparison->n_runs;
    size_t first = 0, n = 0;
    while (!is_of(t->weights[first], side))
        first++;
    const struct ddl_compare_group *group = &t->comparison->groups[first];
    for (size_t i = 0; i < group->n; i++) {
        const struct ddl_train_config *recipe = t->logs[group->runs[i]].recipe;
        const double left = recipe && side != RIGHT ? of_seed(t, LEFT, recipe->seed) : 0;
        const double right = recipe && side != LEFT ? of_seed(t, RIGHT, recipe->seed) : 0;
        if (!recipe || isnan(left) || isnan(right))
            continue;
        t->values[n] = left;
        subtracted[n++] = -right;
    }
    return statistics_mean_difference(t->values, subtracted, n);
}

/* Variance of a contrast of n seeds on each side is sd^2/n, with (n - 1) df_factor degrees of freedom. */
struct spread {
    double sd, df_factor;
};

/* Paired where two seeds or more are on both sides; else Welch's test of the sides, each averaged by seed,
 * since runs with the same seed are not independent. */
static struct spread estimate(struct testing *t, struct ddl_contrast *out)
{
    const struct ddl_mean pairs = mean_of(t, BOTH);
    out->n = pairs.n;
    if (pairs.n >= 2) {
        out->difference = pairs.mean;
        out->error = pairs.sd / sqrt((double)pairs.n);
        out->df = (double)(pairs.n - 1);
        return (struct spread){ pairs.sd, 1 };
    }
    double squares = 0, parts = 0, sum = 0, sum_squares = 0;
    out->difference = 0;
    for (int side = LEFT; side <= RIGHT; side++) {
        const struct ddl_mean mean = mean_of(t, (enum side)side);
        const double q = mean.sd * mean.sd, n = (double)mean.n;
        out->difference += mean.mean;
        squares += q / n;
        parts += q / n * (q / n) / (n - 1);
        sum += q;
        sum_squares += q * q;
    }
    out->error = sqrt(squares);
    out->df = squares * squares / parts;
    return (struct spread){ sqrt(sum), sum * sum / sum_squares };
}

/* `level`: of a test, after the correction. */
static void test(struct testing *t, struct ddl_contrast *out, const struct ddl_contrast_options *options,
                 double level)
{
    const struct spread spread = estimate(t, out);
    const double statistic = out->difference / out->error, margin = options->margin;
    if (!(out->error > 0))
        return;
    out->p = out->holm_p = statistics_t_two_sided(statistic, out->df);
    const double outer = statistics_t_critical(out->level, out->df) * out->error;
    const double inner = statistics_t_critical(2 * out->level, out->df) * out->error;
    out->low = out->difference - outer;
    out->high = out->difference + outer;
    out->inner_low = out->difference - inner;
    out->inner_high = out->difference + inner;
    const double scale = out->error / spread.sd; /* 1/sqrt(n) */
    out->effect = statistic * scale;
    out->effect_low = statistics_t_noncentrality(statistic, out->df, 1 - out->level / 2) * scale;
    out->effect_high = statistics_t_noncentrality(statistic, out->df, out->level / 2) * scale;
    if (margin > 0)
        out->equivalence_p = out->equivalence_holm_p =
            statistics_t_upper((margin - fabs(out->difference)) / out->error, out->df);
    const double detect = options->detect > 0 ? options->detect : margin;
    if (detect > 0)
        out->seeds = statistics_seeds(detect / spread.sd, spread.df_factor, level, options->power);
    if (margin > 0)
        out->equivalence_seeds =
            statistics_equivalence_seeds(margin / spread.sd, spread.df_factor, level, options->power);
}

/* ---- Holm's correction ---- */

static double p_of(const struct ddl_contrast *contrast, bool equivalence)
{
    return equivalence ? contrast->equivalence_p : contrast->p;
}

/* The corrected p-value of contrast i, of its difference or its equivalence: the largest (m - r) p_r of the
 * p-values up to its own, where r counts from 0 in rising order, and m is the number of contrasts. One
 * without a p-value was planned, too: it counts as the largest. */
static double corrected(const struct ddl_contrast *contrasts, size_t n, size_t i, bool equivalence)
{
    const double own = p_of(&contrasts[i], equivalence);
    double largest = 0;
    if (isnan(own))
        return NAN;
    for (size_t j = 0; j < n; j++) {
        const double p = p_of(&contrasts[j], equivalence);
        size_t not_smaller = 0;
        if (isnan(p) || p > own)
            continue;
        for (size_t k = 0; k < n; k++)
            not_smaller += !(p_of(&contrasts[k], equivalence) < p);
        largest = fmax(largest, (double)not_smaller * p);
    }
    return fmin(largest, 1);
}

/* ---- the contrasts ---- */

static bool all_validated(const struct testing *t)
{
    for (size_t g = 0; g < t->comparison->n_groups; g++) {
        if (t->weights[g] != 0 && isnan(t->comparison->groups[g].val_loss.mean))
            return false;
    }
    return true;
}

static ddl_status test_all(struct testing *t, struct ddl_contrast *out, const char *const *texts, size_t n,
                           const struct ddl_contrast_options *options, struct ddl_error *err)
{
    for (size_t i = 0; i < n; i++) {
        out[i] = (struct ddl_contrast){ .text = texts[i],
                                        .difference = NAN,
                                        .error = NAN,
                                        .df = NAN,
                                        .low = NAN,
                                        .high = NAN,
                                        .p = NAN,
                                        .holm_p = NAN,
                                        .effect = NAN,
                                        .effect_low = NAN,
                                        .effect_high = NAN,
                                        .inner_low = NAN,
                                        .inner_high = NAN,
                                        .equivalence_p = NAN,
                                        .equivalence_holm_p = NAN,
                                        .seeds = NAN,
                                        .equivalence_seeds = NAN,
                                        .level = options->level > 0 ? options->level : USUAL_LEVEL };
        ddl_status status = contrast_set_weights(&t->groups, texts[i], t->weights, err);
        if (status)
            return status;
        for (size_t g = 0; g < t->groups.n; g++) {
            out[i].n_left += t->weights[g] > 0;
            out[i].n_right += t->weights[g] < 0;
        }
        t->val = all_validated(t);
        out[i].loss = t->val ? "val" : "train";
        test(t, &out[i], options, options->holm ? out[i].level / (double)n : out[i].level);
    }
    for (size_t i = 0; options->holm && i < n; i++) {
        out[i].holm_p = corrected(out, n, i, false);
        out[i].equivalence_holm_p = corrected(out, n, i, true);
    }
    return DDL_OK;
}

/* The model that the run has saved or, without one, that of its recipe; NULL if neither has a name. */
static const char *model_of(const struct ddl_run_log *log)
{
    if (log->has_config)
        return ddl_config_preset_name(&log->config);
    return log->recipe ? ddl_config_preset_name(&log->recipe->config) : NULL;
}

ddl_status ddl_contrasts_test(struct ddl_contrast *out, const struct ddl_comparison *comparison,
                              const struct ddl_run_log *logs, const char *const *group_names,
                              const char *const *texts, size_t n, const struct ddl_contrast_options *options,
                              struct ddl_error *err)
{
    const size_t n_groups = comparison->n_groups;
    struct testing t = { .comparison = comparison,
                         .logs = logs,
                         .groups = { "--contrast", calloc(n_groups, sizeof *t.groups.names),
                                     calloc(n_groups, sizeof *t.groups.models), n_groups },
                         .weights = calloc(n_groups, sizeof *t.weights),
                         .values = calloc(2 * comparison->n_runs, sizeof *t.values) };
    const bool allocated = t.groups.names && t.groups.models && t.weights && t.values;
    for (size_t g = 0; allocated && g < n_groups; g++) {
        const struct ddl_run_log *log = &logs[comparison->groups[g].runs[0]];
        t.groups.names[g] = group_names[g];
        t.groups.models[g] = model_of(log);
    }
    ddl_status status = allocated ? test_all(&t, out, texts, n, options, err)
                                  : ddl_error_set(err, DDL_E_MEMORY, "out of memory for the contrasts");
    free(t.groups.names);
    free(t.groups.models);
    free(t.weights);
    free(t.values);
    return status;
}

const char *ddl_contrast_result(const struct ddl_contrast *contrast)
{
    const bool differs = contrast->holm_p < contrast->level,
               equivalent = contrast->equivalence_holm_p < contrast->level;
    if (isnan(contrast->holm_p))
        return "-";
    if (!differs)
        return equivalent ? "equivalent" : "undecided";
    if (contrast->difference < 0)
        return equivalent ? "lower, equivalent" : "lower";
    return equivalent ? "higher, equivalent" : "higher";
}
