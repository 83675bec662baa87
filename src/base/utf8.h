/* Strict UTF-8 (Unicode 15, table 3-7): rejects overlong forms, surrogates and code points above U+10FFFF. */
#ifndef DDL_BASE_UTF8_H
#define DDL_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Decodes the character at s[0..n-1], n > 0, into *code. Returns its length in bytes, 1 to 4, or 0 if s does
 * not start with a complete valid character. */
size_t ddl_utf8_decode(const unsigned char *s, size_t n, uint32_t *code);

bool ddl_utf8_is_valid(const char *text, size_t size);

/* Encodes a character (not a surrogate) and returns its length. */
size_t ddl_utf8_encode(uint32_t code, char out[4]);

/* Whether a terminal does not print the character (not below U+0080), but acts on it or changes the direction
 * of the text: U+0080 to U+009F, line separators, directional marks, embeddings, overrides and isolates. */
bool ddl_utf8_is_hidden(uint32_t code);

/* Returns how many bytes at the end of s[0..n-1] are the start of an incomplete character: 0 to 3. */
size_t ddl_utf8_incomplete_tail(const unsigned char *s, size_t n);

#endif
