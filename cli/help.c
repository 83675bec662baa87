#include "cli.h"

#include <stdio.h>
#include <string.h>

int report_error(const struct ddl_error *err)
{
    fprintf(stderr, "ddl: %s\n", err->text);
    switch (err->status) {
    case DDL_E_USAGE:
        return EXIT_USAGE;
    case DDL_E_INTERRUPTED:
        return EXIT_INTERRUPTED;
    default:
        return EXIT_FAILED;
    }
}

/* "--warmup-steps N", "--[no-]mup", "--ddl-map k|v": as it is typed. */
static void describe_flag(const struct ddl_option *option, char *out, size_t size)
{
    size_t used = (size_t)snprintf(out, size, "--%s", option->type == DDL_OPTION_BOOL ? "[no-]" : "");
    for (const char *c = option->name; *c && used + 1 < size; c++)
        out[used++] = *c == '_' ? '-' : *c;
    out[used] = '\0';
    if (option->type == DDL_OPTION_CHOICE) {
        for (size_t i = 0; option->choices[i] && used + 1 < size; i++) {
            int n = snprintf(out + used, size - used, "%c%s", i ? '|' : ' ', option->choices[i]);
            used += (size_t)n;
        }
    } else if (option->type != DDL_OPTION_BOOL) {
        snprintf(out + used, size - used, " %s", option->value ? option->value : "VALUE");
    }
}

static void print_options(const struct ddl_option *table)
{
    for (; table && table->name; table++) {
        char flag[256];
        describe_flag(table, flag, sizeof flag);
        if (strlen(flag) > 32)
            printf("  %s\n  %-32s  %s\n", flag, "", table->help ? table->help : "");
        else
            printf("  %-32s  %s\n", flag, table->help ? table->help : "");
    }
}

void print_help(const struct command *self, const char *const *lines, const struct ddl_option *table,
                const struct ddl_option *table2)
{
    printf("usage: ddl %s%s%s\n\n%s\n", self->name, *self->usage ? " " : "", self->usage, self->about);
    for (size_t i = 0; lines && lines[i]; i++)
        printf("%s%s\n", i ? "" : "\n", lines[i]);
    if ((table && table->name) || (table2 && table2->name))
        printf("\noptions:\n");
    print_options(table);
    print_options(table2);
}

int wants_help(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return 1;
    }
    return 0;
}
