/* train/nonfinite/nonfinite.c, replay.c and nonfinite_dump.c: the origin of a non-finite value is reported by
 * micro-batch, layer and tensor, and the dump has the same. */
#include "support/properties.h"
#include "support/models.h"
#include "support/runs.h"

#include "base/mem.h"
#include "ddl/train.h"
#include "train/nonfinite/nonfinite.h"

#include <float.h>
#include <math.h>

enum { V = 31, RARE = V - 1, B = 2, T = 8, ROWS = B * T, MICRO = 3 };

/* ---- a step by hand ---- */

struct setup {
    ddl_model *model;
    ddl_workspace *ws;
    struct ddl_optim *optim;
    struct ddl_step step;
    int32_t tokens[MICRO * ROWS], targets[MICRO * ROWS];
};

static void set_up_in(struct setup *s, ddl_backend *backend, const struct ddl_config *config,
                      enum ddl_precision precision, int recompute)
{
    const struct ddl_workspace_options options = {
        .batch = B, .tokens = T, .train = true, .recompute = (enum ddl_recompute)recompute
    };
    struct ddl_error err;
    struct ddl_optim_config optim = ddl_optim_defaults();
    assert_ok(ddl_model_create(&s->model, config, backend, &err), err);
    assert_ok(ddl_model_init(s->model, 3, &err), err);
    assert_ok(ddl_model_enable_grad(s->model, &err), err);
    assert_ok(ddl_model_set_precision(s->model, precision, &err), err);
    assert_ok(ddl_optim_create(&s->optim, s->model, &optim, &err), err);
    assert_ok(ddl_workspace_create(&s->ws, s->model, &options, &err), err);
    for (int32_t i = 0; i < MICRO * ROWS; i++) {
        s->tokens[i] = i * 7 % RARE;
        s->targets[i] = (i * 7 + 3) % RARE;
    }
    s->step = (struct ddl_step){ .model = s->model,
                                 .ws = s->ws,
                                 .optim = s->optim,
                                 .batch = B,
                                 .accumulate = MICRO,
                                 .seq = T,
                                 .tokens = s->tokens,
                                 .targets = s->targets };
    assert_ok(ddl_step_reserve(&s->step, &err), err);
}

static void set_up(struct setup *s, ddl_backend *backend, const struct ddl_config *config)
{
    set_up_in(s, backend, config, DDL_PRECISION_F32, DDL_RECOMPUTE_ELEMENTWISE);
}

static void tear_down(struct setup *s)
{
    ddl_step_release(&s->step);
    ddl_workspace_free(s->ws);
    ddl_optim_free(s->optim);
    ddl_model_free(s->model);
}

/* Only micro-batch `k` (from 0) is left with targets: the others have no loss and no gradient. */
static void keep_targets_of(struct setup *s, size_t k)
{
    for (size_t i = 0; i < MICRO * ROWS; i++)
        s->targets[i] = i / ROWS == k ? s->targets[i] : -1;
}

static void change_all(ddl_model *model, const char *name, float factor)
{
    change_param(model, param_row(model, name), 0, SIZE_MAX, factor, 0);
}

/* ---- any parameter, on every backend ---- */

/* The part and layer that use a parameter first. */
static void used_first(const char *name, size_t *layer, const char **part)
{
    unsigned l;
    char rest[96];
    *layer = DDL_NO_LAYER;
    *part = strncmp(name, "input_embed", 11) == 0 || strcmp(name, "transformer.wte.weight") == 0 ? "embed"
                                                                                                 : "head";
    if (sscanf(name, "transformer.dwa.%u.", &l) == 1) {
        *layer = l - 1;
        *part = "average";
    }
    if (sscanf(name, "transformer.h.%u.%95s", &l, rest) != 2)
        return;
    *layer = l;
    bool mlp = strncmp(rest, "mlp", 3) == 0 || strstr(rest, "_mlp.") != NULL || strncmp(rest, "ln_2", 4) == 0;
    *part = mlp ? "mlp" : "attn";
}

