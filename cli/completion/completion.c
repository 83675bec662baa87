/* ddl completion: a script per shell that completes commands, actions, options and their values without
 * running the program. */
#include "cli/completion/completion.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    void (*print)(void);
} shells[] = { { "bash", print_bash_completion },
               { "zsh", print_zsh_completion },
               { "fish", print_fish_completion } };

static int cmd_completion(int argc, char **argv)
{
    static const struct ddl_option none[] = { { 0 } };
    struct ddl_error err;
    int n;
    if (ddl_option_parse(none, NULL, NULL, NULL, argc, argv, &n, &err) ||
        check_arguments("completion", n, argv, 1, 1, "bash, zsh or fish", &err))
        return report_error(&err);
    for (size_t i = 0; i < sizeof shells / sizeof *shells; i++) {
        if (strcmp(argv[1], shells[i].name) == 0) {
            shells[i].print();
            return EXIT_OK;
        }
    }
    ddl_error_set(&err, DDL_E_USAGE, "completion: unknown shell: expected bash, zsh or fish, found '%.80s'",
                  argv[1]);
    return report_error(&err);
}

const struct command completion_command = {
    .name = "completion",
    .usage = "bash|zsh|fish",
    .about = "print the completion script for a shell",
    .text =
        (const char *const[]){
            "An installation of ddl includes these scripts in the folders that the shells search.", NULL },
    .examples =
        (const struct note[]){
            { "eval \"$(ddl completion bash)\"", "enable completion in the current bash session" },
            { "source <(ddl completion zsh)",
              "enable completion in the current zsh session, after compinit" },
            { "ddl completion fish | source", "enable completion in the current fish session" },
            { 0 } },
    .processes = FIRST_PROCESS,
    .run = cmd_completion,
};
