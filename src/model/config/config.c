#include "ddl/config.h"

#include "ddl/text.h"
#include "model/config/config_size.h"
#include "model/config/config.h"
#include "model/residual/table.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const map_names[] = { "k", "v", NULL };
const char *const ddl_update_names[] = { "delta", "write", "erase", NULL };
static const char *const v_input_names[] = { "stream", "context", NULL };
static const char *const compress_names[] = { "token", "channel", "mix", NULL };
static const char *const embed_names[] = { "repeat", "conv", NULL };

/* Bounds keep every product of sizes far inside a size_t: V d, d c K, H h d. */
#define MAX_VOCAB 2147483647.0
#define MAX_WIDTH 1048576.0
#define MAX_SMALL 65536.0

#define AT(field) offsetof(struct ddl_config, field)

/* Properties of a row: a residual field, which a preset sets; a key of our own, which the release does not
 * have; the same, but left out of files where it has no effect and its default; the same, but left out of
 * files where it has its default; without effect if c = 1; an option that is separate from the residual
 * rule, which a graft may change; without effect unless a layer has one of these rules. */
enum {
    RESIDUAL = 1 << 0,
    OWN = 1 << 1,
    IF_USED = 1 << 2,
    IF_SET = 1 << 3,
    WIDE = 1 << 4,
    SEPARATE = 1 << 5,
    RULES = 8, /* the first bit of OF */
    OWN_IF_USED = OWN | IF_USED,
    OWN_IF_SET = OWN | IF_SET
};
#define OF(rule) (1U << (RULES + DDL_RESIDUAL_##rule))

/* Names that may mean several things. */
static const struct ddl_other_name widths[] = { { "width", NULL, DDL_OTHER_DIFFERS },
                                                { "dim", NULL, DDL_OTHER_DIFFERS },
                                                { 0 } };
static const struct ddl_other_name contexts[] = { { "context", NULL, DDL_OTHER_DIFFERS },
                                                  { "context_length", NULL, DDL_OTHER_DIFFERS },
                                                  { "context_size", NULL, DDL_OTHER_DIFFERS },
                                                  { "ctx_size", NULL, DDL_OTHER_DIFFERS },
                                                  { 0 } };
static const struct ddl_other_name mlps[] = {
    { "mlp", NULL, DDL_OTHER_DIFFERS },     { "d_ff", NULL, DDL_OTHER_DIFFERS },
    { "ffn_dim", NULL, DDL_OTHER_DIFFERS }, { "ffn_hidden_size", NULL, DDL_OTHER_DIFFERS },
    { "n_inner", NULL, DDL_OTHER_DIFFERS }, { 0 }
};

