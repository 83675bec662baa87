/* What the rules hyper and mhc share: a state of n streams, (N, n, d), that are mixed by a matrix, and
 * activations with the mixing weights of each token (ops.h). */
#ifndef DDL_MODEL_RESIDUAL_STREAMS_H
#define DDL_MODEL_RESIDUAL_STREAMS_H

#include "model/residual/rule.h"

/* Activations: w (N, n (n + 2)); the projections t, of the same size; (N, groups) reciprocal norms; the
 * folded weights Wf. The latter three are NULL without projections. */
enum { STREAMS_W, STREAMS_T, STREAMS_RSTD, STREAMS_WF, STREAMS_ACTS };
/* Scratch: the gradients of w, of Wf X, and of Wf. */
enum { STREAMS_DW, STREAMS_DZ, STREAMS_DWF, STREAMS_SCRATCH };

/* What Wf projects: `groups` vectors of a token, each with n_out projections; groups = 0: none. */
struct streams_projection {
    size_t groups, n_out;
};

extern const struct state_form streams_form;

/* n (n + 2). */
size_t streams_weights(const struct ddl_config *config);
void streams_layout(const struct layout *l, struct streams_projection by, float **acts);
void streams_scratch(const struct layout *l, struct streams_projection by, float **out);
/* Sums over rows of the gradients of Wf and of the other parameters. */
size_t streams_sums(const struct ddl_config *config, struct streams_projection by);
/* Operations of reading, mixing and writing, for a token. */
double streams_flops(const struct ddl_config *config);

/* Whether the mixing matrices are forced to the identity. */
bool streams_identity(const struct sublayer *s);
/* Parameters that are projected: those of a norm and up to three matrices, of `rows` rows each. */
struct streams_matrices {
    size_t n; /* streams that a row of the matrices spans: n, or 1 */
    int norm, matrix[3];
    size_t rows[3];
};
/* Wf, and from its gradient those of the parameters. */
void streams_fold(const struct sublayer *s, const struct streams_matrices *of);
void streams_fold_bwd(const struct sublayer *s, const struct streams_matrices *of);
/* Reports the activations of a read that was just computed to the probe, and the gradients of it. */
void streams_probe(const struct sublayer *s, struct streams_projection by);
void streams_probe_bwd(const struct sublayer *s, struct streams_projection by);

/* Members of the rules. */
const float *streams_read_again(const struct sublayer *s);
void streams_write_fwd(const struct sublayer *s, struct operand x_in, struct operand ctx);
const float *streams_write_bwd(const struct sublayer *s);
extern const struct trace_tensor streams_traced[];

#endif
