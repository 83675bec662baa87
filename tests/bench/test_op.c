/* bench/op.c: every op of ops.h is checked and timed, a wrong one is not. */
#include "support/faulty_backend.h"

#include "bench/bench.h"
#include "ops/cases.h"
#include "support/files.h"

static struct ddl_bench_report report;

static struct ddl_bench_op_config tiny(const char *preset, const char *filter)
{
    struct ddl_config k = ddl_config_defaults();
    struct ddl_error err;
    assert_ok(ddl_config_set_preset(&k, preset, &err), err);
    assert_ok(ddl_config_set_size(&k, "micro", &err), err);
    k.d_model = 48;
    k.vocab_size = 601;
    k.block_size = 100;
    return (struct ddl_bench_op_config){ .at = { .model = k, .batch = 2, .seq = 100, .steps = 1 },
                                         .filter = filter };
}

static void every_op_of_every_model(void **state)
{
    (void)state;
    struct ddl_error err;
    ddl_backend *backend = open_test_backend(2);
    const char *preset;
    for (size_t i = 0; (preset = ddl_config_preset_list(i, NULL)); i++) {
        struct ddl_bench_op_config config = tiny(preset, NULL);
        if (!test_takes(i, 5))
            continue;
        assert_ok(ddl_bench_op(&config, backend, &report, &err), err);
        for (size_t r = 0; r < report.n_rows; r++)
            assert_true(report.row[r].median > 0 && report.row[r].bytes > 0);
    }
    ddl_backend_free(backend);
}

/* Every op has a case that is timed. */
static void no_op_is_missing(void **state)
{
    (void)state;
    size_t n;
    const struct ddl_op_case *cases = ddl_op_cases(&n);
    for (int op = 0; op < DDL_OP_COUNT; op++) {
        size_t i = 0;
        while (i < n && ((int)cases[i].op != op || cases[i].check_only))
            i++;
        if (i == n)
            fail_msg("%s has no case", ddl_op_name((enum ddl_op)op));
    }
}

static void known_amounts(void **state)
{
    (void)state;
    struct ddl_error err;
    ddl_backend *backend = open_test_backend(1);
    struct ddl_bench_op_config config = tiny("ddl-cc-ec", "matmul.mlp.fwd");
    double m = (double)ddl_config_mlp_size(&config.at.model);
    assert_ok(ddl_bench_op(&config, backend, &report, &err), err);
    assert_int_equal(report.n_rows, 1);
    assert_true(report.row[0].flops == 2 * 200 * 48 * m);
    assert_true(report.row[0].bytes == 4 * (200 * m + m * 48 + 200 * 48));
    config.filter = "bias_fwd";
    config.at.steps = 4;
    assert_ok(ddl_bench_op(&config, backend, &report, &err), err);
    assert_true(report.row[0].bytes == 4 * (2 * 200 * 48 + 48) && report.row[0].repetitions == 4);
    config.filter = "frobnicate";
    assert_int_equal(ddl_bench_op(&config, backend, &report, &err), DDL_E_USAGE);
    assert_says(&err, "no op's name contains 'frobnicate'");
    config.filter = "";
    config.at.seq = 0;
    assert_int_equal(ddl_bench_op(&config, backend, &report, &err), DDL_E_USAGE);
    ddl_backend_free(backend);
}

static void a_wrong_op_is_not_timed(void **state)
{
    (void)state;
    static const struct {
        const char *fault, *op;
    } faults[] = {
        { "matmul", "matmul" },
        { "matmul_bf16", "matmul_bf16" },
        { "matmul_bf16 term", "matmul_bf16" },
        { "matmul_bf16 rounded", "matmul_bf16" },
        { "matmul_q8 term", "matmul_q8" },
        { "truncate", "cast_bf16" },
        { "truncate", "copy_bf16" },
        { "rmsnorm_fwd", "rmsnorm_fwd" },
        { "attention_bwd", "attention_bwd" },
        { "delta_bwd", "delta_bwd" },
        { "adamw", "adamw" },
        { "adamw stale", "adamw" },
    };
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        struct ddl_bench_op_config config = tiny("ddl-cc-ec", faults[i].op);
        struct ddl_error err;
        struct faulty_backend faulty;
        char gist[64];
        ddl_backend *backend = open_test_backend(1);
        faulty_backend_make(&faulty, backend, faults[i].fault);
        assert_int_equal(ddl_bench_op(&config, &faulty.backend, &report, &err), DDL_E_NUMERIC);
        snprintf(gist, sizeof gist, "bench op: %s", faults[i].op);
        assert_says(&err, gist);
        assert_says(&err, "a wrong result is not timed");
        assert_int_equal(report.n_rows, 0);
        ddl_backend_free(backend);
    }
}

static void the_machine(void **state)
{
    (void)state;
    struct ddl_error err;
    ddl_backend *backend = open_test_backend(0);
    struct ddl_bench_op_config config = tiny("ddl-cc-ec", "copy");
    config.at.roofline = true;
    assert_ok(ddl_bench_op(&config, backend, &report, &err), err);
    const struct ddl_bench_roofline *r = &report.roofline;
    assert_true(r->gemm_f32 > 1e8 && r->gemm_bf16 > 1e7 && r->copy > 1e8 && r->read > 1e8);
    ddl_backend_free(backend);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_op_of_every_model),
        cmocka_unit_test(no_op_is_missing),
        cmocka_unit_test(known_amounts),
        cmocka_unit_test(a_wrong_op_is_not_timed),
        cmocka_unit_test(the_machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
