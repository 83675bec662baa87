/* Diagnostics of a running model: what each sublayer does to the residual stream, over many tokens
 * (docs/inspect.md has the formulas). */
#ifndef DDL_INSPECT_H
#define DDL_INSPECT_H

#include "ddl/data.h"
#include "ddl/force.h"
#include "ddl/model.h"
#include "ddl/status.h"
#include "ddl/tokenizer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Sizes of what is kept of a sublayer. */
enum {
    DDL_INSPECT_BINS = 40,     /* of a histogram                                                        */
    DDL_INSPECT_EXACT = 65536, /* values of which quantiles are exact; beyond, see struct ddl_inspect_gate */
    DDL_INSPECT_EXTREMES = 5,  /* tokens with the highest gates, and with the lowest                    */
    DDL_INSPECT_BEFORE = 8,    /* tokens of context before such a token                                 */
    DDL_INSPECT_AFTER = 3,     /* and after it                                                          */
};

/* What is read, and how. */
struct ddl_inspect_config {
    size_t seq;               /* tokens of a sequence; 0: the model's context                             */
    size_t batch;             /* sequences of a pass; 0: as many as have 2048 tokens, at least 1          */
    uint64_t max_tokens;      /* rounded up to whole sequences; 0: all                                    */
    uint64_t spectrum_tokens; /* singular values are computed for at least this many tokens, evenly spaced, or
                                 for all if there are fewer                                               */
};
/* The model's context, 16384 tokens, 256 of them with singular values. */
DDL_API struct ddl_inspect_config ddl_inspect_defaults(void);

/* A sublayer's step over all rows (tokens). NAN: does not apply to its residual rule. For a direction q of
 * the delta rule k = q / sqrt(|q|^2 + eps^2); for the others q is F's output and k = q / |q|. */
struct ddl_inspect_figures {
    double beta_mean, beta_q05, beta_q25, beta_q50, beta_q75, beta_q95, beta_min, beta_max; /* of the gate */
    double skip, match, over, reflect; /* shares of beta < 0.1; in [0.9, 1.1]; > 1.1; > 1.9              */
    double eigenvalue_mean;            /* of 1 - beta |k|^2, the shortcut's eigenvalue that is not 1      */
    double e_pre_rms, e_post_rms;      /* root mean square of k^T X - v, and of k^T X' - v                */
    double e_identity;   /* rms of e_post - (1 - beta |k|^2) e_pre, divided by e_pre_rms; delta update only */
    double erase, write; /* means of beta |k| |p| / |X| and beta |k| |v| / |X|, p = k^T X                 */
    double step;         /* mean of |X' - X| / |X|                                                      */
    double overlap_stream; /* mean of |p| / |X|                                                           */
    double overlap_next;   /* mean of |k_s . k_s+1|, the next delta sublayer's; NAN for the last           */
    double lambda_mean, lambda_min, lambda_max;                   /* rule scale: the parameter       */
    double tau_mean, tau_q05, tau_q50, tau_q95, tau_min, tau_max; /* rule highway: its gate          */
    double mix_diagonal, mix_row, mix_column; /* streams: of the mixing matrix M, means of M_kk, and of the
                                                 largest |sum| of a row, and of a column                */
    double product_row, product_column;       /* the last two of the product of all M up to this one   */
    double values_own, values_first; /* value_residual: factors of a layer's values and those of layer 0 */
    double mix_f, mix_x; /* rule laurel: its factors of F's output and of the stream                  */
};
/* A row of the table of figures. */
struct ddl_inspect_row {
    const char *name;  /* which is its JSON key                   */
    const char *about; /* what it is, in a few words              */
    size_t offset;     /* in struct ddl_inspect_figures, a double */
};
/* All figures, ended by a row without a name. */
DDL_API const struct ddl_inspect_row *ddl_inspect_rows(void);
DDL_API double ddl_inspect_figure(const struct ddl_inspect_figures *figures,
                                  const struct ddl_inspect_row *row); /* the value of `row` in figures */

