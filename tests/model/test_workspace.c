/* model/pass/measure.c, and what block.c, attention.c and mlp.c recompute: with every choice of `recompute`
 * the loss is bit-identical, so are gradients where no state is reversed, and memory is as documented. */
#include "support/properties.h"
#include "support/models.h"
#include "support/files.h"

#include "base/rng.h"
#include "model/pass/compress.h"
#include "model/pass/measure.h"
#include "model/residual/table.h"
#include "model/pass/workspace.h"

#include <math.h>
#include <stdlib.h>

static bool reverses_a_state(const struct ddl_config *config)
{
    for (size_t l = 0; l < config->n_layers; l++) {
        if (residual_rule_of(config, l)->earlier == STREAM_REVERSED)
            return true;
    }
    return false;
}

/* Loss and gradients of one pass with a choice; free the gradients. */
static float *gradients_of(ddl_model *model, const struct ddl_batch *batch, int recompute, double *loss)
{
    const struct ddl_workspace_options options = {
        .batch = batch->B, .tokens = batch->T, .train = true, .recompute = (enum ddl_recompute)recompute
    };
    struct ddl_loss sum;
    struct ddl_error err;
    ddl_workspace *ws;
    assert_ok(ddl_workspace_create(&ws, model, &options, &err), err);
    ddl_model_zero_grad(model);
    assert_ok(ddl_model_backward(model, ws, batch, 0.1, &sum, &err), err);
    ddl_workspace_free(ws);
    *loss = sum.sum;
    return all_gradients(model);
}

/* The largest error of a parameter's gradient, measured as ddl verify does. */
static double apart(const ddl_model *model, const float *found, const float *expected)
{
    double largest = 0, worst = 0;
    size_t at = 0, n;
    for (size_t i = 0; i < ddl_model_n_params(model); i++, at += n) {
        n = ddl_model_param(model, i)->count;
        largest = fmax(largest, rms(n, expected + at));
    }
    at = 0;
    for (size_t i = 0; i < ddl_model_n_params(model); i++, at += n) {
        n = ddl_model_param(model, i)->count;
        double size = rms(n, expected + at), floor = fmax(size, 0.01 * largest);
        if (size > 0)
            worst = fmax(worst, relative_error(n, found + at, expected + at) * size / floor);
        else
            assert_memory_equal(found + at, expected + at, n * sizeof *found);
    }
    return worst;
}

/* How far apart the gradients of two ways to compute them may be. In float32: what `ddl verify` allows
 * (rebuilding the state leaves a tenth of that). In bfloat16 a number that lies near the middle between two
 * roundings can fall to the other side, and so can every later number that depends on it: the gradients have
 * the errors of two independent backward passes behind one forward pass. With E their distance from those in
 * float32, to which both passes contribute alike, each backward pass is E/sqrt(2) off, and the two are E
 * apart. */
static double limit_of(ddl_model *model, const struct ddl_batch *batch, const float *grads)
{
    static const double F32_LIMIT = 1e-4;
    struct ddl_error err;
    double loss;
    if (ddl_model_precision(model) != DDL_PRECISION_BF16)
        return F32_LIMIT;
    assert_ok(ddl_model_set_precision(model, DDL_PRECISION_F32, &err), err);
    float *exact = gradients_of(model, batch, DDL_RECOMPUTE_ELEMENTWISE, &loss);
    assert_ok(ddl_model_set_precision(model, DDL_PRECISION_BF16, &err), err);
    double error = apart(model, grads, exact);
    free(exact);
    return fmax(F32_LIMIT, error);
}

/* All choices on a model as it is: what is most apart from the default. */
static void compare_choices(const char *name, ddl_model *model, const struct ddl_batch *batch)
{
    double loss[DDL_RECOMPUTES], worst = 0;
    float *grads[DDL_RECOMPUTES];
    bool reversed = reverses_a_state(ddl_model_config(model));
    for (int r = 0; r < DDL_RECOMPUTES; r++) {
        grads[r] = gradients_of(model, batch, r, &loss[r]);
        assert_true(loss[r] == loss[0]);
        if (!reversed)
            assert_memory_equal(grads[r], grads[0], ddl_model_size(model) * sizeof(float));
        worst = fmax(worst, apart(model, grads[r], grads[0]));
    }
    double limit = limit_of(model, batch, grads[0]);
    for (int r = 0; r < DDL_RECOMPUTES; r++)
        free(grads[r]);
    if (!(worst <= limit))
        fail_msg("%s, %s, %s: gradients of two choices differ by %g", name,
                 ddl_backend_name(ddl_model_backend(model)), ddl_precision_names[ddl_model_precision(model)],
                 worst);
}

