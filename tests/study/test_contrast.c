/* study/contrast.c against scipy 1.17 and statsmodels 0.14, and ddl compare --contrast. */
#include "support/files.h"
#include "support/support.h"

#include "base/file.h"
#include "ddl/contrast.h"
#include "study/statistics.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_GROUPS = 3, N_SEEDS = 3, OUTPUT = 1 << 16 };

static const char *const names[N_GROUPS] = { "m=a", "m=b", "m=c" };
static const double losses[N_GROUPS][N_SEEDS] = { { 3.0, 3.2, 3.4 },
                                                  { 2.8, 3.1, 3.0 },
                                                  { 3.05, 3.24, 3.41 } };

/* A comparison of the groups. The seeds of a group start at first_seeds[g]. */
struct fixture {
    struct ddl_run_log logs[N_GROUPS * N_SEEDS];
    struct ddl_train_config recipes[N_GROUPS * N_SEEDS];
    size_t runs[N_GROUPS][N_SEEDS];
    struct ddl_compare_group groups[N_GROUPS];
    struct ddl_comparison comparison;
    struct ddl_contrast out[4];
    struct ddl_error err;
};

static ddl_status contrast(struct fixture *f, const uint64_t *first_seeds, const char *const *texts, size_t n,
                           struct ddl_contrast_options options)
{
    memset(f, 0, sizeof *f);
    for (size_t g = 0; g < N_GROUPS; g++) {
        struct ddl_compare_group *group = &f->groups[g];
        for (size_t i = 0; i < N_SEEDS; i++) {
            size_t r = g * N_SEEDS + i;
            f->recipes[r].seed = first_seeds[g] + i;
            f->logs[r].recipe = &f->recipes[r];
            f->runs[g][i] = r;
        }
        *group = (struct ddl_compare_group){ .runs = f->runs[g],
                                             .n = N_SEEDS,
                                             .val_losses = (double *)(void *)losses[g],
                                             .val_loss = statistics_mean(losses[g], N_SEEDS) };
    }
    f->comparison =
        (struct ddl_comparison){ .groups = f->groups, .n_groups = N_GROUPS, .n_runs = N_GROUPS * N_SEEDS };
    return ddl_contrasts_test(f->out, &f->comparison, f->logs, names, texts, n, &options, &f->err);
}

static void near(double found, double expected)
{
    if (!(fabs(found - expected) <= 1e-9 * fabs(expected)))
        fail_msg("expected %.15g, found %.15g", expected, found);
}

static const uint64_t same_seeds[N_GROUPS] = { 0 };
static const char *const three[] = { "m=b - m=a", "m=c - m=a", "m=c - m=b" };

static void paired_tests(void **state)
{
    (void)state;
    struct fixture f;
    const struct ddl_contrast_options options = { .margin = 0.1, .power = 0.8, .holm = true };
    assert_ok(contrast(&f, same_seeds, three, 3, options), f.err);
    const struct ddl_contrast *b = &f.out[0], *c = &f.out[1];
    assert_string_equal(b->loss, "val");
    assert_int_equal(b->n, 3);
    /* stats.ttest_rel, its confidence_interval(0.95) and (0.9) */
    near(b->difference, -0.7 / 3);
    near(b->error, 0.08819171036881965);
    near(b->p, 0.11808289631180295);
    near(b->low, -0.6127916366930091);
    near(b->high, 0.14612497002634234);
    near(b->inner_low, -0.49085185591701896);
    near(b->inner_high, 0.024185189250351957);
    near(b->effect, -1.5275252316519479);
    near(c->p, 0.10912919362525017);
    near(f.out[2].p, 0.076608851914075);
    /* stats.nct.cdf(t, 2, d sqrt(3)) = 0.975 and 0.025 */
    near(c->effect, 1.6012815380508876);
    near(c->effect_low, -0.2725973054045884);
    near(c->effect_high, 3.397732173017434);
    /* statsmodels: ttost_paired, and multipletests(method='holm') */
    near(b->equivalence_p, 0.8651483716701109);
    near(c->equivalence_p, 0.015498416888490503);
    near(c->equivalence_holm_p, 0.046495250665471506);
    near(b->equivalence_holm_p, 1);
    for (size_t i = 0; i < 3; i++)
        near(f.out[i].holm_p, 0.229826555742225);
    /* TTestPower().power(0.1/sd, n, 0.05/3): 0.7933 with 27 seeds, 0.8117 with 28 */
    near(b->seeds, 28);
    assert_string_equal(ddl_contrast_result(b), "undecided");
    assert_string_equal(ddl_contrast_result(c), "equivalent");
}

