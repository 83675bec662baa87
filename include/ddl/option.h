/* Options: one table row a setting, from which flags, YAML keys, JSON keys, help and validation all come.
 * A row names a field of a plain struct by its offset, so that a configuration stays a value. */
#ifndef DDL_OPTION_H
#define DDL_OPTION_H

#include "ddl/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a value is: the field's C type, and how it is written. */
enum ddl_option_type {
    DDL_OPTION_BOOL,    /* bool: true/false, yes/no, on/off, 1/0                          */
    DDL_OPTION_SIZE,    /* size_t                                                         */
    DDL_OPTION_U64,     /* uint64_t                                                       */
    DDL_OPTION_FLOAT,   /* float                                                          */
    DDL_OPTION_DOUBLE,  /* double                                                         */
    DDL_OPTION_STRING,  /* char[size]                                                     */
    DDL_OPTION_CHOICE,  /* int: an index into `choices`                                   */
    DDL_OPTION_PATH,    /* char[size]: of a file or folder, or a pattern                  */
    DDL_OPTION_PATHS,   /* char[size]: one path, or several as ddl_option_join_paths writes them */
    DDL_OPTION_STRINGS, /* char[size]: the values of an option that may be repeated, a line each */
};

/* The value of a U64 field whose text is "auto": the program computes the value. */
#define DDL_OPTION_AUTO UINT64_MAX

/* What the name of an option of another program is here. */
enum ddl_other_kind {
    DDL_OTHER_DIFFERS, /* the row is suggested; its meaning differs                  */
    DDL_OTHER_NONE,    /* nothing corresponds to it: the row is not suggested        */
    DDL_OTHER_SAME,    /* accepted as an alias, which help and completion do not list */
};

/* A name that another program uses. */
struct ddl_other_name {
    const char *name;         /* NULL ends a list; a single letter: with its dash, "-n"              */
    const char *advice;       /* DIFFERS (or NULL), NONE: how the row differs, or what to do instead */
    enum ddl_other_kind kind; /* what the name is here                                               */
};

/* A setting. Tables end with a row whose name is NULL. */
struct ddl_option {
    const char *name; /* as in YAML or JSON; on the command line --name, where '-' and '_' are the same */
    enum ddl_option_type type; /* of the field */
    size_t offset;   /* of the field in its struct                                                     */
    size_t size;     /* STRING, STRINGS, PATH, PATHS: bytes of the array                                */
    double min, max; /* numbers: the range, inclusive; both 0: any finite value of the type            */
    const char *const
        *choices;          /* CHOICE: names, ended by NULL; PATH, PATHS: words that are no path, or NULL */
    const char *value;     /* what the help calls the value: "N", "DIR", ...; NULL for BOOL              */
    const char *help;      /* one line, no final period                                                  */
    const char *aliases;   /* other names for it, separated by spaces; NULL: none                     */
    const char *automatic; /* U64: "auto" is a value too, computed by this rule; NULL: it is not      */
    const struct ddl_other_name *others; /* names of other programs; NULL: none */
};

/* `aliases` of batch, which several commands have. */
#define DDL_BATCH_ALIASES "batch_size micro_batch_size"
/* `aliases` of seq. */
#define DDL_SEQ_ALIASES "seq_len sequence_length"
/* `aliases` of backend. */
#define DDL_BACKEND_ALIASES "device"
/* `aliases` of threads. */
#define DDL_THREADS_ALIASES "num_threads"

/* Writes name i of the option to out, truncated to size: its own name, then its aliases. False past the last.
 */
DDL_API bool ddl_option_name(const struct ddl_option *option, size_t i, char *out, size_t size);

/* The table's row whose name or alias is `name` ('-' equals '_'), or NULL. */
DDL_API const struct ddl_option *ddl_option_find(const struct ddl_option *table, const char *name);

/* The table's row whose name or alias resembles `name` most (a typo, an abbreviation, some of its words), if
 * enough to be worth suggesting; else NULL. */
DDL_API const struct ddl_option *ddl_option_nearest(const struct ddl_option *table, const char *name);

/* Parses `text` into the option's field of *object. The whole text must be a value in range. `where` is
 * the prefix of the error message: "recipe.yaml:7", "--lr". */
