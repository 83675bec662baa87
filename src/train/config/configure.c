/* The configuration of a run from recipes and flags. */
#include "train/config/configure.h"

#include "base/file.h"
#include "base/path.h"
#include "checkpoint/files.h"
#include "ddl/data.h"
#include "ddl/run.h"
#include "train/config/train_config.h"
#include "train/config/run_data.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t count_rows(const struct ddl_option *table)
{
    size_t n = 0;
    while (table[n].name)
        n++;
    return n;
}

/* The rows of a run and of a model in one table (malloc'ed), all offsets in struct ddl_train_config. */
static struct ddl_option *all_rows(struct ddl_error *err)
{
    const struct ddl_option *own = ddl_train_options(), *model = ddl_config_options();
    size_t n_own = count_rows(own), n = count_rows(model);
    struct ddl_option *table = calloc(n_own + n + 1, sizeof *table);
    if (!table) {
        ddl_error_set(err, DDL_E_MEMORY, "out of memory for the table of options");
        return NULL;
    }
    memcpy(table, own, n_own * sizeof *table);
    for (size_t i = 0; i < n; i++) {
        table[n_own + i] = model[i];
        table[n_own + i].offset += offsetof(struct ddl_train_config, config);
    }
    return table;
}

/* nanoGPT's values of init_from, which are no folders here. */
static ddl_status check_init_from(const char *value, struct ddl_error *err)
{
    static const struct {
        const char *value, *advice;
    } others[] = { { "scratch", "leave init_from out: a model then starts from random weights" },
                   { "resume", "ddl train --resume continues the run in out" } };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (strcmp(value, others[i].value) == 0 && !ddl_file_exists(value))
            return ddl_error_set(err, DDL_E_USAGE,
                                 "init_from: expected the folder of a model or run, found '%s'; %s", value,
                                 others[i].advice);
    }
    return DDL_OK;
}

/* The config of the model in init_from; if that has been removed since the run began, of the run's own. */
static ddl_status initial_config(const struct ddl_train_config *t, struct ddl_config *out,
                                 struct ddl_error *err)
{
    struct ddl_error unused;
    ddl_status status = ddl_run_config(out, t->init_from, t->verify, NULL, NULL, err);
    if (status == DDL_E_IO && ddl_run_config(out, t->out, t->verify, NULL, NULL, &unused) == DDL_OK)
        status = DDL_OK;
    return status;
}

ddl_status ddl_train_named_config(const struct ddl_train_config *t, struct ddl_config *out,
                                  struct ddl_error *err)
{
    *out = ddl_config_defaults();
    ddl_status status = DDL_OK;
    if (*t->init_from && (*t->model || *t->size))
        return ddl_error_set(err, DDL_E_USAGE, "init_from determines the whole model: leave out %s '%s'",
                             *t->model ? "model" : "size", *t->model ? t->model : t->size);
    status = check_init_from(t->init_from, err);
    if (!status && *t->init_from)
        return initial_config(t, out, err);
    if (!status && *t->size)
        status = ddl_config_set_size(out, t->size, err);
    if (!status && *t->model)
        status = ddl_config_set_preset(out, t->model, err);
    return status;
}

/* An earlier line may not set the key of entry i by another name to another value. */
static ddl_status check_names(const struct ddl_recipe *recipe, size_t i, const struct ddl_option *table,
                              const char *where, struct ddl_error *err)
{
    const struct ddl_recipe_entry *entry = &recipe->entries[i];
    const struct ddl_option *row = ddl_option_find(table, entry->key);
    for (const struct ddl_recipe_entry *earlier = recipe->entries; earlier < entry; earlier++) {
        if (ddl_option_find(table, earlier->key) == row &&
            !ddl_option_same(row, earlier->value, entry->value))
            return ddl_error_set(
                err, DDL_E_USAGE,
                "%s: '%.80s' is the same key as '%.80s' at line %zu: expected %.80s, found %.80s", where,
                entry->key, earlier->key, earlier->line, earlier->value, entry->value);
    }
    return DDL_OK;
}

/* The keys that a recipe has and that are not keys of a run. */
struct file_keys {
    int relative_to;    /* enum ddl_relative_to */
    char computed[512]; /* keys, separated by commas */
};
const char ddl_computed_key[] = "computed";
static const struct ddl_option file_rows[] = {
    { ddl_relative_to_key, DDL_OPTION_CHOICE, offsetof(struct file_keys, relative_to), 0, 0, 0,
      ddl_relative_to_names, "NAME", "what relative paths in the recipe are relative to" },
    { ddl_computed_key, DDL_OPTION_STRING, offsetof(struct file_keys, computed),
      sizeof(((struct file_keys *)0)->computed), 0, 0, NULL, "NAMES",
      "keys whose values in the recipe were computed: computed again for another number of steps" },
    { 0 },
};

