/* What the scripts of ddl completion offer as values. */
#include "cli/completion/completion.h"

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
    return size < DDL_BACKEND_NAME_SIZE ? NULL : ddl_backend_list(i, out);
}

static const char *page_name(size_t i, char *out, size_t size)
{
    return manual_name(i, out, size) ? out : NULL;
}

/* Options that take one of a list's names: name i (possibly stored in `out`), or NULL past the last. */
static const struct {
    const char *option;
    const char *(*name)(size_t i, char *out, size_t size);
} lists[] = { { "model", model_name }, { "match_parameters", model_name }, { "match_flops", model_name },
              { "size", size_name },   { "backend", backend_name },        { "man", page_name } };

/* The names that an option takes, or NULL. */
static const char *(*list_of(const struct ddl_option *row))(size_t, char *, size_t)
{
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        if (strcmp(row->name, lists[i].option) == 0)
            return lists[i].name;
    }
    return NULL;
}

enum value_kind value_kind(const struct ddl_option *row)
{
    const char *word = row->value ? row->value : "";
    if (list_of(row) || row->type == DDL_OPTION_CHOICE)
        return VALUE_NAMES;
    bool files = strcmp(word, "DIR") == 0 || strcmp(word, "PATH") == 0 || strcmp(word, "FILE") == 0;
    return files || row->type == DDL_OPTION_PATH || row->type == DDL_OPTION_PATHS ? VALUE_FILES : VALUE_TEXT;
}

void print_value_names(const struct ddl_option *row)
{
    const char *(*list)(size_t, char *, size_t) = list_of(row), *name;
    char buffer[64];
    for (size_t k = 0; (name = list ? list(k, buffer, sizeof buffer) : row->choices[k]); k++)
        printf("%s%s", k ? " " : "", name);
}

void print_names_of(const struct ddl_option *row, const char *before, const char *between)
{
    char name[128];
    for (size_t i = 0; ddl_option_name(row, i, name, sizeof name); i++) {
        printf("%s%s", i ? between : "", before);
        for (const char *c = name; *c; c++)
            putchar(*c == '_' ? '-' : *c);
    }
}

void print_command_names(const struct command *const *list)
{
    for (size_t i = 0; list[i]; i++)
        printf("%s%s", i ? " " : "", last_word(list[i]->name));
}

void print_escaped(const char *text, const char *special)
{
    for (; *text; text++) {
        if (*text == '\'')
            fputs("'\\'", stdout); /* ends the quoted text, a quote, begins it again */
        else if (strchr(special, *text))
            putchar('\\');
        putchar(*text);
    }
}
