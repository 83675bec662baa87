/* bfloat16 products: near float32's results, the same on both backends but for flipped roundings, and never
 * behind what was written to the parameters. */
#include "support/models.h"

#include "ddl/session.h"

#include "train/optim.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The mean loss and all gradients of a variant; free the gradients. */
static float *gradients_of(const struct small_variant *variant, const char *backend,
                           enum ddl_precision precision, double *loss, size_t *n)
{
    struct ddl_config config = variant_config(variant);
    struct small_model f;
    struct ddl_loss sum;
    struct ddl_error err;
    small_model_make(&f, backend, &config, precision);
    *loss = small_mean_loss(&f);
    assert_ok(ddl_model_backward(f.model, f.ws, &f.batch, 1, &sum, &err), err);
    assert_true(sum.sum / (double)sum.n_targets == *loss);
    float *grads = all_gradients(f.model);
    *n = ddl_model_size(f.model);
    small_model_free(&f);
    return grads;
}

/* What bfloat16 does to a variant: operands are off by up to 2^-9 of themselves; on the way through three
 * small and loud layers that grows to a few percent of the gradient. The backends differ by roundings that
 * fall to different sides only. */
static void results_are_near(void **state)
{
    (void)state;
    for (size_t i = 0; i < SMALL_VARIANTS; i++) {
        double exact_loss, loss[2];
        size_t n;
        float *exact = gradients_of(&small_variants[i], "ref", DDL_PRECISION_F32, &exact_loss, &n), *grads[2];
        for (size_t b = 0; b < 2; b++) {
            const char *name = ddl_backend_list(b);
            grads[b] = gradients_of(&small_variants[i], name, DDL_PRECISION_BF16, &loss[b], &n);
            double off = relative_error(n, grads[b], exact);
            if (!(fabs(loss[b] - exact_loss) < 0.01 * exact_loss) || !(off < 0.15) || !(off > 1e-4))
                fail_msg("%s on %s: loss %g, in float32 %g; gradients differ by %g", small_variants[i].name,
                         name, loss[b], exact_loss, off);
        }
        if (!(relative_error(n, grads[0], grads[1]) < 2e-3) || !(fabs(loss[0] - loss[1]) < 1e-4 * loss[1]))
            fail_msg("%s: the backends' gradients differ by %g, losses %g and %g", small_variants[i].name,
                     relative_error(n, grads[0], grads[1]), loss[0], loss[1]);
        free(exact);
        free(grads[0]);
        free(grads[1]);
    }
}

/* Logits of the last pass, by rows, agree with the loss over tiles. */
static void logits_give_the_loss(void **state)
{
    (void)state;
    for (size_t b = 0; ddl_backend_list(b); b++) {
        struct ddl_config config = small_config("ddl-cc-ec");
        struct small_model f;
        struct ddl_error err;
        small_model_make(&f, ddl_backend_list(b), &config, DDL_PRECISION_BF16);
        size_t V = config.vocab_size, N = SMALL_B * SMALL_T;
        float *logits = malloc(N * V * sizeof *logits);
        double sum = 0, counted = 0, loss = small_mean_loss(&f);
        assert_ok(ddl_model_logits(f.model, f.ws, &f.batch, SMALL_T, logits, &err), err);
        for (size_t n = 0; n < N; n++) {
            double total = 0;
            for (size_t j = 0; j < V; j++)
                total += exp((double)logits[n * V + j]);
            if (f.targets[n] >= 0) {
                sum += log(total) - (double)logits[n * V + (size_t)f.targets[n]];
                counted++;
            }
        }
        assert_true(fabs(sum / counted - loss) < 1e-5 * loss);
        free(logits);
        small_model_free(&f);
    }
}

/* After steps of the optimiser and values written from outside, products see what a new model of the same
 * values sees; and float32 again is float32 to the bit. */
