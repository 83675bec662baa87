/* The JSON files of a folder for Hugging Face's transformers. */
#include "study/hf.h"

#include "base/file.h"
#include "base/json.h"
#include "base/locale.h"
#include "ddl/model.h"
#include "ddl/tokenizer.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_SIZE = 1280, MAX_JSON = 1 << 20 };

static const char end_of_text[] = DDL_END_OF_TEXT;
static const char *const dtype_names[] = {
    [DDL_EXPORT_F32] = "float32",
    [DDL_EXPORT_BF16] = "bfloat16",
    [DDL_EXPORT_F16] = "float16",
};

static ddl_status path_of(char *path, const char *folder, const char *name, struct ddl_error *err)
{
    return ddl_path_join(path, PATH_SIZE, folder, name)
               ? DDL_OK
               : ddl_error_set(err, DDL_E_USAGE, "%.200s: the folder's path is too long", folder);
}

/* Replaces a file by `root`, whose reference it takes; reals have the digits of a float. */
static ddl_status write_json(const char *folder, const char *name, json_t *root, struct ddl_error *err)
{
    char path[PATH_SIZE];
    ddl_status status = path_of(path, folder, name, err);
    char *text = root ? ddl_json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(root);
    if (!status && !text)
        status = ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory", path);
    if (!status)
        status = ddl_file_replace(path, text, strlen(text), err);
    free(text);
    return status;
}

/* ---- config.json ---- */

static json_t *row_value(const struct ddl_option *row, const struct ddl_config *config)
{
    char text[64];
    json_error_t why;
    json_t *value;
    ddl_option_format(row, config, text, sizeof text);
    if (row->type == DDL_OPTION_CHOICE)
        return json_string(text);
    if (row->type == DDL_OPTION_FLOAT)
        return json_real(ddl_parse_double(text, NULL));
    (void)ddl_json_parse(&value, text, strlen(text), JSON_DECODE_ANY, &why);
    return value;
}

static json_t *rules_by_layer(const struct ddl_config *config)
{
    json_t *list = json_array();
    for (size_t l = 0; list && l < config->n_layers; l++) {
        if (json_array_append_new(list, json_string(ddl_config_residual_name(config, l))) != 0) {
            json_decref(list);
            list = NULL;
        }
    }
    return list;
}

/* config.json with the keys that the release lacks, and those that transformers reads. */
static ddl_status complete_config(const struct ddl_config *config, const struct ddl_export_hf *hf,
                                  int32_t end, const char *folder, struct ddl_error *err)
{
    char path[PATH_SIZE];
    json_t *written;
    ddl_status status = path_of(path, folder, "config.json", err);
    if (!status)
        status = ddl_json_read(&written, path, MAX_JSON, err);
    if (status)
        return status;
    const struct ddl_config resolved = ddl_config_resolved(config);
    json_t *root =
        json_pack("{s:s, s:[s], s:s, s:b}", "model_type", "deep_delta", "architectures",
                  "DeepDeltaForCausalLM", "dtype", dtype_names[hf->dtype], "tie_word_embeddings", 1);
    int failed = !root || json_object_update(root, written) != 0;
    json_decref(written);
    for (const struct ddl_option *row = ddl_config_options(); row->name && !failed; row++) {
        if (!json_object_get(root, row->name))
            failed = json_object_set_new(root, row->name, row_value(row, &resolved)) != 0;
    }
    if (config->by_layer && !failed)
        failed = json_object_set_new(root, "ddl_residual_by_layer", rules_by_layer(config)) != 0;
    if (end >= 0 && !failed)
        failed = json_object_set_new(root, "bos_token_id", json_integer(end)) != 0 ||
                 json_object_set_new(root, "eos_token_id", json_integer(end)) != 0;
    if (failed) {
        json_decref(root);
        return ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory", path);
    }
    return write_json(folder, "config.json", root, err);
}

/* ---- the tokenizer ---- */

/* Also loads it: *out is NULL without one in the folder. */
static ddl_status write_tokenizer(ddl_tokenizer **out, const struct ddl_config *config, const char *folder,
                                  struct ddl_error *err)
{
    char json[PATH_SIZE], merges[PATH_SIZE];
    *out = NULL;
    ddl_status status = path_of(json, folder, "tokenizer.json", err);
    if (!status)
        status = path_of(merges, folder, "vocab.bpe", err);
    if (status || (!ddl_file_exists(json) && !ddl_file_exists(merges)))
        return status;
    status = ddl_tokenizer_load(out, folder, err);
    if (!status && !ddl_file_exists(json))
        status = ddl_tokenizer_save(*out, json, err);
    if (status)
        return status;
    int32_t end = ddl_tokenizer_end_of_text(*out);
    json_t *root =
        json_pack("{s:s, s:I, s:b}", "tokenizer_class", "PreTrainedTokenizerFast", "model_max_length",
                  (json_int_t)config->block_size, "clean_up_tokenization_spaces", 0);
    json_t *generation = json_object();
    static const char *const tokens[] = { "bos_token", "eos_token", "pad_token" };
    bool failed = false;
    for (size_t i = 0; end >= 0 && i < sizeof tokens / sizeof *tokens; i++) {
        char id[32];
        snprintf(id, sizeof id, "%s_id", tokens[i]);
        failed |= json_object_set_new(root, tokens[i], json_string(end_of_text)) != 0;
        failed |= json_object_set_new(generation, id, json_integer(end)) != 0;
    }
    if (failed) {
        json_decref(root);
        root = NULL;
    }
    status = write_json(folder, "tokenizer_config.json", root, err);
    if (status) {
        json_decref(generation);
        return status;
    }
    return write_json(folder, "generation_config.json", generation, err);
}

/* ---- the whole ---- */

ddl_status ddl_export_check_license(const char *license, const char *where, struct ddl_error *err)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";
    return license[strspn(license, allowed)] == '\0'
               ? DDL_OK
               : ddl_error_set(err, DDL_E_USAGE,
                               "%s: expected an identifier such as apache-2.0, found '%.80s'", where,
                               license);
}

ddl_status ddl_export_hf_files(void *user, const char *folder, struct ddl_error *err)
{
    struct ddl_export_hf *hf = user;
    struct ddl_config config;
    ddl_tokenizer *tokenizer = NULL;
    ddl_status status = ddl_export_check_license(hf->license ? hf->license : "", "license", err);
    if (!status)
        status = ddl_config_load(&config, folder, NULL, NULL, err);
    if (!status)
        status = write_tokenizer(&tokenizer, &config, folder, err);
    hf->has_tokenizer = tokenizer != NULL;
    if (!status)
        status =
            complete_config(&config, hf, tokenizer ? ddl_tokenizer_end_of_text(tokenizer) : -1, folder, err);
    ddl_tokenizer_free(tokenizer);
    return status ? status : ddl_hf_write_card(hf, &config, folder, err);
}
