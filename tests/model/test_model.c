/* The model as a whole, on every backend: laws that hold for each configuration, golden vectors
 * aside (those are tests/verify's). */
#include "support/models.h"

#include "ddl/session.h"
#include "model/pass/compress.h"
#include "model/pass/embed.h"
#include "model/residual/table.h"
#include "model/pass/workspace.h"
#include "base/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Moves every parameter by h times a fixed random direction; returns the gradient's product with the
 * direction. */
static double move(ddl_model *model, double h, const float *grads)
{
    double slope = 0;
    size_t at = 0;
    for (size_t i = 0; i < ddl_model_n_params(model); i++) {
        size_t n = ddl_model_param(model, i)->count;
        float *w = malloc(n * sizeof *w);
        ddl_model_read_param(model, i, w);
        for (size_t j = 0; j < n; j++) {
            double u = ddl_rng_normal(ddl_rng_key(5, "direction"), at + j);
            w[j] = (float)((double)w[j] + h * u);
            slope += grads ? u * (double)grads[at + j] : 0;
        }
        ddl_model_write_param(model, i, w);
        free(w);
        at += n;
    }
    return slope;
}

/* The central difference of the loss along the direction. */
static double difference(struct small_model *f, double h)
{
    move(f->model, h, NULL);
    double up = small_mean_loss(f);
    move(f->model, -2 * h, NULL);
    double down = small_mean_loss(f);
    move(f->model, h, NULL);
    return (up - down) / (2 * h);
}

/* The loss changes along a random direction as the gradient says. The difference's error is of second order
 * in h; two steps cancel it, and what float32 losses leave is about 1e-3. */
static void gradient_is_the_slope(void **state)
{
    (void)state;
    for (size_t i = 0; i < SMALL_VARIANTS; i++) {
        struct ddl_config config = variant_config(&small_variants[i]);
        struct small_model f;
        struct ddl_loss loss;
        struct ddl_error err;
        small_model_make(&f, "ref", &config, DDL_PRECISION_F32);
        assert_ok(ddl_model_backward(f.model, f.ws, &f.batch, 1.0 / (SMALL_B * SMALL_T - 4), &loss, &err),
                  err);
        assert_int_equal(loss.n_targets, SMALL_B * SMALL_T - 4);
        float *grads = all_gradients(f.model);
        const double h = 2e-4;
        double slope = move(f.model, 0, grads);
        double found = (4 * difference(&f, h) - difference(&f, 2 * h)) / 3;
        if (fabs(found - slope) > 3e-3 * (fabs(slope) + 1))
            fail_msg("%s: the loss's slope is %g, the gradient says %g", small_variants[i].name, found,
                     slope);
        free(grads);
        small_model_free(&f);
    }
}

/* The gradients of two passes with one sequence each add up to those of one pass with both, up to the
 * rounding of float32 sums in another order: a tenth of the limit against the reference. */
static void accumulation_is_one_batch(void **state)
{
    (void)state;
    for (size_t i = 0; i < SMALL_VARIANTS; i++) {
        for (size_t b = 0; test_backend(b); b++) {
            struct ddl_config config = variant_config(&small_variants[i]);
            struct small_model f;
            struct ddl_loss loss;
            struct ddl_error err;
            small_model_make(&f, test_backend(b), &config, DDL_PRECISION_F32);
            double scale = 1.0 / (SMALL_B * SMALL_T - 4);
            assert_ok(ddl_model_backward(f.model, f.ws, &f.batch, scale, &loss, &err), err);
            float *whole = all_gradients(f.model);
            ddl_model_zero_grad(f.model);
            for (size_t s = 0; s < SMALL_B; s++) {
                struct ddl_batch one = { 1, SMALL_T, f.tokens + s * SMALL_T, f.targets + s * SMALL_T };
                assert_ok(ddl_model_backward(f.model, f.ws, &one, scale, &loss, &err), err);
            }
            float *parts = all_gradients(f.model);
            assert_close(ddl_model_size(f.model), parts, whole, 1e-5);
            free(whole);
            free(parts);
            small_model_free(&f);
        }
    }
}

/* The same bits every time. */
static void runs_repeat(void **state)
{
    (void)state;
    for (size_t b = 0; test_backend(b); b++) {
        struct ddl_config config = small_config("ddl-tc-ec");
        struct small_model f;
        struct ddl_loss loss;
        struct ddl_error err;
        small_model_make(&f, test_backend(b), &config, DDL_PRECISION_F32);
        float *first = NULL;
        for (int run = 0; run < 3; run++) {
            ddl_model_zero_grad(f.model);
            assert_ok(ddl_model_backward(f.model, f.ws, &f.batch, 0.1, &loss, &err), err);
            float *grads = all_gradients(f.model);
            if (first)
                assert_memory_equal(first, grads, ddl_model_size(f.model) * sizeof *grads);
            else
                first = grads;
            if (grads != first)
                free(grads);
        }
        free(first);
        small_model_free(&f);
    }
}