static void one_number(struct setup *s, size_t i, float bad, const char *model)
{
    const struct ddl_param *param = ddl_model_param(s->model, i);
    struct ddl_error err;
    struct ddl_step_result result;
    struct ddl_nonfinite t;
    const char *part;
    size_t layer, at = strcmp(param->name, "transformer.wte.weight") == 0 ? 0 : param->count / 2;
    change_param(s->model, i, at, at + 1, 0, bad);
    assert_int_equal(ddl_step_run(&s->step, 1e-3, &result, &err), DDL_E_NUMERIC);
    ddl_nonfinite_of_step(&t, &s->step, &result);
    used_first(param->name, &layer, &part);
    assert_true(t.finding.found);
    if (t.finding.place.layer != layer || strcmp(t.finding.place.part, part) != 0 ||
        t.finding.place.backward) {
        char place[256];
        ddl_place_text(&t.finding.place, place, sizeof place);
        fail_msg("%s: %s of %s shows first in %s", model, isnan(bad) ? "NaN" : "infinity", param->name,
                 place);
    }
    assert_string_equal(t.earlier, "parameter");
    assert_string_equal(t.earlier_name, param->name);
    assert_int_equal(t.earlier_values.first, at);
    assert_int_equal(t.earlier_values.nan + t.earlier_values.inf, 1);
    assert_int_equal(t.micro_batch, 1);
    assert_int_equal(t.held, 1);
    assert_int_equal(ddl_optim_steps(s->optim), 0);
}

/* Each parameter with one choice of recompute. */
static void finds_the_layer_of_any_parameter(ddl_backend *backend)
{
    for (size_t j = 0; j < SMALL_VARIANTS * DDL_RECOMPUTES; j++) {
        if (!test_takes(j, 5))
            continue;
        size_t v = j / DDL_RECOMPUTES, recompute = j % DDL_RECOMPUTES;
        enum ddl_precision precision = (v + recompute) % 3 == 2 ? DDL_PRECISION_BF16 : DDL_PRECISION_F32;
        struct ddl_config config = variant_config(&small_variants[v]);
        struct setup s;
        set_up_in(&s, backend, &config, precision, (int)recompute);
        for (size_t i = 0; i < ddl_model_n_params(s.model); i++) {
            const struct ddl_param *param = ddl_model_param(s.model, i);
            if (!param->active || (i + j) % DDL_RECOMPUTES != 0)
                continue;
            float *kept = ddl_mem_alloc(param->count * sizeof *kept);
            ddl_model_read_param(s.model, i, kept);
            one_number(&s, i, NAN, small_variants[v].name);
            ddl_model_write_param(s.model, i, kept);
            ddl_mem_free(kept);
        }
        tear_down(&s);
    }
}
PROPERTY(finds_the_layer_of_any_parameter)

/* ---- micro-batches ---- */

static void the_second_of_three(ddl_backend *backend)
{
    struct ddl_config config = tiny_config("ddl-cc-ec", V);
    struct ddl_error err;
    struct ddl_step_result result;
    struct ddl_nonfinite t;
    struct setup s;
    char text[512];
    set_up(&s, backend, &config);
    keep_targets_of(&s, 1);
    change_param(s.model, param_row(s.model, "transformer.h.1.ddl_mlp.beta.bias"), 0, 1, 0, NAN);
    assert_int_equal(ddl_step_run(&s.step, 1e-3, &result, &err), DDL_E_NUMERIC);
    assert_says(&err, "the loss of micro-batch 2 of 3 is not finite");
    assert_int_equal(result.failed, 1);
    ddl_nonfinite_of_step(&t, &s.step, &result);
    assert_int_equal(t.micro_batch, 2);
    assert_int_equal(t.micro_batches, 3);
    assert_int_equal(t.held, 1);
    assert_ptr_equal(t.tokens, s.tokens + ROWS);
    assert_int_equal(t.what, DDL_NONFINITE_LOSS);
    ddl_nonfinite_text(&t, text, sizeof text);
    assert_string_equal(text,
                        "first in layer 1, mlp: beta, sequence 0, token 0 (16 NaN and 0 infinite of 16 "
                        "numbers, the largest other 0); parameter transformer.h.1.ddl_mlp.beta.bias was not "
                        "finite before the step (1 NaN and 0 infinite of 1 numbers, the largest other 0)");
    tear_down(&s);
}
PROPERTY(the_second_of_three)

/* s is enormous and W3 as small, so that f is as before; a loud head makes the gradient of f large enough
 * that W3's overflows while everything before it is finite. */
static void make_gradient_large(ddl_model *model, float s_factor, float head)
{
    change_all(model, "transformer.h.1.mlp.c_fc2.weight", s_factor);
    change_all(model, "transformer.h.1.mlp.c_proj.weight", 1 / s_factor);
    change_all(model, "ln_f.weight", head);
}

