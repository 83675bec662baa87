/* ddl_beta_constant: every gate is the constant, the update is the one computed by hand, forcing the gate of
 * another model to the constant gives the same loss, and the gate's parameters are left untouched. */
#include "support/models.h"
#include "support/properties.h"

#include "base/file.h"
#include "base/mem.h"
#include "ddl/force.h"
#include "model/observe/probe.h"
#include "train/step/optim.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const float B = 0.7f;

static struct ddl_config fixed_config(const struct small_variant *variant)
{
    struct ddl_config k = variant_config(variant);
    k.beta_constant = true;
    k.beta_constant_value = B;
    return k;
}

static bool has_gates(const struct ddl_config *k)
{
    bool found = false;
    for (size_t l = 0; l < k->n_layers; l++)
        found |= ddl_config_residual(k, l) == DDL_RESIDUAL_DELTA;
    return found;
}

static double loss_of(struct small_model *f)
{
    struct ddl_loss loss;
    struct ddl_error err;
    assert_ok(ddl_model_loss(f->model, f->ws, &f->batch, &loss, NULL, &err), err);
    return loss.sum;
}

/* ---- the update by hand ---- */

/* The stream before a sublayer, and its sizes. */
struct step_check {
    const struct ddl_backend *backend;
    const struct ddl_config *config;
    double *X; /* (N, d, c) */
    size_t delta, gated;
};

static float *copy_of(const struct step_check *c, const float *x, size_t n)
{
    float *host = malloc(n * sizeof *host);
    c->backend->ops->download(c->backend->ctx, host, x, n * sizeof *host);
    return host;
}

/* A tensor that the sublayer shows, or NULL. */
static const float *tensor_of(const struct ddl_sublayer_trace *s, const char *name)
{
    const struct ddl_traced *tensor = ddl_trace_find(s, name);
    return tensor ? tensor->x : NULL;
}

/* X + B k (v - k^T X)^T of one row of the delta rule, with k = q / sqrt(|q|^2 + eps^2). */
static void delta_by_hand(const struct step_check *c, const struct ddl_sublayer_trace *s, const float *q,
                          const float *v, double *X)
{
    size_t d = c->config->d_model, channels = c->config->channels;
    double norm = (double)s->k_eps * (double)s->k_eps;
    for (size_t i = 0; i < d; i++)
        norm += (double)q[i] * (double)q[i];
    for (size_t j = 0; j < channels; j++) {
        double readout = 0;
        for (size_t i = 0; i < d; i++)
            readout += (double)q[i] / sqrt(norm) * X[i * channels + j];
        double error = s->kind == DDL_UPDATE_WRITE   ? (double)v[j]
                       : s->kind == DDL_UPDATE_ERASE ? -readout
                                                     : (double)v[j] - readout;
        for (size_t i = 0; i < d; i++)
            X[i * channels + j] += (double)B * (double)q[i] / sqrt(norm) * error;
    }
}

static void check_step(struct step_check *c, const struct ddl_sublayer_trace *s)
{
    size_t d = c->config->d_model, channels = c->config->channels, n = s->rows * d * channels;
    size_t steps = s->rows * s->steps;
    float *found = copy_of(c, s->X, n), *expected = malloc(n * sizeof *expected);
    float *beta = copy_of(c, tensor_of(s, "beta"), steps), *q = copy_of(c, s->direction, steps * d);
    float *v = s->update ? copy_of(c, tensor_of(s, "target"), steps * channels) : NULL;
    for (size_t step = 0; step < steps; step++) {
        double *X = c->X + step / s->steps * d * channels;
        assert_true(beta[step] == B);
        if (v)
            delta_by_hand(c, s, q + step * d, v + step * channels, X);
        for (size_t i = 0; !v && i < d; i++) /* gated: x + B f */
            X[i] += (double)B * (double)q[step * d + i];
    }
    for (size_t i = 0; i < n; i++)
        expected[i] = (float)c->X[i];
    assert_close(n, found, expected, 1e-6);
    c->delta += v != NULL;
    c->gated += v == NULL;
    free(found);
    free(expected);
    free(beta);
    free(q);
    free(v);
}

static void on_step(void *user, const struct ddl_sublayer_trace *s)
{
    struct step_check *c = user;
    size_t n = s->rows * c->config->d_model * c->config->channels;
    if (s->after && tensor_of(s, "beta"))
        check_step(c, s);
    if (s->after)
        return;
    float *X = copy_of(c, s->X, n);
    c->X = realloc(c->X, n * sizeof *c->X);
    assert_non_null(c->X);
    for (size_t i = 0; i < n; i++)
        c->X[i] = (double)X[i];
    free(X);
}

