/* model/observe/force.c: forced updates change what they name and nothing else. */
#include "support/models.h"
#include "support/properties.h"

#include "base/mem.h"
#include "ddl/force.h"
#include "ddl/session.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static double loss_of(struct small_model *f)
{
    struct ddl_loss loss;
    struct ddl_error err;
    assert_ok(ddl_model_loss(f->model, f->ws, &f->batch, &loss, NULL, &err), err);
    return loss.sum;
}

/* Forces what of *force the layer accepts in every sublayer; returns in how many. */
static size_t force_all(ddl_model *model, const struct ddl_force *force)
{
    const struct ddl_config *k = ddl_model_config(model);
    struct ddl_error err;
    size_t n = 0;
    for (size_t l = 0; l < k->n_layers; l++) {
        struct ddl_force accepted = *force;
        accepted.keys &= ddl_config_force_keys(k, l);
        for (int sub = 0; sub < DDL_SUBLAYERS && accepted.keys; sub++, n++)
            assert_ok(ddl_model_force(model, l, sub, &accepted, &err), err);
    }
    return n;
}

/* ---- values that change nothing ---- */

static void own_values_are_identical(ddl_backend *backend)
{
    for (size_t i = 0; i < SMALL_VARIANTS; i++) {
        struct ddl_config k = variant_config(&small_variants[i]);
        struct small_model f;
        small_model_make(&f, ddl_backend_name(backend), &k, DDL_PRECISION_F32);
        double free_loss = loss_of(&f);
        unsigned mix = ddl_config_has_streams(&k) ? 0 : DDL_FORCE_MIX;    /* streams are mixed at first */
        bool is_mean = ddl_config_force_mixes(&k, 0) >> DDL_MIX_MEAN & 1; /* queries are 0 at first */
        const struct ddl_force own = { .keys = DDL_FORCE_SCALE | DDL_FORCE_UPDATE | DDL_FORCE_F_SCALE | mix,
                                       .scale = 1,
                                       .update = k.update,
                                       .f_scale = 1,
                                       .mix = is_mean ? DDL_MIX_MEAN : DDL_MIX_IDENTITY };
        assert_true(force_all(f.model, &own) > 0);
        if (loss_of(&f) != free_loss)
            fail_msg("%s: the loss changed", small_variants[i].name);
        ddl_model_clear_forces(f.model);
        assert_true(loss_of(&f) == free_loss);
        small_model_free(&f);
    }
}
PROPERTY(own_values_are_identical)

/* A gate without weights is the same for every token: forcing that value is no change. */
static void constant_gate_is_identical(ddl_backend *backend)
{
    struct ddl_config k = small_config("ddl-cc-ec");
    struct small_model f;
    struct ddl_error err;
    float beta[SMALL_B * SMALL_T];
    k.beta_init = 0.7f;
    small_model_make(&f, ddl_backend_name(backend), &k, DDL_PRECISION_F32);
    for (size_t i = 0; i < ddl_model_n_params(f.model); i++) {
        if (strstr(ddl_model_param(f.model, i)->name, "beta.weight"))
            change_param(f.model, i, 0, k.d_model, 0, 0);
    }
    double free_loss = loss_of(&f);
    for (size_t s = 0; s < 2 * k.n_layers; s++) {
        assert_ok(ddl_workspace_read_trace(f.ws, s, "beta", beta, &err), err);
        const struct ddl_force force = { .keys = DDL_FORCE_BETA, .beta = beta[s % 5] };
        assert_ok(ddl_model_force(f.model, s / 2, (int)(s % 2), &force, &err), err);
    }
    assert_true(loss_of(&f) == free_loss);
    small_model_free(&f);
}
PROPERTY(constant_gate_is_identical)

/* ---- values that change something ---- */

/* With all gates closed, or all F skipped, what is left is the embedding: one loss for every model with the
 * same initial values. */
