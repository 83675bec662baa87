/* ddl/inspect.h: distributions and spectra with known results, and inspections of small models against what
 * traces and equations say. Golden figures: tests/golden/inspect, by ddl verify. */
#include "support/models.h"
#include "support/properties.h"

#include "base/distribution.h"
#include "base/mem.h"
#include "ddl/inspect.h"
#include "study/spectrum.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- distributions ---- */

static void quantiles_interpolate(void **state)
{
    (void)state;
    static const float values[] = { 1.2f, 0.05f, 1.0f, 1.95f, 0.5f };
    static const double at[] = { 0, 0.25, 0.4, 1 };
    struct ddl_distribution d;
    double q[4];
    assert_true(ddl_distribution_init(&d, 2, DDL_INSPECT_EXACT));
    for (size_t i = 0; i < 5; i++)
        ddl_distribution_add(&d, values[i]);
    assert_true(ddl_distribution_quantiles(&d, 4, at, q));
    close_enough(q[0], 0.05, 1e-7, "lowest");
    close_enough(q[1], 0.5, 1e-7, "second of five");
    close_enough(q[2], 0.8, 1e-7, "0.6 of the way from 0.5 to 1");
    close_enough(q[3], 1.95, 1e-7, "highest");
    close_enough(ddl_distribution_mean(&d), 0.94, 1e-7, "mean");
    assert_true(d.skip == 1 && d.match == 1 && d.over == 2 && d.reflect == 1);
    assert_true(d.histogram[1] == 1 && d.histogram[10] == 1 && d.histogram[20] == 1);
    ddl_distribution_free(&d);
}

/* Past DDL_INSPECT_EXACT values the error is at most a bin of the fine histogram. */
static void long_streams_have_a_bounded_error(void **state)
{
    (void)state;
    enum { N = 3 * DDL_INSPECT_EXACT };
    static const double at[] = { 0.05, 0.5, 0.95 };
    struct ddl_distribution d;
    double q[3];
    assert_true(ddl_distribution_init(&d, 2, DDL_INSPECT_EXACT));
    for (size_t i = 0; i < N; i++) /* every value of a grid once, in another order: 7 and N are coprime */
        ddl_distribution_add(&d, (float)(2 * ((double)(i * 7 % N) + 0.5) / N));
    assert_true(ddl_distribution_quantiles(&d, 3, at, q));
    for (size_t i = 0; i < 3; i++)
        close_enough(q[i], 2 * at[i], 2.0 / DDL_DISTRIBUTION_FINE_BINS, "quantile");
    assert_int_equal(ddl_distribution_kept(&d), DDL_INSPECT_EXACT);
    ddl_distribution_free(&d);
}

/* ---- spectra ---- */

static void expect_spectrum(size_t S, size_t d, const float *k, const float *beta, double max, double min)
{
    double scratch[256], sigma_max[4], sigma_min[4];
    assert_true(spectrum_scratch(S, d) <= 256 && S <= 4);
    spectrum_of(S, d, k, beta, scratch, sigma_max, sigma_min);
    close_enough(sigma_max[S - 1], max, 1e-6, "sigma_max");
    close_enough(sigma_min[S - 1], min, 1e-6, "sigma_min");
    if (S > 1) /* a product of the first steps only */
        expect_spectrum(S - 1, d, k, beta, sigma_max[S - 2], sigma_min[S - 2]);
}

