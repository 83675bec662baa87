/* What the files of this layer share: the model's parts, and one pass through it.
 *
 * Data's way: tokens -> embed: X0 (N,d,c) -> per sublayer { compress: x_in (N,d) -> norm: ctx -> attention |
 * mlp: f (N,d)
 * -> residual: X' } -> readout -> norm -> head. Each piece is one file with its forward and its backward. */
#ifndef DDL_MODEL_INTERNAL_H
#define DDL_MODEL_INTERNAL_H

#include "base/mem.h"
#include "ddl/model.h"
#include "model/probe.h"
#include "ops/ops.h"

enum { ATTN, MLP }; /* the two sublayers of a block */

/* Rows of the parameter table by meaning; -1 where the configuration has none. */
struct compressor_slots {
    int weight, read;
};
struct delta_slots {
    int beta_in, beta_weight, beta_bias, v_weight, v_bias, k_proj, k_down, k_up;
};
struct layer_slots {
    struct compressor_slots compress;
    int c_q, c_k, c_v, attn_proj, q_rms, k_rms;
    int fc1, fc2, mlp_proj;
    int ln[2];
    struct delta_slots delta[2];
};
struct model_slots {
    int wte, embed_conv, ln_f;
    struct compressor_slots readout;
};

#define DDL_NO_PLACE SIZE_MAX
struct params {
    struct ddl_param *row;
    size_t *offset; /* of each row in the flat buffer, in floats; DDL_NO_PLACE: not in it */
    size_t n;
    size_t total; /* floats in the flat buffer, padding included */
    size_t size;  /* numbers, without padding                    */
    struct model_slots slots;
    struct layer_slots *layer;
    unsigned char *init; /* how each row starts: enum init of params.c */
    bool *in_products;   /* products read it: a matrix, which may be kept in a reduced form */
    size_t
        *above;  /* rows of the same matrix that stand above its own, in every form: of those joined to it */
    void *block; /* owns all of the above */
};

/* Fills *params for a checked configuration. Free with params_free. */
ddl_status params_plan(struct params *params, const struct ddl_config *config, struct ddl_error *err);
void params_free(struct params *params);
/* Places all rows anew, without those that products read. */
void params_leave_out_products(struct params *params);
/* Initial values [start, start + n) of row i into out, in host memory. */
void params_initial(const struct params *params, const struct ddl_config *config, uint64_t seed, size_t i,
                    size_t start, size_t n, float *out);

struct ddl_model {
    struct ddl_config config;
    ddl_backend *backend;
    struct params params;
    float *value, *grad; /* flat buffers of the backend; grad NULL until enabled, then gradients.c's alone */
    bool *blank;         /* by row: its gradient is 0, whatever grad holds there */
    enum ddl_precision precision;
    unsigned char *reduced; /* of the backend: what products read, in bfloat16 or tiles; NULL in float32 */
    size_t *reduced_offset; /* row i's place in it, in bytes; of rows in products alone                   */
    bool stale;             /* values were written since it was made                                      */
    bool lean;              /* for inference: rows in products have no other form, and so no gradients    */
    float *staging;         /* lean, of the backend: room for a piece on its way between the forms        */
    int32_t *staging_rows;  /* lean, of the backend: 0, 1, 2, ...: the rows of such a piece               */
};

/* rope.c: cosines and sines of the first positions, (positions, R/2) of the backend. make zeroes *rope first;
 * free takes a zeroed one. */
struct rope {
    float *cos, *sin;
};
ddl_status rope_make(struct rope *rope, const struct ddl_model *model, size_t positions,
                     struct ddl_error *err);
void rope_free(struct rope *rope, const struct ddl_model *model);

/* What a sublayer leaves for backward; (N, ...) each, NULL where the rule has no use for it. Of what backward
 * makes again (enum ddl_recompute) all layers share the memory: then it holds what was made last. */
struct sublayer_acts {
    float *x_in;        /* (N, d) compressed state; NULL for c = 1, where it is X. Cheap */
    float *ctx, *rstd;  /* (N, d), (N) its norm. Cheap                               */
    float *saved;       /* (N, d) add: x before; delta: F's output f                 */
    float *q;           /* (N, d) v-map: phi_k's output; k-map: saved                */
    float *low;         /* (N, r) v-map of rank r: between k_down and k_up           */
    float *gate_hidden; /* (N, beta_hidden) gate with a hidden layer: its tanh       */
    float *beta;        /* (N)    */
    float *readout;     /* (N, c) */
    float *target;      /* (N, c) */
};
struct layer_acts {
    struct sublayer_acts sub[2];
    float *qkv;     /* (N, 3 H h) before rotation. Block                  */
    float *qn, *kn; /* (N, H h) queries and keys, turned and normed. Cheap */
    float *y;       /* (N, H h) attention's output. Block                 */
    float *lse;     /* (N, H) Block                                       */
    float *ug;      /* (N, 2m) Block                                      */
    float *s;       /* (N, m) Cheap                                       */
};

