/* The figures of delta steps: errors before and after a step, sizes of the erased and of the written part. */
#ifndef DDL_MODEL_RESIDUAL_DELTA_FIGURES_H
#define DDL_MODEL_RESIDUAL_DELTA_FIGURES_H

#include "model/observe/trace.h"

/* The tensors that a delta sublayer shows, in this order: (N, R), (N, R, c) twice, and with the v-map (N, d).
 */
enum { DELTA_BETA, DELTA_READOUT, DELTA_TARGET, DELTA_Q };

extern const struct ddl_figure delta_figures[];

/* Members of struct trace_update. */
void delta_figures_add(const struct trace_row *row, double *sums, double *scratch);
void delta_figures_set(const double *sums, double rows, double c, int update, double *figures);
void delta_figures_take(const struct trace_row *row, double *scratch, float *out);

#endif
