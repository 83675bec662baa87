/* Cases of ops on the streams of hyper-connections. */
#include "bench/cases.h"

/* Mixing weights of a token, and the parts of those of mhc. */
static size_t weights(const struct bench_sizes *s)
{
    return s->n * (s->n + 2);
}

static size_t rows_of(const struct bench_sizes *s, size_t part)
{
    return part < 2 ? s->n : s->n * s->n;
}

/* The projections of mhc. */
void make_streams_fold_fwd(struct bench_case *k, const struct bench_sizes *s)
{
    size_t width = s->d * s->n;
    k->args.streams_fold_fwd = (struct streams_fold_args){ .d = s->d, .n = s->n };
    IN(streams_fold_args, norm, width, WEIGHT);
    for (size_t part = 0; part < 3; part++) {
        k->args.streams_fold_fwd.rows[part] = rows_of(s, part);
        bench_add(k, AT(streams_fold_args, W) + part * sizeof(float *), rows_of(s, part) * width,
                  BENCH_NORMAL, BENCH_IN);
    }
    OUT(streams_fold_args, Wf, weights(s) * width);
}
void make_streams_fold_bwd(struct bench_case *k, const struct bench_sizes *s)
{
    size_t width = s->d * s->n;
    k->args.streams_fold_bwd = (struct streams_fold_grad_args){ .d = s->d, .n = s->n };
    IN(streams_fold_grad_args, norm, width, WEIGHT);
    for (size_t part = 0; part < 3; part++) {
        size_t numbers = rows_of(s, part) * width;
        k->args.streams_fold_bwd.rows[part] = rows_of(s, part);
        bench_add(k, AT(streams_fold_grad_args, W) + part * sizeof(float *), numbers, BENCH_NORMAL, BENCH_IN);
        bench_add(k, AT(streams_fold_grad_args, dW) + part * sizeof(float *), numbers, BENCH_NORMAL,
                  BENCH_INOUT);
    }
    IN(streams_fold_grad_args, dWf, weights(s) * width, NORMAL);
    INOUT(streams_fold_grad_args, dnorm, width);
}

void make_streams_sum(struct bench_case *k, const struct bench_sizes *s)
{
    k->args.streams_sum = (struct streams_sum_args){ .N = s->N, .d = s->d, .n = s->n };
    IN(streams_sum_args, X, s->N * s->n * s->d, NORMAL);
    OUT(streams_sum_args, y, s->N * s->d);
}

void make_streams_write_fwd(struct bench_case *k, const struct bench_sizes *s)
{
    k->args.streams_write_fwd = (struct streams_write_args){ .N = s->N, .d = s->d, .n = s->n };
    IN(streams_write_args, X, s->N * s->n * s->d, NORMAL);
    IN(streams_write_args, w, s->N * weights(s), NORMAL);
    IN(streams_write_args, f, s->N * s->d, NORMAL);
    OUT(streams_write_args, X_out, s->N * s->n * s->d);
}
void make_streams_write_bwd(struct bench_case *k, const struct bench_sizes *s)
{
    k->args.streams_write_bwd = (struct streams_write_grad_args){ .N = s->N, .d = s->d, .n = s->n };
    IN(streams_write_grad_args, X, s->N * s->n * s->d, NORMAL);
    IN(streams_write_grad_args, w, s->N * weights(s), NORMAL);
    IN(streams_write_grad_args, f, s->N * s->d, NORMAL);
    IN(streams_write_grad_args, G, s->N * s->n * s->d, NORMAL);
    OUT(streams_write_grad_args, df, s->N * s->d);
    OUT(streams_write_grad_args, dw, s->N * weights(s));
    OUT(streams_write_grad_args, x_in, s->N * s->d);
}