static ddl_status read_file_keys(const struct ddl_train_layer *layer, struct file_keys *keys,
                                 struct ddl_error *err)
{
    const struct ddl_recipe *recipe = layer->recipe;
    ddl_status status = DDL_OK;
    *keys = (struct file_keys){ 0 };
    keys->relative_to = layer->relative ? DDL_RELATIVE_TO_RECIPE : DDL_RELATIVE_TO_WORKING_DIRECTORY;
    for (size_t i = 0; !status && i < recipe->n; i++) {
        const struct ddl_recipe_entry *entry = &recipe->entries[i];
        const struct ddl_option *row = ddl_option_find(file_rows, entry->key);
        char where[1200];
        if (!row)
            continue;
        snprintf(where, sizeof where, "%.1024s:%zu: %s", layer->path, entry->line, row->name);
        status = ddl_option_set(row, keys, entry->value, where, err);
    }
    return status;
}

/* Sets a key of a recipe in `folder` (NULL: paths are relative to the working directory). */
static ddl_status apply_entry(const struct ddl_option *row, const char *value, const char *folder,
                              const char *where, struct ddl_train_config *t, struct ddl_error *err)
{
    char mapped[DDL_PATHS_SIZE];
    if (!folder || !ddl_option_is_path(row))
        return ddl_option_set(row, t, ddl_train_current_value(row->name, value), where, err);
    if (!ddl_train_map_paths(row, DDL_PATHS_LOAD, folder, value, mapped, sizeof mapped))
        return ddl_error_set(err, DDL_E_USAGE, "%s: the path is too long: '%.200s'", where, value);
    return ddl_option_set(row, t, mapped, where, err);
}

static ddl_status unknown_key(const struct ddl_option *table, const char *where, const char *key,
                              struct ddl_error *err)
{
    struct ddl_error found;
    ddl_status status = ddl_option_unknown(table, where, "key", key, &found);
    return ddl_error_set(err, status, "%.900s%s", found.text,
                         found.has_no_hint ? "; 'ddl help train' lists the keys" : "");
}

static ddl_status apply_recipe(const struct ddl_train_layer *layer, const struct ddl_option *table,
                               struct ddl_train_config *t, struct ddl_error *err)
{
    const struct ddl_recipe *recipe = layer->recipe;
    const char *path = layer->path;
    struct file_keys keys;
    char folder[DDL_PATHS_SIZE] = ".";
    ddl_status status = read_file_keys(layer, &keys, err);
    if (!status && !ddl_path_folder(path, folder, sizeof folder))
        status = ddl_error_set(err, DDL_E_USAGE, "%.200s: the path is too long", path);
    const char *base = keys.relative_to == DDL_RELATIVE_TO_RECIPE ? folder : NULL;
    for (size_t i = 0; !status && i < recipe->n; i++) {
        const struct ddl_recipe_entry *entry = &recipe->entries[i];
        char where[1200];
        snprintf(where, sizeof where, "%.1024s:%zu", path, entry->line);
        const struct ddl_option *row = ddl_option_find(table, entry->key);
        if (ddl_option_find(file_rows, entry->key))
            continue;
        if (!row)
            return unknown_key(table, where, entry->key, err);
        status = row->aliases || row->others ? check_names(recipe, i, table, where, err) : DDL_OK;
        snprintf(where, sizeof where, "%.1024s:%zu: %s", path, entry->line, row->name);
        if (!status)
            status = apply_entry(row, entry->value, base, where, t, err);
    }
    return status;
}

struct sources {
    const struct ddl_option *table, *more;
    void *more_object;
    const struct ddl_train_layer *layers; /* n_layers recipes; a later one overrides the ones before */
    size_t n_layers;
    int argc;
    char **argv;
    size_t *given; /* (rows of the table) the last source of each key: NOT_GIVEN, OF_LAYER, OF_FLAGS */
};
#define NOT_GIVEN ((size_t)0)
#define OF_LAYER(l) ((size_t)(l) + 1)
#define OF_FLAGS SIZE_MAX

