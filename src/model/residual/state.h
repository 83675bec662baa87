/* The form of the state: its shape, how it is computed from the embedding, and how the head reads it. All
 * layers of a model share the state, so their residual rules have the same form. */
#ifndef DDL_MODEL_STATE_H
#define DDL_MODEL_STATE_H

#include "model/params/param_plan.h"
#include "model/pass/layout.h"
#include "model/pass/pass.h"
#include "model/pass/stream.h"

struct state_form {
    /* Columns of the state: a token has d times as many numbers. ddl_config_state_channels reports it. */
    size_t (*channels)(const struct ddl_config *config);
    /* x_in and the readout are computed, to memory of their own, also where the state has one column. false:
     * with one column both are the state itself, and the functions below are not called. */
    bool is_always_read;
    /* Where the numbers of a token are. true: (N, c, d), column by column; false: (N, d, c). */
    bool by_column;
    /* Whether every sublayer mixes the columns by a matrix, which the rule shows (trace.h). */
    bool is_mixed;
    /* How many states the workspace's X holds, one after the other; NULL: 1. */
    size_t (*states)(const struct ddl_config *config, bool train);
    /* Parameters and activations of the readout, readout.*, numbered by the form; NULL: none. */
    void (*params)(struct param_plan *plan, int *index);
    void (*layout)(const struct layout *l, float **acts);
    /* The embeddings x (N, d) -> the state, and its gradient -> dx (N, d) =. */
    void (*embed_fwd)(const struct pass *p, const struct stream *stream, const float *x);
    void (*embed_bwd)(const struct pass *p, const struct stream *stream, float *dx);
    /* The last state -> the input of the final norm (N, d), in the workspace's x_in, which is returned; the
     * gradient in the workspace's dx_in -> the stream's gradient =. */
    const float *(*readout_fwd)(const struct pass *p, const struct stream *stream);
    void (*readout_bwd)(const struct pass *p, struct stream *stream);
};

/* The form of rules that name none: value channels, (N, d, c). */
extern const struct state_form state_channels;

#endif
