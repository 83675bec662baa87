/* A streaming JSON writer: compact, in the C locale, allocates nothing. It places the commas; the caller
 * closes what it has opened. */
#ifndef DDL_JSON_H
#define DDL_JSON_H

#include "ddl/option.h"
#include "ddl/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A writer's state; begins as { stream, false }. Write errors are those of the stream (ferror). */
struct ddl_json {
    FILE *out;  /* borrowed                               */
    bool comma; /* whether a comma precedes the next value */
};

/* Each function writes one value; `key` is its name in an object, NULL in an array or at the top. */

/* Begins an object or array by its `bracket`, '{' or '['. */
DDL_API void ddl_json_open(struct ddl_json *json, const char *key, char bracket);
/* Ends it by its `bracket`, '}' or ']'. */
DDL_API void ddl_json_close(struct ddl_json *json, char bracket);
/* null */
DDL_API void ddl_json_null(struct ddl_json *json, const char *key);
/* `value` as true or false. */
DDL_API void ddl_json_bool(struct ddl_json *json, const char *key, bool value);
/* `value`, a whole number. */
DDL_API void ddl_json_count(struct ddl_json *json, const char *key, uint64_t value);
/* `value` with `digits` significant digits, as printf's %g; null where it is not finite. */
DDL_API void ddl_json_number(struct ddl_json *json, const char *key, double value, int digits);
/* `value` with `decimals` digits after the point; null where it is not finite. */
DDL_API void ddl_json_fixed(struct ddl_json *json, const char *key, double value, int decimals);
/* A string: `size` bytes of `text`. Bytes that are not UTF-8 become U+FFFD. */
DDL_API void ddl_json_text(struct ddl_json *json, const char *key, const char *text, size_t size);
/* A string: `text` up to its NUL, as ddl_json_text; null where it is NULL. */
DDL_API void ddl_json_string(struct ddl_json *json, const char *key, const char *text);
/* The name of `option` and its field of `object` as ddl_option_format writes it: a number, a string ("auto"
 * too), true or false. */
DDL_API void ddl_json_option(struct ddl_json *json, const struct ddl_option *option, const void *object);

#ifdef __cplusplus
}
#endif
#endif
