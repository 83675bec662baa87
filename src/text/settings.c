#include "text/settings.h"

#include "base/json.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

const char *ddl_json_type_name(const json_t *value)
{
    static const char *const names[] = {
        [JSON_OBJECT] = "an object",   [JSON_ARRAY] = "a list",  [JSON_STRING] = "a string",
        [JSON_INTEGER] = "an integer", [JSON_REAL] = "a number", [JSON_TRUE] = "true",
        [JSON_FALSE] = "false",        [JSON_NULL] = "null"
    };
    return value ? names[json_typeof(value)] : "nothing";
}

/* Allowed values of a setting. An absent setting is allowed by all except BYTE_LEVEL. */
enum allowed {
    ONLY_NULL,
    NULL_OR_ZERO,
    NULL_OR_EMPTY,
    NULL_OR_BYTE_LEVEL, /* an object whose type is ByteLevel */
    BYTE_LEVEL,         /* the same, and required */
    TYPE_BPE,
    ONLY_TRUE,
};

static bool is_allowed(const json_t *value, enum allowed allowed)
{
    const char *type = json_string_value(json_object_get(value, "type"));
    bool byte_level = type && strcmp(type, "ByteLevel") == 0;
    bool nothing = !value || json_is_null(value);
    switch (allowed) {
    case ONLY_NULL:
        return nothing;
    case NULL_OR_ZERO:
        return nothing || (json_is_number(value) && json_number_value(value) == 0);
    case NULL_OR_EMPTY:
        return nothing || (json_is_string(value) && json_string_length(value) == 0);
    case NULL_OR_BYTE_LEVEL:
        return nothing || byte_level;
    case BYTE_LEVEL:
        return byte_level;
    case TYPE_BPE:
        return nothing || (json_is_string(value) && strcmp(json_string_value(value), "BPE") == 0);
    case ONLY_TRUE:
        return !value || json_is_true(value);
    }
    return false;
}

bool ddl_tokenizer_has_characters(const json_t *root)
{
    const json_t *pre = json_object_get(root, "pre_tokenizer"), *decoder = json_object_get(root, "decoder");
    const json_t *merges = json_object_get(json_object_get(root, "model"), "merges");
    const char *type = json_string_value(json_object_get(decoder, "type"));
    return (!pre || json_is_null(pre)) && json_is_array(merges) && json_array_size(merges) == 0 &&
           (!decoder || json_is_null(decoder) || (type && strcmp(type, "Fuse") == 0));
}

ddl_status ddl_tokenizer_check_settings(const json_t *root, const char *path, struct ddl_error *err)
{
    static const struct {
        const char *object, *key;
        enum allowed allowed;
        const char *wanted;
    } rows[] = {
        { NULL, "truncation", ONLY_NULL, "only null is supported" },
        { NULL, "padding", ONLY_NULL, "only null is supported" },
        { NULL, "normalizer", ONLY_NULL, "only null is supported" },
        { NULL, "pre_tokenizer", BYTE_LEVEL, "only type ByteLevel is supported" },
        { "pre_tokenizer", "use_regex", ONLY_TRUE, "only true is supported" },
        { NULL, "post_processor", NULL_OR_BYTE_LEVEL, "only null and type ByteLevel are supported" },
        { NULL, "decoder", NULL_OR_BYTE_LEVEL, "only null and type ByteLevel are supported" },
        { "model", "type", TYPE_BPE, "only \"BPE\" is supported" },
        { "model", "dropout", NULL_OR_ZERO, "only null and 0 are supported" },
        { "model", "continuing_subword_prefix", NULL_OR_EMPTY, "only null and \"\" are supported" },
        { "model", "end_of_word_suffix", NULL_OR_EMPTY, "only null and \"\" are supported" },
    };
    const bool characters = ddl_tokenizer_has_characters(root);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (characters && (rows[i].allowed == BYTE_LEVEL || strcmp(rows[i].key, "decoder") == 0))
            continue;
        const json_t *object = rows[i].object ? json_object_get(root, rows[i].object) : root;
        const json_t *value = json_object_get(object, rows[i].key);
        if (is_allowed(value, rows[i].allowed))
            continue;
        char *found = ddl_json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
        ddl_status status = ddl_error_set(err, DDL_E_UNSUPPORTED, "%s: %s%s%s is %.200s; %s", path,
                                          rows[i].object ? rows[i].object : "", rows[i].object ? "." : "",
                                          rows[i].key, found ? found : "missing", rows[i].wanted);
        free(found);
        return status;
    }
    return DDL_OK;
}
