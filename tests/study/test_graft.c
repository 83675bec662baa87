/* ddl/graft.h: what a graft copies, what it makes, and a sweep over layers. */
#include "support/models.h"
#include "support/runs.h"

#include "ddl/backend.h"
#include "ddl/export.h"
#include "ddl/force.h"
#include "ddl/graft.h"
#include "model/residual/table.h"
#include "tensor/safetensors.h"

#include <math.h>
#include <stdlib.h>

static const char *const presets[] = {
    [DDL_RESIDUAL_ADD] = "baseline", [DDL_RESIDUAL_DELTA] = "ddl-1",     [DDL_RESIDUAL_SCALE] = "scale",
    [DDL_RESIDUAL_GATED] = "gated",  [DDL_RESIDUAL_HIGHWAY] = "highway", [DDL_RESIDUAL_HYPER] = "hyper",
    [DDL_RESIDUAL_MHC] = "mhc",      [DDL_RESIDUAL_LAUREL] = "laurel",   [DDL_RESIDUAL_ATTNRES] = "attnres"
};

_Static_assert(sizeof presets / sizeof *presets == DDL_RESIDUALS, "a preset for every rule");

/* Rules that are in all layers or in none. */
static bool is_whole(int rule)
{
    return residual_rule_at(rule)->state != NULL;
}

static int write_inputs(void **state)
{
    (void)state;
    for (int rule = 0; rule < DDL_RESIDUALS; rule++)
        tiny_folder(presets[rule], presets[rule]);
    write_random_shard(scratch_path("train.bin"), 3, TINY_VOCAB, 3000);
    return 0;
}

static struct ddl_graft graft_of(const char *folder, int rule, size_t from, size_t to)
{
    struct ddl_error err;
    struct ddl_graft g = { .rule = rule, .seed = 5 };
    assert_ok(ddl_config_load(&g.keys, folder, NULL, NULL, &err), err);
    for (size_t l = from; l <= to; l++)
        g.layer[l] = true;
    return g;
}

static struct ddl_graft_result graft_ok(const char *from, const char *to, const struct ddl_graft *graft)
{
    struct ddl_error err;
    struct ddl_graft_result result;
    remove_scratch(to);
    assert_ok(ddl_graft_write(from, scratch_path(to), graft, NULL, &result, &err), err);
    return result;
}

/* Number of tensors of b that have the name, dtype, shape and bytes of a tensor of a. */
static size_t equal_tensors(const char *a, const char *b)
{
    ddl_safetensors *x = open_tensors(a), *y = open_tensors(b);
    size_t n = 0;
    for (size_t i = 0; i < ddl_safetensors_count(y); i++) {
        const struct ddl_tensor *u = ddl_safetensors_at(y, i), *t = ddl_safetensors_find(x, u->name);
        n += t && t->dtype == u->dtype && ddl_tensor_has_shape(t, u->ndim, u->shape) &&
             memcmp(t->data, u->data, u->bytes) == 0;
    }
    ddl_safetensors_close(x);
    ddl_safetensors_close(y);
    return n;
}

static size_t count_tensors(const char *folder)
{
    ddl_safetensors *st = open_tensors(folder);
    size_t n = ddl_safetensors_count(st);
    ddl_safetensors_close(st);
    return n;
}

/* The same tensors in both folders. */
static void assert_same_tensors(const char *a, const char *b)
{
    assert_int_equal(count_tensors(a), count_tensors(b));
    assert_int_equal(equal_tensors(a, b), count_tensors(a));
}

/* Every rule becomes every other and its own again: what is not of the rules is unchanged, and additive
 * layers are as they were. */
static void copies_what_is_not_of_the_rule(void **state)
{
    (void)state;
    for (int was = 0; was < DDL_RESIDUALS; was++) {
        for (int rule = 0; rule < DDL_RESIDUALS; rule++) {
            char from[4096], to[4096];
            if (was == rule)
                continue;
            snprintf(from, sizeof from, "%s", scratch_path(presets[was]));
            size_t first = is_whole(was) || is_whole(rule) ? 0 : 1;
            struct ddl_graft g = graft_of(from, rule, first, 2);
            struct ddl_graft_result r = graft_ok(from, "there", &g);
            snprintf(to, sizeof to, "%s", scratch_path("there"));
            assert_int_equal(r.n_copied + r.n_new, count_tensors(to));
            assert_int_equal(r.n_copied + r.n_dropped, count_tensors(from));
            /* hyper and attnres have norms of the same name and initial values */
            bool alike = (was == DDL_RESIDUAL_HYPER && rule == DDL_RESIDUAL_ATTNRES) ||
                         (was == DDL_RESIDUAL_ATTNRES && rule == DDL_RESIDUAL_HYPER);
            assert_int_equal(equal_tensors(from, to), r.n_copied + (alike ? 6 : 0));
            for (size_t l = 0; l < 3; l++)
                assert_int_equal(ddl_config_residual(&r.config, l), l < first ? was : rule);
            g = graft_of(to, was, first, 2);
            r = graft_ok(to, "back", &g);
            assert_false(r.config.by_layer);
            if (was == DDL_RESIDUAL_ADD) {
                assert_int_equal(r.n_new, 0);
                assert_same_tensors(from, scratch_path("back"));
                assert_same_file(file_in(from, "config.json"), file_in(scratch_path("back"), "config.json"));
                assert_same_file(file_in(from, "tokenizer.json"),
                                 file_in(scratch_path("back"), "tokenizer.json"));
            }
        }
    }
}

