/* Models in bfloat16 and with eight-bit weights, on every instruction set: errors of the size of the
 * reference's own, products that read what was last written to the parameters, and decoding. */
#define _POSIX_C_SOURCE 200809L
#include "support/backends.h"
#include "support/faulty_backend.h"
#include "support/models.h"

#include "ddl/session.h"

#include "base/noise.h"
#include "model/pass/model.h"
#include "model/pass/pass.h"
#include "model/residual/table.h"
#include "ops/profile.h"
#include "train/step/optim.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Losses by row and all gradients of a variant. */
struct results {
    float row_loss[SMALL_B * SMALL_T];
    float *gradients; /* (n), parameter after parameter; free with free */
    double loss;      /* mean */
    size_t n;
};

/* `fault`: of tests/support/faulty_backend.h, or NULL. */
static struct results results_of(const struct small_variant *variant, const char *backend,
                                 enum ddl_precision precision, const char *fault)
{
    struct ddl_config config = variant_config(variant);
    struct faulty_backend faulty;
    struct results r;
    struct small_model f;
    struct ddl_loss sum;
    struct ddl_error err;
    small_model_make(&f, backend, &config, precision);
    if (fault) {
        faulty_backend_make(&faulty, f.backend, fault);
        (void)ddl_model_replace_backend(f.model, &faulty.backend);
    }
    assert_ok(ddl_model_loss(f.model, f.ws, &f.batch, &sum, r.row_loss, &err), err);
    r.loss = sum.sum / (double)sum.n_targets;
    assert_ok(ddl_model_backward(f.model, f.ws, &f.batch, 1, &sum, &err), err);
    assert_true(sum.sum / (double)sum.n_targets == r.loss);
    r.gradients = all_gradients(f.model);
    r.n = ddl_model_size(f.model);
    small_model_free(&f);
    return r;
}

/* Errors of a variant's results as shares of their limits: see base/noise.h. The larger of two. */
static double share_of_limit(const struct small_variant *variant, const struct results *found,
                             const struct results *ref, const struct results *exact, char *what, size_t size)
{
    struct ddl_config config = variant_config(variant);
    struct ddl_noise_tensor list[256],
        losses = { SMALL_B * SMALL_T, found->row_loss, ref->row_loss, exact->row_loss };
    struct small_model f;
    small_model_make(&f, "ref", &config, DDL_PRECISION_F32);
    size_t n = ddl_model_n_params(f.model), at = 0;
    assert_true(n <= sizeof list / sizeof *list);
    for (size_t i = 0; i < n; i++) {
        size_t count = ddl_model_param(f.model, i)->count;
        list[i] = (struct ddl_noise_tensor){ count, found->gradients + at, ref->gradients + at,
                                             exact->gradients + at };
        at += count;
    }
    struct ddl_noise gradients = ddl_noise_measure(n, list), loss = ddl_noise_measure(1, &losses);
    snprintf(what, size,
             "%s: errors relative to that of ref in bfloat16: losses %.3g, all gradients %.3g, that of %s "
             "%.3g",
             variant->name, loss.one, gradients.all, ddl_model_param(f.model, gradients.worst)->name,
             gradients.one);
    small_model_free(&f);
    return fmax(fmax(loss.one, gradients.one) / DDL_NOISE_LIMIT_ONE, gradients.all / DDL_NOISE_LIMIT_ALL);
}

/* Runs fn with DDL_ISA set to each instruction set of this machine in turn. */
static void on_every_isa(void (*fn)(const char *isa))
{
    for (size_t i = 0; isa_name(i); i++) {
        struct ddl_backend *backend = cpu_backend(isa_name(i), 1);
        if (!backend)
            continue;
        ddl_backend_free(backend);
        setenv("DDL_ISA", isa_name(i), 1);
        fn(isa_name(i));
        unsetenv("DDL_ISA");
    }
}

static void errors_are_of_the_references_size(const char *isa)
{
    for (size_t i = 0; i < SMALL_VARIANTS; i++) {
        const struct small_variant *variant = &small_variants[i];
        struct results exact = results_of(variant, "ref", DDL_PRECISION_F32, NULL),
                       ref = results_of(variant, "ref", DDL_PRECISION_BF16, NULL),
                       cpu = results_of(variant, "cpu", DDL_PRECISION_BF16, NULL);
        char what[512];
        if (!(share_of_limit(variant, &cpu, &ref, &exact, what, sizeof what) <= 1))
            fail_msg("%s: %s", isa, what);
        assert_true(memcmp(ref.gradients, exact.gradients, ref.n * sizeof *ref.gradients) != 0);
        free(exact.gradients);
        free(ref.gradients);
        free(cpu.gradients);
    }
}