static void known_spectra(void **state)
{
    (void)state;
    static const float e0[] = { 1, 0, 0 }, both[] = { 1, 0, 0, 0, 1, 0 }, twice[] = { 1, 0, 0, 1, 0, 0 };
    /* k_1 at 60 degrees from k_0, both projections: one direction is lost, the product has norm cos 60. */
    static const float angle[] = { 1, 0, 0, 0.5f, 0.8660254f, 0 };
    expect_spectrum(1, 3, e0, (float[]){ 0.25f }, 0.75, 0.75);
    expect_spectrum(1, 3, e0, (float[]){ 2 }, 1, 1);
    expect_spectrum(2, 3, both, (float[]){ 0.5f, 1.25f }, 0.5, 0.25);
    expect_spectrum(2, 3, twice, (float[]){ 0.5f, 0.5f }, 0.25, 0.25);
    expect_spectrum(2, 3, angle, (float[]){ 1, 1 }, 0.5, 0);
    expect_spectrum(2, 3, angle, (float[]){ 2, 2 }, 1, 1); /* a rotation */
    /* Up to each of three orthogonal steps the factors are those of the steps so far. */
    static const float three[] = { 1, 0, 0, 0, 1, 0, 0, 0, 1 };
    double scratch[256], sigma_max[3], sigma_min[3];
    spectrum_of(3, 3, three, (float[]){ 0.5f, 1.75f, 0.875f }, scratch, sigma_max, sigma_min);
    close_enough(sigma_max[0], 0.5, 1e-12, "first");
    close_enough(sigma_max[1], 0.75, 1e-12, "second");
    close_enough(sigma_min[1], 0.5, 1e-12, "second");
    close_enough(sigma_max[2], 0.75, 1e-12, "third");
    close_enough(sigma_min[2], 0.125, 1e-12, "third");
}

/* ---- small models ---- */

static ddl_inspection *inspect(struct small_model *f, size_t batch)
{
    const struct ddl_inspect_config config = { .seq = SMALL_T, .batch = batch, .spectrum_tokens = 1 };
    ddl_inspection *in;
    struct ddl_error err;
    assert_ok(ddl_inspect_create(&in, f->model, &config, 0, &err), err);
    for (size_t b = 0; b < SMALL_B; b += batch) {
        struct ddl_batch part = { batch, SMALL_T, f->tokens + b * SMALL_T, f->targets + b * SMALL_T };
        assert_ok(ddl_inspect_batch(in, &part, &err), err);
        assert_ok(ddl_inspect_finish(in, &err), err); /* may be repeated, with batches between */
    }
    assert_ok(ddl_inspect_finish(in, &err), err);
    return in;
}

static double figure(const struct ddl_inspect_sublayer *s, const char *name)
{
    return ddl_inspect_figure(&s->figures, name);
}

/* Which figures a rule has. */
static bool applies(const struct ddl_config *k, const struct ddl_inspect_sublayer *s, const char *name,
                    bool last)
{
    if (strncmp(name, "values", 6) == 0)
        return k->value_residual && s->layer > 0 && s->sub == DDL_SUBLAYER_ATTN;
    if (strcmp(name, "step") == 0 || strcmp(name, "overlap_stream") == 0)
        return true;
    if (strncmp(name, "lambda", 6) == 0)
        return strcmp(s->rule, "scale") == 0;
    if (strcmp(name, "mix_f") == 0 || strcmp(name, "mix_x") == 0)
        return strcmp(s->rule, "laurel") == 0;
    if (strncmp(name, "alpha_", 6) == 0)
        return strcmp(s->rule, "attnres") == 0;
    if (strncmp(name, "tau", 3) == 0)
        return strcmp(s->rule, "highway") == 0;
    if (strncmp(name, "mix_", 4) == 0 || strncmp(name, "product_", 8) == 0)
        return strcmp(s->rule, "hyper") == 0 || strcmp(s->rule, "mhc") == 0;
    if (strncmp(name, "beta", 4) == 0 || strcmp(name, "skip") == 0 || strcmp(name, "match") == 0 ||
        strcmp(name, "over") == 0 || strcmp(name, "reflect") == 0)
        return s->is_delta || strcmp(s->rule, "gated") == 0;
    if (strcmp(name, "e_identity") == 0)
        return s->is_delta && s->update == DDL_UPDATE_DELTA;
    if (strcmp(name, "overlap_next") == 0)
        return s->is_delta && !last;
    return s->is_delta;
}

