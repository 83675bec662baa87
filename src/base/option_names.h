/* The names of options, and what an unknown name was probably meant to be. */
#ifndef DDL_BASE_OPTION_NAMES_H
#define DDL_BASE_OPTION_NAMES_H

#include "ddl/option.h"

#include <stddef.h>

enum { DDL_SUGGESTIONS = 3 };

struct ddl_suggestion {
    const struct ddl_option *rows[DDL_SUGGESTIONS]; /* equally good ones, in the order of the tables */
    size_t n;                                       /* 0: none                                      */
    const struct ddl_other_name *other; /* `name` is another program's: the one row has it; else NULL */
    bool by_help;                       /* only the help texts have the words of the name             */
};

/* Searches two tables (either may be NULL): names of other programs first, then names and aliases, then, if
 * `help`, help texts. */
void ddl_suggest(const struct ddl_option *table, const struct ddl_option *table2, const char *name, bool help,
                 struct ddl_suggestion *out);

/* Writes to out what follows "unknown option 'x'": ", did you mean '--a' or '--b'?", or "" for no suggestion.
 * `prefix` precedes the names: "--" or "--no-", with which '_' is written as '-', or "" for keys. */
void ddl_suggestion_text(const struct ddl_suggestion *suggestion, const char *prefix, char *out, size_t size);

#endif
