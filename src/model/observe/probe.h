/* Probes: every tensor of a pass as it is computed, in order, to find where a value became NaN or what a
 * sublayer did. There is no second forward pass: without a probe the same code runs.
 *
 * Tensors have the letters of docs/equations.md. Of a sublayer ("attn", "mlp"), forward: x_in (c > 1), ctx;
 * attn: qkv before rotation, qn and kn after rotation and norm, v (where values are mixed), y; mlp: ug, s; f
 * (not with add); the tensors of the residual rule, named in its file (delta: gate_hidden, beta, low and q
 * (v-map), target, readout); and X after the sublayer. "embed": embedding (c > 1), X. "head": x_in (c > 1),
 * ctx, logits, loss. Backward: the gradient of each with a d before its name, X where a rule has reversed it,
 * recomputed tensors under their own names, and the gradient of each parameter as grad.<name>, all in the
 * order of computation. */
#ifndef DDL_MODEL_PROBE_H
#define DDL_MODEL_PROBE_H

#include "ddl/model.h"
#include "model/observe/trace.h"

#define DDL_NO_LAYER SIZE_MAX

enum { DDL_PLACE_NAME = 128 };

struct ddl_place {
    bool backward;
    bool parameter;   /* the tensor is a parameter's gradient; its rows are no tokens    */
    size_t layer;     /* from 0; DDL_NO_LAYER in "embed" and "head"                      */
    const char *part; /* "embed", "attn", "mlp", "average", "head"                       */
    char tensor[DDL_PLACE_NAME];
    size_t first_row, rows, width; /* (rows, width) numbers; row 0 is token first_row of the batch */
};

/* A sublayer of the forward pass, before and after it is computed. Pointers are memory of the model's
 * backend, valid during the call; before, all but X is NULL or 0. */
struct ddl_sublayer_trace {
    bool after;
    size_t layer;                      /* from 0                                                     */
    int sub;                           /* enum ddl_sublayer                                          */
    size_t rows;                       /* N                                                          */
    size_t steps;                      /* R, 1 unless it is a delta sublayer with ddl_steps          */
    const float *X;                    /* (N, d, c) the stream; (N, c, d) if by_column               */
    bool by_column;                    /* see struct state_form                                      */
    const float *f;                    /* (N, R, d) F's output; NULL where it was added to X in place */
    const float *direction;            /* (N, R, d) q, before normalization: f, or one of the tensors */
    const struct trace_update *update; /* its rule's; NULL: F's output is added                      */
    int kind;                          /* with `update`: enum ddl_update                             */
    float k_eps;                       /* k = q / sqrt(|q|^2 + k_eps^2)                              */
    size_t n;                          /* tensors of its rule, and of options                        */
    struct ddl_traced tensor[DDL_MOST_TRACED];
};

/* The tensor of that name; NULL if there is none. */
const struct ddl_traced *ddl_trace_find(const struct ddl_sublayer_trace *trace, const char *name);

/* `x` is memory of the model's backend, valid during the call. */
typedef void ddl_look_fn(void *user, const struct ddl_place *place, const float *x);
typedef void ddl_sublayer_fn(void *user, const struct ddl_sublayer_trace *trace);
struct ddl_probe {
    ddl_look_fn *look;     /* may be NULL */
    ddl_sublayer_fn *step; /* may be NULL */
    void *user;
    struct ddl_place place; /* of the pass that is running */
    bool stop; /* set by look: ends ddl_model_scores and ddl_model_decode with DDL_E_INTERRUPTED */
};

/* Passes in this workspace call *probe (borrowed) until it is set to NULL. */
void ddl_workspace_set_probe(ddl_workspace *ws, struct ddl_probe *probe);

#endif
