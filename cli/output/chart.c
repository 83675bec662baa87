#include "cli/output/chart.h"
#include "cli/output/escape.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct range {
    double low, high;
};

static void widen(struct range *range, double value)
{
    if (!isfinite(value))
        return;
    range->low = fmin(range->low, value);
    range->high = fmax(range->high, value);
}

bool curve_has_points(const struct curve *curve)
{
    for (size_t i = 0; i < curve->n; i++) {
        if (isfinite(curve->y[i]))
            return true;
    }
    return false;
}

static size_t cell(const struct range *range, double value, size_t cells)
{
    double share = range->high > range->low ? (value - range->low) / (range->high - range->low) : 0.5;
    return (size_t)lround(share * (double)(cells - 1));
}

/* The mean of the curve's points in each column, joined by straight lines across columns that have none. */
static void plot(const struct curve *curve, const struct range *xs, const struct range *ys, size_t width,
                 size_t height, char *grid)
{
    double *sum = calloc(width, sizeof *sum);
    size_t *count = calloc(width, sizeof *count);
    size_t last = width;
    for (size_t i = 0; sum && count && i < curve->n; i++) {
        if (!isfinite(curve->y[i]))
            continue;
        size_t at = cell(xs, curve->x[i], width);
        sum[at] += curve->y[i];
        count[at]++;
    }
    for (size_t at = 0; sum && count && at < width; at++) {
        if (!count[at])
            continue;
        double y = sum[at] / (double)count[at];
        double from = last < width ? sum[last] / (double)count[last] : y;
        for (size_t step = last < width ? last + 1 : at; step <= at; step++) {
            double share = at > last && last < width ? (double)(step - last) / (double)(at - last) : 1;
            size_t row = cell(ys, from + (y - from) * share, height);
            grid[(height - 1 - row) * width + step] = curve->mark;
        }
        last = at;
    }
    free(sum);
    free(count);
}

void draw_chart(const char *x_name, const char *y_name, const struct curve *curves, size_t n, size_t width,
                size_t height)
{
    struct range xs = { INFINITY, -INFINITY }, ys = { INFINITY, -INFINITY };
    for (size_t c = 0; c < n; c++) {
        for (size_t i = 0; i < curves[c].n; i++) {
            widen(&xs, isfinite(curves[c].y[i]) ? curves[c].x[i] : NAN);
            widen(&ys, curves[c].y[i]);
        }
    }
    char *grid = malloc(width * height);
    if (!grid || !(xs.high >= xs.low)) {
        printf("(no points to draw)\n");
        free(grid);
        return;
    }
    memset(grid, ' ', width * height);
    for (size_t c = 0; c < n; c++)
        plot(&curves[c], &xs, &ys, width, height, grid);
    printf("%s\n", y_name);
    for (size_t row = 0; row < height; row++) {
        double value = ys.high - (ys.high - ys.low) * (double)row / (double)(height > 1 ? height - 1 : 1);
        if (row % 4 == 0 || row == height - 1)
            printf("%8.3f |", value);
        else
            printf("         |");
        size_t length = width;
        while (length && grid[row * width + length - 1] == ' ')
            length--;
        printf("%.*s\n", (int)length, grid + row * width);
    }
    printf("         +");
    for (size_t i = 0; i < width; i++)
        putchar('-');
    printf("\n          %-10.4g%*s%10.4g  %s\n", xs.low, (int)(width > 22 ? width - 20 : 2), "", xs.high,
           x_name);
    for (size_t c = 0; c < n; c++) {
        if (curve_has_points(&curves[c]))
            printf("          %c  %s\n", curves[c].mark, printable(curves[c].name));
    }
    free(grid);
}
