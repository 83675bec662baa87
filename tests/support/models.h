/* Models that are small and of odd sizes, one of each kind, for laws of the whole model. */
#ifndef DDL_TEST_MODELS_H
#define DDL_TEST_MODELS_H

#include "support/support.h"

#include "ddl/model.h"

struct small_variant {
    const char *name, *preset;
    void (*change)(struct ddl_config *k); /* NULL: the preset as it is */
};
enum { SMALL_VARIANTS = 54, SMALL_B = 2, SMALL_T = 9 };
extern const struct small_variant small_variants[]; /* (SMALL_VARIANTS) */

/* Precisions that every backend has. */
enum { TEST_PRECISIONS = 3 };
extern const enum ddl_precision test_precisions[TEST_PRECISIONS];

struct ddl_config small_config(const char *preset);
struct ddl_config variant_config(const struct small_variant *variant);

/* A model with gradients, its workspace for training, and a batch with ignored targets. */
struct small_model {
    ddl_backend *backend;
    ddl_model *model;
    ddl_workspace *ws;
    int32_t tokens[SMALL_B * SMALL_T], targets[SMALL_B * SMALL_T];
    struct ddl_batch batch;
};
void small_model_make(struct small_model *f, const char *backend, const struct ddl_config *config,
                      enum ddl_precision precision);
void small_model_free(struct small_model *f);
/* The batch's mean loss. */
double small_mean_loss(struct small_model *f);

/* Every model of tests/golden, with gradients, and its batch; all borrowed. */
typedef void golden_fn(const char *name, ddl_model *model, const struct ddl_batch *batch);
void on_every_golden_model(ddl_backend *backend, golden_fn *fn);

/* The row of the parameter of that name, which there is. */
size_t param_row(const ddl_model *model, const char *name);
/* Parameter i: numbers [from, to) times `factor`, then plus `more`. */
void change_param(ddl_model *model, size_t i, size_t from, size_t to, float factor, float more);

/* Gradients of all parameters, one after the other; free with free. */
float *all_gradients(const ddl_model *model);

#endif
