#define _POSIX_C_SOURCE 200809L
#include "train/run/resume.h"

#include "checkpoint/checkpoint.h"
#include "checkpoint/files.h"
#include "train/config/train_config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- comparing ---- */

/* The state.json of a checkpoint. */
struct reader {
    char path[1280];
    const json_t *root;
    char global_batch[32]; /* of a checkpoint without this key */
    struct ddl_error *err;
};

/* Runs of earlier versions had one rank. */
static void derive_global_batch(struct reader *r)
{
    const json_t *config = json_object_get(r->root, "config");
    const char *batch = json_string_value(json_object_get(config, "batch"));
    const char *accumulate = json_string_value(json_object_get(config, "accumulate"));
    if (batch && accumulate)
        snprintf(r->global_batch, sizeof r->global_batch, "%llu",
                 strtoull(batch, NULL, 10) * strtoull(accumulate, NULL, 10));
}

static struct reader reader_of(const char *folder, const json_t *root, struct ddl_error *err)
{
    struct reader r = { .root = root, .err = err };
    snprintf(r.path, sizeof r.path, "%s/%s", folder, ddl_run_file_name(DDL_FILE_STATE));
    derive_global_batch(&r);
    return r;
}

struct comparison {
    const struct reader *r;
    const struct ddl_train_config *config;
    bool any_accumulate; /* the configuration has a global_batch: accumulate has no effect */
    ddl_warn_fn *note;
    void *user;
};

static const char global_batch[] = "global_batch";

/* The value of a key when the checkpoint was written, or NULL. */
static const char *value_then(const struct reader *r, const struct ddl_option *row)
{
    const char *was = json_string_value(json_object_get(json_object_get(r->root, "config"), row->name));
    if (!was && strcmp(row->name, global_batch) == 0 && *r->global_batch)
        return r->global_batch;
    return was ? ddl_train_current_value(row->name, was) : NULL;
}

/* Whether the value of a key is computed when a run starts, unless it is set. */
static bool is_computed(const struct ddl_option *row, const struct ddl_train_config *config)
{
    char now[32];
    ddl_option_format(row, config, now, sizeof now);
    return (row->automatic && strcmp(now, "auto") == 0) ||
           (strcmp(row->name, global_batch) == 0 && config->global_batch == 0);
}

/* Whether the warmup of the run is the one that was computed for its number of steps then. */
static bool was_automatic_warmup(const struct reader *r, const char *warmup)
{
    const char *steps = value_then(r, ddl_option_find(ddl_train_options(), "steps"));
    struct ddl_train_config then = { .warmup = DDL_OPTION_AUTO, .batch = 1, .accumulate = 1 };
    then.steps = steps ? strtoull(steps, NULL, 10) : 0;
    return steps && ddl_train_resolved(&then).warmup == strtoull(warmup, NULL, 10);
}

/* A run keeps the values that it computed when it started, also where its number of steps or of ranks has
 * changed. */
static ddl_status take_automatic(const struct reader *r, struct ddl_train_config *config)
{
    for (const struct ddl_option *row = ddl_train_options(); row->name; row++) {
        const char *was = is_computed(row, config) ? value_then(r, row) : NULL;
        if (was && strcmp(row->name, "warmup") == 0 && strtoull(was, NULL, 10) > config->steps &&
            was_automatic_warmup(r, was))
            continue; /* computed again for fewer steps */
        if (was && ddl_option_set(row, config, was, r->path, r->err)) {
            if (r->err)
                r->err->status = DDL_E_FORMAT; /* of the file, not of the command */
            return DDL_E_FORMAT;
        }
        if (was)
            ddl_train_set_computed(row, config);
    }
    return DDL_OK;
}

/* Paths that were written then, relative to the working directory. Earlier versions stored them so. */
static const char *paths_then(const struct comparison *c, const struct ddl_option *row, const char *value,
                              char *out, size_t size)
{
    const char *base =
        json_string_value(json_object_get(json_object_get(c->r->root, "config"), ddl_relative_to_key));
    bool mapped = base && strcmp(base, ddl_relative_to_names[DDL_RELATIVE_TO_RECIPE]) == 0 &&
                  ddl_train_map_paths(row, DDL_PATHS_LOAD, c->config->out, value, out, size);
    return mapped ? out : value;
}

/* Whether two values of a key are equal: two paths are if they name the same file. */
static bool same_value(const struct ddl_option *row, const char *a, const char *b)
{
    char x[DDL_PATHS_SIZE], y[DDL_PATHS_SIZE];
    return strcmp(a, b) == 0 ||
           (ddl_option_is_path(row) && ddl_train_map_paths(row, DDL_PATHS_CANONICAL, NULL, a, x, sizeof x) &&
            ddl_train_map_paths(row, DDL_PATHS_CANONICAL, NULL, b, y, sizeof y) && strcmp(x, y) == 0);
}

