/* run/trouble.c, trouble_dump.c, replay.c and trainer_trouble.c: where numbers end is said by step,
 * micro-batch, layer and tensor, the dump says the same, and the state before it is the one that a run goes
 * on from. */
#include "support/laws.h"
#include "support/models.h"
#include "support/runs.h"

#include "base/mem.h"
#include "ddl/train.h"
#include "run/checkpoint_state.h"
#include "run/checkpoint_sums.h"
#include "run/trouble.h"

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
                      enum ddl_precision precision)
{
    struct ddl_error err;
    struct ddl_optim_config optim = ddl_optim_defaults();
    assert_ok(ddl_model_create(&s->model, config, backend, &err), err);
    assert_ok(ddl_model_init(s->model, 3, &err), err);
    assert_ok(ddl_model_enable_grad(s->model, &err), err);
    assert_ok(ddl_model_set_precision(s->model, precision, &err), err);
    assert_ok(ddl_optim_create(&s->optim, s->model, &optim, &err), err);
    assert_ok(ddl_workspace_create(&s->ws, s->model, B, T, true, &err), err);
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
}

static void set_up(struct setup *s, ddl_backend *backend, const struct ddl_config *config)
{
    set_up_in(s, backend, config, DDL_PRECISION_F32);
}

static void tear_down(struct setup *s)
{
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

static size_t row_of(const ddl_model *model, const char *name)
{
    for (size_t i = 0; i < ddl_model_n_params(model); i++) {
        if (strcmp(ddl_model_param(model, i)->name, name) == 0)
            return i;
    }
    fail_msg("there is no %s", name);
    return 0;
}

/* Parameter i: numbers [from, to) times `factor`, then plus `more`. */
static void change(ddl_model *model, size_t i, size_t from, size_t to, float factor, float more)
{
    size_t n = ddl_model_param(model, i)->count;
    float *x = ddl_mem_alloc(n * sizeof *x);
    ddl_model_read_param(model, i, x);
    for (size_t j = from; j < to && j < n; j++)
        x[j] = x[j] * factor + more;
    ddl_model_write_param(model, i, x);
    ddl_mem_free(x);
}

static void change_all(ddl_model *model, const char *name, float factor)
{
    change(model, row_of(model, name), 0, SIZE_MAX, factor, 0);
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
    if (sscanf(name, "transformer.h.%u.%95s", &l, rest) != 2)
        return;
    *layer = l;
    bool mlp =
        strncmp(rest, "mlp", 3) == 0 || strncmp(rest, "ddl_mlp", 7) == 0 || strncmp(rest, "ln_2", 4) == 0;
    *part = mlp ? "mlp" : "attn";
}

static void one_number(struct setup *s, size_t i, float bad, const char *model)
{
    const struct ddl_param *param = ddl_model_param(s->model, i);
    struct ddl_error err;
    struct ddl_step_result result;
    struct ddl_trouble t;
    const char *part;
    size_t layer, at = strcmp(param->name, "transformer.wte.weight") == 0 ? 0 : param->count / 2;
    change(s->model, i, at, at + 1, 0, bad);
    assert_int_equal(ddl_step_run(&s->step, 1e-3, &result, &err), DDL_E_NUMERIC);
    assert_ok(ddl_trouble_of_step(&t, &s->step, &result, &err), err);
    used_first(param->name, &layer, &part);
    assert_true(t.finding.found);
    if (t.finding.place.layer != layer || strcmp(t.finding.place.part, part) != 0 ||
        t.finding.place.backward) {
        char place[256];
        ddl_place_text(&t.finding.place, place, sizeof place);
        fail_msg("%s: %s of %s shows first in %s", model, isnan(bad) ? "NaN" : "infinity", param->name,
                 place);
    }
    assert_string_equal(t.spoiled, "parameter");
    assert_string_equal(t.spoiled_name, param->name);
    assert_int_equal(t.spoiled_values.first, at);
    assert_int_equal(t.spoiled_values.nan + t.spoiled_values.inf, 1);
    assert_int_equal(t.micro_batch, 1);
    assert_int_equal(t.held, 1);
    assert_int_equal(ddl_optim_steps(s->optim), 0);
}

static void finds_the_layer_of_any_parameter(ddl_backend *backend)
{
    for (size_t v = 0; v < SMALL_VARIANTS; v++) {
        enum ddl_precision precision = v % 3 == 2 ? DDL_PRECISION_BF16 : DDL_PRECISION_F32;
        struct ddl_config config = variant_config(&small_variants[v]);
        struct setup s;
        set_up_in(&s, backend, &config, precision);
        for (size_t i = 0; i < ddl_model_n_params(s.model); i++) {
            const struct ddl_param *param = ddl_model_param(s.model, i);
            float *kept = ddl_mem_alloc(param->count * sizeof *kept);
            ddl_model_read_param(s.model, i, kept);
            if (param->active)
                one_number(&s, i, NAN, small_variants[v].name);
            ddl_model_write_param(s.model, i, kept);
            ddl_mem_free(kept);
        }
        tear_down(&s);
    }
}
LAW(finds_the_layer_of_any_parameter)

/* ---- micro-batches ---- */

static void the_second_of_three(ddl_backend *backend)
{
    struct ddl_config config = tiny_config("ddl-cc-ec", V);
    struct ddl_error err;
    struct ddl_step_result result;
    struct ddl_trouble t;
    struct setup s;
    char text[512];
    set_up(&s, backend, &config);
    keep_targets_of(&s, 1);
    change(s.model, row_of(s.model, "transformer.h.1.ddl_mlp.beta.bias"), 0, 1, 0, NAN);
    assert_int_equal(ddl_step_run(&s.step, 1e-3, &result, &err), DDL_E_NUMERIC);
    assert_says(&err, "the loss of micro-batch 2 of 3 is not finite");
    assert_int_equal(result.failed, 1);
    assert_ok(ddl_trouble_of_step(&t, &s.step, &result, &err), err);
    assert_int_equal(t.micro_batch, 2);
    assert_int_equal(t.micro_batches, 3);
    assert_int_equal(t.held, 1);
    assert_ptr_equal(t.tokens, s.tokens + ROWS);
    assert_int_equal(t.what, DDL_TROUBLE_LOSS);
    ddl_trouble_text(&t, text, sizeof text);
    assert_string_equal(
        text, "first in layer 1, mlp: beta, sequence 0, token 0 (16 NaN and 0 infinite of 16 "
              "numbers, the largest other 0); parameter transformer.h.1.ddl_mlp.beta.bias was bad before "
              "the step (1 NaN and 0 infinite of 1 numbers, the largest other 0)");
    tear_down(&s);
}
LAW(the_second_of_three)

/* s is enormous and W3 as small, so that f is as before; a loud head makes the gradient of f large enough
 * that W3's overflows while everything before it is finite. */
static void make_gradient_large(ddl_model *model, float s_factor, float head)
{
    change_all(model, "transformer.h.1.mlp.c_fc2.weight", s_factor);
    change_all(model, "transformer.h.1.mlp.c_proj.weight", 1 / s_factor);
    change_all(model, "ln_f.weight", head);
}

static void finite_loss_infinite_gradient(ddl_backend *backend)
{
    struct ddl_config config = tiny_config("baseline", V);
    struct ddl_error err;
    struct ddl_step_result result;
    struct ddl_trouble t;
    struct setup s;
    set_up(&s, backend, &config);
    keep_targets_of(&s, 1);
    make_gradient_large(s.model, 0x1p110f, 0x1p30f);
    assert_int_equal(ddl_step_run(&s.step, 1e-3, &result, &err), DDL_E_NUMERIC);
    assert_says(&err, "the gradient is not finite, the loss is");
    assert_true(isfinite(result.loss) && result.failed == MICRO);
    assert_ok(ddl_trouble_of_step(&t, &s.step, &result, &err), err);
    assert_int_equal(t.what, DDL_TROUBLE_GRADIENT);
    assert_null(t.spoiled);
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
LAW(finite_loss_infinite_gradient)

/* Three times the same micro-batch, scaled so that the gradient of two is finite and that of three is not. */
static void only_the_sum_is_infinite(ddl_backend *backend)
{
    static const char w3[] = "transformer.h.1.mlp.c_proj.weight";
    struct ddl_config config = tiny_config("baseline", V);
    struct ddl_error err;
    struct ddl_step_result result;
    struct ddl_trouble t;
    struct setup s;
    set_up(&s, backend, &config);
    for (size_t i = ROWS; i < MICRO * ROWS; i++) {
        s.tokens[i] = s.tokens[i % ROWS];
        s.targets[i] = s.targets[i % ROWS];
    }
    make_gradient_large(s.model, 0x1p100f, 0x1p20f);
    assert_ok(ddl_step_run(&s.step, 0, &result, &err), err);
    size_t row = row_of(s.model, w3), n = ddl_model_param(s.model, row)->count;
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
    assert_ok(ddl_trouble_of_step(&t, &s.step, &result, &err), err);
    assert_true(t.finding.found);
    assert_string_equal(t.finding.place.tensor, "grad.transformer.h.1.mlp.c_proj.weight");
    assert_int_equal(t.micro_batch, 3);
    assert_int_equal(t.held, 3);
    assert_ptr_equal(t.tokens, s.tokens);
    tear_down(&s);
}
LAW(only_the_sum_is_infinite)

static void what_does_not_happen_again(ddl_backend *backend)
{
    struct ddl_config config = tiny_config("ddl-1", V);
    const struct ddl_step_result results[] = {
        { .loss = (double)NAN, .failed = 1 }, { .loss = 3, .grad_norm = (double)INFINITY, .failed = MICRO }
    };
    struct ddl_error err;
    struct setup s;
    set_up(&s, backend, &config);
    for (size_t i = 0; i < 2; i++) {
        struct ddl_trouble t;
        char text[512];
        assert_ok(ddl_trouble_of_step(&t, &s.step, &results[i], &err), err);
        assert_false(t.finding.found);
        assert_int_equal(t.held, i ? MICRO : 1);
        ddl_trouble_text(&t, text, sizeof text);
        assert_non_null(strstr(text, "it does not happen again: the machine is not to be trusted"));
    }
    tear_down(&s);
}
LAW(what_does_not_happen_again)

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
    assert_int_equal(result.verdict, DDL_SPIKE_SKIP);
    assert_true(result.spike.z > 6 && result.grad_norm > 0);
    ddl_model_read_param(s.model, 0, after);
    ddl_optim_read(s.optim, 0, 0, n, after + n, after + 2 * n);
    assert_memory_equal(before, after, 3 * n * sizeof *before);
    assert_int_equal(ddl_optim_steps(s.optim), 1);
    assert_ok(ddl_step_run(&s.step, 1e-3, &result, &err), err);
    assert_int_equal(result.verdict, DDL_SPIKE_SHIFT);
    ddl_model_read_param(s.model, 0, after);
    assert_memory_not_equal(before, after, n * sizeof *before);
    assert_int_equal(ddl_optim_steps(s.optim), 2);
    ddl_mem_free(before);
    ddl_mem_free(after);
    tear_down(&s);
}
LAW(a_skipped_step_updates_nothing)

/* ---- the dump ---- */

static void a_dump_says_what_was_found(void **state)
{
    (void)state;
    struct ddl_train_config train = ddl_train_defaults();
    struct ddl_config config = tiny_config("ddl-cc-ec", V);
    struct ddl_trouble_record record;
    struct ddl_step_result result;
    struct ddl_trouble t;
    struct ddl_error err;
    ddl_backend *backend;
    struct setup s;
    char path[1280], again[1280];
    assert_ok(ddl_backend_create(&backend, "cpu", 2, &err), err);
    set_up(&s, backend, &config);
    remove_scratch("dumps");
    snprintf(train.out, sizeof train.out, "%s", scratch_path("dumps"));
    snprintf(train.model, sizeof train.model, "ddl-cc-ec");
    train.config = config;
    keep_targets_of(&s, 1);
    change(s.model, row_of(s.model, "transformer.h.2.attn.c_v.weight"), 5, 7, 0, INFINITY);
    assert_int_equal(ddl_step_run(&s.step, 1e-3, &result, &err), DDL_E_NUMERIC);
    assert_ok(ddl_trouble_of_step(&t, &s.step, &result, &err), err);
    t.step = 1234567890123;
    assert_ok(ddl_file_make_dir(train.out, &err), err);
    assert_ok(ddl_trouble_save(&t, &train, s.model, path, sizeof path, &err), err);
    assert_ok(ddl_trouble_save(&t, &train, s.model, again, sizeof again, &err), err); /* in its place */
    assert_string_equal(path, again);
    assert_non_null(strstr(path, "/dumps/trouble-1234567890123"));
    assert_ok(ddl_trouble_read(&record, path, &err), err);
    const struct ddl_trouble *r = &record.trouble;
    assert_true(r->what == t.what && r->step == t.step && r->micro_batch == 2 && r->micro_batches == 3);
    assert_true(isnan(r->loss) && r->grad_norm == 0 && r->scale == t.scale && r->scale == 1.0 / ROWS);
    assert_string_equal(record.backend, "cpu");
    assert_true(r->finding.found && r->finding.place.layer == 2 && !r->finding.place.backward);
    assert_string_equal(r->finding.place.part, "attn");
    assert_string_equal(r->finding.place.tensor, "qkv");
    assert_memory_equal(&r->finding.values, &t.finding.values, sizeof t.finding.values);
    assert_string_equal(r->spoiled, "parameter");
    assert_string_equal(r->spoiled_name, "transformer.h.2.attn.c_v.weight");
    assert_true(r->spoiled_values.inf == 2 && r->spoiled_values.first == 5);
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
        { "\"step\":3", "\"step\":-3", "step is missing or no whole number" },
        { "\"step\":3", "\"step\":99999999999999999999", "not valid JSON" },
        { "\"what\":\"loss\"", "\"what\":\"joke\"", "what is missing or no known word" },
        { "\"scale\":0.5", "\"scale\":\"much\"", "scale is missing or no number" },
        { "\"backend\":\"cpu\"", "\"backend\":[]", "backend is missing or no short text" },
        { "\"backend\":\"cpu\"", "\"backend\":\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"",
          "no short text" },
        { "\"dtype\":\"bf16\"", "\"dtype\":\"f8\"", "dtype is missing or no known word" },
        { "\"part\":\"mlp\"", "\"part\":\"moe\"", "part is missing or no known word" },
        { "\"layer\":1", "\"layer\":\"1\"", "layer is missing or no whole number" },
        { "\"backward\":true", "\"backward\":7", "first is missing or no place of a tensor" },
        { "\"width\":2", "\"width\":0", "width is missing or no size of a tensor" },
        { "\"nan\":1,", "", "nan is missing" },
        { "\"parameter\":null", "\"parameter\":{\"kind\":\"parameter\"}", "name is missing" },
        { "\"parameter\":null", "\"parameter\":5", "kind is missing" },
        { "\"scale\":0.5", "\"scale\":0.5,\"scale\":1", "not valid JSON" },
        { "{\"kind\"", "[{\"kind\"", "not valid JSON" },
    };
    struct ddl_error err;
    struct ddl_trouble_record record;
    const char *folder = scratch_path("hostile"), *path = scratch_path("hostile/trouble.json");
    assert_ok(ddl_file_make_dir(folder, &err), err);
    write_file(path, good, sizeof good - 1);
    assert_ok(ddl_trouble_read(&record, folder, &err), err);
    assert_true(isinf(record.trouble.loss) && record.trouble.loss < 0 && !record.trouble.spoiled);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char bad[2048];
        const char *at = strstr(good, cases[i].was);
        assert_non_null(at);
        snprintf(bad, sizeof bad, "%.*s%s%s", (int)(at - good), good, cases[i].is, at + strlen(cases[i].was));
        write_file(path, bad, strlen(bad));
        assert_int_not_equal(ddl_trouble_read(&record, folder, &err), DDL_OK);
        assert_says(&err, cases[i].says);
        assert_says(&err, "hostile/trouble.json");
    }
}