/* The rows: type, key, field, range, choices, properties, help, aliases and further members. */
#define CONFIG_ROWS(ROW)                                                                                     \
    ROW(SIZE, vocab_size, vocab_size, 1, MAX_VOCAB, NULL, 0, "vocabulary size: rows of the embedding")       \
    ROW(SIZE, num_hidden_layers, n_layers, 1, DDL_MAX_LAYERS, NULL, 0, "number of layers (blocks)",          \
        "n_layer n_layers num_layers")                                                                       \
    ROW(SIZE, num_attention_heads, n_heads, 1, MAX_SMALL, NULL, 0, "attention heads", "n_head n_heads")      \
    ROW(SIZE, hidden_size, d_model, 1, MAX_WIDTH, NULL, 0, "width d of the model", "n_embd d_model",         \
        .others = widths)                                                                                    \
    ROW(SIZE, head_dim, head_dim, 1, DDL_MAX_HEAD_DIM, NULL, 0,                                              \
        "width of a head (default: hidden_size / num_attention_heads if one of them is set)")                \
    ROW(SIZE, block_size, block_size, 1, MAX_VOCAB, NULL, 0, "longest context, in tokens",                   \
        "n_ctx n_positions max_position_embeddings", .others = contexts)                                     \
    ROW(FLOAT, rope_base, rope_base, 1, 1e12, NULL, 0, "base of the rotary angles",                          \
        "rope_theta rope_freq_base")                                                                         \
    ROW(FLOAT, rope_ratio, rope_ratio, 0, 1, NULL, 0, "fraction of a head's dimensions that are rotated")    \
    ROW(BOOL, use_qk_rmsnorm, qk_norm, 0, 0, NULL, 0, "normalize queries and keys")                          \
    ROW(FLOAT, embedding_init_std, embedding_init_std, 0, 100, NULL, 0,                                      \
        "standard deviation of the embedding's initial values")                                              \
    ROW(FLOAT, hidden_init_std_factor, hidden_init_std_factor, 0, 100, NULL, 0,                              \
        "standard deviation of the other matrices' initial values, in units of 1/sqrt(d)")                   \
    ROW(BOOL, mup, mup, 0, 0, NULL, 0, "scale logits and learning rates by hidden_size_base / hidden_size")  \
    ROW(SIZE, hidden_size_base, d_base, 1, MAX_WIDTH, NULL, 0, "width at which muP has no effect")           \
    ROW(SIZE, ddl_value_channels, channels, 1, 4096, NULL, RESIDUAL, "value channels c of the state")        \
    ROW(SIZE, ddl_state_shortconv_kernel_size, state_kernel, 0, 4096, NULL, RESIDUAL | WIDE | OF(DELTA),     \
        "taps of the compressor (0: 4 for token, c for channel)")                                            \
    ROW(FLOAT, ddl_state_read_init, read_init, -1e6, 1e6, NULL, WIDE,                                        \
        "initial value of every element of the read vector (0: 1/c)")                                        \
    ROW(SIZE, input_embed_shortconv_kernel_size, embed_kernel, 1, 4096, NULL, RESIDUAL | WIDE | OF(DELTA),   \
        "taps of the conv embedding")                                                                        \
    ROW(FLOAT, ddl_k_eps, k_eps, 1e-12, 1, NULL, RESIDUAL | OF(DELTA),                                       \
        "epsilon in the normalization of the direction")                                                     \
    ROW(BOOL, ddl_beta_single_linear, beta_linear, 0, 0, NULL, RESIDUAL | OF(DELTA) | OF(GATED),             \
        "the gate is one linear map, not an MLP")                                                            \
    ROW(SIZE, ddl_beta_hidden_size, beta_hidden, 1, MAX_WIDTH, NULL, RESIDUAL | OF(DELTA) | OF(GATED),       \
        "hidden width of the gate's MLP")                                                                    \
    ROW(FLOAT, ddl_beta_init, beta_init, 0, 1e6, NULL, OF(DELTA) | OF(GATED),                                \
        "initial value of the gate (1: ddl_beta_max / 2 where that is at most 0.5)")                         \
    ROW(BOOL, ddl_v_sigmoid, v_sigmoid, 0, 0, NULL, RESIDUAL | OF(DELTA),                                    \
        "apply a scaled sigmoid to the target")                                                              \
    ROW(FLOAT, ddl_v_sigmoid_scale, v_scale, -1e6, 1e6, NULL, RESIDUAL | OF(DELTA),                          \
        "scale of the target's sigmoid")                                                                     \
    ROW(BOOL, ddl_v_constant, v_constant, 0, 0, NULL, RESIDUAL | OF(DELTA), "the target is a constant")      \
    ROW(FLOAT, ddl_v_constant_value, v_constant_value, -1e6, 1e6, NULL, RESIDUAL | OF(DELTA),                \
        "value of the constant target")                                                                      \
    ROW(CHOICE, ddl_residual, residual, 0, 0, residual_rule_names, RESIDUAL | OWN, "residual rule")          \
    ROW(CHOICE, ddl_map, map, 0, 0, map_names, RESIDUAL | OWN | OF(DELTA),                                   \
        "the sublayer's output determines the direction (k) or the target (v)")                              \
    ROW(SIZE, ddl_k_rank, k_rank, 0, MAX_WIDTH, NULL, RESIDUAL | OWN | OF(DELTA),                            \
        "v-map: rank of the direction's map (0: full)")                                                      \
    ROW(CHOICE, ddl_update, update, 0, 0, ddl_update_names, RESIDUAL | OWN | OF(DELTA),                      \
        "the delta update, or only its write or erase term (ablations)")                                     \
    ROW(SIZE, ddl_steps, steps, 1, 64, NULL, RESIDUAL | OWN_IF_SET | OF(DELTA),                              \
        "k-map: delta steps per sublayer")                                                                   \
    ROW(CHOICE, ddl_v_input, v_input, 0, 0, v_input_names, RESIDUAL | OWN | OF(DELTA),                       \
        "k-map: input of the target's projection")                                                           \
    ROW(CHOICE, ddl_compress, compress, 0, 0, compress_names, RESIDUAL | OWN | WIDE | OF(DELTA),             \
        "c > 1: how a sublayer's input is computed from the state")                                          \
    ROW(CHOICE, ddl_embed, embed, 0, 0, embed_names, RESIDUAL | OWN | WIDE | OF(DELTA),                      \
        "c > 1: how the state is computed from the embedding")                                               \
    ROW(BOOL, ddl_per_feature, per_feature, 0, 0, NULL, RESIDUAL | OWN_IF_USED | OF(SCALE) | OF(HIGHWAY),    \
        "scale, highway: one number per feature instead of a single number")                                 \
    ROW(FLOAT, ddl_scale_init, scale_init, -1e6, 1e6, NULL, OWN_IF_USED | OF(SCALE),                         \
        "scale: initial value of the scale")                                                                 \
    ROW(FLOAT, ddl_highway_init, highway_init, 1e-6, 1 - 1e-6, NULL, OWN_IF_USED | OF(HIGHWAY),              \
        "highway: initial value of the gate")                                                                \
    ROW(SIZE, ddl_laurel_rank, laurel_rank, 0, MAX_WIDTH, NULL, RESIDUAL | OWN_IF_USED | OF(LAUREL),         \
        "laurel: rank of the learned map added to the identity (0: none)")                                   \
    ROW(BOOL, value_residual, value_residual, 0, 0, NULL, RESIDUAL | OWN_IF_SET | SEPARATE,                  \
        "attention mixes its values with those of layer 0 (ResFormer)")                                      \
    ROW(BOOL, ddl_beta_constant, beta_constant, 0, 0, NULL, RESIDUAL | OWN_IF_SET | OF(DELTA) | OF(GATED),   \
        "delta, gated: the gate is a constant")                                                              \
    ROW(FLOAT, ddl_beta_constant_value, beta_constant_value, 0, 1e6, NULL,                                   \
        RESIDUAL | OWN_IF_SET | OF(DELTA) | OF(GATED), "value of the constant gate, up to ddl_beta_max")     \
    ROW(FLOAT, ddl_beta_max, beta_max, 1e-6, 1e6, NULL, RESIDUAL | OWN_IF_SET | OF(DELTA) | OF(GATED),       \
        "delta, gated: upper end of the gate")                                                               \
    ROW(BOOL, ddl_f_norm, f_norm, 0, 0, NULL,                                                                \
        RESIDUAL | OWN_IF_SET | OF(ADD) | OF(SCALE) | OF(GATED) | OF(HIGHWAY) | OF(LAUREL),                  \
        "not delta, hyper, mhc, attnres: divide a sublayer's output by its root mean square")                \
    ROW(SIZE, ddl_streams, streams, 1, DDL_MAX_STREAMS, NULL, RESIDUAL | OWN_IF_USED | OF(HYPER) | OF(MHC),  \
        "hyper, mhc: streams n of the state")                                                                \
    ROW(BOOL, ddl_hyper_dynamic, hyper_dynamic, 0, 0, NULL, RESIDUAL | OWN_IF_USED | OF(HYPER),              \
        "hyper: the mixing weights depend on the token")                                                     \
    ROW(SIZE, ddl_sinkhorn_iterations, sinkhorn_iterations, 1, DDL_MAX_SINKHORN, NULL,                       \
        RESIDUAL | OWN_IF_USED | OF(MHC), "mhc: Sinkhorn iterations of the mixing matrix")                   \
    ROW(SIZE, ddl_attnres_block, attnres_block, 1, 2 * DDL_MAX_LAYERS, NULL,                                 \
        RESIDUAL | OWN_IF_USED | OF(ATTNRES), "attnres: sublayers of a block")                               \
    ROW(BOOL, dense_average, dense_average, 0, 0, NULL, RESIDUAL | OWN_IF_SET | SEPARATE,                    \
        "after blocks the stream becomes a weighted sum of the states so far")                               \
    ROW(SIZE, dense_period, dense_period, 1, DDL_MAX_LAYERS, NULL, RESIDUAL | OWN_IF_SET | SEPARATE,         \
        "dense_average: number of blocks from one sum to the next")                                          \
    ROW(SIZE, dense_dilation, dense_dilation, 1, DDL_MAX_LAYERS, NULL, RESIDUAL | OWN_IF_SET | SEPARATE,     \
        "dense_average: number of blocks between the states of a sum")                                       \
    ROW(FLOAT, output_init_std_factor, output_init_std_factor, 0, 100, NULL, OWN_IF_SET,                     \
        "initial values of the sublayers' output projections, in units of their usual ones")                 \
    ROW(SIZE, mlp_size, mlp_size, 0, 4 * MAX_WIDTH, NULL, OWN_IF_SET,                                        \
        "width of the MLP (0: 8 hidden_size / 3, rounded down)", "intermediate_size", .others = mlps)

