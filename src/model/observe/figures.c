#include "model/observe/figures.h"

#include "ddl/config.h"

#include <math.h>
#include <string.h>

/* ---- sums ---- */

void ddl_figures_begin(struct ddl_sublayer_sums *sums, size_t c)
{
    *sums = (struct ddl_sublayer_sums){ .channel2 = sums->channel2, .values = sums->values };
    memset(sums->channel2, 0, c * sizeof *sums->channel2);
}

double ddl_figures_add(struct ddl_sublayer_sums *sums, const struct trace_row *row, double *scratch)
{
    size_t c = row->c;
    double squares = 0;
    for (size_t i = 0; i < row->d; i++) {
        for (size_t j = 0; j < c; j++) {
            size_t at = i * row->stride_d + j * row->stride_c;
            double x = (double)row->after[at], change = x - (double)row->before[at];
            squares += change * change;
            sums->channel2[j] += x * x;
        }
    }
    double step = trace_ratio(sqrt(squares), row->x_length);
    sums->rows++;
    sums->step += step;
    sums->overlap_stream += trace_ratio(row->p_length, row->x_length);
    if (sums->update)
        sums->update->add(row, sums->of_update, scratch);
    return step;
}

/* The largest |row sum| of a matrix (c, c) added to *row, and the largest |column sum| to *column. */
static void add_gains(size_t c, const double *M, double *row, double *column)
{
    double largest_row = 0, largest_column = 0;
    for (size_t k = 0; k < c; k++) {
        double along = 0, down = 0;
        for (size_t j = 0; j < c; j++) {
            along += M[k * c + j];
            down += M[j * c + k];
        }
        largest_row = fmax(largest_row, fabs(along));
        largest_column = fmax(largest_column, fabs(down));
    }
    *row += largest_row;
    *column += largest_column;
}

/* The figures of a mixing matrix, in the order in which a rule declares them. */
enum { DIAGONAL, ROW, COLUMN, PRODUCT_ROW, PRODUCT_COLUMN };

static void add_mixing(double *figure, size_t c, const float *x)
{
    double M[DDL_MAX_STREAMS * DDL_MAX_STREAMS];
    for (size_t i = 0; i < c * c; i++)
        M[i] = (double)x[i];
    for (size_t k = 0; k < c; k++)
        figure[DIAGONAL] += M[k * c + k] / (double)c;
    add_gains(c, M, &figure[ROW], &figure[COLUMN]);
}

/* The number of the first figure that a tensor declares; those of a list follow each other in the table. */
static size_t first_of(const struct ddl_figure_table *table, const struct ddl_figure *list)
{
    size_t i = 0;
    while (i < table->n && table->row[i] != list)
        i++;
    return i;
}

static size_t count(const struct ddl_figure *list)
{
    size_t n = 0;
    while (list[n].name)
        n++;
    return n;
}

void ddl_figures_add_tensor(struct ddl_sublayer_sums *sums, const struct ddl_figure_table *table,
                            const struct ddl_traced *tensor, size_t c, const float *x)
{
    const struct trace_tensor *of = tensor->of;
    size_t first = first_of(table, of->figures), n = 0;
    if (of->summary == TRACE_MIXING) {
        add_mixing(sums->figure + first, c, x);
        n = PRODUCT_ROW;
    } else if (of->derive) {
        double figure[DDL_MOST_FIGURES];
        n = count(of->figures);
        of->derive(tensor->width, x, figure);
        for (size_t i = 0; i < n; i++) {
            bool once = of->extent == TRACE_PARAMETER;
            sums->figure[first + i] = once ? figure[i] : sums->figure[first + i] + figure[i];
            sums->figure_rows[first + i] = once ? 0 : sums->figure_rows[first + i];
        }
    }
    for (size_t i = 0; i < n; i++)
        sums->figure_rows[first + i]++;
}

void ddl_figures_add_product(struct ddl_sublayer_sums *sums, const struct ddl_figure_table *table,
                             const struct trace_tensor *of, size_t c, const double *P)
{
    size_t first = first_of(table, of->figures);
    add_gains(c, P, &sums->figure[first + PRODUCT_ROW], &sums->figure[first + PRODUCT_COLUMN]);
    sums->figure_rows[first + PRODUCT_ROW]++;
    sums->figure_rows[first + PRODUCT_COLUMN]++;
}

/* ---- values ---- */

/* A figure of a gate, from its distribution and its quantiles. */
static double gate_figure(const struct ddl_distribution *d, enum ddl_figure_kind kind, const double *q)
{
    double n = (double)d->n;
    switch (kind) {
    case DDL_FIGURE_MEAN:
        return ddl_distribution_mean(d);
    case DDL_FIGURE_MIN:
        return d->min;
    case DDL_FIGURE_MAX:
        return d->max;
    case DDL_FIGURE_SKIP:
        return (double)d->skip / n;
    case DDL_FIGURE_MATCH:
        return (double)d->match / n;
    case DDL_FIGURE_OVER:
        return (double)d->over / n;
    case DDL_FIGURE_REFLECT:
        return (double)d->reflect / n;
    default:
        return q[kind - DDL_FIGURE_Q05];
    }
}

static bool set_gate(const struct ddl_sublayer_sums *sums, const struct ddl_figure_table *table,
                     double *values)
{
    static const double quantiles[] = { 0.05, 0.25, 0.5, 0.75, 0.95 };
    const struct ddl_figure *list = sums->gate->figures;
    double q[5];
    if (!ddl_distribution_quantiles(&sums->values, 5, quantiles, q))
        return false;
    size_t first = first_of(table, list);
    for (size_t i = 0; list[i].name; i++)
        values[first + i] = gate_figure(&sums->values, list[i].kind, q);
    return true;
}

static void set_update(const struct ddl_sublayer_sums *sums, const struct ddl_figure_table *table, size_t c,
                       double *values)
{
    const struct ddl_figure *list = sums->update->figures;
    double figure[DDL_MOST_FIGURES];
    size_t n = count(list);
    for (size_t i = 0; i < n; i++)
        figure[i] = (double)NAN;
    sums->update->set(sums->of_update, (double)sums->rows, (double)c, sums->kind, figure);
    for (size_t i = 0; i < n; i++)
        values[ddl_figure_find(table, list[i].name)] = figure[i];
    if (sums->next_rows)
        values[ddl_figure_find(table, "overlap_next")] = sums->overlap_next / (double)sums->next_rows;
}

bool ddl_figures_of(const struct ddl_sublayer_sums *sums, const struct ddl_figure_table *table, size_t c,
                    struct ddl_inspect_figures *out)
{
    double *values = out->value;
    for (size_t i = 0; i < DDL_MOST_FIGURES; i++)
        values[i] = sums->figure_rows[i] ? sums->figure[i] / (double)sums->figure_rows[i] : (double)NAN;
    if (sums->update)
        set_update(sums, table, c, values);
    values[ddl_figure_find(table, "step")] = sums->step / (double)sums->rows;
    values[ddl_figure_find(table, "overlap_stream")] = sums->overlap_stream / (double)sums->rows;
    return !sums->gate || set_gate(sums, table, values);
}
