#include "cli/compare/svg.h"

#include <math.h>
#include <string.h>

static const char *const colors[] = { "#0072B2", "#D55E00", "#009E73", "#B8578F",
                                      "#B07A00", "#3D9BD1", "#444444" };
static const char *const dashes[] = { "", "7 3", "2 3", "7 3 2 3" };
enum { N_COLORS = sizeof colors / sizeof *colors, N_DASHES = sizeof dashes / sizeof *dashes };

const char *svg_color(size_t i)
{
    return colors[i % N_COLORS];
}

const char *svg_dashes(size_t i)
{
    return dashes[i / N_COLORS % N_DASHES];
}

/* ---- scales ---- */

struct svg_scale svg_scale_from(double from, double to)
{
    return (struct svg_scale){ .low = INFINITY, .high = -INFINITY, .from = from, .to = to };
}

void svg_widen(struct svg_scale *s, double value)
{
    s->low = fmin(s->low, value);
    s->high = fmax(s->high, value);
}

bool svg_is_empty(const struct svg_scale *s)
{
    return s->high < s->low;
}

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

void svg_set_ticks(struct svg_scale *s, bool round_ends)
{
    const double size = fmax(fabs(s->low), fabs(s->high));
    /* A smaller range is rounding of one value, and the numbers of its ticks may exceed those that a double
     * counts in steps of one. */
    if (s->high - s->low <= 1e-9 * size) {
        const double margin = fmax(0.5, 1e-3 * size);
        s->low -= margin;
        s->high += margin;
    }
    s->tick = nice_tick(s->high - s->low, 8);
    if (round_ends) {
        s->low = floor(s->low / s->tick) * s->tick;
        s->high = ceil(s->high / s->tick) * s->tick;
    }
}

double svg_pixel(const struct svg_scale *s, double value)
{
    return s->from + (value - s->low) / (s->high - s->low) * (s->to - s->from);
}

/* ---- the document ---- */

FILE *svg_open(struct ddl_file_writer *w, const char *path, size_t width, size_t height, const char *title,
               struct ddl_error *err)
{
    if (ddl_file_writer_begin_output(w, path, err))
        return NULL;
    fprintf(w->stream,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%zu\" height=\"%zu\" viewBox=\"0 0 %zu %zu\" "
            "font-family=\"Helvetica, Arial, sans-serif\" font-size=\"13\" fill=\"#222222\">\n"
            "<title>%s</title>\n"
            "<style>.grid{stroke:#dddddd;fill:none}.line{fill:none;stroke-width:1.8;stroke-linejoin:round}"
            "</style>\n"
            "<rect width=\"%zu\" height=\"%zu\" fill=\"#ffffff\"/>\n",
            width, height, width, height, title, width, height);
    return w->stream;
}

ddl_status svg_close(struct ddl_file_writer *w, struct ddl_error *err)
{
    fprintf(w->stream, "</svg>\n");
    return ddl_file_writer_commit(w, err);
}

/* ---- axes ---- */

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

void svg_write_axis_x(FILE *out, const struct svg_scale *x, int top, int bottom, const char *label)
{
    static const char *const superscripts[] = { "⁰", "¹", "²", "³", "⁴", "⁵", "⁶", "⁷", "⁸", "⁹" };
    int exponent = exponent_of(x->high);
    double unit = pow(10, exponent);
    for (double i = ceil(x->low / x->tick - 1e-9) + 0.0; /* not -0 */
         i * x->tick <= x->high * (1 + 1e-9); i++) {
        double value = i * x->tick, at = svg_pixel(x, value);
        fprintf(out, "<path class=\"grid\" d=\"M%.1f %d V%d\"/>\n", at, top, bottom);
        fprintf(out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.*f</text>\n", at, bottom + 18,
                decimals_of(x->tick / unit), value / unit);
    }
    fprintf(out, "<text x=\"%.0f\" y=\"%d\" text-anchor=\"middle\">%s", (x->from + x->to) / 2, bottom + 40,
            label);
    if (exponent > 0)
        fprintf(out, " (×10%s%s)", exponent > 9 ? superscripts[exponent / 10 % 10] : "",
                superscripts[exponent % 10]);
    fprintf(out, "</text>\n");
}

void svg_write_axis_y(FILE *out, const struct svg_scale *y, int left, int right, const char *label)
{
    for (double i = round(y->low / y->tick); i <= round(y->high / y->tick); i++) {
        double at = svg_pixel(y, i * y->tick);
        fprintf(out, "<path class=\"grid\" d=\"M%d %.1f H%d\"/>\n", left, at, right);
        fprintf(out, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.*f</text>\n", left - 8, at + 4,
                decimals_of(y->tick), i * y->tick);
    }
    fprintf(out, "<text transform=\"translate(18 %.0f) rotate(-90)\" text-anchor=\"middle\">%s</text>\n",
            (y->from + y->to) / 2, label);
}

void svg_write_frame(FILE *out, const struct svg_scale *x, int top, int bottom)
{
    fprintf(out,
            "<rect x=\"%.0f\" y=\"%d\" width=\"%.0f\" height=\"%d\" fill=\"none\" stroke=\"#444444\"/>\n",
            x->from, top, x->to - x->from, bottom - top);
}
