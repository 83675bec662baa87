/* Correctness checks before timing: small models with the rules of the one that is timed, compared with the
 * backend "ref". In float32 and with eight-bit weights (which both backends round alike) results differ by
 * float32's rounding errors. In bfloat16 they differ by flipped roundings too: every bfloat16 op is compared
 * with its exact result (ops/audit.h), and the model with the error of ref itself (base/noise.h). */
#include "bench/bench.h"

#include "base/mem.h"
#include "base/noise.h"
#include "base/rng.h"
#include "model/pass/decode.h"
#include "model/pass/measure.h"
#include "ops/audit.h"
#include "train/step/optim.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { B = 2, T = 20, LAYERS = 2 };

/* Relative limits without bfloat16: those of `ddl verify` for gradients, decoding and losses after steps of
 * the optimizer (src/verify/internal.h), and of a loss whose terms are each off by the logits' limit. */
static const double gradient_limit = 1e-4, loss_limit = 1e-5, logit_limit = 1e-5, step_limit = 5e-5;

static const char its_size[] = "its size", refs_error[] = "the error of ref in bfloat16";

/* rms(found - expected) / rms(expected); infinity where something is not finite. */
static double difference(size_t n, const float *found, const float *expected)
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

/* The same rules at sizes at which "ref" takes milliseconds. */
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

static ddl_status make(struct small *s, const struct ddl_bench_config *config, enum ddl_precision precision,
                       ddl_backend *backend, bool train, struct ddl_error *err)
{
    struct ddl_config k = shrunk(&config->model);
    const struct ddl_workspace_options options = {
        .batch = B, .tokens = T, .train = train, .recompute = config->recompute
    };
    *s = (struct small){ 0 };
    bench_tokens(s->tokens, 2 * B * T, k.vocab_size);
    ddl_status status = train ? ddl_model_create(&s->model, &k, backend, err)
                              : ddl_model_create_for_inference(&s->model, &k, precision, backend, err);
    if (!status)
        status = ddl_model_init(s->model, 1, err);
    if (!status && train)
        status = ddl_model_enable_grad(s->model, err);
    if (!status && train)
        status = ddl_model_set_precision(s->model, precision, err);
    if (!status)
        status = ddl_workspace_create(&s->ws, s->model, &options, err);
    return status;
}

static void unmake(struct small *s)
{
    ddl_workspace_free(s->ws);
    ddl_model_free(s->model);
}

/* A failed check. `share` says what the error is relative to. */
static ddl_status wrong(struct ddl_error *err, const char *what, const ddl_backend *backend, double error,
                        const char *share, double limit)
{
    return ddl_error_set(
        err, DDL_E_NUMERIC,
        "bench: %s on %s: error %.3g of %s: expected at most %.3g: a wrong result is not timed "
        "(run ddl verify)",
        what, ddl_backend_description(backend), error, share, limit);
}

/* The largest error of an op in bfloat16; `audit` wraps backend. */
static ddl_status audit_result(const struct ddl_audit *audit, const ddl_backend *backend,
                               struct ddl_error *err)
{
    if (audit->out_of_memory)
        return ddl_error_set(err, DDL_E_MEMORY, "bench: out of memory for the operands of an op");
    return audit->worst <= 1 ? DDL_OK
                             : wrong(err, audit->op, backend, audit->worst, "the bound of its operands", 1);
}

/* ---- training ---- */

/* A small model and what it computed: losses by row before and after a step of the optimizer, and all
 * gradients before it. */
struct training {
    struct small s;
    double loss, next_loss; /* means, before and after the step */
    float row_loss[2 * B * T];
    float *gradients; /* parameter after parameter */
};

static void training_free(struct training *t)
{
    unmake(&t->s);
    ddl_mem_free(t->gradients);
}

static ddl_status read_gradients(struct training *t, struct ddl_error *err)
{
    const ddl_model *model = t->s.model;
    float *at = t->gradients = ddl_mem_alloc(ddl_model_size(model) * sizeof *at);
    if (!at)
        return ddl_error_set(err, DDL_E_MEMORY, "bench: out of memory for %zu gradients",
                             ddl_model_size(model));
    for (size_t i = 0; i < ddl_model_n_params(model); i++) {
        ddl_model_read_grad(model, i, at);
        at += ddl_model_param(model, i)->count;
    }
    return DDL_OK;
}

