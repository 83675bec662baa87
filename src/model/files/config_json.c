#define _POSIX_C_SOURCE 200809L
#include "model/files/config_json.h"

#include "base/file.h"
#include "base/json.h"
#include "base/locale.h"
#include "ddl/model.h"
#include "model/config/config.h"
#include "model/files/config_metadata.h"
#include "model/files/config_release.h"
#include "model/files/tensor_names.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_JSON = 1 << 20 };

/* Names that the release's c = 1 file has for keys of ours. */
static const struct {
    const char *alias, *key;
} aliases[] = {
    { "ddl_v_dim1_constant", "ddl_v_constant" },
    { "ddl_v_dim1_constant_value", "ddl_v_constant_value" },
};

/* What the release and Hugging Face's library write besides the configuration; they have no effect here. */
static const char *const silent_keys[] = {
    "model_type",
    "architectures",
    "auto_map",
    "torch_dtype",
    "dtype",
    "transformers_version",
    "use_cache",
    "attention_dtype",
    "intermediate_size", /* inferred from the shape of mlp.c_fc1, which is checked */
    "mlp_hidden_mult",
    "_name_or_path",
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
    "return_dict",
    "output_attentions",
    "output_hidden_states",
    "is_decoder",
    "is_encoder_decoder",
    "_attn_implementation",
    "attn_implementation",
    "attn_implementation_autoset",
    "_attn_implementation_autoset",
    "_attn_implementation_internal",
    "add_cross_attention",
    "torchscript",
    "kv_cache_slot_size", /* memory of the release's cache */
};

/* Switches of the release that models here do not have, with the value that changes nothing (null does not
 * either). Another value is another model; unless no file of the release reads the key, which then has a
 * remark for a warning. */
static const struct {
    const char *key, *neutral, *remark;
} switches[] = {
    { "bias", "false", "no model of the release reads it, and none has biases in its layers" },
    { "using_groupnorm", "false", NULL },
    { "scale_attn_by_inverse_layer_idx", "false", "no model of the release reads it" },
    { "use_output_gate", "false", NULL },
    { "use_k_shift", "false", NULL },
    { "use_v_shift", "false", NULL },
    { "q_activation", "null", NULL },
    { "k_activation", "null", NULL },
    { "v_activation", "null", NULL },
    { "ddl_state_dv_shortconv_causal", "false", NULL },
    { "ddl_sequence_reduction_version", "1", NULL },
    { "residual_branch_mult", "1", NULL },
    { "rms_norm_eps", "1e-5", NULL },
    { "tie_word_embeddings", "true", NULL },
    { "dropout", "0", "no model of the release reads it, and there is no dropout here" },
};

static const char *const required_keys[] = { "vocab_size", "num_hidden_layers", "num_attention_heads",
                                             "hidden_size" };

/* Our own keys that can be inferred from the tensors, if config.json lacks one of them. */
static const char *const own_keys[] = { "ddl_residual", "ddl_map", "ddl_k_rank", "ddl_compress",
                                        "ddl_embed" };

struct reader {
    const char *path; /* of config.json */
    ddl_warn_fn *warn;
    void *user;
};

static const struct ddl_option *row_of(const char *key)
{
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++) {
        if (strcmp(aliases[i].alias, key) == 0)
            return ddl_option_find(ddl_config_options(), aliases[i].key);
    }
    const struct ddl_option *row = ddl_option_find(ddl_config_options(), key);
    return row && strcmp(row->name, key) == 0 ? row : NULL;
}

static bool is_silent(const char *key)
{
    for (size_t i = 0; i < sizeof silent_keys / sizeof *silent_keys; i++) {
        if (strcmp(silent_keys[i], key) == 0)
            return true;
    }
    return false;
}

static void warn_unknown(const struct reader *r, const char *key)
{
    struct ddl_error message;
    if (!r->warn)
        return;
    ddl_option_unknown(ddl_config_options(), r->path, "key", key, &message);
    size_t used = strlen(message.text);
    snprintf(message.text + used, sizeof message.text - used, "%s it is ignored",
             message.text[used - 1] == '?' ? "" : ";");
    r->warn(r->user, message.text);
}

