#define _POSIX_C_SOURCE 200809L
#include "checkpoint/state.h"

#include "base/file.h"
#include "base/json.h"
#include "checkpoint/sums.h"
#include "train/train_config.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_STATE = 1 << 20, VERSION = 2 };

static const char state_file[] = "state.json", sums_key[] = "files";

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
    "dtype",
    "recompute",
    "spike_z",
    "spike_window",
    "spike_max_skip",
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

/* ---- writing ---- */

static json_t *spike_object(const struct ddl_spike_state *spike)
{
    json_t *norms = json_array();
    for (size_t i = 0; norms && i < spike->n; i++) {
        if (json_array_append_new(norms, json_real(spike->norms[i])) != 0) {
            json_decref(norms);
            norms = NULL;
        }
    }
    return json_pack("{s:I, s:I, s:o}", "skipped", (json_int_t)spike->skipped, "in_a_row",
                     (json_int_t)spike->in_a_row, "norms", norms);
}

ddl_status ddl_state_write(const char *folder, const struct ddl_train_config *config,
                           const struct ddl_run_state *state, struct ddl_error *err)
{
    char path[1280];
    if (!path_of(path, sizeof path, folder, state_file, err))
        return DDL_E_USAGE;
    const struct ddl_train_config resolved = ddl_train_resolved(config);
    json_t *sums;
    ddl_status status = ddl_sums_take(folder, &sums, err);
    if (status)
        return status;
    json_t *root = json_pack(
        "{s:i, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:o, s:o, s:o, s:o}", "version", VERSION, "step",
        (json_int_t)state->step, "position", (json_int_t)state->position, "tokens", (json_int_t)state->tokens,
        "logged", (json_int_t)state->logged, "flops", state->flops, "seconds", state->seconds, "loss",
        state->loss, "val_loss", state->has_val ? json_real(state->val_loss) : json_null(), "spike",
        spike_object(&state->spike), "config", config_object(&resolved), sums_key, sums);
    char *text = root ? ddl_sums_seal(root) : NULL;
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

static ddl_status read_norms(const struct reader *r, const json_t *norms, struct ddl_spike_state *out)
{
    out->n = json_array_size(norms);
    if (!json_is_array(norms) || out->n > DDL_SPIKE_WINDOW)
        return ddl_error_set(r->err, DDL_E_FORMAT, "%s: norms is missing or has more than %d numbers",
                             r->path, DDL_SPIKE_WINDOW);
    for (size_t i = 0; i < out->n; i++) {
        const json_t *norm = json_array_get(norms, i);
        out->norms[i] = json_number_value(norm);
        if (!json_is_number(norm) || !isfinite(out->norms[i]) || out->norms[i] < 0)
            return ddl_error_set(r->err, DDL_E_FORMAT, "%s: norm %zu is no norm", r->path, i);
    }
    return DDL_OK;
}

static ddl_status read_spike(const struct reader *r, uint64_t step, struct ddl_spike_state *out)
{
    const json_t *object = json_object_get(r->root, "spike");
    const struct reader inner = { r->path, object, r->err };
    uint64_t in_a_row = 0;
    *out = (struct ddl_spike_state){ 0 };
    ddl_status status = read_count(&inner, "skipped", &out->skipped);
    if (!status)
        status = read_count(&inner, "in_a_row", &in_a_row);
    if (!status && (in_a_row > out->skipped || out->skipped > step))
        return ddl_error_set(r->err, DDL_E_FORMAT, "%s: of %llu steps %llu were skipped, %llu in a row",
                             r->path, (unsigned long long)step, (unsigned long long)out->skipped,
                             (unsigned long long)in_a_row);
    out->in_a_row = (size_t)in_a_row;
    return status ? status : read_norms(r, json_object_get(object, "norms"), out);
}

static ddl_status read_state(const struct reader *r, struct ddl_run_state *state)
{
    const struct {
        const char *key;
        uint64_t *to;
    } counts[] = { { "step", &state->step },
                   { "position", &state->position },
                   { "tokens", &state->tokens },
                   { "logged", &state->logged } };
    const struct {
        const char *key;
        double *to;
    } numbers[] = { { "flops", &state->flops },
                    { "seconds", &state->seconds },
                    { "loss", &state->loss },
                    { "val_loss", &state->val_loss } };
    ddl_status status = DDL_OK;
    state->has_val = !json_is_null(json_object_get(r->root, "val_loss"));
    state->val_loss = 0;
    for (size_t i = 0; i < COUNT(counts) && !status; i++)
        status = read_count(r, counts[i].key, counts[i].to);
    for (size_t i = 0; i < COUNT(numbers) - !state->has_val && !status; i++) /* the last one may be null */
        status = read_number(r, numbers[i].key, numbers[i].to);
    if (!status)
        status = read_spike(r, state->step, &state->spike);
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

/* state.json, whole; its version is one that this program reads. */
static ddl_status open_state(const char *path, json_t **root, struct ddl_error *err)
{
    char *text;
    size_t size;
    *root = NULL;
    ddl_status status = ddl_file_read(path, MAX_STATE, &text, &size, err);
    if (status)
        return status;
    status = ddl_sums_check_seal(path, text, size, err);
    if (!status)
        status = ddl_json_parse_file(root, path, text, size, err);
    free(text);
    const struct reader r = { path, *root, err };
    uint64_t version = 0;
    if (!status)
        status = read_count(&r, "version", &version);
    if (!status && version != VERSION)
        status = ddl_error_set(err, DDL_E_UNSUPPORTED, "%s: version %llu, this program reads %d", path,
                               (unsigned long long)version, VERSION);
    if (status) {
        json_decref(*root);
        *root = NULL;
    }
    return status;
}

ddl_status ddl_state_read(const char *folder, struct ddl_run_state *state, struct ddl_error *err)
{
    char path[1280];
    json_t *root;
    if (!path_of(path, sizeof path, folder, state_file, err))
        return DDL_E_USAGE;
    ddl_status status = open_state(path, &root, err);
    if (status)
        return status;
    const struct reader r = { path, root, err };
    status = read_state(&r, state);
    json_decref(root);
    return status;
}

static ddl_status check(const char *folder, const char *but, struct ddl_error *err)
{
    char path[1280];
    json_t *root;
    if (!path_of(path, sizeof path, folder, state_file, err))
        return DDL_E_USAGE;
    ddl_status status = open_state(path, &root, err);
    json_t *sums = json_object_get(root, sums_key);
    if (!status && but)
        (void)json_object_del(sums, but);
    if (!status)
        status = ddl_sums_check(folder, sums, err);
    json_decref(root);
    return status;
}

ddl_status ddl_checkpoint_check(const char *folder, struct ddl_error *err)
{
    return check(folder, NULL, err);
}

ddl_status ddl_checkpoint_check_model(const char *folder, struct ddl_error *err)
{
    char path[1280];
    bool is_checkpoint = ddl_path_join(path, sizeof path, folder, state_file) && ddl_file_exists(path);
    return is_checkpoint ? check(folder, "optimizer.safetensors", err) : DDL_OK;
}

ddl_status ddl_checkpoint_read_state(const char *folder, const struct ddl_train_config *config,
                                     struct ddl_run_state *state, ddl_warn_fn *note, void *user,
                                     struct ddl_error *err)
{
    char path[1280];
    json_t *root;
    if (!path_of(path, sizeof path, folder, state_file, err))
        return DDL_E_USAGE;
    ddl_status status = open_state(path, &root, err);
    const struct reader r = { path, root, err };
    const struct ddl_train_config resolved = ddl_train_resolved(config);
    if (!status)
        status = ddl_sums_check(folder, json_object_get(root, sums_key), err);
    if (!status)
        status = read_state(&r, state);
    if (!status)
        status = compare_model(folder, &config->config, err);
    if (!status)
        status = compare_keys(&r, &resolved, note, user);
    json_decref(root);
    return status;
}
