/* The rows of a sublayer that is observed, copied to host memory, and their figures step by step. Inspection
 * copies all rows, telemetry some of them. */
#ifndef DDL_MODEL_OBSERVE_ROWS_H
#define DDL_MODEL_OBSERVE_ROWS_H

#include "base/mem.h"
#include "model/observe/figures.h"

struct ddl_rows {
    const ddl_backend *backend;
    const struct ddl_config *config;
    struct ddl_figure_table table;
    size_t all;            /* rows of a pass, at most                                               */
    size_t most;           /* rows that are copied, at most: evenly spaced ones                     */
    bool with_f;           /* whether `f` is copied                                                 */
    size_t c, most_steps;  /* channels of the state; steps R of a sublayer, at most                 */
    size_t n;              /* rows that were copied                                                 */
    float *before, *after; /* (n, d, c) the states before and after a sublayer, or of a step        */
    float *between;        /* (n, d, c) with several steps                                          */
    float *direction, *f;  /* (n, R, d) each; NULL: none                                            */
    float *direction_memory, *f_memory;
    float *numbers;                  /* of all tensors                                              */
    const float *x[DDL_MOST_TRACED]; /* tensors in it; NULL: not copied. Those of one number per token or
                                        step that have a histogram with all rows of the pass         */
    double *p, *scratch;             /* (c) twice                                                   */
    int32_t *host_index;             /* (most)                                                      */
    /* Of the backend, where not all rows are copied. */
    int32_t *index;  /* (most) the rows of a pass of `indexed` rows that are copied, evenly spaced */
    float *gathered; /* (most, widest tensor)                                                      */
    size_t indexed;
};

/* Sets the first members and measures or places the others. */
void ddl_rows_place(struct ddl_rows *rows, struct ddl_arena *arena);

/* Allocates the memory of the backend; the others are set before. Free with ddl_rows_release, also after an
 * error. */
ddl_status ddl_rows_reserve(struct ddl_rows *rows, struct ddl_error *err);
void ddl_rows_release(struct ddl_rows *rows); /* zeroed is allowed */
/* Bytes that it allocates. */
size_t ddl_rows_reserved(const struct ddl_rows *rows);

/* Copies a sublayer's state before it is computed, or its state and its tensors after. */
void ddl_rows_copy(struct ddl_rows *rows, const struct ddl_sublayer_trace *trace);
/* The number of the tensor with a histogram; trace->n without one. */
size_t ddl_rows_gate(const struct ddl_rows *rows, const struct ddl_sublayer_trace *trace);
/* The numbers of tensor i of copied row n (of row n of the pass where all are there) in step r; NULL: none.
 */
const float *ddl_rows_tensor(const struct ddl_rows *rows, const struct ddl_sublayer_trace *trace, size_t i,
                             size_t n, size_t r);
/* Whether tensor i was copied with all rows of the pass. */
bool ddl_rows_has_all(const struct ddl_traced *tensor);

/* Begins step r of the sums: what is the same for all rows. */
void ddl_rows_begin(const struct ddl_rows *rows, const struct ddl_sublayer_trace *trace,
                    struct ddl_sublayer_sums *sums);
/* Adds row n of step r to sums; k (d) gets its unit direction. Returns |X' - X| / |X|. */
double ddl_rows_add(struct ddl_rows *rows, const struct ddl_sublayer_trace *trace, size_t r, size_t n,
                    struct ddl_sublayer_sums *sums, double *k);
/* The states after step r, (n, d, c). */
const float *ddl_rows_after(const struct ddl_rows *rows, const struct ddl_sublayer_trace *trace, size_t r);
/* After all rows of step r: the states after it are those before the next. */
void ddl_rows_next(struct ddl_rows *rows, const struct ddl_sublayer_trace *trace, size_t r);

#endif