static void without_correction(void **state)
{
    (void)state;
    struct fixture f;
    const struct ddl_contrast_options options = { .power = 0.8 };
    assert_ok(contrast(&f, same_seeds, three, 3, options), f.err);
    near(f.out[1].holm_p, 0.10912919362525017);
    assert_true(isnan(f.out[1].equivalence_p) && isnan(f.out[1].seeds));
}

/* A contrast without a p-value, here of differences without variance, was planned, too: Holm's factors count
 * it. */
static void a_contrast_without_p(void **state)
{
    (void)state;
    struct fixture f;
    static const double shifted[N_SEEDS] = { 3.0 + 0.125, 3.2 + 0.125, 3.4 + 0.125 };
    const struct ddl_contrast_options options = { .margin = 0.1, .power = 0.8, .holm = true };
    assert_ok(contrast(&f, same_seeds, three, 3, options), f.err);
    f.groups[2].val_losses = (double *)(void *)shifted;
    assert_ok(ddl_contrasts_test(f.out, &f.comparison, f.logs, names, three, 3, &options, &f.err), f.err);
    assert_true(isnan(f.out[1].p) && isnan(f.out[1].holm_p) && isnan(f.out[1].equivalence_holm_p));
    assert_string_equal(ddl_contrast_result(&f.out[1]), "-");
    assert_true(f.out[2].p < f.out[0].p);
    near(f.out[2].holm_p, 3 * f.out[2].p);
    near(f.out[0].holm_p, fmax(3 * f.out[2].p, 2 * f.out[0].p));
}

/* Pooled groups with the losses of the other group: rounding of their mean is no difference. */
static void equal_losses(void **state)
{
    (void)state;
    struct fixture f;
    static const char *const text[] = { "m=a + m=b - m=c" };
    static const double a[N_SEEDS] = { 3.1, 3.2, 3.4 }, b[N_SEEDS] = { 3.3, 3.6, 3.7 };
    static const double mean[N_SEEDS] = { 3.2, 3.4, 3.55 };
    const struct ddl_contrast_options options = { .margin = 0.1, .power = 0.8 };
    assert_ok(contrast(&f, same_seeds, text, 1, options), f.err);
    f.groups[0].val_losses = (double *)(void *)a;
    f.groups[1].val_losses = (double *)(void *)b;
    f.groups[2].val_losses = (double *)(void *)mean;
    assert_ok(ddl_contrasts_test(f.out, &f.comparison, f.logs, names, text, 1, &options, &f.err), f.err);
    assert_true(fabs(f.out[0].difference) < 1e-12 && f.out[0].error == 0);
    assert_true(isnan(f.out[0].p) && isnan(f.out[0].seeds));
}

static void levels(void **state)
{
    (void)state;
    struct fixture f;
    const struct ddl_contrast_options options = { .margin = 0.1, .power = 0.8, .level = 0.01 };
    assert_ok(contrast(&f, same_seeds, three, 3, options), f.err);
    near(f.out[0].low, -1.1086222303646678); /* scipy: stats.t.ppf(0.995, 2) and (0.99, 2) */
    near(f.out[0].inner_low, -0.847549503690456);
    near(f.out[1].equivalence_p, 0.015498416888490503);
    assert_string_equal(ddl_contrast_result(&f.out[1]), "undecided"); /* "equivalent" at 0.05 */
    near(f.out[1].level, 0.01);
}

/* The mean of two groups against the third, in three forms. */
static void pooled_groups(void **state)
{
    (void)state;
    struct fixture f;
    static const char *const texts[] = { "m=b + m=c - m=a", "m=[bc] - m=a" };
    const struct ddl_contrast_options options = { .power = 0.8, .holm = true };
    assert_ok(contrast(&f, same_seeds, texts, 1, options), f.err);
    assert_int_equal(f.out[0].n_left, 2);
    assert_int_equal(f.out[0].n_right, 1);
    near(f.out[0].difference, -0.1);
    near(f.out[0].p, 0.17939006013778083); /* stats.ttest_1samp */
    near(f.out[0].low, -0.311881074529061);
    assert_int_equal(contrast(&f, same_seeds, texts, 2, options), DDL_E_USAGE); /* no brackets */
}