/* ---- runs ---- */

static struct ddl_train_config a_run(const char *start, const char *backend, const char *out)
{
    struct ddl_train_config t = ddl_train_defaults();
    write_random_shard(scratch_path("train.bin"), 1, RARE, 5000);
    snprintf(t.train_data, sizeof t.train_data, "%s", scratch_path("train.bin"));
    snprintf(t.backend, sizeof t.backend, "%s", backend);
    snprintf(t.out, sizeof t.out, "%s", scratch_path(out));
    if (start)
        snprintf(t.init_from, sizeof t.init_from, "%s", start);
    t.config = tiny_config(start ? "ddl-cc-ec" : "baseline", V);
    t.steps = 20;
    t.batch = 2;
    t.accumulate = 3;
    t.warmup = 0;
    t.lr = 1e-3;
    t.seed = 11;
    t.val_every = 0;
    t.checkpoint_every = 0;
    t.threads = 2;
    t.order = DDL_ORDER_SEQUENTIAL;
    remove_scratch(out);
    return t;
}

/* Tokens from `start` on become `id`, every third one. */
static void put_token(const char *path, size_t start, size_t n, int id)
{
    size_t size;
    char *bytes = read_file(path, &size);
    for (size_t i = start; i < start + n; i += 3)
        bytes[1024 + 2 * i] = (char)id;
    assert_int_equal(remove(path), 0);
    write_file(path, bytes, size);
    free(bytes);
}