/* An exported model keeps its dtype; new parameters are float32. */
static void keeps_the_dtype(void **state)
{
    (void)state;
    struct ddl_error err;
    struct ddl_export_result exported;
    const struct ddl_export_config as_bf16 = { .dtype = DDL_EXPORT_BF16, .no_lm_head = true };
    char small[4096];
    snprintf(small, sizeof small, "%s", scratch_path("small"));
    remove_scratch("small");
    assert_ok(ddl_export(scratch_path("baseline"), small, &as_bf16, NULL, NULL, &exported, &err), err);
    struct ddl_graft g = graft_of(small, DDL_RESIDUAL_DELTA, 0, 0);
    struct ddl_graft_result r = graft_ok(small, "there", &g);
    assert_int_equal(equal_tensors(small, scratch_path("there")), r.n_copied);
    ddl_safetensors *st = open_tensors(scratch_path("there"));
    assert_null(ddl_safetensors_find(st, "lm_head.weight"));
    const struct ddl_tensor *t = ddl_safetensors_find(st, "transformer.h.0.ddl_attn.v_proj.weight");
    assert_true(t && t->dtype == DDL_F32);
    ddl_safetensors_close(st);
    g = graft_of(scratch_path("there"), DDL_RESIDUAL_ADD, 0, 0);
    graft_ok(scratch_path("there"), "back", &g);
    assert_same_tensors(small, scratch_path("back"));
}

/* New parameters are those of a new model of the configuration with the same seed. */
static void new_parameters_are_a_new_models(void **state)
{
    (void)state;
    struct ddl_error err;
    ddl_backend *backend;
    ddl_model *fresh, *grafted;
    for (int rule = DDL_RESIDUAL_DELTA; rule < DDL_RESIDUALS; rule++) {
        char from[4096];
        size_t n_new = 0;
        snprintf(from, sizeof from, "%s", scratch_path("baseline"));
        size_t last = is_whole(rule) ? 2 : 1;
        struct ddl_graft g = graft_of(from, rule, 0, last);
        g.keys.beta_init = rule == DDL_RESIDUAL_DELTA || rule == DDL_RESIDUAL_GATED ? 0.25f : 1;
        g.keys.highway_init = rule == DDL_RESIDUAL_HIGHWAY ? 0.7f : g.keys.highway_init;
        g.keys.scale_init = rule == DDL_RESIDUAL_SCALE ? 0.5f : g.keys.scale_init;
        struct ddl_graft_result r = graft_ok(from, "there", &g);
        assert_ok(ddl_backend_create(&backend, "ref", 0, &err), err);
        assert_ok(ddl_model_create(&fresh, &r.config, backend, &err), err);
        assert_ok(ddl_model_init(fresh, g.seed, &err), err);
        assert_ok(ddl_model_load(&grafted, scratch_path("there"), backend, NULL, NULL, &err), err);
        for (size_t i = 0; i < ddl_model_n_params(fresh); i++) {
            const struct ddl_param *p = ddl_model_param(fresh, i);
            bool is_new = strncmp(p->name, "transformer.h.", 14) == 0 &&
                          (size_t)(p->name[14] - '0') <= last &&
                          (strncmp(p->name + 16, "ddl_", 4) == 0 || strncmp(p->name + 16, "res_", 4) == 0);
            is_new |= strncmp(p->name, "readout.", 8) == 0;
            float *a = malloc(p->count * sizeof *a), *b = malloc(p->count * sizeof *b);
            ddl_model_read_param(fresh, i, a);
            ddl_model_read_param(grafted, i, b);
            n_new += is_new;
            if (is_new)
                assert_memory_equal(a, b, p->count * sizeof *a);
            if (rule == DDL_RESIDUAL_SCALE && is_new)
                assert_true(b[0] == 0.5f);
            free(a);
            free(b);
        }
        assert_int_equal(n_new, r.n_new);
        assert_string_equal(r.new_params, rule == DDL_RESIDUAL_DELTA     ? "transformer.h.*.ddl_*"
                                          : rule == DDL_RESIDUAL_ATTNRES ? "transformer.h.*.res_*,readout.*"
                                                                         : "transformer.h.*.res_*");
        ddl_model_free(fresh);
        ddl_model_free(grafted);
        ddl_backend_free(backend);
    }
}

