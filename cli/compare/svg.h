/* What the figures of ddl compare share: an SVG file with a plot of linear axes. */
#ifndef DDL_CLI_SVG_H
#define DDL_CLI_SVG_H

#include "ddl/file.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* An axis: values from low to high at pixels from `from` to `to`, with ticks at multiples of `tick`. */
struct svg_scale {
    double low, high, tick;
    double from, to;
};

/* An empty scale, to be widened by each value and then given ticks. */
struct svg_scale svg_scale_from(double from, double to);
void svg_widen(struct svg_scale *s, double value);
bool svg_is_empty(const struct svg_scale *s);
/* At most 8 parts; round_ends: the ends become multiples of the tick. */
void svg_set_ticks(struct svg_scale *s, bool round_ends);
double svg_pixel(const struct svg_scale *s, double value);

/* The color and the dash pattern of line i. Color-blind safe (after Okabe and Ito), with a contrast of at
 * least 3 to white; lines beyond the last color repeat the colors with another pattern. */
const char *svg_color(size_t i);
const char *svg_dashes(size_t i);

/* Begins the file `path` in *w, a place of output, and writes the start of the document. Returns its stream,
 * or NULL and *err if it cannot be created. */
FILE *svg_open(struct ddl_file_writer *w, const char *path, size_t width, size_t height, const char *title,
               struct ddl_error *err);
/* Vertical grid lines between the pixels top and bottom, with tick labels below and the axis label in the
 * middle; from 10,000 on, values are divided by a power of 1000 that the label states. */
void svg_write_axis_x(FILE *out, const struct svg_scale *x, int top, int bottom, const char *label);
/* Horizontal grid lines between the pixels left and right, with tick labels and the axis label on the left.
 */
void svg_write_axis_y(FILE *out, const struct svg_scale *y, int left, int right, const char *label);
/* A rectangle around the plot. */
void svg_write_frame(FILE *out, const struct svg_scale *x, int top, int bottom);
/* Writes the end of the document and publishes the file. */
ddl_status svg_close(struct ddl_file_writer *w, struct ddl_error *err);

#endif