static void results_are_near(void **state)
{
    (void)state;
    on_every_isa(errors_are_of_the_references_size);
}

/* One term of one row of each product: the smallest fault that a whole model must show. Finer ones are found
 * op by op: tests/ops/test_audit.c. */
static void faults_exceed_the_limits(const char *isa)
{
    static const char *const faults[] = { "matmul_bf16", "matmul_bf16 term" };
    for (size_t i = 0; i < SMALL_VARIANTS; i++) {
        const struct small_variant *variant = &small_variants[i];
        struct results exact = results_of(variant, "ref", DDL_PRECISION_F32, NULL),
                       ref = results_of(variant, "ref", DDL_PRECISION_BF16, NULL);
        for (size_t k = 0; k < sizeof faults / sizeof *faults; k++) {
            struct results cpu = results_of(variant, "cpu", DDL_PRECISION_BF16, faults[k]);
            char what[512];
            if (share_of_limit(variant, &cpu, &ref, &exact, what, sizeof what) <= 1)
                fail_msg("%s: %s passes: %s", isa, faults[k], what);
            free(cpu.gradients);
        }
        free(exact.gradients);
        free(ref.gradients);
    }
}

static void faults_are_found(void **state)
{
    (void)state;
    skip_if_simulated();
    on_every_isa(faults_exceed_the_limits);
}