/* With several steps the output projections keep the rows of the source and get new ones, which a graft back
 * leaves out. */
static void steps_keep_the_rows_of_the_source(void **state)
{
    (void)state;
    struct ddl_error err;
    ddl_backend *backend;
    ddl_model *source, *fresh, *grafted;
    static const char *const names[] = { "transformer.h.1.attn.c_proj.weight",
                                         "transformer.h.1.mlp.c_proj.weight" };
    char from[4096], there[4096];
    snprintf(from, sizeof from, "%s", scratch_path("baseline"));
    struct ddl_graft g = graft_of(from, DDL_RESIDUAL_DELTA, 1, 1);
    g.keys.steps = 3;
    struct ddl_graft_result r = graft_ok(from, "there", &g);
    snprintf(there, sizeof there, "%s", scratch_path("there"));
    assert_string_equal(r.new_params, "transformer.h.*.ddl_*,transformer.h.1.attn.c_proj.weight,"
                                      "transformer.h.1.mlp.c_proj.weight");
    assert_ok(ddl_backend_create(&backend, "ref", 0, &err), err);
    assert_ok(ddl_model_create(&fresh, &r.config, backend, &err), err);
    assert_ok(ddl_model_init(fresh, g.seed, &err), err);
    assert_ok(ddl_model_load(&source, from, backend, NULL, NULL, &err), err);
    assert_ok(ddl_model_load(&grafted, there, backend, NULL, NULL, &err), err);
    for (size_t i = 0; i < 2; i++) {
        size_t row = param_row(grafted, names[i]), kept = param_row(source, names[i]);
        size_t n = ddl_model_param(source, kept)->count;
        assert_int_equal(ddl_model_param(grafted, row)->count, 3 * n);
        float *a = malloc(n * sizeof *a), *b = malloc(3 * n * sizeof *b), *c = malloc(3 * n * sizeof *c);
        ddl_model_read_param(source, kept, a);
        ddl_model_read_param(grafted, row, b);
        ddl_model_read_param(fresh, row, c);
        assert_memory_equal(b, a, n * sizeof *a);
        assert_memory_equal(b + n, c + n, 2 * n * sizeof *b);
        free(a);
        free(b);
        free(c);
    }
    ddl_model_free(fresh);
    ddl_model_free(source);
    ddl_model_free(grafted);
    ddl_backend_free(backend);
    g = graft_of(there, DDL_RESIDUAL_ADD, 1, 1);
    r = graft_ok(there, "back", &g);
    assert_int_equal(r.n_new, 0);
    assert_same_tensors(from, scratch_path("back"));
}

static double loss_with(const char *folder, size_t layer, const struct ddl_force *force)
{
    struct ddl_error err;
    ddl_backend *backend;
    ddl_model *model;
    ddl_shards *shards;
    struct ddl_eval_result result;
    const struct ddl_eval_config windows = { .max_tokens = 300 };
    assert_ok(ddl_backend_create(&backend, "ref", 0, &err), err);
    assert_ok(ddl_model_load(&model, folder, backend, NULL, NULL, &err), err);
    assert_ok(ddl_shards_open(&shards, scratch_path("train.bin"), &err), err);
    for (int sub = 0; sub < DDL_SUBLAYERS && force; sub++)
        assert_ok(ddl_model_force(model, layer, sub, force, &err), err);
    assert_ok(ddl_eval_shards(model, NULL, shards, &windows, &result, &err), err);
    ddl_shards_close(shards);
    ddl_model_free(model);
    ddl_backend_free(backend);
    return result.loss;
}

/* Sums between blocks begin as the state itself: the loss is that of the source, with any rule and any number
 * of channels, and no layer is chosen. Without them again the source is back. */
static void sums_between_blocks_change_nothing(void **state)
{
    (void)state;
    static const char *const sources[] = { "baseline", "ddl-cc-ec" };
    tiny_folder("ddl-cc-ec", "ddl-cc-ec");
    for (size_t i = 0; i < 2; i++) {
        char from[4096], there[4096];
        struct ddl_error err;
        struct ddl_graft_result r;
        snprintf(from, sizeof from, "%s", scratch_path(sources[i]));
        struct ddl_graft g = { .rule = DDL_RESIDUAL_DELTA, .seed = 5 };
        assert_ok(ddl_config_load(&g.keys, from, NULL, NULL, &err), err);
        assert_int_equal(ddl_graft_write(from, scratch_path("no"), &g, NULL, &r, &err), DDL_E_USAGE);
        g.keys.dense_average = true;
        g.keys.dense_dilation = 2;
        r = graft_ok(from, "there", &g);
        snprintf(there, sizeof there, "%s", scratch_path("there"));
        assert_int_equal(r.n_new, 3);
        assert_int_equal(r.new_numbers, 1 + 2 + 2);
        assert_int_equal(r.n_dropped, 0);
        assert_string_equal(r.new_params, "transformer.dwa.*");
        assert_true(loss_with(there, 0, NULL) == loss_with(from, 0, NULL));
        assert_ok(ddl_config_load(&g.keys, there, NULL, NULL, &err), err);
        g.keys.dense_period = 3; /* only the sum after the last block, as it was */
        r = graft_ok(there, "fewer", &g);
        assert_true(r.n_new == 0 && r.n_dropped == 2);
        g.keys.dense_average = false;
        r = graft_ok(there, "back", &g);
        assert_same_tensors(from, scratch_path("back"));
        assert_same_file(file_in(from, "config.json"), file_in(scratch_path("back"), "config.json"));
    }
}

