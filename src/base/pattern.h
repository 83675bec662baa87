/* Files by a pattern of the shell: *, ? and [...] in any part of a path. Own implementation: glob() of the
 * GNU C Library (2.36) has a double free when memory runs out, and treats a folder that it has no memory to
 * read as empty. */
#ifndef DDL_BASE_PATTERN_H
#define DDL_BASE_PATTERN_H

#include "ddl/status.h"

#include <stdbool.h>

bool ddl_pattern_is(const char *path);

/* Calls `each` with every path that matches, in no particular order; an error that it returns ends the walk
 * and is returned. What begins with a dot fits only a pattern that does. What is not a
 * folder holds nothing; a folder that cannot be listed is an error. */
typedef ddl_status ddl_pattern_fn(void *user, const char *path, struct ddl_error *err);
ddl_status ddl_pattern_walk(const char *pattern, ddl_pattern_fn *each, void *user, struct ddl_error *err);

#endif
