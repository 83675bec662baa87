/* Models for inference: what they hold, that they compute with it what a whole model of the same values does,
 * what they cost, and what they refuse. */
#include "support/models.h"
#include "support/runs.h"

#include "ddl/session.h"

#include "base/bf16.h"
#include "ops/ops.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { V = 2500 }; /* of which several pieces are made on the way */

static const enum ddl_precision reduced[] = { DDL_PRECISION_BF16, DDL_PRECISION_INT8 };
enum { N_REDUCED = sizeof reduced / sizeof *reduced };

static struct ddl_config config_of(const struct small_variant *variant)
{
    struct ddl_config config = variant_config(variant);
    config.vocab_size = V;
    return config;
}

/* By name, as a reader of the paper would say: what products read. */
static bool in_products(const struct ddl_param *param)
{
    static const char *const ends[] = { ".wte.weight",    ".c_q.weight",   ".c_k.weight",   ".c_v.weight",
                                        ".c_proj.weight", ".c_fc1.weight", ".c_fc2.weight", ".k_proj.weight",
                                        ".k_down.weight", ".k_up.weight",  ".gate.weight",  ".down.weight",
                                        ".up.weight" };
    size_t length = strlen(param->name);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        size_t n = strlen(ends[i]);
        if (length >= n && strcmp(param->name + length - n, ends[i]) == 0)
            return param->shape[0] > 1; /* a gate of one number per row is none */
    }
    return false;
}

static float *values_of(const ddl_model *model, size_t i)
{
    float *values = malloc(ddl_model_param(model, i)->count * sizeof *values);
    assert_non_null(values);
    ddl_model_read_param(model, i, values);
    return values;
}

/* Groups of 32 in a row: the largest stays, the others are half a step off at most. */
static void assert_in_steps(const float *x, const float *y, size_t rows, size_t width)
{
    for (size_t row = 0; row < rows; row++) {
        for (size_t first = 0; first < width; first += 32) {
            size_t n = width - first < 32 ? width - first : 32;
            const float *a = x + row * width + first, *b = y + row * width + first;
            float largest = 0, kept = 0;
            for (size_t i = 0; i < n; i++) {
                largest = fmaxf(largest, fabsf(a[i]));
                kept = fmaxf(kept, fabsf(b[i]));
            }
            assert_true(fabsf(kept - largest) <= 1e-6f * largest);
            for (size_t i = 0; i < n; i++)
                assert_true(fabsf(a[i] - b[i]) <= largest / 254 * 1.0001f);
        }
    }
}

static void assert_reduced(const ddl_model *inference_only, const ddl_model *whole,
                           enum ddl_precision precision)
{
    for (size_t i = 0; i < ddl_model_n_params(whole); i++) {
        const struct ddl_param *param = ddl_model_param(whole, i);
        float *x = values_of(whole, i), *y = values_of(inference_only, i);
        if (in_products(param) && precision == DDL_PRECISION_INT8)
            assert_in_steps(x, y, param->shape[0], param->shape[1]);
        for (size_t j = 0; in_products(param) && precision == DDL_PRECISION_BF16 && j < param->count; j++)
            x[j] = ddl_bf16_widen(ddl_bf16_round(x[j]));
        if (!in_products(param) || precision == DDL_PRECISION_BF16)
            assert_memory_equal(x, y, param->count * sizeof *x);
        free(x);
        free(y);
    }
}

static void assert_same_values(const ddl_model *a, const ddl_model *b)
{
    for (size_t i = 0; i < ddl_model_n_params(a); i++) {
        float *x = values_of(a, i), *y = values_of(b, i);
        assert_memory_equal(x, y, ddl_model_param(a, i)->count * sizeof *x);
        free(x);
        free(y);
    }
}