static void each_rule_has_its_figures(ddl_backend *backend)
{
    for (size_t i = 0; i < SMALL_VARIANTS; i++) {
        struct ddl_config k = variant_config(&small_variants[i]);
        struct small_model f;
        small_model_make(&f, ddl_backend_name(backend), &k, DDL_PRECISION_F32);
        ddl_inspection *in = inspect(&f, SMALL_B);
        size_t n = ddl_inspect_n_sublayers(in), last = n;
        for (size_t s = 0; s < n; s++)
            last = ddl_inspect_sublayer(in, s)->is_delta ? s : last;
        assert_true((ddl_inspect_depth(in) != NULL) == (last < n));
        for (size_t s = 0; s < n; s++) {
            const struct ddl_inspect_sublayer *sub = ddl_inspect_sublayer(in, s);
            const struct ddl_figure *list[DDL_MOST_FIGURES];
            for (size_t at = 0, n_figures = ddl_figure_list(list); at < n_figures; at++) {
                const struct ddl_figure *row = list[at];
                double value = sub->figures.value[at];
                if (isfinite(value) != applies(&k, sub, row->name, s == last))
                    fail_msg("%s, sublayer %zu (%s): %s is %g", small_variants[i].name, s, sub->rule,
                             row->name, value);
            }
            if (sub->is_delta && sub->update == DDL_UPDATE_DELTA && !(figure(sub, "e_identity") < 1e-5))
                fail_msg("%s, sublayer %zu: e_identity %g", small_variants[i].name, s,
                         figure(sub, "e_identity"));
            assert_true((sub->histogram != NULL) == (sub->by_position != NULL));
        }
        close_enough(ddl_inspect_loss(in).sum / (double)ddl_inspect_loss(in).n_targets, small_mean_loss(&f),
                     1e-6, small_variants[i].name);
        ddl_inspect_free(in);
        small_model_free(&f);
    }
}
PROPERTY(each_rule_has_its_figures)

static void check_gates(const char *preset)
{
    struct ddl_config k = small_config(preset);
    struct small_model f;
    struct ddl_error err;
    struct ddl_loss loss;
    float beta[SMALL_B * SMALL_T];
    small_model_make(&f, test_backend(0), &k, DDL_PRECISION_F32);
    ddl_inspection *in = inspect(&f, SMALL_B);
    assert_ok(ddl_model_loss(f.model, f.ws, &f.batch, &loss, NULL, &err), err);
    for (size_t s = 0; s < ddl_inspect_n_sublayers(in); s++) {
        const struct ddl_inspect_sublayer *sub = ddl_inspect_sublayer(in, s);
        size_t highest = 0, lowest = 0;
        assert_ok(ddl_workspace_read_trace(f.ws, s, "beta", beta, &err), err);
        assert_int_equal(sub->n_rows, SMALL_B * SMALL_T);
        assert_memory_equal(sub->gates, beta, sizeof beta);
        for (size_t n = 0; n < SMALL_B * SMALL_T; n++) {
            highest = beta[n] > beta[highest] ? n : highest;
            lowest = beta[n] < beta[lowest] ? n : lowest;
        }
        double steps = 0;
        for (size_t n = 0; n < SMALL_B * SMALL_T; n++)
            steps += (double)sub->steps[n] / (SMALL_B * SMALL_T);
        close_enough(steps, figure(sub, "step"), 1e-6, "steps");
        for (size_t t = 0; t < SMALL_T; t++)
            close_enough(sub->by_position[t], ((double)beta[t] + (double)beta[SMALL_T + t]) / 2, 1e-12,
                         "position");
        assert_int_equal(sub->n_extremes, DDL_INSPECT_EXTREMES);
        assert_int_equal(sub->highest[0].index, highest);
        assert_int_equal(sub->lowest[0].index, lowest);
        assert_int_equal(sub->lowest[0].position, lowest % SMALL_T);
        assert_int_equal(sub->lowest[0].tokens[sub->lowest[0].at], f.tokens[lowest]);
        for (size_t i = 1; i < DDL_INSPECT_EXTREMES; i++)
            assert_true(sub->highest[i].beta <= sub->highest[i - 1].beta &&
                        sub->lowest[i].beta >= sub->lowest[i - 1].beta);
    }
    ddl_inspect_free(in);
    small_model_free(&f);
}

/* Gates in the order of the tokens, their extremes and means by position are those of the trace. */
static void gates_are_those_of_the_trace(void **state)
{
    (void)state;
    check_gates("ddl-cc-ec");
    check_gates("ddl-2step");
}

