/* The results of an inspection: its table of figures, their values. */
#include "study/inspection.h"

#include "ddl/option.h"

#include <math.h>
#include <stdio.h>

#define FIGURE(name, about)                                                                                  \
    {                                                                                                        \
#name, about, offsetof(struct ddl_inspect_figures, name)                                             \
    }
const struct ddl_inspect_row *ddl_inspect_rows(void)
{
    static const struct ddl_inspect_row rows[] = {
        FIGURE(beta_mean, "mean of the gate β"),
        FIGURE(beta_q05, "5 % quantile of β"),
        FIGURE(beta_q25, "25 % quantile of β"),
        FIGURE(beta_q50, "median of β"),
        FIGURE(beta_q75, "75 % quantile of β"),
        FIGURE(beta_q95, "95 % quantile of β"),
        FIGURE(beta_min, "lowest β"),
        FIGURE(beta_max, "highest β"),
        FIGURE(skip, "share of β < 0.1"),
        FIGURE(match, "share of 0.9 ≤ β ≤ 1.1"),
        FIGURE(over, "share of β > 1.1"),
        FIGURE(reflect, "share of β > 1.9"),
        FIGURE(eigenvalue_mean, "mean of 1 − β‖k‖², the eigenvalue of the shortcut that is not 1"),
        FIGURE(e_pre_rms, "root mean square of kᵀX − v"),
        FIGURE(e_post_rms, "root mean square of kᵀX′ − v"),
        FIGURE(e_identity, "rms of e_post − (1 − β‖k‖²) e_pre, relative to e_pre_rms"),
        FIGURE(erase, "mean of β‖k‖‖p‖ / ‖X‖"),
        FIGURE(write, "mean of β‖k‖‖v‖ / ‖X‖"),
        FIGURE(step, "mean of ‖X′ − X‖ / ‖X‖"),
        FIGURE(overlap_stream, "mean of ‖p‖ / ‖X‖"),
        FIGURE(overlap_next, "mean of |k · k_next|, k_next of the next delta sublayer"),
        FIGURE(lambda_mean, "mean of λ over features"),
        FIGURE(lambda_min, "lowest λ"),
        FIGURE(lambda_max, "highest λ"),
        FIGURE(tau_mean, "mean of the gate τ"),
        FIGURE(tau_q05, "5 % quantile of τ"),
        FIGURE(tau_q50, "median of τ"),
        FIGURE(tau_q95, "95 % quantile of τ"),
        FIGURE(tau_min, "lowest τ"),
        FIGURE(tau_max, "highest τ"),
        { 0 },
    };
    return rows;
}

double ddl_inspect_figure(const struct ddl_inspect_figures *figures, const struct ddl_inspect_row *row)
{
    return *(const double *)((const char *)figures + row->offset);
}

/* ---- values ---- */

static double share(uint64_t part, const struct distribution *d)
{
    return (double)part / (double)d->n;
}

/* The figures of a gate: of beta, or of tau. */
static bool set_gate(struct ddl_inspect_figures *f, const struct sublayer_sums *sums)
{
    static const double quantiles[] = { 0.05, 0.25, 0.5, 0.75, 0.95 };
    const struct distribution *d = &sums->gate;
    double q[5];
    if (!distribution_quantiles(d, 5, quantiles, q))
        return false;
    if (d->top > 1) {
        f->beta_mean = distribution_mean(d);
        f->beta_q05 = q[0], f->beta_q25 = q[1], f->beta_q50 = q[2], f->beta_q75 = q[3], f->beta_q95 = q[4];
        f->beta_min = d->min, f->beta_max = d->max;
        f->skip = share(d->skip, d), f->match = share(d->match, d);
        f->over = share(d->over, d), f->reflect = share(d->reflect, d);
    } else {
        f->tau_mean = distribution_mean(d);
        f->tau_q05 = q[0], f->tau_q50 = q[2], f->tau_q95 = q[4];
        f->tau_min = d->min, f->tau_max = d->max;
    }
    return true;
}

