/* bench/tokenizer.c: a tokenizer is timed on text that it gives back. */
#include "bench/bench.h"
#include "support/files.h"
#include "support/runs.h"

#include <math.h>

static struct ddl_bench_report report;

static const char *saved_tokenizer(const char *name)
{
    static char path[1024];
    struct ddl_error err;
    ddl_tokenizer *tokenizer = tiny_tokenizer();
    snprintf(path, sizeof path, "%s", scratch_path(name));
    assert_ok(ddl_tokenizer_save(tokenizer, path, &err), err);
    ddl_tokenizer_free(tokenizer);
    return path;
}

static const char *text(const char *bytes, size_t size)
{
    static char path[1024];
    snprintf(path, sizeof path, "%s", scratch_path("text.txt"));
    write_file(path, bytes, size);
    return path;
}

static void text_is_timed(void **state)
{
    (void)state;
    static const char sample[] =
        "It was the best of times, it was the worst of times: \xf0\x9f\x8e\xbb \xff!";
    struct ddl_error err;
    struct ddl_bench_tokenizer_config config = { .tokenizer = saved_tokenizer("t.json"),
                                                 .text = text(sample, sizeof sample - 1),
                                                 .vocab_size = 262,
                                                 .steps = 3 };
    assert_ok(ddl_bench_tokenizer(&config, &report, &err), err);
    const struct ddl_bench_row *encode = ddl_bench_find(&report, "encode");
    assert_true(fabs(encode->units - 1e-6 * (sizeof sample - 1)) < 1e-12 && encode->repetitions == 3);
    assert_true(ddl_bench_find(&report, "decode")->best > 0 && ddl_bench_find(&report, "train")->best > 0);
    assert_true(ddl_bench_figure(&report, "encode_mb_per_s") == encode->units / encode->median);
    assert_true(ddl_bench_figure(&report, "bytes_per_token") >= 1);
    config.vocab_size = 0;
    assert_ok(ddl_bench_tokenizer(&config, &report, &err), err);
    assert_null(ddl_bench_find(&report, "train"));
}

/* Loading refuses vocabularies that lose bytes, so a wrong tokenizer is made of two right ones. */
static void a_lossy_tokenizer_is_not_timed(void **state)
{
    (void)state;
    static const char sample[] = "and then there is the other one, and the others";
    struct ddl_error err;
    ddl_tokenizer *tiny = tiny_tokenizer(), *gpt2;
    assert_ok(ddl_tokenizer_load(&gpt2, source_path("data/tokenizer"), &err), err);
    assert_ok(bench_check_text(tiny, tiny, sample, sizeof sample - 1, "tiny", &err), err);
    assert_ok(bench_check_text(gpt2, gpt2, sample, sizeof sample - 1, "gpt2", &err), err);
    assert_int_equal(bench_check_text(tiny, gpt2, sample, sizeof sample - 1, "both", &err), DDL_E_NUMERIC);
    assert_says(&err, "both: of 47 bytes the ids give back");
    assert_int_equal(bench_check_text(gpt2, tiny, sample, sizeof sample - 1, "both", &err), DDL_E_NUMERIC);
    ddl_tokenizer_free(tiny);
    ddl_tokenizer_free(gpt2);
}

static void what_is_missing_is_reported(void **state)
{
    (void)state;
    struct ddl_error err;
    struct ddl_bench_tokenizer_config config = { .tokenizer = saved_tokenizer("t.json"),
                                                 .text = scratch_path("absent.txt"),
                                                 .steps = 1 };
    assert_int_equal(ddl_bench_tokenizer(&config, &report, &err), DDL_E_IO);
    config.text = text("", 0);
    assert_int_equal(ddl_bench_tokenizer(&config, &report, &err), DDL_E_FORMAT);
    assert_says(&err, "no text in it");
    config.steps = DDL_BENCH_REPETITIONS + 1;
    assert_int_equal(ddl_bench_tokenizer(&config, &report, &err), DDL_E_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_timed),
        cmocka_unit_test(a_lossy_tokenizer_is_not_timed),
        cmocka_unit_test(what_is_missing_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