/* The step shows whether a pass reads what the optimizer wrote. */
static ddl_status step_and_loss(struct training *t, const struct ddl_batch *batch, struct ddl_error *err)
{
    const struct ddl_optim_config config = ddl_optim_defaults();
    struct ddl_optim *optim;
    struct ddl_loss sum;
    ddl_status status = ddl_optim_create(&optim, t->s.model, &config, err);
    if (status)
        return status;
    ddl_optim_step(optim, 1e-3);
    status = ddl_model_loss(t->s.model, t->s.ws, batch, &sum, t->row_loss + B * T, err);
    t->next_loss = sum.sum / (B * T);
    ddl_optim_free(optim);
    return status;
}

/* Free *t in any case. */
static ddl_status training_run(struct training *t, const struct ddl_bench_config *config,
                               enum ddl_precision precision, ddl_backend *backend, struct ddl_error *err)
{
    struct ddl_loss sum;
    *t = (struct training){ 0 };
    ddl_status status = make(&t->s, config, precision, backend, true, err);
    struct ddl_batch batch = { B, T, t->s.tokens, t->s.tokens + B * T };
    if (!status)
        status = ddl_model_loss(t->s.model, t->s.ws, &batch, &sum, t->row_loss, err);
    if (!status)
        status = ddl_model_backward(t->s.model, t->s.ws, &batch, 1.0 / (B * T), &sum, err);
    if (status)
        return status;
    t->loss = sum.sum / (B * T);
    status = read_gradients(t, err);
    return status ? status : step_and_loss(t, &batch, err);
}

static double root_mean_square(size_t n, const float *x)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return n ? sqrt(sum / (double)n) : 0;
}

/* Gradients are divided as in ddl/verify.h: a sum that cancels is not held to its own size alone. */
static ddl_status compare_float32(const struct training *found, const struct training *ref,
                                  const ddl_backend *backend, struct ddl_error *err)
{
    double off = fabs(found->loss - ref->loss) / ref->loss;
    size_t n = ddl_model_n_params(ref->s.model), at = 0;
    double largest = 0;
    if (!(off <= loss_limit))
        return wrong(err, "the loss of a small model", backend, off, its_size, loss_limit);
    for (size_t i = 0; i < n; at += ddl_model_param(ref->s.model, i++)->count)
        largest =
            fmax(largest, root_mean_square(ddl_model_param(ref->s.model, i)->count, ref->gradients + at));
    at = 0;
    for (size_t i = 0; i < n; i++) {
        const struct ddl_param *param = ddl_model_param(ref->s.model, i);
        double size = root_mean_square(param->count, ref->gradients + at);
        off = difference(param->count, found->gradients + at, ref->gradients + at);
        off *= size < 0.01 * largest ? size / (0.01 * largest) : 1;
        if (!(off <= gradient_limit)) {
            char what[192];
            snprintf(what, sizeof what, "the gradient of %s in a small model", param->name);
            return wrong(err, what, backend, off, its_size, gradient_limit);
        }
        at += param->count;
    }
    off = fabs(found->next_loss - ref->next_loss) / ref->next_loss;
    return off <= step_limit ? DDL_OK
                             : wrong(err, "the loss of a small model after a step of the optimizer", backend,
                                     off, its_size, step_limit);
}

/* Gradients in bfloat16; `list` is scratch for one row a parameter. */
static ddl_status compare_gradients(const struct training *found, const struct training *ref,
                                    const struct training *exact, const ddl_backend *backend,
                                    struct ddl_noise_tensor *list, struct ddl_error *err)
{
    size_t n = ddl_model_n_params(ref->s.model), at = 0;
    for (size_t i = 0; i < n; i++) {
        size_t count = ddl_model_param(ref->s.model, i)->count;
        list[i] = (struct ddl_noise_tensor){ count, found->gradients + at, ref->gradients + at,
                                             exact->gradients + at };
        at += count;
    }
    struct ddl_noise noise = ddl_noise_measure(n, list);
    if (!(noise.all <= DDL_NOISE_LIMIT_ALL))
        return wrong(err, "the gradients of a small model", backend, noise.all, refs_error,
                     DDL_NOISE_LIMIT_ALL);
    if (!(noise.one <= DDL_NOISE_LIMIT_ONE)) {
        char what[192];
        snprintf(what, sizeof what, "the gradient of %s in a small model",
                 ddl_model_param(ref->s.model, noise.worst)->name);
        return wrong(err, what, backend, noise.one, refs_error, DDL_NOISE_LIMIT_ONE);
    }
    return DDL_OK;
}

