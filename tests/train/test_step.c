/* train/step/step.c: k micro-batches are one batch, what is not finite changes nothing, and a step allocates
 * nothing. The allocator is wrapped at link time (tests/CMakeLists.txt), so that calls from our own code are
 * counted and those inside libraries are not. */
#include "support/models.h"
#include "support/runs.h"

#include "base/mem.h"
#include "ddl/data.h"
#include "model/pass/model.h"
#include "ops/operands.h"
#include "train/log/metrics.h"
#include "train/step/step.h"
#include "train/log/tensorboard.h"
#include "train/run/validate.h"

#include <math.h>

enum { V = 31, T = 8, ROWS = 8 * T };

/* ---- the wrapped allocator ---- */

static size_t calls;

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t m);
void *__real_realloc(void *p, size_t n);
void *__real_aligned_alloc(size_t a, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t m);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_aligned_alloc(size_t a, size_t n);

void *__wrap_malloc(size_t n)
{
    calls++;
    return __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t m)
{
    calls++;
    return __real_calloc(n, m);
}

void *__wrap_realloc(void *p, size_t n)
{
    calls++;
    return __real_realloc(p, n);
}

void *__wrap_aligned_alloc(size_t a, size_t n)
{
    calls++;
    return __real_aligned_alloc(a, n);
}

/* ---- a step ---- */

struct setup {
    ddl_backend *backend;
    ddl_model *model;
    ddl_workspace *ws;
    struct ddl_optim *optim;
    struct ddl_step step;
};

static int32_t tokens[ROWS], targets[ROWS];

static void fill_tokens(void)
{
    for (size_t i = 0; i < ROWS; i++) {
        tokens[i] = (int32_t)(i * 7 % V);
        /* Ignored ones, not alike in the micro-batches. */
        targets[i] = i % 5 == 0 || i > 3 * ROWS / 4 ? -1 : (int32_t)((i * 7 + 3) % V);
    }
}

static struct setup set_up_with(const char *preset, enum ddl_precision precision, const char *backend,
                                size_t batch, size_t accumulate)
{
    struct setup s = { 0 };
    struct ddl_error err;
    struct ddl_optim_config config = ddl_optim_defaults();
    assert_ok(ddl_backend_create(&s.backend, backend, 2, &err), err);
    s.model = tiny_model(preset, V, 3, s.backend);
    assert_ok(ddl_model_enable_grad(s.model, &err), err);
    assert_ok(ddl_model_set_precision(s.model, precision, &err), err);
    assert_ok(ddl_optim_create(&s.optim, s.model, &config, &err), err);
    assert_ok(ddl_workspace_create(
                  &s.ws, s.model,
                  &(struct ddl_workspace_options){ .batch = batch, .tokens = T, .train = true }, &err),
              err);
    s.step = (struct ddl_step){ .model = s.model,
                                .ws = s.ws,
                                .optim = s.optim,
                                .batch = batch,
                                .accumulate = accumulate,
                                .seq = T,
                                .tokens = tokens,
                                .targets = targets };
    assert_ok(ddl_step_reserve(&s.step, &err), err);
    return s;
}

static struct setup set_up(const char *preset, const char *backend, size_t batch, size_t accumulate)
{
    return set_up_with(preset, DDL_PRECISION_F32, backend, batch, accumulate);
}

static void tear_down(struct setup *s)
{
    ddl_step_release(&s->step);
    ddl_workspace_free(s->ws);
    ddl_optim_free(s->optim);
    ddl_model_free(s->model);
    ddl_backend_free(s->backend);
}

static void micro_batches_are_one_batch(void **state)
{
    (void)state;
    static const char *const presets[] = { "baseline", "ddl-1", "ddl-tc-ec", "ddl-cc-ec", "ddl-mix" };
    static const struct {
        const char *backend;
        size_t batch, accumulate;
    } splits[] = { { "ref", 2, 4 }, { "ref", 1, 8 }, { "cpu", 4, 2 }, { "cpu", 2, 4 } };
    fill_tokens();
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++) {
        for (size_t j = 0; j < sizeof splits / sizeof *splits; j++) {
            struct setup whole = set_up(presets[i], splits[j].backend, 8, 1);
            struct setup parts = set_up(presets[i], splits[j].backend, splits[j].batch, splits[j].accumulate);
            struct ddl_step_result a, b;
            struct ddl_error err;
            size_t n = ddl_model_size(whole.model);
            assert_ok(ddl_step_run(&whole.step, 1e-3, &a, &err), err);
            assert_ok(ddl_step_run(&parts.step, 1e-3, &b, &err), err);
            float *x = all_gradients(whole.model), *y = all_gradients(parts.model);
            assert_true(fabs(a.loss - b.loss) < 1e-6 * a.loss);
            assert_true(fabs(a.grad_norm - b.grad_norm) < 1e-5 * a.grad_norm);
            assert_close(n, y, x, 2e-6);
            free(x);
            free(y);
            tear_down(&whole);
            tear_down(&parts);
        }
    }
}

