/* After block i, if i mod dense_period = 0, the stream becomes sum_j w_ij X_j over the states after the
 * blocks j <= i with (i - j) mod dense_dilation = 0 (docs/equations.md, 9).
 *
 * Forward leaves X_i in place i and continues in place i + 1. Backward reaches block i after all sums that
 * contain X_i. It keeps G_i, the gradient of sum i, in place i + 1, which nothing reads any more: the stream
 * continues in place i. The gradient of X_j is then one sum over the G_i kept so far, and no gradients of
 * other states are accumulated meanwhile. */
#include "model/pass/average.h"

#include "model/config/config.h"
#include "model/observe/force.h"
#include "model/params/gradients.h"
#include "model/params/precision.h"
#include "model/observe/probe_calls.h"
#include "model/pass/workspace.h"

struct averages average_layout(const struct layout *l)
{
    const struct ddl_config *k = l->config;
    size_t sums = k->n_layers + 1;
    return (struct averages){
        .states = layout_rows(l, k->dense_average, (sums + 1) * k->d_model * ddl_config_state_channels(k)),
        .weights = layout_floats(l, k->dense_average && l->train, sums, sums),
    };
}

double average_flops(const struct ddl_config *k)
{
    double terms = 0;
    for (size_t layer = 0; layer < k->n_layers; layer++)
        terms += ddl_config_average_follows(k, layer) ? (double)ddl_config_average_terms(k, layer) : 0;
    return 2 * terms * (double)k->d_model * (double)ddl_config_state_channels(k);
}

/* Numbers of a state. */
static size_t state_size(const struct pass *p, const struct stream *stream)
{
    return p->N * p->config->d_model * stream->channels;
}

static float *slot_of(const struct pass *p, const struct stream *stream, size_t i)
{
    return p->ws->averages.states + i * state_size(p, stream);
}

/* Leaves X_i in place i, and the stream in place i + 1 with the same values. */
static void keep(const struct pass *p, struct stream *stream, size_t i)
{
    float *next = slot_of(p, stream, i + 1);
    pass_copy(p, state_size(p, stream), stream->X, next);
    stream->X = next;
}

void average_begin(const struct pass *p, struct stream *stream)
{
    keep(p, stream, 0);
}

/* Whether the sum that follows the layer is left out by a forced update. */
static bool left_out(const struct pass *p, size_t layer)
{
    const struct ddl_force *force = model_forced(p->m, layer, MLP);
    return force && (force->keys & DDL_FORCE_AVERAGE);
}

void average_fwd(const struct pass *p, struct stream *stream, size_t layer)
{
    const struct ddl_config *k = p->config;
    size_t i = layer + 1, n = state_size(p, stream);
    if (!ddl_config_average_follows(k, layer) || left_out(p, layer)) {
        keep(p, stream, i);
        return;
    }
    float *next = slot_of(p, stream, i + 1);
    probe_enter(p, false, layer, "average");
    p->ops->weighted_sum(p->ctx,
                         &(struct weighted_sum_args){ .count = n,
                                                      .n = ddl_config_average_terms(k, layer),
                                                      .X = slot_of(p, stream, i % k->dense_dilation),
                                                      .X_stride = k->dense_dilation * n,
                                                      .w = param_value(p, p->m->params.layer[layer].average),
                                                      .w_stride = 1,
                                                      .out = next });
    stream->X = next;
    probe_tensor(p, "X", next, k->d_model * stream->channels);
}

/* The least common multiple of dense_period and dense_dilation: the distance between sums that
 * contain the same state. */
static size_t sum_distance(const struct ddl_config *k)
{
    size_t distance = k->dense_period;
    while (distance % k->dense_dilation)
        distance += k->dense_period;
    return distance;
}

/* The first sum i >= j that contains X_j; 0 if there is none. */
static size_t first_sum(const struct ddl_config *k, size_t j)
{
    for (size_t i = j ? j : 1; i <= k->n_layers; i++) {
        if (i % k->dense_period == 0 && (i - j) % k->dense_dilation == 0)
            return i;
    }
    return 0;
}

/* The gradient of X_j: sum over i of w_ij G_i; added to what the gradient holds unless sum j took it over. */
static void gather_gradient(const struct pass *p, struct stream *stream, size_t j, bool accumulate)
{
    const struct ddl_config *k = p->config;
    size_t first = first_sum(k, j), distance = sum_distance(k), n = state_size(p, stream);
    size_t width = k->n_layers + 1;
    if (!first)
        return;
    p->ops->weighted_sum(p->ctx, &(struct weighted_sum_args){ .count = n,
                                                              .n = (k->n_layers - first) / distance + 1,
                                                              .X = slot_of(p, stream, first + 1),
                                                              .X_stride = distance * n,
                                                              .w = p->ws->averages.weights + first * width +
                                                                   j / k->dense_dilation,
                                                              .w_stride = distance * width,
                                                              .accumulate = accumulate,
                                                              .out = stream->dX,
                                                              .out16 = p->ws->dX16 });
    stream->dX16 = p->ws->dX16;
    probe_tensor(p, "dX", stream->dX, k->d_model * stream->channels);
}

/* The gradient of the weights of sum i; keeps the gradient of its result, and its weights. */
static void sum_bwd(const struct pass *p, const struct stream *stream, size_t layer)
{
    const struct ddl_config *k = p->config;
    size_t i = layer + 1, n = state_size(p, stream), terms = ddl_config_average_terms(k, layer);
    int param = p->m->params.layer[layer].average;
    p->ops->weighted_sum_bwd(p->ctx,
                             &(struct weighted_sum_grad_args){ .count = n,
                                                               .n = terms,
                                                               .X = slot_of(p, stream, i % k->dense_dilation),
                                                               .X_stride = k->dense_dilation * n,
                                                               .G = stream->dX,
                                                               .dw = param_grad(p, param) });
    probe_grad(p, param);
    pass_copy(p, n, stream->dX, slot_of(p, stream, i + 1));
    pass_copy(p, terms, param_value(p, param), p->ws->averages.weights + i * (k->n_layers + 1));
}

void average_bwd(const struct pass *p, struct stream *stream, size_t layer)
{
    const struct ddl_config *k = p->config;
    bool follows = ddl_config_average_follows(k, layer);
    probe_enter(p, true, layer, "average");
    if (follows)
        sum_bwd(p, stream, layer);
    gather_gradient(p, stream, layer + 1, !follows);
    stream->X = slot_of(p, stream, layer + 1);
}

void average_end(const struct pass *p, struct stream *stream)
{
    probe_enter(p, true, DDL_NO_LAYER, "embed");
    gather_gradient(p, stream, 0, true);
    stream->X = slot_of(p, stream, 0);
}