/* The recipes and the flags onto *t. The flags are read from a copy: reading moves them about. */
static ddl_status apply_all(const struct sources *s, struct ddl_train_config *t, char **copy,
                            int *n_positional, struct ddl_error *err)
{
    ddl_status status = DDL_OK;
    for (size_t l = 0; !status && l < s->n_layers; l++)
        status = apply_recipe(&s->layers[l], s->table, t, err);
    if (status)
        return status;
    memcpy(copy, s->argv, (size_t)s->argc * sizeof *copy);
    return ddl_option_parse(s->table, t, s->more, s->more_object, s->argc, copy, n_positional, err);
}

/* Fills s->given; after apply_all has succeeded. */
static ddl_status record_given(struct sources *s, struct ddl_error *err)
{
    size_t n = count_rows(s->table);
    bool *flags = calloc(n, sizeof *flags);
    s->given = calloc(n, sizeof *s->given);
    if (!flags || !s->given) {
        free(flags);
        return ddl_error_set(err, DDL_E_MEMORY, "out of memory for the table of options");
    }
    for (size_t l = 0; l < s->n_layers; l++) {
        const struct ddl_recipe *recipe = s->layers[l].recipe;
        for (size_t i = 0; i < recipe->n; i++) {
            const struct ddl_option *row = ddl_option_find(s->table, recipe->entries[i].key);
            if (row)
                s->given[row - s->table] = OF_LAYER(l);
        }
    }
    ddl_option_find_given(s->table, s->more, s->argc, s->argv, flags);
    for (size_t i = 0; i < n; i++)
        s->given[i] = flags[i] ? OF_FLAGS : s->given[i];
    free(flags);
    return DDL_OK;
}

/* The last source of a key. */
static size_t given_by(const struct sources *s, const char *key)
{
    return s->given[ddl_option_find(s->table, key) - s->table];
}

/* Whether a recipe after the first, or a flag, has the key. */
static bool is_given_later(const struct sources *s, const char *key)
{
    return given_by(s, key) > OF_LAYER(0);
}

/* Keys of the first recipe that a later source overrides by another one. block_size without seq sets the
 * length of the sequences too: the first recipe's seq was chosen for its own block_size. accumulate without
 * global_batch sets the size of a step too: the first recipe's global_batch would leave it without effect. */
static void follow_overrides(const struct sources *s, struct ddl_train_config *t)
{
    if (is_given_later(s, "block_size") && !is_given_later(s, "seq"))
        t->seq = 0;
    if (is_given_later(s, "accumulate") && !is_given_later(s, "global_batch"))
        t->global_batch = 0;
}

/* Whether `list`, names separated by commas, has the name. */
static bool is_listed(const char *list, const char *name)
{
    for (size_t n; *list; list += n + (list[n] == ',')) {
        n = strcspn(list, ",");
        if (n == strlen(name) && memcmp(list, name, n) == 0)
            return true;
    }
    return false;
}

/* The values that layer l lists as computed: computed again if steps is set to another number than the
 * layer's, unless a later layer or a flag sets them. */
static ddl_status follow_steps(const struct sources *s, size_t l, struct ddl_train_config *t,
                               struct ddl_error *err)
{
    struct ddl_train_config own = ddl_train_defaults();
    struct file_keys keys;
    ddl_status status = read_file_keys(&s->layers[l], &keys, err);
    if (status || !*keys.computed)
        return status;
    status = apply_recipe(&s->layers[l], s->table, &own, err);
    for (size_t i = 0; !status && s->table[i].name; i++) {
        const struct ddl_option *row = &s->table[i];
        if (!row->automatic || !is_listed(keys.computed, row->name) || s->given[i] > OF_LAYER(l))
            continue;
        if (t->steps == own.steps)
            ddl_train_set_computed(row, t);
        else
            *ddl_train_automatic_field(row, t) = DDL_OPTION_AUTO;
    }
    return status;
}

/* The vocabulary of the tokenizer, or of the one that built the shards; 0 if neither can be read: the run
 * then reports why. */
static ddl_status vocabulary_of(const struct ddl_train_config *t, size_t *n, struct ddl_error *err)
{
    struct ddl_tokenizer_identity id = { 0 };
    ddl_tokenizer *tokenizer;
    ddl_shards *shards;
    ddl_status status = DDL_OK;
    *n = 0;
    if (*t->tokenizer) {
        status = ddl_tokenizer_load(&tokenizer, t->tokenizer, err);
        if (!status) {
            *n = ddl_tokenizer_vocab_size(tokenizer);
            ddl_tokenizer_free(tokenizer);
        }
    } else if (*t->train_data) {
        status = ddl_train_open_train(t, &shards, err);
        if (!status) {
            status = ddl_shards_identity(shards, &id, err);
            *n = id.vocab_size;
            ddl_shards_close(shards);
        }
    }
    return status == DDL_E_MEMORY ? status : DDL_OK;
}

