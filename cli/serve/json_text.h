/* JSON that is written to memory. */
#ifndef DDL_CLI_SERVE_JSON_TEXT_H
#define DDL_CLI_SERVE_JSON_TEXT_H

#include "cli/serve/buffer.h"
#include "ddl/json.h"

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
/* Writes a member whose value is the JSON `text`. */
void json_raw(struct ddl_json *json, const char *key, const char *text);

#endif