static void choices_agree(ddl_backend *backend)
{
    for (size_t i = 0; i < 2 * SMALL_VARIANTS; i++) {
        struct ddl_config config = variant_config(&small_variants[i / 2]);
        struct small_model f;
        small_model_make(&f, ddl_backend_name(backend), &config,
                         i % 2 ? DDL_PRECISION_BF16 : DDL_PRECISION_F32);
        compare_choices(small_variants[i / 2].name, f.model, &f.batch);
        small_model_free(&f);
    }
}
PROPERTY(choices_agree)

static void golden_choices(const char *name, ddl_model *model, const struct ddl_batch *batch)
{
    struct ddl_error err;
    for (int precision = DDL_PRECISION_F32; precision <= DDL_PRECISION_BF16; precision++) {
        assert_ok(ddl_model_set_precision(model, (enum ddl_precision)precision, &err), err);
        compare_choices(name, model, batch);
    }
}

static void golden_models_agree(ddl_backend *backend)
{
    on_every_golden_model(backend, golden_choices);
}
PROPERTY(golden_models_agree)

/* ---- blocks of logits ---- */

enum { BLOCKS_B = 2, BLOCKS_T = 35, BLOCKS_N = BLOCKS_B * BLOCKS_T }; /* three blocks of up to 32 rows */
static size_t vocabulary;

static const struct ddl_ops *counted;
static size_t allocated; /* bytes of backend memory */

static void *counted_alloc(void *ctx, size_t bytes)
{
    allocated += bytes;
    return counted->alloc(ctx, bytes);
}

static size_t forty_rows(void *ctx)
{
    (void)ctx;
    return 40 * vocabulary;
}

/* A backend that wants blocks of whole rows: the same losses, and gradients as far apart as choices of what
 * is recomputed may be. */
static void logits_come_in_blocks_of_the_backend(ddl_backend *backend)
{
    struct ddl_ops ops = *backend->ops;
    ddl_backend with_blocks = *backend;
    int32_t tokens[BLOCKS_N], targets[BLOCKS_N];
    const struct ddl_batch batch = { BLOCKS_B, BLOCKS_T, tokens, targets };
    struct ddl_config k = small_config("ddl-cc");
    k.block_size = BLOCKS_T;
    ops.logit_block = forty_rows;
    ops.alloc = counted_alloc;
    counted = backend->ops;
    with_blocks.ops = &ops;
    vocabulary = k.vocab_size;
    for (uint64_t i = 0; i < BLOCKS_N; i++) {
        tokens[i] = (int32_t)ddl_rng_below(1, i, k.vocab_size);
        targets[i] = i % 5 == 2 ? -1 : (int32_t)ddl_rng_below(2, i, k.vocab_size);
    }
    for (int precision = DDL_PRECISION_F32; precision <= DDL_PRECISION_BF16; precision++) {
        struct ddl_error err;
        ddl_model *model[2];
        ddl_workspace *ws;
        double loss[2];
        float *grads[2];
        for (size_t i = 0; i < 2; i++) {
            assert_ok(ddl_model_create(&model[i], &k, i ? &with_blocks : backend, &err), err);
            assert_ok(ddl_model_init(model[i], 7, &err), err);
            assert_ok(ddl_model_enable_grad(model[i], &err), err);
            assert_ok(ddl_model_set_precision(model[i], (enum ddl_precision)precision, &err), err);
            grads[i] = gradients_of(model[i], &batch, DDL_RECOMPUTE_ELEMENTWISE, &loss[i]);
        }
        const struct ddl_workspace_options options = { .batch = BLOCKS_B, .tokens = BLOCKS_T, .train = true };
        allocated = 0;
        assert_ok(ddl_workspace_create(&ws, model[1], &options, &err), err);
        assert_int_equal(
            allocated, ddl_workspace_total_bytes(&k, (enum ddl_precision)precision, &options, &with_blocks));
        assert_int_equal(ws->logit_rows, 32);
        assert_int_equal(ws->tile, 0);
        ddl_workspace_free(ws);
        close_enough(loss[1], loss[0], 1e-6 * fabs(loss[0]), "loss");
        double limit = limit_of(model[0], &batch, grads[0]), found = apart(model[0], grads[1], grads[0]);
        if (!(found <= limit))
            fail_msg("%s, %s: gradients differ by %g, limit %g", ddl_backend_name(backend),
                     ddl_precision_names[precision], found, limit);
        for (size_t i = 0; i < 2; i++) {
            free(grads[i]);
            ddl_model_free(model[i]);
        }
    }
}
PROPERTY(logits_come_in_blocks_of_the_backend)

