/* The figures of a sublayer's step (docs/inspect.md): sums over rows, and values. Rows are in host memory,
 * sums are double. */
#ifndef DDL_MODEL_OBSERVE_FIGURES_H
#define DDL_MODEL_OBSERVE_FIGURES_H

#include "base/distribution.h"
#include "ddl/inspect.h"
#include "model/observe/probe.h"

/* Sums over the rows of one step of a sublayer. Zeroed, with ddl_figures_begin, is a valid start. */
struct ddl_sublayer_sums {
    uint64_t rows;
    const struct trace_update *update; /* of the rule; NULL: none              */
    int kind;                          /* with `update`: enum ddl_update       */
    double step, overlap_stream;       /* sums over rows                       */
    double overlap_next;               /* over next_rows                       */
    uint64_t next_rows;
    double of_update[TRACE_UPDATE_SUMS];
    double *channel2;                       /* (c) sums of squares of X'                             */
    double figure[DDL_MOST_FIGURES];        /* of the others, by number in the table of figures      */
    uint64_t figure_rows[DDL_MOST_FIGURES]; /* over as many rows; 0: the sublayer does not have it */
    const struct trace_tensor *gate;        /* whose distribution is `values`; NULL: none                */
    struct ddl_distribution values;         /* initialized by the caller where `gate` is set             */
    const struct trace_tensor *range;       /* whose figures have `behaviors`; NULL: none               */
};

/* Removes all rows; channel2 and the memory of the distribution stay. */
void ddl_figures_begin(struct ddl_sublayer_sums *sums, size_t c);
/* Adds a row. Returns |X' - X| / |X|. scratch: c. */
double ddl_figures_add(struct ddl_sublayer_sums *sums, const struct trace_row *row, double *scratch);
/* Adds what a tensor declares of one row; of a parameter it is set instead. x (width), or of a mixing matrix
 * (c, c). */
void ddl_figures_add_tensor(struct ddl_sublayer_sums *sums, const struct ddl_figure_table *table,
                            const struct ddl_traced *tensor, size_t c, const float *x);
/* Adds the product (c, c) of a row's mixing matrices up to this sublayer. */
void ddl_figures_add_product(struct ddl_sublayer_sums *sums, const struct ddl_figure_table *table,
                             const struct trace_tensor *of, size_t c, const double *P);
/* The figures of at least one row of c channels. false: out of memory for exact quantiles. */
bool ddl_figures_of(const struct ddl_sublayer_sums *sums, const struct ddl_figure_table *table, size_t c,
                    struct ddl_inspect_figures *out);

#endif
