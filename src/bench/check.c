/* What is timed must be right: small models of the same kind, against the backend "ref" and against the whole
 * pass.
 */
#include "bench/bench.h"

#include "base/mem.h"
#include "base/rng.h"
#include "model/decode.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { B = 2, T = 20, LAYERS = 2 };

/* Relative limits by enum ddl_precision. In bfloat16 the two backends' roundings fall to different sides;
 * eight bits hold weights only, which both backends round alike, and are not for training. */
static const double gradient_limit[] = { 1e-4, 2e-2, 0 }, loss_limit[] = { 1e-5, 1e-3, 0 };
static const double piece_limit[] = { 1e-5, 2e-2, 1e-5 }, logit_limit[] = { 1e-5, 2e-2, 1e-5 };

double bench_difference(size_t n, const float *found, const float *expected)
{
    double off = 0, all = 0;
    for (size_t i = 0; i < n; i++) {
        double x = (double)found[i], y = (double)expected[i];
        off += (x - y) * (x - y);
        all += y * y;
    }
    if (!isfinite(off) || !isfinite(all))
        return INFINITY;
    return off == 0 ? 0 : all == 0 ? INFINITY : sqrt(off / all);
}

void bench_tokens(int32_t *tokens, size_t n, size_t V)
{
    for (size_t i = 0; i < n; i++)
        tokens[i] = (int32_t)ddl_rng_below(ddl_rng_key(0, "bench"), i, V);
}

static size_t at_most(size_t x, size_t most)
{
    return x < most ? x : most;
}

/* The same rules at sizes that "ref" is done with in a moment. */
static struct ddl_config shrunk(const struct ddl_config *config)
{
    struct ddl_config k = *config;
    k.n_layers = at_most(k.n_layers, LAYERS);
    k.n_heads = at_most(k.n_heads, 2);
    k.head_dim = at_most(k.head_dim, 64);
    k.d_model = at_most(k.d_model, 128);
    k.vocab_size = at_most(k.vocab_size, 509);
    k.block_size = T;
    k.k_rank = at_most(k.k_rank, 32);
    k.beta_hidden = at_most(k.beta_hidden, 64);
    return k;
}

struct small {
    ddl_model *model;
    ddl_workspace *ws;
    int32_t tokens[2 * B * T]; /* and targets */
};

static ddl_status make(struct small *s, const struct ddl_bench_config *config, ddl_backend *backend,
                       bool train, struct ddl_error *err)
{
    struct ddl_config k = shrunk(&config->model);
    const struct ddl_workspace_options room = {
        .batch = B, .tokens = T, .train = train, .recompute = config->recompute
    };
    *s = (struct small){ 0 };
    bench_tokens(s->tokens, 2 * B * T, k.vocab_size);
    ddl_status status = train
                            ? ddl_model_create(&s->model, &k, backend, err)
                            : ddl_model_create_for_inference(&s->model, &k, config->precision, backend, err);
    if (!status)
        status = ddl_model_init(s->model, 1, err);
    if (!status && train)
        status = ddl_model_enable_grad(s->model, err);
    if (!status && train)
        status = ddl_model_set_precision(s->model, config->precision, err);
    if (!status)
        status = ddl_workspace_create(&s->ws, s->model, &room, err);
    return status;
}

static void unmake(struct small *s)
{
    ddl_workspace_free(s->ws);
    ddl_model_free(s->model);
}

static ddl_status red(struct ddl_error *err, const char *what, const ddl_backend *backend, double off,
                      double limit)
{
    return ddl_error_set(
        err, DDL_E_NUMERIC,
        "bench: %s on %s is off by %.3g of its size, %.3g is allowed: a wrong result is not timed "
        "(run ddl verify)",
        what, ddl_backend_description(backend), off, limit);
}

/* The loss of s and the gradient of parameter i of each, which must be near. */
static ddl_status compare_gradients(const struct small *found, const struct small *ref,
                                    const struct ddl_bench_config *config, struct ddl_error *err)
{
    ddl_status status = DDL_OK;
    for (size_t i = 0; !status && i < ddl_model_n_params(ref->model); i++) {
        const struct ddl_param *param = ddl_model_param(ref->model, i);
        float *x = ddl_mem_alloc(param->count * sizeof *x), *y = ddl_mem_alloc(param->count * sizeof *y);
        if (x && y) {
            ddl_model_read_grad(found->model, i, x);
            ddl_model_read_grad(ref->model, i, y);
            double off = bench_difference(param->count, x, y), limit = gradient_limit[config->precision];
            if (!(off <= limit)) {
                char what[192];
                snprintf(what, sizeof what, "the gradient of %s in a small model", param->name);
                status = red(err, what, ddl_model_backend(found->model), off, limit);
            }
        } else {
            status = ddl_error_set(err, DDL_E_MEMORY, "bench: out of memory");
        }
        ddl_mem_free(x);
        ddl_mem_free(y);
    }
    return status;
}

static ddl_status backward(struct small *s, double *loss, struct ddl_error *err)
{
    struct ddl_batch batch = { B, T, s->tokens, s->tokens + B * T };
    struct ddl_loss sum;
    ddl_status status = ddl_model_backward(s->model, s->ws, &batch, 1.0 / (B * T), &sum, err);
    *loss = status ? 0 : sum.sum / (B * T);
    return status;
}