/* ---- memory ---- */

static size_t bytes_of(const struct ddl_config *config, int precision, int recompute, size_t tokens)
{
    size_t bytes = ddl_workspace_bytes(
        config, (enum ddl_precision)precision,
        &(struct ddl_workspace_options){
            .batch = 1, .tokens = tokens, .train = true, .recompute = (enum ddl_recompute)recompute },
        NULL);
    assert_true(bytes < SIZE_MAX);
    return bytes;
}

/* Float32 numbers of a token that ctx, and in bfloat16 x_in, take in all sublayers. */
static size_t inputs(const struct ddl_config *k, bool bf16)
{
    size_t numbers = 0;
    for (size_t l = 0; l < k->n_layers; l++) {
        unsigned reads = residual_reads(k, l);
        numbers += !bf16 || reads & RULE_READS_CTX ? 2 * k->d_model : 0;
        numbers += bf16 ? k->d_model : 0; /* two of half the size */
        numbers += bf16 && reads & RULE_MULTIPLIES_X_IN ? k->d_model : 0;
    }
    return numbers;
}

/* What the choices save is what layers share: so many numbers a token, but for the rounding of each piece. */
static void memory_is_what_is_kept(void **state)
{
    (void)state;
    enum { T = 512 };
    for (size_t i = 0; i < SMALL_VARIANTS; i++) {
        struct ddl_config k = variant_config(&small_variants[i]);
        k.block_size = T;
        size_t L = k.n_layers, d = k.d_model, a = k.n_heads * k.head_dim, m = ddl_config_mlp_size(&k);
        size_t c = ddl_config_state_channels(&k);
        bool moved = residual_rule_of(&k, 0)->earlier == STREAM_KEPT && !k.dense_average;
        for (int precision = DDL_PRECISION_F32; precision <= DDL_PRECISION_BF16; precision++) {
            bool bf16 = precision == DDL_PRECISION_BF16;
            size_t number = bf16 ? sizeof(uint16_t) : sizeof(float); /* of what products and attention read */
            size_t aligned = bf16 ? 8 : 1; /* numbers of the MLP's rows, to a multiple */
            size_t ug = (2 * m + aligned - 1) / aligned * aligned, s = (m + aligned - 1) / aligned * aligned;
            size_t block = (L - 1) * (k.n_heads + (moved ? c * d : 0)) * sizeof(float);
            block += (L - 1) * (4 * a + ug) * number;
            size_t elementwise = inputs(&k, bf16) + 2 * L * (1 + (state_is_read(&k) ? d : 0));
            size_t values = k.value_residual ? (L - 2) * a : 0;
            elementwise = elementwise * sizeof(float) + ((L - 1) * (2 * a + s) + values) * number;
            size_t none = bytes_of(&k, precision, DDL_RECOMPUTE_NONE, T),
                   some = bytes_of(&k, precision, DDL_RECOMPUTE_ELEMENTWISE, T),
                   least = bytes_of(&k, precision, DDL_RECOMPUTE_BLOCK, T);
            assert_true(none > some && some > least);
            if (none - some != elementwise * T || some - least != block * T)
                fail_msg("%s: elementwise saves %zu bytes, block %zu more; expected %zu and %zu",
                         small_variants[i].name, none - some, some - least, elementwise * T, block * T);
        }
    }
}

/* In bfloat16 activations take at most 0.65 of the memory that they took when attention, norms and SwiGLU
 * wrote float32 and operands were cast: at size small, 8 sequences of 1,024 tokens, in MiB. */