static const char *folder_of(ddl_model *model, const char *name)
{
    struct ddl_error err;
    const char *folder = scratch_path(name);
    assert_ok(ddl_file_make_dir(folder, &err), err);
    assert_ok(ddl_model_save(model, folder, &err), err);
    return folder;
}

/* A model that is finite for every token but RARE. Feature 0 of the embeddings is zero but for that token's,
 * the convolution multiplies it beyond the largest float, and the head does not read it. */
static const char *brittle_folder(void)
{
    struct ddl_error err;
    struct ddl_config config = tiny_config("ddl-cc-ec", V);
    size_t d = config.d_model;
    ddl_backend *backend;
    assert_ok(ddl_backend_create(&backend, "ref", 1, &err), err);
    ddl_model *model = tiny_model("ddl-cc-ec", V, 3, backend);
    size_t wte = row_of(model, "transformer.wte.weight"), conv = row_of(model, "input_embed.conv.weight");
    for (size_t id = 0; id < V; id++)
        change(model, wte, id * d, id * d + 1, 0, id == RARE ? 1e4f : 0);
    change(model, conv, 0, config.channels * config.embed_kernel, 0, 1e35f);
    change(model, row_of(model, "ln_f.weight"), 0, 1, 0, 0);
    const char *folder = folder_of(model, "brittle");
    ddl_model_free(model);
    ddl_backend_free(backend);
    return folder;
}