/* A JSON value as the text that its row would read; false if it is of another type. */
static bool value_text(const struct ddl_option *row, const json_t *value, char *out, size_t size)
{
    switch (row->type) {
    case DDL_OPTION_BOOL:
        snprintf(out, size, "%s", json_is_true(value) ? "true" : "false");
        return json_is_boolean(value);
    case DDL_OPTION_CHOICE:
        snprintf(out, size, "%s", json_is_string(value) ? json_string_value(value) : "");
        return json_is_string(value);
    case DDL_OPTION_FLOAT:
        if (json_is_real(value)) {
            ddl_format_double(out, size, 17, 'g', json_real_value(value));
            return true;
        }
        break;
    default:
        break;
    }
    snprintf(out, size, "%lld", (long long)json_integer_value(value));
    return json_is_integer(value);
}

static const char *type_wanted(const struct ddl_option *row)
{
    switch (row->type) {
    case DDL_OPTION_BOOL:
        return "true or false";
    case DDL_OPTION_CHOICE:
        return "a string";
    case DDL_OPTION_FLOAT:
        return "a number";
    default:
        return "a whole number";
    }
}

static const char *type_found(const json_t *value)
{
    static const char *const names[] = {
        [JSON_OBJECT] = "an object",   [JSON_ARRAY] = "a list",
        [JSON_STRING] = "a string",    [JSON_INTEGER] = "a whole number",
        [JSON_REAL] = "a real number", [JSON_TRUE] = "true",
        [JSON_FALSE] = "false",        [JSON_NULL] = "null",
    };
    return names[json_typeof(value)];
}

/* Rows whose 0 means "the default" may say null. */
static bool null_is_default(const struct ddl_option *row)
{
    static const size_t fields[] = { offsetof(struct ddl_config, state_kernel),
                                     offsetof(struct ddl_config, read_init),
                                     offsetof(struct ddl_config, k_rank),
                                     offsetof(struct ddl_config, mlp_size) };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (row->offset == fields[i])
            return true;
    }
    return false;
}

/* Whether a value is `neutral`, which is JSON too. */
static bool is_neutral(const json_t *value, const char *neutral)
{
    if (json_is_null(value))
        return true;
    if (json_is_boolean(value))
        return strcmp(neutral, json_is_true(value) ? "true" : "false") == 0;
    return json_is_number(value) &&
           fabs(json_number_value(value) - ddl_parse_double(neutral, NULL)) <= 1e-12 &&
           strspn(neutral, "0123456789") > 0;
}

/* Warns that a switch has a value which has no effect. */
static void warn_remark(const struct reader *r, const char *key, const char *value, const char *remark)
{
    struct ddl_error message;
    if (!r->warn)
        return;
    ddl_error_set(&message, DDL_OK, "%s: %s is %.80s: %s; ignored", r->path, key, value, remark);
    r->warn(r->user, message.text);
}

/* A key without a row: a switch of the release, a key without effect, or an unknown key. */
static ddl_status read_other(const struct reader *r, const char *key, const json_t *value,
                             struct ddl_error *err)
{
    for (size_t i = 0; i < sizeof switches / sizeof *switches; i++) {
        if (strcmp(switches[i].key, key) != 0)
            continue;
        if (is_neutral(value, switches[i].neutral))
            return DDL_OK;
        char *text = ddl_json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(9));
        if (switches[i].remark) {
            warn_remark(r, key, text ? text : "?", switches[i].remark);
            free(text);
            return DDL_OK;
        }
        ddl_error_set(err, DDL_E_UNSUPPORTED, "%s: %s is %.80s, expected %s: other models are not supported",
                      r->path, key, text ? text : "?", switches[i].neutral);
        free(text);
        return DDL_E_UNSUPPORTED;
    }
    if (strcmp(key, ddl_by_layer_key) != 0 && !is_silent(key))
        warn_unknown(r, key);
    return DDL_OK;
}

static ddl_status read_key(const struct reader *r, const char *key, const json_t *value,
                           struct ddl_config *config, struct ddl_error *err)
{
    const struct ddl_option *row = row_of(key);
    if (!row)
        return read_other(r, key, value, err);
    char text[128], where[1200];
    snprintf(where, sizeof where, "%s: %s", r->path, key);
    if (json_is_null(value) && null_is_default(row))
        return DDL_OK;
    if (!value_text(row, value, text, sizeof text))
        return ddl_error_set(err, DDL_E_FORMAT, "%s is %s, expected %s", where, type_found(value),
                             type_wanted(row));
    return ddl_config_file_status(ddl_option_set(row, config, text, where, err), err);
}

