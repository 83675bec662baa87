/* One sublayer of an inspection's pass: adds its rows, step by step. */
#include "study/inspection.h"

#include "base/mem.h"

#include <math.h>
#include <string.h>

/* ---- gates ---- */

/* The row as a token in its context. */
static struct ddl_inspect_token token_of(const struct ddl_inspection *in, size_t row, double beta)
{
    const struct ddl_batch *batch = in->batch;
    size_t T = batch->T, t = row % T;
    size_t from = t < DDL_INSPECT_BEFORE ? 0 : t - DDL_INSPECT_BEFORE;
    size_t to = t + DDL_INSPECT_AFTER < T ? t + DDL_INSPECT_AFTER : T - 1;
    struct ddl_inspect_token token = {
        .beta = beta, .index = in->rows + row, .position = t, .n = to - from + 1, .at = t - from
    };
    memcpy(token.tokens, batch->tokens + row - token.at, token.n * sizeof *token.tokens);
    return token;
}

/* Keeps the row if it is more extreme than one of the list: sign 1 for the highest, -1 for the lowest. */
static void add_extreme(const struct ddl_inspection *in, struct extremes *list, size_t row, double beta,
                        double sign)
{
    size_t at = list->n;
    while (at > 0 && sign * beta > sign * list->token[at - 1].beta)
        at--;
    if (at == DDL_INSPECT_EXTREMES)
        return;
    list->n += list->n < DDL_INSPECT_EXTREMES;
    memmove(&list->token[at + 1], &list->token[at], (list->n - at - 1) * sizeof *list->token);
    list->token[at] = token_of(in, row, beta);
}

/* The memory of a sublayer's gate, when it is first seen. */
static bool begin_gate(const struct ddl_inspection *in, struct sublayer_sums *sums, double top, size_t width)
{
    if (sums->position_sum)
        return true;
    sums->gate_width = width;
    sums->position_sum = ddl_mem_zalloc(in->config.seq * sizeof *sums->position_sum);
    sums->position_count = ddl_mem_zalloc(in->config.seq * sizeof *sums->position_count);
    if (width > 1)
        sums->gate_means = ddl_mem_alloc(DDL_INSPECT_EXACT * sizeof *sums->gate_means);
    return ddl_distribution_init(&sums->figures.values, top, DDL_INSPECT_EXACT) && sums->position_sum &&
           sums->position_count && (width == 1 || sums->gate_means);
}

/* The tensor with a histogram in step r. */
static void add_gate(struct ddl_inspection *in, struct sublayer_sums *sums,
                     const struct ddl_sublayer_trace *trace, size_t r)
{
    size_t gate = ddl_rows_gate(&in->copies, trace), width = trace->tensor[gate].width;
    if (in->out_of_memory || !begin_gate(in, sums, trace->tensor[gate].of->top(in->k), width)) {
        in->out_of_memory = true;
        return;
    }
    for (size_t n = 0; n < trace->rows; n++) {
        const float *x = ddl_rows_tensor(&in->copies, trace, gate, n, r);
        double mean = 0;
        for (size_t i = 0; i < width; i++) {
            ddl_distribution_add(&sums->figures.values, x[i]);
            mean += (double)x[i] / (double)width;
        }
        if (sums->gate_means && in->rows + n < DDL_INSPECT_EXACT)
            sums->gate_means[in->rows + n] = (float)mean;
        sums->position_sum[n % in->batch->T] += mean;
        sums->position_count[n % in->batch->T]++;
        add_extreme(in, &sums->highest, n, mean, 1);
        add_extreme(in, &sums->lowest, n, mean, -1);
    }
}

/* ---- from one delta step to the next ---- */

size_t inspection_sampled(const struct ddl_inspection *in, uint64_t first, size_t n)
{
    if (!in->every)
        return 0;
    uint64_t before = first / in->every + (first % in->every != 0), end = first + n;
    return (size_t)(end / in->every + (end % in->every != 0) - before);
}

/* Keeps k and the gate of the sampled rows. */
static void keep_for_spectrum(struct ddl_inspection *in, const struct ddl_sublayer_trace *trace, size_t r)
{
    size_t d = in->k->d_model, slot = 0;
    for (size_t n = 0; n < trace->rows && in->every; n++) {
        if ((in->rows + n) % in->every)
            continue;
        size_t at = slot++ * in->n_delta + in->delta_at;
        for (size_t i = 0; i < d; i++)
            in->spectrum_k[at * d + i] = (float)in->k_now[n * d + i];
        in->spectrum_beta[at] = *ddl_rows_tensor(&in->copies, trace, trace->update->gate, n, r);
    }
}

