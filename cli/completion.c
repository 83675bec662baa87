/* What bash completes: commands, actions, options and their values, all of them in one script that runs no
 * program. */
#include "cli.h"

#include "ddl/backend.h"
#include "ddl/config.h"

#include <stdio.h>
#include <string.h>

static const char *model_name(size_t i, char *out, size_t size)
{
    const char *about;
    (void)out, (void)size;
    return ddl_config_preset_list(i, &about);
}

static const char *size_name(size_t i, char *out, size_t size)
{
    const char *about;
    (void)out, (void)size;
    return ddl_config_size_list(i, &about);
}

static const char *backend_name(size_t i, char *out, size_t size)
{
    (void)out, (void)size;
    return ddl_backend_list(i);
}

static const char *page_name(size_t i, char *out, size_t size)
{
    return manual_name(i, out, size) ? out : NULL;
}

/* Options that take one of a list's names: name i (possibly stored in `out`), or NULL past the last. */
static const struct {
    const char *option;
    const char *(*name)(size_t i, char *out, size_t size);
} lists[] = {
    { "model", model_name }, { "size", size_name }, { "backend", backend_name }, { "man", page_name }
};

/* The option's names, aliases included, with `between` between them; `no` is "" or "no-". */
static void print_flag(const struct ddl_option *row, const char *no, const char *between)
{
    char name[128];
    for (size_t i = 0; ddl_option_name(row, i, name, sizeof name); i++) {
        printf("%s--%s", i ? between : "", no);
        for (const char *c = name; *c; c++)
            putchar(*c == '_' ? '-' : *c);
    }
}

static void print_flags(const struct command *command)
{
    const char *before = "";
    for (size_t g = 0; g < MAX_OPTION_GROUPS && group_rows(&command->options[g]); g++) {
        for (const struct ddl_option *row = group_rows(&command->options[g]); row->name; row++) {
            fputs(before, stdout);
            print_flag(row, "", " ");
            if (row->type == DDL_OPTION_BOOL) {
                putchar(' ');
                print_flag(row, "no-", " ");
            }
            before = " ";
        }
    }
    printf("%s--help", before);
}

/* What the value of an option can be: kind=names with the names, kind=files, or kind=none for free text. */
static void print_value(const struct ddl_option *row)
{
    const char *word = row->value ? row->value : "";
    printf("        ");
    print_flag(row, "", "|");
    printf(")\n            kind=");
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        if (strcmp(row->name, lists[i].option) != 0)
            continue;
        const char *name;
        char buffer[64];
        printf("names names='");
        for (size_t k = 0; (name = lists[i].name(k, buffer, sizeof buffer)); k++)
            printf("%s%s", k ? " " : "", name);
        printf("' ;;\n");
        return;
    }
    if (row->type == DDL_OPTION_CHOICE) {
        printf("names names='");
        for (size_t k = 0; row->choices[k]; k++)
            printf("%s%s", k ? " " : "", row->choices[k]);
        printf("' ;;\n");
    } else {
        bool files = strcmp(word, "DIR") == 0 || strcmp(word, "PATH") == 0 || strcmp(word, "FILE") == 0;
        printf("%s ;;\n", files ? "files" : "none");
    }
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

static void print_names(const struct command *const *list)
{
    for (size_t i = 0; list[i]; i++)
        printf("%s%s", i ? " " : "", last_word(list[i]->name));
}

void print_completion(void)
{
    printf("# bash completion of ddl, written by 'ddl help --completion'.\n"
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
    print_names(commands);
    printf(" --help --version' -- \"$word\")\n        return\n    fi\n    case $command in\n    help)\n"
           "        [[ $COMP_CWORD -gt 2 || $word == -* ]] || kind=names ;;\n");
    for (size_t i = 0; commands[i]; i++) {
        if (!commands[i]->actions)
            continue;
        printf("    %s)\n        if [[ $COMP_CWORD -eq 2 ]]; then\n            mapfile -t COMPREPLY < "
               "<(compgen -W '",
               commands[i]->name);
        print_names(commands[i]->actions);
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
    printf("    esac\n"
           "    [[ $command == help && $kind == names && $COMP_CWORD -eq 2 ]] && names='");
    print_names(commands);
    printf("'\n"
           "    if [[ $kind == names || ( $kind == options && $word == -* ) ]]; then\n"
           "        mapfile -t COMPREPLY < <(compgen -W \"$names\" -- \"$word\")\n"
           "    elif [[ $kind != none ]]; then\n"
           "        compopt -o filenames 2>/dev/null\n"
           "        mapfile -t COMPREPLY < <(compgen -f -- \"$word\")\n"
           "    fi\n"
           "}\n"
           "complete -F _ddl ddl\n");
}
