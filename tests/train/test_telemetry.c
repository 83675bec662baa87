/* train/log/telemetry.c: records do not change a run, have the figures of ddl_inspect, and survive a stop. */
#include "support/models.h"
#include "support/properties.h"
#include "support/runs.h"

#include "ddl/compare.h"
#include "ddl/inspect.h"
#include "ddl/train.h"
#include "model/residual/table.h"
#include "ops/ops.h"
#include "train/step/step.h"
#include "train/log/telemetry.h"
#include "train/config/train_config.h"

#include <jansson.h>
#include <math.h>

enum { V = 31 };

static struct ddl_train_config a_run(const char *preset, const char *backend, const char *out)
{
    struct ddl_train_config t = tiny_run(preset, V, backend, out);
    write_random_shard(scratch_path("train.bin"), 1, V, 5000);
    write_random_shard(scratch_path("val.bin"), 2, V, 700);
    snprintf(t.val_data, sizeof t.val_data, "%s", scratch_path("val.bin"));
    t.accumulate = 2;
    t.steps = 8;
    t.warmup = 2;
    t.val_every = 4;
    t.val_tokens = 100;
    t.checkpoint_every = 4;
    return t;
}

/* ---- a run ---- */

/* The lines of metrics.jsonl that are records, or that are not, without times; free with free. */
static char *lines_of(const char *out, bool records)
{
    char *text = repeatable_metrics(out), *to = text;
    for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
        char *kind = strstr(line, ",\"kind\":\"telemetry\"");
        if ((kind && kind < end) != records)
            continue;
        memmove(to, line, (size_t)(end + 1 - line));
        to += end + 1 - line;
    }
    *to = '\0';
    return text;
}

/* Losses, gradient norms, parameters and moments are bit-identical with telemetry and without. */
static void changes_nothing(void **state)
{
    (void)state;
    static const struct {
        const char *preset, *backend;
        int precision, recompute;
    } cases[] = {
        { "baseline", "ref", DDL_PRECISION_F32, DDL_RECOMPUTE_ELEMENTWISE },
        { "baseline", "cpu", DDL_PRECISION_BF16, DDL_RECOMPUTE_BLOCK },
        { "ddl-1", "ref", DDL_PRECISION_BF16, DDL_RECOMPUTE_ELEMENTWISE },
        { "ddl-tc-ec", "cpu", DDL_PRECISION_F32, DDL_RECOMPUTE_BLOCK },
        { "ddl-cc-ec", "cpu", DDL_PRECISION_BF16, DDL_RECOMPUTE_ELEMENTWISE },
        { "ddl-cc-ec", "ref", DDL_PRECISION_F32, DDL_RECOMPUTE_NONE },
        { "scale", "cpu", DDL_PRECISION_F32, DDL_RECOMPUTE_ELEMENTWISE },
        { "gated", "cpu", DDL_PRECISION_BF16, DDL_RECOMPUTE_NONE },
        { "highway", "cpu", DDL_PRECISION_F32, DDL_RECOMPUTE_ELEMENTWISE },
        { "ddl-2step", "cpu", DDL_PRECISION_BF16, DDL_RECOMPUTE_BLOCK },
        { "attnres", "cpu", DDL_PRECISION_F32, DDL_RECOMPUTE_NONE },
        { "attnres-block", "cpu", DDL_PRECISION_BF16, DDL_RECOMPUTE_BLOCK },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ddl_error err;
        struct ddl_train_config off = a_run(cases[i].preset, cases[i].backend, "off");
        off.precision = cases[i].precision;
        off.recompute = cases[i].recompute;
        off.telemetry_every = 0;
        struct ddl_train_config on = off;
        on.telemetry_every = 1;
        remove_scratch("on");
        snprintf(on.out, sizeof on.out, "%s", scratch_path("on"));
        assert_ok(ddl_train_run(&off, NULL, NULL, &err), err);
        assert_ok(ddl_train_run(&on, NULL, NULL, &err), err);
        assert_same_checkpoint(off.out, on.out, "checkpoint-8");
        assert_same_file(file_in(off.out, "model.safetensors"), file_in(on.out, "model.safetensors"));
        char *with = lines_of(on.out, false), *without = lines_of(off.out, false);
        assert_string_equal(with, without);
        free(with);
        free(without);
        char *records = lines_of(off.out, true);
        assert_string_equal(records, "");
        free(records);
    }
}

