/* The results of an inspection. */
#include "study/inspection.h"

#include <math.h>

_Static_assert((int)DDL_INSPECT_BINS == (int)DDL_DISTRIBUTION_BINS,
               "a histogram is that of its distribution");

static void set_mixing(struct ddl_inspection *in, size_t s)
{
    size_t c = in->c, n = c * (c + 2) + c * c;
    double *means = in->mixing_means + s * n;
    struct ddl_inspect_sublayer *out = &in->result[s];
    for (size_t i = 0; i < n; i++)
        means[i] = in->sums[s].mixing[i] / (double)in->rows;
    out->mix_read = means;
    out->mix_write = means + c;
    out->mix_mean = means + 2 * c;
    out->mix_product = means + c * (c + 2);
}

/* Result s: step `step` of sublayer `sub` of a layer. */
static bool set_result(struct ddl_inspection *in, size_t s, size_t layer, int sub, size_t step)
{
    const struct sublayer_sums *sums = &in->sums[s];
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
                                          .is_delta = sums->figures.is_delta,
                                          .update = sums->figures.update,
                                          .sigma_max = (double)NAN,
                                          .sigma_min = (double)NAN,
                                          .channel_rms = rms,
                                          .steps = sums->steps,
                                          .n_rows = in->rows < DDL_INSPECT_EXACT ? (size_t)in->rows
                                                                                 : DDL_INSPECT_EXACT };
    if (in->has_streams)
        set_mixing(in, s);
    if (sums->figures.has_gate) {
        for (size_t t = 0; t < seq; t++)
            position[t] = sums->position_count[t] ? sums->position_sum[t] / (double)sums->position_count[t]
                                                  : (double)NAN;
        out->histogram = sums->figures.gate.histogram;
        out->gate_max = sums->figures.gate.top;
        out->exact = sums->figures.gate.n <= DDL_INSPECT_EXACT;
        out->by_position = position;
        out->gates = sums->gate_means ? sums->gate_means : sums->figures.gate.first;
        out->n_extremes = sums->highest.n;
        out->highest = sums->highest.token;
        out->lowest = sums->lowest.token;
    }
    return ddl_figures_of(&sums->figures, c, &out->figures);
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
