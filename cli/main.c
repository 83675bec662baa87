#include "cli.h"
#include "ddl/version.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Each is defined in its cmd_<name>.c. */
const struct command *const commands[] = {
    &ablate_command,
    &bench_command,
    &compare_command,
    &completion_command,
    &data_command,
    &eval_command,
    &export_command,
    &generate_command,
    &graft_command,
    &help_command,
    &info_command,
    &inspect_command,
    &logprobs_command,
    &report_command,
    &sweep_command,
    &tokenizer_command,
    &train_command,
    &verify_command,
    NULL,
};

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

static int run_command(const struct command *command, int argc, char **argv)
{
    const struct command *action =
        command->actions && argc > 1 ? find_command(command->actions, argv[1]) : NULL;
    if (action)
        return run_command(action, argc - 1, argv + 1);
    if (wants_help(argc, argv)) {
        print_help(command);
        return EXIT_OK;
    }
    return command->actions ? no_action(command, argv[1]) : command->run(argc, argv);
}

static int run(int argc, char **argv)
{
    if (argc < 2) {
        print_overview(stderr);
        return EXIT_USAGE;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("ddl %s\n", ddl_version());
        return EXIT_OK;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_overview(stdout);
        return EXIT_OK;
    }
    const struct command *command = find_command(commands, argv[1]);
    return command ? run_command(command, argc - 1, argv + 1) : unknown_command(commands, NULL, argv[1]);
}

int main(int argc, char **argv)
{
    restore_environment();
    explain_lost_pages();
    int status = run(argc, argv);
    /* A full disk behind a redirection shows only here. */
    bool failed = ferror(stdout) != 0;
    if (fflush(stdout) != 0 || failed) {
        fprintf(stderr, "ddl: cannot write standard output: %s\n", strerror(errno));
        return status ? status : EXIT_FAILED;
    }
    return status;
}