/* vocab_size, if it is not among the given keys. */
static ddl_status default_vocabulary(const struct sources *s, struct ddl_train_config *t,
                                     struct ddl_error *err)
{
    size_t n = 0;
    ddl_status status = DDL_OK;
    if (given_by(s, "vocab_size") == NOT_GIVEN && !*t->init_from)
        status = vocabulary_of(t, &n, err);
    if (!status && n) {
        t->config.vocab_size = ddl_vocab_size_padded(n);
        t->vocab_automatic = true;
    }
    return status;
}

/* Whether a run stored the recipe: it has both size and init_from, which exclude each other in a recipe that
 * is written by hand. */
static bool is_stored(const struct ddl_recipe *recipe)
{
    return ddl_recipe_find(recipe, "size") && ddl_recipe_find(recipe, "init_from");
}

/* Whether an earlier version stored hidden_size or num_attention_heads in the recipe of a run without their
 * head_dim, which then is that of the named size. */
static bool has_former_head_dim(const struct sources *s)
{
    for (size_t l = 0; l < s->n_layers; l++) {
        const struct ddl_recipe *recipe = s->layers[l].recipe;
        if (is_stored(recipe) &&
            (ddl_recipe_find(recipe, "hidden_size") || ddl_recipe_find(recipe, "num_attention_heads")))
            return true;
    }
    return false;
}

/* head_dim, if it is not among the given keys and one of those that it depends on is. */
static ddl_status default_head_dim(const struct sources *s, struct ddl_train_config *t, struct ddl_error *err)
{
    struct ddl_config given = { 0 };
    if (given_by(s, "head_dim") != NOT_GIVEN || *t->init_from || has_former_head_dim(s))
        return DDL_OK;
    if (given_by(s, "hidden_size") != NOT_GIVEN)
        given.d_model = t->config.d_model;
    if (given_by(s, "num_attention_heads") != NOT_GIVEN)
        given.n_heads = t->config.n_heads;
    if (!given.d_model && !given.n_heads)
        return DDL_OK;
    t->head_dim_automatic = true;
    t->named_head_dim = t->config.head_dim;
    return ddl_config_set_head_dim(&t->config, &given, err);
}

/* The rules by layer: the list that is given, or those of the model in init_from. A ddl_residual that is
 * given for them would have no effect; a stored recipe has one. */
static ddl_status set_by_layer(const struct sources *s, struct ddl_train_config *t, struct ddl_error *err)
{
    const size_t rule = given_by(s, "ddl_residual"), list = given_by(s, "ddl_residual_by_layer");
    const bool has_list = *t->ddl_residual_by_layer != '\0', is_flag = rule == OF_FLAGS;
    const bool is_own = rule != NOT_GIVEN && (is_flag || !is_stored(s->layers[rule - OF_LAYER(0)].recipe));
    if (has_list ? rule > list : t->config.by_layer && is_own)
        return ddl_error_set(
            err, DDL_E_USAGE,
            "ddl_residual: each layer has a rule of its own: expected ddl_residual_by_layer, found "
            "ddl_residual");
    return has_list
               ? ddl_config_set_by_layer(&t->config, t->ddl_residual_by_layer, "ddl_residual_by_layer", err)
               : DDL_OK;
}

ddl_status ddl_train_match(struct ddl_train_config *config, struct ddl_match *out, struct ddl_error *err)
{
    const char *parameters = config->match_parameters, *flops = config->match_flops;
    enum ddl_match_kind kind = *flops ? DDL_MATCH_FLOPS : DDL_MATCH_PARAMETERS;
    *out = (struct ddl_match){ 0 };
    if (!*parameters && !*flops)
        return DDL_OK;
    if (*parameters && *flops)
        return ddl_error_set(err, DDL_E_USAGE,
                             "match_parameters, match_flops: expected one of them, found %s and %s",
                             parameters, flops);
    if (*config->init_from)
        return ddl_error_set(err, DDL_E_USAGE,
                             "%s: expected a new model, found init_from %.200s, whose MLP has its width",
                             ddl_match_key(kind), config->init_from);
    return ddl_config_match(&config->config, *flops ? flops : parameters, kind, config->seq, out, err);
}

