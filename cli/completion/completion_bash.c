/* The script for bash. */
#include "cli/completion/completion.h"

#include <stdio.h>

static void print_flags(const struct command *command)
{
    const char *before = "";
    for (size_t g = 0; g < MAX_OPTION_GROUPS && group_rows(&command->options[g]); g++) {
        for (const struct ddl_option *row = group_rows(&command->options[g]); row->name; row++) {
            fputs(before, stdout);
            print_names_of(row, "--", " ");
            if (row->type == DDL_OPTION_BOOL) {
                putchar(' ');
                print_names_of(row, "--no-", " ");
            }
            before = " ";
        }
    }
    printf("%s--help", before);
}

/* A branch that sets kind=names with the names, kind=files, or kind=none for free text. */
static void print_value(const struct ddl_option *row)
{
    static const char *const kinds[] = {
        [VALUE_TEXT] = "none", [VALUE_FILES] = "files", [VALUE_NAMES] = "names"
    };
    printf("        ");
    print_names_of(row, "--", "|");
    printf(")\n            kind=%s", kinds[value_kind(row)]);
    if (value_kind(row) == VALUE_NAMES) {
        printf(" names='");
        print_value_names(row);
        putchar('\'');
    }
    printf(" ;;\n");
}

static void print_case(const struct command *command)
{
    printf("    '%s')\n        names='", command->name);
    print_flags(command);
    printf("'\n        case $before in\n");
    for (size_t g = 0; g < MAX_OPTION_GROUPS && group_rows(&command->options[g]); g++) {
        for (const struct ddl_option *row = group_rows(&command->options[g]); row->name; row++) {
            if (row->type != DDL_OPTION_BOOL)
                print_value(row);
        }
    }
    printf("        esac ;;\n");
}

void print_bash_completion(void)
{
    printf("# bash completion of ddl, written by 'ddl completion bash'.\n"
           "_ddl() {\n"
           "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} names kind=options\n"
           "    local command=${COMP_WORDS[1]}\n"
           "    # bash splits --name=value at the sign\n"
           "    if [[ $word == '=' ]]; then\n"
           "        word=\n"
           "    elif [[ $before == '=' && $COMP_CWORD -gt 1 ]]; then\n"
           "        before=${COMP_WORDS[COMP_CWORD-2]}\n"
           "    fi\n"
           "    COMPREPLY=()\n"
           "    if [[ $COMP_CWORD -eq 1 ]]; then\n"
           "        mapfile -t COMPREPLY < <(compgen -W '");
    print_command_names(commands);
    printf(" --help --version' -- \"$word\")\n        return\n    fi\n    case $command in\n"
           "    help | completion)\n        [[ $COMP_CWORD -gt 2 || $word == -* ]] || kind=names ;;\n");
    for (size_t i = 0; commands[i]; i++) {
        if (!commands[i]->actions)
            continue;
        printf("    %s)\n        if [[ $COMP_CWORD -eq 2 ]]; then\n            mapfile -t COMPREPLY < "
               "<(compgen -W '",
               commands[i]->name);
        print_command_names(commands[i]->actions);
        printf(" --help' -- \"$word\")\n            return\n        fi\n"
               "        command+=\" ${COMP_WORDS[2]}\" ;;\n");
    }
    printf("    esac\n    case $command in\n");
    for (size_t i = 0; commands[i]; i++) {
        for (size_t k = 0; commands[i]->actions && commands[i]->actions[k]; k++)
            print_case(commands[i]->actions[k]);
        if (!commands[i]->actions)
            print_case(commands[i]);
    }
    printf("    esac\n    if [[ $kind == names && $COMP_CWORD -eq 2 ]]; then\n        case $command in\n     "
           "   help) "
           "names='");
    print_command_names(commands);
    printf("' ;;\n        completion) names='bash zsh fish' ;;\n        esac\n    fi\n"
           "    if [[ $kind == names || ( $kind == options && $word == -* ) ]]; then\n"
           "        mapfile -t COMPREPLY < <(compgen -W \"$names\" -- \"$word\")\n"
           "    elif [[ $kind != none ]]; then\n"
           "        compopt -o filenames 2>/dev/null\n"
           "        mapfile -t COMPREPLY < <(compgen -f -- \"$word\")\n"
           "    fi\n"
           "}\n"
           "complete -F _ddl ddl\n");
}