/* The names of new parameters do not include those of a layer that had the rule before. */
static void names_new_parameters(void **state)
{
    (void)state;
    char there[4096];
    struct ddl_graft g = graft_of(scratch_path("baseline"), DDL_RESIDUAL_DELTA, 0, 0);
    graft_ok(scratch_path("baseline"), "there", &g);
    snprintf(there, sizeof there, "%s", scratch_path("there"));
    g = graft_of(there, DDL_RESIDUAL_DELTA, 1, 2);
    struct ddl_graft_result r = graft_ok(there, "more", &g);
    assert_string_equal(r.new_params, "transformer.h.1.ddl_*,transformer.h.2.ddl_*");
    g = graft_of(there, DDL_RESIDUAL_ADD, 0, 0);
    r = graft_ok(there, "more", &g);
    assert_string_equal(r.new_params, "");
}

/* A closed gate leaves the stream as it is: the layer is skipped, as with f_scale = 0 in the source. */
static void a_closed_gate_skips_the_layer(void **state)
{
    (void)state;
    const struct ddl_force closed = { .keys = DDL_FORCE_BETA, .beta = 0 };
    const struct ddl_force left_out = { .keys = DDL_FORCE_F_SCALE, .f_scale = 0 };
    char from[4096], there[4096];
    snprintf(from, sizeof from, "%s", scratch_path("baseline"));
    snprintf(there, sizeof there, "%s", scratch_path("there"));
    for (size_t l = 0; l < 3; l++) {
        struct ddl_graft g = graft_of(from, DDL_RESIDUAL_DELTA, l, l);
        graft_ok(from, "there", &g);
        double skipped = loss_with(from, l, &left_out);
        assert_true(loss_with(there, l, &closed) == skipped);
        assert_true(skipped != loss_with(from, l, NULL));
        assert_true(loss_with(there, l, NULL) != skipped);
    }
}

/* A gate that opens from 0: the layer is skipped. A scale of 1, and a new mixture: the same function as
 * before. */
static void initial_gates(void **state)
{
    (void)state;
    const struct ddl_force left_out = { .keys = DDL_FORCE_F_SCALE, .f_scale = 0 };
    char from[4096];
    snprintf(from, sizeof from, "%s", scratch_path("baseline"));
    struct ddl_graft g = graft_of(from, DDL_RESIDUAL_DELTA, 1, 1);
    g.keys.beta_init = 0;
    graft_ok(from, "there", &g);
    assert_true(fabs(loss_with(scratch_path("there"), 1, NULL) - loss_with(from, 1, &left_out)) < 1e-3);
    g = graft_of(from, DDL_RESIDUAL_SCALE, 1, 1);
    graft_ok(from, "there", &g);
    assert_true(fabs(loss_with(scratch_path("there"), 1, NULL) - loss_with(from, 1, NULL)) < 1e-6);
    g = graft_of(from, DDL_RESIDUAL_LAUREL, 0, 2);
    g.keys.laurel_rank = 3;
    graft_ok(from, "there", &g);
    assert_true(fabs(loss_with(scratch_path("there"), 1, NULL) - loss_with(from, 1, NULL)) < 1e-6);
}

/* Streams that are equal remain equal: with the static initial weights of hyper the model computes what its
 * source does, but for the epsilon of the final norm; the projections of mhc change it slightly. */
static void equal_streams_are_the_source(void **state)
{
    (void)state;
    char from[4096];
    snprintf(from, sizeof from, "%s", scratch_path("baseline"));
    double loss = loss_with(from, 0, NULL);
    for (size_t n = 1; n <= 4; n++) {
        struct ddl_graft g = graft_of(from, DDL_RESIDUAL_HYPER, 0, 2);
        g.keys.streams = n;
        graft_ok(from, "there", &g);
        assert_true(fabs(loss_with(scratch_path("there"), 0, NULL) - loss) < 1e-4);
    }
    struct ddl_graft g = graft_of(from, DDL_RESIDUAL_MHC, 0, 2);
    graft_ok(from, "there", &g);
    assert_true(fabs(loss_with(scratch_path("there"), 0, NULL) - loss) < 0.05);
}

/* Values that are not mixed at first leave the model as it was, of any channels; removed again, the folder is
 * as it was. */
