/* Fuzzes the reader of JSON without a tree, against jansson: the same texts are valid, except that numbers
 * may be of any size, and the string of a key is the same. */
#include "fuzz.h"

#include "base/json_scan.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    FUZZ_CHECK(text != NULL);
    memcpy(text, data, size);
    struct ddl_json_scan scan = { .text = text, .at = text, .end = text + size, .longest = size };
    struct ddl_json_found found;
    json_error_t why;
    bool valid = ddl_json_find(&scan, "text", &found);
    json_t *root = json_loadb((const char *)data, size, JSON_ALLOW_NUL | JSON_DECODE_ANY, &why);
    if (root && !valid &&
        memchr(data, '\0', size)) { /* jansson takes a NUL byte after the value for the end */
        json_decref(root);
        root = NULL;
    }
    FUZZ_CHECK((root != NULL) == valid || (valid && json_error_code(&why) == json_error_numeric_overflow));
    FUZZ_CHECK(valid || (scan.why && scan.at >= text && scan.at <= text + size));
    size_t line, column;
    ddl_json_scan_position(&scan, &line, &column);
    FUZZ_CHECK(line >= 1 && column >= 1);
    if (root) {
        const json_t *value = json_object_get(root, "text");
        FUZZ_CHECK((found.root == DDL_JSON_OBJECT) == json_is_object(root));
        FUZZ_CHECK((found.type == DDL_JSON_END) == !value);
        FUZZ_CHECK((found.type == DDL_JSON_STRING) == json_is_string(value));
        if (json_is_string(value)) {
            size_t n = ddl_json_unescape(found.value, found.size, text);
            FUZZ_CHECK(n == json_string_length(value) && memcmp(text, json_string_value(value), n) == 0);
        }
        FUZZ_CHECK(ddl_json_tree_bytes((const char *)data, size, SIZE_MAX) >= 16);
    }
    json_decref(root);
    free(text);
    return 0;
}
