/* A recipe: a flat YAML mapping of scalars. */
#ifndef DDL_TRAIN_RECIPE_H
#define DDL_TRAIN_RECIPE_H

#include "ddl/status.h"

#include <stddef.h>

enum { DDL_RECIPE_BYTES = 1 << 20, DDL_RECIPE_KEYS = 1024, DDL_RECIPE_VALUE = 8192 };

struct ddl_recipe_entry {
    char *key, *value;
    size_t line; /* of the key, from 1 */
};
struct ddl_recipe {
    struct ddl_recipe_entry *entries;
    size_t n, capacity;
};

/* Reads a recipe; free it after a failure too. Errors have file and line: invalid YAML, nested or missing
 * values, aliases, a second document, a duplicate key ('-' and '_' are the same), more than the sizes above.
 */
ddl_status ddl_recipe_read(struct ddl_recipe *recipe, const char *path, struct ddl_error *err);
void ddl_recipe_free(struct ddl_recipe *recipe);

/* Refuses YAML whose lists and mappings are nested more than 32 levels deep, for which libyaml takes
 * quadratic time; invalid YAML is left to the reader. */
ddl_status ddl_recipe_check_depth(const char *path, const char *text, size_t size, struct ddl_error *err);

/* The entry of the key ('-' and '_' are the same), or NULL. */
const struct ddl_recipe_entry *ddl_recipe_find(const struct ddl_recipe *recipe, const char *key);
/* Appends an entry; key and value are copied. */
ddl_status ddl_recipe_append(struct ddl_recipe *recipe, const char *key, const char *value, size_t line,
                             struct ddl_error *err);

#endif
