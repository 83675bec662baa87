#define _POSIX_C_SOURCE 200809L
#include "support/models.h"

#include "support/runs.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "tensor/safetensors.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct ddl_config small_config(const char *preset)
{
    struct ddl_config k = tiny_config(preset, 31);
    k.embedding_init_std = 1;
    return k;
}

static void v_map(struct ddl_config *k)
{
    k->map = DDL_MAP_V;
}

static void v_map_rank(struct ddl_config *k)
{
    k->map = DDL_MAP_V;
    k->k_rank = 4;
}

static void v_map_erase(struct ddl_config *k)
{
    k->map = DDL_MAP_V;
    k->update = DDL_UPDATE_ERASE;
}

static void write_context(struct ddl_config *k)
{
    k->update = DDL_UPDATE_WRITE;
    k->v_input = DDL_V_CONTEXT;
    k->v_sigmoid = false;
}

static void gate_mlp_constant(struct ddl_config *k)
{
    k->beta_linear = false;
    k->beta_hidden = 13;
    k->v_constant = true;
}

static void mixed(struct ddl_config *k)
{
    k->by_layer = true;
    k->residual_by_layer[0] = DDL_RESIDUAL_DELTA;
    k->residual_by_layer[1] = DDL_RESIDUAL_ADD;
    k->residual_by_layer[2] = DDL_RESIDUAL_DELTA;
}

static void mup_plain(struct ddl_config *k)
{
    k->mup = true;
    k->d_base = 42;
    k->qk_norm = false;
    k->rope_ratio = 0.5f;
}

static void scale(struct ddl_config *k)
{
    k->residual = DDL_RESIDUAL_SCALE;
    k->scale_init = 0.7f;
}

static void scale_features_mixed(struct ddl_config *k)
{
    mixed(k);
    k->residual_by_layer[1] = DDL_RESIDUAL_SCALE;
    k->per_feature = true;
}

static void gated(struct ddl_config *k)
{
    k->residual = DDL_RESIDUAL_GATED;
}

static void gated_mlp_mixed(struct ddl_config *k)
{
    mixed(k);
    k->residual_by_layer[1] = DDL_RESIDUAL_GATED;
    k->beta_linear = false;
    k->beta_hidden = 13;
}

static void highway(struct ddl_config *k)
{
    k->residual = DDL_RESIDUAL_HIGHWAY;
    k->highway_init = 0.4f;
}

static void highway_features_mixed(struct ddl_config *k)
{
    mixed(k);
    k->residual_by_layer[1] = DDL_RESIDUAL_HIGHWAY;
    k->per_feature = true;
}

static void laurel(struct ddl_config *k)
{
    k->residual = DDL_RESIDUAL_LAUREL;
    k->laurel_rank = 4;
}

static void laurel_mixed(struct ddl_config *k)
{
    mixed(k);
    k->residual_by_layer[1] = DDL_RESIDUAL_LAUREL;
}

static void values(struct ddl_config *k)
{
    k->value_residual = true;
}

static void values_mixed(struct ddl_config *k)
{
    laurel_mixed(k);
    k->laurel_rank = 3;
    k->value_residual = true;
}

static void gate_constant(struct ddl_config *k)
{
    k->beta_constant = true;
    k->beta_constant_value = 0.7f;
}

static void gate_constant_mlp(struct ddl_config *k)
{
    gate_constant(k);
    gate_mlp_constant(k);
    k->v_constant = false;
}

static void gate_constant_mixed(struct ddl_config *k)
{
    gated_mlp_mixed(k);
    gate_constant(k);
}

static void mlp_width(struct ddl_config *k)
{
    k->mlp_size = 37;
}

static void hyper_static(struct ddl_config *k)
{
    k->streams = 3;
    k->hyper_dynamic = false;
}

static void one_stream(struct ddl_config *k)
{
    k->streams = 1;
}

static void sums_and_values(struct ddl_config *k)
{
    k->dense_average = true;
    k->value_residual = true;
}