static void value_residual_is_an_option(void **state)
{
    (void)state;
    static const char *const models[] = { "baseline", "highway", "ddl-cc-ec" };
    for (size_t i = 0; i < 3; i++) {
        char from[4096], there[4096];
        snprintf(from, sizeof from, "%s", tiny_folder("source", models[i]));
        snprintf(there, sizeof there, "%s", scratch_path("there"));
        struct ddl_graft g = { .rule = DDL_RESIDUAL_DELTA, .seed = 5 }, back;
        struct ddl_error err;
        assert_ok(ddl_config_load(&g.keys, from, NULL, NULL, &err), err);
        back = g;
        g.keys.value_residual = true;
        struct ddl_graft_result r = graft_ok(from, "there", &g);
        assert_true(r.config.value_residual);
        assert_int_equal(r.config.residual, r.source.residual);
        assert_int_equal(r.n_new, 2); /* of three layers */
        assert_int_equal(r.n_dropped, 0);
        assert_string_equal(r.new_params, "transformer.h.*.attn.v_mix");
        assert_int_equal(equal_tensors(from, there), r.n_copied);
        assert_true(loss_with(there, 0, NULL) == loss_with(from, 0, NULL));
        r = graft_ok(there, "back", &back);
        assert_int_equal(r.n_new, 0);
        assert_string_equal(r.new_params, "");
        assert_same_tensors(from, scratch_path("back"));
    }
    struct ddl_graft both = graft_of(scratch_path("baseline"), DDL_RESIDUAL_GATED, 1, 1);
    both.keys.value_residual = true;
    struct ddl_graft_result r = graft_ok(scratch_path("baseline"), "there", &both);
    assert_string_equal(r.new_params, "transformer.h.*.res_*,transformer.h.*.attn.v_mix");
}

static void refuse(const char *from, const struct ddl_graft *graft, const char *gist)
{
    struct ddl_error err;
    struct ddl_graft_result result;
    remove_scratch("refused");
    assert_int_equal(ddl_graft_write(from, scratch_path("refused"), graft, NULL, &result, &err), DDL_E_USAGE);
    assert_says(&err, gist);
    assert_false(ddl_file_exists(scratch_path("refused")));
}

static void refusals(void **state)
{
    (void)state;
    char add[4096], wide[4096], there[4096];
    snprintf(add, sizeof add, "%s", scratch_path("baseline"));
    snprintf(wide, sizeof wide, "%s", tiny_folder("wide", "ddl-cc-ec"));
    struct ddl_graft g = graft_of(add, DDL_RESIDUAL_DELTA, 3, 3);
    refuse(add, &g, "layers: expected layers 0 to 2, found 3");
    g.layer[3] = false;
    refuse(add, &g, "layers: expected at least one layer, found none");
    g = graft_of(add, DDL_RESIDUAL_ADD, 1, 1);
    refuse(add, &g, "layers: layer 1 has the rule add already");
    g = graft_of(wide, DDL_RESIDUAL_ADD, 1, 1);
    refuse(wide, &g, "ddl_value_channels: expected 1, found 4");
    g = graft_of(add, DDL_RESIDUAL_DELTA, 0, 0);
    g.keys.d_model = 42;
    refuse(add, &g, "hidden_size: expected 21, as in the source, found 42");
    g = graft_of(add, DDL_RESIDUAL_DELTA, 0, 0);
    g.keys.channels = 2;
    refuse(add, &g, "ddl_value_channels: expected 1");
    g = graft_of(add, DDL_RESIDUAL_HYPER, 0, 1);
    refuse(add, &g, "layers: expected all 3 layers, which share the state of the rule hyper, found 2");
    snprintf(there, sizeof there, "%s", scratch_path("attnres"));
    g = graft_of(there, DDL_RESIDUAL_ADD, 1, 1);
    refuse(there, &g, "layers: expected all 3 layers, which share the state of the rule attnres, found 1");
    g = graft_of(add, DDL_RESIDUAL_HIGHWAY, 0, 0);
    g.keys.map = DDL_MAP_V;
    refuse(add, &g, "ddl_map: expected a key of the rule highway");
    g = graft_of(add, DDL_RESIDUAL_DELTA, 0, 0);
    g.keys.beta_init = 3;
    refuse(add, &g, "ddl_beta_init: 3 is out of range");
    g.keys.beta_init = 1;
    graft_ok(add, "there", &g);
    snprintf(there, sizeof there, "%s", scratch_path("there"));
    g = graft_of(there, DDL_RESIDUAL_DELTA, 1, 1);
    g.keys.map = DDL_MAP_V;
    refuse(there, &g, "ddl_map: expected k, because layer 0 keeps the rule delta, found v");
    g.keys.map = DDL_MAP_K;
    g.keys.beta_init = 0.5f; /* of the new layer alone */
    graft_ok(there, "more", &g);
    struct ddl_error err;
    struct ddl_graft_result result;
    assert_int_equal(ddl_graft_write(there, add, &g, NULL, &result, &err), DDL_E_USAGE);
    assert_says(&err, "exists already");
}