struct ddl_workspace {
    const struct ddl_model *model;
    struct ddl_workspace_options options;
    enum ddl_precision precision;
    size_t logit_rows;    /* rows of logits at a time */
    size_t tile;          /* bfloat16: columns of logits at a time for a loss; else 0 */
    size_t logit_numbers; /* their room */
    size_t trace_rows;    /* N of the last pass; 0 before the first */
    struct rope rope;     /* of options.tokens positions */
    void *memory;         /* of the backend; everything below is carved from it */
    int32_t *tokens, *targets;
    float *X;             /* (N, d, c) the stream */
    float *x_in;          /* (N, d) the readout; NULL for c = 1, where it is X. Sublayers' that is not kept */
    float *ctx, *rstd;    /* (N, d), (N) its norm, likewise */
    float *e;             /* (taps, d c) collapsed compressor */
    float *logits;        /* (logit_rows, V) or (N, tile) */
    float *losses;        /* (N)            */
    uint16_t *x16, *dy16; /* bfloat16: a product's operands; the head's x, and its dz (N, tile) */
    float *top, *at_target; /* (N) each, bfloat16: the loss over tiles of logits */
    double *total;          /* (N) */
    /* backward */
    float *dX;                /* (N, d, c) */
    float *dx_in;             /* (N, d); NULL for c = 1, where it is dX */
    float *dctx, *df;         /* (N, d) */
    float *dq;                /* (N, d) v-map; k-map: df */
    float *dy;                /* (N, H h) */
    float *dqkv;              /* (N, 3 H h) */
    float *dlow;              /* (N, r) */
    float *dgate;             /* (N, beta_hidden) */
    float *dbeta, *dv;        /* (N), (N, c) */
    float *de;                /* (taps, d c) */
    struct layer_acts *layer; /* (n_layers), host memory */
    float *host_losses;       /* (N), host memory        */
    struct ddl_probe *probe;  /* borrowed; NULL: nobody looks on */
};

/* The last `keep` rows before the ones to come, of one use of a causal convolution: (B, keep, width). */
struct history {
    float *rows;
    size_t keep, width;
};
struct cache_layer {
    float *k, *v;               /* (B, max_tokens, H h), or NULL: */
    uint16_t *k16, *v16;        /* the same in bfloat16 */
    struct history compress[2]; /* states before attention's and the MLP's use */
};
struct ddl_cache {
    const struct ddl_model *model;
    size_t B, max_tokens, length;
    bool halves; /* keys and values in bfloat16 */
    void *memory;
    size_t bytes;
    struct rope rope; /* of max_tokens positions */
    struct history embed, readout;
    struct cache_layer *layer; /* (n_layers), host memory */
};

/* Whether a cache of that form for this model keeps keys and values in bfloat16. */
bool cache_in_halves(const struct ddl_model *model, enum ddl_cache_form form);

/* One pass: the model, its room, and the sizes of the batch at hand. */
struct pass {
    struct ddl_model *m;
    struct ddl_workspace *ws;
    struct ddl_cache *cache; /* NULL: sequences start from nothing */
    struct ddl_probe *probe; /* the workspace's */
    const struct rope *rope; /* the cache's, or the workspace's    */
    const struct ddl_config *config;
    const struct ddl_ops *ops;
    void *ctx;
    size_t B, T, N; /* N = B T */
    size_t past;    /* tokens already in the cache */
};

/* Row `slot` of the parameters. NULL for slot -1, and for values that a lean model has in another form. */
float *param_value(const struct pass *p, int slot);

/* gradients.c: the gradient of row i, to be read or added to; and of row `slot`, NULL for slot -1. */
float *gradient_of(struct ddl_model *model, size_t i);
float *param_grad(const struct pass *p, int slot);

/* A factor of a product, in each form that it has: float32; rounded to bfloat16; weights in eight-bit tiles,
 * too, from row `first` of those. Its rows stand side by side. */
struct operand {
    const float *value;
    const uint16_t *rounded;
    const struct ddl_q8 *tiles;
    size_t first;
};
/* A matrix for linear.c. Products read the most reduced form that it has. */
struct weight {
    struct operand form;
    float *grad; /* for backward products, which add to it,    */
    bool blank;  /* or write it, as there is nothing in it yet */
};
/* Row `slot` in the model's precision, and in float32 whatever that is (gates). */
struct weight param_weight(const struct pass *p, int slot);
struct weight param_exact(const struct pass *p, int slot);
/* gradients.c: the same with the gradient, joined rows' behind it. Who asks must fill all of it: it is blank
 * no longer. */
struct weight param_weight_bwd(const struct pass *p, int slot);
struct weight param_exact_bwd(const struct pass *p, int slot);
/* The same from row `first` on, rows of `width` numbers. */
struct operand operand_rows(struct operand x, size_t first, size_t width);
struct weight weight_rows(struct weight W, size_t first, size_t width);