static void mhc_few(struct ddl_config *k)
{
    k->streams = 2;
    k->sinkhorn_iterations = 3;
}

static void two_steps(struct ddl_config *k)
{
    k->steps = 2;
}

static void three_steps_erase(struct ddl_config *k)
{
    k->steps = 3;
    k->update = DDL_UPDATE_ERASE;
}

static void two_steps_write_context(struct ddl_config *k)
{
    write_context(k);
    k->steps = 2;
    k->beta_linear = false;
    k->beta_hidden = 13;
}

static void two_steps_fixed(struct ddl_config *k)
{
    gate_constant(k);
    k->steps = 2;
    k->v_constant = true;
}

static void three_steps_mixed(struct ddl_config *k)
{
    gated_mlp_mixed(k);
    k->steps = 3;
}

static void dense(struct ddl_config *k)
{
    k->dense_average = true;
}

static void dense_period_dilation(struct ddl_config *k)
{
    k->dense_average = true;
    k->n_layers = 5;
    k->dense_period = 2;
    k->dense_dilation = 3;
}

static void dense_dilation_mixed(struct ddl_config *k)
{
    highway_features_mixed(k);
    k->dense_average = true;
    k->dense_dilation = 2;
}

static void dense_period_erase(struct ddl_config *k)
{
    three_steps_erase(k);
    k->dense_average = true;
    k->dense_period = 2;
}

static void normalized(struct ddl_config *k)
{
    k->f_norm = true;
}

static void normalized_features_mixed(struct ddl_config *k)
{
    scale_features_mixed(k);
    k->f_norm = true;
}

static void normalized_highway_laurel(struct ddl_config *k)
{
    highway(k);
    k->by_layer = true;
    k->residual_by_layer[0] = DDL_RESIDUAL_HIGHWAY;
    k->residual_by_layer[1] = DDL_RESIDUAL_LAUREL;
    k->residual_by_layer[2] = DDL_RESIDUAL_GATED;
    k->f_norm = true;
    k->beta_max = 3;
    k->dense_average = true;
}

static void gate_to_one(struct ddl_config *k)
{
    k->beta_max = 1;
}

/* A target without effect, which alone reads the context. */
static void erase_context_fixed(struct ddl_config *k)
{
    gate_constant(k);
    k->update = DDL_UPDATE_ERASE;
    k->v_input = DDL_V_CONTEXT;
}

static void depth_blocks(struct ddl_config *k)
{
    k->n_layers = 4;
    k->attnres_block = 3;
    k->value_residual = true;
}

