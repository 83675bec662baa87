/* The curves of ddl compare as an SVG file: a line per group, with the range over its seeds as a band. */
#include "cli.h"
#include "compare.h"
#include "escape.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Pixels. */
enum { LEFT = 64, TOP = 16, PLOT_WIDTH = 560, PLOT_HEIGHT = 360, BOTTOM = 52, LEGEND_LINE = 20 };
enum { MAX_MARKED = 40 }; /* curves of more points have no markers */

/* Color-blind safe (Okabe and Ito). Groups beyond the last color repeat them with another dash pattern. */
static const char *const colors[] = { "#0072B2", "#D55E00", "#009E73", "#CC79A7",
                                      "#E69F00", "#56B4E9", "#444444" };
static const char *const dashes[] = { "", "7 3", "2 3", "7 3 2 3" };
enum { N_COLORS = sizeof colors / sizeof *colors, N_DASHES = sizeof dashes / sizeof *dashes };

/* An axis: values from low to high at pixels from `from` to `to`, with ticks at multiples of `tick`. */
struct scale {
    double low, high, tick;
    double from, to;
};

/* A point of a drawn line; low and high are the band. */
struct spot {
    double x, y, low, high;
};

struct drawing {
    FILE *out;
    const struct compared *compared;
    const struct figure_options *options;
    struct scale x, y;
};

static double pixel(const struct scale *s, double value)
{
    return s->from + (value - s->low) / (s->high - s->low) * (s->to - s->from);
}

static struct spot spot_of(const struct drawing *d, const struct ddl_compare_group *group, size_t i)
{
    const struct figure_options *o = d->options;
    const struct ddl_run_point *p = &group->curve[i];
    const struct ddl_band *band = &group->band[i];
    return (struct spot){
        axis_value(p, o->axis), drawn_loss(p, o->val, o->highest), o->val ? band->val_low : band->loss_low,
        fmin(o->val ? band->val_high : band->loss_high, o->highest > 0 ? o->highest : INFINITY)
    };
}

static bool is_drawn(const struct spot *spot)
{
    return isfinite(spot->x) && isfinite(spot->y);
}

/* ---- axes ---- */

/* 1, 2 or 5 times a power of ten: the least that divides the range into at most `most` parts. */
static double nice_tick(double range, int most)
{
    double power = pow(10, floor(log10(range / most)));
    static const double factors[] = { 1, 2, 5 };
    for (size_t i = 0; i < 3; i++) {
        if (range / (factors[i] * power) <= most)
            return factors[i] * power;
    }
    return 10 * power;
}

static void widen(struct scale *s, double value)
{
    s->low = fmin(s->low, value);
    s->high = fmax(s->high, value);
}

static void set_ticks(struct scale *s, bool round_ends)
{
    if (s->high <= s->low) {
        s->low -= 0.5;
        s->high += 0.5;
    }
    s->tick = nice_tick(s->high - s->low, 8);
    if (round_ends) {
        s->low = floor(s->low / s->tick) * s->tick;
        s->high = ceil(s->high / s->tick) * s->tick;
    }
}

/* False if there is nothing to draw. */
static bool set_scales(struct drawing *d)
{
    d->x = (struct scale){ .low = INFINITY, .high = -INFINITY, .from = LEFT, .to = LEFT + PLOT_WIDTH };
    d->y = (struct scale){ .low = INFINITY, .high = -INFINITY, .from = TOP + PLOT_HEIGHT, .to = TOP };
    for (size_t g = 0; g < d->compared->result.n_groups; g++) {
        const struct ddl_compare_group *group = &d->compared->result.groups[g];
        for (size_t i = 0; i < group->n_points; i++) {
            const struct spot spot = spot_of(d, group, i);
            if (!is_drawn(&spot))
                continue;
            widen(&d->x, spot.x);
            widen(&d->y, spot.low);
            widen(&d->y, spot.high);
        }
    }
    if (d->x.high < d->x.low)
        return false;
    set_ticks(&d->x, false);
    set_ticks(&d->y, true);
    return true;
}

