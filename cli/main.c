#include "cli/cli.h"
#include "cli/output/escape.h"
#include "ddl/backend.h"
#include "ddl/comm.h"
#include "ddl/version.h"

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Each is defined in its cmd_<name>.c. */
const struct command *const commands[] = {
    &ablate_command, &bench_command,     &compare_command,  &completion_command, &data_command,
    &eval_command,   &export_command,    &generate_command, &graft_command,      &help_command,
    &info_command,   &inspect_command,   &logprobs_command, &report_command,     &serve_command,
    &sweep_command,  &tokenizer_command, &train_command,    &verify_command,     NULL,
};

const struct command *current_command;

/* Reports a missing or unknown action. */
static int no_action(const struct command *command, const char *found)
{
    if (found)
        return unknown_command(command->actions, command, found);
    char names[320] = "";
    size_t used = 0;
    for (size_t i = 0; command->actions[i]; i++) {
        const char *join = i == 0 ? "" : command->actions[i + 1] ? ", " : " or ";
        int n =
            snprintf(names + used, sizeof names - used, "%s%s", join, last_word(command->actions[i]->name));
        used += (size_t)n < sizeof names - used ? (size_t)n : 0;
    }
    snprintf(names + used, sizeof names - used, " ('ddl help %s')", command->name);
    struct ddl_error err;
    ddl_option_missing(command->name, names, &err);
    return report_error(&err);
}

static bool wants_help(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return true;
    }
    return false;
}

/* Rejects a command for one process if a launcher started several, or an unknown number of processes. */
static int refuse(const struct command *command, const struct ddl_comm_launch *launch)
{
    struct ddl_error err;
    ddl_error_set(&err, DDL_E_USAGE,
                  "%s: does not divide its work between processes: expected one, found those that %s "
                  "started (%s=%s); set DDL_COMM=none to run them independently of each other",
                  command->name, launch->launcher, launch->variable, getenv(launch->variable));
    return report_error(&err);
}

static int run_command(const struct command *command, int argc, char **argv)
{
    const struct command *action =
        command->actions && argc > 1 ? find_command(command->actions, argv[1]) : NULL;
    const struct ddl_comm_launch launch = ddl_comm_launched();
    if (action)
        return run_command(action, argc - 1, argv + 1);
    bool help = wants_help(argc, argv), prints = help || command->actions;
    if (launch.rank > 0 && (prints || command->processes != ALL_PROCESSES))
        return EXIT_OK; /* the first process sets the exit status of the job */
    if (help) {
        print_help(command);
        return EXIT_OK;
    }
    if (command->actions)
        return no_action(command, argv[1]);
    current_command = command;
    return launch.size != 1 && command->processes == ONE_PROCESS ? refuse(command, &launch)
                                                                 : command->run(argc, argv);
}

/* What the program is made of on this machine, for reports of problems. */
static int print_libraries(void)
{
    struct ddl_error err;
    ddl_backend *backend;
    char library[1100], name[DDL_BACKEND_NAME_SIZE];
    if (ddl_backend_create(&backend, NULL, 0, &err)) {
        fprintf(stderr, "ddl: %s\n", printable(err.text));
        return EXIT_FAILED;
    }
    printf("backend: %s\nbackends:", printable(ddl_backend_description(backend)));
    ddl_backend_free(backend);
    for (size_t i = 0; ddl_backend_list(i, name); i++)
        printf(" %s", name);
    printf("\n");
    ddl_comm_library(library, sizeof library);
    printf("MPI: %s\n", printable(library));
    return EXIT_OK;
}

static int run(int argc, char **argv)
{
    const struct command *command = argc > 1 ? find_command(commands, argv[1]) : NULL;
    if (command)
        return run_command(command, argc - 1, argv + 1);
    if (ddl_comm_launched().rank > 0)
        return EXIT_OK;
    if (argc < 2) {
        print_overview(stderr);
        return EXIT_USAGE;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("ddl %s\n", ddl_version());
        return argc > 2 && strcmp(argv[2], "--verbose") == 0 ? print_libraries() : EXIT_OK;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_overview(stdout);
        return EXIT_OK;
    }
    return unknown_command(commands, NULL, argv[1]);
}

int main(int argc, char **argv)
{
    reserve_streams();
    restore_environment();
    explain_lost_pages();
    signal(SIGXFSZ, SIG_IGN); /* a write beyond the limit on file sizes fails with EFBIG and a message */
    return close_output(run(argc, argv)); /* a full disk behind a redirection shows only there */
}
