/* Tables on standard output, aligned or in Markdown. */
#ifndef DDL_CLI_TABLE_H
#define DDL_CLI_TABLE_H

#include <stdbool.h>
#include <stddef.h>

struct column {
    const char *name;
    int width; /* characters; negative: left-aligned; 0: last column, left-aligned, as long as its text */
};
struct table {
    const struct column *columns; /* (n) */
    size_t n, next;
    bool markdown;
};

/* An empty line and the head of a table of n columns. The cells follow row by row. */
struct table begin_table(const struct column *columns, size_t n, bool markdown);
void print_text_cell(struct table *table, const char *text);
/* `decimals` digits after the point, without the sign of a zero; a dash if the value is not finite. */
void print_number_cell(struct table *table, double value, int decimals);

#endif
