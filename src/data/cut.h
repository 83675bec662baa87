/* Finds positions at which a text can be split into pieces that encode to the ids of the whole. */
#ifndef DDL_DATA_CUT_H
#define DDL_DATA_CUT_H

#include <stdbool.h>
#include <stddef.h>

/* Returns the largest known p, 0 < p < size, such that encoding [0, p) and [p, size) separately gives the ids
 * of the whole text, whatever follows it; 0 if there is none. Prefers a cut between an ASCII letter and a
 * line break. If `at_space`, cuts only before a space: required for a tokenizer that prepends a space to a
 * text. */
size_t ddl_cut_find(const char *text, size_t size, bool at_space);

#endif
