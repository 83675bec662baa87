#include "cli/cli.h"
#include "cli/output/escape.h"
#include "cli/output/terminal.h"

#include <stdio.h>
#include <string.h>

int report_error(const struct ddl_error *err)
{
    exit_on_interrupt(false); /* a launcher that stops the job because of the error adds no second message */
    fprintf(stderr, "ddl: %s", printable(err->text));
    if (err->has_no_hint && current_command)
        fprintf(stderr, "; 'ddl help %s' lists the options", current_command->name);
    putc('\n', stderr);
    return error_exit(err->status);
}

int error_exit(ddl_status status)
{
    switch (status) {
    case DDL_OK:
        return EXIT_OK;
    case DDL_E_USAGE:
        return EXIT_USAGE;
    case DDL_E_INTERRUPTED:
        return EXIT_INTERRUPTED;
    default:
        return EXIT_FAILED;
    }
}

const char *last_word(const char *name)
{
    const char *space = strrchr(name, ' ');
    return space ? space + 1 : name;
}

const struct command *find_command(const struct command *const *list, const char *name)
{
    for (; *list; list++) {
        if (strcmp(last_word((*list)->name), name) == 0)
            return *list;
    }
    return NULL;
}

enum { MAX_COMMANDS = 32 };

int unknown_command(const struct command *const *list, const struct command *command, const char *name)
{
    struct ddl_option rows[MAX_COMMANDS + 1] = { 0 };
    for (size_t i = 0; list[i] && i < MAX_COMMANDS; i++)
        rows[i].name = last_word(list[i]->name);
    const char *of = command ? command->name : "", *kind = command ? "action" : "command";
    struct ddl_error err, found;
    char hint[128] = "";
    ddl_option_unknown(rows, command ? of : NULL, kind, name, &found);
    if (found.has_no_hint)
        snprintf(hint, sizeof hint, "; 'ddl help%s%s' lists the %ss", command ? " " : "", of, kind);
    ddl_error_set(&err, DDL_E_USAGE, "%.900s%s", found.text, hint);
    return report_error(&err);
}

ddl_status check_arguments(const char *command, int n, char **argv, int min, int max, const char *expected,
                           struct ddl_error *err)
{
    if (n < min)
        return ddl_option_missing(command, expected, err);
    if (n > max)
        return ddl_error_set(err, DDL_E_USAGE,
                             "%s: too many arguments: expected at most %d, found %d: '%.200s'", command, max,
                             n, argv[max + 1]);
    return DDL_OK;
}

void flag_name(const char *name, char *out, size_t size)
{
    snprintf(out, size, "%s", name);
    for (; *out; out++)
        *out = *out == '_' ? '-' : *out;
}

ddl_status check_needs(const struct ddl_option *table, const bool *given, const char *const *names,
                       const char *with, struct ddl_error *err)
{
    for (; *names; names++) {
        char name[64];
        if (!given[ddl_option_find(table, *names) - table])
            continue;
        flag_name(*names, name, sizeof name);
        return ddl_error_set(err, DDL_E_USAGE, "--%s: expected with %s", name, with);
    }
    return DDL_OK;
}

void print_overview(FILE *out)
{
    fprintf(out, "usage: ddl COMMAND [ARGUMENT ...]\n\n"
                 "Train, study and sample from Deep Delta Learning language models.\n\ncommands:\n");
    for (size_t i = 0; commands[i]; i++)
        fprintf(out, "  %-10s %s\n", commands[i]->name, commands[i]->about);
    fprintf(out, "\n'ddl help COMMAND' describes a command; 'ddl --version' prints the version.\n");
}

