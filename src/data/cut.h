/* Where a text may be cut so that its pieces have the ids of the whole. */
#ifndef DDL_DATA_CUT_H
#define DDL_DATA_CUT_H

#include <stdbool.h>
#include <stddef.h>

/* The largest p, 0 < p < size, such that encoding [0, p) and [p, size) apart gives the ids of the whole text,
 * whatever follows it; 0 if none is known. A cut between an ASCII letter and a line break is preferred.
 * With `at_space` only before a space: for a tokenizer that puts one before any other beginning of a text. */
size_t ddl_cut_find(const char *text, size_t size, bool at_space);

#endif
