#include "model/residual/delta_figures.h"

#include "ddl/config.h"

#include <math.h>

enum { EIGENVALUE, E_PRE, E_POST, E_IDENTITY, ERASE, WRITE };

const struct ddl_figure delta_figures[] = {
    [EIGENVALUE] = { "eigenvalue_mean", "mean of 1 − β‖k‖², the eigenvalue of the shortcut that is not 1",
                     NULL, NULL, 3, DDL_FIGURE_SHRINK },
    [E_PRE] = { "e_pre_rms", "root mean square of kᵀX − v", "e_pre", "e_pre", 3, DDL_FIGURE_UPDATE },
    [E_POST] = { "e_post_rms", "root mean square of kᵀX′ − v", "e_post", "e_post", 3, DDL_FIGURE_UPDATE },
    [E_IDENTITY] = { "e_identity", "rms of e_post − (1 − β‖k‖²) e_pre, relative to e_pre_rms", NULL,
                     "identity", 3, DDL_FIGURE_UPDATE },
    [ERASE] = { "erase", "mean of β‖k‖‖p‖ / ‖X‖", "erase", "erase", 3, DDL_FIGURE_SIZE },
    [WRITE] = { "write", "mean of β‖k‖‖v‖ / ‖X‖", "write", "write", 3, DDL_FIGURE_SIZE },
    DDL_FIGURE_ROW_STEP,
    DDL_FIGURE_ROW_STREAM,
    { "overlap_next", "mean of |k · k_next|, k_next of the next delta sublayer", "next", "k with next k", 3,
      DDL_FIGURE_OVERLAP },
    { 0 },
};

void delta_figures_add(const struct trace_row *row, double *sums, double *post)
{
    double beta = (double)*row->x[DELTA_BETA], length = row->length, written = 0;
    double eigenvalue = 1 - beta * length * length;
    const float *target = row->x[DELTA_TARGET];
    trace_row_read(row, row->after, post);
    for (size_t j = 0; j < row->c; j++) {
        double v = (double)target[j], e_pre = row->p[j] - v, e_post = post[j] - v;
        double off = e_post - eigenvalue * e_pre;
        sums[E_PRE] += e_pre * e_pre;
        sums[E_POST] += e_post * e_post;
        sums[E_IDENTITY] += off * off;
        written += v * v;
    }
    sums[EIGENVALUE] += eigenvalue;
    sums[ERASE] += trace_ratio(beta * length * row->p_length, row->x_length);
    sums[WRITE] += trace_ratio(beta * length * sqrt(written), row->x_length);
}

void delta_figures_set(const double *sums, double rows, double c, int update, double *figures)
{
    double numbers = rows * c;
    figures[EIGENVALUE] = sums[EIGENVALUE] / rows;
    figures[E_PRE] = sqrt(sums[E_PRE] / numbers);
    figures[E_POST] = sqrt(sums[E_POST] / numbers);
    if (update == DDL_UPDATE_DELTA)
        figures[E_IDENTITY] = sums[E_IDENTITY] > 0 ? sqrt(sums[E_IDENTITY] / sums[E_PRE]) : 0;
    figures[ERASE] = sums[ERASE] / rows;
    figures[WRITE] = sums[WRITE] / rows;
}

void delta_figures_take(const struct trace_row *row, double *scratch, float *out)
{
    double beta = (double)*row->x[DELTA_BETA];
    for (size_t j = 0; j < row->c; j++) {
        double v = row->update == DDL_UPDATE_ERASE ? 0 : (double)row->x[DELTA_TARGET][j];
        scratch[j] = beta * (row->update == DDL_UPDATE_WRITE ? v : v - row->p[j]);
    }
    for (size_t i = 0; i < row->d; i++) {
        for (size_t j = 0; j < row->c; j++) {
            size_t at = i * row->stride_d + j * row->stride_c;
            out[at] = (float)((double)row->before[at] + row->k[i] * scratch[j]);
        }
    }
}
