/* The script for zsh: a case per command with the specifications of _arguments. */
#include "cli/completion/completion.h"

#include <stdio.h>
#include <string.h>

/* 'name:description' of each command, for _describe. */
static void print_descriptions(const struct command *const *list)
{
    for (size_t i = 0; list[i]; i++) {
        printf(" '%s:", last_word(list[i]->name));
        print_escaped(list[i]->about, "");
        putchar('\'');
    }
}

/* '--name[help]', and for a value =[help]:VALUE:action. */
static void print_spec(const struct ddl_option *row, const char *name, const char *before)
{
    printf(" \\\n            '%s", before);
    for (const char *c = name; *c; c++)
        putchar(*c == '_' ? '-' : *c);
    printf("%s[%s", row->type == DDL_OPTION_BOOL ? "" : "=", strcmp(before, "--") == 0 ? "" : "off\\: ");
    print_escaped(row->help ? row->help : "", "[]:\\");
    putchar(']');
    if (row->type != DDL_OPTION_BOOL) {
        printf(":%s:", row->value ? row->value : "VALUE");
        if (value_kind(row) == VALUE_FILES)
            printf("_files");
        if (value_kind(row) == VALUE_NAMES) {
            putchar('(');
            print_value_names(row);
            putchar(')');
        }
    }
    putchar('\'');
}

static void print_case(const struct command *command)
{
    char name[128];
    printf("    '%s')\n        _arguments '(- *)--help[print help]'", command->name);
    for (size_t g = 0; g < MAX_OPTION_GROUPS && group_rows(&command->options[g]); g++) {
        for (const struct ddl_option *row = group_rows(&command->options[g]); row->name; row++) {
            for (size_t i = 0; ddl_option_name(row, i, name, sizeof name); i++) {
                print_spec(row, name, "--");
                if (row->type == DDL_OPTION_BOOL)
                    print_spec(row, name, "--no-");
            }
        }
    }
    if (strcmp(command->name, "help") == 0) {
        printf(" \\\n            '1:command:(");
        print_command_names(commands);
        printf(")'");
    } else if (strcmp(command->name, "completion") == 0) {
        printf(" \\\n            '1:shell:(bash zsh fish)'");
    } else {
        printf(" \\\n            '*:file:_files'");
    }
    printf(" ;;\n");
}

void print_zsh_completion(void)
{
    printf("#compdef ddl\n# zsh completion of ddl, written by 'ddl completion zsh'.\n_ddl() {\n"
           "    local -a names\n    if (( CURRENT == 2 )); then\n        names=(");
    print_descriptions(commands);
    printf(")\n        _describe command names -- '(--help --version)'\n        return\n    fi\n"
           "    local command=$words[2]\n    case $command in\n");
    for (size_t i = 0; commands[i]; i++) {
        if (!commands[i]->actions)
            continue;
        printf("    %s)\n        if (( CURRENT == 3 )); then\n            names=(", commands[i]->name);
        print_descriptions(commands[i]->actions);
        printf(")\n            _describe action names\n            return\n        fi\n"
               "        command+=\" $words[3]\"\n        shift words\n        (( CURRENT-- )) ;;\n");
    }
    printf("    esac\n    shift words\n    (( CURRENT-- ))\n    case $command in\n");
    for (size_t i = 0; commands[i]; i++) {
        for (size_t k = 0; commands[i]->actions && commands[i]->actions[k]; k++)
            print_case(commands[i]->actions[k]);
        if (!commands[i]->actions)
            print_case(commands[i]);
    }
    /* Loaded by name, the file is the function; sourced, it declares the function. */
    printf("    esac\n}\nif [[ $funcstack[1] == _ddl ]]; then\n    _ddl \"$@\"\nelse\n    compdef _ddl "
           "ddl\nfi\n");
}