static ddl_status read_by_layer(const struct reader *r, const json_t *root, struct ddl_config *config,
                                struct ddl_error *err)
{
    if (ddl_json_lacks(root, ddl_by_layer_key))
        return DDL_OK;
    const json_t *list = json_object_get(root, ddl_by_layer_key);
    char where[1200], rules[DDL_MAX_LAYERS * DDL_RULE_NAME] = "";
    snprintf(where, sizeof where, "%s: %s", r->path, ddl_by_layer_key);
    if (!json_is_array(list))
        return ddl_error_set(err, DDL_E_FORMAT, "%s is %s, expected a list of names of rules", where,
                             type_found(list));
    if (json_array_size(list) != config->n_layers)
        return ddl_error_set(err, DDL_E_FORMAT, "%s: %zu rules, num_hidden_layers is %zu", where,
                             json_array_size(list), config->n_layers);
    for (size_t i = 0, used = 0; i < json_array_size(list); i++) {
        const json_t *rule = json_array_get(list, i);
        if (!json_is_string(rule) || json_string_length(rule) == 0)
            return ddl_error_set(err, DDL_E_FORMAT, "%s: rule %zu is %s, expected the name of a rule", where,
                                 i, json_is_string(rule) ? "empty" : type_found(rule));
        int n = snprintf(rules + used, sizeof rules - used, "%s%.*s", i ? "," : "", DDL_RULE_NAME - 2,
                         json_string_value(rule));
        used += (size_t)n;
    }
    ddl_status status = ddl_config_file_status(ddl_config_set_by_layer(config, rules, where, err), err);
    if (!status && ddl_json_lacks(root, "ddl_residual"))
        config->residual = config->residual_by_layer[0];
    return status;
}

/* A key and its alias must agree. */
static ddl_status check_aliases(const struct reader *r, const json_t *root, struct ddl_error *err)
{
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++) {
        json_t *a = json_object_get(root, aliases[i].key), *b = json_object_get(root, aliases[i].alias);
        bool same = json_is_number(a) && json_is_number(b) ? json_number_value(a) == json_number_value(b)
                                                           : json_equal(a, b);
        if (a && b && !same)
            return ddl_error_set(err, DDL_E_FORMAT, "%s: %s and %s are the same setting and differ", r->path,
                                 aliases[i].key, aliases[i].alias);
    }
    return DDL_OK;
}

/* Keys of ours that config.json lacks: from the tensors' __metadata__, else from their names and shapes. */
static ddl_status read_tensors(const char *folder, json_t *root, struct ddl_config *config,
                               struct ddl_error *err)
{
    ddl_safetensors *st;
    ddl_status status = ddl_model_tensors_open(&st, folder, err);
    if (status == DDL_E_IO)
        return ddl_error_prefix(err, status,
                                "config.json does not say which model it is, nor do the tensors");
    if (status)
        return status;
    status = ddl_config_from_metadata(config, root, st, folder, err);
    if (!status)
        status = ddl_config_from_tensors(config, root, st, err);
    ddl_safetensors_close(st);
    return status;
}

static ddl_status read_keys(const struct reader *r, const char *folder, json_t *root,
                            struct ddl_config *config, struct ddl_error *err)
{
    for (size_t i = 0; i < sizeof required_keys / sizeof *required_keys; i++) {
        if (!json_object_get(root, required_keys[i]))
            return ddl_error_set(err, DDL_E_FORMAT,
                                 "%s: no key %s: not a model of ddl or of the authors' release", r->path,
                                 required_keys[i]);
    }
    const char *key;
    json_t *value;
    ddl_status status = check_aliases(r, root, err);
    if (status)
        return status;
    json_object_foreach(root, key, value)
    {
        status = read_key(r, key, value, config, err);
        if (status)
            return status;
    }
    status = read_by_layer(r, root, config, err);
    bool incomplete = false;
    for (size_t i = 0; i < sizeof own_keys / sizeof *own_keys; i++)
        incomplete = incomplete || ddl_json_lacks(root, own_keys[i]);
    /* the metadata may have further keys */
    if (!status && (incomplete || ddl_safetensors_in_folder(folder)))
        status = read_tensors(folder, root, config, err);
    if (!status && ddl_config_check(config, err))
        status = ddl_error_prefix(err, DDL_E_FORMAT, r->path);
    return status;
}