/* The first step, each multiple, the last; before the line of the step. */
static void has_its_steps(void **state)
{
    (void)state;
    static const struct {
        uint64_t every, steps[5];
    } cases[] = { { 3, { 1, 3, 6, 8 } }, { 4, { 1, 4, 8 } }, { 100, { 1, 8 } } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ddl_error err;
        struct ddl_train_config t = a_run("ddl-1", "ref", "steps");
        t.telemetry_every = cases[i].every;
        assert_ok(ddl_train_run(&t, NULL, NULL, &err), err);
        char *records = lines_of(t.out, true), *all = repeatable_metrics(t.out), *at = records;
        for (const uint64_t *step = cases[i].steps; *step; step++) {
            char start[64], after[64];
            snprintf(start, sizeof start, "{\"step\":%d,\"kind\":\"telemetry\",\"tokens\":%d,", (int)*step,
                     (int)*step * 2 * 2 * 16);
            assert_memory_equal(at, start, strlen(start));
            at = strchr(at, '\n') + 1;
            snprintf(after, sizeof after, "\n{\"step\":%d,\"loss\"", (int)*step);
            const char *record = strstr(all, start), *line = strstr(all, after);
            assert_true(record && line && strchr(record, '\n') == line);
        }
        assert_int_equal(*at, '\0');
        free(records);
        free(all);
    }
}

static void intervals(void **state)
{
    (void)state;
    struct ddl_train_config t = ddl_train_defaults();
    static const struct {
        uint64_t steps, every;
    } cases[] = { { 5, 25 }, { 10000, 25 }, { 100000, 250 }, { 1000000000, 1000 } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        t.steps = cases[i].steps;
        assert_int_equal(ddl_train_resolved(&t).telemetry_every, cases[i].every);
    }
    t.telemetry_every = 0;
    assert_int_equal(ddl_train_resolved(&t).telemetry_every, 0);
}

/* Stopped after a step, with records of lost steps in the file, and in a validation, whose step has its
 * record but not its line. */
static void survives_a_stop(void **state)
{
    (void)state;
    for (uint64_t every = 1; every <= 2; every++) {
        struct ddl_error err;
        struct validation_stop stop = { .step = 4 };
        const struct ddl_train_callbacks callbacks = { .user = &stop, .validation = stop_validation };
        struct ddl_train_config whole = a_run("ddl-cc-ec", test_backend(0), "whole"), parts = whole;
        whole.telemetry_every = parts.telemetry_every = every;
        remove_scratch("parts");
        snprintf(parts.out, sizeof parts.out, "%s", scratch_path("parts"));
        assert_ok(ddl_train_run(&whole, NULL, NULL, &err), err);
        assert_int_equal(run_until(&parts, 2, NULL, &err), DDL_E_INTERRUPTED);
        FILE *lost = fopen(file_in(parts.out, "metrics.jsonl"), "a");
        fprintf(
            lost,
            "{\"step\":3,\"kind\":\"telemetry\",\"tokens\":0}\n{\"step\":3,\"loss\":1}\n{\"step\":4,\"ki");
        fclose(lost);
        parts.resume = true;
        assert_int_equal(ddl_train_run(&parts, &callbacks, NULL, &err), DDL_E_INTERRUPTED);
        char *records = lines_of(parts.out, true);
        assert_non_null(strstr(records, "{\"step\":4,"));
        free(records);
        assert_ok(ddl_train_run(&parts, NULL, NULL, &err), err);
        assert_same_metrics(whole.out, parts.out);
        assert_same_checkpoint(whole.out, parts.out, "checkpoint-8");
    }
}

/* ---- figures ---- */

/* Root mean squares of f and of X, by the probe's other callback. */
struct seen {
    const ddl_backend *backend;
    double f[64], x[64];
};

static void see(void *user, const struct ddl_place *place, const float *x)
{
    struct seen *seen = user;
    double sum = 0;
    bool is_f = strcmp(place->tensor, "f") == 0;
    if (place->backward || place->layer == DDL_NO_LAYER || strcmp(place->part, "average") == 0 ||
        (!is_f && strcmp(place->tensor, "X") != 0))
        return;
    size_t n = place->rows * place->width;
    float *host = malloc(n * sizeof *host);
    seen->backend->ops->download(seen->backend->ctx, host, x, n * sizeof *host);
    for (size_t i = 0; i < n; i++)
        sum += (double)host[i] * (double)host[i];
    free(host);
    size_t s = DDL_SUBLAYERS * place->layer + (strcmp(place->part, "mlp") == 0);
    (is_f ? seen->f : seen->x)[s] = sqrt(sum / (double)n);
}

static void compare_figures(const struct ddl_telemetry_sublayer *found,
                            const struct ddl_inspect_sublayer *expected)
{
    const struct ddl_figure *list[DDL_MOST_FIGURES];
    for (size_t i = 0, n_figures = ddl_figure_list(list); i < n_figures; i++) {
        const struct ddl_figure *row = list[i];
        double a = found->figures.value[i], b = expected->figures.value[i];
        bool quantile = strstr(row->name, "_q");
        if (strcmp(row->name, "overlap_next") == 0 || strncmp(row->name, "product_", 8) == 0)
            assert_true(isnan(a)); /* a record has no figures of several sublayers */
        else if (isnan(b))
            assert_true(isnan(a));
        else
            close_enough(a, b, quantile ? found->gate_max / 8192 : 1e-9 * (1 + fabs(b)), row->name);
    }
    assert_true((found->gate_max > 0) == (expected->histogram != NULL));
    if (expected->histogram)
        assert_memory_equal(found->histogram, expected->histogram, sizeof found->histogram);
}

