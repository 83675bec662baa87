/* Pre-tokenisation: the pieces inside which BPE merges, as GPT-2's pattern cuts them,
 *   '(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 * A byte that is no part of a UTF-8 character counts as a symbol ([^\s\p{L}\p{N}]), so any bytes can be cut.
 *
 * The scanner is ours, for speed; what is a letter, a number or white space is Unicode's and comes from
 * PCRE2, asked once for every character when the table is made. tests/text/test_split.c compares the scanner
 * with PCRE2 running the whole pattern. */
#ifndef DDL_TEXT_SPLIT_H
#define DDL_TEXT_SPLIT_H

#include "ddl/status.h"

#include <stddef.h>

enum ddl_char_class { DDL_CHAR_SYMBOL, DDL_CHAR_LETTER, DDL_CHAR_NUMBER, DDL_CHAR_SPACE };

/* The class of every character, one byte each. Read-only after it is made. */
struct ddl_char_classes {
    unsigned char *of; /* [0x110000] */
};
ddl_status ddl_char_classes_init(struct ddl_char_classes *classes, struct ddl_error *err);
void ddl_char_classes_free(struct ddl_char_classes *classes);

/* The length in bytes of the piece that starts at text[0]; size > 0 is what is left of the whole text, whose
 * end matters (trailing white space is one piece). text[0] must be where a piece starts. */
size_t ddl_split_next(const struct ddl_char_classes *classes, const char *text, size_t size);

#endif