/* One tensor in bfloat16. */
static ddl_status compare_one(size_t n, const float *found, const float *ref, const float *exact,
                              const char *what, const ddl_backend *backend, struct ddl_error *err)
{
    struct ddl_noise noise = ddl_noise_measure(1, &(struct ddl_noise_tensor){ n, found, ref, exact });
    if (noise.one <= DDL_NOISE_LIMIT_ONE)
        return DDL_OK;
    return wrong(err, what, backend, noise.one, refs_error, DDL_NOISE_LIMIT_ONE);
}

static ddl_status compare_bf16(const struct training *found, const struct training *ref,
                               const struct training *exact, const ddl_backend *backend,
                               struct ddl_error *err)
{
    static const char *const what[] = { "the losses of a small model",
                                        "the losses of a small model after a step of the optimizer" };
    struct ddl_noise_tensor *list = ddl_mem_alloc(ddl_model_n_params(ref->s.model) * sizeof *list);
    ddl_status status = list ? compare_gradients(found, ref, exact, backend, list, err)
                             : ddl_error_set(err, DDL_E_MEMORY, "bench: out of memory");
    for (size_t i = 0; i < 2 && !status; i++)
        status = compare_one(B * T, found->row_loss + i * B * T, ref->row_loss + i * B * T,
                             exact->row_loss + i * B * T, what[i], backend, err);
    ddl_mem_free(list);
    return status;
}

/* An op outside its bounds is reported before the errors that it causes in the model. */
static ddl_status check_bf16(const struct ddl_bench_config *config, ddl_backend *backend, ddl_backend *plain,
                             struct ddl_error *err)
{
    struct ddl_audit audit;
    struct training found = { 0 }, ref = { 0 }, exact = { 0 };
    ddl_audit_init(&audit, backend);
    ddl_status status = training_run(&found, config, DDL_PRECISION_BF16, &audit.profile.backend, err);
    if (!status)
        status = audit_result(&audit, backend, err);
    if (!status)
        status = training_run(&ref, config, DDL_PRECISION_BF16, plain, err);
    if (!status)
        status = training_run(&exact, config, DDL_PRECISION_F32, plain, err);
    if (!status)
        status = compare_bf16(&found, &ref, &exact, backend, err);
    training_free(&found);
    training_free(&ref);
    training_free(&exact);
    return status;
}

/* In float32 where the precision is tf32: ref has no such roundings. */
static struct ddl_bench_config checked(const struct ddl_bench_config *config)
{
    struct ddl_bench_config k = *config;
    k.precision = config->precision == DDL_PRECISION_TF32 ? DDL_PRECISION_F32 : config->precision;
    return k;
}

static ddl_status check_float32(const struct ddl_bench_config *config, ddl_backend *backend,
                                ddl_backend *plain, struct ddl_error *err)
{
    struct training found, ref = { 0 };
    ddl_status status = training_run(&found, config, config->precision, backend, err);
    if (!status)
        status = training_run(&ref, config, config->precision, plain, err);
    if (!status)
        status = compare_float32(&found, &ref, backend, err);
    training_free(&found);
    training_free(&ref);
    return status;
}

ddl_status bench_check_gradients(const struct ddl_bench_config *config, ddl_backend *backend, char *text,
                                 size_t size, struct ddl_error *err)
{
    const struct ddl_bench_config of = checked(config);
    bool bf16 = of.precision == DDL_PRECISION_BF16;
    ddl_backend *plain;
    ddl_status status = ddl_backend_create(&plain, "ref", 1, err);
    if (status)
        return status;
    status = (bf16 ? check_bf16 : check_float32)(&of, backend, plain, err);
    ddl_backend_free(plain);
    snprintf(text, size, "loss and every gradient of a small model agree with ref%s",
             bf16                                ? ", bfloat16 ops with their exact results"
             : of.precision != config->precision ? ", in float32"
                                                 : "");
    return status;
}