/* In every variant of a model: the figures of ddl_inspect on the same tokens, the norms of f, X and the
 * gradients. */
static void has_the_figures_of_inspect(void **state)
{
    (void)state;
    for (size_t i = 0; i < SMALL_VARIANTS; i++) {
        struct small_model m;
        struct ddl_error err;
        struct ddl_telemetry t;
        struct ddl_optim *optim;
        struct ddl_step_result result;
        struct seen seen = { 0 };
        ddl_inspection *in;
        const struct ddl_optim_config config = ddl_optim_defaults();
        const struct ddl_inspect_config inspect = { .seq = SMALL_T, .batch = SMALL_B };
        const struct ddl_config k = variant_config(&small_variants[i]);
        small_model_make(&m, "ref", &k, DDL_PRECISION_F32);
        assert_ok(ddl_optim_create(&optim, m.model, &config, &err), err);
        assert_ok(ddl_inspect_create(&in, m.model, &inspect, 0, &err), err);
        assert_ok(ddl_inspect_batch(in, &m.batch, &err), err);
        assert_ok(ddl_inspect_finish(in, &err), err);
        assert_ok(ddl_telemetry_init(&t, m.model, SMALL_B * SMALL_T, &err), err);
        seen.backend = m.backend;
        struct ddl_probe probe = { .look = see, .user = &seen };
        struct ddl_step step = { .model = m.model,
                                 .ws = m.ws,
                                 .optim = optim,
                                 .batch = SMALL_B,
                                 .accumulate = 1,
                                 .seq = SMALL_T,
                                 .tokens = m.tokens,
                                 .targets = m.targets,
                                 .probe = &probe };
        assert_ok(ddl_step_reserve(&step, &err), err);
        assert_ok(ddl_step_run(&step, 0, &result, &err), err);
        step.probe = &t.probe;
        assert_ok(ddl_step_run(&step, 0, &result, &err), err);
        assert_ok(ddl_telemetry_take_gradients(&t, optim, NULL, &err), err);
        assert_int_equal(t.rows, SMALL_B * SMALL_T);
        assert_int_equal(t.n_sublayers, ddl_inspect_n_sublayers(in));
        double squares = t.grad_embedding * t.grad_embedding + t.grad_head * t.grad_head;
        for (size_t l = 0; l < k.n_layers; l++)
            squares += t.grad_layers[l] * t.grad_layers[l];
        close_enough(sqrt(squares), result.grad_norm, 1e-9 * result.grad_norm, "gradient norms");
        double f_squares = 0; /* of the present sublayer's steps so far */
        for (size_t s = 0; s < t.n_sublayers; s++) {
            const struct ddl_telemetry_sublayer *found = &t.sublayers[s];
            size_t at = DDL_SUBLAYERS * found->layer + (size_t)found->sub;
            double f = seen.f[at], n_steps = (double)found->n_steps;
            compare_figures(found, ddl_inspect_sublayer(in, s));
            assert_true(found->gate_max == 0 || found->gate_max == 1 ||
                        found->gate_max == (double)k.beta_max);
            assert_int_equal(found->step, ddl_inspect_sublayer(in, s)->step);
            f_squares = (found->step ? f_squares : 0) + found->f_rms * found->f_rms / n_steps;
            if (found->step + 1 < found->n_steps)
                continue;
            close_enough(found->x_rms, seen.x[at], 1e-9 * seen.x[at], "x_rms");
            if (f > 0)
                close_enough(sqrt(f_squares), f, 1e-9 * f, "f_rms");
            else /* added in place */
                assert_true(residual_rule_of(&k, found->layer)->adds_in_place && found->f_rms > 0);
            if (k.residual == DDL_RESIDUAL_ATTNRES && at % k.attnres_block == 0) /* X' is f */
                close_enough(found->f_rms, found->x_rms, 1e-9 * found->x_rms, "f_rms of a part");
        }
        ddl_telemetry_free(&t);
        ddl_inspect_free(in);
        ddl_step_release(&step);
        ddl_optim_free(optim);
        small_model_free(&m);
    }
}