/* Initial values, values written and values read from a file are reduced alike, as the precision says. */
static void what_is_held(void **state)
{
    (void)state;
    for (size_t k = 0; k < N_REDUCED * SMALL_VARIANTS; k++) {
        struct ddl_config config = config_of(&small_variants[k / N_REDUCED]);
        struct ddl_load_options options = { .precision = reduced[k % N_REDUCED] };
        const char *folder = scratch_path("whole");
        ddl_model *whole, *inference_only, *loaded;
        ddl_backend *backend;
        struct ddl_error err;
        assert_ok(ddl_backend_create(&backend, k % 4 < 2 ? "ref" : test_backend(0), 2, &err), err);
        assert_ok(ddl_model_create(&whole, &config, backend, &err), err);
        assert_ok(ddl_model_init(whole, 3, &err), err);
        assert_ok(ddl_file_make_dir(folder, &err), err);
        assert_ok(ddl_model_save(whole, folder, &err), err);
        assert_ok(ddl_model_create_for_inference(&inference_only, &config, options.precision, backend, &err),
                  err);
        assert_ok(ddl_model_init(inference_only, 3, &err), err);
        assert_int_equal(ddl_model_precision(inference_only), options.precision);
        assert_reduced(inference_only, whole, options.precision);
        assert_ok(ddl_model_load_with(&loaded, folder, backend, &options, &err), err);
        assert_same_values(loaded, inference_only);
        assert_ok(ddl_model_init(inference_only, 4, &err), err);
        for (size_t i = 0; i < ddl_model_n_params(whole); i++) {
            float *values = values_of(whole, i);
            ddl_model_write_param(inference_only, i, values);
            free(values);
        }
        assert_same_values(loaded, inference_only);
        ddl_model_free(loaded);
        ddl_model_free(inference_only);
        ddl_model_free(whole);
        ddl_backend_free(backend);
    }
}

/* Logits (B, T, V) of a model; free with free. */
static float *logits_of(ddl_model *model, const struct ddl_batch *batch)
{
    float *logits = malloc(batch->B * batch->T * V * sizeof *logits);
    ddl_workspace *ws;
    struct ddl_error err;
    assert_non_null(logits);
    assert_ok(ddl_workspace_create(
                  &ws, model, &(struct ddl_workspace_options){ .batch = batch->B, .tokens = batch->T }, &err),
              err);
    assert_ok(ddl_model_logits(model, ws, batch, batch->T, logits, &err), err);
    ddl_workspace_free(ws);
    return logits;
}

/* Rounding what is rounded changes nothing, so a whole model with the values that are held gives the same. In
 * eight bits its scales are recomputed from 127 times themselves: a last digit may differ. */
static void computes_as_a_whole_model(void **state)
{
    (void)state;
    static const int32_t tokens[] = { 1, 2499, 17, 1024, 1023, 0, 2048, 9 };
    const struct ddl_batch batch = { 2, 4, tokens, NULL };
    for (size_t k = 0; k < N_REDUCED * SMALL_VARIANTS; k++) {
        struct ddl_config config = config_of(&small_variants[k / N_REDUCED]);
        for (size_t b = 0; test_backend(b); b++) {
            ddl_model *whole, *inference_only;
            ddl_backend *backend;
            struct ddl_error err;
            assert_ok(ddl_backend_create(&backend, test_backend(b), 2, &err), err);
            assert_ok(ddl_model_create_for_inference(&inference_only, &config, reduced[k % N_REDUCED],
                                                     backend, &err),
                      err);
            assert_ok(ddl_model_init(inference_only, 5, &err), err);
            assert_ok(ddl_model_create(&whole, &config, backend, &err), err);
            for (size_t i = 0; i < ddl_model_n_params(whole); i++) {
                float *values = values_of(inference_only, i);
                ddl_model_write_param(whole, i, values);
                free(values);
            }
            assert_ok(ddl_model_set_precision(whole, reduced[k % N_REDUCED], &err), err);
            float *found = logits_of(inference_only, &batch), *expected = logits_of(whole, &batch);
            size_t n = batch.B * batch.T * V;
            if (reduced[k % N_REDUCED] == DDL_PRECISION_BF16)
                assert_memory_equal(found, expected, n * sizeof *found);
            else
                assert_close(n, found, expected, 1e-5);
            free(found);
            free(expected);
            ddl_model_free(whole);
            ddl_model_free(inference_only);
            ddl_backend_free(backend);
        }
    }
}

