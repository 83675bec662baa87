/* A chart of several curves in plain characters. */
#ifndef DDL_CLI_CHART_H
#define DDL_CLI_CHART_H

#include <stdbool.h>
#include <stddef.h>

struct curve {
    const char *name;
    char mark; /* drawn for it; where curves meet the later one is on top */
    size_t n;
    const double *x, *y; /* NaN in y: no point */
};

bool curve_has_points(const struct curve *curve);

/* Draws on standard output, `width` x `height` characters inside the axes. Curves without points
 * are not in the legend. */
void draw_chart(const char *x_name, const char *y_name, const struct curve *curves, size_t n, size_t width,
                size_t height);

#endif