const struct small_variant small_variants[] = {
    { "baseline", "baseline", NULL },
    { "ddl-1", "ddl-1", NULL },
    { "ddl-tc", "ddl-tc", NULL },
    { "ddl-tc-ec", "ddl-tc-ec", NULL },
    { "ddl-cc", "ddl-cc", NULL },
    { "ddl-cc-ec", "ddl-cc-ec", NULL },
    { "ddl-mix", "ddl-mix", NULL },
    { "ddl-mix-ec", "ddl-mix-ec", NULL },
    { "ddl-1 v-map", "ddl-1", v_map },
    { "ddl-tc v-map rank", "ddl-tc", v_map_rank },
    { "ddl-cc-ec v-map erase", "ddl-cc-ec", v_map_erase },
    { "ddl-cc write context", "ddl-cc", write_context },
    { "ddl-tc-ec gate mlp, constant", "ddl-tc-ec", gate_mlp_constant },
    { "ddl-1 mixed", "ddl-1", mixed },
    { "baseline mup", "baseline", mup_plain },
    { "scale", "baseline", scale },
    { "ddl-1 mixed with scale per feature", "ddl-1", scale_features_mixed },
    { "gated", "baseline", gated },
    { "ddl-1 mixed with gated, gate mlp", "ddl-1", gated_mlp_mixed },
    { "highway", "baseline", highway },
    { "ddl-1 mixed with highway per feature", "ddl-1", highway_features_mixed },
    { "ddl-cc-ec fixed gate", "ddl-cc-ec", gate_constant },
    { "ddl-tc fixed gate mlp", "ddl-tc", gate_constant_mlp },
    { "ddl-1 mixed with gated, fixed gate mlp", "ddl-1", gate_constant_mixed },
    { "baseline mlp width", "baseline", mlp_width },
    { "mhc with sums of states and mixed values", "mhc", sums_and_values },
    { "hyper", "hyper", NULL },
    { "hyper static", "hyper", hyper_static },
    { "hyper one stream", "hyper", one_stream },
    { "mhc", "mhc", NULL },
    { "mhc two streams", "mhc", mhc_few },
    { "laurel", "baseline", laurel },
    { "ddl-1 mixed with laurel without rank", "ddl-1", laurel_mixed },
    { "resformer", "resformer", NULL },
    { "ddl-tc-ec with mixed values", "ddl-tc-ec", values },
    { "ddl-1 mixed with laurel, mixed values", "ddl-1", values_mixed },
    { "ddl-1 two steps", "ddl-1", two_steps },
    { "ddl-2step", "ddl-2step", NULL },
    { "ddl-tc-ec three steps erase", "ddl-tc-ec", three_steps_erase },
    { "ddl-cc two steps write context, gate mlp", "ddl-cc", two_steps_write_context },
    { "ddl-cc-ec two steps fixed gate and target", "ddl-cc-ec", two_steps_fixed },
    { "ddl-1 mixed with gated, three steps", "ddl-1", three_steps_mixed },
    { "denseformer", "denseformer", NULL },
    { "baseline dense period 2, dilation 3", "baseline", dense_period_dilation },
    { "ddl-tc dense", "ddl-tc", dense },
    { "ddl-1 mixed with highway per feature, dense dilation 2", "ddl-1", dense_dilation_mixed },
    { "ddl-tc-ec three steps erase, dense period 2", "ddl-tc-ec", dense_period_erase },
    { "baseline normalized", "baseline", normalized },
    { "ddl-1 mixed with scale per feature, normalized", "ddl-1", normalized_features_mixed },
    { "highway, laurel and gated, normalized, dense", "baseline", normalized_highway_laurel },
    { "ddl-1 gate to 1", "ddl-1", gate_to_one },
    { "attnres", "attnres", NULL },
    { "attnres, blocks of three, mixed values", "attnres", depth_blocks },
    { "ddl-mix erase context, fixed gate", "ddl-mix", erase_context_fixed },
};
_Static_assert(sizeof small_variants / sizeof *small_variants == SMALL_VARIANTS,
               "SMALL_VARIANTS counts the rows");

const enum ddl_precision test_precisions[TEST_PRECISIONS] = { DDL_PRECISION_F32, DDL_PRECISION_BF16,
                                                              DDL_PRECISION_INT8 };

struct ddl_config variant_config(const struct small_variant *variant)
{
    struct ddl_config k = small_config(variant->preset);
    if (variant->change)
        variant->change(&k);
    return k;
}

void small_model_make(struct small_model *f, const char *backend, const struct ddl_config *config,
                      enum ddl_precision precision)
{
    struct ddl_error err;
    assert_ok(ddl_backend_create(&f->backend, backend, 2, &err), err);
    assert_ok(ddl_model_create(&f->model, config, f->backend, &err), err);
    assert_ok(ddl_model_init(f->model, 7, &err), err);
    assert_ok(ddl_model_enable_grad(f->model, &err), err);
    assert_ok(ddl_model_set_precision(f->model, precision, &err), err);
    assert_ok(ddl_workspace_create(
                  &f->ws, f->model,
                  &(struct ddl_workspace_options){ .batch = SMALL_B, .tokens = SMALL_T, .train = true },
                  &err),
              err);
    for (uint64_t i = 0; i < SMALL_B * SMALL_T; i++) {
        f->tokens[i] = (int32_t)ddl_rng_below(1, i, config->vocab_size);
        f->targets[i] = i % 5 == 2 ? -1 : (int32_t)ddl_rng_below(2, i, config->vocab_size);
    }
    f->batch = (struct ddl_batch){ SMALL_B, SMALL_T, f->tokens, f->targets };
}

