/* Text from files, folder names and arguments, printed so that it cannot control a terminal. */
#ifndef DDL_TEXT_H
#define DDL_TEXT_H

#include "ddl/status.h"

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Into out[size], ended by a NUL: the `n` bytes of `text`, with an escape in place of each character that a
 * terminal does not print. Control characters (newline and tab too) and bytes that are not UTF-8 become a
 * backslash, "x" and two hexadecimal digits. The controls U+0080 to U+009F, the line separators U+2028 and
 * U+2029, and characters that change the direction of text (U+061C, U+200E, U+200F, U+202A to U+202E, U+2066
 * to U+2069) become a backslash, "u" and at least four digits in braces. Returns the bytes that the whole
 * result has, as snprintf; what does not fit is left out by whole characters. */
DDL_API size_t ddl_text_escape(char *out, size_t size, const char *text, size_t n);

/* Appends a name to the text in out[size], after `separator` unless the text is empty: a list for a message.
 * What does not fit is cut off. */
DDL_API void ddl_text_append(char *out, size_t size, const char *separator, const char *name);

#ifdef __cplusplus
}
#endif
#endif
