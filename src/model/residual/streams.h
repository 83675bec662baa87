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

/* The parameters of a rule in a sublayer: one row each. The matrices (DDL_GROUP_MATRIX; at most three,
 * with d or n d columns each) project the state, divided by its root mean square and times the norm's weight:
 * by stream, or all streams of a token. Without matrices w does not depend on the state. */
struct streams_params {
    size_t n;
    int norm; /* index in `row` of the norm's weight */
    struct param_row row[RULE_PARAMS];
};

extern const struct state_form streams_form;

/* What the rules' members of these names do with the parameters. */
void streams_declare(struct param_plan *plan, const struct streams_params *of, int *index);
void streams_layout(const struct layout *l, const struct streams_params *of, float **acts);
void streams_scratch(const struct layout *l, const struct streams_params *of, float **out);
/* Sums over rows of the gradients of Wf and of the other parameters. */
size_t streams_sums(const struct ddl_config *config, const struct streams_params *of);
/* Operations of reading, mixing and writing, for a token. */
double streams_flops(const struct ddl_config *config);

/* Whether the mixing matrices are forced to the identity. */
bool streams_identity(const struct sublayer *s);
/* Wf of a read, if there are matrices. */
void streams_fold(const struct sublayer *s, const struct streams_params *of);
/* From the gradient of Wf those of the norm and the matrices. Reports the gradients of the read to the probe.
 */
void streams_fold_bwd(const struct sublayer *s, const struct streams_params *of);
/* Reports the activations of a read that was just computed to the probe. */
void streams_probe(const struct sublayer *s, const struct streams_params *of);

/* Members of the rules. */
const float *streams_read_again(const struct sublayer *s);
void streams_write_fwd(const struct sublayer *s, struct operand x_in, struct operand ctx);
struct operand streams_write_bwd(const struct sublayer *s);
extern const struct trace_tensor streams_traced[];

#endif
