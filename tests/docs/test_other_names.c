/* Compares docs/other-programs.md with the options of the program, in both directions. */
#define _POSIX_C_SOURCE 200809L
#include "support/files.h"
#include "support/markdown.h"
#include "support/program.h"

#include "ddl/data.h"
#include "ddl/generate.h"
#include "ddl/train.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *page;

static int open_page(void **state)
{
    (void)state;
    page = read_file(source_path("docs/other-programs.md"), NULL);
    return page ? 0 : -1;
}

static int close_page(void **state)
{
    (void)state;
    free(page);
    return 0;
}

/* Takes the next `name` in backticks from *at. False at the end. */
static bool next_name(const char **at, char *out, size_t size)
{
    const char *start = strchr(*at, '`'), *end = start ? strchr(start + 1, '`') : NULL;
    if (!end)
        return false;
    snprintf(out, size, "%.*s", (int)(end - start - 1), start + 1);
    *at = end + 1;
    return true;
}

static void dash(const char *name, char *out, size_t size)
{
    snprintf(out, size, "%s", name);
    for (char *c = out; *c; c++)
        *c = *c == '_' ? '-' : *c;
}

/* Whether the help of option `here` in `printed` lists the alias. */
static bool help_lists(const char *here, const char *alias)
{
    char start[2][160], ends[2][160], dashed[128];
    dash(here, dashed, sizeof dashed);
    snprintf(start[0], sizeof start[0], "\n  --%s ", dashed);
    snprintf(start[1], sizeof start[1], "\n  --[no-]%s ", dashed);
    dash(alias, dashed, sizeof dashed);
    snprintf(ends[0], sizeof ends[0], "--%s,", dashed);
    snprintf(ends[1], sizeof ends[1], "--%s)", dashed);
    for (size_t i = 0; i < 2; i++) {
        const char *row = strstr(printed, start[i]), *next = row ? strstr(row + 1, "\n  --") : NULL;
        for (size_t k = 0; row && k < 2; k++) {
            const char *found = strstr(row, ends[k]);
            if (found && (!next || found < next))
                return true;
        }
    }
    return false;
}

/* The row of the tables of a command that are the library's, or NULL. */
static const struct ddl_option *find_row(const char *command, const char *name)
{
    const struct ddl_option *row = NULL;
    if (strcmp(command, "train") == 0)
        row = ddl_option_find(ddl_train_options(), name);
    if (strcmp(command, "train") == 0 && !row)
        row = ddl_option_find(ddl_config_options(), name);
    if (strcmp(command, "generate") == 0)
        row = ddl_option_find(ddl_generate_options(), name);
    if (strcmp(command, "data build") == 0)
        row = ddl_option_find(ddl_build_options(), name);
    return row;
}

static void check_row(const char *command, const struct markdown_row *row)
{
    char theirs[128], here[128], dashed[128];
    const char *at = row->cell[1], *names = row->cell[0];
    bool has_row = next_name(&at, here, sizeof here), is_alias = strcmp(row->cell[2], "same") == 0;
    while (next_name(&names, theirs, sizeof theirs)) {
        if (is_alias) {
            const struct ddl_option *found = find_row(command, theirs);
            assert_int_equal(ddl("help %s", command), 0);
            if (found ? strcmp(found->name, here) != 0 : !help_lists(here, theirs))
                fail_msg("ddl help %s: --%s does not have the alias %s", command, here, theirs);
            continue;
        }
        assert_int_equal(ddl("%s %s%s x", command, *theirs == '-' ? "" : "--", theirs), 2);
        dash(here, dashed, sizeof dashed);
        if ((has_row && !strstr(printed, dashed)) || !strstr(printed, row->cell[2]))
            fail_msg("ddl %s --%s: expected %s: %s, found %s", command, theirs, here, row->cell[2], printed);
    }
}

static void names_do_what_the_page_says(void **state)
{
    static const char *const commands[] = { "train", "eval", "generate", "serve", "data build" };
    (void)state;
    for (size_t c = 0; c < sizeof commands / sizeof *commands; c++) {
        char name[64];
        snprintf(name, sizeof name, "names %s", commands[c]);
        struct markdown_table table = markdown_table(page, name);
        assert_true(table.n > 0);
        for (size_t i = 0; i < table.n; i++)
            check_row(commands[c], &table.row[i]);
        markdown_table_free(&table);
    }
}

/* Fails unless a row of the table has the name, for `here` (NULL: any). */
static void find_name(const struct markdown_table *table, const char *theirs, const char *here)
{
    char name[160], key[160];
    snprintf(name, sizeof name, "`%s`", theirs);
    snprintf(key, sizeof key, "`%s`", here ? here : "");
    for (size_t i = 0; i < table->n; i++) {
        if (strstr(table->row[i].cell[0], name) && (!here || strcmp(table->row[i].cell[1], key) == 0))
            return;
    }
    fail_msg("docs/other-programs.md lacks %s, which is %s", name, here ? key : "an error");
}

static void the_page_has_all_names(void **state)
{
    const struct {
        const char *table;
        const struct ddl_option *rows;
    } cases[] = { { "names train", ddl_train_options() },
                  { "names train", ddl_config_options() },
                  { "names generate", ddl_generate_options() },
                  { "names data build", ddl_build_options() } };
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct markdown_table table = markdown_table(page, cases[c].table);
        for (const struct ddl_option *row = cases[c].rows; row->name; row++) {
            const struct ddl_other_name *other = row->others;
            char alias[128];
            bool common = c == 3 && strcmp(row->name, "threads") == 0; /* num_threads: with train */
            for (size_t i = 1; ddl_option_name(row, i, alias, sizeof alias); i++) {
                if (!common || strcmp(alias, "num_threads") != 0)
                    find_name(&table, alias, row->name);
            }
            for (; other && other->name; other++) {
                if (other->advice || other->kind == DDL_OTHER_SAME)
                    find_name(&table, other->name, other->kind == DDL_OTHER_NONE ? NULL : row->name);
            }
        }
        markdown_table_free(&table);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_do_what_the_page_says),
        cmocka_unit_test(the_page_has_all_names),
    };
    return cmocka_run_group_tests(tests, open_page, close_page);
}