/* Without two seeds in common: Welch's test; with two of three in common: the pairs. */
static void other_seeds(void **state)
{
    (void)state;
    struct fixture f;
    const uint64_t apart[N_GROUPS] = { 0, 10, 1 };
    const struct ddl_contrast_options options = { .power = 0.8, .holm = false };
    assert_ok(contrast(&f, apart, three, 2, options), f.err);
    assert_int_equal(f.out[0].n, 0);
    near(f.out[0].p, 0.1884510542084304); /* stats.ttest_ind(equal_var=False), confidence_interval() */
    near(f.out[0].df, 3.740932642487048);
    near(f.out[0].low, -0.648001698074603);
    near(f.out[0].high, 0.18133503140793705);
    assert_int_equal(f.out[1].n, 2); /* seeds 1 and 2 */
    near(f.out[1].difference, ((3.05 - 3.2) + (3.24 - 3.4)) / 2);
}

/* Pooled groups with the same seeds, against one with others: each seed of a side is one value. */
static void pooled_groups_with_other_seeds(void **state)
{
    (void)state;
    struct fixture f;
    static const char *const text[] = { "m=a + m=b - m=c" };
    const uint64_t apart[N_GROUPS] = { 0, 0, 10 };
    const struct ddl_contrast_options options = { .power = 0.8 };
    assert_ok(contrast(&f, apart, text, 1, options), f.err);
    assert_int_equal(f.out[0].n, 0);
    near(f.out[0].difference, -0.15);
    near(f.out[0].p, 0.3430917719139797); /* stats.ttest_ind of (2.9, 3.15, 3.2) and (3.05, 3.24, 3.41) */
    near(f.out[0].df, 3.9493276910131745);
    near(f.out[0].low, -0.5389013109005689);
}

static void rejected_contrasts(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } cases[] = {
        { "m=a", "expected 'A - B', found no ' - '" },
        { "m=a - m=d",
          "no such group: expected a group, such as m=a, a model or a pattern with *, found 'm=d'" },
        { "m=a - m=*", "m=a is on both sides" },
        { "m=a - ", "found ''" },
        { " - m=a", "found ''" },
        { "", "found ''" },
    };
    struct fixture f;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct ddl_contrast_options options = { .power = 0.8 };
        assert_int_equal(contrast(&f, same_seeds, &cases[i].text, 1, options), DDL_E_USAGE);
        if (!strstr(f.err.text, cases[i].says))
            fail_msg("expected %s, found %s", cases[i].says, f.err.text);
    }
}

/* A name of several groups, such as of two sweeps, is not pooled; a pattern pools them. */
static void groups_of_one_name(void **state)
{
    (void)state;
    struct fixture f;
    static const char *const same[N_GROUPS] = { "m=a", "m=b", "m=a" };
    static const char *const texts[] = { "m=b - m=a", "m=b - *a" };
    const struct ddl_contrast_options options = { .power = 0.8 };
    assert_ok(contrast(&f, same_seeds, three, 1, options), f.err);
    assert_int_equal(ddl_contrasts_test(f.out, &f.comparison, f.logs, same, &texts[0], 1, &options, &f.err),
                     DDL_E_USAGE);
    assert_non_null(strstr(f.err.text, "--contrast 'm=b - m=a': m=a: expected the name of one group, found 2 "
                                       "groups; compare the runs of one folder"));
    assert_ok(ddl_contrasts_test(f.out, &f.comparison, f.logs, same, &texts[1], 1, &options, &f.err), f.err);
    assert_int_equal(f.out[0].n_right, 2);
}

/* ---- the program ---- */

static char out[OUTPUT];

