/* Fenced blocks and tables of a document, so that a test can hold it to what it says. */
#ifndef DDL_TEST_MARKDOWN_H
#define DDL_TEST_MARKDOWN_H

#include <stdbool.h>
#include <stddef.h>

/* docs/formats.md, between the two, which are a group's set-up and tear-down. */
extern char *formats;
int open_formats(void **state);
int close_formats(void **state);

/* The body of the block that begins with "```INFO"; fails the test where there is none or two. Free with
 * free. */
char *markdown_block(const char *document, const char *info);

enum { MARKDOWN_CELLS = 6, MARKDOWN_CELL = 1024 };
struct markdown_row {
    char cell[MARKDOWN_CELLS][MARKDOWN_CELL]; /* without the spaces around; backticks kept */
};
struct markdown_table {
    struct markdown_row *row; /* without the heading */
    size_t n;
};
/* The table behind the line "<!-- table: NAME -->"; fails the test where there is none. */
struct markdown_table markdown_table(const char *document, const char *name);
void markdown_table_free(struct markdown_table *table);
/* The list behind the line "<!-- keys: NAME -->", or without one behind the block "```json NAME", as a table
 * of key, type and description. An item is "- `key`, `key` type: description". "`a.{b,c.{d,e}}`" is a row for
 * each name, and a cell with as many parts, separated by "; ", is divided between them. A key that ends with
 * "?" has the type "TYPE, optional". */
struct markdown_table markdown_keys(const char *document, const char *name);

#endif