static void set_delta(struct ddl_inspect_figures *f, const struct sublayer_sums *sums, size_t channels)
{
    double rows = (double)sums->rows, numbers = rows * (double)channels;
    f->eigenvalue_mean = sums->eigenvalue / rows;
    f->e_pre_rms = sqrt(sums->pre2 / numbers);
    f->e_post_rms = sqrt(sums->post2 / numbers);
    if (sums->update == DDL_UPDATE_DELTA)
        f->e_identity = sums->identity2 > 0 ? sqrt(sums->identity2 / sums->pre2) : 0;
    f->erase = sums->erase / rows;
    f->write = sums->write / rows;
    if (sums->next_rows)
        f->overlap_next = sums->overlap_next / (double)sums->next_rows;
}

static bool set_figures(const struct ddl_inspection *in, const struct sublayer_sums *sums,
                        struct ddl_inspect_figures *f)
{
    for (const struct ddl_inspect_row *row = ddl_inspect_rows(); row->name; row++)
        *(double *)((char *)f + row->offset) = (double)NAN;
    f->step = sums->step / (double)sums->rows;
    f->overlap_stream = sums->overlap_stream / (double)sums->rows;
    f->lambda_mean = sums->lambda_mean;
    f->lambda_min = sums->lambda_min;
    f->lambda_max = sums->lambda_max;
    if (sums->is_delta)
        set_delta(f, sums, in->k->channels);
    return !sums->has_gate || set_gate(f, sums);
}

static bool set_result(struct ddl_inspection *in, size_t s)
{
    const struct sublayer_sums *sums = &in->sums[s];
    struct ddl_inspect_sublayer *out = &in->result[s];
    size_t layer = s / DDL_SUBLAYERS, c = in->k->channels, seq = in->config.seq;
    double *rms = in->channel_rms + s * c, *position = in->by_position + s * seq;
    for (size_t j = 0; j < c; j++)
        rms[j] = sqrt(sums->channel2[j] / ((double)sums->rows * (double)in->k->d_model));
    *out = (struct ddl_inspect_sublayer){ .layer = layer,
                                          .sub = (int)(s % DDL_SUBLAYERS),
                                          .rule = ddl_config_residual_name(in->k, layer),
                                          .is_delta = sums->is_delta,
                                          .update = sums->update,
                                          .channel_rms = rms,
                                          .steps = sums->steps,
                                          .n_rows = in->rows < DDL_INSPECT_EXACT ? (size_t)in->rows
                                                                                 : DDL_INSPECT_EXACT };
    if (sums->has_gate) {
        for (size_t t = 0; t < seq; t++)
            position[t] = sums->position_count[t] ? sums->position_sum[t] / (double)sums->position_count[t]
                                                  : (double)NAN;
        out->histogram = sums->gate.histogram;
        out->gate_max = sums->gate.top;
        out->exact = sums->gate.n <= DDL_INSPECT_EXACT;
        out->by_position = position;
        out->gates = sums->gate_means ? sums->gate_means : sums->gate.first;
        out->n_extremes = sums->highest.n;
        out->highest = sums->highest.token;
        out->lowest = sums->lowest.token;
    }
    return set_figures(in, sums, &out->figures);
}

ddl_status ddl_inspect_finish(ddl_inspection *in, struct ddl_error *err)
{
    if (in->rows == 0)
        return ddl_error_set(err, DDL_E_USAGE, "inspect: expected at least one batch, found none");
    for (size_t s = 0; s < in->n_sublayers; s++) {
        if (!set_result(in, s))
            return ddl_error_set(err, DDL_E_MEMORY, "inspect: out of memory for quantiles");
    }
    double n = (double)in->n_spectrum;
    in->depth = (struct ddl_inspect_depth){ .sigma_max = in->sigma_max / n,
                                            .sigma_min = in->sigma_min / n,
                                            .log_det = in->log_det / (double)in->rows,
                                            .tokens = in->n_spectrum };
    return DDL_OK;
}