static bool exists(const char *folder, const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return ddl_file_exists(path);
}

static void names_the_micro_batch(void **state)
{
    (void)state;
    static const char *const backends[] = { "cpu", "ref" };
    for (size_t i = 0; i < 2; i++) {
        struct ddl_error err;
        struct ddl_train_config t = a_run(brittle_folder(), backends[i], "second");
        t.lr = 0;
        put_token(t.train_data, (6 * 3 + 2) * 16 + 1, 30, RARE); /* step 4, micro-batch 2 of its 3 */
        assert_int_equal(ddl_train_run(&t, NULL, NULL, &err), DDL_E_NUMERIC);
        assert_says(&err,
                    "step 4: the loss of micro-batch 2 of 3 is not finite: first in embed: X, sequence ");
        assert_says(&err, "trouble-4 holds it, 'ddl verify' replays it");
        assert_says(&err, "checkpoint-3, the state before it: --resume --skip 1 passes over its data");
        assert_null(strstr(err.text, "was bad before"));
        assert_true(exists(t.out, "trouble-4/trouble.json") && exists(t.out, "trouble-4/recipe.yaml"));
        assert_true(exists(t.out, "checkpoint-3/state.json"));
        /* Again, it ends at the same place; past the data it goes on, and no step is missing. */
        struct ddl_error again;
        t.resume = true;
        assert_int_equal(ddl_train_run(&t, NULL, NULL, &again), DDL_E_NUMERIC);
        assert_string_equal(err.text, again.text);
        t.skip = 1;
        assert_ok(ddl_train_run(&t, NULL, NULL, &err), err);
        char *lines = read_file(scratch_path("second/metrics.jsonl"), NULL), *at = lines;
        for (int step = 1; step <= 20; step++) {
            char start[32];
            snprintf(start, sizeof start, "{\"step\":%d,", step);
            assert_memory_equal(at, start, strlen(start));
            at = strchr(at, '\n') + 1;
        }
        assert_int_equal(*at, '\0');
        free(lines);
        t.resume = false;
        assert_int_equal(ddl_train_run(&t, NULL, NULL, &err), DDL_E_USAGE);
        assert_says(&err, "skip: only a run that is resumed");
    }
}