/* ---- memory ---- */

/* A backend that counts the bytes that it allocates. */
static struct {
    const struct ddl_ops *ops;
    size_t now, most;
    struct {
        void *block;
        size_t bytes;
    } allocated[64];
} count;

static void *counted_alloc(void *ctx, size_t bytes)
{
    void *block = count.ops->alloc(ctx, bytes);
    for (size_t i = 0; i < 64; i++) {
        if (count.allocated[i].block)
            continue;
        count.allocated[i].block = block;
        count.allocated[i].bytes = bytes;
        count.now += bytes;
        count.most = count.now > count.most ? count.now : count.most;
        return block;
    }
    fail_msg("more than 64 blocks");
    return NULL;
}

static void counted_free(void *ctx, void *block)
{
    for (size_t i = 0; i < 64; i++) {
        if (count.allocated[i].block == block) {
            count.now -= count.allocated[i].bytes;
            count.allocated[i].block = NULL;
            break;
        }
    }
    count.ops->free(ctx, block);
}

/* Loading allocates the documented bytes of the weights, a line of padding per row, and a buffer. */
static void memory_is_as_reported(void **state)
{
    (void)state;
    enum { PIECE_BYTES = (1 << 18) + (1 << 12) };
    static const double bytes_a_weight[] = { 4, 2, 1.5 }; /* rows of 21 numbers fill 32 of int8's */
    for (size_t k = 0; k < TEST_PRECISIONS; k++) {
        enum ddl_precision precision = test_precisions[k];
        struct ddl_config config = small_config("ddl-cc-ec");
        struct ddl_load_options options = { .precision = precision };
        const char *folder = scratch_path("counted");
        ddl_model *model;
        struct ddl_error err;
        config.vocab_size = 20000;
        ddl_backend *backend = open_test_backend(2);
        assert_ok(ddl_model_create(&model, &config, backend, &err), err);
        assert_ok(ddl_file_make_dir(folder, &err), err);
        assert_ok(ddl_model_save(model, folder, &err), err);
        size_t padding = 64 * ddl_model_n_params(model), numbers = ddl_model_size(model);
        ddl_model_free(model);

        struct ddl_ops counting = *backend->ops;
        struct ddl_backend counted = *backend;
        counting.alloc = counted_alloc;
        counting.free = counted_free;
        counted.ops = &counting;
        memset(&count, 0, sizeof count);
        count.ops = backend->ops;
        size_t reported = ddl_config_weight_bytes(&config, options.precision, backend);
        assert_ok(ddl_model_load_with(&model, folder, &counted, &options, &err), err);
        assert_true(count.now >= reported && count.now <= reported + padding + (precision ? PIECE_BYTES : 0));
        assert_true(count.most == count.now);
        assert_true((double)reported < bytes_a_weight[k] * (double)numbers * 1.2 + 4000);
        ddl_model_free(model);
        assert_int_equal(count.now, 0);
        ddl_backend_free(backend);
    }
    struct ddl_config wrong = small_config("baseline");
    wrong.n_heads = 0;
    assert_true(ddl_config_weight_bytes(&wrong, DDL_PRECISION_BF16, NULL) == SIZE_MAX);
}

/* ---- refusals ---- */

static void refusals(void **state)
{
    (void)state;
    static const char *const alone[] = { "its weights in bf16 alone", "its weights in int8 alone" };
    for (size_t k = 0; k < N_REDUCED; k++) {
        struct ddl_config config = small_config("ddl-cc-ec");
        ddl_model *model;
        ddl_workspace *ws;
        struct ddl_error err;
        ddl_backend *backend = open_test_backend(2);
        assert_ok(ddl_model_create_for_inference(&model, &config, reduced[k], backend, &err), err);
        assert_int_equal(ddl_model_enable_grad(model, &err), DDL_E_USAGE);
        assert_says(&err, alone[k]);
        assert_says(&err, "to train, load it in f32");
        assert_int_equal(
            ddl_workspace_create(
                &ws, model, &(struct ddl_workspace_options){ .batch = 1, .tokens = 4, .train = true }, &err),
            DDL_E_USAGE);
        assert_says(&err, k ? "eight-bit weights cannot be trained" : "to train, load it in f32");
        assert_null(ws);
        assert_int_equal(ddl_model_save(model, scratch_path("."), &err), DDL_E_USAGE);
        assert_says(&err, "to save, load it in f32");
        assert_int_equal(ddl_model_set_precision(model, DDL_PRECISION_F32, &err), DDL_E_USAGE);
        assert_says(&err, "load it again for f32");
        assert_int_equal(ddl_model_set_precision(model, reduced[1 - k], &err), DDL_E_USAGE);
        assert_ok(ddl_model_set_precision(model, reduced[k], &err), err);
        assert_int_equal(ddl_model_precision(model), reduced[k]);
        ddl_model_free(model);
        ddl_backend_free(backend);
    }
}

