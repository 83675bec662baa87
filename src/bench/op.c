/* Timing the ops one by one, each after it agreed with the backend "ref" on fewer rows. The calls are those
 * of ops/cases.h, at the sizes of a training step of a model. */
#include "bench/bench.h"

#include "base/mem.h"
#include "ddl/delta.h"
#include "ops/audit.h"
#include "ops/cases.h"

#include <stdio.h>
#include <string.h>

/* ---- sizes ---- */

enum { STATES = 8, LAUREL_RANK = 16, SMALL_TOKENS = 100, SMALL_VOCABULARY = 517 };

static size_t at_most(size_t x, size_t most)
{
    return x < most ? x : most;
}

/* About what a workspace takes (src/model/pass/measure.c): logits of 64 MB at a time, tiles of 4 MB. */
static void plan_head(struct ddl_op_sizes *s)
{
    size_t N = s->B * s->T, rows = ((size_t)1 << 24) / s->V, tile = ((size_t)1 << 20) / N;
    s->rows = at_most(N, rows > 32 ? rows : 32);
    s->tile = at_most(s->V, tile > 256 ? tile : 256);
}

/* Ragged batches are those of a step of as many sequences as there are tokens, with nothing before them. */
static ddl_status sizes_init(struct ddl_op_sizes *s, const struct ddl_bench_config *config, bool small,
                             struct ddl_error *err)
{
    const struct ddl_config *k = &config->model;
    size_t H = k->n_heads, m = ddl_config_mlp_size(k);
    *s = (struct ddl_op_sizes){ .B = small ? 1 : config->batch,
                                .T = small ? at_most(config->seq, SMALL_TOKENS) : config->seq,
                                .d = k->d_model,
                                .c = k->channels,
                                .n = k->streams,
                                .H = small ? at_most(H, 2) : H,
                                .h = k->head_dim,
                                .R = ddl_config_rope_dims(k),
                                .m = small ? at_most(m, 250) : m,
                                .V = small ? at_most(k->vocab_size, SMALL_VOCABULARY) : k->vocab_size,
                                .K = ddl_config_state_kernel(k),
                                .K_embed = k->embed_kernel,
                                .iterations = k->sinkhorn_iterations,
                                .rank = LAUREL_RANK,
                                .states = STATES,
                                .kind = k->compress };
    plan_head(s);
    s->n_sequences = s->B * s->T;
    struct ddl_trial_sequence *sequences = ddl_mem_alloc(s->n_sequences * sizeof *sequences);
    for (size_t i = 0; sequences && i < s->n_sequences; i++)
        sequences[i] = (struct ddl_trial_sequence){ 0, 1 };
    s->sequences = sequences;
    return sequences ? DDL_OK : ddl_error_set(err, DDL_E_MEMORY, "bench op: out of memory");
}

static void sizes_free(struct ddl_op_sizes *s)
{
    ddl_mem_free((void *)(uintptr_t)s->sequences);
}

/* ---- the calls ---- */

/* The public functions of the operator do the same as its ops after checking their arguments. */
static void public_delta_fwd(ddl_backend *backend, const void *args)
{
    (void)ddl_delta_forward(backend, args, NULL);
}

static void public_delta_bwd(ddl_backend *backend, const void *args)
{
    (void)ddl_delta_backward(backend, args, NULL);
}

static void public_delta_inverse(ddl_backend *backend, const void *args)
{
    (void)ddl_delta_inverse(backend, args, NULL);
}

static void public_elementwise_fwd(ddl_backend *backend, const void *args)
{
    (void)ddl_elementwise_forward(backend, args, NULL);
}

static void public_elementwise_bwd(ddl_backend *backend, const void *args)
{
    (void)ddl_elementwise_backward(backend, args, NULL);
}

static const struct {
    enum ddl_op op;
    void (*call)(ddl_backend *backend, const void *args);
} public_calls[] = {
    { DDL_OP_delta_fwd, public_delta_fwd },
    { DDL_OP_delta_bwd, public_delta_bwd },
    { DDL_OP_delta_inverse, public_delta_inverse },
    { DDL_OP_elementwise_fwd, public_elementwise_fwd },
    { DDL_OP_elementwise_bwd, public_elementwise_bwd },
};
enum { PUBLIC_CALLS = sizeof public_calls / sizeof *public_calls };

/* A call that is timed. `by` NULL: the op itself. */
struct timed {
    const struct ddl_op_case *k;
    void (*by)(ddl_backend *backend, const void *args);
    ddl_backend *backend;
    struct ddl_trial trial;
};

static void call(void *user)
{
    const struct timed *t = user;
    if (t->by)
        t->by(t->backend, &t->trial.args);
    else
        ddl_trial_call(&t->trial);
}

static void name_of(const struct ddl_op_case *k, bool is_public, char *text, size_t size)
{
    char name[48];
    ddl_op_case_name(k, name, sizeof name);
    snprintf(text, size, "%s%s", name, is_public ? ".public" : "");
}

/* The public call of a case, or NULL. It takes host arrays. */
static void (*public_of(const struct ddl_op_case *k, const ddl_backend *backend))(ddl_backend *, const void *)
{
    for (size_t i = 0; i < PUBLIC_CALLS && backend->ops->host_memory; i++) {
        if (public_calls[i].op == k->op)
            return public_calls[i].call;
    }
    return NULL;
}