static void products_see_what_was_written(void **state)
{
    (void)state;
    for (size_t b = 0; ddl_backend_list(b); b++) {
        struct ddl_config config = small_config("ddl-tc-ec");
        struct ddl_optim_config optim_config = ddl_optim_defaults();
        struct small_model f, g;
        struct ddl_optim *optim;
        struct ddl_loss loss;
        struct ddl_error err;
        small_model_make(&f, ddl_backend_list(b), &config, DDL_PRECISION_BF16);
        small_model_make(&g, ddl_backend_list(b), &config, DDL_PRECISION_BF16);
        (void)small_mean_loss(&g); /* has rounded its first values */
        assert_ok(ddl_optim_create(&optim, f.model, &optim_config, &err), err);
        for (int step = 0; step < 3; step++) {
            ddl_model_zero_grad(f.model);
            assert_ok(ddl_model_backward(f.model, f.ws, &f.batch, 1, &loss, &err), err);
            ddl_optim_step(optim, 0.1, ddl_optim_grad_norm(optim));
        }
        for (size_t i = 0; i < ddl_model_n_params(f.model); i++) {
            float *values = malloc(ddl_model_param(f.model, i)->count * sizeof *values);
            ddl_model_read_param(f.model, i, values);
            ddl_model_write_param(g.model, i, values);
            free(values);
        }
        double bf16 = small_mean_loss(&f);
        assert_true(bf16 == small_mean_loss(&g));
        assert_ok(ddl_model_set_precision(f.model, DDL_PRECISION_F32, &err), err);
        assert_int_equal(ddl_model_loss(f.model, f.ws, &f.batch, &loss, NULL, &err), DDL_E_USAGE);
        assert_non_null(strstr(err.text, "another precision"));
        ddl_optim_free(optim);
        small_model_free(&g);
        small_model_free(&f);
    }
}

/* Logits of all positions, given to a session in pieces; free with free. */
static float *decoded(struct small_model *f, size_t piece, enum ddl_cache_form form)
{
    size_t V = ddl_model_config(f->model)->vocab_size, N = SMALL_B * SMALL_T;
    const struct ddl_session_options options = { .slots = SMALL_B, .tokens = SMALL_T, .form = form };
    float *logits = malloc(N * V * sizeof *logits);
    ddl_session *session;
    struct ddl_error err;
    assert_ok(ddl_session_create(&session, f->model, &options, &err), err);
    for (size_t t = 0, n; t < SMALL_T; t += n) {
        struct ddl_session_input inputs[SMALL_B];
        n = SMALL_T - t < piece ? SMALL_T - t : piece;
        for (size_t s = 0; s < SMALL_B; s++)
            inputs[s] = (struct ddl_session_input){ .slot = s,
                                                    .n = n,
                                                    .tokens = f->tokens + s * SMALL_T + t,
                                                    .n_logits = n,
                                                    .logits = logits + (s * SMALL_T + t) * V };
        assert_ok(ddl_session_prefill(session, inputs, SMALL_B, &err), err);
    }
    ddl_session_free(session);
    return logits;
}

/* A model of that precision, beside float32 values or (`lean`) instead of them. */
static void make_reduced(struct small_model *f, const char *backend, const struct ddl_config *config,
                         enum ddl_precision precision, bool lean)
{
    struct ddl_error err;
    small_model_make(f, backend, config, DDL_PRECISION_F32);
    if (!lean) {
        assert_ok(ddl_model_set_precision(f->model, precision, &err), err);
        return;
    }
    ddl_workspace_free(f->ws);
    ddl_model_free(f->model);
    f->ws = NULL;
    assert_ok(ddl_model_create_for_inference(&f->model, config, precision, f->backend, &err), err);
    assert_ok(ddl_model_init(f->model, 7, &err), err);
}

/* Decoding token by token (products of few rows) is the forward pass (products of many) in every precision,
 * on both backends; bfloat16 and eight bits are near float32, for inference alone (`lean`) too. Numbers that
 * are rounded to bfloat16 on the way, by products or by the cache (`form`), may fall to either side. */
