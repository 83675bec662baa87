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
    ddl_progress_fn *progress; /* in tokens; it can end the calls that read all tokens; NULL: none         */
    void *user;                /* for progress                                                             */
    uint64_t states_every;     /* keep the states of each n-th token for ddl_inspect_save_states; 0: none  */
    bool states_counted;       /* of them only those whose target counts: not where a mask has 0           */
    const char *states_of;     /* after these sublayers: "0.attn,3.mlp"; NULL, "": after all; borrowed     */
};
/* The model's context, 16384 tokens, 256 of them with singular values. */
DDL_API struct ddl_inspect_config ddl_inspect_defaults(void);

/* What a figure is of. */
enum ddl_figure_kind {
    DDL_FIGURE_UPDATE,  /* the update: errors                                   */
    DDL_FIGURE_SIZE,    /* the update: sizes relative to the state              */
    DDL_FIGURE_OVERLAP, /* the update: overlaps of its direction, from 0 to 1   */
    DDL_FIGURE_SHRINK,  /* the update: 1 - b of a gate b, an eigenvalue         */
    DDL_FIGURE_FACTOR,  /* factors, such as parameters                          */
    DDL_FIGURE_MIXING,  /* a matrix that mixes the columns of the state         */
    DDL_FIGURE_MEAN,    /* a gate: its mean                           */
    DDL_FIGURE_Q05,     /* its 5 % quantile                           */
    DDL_FIGURE_Q25,     /* its 25 % quantile                          */
    DDL_FIGURE_Q50,     /* its median                                 */
    DDL_FIGURE_Q75,     /* its 75 % quantile                          */
    DDL_FIGURE_Q95,     /* its 95 % quantile                          */
    DDL_FIGURE_MIN,     /* its lowest value                           */
    DDL_FIGURE_MAX,     /* its highest value                          */
    DDL_FIGURE_SKIP,    /* share of values below 0.1                  */
    DDL_FIGURE_MATCH,   /* share of values from 0.9 to 1.1            */
    DDL_FIGURE_OVER,    /* share of values above 1.1                  */
    DDL_FIGURE_REFLECT, /* share of values above 1.9                  */
};

/* By enum ddl_figure_kind, ended by NULL: "update", "size", ..., as pages have them. */
DDL_API extern const char *const ddl_figure_kind_names[];

/* A figure of a sublayer's step over all rows (tokens). docs/inspect.md has the formulas. */
struct ddl_figure {
    const char *name;          /* which is its JSON key                                        */
    const char *about;         /* what it is, in a few words                                   */
    const char *title;         /* heading of its column in a table of text; NULL: in none      */
    const char *label;         /* the same in a page's table of updates; NULL: in none          */
    int digits;                /* after the point in a table                                   */
    enum ddl_figure_kind kind; /* what it is of                                                */
};
enum { DDL_MOST_FIGURES = 64 }; /* figures, at most */
/* Writes all figures to `list` (DDL_MOST_FIGURES); rules and options declare them
 * (src/model/observe/trace.h). Returns how many. */
DDL_API size_t ddl_figure_list(const struct ddl_figure **list);

/* The figures of a sublayer. */
struct ddl_inspect_figures {
    double value[DDL_MOST_FIGURES]; /* as ddl_figure_list numbers them; NAN: not one of its rule's */
};
/* The value in `figures` of the figure called `name`; NAN if there is none. */
DDL_API double ddl_inspect_figure(const struct ddl_inspect_figures *figures, const char *name);

/* A condition on the range of a sublayer's gate or factor. A list ends with a row without a text. */
struct ddl_behavior {
    double low, high; /* the range of the gate or factor lies within them */
    const char *text; /* "behaves as skip"                                 */
};

/* Means over tokens of one of a sublayer's tensors. */
struct ddl_inspect_mean {
    const char *name;     /* which is its JSON key                       */
    const char *about;    /* what it is, in a few words                  */
    const char *title;    /* in front of its numbers in a table          */
    size_t rows, columns; /* its shape; rows 0: a list of `columns` numbers */
    const double *value;  /* (rows, columns) or (columns)                */
};
enum { DDL_MOST_MEANS = 8 }; /* such tensors of a sublayer, at most */

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
    size_t n_means;            /* elements of `means`                                                  */
    struct ddl_inspect_mean means[DDL_MOST_MEANS]; /* of its other tensors, as its rule declares them   */
    const float *steps; /* (n_rows) |X' - X| / |X| of the first rows, in order                        */
    size_t n_rows;      /* at most DDL_INSPECT_EXACT                                                  */
    /* Of the gate, beta or tau; NULL without one. */
    const uint64_t *histogram; /* (DDL_INSPECT_BINS) counts; bins of equal width in [0, gate_max]    */
    double gate_max;           /* ddl_beta_max of beta, 1 of tau                                     */
    bool exact; /* whether quantiles are exact: at most DDL_INSPECT_EXACT values. Else they come
                   from a histogram of 8192 bins, with an error of at most gate_max / 8192 */
    const double *by_position; /* (seq) mean at each position of a sequence; NAN where none was read */
    const float *gates;        /* (n_rows) of the first rows, in order; of tau the mean over features */
    size_t n_extremes;         /* tokens below                                                       */
    const struct ddl_inspect_token *highest, *lowest; /* (n_extremes) the first is the most extreme         */
    const struct ddl_behavior *behaviors; /* for the range of its gate or factor; NULL: none            */
    const char *symbol;                   /* of that gate or factor: "gate", "λ"                        */
    double low, high;                     /* that range                                                 */
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
 * spectrum_tokens (0: singular values of every token) and states_every (at least 1 then, and no more tokens
 * may follow). Memory: about a megabyte per sublayer, and per pass (with S sublayers) spectrum tokens * S * d
 * floats and a few copies of the state. DDL_E_USAGE for a seq above the model's context. */
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
 * and finishes it. DDL_E_FORMAT where a token is outside the vocabulary. */
DDL_API ddl_status ddl_inspect_shards(ddl_inspection **out, ddl_model *model, const ddl_shards *shards,
                                      const struct ddl_inspect_config *config, struct ddl_error *err);
/* The same for n token ids, into *out. */
DDL_API ddl_status ddl_inspect_ids(ddl_inspection **out, ddl_model *model, const int32_t *ids, size_t n,
                                   const struct ddl_inspect_config *config, struct ddl_error *err);

/* The same for the tokens of a text (any bytes but zero; size in bytes, at least 1) after an <|endoftext|>,
 * where the tokenizer has one; into *out. */
DDL_API ddl_status ddl_inspect_text(ddl_inspection **out, ddl_model *model, const ddl_tokenizer *tokenizer,
                                    const char *text, size_t size, const struct ddl_inspect_config *config,
                                    struct ddl_error *err);

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

/* Writes the states that `in` has kept, as its configuration says, to the safetensors file `path`: for each
 * sublayer "0.attn" (tokens, d, c), and tokens, positions and index, see docs/inspect.md. */
DDL_API ddl_status ddl_inspect_save_states(const ddl_inspection *in, const char *path, struct ddl_error *err);

#ifdef __cplusplus
}
#endif
#endif
