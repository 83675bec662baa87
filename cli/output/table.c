#include "cli/output/table.h"
#include "cli/output/escape.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void print_aligned(const struct table *t, const char *text)
{
    const struct column *column = &t->columns[t->next];
    bool after_number = t->next > 0 && column[-1].width > 0 && column->width <= 0;
    printf("%s%*s", t->next == 0 ? "" : after_number ? "  " : " ", column->width, printable(text));
}

void print_text_cell(struct table *t, const char *text)
{
    if (t->markdown) {
        printf(t->next == 0 ? "| " : " ");
        print_markdown_text(text);
        printf(" |");
    } else {
        print_aligned(t, text);
    }
    t->next++;
    if (t->next == t->n) {
        putchar('\n');
        t->next = 0;
    }
}

void print_number_cell(struct table *t, double value, int decimals)
{
    char text[400] = "-"; /* 309 digits before the point */
    if (isfinite(value))
        snprintf(text, sizeof text, "%.*f", decimals, value);
    const bool is_zero = isfinite(value) && !text[strspn(text, "-0.")];
    print_text_cell(t, text + (is_zero && text[0] == '-')); /* 0, not -0 */
}

struct table begin_table(const struct column *columns, size_t n, bool markdown)
{
    struct table t = { .columns = columns, .n = n, .markdown = markdown };
    putchar('\n');
    for (size_t i = 0; i < n; i++)
        print_text_cell(&t, columns[i].name);
    for (size_t i = 0; markdown && i < n; i++)
        printf(i == 0 ? "|---|" : "---|");
    if (markdown)
        putchar('\n');
    return t;
}