/* Logits, computed by rows, give the loss that is computed over tiles. */
static void logits_give_the_loss(void **state)
{
    (void)state;
    for (size_t b = 0; test_backend(b); b++) {
        struct ddl_config config = small_config("ddl-cc-ec");
        struct small_model f;
        struct ddl_error err;
        small_model_make(&f, test_backend(b), &config, DDL_PRECISION_BF16);
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

/* After steps of the optimizer and writes to parameters a model computes what a new one with the same values
 * does. */
static void products_see_what_was_written(void **state)
{
    (void)state;
    for (size_t b = 0; test_backend(b); b++) {
        struct ddl_config config = small_config("ddl-tc-ec");
        struct ddl_optim_config optim_config = ddl_optim_defaults();
        struct small_model f, g;
        struct ddl_optim *optim;
        struct ddl_loss loss;
        struct ddl_error err;
        small_model_make(&f, test_backend(b), &config, DDL_PRECISION_BF16);
        small_model_make(&g, test_backend(b), &config, DDL_PRECISION_BF16);
        (void)small_mean_loss(&g); /* its first values are rounded */
        assert_ok(ddl_optim_create(&optim, f.model, &optim_config, &err), err);
        for (int step = 0; step < 3; step++) {
            ddl_model_zero_grad(f.model);
            assert_ok(ddl_model_backward(f.model, f.ws, &f.batch, 1, &loss, &err), err);
            ddl_optim_step(optim, 0.1);
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

/* A model in that precision, with float32 values too or (`inference_only`) without them. */
static void make_reduced(struct small_model *f, const char *backend, const struct ddl_config *config,
                         enum ddl_precision precision, bool inference_only)
{
    struct ddl_error err;
    small_model_make(f, backend, config, DDL_PRECISION_F32);
    if (!inference_only) {
        assert_ok(ddl_model_set_precision(f->model, precision, &err), err);
        return;
    }
    ddl_workspace_free(f->ws);
    ddl_model_free(f->model);
    f->ws = NULL;
    assert_ok(ddl_model_create_for_inference(&f->model, config, precision, f->backend, &err), err);
    assert_ok(ddl_model_init(f->model, 7, &err), err);
}

/* Logits of one variant in one precision: free each. */
static float *decoded_on(const char *backend, const struct ddl_config *config, enum ddl_precision precision,
                         bool inference_only, size_t piece, enum ddl_cache_form form)
{
    struct small_model f;
    make_reduced(&f, backend, config, precision, inference_only);
    float *logits = decoded(&f, piece, form);
    small_model_free(&f);
    return logits;
}

/* Float32 rounding errors alone: the limit of `ddl verify` for decoding. */
static const double float32_limit = 1e-5;

/* Decoding token by token (products of few rows) and in pieces against the whole pass on ref, for inference
 * alone (`inference_only`) too. Where numbers are rounded to bfloat16, by products or by the cache (`form`),
 * errors are judged by the error of the same on ref: base/noise.h. Eight-bit weights are the same on both
 * backends. */
static void decoding_of_variant(size_t i, enum ddl_precision precision, bool inference_only,
                                enum ddl_cache_form form)
{
    struct ddl_config config = variant_config(&small_variants[i]);
    size_t n = SMALL_B * SMALL_T * config.vocab_size;
    bool rounds = precision == DDL_PRECISION_BF16 || form == DDL_CACHE_BF16;
    enum ddl_precision unrounded = precision == DDL_PRECISION_BF16 ? DDL_PRECISION_F32 : precision;
    float *exact = decoded_on("ref", &config, unrounded, inference_only, SMALL_T, DDL_CACHE_F32);
    for (size_t piece = SMALL_T; piece >= 1; piece = piece > 1 ? piece / 4 : 0) {
        float *ref = decoded_on("ref", &config, precision, inference_only, piece, form);
        float *cpu = decoded_on("cpu", &config, precision, inference_only, piece, form);
        struct ddl_noise noise = ddl_noise_measure(1, &(struct ddl_noise_tensor){ n, cpu, ref, exact });
        double error =
            rounds ? noise.one : fmax(relative_error(n, cpu, exact), relative_error(n, ref, exact));
        double limit = rounds ? DDL_NOISE_LIMIT_ONE : float32_limit;
        if (!(error <= limit))
            fail_msg("%s, %s, pieces of %zu, cache %s: error %.3g, limit %.3g", small_variants[i].name,
                     ddl_precision_names[precision], piece, ddl_cache_form_names[form], error, limit);
        free(ref);
        free(cpu);
    }
    free(exact);
}

/* A sample has other cases for each instruction set. */
static void decoding_on_isa(const char *isa)
{
    static size_t cases;
    (void)isa;
    for (int inference_only = 0; inference_only < 2; inference_only++) {
        for (size_t i = 0; i < SMALL_VARIANTS; i++) {
            for (size_t k = 0; k < TEST_PRECISIONS; k++) {
                if (test_takes(cases++, 5))
                    decoding_of_variant(i, test_precisions[k], inference_only, DDL_CACHE_F32);
                if (test_takes(cases++, 5))
                    decoding_of_variant(i, test_precisions[k], inference_only, DDL_CACHE_BF16);
            }
        }
    }
}

static void decoding_is_the_forward_pass(void **state)
{
    (void)state;
    on_every_isa(decoding_on_isa);
}

/* DDL_CACHE_AUTO is the form of the weights, bfloat16 for eight bits. With bfloat16 weights keys and values
 * are bfloat16 numbers, which both forms hold exactly. */
static void the_cache_goes_with_the_weights(void **state)
{
    (void)state;
    struct ddl_config config = small_config("ddl-cc");
    for (size_t k = 0; k < TEST_PRECISIONS; k++) {
        enum ddl_precision precision = test_precisions[k];
        struct small_model f;
        make_reduced(&f, test_backend(0), &config, precision, true);
        size_t bytes = SMALL_B * SMALL_T * config.vocab_size * sizeof(float);
        float *of[] = { decoded(&f, 1, DDL_CACHE_AUTO), decoded(&f, 1, DDL_CACHE_F32),
                        decoded(&f, 1, DDL_CACHE_BF16) };
        assert_memory_equal(of[0], of[precision == DDL_PRECISION_F32 ? 1 : 2], bytes);
        assert_int_equal(precision == DDL_PRECISION_BF16, memcmp(of[1], of[2], bytes) == 0);
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
    small_model_make(&f, test_backend(0), &config, DDL_PRECISION_F32);
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
        struct results first = results_of(&small_variants[i], test_backend(0), DDL_PRECISION_BF16, NULL);
        struct results again = results_of(&small_variants[i], test_backend(0), DDL_PRECISION_BF16, NULL);
        assert_true(first.loss == again.loss);
        assert_memory_equal(first.gradients, again.gradients, first.n * sizeof *first.gradients);
        free(first.gradients);
        free(again.gradients);
    }
}

/* Calls of the ops that round to bfloat16 and do nothing else, in a step after the first, which rounds the
 * parameters. */
static size_t casts_of_a_step(const struct ddl_config *config, enum ddl_recompute recompute)
{
    const struct ddl_workspace_options options = {
        .batch = SMALL_B, .tokens = SMALL_T, .train = true, .recompute = recompute
    };
    struct small_model f;
    struct ddl_profile profile;
    struct ddl_loss loss;
    struct ddl_error err;
    ddl_workspace *ws;
    small_model_make(&f, test_backend(0), config, DDL_PRECISION_BF16);
    ddl_profile_init(&profile, f.backend);
    assert_ok(ddl_workspace_create(&ws, f.model, &options, &err), err);
    assert_ok(ddl_model_backward(f.model, ws, &f.batch, 1, &loss, &err), err);
    ddl_backend *real = ddl_model_replace_backend(f.model, &profile.backend);
    assert_ok(ddl_model_backward(f.model, ws, &f.batch, 1, &loss, &err), err);
    (void)ddl_model_replace_backend(f.model, real);
    assert_true(profile.rows[DDL_OP_matmul_bf16].calls > 0);
    ddl_workspace_free(ws);
    small_model_free(&f);
    return profile.rows[DDL_OP_cast_bf16].calls + profile.rows[DDL_OP_copy_bf16].calls;
}

static void check_casts(const char *name, const struct ddl_config *config)
{
    for (int recompute = 0; recompute < DDL_RECOMPUTES; recompute++) {
        size_t casts = casts_of_a_step(config, (enum ddl_recompute)recompute);
        if (casts)
            fail_msg("%s: recompute %s: a step casts %zu tensors to bfloat16", name,
                     ddl_recompute_names[recompute], casts);
    }
}

/* In none of the named models, and in none of the variants, which have every option of a rule. */
static void activations_are_not_cast(void **state)
{
    (void)state;
    const char *preset;
    skip_if_simulated();
    for (size_t i = 0; (preset = ddl_config_preset_list(i, NULL)); i++) {
        struct ddl_config config = small_config(preset);
        check_casts(preset, &config);
    }
    for (size_t i = 0; i < SMALL_VARIANTS; i++) {
        struct ddl_config config = variant_config(&small_variants[i]);
        check_casts(small_variants[i].name, &config);
    }
}

/* The products of a pass that may round their operands to TF32, and those of gates. */
static struct {
    const ddl_model *model;
    const struct ddl_ops *real;
    size_t weights, gates;
} recorded;

/* The parameter that `numbers` belong to, in a buffer of all of them. */
static const struct ddl_param *param_at(const float *buffer, const float *numbers)
{
    const struct params *all = &recorded.model->params;
    for (size_t i = 0; i < all->n; i++) {
        const float *first = buffer + all->offset[i];
        if (numbers >= first && numbers < first + all->row[i].count)
            return &all->row[i];
    }
    return NULL;
}

static void record_matmul(void *ctx, const struct matmul_args *a)
{
    const struct ddl_param *weight = param_at(recorded.model->value, a->B),
                           *param = weight ? weight : param_at(recorded.model->grad, a->C);
    struct matmul_args exact = *a;
    if (!param)
        fail_msg("a product without a weight");
    bool is_gate = strstr(param->name, ".beta_in.") != NULL;
    if (a->tf32 == is_gate)
        fail_msg("%s: tf32 is %d", param->name, a->tf32);
    recorded.gates += is_gate;
    recorded.weights += !is_gate;
    exact.tf32 = false;
    recorded.real->matmul(ctx, &exact);
}

/* In tf32 every product of a pass may round its operands, except those of gates. */
static void gates_are_not_rounded_to_tf32(void **state)
{
    (void)state;
    const struct ddl_workspace_options options = { .batch = SMALL_B, .tokens = SMALL_T, .train = true };
    skip_if_simulated();
    for (size_t i = 0; i < SMALL_VARIANTS; i++) {
        struct ddl_config config = variant_config(&small_variants[i]);
        struct small_model f;
        struct ddl_loss loss;
        struct ddl_error err;
        small_model_make(&f, "ref", &config, DDL_PRECISION_F32);
        struct ddl_ops ops = *f.backend->ops;
        struct ddl_backend backend = *f.backend;
        ops.has_tf32 = true;
        ops.matmul = record_matmul;
        backend.ops = &ops;
        recorded.model = f.model;
        recorded.real = f.backend->ops;
        (void)ddl_model_replace_backend(f.model, &backend);
        assert_ok(ddl_model_set_precision(f.model, DDL_PRECISION_TF32, &err), err);
        ddl_workspace_free(f.ws);
        assert_ok(ddl_workspace_create(&f.ws, f.model, &options, &err), err);
        assert_ok(ddl_model_backward(f.model, f.ws, &f.batch, 1, &loss, &err), err);
        (void)ddl_model_replace_backend(f.model, f.backend);
        small_model_free(&f);
    }
    assert_true(recorded.weights > 0 && recorded.gates > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_are_near),
        cmocka_unit_test(faults_are_found),
        cmocka_unit_test(logits_give_the_loss),
        cmocka_unit_test(products_see_what_was_written),
        cmocka_unit_test(decoding_is_the_forward_pass),
        cmocka_unit_test(the_cache_goes_with_the_weights),
        cmocka_unit_test(eight_bits_are_not_trained),
        cmocka_unit_test(runs_repeat),
        cmocka_unit_test(activations_are_not_cast),
        cmocka_unit_test(gates_are_not_rounded_to_tf32),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