static void gradient_is_infinite(ddl_backend *backend, int recompute)
{
    struct ddl_config config = tiny_config("baseline", V);
    struct ddl_error err;
    struct ddl_step_result result;
    struct ddl_nonfinite t;
    struct setup s;
    set_up_in(&s, backend, &config, DDL_PRECISION_F32, recompute);
    keep_targets_of(&s, 1);
    make_gradient_large(s.model, 0x1p110f, 0x1p30f);
    assert_int_equal(ddl_step_run(&s.step, 1e-3, &result, &err), DDL_E_NUMERIC);
    assert_says(&err, "the gradient is not finite, the loss is");
    assert_true(isfinite(result.loss) && result.failed == MICRO);
    ddl_nonfinite_of_step(&t, &s.step, &result);
    assert_int_equal(t.what, DDL_NONFINITE_GRADIENT);
    assert_null(t.earlier);
    assert_true(t.finding.found && t.finding.place.backward && t.finding.place.parameter);
    assert_int_equal(t.finding.place.layer, 1);
    assert_string_equal(t.finding.place.part, "mlp");
    assert_string_equal(t.finding.place.tensor, "grad.transformer.h.1.mlp.c_proj.weight");
    assert_true(t.finding.values.inf + t.finding.values.nan > 0);
    assert_int_equal(t.micro_batch, 2);
    assert_int_equal(t.held, 1);
    assert_int_equal(ddl_optim_steps(s.optim), 0);
    tear_down(&s);
}
static void finite_loss_infinite_gradient(ddl_backend *backend)
{
    for (int recompute = 0; recompute < DDL_RECOMPUTES; recompute++)
        gradient_is_infinite(backend, recompute);
}
PROPERTY(finite_loss_infinite_gradient)

/* Three times the same micro-batch, scaled so that the gradient of two is finite and that of three is not. */
static void only_the_sum_is_infinite(ddl_backend *backend)
{
    static const char w3[] = "transformer.h.1.mlp.c_proj.weight";
    struct ddl_config config = tiny_config("baseline", V);
    struct ddl_error err;
    struct ddl_step_result result;
    struct ddl_nonfinite t;
    struct setup s;
    set_up(&s, backend, &config);
    for (size_t i = ROWS; i < MICRO * ROWS; i++) {
        s.tokens[i] = s.tokens[i % ROWS];
        s.targets[i] = s.targets[i % ROWS];
    }
    make_gradient_large(s.model, 0x1p100f, 0x1p20f);
    assert_ok(ddl_step_run(&s.step, 0, &result, &err), err);
    size_t row = param_row(s.model, w3), n = ddl_model_param(s.model, row)->count;
    float *grad = ddl_mem_alloc(n * sizeof *grad), largest = 0;
    ddl_model_read_grad(s.model, row, grad);
    for (size_t i = 0; i < n; i++)
        largest = fmaxf(largest, fabsf(grad[i]));
    ddl_mem_free(grad);
    /* s is linear in fc2, and so is this gradient: three become 1.2 x the largest float, two 0.8. */
    float factor = (float)(1.2 * (double)FLT_MAX / (double)largest);
    change_all(s.model, "transformer.h.1.mlp.c_fc2.weight", factor);
    change_all(s.model, w3, 1 / factor);
    assert_int_equal(ddl_step_run(&s.step, 0, &result, &err), DDL_E_NUMERIC);
    ddl_nonfinite_of_step(&t, &s.step, &result);
    assert_true(t.finding.found);
    assert_string_equal(t.finding.place.tensor, "grad.transformer.h.1.mlp.c_proj.weight");
    assert_int_equal(t.micro_batch, 3);
    assert_int_equal(t.held, 3);
    assert_ptr_equal(t.tokens, s.tokens);
    tear_down(&s);
}
PROPERTY(only_the_sum_is_infinite)

static void what_does_not_happen_again(ddl_backend *backend)
{
    struct ddl_config config = tiny_config("ddl-1", V);
    const struct ddl_step_result results[] = {
        { .loss = (double)NAN, .failed = 1 }, { .loss = 3, .grad_norm = (double)INFINITY, .failed = MICRO }
    };
    struct setup s;
    set_up(&s, backend, &config);
    for (size_t i = 0; i < 2; i++) {
        struct ddl_nonfinite t;
        char text[512];
        ddl_nonfinite_of_step(&t, &s.step, &results[i]);
        assert_false(t.finding.found);
        assert_int_equal(t.held, i ? MICRO : 1);
        ddl_nonfinite_text(&t, text, sizeof text);
        assert_non_null(strstr(text, "the replay is finite: not reproducible, suspect the hardware"));
    }
    tear_down(&s);
}
PROPERTY(what_does_not_happen_again)