/* Of the scratch folder. */
static void copy_scratch(const char *from, const char *to)
{
    char command[8192], a[2048];
    snprintf(a, sizeof a, "%s", scratch_path(from));
    snprintf(command, sizeof command, "rm -rf '%s' && cp -r '%s' '%s'", scratch_path(to), a,
             scratch_path(to));
    assert_int_equal(run_command(command, command, 1), 0);
}

static void remove_checkpoint(const char *run, unsigned long long step)
{
    char relative[256];
    snprintf(relative, sizeof relative, "%s/checkpoint-%llu", run, step);
    remove_scratch(relative);
}

static const char *in_folder(const char *out, const char *folder, const char *name)
{
    static char path[2][4096];
    static int next;
    char *to = path[next++ % 2];
    snprintf(to, sizeof path[0], "%s/%s/%s", out, folder, name);
    return to;
}

/* What a run says of spikes. */
struct told {
    size_t skipped, shifted;
};

static void listen(void *user, const char *sentence)
{
    struct told *told = user;
    told->skipped += strstr(sentence, "deviations above the mean") && strstr(sentence, ": skipped (") ? 1 : 0;
    told->shifted += strstr(sentence, "has shifted from") ? 1 : 0;
}

/* Lines of metrics.jsonl that say so. */
static size_t skips_told(const char *out)
{
    char path[4096];
    size_t n = 0;
    snprintf(path, sizeof path, "%s/metrics.jsonl", out);
    char *lines = read_file(path, NULL);
    for (const char *at = lines; (at = strstr(at, ",\"skipped\":true")); at++)
        n++;
    free(lines);
    return n;
}