/* ---- sweeps ---- */

struct watch {
    const char *stop_in; /* the part of which calls count; NULL: all */
    int calls, stop_at;
    uint64_t last;
};

static int watch_progress(void *user, const char *what, uint64_t done, uint64_t total)
{
    struct watch *w = user;
    assert_true(*what && done <= total && done >= w->last);
    w->last = done;
    w->calls += strstr(what, w->stop_in ? w->stop_in : "") != NULL;
    return w->calls == w->stop_at;
}

static struct ddl_graft_sweep sweep_of(const char *from, int rule, const char *out)
{
    struct ddl_graft_sweep s = { .source = from,
                                 .graft = graft_of(from, rule, 0, 2),
                                 .run = tiny_run("baseline", TINY_VOCAB, "ref", "unused") };
    s.run.steps = 6;
    s.run.val_tokens = 200;
    s.out = out;
    return s;
}

static struct ddl_graft_table swept(const struct ddl_graft_sweep *s)
{
    struct ddl_error err;
    struct ddl_graft_table table;
    struct watch watch = { 0 };
    const struct ddl_graft_callbacks callbacks = { .user = &watch, .progress = watch_progress };
    assert_ok(ddl_graft_sweep(s, &callbacks, &table, &err), err);
    assert_int_equal(table.n, table.n_total);
    return table;
}

static const struct ddl_graft_row *row_of(const struct ddl_graft_table *table, bool grafted, size_t layer)
{
    for (size_t i = 0; i < table->n; i++) {
        if (table->rows[i].grafted == grafted && table->rows[i].layer == layer)
            return &table->rows[i];
    }
    fail_msg("no row of layer %zu", layer);
    return NULL;
}

/* Every figure is that of the graft, of the run and of the evaluation by themselves. */
static void a_sweep_is_its_parts(void **state)
{
    (void)state;
    struct ddl_error err;
    struct ddl_eval_result eval;
    char from[4096], out[4096], there[4096];
    snprintf(from, sizeof from, "%s", scratch_path("baseline"));
    snprintf(out, sizeof out, "%s", scratch_path("sweep"));
    snprintf(there, sizeof there, "%s", scratch_path("there"));
    remove_scratch("sweep");
    struct ddl_graft_sweep s = sweep_of(from, DDL_RESIDUAL_DELTA, out);
    struct ddl_graft_table table = swept(&s);
    assert_int_equal(table.n, 4);
    assert_ok(ddl_graft_loss(from, &s.run, NULL, NULL, &eval, &err), err);
    assert_true(eval.loss == table.source_loss && eval.tokens == table.tokens);
    assert_true(row_of(&table, false, 0)->loss == table.source_loss);
    for (size_t i = 1; i < table.n; i++)
        assert_true(table.rows[i - 1].tuned_loss <= table.rows[i].tuned_loss);
    for (size_t l = 0; l < 3; l++) {
        const struct ddl_graft_row *row = row_of(&table, true, l);
        struct ddl_graft g = graft_of(from, DDL_RESIDUAL_DELTA, l, l);
        struct ddl_graft_result r = graft_ok(from, "there", &g);
        assert_ok(ddl_graft_loss(there, &s.run, NULL, NULL, &eval, &err), err);
        assert_true(eval.loss == row->loss);
        struct ddl_train_config t = s.run;
        t.config = r.config;
        snprintf(t.init_from, sizeof t.init_from, "%s", scratch_path("there"));
        snprintf(t.tokenizer, sizeof t.tokenizer, "%s", scratch_path("there"));
        snprintf(t.out, sizeof t.out, "%s", scratch_path("tuned"));
        remove_scratch("tuned");
        assert_ok(ddl_train_run(&t, NULL, NULL, &err), err);
        assert_ok(ddl_graft_loss(t.out, &s.run, NULL, NULL, &eval, &err), err);
        assert_true(eval.loss == row->tuned_loss);
        assert_string_equal(row->rule_was, "add");
    }
    assert_true(ddl_file_exists(file_in(out, "layer-001/metrics.jsonl")));
    assert_false(ddl_file_exists(file_in(out, "layer-001/model.safetensors")));
    assert_false(ddl_file_exists(file_in(out, "layer-001-model")));
    free(table.rows);
}

static void assert_same_table(const struct ddl_graft_table *a, const struct ddl_graft_table *b)
{
    assert_int_equal(a->n, b->n);
    assert_true(a->source_loss == b->source_loss && a->tokens == b->tokens);
    for (size_t i = 0; i < a->n; i++) {
        assert_int_equal(a->rows[i].layer, b->rows[i].layer);
        assert_true(a->rows[i].loss == b->rows[i].loss && a->rows[i].tuned_loss == b->rows[i].tuned_loss);
    }
}