/* Pieces of any length through a session, of both sequences together, give the logits of one full pass. */
static void decode_in_pieces(const struct small_variant *variant, const char *backend, const size_t *pieces)
{
    struct ddl_config config = variant_config(variant);
    struct small_model f;
    struct ddl_error err;
    ddl_session *session;
    small_model_make(&f, backend, &config, DDL_PRECISION_F32);
    size_t V = config.vocab_size;
    float *full = malloc(SMALL_B * SMALL_T * V * sizeof *full),
          *found = malloc(SMALL_B * SMALL_T * V * sizeof *full);
    assert_ok(ddl_model_logits(f.model, f.ws, &f.batch, SMALL_T, full, &err), err);
    assert_ok(ddl_session_create(&session, f.model,
                                 &(struct ddl_session_options){ .slots = SMALL_B, .tokens = SMALL_T }, &err),
              err);
    for (size_t t = 0, i = 0; t < SMALL_T; t += pieces[i++]) {
        struct ddl_session_input inputs[SMALL_B];
        for (size_t s = 0; s < SMALL_B; s++)
            inputs[s] = (struct ddl_session_input){ .slot = s,
                                                    .n = pieces[i],
                                                    .tokens = f.tokens + s * SMALL_T + t,
                                                    .n_logits = pieces[i],
                                                    .logits = found + (s * SMALL_T + t) * V };
        assert_ok(ddl_session_prefill(session, inputs, SMALL_B, &err), err);
    }
    assert_int_equal(ddl_session_length(session, 0), SMALL_T);
    if (relative_error(SMALL_B * SMALL_T * V, found, full) > 1e-5)
        fail_msg("%s on %s: decoding differs by %g", variant->name, backend,
                 relative_error(SMALL_B * SMALL_T * V, found, full));
    free(full);
    free(found);
    ddl_session_free(session);
    small_model_free(&f);
}

static void decoding_is_the_forward_pass(void **state)
{
    (void)state;
    static const size_t splits[][SMALL_T] = {
        { 1, 1, 1, 1, 1, 1, 1, 1, 1 }, { 5, 1, 3 }, { 2, 2, 2, 2, 1 }, { 9 }
    };
    for (size_t i = 0; i < SMALL_VARIANTS; i++) {
        for (size_t b = 0; test_backend(b); b++) {
            for (size_t s = 0; s < sizeof splits / sizeof *splits; s++)
                decode_in_pieces(&small_variants[i], test_backend(b), splits[s]);
        }
    }
}

/* After backward the stream holds X0 again: what rounding has added over 2 L rebuilt steps stays small at any
 * depth. */
static void rebuilt_state_drifts_little(void **state)
{
    (void)state;
    static const size_t depths[] = { 12, 24, 48 };
    static const char *const presets[] = { "ddl-1", "ddl-tc", "ddl-cc-ec" };
    for (size_t b = 0; test_backend(b); b++) {
        for (size_t i = 0; i < 9; i++) {
            struct ddl_config config = small_config(presets[i / 3]);
            config.n_layers = depths[i % 3];
            struct small_model f;
            struct ddl_loss loss;
            struct ddl_error err;
            small_model_make(&f, test_backend(b), &config, DDL_PRECISION_F32);
            assert_ok(ddl_model_backward(f.model, f.ws, &f.batch, 1, &loss, &err), err);
            size_t n = SMALL_B * SMALL_T * config.d_model * config.channels, bytes = n * sizeof(float);
            float *rebuilt = malloc(bytes), *start = malloc(bytes);
            f.backend->ops->download(f.backend->ctx, rebuilt, f.ws->X, bytes);
            struct pass p = { .m = f.model,
                              .ws = f.ws,
                              .config = &f.model->config,
                              .ops = f.backend->ops,
                              .ctx = f.backend->ctx,
                              .B = SMALL_B,
                              .T = SMALL_T,
                              .N = SMALL_B * SMALL_T };
            const struct state_form *form = state_form_of(p.config);
            const struct stream stream = { .X = f.ws->X,
                                           .channels = form->channels(p.config),
                                           .form = form,
                                           .is_read = state_is_read(p.config) };
            embed_fwd(&p, &stream);
            f.backend->ops->download(f.backend->ctx, start, f.ws->X, bytes);
            assert_close(n, rebuilt, start, 1e-5);
            free(rebuilt);
            free(start);
            small_model_free(&f);
        }
    }
}

static void paper_sizes(void **state)
{
    (void)state;
    static const struct {
        const char *size;
        double millions;
    } sizes[] = { { "small", 123.6 }, { "medium", 353.5 } };
    for (size_t i = 0; i < 2; i++) {
        struct ddl_config k = ddl_config_defaults();
        struct ddl_error err;
        struct ddl_param *rows;
        size_t n, total = 0;
        assert_ok(ddl_config_set_preset(&k, "baseline", &err), err);
        assert_ok(ddl_config_set_size(&k, sizes[i].size, &err), err);
        assert_ok(ddl_params_plan(&k, &rows, &n, &err), err);
        for (size_t j = 0; j < n; j++)
            total += rows[j].count;
        assert_true(fabs((double)total / 1e6 - sizes[i].millions) < 0.05);
        free(rows);
    }
}

