/* ddl_config_match: widths of the MLP that match parameters or FLOPs, computed by hand; and mlp_size. */
#include "support/files.h"
#include "support/runs.h"

#include "ddl/export.h"
#include "ddl/model.h"
#include "tensor/safetensors.h"

/* d 21, three layers, V 31, m 56: a unit of width is 3 matrices of d numbers in each layer. */
enum { STEP = 3 * 3 * 21 };

static double parameters_of(const struct ddl_config *k)
{
    struct ddl_param *rows;
    struct ddl_error err;
    size_t n;
    double total = 0;
    assert_ok(ddl_params_plan(k, &rows, &n, &err), err);
    for (size_t i = 0; i < n; i++)
        total += (double)rows[i].count;
    free(rows);
    return total;
}

/* ddl-1 has 6 sublayers with a gate and a target of d + 1 numbers more than the baseline: 264, which are 1.40
 * units. ddl-cc-ec has 6 (d + 1 + 4 d + 4), four compressors with 4 d + 4, and 4 * 4 d of the embedding:
 * 1348, which are 7.13 units. */
static void parameters(void **state)
{
    (void)state;
    static const struct {
        const char *config, *model;
        size_t width;
        double more; /* numbers of `model` beside the baseline's */
    } cases[] = { { "baseline", "ddl-1", 57, 264 },      { "baseline", "ddl-1-beta1", 57, 264 },
                  { "baseline", "ddl-cc-ec", 63, 1348 }, { "ddl-1", "baseline", 55, 0 },
                  { "ddl-1", "ddl-1-write", 56, 264 },   { "ddl-cc-ec-erase", "ddl-1", 50, 264 } };
    const struct ddl_config baseline = tiny_config("baseline", 31);
    const double base = parameters_of(&baseline);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ddl_config k = tiny_config(cases[i].config, 31);
        struct ddl_match match;
        struct ddl_error err;
        assert_ok(ddl_config_match(&k, cases[i].model, DDL_MATCH_PARAMETERS, 0, &match, &err), err);
        assert_int_equal(match.mlp_size, cases[i].width);
        assert_int_equal(ddl_config_mlp_size(&k), cases[i].width);
        assert_true(match.target == base + cases[i].more);
        assert_true(match.cost == parameters_of(&k));
        assert_true(match.cost - match.target <= STEP / 2.0 && match.target - match.cost <= STEP / 2.0);
        assert_string_equal(match.model, cases[i].model);
    }
}

/* The named model has its own range of the gate, in which the initial value here need not lie. */
static void other_range_of_the_gate(void **state)
{
    (void)state;
    static const char *const models[] = { "baseline", "ddl-1" };
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        struct ddl_config k = tiny_config("gated", 31);
        struct ddl_match match;
        struct ddl_error err;
        k.beta_max = 4;
        k.beta_init = 3;
        assert_ok(ddl_config_match(&k, models[i], DDL_MATCH_PARAMETERS, 0, &match, &err), err);
    }
}

/* A unit is 2 * 189 FLOPs of the forward pass. ddl-1 costs 6 (2 * 2 d + 4 d + 4 d) = 1512 more: 4 units. A
 * fixed gate saves 6 * 2 d = 252 of them. */
static void flops(void **state)
{
    (void)state;
    struct ddl_config k = tiny_config("baseline", 31), wanted = tiny_config("ddl-1", 31);
    struct ddl_match match;
    struct ddl_error err;
    assert_ok(ddl_config_match(&k, "ddl-1", DDL_MATCH_FLOPS, 9, &match, &err), err);
    assert_int_equal(k.mlp_size, 60);
    assert_true(match.cost == match.target);
    assert_true(match.target == ddl_config_flops_per_token(&wanted, 9, true));
    assert_true(match.cost == ddl_config_flops_per_token(&k, 9, true));
    k.mlp_size = 0;
    assert_ok(ddl_config_match(&k, "ddl-1-beta1", DDL_MATCH_FLOPS, 0, &match, &err), err);
    assert_int_equal(match.mlp_size, 59); /* 56 + 1260/378 */
    assert_true(match.target - match.cost == 3 * (1260 - 3 * 378));
    assert_true(match.cost == ddl_config_flops_per_token(&k, k.block_size, true)); /* 0: the context */
}