/* The last line of metrics.jsonl is of the step that the validation followed, without a loss that is none. */
static void names_a_validation(void **state)
{
    (void)state;
    struct ddl_error err;
    struct ddl_train_config t = a_run(brittle_folder(), "cpu", "validation");
    write_random_shard(scratch_path("val.bin"), 2, RARE, 700);
    put_token(scratch_path("val.bin"), 300, 30, RARE);
    snprintf(t.val_data, sizeof t.val_data, "%s", scratch_path("val.bin"));
    t.lr = 0;
    t.val_every = 2;
    t.val_tokens = 700;
    assert_int_equal(ddl_train_run(&t, NULL, NULL, &err), DDL_E_NUMERIC);
    assert_says(&err, "step 2: the validation loss is not finite: first in embed: X");
    assert_says(&err, "trouble-2 holds it");
    assert_says(&err, "checkpoint-2, the state before it");
    char *lines = read_file(scratch_path("validation/metrics.jsonl"), NULL);
    assert_non_null(strstr(lines, "{\"step\":2,"));
    assert_null(strstr(lines, "val_loss"));
    free(lines);
    t.resume = true;
    t.val_every = 0;
    assert_ok(ddl_train_run(&t, NULL, NULL, &err), err);
}

/* A state that is bad itself is not kept: the checkpoints that are there stay, and stay the newest. */
static void keeps_no_bad_state(void **state)
{
    (void)state;
    struct ddl_error err;
    struct ddl_train_config t = a_run(NULL, "ref", "bad");
    ddl_backend *backend;
    assert_ok(ddl_backend_create(&backend, "ref", 1, &err), err);
    ddl_model *model = tiny_model("baseline", V, 3, backend);
    change(model, row_of(model, "transformer.h.1.mlp.c_fc1.weight"), 40, 41, 0, NAN);
    snprintf(t.init_from, sizeof t.init_from, "%s", folder_of(model, "nan"));
    ddl_model_free(model);
    ddl_backend_free(backend);
    assert_int_equal(ddl_train_run(&t, NULL, NULL, &err), DDL_E_NUMERIC);
    assert_says(&err, "step 1: the loss of micro-batch 1 of 3 is not finite: first in layer 1, mlp: ug, "
                      "sequence 0, token 0 (32 NaN");
    assert_says(&err, "parameter transformer.h.1.mlp.c_fc1.weight was bad before the step (1 NaN");
    assert_says(&err, "there is no checkpoint yet");
    assert_true(exists(t.out, "trouble-1"));
    assert_false(exists(t.out, "checkpoint-0"));
}

static int stop_after(void *user)
{
    return --*(int *)user == 0;
}