static int decimals_of(double tick)
{
    double digits = -floor(log10(tick) + 1e-9);
    return digits > 0 ? (int)digits : 0;
}

/* The largest power of 1000 that ticks are divided by, as an exponent of 10; 0 below 10,000. */
static int exponent_of(double high)
{
    return high < 1e4 ? 0 : 3 * (int)floor(log10(high) / 3 + 1e-9);
}

static void write_tick_x(const struct drawing *d, double value, double unit)
{
    double at = pixel(&d->x, value);
    fprintf(d->out, "<path class=\"grid\" d=\"M%.1f %d V%d\"/>\n", at, TOP, TOP + PLOT_HEIGHT);
    fprintf(d->out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.*f</text>\n", at,
            TOP + PLOT_HEIGHT + 18, decimals_of(d->x.tick / unit), value / unit);
}

static void write_axes(const struct drawing *d)
{
    static const char *const superscripts[] = { "⁰", "¹", "²", "³", "⁴", "⁵", "⁶", "⁷", "⁸", "⁹" };
    int exponent = exponent_of(d->x.high);
    double unit = pow(10, exponent);
    for (double i = ceil(d->x.low / d->x.tick - 1e-9) + 0.0; /* not -0 */
         i * d->x.tick <= d->x.high * (1 + 1e-9); i++)
        write_tick_x(d, i * d->x.tick, unit);
    for (double i = round(d->y.low / d->y.tick); i <= round(d->y.high / d->y.tick); i++) {
        double at = pixel(&d->y, i * d->y.tick);
        fprintf(d->out, "<path class=\"grid\" d=\"M%d %.1f H%d\"/>\n", LEFT, at, LEFT + PLOT_WIDTH);
        fprintf(d->out, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.*f</text>\n", LEFT - 8, at + 4,
                decimals_of(d->y.tick), i * d->y.tick);
    }
    fprintf(d->out, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">%s", LEFT + PLOT_WIDTH / 2,
            TOP + PLOT_HEIGHT + 40, axis_labels[d->options->axis]);
    if (exponent > 0)
        fprintf(d->out, " (×10%s%s)", exponent > 9 ? superscripts[exponent / 10 % 10] : "",
                superscripts[exponent % 10]);
    fprintf(d->out,
            "</text>\n<text transform=\"translate(18 %d) rotate(-90)\" text-anchor=\"middle\">%s</text>\n",
            TOP + PLOT_HEIGHT / 2, d->options->val ? "validation loss (nats)" : "training loss (nats)");
}

/* ---- curves ---- */

static void write_band(const struct drawing *d, const struct ddl_compare_group *group, const char *color)
{
    fprintf(d->out, "<polygon fill=\"%s\" fill-opacity=\"0.18\" points=\"", color);
    for (size_t i = 0; i < 2 * group->n_points; i++) { /* forth along the upper end, back along the lower */
        bool forth = i < group->n_points;
        const struct spot spot = spot_of(d, group, forth ? i : 2 * group->n_points - 1 - i);
        if (is_drawn(&spot))
            fprintf(d->out, "%.1f,%.1f ", pixel(&d->x, spot.x), pixel(&d->y, forth ? spot.high : spot.low));
    }
    fprintf(d->out, "\"/>\n");
}

static void write_line(const struct drawing *d, size_t g)
{
    const struct ddl_compare_group *group = &d->compared->result.groups[g];
    const char *color = colors[g % N_COLORS];
    size_t drawn = 0;
    fprintf(d->out, "<polyline class=\"line\" stroke=\"%s\" stroke-dasharray=\"%s\" points=\"", color,
            dashes[g / N_COLORS % N_DASHES]);
    for (size_t i = 0; i < group->n_points; i++) {
        const struct spot spot = spot_of(d, group, i);
        if (!is_drawn(&spot))
            continue;
        fprintf(d->out, "%.1f,%.1f ", pixel(&d->x, spot.x), pixel(&d->y, spot.y));
        drawn++;
    }
    fprintf(d->out, "\"/>\n");
    for (size_t i = 0; drawn <= MAX_MARKED && i < group->n_points; i++) {
        const struct spot spot = spot_of(d, group, i);
        if (is_drawn(&spot))
            fprintf(d->out, "<circle fill=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"2.5\"/>\n", color,
                    pixel(&d->x, spot.x), pixel(&d->y, spot.y));
    }
}