/* A token and its gate. */
struct ddl_inspect_token {
    double beta;     /* or tau, its mean over features                       */
    uint64_t index;  /* of the token among all that were read, from 0 */
    size_t position; /* in its sequence, from 0                       */
    size_t n, at;    /* tokens below, and which of them it is         */
    int32_t tokens[DDL_INSPECT_BEFORE + 1 + DDL_INSPECT_AFTER];
};

/* A sublayer, or one of its steps with ddl_steps. Arrays are owned by the inspection. */
struct ddl_inspect_sublayer {
    size_t layer;                       /* from 0                                      */
    int sub;                            /* enum ddl_sublayer                           */
    size_t step, n_steps;               /* which of the sublayer's steps, from 0; 1 or ddl_steps */
    const char *rule;                   /* name of its residual rule: "delta"          */
    bool is_delta;                      /* its rule is delta: direction and target     */
    int update;                         /* enum ddl_update, of delta sublayers         */
    struct ddl_inspect_figures figures; /* over all rows */
    /* Of the product of the shortcuts of all delta steps up to this one, on the span of their k_s: means
     * over tokens of the extreme singular values. NAN without the delta rule, or without such tokens. */
    double sigma_max;          /* mean of the largest singular value                                        */
    double sigma_min;          /* mean of the smallest                                                      */
    const double *channel_rms; /* (c) root mean square of each value channel, or stream, of X'              */
    const double *mix_read, *mix_write;   /* (c) of c streams, means over tokens: weights by which they are
                                             read,   and F's output is written; NULL for other rules   */
    const double *mix_mean, *mix_product; /* (c, c) the mixing matrix; the product of those up to this one */
    const float *steps; /* (n_rows) |X' - X| / |X| of the first rows, in order                        */
    size_t n_rows;      /* at most DDL_INSPECT_EXACT                                                  */
    /* Of the gate, beta or tau; NULL without one. */
    const uint64_t *histogram; /* (DDL_INSPECT_BINS) counts; bins of equal width in [0, gate_max]    */
    double gate_max;           /* 2 of beta, 1 of tau                                                */
    bool exact; /* whether quantiles are exact: at most DDL_INSPECT_EXACT values. Else they come
                   from a histogram of 8192 bins, with an error of at most gate_max / 8192 */
    const double *by_position; /* (seq) mean at each position of a sequence; NAN where none was read */
    const float *gates;        /* (n_rows) of the first rows, in order; of tau the mean over features */
    size_t n_extremes;         /* tokens below                                                       */
    const struct ddl_inspect_token *highest, *lowest; /* (n_extremes) the first is the most extreme         */
};

/* Over depth, by token: A_s = I - beta_s k_s k_s^T of all delta steps, in order. */
struct ddl_inspect_depth {
    double sigma_max; /* mean of the largest singular value of A_S ... A_1 on the span of the k_s  */
    double sigma_min; /* mean of the smallest                                                      */
    double log_det;   /* mean of the sum of log |1 - beta_s|; -INFINITY where a beta is 1          */
    uint64_t tokens;  /* of sigma_max and sigma_min                                                */
};

/* An inspection of a model, which is borrowed. */
typedef struct ddl_inspection ddl_inspection;

/* Creates an inspection in *out. `config` is copied. `total`: how many tokens will follow, for
 * spectrum_tokens; 0: every token. Memory: about a megabyte per sublayer, and per pass (with S sublayers)
 * spectrum tokens * S * d floats and a few copies of the state. DDL_E_USAGE for a seq above the model's
 * context. */
DDL_API ddl_status ddl_inspect_create(ddl_inspection **out, ddl_model *model,
                                      const struct ddl_inspect_config *config, uint64_t total,
                                      struct ddl_error *err);