static bool ends_with(const char *name, const char *end)
{
    const size_t n = strlen(name), m = strlen(end);
    return n >= m && strcmp(name + n - m, end) == 0;
}

/* The group that a parameter's name means. */
static int group_of(const char *name)
{
    if (strstr(name, "wte"))
        return DDL_GROUP_EMBEDDING;
    if (strstr(name, "conv") || strstr(name, "compress") || strstr(name, "readout"))
        return DDL_GROUP_KERNEL;
    if (strstr(name, "ln_") || strstr(name, "_rms"))
        return DDL_GROUP_NORM;
    return ends_with(name, ".bias") ? DDL_GROUP_BIAS : DDL_GROUP_MATRIX;
}

/* What muP scales the learning rate of: equations.md, 10. */
static bool has_scaled_rate(const char *name)
{
    static const char *const names[] = { "attn.c_q.weight",    "attn.c_k.weight",  "attn.c_v.weight",
                                         "attn.c_proj.weight", "mlp.c_fc1.weight", "mlp.c_fc2.weight",
                                         "mlp.c_proj.weight",  "k_proj.weight",    "k_down.weight",
                                         "k_up.weight" };
    bool found = false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        found = found || ends_with(name, names[i]);
    return found;
}

/* Without a gradient a parameter becomes p (1 - lr s w) with the weight decay w of its group, and s the scale
 * of muP. */
static void parameters_decay_by_group_and_width(void **state)
{
    (void)state;
    const double lr = 0.01;
    for (int mup = 0; mup < 2; mup++) {
        struct ddl_config k = tiny_config("ddl-cc-ec", V);
        struct ddl_optim_config config = ddl_optim_defaults();
        struct ddl_error err;
        struct ddl_optim *optim;
        ddl_backend *backend;
        ddl_model *model;
        size_t seen[DDL_GROUPS] = { 0 }, scaled = 0;
        k.map = DDL_MAP_V;
        k.k_rank = 3;
        k.mup = mup;
        k.d_base = 3 * k.d_model;
        for (int g = 0; g < DDL_GROUPS; g++)
            config.weight_decay[g] = 0.1f * (float)(g + 1);
        assert_ok(ddl_backend_create(&backend, "cpu", 1, &err), err);
        assert_ok(ddl_model_create(&model, &k, backend, &err), err);
        assert_ok(ddl_model_init(model, 1, &err), err);
        assert_ok(ddl_model_enable_grad(model, &err), err);
        assert_ok(ddl_optim_create(&optim, model, &config, &err), err);
        float *before = ddl_mem_alloc(ddl_model_size(model) * sizeof *before),
              *after = ddl_mem_alloc(ddl_model_size(model) * sizeof *after);
        for (int which = 0; which < 2; which++) {
            float *at = which ? after : before;
            if (which)
                ddl_optim_step(optim, lr);
            for (size_t i = 0; i < ddl_model_n_params(model); at += ddl_model_param(model, i++)->count)
                ddl_model_read_param(model, i, at);
        }
        for (size_t i = 0, at = 0; i < ddl_model_n_params(model); i++) {
            const struct ddl_param *param = ddl_model_param(model, i);
            const int group = group_of(param->name);
            const double scale = mup && has_scaled_rate(param->name) ? 3 : 1;
            const double factor = 1 - lr * scale * (double)config.weight_decay[group];
            for (size_t n = 0; n < param->count; n++, at++) {
                const double expected = factor * (double)before[at];
                if (!(fabs((double)after[at] - expected) <= 4e-7 * fabs(expected)))
                    fail_msg("mup %d: %s: %.9g becomes %.9g, expected %.9g", mup, param->name,
                             (double)before[at], (double)after[at], expected);
            }
            seen[group]++;
            scaled += scale > 1;
        }
        for (int g = 0; g < DDL_GROUPS; g++)
            assert_true(seen[g] > 0);
        assert_true(mup ? scaled > 8 * k.n_layers : scaled == 0);
        ddl_mem_free(before);
        ddl_mem_free(after);
        ddl_optim_free(optim);
        ddl_model_free(model);
        ddl_backend_free(backend);
    }
}