static void update_agrees_with_hand_computation(ddl_backend *backend)
{
    size_t delta = 0, gated = 0;
    for (size_t i = 0; i < SMALL_VARIANTS; i++) {
        struct ddl_config k = fixed_config(&small_variants[i]);
        struct small_model f;
        small_model_make(&f, ddl_backend_name(backend), &k, DDL_PRECISION_F32);
        struct step_check c = { .backend = f.backend, .config = &k };
        struct ddl_probe probe = { .step = on_step, .user = &c };
        ddl_workspace_set_probe(f.ws, &probe);
        (void)loss_of(&f);
        delta += c.delta;
        gated += c.gated;
        free(c.X);
        small_model_free(&f);
    }
    assert_true(delta > 50 && gated >= 8);
}
PROPERTY(update_agrees_with_hand_computation)

/* ---- the same as a forced gate ---- */

/* Initial values do not depend on ddl_beta_constant: both models have the same weights. */
static void forced_gate_is_identical(ddl_backend *backend)
{
    const struct ddl_force force = { .keys = DDL_FORCE_BETA, .beta = B };
    for (size_t i = 0; i < 2 * SMALL_VARIANTS; i++) {
        const struct small_variant *variant = &small_variants[i / 2];
        enum ddl_precision precision = i % 2 ? DDL_PRECISION_BF16 : DDL_PRECISION_F32;
        struct ddl_config fixed = fixed_config(variant), free_gate = variant_config(variant);
        struct small_model f, g;
        struct ddl_error err;
        if (!has_gates(&fixed))
            continue;
        for (size_t l = 0; l < fixed.n_layers; l++) { /* beta is not forced in gated layers */
            if (ddl_config_residual(&fixed, l) == DDL_RESIDUAL_GATED)
                fixed.residual_by_layer[l] = free_gate.residual_by_layer[l] = DDL_RESIDUAL_ADD;
        }
        free_gate.beta_constant = false;
        small_model_make(&f, ddl_backend_name(backend), &fixed, precision);
        small_model_make(&g, ddl_backend_name(backend), &free_gate, precision);
        if (loss_of(&f) == loss_of(&g))
            fail_msg("%s: the fixed gate has no effect", variant->name);
        for (size_t s = 0; s < 2 * fixed.n_layers; s++) {
            if (ddl_config_residual(&fixed, s / 2) == DDL_RESIDUAL_DELTA)
                assert_ok(ddl_model_force(g.model, s / 2, (int)(s % 2), &force, &err), err);
        }
        if (loss_of(&f) != loss_of(&g))
            fail_msg("%s: the fixed gate gives %.9g, the forced one %.9g", variant->name, loss_of(&f),
                     loss_of(&g));
        small_model_free(&f);
        small_model_free(&g);
    }
}
PROPERTY(forced_gate_is_identical)

/* x + B f is the additive rule with F's output scaled by B. */
static void gated_is_scaled_addition(ddl_backend *backend)
{
    const struct ddl_force force = { .keys = DDL_FORCE_F_SCALE, .f_scale = B };
    struct ddl_config gated = small_config("gated"), add = small_config("baseline");
    struct small_model f, g;
    struct ddl_error err;
    gated.beta_constant = true;
    gated.beta_constant_value = B;
    small_model_make(&f, ddl_backend_name(backend), &gated, DDL_PRECISION_F32);
    small_model_make(&g, ddl_backend_name(backend), &add, DDL_PRECISION_F32);
    for (size_t s = 0; s < 2 * add.n_layers; s++)
        assert_ok(ddl_model_force(g.model, s / 2, (int)(s % 2), &force, &err), err);
    close_enough(loss_of(&f), loss_of(&g), 1e-6 * loss_of(&g), "gated with a fixed gate");
    small_model_free(&f);
    small_model_free(&g);
}
PROPERTY(gated_is_scaled_addition)

/* A forced factor multiplies the constant. */
static void forced_scale_multiplies(ddl_backend *backend)
{
    struct ddl_config k = small_config("ddl-cc-ec"), half = k;
    const struct ddl_force force = { .keys = DDL_FORCE_SCALE, .scale = 0.5f };
    struct small_model f, g;
    struct ddl_error err;
    k.beta_constant = half.beta_constant = true;
    half.beta_constant_value = 0.5f;
    small_model_make(&f, ddl_backend_name(backend), &k, DDL_PRECISION_F32);
    small_model_make(&g, ddl_backend_name(backend), &half, DDL_PRECISION_F32);
    for (size_t s = 0; s < 2 * k.n_layers; s++)
        assert_ok(ddl_model_force(f.model, s / 2, (int)(s % 2), &force, &err), err);
    assert_true(loss_of(&f) == loss_of(&g));
    small_model_free(&f);
    small_model_free(&g);
}
PROPERTY(forced_scale_multiplies)

/* ---- the optimizer ---- */

static bool is_gate(const struct ddl_param *param)
{
    return strstr(param->name, ".beta.") || strstr(param->name, ".beta_in.") ||
           strstr(param->name, ".beta_out.");
}

