/* The configuration of a model. A value: take defaults, change by name, check. */
#ifndef DDL_CONFIG_H
#define DDL_CONFIG_H

#include "ddl/kinds.h"
#include "ddl/option.h"
#include "ddl/status.h"

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    DDL_MAX_LAYERS = 512, /* num_hidden_layers at most */
};

/* How a sublayer's output enters the stream. */
enum ddl_residual {
    DDL_RESIDUAL_ADD,     /* x + F(x)                          */
    DDL_RESIDUAL_DELTA,   /* X + beta k (v - k^T X)^T          */
    DDL_RESIDUAL_SCALE,   /* x + lambda (*) F(x), lambda learned */
    DDL_RESIDUAL_GATED,   /* x + beta F(x)                       */
    DDL_RESIDUAL_HIGHWAY, /* (1 - tau) (*) x + tau (*) F(x), tau a gate */
    DDL_RESIDUAL_HYPER,   /* n streams, read, mixed and written with weights that depend on the token */
    DDL_RESIDUAL_MHC,     /* the same, mixed by doubly stochastic matrices */
    DDL_RESIDUAL_LAUREL,  /* m_0 F(x) + m_1 (x + U D x), m and the low rank U D learned */
    DDL_RESIDUAL_ATTNRES, /* each sublayer reads a weighted sum of all earlier outputs (attention over depth)
                           */
    DDL_RESIDUALS         /* how many there are                */
};
/* Delta rule: what the sublayer's output determines. */
enum ddl_map {
    DDL_MAP_K, /* the direction, before it is normalized */
    DDL_MAP_V, /* the target                             */
};
/* k-map: what the target reads. */
enum ddl_v_input {
    DDL_V_STREAM,  /* x_in, before the norm */
    DDL_V_CONTEXT, /* ctx, after it         */
};
/* c > 1: how an embedding becomes a state. */
enum ddl_embed {
    DDL_EMBED_REPEAT, /* the same in every channel       */
    DDL_EMBED_CONV,   /* causal convolution over tokens  */
};

/* The configuration of a model; each field except by_layer and residual_by_layer is a row of
 * ddl_config_options. */
struct ddl_config {
    /* backbone */
    size_t vocab_size;     /* V                                                       */
    size_t n_layers;       /* num_hidden_layers                                       */
    size_t n_heads;        /* H, num_attention_heads                                  */
    size_t d_model;        /* d, hidden_size                                          */
    size_t head_dim;       /* h                                                       */
    size_t block_size;     /* longest context                                         */
    float rope_base;       /* base of the rotary angles                               */
    float rope_ratio;      /* share of the h dimensions that are rotated, 0 to 1      */
    bool qk_norm;          /* use_qk_rmsnorm                                          */
    bool mup;              /* logits scaled by d_base / d                             */
    size_t d_base;         /* hidden_size_base                                        */
    size_t mlp_size;       /* m; 0 means floor(8 d / 3)                               */
    bool dense_average;    /* after blocks the stream is a weighted sum of states     */
    size_t dense_period;   /* after every such block                                  */
    size_t dense_dilation; /* of every such state, from the last one back             */
    /* initial values */
    float embedding_init_std;     /* deviation of the embedding                        */
    float hidden_init_std_factor; /* times 1/sqrt(d): deviation of the other matrices  */
    float output_init_std_factor; /* times the deviation of the output projections     */
    float read_init;              /* ddl_state_read_init; 0 means 1/c                       */
    float beta_init;              /* ddl_beta_init; ddl_config_beta_init has its meaning    */
    float scale_init;             /* ddl_scale_init: rule scale                             */
    float highway_init;           /* ddl_highway_init: rule highway, initial tau            */
    /* residual rule, from here to the end; the enums are stored as int for the option table */
    int residual;  /* enum ddl_residual                                       */
    bool by_layer; /* residual_by_layer below is used (c = 1 only)            */
    unsigned char residual_by_layer[DDL_MAX_LAYERS]; /* enum ddl_residual each          */
    size_t channels;     /* c, ddl_value_channels                                   */
    int map;             /* enum ddl_map                                            */
    size_t k_rank;       /* v-map: rank r of phi_k, 0 is full                       */
    int update;          /* enum ddl_update                                         */
    size_t steps;        /* ddl_steps: delta steps per sublayer; k-map only            */
    int v_input;         /* enum ddl_v_input; k-map only                            */
    int compress;        /* enum ddl_compress; c > 1 only                           */
    int embed;           /* enum ddl_embed; c > 1 only                              */
    size_t state_kernel; /* K of the compressor; 0 means 4 for token, c for channel */
    size_t embed_kernel; /* taps of the conv embedding                              */
    float k_eps;         /* epsilon inside |q|                                      */
    bool beta_linear;    /* ddl_beta_single_linear                                  */
    size_t beta_hidden;  /* hidden width of the gate's MLP otherwise                */
    bool v_sigmoid;      /* the target is s sigmoid(W x + b); false: W x + b        */
    float v_scale;       /* s, ddl_v_sigmoid_scale                                  */
    bool v_constant;     /* the target is v_constant_value in every channel          */
    float v_constant_value;
    bool per_feature; /* ddl_per_feature: rules scale, highway: one number for each feature instead of one */
    size_t laurel_rank;  /* ddl_laurel_rank: rule laurel, rank r of U D; 0: none */
    bool value_residual; /* attention's values in layers above the first are mixed with those of layer 0 */
    bool beta_constant;  /* rules delta, gated: the gate is beta_constant_value for every token */
    float beta_constant_value;
    size_t attnres_block;       /* ddl_attnres_block: rule attnres: sublayers of a block */
    float beta_max;             /* ddl_beta_max: rules delta, gated: upper end of the gate */
    bool f_norm;                /* ddl_f_norm: F's output is divided by its root mean square */
    size_t streams;             /* ddl_streams: rules hyper, mhc: n                                 */
    bool hyper_dynamic;         /* ddl_hyper_dynamic: the weights of hyper depend on the token      */
    size_t sinkhorn_iterations; /* ddl_sinkhorn_iterations: rule mhc                                */
};

