/* Pre-tokenization: splits text into the pieces within which BPE merges, by GPT-2's pattern
 *   '(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 * A byte that is not part of a valid UTF-8 character is classified as a symbol ([^\s\p{L}\p{N}]), so any byte
 * sequence can be split.
 * The scanner is hand-written for speed. The classes (letter, number, white space) are Unicode's; PCRE2
 * computes them once, when the table is built. tests/text/test_split.c compares the scanner with PCRE2
 * running the full pattern. */
#ifndef DDL_TEXT_SPLIT_H
#define DDL_TEXT_SPLIT_H

#include "ddl/status.h"

#include <stddef.h>

enum ddl_char_class { DDL_CHAR_SYMBOL, DDL_CHAR_LETTER, DDL_CHAR_NUMBER, DDL_CHAR_SPACE };

/* The class of every code point, one byte each. Read-only after initialization. */
struct ddl_char_classes {
    unsigned char *of; /* [0x110000] */
};
ddl_status ddl_char_classes_init(struct ddl_char_classes *classes, struct ddl_error *err);
void ddl_char_classes_free(struct ddl_char_classes *classes);

/* Returns the length in bytes of the piece that starts at text[0], which must be the start of a piece. size >
 * 0 is the number of bytes up to the end of the whole text, which is significant: trailing white space is one
 * piece. */
size_t ddl_split_next(const struct ddl_char_classes *classes, const char *text, size_t size);

#endif
