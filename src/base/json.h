/* JSON from text and files and back, with errors that jansson does not report: without memory it returns NULL
 * without an error, or with one about the text. */
#ifndef DDL_BASE_JSON_H
#define DDL_BASE_JSON_H

#include "ddl/status.h"

#include <jansson.h>
#include <stddef.h>

/* As json_loadb; *out is NULL after an error. DDL_E_FORMAT or DDL_E_MEMORY, and why->text has the message. A
 * tree of more than 64 MiB is an error: "{}" takes a hundred times as much memory as its text. */
ddl_status ddl_json_parse(json_t **out, const char *text, size_t size, size_t flags, json_error_t *why);

/* The text of the file `path`, of a kind whose files have at most `limit` bytes: its tree may take eight
 * times as much (and 1 MiB). Duplicate keys are errors. "<path>:<line>:<column>: not valid JSON: <why>". */
ddl_status ddl_json_parse_file(json_t **out, const char *path, const char *text, size_t size, size_t limit,
                               struct ddl_error *err);
/* Reads the file, of at most `limit` bytes, and parses it. *out is NULL after an error. */
ddl_status ddl_json_read(json_t **out, const char *path, size_t limit, struct ddl_error *err);

/* json_dumps() in the C locale, whatever locale the host program has set; malloc'ed, NULL without memory. */
char *ddl_json_dumps(const json_t *root, size_t flags);

/* Replaces the file by `root` (borrowed), indented. A NULL root, which is how jansson reports a lack of
 * memory, gives DDL_E_MEMORY. */
ddl_status ddl_json_write(const char *path, const json_t *root, struct ddl_error *err);

#endif
