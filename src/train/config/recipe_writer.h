/* Writes the configuration of a run as a recipe. */
#ifndef DDL_TRAIN_RECIPE_WRITER_H
#define DDL_TRAIN_RECIPE_WRITER_H

#include "ddl/train.h"

/* Writes the recipe that gives this configuration to `path`, with relative paths relative to its folder,
 * without keys that the model's names imply, but with vocab_size, whose default depends on the tokenizer. */
ddl_status ddl_train_save_recipe(const struct ddl_train_config *config, const char *path,
                                 struct ddl_error *err);

#endif