DDL_API ddl_status ddl_option_set(const struct ddl_option *option, void *object, const char *text,
                                  const char *where, struct ddl_error *err);

/* Into out[size]: `text`, a value of `option` that is not a text, in the form that ddl_option_format writes,
 * which equal values share. False if it is no such value. */
DDL_API bool ddl_option_normalize(const struct ddl_option *option, const char *text, char *out, size_t size);
/* Whether the option has the same value for the texts a and b; false if either is no value of it. */
DDL_API bool ddl_option_same(const struct ddl_option *option, const char *a, const char *b);

/* Writes the option's field of *object to out as ddl_option_set reads it back (floats with all digits they
 * need). Truncates to size. */
DDL_API void ddl_option_format(const struct ddl_option *option, const void *object, char *out, size_t size);

/* Writes the option's range to out, as "0 to 1" with all digits that the two need; "" where any value will
 * do. Truncates to size. */
DDL_API void ddl_option_range(const struct ddl_option *option, char *out, size_t size);

/* Checks that `value` is an index of `choices`, names ended by NULL; `name` is the prefix of the error
 * message. */
DDL_API ddl_status ddl_choice_check(const char *name, const char *const *choices, int value,
                                    struct ddl_error *err);

/* Checks each field of *object against its row of `table`, as ddl_option_set does for text: for values set
 * from C. Strings are not checked. */
DDL_API ddl_status ddl_option_check(const struct ddl_option *table, const void *object,
                                    struct ddl_error *err);

/* "unknown <kind> 'name'", with ", did you mean 'x'?" and the advice of struct ddl_other_name where rows of
 * the table resemble it, or ", see 'x'" where their help texts have its words; `where` starts it, if it is
 * not NULL. Without any of these err->has_no_hint is set. Returns DDL_E_USAGE. */
DDL_API ddl_status ddl_option_unknown(const struct ddl_option *table, const char *where, const char *kind,
                                      const char *name, struct ddl_error *err);

/* "<where>: missing argument: expected <expected>": a value, file or option that is required and not given.
 * Returns DDL_E_USAGE. */
DDL_API ddl_status ddl_option_missing(const char *where, const char *expected, struct ddl_error *err);

/* Whether the field of `option` is char[size]. */
DDL_API bool ddl_option_is_text(const struct ddl_option *option);
/* Whether the value of `option` is a path or several. */
DDL_API bool ddl_option_is_path(const struct ddl_option *option);

/* Writes n >= 1 paths as one text to out (size bytes): a single path unchanged; a pattern ("dir/a_*.bin") if
 * exactly these paths match it; else the paths, separated by commas. `where` is the prefix of the error
 * message. DDL_E_USAGE if the text does not fit, or if one of several paths contains a comma. */
DDL_API ddl_status ddl_option_join_paths(const char *const *paths, size_t n, const char *where, char *out,
                                         size_t size, struct ddl_error *err);

/* Reads `--name value`, `--name=value` and, for BOOL, `--name` and `--no-name` from argv[1..argc-1] into
 * *object by the rows of `table`. What is no option is kept, in order, as argv[1..*n_positional] ("-" and
 * negative numbers too); after "--" everything is. A value that itself starts with "--" needs the form with
 * '='; the argument after a BOOL is its value only if it is one of the words above. The value of PATHS
 * includes the arguments after it that have its file name extension: a pattern that the shell has expanded.
 * What is not found in `table` is looked up in `table2` for `object2` (both may be NULL). The last of several
 * values counts (of STRINGS all), but two names of one option with different values are an error. */
DDL_API ddl_status ddl_option_parse(const struct ddl_option *table, void *object,
                                    const struct ddl_option *table2, void *object2, int argc, char **argv,
                                    int *n_positional, struct ddl_error *err);

/* Sets given[i] to whether argv[1..argc-1] has an option for row i of `table`; ddl_option_parse has accepted
 * it with `table` and `table2`. */
DDL_API void ddl_option_find_given(const struct ddl_option *table, const struct ddl_option *table2, int argc,
                                   char **argv, bool *given);

#ifdef __cplusplus
}
#endif
#endif
