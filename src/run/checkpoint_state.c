#define _POSIX_C_SOURCE 200809L
#include "run/checkpoint_state.h"

#include "base/file.h"
#include "run/train_config.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum { MAX_STATE = 1 << 20, VERSION = 1 };

/* The files whose checksums state.json holds, and its own name among them. */
static const char *const summed_files[] = { "model.safetensors", "config.json", "optimizer.safetensors",
                                            "tokenizer.json" };
static const char state_file[] = "state.json", sums_key[] = "crc32";

/* Keys that a resumed run keeps, because they say which numbers come next; and those whose change is worth a
 * note, because the run is then no longer the one that was begun. */
static const char *const kept_keys[] = { "seed", "order", "batch", "accumulate", "seq" };
static const char *const noted_keys[] = {
    "train_data",
    "val_data",
    "val_tokens",
    "steps",
    "lr",
    "lr_min_ratio",
    "warmup",
    "beta1",
    "beta2",
    "eps",
    "weight_decay",
    "weight_decay_embedding",
    "weight_decay_matrix",
    "weight_decay_kernel",
    "weight_decay_norm",
    "weight_decay_bias",
    "clip",
    "backend",
    "threads",
};
#define COUNT(list) (sizeof(list) / sizeof *(list))

static bool path_of(char *path, size_t size, const char *folder, const char *name, struct ddl_error *err)
{
    if (ddl_path_join(path, size, folder, name))
        return true;
    ddl_error_set(err, DDL_E_USAGE, "%.200s: the path is too long", folder);
    return false;
}

/* Every key of the recipe with its value as text. */
static json_t *config_object(const struct ddl_train_config *config)
{
    json_t *object = json_object();
    for (const struct ddl_option *row = ddl_train_options(); object && row->name; row++) {
        char value[8192];
        ddl_option_format(row, config, value, sizeof value);
        /* Paths are bytes; where they are no UTF-8 they are left out and not compared. */
        json_t *text = json_string(value);
        if (text && json_object_set_new(object, row->name, text) != 0) {
            json_decref(object);
            object = NULL;
        }
    }
    return object;
}

/* ---- checksums: a disk that lies, or a copy that broke off, shows before anything is read from it ---- */

static ddl_status sum_file(const char *folder, const char *name, json_int_t *out, struct ddl_error *err)
{
    char path[1280];
    struct ddl_file_map map;
    if (!path_of(path, sizeof path, folder, name, err))
        return DDL_E_USAGE;
    ddl_status status = ddl_file_map_open(&map, path, err);
    if (status)
        return status;
    *out = (json_int_t)crc32_z(0, map.data, map.size);
    ddl_file_map_close(&map);
    return DDL_OK;
}

/* The checksum of all that the state says beside its checksums, or -1 without memory. */
static json_int_t sum_state(const json_t *root)
{
    json_t *rest = json_copy((json_t *)(uintptr_t)root);
    json_object_del(rest, sums_key);
    char *text = json_dumps(rest, JSON_COMPACT | JSON_SORT_KEYS);
    json_int_t sum = text ? (json_int_t)crc32_z(0, (const unsigned char *)text, strlen(text)) : -1;
    free(text);
    json_decref(rest);
    return sum;
}

static ddl_status add_sums(const char *folder, json_t *root, struct ddl_error *err)
{
    json_t *sums = json_object();
    json_object_set_new(sums, state_file, json_integer(sum_state(root)));
    ddl_status status = DDL_OK;
    for (size_t i = 0; i < COUNT(summed_files) && !status; i++) {
        char path[1280];
        json_int_t sum = 0;
        if (!path_of(path, sizeof path, folder, summed_files[i], err))
            status = DDL_E_USAGE;
        else if (ddl_file_exists(path)) /* a run may have no tokenizer */
            status = sum_file(folder, summed_files[i], &sum, err);
        else
            continue;
        json_object_set_new(sums, summed_files[i], json_integer(sum));
    }
    if (json_object_set_new(root, sums_key, sums) != 0 && !status)
        status = ddl_error_set(err, DDL_E_MEMORY, "%s/%s: out of memory", folder, state_file);
    return status;
}

static ddl_status check_sums(const char *folder, const json_t *root, struct ddl_error *err)
{
    json_t *sums = json_object_get(root, sums_key), *wanted;
    const char *name;
    if (!json_is_object(sums) || !json_object_get(sums, state_file))
        return ddl_error_set(err, DDL_E_FORMAT, "%s/%s: %s is missing", folder, state_file, sums_key);
    json_object_foreach(sums, name, wanted)
    {
        json_int_t found = strcmp(name, state_file) == 0 ? sum_state(root) : 0;
        ddl_status status = DDL_OK;
        if (strchr(name, '/'))
            status = ddl_error_set(err, DDL_E_FORMAT,
                                   "%s/%s: %s names '%.80s', which is no file of a "
                                   "checkpoint",
                                   folder, state_file, sums_key, name);
        else if (strcmp(name, state_file) != 0)
            status = sum_file(folder, name, &found, err);
        if (status)
            return status;
        if (json_integer_value(wanted) != found)
            return ddl_error_set(err, DDL_E_FORMAT,
                                 "%s/%s: damaged: its checksum (CRC-32) is %08llx, the checkpoint was "
                                 "written with %08llx",
                                 folder, name, (unsigned long long)found,
                                 (unsigned long long)json_integer_value(wanted));
    }
    return DDL_OK;
}