ddl_status bench_check_gradients(const struct ddl_bench_config *config, ddl_backend *backend, char *text,
                                 size_t size, struct ddl_error *err)
{
    struct small found = { 0 }, ref = { 0 };
    ddl_backend *plain;
    double loss = 0, expected = 0, off;
    ddl_status status = ddl_backend_create(&plain, "ref", 1, err);
    if (status)
        return status;
    status = make(&found, config, backend, true, err);
    if (!status)
        status = make(&ref, config, plain, true, err);
    if (!status)
        status = backward(&found, &loss, err);
    if (!status)
        status = backward(&ref, &expected, err);
    off = fabs(loss - expected) / expected;
    if (!status && !(off <= loss_limit[config->precision]))
        status = red(err, "the loss of a small model", backend, off, loss_limit[config->precision]);
    if (!status)
        status = compare_gradients(&found, &ref, config, err);
    unmake(&found);
    unmake(&ref);
    ddl_backend_free(plain);
    snprintf(text, size, "loss and every gradient of a small model agree with ref");
    return status;
}

/* Logits of B sequences of T tokens, in one pass; or a few tokens first and the others one by one. */
static ddl_status whole(struct small *s, float *logits, struct ddl_error *err)
{
    struct ddl_batch batch = { B, T, s->tokens, NULL };
    return ddl_model_logits(s->model, s->ws, &batch, T, logits, err);
}

/* The first tokens of both sequences by one prefill, the others by steps. */
static ddl_status in_pieces(struct small *s, enum ddl_cache_form form, float *logits, struct ddl_error *err)
{
    enum { FIRST = 7 };
    static const size_t slots[B] = { 0, 1 };
    const struct ddl_session_options options = { .slots = B, .tokens = T, .rows = B * FIRST, .form = form };
    size_t V = ddl_model_config(s->model)->vocab_size;
    ddl_session *session;
    struct ddl_session_input inputs[B];
    float *rows = ddl_mem_alloc(B * V * sizeof *rows);
    ddl_status status = rows ? ddl_session_create(&session, s->model, &options, err)
                             : ddl_error_set(err, DDL_E_MEMORY, "bench: out of memory");
    if (status) {
        ddl_mem_free(rows);
        return status;
    }
    for (size_t b = 0; b < B; b++)
        inputs[b] = (struct ddl_session_input){ .slot = b,
                                                .n = FIRST,
                                                .tokens = s->tokens + b * T,
                                                .n_logits = FIRST,
                                                .logits = logits + b * T * V };
    status = ddl_session_prefill(session, inputs, B, err);
    for (size_t t = FIRST; !status && t < T; t++) {
        int32_t column[B];
        for (size_t b = 0; b < B; b++)
            column[b] = s->tokens[b * T + t];
        status = ddl_session_step(session, B, slots, column, rows, err);
        for (size_t b = 0; !status && b < B; b++)
            memcpy(logits + (b * T + t) * V, rows + b * V, V * sizeof *rows);
    }
    ddl_session_free(session);
    ddl_mem_free(rows);
    return status;
}

/* logits: three times B T V numbers of room. */
static ddl_status compare_logits(struct small *found, struct small *ref, float *logits, size_t n,
                                 const struct ddl_bench_config *config, struct ddl_error *err)
{
    float *once = logits, *pieces = logits + n, *expected = logits + 2 * n;
    const ddl_backend *backend = ddl_model_backend(found->model);
    ddl_status status = whole(found, once, err);
    if (!status)
        status = in_pieces(found, config->cache, pieces, err);
    if (!status)
        status = whole(ref, expected, err);
    if (status)
        return status;
    bool halves = ddl_cache_is_bf16(ddl_model_precision(found->model),
                                    config->cache); /* which the whole pass does not round to */
    double limit = piece_limit[halves ? DDL_PRECISION_BF16 : config->precision];
    double apart = bench_difference(n, pieces, once), off = bench_difference(n, once, expected);
    if (!(apart <= limit))
        return red(err, "a small model decoded token by token, beside its whole pass,", backend, apart,
                   limit);
    if (!(off <= logit_limit[config->precision]))
        return red(err, "the logits of a small model", backend, off, logit_limit[config->precision]);
    return DDL_OK;
}

ddl_status bench_check_decoding(const struct ddl_bench_config *config, ddl_backend *backend, char *text,
                                size_t size, struct ddl_error *err)
{
    struct small found = { 0 }, ref = { 0 };
    ddl_backend *plain;
    ddl_status status = ddl_backend_create(&plain, "ref", 1, err);
    if (status)
        return status;
    status = make(&found, config, backend, false, err);
    if (!status)
        status = make(&ref, config, plain, false, err);
    if (!status) {
        size_t n = B * T * ddl_model_config(found.model)->vocab_size;
        float *logits = ddl_mem_alloc(3 * n * sizeof *logits);
        status = logits ? compare_logits(&found, &ref, logits, n, config, err)
                        : ddl_error_set(err, DDL_E_MEMORY, "bench: out of memory");
        ddl_mem_free(logits);
    }
    unmake(&found);
    unmake(&ref);
    ddl_backend_free(plain);
    snprintf(text, size, "a small model token by token agrees with its whole pass, and with ref");
    return status;
}
