/* The activations of one pass. */
#ifndef DDL_MODEL_WORKSPACE_H
#define DDL_MODEL_WORKSPACE_H

#include "model/pass/average.h"
#include "model/params/flat.h"
#include "model/pass/pass.h"
#include "model/pass/operand.h"
#include "model/observe/probe.h"
#include "model/pass/rope.h"
#include "ops/uploads.h"

/* Of a residual rule, at most: activations and scratch in float32, and factors of products in each. */
enum { RULE_ACTS = 8, RULE_SCRATCH = 8, RULE_FACTORS = 2 };

/* What a sublayer keeps for backward; (N, ...) each, NULL where the rule does not use it. The memory of what
 * backward recomputes (enum ddl_recompute) is shared by all layers: it holds what was computed last. */
struct sublayer_acts {
    float *x_in;           /* (N, d) what is read of the state; NULL where that is X. Elementwise */
    struct activation ctx; /* (N, d) its norm; float32 only where something reads that. Elementwise */
    float *rstd;           /* (N) of the norm. Elementwise                              */
    uint16_t *x16;         /* (N, d) x_in in bfloat16, where the rule multiplies it. Elementwise */
    float *f;              /* (N, d) F's output; NULL where it is added in place        */
    float *f_rstd;         /* (N) its reciprocal root mean square, where f is divided by it; training only */
    float *state;  /* (N, d, c) a copy of the state before, of rules with STREAM_SAVED; training only */
    float *next;   /* (N, d, c) for the state after, of rules with STREAM_KEPT; training only */
    float *before; /* (N, d, c) where the last pass found the state, or copied it */
    float *rule[RULE_ACTS];                 /* numbered by the residual rule                         */
    struct activation factor[RULE_FACTORS]; /* likewise: what only its products read */
};
struct layer_acts {
    struct sublayer_acts sub[2];
    const struct residual_rule *rule; /* of its sublayers */
    float *const *scratch;            /* the rule's, as scratch_factor */
    const struct activation *scratch_factor;
    size_t f_width;       /* numbers of F's output for a token */
    bool normalizes_f;    /* f is divided by its root mean square */
    struct activation df; /* where the rule writes the gradient of f: the workspace's, in the formats that are
                             read */
    float *lse;           /* (N, H) Block */
    /* The others are in bfloat16 alone with products of that format. */
    struct activation qkv;    /* (N, 3 H h) before rotation. Recomputed with DDL_RECOMPUTE_BLOCK   */
    struct activation qn, kn; /* (N, H h) queries and keys after rotation and norm. Elementwise    */
    struct activation v; /* (N, H h) values mixed with those of layer 0, where that is done. Elementwise */
    struct activation y; /* (N, H h) attention's output. Block                                */
    struct activation ug, s; /* (N, 2m) Block; (N, m) Elementwise                                 */
};

struct ddl_workspace {
    const struct ddl_model *model;
    const struct state_form *form;
    struct ddl_workspace_options options;
    enum ddl_precision precision;
    size_t logit_block;        /* of the backend: numbers of a block of whole rows of logits, or 0 */
    size_t logit_rows;         /* rows of logits at a time */
    size_t tile;               /* bfloat16: columns of logits at a time for a loss; 0: whole rows */
    size_t logit_numbers;      /* capacity of `logits` */
    size_t trace_rows;         /* N of the last pass; 0 before the first */
    struct rope rope;          /* of options.tokens positions */
    size_t bytes;              /* of `memory` */
    void *memory;              /* of the backend; everything below is carved from it */
    int32_t *tokens, *targets; /* (N) */
    float *grad_scale;         /* (1) of the loss's gradient */
    float *X;                  /* (N, d, c) the stream at the embedding */
    struct averages averages;  /* the states of a pass, with dense_average */
    float *readout[RULE_ACTS]; /* activations of the readout, numbered by the form of the state */
    float *x_in;               /* (N, d) the readout, and sublayers' that are recomputed; NULL if it is X */
    float *ctx, *rstd;         /* (N, d), (N) its norm, likewise */
    uint16_t *ctx16, *x_in16;  /* (N, d) each in bfloat16; x_in16 NULL where no rule multiplies x_in */
    struct activation v0;      /* (N, H h) values of layer 0; NULL unless others are mixed with them */
    float *e[2];               /* (taps, d c) folded compressors of even and odd layers */
    float *logits;             /* (logit_rows, V) or (N, tile) */
    float *losses;             /* (N)            */
    double *loss_sum;          /* (1) their sum  */
    int32_t *ranks;            /* (N) of the targets, with options.ranks; else NULL  */
    float *entropies;          /* (N) of the predictions, likewise */
    uint16_t *dz16;            /* bfloat16: the head's dz of a block */
    float *top, *at_target;    /* (N) each, bfloat16: the loss over blocks of logits; NULL with ranks */
    double *total;             /* (N) */
    /* backward */
    float *dX;              /* (N, d, c) */
    float *dx_in;           /* (N, d); NULL where x_in is X, and this dX */
    float *between;         /* (N, d, c) STREAM_KEPT: the state in the middle of a block, if
                               it is recomputed */
    uint16_t *dX16;         /* (N, d) dX in bfloat16 where a product reads it: stream.h */
    float *dctx;            /* (N, d) */
    struct activation df;   /* (N, d) where a rule needs it; in bfloat16 alone unless it is summed or the norm
                               of f follows */
    float *dy;              /* (N, H h) */
    float *ds;              /* (N, m); NULL where it goes over s */
    struct activation dqkv; /* (N, 3 H h) */
    float *dv0;             /* (N, H h) gradient of v0; NULL where v0 is */
    float *scratch[DDL_RESIDUALS][RULE_SCRATCH]; /* by rule, numbered by it */
    struct activation scratch_factor[DDL_RESIDUALS][RULE_FACTORS];
    float *de;                       /* (taps, d c) */
    struct layer_acts *layer;        /* (n_layers), host memory */
    struct ddl_uploads uploads;      /* of tokens, targets and grad_scale */
    struct ddl_probe *probe;         /* borrowed; may be NULL   */
    ddl_grads_final_fn *grads_final; /* may be NULL             */
    void *grads_user;                /* for grads_final         */
    float *forced;                   /* of the backend: force.c; NULL until F is scaled */
};

#endif
