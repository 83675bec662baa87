/* The interface of a residual rule: how a sublayer's output f enters the stream.
 *
 * A sublayer is  x_in = read(X);  ctx = norm(x_in);  f = F(ctx);  X' = write(X, x_in, ctx, f)  with F
 * attention or the MLP. What write needs of x_in and ctx alone, a gate for example, context_fwd computes
 * before F. A rule is one file with one struct residual_rule, and one row in table.h; block.c calls it
 * without knowing which it is. Backward of a sublayer, given X' and dX':
 *
 *   write_bwd     X' -> X; dX' -> dX without the contributions of F, ctx and x_in; returns df
 *   read_again    recomputes x_in if it was not kept (block.c recomputes the norm)
 *   F's backward  df -> dctx
 *   context_bwd   adds to dctx what of ctx context_fwd and write_fwd read; gradients of their parameters
 *   norm's        dctx -> dx_in
 *   input_bwd     the same for x_in
 *   read_bwd      dx_in -> dX
 *
 * docs/design.md, "Adding a residual rule", lists all steps. */
#ifndef DDL_MODEL_RESIDUAL_RULE_H
#define DDL_MODEL_RESIDUAL_RULE_H

#include "model/observe/force.h"
#include "model/observe/trace.h"
#include "model/pass/history.h"
#include "model/pass/layout.h"
#include "model/params/param_plan.h"
#include "model/residual/state.h"
#include "model/pass/stream.h"
#include "model/pass/workspace.h"
#include "ops/defaults.h"

/* One sublayer of a pass. */
struct sublayer {
    const struct pass *p;
    struct stream *stream;
    size_t layer;
    int sub;                          /* ATTN or MLP                                              */
    const int *params;                /* (RULE_PARAMS) rows of the rule, as rule->params set them      */
    const struct sublayer_acts *acts; /* acts->rule: as `layout` set them                         */
    float *const *scratch;            /* (RULE_SCRATCH) as `scratch` set them; training only       */
    const struct activation *scratch_factor; /* (RULE_FACTORS) as `scratch_factors` set them       */
    const struct ddl_force *force;           /* what is forced in it; NULL: nothing                      */
    /* Where write_bwd writes df: in the format that F's backward multiplies, or with RULE_SUMS_DF in float32.
     */
    struct activation df;
};

/* What a rule reads in a pass with products in bfloat16, in addition to f and df. */
enum {
    RULE_READS_CTX = 1,       /* ctx in float32: gates and targets do */
    RULE_MULTIPLIES_X_IN = 2, /* x_in in bfloat16, for products       */
    RULE_MULTIPLIES_DX = 4,   /* the stream's gradient in bfloat16, likewise */
    RULE_SUMS_DF = 8,         /* df in float32: several terms are summed, or the norm of f follows */
};

/* Members that a rule has no use for are NULL. */
struct residual_rule {
    /* Its parameters in layer l are transformer.h.{l}.<prefix>_attn.* and transformer.h.{l}.<prefix>_mlp.* */
    const char *prefix;
    /* Name, after that prefix, of a tensor that identifies the rule in a folder of the release whose
     * config.json names none. */
    const char *release_tensor;
    /* The form of its state; NULL: state_channels. Rules with another form are in all layers or in none. */
    const struct state_form *state;
    enum stream_earlier earlier;
    /* F's output projection adds f to the stream itself (see also `place`); there is no write_fwd, and no f
     * is kept. */
    bool adds_in_place;

    /* With ddl_f_norm, f is divided by its root mean square before write_fwd reads it (acts->f holds the
     * result). `normalized` is the form of the rule then, if it is another one: f cannot be added in place.
     */
    bool normalizes_f;
    const struct residual_rule *normalized;

    bool one_channel; /* only for ddl_value_channels 1 */
    /* Further conditions: DDL_E_USAGE with the key's name unless the configuration meets them; NULL: none. */
    ddl_status (*check)(const struct ddl_config *config, struct ddl_error *err);
    /* Declares its parameters in one sublayer (param_plan_add); index: (RULE_PARAMS), -1 each beforehand. */
    void (*params)(struct param_plan *plan, int *index);
    /* Places what one sublayer keeps for backward in addition to f and the saved state: acts (RULE_ACTS).
     * Without training the sublayers of all layers share it. */
    void (*layout)(const struct layout *l, float **acts);
    /* Places what backward works in, in addition to the workspace's df, shared by all sublayers of the rule:
     * scratch (RULE_SCRATCH). */
    void (*scratch)(const struct layout *l, float **scratch);
    /* The same of what its products read and nothing else does (layout_factor): (RULE_FACTORS) each. */
    void (*layout_factors)(const struct layout *l, struct activation *factors);
    void (*scratch_factors)(const struct layout *l, struct activation *factors);

    /* The constants above that apply; NULL: none. */
    unsigned (*reads)(const struct ddl_config *config);