static void bf16_halves_what_products_read(void **state)
{
    (void)state;
    static const struct {
        const char *preset;
        double before;
    } rows[] = { { "baseline", 3674.5 }, { "ddl-1", 3700.8 }, { "ddl-cc", 3897.4 } };
    const struct ddl_workspace_options options = { .batch = 8, .tokens = 1024, .train = true };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct ddl_config k = ddl_config_defaults();
        struct ddl_error err;
        assert_ok(ddl_config_set_size(&k, "small", &err), err);
        assert_ok(ddl_config_set_preset(&k, rows[i].preset, &err), err);
        double now = (double)ddl_workspace_bytes(&k, DDL_PRECISION_BF16, &options, NULL) / (1 << 20);
        print_message("%s: %.3f of %.1f MiB\n", rows[i].preset, now / rows[i].before, rows[i].before);
        assert_true(now <= 0.65 * rows[i].before);
    }
}

/* Nothing grows faster than the context: twice the tokens take at most twice the memory. */
static void memory_is_linear_in_tokens(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct ddl_config k = ddl_config_defaults();
        struct ddl_error err;
        assert_ok(ddl_config_set_size(&k, "mini", &err), err);
        assert_ok(ddl_config_set_preset(&k, i ? "ddl-cc-ec" : "baseline", &err), err);
        k.block_size = 65536;
        for (int choice = 0; choice < 2 * DDL_RECOMPUTES; choice++) {
            size_t before = bytes_of(&k, choice % 2, choice / 2, 512);
            for (size_t T = 1024; T <= 65536; T *= 2) {
                size_t now = bytes_of(&k, choice % 2, choice / 2, T);
                assert_true(now <= 2 * before);
                before = now;
            }
        }
    }
}

/* Without backward a choice changes nothing. */
static void a_pass_forward_keeps_nothing(void **state)
{
    (void)state;
    struct ddl_config k = small_config("ddl-cc-ec");
    size_t bytes[DDL_RECOMPUTES];
    for (int r = 0; r < DDL_RECOMPUTES; r++) {
        bytes[r] = ddl_workspace_bytes(
            &k, DDL_PRECISION_F32,
            &(struct ddl_workspace_options){ .batch = 2, .tokens = 8, .recompute = (enum ddl_recompute)r },
            NULL);
        assert_int_equal(bytes[r], bytes[0]);
    }
    assert_true(bytes[0] < bytes_of(&k, DDL_PRECISION_F32, DDL_RECOMPUTE_BLOCK, 16));
}

/* Activations have the shapes of one model: a pass of another in its workspace would write past them. */
static void another_model_is_refused(void **state)
{
    (void)state;
    struct ddl_error err;
    ddl_model *models[2];
    ddl_workspace *ws;
    ddl_backend *backend = open_test_backend(1);
    for (size_t i = 0; i < 2; i++) {
        struct ddl_config config = variant_config(&small_variants[0]);
        config.n_layers += i;
        assert_ok(ddl_model_create(&models[i], &config, backend, &err), err);
    }
    const struct ddl_workspace_options options = { .batch = 1, .tokens = 2 };
    assert_ok(ddl_workspace_create(&ws, models[0], &options, &err), err);
    const int32_t ids[] = { 1, 0 };
    const struct ddl_batch batch = { 1, 2, ids, ids };
    struct ddl_loss loss;
    assert_ok(ddl_model_loss(models[0], ws, &batch, &loss, NULL, &err), err);
    assert_int_equal(ddl_model_loss(models[1], ws, &batch, &loss, NULL, &err), DDL_E_USAGE);
    assert_says(&err, "the workspace was created for another model");
    ddl_model_zero_grad(models[1]); /* without gradients: no effect */
    ddl_workspace_free(ws);
    for (size_t i = 0; i < 2; i++)
        ddl_model_free(models[i]);
    ddl_backend_free(backend);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_choices_agree),
        cmocka_unit_test(test_golden_models_agree),
        cmocka_unit_test(test_logits_come_in_blocks_of_the_backend),
        cmocka_unit_test(memory_is_what_is_kept),
        cmocka_unit_test(memory_is_linear_in_tokens),
        cmocka_unit_test(bf16_halves_what_products_read),
        cmocka_unit_test(a_pass_forward_keeps_nothing),
        cmocka_unit_test(another_model_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
