/* What a residual rule, or an option that any rule may have, shows of a sublayer: tables of tensors and of
 * figures. The probe, inspection, telemetry, their JSON, tables and pages walk these tables; none of them
 * knows a rule. docs/inspect.md has the formulas of the figures. */
#ifndef DDL_MODEL_OBSERVE_TRACE_H
#define DDL_MODEL_OBSERVE_TRACE_H

#include "ddl/inspect.h"

struct sublayer;
struct ddl_sublayer_trace;

/* Tensors of a sublayer, at most, those of options included. */
enum { DDL_MOST_TRACED = 12 };

/* How a tensor is summarized over tokens, besides the figures that `derive` computes. */
enum trace_summary {
    TRACE_NOTHING,
    TRACE_HISTOGRAM, /* numbers in [0, top]: their distribution, their mean by position, the tokens with the
                        highest and the lowest; at most one tensor of a sublayer                         */
    TRACE_MEAN,      /* the mean of each number                                                           */
    TRACE_MIXING,    /* the same for a matrix (c, c) that mixes the c columns of the state: X' = M X; its
                        figures are the means of M_kk and of the largest |sum| of a row and of a column, and
                        the last two of the product of all such matrices up to this sublayer; at most one  */
};

enum trace_extent {
    TRACE_TOKENS,    /* (N, width)                            */
    TRACE_STEPS,     /* (N, R, width), R steps of a sublayer  */
    TRACE_PARAMETER, /* (width), the same for all tokens      */
};

/* A tensor. Lists end with one without a name. */
struct trace_tensor {
    const char *name;  /* the probe's; of MEAN and MIXING the JSON key of the means */
    const char *about; /* its meaning; of MEAN and MIXING a heading                 */
    const char *title; /* MEAN: in front of its numbers in a table                  */
    enum trace_extent extent;
    enum trace_summary summary;
    bool is_used; /* read by the rule's struct trace_update, or through parts */
    /* Numbers of a token (of a step of it, of the parameter) in a sublayer of this layer. NULL: 1. */
    size_t (*width)(const struct ddl_config *config, size_t layer, int sub);
    /* Where they are, in the backend's memory, once the sublayer is computed. NULL returned: it does not
     * apply to this pass. NULL: numbers [offset, offset + width) of each token of the tensor before it in
     * the list that has memory of its own. */
    const float *(*data)(const struct sublayer *s);
    size_t (*offset)(const struct ddl_config *config);
    double (*top)(const struct ddl_config *config); /* HISTOGRAM                                  */
    const char *product;                            /* MIXING: JSON key of the product's means     */
    const struct ddl_figure *figures;               /* NULL: none; else ended by one without a name */
    /* The figures from the numbers of a token, of which the mean is taken, or from the parameter. NULL: they
     * follow from `summary`. */
    void (*derive)(size_t width, const float *x, double *figures);
    const struct ddl_behavior *behaviors; /* what its range says of the sublayer; NULL: nothing   */
    const char *symbol;                   /* with behaviors: what messages call it                */
    size_t range[2]; /* with behaviors: which of its figures are the lower and the upper limit    */
};

/* A step of a token, in host memory. */
struct trace_row {
    size_t d, c;
    size_t stride_d, stride_c;       /* from feature to feature of X and X', and from channel to channel */
    const float *before, *after;     /* (d, c) X and X', with these strides                              */
    const float *direction;          /* (d) q, before normalization; NULL: it is X' - X                   */
    double k_eps;                    /* k = q / sqrt(|q|^2 + k_eps^2)                                     */
    int update;                      /* enum ddl_update, of a struct trace_update                         */
    const float *x[DDL_MOST_TRACED]; /* its numbers of each tensor of the rule's list; NULL: none     */
    /* Computed from the above. */
    const double *k;           /* (d)                        */
    double length;             /* |k|                        */
    const double *p;           /* (c) k^T X                  */
    double p_length, x_length; /* |p|, |X|                  */
};

enum { TRACE_UPDATE_SUMS = 8 };

/* An update X' = (I - b k k^T) X + k w^T with a gate b of each token: what is computed of each step, and of
 * the product of the shortcuts I - b k k^T of all such steps. */
struct trace_update {
    /* Ended by one without a name; the shared figures (below) among them are computed by the caller. */
    const struct ddl_figure *figures;
    size_t direction; /* number in the list of the tensor q; where it does not apply, q is F's output */
    size_t gate;      /* number in the list of the tensor b                                           */
    float (*k_eps)(const struct ddl_config *config);
    int (*update)(const struct sublayer *s); /* enum ddl_update, as forced */
    /* Adds a row to sums (TRACE_UPDATE_SUMS), zero at first; scratch (c). */
    void (*add)(const struct trace_row *row, double *sums, double *scratch);
    /* The figures from the sums over `rows` rows, in their order; those left alone are NAN. */
    void (*set)(const double *sums, double rows, double c, int update, double *figures);
    /* out (d, c): the state after the step, from X, k and p; scratch (c). For rules with several steps. */
    void (*take)(const struct trace_row *row, double *scratch, float *out);
};

/* A tensor of a sublayer that was just computed. */
struct ddl_traced {
    const struct trace_tensor *of;
    size_t width;
    const float *x;      /* memory of the backend; NULL: it does not apply, or is a part of another */
    size_t part, offset; /* of tensor number `part`, from number `offset` of each token; itself and 0 if it
                            has memory of its own                                                   */
};

/* All figures that rules and options declare, and the shared ones: each once, rule by rule. */
struct ddl_figure_table {
    size_t n;
    const struct ddl_figure *row[DDL_MOST_FIGURES];
};
void ddl_figure_table_init(struct ddl_figure_table *table);
/* The number of a figure; table->n if there is none. */
size_t ddl_figure_find(const struct ddl_figure_table *table, const char *name);

/* The figures of any update, from X, X' and k. A struct trace_update may have them among its own, for their
 * place in the table: step, overlap_stream, overlap_next. */
#define DDL_FIGURE_ROW_STEP                                                                                  \
    {                                                                                                        \
        "step", "mean of ‖X′ − X‖ / ‖X‖", "step", "step", 3, DDL_FIGURE_SIZE                                 \
    }
#define DDL_FIGURE_ROW_STREAM                                                                                \
    {                                                                                                        \
        "overlap_stream", "mean of ‖p‖ / ‖X‖", "stream", "k with stream", 3, DDL_FIGURE_OVERLAP              \
    }

/* a / b; 0 / 0 is 0. trace_row.c, as the two below. */
double trace_ratio(double a, double b);
/* out (c) = k^T X of one of the states of a row; returns its length. */
double trace_row_read(const struct trace_row *row, const float *X, double *out);
/* Sets what is computed of a row: k (d), p (c). */
void trace_row_set(struct trace_row *row, double *k, double *p);

/* The tensors of the rule of a layer, then those of options: number i of a sublayer, or NULL. */
const struct trace_tensor *trace_tensor_at(const struct ddl_config *config, size_t layer, size_t i);
/* Its numbers in a sublayer (struct trace_tensor, width). */
size_t trace_width(const struct trace_tensor *of, const struct ddl_config *config, size_t layer, int sub);
/* Whether the rule of a layer has a struct trace_update. */
bool trace_has_update(const struct ddl_config *config, size_t layer);
/* Sets the members of *out that describe a sublayer which was just computed, from f on. s->stream and
 * s->scratch are not used. */
void trace_collect(const struct sublayer *s, struct ddl_sublayer_trace *out);

#endif
