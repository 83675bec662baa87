/* JSON that is written to memory, or read from it. */
#ifndef DDL_CLI_SERVE_JSON_TEXT_H
#define DDL_CLI_SERVE_JSON_TEXT_H

#include "cli/output/buffer.h"
#include "ddl/json.h"
#include "ddl/status.h"

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

/* As json_loadb; *out is NULL after an error. DDL_E_FORMAT or DDL_E_MEMORY, and why->text has the message.
 * More than 64 MiB of memory for the values, and 32 times the text, is an error of format. */
ddl_status json_parse(json_t **out, const char *text, size_t size, size_t flags, json_error_t *why);
/* A whole number that is not negative into *out, which is 0 otherwise; 2.0 is one, as JSON Schema has it. */
bool json_whole(size_t *out, const json_t *value);

#endif
