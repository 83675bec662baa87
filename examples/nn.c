#include "nn.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *check_memory(void *p)
{
    if (!p) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    return p;
}

void nn_check(ddl_status status, const struct ddl_error *err)
{
    if (status) {
        fprintf(stderr, "%s\n", err->text);
        exit(1);
    }
}

float *nn_floats(size_t n)
{
    return check_memory(calloc(n ? n : 1, sizeof(float)));
}

/* SplitMix64. */
static uint64_t next_bits(struct nn_rng *rng)
{
    uint64_t z = rng->state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

double nn_uniform(struct nn_rng *rng)
{
    return (double)(next_bits(rng) >> 11) * 0x1p-53;
}

/* Box-Muller. */
double nn_normal(struct nn_rng *rng)
{
    double radius = sqrt(-2 * log(1 - nn_uniform(rng)));
    return radius * cos(6.283185307179586 * nn_uniform(rng));
}

/* ---- parameters ---- */

struct nn_array *nn_param(struct nn_params *params, size_t n, double deviation)
{
    if (params->n == NN_MAX_ARRAYS)
        check_memory(NULL);
    struct nn_array *a = &params->array[params->n++];
    *a = (struct nn_array){ nn_floats(n), nn_floats(n), nn_floats(n), nn_floats(n), n };
    for (size_t i = 0; i < n && deviation > 0; i++)
        a->value[i] = (float)(deviation * nn_normal(&params->rng));
    return a;
}

size_t nn_count(const struct nn_params *params)
{
    size_t sum = 0;
    for (size_t i = 0; i < params->n; i++)
        sum += params->array[i].n;
    return sum;
}

void nn_adam(struct nn_params *params, double lr)
{
    const float beta1 = 0.9f, beta2 = 0.99f;
    double t = (double)++params->steps;
    float rate = (float)(lr * sqrt(1 - pow((double)beta2, t)) / (1 - pow((double)beta1, t)));
    for (size_t i = 0; i < params->n; i++) {
        struct nn_array *a = &params->array[i];
        for (size_t j = 0; j < a->n; j++) {
            float g = a->grad[j];
            a->m[j] += (1 - beta1) * (g - a->m[j]);
            a->v[j] += (1 - beta2) * (g * g - a->v[j]);
            a->value[j] -= rate * a->m[j] / (sqrtf(a->v[j]) + 1e-8f);
        }
        memset(a->grad, 0, a->n * sizeof *a->grad);
    }
}

void nn_free(struct nn_params *params)
{
    for (size_t i = 0; i < params->n; i++) {
        free(params->array[i].value);
        free(params->array[i].grad);
        free(params->array[i].m);
        free(params->array[i].v);
    }
    params->n = 0;
}

/* ---- layers ---- */

struct nn_linear nn_linear(struct nn_params *params, size_t in, size_t out)
{
    return (struct nn_linear){ in, out, nn_param(params, in * out, 1 / sqrt((double)in)),
                               nn_param(params, out, 0) };
}

void nn_linear_forward(const struct nn_linear *layer, size_t N, const float *x, float *y)
{
    size_t in = layer->in, out = layer->out;
    for (size_t r = 0; r < N; r++) {
        for (size_t o = 0; o < out; o++) {
            const float *w = layer->W->value + o * in;
            float sum = layer->b->value[o];
            for (size_t i = 0; i < in; i++)
                sum += w[i] * x[r * in + i];
            y[r * out + o] = sum;
        }
    }
}

void nn_linear_backward(const struct nn_linear *layer, size_t N, const float *x, const float *dy, float *dx)
{
    size_t in = layer->in, out = layer->out;
    for (size_t r = 0; r < N; r++) {
        for (size_t o = 0; o < out; o++) {
            const float *w = layer->W->value + o * in, g = dy[r * out + o];
            float *dw = layer->W->grad + o * in;
            layer->b->grad[o] += g;
            for (size_t i = 0; i < in; i++)
                dw[i] += g * x[r * in + i];
            for (size_t i = 0; i < in && dx; i++)
                dx[r * in + i] += g * w[i];
        }
    }
}

void nn_relu(size_t n, float *x)
{
    for (size_t i = 0; i < n; i++)
        x[i] = x[i] > 0 ? x[i] : 0;
}

void nn_relu_backward(size_t n, const float *y, float *dy)
{
    for (size_t i = 0; i < n; i++)
        dy[i] = y[i] > 0 ? dy[i] : 0;
}

static float rms(size_t d, const float *x)
{
    float sum = 1e-5f;
    for (size_t i = 0; i < d; i++)
        sum += x[i] * x[i] / (float)d;
    return sqrtf(sum);
}

void nn_norm(size_t N, size_t d, const float *x, float *y)
{
    for (size_t r = 0; r < N; r++) {
        float s = 1 / rms(d, x + r * d);
        for (size_t i = 0; i < d; i++)
            y[r * d + i] = s * x[r * d + i];
    }
}

void nn_norm_backward(size_t N, size_t d, const float *x, const float *dy, float *dx)
{
    for (size_t r = 0; r < N; r++, x += d, dy += d, dx += d) {
        float s = 1 / rms(d, x), dot = 0;
        for (size_t i = 0; i < d; i++)
            dot += dy[i] * x[i];
        for (size_t i = 0; i < d; i++)
            dx[i] += s * dy[i] - s * s * s * dot / (float)d * x[i];
    }
}

double nn_cross_entropy(size_t N, size_t n, const float *logits, const int *labels, float *dlogits,
                        size_t *right)
{
    double loss = 0;
    for (size_t r = 0; r < N; r++) {
        const float *x = logits + r * n;
        size_t best = 0, label = (size_t)labels[r];
        double sum = 0;
        for (size_t i = 1; i < n; i++)
            best = x[i] > x[best] ? i : best;
        for (size_t i = 0; i < n; i++)
            sum += exp((double)x[i] - (double)x[best]);
        loss += (log(sum) - ((double)x[label] - (double)x[best])) / (double)N;
        for (size_t i = 0; i < n && dlogits; i++)
            dlogits[r * n + i] =
                (float)((exp((double)x[i] - (double)x[best]) / sum - (i == label)) / (double)N);
        if (right)
            *right += best == label;
    }
    return loss;
}

/* ---- the residual step ---- */

struct nn_residual nn_residual(struct nn_params *params, bool delta, size_t d, size_t c, size_t max_rows,
                               ddl_backend *backend)
{
    enum { HIDDEN = 16, GATE = 8 };
    const struct ddl_block_config config = { .d = d,
                                             .c = c,
                                             .direction = DDL_DIRECTION_MLP,
                                             .pool = DDL_POOL_MEAN,
                                             .hidden = HIDDEN,
                                             .gate_hidden = GATE,
                                             .eps = 1e-5f };
    struct nn_residual r = { .delta = delta, .d = d, .c = c };
    struct ddl_error err;
    if (!delta)
        return r;
    double in = 1 / sqrt((double)d), hidden = 1 / sqrt((double)HIDDEN);
    /* Gates start at 1: gate_out and gate_bias are 0. */
    const struct {
        size_t n;
        double deviation;
        size_t field; /* of struct ddl_block_params */
    } rows[] = { { GATE * d, in, offsetof(struct ddl_block_params, gate_in) },
                 { GATE, 0, offsetof(struct ddl_block_params, gate_out) },
                 { 1, 0, offsetof(struct ddl_block_params, gate_bias) },
                 { HIDDEN * d, in, offsetof(struct ddl_block_params, w1) },
                 { HIDDEN, 0, offsetof(struct ddl_block_params, b1) },
                 { d * HIDDEN, hidden, offsetof(struct ddl_block_params, w2) },
                 { d, 0.1, offsetof(struct ddl_block_params, b2) } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct nn_array *a = nn_param(params, rows[i].n, rows[i].deviation);
        memcpy((char *)&r.params + rows[i].field, &a->value, sizeof a->value);
        memcpy((char *)&r.grads + rows[i].field, &a->grad, sizeof a->grad);
    }
    nn_check(ddl_block_create(&r.block, &config, max_rows, backend, &err), &err);
    return r;
}

size_t nn_residual_inputs(const struct nn_residual *r)
{
    return r->delta ? r->c : r->d * r->c;
}

void nn_residual_forward(struct nn_residual *r, size_t N, const float *X, const float *u, float *X_out)
{
    struct ddl_error err;
    if (r->delta) {
        const struct ddl_block_args args = { .N = N, .X = X, .v = u, .X_out = X_out };
        nn_check(ddl_block_forward(r->block, &r->params, &args, &err), &err);
        return;
    }
    for (size_t i = 0; i < N * r->d * r->c; i++)
        X_out[i] = X[i] + u[i];
}

void nn_residual_backward(struct nn_residual *r, size_t N, const float *X, const float *u, float *G,
                          float *du)
{
    struct ddl_error err;
    if (r->delta) {
        const struct ddl_block_grad_args args = { .N = N, .X = X, .v = u, .G = G, .dX = G, .dv = du };
        nn_check(ddl_block_backward(r->block, &r->params, &args, &r->grads, &err), &err);
    } else {
        memcpy(du, G, N * r->d * r->c * sizeof *du);
    }
}

void nn_mean(const double *values, size_t n, double *mean, double *deviation)
{
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n; i++)
        sum += values[i];
    *mean = sum / (double)n;
    for (size_t i = 0; i < n; i++)
        squares += (values[i] - *mean) * (values[i] - *mean);
    *deviation = n > 1 ? sqrt(squares / (double)(n - 1)) : 0;
}
