/* Weighted averages of the states after the blocks (ddl_config.dense_average; docs/equations.md, 9). */
#ifndef DDL_MODEL_AVERAGE_H
#define DDL_MODEL_AVERAGE_H

#include "model/pass/layout.h"
#include "model/params/param_plan.h"
#include "model/pass/pass.h"
#include "model/pass/stream.h"

/* The memory of a workspace for the states of a pass; NULL without the option. Slot i < n_layers + 2 is N d c
 * numbers from states + i N d c on, N the rows of the pass. */
struct averages {
    float *states;  /* place i holds X_i, the last the average after the last block             */
    float *weights; /* (n_layers + 1, n_layers + 1), training: the weights that backward used  */
};

/* Places the memory; the stream begins in place 0. */
struct averages average_layout(const struct layout *l);
/* Operations of all sums of a token, forward. */
double average_flops(const struct ddl_config *config);

/* With the option alone. Forward: after the embedding, and after each block. The stream moves to the next
 * place, so that the state X_i remains. */
void average_begin(const struct pass *p, struct stream *stream);
void average_fwd(const struct pass *p, struct stream *stream, size_t layer);
/* Backward, in the opposite order: the gradient of the state that follows becomes that of X_i, with the parts
 * of all later sums that contain it, and the stream becomes X_i, from which reversible rules continue in
 * place. */
void average_bwd(const struct pass *p, struct stream *stream, size_t layer);
void average_end(const struct pass *p, struct stream *stream);

#endif