/* Values of enums that do not exist, passed from C, without the checks of an option table. */
static void refused_choices(void **state)
{
    (void)state;
    const int wrong[] = { -1, DDL_PRECISION_INT8 + 1, 1000000 };
    struct ddl_config config = small_config("ddl-cc-ec");
    const char *folder = scratch_path("choices");
    ddl_backend *backend;
    ddl_model *model, *other;
    ddl_workspace *ws;
    ddl_session *session;
    struct ddl_error err;
    assert_ok(ddl_backend_create(&backend, "ref", 1, &err), err);
    assert_ok(ddl_model_create(&model, &config, backend, &err), err);
    assert_ok(ddl_file_make_dir(folder, &err), err);
    assert_ok(ddl_model_save(model, folder, &err), err);
    assert_int_equal(ddl_model_set_precision(model, DDL_PRECISION_TF32, &err), DDL_E_UNSUPPORTED);
    assert_says(&err, "dtype tf32: backend ref does not have it: use f32 or bf16, or backend cuda");
    assert_int_equal(ddl_model_create_for_inference(&other, &config, DDL_PRECISION_TF32, backend, &err),
                     DDL_E_UNSUPPORTED);
    assert_null(other);
    assert_int_equal(ddl_model_precision(model), DDL_PRECISION_F32);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        enum ddl_precision precision = (enum ddl_precision)wrong[i];
        const struct ddl_load_options load = { .precision = precision };
        const struct ddl_workspace_options options = { .batch = 1,
                                                       .tokens = 4,
                                                       .recompute = (enum ddl_recompute)wrong[i] };
        const struct ddl_session_options decoding = { .slots = 1,
                                                      .tokens = 4,
                                                      .form = (enum ddl_cache_form)wrong[i] };
        assert_int_equal(ddl_model_create_for_inference(&other, &config, precision, backend, &err),
                         DDL_E_USAGE);
        assert_null(other);
        assert_says(&err, "precision");
        assert_says(&err, "is out of range (0 to 3)");
        assert_int_equal(ddl_model_load_with(&other, folder, backend, &load, &err), DDL_E_USAGE);
        assert_null(other);
        assert_int_equal(ddl_model_set_precision(model, precision, &err), DDL_E_USAGE);
        assert_int_equal(ddl_model_precision(model), DDL_PRECISION_F32);
        assert_true(ddl_config_weight_bytes(&config, precision, backend) == SIZE_MAX);
        assert_int_equal(ddl_workspace_create(&ws, model, &options, &err), DDL_E_USAGE);
        assert_null(ws);
        assert_says(&err, "recompute");
        assert_true(ddl_workspace_bytes(&config, DDL_PRECISION_F32, &options, backend) == SIZE_MAX);
        assert_int_equal(ddl_session_create(&session, model, &decoding, &err), DDL_E_USAGE);
        assert_null(session);
        assert_true(ddl_session_bytes(&config, DDL_PRECISION_F32, &decoding, backend) == SIZE_MAX);
        assert_says(&err, "cache");
    }
    ddl_model_free(model);
    ddl_backend_free(backend);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_held),          cmocka_unit_test(computes_as_a_whole_model),
        cmocka_unit_test(memory_is_as_reported), cmocka_unit_test(refusals),
        cmocka_unit_test(refused_choices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
