/* bench/step.c, products.c and check.c: rows add up, products are those of a step, a wrong backend is not
 * timed and a correct one is, on every instruction set. */
#include "support/backends.h"
#include "support/faulty_backend.h"
#include "support/properties.h"

#include "ddl/bench.h"
#include "support/files.h"

#include <math.h>

static struct ddl_bench_step_config small(const char *preset, enum ddl_precision precision)
{
    struct ddl_config k = ddl_config_defaults();
    struct ddl_error err;
    assert_ok(ddl_config_set_preset(&k, preset, &err), err);
    assert_ok(ddl_config_set_size(&k, "micro", &err), err);
    k.n_layers = 2;
    k.n_heads = 2;
    k.d_model = 64;
    k.head_dim = 32;
    k.vocab_size = 61;
    k.block_size = 16;
    return (struct ddl_bench_step_config){
        .at = { .model = k, .precision = precision, .batch = 1, .seq = 16, .warmup = 1, .steps = 3 }
    };
}

static struct ddl_bench_report report;

static void a_step_is_timed(void **state)
{
    (void)state;
    struct ddl_error err;
    struct ddl_bench_step_config config = small("ddl-cc-ec", DDL_PRECISION_F32);
    ddl_backend *backend = open_test_backend(1);
    config.at.profiled = 2;
    assert_ok(ddl_bench_step(&config, backend, &report, &err), err);
    double sum = 0;
    for (size_t i = 0; i < report.n_shares; i++) {
        sum += report.share[i].seconds;
        assert_true(i == 0 || report.share[i].seconds <= report.share[i - 1].seconds);
    }
    const struct ddl_bench_row *step = ddl_bench_find(&report, "step");
    assert_true(step->best <= step->q1 && step->q1 <= step->median && step->median <= step->q3);
    assert_true(step->q3 <= step->worst && step->best > 0 && step->repetitions == 3);
    assert_true(sum > 0 && sum <= ddl_bench_figure(&report, "profiled_s"));
    assert_true(ddl_bench_figure(&report, "tokens_per_s") == 16 / step->median);
    assert_null(ddl_bench_find(&report, "products"));
    config.at.precision = DDL_PRECISION_INT8; /* not for training */
    assert_int_equal(ddl_bench_step(&config, backend, &report, &err), DDL_E_USAGE);
    config.at.precision = (enum ddl_precision)(DDL_PRECISION_INT8 + 1);
    assert_int_equal(ddl_bench_step(&config, backend, &report, &err), DDL_E_USAGE);
    config.at.precision = DDL_PRECISION_F32;
    config.at.recompute = DDL_RECOMPUTES;
    assert_int_equal(ddl_bench_step(&config, backend, &report, &err), DDL_E_USAGE);
    config.at.recompute = DDL_RECOMPUTE_ELEMENTWISE;
    config.at.steps = 0;
    assert_int_equal(ddl_bench_step(&config, backend, &report, &err), DDL_E_USAGE);
    ddl_backend_free(backend);
}

static const struct ddl_bench_share *share_of(const struct ddl_bench_report *r, const char *op)
{
    for (size_t i = 0; i < r->n_shares; i++) {
        if (strcmp(r->share[i].op, op) == 0)
            return &r->share[i];
    }
    return NULL;
}

static size_t logits_of_device(void *ctx)
{
    (void)ctx;
    return DDL_DEVICE_LOGITS;
}

/* Ops that a kernel may compute with their neighbors: their time can be less than alone. */
static bool may_be_fused(const char *op)
{
    return strncmp(op, "delta_", 6) == 0 || strncmp(op, "compress_", 9) == 0 ||
           strncmp(op, "fold_", 5) == 0 || strcmp(op, "rmsnorm_fwd") == 0 ||
           strncmp(op, "project_", 8) == 0 || strncmp(op, "gated_", 6) == 0 ||
           strncmp(op, "streams_", 8) == 0 || strncmp(op, "hyper_", 6) == 0;
}

/* A planned step has the ops of a computed one with a device's blocks of logits, with the same operations and
 * traffic, and its time is that of the slower of the two at the device's rates. */
