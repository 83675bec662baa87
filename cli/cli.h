/* The program: a table of commands over the public headers. */
#ifndef DDL_CLI_H
#define DDL_CLI_H

#include "ddl/comm.h"
#include "ddl/option.h"
#include "ddl/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Exit statuses. */
enum { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_INTERRUPTED = 3 };

/* Options under one title: rows given here, or the library's table. */
struct option_group {
    const char *title; /* "keys of the recipe"; NULL: "options" */
    const struct ddl_option *rows;
    const struct ddl_option *(*table)(void);
    const void *(*defaults)(void); /* a struct of the rows with the values before parsing; NULL: all zero */
};

/* A file and what it is, or a command line and what it is for. */
struct note {
    const char *name, *about;
};

enum { MAX_OPTION_GROUPS = 4 };

/* What a command does where a launcher (mpirun, srun) started several processes. Help is always printed by
 * the first process alone. */
enum command_processes {
    ONE_PROCESS,   /* it fails: all would do the same work, and write the same files */
    FIRST_PROCESS, /* the first process runs it, the others exit with status 0       */
    ALL_PROCESSES, /* they divide its work                                           */
};

/* A command, or an action of one ("data build"): how it is run, and all that its help, its manual page and
 * its completion say. Lists end with NULL or an empty row; NULL lists are empty. */
struct command {
    const char *name;        /* "train", "data build"                                                       */
    const char *usage;       /* what follows "ddl train": "RECIPE.yaml [--key value ...]"                   */
    const char *about;       /* one line, no final stop                                                     */
    const char *const *text; /* further paragraphs                                                    */
    struct option_group options[MAX_OPTION_GROUPS];
    const char *keys_title;           /* of the keys below: "keys of --force"                        */
    const struct note *(*keys)(void); /* KEY=VALUE pairs of an option and what each does; NULL: none  */
    const struct note *examples;      /* name: the line without its "$ "                                   */
    const struct note *files;
    const struct command *const *actions; /* then run is NULL: the first argument names one of them   */
    enum command_processes processes;
    int (*run)(int argc, char **argv); /* argv[0] is the last word of the name                        */
};

/* In the order of the alphabet, ended by NULL; main.c. */
extern const struct command *const commands[];

extern const struct command ablate_command;
extern const struct command bench_command;
extern const struct command compare_command;
extern const struct command completion_command;
extern const struct command data_command;
extern const struct command eval_command;
extern const struct command export_command;
extern const struct command generate_command;
extern const struct command graft_command;
extern const struct command help_command;
extern const struct command info_command;
extern const struct command inspect_command;
extern const struct command logprobs_command;
extern const struct command report_command;
extern const struct command serve_command;
extern const struct command sweep_command;
extern const struct command tokenizer_command;
extern const struct command train_command;
extern const struct command verify_command;

/* The command, or the action of one, that main runs; NULL before that. main.c. */
extern const struct command *current_command;

/* The command of a list whose last word is `name`, or NULL. */
const struct command *find_command(const struct command *const *list, const char *name);
/* "data": unknown action 'bild', did you mean 'build'? Without `command`: unknown command. Returns
 * EXIT_USAGE. */
int unknown_command(const struct command *const *list, const struct command *command, const char *name);
/* "build" of "data build". */
const char *last_word(const char *name);

/* DDL_OK for `min` to `max` arguments that are no options, argv[1] to argv[n]; else DDL_E_USAGE with a
 * message. `expected` describes one: "a model folder (DIR)". */
ddl_status check_arguments(const char *command, int n, char **argv, int min, int max, const char *expected,
                           struct ddl_error *err);

/* The name of an option as the command line has it, without "--": "val-data" of "val_data". */
void flag_name(const char *name, char *out, size_t size);
/* DDL_E_USAGE with "--NAME: expected with WITH" if one of `names`, rows of `table`, NULL-ended, was given (by
 * ddl_option_find_given). */
ddl_status check_needs(const struct ddl_option *table, const bool *given, const char *const *names,
                       const char *with, struct ddl_error *err);

/* Removes slashes at the end of a path. */
void trim_slashes(char *path);

/* Prints "ddl: <message>" on standard error, with a reference to the help of the current command if the
 * message is about an unknown option and has no suggestion, and returns the exit status that fits: 2 for
 * DDL_E_USAGE, 3 for DDL_E_INTERRUPTED, else 1. */
int report_error(const struct ddl_error *err);
/* The exit status alone. */
int error_exit(ddl_status status);

/* What a rank does; comm is NULL for one process. Returns the exit status. */
typedef int ranks_body(ddl_comm *comm, int argc, char **argv);
/* Connects the ranks that a launcher started, calls body on all of them, and disconnects them. Returns the
 * exit status; it is an error if they run different commands or versions. To be called after
 * catch_interrupts: an MPI library starts threads. */
int on_ranks(ranks_body *body, int argc, char **argv);
/* report_error on rank 0, for an error that all ranks have; error_exit on the others. */
int report_agreed(const ddl_comm *comm, const struct ddl_error *err);

/* All commands with their one line each. */
void print_overview(FILE *out);
/* A command's help on standard output: its usage, its one line, its text, its actions, its options. */
void print_help(const struct command *command);
/* "--warmup N", "--[no-]mup", "--ddl-map k|v" as it is typed; returns the length of the name's part. */
size_t describe_flag(const struct ddl_option *option, char *out, size_t size);
/* The rows of a group: its own, or the library's; NULL past the last group of a command. */
const struct ddl_option *group_rows(const struct option_group *group);
/* The value of the row in `defaults`, as text: "8", "auto: steps/50, at most 2000". */
void describe_default_value(const struct ddl_option *row, const void *defaults, char *out, size_t size);
/* " (also --batch-size, --micro-batch-size)", or nothing. */
void describe_aliases(const struct ddl_option *row, char *out, size_t size);
/* " [default: 8]" for a row of a group; empty for a flag that is off and for an empty text. */
void describe_default(const struct option_group *group, const struct ddl_option *row, char *out, size_t size);

/* manual.c: page number i ("ddl.1", "ddl-train.1", ...), whole, on standard output; false past the last. */
bool manual_name(size_t i, char *out, size_t size);
void print_manual(size_t i);

/* The paragraph about the inputs of data build and tokenizer train. */
#define INPUT_TEXT                                                                                           \
    "INPUT is a file (.txt or .jsonl, also compressed as .gz or .zst), a folder that is searched for such",  \
        "files, or - for standard input."

/* SIGBUS handler for files that another process truncates while they are mapped: prints an error message and
 * exits with EXIT_FAILED. */
void explain_lost_pages(void);

/* streams.c. Opens /dev/null for each standard stream that is closed, so that no file that is opened later
 * gets its number; called before any file is opened. Reading and printing on it fail. */
void reserve_streams(void);
/* Closes standard output. Returns the exit status: `status`, or EXIT_FAILED with a message if something could
 * not be printed. */
int close_output(int status);

/* spin.c: ends the change of the environment that was made before main; called first in main. */
void restore_environment(void);

#endif
