/* The configuration of a run from recipes and flags. */
#ifndef DDL_TRAIN_CONFIGURE_H
#define DDL_TRAIN_CONFIGURE_H

#include "ddl/train.h"
#include "train/config/recipe.h"

/* The configuration that the names alone (model, size, init_from) give. */
ddl_status ddl_train_named_config(const struct ddl_train_config *t, struct ddl_config *out,
                                  struct ddl_error *err);

/* The key of a recipe that lists the keys whose values were computed. */
extern const char ddl_computed_key[];

/* Keys of a recipe from one file. */
struct ddl_train_layer {
    const char *path; /* of the file, for messages */
    const struct ddl_recipe *recipe;
    bool relative; /* relative paths are relative to the folder of `path`, as with the key relative_to */
};
/* As ddl_train_configure, from n recipes in place of a recipe and flags: a later layer overrides the ones
 * before, as flags override a recipe. */
ddl_status ddl_train_configure_layers(struct ddl_train_config *out, const struct ddl_train_layer *layers,
                                      size_t n, struct ddl_error *err);

#endif