/* What was finite when the loss was last taken and is infinite after the update: no checkpoint, no model. */
static void an_update_that_overflows(void **state)
{
    (void)state;
    struct ddl_error err;
    struct ddl_train_config t = a_run(brittle_folder(), "cpu", "overflow");
    t.steps = 1;
    t.lr = 1000;
    t.weight_decay = 10;
    assert_int_equal(ddl_train_run(&t, NULL, NULL, &err), DDL_E_NUMERIC);
    assert_says(&err, "step 1: left the parameter input_embed.conv.weight not finite (");
    assert_says(&err, "it is not kept; there is no checkpoint yet");
    assert_false(exists(t.out, "checkpoint-1"));
    assert_false(exists(t.out, "model.safetensors"));
}

/* A rate that is far too high. The state before the last step is that of a run that was stopped there, byte
 * for byte; it is kept beside the older one, from which the run goes on with a rate that is not. */
static void a_rate_too_high(void **state)
{
    (void)state;
    static const char *const backends[] = { "cpu", "ref" };
    static const char *const files[] = { "model.safetensors", "optimizer.safetensors" };
    for (size_t i = 0; i < 2; i++) {
        struct ddl_error err;
        struct ddl_train_config t = a_run(NULL, backends[i], "high"),
                                stopped = a_run(NULL, backends[i], "stopped");
        int left = 1;
        struct ddl_train_callbacks callbacks = { .user = &left, .stop = stop_after };
        t.keep_last = 1;
        assert_int_equal(ddl_train_run(&t, &callbacks, NULL, &err), DDL_E_INTERRUPTED);
        t.lr = stopped.lr = 1000;
        t.weight_decay = stopped.weight_decay = 10;
        t.resume = true;
        assert_int_equal(ddl_train_run(&t, NULL, NULL, &err), DDL_E_NUMERIC);
        unsigned long long step = 0;
        assert_int_equal(sscanf(err.text, "step %llu: the ", &step), 1);
        assert_in_range(step, 3, 10);
        assert_says(&err, "is not finite");
        assert_says(&err, " first in ");
        char before[64], dump[64];
        snprintf(before, sizeof before, "checkpoint-%llu", step - 1);
        snprintf(dump, sizeof dump, "trouble-%llu", step);
        assert_true(exists(t.out, before) && exists(t.out, dump) && exists(t.out, "checkpoint-1"));
        /* The same run, stopped of its own will. */
        copy_scratch("high", "stopped");
        stopped.resume = true;
        remove_checkpoint("stopped", step - 1);
        left = (int)step - 2;
        assert_int_equal(ddl_train_run(&stopped, &callbacks, NULL, &err), DDL_E_INTERRUPTED);
        for (size_t f = 0; f < 2; f++)
            assert_same_file(in_folder(t.out, before, files[f]), in_folder(stopped.out, before, files[f]));
        remove_checkpoint("high", step - 1);
        t.lr = 1e-3;
        t.weight_decay = 0.1f;
        assert_ok(ddl_train_run(&t, NULL, NULL, &err), err);
    }
}

static struct ddl_train_config spiky_run(const char *backend, const char *out)
{
    struct ddl_train_config t = a_run(NULL, backend, out);
    t.spike_z = 0.2;
    t.spike_window = 4;
    t.spike_max_skip = 2;
    t.lr = 3e-3;
    t.log_every = 5;
    t.checkpoint_every = 20;
    return t;
}

/* Skips and shifts of the level, with a bound so low that there are both: the run that was stopped between
 * them and resumed is the one that was not. */
static void spikes_resume_bit_for_bit(void **state)
{
    (void)state;
    static const struct {
        const char *backend;
        int first, last;
    } cases[] = { { "cpu", 7, 14 }, { "ref", 11, 12 } };
    static const char *const files[] = { "model.safetensors", "optimizer.safetensors" };
    for (size_t i = 0; i < 2; i++) {
        struct ddl_error err;
        struct told told = { 0 };
        struct ddl_train_callbacks watch = { .user = &told, .note = listen };
        struct ddl_train_config whole = spiky_run(cases[i].backend, "whole");
        assert_ok(ddl_train_run(&whole, &watch, NULL, &err), err);
        assert_true(told.skipped >= 3 && told.shifted >= 1);
        for (int stop = cases[i].first; stop < cases[i].last; stop++) {
            int left = stop;
            struct ddl_train_callbacks callbacks = { .user = &left, .stop = stop_after };
            struct ddl_train_config parts = spiky_run(cases[i].backend, "parts");
            assert_int_equal(ddl_train_run(&parts, &callbacks, NULL, &err), DDL_E_INTERRUPTED);
            parts.resume = true;
            assert_ok(ddl_train_run(&parts, NULL, NULL, &err), err);
            for (size_t f = 0; f < 2; f++)
                assert_same_file(in_folder(whole.out, "checkpoint-20", files[f]),
                                 in_folder(parts.out, "checkpoint-20", files[f]));
            assert_int_equal(skips_told(whole.out), told.skipped); /* on lines of their own, logged or not */
            assert_int_equal(skips_told(parts.out), told.skipped);
        }
    }
}

