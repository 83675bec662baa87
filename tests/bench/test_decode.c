/* bench/decode.c and check.c: decoding is timed where it is correct, on every instruction set. */
#include "support/backends.h"
#include "support/faulty_backend.h"
#include "support/models.h"

#include "ddl/bench.h"
#include "support/files.h"
#include "support/runs.h"

#include <math.h>

static struct ddl_bench_report report;

static struct ddl_bench_config tiny(const char *preset, enum ddl_precision precision)
{
    struct ddl_bench_config config = { .model = tiny_config(preset, 97),
                                       .precision = precision,
                                       .batch = 3,
                                       .seq = 9,
                                       .warmup = 1,
                                       .steps = 4 };
    config.model.d_model = 64; /* whole groups of eight-bit weights */
    return config;
}

/* What one step reads: each number of the model once, and keys and values. */
static void every_model_decodes(void **state)
{
    (void)state;
    struct ddl_error err;
    ddl_backend *backend = open_test_backend(2);
    const char *preset;
    for (size_t i = 0; (preset = ddl_config_preset_list(i, NULL)); i++) {
        for (size_t k = 0; k < TEST_PRECISIONS; k++) {
            struct ddl_bench_config config = tiny(preset, test_precisions[k]);
            assert_ok(ddl_bench_decode(&config, backend, &report, &err), err);
            const struct ddl_bench_row *one = ddl_bench_find(&report, "decode 1"),
                                       *three = ddl_bench_find(&report, "decode 3"),
                                       *prefill = ddl_bench_find(&report, "prefill");
            double weights = ddl_bench_figure(&report, "weight_bytes"),
                   numbers = ddl_bench_figure(&report, "parameters");
            assert_true(one->units == 1 && three->units == 3 && prefill->units == 9);
            assert_true(one->repetitions == 4 && one->bytes > weights && three->bytes > one->bytes);
            static const double most[] = { 4, 3, 2 };
            assert_true(weights <= most[k] * numbers && weights > numbers);
            assert_true(k || weights > 3.5 * numbers);
            assert_true(ddl_bench_figure(&report, "tokens_per_s") == 1 / one->median);
            assert_true(isnan(ddl_bench_figure(&report, "decode_over_read")));
            assert_int_equal(report.n_shares, 0);
        }
    }
    struct ddl_bench_config config = tiny("baseline", DDL_PRECISION_F32);
    config.seq = 0;
    assert_int_equal(ddl_bench_decode(&config, backend, &report, &err), DDL_E_USAGE);
    ddl_backend_free(backend);
}

/* Beside reads of as many bytes as the weights have; the rows before it are those of every benchmark. */
static void tokens_are_compared_with_reading_the_weights(void **state)
{
    (void)state;
    struct ddl_error err;
    ddl_backend *backend = open_test_backend(2);
    struct ddl_bench_config config = tiny("ddl-1", DDL_PRECISION_BF16);
    config.roofline = true;
    assert_ok(ddl_bench_decode(&config, backend, &report, &err), err);
    const struct ddl_bench_row *read = ddl_bench_find(&report, "read weights");
    assert_non_null(read);
    assert_true(read->bytes == ddl_bench_figure(&report, "weight_bytes"));
    assert_int_equal(read->repetitions, config.steps);
    assert_true(ddl_bench_figure(&report, "weights_read_s") == read->median && read->median > 0);
    assert_true(ddl_bench_figure(&report, "decode_over_read") > 0);
    ddl_backend_free(backend);
}

static void ops_of_a_token_are_timed(void **state)
{
    (void)state;
    struct ddl_error err;
    ddl_backend *backend = open_test_backend(2);
    struct ddl_bench_config config = tiny("ddl-cc-ec", DDL_PRECISION_INT8);
    config.profiled = 5;
    assert_ok(ddl_bench_decode(&config, backend, &report, &err), err);
    size_t layers = config.model.n_layers;
    double sum = 0, deltas = 0, products = 0;
    for (size_t i = 0; i < report.n_shares; i++) {
        const struct ddl_bench_share *share = &report.share[i];
        sum += share->seconds;
        deltas = strcmp(share->op, "delta_fwd") ? deltas : share->calls;
        products = strcmp(share->op, "matmul_q8") ? products : share->calls;
    }
    assert_true(sum > 0 && sum <= ddl_bench_figure(&report, "profiled_s"));
    assert_true(deltas == 2 * (double)layers && products == 4 * (double)layers + 1);
    ddl_backend_free(backend);
}