/* Nothing is updated, not even by weight decay. */
static void no_targets_no_update(void **state)
{
    (void)state;
    struct setup s = set_up("ddl-cc", "ref", 4, 2);
    struct ddl_step_result result;
    struct ddl_error err;
    size_t count = ddl_model_param(s.model, 0)->count;
    float *before = ddl_mem_alloc(count * sizeof *before), *after = ddl_mem_alloc(count * sizeof *after);
    ddl_model_read_param(s.model, 0, before);
    fill_tokens();
    for (size_t i = 0; i < ROWS; i++)
        targets[i] = -1;
    assert_ok(ddl_step_run(&s.step, 1e-3, &result, &err), err);
    assert_true(result.loss == 0 && result.grad_norm == 0 && result.scale == 0);
    assert_int_equal(result.decision, DDL_SPIKE_SKIP);
    ddl_model_read_param(s.model, 0, after);
    assert_memory_equal(before, after, count * sizeof *before);
    assert_int_equal(ddl_optim_steps(s.optim), 0);
    ddl_mem_free(before);
    ddl_mem_free(after);
    tear_down(&s);
}

static void not_finite_changes_nothing(void **state)
{
    (void)state;
    struct setup s = set_up("ddl-cc", "ref", 4, 2);
    struct ddl_step_result result;
    struct ddl_error err;
    size_t count = ddl_model_param(s.model, 0)->count;
    float *before = ddl_mem_alloc(count * sizeof *before), *after = ddl_mem_alloc(count * sizeof *after);
    ddl_model_read_param(s.model, 0, before);
    before[21] = NAN;
    ddl_model_write_param(s.model, 0, before);
    fill_tokens();
    assert_int_equal(ddl_step_run(&s.step, 1e-3, &result, &err), DDL_E_NUMERIC);
    assert_says(&err, "the loss of micro-batch 1 of 2 is not finite");
    ddl_model_read_param(s.model, 0, after);
    assert_memory_equal(before, after, count * sizeof *before);
    assert_int_equal(ddl_optim_steps(s.optim), 0);
    ddl_mem_free(before);
    ddl_mem_free(after);
    tear_down(&s);
}

/* ---- transfers ---- */

static const struct ddl_ops *real_ops;
static size_t downloads, downloaded, blocking_uploads;

static void counted_upload(void *ctx, void *dst, const void *host, size_t bytes)
{
    blocking_uploads++;
    real_ops->upload(ctx, dst, host, bytes);
}

static void counted_download(void *ctx, void *host, const void *src, size_t bytes)
{
    downloads++;
    downloaded += bytes;
    real_ops->download(ctx, host, src, bytes);
}

static ddl_event counted_download_async(void *ctx, void *host, const void *src, size_t bytes)
{
    downloads++;
    downloaded += bytes;
    return real_ops->download_async(ctx, host, src, bytes);
}

/* Only the loss of each micro-batch and the norm leave the backend, once a step, with a filter of spikes
 * too. What a step uploads is in pinned memory, but for the optimizer's lists in the first one. */
static void a_step_downloads_once(void **state)
{
    (void)state;
    static const char *const presets[] = { "baseline", "ddl-tc-ec", "ddl-cc-ec" };
    fill_tokens();
    for (size_t i = 0; i < 6; i++) {
        struct setup s = set_up(presets[i / 2], test_backend(0), 2, 4);
        struct ddl_spike_state spike = { 0 };
        struct ddl_step_result result;
        struct ddl_error err;
        struct ddl_ops counting = *s.backend->ops;
        ddl_backend wrapped = *s.backend;
        real_ops = s.backend->ops;
        counting.download = counted_download;
        counting.download_async = counted_download_async;
        counting.upload = counted_upload;
        wrapped.ops = &counting;
        s.step.spike.z = i % 2 ? 6 : 0;
        s.step.spike.window = 8;
        s.step.spike_state = &spike;
        ddl_model_replace_backend(s.model, &wrapped);
        for (size_t step = 0; step < 3; step++) {
            downloads = downloaded = blocking_uploads = 0;
            assert_ok(ddl_step_submit(&s.step, 1e-3, &result, &err), err);
            assert_int_equal(downloads, 0); /* the caller does other work while the device computes */
            assert_ok(ddl_step_finish(&s.step, DDL_OK, 1e-3, &result, &err), err);
            assert_true(result.loss > 0 && result.grad_norm > 0);
            assert_int_equal(downloads, 1);
            assert_int_equal(downloaded, (1 + s.step.accumulate) * sizeof(double));
            assert_int_equal(blocking_uploads, step == 0);
        }
        ddl_model_replace_backend(s.model, s.backend);
        tear_down(&s);
    }
}