/* The error message of a call that must fail. */
#define assert_message(call, status, part)                                                                   \
    do {                                                                                                     \
        struct ddl_error err_ = { 0 };                                                                       \
        struct ddl_error *err = &err_;                                                                       \
        assert_int_equal(call, status);                                                                      \
        if (!strstr(err_.text, part))                                                                        \
            fail_msg("'%s' does not say '%s'", err_.text, part);                                             \
    } while (0)

static void bad_batches_are_refused(void **state)
{
    (void)state;
    struct ddl_config config = small_config("ddl-cc-ec");
    struct small_model f;
    struct ddl_loss loss;
    small_model_make(&f, "ref", &config, DDL_PRECISION_F32);
    f.tokens[3] = 31;
    assert_message(ddl_model_loss(f.model, f.ws, &f.batch, &loss, NULL, err), DDL_E_USAGE,
                   "token 3 of sequence 0 is 31, the vocabulary has 31");
    f.tokens[3] = 0;
    f.targets[10] = -2;
    assert_message(ddl_model_loss(f.model, f.ws, &f.batch, &loss, NULL, err), DDL_E_USAGE,
                   "target 1 of sequence 1 is -2");
    f.targets[10] = 0;
    struct ddl_batch large = { SMALL_B + 1, SMALL_T, f.tokens, f.targets };
    assert_message(ddl_model_loss(f.model, f.ws, &large, &loss, NULL, err), DDL_E_USAGE,
                   "the workspace holds 2 x 9");
    float logits[31];
    assert_message(ddl_model_logits(f.model, f.ws, &f.batch, SMALL_T + 1, logits, err), DDL_E_USAGE,
                   "the last 10 positions");
    struct ddl_batch untargeted = { SMALL_B, SMALL_T, f.tokens, NULL };
    assert_message(ddl_model_loss(f.model, f.ws, &untargeted, &loss, NULL, err), DDL_E_USAGE,
                   "needs targets");
    ddl_workspace *ws;
    ddl_session *session;
    struct ddl_error made;
    assert_ok(ddl_workspace_create(&ws, f.model,
                                   &(struct ddl_workspace_options){ .batch = SMALL_B, .tokens = SMALL_T },
                                   &made),
              made);
    assert_message(ddl_model_backward(f.model, ws, &f.batch, 1, &loss, err), DDL_E_USAGE,
                   "a workspace for training");
    int32_t ranks[SMALL_B * SMALL_T];
    assert_message(
        ddl_model_scores(f.model, ws, &f.batch, &loss, &(struct ddl_row_scores){ .ranks = ranks }, err),
        DDL_E_USAGE, "need a workspace with ranks");
    ddl_workspace_free(ws);
    assert_message(
        ddl_workspace_create(
            &ws, f.model,
            &(struct ddl_workspace_options){ .batch = 1, .tokens = 4, .train = true, .ranks = true }, err),
        DDL_E_USAGE, "expected a workspace without train");
    assert_message(
        ddl_workspace_create(&ws, f.model,
                             &(struct ddl_workspace_options){ .batch = 1, .tokens = 17, .train = true }, err),
        DDL_E_USAGE, "the model's context is 16");
    assert_message(
        ddl_session_create(&session, f.model, &(struct ddl_session_options){ .slots = 1, .tokens = 17 }, err),
        DDL_E_USAGE, "expected 1 to 16 (the model's context), found 17");
    small_model_free(&f);
}

/* Where every target is ignored: loss 0, gradient 0. */
static void nothing_to_predict(void **state)
{
    (void)state;
    for (size_t b = 0; test_backend(b); b++) {
        struct ddl_config config = small_config("ddl-cc");
        struct small_model f;
        struct ddl_loss loss;
        struct ddl_error err;
        small_model_make(&f, test_backend(b), &config, DDL_PRECISION_F32);
        for (size_t i = 0; i < SMALL_B * SMALL_T; i++)
            f.targets[i] = -1;
        assert_ok(ddl_model_backward(f.model, f.ws, &f.batch, 1, &loss, &err), err);
        assert_true(loss.sum == 0 && loss.n_targets == 0);
        float *grads = all_gradients(f.model);
        for (size_t i = 0; i < ddl_model_size(f.model); i++)
            assert_true(grads[i] == 0);
        free(grads);
        small_model_free(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradient_is_the_slope),
        cmocka_unit_test(accumulation_is_one_batch),
        cmocka_unit_test(runs_repeat),
        cmocka_unit_test(decoding_is_the_forward_pass),
        cmocka_unit_test(rebuilt_state_drifts_little),
        cmocka_unit_test(paper_sizes),
        cmocka_unit_test(bad_batches_are_refused),
        cmocka_unit_test(nothing_to_predict),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