static void nothing_is_left_of_closed_sublayers(ddl_backend *backend)
{
    static const char *const presets[] = { "baseline", "ddl-1", "scale", "gated" };
    const struct ddl_force closed = { .keys = DDL_FORCE_BETA | DDL_FORCE_F_SCALE };
    double first = 0;
    for (size_t i = 0; i < 4; i++) {
        struct ddl_config k = small_config(presets[i]);
        struct small_model f;
        small_model_make(&f, ddl_backend_name(backend), &k, DDL_PRECISION_F32);
        assert_int_equal(force_all(f.model, &closed), 2 * k.n_layers);
        first = i ? first : loss_of(&f);
        assert_true(loss_of(&f) == first);
        small_model_free(&f);
    }
}
PROPERTY(nothing_is_left_of_closed_sublayers)

/* With several steps a forced gate is that of each: closed, what is left is the embedding. */
static void every_step_is_forced(ddl_backend *backend)
{
    const struct ddl_force closed = { .keys = DDL_FORCE_BETA };
    double loss[2];
    for (size_t steps = 1; steps <= 2; steps++) {
        struct ddl_config k = small_config("ddl-1");
        struct small_model f;
        k.steps = steps;
        small_model_make(&f, ddl_backend_name(backend), &k, DDL_PRECISION_F32);
        double free_loss = loss_of(&f);
        force_all(f.model, &closed);
        loss[steps - 1] = loss_of(&f);
        assert_true(loss_of(&f) != free_loss);
        small_model_free(&f);
    }
    assert_true(loss[0] == loss[1]);
}
PROPERTY(every_step_is_forced)

/* Without its sums of states a model is the one that has none; they are forced in MLP sublayers that one
 * follows. */
static void sums_are_left_out(ddl_backend *backend)
{
    const struct ddl_force none = { .keys = DDL_FORCE_AVERAGE };
    struct ddl_config k = small_config("denseformer"), plain = small_config("baseline");
    struct small_model f, g;
    struct ddl_error err;
    k.dense_period = 2;
    small_model_make(&f, ddl_backend_name(backend), &k, DDL_PRECISION_F32);
    small_model_make(&g, ddl_backend_name(backend), &plain, DDL_PRECISION_F32);
    size_t row = param_row(f.model, "transformer.dwa.2.weight");
    change_param(f.model, row, 0, SIZE_MAX, 0.5f, 0.25f);
    assert_true(loss_of(&f) != loss_of(&g));
    assert_int_equal(ddl_config_force_keys(&k, 0) & DDL_FORCE_AVERAGE, 0);
    assert_int_equal(ddl_model_force(f.model, 0, DDL_SUBLAYER_MLP, &none, &err), DDL_E_USAGE);
    assert_string_equal(err.text,
                        "force: average does not apply to layer 0 mlp: expected a layer with a sum of "
                        "dense_average after it, sub=mlp");
    assert_int_equal(ddl_model_force(f.model, 1, DDL_SUBLAYER_ATTN, &none, &err), DDL_E_USAGE);
    assert_string_equal(err.text,
                        "force: average does not apply to layer 1 attn: expected a layer with a sum of "
                        "dense_average after it, sub=mlp");
    const struct ddl_force other = { .keys = DDL_FORCE_AVERAGE, .average = DDL_AVERAGES };
    assert_int_equal(ddl_model_force(f.model, 1, DDL_SUBLAYER_MLP, &other, &err), DDL_E_USAGE);
    assert_string_equal(err.text, "force: average: 1 is out of range (0 to 0)");
    assert_ok(ddl_model_force(f.model, 1, DDL_SUBLAYER_MLP, &none, &err), err);
    assert_true(loss_of(&f) == loss_of(&g));
    small_model_free(&f);
    small_model_free(&g);
}
PROPERTY(sums_are_left_out)

