/* The figures of ddl compare as SVG files: the curves, a line per group with the range over its seeds as a
 * band, or the final losses, a row per group with its runs, their mean and its 95 % interval. */
#include "cli/cli.h"
#include "cli/compare/compare.h"
#include "cli/output/escape.h"
#include "cli/compare/svg.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Pixels. */
enum { LEFT = 64, TOP = 16, PLOT_WIDTH = 560, PLOT_HEIGHT = 360, BOTTOM = 52, LEGEND_LINE = 20 };
enum { ROW = 28, CHARACTER = 7 };
enum { MAX_MARKED = 40 }; /* curves of more points have no markers */

/* A point of a drawn line; low and high are the band. */
struct spot {
    double x, y, low, high;
};

struct drawing {
    FILE *out;
    const struct compared *compared;
    const struct figure_options *options;
    struct svg_scale x, y;
};

static size_t longest_name(const struct compared *c)
{
    size_t longest = 0;
    for (size_t g = 0; g < c->result.n_groups; g++) {
        size_t length = strlen(compared_group_name(c, g));
        longest = length > longest ? length : longest;
    }
    return longest;
}

static const char *loss_label(const struct figure_options *options)
{
    return options->val ? "validation loss (nats)" : "training loss (nats)";
}

/* ---- curves ---- */

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

/* False if there is nothing to draw. */
static bool set_curve_scales(struct drawing *d)
{
    d->x = svg_scale_from(LEFT, LEFT + PLOT_WIDTH);
    d->y = svg_scale_from(TOP + PLOT_HEIGHT, TOP);
    for (size_t g = 0; g < d->compared->result.n_groups; g++) {
        const struct ddl_compare_group *group = &d->compared->result.groups[g];
        for (size_t i = 0; i < group->n_points; i++) {
            const struct spot spot = spot_of(d, group, i);
            if (!is_drawn(&spot))
                continue;
            svg_widen(&d->x, spot.x);
            svg_widen(&d->y, spot.low);
            svg_widen(&d->y, spot.high);
        }
    }
    if (svg_is_empty(&d->x))
        return false;
    svg_set_ticks(&d->x, false);
    svg_set_ticks(&d->y, true);
    return true;
}

static void write_band(const struct drawing *d, const struct ddl_compare_group *group, const char *color)
{
    fprintf(d->out, "<polygon fill=\"%s\" fill-opacity=\"0.18\" points=\"", color);
    for (size_t i = 0; i < 2 * group->n_points; i++) { /* forth along the upper end, back along the lower */
        bool forth = i < group->n_points;
        const struct spot spot = spot_of(d, group, forth ? i : 2 * group->n_points - 1 - i);
        if (is_drawn(&spot))
            fprintf(d->out, "%.1f,%.1f ", svg_pixel(&d->x, spot.x),
                    svg_pixel(&d->y, forth ? spot.high : spot.low));
    }
    fprintf(d->out, "\"/>\n");
}

static void write_line(const struct drawing *d, size_t g)
{
    const struct ddl_compare_group *group = &d->compared->result.groups[g];
    const char *color = svg_color(g);
    size_t drawn = 0;
    fprintf(d->out, "<polyline class=\"line\" stroke=\"%s\" stroke-dasharray=\"%s\" points=\"", color,
            svg_dashes(g));
    for (size_t i = 0; i < group->n_points; i++) {
        const struct spot spot = spot_of(d, group, i);
        if (!is_drawn(&spot))
            continue;
        fprintf(d->out, "%.1f,%.1f ", svg_pixel(&d->x, spot.x), svg_pixel(&d->y, spot.y));
        drawn++;
    }
    fprintf(d->out, "\"/>\n");
    for (size_t i = 0; drawn <= MAX_MARKED && i < group->n_points; i++) {
        const struct spot spot = spot_of(d, group, i);
        if (is_drawn(&spot))
            fprintf(d->out, "<circle fill=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"2.5\"/>\n", color,
                    svg_pixel(&d->x, spot.x), svg_pixel(&d->y, spot.y));
    }
}

static void write_legend(const struct drawing *d, size_t g)
{
    const struct ddl_compare_group *group = &d->compared->result.groups[g];
    int x = LEFT + PLOT_WIDTH + 16, y = TOP + 8 + (int)g * LEGEND_LINE;
    fprintf(d->out, "<path class=\"line\" stroke=\"%s\" stroke-dasharray=\"%s\" d=\"M%d %d h26\"/>\n",
            svg_color(g), svg_dashes(g), x, y);
    fprintf(d->out, "<text x=\"%d\" y=\"%d\">", x + 34, y + 4);
    put_xml_text(d->out, compared_group_name(d->compared, g));
    if (group->n > 1)
        fprintf(d->out, " (%zu seeds)", group->n);
    fprintf(d->out, "</text>\n");
}