void small_model_free(struct small_model *f)
{
    ddl_workspace_free(f->ws);
    ddl_model_free(f->model);
    ddl_backend_free(f->backend);
}

double small_mean_loss(struct small_model *f)
{
    struct ddl_loss loss;
    struct ddl_error err;
    assert_ok(ddl_model_loss(f->model, f->ws, &f->batch, &loss, NULL, &err), err);
    return loss.sum / (double)loss.n_targets;
}

static int32_t *read_ids(const ddl_safetensors *file, const char *name, size_t *B, size_t *T)
{
    const struct ddl_tensor *t = ddl_safetensors_find(file, name);
    assert_non_null(t);
    *B = t->shape[0];
    *T = t->shape[1];
    int32_t *ids = malloc(t->count * sizeof *ids);
    for (size_t i = 0; i < t->count; i++) {
        int64_t id;
        memcpy(&id, t->data + i * sizeof id, sizeof id);
        ids[i] = (int32_t)id;
    }
    return ids;
}

/* Whether the case is one of a model. */
static bool on_golden_model(ddl_backend *backend, const char *name, golden_fn *fn)
{
    char folder[1024], expect[1100];
    struct ddl_error err;
    struct ddl_batch batch;
    ddl_safetensors *file;
    ddl_model *model;
    snprintf(folder, sizeof folder, "%s/%s", source_path("tests/golden"), name);
    snprintf(expect, sizeof expect, "%s/expect.safetensors", folder);
    if (!ddl_file_exists(expect))
        return false; /* no model */
    assert_ok(ddl_safetensors_open(&file, expect, &err), err);
    int32_t *tokens = read_ids(file, "tokens", &batch.B, &batch.T),
            *targets = read_ids(file, "targets", &batch.B, &batch.T);
    batch.tokens = tokens;
    batch.targets = targets;
    ddl_safetensors_close(file);
    assert_ok(ddl_model_load(&model, folder, backend, NULL, NULL, &err), err);
    assert_ok(ddl_model_enable_grad(model, &err), err);
    fn(name, model, &batch);
    ddl_model_free(model);
    free(tokens);
    free(targets);
    return true;
}

void on_every_golden_model(ddl_backend *backend, golden_fn *fn)
{
    DIR *golden = opendir(source_path("tests/golden"));
    size_t n = 0;
    assert_non_null(golden);
    for (const struct dirent *entry; (entry = readdir(golden));)
        n += entry->d_name[0] != '.' && on_golden_model(backend, entry->d_name, fn) ? 1 : 0;
    closedir(golden);
    assert_true(n >= 67);
}

float *all_gradients(const ddl_model *model)
{
    float *out = malloc(ddl_model_size(model) * sizeof *out), *at = out;
    for (size_t i = 0; i < ddl_model_n_params(model); i++) {
        ddl_model_read_grad(model, i, at);
        at += ddl_model_param(model, i)->count;
    }
    return out;
}

size_t param_row(const ddl_model *model, const char *name)
{
    for (size_t i = 0; i < ddl_model_n_params(model); i++) {
        if (strcmp(ddl_model_param(model, i)->name, name) == 0)
            return i;
    }
    fail_msg("there is no %s", name);
    return 0;
}

void change_param(ddl_model *model, size_t i, size_t from, size_t to, float factor, float more)
{
    size_t n = ddl_model_param(model, i)->count;
    float *x = ddl_mem_alloc(n * sizeof *x);
    ddl_model_read_param(model, i, x);
    for (size_t j = from; j < to && j < n; j++)
        x[j] = x[j] * factor + more;
    ddl_model_write_param(model, i, x);
    ddl_mem_free(x);
}