/* F is linear in its output matrix. */
static void f_scale_is_a_factor_of_f(ddl_backend *backend)
{
    static const char *const presets[] = { "baseline", "scale", "gated",  "highway",
                                           "hyper",    "mhc",   "laurel", "attnres" };
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++) {
        struct ddl_config k = small_config(presets[i]);
        const struct ddl_force half = { .keys = DDL_FORCE_F_SCALE, .f_scale = 0.5f };
        struct small_model f;
        small_model_make(&f, ddl_backend_name(backend), &k, DDL_PRECISION_F32);
        double free_loss = loss_of(&f);
        force_all(f.model, &half);
        double forced = loss_of(&f);
        ddl_model_clear_forces(f.model);
        for (size_t p = 0; p < ddl_model_n_params(f.model); p++) {
            const struct ddl_param *param = ddl_model_param(f.model, p);
            if (strstr(param->name, "c_proj"))
                change_param(f.model, p, 0, param->count, 0.5f, 0);
        }
        assert_true(fabs(forced - free_loss) > 1e-3);
        close_enough(forced, loss_of(&f), 1e-5 * forced, presets[i]);
        small_model_free(&f);
    }
}
PROPERTY(f_scale_is_a_factor_of_f)

/* With M = I streams that are read and written alike stay alike: the model is the static one whose mixing
 * matrix is the identity. hyper starts as such; mhc does not. */
static void identity_is_no_mixing(ddl_backend *backend)
{
    static const char *const presets[] = { "hyper", "mhc" };
    const struct ddl_force identity = { .keys = DDL_FORCE_MIX, .mix = DDL_MIX_IDENTITY };
    for (size_t i = 0; i < 2; i++) {
        struct ddl_config k = small_config(presets[i]);
        struct small_model f;
        small_model_make(&f, ddl_backend_name(backend), &k, DDL_PRECISION_F32);
        double free_loss = loss_of(&f);
        assert_int_equal(force_all(f.model, &identity), 2 * k.n_layers);
        double forced = loss_of(&f);
        if (i == 0)
            assert_true(forced == free_loss);
        else
            assert_true(forced != free_loss);
        small_model_free(&f);
    }
}
PROPERTY(identity_is_no_mixing)

static void set_queries(struct ddl_model *model)
{
    for (size_t p = 0; p < ddl_model_n_params(model); p++) {
        if (strstr(ddl_model_param(model, p)->name, "query"))
            change_param(model, p, 0, SIZE_MAX, 1, 0.2f);
    }
}

/* Attention over depth: with the mean or the last source a query has no effect. A rule has the mixtures of
 * its own kind only. */
static void sources_are_mixed_as_forced(ddl_backend *backend)
{
    struct ddl_config k = small_config("attnres"), plain = small_config("baseline");
    struct small_model f, g;
    struct ddl_error err;
    k.attnres_block = 2;
    small_model_make(&f, ddl_backend_name(backend), &k, DDL_PRECISION_F32);
    small_model_make(&g, ddl_backend_name(backend), &plain, DDL_PRECISION_F32);
    double mean = loss_of(&f), last[2];
    set_queries(f.model);
    assert_true(fabs(loss_of(&f) - mean) > 1e-3);
    struct ddl_force force = { .keys = DDL_FORCE_MIX, .mix = DDL_MIX_IDENTITY };
    assert_int_equal(ddl_model_force(f.model, 1, DDL_SUBLAYER_ATTN, &force, &err), DDL_E_USAGE);
    assert_string_equal(
        err.text,
        "force: mix: expected last or mean in layer 1, whose residual rule is attnres, found identity");
    force.mix = DDL_MIX_LAST;
    assert_int_equal(ddl_model_force(g.model, 0, DDL_SUBLAYER_ATTN, &force, &err), DDL_E_USAGE);
    assert_int_equal(force_all(f.model, &force), 2 * k.n_layers);
    last[0] = loss_of(&f);
    assert_true(fabs(last[0] - mean) > 1e-3);
    for (size_t l = 0; l < k.n_layers; l++) { /* queries do not matter to it either, but the readout's do */
        char name[96];
        snprintf(name, sizeof name, "transformer.h.%zu.res_mlp.query.weight", l);
        change_param(f.model, param_row(f.model, name), 0, SIZE_MAX, -3, 0);
    }
    last[1] = loss_of(&f);
    assert_true(last[0] == last[1]);
    force.mix = DDL_MIX_MEAN;
    assert_int_equal(force_all(f.model, &force), 2 * k.n_layers);
    change_param(f.model, param_row(f.model, "readout.query.weight"), 0, SIZE_MAX, 0, 0);
    assert_true(loss_of(&f) == mean);
    small_model_free(&f);
    small_model_free(&g);
    struct ddl_config other = small_config("mhc");
    small_model_make(&f, ddl_backend_name(backend), &other, DDL_PRECISION_F32);
    assert_int_equal(ddl_model_force(f.model, 0, DDL_SUBLAYER_ATTN, &force, &err), DDL_E_USAGE);
    assert_string_equal(err.text,
                        "force: mix: expected identity in layer 0, whose residual rule is mhc, found mean");
    small_model_free(&f);
}
PROPERTY(sources_are_mixed_as_forced)