/* A skipped step leaves every parameter and moment as it was; the count of the optimiser's steps too. */
static void a_skipped_step_updates_nothing(ddl_backend *backend)
{
    struct ddl_config config = tiny_config("ddl-tc", V);
    struct ddl_spike_state spikes = { .norms = { 1e-9, 1e-9 }, .n = 2 };
    struct ddl_step_result result;
    struct ddl_error err;
    struct setup s;
    set_up(&s, backend, &config);
    size_t n = ddl_model_param(s.model, 0)->count;
    float *before = ddl_mem_alloc(3 * n * sizeof *before), *after = ddl_mem_alloc(3 * n * sizeof *after);
    assert_ok(ddl_step_run(&s.step, 1e-3, &result, &err), err);
    ddl_model_read_param(s.model, 0, before);
    ddl_optim_read(s.optim, 0, 0, n, before + n, before + 2 * n);
    s.step.spike = (struct ddl_spike_config){ .z = 6, .window = 2, .max_skip = 1 };
    s.step.spike_state = &spikes;
    assert_ok(ddl_step_run(&s.step, 1e-3, &result, &err), err);
    assert_int_equal(result.decision, DDL_SPIKE_SKIP);
    assert_true(result.spike.z > 6 && result.grad_norm > 0);
    ddl_model_read_param(s.model, 0, after);
    ddl_optim_read(s.optim, 0, 0, n, after + n, after + 2 * n);
    assert_memory_equal(before, after, 3 * n * sizeof *before);
    assert_int_equal(ddl_optim_steps(s.optim), 1);
    assert_ok(ddl_step_run(&s.step, 1e-3, &result, &err), err);
    assert_int_equal(result.decision, DDL_SPIKE_SHIFT);
    ddl_model_read_param(s.model, 0, after);
    assert_memory_not_equal(before, after, n * sizeof *before);
    assert_int_equal(ddl_optim_steps(s.optim), 2);
    ddl_mem_free(before);
    ddl_mem_free(after);
    tear_down(&s);
}
PROPERTY(a_skipped_step_updates_nothing)

/* ---- the dump ---- */

static void a_dump_says_what_was_found(void **state)
{
    (void)state;
    struct ddl_train_config train = ddl_train_defaults();
    struct ddl_config config = tiny_config("ddl-cc-ec", V);
    struct ddl_nonfinite_record record;
    struct ddl_step_result result;
    struct ddl_nonfinite t;
    struct ddl_error err;
    struct setup s;
    char path[1280], again[1280];
    ddl_backend *backend = open_test_backend(2);
    set_up(&s, backend, &config);
    remove_scratch("dumps");
    snprintf(train.out, sizeof train.out, "%s", scratch_path("dumps"));
    snprintf(train.model, sizeof train.model, "ddl-cc-ec");
    train.config = config;
    train.recompute = DDL_RECOMPUTE_BLOCK;
    keep_targets_of(&s, 1);
    change_param(s.model, param_row(s.model, "transformer.h.2.attn.c_v.weight"), 5, 7, 0, INFINITY);
    assert_int_equal(ddl_step_run(&s.step, 1e-3, &result, &err), DDL_E_NUMERIC);
    ddl_nonfinite_of_step(&t, &s.step, &result);
    t.step = 1234567890123;
    assert_ok(ddl_file_make_dir(train.out, &err), err);
    assert_ok(ddl_nonfinite_save(&t, &train, s.model, path, sizeof path, &err), err);
    assert_ok(ddl_nonfinite_save(&t, &train, s.model, again, sizeof again, &err), err); /* in its place */
    assert_string_equal(path, again);
    assert_non_null(strstr(path, "/dumps/trouble-1234567890123"));
    assert_ok(ddl_nonfinite_read(&record, path, &err), err);
    const struct ddl_nonfinite *r = &record.nonfinite;
    assert_true(r->what == t.what && r->step == t.step && r->micro_batch == 2 && r->micro_batches == 3);
    assert_true(isnan(r->loss) && r->grad_norm == 0 && r->scale == t.scale && r->scale == 1.0 / ROWS);
    assert_string_equal(record.backend, ddl_backend_name(backend));
    assert_int_equal(record.recompute, DDL_RECOMPUTE_BLOCK);
    assert_true(r->finding.found && r->finding.place.layer == 2 && !r->finding.place.backward);
    assert_string_equal(r->finding.place.part, "attn");
    assert_string_equal(r->finding.place.tensor, "qkv");
    assert_memory_equal(&r->finding.values, &t.finding.values, sizeof t.finding.values);
    assert_string_equal(r->earlier, "parameter");
    assert_string_equal(r->earlier_name, "transformer.h.2.attn.c_v.weight");
    assert_true(r->earlier_values.inf == 2 && r->earlier_values.first == 5);
    tear_down(&s);
    ddl_backend_free(backend);
}