#define VALUE_BOOL NULL
#define VALUE_SIZE "N"
#define VALUE_FLOAT "X"
#define VALUE_CHOICE "NAME"
#define OPTION(type, key, field, lo, hi, choices, properties, ...)                                           \
    { #key, DDL_OPTION_##type, AT(field), 0, lo, hi, choices, VALUE_##type, __VA_ARGS__ },
#define PROPERTIES(type, key, field, lo, hi, choices, properties, ...) properties,
static const struct ddl_option rows[] = { CONFIG_ROWS(OPTION){ 0 } };
static const unsigned properties[] = { CONFIG_ROWS(PROPERTIES) };
_Static_assert(sizeof properties / sizeof *properties < DDL_CONFIG_KEYS,
               "every key of a configuration fits its metadata");

static unsigned properties_of(const struct ddl_option *row)
{
    return properties[row - rows];
}

bool ddl_config_row_is_own(const struct ddl_option *row)
{
    return properties_of(row) & OWN;
}

/* Bytes of its field. */
static size_t size_of(const struct ddl_option *row)
{
    return row->type == DDL_OPTION_BOOL    ? sizeof(bool)
           : row->type == DDL_OPTION_SIZE  ? sizeof(size_t)
           : row->type == DDL_OPTION_FLOAT ? sizeof(float)
                                           : sizeof(int);
}

/* The rules of all layers, each as the property OF(rule). */
static unsigned rules_of(const struct ddl_config *config)
{
    unsigned rules = 0;
    for (size_t l = 0; l < config->n_layers; l++)
        rules |= 1U << (RULES + ddl_config_residual(config, l));
    return rules;
}

unsigned ddl_config_row_rules(const struct ddl_option *row)
{
    return properties_of(row) & WIDE ? 0 : properties_of(row) >> RULES;
}

bool ddl_config_row_is_initial(const struct ddl_option *row)
{
    return !(properties_of(row) & RESIDUAL);
}

bool ddl_config_row_is_separate(const struct ddl_option *row)
{
    return properties_of(row) & SEPARATE;
}

bool ddl_config_row_is_metadata(const struct ddl_option *row, const struct ddl_config *config)
{
    const struct ddl_config fresh = ddl_config_defaults();
    unsigned of = properties_of(row);
    bool changed =
        memcmp((const char *)config + row->offset, (const char *)&fresh + row->offset, size_of(row)) != 0;
    bool used = of & IF_USED && (of & rules_of(config)) >> RULES;
    return of & OWN && (!(of & (IF_USED | IF_SET)) || used || changed);
}

const struct ddl_option *ddl_config_options(void)
{
    return rows;
}

struct ddl_config ddl_config_defaults(void)
{
    struct ddl_config config = {
        .rope_base = 10000,
        .rope_ratio = 1,
        .qk_norm = true,
        .d_base = 1024,
        .embedding_init_std = 0.02f,
        .hidden_init_std_factor = 0.5f,
        .output_init_std_factor = 1,
        .beta_init = 1,
        .scale_init = 1,
        .highway_init = 0.1f,
        .residual = DDL_RESIDUAL_ADD,
        .channels = 1,
        .embed_kernel = 4,
        .steps = 1,
        .dense_period = 1,
        .dense_dilation = 1,
        .k_eps = 1e-5f,
        .beta_linear = true,
        .beta_hidden = 128,
        .v_sigmoid = true,
        .v_scale = 4,
        .v_constant_value = 2,
        .beta_constant_value = 1,
        .beta_max = 2,
        .attnres_block = 1,
        .streams = 4,
        .hyper_dynamic = true,
        .sinkhorn_iterations = 20,
    };
    ddl_status status = ddl_config_set_size(&config, "small", NULL);
    assert(!status);
    (void)status;
    return config;
}

/* ---- names ---- */

/* Controls of the delta models: options that leave out or fix one part. */
static const struct control {
    const char *suffix, *about;
    struct {
        const char *key, *value;
    } settings[2];
} controls[] = {
    { "-write", "only the write term: X + beta k v^T", { { "ddl_update", "write" } } },
    { "-erase", "only the erase term: X - beta k (k^T X)^T", { { "ddl_update", "erase" } } },
    { "-beta1",
      "the gate fixed at 1",
      { { "ddl_beta_constant", "true" }, { "ddl_beta_constant_value", "1" } } },
    { "-v0", "the target fixed at 0", { { "ddl_v_constant", "true" }, { "ddl_v_constant_value", "0" } } },
    { "-vmap",
      "F(x) determines the target, the direction is computed from the state",
      { { "ddl_map", "v" } } },
};
enum { N_CONTROLS = sizeof controls / sizeof *controls, N_NAMES = 1 + N_CONTROLS };

/* The names of a model: its own, then with each control. */
#define ALONE(name)                                                                                          \
    {                                                                                                        \
        name                                                                                                 \
    }
#define WITH_CONTROLS(name)                                                                                  \
    {                                                                                                        \
        name, name "-write", name "-erase", name "-beta1", name "-v0", name "-vmap"                          \
    }

static const struct preset {
    const char *names[N_NAMES], *about;
    int residual;
    size_t channels;
    int compress, embed;
    bool july; /* the target is linear in the context, as the paper's July revision states it */
} presets[] = {
    { ALONE("baseline"), "additive residual stream", DDL_RESIDUAL_ADD, 1, 0, 0, false },
    { WITH_CONTROLS("ddl-1"), "delta rule on one value channel", DDL_RESIDUAL_DELTA, 1, 0, 0, false },
    { WITH_CONTROLS("ddl-tc"), "four channels, token compression", DDL_RESIDUAL_DELTA, 4, DDL_COMPRESS_TOKEN,
      DDL_EMBED_REPEAT, false },
    { WITH_CONTROLS("ddl-tc-ec"), "four channels, token compression, conv embedding", DDL_RESIDUAL_DELTA, 4,
      DDL_COMPRESS_TOKEN, DDL_EMBED_CONV, false },
    { WITH_CONTROLS("ddl-cc"), "four channels, channel compression", DDL_RESIDUAL_DELTA, 4,
      DDL_COMPRESS_CHANNEL, DDL_EMBED_REPEAT, false },
    { WITH_CONTROLS("ddl-cc-ec"), "four channels, channel compression, conv embedding", DDL_RESIDUAL_DELTA, 4,
      DDL_COMPRESS_CHANNEL, DDL_EMBED_CONV, false },
    { WITH_CONTROLS("ddl-mix"),
      "four channels, one weight per feature and channel, linear target from the context", DDL_RESIDUAL_DELTA,
      4, DDL_COMPRESS_MIX, DDL_EMBED_REPEAT, true },
    { WITH_CONTROLS("ddl-mix-ec"), "the same with conv embedding", DDL_RESIDUAL_DELTA, 4, DDL_COMPRESS_MIX,
      DDL_EMBED_CONV, true },
    { ALONE("scale"), "control: x + lambda F(x), lambda learned", DDL_RESIDUAL_SCALE, 1, 0, 0, false },
    { ALONE("gated"), "control: x + beta F(x), beta the gate of the delta rule", DDL_RESIDUAL_GATED, 1, 0, 0,
      false },
    { ALONE("highway"), "control: (1 - tau) x + tau F(x), tau a gate", DDL_RESIDUAL_HIGHWAY, 1, 0, 0, false },
    { ALONE("hyper"), "hyper-connections: four streams, weights by token", DDL_RESIDUAL_HYPER, 1, 0, 0,
      false },
    { ALONE("mhc"), "hyper-connections with doubly stochastic mixing matrices", DDL_RESIDUAL_MHC, 1, 0, 0,
      false },
    { ALONE("laurel"), "LAuReL: m_0 F(x) + m_1 (x + U D x), m and the low rank U D learned",
      DDL_RESIDUAL_LAUREL, 1, 0, 0, false },
    { ALONE("attnres"), "attention over depth: weighted sums of all earlier outputs", DDL_RESIDUAL_ATTNRES, 1,
      0, 0, false },
    { ALONE("attnres-block"), "attention over depth, of blocks of four sublayers", DDL_RESIDUAL_ATTNRES, 1, 0,
      0, false },
    { ALONE("scale-norm"), "control: post-norm, x + lambda F(x) / rms(F(x)), lambda by feature",
      DDL_RESIDUAL_SCALE, 1, 0, 0, false },
    { ALONE("denseformer"), "additive, with weighted sums of all states between blocks", DDL_RESIDUAL_ADD, 1,
      0, 0, false },
    { ALONE("resformer"), "ResFormer: values of attention mixed with those of layer 0", DDL_RESIDUAL_ADD, 1,
      0, 0, false },
    { ALONE("ddl-2step"), "ddl-cc-ec with two delta steps per sublayer", DDL_RESIDUAL_DELTA, 4,
      DDL_COMPRESS_CHANNEL, DDL_EMBED_CONV, false },
};
enum { N_PRESETS = sizeof presets / sizeof *presets };

/* Keys that a preset sets in addition to its row. */
static const struct {
    const char *preset, *key, *value;
} preset_keys[] = {
    { "attnres-block", "ddl_attnres_block", "4" }, { "scale-norm", "ddl_f_norm", "true" },
    { "scale-norm", "ddl_per_feature", "true" },   { "resformer", "value_residual", "true" },
    { "denseformer", "dense_average", "true" },    { "ddl-2step", "ddl_steps", "2" },
};

const char *ddl_config_preset_list(size_t i, const char **about)
{
    if (about)
        *about = i < N_PRESETS ? presets[i].about : NULL;
    return i < N_PRESETS ? presets[i].names[0] : NULL;
}

const char *ddl_config_control_list(size_t i, const char **about)
{
    if (about)
        *about = i < N_CONTROLS ? controls[i].about : NULL;
    return i < N_CONTROLS ? controls[i].suffix : NULL;
}

/* Name i of all, each model's own before those with a control. */
static const char *name_at(size_t i)
{
    for (size_t p = 0; p < N_PRESETS; p++) {
        for (size_t n = 0; n < N_NAMES && presets[p].names[n]; n++) {
            if (i-- == 0)
                return presets[p].names[n];
        }
    }
    return NULL;
}

/* "unknown model 'x', did you mean 'y'?"; the models and controls where no name is near. */
static ddl_status unknown_model(const char *name, struct ddl_error *err)
{
    struct ddl_option named[(int)N_PRESETS * (int)N_NAMES + 1] = { 0 };
    char all[512] = "";
    size_t used;
    for (size_t i = 0; name_at(i); i++)
        named[i].name = name_at(i);
    if (ddl_option_nearest(named, name))
        return ddl_option_unknown(named, NULL, "model", name, err);
    ddl_config_list_names(ddl_config_preset_list, all, sizeof all);
    ddl_text_append(all, sizeof all, "", "; delta models also with the suffixes ");
    used = strlen(all);
    ddl_config_list_names(ddl_config_control_list, all + used, sizeof all - used);
    return ddl_error_set(err, DDL_E_USAGE, "unknown model '%.80s' (there are: %s)", name, all);
}

/* Copies one field. */
static void copy_field(const struct ddl_option *row, struct ddl_config *to, const struct ddl_config *from)
{
    memcpy((char *)to + row->offset, (const char *)from + row->offset, size_of(row));
}

/* Sets the field of a key. */
static void set_key(struct ddl_config *config, const char *key, const char *value)
{
    ddl_status status = ddl_option_set(ddl_option_find(rows, key), config, value, key, NULL);
    assert(!status);
    (void)status;
}

/* Sets the residual fields to those of a model by one of its names. */
static void apply_preset(struct ddl_config *config, const struct preset *preset, size_t name)
{
    const struct ddl_config fresh = ddl_config_defaults();
    for (const struct ddl_option *row = rows; row->name; row++) {
        if (properties_of(row) & RESIDUAL)
            copy_field(row, config, &fresh);
    }
    config->by_layer = false;
    memset(config->residual_by_layer, 0, sizeof config->residual_by_layer);
    config->residual = preset->residual;
    config->channels = preset->channels;
    config->compress = preset->compress;
    config->embed = preset->embed;
    config->v_input = preset->july ? DDL_V_CONTEXT : DDL_V_STREAM;
    config->v_sigmoid = !preset->july;
    for (size_t i = 0; i < sizeof preset_keys / sizeof *preset_keys; i++) {
        if (strcmp(preset_keys[i].preset, preset->names[0]) == 0)
            set_key(config, preset_keys[i].key, preset_keys[i].value);
    }
    for (size_t i = 0; name && i < 2 && controls[name - 1].settings[i].key; i++)
        set_key(config, controls[name - 1].settings[i].key, controls[name - 1].settings[i].value);
}

/* Model files of the release: the short names, and the model that each computes. */
static const struct {
    const char *file, *preset;
} release_files[] = {
    { "gpt_base", "baseline" }, { "DDL-vdim1", "ddl-1" },     { "DDL-vdim1-TC", "ddl-1" },
    { "DDL", "ddl-tc" },        { "DDL-TC", "ddl-tc" },       { "DDL-EC", "ddl-tc-ec" },
    { "DDL-CC", "ddl-cc" },     { "DDL-TC-EC", "ddl-tc-ec" }, { "DDL-CC-EC", "ddl-cc-ec" },
};

/* Removes a part of a name, if it is there. */
static void remove_part(char *name, const char *part)
{
    char *at = strstr(name, part);
    if (at)
        memmove(at, at + strlen(part), strlen(at + strlen(part)) + 1);
}

/* The model of a file of the release, or the name itself. */
static const char *preset_of_file(const char *name)
{
    char file[64];
    if (strlen(name) >= sizeof file)
        return name;
    strcpy(file, name);
    remove_part(file, "-gpt-mha-rope");
    remove_part(file, "-accelerated");
    remove_part(file, ".py");
    for (size_t i = 0; i < sizeof release_files / sizeof *release_files; i++) {
        if (strcmp(release_files[i].file, file) == 0)
            return release_files[i].preset;
    }
    return name;
}

ddl_status ddl_config_set_preset(struct ddl_config *config, const char *name, struct ddl_error *err)
{
    name = preset_of_file(name);
    for (size_t i = 0; i < N_PRESETS; i++) {
        for (size_t n = 0; n < N_NAMES && presets[i].names[n]; n++) {
            if (strcmp(presets[i].names[n], name) != 0)
                continue;
            apply_preset(config, &presets[i], n);
            return DDL_OK;
        }
    }
    return unknown_model(name, err);
}

/* "'x' is none of add, delta, ...". */
static ddl_status unknown_rule(const char *where, const char *name, struct ddl_error *err)
{
    char all[256] = "";
    for (size_t i = 0; i < DDL_RESIDUALS; i++)
        ddl_text_append(all, sizeof all, ", ", residual_rule_names[i]);
    return ddl_error_set(err, DDL_E_USAGE, "%s: '%s' is none of %s", where, name, all);
}

ddl_status ddl_config_set_by_layer(struct ddl_config *config, const char *rules, const char *where,
                                   struct ddl_error *err)
{
    unsigned char by_layer[DDL_MAX_LAYERS] = { 0 };
    size_t n = 0;
    for (const char *at = rules; *at; n++) {
        char name[16];
        size_t length = strcspn(at, ",");
        snprintf(name, sizeof name, "%.*s", (int)(length < sizeof name ? length : sizeof name - 1), at);
        int rule = 0;
        while (rule < DDL_RESIDUALS && strcmp(residual_rule_names[rule], name) != 0)
            rule++;
        if (rule == DDL_RESIDUALS)
            return unknown_rule(where, name, err);
        if (n < DDL_MAX_LAYERS)
            by_layer[n] = (unsigned char)rule;
        at += length;
        if (at[0] == ',' && at[1]) /* a trailing comma stays: the empty name after it is rejected */
            at++;
    }
    if (n && n != config->n_layers)
        return ddl_error_set(err, DDL_E_USAGE, "%s: %zu rules, num_hidden_layers is %zu", where, n,
                             config->n_layers);
    config->by_layer = n > 0;
    memcpy(config->residual_by_layer, by_layer, sizeof by_layer);
    return DDL_OK;
}

void ddl_config_get_by_layer(const struct ddl_config *config, char *out, size_t size)
{
    snprintf(out, size, "%s", "");
    for (size_t l = 0; config->by_layer && l < config->n_layers; l++)
        ddl_text_append(out, size, ",", ddl_config_residual_name(config, l));
}

struct ddl_config ddl_config_without_idle(const struct ddl_config *config)
{
    const struct ddl_config fresh = ddl_config_defaults();
    struct ddl_config out = *config;
    unsigned rules = rules_of(config);
    for (const struct ddl_option *row = rows; row->name; row++) {
        unsigned of = properties_of(row);
        if ((of >> RULES && !(of & rules)) || (of & WIDE && config->channels == 1))
            copy_field(row, &out, &fresh);
    }
    if (out.compress == DDL_COMPRESS_MIX ||
        out.state_kernel == (out.compress == DDL_COMPRESS_TOKEN ? 4 : out.channels))
        out.state_kernel = fresh.state_kernel;
    if (out.read_init == 1 / (float)out.channels)
        out.read_init = fresh.read_init;
    if (out.embed == DDL_EMBED_REPEAT)
        out.embed_kernel = fresh.embed_kernel;
    if (!out.dense_average) {
        out.dense_period = fresh.dense_period;
        out.dense_dilation = fresh.dense_dilation;
    }
    if (out.map == DDL_MAP_K)
        out.k_rank = fresh.k_rank;
    if (out.map == DDL_MAP_V || out.v_constant)
        out.v_input = fresh.v_input;
    if (out.beta_linear)
        out.beta_hidden = fresh.beta_hidden;
    if (out.v_constant)
        out.v_sigmoid = fresh.v_sigmoid;
    if (out.v_constant || !out.v_sigmoid)
        out.v_scale = fresh.v_scale;
    if (!out.v_constant)
        out.v_constant_value = fresh.v_constant_value;
    if (!out.beta_constant)
        out.beta_constant_value = fresh.beta_constant_value;
    if (out.beta_init == out.beta_max / 2 && out.beta_max <= 1)
        out.beta_init = fresh.beta_init;
    return out;
}

/* Whether two configurations have the same value in every row. */
static bool same_rows(const struct ddl_config *a, const struct ddl_config *b)
{
    for (const struct ddl_option *row = rows; row->name; row++) {
        char x[64], y[64];
        ddl_option_format(row, a, x, sizeof x);
        ddl_option_format(row, b, y, sizeof y);
        if (strcmp(x, y) != 0)
            return false;
    }
    return true;
}

const char *ddl_config_preset_name(const struct ddl_config *config)
{
    struct ddl_config found = ddl_config_without_idle(config);
    found.residual = ddl_config_residual(config, 0);
    for (size_t l = 1; l < config->n_layers; l++) {
        if (ddl_config_residual(config, l) != found.residual)
            return NULL;
    }
    for (size_t i = 0; i < N_PRESETS; i++) {
        for (size_t n = 0; n < N_NAMES && presets[i].names[n]; n++) {
            struct ddl_config wanted = found;
            apply_preset(&wanted, &presets[i], n);
            wanted = ddl_config_without_idle(&wanted);
            if (same_rows(&found, &wanted))
                return presets[i].names[n];
        }
    }
    return NULL;
}

/* ---- checks ---- */

/* Where a layer's rule has a gate: beta_init lies inside (0, beta_max); with the default range of the gate
 * its ends are allowed too. A constant gate lies in [0, beta_max]. */
static ddl_status check_gate(const struct ddl_config *config, struct ddl_error *err)
{
    if (!(rules_of(config) & (OF(DELTA) | OF(GATED))))
        return DDL_OK;
    double beta = (double)ddl_config_beta_init(config), most = (double)config->beta_max;
    if (config->beta_constant && config->beta_constant_value > config->beta_max)
        return ddl_error_set(err, DDL_E_USAGE,
                             "ddl_beta_constant_value: %g is out of range (0 to ddl_beta_max, %g)",
                             (double)config->beta_constant_value, most);
    const struct ddl_config fresh = ddl_config_defaults();
    bool ends = config->beta_max == fresh.beta_max;
    if (ends ? beta <= most : beta > 0 && beta < most)
        return DDL_OK;
    return ddl_error_set(err, DDL_E_USAGE, "ddl_beta_init: %g is out of range (%s0 to %s%g)", beta,
                         ends ? "" : "above ", ends ? "" : "below ddl_beta_max, ", most);
}

/* ddl_f_norm is set only if it has an effect in some layer. */
static ddl_status check_f_norm(const struct ddl_config *config, struct ddl_error *err)
{
    size_t l = 0;
    while (l < config->n_layers && !ddl_config_normalizes_f(config, l))
        l++;
    if (!config->f_norm || l < config->n_layers)
        return DDL_OK;
    return ddl_error_set(err, DDL_E_USAGE,
                         "ddl_f_norm: expected a layer with the rule add, scale, gated, highway or laurel, "
                         "found none");
}

/* The values of layer 0 reach the others: either all layers use what their attention computes, or none does.
 */
static ddl_status check_values(const struct ddl_config *config, struct ddl_error *err)
{
    size_t unused = config->n_layers, n = 0;
    for (size_t l = config->n_layers; l-- > 0;) {
        const struct residual_rule *rule = residual_rule_of(config, l);
        if (!rule->uses_f || rule->uses_f(config))
            continue;
        unused = l;
        n++;
    }
    if (!config->value_residual || n == 0 || n == config->n_layers)
        return DDL_OK;
    return ddl_error_set(
        err, DDL_E_USAGE,
        "value_residual: expected layers that all depend on the output of attention, but with "
        "this update the rule %s of layer %zu does not",
        ddl_config_residual_name(config, unused), unused);
}

ddl_status ddl_config_check(const struct ddl_config *config, struct ddl_error *err)
{
    ddl_status status = ddl_option_check(rows, config, err);
    if (status)
        return status;
    for (size_t l = 0; l < config->n_layers; l++) {
        int rule = ddl_config_residual(config, l);
        if (rule < 0 || rule >= DDL_RESIDUALS)
            return ddl_error_set(err, DDL_E_USAGE,
                                 "ddl_residual_by_layer: rule %d of layer %zu is out of range", rule, l);
    }
    if (config->by_layer && config->channels > 1)
        return ddl_error_set(err, DDL_E_USAGE, "ddl_residual_by_layer needs ddl_value_channels 1, found %zu",
                             config->channels);
    for (size_t l = 0; l < config->n_layers && !status; l++) {
        const struct residual_rule *rule = residual_rule_of(config, l);
        const char *name = ddl_config_residual_name(config, l);
        if (config->by_layer && rule->state)
            status = ddl_error_set(err, DDL_E_USAGE,
                                   "ddl_residual_by_layer: expected rules whose state is one vector, found "
                                   "%s, whose state all layers would share; set ddl_residual to %s instead",
                                   name, name);
        else if (rule->one_channel && config->channels != 1)
            status =
                ddl_error_set(err, DDL_E_USAGE, "ddl_value_channels is %zu, but ddl_residual %s has only 1",
                              config->channels, name);
        else if (rule->check)
            status = rule->check(config, err);
    }
    if (!status)
        status = check_gate(config, err);
    if (!status)
        status = check_values(config, err);
    return status ? status : check_f_norm(config, err);
}
