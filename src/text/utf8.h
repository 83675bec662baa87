/* UTF-8, strictly (Unicode 15, table 3-7): no overlong forms, no surrogates, nothing beyond U+10FFFF. */
#ifndef DDL_TEXT_UTF8_H
#define DDL_TEXT_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* The character at s[0..n-1], n > 0: returns its length in bytes, 1 to 4, and *code; or 0 if what stands
 * there is no whole character. */
size_t ddl_utf8_decode(const unsigned char *s, size_t n, uint32_t *code);

/* Writes the character (not a surrogate) and returns its length. */
size_t ddl_utf8_encode(uint32_t code, char out[4]);

/* How many bytes at the end of s[0..n-1] begin a character that is not yet whole: 0 to 3. */
size_t ddl_utf8_incomplete_tail(const unsigned char *s, size_t n);

#endif