/* The rows behind --key, YAML and config.json, named as in config.json. */
DDL_API const struct ddl_option *ddl_config_options(void);

/* The paper's baseline at its small size. */
DDL_API struct ddl_config ddl_config_defaults(void);

/* Sets the residual fields of config (only) to those of the model called name: "baseline", "ddl-1", "ddl-tc",
 * "ddl-tc-ec", "ddl-cc", "ddl-cc-ec", "ddl-mix", "ddl-mix-ec", "scale", "gated", "highway", "hyper", "mhc",
 * "laurel", "attnres", "attnres-block", "scale-norm", "resformer", "denseformer", "ddl-2step"; those from
 * "ddl-1" to "ddl-mix-ec" also with the suffix of a control: "-write", "-erase", "-beta1", "-v0", "-vmap".
 * Names of the release's model files are accepted too: "gpt_base", "DDL-vdim1", "DDL", "DDL-EC", "DDL-CC",
 * "DDL-CC-EC", "DDL-gpt-mha-rope-CC-EC", ... */
DDL_API ddl_status ddl_config_set_preset(struct ddl_config *config, const char *name, struct ddl_error *err);
/* Sets the size fields of config (only; context and vocabulary too) to those called name: "small", "medium"
 * (the paper's), "mini", "tiny", "micro". */
DDL_API ddl_status ddl_config_set_size(struct ddl_config *config, const char *name, struct ddl_error *err);
/* The rules by layer, as "add,delta,add": one name for each layer of config->n_layers. With "" no layer has a
 * rule of its own, and config->residual holds for all. DDL_E_USAGE for an unknown rule or another number of
 * names; `where` starts the message. */
DDL_API ddl_status ddl_config_set_by_layer(struct ddl_config *config, const char *rules, const char *where,
                                           struct ddl_error *err);
/* Writes them to out, truncated to size; "" if no layer has a rule of its own. config is valid. */
DDL_API void ddl_config_get_by_layer(const struct ddl_config *config, char *out, size_t size);
/* A copy of config in which keys of residual rules that have no effect have their defaults. */
DDL_API struct ddl_config ddl_config_without_idle(const struct ddl_config *config);
/* Sets config->head_dim to hidden_size / num_attention_heads if `given` has one of these two and no head_dim;
 * in `given` a field that is 0 is not given. If the quotient is not a whole number in the range of head_dim,
 * head_dim remains, or, if both are given, the result is DDL_E_USAGE. config's other fields must be valid. */
DDL_API ddl_status ddl_config_set_head_dim(struct ddl_config *config, const struct ddl_config *given,
                                           struct ddl_error *err);
/* After ddl_config_set_head_dim, where `given` has one of the two and no head_dim: writes to out, truncated
 * to size, that head_dim is not `named`, that of the named size, or that it remains although it does not fit.
 * False, and out empty, if there is nothing to say. */
DDL_API bool ddl_config_head_dim_note(const struct ddl_config *config, size_t named, char *out, size_t size);
/* The preset whose residual fields equal the config's, those without effect aside, or NULL; a static
 * string. */
DDL_API const char *ddl_config_preset_name(const struct ddl_config *config);
/* The named size whose layers, heads and widths are the config's, or NULL. */
DDL_API const char *ddl_config_size_name(const struct ddl_config *config);
/* Named model number i, or NULL past the last; *about (may be NULL) gets one line. */
DDL_API const char *ddl_config_preset_list(size_t i, const char **about);
/* Suffix number i of the controls of delta models, likewise; *about may be NULL. */
DDL_API const char *ddl_config_control_list(size_t i, const char **about);
/* Named size number i, likewise; *about may be NULL. */
DDL_API const char *ddl_config_size_list(size_t i, const char **about);