size_t describe_flag(const struct ddl_option *option, char *out, size_t size)
{
    size_t used = (size_t)snprintf(out, size, "--%s", option->type == DDL_OPTION_BOOL ? "[no-]" : "");
    flag_name(option->name, out + used, size - used);
    used += strlen(out + used);
    size_t name = used;
    if (option->type == DDL_OPTION_CHOICE) {
        for (size_t i = 0; option->choices[i] && used + 1 < size; i++) {
            int n = snprintf(out + used, size - used, "%c%s", i ? '|' : ' ', option->choices[i]);
            used += (size_t)n;
        }
    } else if (option->type != DDL_OPTION_BOOL) {
        snprintf(out + used, size - used, " %s", option->value ? option->value : "VALUE");
    }
    return name;
}

const struct ddl_option *group_rows(const struct option_group *group)
{
    return group->table ? group->table() : group->rows;
}

void describe_default_value(const struct ddl_option *row, const void *defaults, char *out, size_t size)
{
    ddl_option_format(row, defaults, out, size);
    if (row->automatic && strcmp(out, "auto") == 0)
        snprintf(out, size, "auto: %s", row->automatic);
}

void describe_default(const struct option_group *group, const struct ddl_option *row, char *out, size_t size)
{
    const void *defaults = group->defaults ? group->defaults() : NULL;
    char value[1024] = "";
    *out = '\0';
    if (!defaults)
        return;
    describe_default_value(row, defaults, value, sizeof value);
    if (row->type == DDL_OPTION_BOOL && strcmp(value, "true") == 0)
        snprintf(out, size, " [default: on]");
    else if (row->type != DDL_OPTION_BOOL && *value)
        snprintf(out, size, " [default: %s]", value);
}

void describe_aliases(const struct ddl_option *row, char *out, size_t size)
{
    char name[128], flag[128];
    size_t used = 0;
    *out = '\0';
    for (size_t i = 1; ddl_option_name(row, i, name, sizeof name) && used < size; i++) {
        flag_name(name, flag, sizeof flag);
        used += (size_t)snprintf(out + used, size - used, "%s--%s", i > 1 ? ", " : " (also ", flag);
    }
    if (used && used < size)
        snprintf(out + used, size - used, ")");
}

static void print_options(const struct command *command)
{
    for (size_t g = 0; g < MAX_OPTION_GROUPS && group_rows(&command->options[g]); g++) {
        const struct option_group *group = &command->options[g];
        if (g == 0 || group->title)
            printf("\n%s:\n", group->title ? group->title : "options");
        for (const struct ddl_option *row = group_rows(group); row->name; row++) {
            char flag[256], value[1100], aliases[256];
            describe_flag(row, flag, sizeof flag);
            describe_aliases(row, aliases, sizeof aliases);
            describe_default(group, row, value, sizeof value);
            if (strlen(flag) > 32)
                printf("  %s\n  %-32s  %s%s%s\n", flag, "", row->help ? row->help : "", aliases, value);
            else
                printf("  %-32s  %s%s%s\n", flag, row->help ? row->help : "", aliases, value);
        }
    }
}

void print_help(const struct command *command)
{
    printf("usage: ddl %s%s%s\n\n%s\n", command->name, *command->usage ? " " : "", command->usage,
           command->about);
    for (size_t i = 0; command->text && command->text[i]; i++)
        printf("%s%s\n", i ? "" : "\n", command->text[i]);
    for (size_t i = 0; command->actions && command->actions[i]; i++) {
        const struct command *action = command->actions[i];
        printf("%s  ddl %s %s\n      %s\n", i ? "" : "\n", action->name, action->usage, action->about);
    }
    if (command->actions)
        printf("\n'ddl help %s ACTION' lists the options of an action.\n", command->name);
    print_options(command);
    if (command->keys)
        printf("\n%s:\n", command->keys_title);
    for (const struct note *key = command->keys ? command->keys() : NULL; key && key->name; key++)
        printf("  %-32s  %s\n", key->name, key->about);
    for (size_t i = 0; command->examples && command->examples[i].name; i++)
        printf("%s  %s\n      %s\n", i ? "" : "\nexamples:\n", command->examples[i].name,
               command->examples[i].about);
}