ddl_status ddl_state_write(const char *folder, const struct ddl_train_config *config,
                           const struct ddl_run_state *state, struct ddl_error *err)
{
    char path[1280];
    if (!path_of(path, sizeof path, folder, state_file, err))
        return DDL_E_USAGE;
    const struct ddl_train_config resolved = ddl_train_resolved(config);
    json_t *root =
        json_pack("{s:i, s:I, s:I, s:I, s:f, s:f, s:o}", "version", VERSION, "step", (json_int_t)state->step,
                  "position", (json_int_t)state->position, "tokens", (json_int_t)state->tokens, "flops",
                  state->flops, "seconds", state->seconds, "config", config_object(&resolved));
    ddl_status status =
        root ? add_sums(folder, root, err) : ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory", path);
    char *text = status ? NULL : json_dumps(root, JSON_INDENT(2));
    if (!status)
        status = text ? ddl_file_replace(path, text, strlen(text), err)
                      : ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory", path);
    free(text);
    json_decref(root);
    return status;
}

/* ---- reading ---- */

struct reader {
    const char *path;
    const json_t *root;
    struct ddl_error *err;
};

static ddl_status read_count(const struct reader *r, const char *key, uint64_t *out)
{
    const json_t *value = json_object_get(r->root, key);
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return ddl_error_set(r->err, DDL_E_FORMAT, "%s: %s is missing or no whole number", r->path, key);
    *out = (uint64_t)json_integer_value(value);
    return DDL_OK;
}

static ddl_status read_number(const struct reader *r, const char *key, double *out)
{
    const json_t *value = json_object_get(r->root, key);
    *out = json_number_value(value);
    if (!json_is_number(value) || !isfinite(*out) || *out < 0)
        return ddl_error_set(r->err, DDL_E_FORMAT, "%s: %s is missing or no number", r->path, key);
    return DDL_OK;
}

static ddl_status read_state(const struct reader *r, struct ddl_run_state *state)
{
    uint64_t version = 0;
    ddl_status status = read_count(r, "version", &version);
    if (!status && version != VERSION)
        return ddl_error_set(r->err, DDL_E_UNSUPPORTED, "%s: version %llu, this program reads %d", r->path,
                             (unsigned long long)version, VERSION);
    if (!status)
        status = read_count(r, "step", &state->step);
    if (!status)
        status = read_count(r, "position", &state->position);
    if (!status)
        status = read_count(r, "tokens", &state->tokens);
    if (!status)
        status = read_number(r, "flops", &state->flops);
    if (!status)
        status = read_number(r, "seconds", &state->seconds);
    if (!status && !json_is_object(json_object_get(r->root, "config")))
        status = ddl_error_set(r->err, DDL_E_FORMAT, "%s: config is missing", r->path);
    return status;
}

/* True if both have the key and with different values; these go to was and now. */
static bool differs(const struct reader *r, const struct ddl_train_config *config, const char *key,
                    const char **was, char *now, size_t size)
{
    *was = json_string_value(json_object_get(json_object_get(r->root, "config"), key));
    ddl_option_format(ddl_option_find(ddl_train_options(), key), config, now, size);
    return *was && strcmp(*was, now) != 0;
}

static ddl_status compare_keys(const struct reader *r, const struct ddl_train_config *config,
                               ddl_warn_fn *note, void *user)
{
    const char *was;
    char now[2048];
    for (size_t i = 0; i < COUNT(kept_keys); i++) {
        if (differs(r, config, kept_keys[i], &was, now, sizeof now))
            return ddl_error_set(r->err, DDL_E_USAGE,
                                 "%s: the run has %s %.80s, now it is %.80s; a resumed run "
                                 "keeps it",
                                 r->path, kept_keys[i], was, now);
    }
    for (size_t i = 0; note && i < COUNT(noted_keys); i++) {
        struct ddl_error sentence;
        if (differs(r, config, noted_keys[i], &was, now, sizeof now)) {
            ddl_error_set(&sentence, DDL_OK, "%s was '%.200s' before the run was resumed, now it is '%.200s'",
                          noted_keys[i], was, now);
            note(user, sentence.text);
        }
    }
    return DDL_OK;
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

ddl_status ddl_checkpoint_read_state(const char *folder, const struct ddl_train_config *config,
                                     struct ddl_run_state *state, ddl_warn_fn *note, void *user,
                                     struct ddl_error *err)
{
    char path[1280], *text;
    size_t size;
    if (!path_of(path, sizeof path, folder, state_file, err))
        return DDL_E_USAGE;
    ddl_status status = ddl_file_read(path, MAX_STATE, &text, &size, err);
    if (status)
        return status;
    json_error_t why;
    json_t *root = json_loadb(text, size, JSON_REJECT_DUPLICATES, &why);
    free(text);
    if (!root)
        return ddl_error_set(err, DDL_E_FORMAT, "%s:%d: not valid JSON: %s", path, why.line, why.text);
    const struct reader r = { path, root, err };
    const struct ddl_train_config resolved = ddl_train_resolved(config);
    status = check_sums(folder, root, err);
    if (!status)
        status = read_state(&r, state);
    if (!status)
        status = compare_model(folder, &config->config, err);
    if (!status)
        status = compare_keys(&r, &resolved, note, user);
    json_decref(root);
    return status;
}