/* DDL_E_USAGE with the key's name unless config is a model that can be made. Ranges and combinations: heads,
 * kernels, rule by layer with c > 1, ... */
DDL_API ddl_status ddl_config_check(const struct ddl_config *config, struct ddl_error *err);

/* ---- matched models ---- */

/* What ddl_config_match makes equal. */
enum ddl_match_kind {
    DDL_MATCH_PARAMETERS, /* the number of parameters                            */
    DDL_MATCH_FLOPS,      /* FLOPs of training per token, as ddl_config_flops_per_token counts them */
};
/* A width of the MLP that was chosen to match a model. */
struct ddl_match {
    enum ddl_match_kind kind; /* what was made equal */
    char model[64];           /* name of the model that is matched          */
    size_t mlp_size;          /* the width; 0: nothing is matched           */
    double cost, target;      /* of the matched configuration, and of `model` */
};
/* The key of a recipe for a kind, "match_parameters" or "match_flops": a static string. */
DDL_API const char *ddl_match_key(enum ddl_match_kind kind);
/* What a kind counts, "parameters" or "training FLOPs per token": a static string. */
DDL_API const char *ddl_match_unit(enum ddl_match_kind kind);
/* Sets config->mlp_size (0 if the result is the default width) to the width with which config costs as much
 * as the named model with the default width, whose other keys are config's: size, vocabulary, context. `kind`
 * says which cost; that of FLOPs is of sequences of seq tokens (0: the context). The nearest width is chosen,
 * so that the costs, which *out gets, differ by at most half the cost of one unit of width. DDL_E_USAGE with
 * the figures if no width in the range of mlp_size comes within one unit, if the MLP has no effect on the
 * cost, or if config->mlp_size is another width already; *out is then zero. */
DDL_API ddl_status ddl_config_match(struct ddl_config *config, const char *model, enum ddl_match_kind kind,
                                    size_t seq, struct ddl_match *out, struct ddl_error *err);

/* ---- derived figures ---- */

DDL_API size_t
ddl_config_mlp_size(const struct ddl_config *config); /* m of the config, floor(8 d / 3) for 0 */
DDL_API size_t ddl_config_rope_dims(const struct ddl_config *config); /* R of the config, even       */
/* K of config with its default resolved; c for mix. */
DDL_API size_t ddl_config_state_kernel(const struct ddl_config *config);
/* The read vector's initial value of config, 1/c where it says 0. */
DDL_API float ddl_config_read_init(const struct ddl_config *config);
/* The gate's initial value of config: beta_init, or beta_max / 2 where beta_init is 1, its default, and
 * beta_max at most 1. */
DDL_API float ddl_config_beta_init(const struct ddl_config *config);
/* A copy of config with the values that files contain: a field whose 0 means a default has that default. An
 * mlp_size equal to its default is 0 instead, and files omit it. */
DDL_API struct ddl_config ddl_config_resolved(const struct ddl_config *config);
/* Columns of the state of config, a checked configuration: ddl_value_channels, or ddl_streams of a residual
 * rule with streams. */
DDL_API size_t ddl_config_state_channels(const struct ddl_config *config);
/* By enum ddl_update, ended by NULL: "delta", "write", "erase". */
DDL_API extern const char *const ddl_update_names[];
/* Whether these are streams that every sublayer mixes by a matrix (the rules hyper and mhc). */
DDL_API bool ddl_config_has_streams(const struct ddl_config *config);
/* The rule (enum ddl_residual) of one layer of config. */
DDL_API int ddl_config_residual(const struct ddl_config *config, size_t layer);
/* Whether a weighted sum of states follows `layer` of config: dense_average, every dense_period layers. */
DDL_API bool ddl_config_average_follows(const struct ddl_config *config, size_t layer);
/* How many steps a sublayer of `layer` of config takes: ddl_steps with the rule delta, 1 with others. */
DDL_API size_t ddl_config_residual_steps(const struct ddl_config *config, size_t layer);
/* How many steps all sublayers of config take together. */
DDL_API size_t ddl_config_steps(const struct ddl_config *config);
/* The name of the rule of `layer` of config: "add", "delta", ... */
DDL_API const char *ddl_config_residual_name(const struct ddl_config *config, size_t layer);
/* Whether F's output in `layer` of config is normalized: ddl_f_norm, in a layer whose rule allows it. */
DDL_API bool ddl_config_normalizes_f(const struct ddl_config *config, size_t layer);
/* Whether attention in `layer` of config mixes its values with those of layer 0. */
DDL_API bool ddl_config_mixes_values(const struct ddl_config *config, size_t layer);
/* s in logits = s E x: 1, or with muP d_base/d. */
DDL_API float ddl_config_logit_scale(const struct ddl_config *config);

#ifdef __cplusplus
}
#endif
#endif