/* The gradient norm of each layer is that of its parameters, which are named. */
static void norms_of_variant(const struct small_variant *variant)
{
    struct small_model m;
    struct ddl_error err;
    struct ddl_telemetry t;
    struct ddl_optim *optim;
    struct ddl_loss loss;
    const struct ddl_optim_config config = ddl_optim_defaults();
    const struct ddl_config k = variant_config(variant);
    small_model_make(&m, "ref", &k, DDL_PRECISION_F32);
    assert_ok(ddl_optim_create(&optim, m.model, &config, &err), err);
    assert_ok(ddl_telemetry_init(&t, m.model, SMALL_B * SMALL_T, &err), err);
    assert_ok(ddl_model_backward(m.model, m.ws, &m.batch, 1, &loss, &err), err);
    assert_ok(ddl_telemetry_take_gradients(&t, optim, NULL, &err), err);
    double layers[8] = { 0 }, embedding = 0, head = 0;
    float *gradients = all_gradients(m.model), *at = gradients;
    for (size_t i = 0; i < ddl_model_n_params(m.model); i++) {
        const struct ddl_param *row = ddl_model_param(m.model, i);
        double sum = 0;
        unsigned layer;
        for (size_t n = 0; n < row->count; n++)
            sum += (double)at[n] * (double)at[n];
        at += row->count;
        if (sscanf(row->name, "transformer.h.%u.", &layer) == 1)
            layers[layer] += sum;
        else if (sscanf(row->name, "transformer.dwa.%u.", &layer) == 1) /* numbered by the blocks so far */
            layers[layer - 1] += sum;
        else if (strstr(row->name, "embed") || strstr(row->name, "wte"))
            embedding += sum;
        else
            head += sum;
    }
    close_enough(t.grad_embedding, sqrt(embedding), 1e-9, "embedding");
    close_enough(t.grad_head, sqrt(head), 1e-9, "head");
    for (size_t l = 0; l < k.n_layers; l++)
        close_enough(t.grad_layers[l], sqrt(layers[l]), 1e-9, "layer");
    free(gradients);
    ddl_telemetry_free(&t);
    ddl_optim_free(optim);
    small_model_free(&m);
}

static void norms_are_by_layer(void **state)
{
    (void)state;
    for (size_t i = 0; i < SMALL_VARIANTS; i++)
        norms_of_variant(&small_variants[i]);
}

/* Of a larger micro-batch only some rows are copied, but every gate is counted: per feature those of the
 * copied rows. The values are numbers that JSON can have. */
static void larger_batches_are_sampled(void **state)
{
    (void)state;
    for (int per_feature = 0; per_feature < 2; per_feature++) {
        struct ddl_error err;
        struct ddl_train_config t = a_run("highway", test_backend(0), "sampled");
        t.config.per_feature = per_feature;
        t.batch = 20;
        t.accumulate = 1;
        t.telemetry_every = 8;
        assert_ok(ddl_train_run(&t, NULL, NULL, &err), err);
        char *records = lines_of(t.out, true);
        json_t *record = json_loads(records, JSON_DISABLE_EOF_CHECK, NULL);
        assert_int_equal(json_integer_value(json_object_get(record, "rows")), DDL_TELEMETRY_ROWS);
        json_t *sublayers = json_object_get(record, "sublayers"), *sublayer;
        size_t i, bin;
        assert_int_equal(json_array_size(sublayers), 2 * t.config.n_layers);
        json_array_foreach(sublayers, i, sublayer)
        {
            json_int_t total = 0, n = json_integer_value(json_object_get(sublayer, "gate_values"));
            json_t *count;
            json_array_foreach(json_object_get(sublayer, "histogram"), bin, count) total +=
                json_integer_value(count);
            assert_int_equal(total, n);
            assert_int_equal(n, per_feature ? DDL_TELEMETRY_ROWS * t.config.d_model : 20 * 16);
        }
        json_decref(record);
        free(records);
    }
}

/* A log with records is read as one without. */
static void the_log_is_read(void **state)
{
    (void)state;
    struct ddl_error err;
    struct ddl_run_log log;
    struct ddl_train_config t = a_run("gated", "ref", "log");
    t.telemetry_every = 1;
    assert_ok(ddl_train_run(&t, NULL, NULL, &err), err);
    assert_ok(ddl_run_log_read(&log, t.out, &err), err);
    assert_int_equal(log.n, 9);
    for (size_t i = 0; i < log.n; i++)
        assert_int_equal(log.points[i].step, i);
    assert_int_equal(log.recipe->telemetry_every, 1);
    ddl_run_log_free(&log);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(changes_nothing),
        cmocka_unit_test(has_its_steps),
        cmocka_unit_test(intervals),
        cmocka_unit_test(survives_a_stop),
        cmocka_unit_test(has_the_figures_of_inspect),
        cmocka_unit_test(norms_are_by_layer),
        cmocka_unit_test(larger_batches_are_sampled),
        cmocka_unit_test(the_log_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
