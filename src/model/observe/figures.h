/* The figures of a sublayer's step (docs/inspect.md): their table, and their values from sums over rows. The
 * rows are in host memory (what ddl_figures_set_factors reads is not); sums are double. */
#ifndef DDL_MODEL_FIGURES_H
#define DDL_MODEL_FIGURES_H

#include "base/distribution.h"
#include "ddl/inspect.h"
#include "model/observe/probe.h"

/* Sums over the rows of one step of a sublayer. Zeroed, with ddl_figures_begin, is a valid start. */
struct ddl_sublayer_sums {
    uint64_t rows;
    bool is_delta;
    int update;                                              /* enum ddl_update                        */
    double pre2, post2, identity2;                           /* sums of squares over rows and channels */
    double erase, write, step, overlap_stream, overlap_next; /* sums over rows                         */
    uint64_t next_rows;                                      /* of overlap_next                        */
    double eigenvalue;
    double lambda_mean, lambda_min, lambda_max; /* NAN without */
    double mix_f, mix_x;                        /* NAN without */
    double values_own, values_first;            /* NAN without */
    double *channel2;                           /* (c) sums of squares of X'                           */
    uint64_t mixing_rows, product_rows;         /* of the sums below; 0: none                          */
    double mix_diagonal, mix_row, mix_column, product_row, product_column;
    bool has_gate;
    struct ddl_distribution gate; /* initialized by the caller where has_gate is set */
};

/* A row (token) of a sublayer's step. */
struct ddl_sublayer_row {
    size_t d, c;
    size_t stride_d, stride_c;   /* from feature to feature of X and X', and from channel to channel   */
    const float *before, *after; /* (d, c) X and X', with these strides                                 */
    const float *direction;      /* (d) as in struct ddl_sublayer_step; NULL: F's output is X' - X      */
    const float *target;         /* (c) v; NULL: not a delta step                                      */
    const float *mixing;         /* (c (c + 2)) as in struct ddl_sublayer_step; NULL: none             */
    float k_eps, beta;
};
/* The strides of a state (d, c), or (c, d) if by_column. */
void ddl_figures_set_strides(struct ddl_sublayer_row *row, bool by_column);

/* Adds a matrix (c, c) that mixes streams to sums: the largest |row sum|, to *row, and the largest |column
 * sum|, to *column. */
void ddl_figures_add_gains(size_t c, const double *M, double *row, double *column);

/* Removes all rows; channel2 and the memory of the gate stay. */
void ddl_figures_begin(struct ddl_sublayer_sums *sums, size_t c);
/* out (d, c): the state after the delta step of the row, whose `after` is not read. A pass does not keep the
 * states between the steps of a sublayer. k (d) gets the unit direction; scratch: c. */
void ddl_figures_take_step(const struct ddl_sublayer_row *row, int update, double *k, double *scratch,
                           float *out);
/* Adds a row. k (d) gets its unit direction; scratch: 2 c. Returns |X' - X| / |X|. */
double ddl_figures_add(struct ddl_sublayer_sums *sums, const struct ddl_sublayer_row *row, double *k,
                       double *scratch);
/* Sets the figures of lambda (width). */
void ddl_figures_set_lambda(struct ddl_sublayer_sums *sums, size_t width, const float *lambda);
/* Sets the figures of the factors that the step has, which are in the backend's memory: m = 2 softmax(mix),
 * and those of attention's values. */
void ddl_figures_set_factors(struct ddl_sublayer_sums *sums, const ddl_backend *backend,
                             const struct ddl_sublayer_step *step);
/* The figures of at least one row of c channels. false: out of memory for exact quantiles. */
bool ddl_figures_of(const struct ddl_sublayer_sums *sums, size_t c, struct ddl_inspect_figures *out);

#endif