/* Each step of a sublayer has the figures of the state that the step before it leaves: the readouts of the
 * pass are those of the states that the inspection recomputes. */
static void steps_follow_each_other(void **state)
{
    (void)state;
    struct ddl_config k = small_config("ddl-2step");
    struct small_model f;
    struct ddl_error err;
    float p[SMALL_B * SMALL_T * 4], v[SMALL_B * SMALL_T * 4];
    struct ddl_loss loss;
    small_model_make(&f, "ref", &k, DDL_PRECISION_F32);
    ddl_inspection *in = inspect(&f, SMALL_B);
    assert_ok(ddl_model_loss(f.model, f.ws, &f.batch, &loss, NULL, &err), err);
    assert_int_equal(ddl_inspect_n_sublayers(in), ddl_workspace_n_steps(f.ws));
    for (size_t s = 0; s < ddl_inspect_n_sublayers(in); s++) {
        const struct ddl_inspect_sublayer *of = ddl_inspect_sublayer(in, s);
        double squares = 0;
        assert_true(of->layer == s / 4 && of->sub == (int)(s / 2 % 2) && of->step == s % 2 &&
                    of->n_steps == 2);
        assert_ok(ddl_workspace_read_trace(f.ws, s, "readout", p, &err), err);
        assert_ok(ddl_workspace_read_trace(f.ws, s, "target", v, &err), err);
        for (size_t i = 0; i < SMALL_B * SMALL_T * 4; i++)
            squares += ((double)p[i] - (double)v[i]) * ((double)p[i] - (double)v[i]);
        double rms = sqrt(squares / (SMALL_B * SMALL_T * 4));
        close_enough(figure(of, "e_pre_rms"), rms, 1e-5 * rms, "e_pre");
    }
    ddl_inspect_free(in);
    small_model_free(&f);
}

/* The same figures whatever the passes are, from a batch or from a stream of ids. */
static void passes_do_not_matter(void **state)
{
    (void)state;
    struct ddl_config k = small_config("ddl-tc-ec");
    const struct ddl_inspect_config config = { .seq = SMALL_T, .batch = 1, .spectrum_tokens = 1000 };
    struct small_model f;
    struct ddl_error err;
    ddl_inspection *in[3];
    small_model_make(&f, "ref", &k, DDL_PRECISION_F32);
    in[0] = inspect(&f, SMALL_B);
    in[1] = inspect(&f, 1);
    assert_ok(ddl_inspect_ids(&in[2], f.model, f.tokens, SMALL_B * SMALL_T, &config, &err), err);
    for (size_t i = 1; i < 3; i++) {
        assert_int_equal(ddl_inspect_tokens(in[i]), SMALL_B * SMALL_T);
        close_enough(ddl_inspect_depth(in[i])->sigma_min, ddl_inspect_depth(in[0])->sigma_min, 1e-9,
                     "sigma_min");
        close_enough(ddl_inspect_depth(in[i])->log_det, ddl_inspect_depth(in[0])->log_det, 1e-9, "log_det");
        for (size_t s = 0; s < ddl_inspect_n_sublayers(in[0]); s++) {
            const struct ddl_inspect_sublayer *a = ddl_inspect_sublayer(in[0], s),
                                              *b = ddl_inspect_sublayer(in[i], s);
            close_enough(b->sigma_max, a->sigma_max, 1e-9, "sigma_max");
            close_enough(b->sigma_min, a->sigma_min, 1e-9, "sigma_min");
            const struct ddl_figure *list[DDL_MOST_FIGURES];
            for (size_t at = 0, n_figures = ddl_figure_list(list); at < n_figures; at++) {
                const struct ddl_figure *row = list[at];
                double x = a->figures.value[at], y = b->figures.value[at];
                if (!isnan(x) || !isnan(y))
                    close_enough(y, x, 1e-9, row->name);
            }
        }
    }
    for (size_t i = 0; i < 3; i++)
        ddl_inspect_free(in[i]);
    small_model_free(&f);
}