static void write_legend(const struct drawing *d, size_t g)
{
    const struct ddl_compare_group *group = &d->compared->result.groups[g];
    int x = LEFT + PLOT_WIDTH + 16, y = TOP + 8 + (int)g * LEGEND_LINE;
    fprintf(d->out, "<path class=\"line\" stroke=\"%s\" stroke-dasharray=\"%s\" d=\"M%d %d h26\"/>\n",
            colors[g % N_COLORS], dashes[g / N_COLORS % N_DASHES], x, y);
    fprintf(d->out, "<text x=\"%d\" y=\"%d\">", x + 34, y + 4);
    put_xml_text(d->out, compared_group_name(d->compared, g));
    if (group->n > 1)
        fprintf(d->out, " (%zu seeds)", group->n);
    fprintf(d->out, "</text>\n");
}

static void write_svg(const struct drawing *d)
{
    const size_t n = d->compared->result.n_groups;
    size_t longest = 0;
    for (size_t g = 0; g < n; g++) {
        size_t length = strlen(compared_group_name(d->compared, g));
        longest = length > longest ? length : longest;
    }
    size_t width = LEFT + PLOT_WIDTH + 16 + 34 + 7 * (longest + 11) + 8;
    size_t height = TOP + PLOT_HEIGHT + BOTTOM;
    if (height < TOP + n * LEGEND_LINE + 8)
        height = TOP + n * LEGEND_LINE + 8;
    fprintf(d->out,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%zu\" height=\"%zu\" viewBox=\"0 0 %zu %zu\" "
            "font-family=\"Helvetica, Arial, sans-serif\" font-size=\"13\" fill=\"#222222\">\n"
            "<title>%s by %s</title>\n"
            "<style>.grid{stroke:#dddddd;fill:none}.line{fill:none;stroke-width:1.8;stroke-linejoin:round}"
            "</style>\n"
            "<rect width=\"%zu\" height=\"%zu\" fill=\"#ffffff\"/>\n",
            width, height, width, height, d->options->val ? "Validation loss" : "Training loss",
            axis_labels[d->options->axis], width, height);
    write_axes(d);
    for (size_t g = 0; g < n; g++) {
        if (d->compared->result.groups[g].n > 1)
            write_band(d, &d->compared->result.groups[g], colors[g % N_COLORS]);
    }
    for (size_t g = 0; g < n; g++) {
        write_line(d, g);
        write_legend(d, g);
    }
    fprintf(d->out,
            "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"none\" stroke=\"#444444\"/>\n</svg>\n",
            LEFT, TOP, PLOT_WIDTH, PLOT_HEIGHT);
}

ddl_status write_compared_svg(const struct compared *c, const char *path,
                              const struct figure_options *options, struct ddl_error *err)
{
    struct drawing d = { .compared = c, .options = options };
    char limit[64] = "";
    if (options->highest > 0)
        snprintf(limit, sizeof limit, " of at most %g", options->highest);
    if (!set_scales(&d))
        return ddl_error_set(err, DDL_E_FORMAT, "%.400s: nothing to draw: expected a %s loss%s, found none",
                             path, options->val ? "validation" : "training", limit);
    d.out = fopen(path, "w");
    if (!d.out)
        return ddl_error_set(err, DDL_E_IO, "%.400s: cannot create: %s", path, strerror(errno));
    write_svg(&d);
    bool failed = ferror(d.out) != 0;
    if (fclose(d.out) != 0 || failed)
        return ddl_error_set(err, DDL_E_IO, "%.400s: cannot write: %s", path, strerror(errno));
    return DDL_OK;
}
