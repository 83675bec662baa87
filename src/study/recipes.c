#include "study/recipes.h"

#include "base/path.h"
#include "ddl/config.h"

#include <stdio.h>
#include <string.h>

/* Keys that are not compared: `config` has what model, size and the tokenizer stand for, the others do not
 * change the parameters that a run ends with. */
static const char *const not_compared[] = {
    "model",
    "match_parameters",
    "match_flops",
    "size",
    "ignore_extra",
    "verify",
    "format",
    "tokenizer",
    "out",
    "recompute",
    "seed",
    "log_every",
    "val_every",
    "sample_every",
    "sample_prompt",
    "sample_tokens",
    "tasks",
    "tasks_data",
    "tasks_every",
    "tasks_limit",
    "tasks_shots",
    "telemetry_every",
    "tensorboard",
    "keep_last",
    "keep_best",
    "backend",
    "threads",
    "checkpoint_every",
    "checkpoint_seconds",
};

static const struct {
    const char *key;
    bool of_validation;
} data_keys[] = {
    { "train_data", false }, { "seq", false },       { "vocab_size", false },
    { "val_data", true },    { "val_tokens", true },
};

/* Replaces each of the comma-separated paths by its absolute form. Those that do not fit are kept. */
static void make_absolute(const char *paths, char *out, size_t size)
{
    size_t used = 0;
    for (const char *at = paths; *at;) {
        size_t length = strcspn(at, ",");
        char path[4096], absolute[4096];
        snprintf(path, sizeof path, "%.*s", (int)length, at);
        bool known = length < sizeof path && *path && ddl_path_canonical(path, absolute, sizeof absolute);
        int n = snprintf(out + used, size - used, "%s%s", at == paths ? "" : ",", known ? absolute : path);
        used = used + (size_t)n < size ? used + (size_t)n : size - 1;
        at += length + (at[length] == ',');
    }
    out[used] = '\0';
}

static void value_of(const struct ddl_option *row, const struct ddl_train_config *recipe,
                     const struct ddl_option *table, char *out)
{
    char text[RECIPE_VALUE_SIZE];
    ddl_option_format(row, table == ddl_config_options() ? (const void *)&recipe->config : recipe, text,
                      sizeof text);
    if (strcmp(row->name, "val_data") == 0 && strcmp(text, "auto") == 0)
        snprintf(text, sizeof text, "%s", recipe->train_data);
    if (ddl_option_is_path(row))
        make_absolute(text, out, RECIPE_VALUE_SIZE);
    else
        snprintf(out, RECIPE_VALUE_SIZE, "%s", text);
}

void recipe_value(const struct ddl_option *row, const struct ddl_train_config *recipe, char *out, size_t size)
{
    char text[RECIPE_VALUE_SIZE];
    bool of_run = ddl_option_find(ddl_train_options(), row->name) == row;
    value_of(row, recipe, of_run ? ddl_train_options() : ddl_config_options(), text);
    snprintf(out, size, "%s", text);
}

static bool differ(const struct ddl_option *row, const struct ddl_option *table,
                   const struct ddl_train_config *a, const struct ddl_train_config *b,
                   struct recipe_difference *out)
{
    out->key = row->name;
    value_of(row, a, table, out->a);
    value_of(row, b, table, out->b);
    return strcmp(out->a, out->b) != 0;
}

bool recipes_differ_in_data(const struct ddl_train_config *a, const struct ddl_train_config *b,
                            bool validated, struct recipe_difference *out)
{
    for (size_t i = 0; i < sizeof data_keys / sizeof *data_keys; i++) {
        const struct ddl_option *table = ddl_train_options();
        const struct ddl_option *row = ddl_option_find(table, data_keys[i].key);
        if (!row) {
            table = ddl_config_options();
            row = ddl_option_find(table, data_keys[i].key);
        }
        if ((validated || !data_keys[i].of_validation) && differ(row, table, a, b, out))
            return true;
    }
    return false;
}

static bool is_in(const char *key, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(list[i], key) == 0)
            return true;
    }
    return false;
}

/* The first key outside of the list whose values differ. */
static bool find_difference(const struct ddl_train_config *a, const struct ddl_train_config *b,
                            const char *const *list, size_t n, struct recipe_difference *out)
{
    const struct ddl_option *const tables[] = { ddl_train_options(), ddl_config_options() };
    for (size_t t = 0; t < 2; t++) {
        for (const struct ddl_option *row = tables[t]; row->name; row++) {
            if (!is_in(row->name, list, n) && differ(row, tables[t], a, b, out))
                return true;
        }
    }
    return false;
}

bool recipes_are_replicates(const struct ddl_train_config *a, const struct ddl_train_config *b)
{
    struct recipe_difference d;
    return !find_difference(a, b, not_compared, sizeof not_compared / sizeof *not_compared, &d);
}

bool recipes_differ(const struct ddl_train_config *a, const struct ddl_train_config *b,
                    const char *const *also, size_t n, struct recipe_difference *out)
{
    const char *list[3 + RECIPES_MAX_ALSO] = { "out", "threads", "init_which" };
    for (size_t i = 0; i < n; i++)
        list[3 + i] = also[i];
    return find_difference(a, b, list, 3 + n, out);
}