/* The default width is stored as 0. */
static void own_cost_is_the_default_width(void **state)
{
    (void)state;
    struct ddl_config k = tiny_config("ddl-tc", 31), same = k;
    struct ddl_match match;
    struct ddl_error err;
    assert_ok(ddl_config_match(&k, "ddl-tc", DDL_MATCH_FLOPS, 9, &match, &err), err);
    assert_int_equal(match.mlp_size, 56);
    assert_true(match.cost == match.target);
    assert_memory_equal(&k, &same, sizeof k);
    k.mlp_size = 56; /* the same, explicitly */
    assert_ok(ddl_config_match(&k, "ddl-tc", DDL_MATCH_PARAMETERS, 9, &match, &err), err);
    assert_int_equal(k.mlp_size, 0);
}

static void refused(struct ddl_config *k, const char *model, enum ddl_match_kind kind, const char *message)
{
    struct ddl_match match = { .mlp_size = 1 };
    struct ddl_error err;
    struct ddl_config before = *k;
    assert_int_equal(ddl_config_match(k, model, kind, 9, &match, &err), DDL_E_USAGE);
    if (strcmp(err.text, message) != 0)
        fail_msg("'%s', expected '%s'", err.text, message);
    assert_int_equal(match.mlp_size, 0);
    assert_memory_equal(k, &before, sizeof before);
}

static void refusals(void **state)
{
    (void)state;
    struct ddl_config k = tiny_config("baseline", 31);
    refused(&k, "ddl-2", DDL_MATCH_FLOPS, "match_flops: unknown model 'ddl-2', did you mean 'ddl-1'?");
    k.mlp_size = 58;
    refused(&k, "ddl-1", DDL_MATCH_PARAMETERS,
            "mlp_size: expected 57, which matches match_parameters ddl-1, found 58");
    /* 64 channels: 6 (d + 1 + 64 d + 64) and 4 (64 + 64 d 4) more than the baseline, 55 units fewer. */
    k = tiny_config("ddl-tc", 31);
    k.channels = 64;
    refused(&k, "baseline", DDL_MATCH_PARAMETERS,
            "match_parameters: no width of the MLP matches baseline: expected 15954 parameters, found 35899 "
            "with the smallest width, 1");
    /* v-map and erase: F's output has no effect. */
    k = tiny_config("ddl-1-vmap", 31);
    k.update = DDL_UPDATE_ERASE;
    refused(
        &k, "baseline", DDL_MATCH_FLOPS,
        "match_flops: the MLP has no effect in this model: expected a model whose training FLOPs per token "
        "depend on its width");
}

/* ---- mlp_size in files ---- */

/* Saves a model with this mlp_size; true if the metadata has the key. */
static bool saved_with_key(size_t mlp_size, const char *folder)
{
    struct ddl_config k = tiny_config("baseline", 31);
    struct ddl_error err;
    ddl_backend *backend;
    ddl_model *model;
    ddl_safetensors *st;
    k.mlp_size = mlp_size;
    assert_ok(ddl_backend_create(&backend, "ref", 0, &err), err);
    assert_ok(ddl_model_create(&model, &k, backend, &err), err);
    assert_ok(ddl_model_init(model, 1, &err), err);
    assert_ok(ddl_file_make_dir(folder, &err), err);
    assert_ok(ddl_model_save(model, folder, &err), err);
    assert_ok(ddl_safetensors_open_folder(&st, folder, &err), err);
    bool has_key = ddl_safetensors_metadata(st, "mlp_size") != NULL;
    ddl_safetensors_close(st);
    ddl_model_free(model);
    ddl_backend_free(backend);
    return has_key;
}

static void files(void **state)
{
    (void)state;
    char folder[2048];
    struct ddl_error err;
    struct ddl_config k;
    snprintf(folder, sizeof folder, "%s", scratch_path("width"));
    assert_false(saved_with_key(0, folder));
    assert_false(saved_with_key(56, folder)); /* the default */
    assert_ok(ddl_config_load(&k, folder, NULL, NULL, &err), err);
    assert_int_equal(k.mlp_size, 0);
    assert_true(saved_with_key(60, folder));
    assert_ok(ddl_config_load(&k, folder, NULL, NULL, &err), err);
    assert_int_equal(k.mlp_size, 60);
    assert_null(ddl_config_release_file(&k, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameters), cmocka_unit_test(other_range_of_the_gate),
        cmocka_unit_test(flops),      cmocka_unit_test(own_cost_is_the_default_width),
        cmocka_unit_test(refusals),   cmocka_unit_test(files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
