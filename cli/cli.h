/* The program: a table of commands over the public headers. */
#ifndef DDL_CLI_H
#define DDL_CLI_H

#include "ddl/option.h"
#include "ddl/status.h"

#include <stdbool.h>
#include <stddef.h>

/* Exit statuses. */
enum { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_INTERRUPTED = 3 };

struct command {
    const char *name;  /* "train"                                                                     */
    const char *usage; /* what follows "ddl train": "RECIPE.yaml [--key value ...]"                   */
    const char *about; /* one line                                                                    */
    int (*run)(const struct command *self, int argc, char **argv); /* argv[0] is the command's name    */
};

/* Ended by a row whose name is NULL; main.c. */
extern const struct command commands[];

int cmd_bench(const struct command *self, int argc, char **argv);
int cmd_compare(const struct command *self, int argc, char **argv);
int cmd_data(const struct command *self, int argc, char **argv);
int cmd_eval(const struct command *self, int argc, char **argv);
int cmd_export(const struct command *self, int argc, char **argv);
int cmd_generate(const struct command *self, int argc, char **argv);
int cmd_info(const struct command *self, int argc, char **argv);
int cmd_tokenizer(const struct command *self, int argc, char **argv);
int cmd_train(const struct command *self, int argc, char **argv);
int cmd_verify(const struct command *self, int argc, char **argv);

/* Prints "ddl: <sentence>" on standard error and returns the exit status that fits: 2 for DDL_E_USAGE, 3 for
 * DDL_E_INTERRUPTED, else 1. */
int report_error(const struct ddl_error *err);

/* A command's help: its usage, its one line, further lines (ended by NULL), and its options, two columns, on
 * standard output. NULL tables and NULL lines are skipped. */
void print_help(const struct command *self, const char *const *lines, const struct ddl_option *table,
                const struct ddl_option *table2);
/* True if --help or -h stands among the arguments (before a "--"). */
int wants_help(int argc, char **argv);

/* Finds what ships with the project ("tokenizer", "text"): in ./data, in the data folder of the source tree
 * that the program was built in, or in share/ddl where it is installed. False, and out empty, if it is
 * nowhere. */
bool find_data(const char *relative, char *out, size_t size);

#endif