/* ---- a captured step ---- */

enum { TAPE = 4096 };

/* Calls of a step, as a device captures them: transfers are not among them. */
static struct {
    enum { RECORD, REPLAY } mode;
    size_t n;
    struct taped {
        int op; /* -1: zero */
        union ddl_op_args args;
        void *dst;
        size_t bytes;
    } call[TAPE];
} tape;

static void taped_op(void *ctx, enum ddl_op op, const void *args)
{
    struct taped *call = &tape.call[tape.n];
    if (tape.mode == REPLAY)
        return;
    assert_true(tape.n++ < TAPE);
    call->op = (int)op;
    memcpy(&call->args, args, ddl_op_args_size(op));
    ddl_op_call(op, &(ddl_backend){ .ops = real_ops, .ctx = ctx }, args);
}

#define TAPED(name, args)                                                                                    \
    static void taped_##name(void *ctx, const struct args *a)                                                \
    {                                                                                                        \
        taped_op(ctx, DDL_OP_##name, a);                                                                     \
    }
DDL_OPS(TAPED)
#undef TAPED

static void taped_zero(void *ctx, void *dst, size_t bytes)
{
    if (tape.mode == REPLAY)
        return;
    assert_true(tape.n < TAPE);
    tape.call[tape.n++] = (struct taped){ .op = -1, .dst = dst, .bytes = bytes };
    real_ops->zero(ctx, dst, bytes);
}

/* The step's only download: before it, the captured calls run. */
static void replay(void *ctx, void *host, const void *src, size_t bytes)
{
    const ddl_backend backend = { .ops = real_ops, .ctx = ctx };
    for (size_t i = 0; tape.mode == REPLAY && i < tape.n; i++) {
        const struct taped *call = &tape.call[i];
        if (call->op < 0)
            real_ops->zero(ctx, call->dst, call->bytes);
        else
            ddl_op_call((enum ddl_op)call->op, &backend, &call->args);
    }
    real_ops->download(ctx, host, src, bytes);
}

/* Steps with other tokens, numbers of targets and learning rates, three of which replay the ops of the step
 * before them. */
static void run_steps(struct setup *s, bool captured)
{
    for (size_t step = 0; step < 5; step++) {
        struct ddl_step_result result;
        struct ddl_error err;
        for (size_t i = 0; i < ROWS; i++) {
            tokens[i] = (int32_t)((i * 7 + step) % V);
            targets[i] = i % (step + 2) == 0 ? -1 : (int32_t)((i * 7 + 3 * step) % V);
        }
        tape.mode = captured && step > 1 ? REPLAY : RECORD;
        tape.n = tape.mode == RECORD ? 0 : tape.n;
        assert_ok(ddl_step_run(&s->step, 1e-3 * (double)(step + 1), &result, &err), err);
        assert_true(tape.n > 0 && result.loss > 0);
    }
}

/* The calls of a step have the same arguments as those of the step before: what changes is in device memory.
 */
static void a_captured_step_can_be_replayed(void **state)
{
    (void)state;
    static const char *const presets[] = { "baseline", "ddl-tc-ec",   "ddl-cc-ec",
                                           "hyper",    "denseformer", "attnres" };
    static const enum ddl_precision precisions[] = { DDL_PRECISION_F32, DDL_PRECISION_BF16 };
    for (size_t i = 0; i < 2 * (sizeof presets / sizeof *presets); i++) {
        float *found[2];
        size_t count = 0;
        for (int captured = 0; captured < 2; captured++) {
            struct setup s = set_up_with(presets[i / 2], precisions[i % 2], test_backend(0), 8, 1);
            struct ddl_ops taping = *s.backend->ops;
            ddl_backend wrapped = *s.backend;
            real_ops = s.backend->ops;
#define FILL_OP(op, args) taping.op = taped_##op;
            DDL_OPS(FILL_OP)
#undef FILL_OP
            taping.zero = taped_zero;
            taping.download = replay;
            wrapped.ops = &taping;
            ddl_model_replace_backend(s.model, &wrapped);
            run_steps(&s, captured == 1);
            ddl_model_replace_backend(s.model, s.backend);
            count = ddl_model_param(s.model, 0)->count;
            found[captured] = ddl_mem_alloc(count * sizeof **found);
            ddl_model_read_param(s.model, 0, found[captured]);
            tear_down(&s);
        }
        assert_memory_equal(found[0], found[1], count * sizeof **found);
        ddl_mem_free(found[0]);
        ddl_mem_free(found[1]);
    }
}

static void allocates_nothing(void **state)
{
    (void)state;
    static const char *const backends[] = { "ref", "cpu" };
    static const char *const presets[] = { "baseline", "ddl-tc-ec", "ddl-cc-ec" };
    struct ddl_error err;
    ddl_shards *shards;
    const char *path = scratch_path("alloc.bin");
    write_random_shard(path, 1, V, 1000);
    assert_ok(ddl_shards_open(&shards, path, &err), err);
    for (size_t i = 0; i < 6; i++) {
        struct setup s = set_up(presets[i % 3], backends[i / 3], 4, 2);
        struct ddl_loader loader = { shards, DDL_ORDER_RANDOM, 5, T, 0 };
        struct ddl_validation v = ddl_validation_plan(shards, 200, 4, T, DDL_ORDER_RANDOM);
        struct ddl_train_progress progress = { .step = 1 };
        struct ddl_step_result result;
        struct ddl_metrics metrics;
        struct ddl_validation_result val;
        struct ddl_telemetry telemetry;
        struct ddl_tensorboard tensorboard = { 0 };
        assert_ok(ddl_telemetry_init(&telemetry, s.model, 4 * T, &err), err);
        s.step.probe = &telemetry.probe;
        remove_scratch("events");
        if (ddl_tensorboard_check(NULL) == DDL_OK)
            assert_ok(ddl_tensorboard_open(&tensorboard, scratch_path("events"), 0, &err), err);
        assert_ok(ddl_metrics_open(&metrics, scratch_path("alloc.jsonl"), 0, 0, NULL, &err), err);
        for (int round = 0; round < 3; round++) {
            calls = 0;
            ddl_loader_next(&loader, 8, tokens, targets);
            assert_ok(ddl_step_run(&s.step, 1e-3, &result, &err), err);
            const struct ddl_validation_work work = { s.model, s.ws, tokens, targets, NULL, NULL };
            assert_ok(ddl_validation_run(&v, &work, &val, &err), err);
            assert_ok(ddl_metrics_write(&metrics, &progress, &err), err);
            assert_ok(ddl_telemetry_take_gradients(&telemetry, s.optim, NULL, &err), err);
            assert_ok(ddl_metrics_write_telemetry(&metrics, 1, 1, &telemetry, &err), err);
            assert_ok(ddl_tensorboard_line(&tensorboard, &progress, &err), err);
            assert_ok(ddl_tensorboard_telemetry(&tensorboard, 1, &telemetry, &err), err);
            assert_int_equal(calls, 0);
        }
        ddl_metrics_close(&metrics);
        ddl_tensorboard_close(&tensorboard);
        ddl_telemetry_free(&telemetry);
        tear_down(&s);
    }
    ddl_shards_close(shards);
}

static void the_wrapper_counts(void **state)
{
    (void)state;
#ifdef DDL_SANITIZED
    skip(); /* the library is shared, so that the linker does not wrap its calls */
#endif
    calls = 0;
    ddl_mem_free(ddl_mem_alloc(10));
    assert_int_equal(calls, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(micro_batches_are_one_batch), cmocka_unit_test(parameters_decay_by_group_and_width),
        cmocka_unit_test(no_targets_no_update),        cmocka_unit_test(not_finite_changes_nothing),
        cmocka_unit_test(the_wrapper_counts),          cmocka_unit_test(allocates_nothing),
        cmocka_unit_test(a_step_downloads_once),       cmocka_unit_test(a_captured_step_can_be_replayed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