/* Where the dump cannot be written, the sentence says why, and the state is kept all the same. */
static void no_room_for_a_dump(void **state)
{
    (void)state;
    struct ddl_error err;
    struct ddl_train_config t = a_run(brittle_folder(), "cpu", "noroom");
    t.lr = 0;
    put_token(t.train_data, 1, 30, RARE);
    assert_int_equal(ddl_train_run(&t, NULL, NULL, &err), DDL_E_NUMERIC);
    remove_scratch("noroom/trouble-1");
    write_file(scratch_path("noroom/trouble-1"), "x", 1); /* no folder */
    t.resume = true;
    assert_int_equal(ddl_train_run(&t, NULL, NULL, &err), DDL_E_NUMERIC);
    assert_says(&err, "first in embed: X, sequence 0, token ");
    assert_says(&err, "; no dump of it: ");
    assert_says(&err, "checkpoint-0, the state before it");
    assert_true(exists(t.out, "checkpoint-0/state.json"));
    assert_false(exists(t.out, ".trouble-1"));
}

/* The spike's share of a state.json whose seal is right: refused by key. */
static void a_window_is_not_trusted(void **state)
{
    (void)state;
    static const struct {
        const char *spike, *says;
    } cases[] = {
        { "{\"skipped\":2,\"in_a_row\":1,\"norms\":[1,0.5]}", NULL },
        { "{\"skipped\":9,\"in_a_row\":1,\"norms\":[]}", "of 3 steps 9 were skipped, 1 in a row" },
        { "{\"skipped\":1,\"in_a_row\":2,\"norms\":[]}", "of 3 steps 1 were skipped, 2 in a row" },
        { "{\"skipped\":-1,\"in_a_row\":0,\"norms\":[]}", "skipped is missing or no whole number" },
        { "{\"skipped\":1,\"in_a_row\":0}", "norms is missing or has more than 1024 numbers" },
        { "{\"skipped\":1,\"in_a_row\":0,\"norms\":[1,-1]}", "norm 1 is no norm" },
        { "{\"skipped\":1,\"in_a_row\":0,\"norms\":[\"1\"]}", "norm 0 is no norm" },
        { "[]", "skipped is missing" },
    };
    struct ddl_error err;
    struct ddl_train_config t = a_run(NULL, "ref", "window");
    struct ddl_run_state found;
    int left = 3;
    struct ddl_train_callbacks callbacks = { .user = &left, .stop = stop_after };
    assert_int_equal(ddl_train_run(&t, &callbacks, NULL, &err), DDL_E_INTERRUPTED);
    const char *folder = scratch_path("window/checkpoint-3"),
               *path = scratch_path("window/checkpoint-3/state.json");
    json_t *root = json_load_file(path, 0, NULL);
    assert_non_null(root);
    json_object_del(root, "crc32"); /* the seal */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_object_set_new(root, "spike", json_loads(cases[i].spike, 0, NULL));
        char *text = ddl_sums_seal(root);
        assert_non_null(text);
        write_file(path, text, strlen(text));
        free(text);
        assert_int_equal(ddl_state_read(folder, &found, &err), cases[i].says ? DDL_E_FORMAT : DDL_OK);
        if (cases[i].says)
            assert_says(&err, cases[i].says);
        else
            assert_true(found.spike.skipped == 2 && found.spike.n == 2 && found.spike.norms[1] == 0.5);
    }
    json_decref(root);
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
        cmocka_unit_test(names_the_micro_batch),
        cmocka_unit_test(names_a_validation),
        cmocka_unit_test(keeps_no_bad_state),
        cmocka_unit_test(an_update_that_overflows),
        cmocka_unit_test(a_rate_too_high),
        cmocka_unit_test(spikes_resume_bit_for_bit),
        cmocka_unit_test(no_room_for_a_dump),
        cmocka_unit_test(a_window_is_not_trusted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
