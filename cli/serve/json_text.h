/* JSON that is written to memory. */
#ifndef DDL_CLI_SERVE_JSON_TEXT_H
#define DDL_CLI_SERVE_JSON_TEXT_H

#include "cli/output/buffer.h"
#include "ddl/json.h"

#include <jansson.h>
#include <stdbool.h>

struct json_text {
    struct ddl_json json; /* writes to memory */
    char *bytes;
    size_t n;
};
/* False without memory; then there is nothing to close. */
bool json_text_open(struct json_text *text);
/* Appends what was written to `out`. False without memory. */
bool json_text_close(struct json_text *text, struct buffer *out);
/* Writes a value that is the JSON `text`; `key` is its name in an object, NULL in an array. */
void json_raw(struct ddl_json *json, const char *key, const char *text);

/* A whole number that is not negative into *out, which is 0 otherwise; 2.0 is one, as JSON Schema has it. */
bool json_whole(size_t *out, const json_t *value);

#endif