static void a_planned_step_is_the_computed_one(void **state)
{
    (void)state;
    static struct ddl_bench_report planned;
    struct ddl_error err;
    const char *preset;
    ddl_backend *real = open_test_backend(1);
    struct ddl_ops ops = *real->ops;
    ddl_backend blocks = *real, *backend = &blocks;
    ops.logit_block = logits_of_device;
    blocks.ops = &ops;
    for (size_t i = 0; (preset = ddl_config_preset_list(i, NULL)); i++) {
        struct ddl_bench_step_config config = small(preset, i % 2 ? DDL_PRECISION_F32 : DDL_PRECISION_BF16);
        if (!test_takes(i, 4))
            continue;
        config.at.steps = config.at.profiled = 1;
        assert_ok(ddl_bench_step(&config, backend, &report, &err), err);
        assert_ok(ddl_bench_device_parse("2GB/s, 3TFLOP/s", &config.device, &err), err);
        assert_ok(ddl_bench_step(&config, backend, &planned, &err), err);
        assert_int_equal(planned.n_shares, report.n_shares);
        double sum = 0;
        for (size_t k = 0; k < planned.n_shares; k++) {
            const struct ddl_bench_share *a = &planned.share[k], *b = share_of(&report, a->op);
            assert_non_null(b);
            assert_true(a->calls == b->calls && a->flops == b->flops && a->bytes == b->bytes);
            assert_true(may_be_fused(a->op) || a->seconds >= 0.999 * fmax(a->flops / 3e12, a->bytes / 2e9));
            sum += a->seconds;
        }
        assert_true(fabs(sum - ddl_bench_figure(&planned, "predicted_step_s")) <= 1e-9 * sum);
    }
    ddl_backend_free(real);
}

/* With s the numbers of x_in, a state of four channels is 4 s. Between two sublayers a kernel spares,
 * forward, reading the state to compress it and x_in to normalize it; backward, reading the state and its
 * gradient and writing the gradient, 12 s, before the update, and the same reading as forward after it. With
 * one channel it spares reading the state to normalize it. Of four streams that are mixed, it spares reading
 * them and x_in forward, their gradient, that of the 24 weights and x_in backward; the last sublayer's are
 * written alone, and the first's are read alone. A gate and a target are projections of rows that the norm
 * before them has, s each. With the gradients of the norm, those of a gate, and of a target that reads x_in,
 * need neither to read rows nor to read and write their gradients, 3 s each; the target of ddl-mix reads the
 * normalized row, and its gate is computed alone.
 */
static void a_fused_kernel_reads_a_state_once(void **state)
{
    (void)state;
    static const struct {
        const char *preset;
        double spared; /* s, by each sublayer */
        double ends;   /* less by the first and the last */
    } cases[] = { { "ddl-cc", 5 + 12 + 5 + 2 + 3 + 3, 0 },
                  { "ddl-mix", 5 + 12 + 5 + 2 + 3, 0 },
                  { "ddl-tc", 5 + 12 + 5 + 2 + 3 + 3, 0 },
                  { "ddl-1", 1 + 1 + 2 + 3 + 3, 0 },
                  { "gated", 1 + 1 + 1 + 3, 0 },
                  { "laurel", 1, 0 },
                  { "hyper", 5 + 5 + 24.0 / 64, 4 + 5 + 24.0 / 64 } };
    struct ddl_error err;
    ddl_backend *backend = open_test_backend(1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ddl_bench_step_config config = small(cases[i].preset, DDL_PRECISION_F32);
        const struct ddl_config *k = &config.at.model;
        config.at.batch = 512; /* much more than the weights */
        assert_ok(ddl_bench_device_parse("1GB/s 1000000PFLOP/s", &config.device, &err), err);
        assert_ok(ddl_bench_step(&config, backend, &report, &err), err);
        const double s = 4.0 * (double)(config.at.batch * config.at.seq * k->d_model);
        double spared = -1e9 * ddl_bench_figure(&report, "predicted_step_s"), all = 0;
        for (size_t j = 0; j < report.n_shares; j++)
            all += report.share[j].bytes;
        spared += all;
        close_enough(spared / s, 2.0 * (double)k->n_layers * cases[i].spared - cases[i].ends, 0.1,
                     cases[i].preset);
    }
    ddl_backend_free(backend);
}

static void rates_are_read(void **state)
{
    (void)state;
    struct ddl_bench_device device;
    struct ddl_error err;
    assert_ok(ddl_bench_device_parse("3.0TB/s 790TFLOP/s", &device, &err), err);
    assert_true(device.bytes_per_s == 3e12 && device.flops_per_s == 790e12 && device.seconds_per_call == 0);
    assert_ok(ddl_bench_device_parse("4.3TB/s 0.79PFLOP/s 1.5us", &device, &err), err);
    assert_true(device.flops_per_s == 790e12 && device.seconds_per_call == 1.5e-6);
    static const char *const wrong[] = { "",
                                         "3",
                                         "3TB/s",
                                         "3TB/s 790",
                                         "790TFLOP/s 3TB/s",
                                         "-1TB/s 1TFLOP/s",
                                         "3KB/s 1TFLOP/s",
                                         "3TB/s 1TFLOP/s x",
                                         "3TB/s 1TFLOP/s 1ms",
                                         "3TB/s 1TFLOP/s -1us" };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(ddl_bench_device_parse(wrong[i], &device, &err), DDL_E_USAGE);
}