static void follow_delta(struct ddl_inspection *in, struct sublayer_sums *sums,
                         const struct ddl_sublayer_trace *trace, size_t r)
{
    size_t d = in->k->d_model, rows = trace->rows;
    for (size_t n = 0; n < rows; n++)
        in->log_det += log(fabs(1 - (double)*ddl_rows_tensor(&in->copies, trace, trace->update->gate, n, r)));
    for (size_t n = 0; n < rows && in->last; n++) {
        double overlap = 0;
        for (size_t i = 0; i < d; i++)
            overlap += in->k_now[n * d + i] * in->k_last[n * d + i];
        in->last->figures.overlap_next += fabs(overlap);
        in->last->figures.next_rows++;
    }
    keep_for_spectrum(in, trace, r);
    double *free_memory = in->k_last;
    in->k_last = in->k_now;
    in->k_now = free_memory;
    in->last = sums;
    in->delta_at++;
}

/* ---- means of tensors ---- */

size_t inspection_means(const struct ddl_config *config, size_t layer, int sub)
{
    const struct trace_tensor *of;
    size_t n = 0;
    for (size_t i = 0; (of = trace_tensor_at(config, layer, i)); i++) {
        if (of->summary == TRACE_MEAN || of->summary == TRACE_MIXING)
            n += trace_width(of, config, layer, sub);
    }
    return n;
}

/* P = M P for the product of a row so far, which is the identity before the first sublayer. */
static void multiply(size_t c, const float *M, bool first, double *P)
{
    double before[DDL_MAX_STREAMS * DDL_MAX_STREAMS];
    for (size_t i = 0; i < c * c; i++)
        before[i] = first ? i % (c + 1) == 0 : P[i];
    for (size_t i = 0; i < c * c; i++) {
        P[i] = 0;
        for (size_t j = 0; j < c; j++)
            P[i] += (double)M[i / c * c + j] * before[j * c + i % c];
    }
}

/* The products of the mixing matrices (c, c) of all rows up to this sublayer, and their sums. */
static void add_products(struct ddl_inspection *in, struct sublayer_sums *sums,
                         const struct ddl_sublayer_trace *trace, size_t i, double *products)
{
    size_t c = in->c;
    for (size_t n = 0; n < trace->rows; n++) {
        double *P = in->product + n * c * c;
        multiply(c, ddl_rows_tensor(&in->copies, trace, i, n, 0), !in->has_product, P);
        ddl_figures_add_product(&sums->figures, &in->copies.table, trace->tensor[i].of, c, P);
        for (size_t j = 0; j < c * c; j++)
            products[j] += P[j];
    }
    in->has_product = true;
}

/* The sums of the numbers of the tensors that have means. */
static void add_means(struct ddl_inspection *in, struct sublayer_sums *sums,
                      const struct ddl_sublayer_trace *trace, size_t r)
{
    double *means = sums->means, *products = means + inspection_means(in->k, trace->layer, trace->sub);
    for (size_t i = 0; i < trace->n; i++) {
        const struct ddl_traced *tensor = &trace->tensor[i];
        bool is_mixing = tensor->of->summary == TRACE_MIXING;
        if (!is_mixing && tensor->of->summary != TRACE_MEAN)
            continue;
        for (size_t n = 0; n < trace->rows && in->copies.x[i]; n++) {
            const float *x = ddl_rows_tensor(&in->copies, trace, i, n, r);
            for (size_t j = 0; j < tensor->width; j++)
                means[j] += (double)x[j];
        }
        if (is_mixing && in->copies.x[i])
            add_products(in, sums, trace, i, products);
        means += tensor->width;
        products += tensor->width;
    }
}

/* ---- one sublayer ---- */

/* Adds the rows of step r. */
static void add_step(struct ddl_inspection *in, const struct ddl_sublayer_trace *trace, size_t r)
{
    struct sublayer_sums *sums = &in->sums[in->at + r];
    ddl_rows_begin(&in->copies, trace, &sums->figures);
    if (sums->figures.gate)
        add_gate(in, sums, trace, r);
    add_means(in, sums, trace, r);
    for (size_t n = 0; n < trace->rows; n++) {
        double size = ddl_rows_add(&in->copies, trace, r, n, &sums->figures, in->k_now + n * in->k->d_model);
        if (in->rows + n < DDL_INSPECT_EXACT)
            sums->steps[in->rows + n] = (float)size;
    }
    ddl_rows_next(&in->copies, trace, r);
    if (trace->update)
        follow_delta(in, sums, trace, r);
}

void inspection_observe(void *user, const struct ddl_sublayer_trace *trace)
{
    struct ddl_inspection *in = user;
    ddl_rows_copy(&in->copies, trace);
    if (trace->after)
        saved_states_add(in, trace);
    for (size_t r = 0; trace->after && r < trace->steps; r++)
        add_step(in, trace, r);
    in->at += trace->after ? trace->steps : 0;
}