/* The configuration that a training script saved beside the weights, for a folder without config.json. *root
 * is NULL if there is none. `path` becomes what messages name. */
static ddl_status read_settings(const char *folder, json_t **root, char *path, size_t size,
                                struct ddl_error *err)
{
    ddl_safetensors *st;
    *root = NULL;
    if (!ddl_safetensors_in_folder(folder))
        return DDL_OK;
    ddl_status status = ddl_model_tensors_open(&st, folder, err);
    if (status)
        return status;
    const json_t *settings = ddl_safetensors_settings(st);
    if (settings) {
        snprintf(path, size, "%s: model_args", ddl_safetensors_path(st, ddl_safetensors_at(st, 0)));
        if (!(*root = json_deep_copy(settings)))
            status = ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory", path);
    }
    ddl_safetensors_close(st);
    return status;
}

ddl_status ddl_config_load(struct ddl_config *out, const char *folder, ddl_warn_fn *warn, void *user,
                           struct ddl_error *err)
{
    char path[1024];
    json_t *root = NULL;
    if (!ddl_path_join(path, sizeof path, folder, "config.json"))
        return ddl_error_set(err, DDL_E_USAGE, "%.200s: the folder's path is too long", folder);
    ddl_status status = ddl_file_exists(path) ? DDL_OK : read_settings(folder, &root, path, sizeof path, err);
    if (!status && !root)
        status = ddl_json_read(&root, path, MAX_JSON, err);
    if (status)
        return status;
    const struct reader reader = { path, warn, user };
    struct ddl_config config = ddl_config_defaults();
    if (!json_is_object(root))
        status = ddl_error_set(err, DDL_E_FORMAT, "%s: not a JSON object", path);
    else
        status = read_keys(&reader, folder, root, &config, err);
    json_decref(root);
    if (!status)
        *out = config;
    return status;
}

/* ---- writing ---- */

static void append(struct ddl_config_text *t, const char *prefix, const char *body, const char *suffix)
{
    int n = snprintf(t->bytes + t->used, sizeof t->bytes - t->used, "%s%s%s", prefix, body, suffix);
    t->used += (size_t)n;
}

static void append_row(struct ddl_config_text *t, const char *key, const struct ddl_option *row,
                       const struct ddl_config *config)
{
    char value[64];
    ddl_option_format(row, config, value, sizeof value);
    append(t, t->used > 2 ? ",\n  \"" : "  \"", key, "\": ");
    if (row->type == DDL_OPTION_FLOAT && !strpbrk(value, ".e"))
        append(t, "", value, ".0"); /* so that a reader in Python sees a float */
    else
        append(t, "", value, "");
}

ddl_status ddl_config_text(struct ddl_config_text *t, const struct ddl_config *config, const char *path,
                           struct ddl_error *err)
{
    ddl_status status = ddl_config_check(config, err);
    if (status)
        return ddl_error_prefix(err, status, path);
    /* The release wants numbers where 0 stands for a default of ours. */
    const struct ddl_config resolved = ddl_config_resolved(config);
    *t = (struct ddl_config_text){ .bytes = "{\n", .used = 2 };
    for (const struct ddl_option *row = ddl_config_options(); row->name; row++) {
        if (!ddl_config_row_is_own(row))
            append_row(t, row->name, row, &resolved);
    }
    /* The release's c = 1 file reads the constant under these names only. */
    for (size_t i = 0; config->channels == 1 && i < sizeof aliases / sizeof *aliases; i++)
        append_row(t, aliases[i].alias, row_of(aliases[i].key), &resolved);
    append(t, "\n}\n", "", "");
    return DDL_OK;
}

ddl_status ddl_config_save(const struct ddl_config *config, const char *path, struct ddl_error *err)
{
    struct ddl_config_text t;
    ddl_status status = ddl_config_text(&t, config, path, err);
    return status ? status : ddl_file_replace(path, t.bytes, t.used, err);
}