/* Stopped in its first evaluation and then after every few steps of fine-tuning, a sweep ends with the same
 * table; with only the new parameters trained, everything else of the kept models is the source's. */
static void an_interrupted_sweep_continues(void **state)
{
    (void)state;
    struct ddl_error err;
    char from[4096], out[4096], again[4096];
    snprintf(from, sizeof from, "%s", scratch_path("baseline"));
    snprintf(out, sizeof out, "%s", scratch_path("whole"));
    snprintf(again, sizeof again, "%s", scratch_path("parts"));
    remove_scratch("whole");
    remove_scratch("parts");
    struct ddl_graft_sweep s = sweep_of(from, DDL_RESIDUAL_GATED, out);
    s.train = DDL_GRAFT_TRAIN_NEW;
    s.keep_models = true;
    struct ddl_graft_table whole = swept(&s), parts;
    assert_int_equal(whole.n, 3);
    s.out = again;
    ddl_status status = DDL_E_INTERRUPTED;
    int stops = 0;
    for (size_t finished = 0; status == DDL_E_INTERRUPTED; stops++) {
        struct watch watch = { .stop_in = stops ? ": fine-tuning" : NULL, .stop_at = 4 };
        const struct ddl_graft_callbacks callbacks = { .user = &watch, .progress = watch_progress };
        assert_true(stops < 50);
        status = ddl_graft_sweep(&s, &callbacks, &parts, &err);
        assert_true(parts.n >= finished);
        finished = parts.n;
        if (status == DDL_E_INTERRUPTED)
            free(parts.rows);
    }
    assert_ok(status, err);
    assert_true(stops > 3);
    assert_same_table(&whole, &parts);
    for (size_t l = 0; l < 3; l++) {
        char name[64], model[4200], run[4200];
        snprintf(name, sizeof name, "layer-%03zu/model.safetensors", l);
        snprintf(model, sizeof model, "%s/layer-%03zu-model", again, l);
        snprintf(run, sizeof run, "%s/layer-%03zu", again, l);
        assert_same_file(file_in(again, name), file_in(out, name));
        assert_int_equal(equal_tensors(from, run), count_tensors(from));
        assert_true(equal_tensors(model, run) < count_tensors(run));
    }
    /* finished: nothing is computed, and other settings are refused */
    struct ddl_graft_table once_more = swept(&s);
    assert_same_table(&whole, &once_more);
    free(once_more.rows);
    s.run.lr *= 2;
    assert_int_equal(ddl_graft_sweep(&s, NULL, &once_more, &err), DDL_E_USAGE);
    assert_says(&err, "the sweep has another lr: expected 0.001, found 0.002");
    free(once_more.rows);
    free(whole.rows);
    free(parts.rows);
}

/* A run that diverges has no loss; the others have. */
static void a_diverged_run_is_a_row(void **state)
{
    (void)state;
    char from[4096], out[4096];
    snprintf(from, sizeof from, "%s", scratch_path("baseline"));
    snprintf(out, sizeof out, "%s", scratch_path("diverged"));
    remove_scratch("diverged");
    struct ddl_graft_sweep s = sweep_of(from, DDL_RESIDUAL_SCALE, out);
    s.run.lr = 1000;
    s.run.weight_decay = 10;
    s.run.clip = 0;
    s.run.steps = 30;
    s.run.warmup = 0;
    struct ddl_graft_table table = swept(&s), again;
    assert_int_equal(table.n, 4);
    for (size_t i = 0; i < table.n; i++) {
        assert_true(isfinite(table.rows[i].loss));
        assert_true(isnan(table.rows[i].tuned_loss));
    }
    again = swept(&s);
    assert_int_equal(again.n, 4);
    assert_true(isnan(again.rows[3].tuned_loss));
    free(table.rows);
    free(again.rows);
}

/* Writes the model to the folder "large": the baseline, with one product of layer 1 enlarged. */
static void write_large(const char *from)
{
    struct ddl_error err;
    ddl_backend *backend;
    ddl_model *model;
    assert_ok(ddl_backend_create(&backend, "ref", 0, &err), err);
    assert_ok(ddl_model_load(&model, from, backend, NULL, NULL, &err), err);
    size_t i = 0;
    while (strcmp(ddl_model_param(model, i)->name, "transformer.h.1.attn.c_proj.weight") != 0)
        i++;
    size_t n = ddl_model_param(model, i)->count;
    float *values = malloc(n * sizeof *values);
    assert_non_null(values);
    ddl_model_read_param(model, i, values);
    for (size_t j = 0; j < n; j++)
        values[j] *= 1e33F;
    ddl_model_write_param(model, i, values);
    free(values);
    assert_ok(ddl_file_make_dir(scratch_path("large"), &err), err);
    assert_ok(ddl_model_save(model, scratch_path("large"), &err), err);
    ddl_model_free(model);
    ddl_backend_free(backend);
}