    /* The stream -> x_in (N, d), in acts->x_in unless it is the stream itself. `history` is NULL without a
     * cache. */
    const float *(*read_fwd)(const struct sublayer *s, struct history *history);
    /* The same in backward, after write_bwd, where x_in was not kept; NULL: read_fwd. */
    const float *(*read_again)(const struct sublayer *s);
    /* The last step of backward: adds to the stream's gradient what flows through x_in, whose gradient is
     * sublayer_dx_in. */
    void (*read_bwd)(const struct sublayer *s);
    /* With STREAM_PLACED and adds_in_place: moves stream->X_next to the memory of the next state. Returns
     * whether F's output is added to what it holds, or written. */
    bool (*place)(const struct sublayer *s);
    /* With adds_in_place, after the sublayer: f (N, d), if it was written and not added; else NULL. NULL: it
     * is always added. */
    const float *(*written)(const struct sublayer *s);
    /* After the norm, before F: what depends on x_in and ctx (N, d) alone, to acts->rule. */
    void (*context_fwd)(const struct sublayer *s, const float *x_in, const float *ctx);
    /* stream->X, x_in, ctx (N, d) and acts->f (N, steps, d) -> stream->X_next. With STREAM_KEPT x_in and ctx
     * may have no format. */
    void (*write_fwd)(const struct sublayer *s, struct operand x_in, struct operand ctx);
    /* The first step of backward, see above. Unless STREAM_REVERSED the stream is X already. Returns df
     * (N, steps, d), for which there is s->df, or no format where f has no effect. A rule may
     * leave the stream's gradient at dX', and do all of it in read_bwd. */
    struct operand (*write_bwd)(const struct sublayer *s);
    void (*context_bwd)(const struct sublayer *s, struct operand ctx, float *dctx);
    void (*input_bwd)(const struct sublayer *s, struct operand x_in, float *dx_in);

    /* Steps of one sublayer: F's output f has that many blocks of d numbers in a row, (N, steps, d), and the
     * output projection as many rows. NULL: 1. Only 1 with adds_in_place or DDL_FORCE_F_SCALE. */
    size_t (*steps)(const struct ddl_config *config);
    /* The ops that it may call, ended by DDL_OP_COUNT, besides those of every model (pass/requirements.c):
     * DDL_OP_LIST. NULL: none. */
    const enum ddl_op *ops_fwd, *ops_bwd;
    /* Whether f has an effect on the loss; NULL: always. */
    bool (*uses_f)(const struct ddl_config *config);
    /* Numbers of the widest row of a product of its parameters, other than d_model; NULL: none. */
    size_t (*widest)(const struct ddl_config *config);
    /* Sums over rows in the largest gradient of its parameters that one op computes (ddl_limits.summed);
     * NULL: no more than d c. */
    size_t (*most_sums)(const struct ddl_config *config);
    /* Floating-point operations of one sublayer for a token, without matrices of the group "matrix". */
    double (*flops)(const struct ddl_config *config);
    /* The keys of struct ddl_force that it accepts. block.c applies f_scale, the rule the others. */
    unsigned force_keys;
    /* With DDL_FORCE_MIX, the values of mix: a sum of 1 << enum ddl_force_mix. 0: DDL_MIX_IDENTITY. */
    unsigned mixes;
    /* The tensors that it shows of a sublayer (model/observe/trace.h), ended by one without a name; NULL:
     * none. Its update, if that is more than an addition to the stream. */
    const struct trace_tensor *traced;
    const struct trace_update *update;
    /* The file of the release that runs such a model in every layer, or NULL and the reason in *why. */
    const char *(*release_file)(const struct ddl_config *config, const char **why);
};

/* The gradient of x_in: the workspace's memory for it, or the stream's gradient if x_in is the stream. */
static inline float *sublayer_dx_in(const struct sublayer *s)
{
    return s->stream->is_read ? s->p->ws->dx_in : s->stream->dX;
}

/* df of a rule that adds f to the stream unchanged: the stream's gradient. */
static inline struct operand sublayer_dX(const struct sublayer *s)
{
    return (struct operand){ .value = s->stream->dX, .bf16 = s->stream->dX16 };
}

/* read_fwd and read_bwd with the layer's compressor; for c = 1 the stream itself. */
const float *read_stream_fwd(const struct sublayer *s, struct history *history);
void read_stream_bwd(const struct sublayer *s);
/* X += lambda (*) f, lambda (w) or NULL (1), and its backward, which reverses X: df, and dlambda += where
 * there is a lambda. */
void add_scaled_fwd(const struct sublayer *s, size_t w, const float *lambda);
struct operand add_scaled_bwd(const struct sublayer *s, size_t w, const float *lambda, float *dlambda);
/* For rules with ddl_per_feature: d, or 1. */
size_t weights_per_row(const struct ddl_config *config);

#endif