/* Three times the forward pass's 2 M N K of every matrix; attention's blocks and the norms of the count in
 * flops.c make the difference. */
static void products_are_those_of_the_step(void **state)
{
    (void)state;
    struct ddl_error err;
    for (int precision = 0; precision < 2; precision++) {
        struct ddl_bench_step_config config = small("baseline", (enum ddl_precision)precision);
        const struct ddl_config *k = &config.at.model;
        ddl_backend *backend = open_test_backend(2);
        config.products = true;
        assert_ok(ddl_bench_step(&config, backend, &report, &err), err);
        const struct ddl_bench_row *products = ddl_bench_find(&report, "products"),
                                   *step = ddl_bench_find(&report, "step");
        double d = (double)k->d_model, a = (double)(k->n_heads * k->head_dim),
               m = (double)ddl_config_mlp_size(k);
        double layer = 4 * d * a + 3 * d * m, head = d * (double)k->vocab_size, pairs = 16 * 17 / 2.0;
        /* in bfloat16 the logits are computed twice, unless the backend wants whole rows */
        bool twice = precision && !backend->ops->logit_block(backend->ctx);
        double expected = 16 * 2 * (3 * (double)k->n_layers * layer + (twice ? 4 : 3) * head) +
                          14 * pairs * a * (double)k->n_layers;
        assert_true(fabs(products->flops - expected) < 1e-9 * expected);
        assert_true(products->best > 0);
        assert_true(ddl_bench_figure(&report, "step_over_products") == step->median / products->median);
        ddl_backend_free(backend);
    }
}

static void every_model_is_timed_on_every_isa(void **state)
{
    (void)state;
    struct ddl_error err;
    const char *preset;
    size_t cases = 0; /* a sample has others for each instruction set */
    for (size_t isa = 0; isa_name(isa); isa++) {
        ddl_backend *backend = cpu_backend(isa_name(isa), 2);
        for (size_t i = 0; backend && (preset = ddl_config_preset_list(i, NULL)); i++) {
            if (!test_takes(cases++, 4))
                continue;
            struct ddl_bench_step_config config = small(preset, DDL_PRECISION_BF16);
            config.at.steps = 1;
            assert_ok(ddl_bench_step(&config, backend, &report, &err), err);
        }
        ddl_backend_free(backend);
    }
}

static void a_wrong_backend_is_not_timed(void **state)
{
    (void)state;
    static const struct {
        const char *fault, *preset;
        enum ddl_precision precision;
    } faults[] = {
        { "matmul", "baseline", DDL_PRECISION_F32 },
        { "rmsnorm_fwd", "ddl-1", DDL_PRECISION_F32 },
        { "attention_bwd", "baseline", DDL_PRECISION_F32 },
        { "delta_bwd", "ddl-tc", DDL_PRECISION_F32 },
        { "adamw idle", "ddl-1", DDL_PRECISION_F32 },
        { "matmul_bf16", "ddl-cc-ec", DDL_PRECISION_BF16 },
        { "matmul_bf16 term", "ddl-tc", DDL_PRECISION_BF16 },
        { "matmul_bf16 rounded", "baseline", DDL_PRECISION_BF16 },
        { "truncate", "ddl-cc", DDL_PRECISION_BF16 },
        { "adamw stale", "ddl-tc-ec", DDL_PRECISION_BF16 },
        { "rmsnorm_fwd", "ddl-1", DDL_PRECISION_BF16 },
        { "attention_bwd", "baseline", DDL_PRECISION_BF16 },
        { "delta_bwd", "ddl-tc", DDL_PRECISION_BF16 },
    };
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        struct ddl_bench_step_config config = small(faults[i].preset, faults[i].precision);
        struct ddl_error err;
        struct faulty_backend faulty;
        ddl_backend *backend = open_test_backend(1);
        faulty_backend_make(&faulty, backend, faults[i].fault);
        assert_int_equal(ddl_bench_step(&config, &faulty.backend, &report, &err), DDL_E_NUMERIC);
        assert_says(&err, "a wrong result is not timed");
        assert_int_equal(report.n_rows, 0);
        ddl_backend_free(backend);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_is_timed),
        cmocka_unit_test(a_planned_step_is_the_computed_one),
        cmocka_unit_test(a_fused_kernel_reads_a_state_once),
        cmocka_unit_test(rates_are_read),
        cmocka_unit_test(products_are_those_of_the_step),
        cmocka_unit_test(every_model_is_timed_on_every_isa),
        cmocka_unit_test(a_wrong_backend_is_not_timed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