static void write_run(size_t group, size_t seed)
{
    char name[64], path[2200], recipe[512], metrics[512];
    struct ddl_error err;
    snprintf(name, sizeof name, "%s_seed=%zu", names[group], seed);
    const char *folder = scratch_path(name);
    assert_ok(ddl_file_make_dir(folder, &err), err);
    snprintf(recipe, sizeof recipe,
             "model: %s\nsize: micro\ntrain_data: shards\nval_data: shards\nvocab_size: 300\nseq: 16\n"
             "steps: 20\nseed: %zu\nlr: 0.00%zu\n",
             group == 2 ? "ddl-1" : "baseline", seed, group + 1);
    snprintf(metrics, sizeof metrics,
             "{\"step\":20,\"loss\":5,\"val_loss\":%.17g,\"tokens\":10,\"flops\":10,\"seconds\":1,"
             "\"train_seconds\":1,\"tokens_per_s\":10,\"peak_memory\":1}\n",
             losses[group][seed]);
    snprintf(path, sizeof path, "%s/recipe.yaml", folder);
    assert_ok(ddl_file_replace(path, recipe, strlen(recipe), &err), err);
    snprintf(path, sizeof path, "%s/metrics.jsonl", folder);
    assert_ok(ddl_file_replace(path, metrics, strlen(metrics), &err), err);
}

static void program(const char *arguments, int status)
{
    char command[8192];
    snprintf(command, sizeof command, "cd '%s' && '%s' compare m=* %s 2>&1", scratch_path(""), ddl_program(),
             arguments);
    assert_int_equal(run_command(command, out, sizeof out), status);
}

static void printed(const char *text)
{
    if (!strstr(out, text))
        fail_msg("expected %s, found:\n%s", text, out);
}

static void program_tests_contrasts(void **state)
{
    (void)state;
    for (size_t g = 0; g < N_GROUPS; g++) {
        for (size_t seed = 0; seed < N_SEEDS; seed++)
            write_run(g, seed);
    }
#define CONTRASTS "--contrast 'm=b - m=a' --contrast 'm=c - m=a' --contrast 'm=c - m=b' --margin 0.1 "
    program(CONTRASTS, 0);
    printed("m=b - m=a                        val       3    -0.2333   -0.6128    0.1461   0.1181   0.2298  "
            "undecided\n");
    printed("m=c - m=a                             1.60     -0.27      3.40   -0.0018    0.0684   0.0155   "
            "0.0465");
    printed("TOST: two one-sided tests of equivalence within 0.1\n");
    printed("seeds needed: for a difference of 0.1 with power 0.8\n");
    program(CONTRASTS "--markdown", 0);
    printed("| m=c - m=a | val | 3 | 0.0333 | -0.0184 | 0.0850 | 0.1091 | 0.2298 | equivalent |");
    program(CONTRASTS "--json --correction none", 0);
    printed("\"contrast_options\":{\"correction\":\"none\",\"margin\":0.1,\"detect\":0,\"power\":0.8,"
            "\"level\":0.05},"
            "\"contrasts\":[");
    printed(
        "{\"contrast\":\"m=b - m=a\",\"loss\":\"val\",\"groups_left\":1,\"groups_right\":1,\"paired\":true,"
        "\"seeds\":3,\"difference\":-0.2333333333,");
    program(CONTRASTS "--csv", 0);
    printed(
        "m=c - m=a,val,1,1,true,3,0.03333333333,0.01201850425,2,-0.01837811679,0.08504478346,0.1091291936,");
    program("--contrast 'm=c - m=a' --detect 1e6", 0); /* an effect of 5e7 */
    printed("seeds needed: for a difference of 1e+06 with power 0.8\n");
    /* Models, of which the runs have saved none. */
    program("--contrast 'ddl-1 - m=a'", 0);
    printed("ddl-1 - m=a                      val       3     0.0333   -0.0184    0.0850   0.1091");
    program("--contrast 'ddl-1 - baseline' --json", 0);
    printed("\"groups_left\":1,\"groups_right\":2,");
    program("--contrast 'm=* - x'", 2);
    printed("no such group");
    program("--margin 0.1", 2);
    printed("--margin: expected with --contrast");
    program("--level 0.2", 2);
    printed("--level: expected with --contrast");
    program("--figure final", 2);
    printed("--figure: expected with --svg");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(paired_tests),
        cmocka_unit_test(without_correction),
        cmocka_unit_test(a_contrast_without_p),
        cmocka_unit_test(equal_losses),
        cmocka_unit_test(levels),
        cmocka_unit_test(pooled_groups),
        cmocka_unit_test(other_seeds),
        cmocka_unit_test(pooled_groups_with_other_seeds),
        cmocka_unit_test(rejected_contrasts),
        cmocka_unit_test(groups_of_one_name),
        cmocka_unit_test(program_tests_contrasts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
