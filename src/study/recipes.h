/* The recipes of two runs, compared key by key. */
#ifndef DDL_STUDY_RECIPES_H
#define DDL_STUDY_RECIPES_H

#include "ddl/train.h"

#include <stdbool.h>

/* A value of a recipe as text: paths are absolute, and val_data "auto" is train_data. */
enum { RECIPE_VALUE_SIZE = 8192 };

/* Into out[size]: the value of an option of ddl_train_options or ddl_config_options, truncated. */
void recipe_value(const struct ddl_option *row, const struct ddl_train_config *recipe, char *out,
                  size_t size);

struct recipe_difference {
    const char *key;
    char a[RECIPE_VALUE_SIZE], b[RECIPE_VALUE_SIZE];
};

/* Into *out: the first of the keys that decide what the losses are of, train_data, seq and vocab_size, and if
 * `validated` val_data and val_tokens, whose values differ; false if none does. */
bool recipes_differ_in_data(const struct ddl_train_config *a, const struct ddl_train_config *b,
                            bool validated, struct recipe_difference *out);
/* Whether the recipes have the same value for every key that changes what is computed, other than seed. */
bool recipes_are_replicates(const struct ddl_train_config *a, const struct ddl_train_config *b);
enum { RECIPES_MAX_ALSO = 64 };
/* Into *out: the first key that a sweep sets whose values differ; false if none does. Not compared are the
 * keys that depend on the machine or that a run replaces by what it used: out, threads, init_which; nor those
 * of also[n], at most RECIPES_MAX_ALSO. */
bool recipes_differ(const struct ddl_train_config *a, const struct ddl_train_config *b,
                    const char *const *also, size_t n, struct recipe_difference *out);

#endif