/* A gate may be forced beyond its range. */
static void a_gate_beyond_its_range(ddl_backend *backend)
{
    static const char *const presets[] = { "ddl-1", "ddl-cc-ec" };
    for (size_t i = 0; i < 2; i++) {
        struct ddl_config k = small_config(presets[i]), wide = k;
        const struct ddl_force high = { .keys = DDL_FORCE_BETA, .beta = 2.7f };
        struct small_model f, g;
        wide.beta_max = 3;
        small_model_make(&f, ddl_backend_name(backend), &k, DDL_PRECISION_F32);
        small_model_make(&g, ddl_backend_name(backend), &wide, DDL_PRECISION_F32);
        force_all(f.model, &high);
        force_all(g.model, &high);
        assert_true(loss_of(&f) == loss_of(&g) && isfinite(loss_of(&f)));
        small_model_free(&f);
        small_model_free(&g);
    }
}
PROPERTY(a_gate_beyond_its_range)

/* ddl-1 and its write-only control have the same initial values. */
static void update_is_replaced(ddl_backend *backend)
{
    struct ddl_config k = small_config("ddl-1"), control = k;
    struct small_model f, g;
    const struct ddl_force write = { .keys = DDL_FORCE_UPDATE, .update = DDL_UPDATE_WRITE };
    control.update = DDL_UPDATE_WRITE;
    small_model_make(&f, ddl_backend_name(backend), &k, DDL_PRECISION_F32);
    small_model_make(&g, ddl_backend_name(backend), &control, DDL_PRECISION_F32);
    assert_true(loss_of(&f) != loss_of(&g));
    force_all(f.model, &write);
    assert_true(loss_of(&f) == loss_of(&g));
    small_model_free(&f);
    small_model_free(&g);
}
PROPERTY(update_is_replaced)

/* laurel and the baseline have the same initial values apart from the mixture and its low-rank map. */
static void an_identity_mixture_is_an_addition(ddl_backend *backend)
{
    struct ddl_config k = small_config("laurel"), plain = small_config("baseline");
    struct small_model f, g;
    const struct ddl_force identity = { .keys = DDL_FORCE_MIX };
    k.laurel_rank = 4;
    small_model_make(&f, ddl_backend_name(backend), &k, DDL_PRECISION_F32);
    small_model_make(&g, ddl_backend_name(backend), &plain, DDL_PRECISION_F32);
    for (size_t i = 0; i < ddl_model_n_params(f.model); i++) {
        const struct ddl_param *param = ddl_model_param(f.model, i);
        if (strstr(param->name, ".mix"))
            change_param(f.model, i, 0, 1, 1, 0.5f);
        else if (strstr(param->name, ".up."))
            change_param(f.model, i, 0, param->count, 1, 0.1f);
    }
    double expected = loss_of(&g);
    assert_true(fabs(loss_of(&f) - expected) > 1e-3);
    assert_int_equal(force_all(f.model, &identity), 2 * k.n_layers);
    close_enough(loss_of(&f), expected, 1e-5 * expected, "laurel");
    small_model_free(&f);
    small_model_free(&g);
}
PROPERTY(an_identity_mixture_is_an_addition)