/* A grafted model whose loss is not finite has none, and its run diverges; the others are rows as before. */
static void a_loss_that_is_not_finite_is_a_row(void **state)
{
    (void)state;
    char from[4096], out[4096];
    write_large(scratch_path("baseline"));
    snprintf(from, sizeof from, "%s", scratch_path("large"));
    snprintf(out, sizeof out, "%s", scratch_path("infinite"));
    remove_scratch("infinite");
    struct ddl_graft_sweep s = sweep_of(from, DDL_RESIDUAL_SCALE, out);
    s.graft.keys.scale_init = 1e6F;
    struct ddl_graft_table table = swept(&s);
    assert_int_equal(table.n, 4);
    assert_true(isnan(row_of(&table, true, 1)->loss) && isnan(row_of(&table, true, 1)->tuned_loss));
    assert_true(isfinite(table.source_loss) && row_of(&table, false, 0)->loss == table.source_loss);
    assert_true(isfinite(row_of(&table, true, 0)->loss) && isfinite(row_of(&table, true, 2)->loss));
    free(table.rows);
}

static void refused_sweeps(void **state)
{
    (void)state;
    struct ddl_error err;
    struct ddl_graft_table table;
    char from[4096], out[4096];
    snprintf(from, sizeof from, "%s", scratch_path("baseline"));
    snprintf(out, sizeof out, "%s", scratch_path("none"));
    remove_scratch("none");
    const struct ddl_graft_sweep base = sweep_of(from, DDL_RESIDUAL_DELTA, out);
    struct ddl_graft_sweep s;
    write_random_shard(scratch_path("large.bin"), 3, 2 * TINY_VOCAB, 3000);
#define REFUSED(change, expected, gist)                                                                      \
    do {                                                                                                     \
        s = base;                                                                                            \
        change;                                                                                              \
        assert_int_equal(ddl_graft_sweep(&s, NULL, &table, &err), expected);                                 \
        assert_says(&err, gist);                                                                             \
        free(table.rows);                                                                                    \
    } while (0)
    REFUSED(*s.run.train_data = '\0', DDL_E_USAGE, "graft: missing argument: expected --train-data PATH");
    REFUSED(s.graft.layer[7] = true, DDL_E_USAGE, "layers: expected layers 0 to 2, found 7");
    REFUSED((s.graft.rule = DDL_RESIDUAL_ADD), DDL_E_USAGE, "layer 0 has the rule add already");
    REFUSED(strcpy(s.run.train_data, "/nowhere"), DDL_E_IO, "/nowhere");
    REFUSED((s.graft.rule = DDL_RESIDUAL_MHC), DDL_E_USAGE,
            "graft of layer 0 alone: layers: expected all 3 layers, which share the state of the rule mhc, "
            "found 1");
    /* A key that layer 0 keeps while another layer is grafted. */
    struct ddl_graft one = graft_of(from, DDL_RESIDUAL_DELTA, 0, 0);
    graft_ok(from, "mixed", &one);
    snprintf(from, sizeof from, "%s", scratch_path("mixed"));
    REFUSED((s.graft = graft_of(from, DDL_RESIDUAL_GATED, 0, 2), s.graft.keys.beta_max = 1.5F), DDL_E_USAGE,
            "graft of layer 1 alone: ddl_beta_max: expected 2, because layer 0 keeps the rule delta, found "
            "1.5");
    snprintf(from, sizeof from, "%s", scratch_path("baseline"));
    assert_false(ddl_file_exists(out));
    REFUSED(snprintf(s.run.train_data, sizeof s.run.train_data, "%s", scratch_path("large.bin")),
            DDL_E_FORMAT, "train_data: token ");
    from[0] = '\0';
    strcat(from, scratch_path("ddl-1"));
    REFUSED((s.graft = graft_of(from, DDL_RESIDUAL_ADD, 0, 0), s.train = DDL_GRAFT_TRAIN_NEW), DDL_E_USAGE,
            "train: expected all: the rule add has no parameters");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_what_is_not_of_the_rule),
        cmocka_unit_test(keeps_the_dtype),
        cmocka_unit_test(new_parameters_are_a_new_models),
        cmocka_unit_test(names_new_parameters),
        cmocka_unit_test(steps_keep_the_rows_of_the_source),
        cmocka_unit_test(sums_between_blocks_change_nothing),
        cmocka_unit_test(a_closed_gate_skips_the_layer),
        cmocka_unit_test(initial_gates),
        cmocka_unit_test(equal_streams_are_the_source),
        cmocka_unit_test(value_residual_is_an_option),
        cmocka_unit_test(refusals),
        cmocka_unit_test(a_sweep_is_its_parts),
        cmocka_unit_test(an_interrupted_sweep_continues),
        cmocka_unit_test(a_diverged_run_is_a_row),
        cmocka_unit_test(a_loss_that_is_not_finite_is_a_row),
        cmocka_unit_test(refused_sweeps),
    };
    return cmocka_run_group_tests(tests, write_inputs, NULL);
}