/* A step with weight decay changes every parameter but the gates', whose gradients are 0. */
static void step_leaves_gates(struct small_model *f, const char *name)
{
    struct ddl_error err;
    struct ddl_loss loss;
    struct ddl_optim *optim;
    const struct ddl_optim_config config = ddl_optim_defaults();
    size_t gates = 0, row = 0, n = ddl_model_size(f->model);
    float *before = ddl_mem_alloc(n * sizeof *before), *after = ddl_mem_alloc(n * sizeof *after),
          *at = before;
    assert_ok(ddl_optim_create(&optim, f->model, &config, &err), err);
    for (size_t i = 0; i < ddl_model_n_params(f->model); at += ddl_model_param(f->model, i++)->count)
        ddl_model_read_param(f->model, i, at);
    assert_ok(ddl_model_backward(f->model, f->ws, &f->batch, 0.1, &loss, &err), err);
    float *grads = all_gradients(f->model);
    ddl_optim_step(optim, 0.01);
    for (size_t i = 0; i < ddl_model_n_params(f->model); row += ddl_model_param(f->model, i++)->count) {
        const struct ddl_param *param = ddl_model_param(f->model, i);
        ddl_model_read_param(f->model, i, after);
        bool same = memcmp(after, before + row, param->count * sizeof *after) == 0;
        assert_true(!is_gate(param) || !param->active);
        if (same == param->active)
            fail_msg("%s: %s is %s", name, param->name, same ? "unchanged" : "changed");
        for (size_t j = 0; !param->active && j < param->count; j++)
            assert_true(grads[row + j] == 0);
        gates += is_gate(param);
    }
    assert_true(gates > 0);
    free(grads);
    ddl_mem_free(before);
    ddl_mem_free(after);
    ddl_optim_free(optim);
}

static void gates_are_left_untouched(ddl_backend *backend)
{
    for (size_t i = 0; i < SMALL_VARIANTS; i++) {
        struct ddl_config k = fixed_config(&small_variants[i]);
        struct small_model f;
        if (!has_gates(&k))
            continue;
        small_model_make(&f, ddl_backend_name(backend), &k, DDL_PRECISION_F32);
        step_leaves_gates(&f, small_variants[i].name);
        small_model_free(&f);
    }
}
PROPERTY(gates_are_left_untouched)

/* ---- cost and files ---- */

/* The gates' matrices are parameters, but no work: d multiplications and additions of each of 2 L gates, d g
 * + g with an MLP. */
static void gates_are_no_work(void **state)
{
    (void)state;
    struct ddl_config k = small_config("ddl-1"), fixed = k;
    double sublayers = 2 * (double)k.n_layers, d = (double)k.d_model, g;
    fixed.beta_constant = true;
    assert_true(ddl_config_flops_per_token(&k, 9, false) - ddl_config_flops_per_token(&fixed, 9, false) ==
                sublayers * 2 * d);
    k.beta_linear = fixed.beta_linear = false;
    g = (double)k.beta_hidden;
    assert_true(ddl_config_flops_per_token(&k, 9, false) - ddl_config_flops_per_token(&fixed, 9, false) ==
                sublayers * 2 * (d * g + g));
    const struct ddl_workspace_options options = { .batch = 1, .tokens = 8, .train = true };
    assert_true(ddl_workspace_bytes(&fixed, DDL_PRECISION_F32, &options, NULL) <
                ddl_workspace_bytes(&k, DDL_PRECISION_F32, &options, NULL));
}

static void models_keep_it_in_files(void **state)
{
    (void)state;
    struct ddl_error err;
    struct ddl_config k = small_config("ddl-cc-ec");
    struct small_model f;
    ddl_model *again;
    k.beta_constant = true;
    k.beta_constant_value = B;
    small_model_make(&f, "ref", &k, DDL_PRECISION_F32);
    assert_ok(ddl_file_make_dir(scratch_path("fixed"), &err), err);
    assert_ok(ddl_model_save(f.model, scratch_path("fixed"), &err), err);
    assert_ok(ddl_model_load(&again, scratch_path("fixed"), f.backend, NULL, NULL, &err), err);
    assert_true(ddl_model_config(again)->beta_constant);
    assert_true(ddl_model_config(again)->beta_constant_value == B);
    double expected = loss_of(&f);
    ddl_workspace_free(f.ws);
    ddl_model_free(f.model);
    f.model = again;
    const struct ddl_workspace_options options = { .batch = SMALL_B, .tokens = SMALL_T };
    assert_ok(ddl_workspace_create(&f.ws, f.model, &options, &err), err);
    assert_true(loss_of(&f) == expected);
    small_model_free(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_update_agrees_with_hand_computation),
        cmocka_unit_test(test_forced_gate_is_identical),
        cmocka_unit_test(test_gated_is_scaled_addition),
        cmocka_unit_test(test_forced_scale_multiplies),
        cmocka_unit_test(test_gates_are_left_untouched),
        cmocka_unit_test(gates_are_no_work),
        cmocka_unit_test(models_keep_it_in_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