/* Attention with its own values is that of a model without value_residual, whose other initial values are the
 * same. */
static void own_values_are_not_mixed(ddl_backend *backend)
{
    static const char *const presets[] = { "baseline", "ddl-tc-ec" };
    const struct ddl_force own = { .keys = DDL_FORCE_VALUES };
    for (size_t i = 0; i < 2; i++) {
        struct ddl_config plain = small_config(presets[i]), k = plain;
        struct small_model f, g;
        struct ddl_error err;
        k.value_residual = true;
        small_model_make(&f, ddl_backend_name(backend), &k, DDL_PRECISION_F32);
        small_model_make(&g, ddl_backend_name(backend), &plain, DDL_PRECISION_F32);
        assert_true(fabs(loss_of(&f) - loss_of(&g)) > 1e-3);
        const struct ddl_force other = { .keys = DDL_FORCE_VALUES, .values = -1 };
        assert_int_equal(ddl_model_force(f.model, 1, DDL_SUBLAYER_ATTN, &other, &err), DDL_E_USAGE);
        assert_string_equal(err.text, "force: values: -1 is out of range (0 to 0)");
        for (size_t l = 0; l < k.n_layers; l++)
            assert_int_equal(ddl_model_force(f.model, l, DDL_SUBLAYER_ATTN, &own, &err),
                             l ? DDL_OK : DDL_E_USAGE);
        assert_true(loss_of(&f) == loss_of(&g));
        small_model_free(&f);
        small_model_free(&g);
    }
}
PROPERTY(own_values_are_not_mixed)

/* A session applies the forces of its model. */
static void sessions_are_forced_too(ddl_backend *backend)
{
    static const char *const presets[] = { "baseline", "ddl-tc-ec", "laurel" };
    const struct ddl_force force = { .keys = DDL_FORCE_SCALE | DDL_FORCE_F_SCALE | DDL_FORCE_MIX,
                                     .scale = 0.5f,
                                     .f_scale = 0.5f };
    for (size_t i = 0; i < 3; i++) {
        struct ddl_config k = small_config(presets[i]);
        struct small_model f;
        struct ddl_error err;
        ddl_session *session;
        small_model_make(&f, ddl_backend_name(backend), &k, DDL_PRECISION_F32);
        force_all(f.model, &force);
        float *full = random_floats(SMALL_B * k.vocab_size, 1), *last = random_floats(k.vocab_size, 2);
        assert_ok(ddl_model_logits(f.model, f.ws, &f.batch, 1, full, &err), err);
        const struct ddl_session_options options = { .slots = 1, .tokens = SMALL_T };
        assert_ok(ddl_session_create(&session, f.model, &options, &err), err);
        const struct ddl_session_input input = {
            .n = SMALL_T, .tokens = f.tokens, .n_logits = 1, .logits = last
        };
        assert_ok(ddl_session_prefill(session, &input, 1, &err), err);
        assert_close(k.vocab_size, last, full, 1e-5);
        ddl_session_free(session);
        ddl_mem_free(full);
        ddl_mem_free(last);
        small_model_free(&f);
    }
}
PROPERTY(sessions_are_forced_too)

/* ---- errors ---- */