/* ---- decoding ---- */

/* Logits (B, T, V), in one pass; or a few tokens first and the others one by one. */
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

/* Arrays of n logits: of the whole pass and of decoding in pieces, on the backend and on ref; exact: ref's
 * whole pass without roundings to bfloat16. */
struct logits {
    float *whole, *pieces, *ref_whole, *ref_pieces, *exact;
};

static ddl_status compare_logits(size_t n, const struct logits *z, const struct ddl_bench_config *config,
                                 bool bf16_cache, const ddl_backend *backend, struct ddl_error *err)
{
    static const char logits[] = "the logits of a small model",
                      decoded[] = "a small model decoded token by token";
    bool bf16 = config->precision == DDL_PRECISION_BF16;
    ddl_status status = DDL_OK;
    double off = difference(n, z->whole, z->ref_whole), apart = difference(n, z->pieces, z->whole);
    if (bf16)
        status = compare_one(n, z->whole, z->ref_whole, z->exact, logits, backend, err);
    else if (!(off <= logit_limit))
        status = wrong(err, logits, backend, off, its_size, logit_limit);
    if (status)
        return status;
    if (bf16 || bf16_cache)
        return compare_one(n, z->pieces, z->ref_pieces, z->exact, decoded, backend, err);
    return apart <= logit_limit ? DDL_OK : wrong(err, decoded, backend, apart, its_size, logit_limit);
}

static ddl_status run_decoding(struct small *s, const struct ddl_bench_config *config,
                               enum ddl_precision precision, ddl_backend *backend, float *once, float *pieces,
                               struct ddl_error *err)
{
    ddl_status status = make(s, config, precision, backend, false, err);
    if (!status)
        status = whole(s, once, err);
    if (!status && pieces)
        status = in_pieces(s, config->cache, pieces, err);
    return status;
}

/* z: n numbers each. */
static ddl_status check_logits(const struct ddl_bench_config *config, ddl_backend *backend,
                               ddl_backend *plain, size_t n, const struct logits *z, struct ddl_error *err)
{
    struct small found = { 0 }, ref = { 0 }, exact = { 0 };
    struct ddl_audit audit;
    enum ddl_precision unrounded =
        config->precision == DDL_PRECISION_BF16 ? DDL_PRECISION_F32 : config->precision;
    ddl_audit_init(&audit, backend);
    ddl_status status =
        run_decoding(&found, config, config->precision, &audit.profile.backend, z->whole, z->pieces, err);
    if (!status)
        status = audit_result(&audit, backend, err);
    if (!status)
        status = run_decoding(&ref, config, config->precision, plain, z->ref_whole, z->ref_pieces, err);
    if (!status)
        status = run_decoding(&exact, config, unrounded, plain, z->exact, NULL, err);
    if (!status)
        status = compare_logits(
            n, z, config, ddl_cache_is_bf16(ddl_model_precision(found.model), config->cache), backend, err);
    unmake(&found);
    unmake(&ref);
    unmake(&exact);
    return status;
}

ddl_status bench_check_decoding(const struct ddl_bench_config *config, ddl_backend *backend, char *text,
                                size_t size, struct ddl_error *err)
{
    ddl_backend *plain;
    ddl_status status = ddl_backend_create(&plain, "ref", 1, err);
    if (status)
        return status;
    const struct ddl_bench_config of = checked(config);
    struct ddl_config k = shrunk(&of.model);
    size_t n = B * T * k.vocab_size;
    float *z = ddl_mem_alloc(5 * n * sizeof *z);
    status = z ? check_logits(&of, backend, plain, n,
                              &(struct logits){ z, z + n, z + 2 * n, z + 3 * n, z + 4 * n }, err)
               : ddl_error_set(err, DDL_E_MEMORY, "bench: out of memory for %zu logits", 5 * n);
    ddl_mem_free(z);
    ddl_backend_free(plain);
    snprintf(text, size, "a small model token by token agrees with its whole pass, and with ref%s",
             of.precision != config->precision ? ", in float32" : "");
    return status;
}
