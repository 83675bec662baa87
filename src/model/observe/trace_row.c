#include "model/observe/trace.h"

#include <math.h>
#include <string.h>

double trace_ratio(double a, double b)
{
    return a == 0 ? 0 : a / b;
}

double trace_row_read(const struct trace_row *row, const float *X, double *out)
{
    double squares = 0;
    memset(out, 0, row->c * sizeof *out);
    for (size_t i = 0; i < row->d; i++) {
        for (size_t j = 0; j < row->c; j++)
            out[j] += row->k[i] * (double)X[i * row->stride_d + j * row->stride_c];
    }
    for (size_t j = 0; j < row->c; j++)
        squares += out[j] * out[j];
    return sqrt(squares);
}

void trace_row_set(struct trace_row *row, double *k, double *p)
{
    double squares = 0, size = 0;
    for (size_t i = 0; i < row->d; i++) {
        k[i] = row->direction ? (double)row->direction[i] : (double)row->after[i] - (double)row->before[i];
        squares += k[i] * k[i];
    }
    double length = sqrt(squares + row->k_eps * row->k_eps);
    for (size_t i = 0; i < row->d; i++)
        k[i] = trace_ratio(k[i], length);
    for (size_t i = 0; i < row->d * row->c; i++)
        size += (double)row->before[i] * (double)row->before[i];
    row->k = k;
    row->length = trace_ratio(sqrt(squares), length);
    row->p = p;
    row->p_length = trace_row_read(row, row->before, p);
    row->x_length = sqrt(size);
}