/* A closed gate leaves the state: no step, and kT X' is kT X. A gate of 1 writes the target exactly. */
static void forced_gates_show(void **state)
{
    (void)state;
    struct ddl_config k = small_config("ddl-1");
    struct small_model f;
    struct ddl_error err;
    small_model_make(&f, "ref", &k, DDL_PRECISION_F32);
    for (int open = 0; open < 2; open++) {
        const struct ddl_force force = { .keys = DDL_FORCE_BETA, .beta = (float)open };
        for (size_t s = 0; s < 2 * k.n_layers; s++)
            assert_ok(ddl_model_force(f.model, s / 2, (int)(s % 2), &force, &err), err);
        ddl_inspection *in = inspect(&f, SMALL_B);
        for (size_t s = 0; s < ddl_inspect_n_sublayers(in); s++) {
            const struct ddl_inspect_sublayer *x = ddl_inspect_sublayer(in, s);
            char behavior[256];
            ddl_inspect_behavior(ddl_inspect_sublayer(in, s), behavior, sizeof behavior);
            assert_true(figure(x, "beta_mean") == open && figure(x, "beta_q05") == open &&
                        figure(x, "skip") == !open && figure(x, "match") == open);
            if (open) {
                assert_true(figure(x, "e_post_rms") < 1e-6 && figure(x, "step") > 0);
                assert_string_equal(behavior, "gate within 1.00–1.00: behaves as overwrite");
            } else {
                assert_true(figure(x, "step") == 0 && figure(x, "e_post_rms") == figure(x, "e_pre_rms"));
                assert_string_equal(behavior, "gate within 0.00–0.00: behaves as skip");
            }
        }
        assert_true((isinf(ddl_inspect_depth(in)->log_det) != 0) == (open == 1));
        ddl_inspect_free(in);
    }
    small_model_free(&f);
}

/* With a fixed gate e_post = (1 - beta) e_pre holds for that beta. */
static void fixed_gates_show(void **state)
{
    (void)state;
    struct ddl_config k = small_config("ddl-1");
    struct small_model f;
    k.beta_constant = true;
    k.beta_constant_value = 0.5f;
    small_model_make(&f, test_backend(0), &k, DDL_PRECISION_F32);
    ddl_inspection *in = inspect(&f, SMALL_B);
    for (size_t s = 0; s < ddl_inspect_n_sublayers(in); s++) {
        const struct ddl_inspect_sublayer *x = ddl_inspect_sublayer(in, s);
        char behavior[256];
        ddl_inspect_behavior(ddl_inspect_sublayer(in, s), behavior, sizeof behavior);
        assert_true(figure(x, "beta_min") == 0.5 && figure(x, "beta_max") == 0.5 && figure(x, "step") > 0);
        close_enough(figure(x, "e_post_rms"), 0.5 * figure(x, "e_pre_rms"), 1e-5 * figure(x, "e_pre_rms"),
                     "e_post");
        assert_string_equal(behavior, "gate within 0.50–0.50: behaves as a constant");
    }
    ddl_inspect_free(in);
    small_model_free(&f);
}

/* Where every token has the same gate, its mean is that gate, and freezing it changes nothing. */
static void freezing_a_constant_gate_is_identical(void **state)
{
    (void)state;
    struct ddl_config k = small_config("ddl-1");
    struct small_model f;
    struct ddl_error err;
    k.beta_init = 1.3f;
    small_model_make(&f, test_backend(0), &k, DDL_PRECISION_F32);
    for (size_t i = 0; i < ddl_model_n_params(f.model); i++) {
        if (strstr(ddl_model_param(f.model, i)->name, "beta.weight"))
            change_param(f.model, i, 0, k.d_model, 0, 0);
    }
    double free_loss = small_mean_loss(&f);
    ddl_inspection *in = inspect(&f, SMALL_B);
    for (size_t s = 0; s < ddl_inspect_n_sublayers(in); s++)
        assert_ok(ddl_inspect_freeze(in, f.model, s, (struct ddl_force){ 0 }, &err), err);
    ddl_inspection *frozen = inspect(&f, SMALL_B);
    assert_true(ddl_inspect_loss(frozen).sum == ddl_inspect_loss(in).sum);
    ddl_model_clear_forces(f.model);
    assert_true(small_mean_loss(&f) == free_loss);
    ddl_inspect_free(in);
    ddl_inspect_free(frozen);
    small_model_free(&f);
}

