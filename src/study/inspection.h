/* What an inspection accumulates. */
#ifndef DDL_STUDY_INSPECTION_H
#define DDL_STUDY_INSPECTION_H

#include "ddl/inspect.h"
#include "model/observe/rows.h"

/* The tokens with the most extreme gates so far, the most extreme first. */
struct extremes {
    size_t n;
    struct ddl_inspect_token token[DDL_INSPECT_EXTREMES];
};

/* Sums over the rows of one step of a sublayer. */
struct sublayer_sums {
    struct ddl_sublayer_sums figures;
    size_t gate_width;
    float *gate_means;        /* (DDL_INSPECT_EXACT) of the first rows, for gate_width > 1; else NULL */
    float *steps;             /* (DDL_INSPECT_EXACT) |X' - X| / |X| of the first rows */
    double *position_sum;     /* (seq)  */
    uint64_t *position_count; /* (seq)  */
    /* (2, 2, inspection_means of the sublayer): sums, then means; of the numbers of tensors, then of the
     * products of matrices. */
    double *means;
    struct extremes highest, lowest;
};

/* The states after sublayers for the tokens that config.states_every and states_counted choose. */
struct saved_states {
    size_t *slot;                    /* (sublayers) its number among the chosen; SIZE_MAX: not chosen */
    size_t n, tokens_most, n_tokens; /* sublayers chosen; tokens, at most and so far */
    float *states;                   /* (n, tokens_most, d, c) */
    int64_t *tokens, *positions,
        *index; /* (tokens_most) id, position in its sequence, number from the first */
};

struct ddl_inspection {
    ddl_model *model;
    const struct ddl_config *k;
    ddl_workspace *ws;
    struct ddl_inspect_config config; /* seq and batch with their defaults resolved */
    size_t n_sublayers, n_delta;      /* of the model: steps of all sublayers, and of delta sublayers */
    size_t c;                         /* channels of the state */
    uint64_t every;                   /* singular values of every `every`-th row; 0: of none */
    struct sublayer_sums *sums;       /* (n_sublayers) */
    struct ddl_loss loss;
    int32_t *first_tokens;         /* (DDL_INSPECT_EXACT) of the first rows */
    uint64_t rows;                 /* of the passes before the present one */
    uint64_t total;                /* that will follow; 0: unknown         */
    double log_det;                /* sum over rows and delta steps */
    double *sigma_max, *sigma_min; /* (n_delta) sums over the sampled tokens */
    uint64_t n_spectrum;

    /* The present pass. Copies in host memory. */
    const struct ddl_batch *batch;
    bool out_of_memory;
    struct ddl_rows copies; /* of the sublayer that is observed */
    void *copies_memory;
    double *product;                   /* (N, c, c) of the mixing matrices so far                       */
    bool has_product;                  /* whether a sublayer of this pass had such a matrix             */
    double *k_now, *k_last;            /* (N, d) each                                                   */
    size_t at;                         /* which sublayer is next                        */
    struct sublayer_sums *last;        /* the delta step before; NULL for the first     */
    size_t delta_at;                   /* which delta step it is                        */
    float *spectrum_k, *spectrum_beta; /* (sampled rows of a pass, n_delta, d), (.., n_delta) */
    double *spectrum_scratch;          /* spectrum_scratch(), and 2 n_delta singular values of a token */

    /* Results. */
    struct ddl_inspect_sublayer *result; /* (n_sublayers) */
    double *channel_rms;                 /* (n_sublayers, c)   */
    double *by_position;                 /* (n_sublayers, seq) */
    struct ddl_inspect_depth depth;
    struct saved_states saved;
};

/* Allocates the memory of the states that config requests, of `total` tokens; nothing if it requests none.
 * Free with saved_states_free, also after an error. */
ddl_status saved_states_create(struct ddl_inspection *in, uint64_t total, struct ddl_error *err);
void saved_states_free(struct saved_states *saved);
/* Keeps the states of a pass after the sublayer, if it is chosen. */
void saved_states_add(struct ddl_inspection *in, const struct ddl_sublayer_trace *trace);
/* Keeps the tokens of the pass; in->rows is still that before it. */
void saved_states_end_pass(struct ddl_inspection *in);

/* Numbers of the tensors of a sublayer of which means are taken. */
size_t inspection_means(const struct ddl_config *config, size_t layer, int sub);
/* A ddl_sublayer_fn; user: the inspection. */
void inspection_observe(void *user, const struct ddl_sublayer_trace *trace);
/* How many of the rows [first, first + n) have singular values. */
size_t inspection_sampled(const struct ddl_inspection *in, uint64_t first, size_t n);

#endif