/* Once to learn the names, and once more over what the names give. */
static ddl_status configure(struct sources *s, struct ddl_train_config *out, char **copy, int *n_positional,
                            struct ddl_error *err)
{
    struct ddl_train_config names = ddl_train_defaults(), t = names;
    struct ddl_match match;
    ddl_status status = apply_all(s, &names, copy, n_positional, err);
    if (!status)
        status = ddl_train_named_config(&names, &t.config, err);
    if (!status)
        status = apply_all(s, &t, copy, n_positional, err);
    if (!status)
        status = record_given(s, err);
    if (!status)
        follow_overrides(s, &t);
    for (size_t l = 0; !status && l < s->n_layers; l++)
        status = follow_steps(s, l, &t, err);
    if (!status)
        status = default_vocabulary(s, &t, err);
    if (!status)
        status = default_head_dim(s, &t, err);
    if (!status)
        status = set_by_layer(s, &t, err);
    if (!status)
        status = ddl_train_match(&t, &match, err);
    if (!status)
        status = ddl_train_check(&t, err);
    if (!status)
        *out = t;
    return status;
}

/* The path of the recipe: `recipe`, or else the first argument that is no flag, or NULL. */
static ddl_status find_recipe(const struct sources *s, char **copy, const char **recipe,
                              struct ddl_error *err)
{
    struct ddl_train_config ignored = { 0 };
    int n = 0;
    if (*recipe)
        return DDL_OK;
    ddl_status status = apply_all(s, &ignored, copy, &n, err);
    if (!status && n > 0)
        *recipe = copy[1];
    return status;
}

/* A run folder stands for its recipe: *recipe becomes its path, which is written to `path`. */
static ddl_status find_in_run(const char **recipe, char *path, size_t size, struct ddl_error *err)
{
    if (!*recipe || !ddl_file_is_dir(*recipe))
        return DDL_OK;
    if (!ddl_path_join(path, size, *recipe, ddl_run_file_name(DDL_FILE_RECIPE)) || !ddl_file_exists(path))
        return ddl_error_set(err, DDL_E_USAGE,
                             "%.600s: expected a recipe or the folder of a run, found a folder without %s",
                             *recipe, ddl_run_file_name(DDL_FILE_RECIPE));
    *recipe = path;
    return DDL_OK;
}

ddl_status ddl_train_configure(struct ddl_train_config *out, const char *recipe, int argc, char **argv,
                               const struct ddl_option *more, void *more_object, int *n_positional,
                               struct ddl_error *err)
{
    struct ddl_option *table = all_rows(err);
    char **copy = calloc((size_t)argc + 1, sizeof *copy);
    struct ddl_recipe keys = { 0 };
    struct ddl_train_layer layer = { .recipe = &keys };
    char path[DDL_PATHS_SIZE];
    struct sources s = {
        .table = table, .more = more, .more_object = more_object, .argc = argc, .argv = argv
    };
    ddl_status status = DDL_OK;
    *n_positional = 0;
    if (!table || !copy)
        status = ddl_error_set(err, DDL_E_MEMORY, "out of memory for the table of options");
    if (!status)
        status = find_recipe(&s, copy, &recipe, err);
    if (!status)
        status = find_in_run(&recipe, path, sizeof path, err);
    if (!status && recipe) {
        layer.path = recipe;
        s.layers = &layer;
        s.n_layers = 1;
        status = ddl_recipe_read(&keys, recipe, err);
    }
    if (!status)
        status = configure(&s, out, copy, n_positional, err);
    if (!status)
        memcpy(argv, copy, (size_t)argc * sizeof *argv);
    ddl_recipe_free(&keys);
    free(s.given);
    free(copy);
    free(table);
    return status;
}

ddl_status ddl_train_configure_layers(struct ddl_train_config *out, const struct ddl_train_layer *layers,
                                      size_t n, struct ddl_error *err)
{
    char name[] = "", *argv[] = { name, NULL }, *copy[] = { name, NULL };
    struct ddl_option *table = all_rows(err);
    struct sources s = { .table = table, .layers = layers, .n_layers = n, .argc = 1, .argv = argv };
    int n_positional = 0;
    ddl_status status = table ? configure(&s, out, copy, &n_positional, err) : DDL_E_MEMORY;
    free(s.given);
    free(table);
    return status;
}