static ddl_status write_curves(struct drawing *d, const char *path, struct ddl_error *err)
{
    struct ddl_file_writer w;
    const size_t n = d->compared->result.n_groups;
    char title[128];
    size_t width = LEFT + PLOT_WIDTH + 16 + 34 + CHARACTER * (longest_name(d->compared) + 11) + 8;
    size_t height = TOP + PLOT_HEIGHT + BOTTOM;
    if (height < TOP + n * LEGEND_LINE + 8)
        height = TOP + n * LEGEND_LINE + 8;
    snprintf(title, sizeof title, "%s by %s", d->options->val ? "Validation loss" : "Training loss",
             axis_labels[d->options->axis]);
    d->out = svg_open(&w, path, width, height, title, err);
    if (!d->out)
        return err->status;
    svg_write_axis_x(d->out, &d->x, TOP, TOP + PLOT_HEIGHT, axis_labels[d->options->axis]);
    svg_write_axis_y(d->out, &d->y, LEFT, LEFT + PLOT_WIDTH, loss_label(d->options));
    for (size_t g = 0; g < n; g++) {
        if (d->compared->result.groups[g].n > 1)
            write_band(d, &d->compared->result.groups[g], svg_color(g));
    }
    for (size_t g = 0; g < n; g++) {
        write_line(d, g);
        write_legend(d, g);
    }
    svg_write_frame(d->out, &d->x, TOP, TOP + PLOT_HEIGHT);
    return svg_close(&w, err);
}

/* ---- final losses ---- */

struct final {
    const double *losses; /* (n) */
    const struct ddl_mean *mean;
};

static struct final final_of(const struct drawing *d, size_t g)
{
    const struct ddl_compare_group *group = &d->compared->result.groups[g];
    return d->options->val ? (struct final){ group->val_losses, &group->val_loss }
                           : (struct final){ group->train_losses, &group->train_loss };
}

static bool set_final_scale(struct drawing *d)
{
    const struct ddl_comparison *result = &d->compared->result;
    double left = CHARACTER * (double)longest_name(d->compared) + 24;
    d->x = svg_scale_from(left, left + PLOT_WIDTH);
    for (size_t g = 0; g < result->n_groups; g++) {
        const struct final final = final_of(d, g);
        for (size_t i = 0; i < result->groups[g].n; i++)
            svg_widen(&d->x, final.losses[i]);
        svg_widen(&d->x, final.mean->low); /* NaN with one run: without effect */
        svg_widen(&d->x, final.mean->high);
    }
    if (svg_is_empty(&d->x))
        return false;
    svg_set_ticks(&d->x, true);
    return true;
}

/* The runs as circles; of several, the mean as a bar on the line of its interval. */
static void write_final_row(const struct drawing *d, size_t g)
{
    const struct final final = final_of(d, g);
    const bool is_baseline = g == d->compared->result.baseline;
    const char *color = svg_color(is_baseline ? 1 : 0);
    int y = TOP + ROW / 2 + (int)g * ROW;
    fprintf(d->out, "<text x=\"%.0f\" y=\"%d\" text-anchor=\"end\">", d->x.from - 10, y + 4);
    put_xml_text(d->out, compared_group_name(d->compared, g));
    fprintf(d->out, "</text>\n");
    if (isfinite(final.mean->low))
        fprintf(d->out, "<path class=\"line\" stroke=\"%s\" d=\"M%.1f %d H%.1f\"/>\n", color,
                svg_pixel(&d->x, final.mean->low), y, svg_pixel(&d->x, final.mean->high));
    for (size_t i = 0; i < d->compared->result.groups[g].n; i++) {
        if (isfinite(final.losses[i]))
            fprintf(d->out, "<circle fill=\"#ffffff\" stroke=\"%s\" cx=\"%.1f\" cy=\"%d\" r=\"4\"/>\n", color,
                    svg_pixel(&d->x, final.losses[i]), y);
    }
    if (isfinite(final.mean->mean) && d->compared->result.groups[g].n > 1)
        fprintf(d->out, "<rect fill=\"%s\" x=\"%.1f\" y=\"%d\" width=\"5\" height=\"12\"/>\n", color,
                svg_pixel(&d->x, final.mean->mean) - 2.5, y - 6);
}

static ddl_status write_final(struct drawing *d, const char *path, struct ddl_error *err)
{
    struct ddl_file_writer w;
    const struct ddl_comparison *result = &d->compared->result;
    const double baseline = final_of(d, result->baseline).mean->mean;
    char label[128];
    int bottom = TOP + (int)result->n_groups * ROW;
    snprintf(label, sizeof label, "%s: runs, mean, 95 %% interval", loss_label(d->options));
    d->out = svg_open(&w, path, (size_t)d->x.to + 24, (size_t)bottom + BOTTOM,
                      d->options->val ? "Final validation loss" : "Final training loss", err);
    if (!d->out)
        return err->status;
    svg_write_axis_x(d->out, &d->x, TOP, bottom, label);
    if (isfinite(baseline))
        fprintf(d->out, "<path class=\"line\" stroke=\"%s\" stroke-dasharray=\"4 4\" d=\"M%.1f %d V%d\"/>\n",
                svg_color(1), svg_pixel(&d->x, baseline), TOP, bottom);
    for (size_t g = 0; g < result->n_groups; g++)
        write_final_row(d, g);
    svg_write_frame(d->out, &d->x, TOP, bottom);
    return svg_close(&w, err);
}

/* ---- the file ---- */

ddl_status write_compared_svg(const struct compared *c, const char *path,
                              const struct figure_options *options, struct ddl_error *err)
{
    struct drawing d = { .compared = c, .options = options };
    const bool curves = options->kind == FIGURE_CURVES;
    char limit[64] = "";
    if (curves && options->highest > 0)
        snprintf(limit, sizeof limit, " of at most %g", options->highest);
    if (!(curves ? set_curve_scales(&d) : set_final_scale(&d)))
        return ddl_error_set(err, DDL_E_FORMAT, "%.400s: nothing to draw: expected a %s loss%s, found none",
                             path, options->val ? "validation" : "training", limit);
    return curves ? write_curves(&d, path, err) : write_final(&d, path, err);
}