static bool wanted(const struct ddl_bench_op_config *config, const struct ddl_op_case *k, bool is_public,
                   const ddl_backend *backend)
{
    char name[64];
    name_of(k, is_public, name, sizeof name);
    return !k->check_only && ddl_op_is_there(k->op, backend->ops) &&
           (!config->filter || strstr(name, config->filter));
}

/* ---- checks and times ---- */

static ddl_status check(const struct ddl_op_case *k, const struct ddl_op_sizes *s, ddl_backend *backend,
                        ddl_backend *ref, struct ddl_error *err)
{
    union ddl_op_args args;
    struct ddl_trial_plan plan;
    struct ddl_trial_result found;
    struct ddl_audit audit; /* of what is done in bfloat16 */
    struct ddl_error why = { 0 };
    ddl_op_case_plan(k, s, &args, &plan);
    ddl_audit_init(&audit, backend);
    ddl_status status = ddl_trial_check(&plan, &audit.profile.backend, ref, &found, &why);
    if (!status)
        status = ddl_audit_check(&audit, &why);
    if (status == DDL_E_NUMERIC)
        return ddl_error_set(err, status, "bench op: %s: a wrong result is not timed (run ddl verify)",
                             why.text);
    return status ? ddl_error_set(err, status, "bench op: %s", why.text) : DDL_OK;
}

static ddl_status time_op(struct timed *t, const struct ddl_bench_op_config *config,
                          const struct ddl_op_sizes *s, struct ddl_bench_report *out, struct ddl_error *err)
{
    union ddl_op_args args;
    char name[64];
    struct ddl_trial_plan plan;
    ddl_op_case_plan(t->k, s, &args, &plan);
    plan.shared = t->k->in_place;
    ddl_status status = ddl_trial_make(&t->trial, t->backend, &plan, err);
    if (!status) {
        name_of(t->k, t->by != NULL, name, sizeof name);
        struct ddl_bench_row *row =
            bench_time(out, name, t->backend, call, t, config->at.warmup, config->at.steps, config->seconds);
        row->flops = t->trial.use.flops;
        row->bytes = ddl_op_traffic(&t->trial.use, &t->trial.args, t->backend);
    }
    ddl_trial_free(&t->trial);
    return status;
}

static ddl_status check_all(const struct ddl_bench_op_config *config, const struct ddl_op_sizes *small,
                            ddl_backend *backend, struct ddl_bench_report *out, struct ddl_error *err)
{
    size_t n_cases, n = 0;
    const struct ddl_op_case *cases = ddl_op_cases(&n_cases);
    ddl_backend *ref;
    ddl_status status = ddl_backend_create(&ref, "ref", 1, err);
    for (size_t i = 0; !status && i < n_cases; i++) {
        bool by_public = public_of(&cases[i], backend) && wanted(config, &cases[i], true, backend);
        if (!wanted(config, &cases[i], false, backend) && !by_public)
            continue;
        status = check(&cases[i], small, backend, ref, err);
        n++;
    }
    ddl_backend_free(ref);
    if (!status && n == 0)
        return ddl_error_set(err, DDL_E_USAGE, "bench op: no op's name contains '%s'", config->filter);
    snprintf(out->check, sizeof out->check, "%zu ops agree with ref on %zu rows", n, small->B * small->T);
    return status;
}

static ddl_status time_all(const struct ddl_bench_op_config *config, const struct ddl_op_sizes *full,
                           ddl_backend *backend, struct ddl_bench_report *out, struct ddl_error *err)
{
    size_t n_cases;
    const struct ddl_op_case *cases = ddl_op_cases(&n_cases);
    ddl_status status = DDL_OK;
    for (size_t i = 0; !status && i < n_cases; i++) {
        struct timed t = { .k = &cases[i], .backend = backend };
        if (wanted(config, &cases[i], false, backend))
            status = time_op(&t, config, full, out, err);
        t.by = public_of(&cases[i], backend);
        if (!status && t.by && wanted(config, &cases[i], true, backend))
            status = time_op(&t, config, full, out, err);
    }
    return status;
}

static ddl_status run(const struct ddl_bench_op_config *config, ddl_backend *backend,
                      struct ddl_bench_report *out, struct ddl_error *err)
{
    struct ddl_op_sizes full = { 0 }, small = { 0 };
    ddl_status status = sizes_init(&full, &config->at, false, err);
    if (!status)
        status = sizes_init(&small, &config->at, true, err);
    if (!status) {
        struct ddl_limits limits = ddl_op_limits(&full);
        status = backend->ops->reserve(backend->ctx, &limits, err);
    }
    if (!status)
        status = check_all(config, &small, backend, out, err);
    if (!status && config->at.roofline)
        status = bench_roofline(&out->roofline, backend, err);
    if (!status)
        status = time_all(config, &full, backend, out, err);
    sizes_free(&full);
    sizes_free(&small);
    return status;
}

ddl_status ddl_bench_op(const struct ddl_bench_op_config *config, ddl_backend *backend,
                        struct ddl_bench_report *out, struct ddl_error *err)
{
    bench_begin(out, "op", backend);
    bench_set_model(out, &config->at);
    ddl_status status = bench_check_steps(config->at.steps, err);
    if (!status)
        status = ddl_config_check(&config->at.model, err);
    if (!status &&
        (config->at.seq == 0 || config->at.batch == 0 || config->at.batch > INT32_MAX / config->at.seq))
        status =
            ddl_error_set(err, DDL_E_USAGE, "bench op: batch x seq: expected 1 to %d tokens, found %zu x %zu",
                          INT32_MAX, config->at.batch, config->at.seq);
    return status ? status : run(config, backend, out, err);
}
