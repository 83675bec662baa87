/* Grafting: the residual rule of chosen layers of a trained model is replaced by another, and what the other
 * parameters hold is kept. */
#ifndef DDL_GRAFT_H
#define DDL_GRAFT_H

#include "ddl/config.h"
#include "ddl/eval.h"
#include "ddl/model.h"
#include "ddl/option.h"
#include "ddl/status.h"
#include "ddl/train.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- one graft ---- */

/* What is changed in a model. */
struct ddl_graft {
    bool layer[DDL_MAX_LAYERS]; /* the layers whose rule is replaced; none if only dense_average changes */
    int rule;                   /* enum ddl_residual: by this one                                      */
    struct ddl_config keys;     /* the source's configuration with the keys of the rule as they are to be;
                                   ddl_graft_may_set says which may differ                             */
    uint64_t seed;              /* of the new parameters' initial values                               */
};

/* Whether a graft may change the key of `row`, one of ddl_config_options: the keys of the residual rules for
 * one value channel, but not ddl_residual itself, and the options that are separate from the rules
 * (value_residual and those of dense_average). */
DDL_API bool ddl_graft_may_set(const struct ddl_option *row);
/* Whether the key of `row` is such an option, which changes without --layers. */
DDL_API bool ddl_graft_is_option(const struct ddl_option *row);
/* The row of the first such option that differs between graft->keys and `source`, or NULL. */
DDL_API const struct ddl_option *ddl_graft_changed_option(const struct ddl_config *source,
                                                          const struct ddl_graft *graft);

/* Into *out: the configuration of `source` after the graft. Keys of rules that no layer has any more return
 * to their defaults. DDL_E_USAGE if no layer is chosen and no option changes, a layer does not exist or has
 * the rule already, a layer is chosen and the source has more than one value channel (layers with rules of
 * their own have one), some layers only are chosen and all share the state of the old or the new rule, a key
 * is changed that is none of the rule's, or a key is changed that a layer which keeps its rule depends on. */
DDL_API ddl_status ddl_graft_config(struct ddl_config *out, const struct ddl_config *source,
                                    const struct ddl_graft *graft, struct ddl_error *err);

/* What was written. */
struct ddl_graft_result {
    struct ddl_config source, config;  /* before and after                                             */
    size_t n_copied, n_new, n_dropped; /* tensors                                                      */
    size_t new_numbers;                /* in the new tensors                                           */
    char new_params[4096]; /* patterns of their names, as train_only of a recipe; "" if there are none, or if
                              the list does not fit                                                    */
};

/* Writes the model of folder `from` (a model or a checkpoint) after the graft to the new folder `to`,
 * atomically: config.json, the tensors, and copies of the tokenizer's files. `to` must not exist or must be
 * an empty folder. Tensors that are not of a replaced rule keep dtype and bytes; those of the new rule are
 * float32 with the values that ddl_model_init gives a new model of this configuration, and so are the rows
 * that ddl_steps adds to the output projections of attention and MLP; those of a new option are float32 with
 * values by which it has no effect (value_residual: m = (1, 0)). Of `options` (may be NULL)
 * ignore_extra, no_verify and warn are read, as in ddl_model_load_with. */
DDL_API ddl_status ddl_graft_write(const char *from, const char *to, const struct ddl_graft *graft,
                                   const struct ddl_load_options *options, struct ddl_graft_result *result,
                                   struct ddl_error *err);

/* The loss of the model in `folder` on the data of `train`: val_data where there is some, else train_data;
 * val_tokens tokens in windows of seq, batch at a time, computed in float32 by its backend and threads.
 * DDL_E_USAGE if it has no data, DDL_E_FORMAT if the data does not fit the model's vocabulary or tokenizer.
 * progress, in tokens, may be NULL. */
DDL_API ddl_status ddl_graft_loss(const char *folder, const struct ddl_train_config *train,
                                  ddl_progress_fn *progress, void *user, struct ddl_eval_result *out,
                                  struct ddl_error *err);

/* ---- every layer in turn ---- */

/* What fine-tuning trains. */
enum ddl_graft_train {
    DDL_GRAFT_TRAIN_ALL, /* every parameter          */
    DDL_GRAFT_TRAIN_NEW, /* those of the new rule    */
};
/* "all", "new", NULL: choices for a struct ddl_option. */
DDL_API extern const char *const ddl_graft_train_names[];

/* A sweep. */
struct ddl_graft_sweep {
    const char *source;          /* a model folder or a checkpoint                                    */
    const char *out;             /* folder of the sweep's results                                     */
    struct ddl_graft graft;      /* each of its layers is grafted alone                               */
    int train;                   /* enum ddl_graft_train                                              */
    struct ddl_train_config run; /* fine-tuning: data, steps, optimizer, machine, seed; val_data and
                                    val_tokens as for ddl_graft_loss. Keys of the model, of the output and
                                    of validation, tasks and samples during the run are not read         */
    bool ignore_extra;           /* as for ddl_graft_write                                            */
    bool keep_models;            /* keep the grafted and the fine-tuned models                        */
};

/* One layer's result. */
struct ddl_graft_row {
    bool grafted;         /* false: the source without a graft, fine-tuned in the same way; layer is 0    */
    size_t layer;         /* from 0                                                                       */
    const char *rule_was; /* name of the layer's rule in the source; static                               */
    double loss;          /* right after the graft; NAN: not finite                                       */
    double tuned_loss;    /* after fine-tuning; NAN: not finite, or the run diverged                      */
    double seconds;       /* of fine-tuning                                                               */
};
/* All of them. */
struct ddl_graft_table {
    struct ddl_graft_row *rows; /* (n) by tuned_loss, the lowest first; free with free */
    size_t n, n_total;          /* finished, of all                                    */
    double source_loss;         /* of the source as it is                              */
    uint64_t tokens;            /* scored in each evaluation                           */
};

/* Both may be NULL; they are called from the caller's thread with `user`. */
struct ddl_graft_callbacks {
    void *user;
    ddl_warn_fn *note; /* one message: a run that diverged */
    /* Tokens processed, of all; what: "layer 3: fine-tuning". A nonzero return value ends the sweep with
     * DDL_E_INTERRUPTED: the running fine-tuning writes a checkpoint. */
    int (*progress)(void *user, const char *what, uint64_t done, uint64_t total);
};

/* For each chosen layer: grafts it alone (options that are separate from the rules cannot change), measures
 * the loss, fine-tunes for run.steps steps, and measures the loss again. With DDL_GRAFT_TRAIN_ALL the source
 * is fine-tuned too, as the control; with DDL_GRAFT_TRAIN_NEW it has nothing to train. A layer's result is
 * kept in `out`, so that a sweep that was interrupted continues with the next layer; DDL_E_USAGE if `out` has
 * a sweep of other settings, or if a layer cannot be grafted alone. A run that diverges is noted, and the
 * sweep continues. *table has the finished rows, also after an error; free table->rows. callbacks may be
 * NULL. */
DDL_API ddl_status ddl_graft_sweep(const struct ddl_graft_sweep *sweep,
                                   const struct ddl_graft_callbacks *callbacks, struct ddl_graft_table *table,
                                   struct ddl_error *err);

#ifdef __cplusplus
}
#endif
#endif