static ddl_status compare_key(const struct comparison *c, const struct ddl_option *row,
                              enum ddl_on_resume rule)
{
    const struct ddl_train_config defaults = ddl_train_defaults();
    const char *was = value_then(c->r, row);
    char now[DDL_PATHS_SIZE], then[DDL_PATHS_SIZE], absent[64];
    struct ddl_error message;
    ddl_option_format(row, c->config, now, sizeof now);
    if (!was && ddl_option_is_text(row)) /* a path that is not UTF-8 is not stored */
        return DDL_OK;
    if (!was) { /* a key that is newer than the checkpoint had its default's effect */
        ddl_option_format(row, &defaults, absent, sizeof absent);
        was = absent;
    }
    if (ddl_option_is_path(row))
        was = paths_then(c, row, was, then, sizeof then);
    if (same_value(row, was, now))
        return DDL_OK;
    if (rule == DDL_RESUME_SAME)
        return ddl_error_set(c->r->err, DDL_E_USAGE,
                             "%s: the run has %s %.80s, now it is %.80s; a resumed run keeps it", c->r->path,
                             row->name, was, now);
    ddl_error_set(&message, DDL_OK, "%s was '%.200s' before the run was resumed, now it is '%.200s'",
                  row->name, was, now);
    if (c->note)
        c->note(c->user, message.text);
    return DDL_OK;
}

/* The keys that must stay the same first, so that nothing is noted of a run that is refused. */
static ddl_status compare_keys(const struct comparison *c)
{
    ddl_status status = DDL_OK;
    for (enum ddl_on_resume rule = DDL_RESUME_SAME; rule <= DDL_RESUME_NOTED; rule++) {
        for (const struct ddl_option *row = ddl_train_options(); row->name && !status; row++) {
            if (c->any_accumulate && strcmp(row->name, "accumulate") == 0)
                continue;
            if (ddl_train_on_resume(row) == rule)
                status = compare_key(c, row, rule);
        }
    }
    return status;
}

static ddl_status compare_model(const char *folder, const struct ddl_config *config, struct ddl_error *err)
{
    struct ddl_config found;
    ddl_status status = ddl_config_load(&found, folder, NULL, NULL, err);
    if (status)
        return status;
    const struct ddl_config resolved = ddl_config_resolved(config);
    found = ddl_config_resolved(&found);
    for (const struct ddl_option *row = ddl_config_options(); row->name; row++) {
        char was[64], now[64];
        ddl_option_format(row, &found, was, sizeof was);
        ddl_option_format(row, &resolved, now, sizeof now);
        if (strcmp(was, now) != 0)
            return ddl_error_set(err, DDL_E_USAGE,
                                 "%s/config.json: the run has %s %s, now it is %s; a resumed "
                                 "run keeps it",
                                 folder, row->name, was, now);
    }
    for (size_t l = 0; l < found.n_layers; l++) {
        if (ddl_config_residual(&found, l) != ddl_config_residual(config, l))
            return ddl_error_set(err, DDL_E_USAGE,
                                 "%s/config.json: the run has another residual rule in layer "
                                 "%zu; a resumed run keeps it",
                                 folder, l);
    }
    return DDL_OK;
}

/* The run's values of the model's keys that were computed, and the width of the MLP that was matched with
 * them. */
static ddl_status take_automatic_keys(const char *folder, struct ddl_train_config *config,
                                      struct ddl_error *err)
{
    struct ddl_config found, *own = &config->config;
    struct ddl_match match;
    ddl_status status = ddl_config_load(&found, folder, NULL, NULL, err);
    if (status)
        return status;
    bool vocabulary = config->vocab_automatic && found.vocab_size != own->vocab_size,
         head_dim = config->head_dim_automatic && found.head_dim != own->head_dim;
    if (!vocabulary && !head_dim)
        return DDL_OK;
    if (vocabulary)
        own->vocab_size = found.vocab_size;
    if (head_dim) {
        own->head_dim = found.head_dim;
        config->head_dim_automatic = false;
    }
    if (*config->match_parameters || *config->match_flops)
        config->config.mlp_size = 0;
    return ddl_train_match(config, &match, err);
}

ddl_status ddl_run_compare_final(const struct ddl_train_config *config, struct ddl_error *err)
{
    struct ddl_train_config t = *config;
    ddl_status status = take_automatic_keys(t.out, &t, err);
    return status ? status : compare_model(t.out, &t.config, err);
}

ddl_status ddl_run_open(const char *path, struct ddl_train_config *config, struct ddl_run_state *state,
                        ddl_warn_fn *note, void *user, struct ddl_error *err)
{
    json_t *root;
    ddl_status status = ddl_checkpoint_open(path, &root, err);
    if (status)
        return status;
    struct ddl_train_config t = *config;
    const struct reader r = reader_of(path, root, err);
    status = ddl_run_parse_state(path, root, state, err);
    if (!status)
        status = take_automatic_keys(path, &t, err);
    if (!status)
        status = compare_model(path, &t.config, err);
    if (!status)
        status = take_automatic(&r, &t);
    if (!status) {
        const struct ddl_train_config resolved = ddl_train_resolved(&t);
        status = compare_keys(&(struct comparison){ &r, &resolved, config->global_batch != 0, note, user });
    }
    if (!status)
        *config = t;
    json_decref(root);
    return status;
}

struct opening {
    struct ddl_train_config *config;
    struct ddl_run_state *state;
    ddl_warn_fn *note;
    void *user;
};

static ddl_status open_one(void *user, const char *path, struct ddl_error *err)
{
    const struct opening *o = user;
    return ddl_run_open(path, o->config, o->state, o->note, o->user, err);
}

ddl_status ddl_run_open_newest(struct ddl_train_config *config, struct ddl_run_state *state, char *path,
                               size_t size, ddl_warn_fn *note, void *user, struct ddl_error *err)
{
    struct opening o = { config, state, note, user };
    return ddl_checkpoint_take_newest(config->out, open_one, &o, note, user, path, size, err);
}