static void refusals(void **state)
{
    (void)state;
    struct ddl_config k = small_config("ddl-1");
    k.by_layer = true;
    k.residual_by_layer[0] = DDL_RESIDUAL_DELTA;
    k.residual_by_layer[1] = DDL_RESIDUAL_ADD;
    k.residual_by_layer[2] = DDL_RESIDUAL_GATED;
    static const struct {
        size_t layer;
        int sub;
        struct ddl_force force;
        const char *message;
    } rows[] = {
        { 9, 0, { .keys = DDL_FORCE_BETA }, "force: layer: expected 0 to 2, found 9" },
        { 0, 2, { .keys = DDL_FORCE_BETA }, "force: sublayer: expected attn or mlp, found number 2" },
        { 1,
          0,
          { .keys = DDL_FORCE_BETA },
          "force: beta does not apply to layer 1: its residual rule is add" },
        { 2,
          0,
          { .keys = DDL_FORCE_UPDATE },
          "force: update does not apply to layer 2: its residual rule is gated" },
        { 0,
          0,
          { .keys = DDL_FORCE_F_SCALE },
          "force: f_scale does not apply to layer 0: its residual rule is delta" },
        { 0,
          0,
          { .keys = DDL_FORCE_BETA, .beta = -1 },
          "force: beta: expected a number of at least 0, found -1" },
        { 0, 0, { .keys = DDL_FORCE_SCALE, .scale = NAN }, "force: scale: expected a number of at least 0" },
        { 0, 0, { .keys = DDL_FORCE_UPDATE, .update = 3 }, "force: update: 3 is out of range (0 to 2)" },
        { 0,
          0,
          { .keys = DDL_FORCE_BETA | DDL_FORCE_SCALE },
          "force: expected one of beta and scale, found both" },
        { 0,
          0,
          { .keys = DDL_FORCE_MIX },
          "force: mix does not apply to layer 0: its residual rule is delta" },
        { 1,
          0,
          { .keys = DDL_FORCE_VALUES },
          "force: values does not apply to layer 1 attn: expected a layer with value_residual above the "
          "first, "
          "sub=attn" },
        { 0, 0, { .keys = 128 }, "force: keys: expected a sum of enum ddl_force_key, found 128" },
    };
    struct small_model f;
    struct ddl_error err;
    struct ddl_loss loss;
    small_model_make(&f, test_backend(0), &k, DDL_PRECISION_F32);
    double free_loss = loss_of(&f);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(ddl_model_force(f.model, rows[i].layer, rows[i].sub, &rows[i].force, &err),
                         DDL_E_USAGE);
        if (!strstr(err.text, rows[i].message))
            fail_msg("%s", err.text);
    }
    assert_true(loss_of(&f) == free_loss);
    const struct ddl_force force = { .keys = DDL_FORCE_BETA };
    assert_ok(ddl_model_force(f.model, 0, DDL_SUBLAYER_MLP, &force, &err), err);
    assert_int_equal(ddl_model_backward(f.model, f.ws, &f.batch, 1, &loss, &err), DDL_E_USAGE);
    assert_non_null(strstr(err.text, "expected a model without forced updates, found 1 forced sublayers"));
    assert_ok(ddl_model_force(f.model, 0, DDL_SUBLAYER_MLP, NULL, &err), err);
    assert_ok(ddl_model_backward(f.model, f.ws, &f.batch, 1, &loss, &err), err);
    small_model_free(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_own_values_are_identical),
        cmocka_unit_test(test_constant_gate_is_identical),
        cmocka_unit_test(test_nothing_is_left_of_closed_sublayers),
        cmocka_unit_test(test_every_step_is_forced),
        cmocka_unit_test(test_sums_are_left_out),
        cmocka_unit_test(test_f_scale_is_a_factor_of_f),
        cmocka_unit_test(test_identity_is_no_mixing),
        cmocka_unit_test(test_sources_are_mixed_as_forced),
        cmocka_unit_test(test_a_gate_beyond_its_range),
        cmocka_unit_test(test_update_is_replaced),
        cmocka_unit_test(test_an_identity_mixture_is_an_addition),
        cmocka_unit_test(test_own_values_are_not_mixed),
        cmocka_unit_test(test_sessions_are_forced_too),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