static void decoding_near_float32(bool lean, enum ddl_cache_form form)
{
    static const double between[] = { 1e-5, 2e-3, 1e-5 }, near[] = { 1e-5, 0.05, 0.1 };
    for (size_t i = 0; i < SMALL_VARIANTS; i++) {
        struct ddl_config config = variant_config(&small_variants[i]);
        float *exact = NULL;
        size_t n = SMALL_B * SMALL_T * config.vocab_size;
        for (int precision = DDL_PRECISION_F32; precision <= DDL_PRECISION_INT8; precision++) {
            float *whole = NULL;
            int rounded = form == DDL_CACHE_BF16 ? DDL_PRECISION_BF16 : precision;
            for (size_t b = 0; ddl_backend_list(b); b++) {
                struct small_model f;
                make_reduced(&f, ddl_backend_list(b), &config, (enum ddl_precision)precision, lean);
                for (size_t piece = SMALL_T; piece >= 1; piece = piece > 1 ? piece / 4 : 0) {
                    float *found = decoded(&f, piece, form);
                    whole = whole ? whole : decoded(&f, SMALL_T, form);
                    exact = exact ? exact : decoded(&f, SMALL_T, DDL_CACHE_F32);
                    double apart = relative_error(n, found, whole), off = relative_error(n, found, exact);
                    if (!(apart <= between[rounded]) || !(off <= fmax(near[precision], near[rounded])))
                        fail_msg(
                            "%s, %s, %s, pieces of %zu, cache %s: %g from the whole pass, %g from float32",
                            small_variants[i].name, ddl_backend_list(b), ddl_precision_names[precision],
                            piece, ddl_cache_form_names[form], apart, off);
                    free(found);
                }
                small_model_free(&f);
            }
            free(whole);
        }
        free(exact);
    }
}

static void decoding_is_the_forward_pass(void **state)
{
    (void)state;
    for (int lean = 0; lean < 2; lean++) {
        decoding_near_float32(lean, DDL_CACHE_F32);
        decoding_near_float32(lean, DDL_CACHE_BF16);
    }
}

/* Left to itself the cache keeps what the weights are kept in, or bfloat16 for eight bits. */
static void the_cache_goes_with_the_weights(void **state)
{
    (void)state;
    struct ddl_config config = small_config("ddl-cc");
    for (int precision = DDL_PRECISION_F32; precision <= DDL_PRECISION_INT8; precision++) {
        struct small_model f;
        make_reduced(&f, "cpu", &config, (enum ddl_precision)precision, true);
        size_t bytes = SMALL_B * SMALL_T * config.vocab_size * sizeof(float);
        float *of[] = { decoded(&f, 1, DDL_CACHE_AUTO), decoded(&f, 1, DDL_CACHE_F32),
                        decoded(&f, 1, DDL_CACHE_BF16) };
        assert_memory_equal(of[0], of[precision == DDL_PRECISION_F32 ? 1 : 2], bytes);
        assert_true(memcmp(of[1], of[2], bytes) != 0);
        for (int i = 0; i < 3; i++)
            free(of[i]);
        small_model_free(&f);
    }
}

static void eight_bits_are_not_trained(void **state)
{
    (void)state;
    struct ddl_config config = small_config("ddl-cc");
    struct small_model f;
    struct ddl_error err;
    ddl_workspace *ws;
    small_model_make(&f, "cpu", &config, DDL_PRECISION_F32);
    assert_ok(ddl_model_set_precision(f.model, DDL_PRECISION_INT8, &err), err);
    assert_int_equal(
        ddl_workspace_create(&ws, f.model,
                             &(struct ddl_workspace_options){ .batch = 1, .tokens = 4, .train = true }, &err),
        DDL_E_USAGE);
    assert_non_null(strstr(err.text, "eight-bit weights cannot be trained"));
    small_model_free(&f);
}

static void runs_repeat(void **state)
{
    (void)state;
    for (size_t i = 0; i < SMALL_VARIANTS; i++) {
        double loss[2];
        size_t n;
        float *first = gradients_of(&small_variants[i], "cpu", DDL_PRECISION_BF16, &loss[0], &n);
        float *again = gradients_of(&small_variants[i], "cpu", DDL_PRECISION_BF16, &loss[1], &n);
        assert_true(loss[0] == loss[1]);
        assert_memory_equal(first, again, n * sizeof *first);
        free(first);
        free(again);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_are_near),
        cmocka_unit_test(logits_give_the_loss),
        cmocka_unit_test(products_see_what_was_written),
        cmocka_unit_test(decoding_is_the_forward_pass),
        cmocka_unit_test(the_cache_goes_with_the_weights),
        cmocka_unit_test(eight_bits_are_not_trained),
        cmocka_unit_test(runs_repeat),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
