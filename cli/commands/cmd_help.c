/* ddl help: what --help shows, and the manual pages that are made of the same tables. */
#include "cli/cli.h"

#include <stdio.h>
#include <string.h>

struct flags {
    char man[64];
    bool pages;
};

#define AT(field) offsetof(struct flags, field)
static const struct ddl_option rows[] = {
    { "man", DDL_OPTION_STRING, AT(man), sizeof((struct flags *)0)->man, 0, 0, NULL, "PAGE",
      "print a manual page, as input for 'man -l -'" },
    { "pages", DDL_OPTION_BOOL, AT(pages), 0, 0, 0, NULL, NULL, "print the names of all manual pages" },
    { 0 },
};

static int print_pages(void)
{
    char name[64];
    for (size_t i = 0; manual_name(i, name, sizeof name); i++)
        puts(name);
    return EXIT_OK;
}

static int print_page(const char *wanted)
{
    char name[64];
    for (size_t i = 0; manual_name(i, name, sizeof name); i++) {
        size_t length = strlen(name);
        if (strcmp(name, wanted) == 0 ||
            (strlen(wanted) == length - 2 && !strncmp(name, wanted, length - 2))) {
            print_manual(i);
            return EXIT_OK;
        }
    }
    struct ddl_error err;
    ddl_error_set(&err, DDL_E_USAGE, "--man: there is no page '%s'; 'ddl help --pages' lists them", wanted);
    return report_error(&err);
}

/* "train", "data build". */
static int help_of(int n, char **names)
{
    const struct command *command = find_command(commands, names[0]);
    int used = 1;
    if (!command)
        return unknown_command(commands, NULL, names[0]);
    if (n > 1 && command->actions) {
        const struct command *action = find_command(command->actions, names[used++]);
        if (!action)
            return unknown_command(command->actions, command, names[1]);
        command = action;
    }
    if (n > used) {
        struct ddl_error err;
        ddl_error_set(&err, DDL_E_USAGE, "help: %s has no action '%.80s'", command->name, names[used]);
        return report_error(&err);
    }
    print_help(command);
    return EXIT_OK;
}

static int cmd_help(int argc, char **argv)
{
    struct flags flags = { 0 };
    struct ddl_error err;
    int n;
    if (ddl_option_parse(rows, &flags, NULL, NULL, argc, argv, &n, &err))
        return report_error(&err);
    if (flags.pages)
        return print_pages();
    if (*flags.man)
        return print_page(flags.man);
    if (n > 0)
        return help_of(n, argv + 1);
    print_overview(stdout);
    return EXIT_OK;
}

const struct command help_command = {
    .name = "help",
    .usage = "[COMMAND [ACTION]] [--man PAGE | --pages]",
    .about = "describe the program or a command",
    .options = { { .rows = rows } },
    .examples = (const struct note[]){ { "ddl help train", "the keys of a recipe, each also an option" },
                                       { "ddl help --man ddl-recipe | man -l -",
                                         "a manual page without installation" },
                                       { 0 } },
    .processes = FIRST_PROCESS,
    .run = cmd_help,
};