/* Each line of a good trouble.json replaced by another: refused with its path and key, never followed. */
static void a_dump_is_not_trusted(void **state)
{
    (void)state;
    static const char good[] =
        "{\"kind\":\"trouble\",\"version\":1,\"step\":3,\"what\":\"loss\",\"micro_batch\":1,\"micro_"
        "batches\":1,"
        "\"scale\":0.5,\"loss\":\"-inf\",\"grad_norm\":0,\"backend\":\"cpu\",\"dtype\":\"bf16\",\"first\":{"
        "\"backward\":true,\"layer\":1,\"part\":\"mlp\",\"tensor\":\"ds\",\"first_row\":0,\"rows\":4,"
        "\"width\":2,"
        "\"n\":8,\"nan\":1,\"inf\":0,\"first\":3,\"largest\":1.5},\"parameter\":null}";
    static const struct {
        const char *was, *is, *says;
    } cases[] = {
        { "\"version\":1", "\"version\":9", "version 9, this program reads 1" },
        { "\"step\":3", "\"step\":-3", "step is missing or not a whole number" },
        { "\"step\":3", "\"step\":99999999999999999999", "not valid JSON" },
        { "\"what\":\"loss\"", "\"what\":\"joke\"", "what is missing or not a known word" },
        { "\"scale\":0.5", "\"scale\":\"much\"", "scale is missing or not a number" },
        { "\"backend\":\"cpu\"", "\"backend\":[]", "backend is missing or not a short text" },
        { "\"backend\":\"cpu\"", "\"backend\":\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"",
          "not a short text" },
        { "\"dtype\":\"bf16\"", "\"dtype\":\"f8\"", "dtype is missing or not a known word" },
        { "\"dtype\":\"bf16\"", "\"dtype\":\"bf16\",\"recompute\":\"all\"",
          "recompute is missing or not a known word" },
        { "\"part\":\"mlp\"", "\"part\":\"moe\"", "part is missing or not a known word" },
        { "\"layer\":1", "\"layer\":\"1\"", "layer is missing or not a whole number" },
        { "\"backward\":true", "\"backward\":7", "first is missing or not a place of a tensor" },
        { "\"width\":2", "\"width\":0", "width is missing or not a size of a tensor" },
        { "\"nan\":1,", "", "nan is missing" },
        { "\"parameter\":null", "\"parameter\":{\"kind\":\"parameter\"}", "name is missing" },
        { "\"parameter\":null", "\"parameter\":5", "kind is missing" },
        { "\"scale\":0.5", "\"scale\":0.5,\"scale\":1", "not valid JSON" },
        { "{\"kind\"", "[{\"kind\"", "not valid JSON" },
    };
    struct ddl_error err;
    struct ddl_nonfinite_record record;
    const char *folder = scratch_path("hostile"), *path = scratch_path("hostile/trouble.json");
    assert_ok(ddl_file_make_dir(folder, &err), err);
    write_file(path, good, sizeof good - 1);
    assert_ok(ddl_nonfinite_read(&record, folder, &err), err);
    assert_true(isinf(record.nonfinite.loss) && record.nonfinite.loss < 0 && !record.nonfinite.earlier);
    assert_int_equal(record.recompute, DDL_RECOMPUTE_ELEMENTWISE); /* dumps of older versions do not say */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char bad[2048];
        const char *at = strstr(good, cases[i].was);
        assert_non_null(at);
        snprintf(bad, sizeof bad, "%.*s%s%s", (int)(at - good), good, cases[i].is, at + strlen(cases[i].was));
        write_file(path, bad, strlen(bad));
        assert_int_not_equal(ddl_nonfinite_read(&record, folder, &err), DDL_OK);
        assert_says(&err, cases[i].says);
        assert_says(&err, "hostile/trouble.json");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_finds_the_layer_of_any_parameter),
        cmocka_unit_test(test_the_second_of_three),
        cmocka_unit_test(test_finite_loss_infinite_gradient),
        cmocka_unit_test(test_only_the_sum_is_infinite),
        cmocka_unit_test(test_what_does_not_happen_again),
        cmocka_unit_test(test_a_skipped_step_updates_nothing),
        cmocka_unit_test(a_dump_says_what_was_found),
        cmocka_unit_test(a_dump_is_not_trusted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