/* Releases an inspection; NULL is allowed. */
DDL_API void ddl_inspect_free(ddl_inspection *inspection);

/* Adds the tokens of a batch to the inspection, within seq and batch of its config: one forward pass, with
 * forced updates as the model has them. The batch needs targets (all -1 if no loss is wanted). */
DDL_API ddl_status ddl_inspect_batch(ddl_inspection *inspection, const struct ddl_batch *batch,
                                     struct ddl_error *err);
/* Creates in *out an inspection of the shards' first max_tokens tokens, rounded up to whole sequences of seq,
 * and finishes it. DDL_E_FORMAT where a token is outside the vocabulary. progress, in tokens, may be NULL. */
DDL_API ddl_status ddl_inspect_shards(ddl_inspection **out, ddl_model *model, const ddl_shards *shards,
                                      const struct ddl_inspect_config *config, ddl_progress_fn *progress,
                                      void *user, struct ddl_error *err);
/* The same for n token ids, into *out; progress may be NULL. */
DDL_API ddl_status ddl_inspect_ids(ddl_inspection **out, ddl_model *model, const int32_t *ids, size_t n,
                                   const struct ddl_inspect_config *config, ddl_progress_fn *progress,
                                   void *user, struct ddl_error *err);

/* The same for the tokens of a text (any bytes but zero; size in bytes, at least 1) after an <|endoftext|>,
 * where the tokenizer has one; into *out. progress may be NULL. */
DDL_API ddl_status ddl_inspect_text(ddl_inspection **out, ddl_model *model, const ddl_tokenizer *tokenizer,
                                    const char *text, size_t size, const struct ddl_inspect_config *config,
                                    ddl_progress_fn *progress, void *user, struct ddl_error *err);

/* Computes the results below from all batches of the inspection so far. DDL_E_USAGE before the first batch.
 */
DDL_API ddl_status ddl_inspect_finish(ddl_inspection *inspection, struct ddl_error *err);
/* How many sublayers the model of the inspection has: two a layer; a sublayer with several steps counts as
 * that many. */
DDL_API size_t ddl_inspect_n_sublayers(const ddl_inspection *inspection);
/* Sublayer s, attention before MLP, layer by layer, and the steps of a sublayer in order; owned by the
 * inspection. */
DDL_API const struct ddl_inspect_sublayer *ddl_inspect_sublayer(const ddl_inspection *inspection, size_t s);
/* The figures over depth, owned by the inspection; NULL without delta sublayers. */
DDL_API const struct ddl_inspect_depth *ddl_inspect_depth(const ddl_inspection *inspection);
/* The loss over all batches of the inspection. */
DDL_API struct ddl_loss ddl_inspect_loss(const ddl_inspection *inspection);
/* The tokens that the inspection has read. */
DDL_API uint64_t ddl_inspect_tokens(const ddl_inspection *inspection);
/* The first tokens that the inspection has read, in order: as many as n_rows of a sublayer; owned by it. */
DDL_API const int32_t *ddl_inspect_first_tokens(const ddl_inspection *inspection);
/* The longest sequence of the inspection: seq of its config with the default resolved. */
DDL_API size_t ddl_inspect_seq(const ddl_inspection *inspection);

/* What the thresholds of docs/inspect.md say of a sublayer, as a short text ("skip: ..."); "" if nothing.
 * Written to `out`, truncated to size. */
DDL_API void ddl_inspect_behavior(const struct ddl_inspect_sublayer *sublayer, char *out, size_t size);

/* Freezes the gate of sublayer s of `model` (two a layer, attention before MLP) at the mean that the
 * inspection found, with several steps the mean over all of them: ddl_model_force with `force`, whose beta is
 * set. */
DDL_API ddl_status ddl_inspect_freeze(const ddl_inspection *inspection, ddl_model *model, size_t s,
                                      struct ddl_force force, struct ddl_error *err);

#ifdef __cplusplus
}
#endif
#endif
