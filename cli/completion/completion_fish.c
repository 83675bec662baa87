/* The script for fish: a `complete` per option, with the command as its condition. */
#include "cli/completion/completion.h"

#include <stdio.h>
#include <string.h>

static void print_description(const char *before, const char *text)
{
    printf(" -d '%s", before);
    for (; text && *text; text++) {
        if (*text == '\'' || *text == '\\')
            putchar('\\');
        putchar(*text);
    }
    printf("'\n");
}

/* Commands, or the actions of one, as arguments under a condition. */
static void print_list(const struct command *const *list, const char *condition)
{
    for (size_t i = 0; list[i]; i++) {
        printf("complete -c ddl -n '%s' -f -a %s", condition, last_word(list[i]->name));
        print_description("", list[i]->about);
    }
}

static void print_option(const struct command *command, const struct ddl_option *row, const char *name,
                         const char *no)
{
    printf("complete -c ddl -n '__ddl_is %s' -l %s", command->name, no);
    for (const char *c = name; *c; c++)
        putchar(*c == '_' ? '-' : *c);
    if (row->type != DDL_OPTION_BOOL && value_kind(row) == VALUE_FILES)
        printf(" -r -F");
    else if (row->type != DDL_OPTION_BOOL)
        printf(" -x");
    if (row->type != DDL_OPTION_BOOL && value_kind(row) == VALUE_NAMES) {
        printf(" -a '");
        print_value_names(row);
        putchar('\'');
    }
    print_description(*no ? "off: " : "", row->help);
}

static void print_command(const struct command *command)
{
    char name[128];
    for (size_t g = 0; g < MAX_OPTION_GROUPS && group_rows(&command->options[g]); g++) {
        for (const struct ddl_option *row = group_rows(&command->options[g]); row->name; row++) {
            for (size_t i = 0; ddl_option_name(row, i, name, sizeof name); i++) {
                print_option(command, row, name, "");
                if (row->type == DDL_OPTION_BOOL)
                    print_option(command, row, name, "no-");
            }
        }
    }
}

void print_fish_completion(void)
{
    fputs("# fish completion of ddl, written by 'ddl completion fish'.\n"
          "# Whether the words after ddl begin with the arguments.\n"
          "function __ddl_is\n"
          "    set -l words (commandline -opc)\n"
          "    for i in (seq (count $argv))\n"
          "        set -l at (math $i + 1)\n"
          "        test \"$words[$at]\" = \"$argv[$i]\"; or return 1\n"
          "    end\n"
          "end\n"
          "# Whether the number of complete words equals the argument.\n"
          "function __ddl_at\n"
          "    test (count (commandline -opc)) -eq $argv[1]\n"
          "end\n"
          "complete -c ddl -l help -d 'print help'\n"
          "complete -c ddl -n '__ddl_at 1' -l version -d 'print the version'\n",
          stdout);
    print_list(commands, "__ddl_at 1");
    print_list(commands, "__ddl_is help; and __ddl_at 2");
    printf("complete -c ddl -n '__ddl_is completion; and __ddl_at 2' -f -a 'bash zsh fish'\n");
    for (size_t i = 0; commands[i]; i++) {
        char condition[64];
        snprintf(condition, sizeof condition, "__ddl_is %s; and __ddl_at 2", commands[i]->name);
        if (commands[i]->actions)
            print_list(commands[i]->actions, condition);
        for (size_t k = 0; commands[i]->actions && commands[i]->actions[k]; k++)
            print_command(commands[i]->actions[k]);
        if (!commands[i]->actions)
            print_command(commands[i]);
    }
}