/* A cache in bfloat16 is read as such. */
static void the_cache_is_counted(void **state)
{
    (void)state;
    struct ddl_error err;
    ddl_backend *backend = open_test_backend(2);
    double bytes[DDL_CACHE_FORMS];
    for (int form = 0; form < DDL_CACHE_FORMS; form++) {
        struct ddl_bench_config config = tiny("baseline", DDL_PRECISION_BF16);
        config.cache = (enum ddl_cache_form)form;
        assert_ok(ddl_bench_decode(&config, backend, &report, &err), err);
        bytes[form] = ddl_bench_find(&report, "decode 1")->bytes - ddl_bench_figure(&report, "weight_bytes");
    }
    assert_true(bytes[DDL_CACHE_F32] == 2 * bytes[DDL_CACHE_BF16]);
    assert_true(bytes[DDL_CACHE_AUTO] == bytes[DDL_CACHE_BF16]);
    struct ddl_bench_config config = tiny("baseline", DDL_PRECISION_F32);
    config.cache = DDL_CACHE_FORMS;
    assert_int_equal(ddl_bench_decode(&config, backend, &report, &err), DDL_E_USAGE);
    ddl_backend_free(backend);
}

static void every_model_decodes_on_every_isa(void **state)
{
    (void)state;
    struct ddl_error err;
    const char *preset;
    size_t cases = 0; /* a sample has others for each instruction set */
    for (size_t isa = 0; isa_name(isa); isa++) {
        ddl_backend *backend = cpu_backend(isa_name(isa), 2);
        for (size_t i = 0; backend && (preset = ddl_config_preset_list(i, NULL)); i++) {
            for (size_t k = 0; k < TEST_PRECISIONS; k++) {
                if (!test_takes(cases++, 5))
                    continue;
                struct ddl_bench_config config = tiny(preset, test_precisions[k]);
                config.steps = config.batch = 1;
                assert_ok(ddl_bench_decode(&config, backend, &report, &err), err);
            }
        }
        ddl_backend_free(backend);
    }
}

static void a_wrong_backend_is_not_timed(void **state)
{
    (void)state;
    static const struct {
        const char *fault, *gist;
        enum ddl_precision precision;
    } faults[] = {
        { "rope_fwd", "decoded token by token", DDL_PRECISION_F32 },
        { "rope_fwd", "decoded token by token", DDL_PRECISION_BF16 },
        { "rope_fwd", "decoded token by token", DDL_PRECISION_INT8 },
        { "matmul", "a wrong result is not timed", DDL_PRECISION_F32 },
        { "matmul_bf16", "a wrong result is not timed", DDL_PRECISION_BF16 },
        { "matmul_bf16 term", "a wrong result is not timed", DDL_PRECISION_BF16 },
        { "truncate", "cast_bf16", DDL_PRECISION_BF16 },
        { "matmul_q8 term", "a wrong result is not timed", DDL_PRECISION_INT8 },
    };
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        struct ddl_bench_config config = tiny("ddl-cc-ec", faults[i].precision);
        struct ddl_error err;
        struct faulty_backend faulty;
        ddl_backend *backend = open_test_backend(2);
        faulty_backend_make(&faulty, backend, faults[i].fault);
        assert_int_equal(ddl_bench_decode(&config, &faulty.backend, &report, &err), DDL_E_NUMERIC);
        assert_says(&err, faults[i].gist);
        assert_int_equal(report.n_rows, 0);
        ddl_backend_free(backend);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_model_decodes),
        cmocka_unit_test(tokens_are_compared_with_reading_the_weights),
        cmocka_unit_test(ops_of_a_token_are_timed),
        cmocka_unit_test(the_cache_is_counted),
        cmocka_unit_test(every_model_decodes_on_every_isa),
        cmocka_unit_test(a_wrong_backend_is_not_timed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
