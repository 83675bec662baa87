/* Reads JSON (RFC 8259) token by token, without a tree: for texts that are large, or of which little is read.
 * It accepts the same texts as jansson, except that numbers may be of any size: they are not converted. */
#ifndef DDL_BASE_JSON_SCAN_H
#define DDL_BASE_JSON_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DDL_JSON_DEPTH = 2048 }; /* nested values: the limit of jansson */

enum ddl_json_token {
    DDL_JSON_ERROR,  /* why and at say what and where; returned again by further calls */
    DDL_JSON_END,    /* of the text, which has one complete value                      */
    DDL_JSON_OBJECT, /* begins */
    DDL_JSON_OBJECT_END,
    DDL_JSON_ARRAY, /* begins */
    DDL_JSON_ARRAY_END,
    DDL_JSON_KEY, /* the next token begins its value */
    DDL_JSON_STRING,
    DDL_JSON_NUMBER,
    DDL_JSON_TRUE,
    DDL_JSON_FALSE,
    DDL_JSON_NULL,
};

/* Begins as { .text = text, .at = text, .end = text + size, .longest = limit }; the text is borrowed. */
struct ddl_json_scan {
    const char *text, *at, *end;
    size_t longest;    /* a longer key, string, number or white space is an error */
    const char *value; /* of a key or string: what is between the quotes; of a number: its text */
    size_t size;       /* bytes of it                                                           */
    bool escaped;      /* a key or string that has escape sequences                             */
    unsigned depth;    /* objects and arrays that are open */
    int state;
    const char *why; /* after an error: a constant */
    unsigned char is_array[DDL_JSON_DEPTH / 8];
};

enum ddl_json_token ddl_json_scan_next(struct ddl_json_scan *scan);
/* Reads the rest of a value whose first token is `first`; false after an error. */
bool ddl_json_scan_skip(struct ddl_json_scan *scan, enum ddl_json_token first);
/* Writes the text of the current key or string, at most `size` bytes in UTF-8, without a NUL; returns the
 * number of bytes. `out` may be at or before the text itself. */
size_t ddl_json_scan_decode(const struct ddl_json_scan *scan, char *out);
/* Whether the current key or string is `text`. */
bool ddl_json_scan_is(const struct ddl_json_scan *scan, const char *text);
/* The current number as an integer from 0 to INT64_MAX; false for any other number. */
bool ddl_json_scan_size(const struct ddl_json_scan *scan, size_t *out);
/* Line and column of `at`, from 1; the column counts characters. */
void ddl_json_scan_position(const struct ddl_json_scan *scan, size_t *line, size_t *column);
/* "an object", "a string", ...: for messages. */
const char *ddl_json_token_name(enum ddl_json_token token);

/* The string of the key `key` in the object that the text is; of several such keys, the last one counts. */
struct ddl_json_found {
    enum ddl_json_token root; /* of the whole text                                 */
    enum ddl_json_token type; /* of the key's value; DDL_JSON_END without that key */
    const char *value;        /* if it is a string: for ddl_json_unescape          */
    size_t size;
};
/* False if the text is not valid JSON: then *scan has the error. */
bool ddl_json_find(struct ddl_json_scan *scan, const char *key, struct ddl_json_found *out);
/* As ddl_json_scan_decode. */
size_t ddl_json_unescape(const char *value, size_t size, char *out);

/* An upper bound of the memory that jansson's tree of the text takes on a 64-bit system; of invalid JSON, of
 * the part before the error. Ends early with a larger value than `limit`. */
size_t ddl_json_tree_bytes(const char *text, size_t size, size_t limit);

#endif