static int stop(void *user, uint64_t done, uint64_t total)
{
    (void)user, (void)done, (void)total;
    return 1;
}

/* Results can be computed again: the means of the rule's tensors stay what they are. */
static void finished_again(void **state)
{
    (void)state;
    struct ddl_config k = small_config("hyper");
    struct small_model f;
    struct ddl_error err;
    small_model_make(&f, test_backend(0), &k, DDL_PRECISION_F32);
    ddl_inspection *in = inspect(&f, SMALL_B);
    const struct ddl_inspect_sublayer *s = ddl_inspect_sublayer(in, 1);
    double before[DDL_MOST_MEANS];
    assert_true(s->n_means > 0);
    for (size_t i = 0; i < s->n_means; i++)
        before[i] = s->means[i].value[0];
    assert_ok(ddl_inspect_finish(in, &err), err);
    s = ddl_inspect_sublayer(in, 1);
    for (size_t i = 0; i < s->n_means; i++)
        assert_true(s->means[i].value[0] == before[i]);
    ddl_inspect_free(in);
    small_model_free(&f);
}

static void errors(void **state)
{
    (void)state;
    struct ddl_config k = small_config("ddl-1");
    struct ddl_inspect_config config = { .seq = k.block_size + 1 };
    struct small_model f;
    struct ddl_error err;
    ddl_inspection *in;
    int32_t ids[] = { 1, 2, 31 };
    small_model_make(&f, test_backend(0), &k, DDL_PRECISION_F32);
    assert_int_equal(ddl_inspect_create(&in, f.model, &config, 0, &err), DDL_E_USAGE);
    assert_non_null(strstr(err.text, "(the model's context)"));
    config.seq = 3;
    config.states_every = 1;
    assert_int_equal(ddl_inspect_create(&in, f.model, &config, 0, &err), DDL_E_USAGE);
    assert_non_null(strstr(err.text, "expected the number of tokens that follow, found 0"));
    assert_ok(ddl_inspect_create(&in, f.model, &config, 5, &err), err);
    const struct ddl_batch two = { 1, 3, f.tokens, f.targets };
    assert_ok(ddl_inspect_batch(in, &two, &err), err);
    assert_int_equal(ddl_inspect_batch(in, &two, &err), DDL_E_USAGE);
    assert_non_null(strstr(err.text, "expected at most 5 tokens, as announced, found more"));
    ddl_inspect_free(in);
    config.states_every = 0;
    assert_ok(ddl_inspect_create(&in, f.model, &config, 0, &err), err);
    assert_int_equal(ddl_inspect_finish(in, &err), DDL_E_USAGE);
    ddl_inspect_free(in);
    assert_int_equal(ddl_inspect_ids(&in, f.model, ids, 3, &config, &err), DDL_E_FORMAT);
    assert_string_equal(err.text, "token 2: expected an id below vocab_size 31, found 31");
    assert_int_equal(ddl_inspect_ids(&in, f.model, ids, 0, &config, &err), DDL_E_FORMAT);
    config.progress = stop;
    assert_int_equal(ddl_inspect_ids(&in, f.model, ids, 2, &config, &err), DDL_E_INTERRUPTED);
    assert_null(in);
    ddl_inspect_free(NULL);
    small_model_free(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantiles_interpolate),
        cmocka_unit_test(long_streams_have_a_bounded_error),
        cmocka_unit_test(known_spectra),
        cmocka_unit_test(test_each_rule_has_its_figures),
        cmocka_unit_test(gates_are_those_of_the_trace),
        cmocka_unit_test(steps_follow_each_other),
        cmocka_unit_test(passes_do_not_matter),
        cmocka_unit_test(forced_gates_show),
        cmocka_unit_test(fixed_gates_show),
        cmocka_unit_test(freezing_a_constant_gate_is_identical),
        cmocka_unit_test(finished_again),
        cmocka_unit_test(errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
