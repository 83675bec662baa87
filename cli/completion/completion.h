/* What the scripts of ddl completion share; completion_bash.c, completion_zsh.c and completion_fish.c write
 * one each. */
#ifndef DDL_CLI_COMPLETION_H
#define DDL_CLI_COMPLETION_H

#include "cli/cli.h"

void print_bash_completion(void);
void print_zsh_completion(void);
void print_fish_completion(void);

/* What the value of an option can be: free text, a path, or one of print_value_names. */
enum value_kind { VALUE_TEXT, VALUE_FILES, VALUE_NAMES };
enum value_kind value_kind(const struct ddl_option *row);

/* These print names separated by spaces (the option's names and aliases: each after `before`, by `between`).
 */
void print_value_names(const struct ddl_option *row);
void print_names_of(const struct ddl_option *row, const char *before, const char *between);
void print_command_names(const struct command *const *list);
/* The text for a place between single quotes, with a backslash before each character of `special`. */
void print_escaped(const char *text, const char *special);

#endif