void make_hyper_fwd(struct bench_case *k, const struct bench_sizes *s)
{
    size_t n = s->n;
    k->args.hyper_fwd = (struct hyper_args){ .N = s->N, .d = s->d, .n = n, .eps = 1e-5f };
    IN(hyper_args, X, s->N * n * s->d, NORMAL);
    IN(hyper_args, alpha, n * (n + 1), NORMAL);
    IN(hyper_args, beta, n, NORMAL);
    IN(hyper_args, Wf, (n + 2) * s->d, NORMAL);
    IN(hyper_args, a, 1, NORMAL);
    IN(hyper_args, e, 1, NORMAL);
    OUT(hyper_args, t, s->N * weights(s));
    OUT(hyper_args, rstd, s->N * n);
    OUT(hyper_args, w, s->N * weights(s));
    OUT(hyper_args, x_in, s->N * s->d);
    k->flops = 2 * (double)(s->N * n * (n + 2) * s->d);
}
void make_hyper_bwd(struct bench_case *k, const struct bench_sizes *s)
{
    size_t n = s->n;
    k->args.hyper_bwd = (struct hyper_grad_args){ .N = s->N, .d = s->d, .n = n };
    IN(hyper_grad_args, X, s->N * n * s->d, NORMAL);
    IN(hyper_grad_args, Wf, (n + 2) * s->d, NORMAL);
    IN(hyper_grad_args, a, 1, NORMAL);
    IN(hyper_grad_args, e, 1, NORMAL);
    IN(hyper_grad_args, t, s->N * weights(s), NORMAL);
    IN(hyper_grad_args, rstd, s->N * n, WEIGHT);
    IN(hyper_grad_args, w, s->N * weights(s), NORMAL);
    IN(hyper_grad_args, dw, s->N * weights(s), NORMAL);
    IN(hyper_grad_args, dx_in, s->N * s->d, NORMAL);
    INOUT(hyper_grad_args, dX, s->N * n * s->d);
    OUT(hyper_grad_args, dz, s->N * weights(s));
    INOUT(hyper_grad_args, dalpha, n * (n + 1));
    INOUT(hyper_grad_args, dbeta, n);
    INOUT(hyper_grad_args, da, 1);
    INOUT(hyper_grad_args, de, 1);
    OUT(hyper_grad_args, dWf, (n + 2) * s->d);
    k->flops = 4 * (double)(s->N * n * (n + 2) * s->d);
}

void make_mhc_fwd(struct bench_case *k, const struct bench_sizes *s)
{
    size_t n = s->n, width = n * s->d;
    k->args.mhc_fwd =
        (struct mhc_args){ .N = s->N, .d = s->d, .n = n, .iterations = s->iterations, .eps = 1e-5f };
    IN(mhc_args, X, s->N * width, NORMAL);
    IN(mhc_args, Wf, weights(s) * width, NORMAL);
    for (size_t part = 0; part < 3; part++) {
        bench_add(k, AT(mhc_args, bias) + part * sizeof(float *), rows_of(s, part), BENCH_NORMAL, BENCH_IN);
        bench_add(k, AT(mhc_args, scale) + part * sizeof(float *), 1, BENCH_GATE, BENCH_IN);
    }
    OUT(mhc_args, t, s->N * weights(s));
    OUT(mhc_args, rstd, s->N);
    OUT(mhc_args, w, s->N * weights(s));
    OUT(mhc_args, x_in, s->N * s->d);
    k->flops = 2 * (double)(s->N * weights(s) * width);
}
void make_mhc_bwd(struct bench_case *k, const struct bench_sizes *s)
{
    size_t n = s->n, width = n * s->d;
    k->args.mhc_bwd = (struct mhc_grad_args){ .N = s->N, .d = s->d, .n = n, .iterations = s->iterations };
    IN(mhc_grad_args, X, s->N * width, NORMAL);
    IN(mhc_grad_args, Wf, weights(s) * width, NORMAL);
    for (size_t part = 0; part < 3; part++) {
        size_t pointer = part * sizeof(float *), rows = rows_of(s, part);
        bench_add(k, AT(mhc_grad_args, bias) + pointer, rows, BENCH_NORMAL, BENCH_IN);
        bench_add(k, AT(mhc_grad_args, scale) + pointer, 1, BENCH_WEIGHT, BENCH_IN);
        bench_add(k, AT(mhc_grad_args, dbias) + pointer, rows, BENCH_NORMAL, BENCH_INOUT);
        bench_add(k, AT(mhc_grad_args, dscale) + pointer, 1, BENCH_NORMAL, BENCH_INOUT);
    }
    IN(mhc_grad_args, t, s->N * weights(s), COS);
    IN(mhc_grad_args, rstd, s->N, WEIGHT);
    IN(mhc_grad_args, w, s->N * weights(s), NORMAL);
    IN(mhc_grad_args, dw, s->N * weights(s), NORMAL);
    IN(mhc_grad_args, dx_in, s->N * s->d, NORMAL);
    INOUT(mhc_grad_args, dX, s->N * width);
    OUT(mhc_grad_args, dz, s->N * weights(s));
    OUT(mhc_grad_args, dWf, weights(s) * width);
    k->flops = 4 * (double)(s->N * weights(s) * width);
}
