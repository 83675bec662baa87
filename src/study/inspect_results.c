/* The results of an inspection. */
#include "study/inspection.h"

#include <math.h>

_Static_assert((int)DDL_INSPECT_BINS == (int)DDL_DISTRIBUTION_BINS,
               "a histogram is that of its distribution");

/* The means of tensors, behind their sums. */
static void set_means(const struct ddl_inspection *in, struct sublayer_sums *sums,
                      struct ddl_inspect_sublayer *out)
{
    const struct trace_tensor *of;
    size_t n = inspection_means(in->k, out->layer, out->sub);
    double *means = sums->means + 2 * n, *products = means + n;
    for (size_t i = 0; i < 2 * n; i++)
        means[i] = sums->means[i] / (double)in->rows;
    for (size_t i = 0; (of = trace_tensor_at(in->k, out->layer, i)); i++) {
        size_t width = trace_width(of, in->k, out->layer, out->sub);
        size_t rows = of->summary == TRACE_MIXING ? in->c : 0;
        if ((of->summary != TRACE_MEAN && of->summary != TRACE_MIXING) || out->n_means + 2 > DDL_MOST_MEANS)
            continue;
        struct ddl_inspect_mean mean = { of->name, of->about, of->title, rows, rows ? rows : width, means };
        out->means[out->n_means++] = mean;
        if (of->product) {
            mean.name = of->product;
            mean.value = products;
            out->means[out->n_means++] = mean;
        }
        means += width;
        products += width;
    }
}

/* The range of the gate or of the factor that the sublayer's behavior depends on. */
static void set_range(const struct ddl_inspection *in, const struct trace_tensor *of,
                      struct ddl_inspect_sublayer *out)
{
    const struct ddl_figure_table *table = &in->copies.table;
    if (!of)
        return;
    out->behaviors = of->behaviors;
    out->symbol = of->symbol;
    out->low = out->figures.value[ddl_figure_find(table, of->figures[of->range[0]].name)];
    out->high = out->figures.value[ddl_figure_find(table, of->figures[of->range[1]].name)];
}

/* Result s: step `step` of sublayer `sub` of a layer. */
static bool set_result(struct ddl_inspection *in, size_t s, size_t layer, int sub, size_t step)
{
    struct sublayer_sums *sums = &in->sums[s];
    struct ddl_inspect_sublayer *out = &in->result[s];
    size_t c = in->c, seq = in->config.seq;
    double *rms = in->channel_rms + s * c, *position = in->by_position + s * seq;
    for (size_t j = 0; j < c; j++)
        rms[j] = sqrt(sums->figures.channel2[j] / ((double)sums->figures.rows * (double)in->k->d_model));
    *out = (struct ddl_inspect_sublayer){ .layer = layer,
                                          .sub = sub,
                                          .step = step,
                                          .n_steps = ddl_config_residual_steps(in->k, layer),
                                          .rule = ddl_config_residual_name(in->k, layer),
                                          .is_delta = sums->figures.update != NULL,
                                          .update = sums->figures.kind,
                                          .sigma_max = (double)NAN,
                                          .sigma_min = (double)NAN,
                                          .channel_rms = rms,
                                          .steps = sums->steps,
                                          .n_rows = in->rows < DDL_INSPECT_EXACT ? (size_t)in->rows
                                                                                 : DDL_INSPECT_EXACT };
    set_means(in, sums, out);
    if (sums->figures.gate) {
        for (size_t t = 0; t < seq; t++)
            position[t] = sums->position_count[t] ? sums->position_sum[t] / (double)sums->position_count[t]
                                                  : (double)NAN;
        out->histogram = sums->figures.values.histogram;
        out->gate_max = sums->figures.values.top;
        out->exact = sums->figures.values.n <= DDL_INSPECT_EXACT;
        out->by_position = position;
        out->gates = sums->gate_means ? sums->gate_means : sums->figures.values.first;
        out->n_extremes = sums->highest.n;
        out->highest = sums->highest.token;
        out->lowest = sums->lowest.token;
    }
    bool fits = ddl_figures_of(&sums->figures, &in->copies.table, c, &out->figures);
    set_range(in, sums->figures.range, out);
    return fits;
}

static bool set_results(struct ddl_inspection *in)
{
    bool fits = true;
    for (size_t l = 0, s = 0; l < in->k->n_layers; l++) {
        for (int sub = 0; sub < DDL_SUBLAYERS; sub++) {
            for (size_t step = 0; step < ddl_config_residual_steps(in->k, l); step++)
                fits = set_result(in, s++, l, sub, step) && fits;
        }
    }
    return fits;
}

/* Of delta steps, and of the last one for the whole depth. */
static void set_depth(struct ddl_inspection *in)
{
    double n = (double)in->n_spectrum;
    size_t at = 0;
    in->depth = (struct ddl_inspect_depth){ .sigma_max = (double)NAN,
                                            .sigma_min = (double)NAN,
                                            .log_det = in->log_det / (double)in->rows,
                                            .tokens = in->n_spectrum };
    for (size_t s = 0; in->n_spectrum && s < in->n_sublayers; s++) {
        struct ddl_inspect_sublayer *out = &in->result[s];
        if (!out->is_delta)
            continue;
        in->depth.sigma_max = out->sigma_max = in->sigma_max[at] / n;
        in->depth.sigma_min = out->sigma_min = in->sigma_min[at] / n;
        at++;
    }
}

ddl_status ddl_inspect_finish(ddl_inspection *in, struct ddl_error *err)
{
    if (in->rows == 0)
        return ddl_error_set(err, DDL_E_USAGE, "inspect: expected at least one batch, found none");
    if (!set_results(in))
        return ddl_error_set(err, DDL_E_MEMORY, "inspect: out of memory for quantiles");
    set_depth(in);
    return DDL_OK;
}