/* precision.c: the reduced form made anew if it is stale; freed. */
void precision_refresh(struct ddl_model *model);
void precision_drop(struct ddl_model *model);
/* Makes a model lean whose value has no place for the rows in products. Drop after a failure too. */
ddl_status precision_make_only(struct ddl_model *model, enum ddl_precision precision, struct ddl_error *err);
/* DDL_E_USAGE for a number that is no precision. */
ddl_status precision_check(enum ddl_precision precision, struct ddl_error *err);
/* DDL_E_USAGE for a lean model; `what` is the advice: "to train, load". */
ddl_status precision_check_values(const ddl_model *model, const char *what, struct ddl_error *err);
/* Row i in bfloat16, for the optimiser; NULL where there is no such form. */
uint16_t *precision_rounded(const ddl_model *model, size_t i);
/* Numbers [start, start + n) of row i from host memory into whatever forms the model keeps, and back as
 * float32. At most precision_piece(i) at a time, and starting at a multiple of it; that is at most
 * precision_largest_piece. */
size_t precision_piece(const ddl_model *model, size_t i);
size_t precision_largest_piece(const ddl_model *model);
void precision_write(ddl_model *model, size_t i, size_t start, size_t n, const float *host);
void precision_read(const ddl_model *model, size_t i, size_t start, size_t n, float *host);

/* linear.c: y (N, out) = x (N, in) W (out, in)^T, += where `accumulate`. Backward: W.grad += dy^T x, then dx
 * = (or +=) dy W; dx may be x. */
void linear_fwd(const struct pass *p, size_t N, size_t in, size_t out, const float *x, struct weight W,
                float *y, bool accumulate);
void linear_bwd(const struct pass *p, size_t N, size_t in, size_t out, const float *x, const float *dy,
                struct weight W, float *dx, bool accumulate);
/* The same, all three products times `scale`, for operands that have the form already: rounded where W is. */
struct linear {
    size_t N, in, out;
    float scale;
    struct weight W;
};
void product_fwd(const struct pass *p, const struct linear *l, struct operand x, float *y, bool accumulate);
void product_bwd(const struct pass *p, const struct linear *l, struct operand x, struct operand dy, float *dx,
                 bool accumulate);

/* embed.c: rows of a matrix E (any, d) by number, x (N, d) of the backend: as they are where float32 is kept,
 * else widened. Tokens -> X0, and dX0 -> gradients. */
void embed_rows(const struct ddl_backend *backend, struct operand E, size_t d, size_t N, const int32_t *rows,
                float *x);
void embed_fwd(const struct pass *p);
void embed_bwd(const struct pass *p);

/* compress.c: X -> x_in with a block's compressor or the readout. `history` is NULL without a cache. For c =
 * 1 the result is X itself. bwd adds dx_in's share to dX and to the compressor's gradients. */
const float *compress_fwd(const struct pass *p, const struct compressor_slots *slots, struct history *history,
                          float *x_in);
void compress_bwd(const struct pass *p, const struct compressor_slots *slots);
size_t compress_taps(const struct ddl_config *config);

/* attention.c, mlp.c: ctx -> f; `add` adds to f instead. bwd makes again what was not kept and writes dctx.
 */
void attention_fwd(const struct pass *p, size_t layer, const float *ctx, float *f, bool add);
void attention_bwd(const struct pass *p, size_t layer, const float *ctx, const float *df, float *dctx);
void mlp_fwd(const struct pass *p, size_t layer, const float *ctx, float *f, bool add);
void mlp_bwd(const struct pass *p, size_t layer, const float *ctx, const float *df, float *dctx);

/* residual.c: how f enters the stream. */
bool residual_uses_f(const struct ddl_config *config, size_t layer);
bool residual_uses_target(const struct ddl_config *config);
void residual_delta_fwd(const struct pass *p, size_t layer, int sub, const float *x_in, const float *ctx);
void residual_delta_bwd(const struct pass *p, size_t layer, int sub);
void residual_context_bwd(const struct pass *p, size_t layer, int sub, const float *ctx, float *dctx);
void residual_stream_bwd(const struct pass *p, size_t layer, int sub, const float *x_in, float *dx_in);

/* block.c: one sublayer. */
void sublayer_fwd(const struct pass *p, size_t layer, int sub);
void sublayer_bwd(const struct pass *p, size_t layer, int sub);

/* head.c: the readout's norm, logits and loss. loss: losses (N) of the workspace; with grad the gradient of
 * scale * sum of losses goes into dx_out (N, d) and the parameters. */
void head_loss(const struct pass *p, const float *x_out, bool grad, float scale, float *dx_out);
void head_logits(const struct pass *p, const float *x_out, size_t rows, float *host);

/* probe.c: where the pass is, and the tensors it has just made there, (N, width) or (rows, width); nothing
 * happens without a probe, or for x NULL or slot -1. */
void probe_enter(const struct pass *p, bool backward, size_t layer, const char *part);
void probe_tensor(const struct pass *p, const char *tensor, const float *x, size_t width);
void probe_rows(const struct pass *p, const char *tensor, const float *x, size_t first_row, size_t rows,
                size_t width);
void probe_grad(const struct pass *p, int slot);

/* cache.c: keeps the last rows of X (B, T, width) for the next pass. */
void history_push(const struct pass *p, struct history *history, const float *rows);

#endif
