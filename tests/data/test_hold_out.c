/* Tests data/hold_out.c through builds: where the selection of documents leaves a set empty, the end of the
 * text is held out. Training and validation text together are the whole text, whatever the form of the input,
 * the shard size and the number of threads. */
#define _POSIX_C_SOURCE 200809L
#include "data/pack.h"
#include "support/tokenizer.h"

#include "ddl/data.h"

#include <math.h>

enum { END_OF_TEXT = 0 };

static struct ddl_build_config config_for(const char *out, double share)
{
    struct ddl_build_config c = ddl_build_defaults();
    snprintf(c.tokenizer, sizeof c.tokenizer, "%s", tokenizer_path);
    snprintf(c.out, sizeof c.out, "%s", scratch_path(out));
    c.val_fraction = share;
    c.threads = 2;
    remove_scratch(out);
    return c;
}

static struct ddl_build_result build(const struct ddl_build_config *c, const char *input)
{
    struct ddl_error err;
    struct ddl_build_result result;
    assert_ok(ddl_data_build(c, &input, 1, NULL, NULL, &result, &err), err);
    return result;
}

/* Appends the text of a set of shards to `text`, which has *size bytes; returns the number of documents. */
static uint64_t append_text(const char *pattern, char *text, size_t *size)
{
    struct ddl_error err;
    ddl_shards *shards;
    uint64_t documents = 0;
    assert_ok(ddl_shards_open(&shards, scratch_path(pattern), &err), err);
    for (uint64_t at = 0; at < ddl_shards_count(shards); at++) {
        int32_t id;
        ddl_shards_read(shards, at, 1, &id);
        size_t n;
        const char *bytes = ddl_tokenizer_bytes(tokenizer, id, &n);
        assert_true((id == END_OF_TEXT) || at > 0);
        documents += id == END_OF_TEXT;
        if (id == END_OF_TEXT)
            continue;
        memcpy(text + *size, bytes, n);
        *size += n;
    }
    ddl_shards_close(shards);
    return documents;
}

/* Checks that the folder "out" has the whole text and agrees with the result; returns where validation
 * begins. */
static size_t check_build(const struct ddl_build_result *r, const char *text, size_t size)
{
    char *found = malloc(size + 1);
    size_t n = 0, cut;
    assert_non_null(found);
    assert_int_equal(append_text("out/train_*.bin", found, &n), r->documents[0]);
    assert_int_equal(r->bytes[0], cut = n);
    assert_int_equal(append_text("out/val_*.bin", found, &n), r->documents[1]);
    assert_int_equal(r->bytes[1], n - cut);
    assert_int_equal(n, size);
    assert_memory_equal(found, text, size);
    free(found);
    return cut;
}

static void assert_share(const struct ddl_build_result *r, double share, double tolerance)
{
    double found = (double)r->tokens[1] / (double)(r->tokens[0] + r->tokens[1]);
    if (fabs(found - share) > tolerance)
        fail_msg("a share of %g instead of %g", found, share);
}

/* One document of a thousand lines, for several seeds: the document is selected for either set. */
static void one_document(void **state)
{
    (void)state;
    static const double shares[] = { 0.05, 0.5, 0.9 };
    size_t size;
    char *text = read_file(source_path("tests/golden/tokenizer-train/shakespeare.txt"), &size);
    write_file(scratch_path("one.txt"), text, size);
    for (size_t i = 0; i < 3; i++) {
        for (uint64_t seed = 0; seed < 4; seed++) {
            struct ddl_build_config c = config_for("out", shares[i]);
            c.seed = seed;
            c.shard_tokens = seed % 2 ? 100000000 : 997;
            struct ddl_build_result r = build(&c, scratch_path("one.txt"));
            assert_string_equal(r.end_held_out, "line");
            assert_int_equal(r.documents[0], 1);
            assert_int_equal(r.documents[1], 1);
            assert_share(&r, shares[i], 0.01);
            size_t cut = check_build(&r, text, size);
            assert_int_equal(text[cut - 1], '\n');
        }
    }
    free(text);
}

static void write_packed(const char *path, pack_fn *pack, const char *text, size_t size)
{
    size_t packed;
    unsigned char *bytes = pack(text, size, &packed);
    write_file(path, bytes, packed);
    free(bytes);
}

/* The shards depend neither on the form of the input nor on the threads. */
static void forms_of_the_input(void **state)
{
    (void)state;
    static const char text[] =
        "A line.\nAnother line, the second one.\nA third \xC3\xA9.\nA fourth.\nThe end.\n",
                      json[] = "{\"text\": \"A line.\\nAnother line, the second one.\\nA third \\u00e9.\\nA "
                               "fourth.\\nThe end.\\n\"}\n";
    static const char *const names[] = { "f.txt", "f.txt.gz", "f.txt.zst", "f.jsonl" };
    write_file(scratch_path("f.txt"), text, sizeof text - 1);
    write_file(scratch_path("f.jsonl"), json, sizeof json - 1);
    write_packed(scratch_path("f.txt.gz"), pack_gzip, text, sizeof text - 1);
    write_packed(scratch_path("f.txt.zst"), pack_zstd, text, sizeof text - 1);
    struct ddl_build_config first = config_for("first", 0.3);
    build(&first, scratch_path(names[0]));
    for (size_t i = 0; i < 4; i++) {
        struct ddl_build_config c = config_for("out", 0.3);
        c.threads = i + 1;
        struct ddl_build_result r = build(&c, scratch_path(names[i]));
        assert_string_equal(r.end_held_out, "line");
        assert_same_file(scratch_path("first/train_000000.bin"), scratch_path("out/train_000000.bin"));
        assert_same_file(scratch_path("first/val_000000.bin"), scratch_path("out/val_000000.bin"));
    }
}

/* Where a text is cut, and what the result says about it. */
static void boundaries(void **state)
{
    (void)state;
    static const struct {
        const char *text, *at, *val;
        double share;
    } cases[] = {
        { "one two three four five six seven eight nine ten", "word", " ten", 0.05 },
        { "one two three four\nfive six seven eight nine ten", "line", "five six seven eight nine ten", 0.6 },
        { "first document\n<|endoftext|>\nsecond document", "document", "second document", 0.4 },
        { "\xE6\x97\xA5\xE6\x9C\xAC\xE8\xAA\x9E\xE3\x81\xAE\xE6\x96\x87", "character", "\xE6\x96\x87", 0.05 },
        { "\x80\x81\x82\x83\x84\x85", "character", "\x85", 0.05 }, /* not UTF-8 */
        { "a b", "word", " b", 0.01 },
        { "a b", "word", " b", 0.99 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bool checked = false;
        write_file(scratch_path("in.txt"), cases[i].text, strlen(cases[i].text));
        for (uint64_t seed = 0; seed < 30 && !checked; seed++) { /* until the selection leaves a set empty */
            struct ddl_build_config c = config_for("out", cases[i].share);
            c.seed = seed;
            struct ddl_build_result r = build(&c, scratch_path("in.txt"));
            checked = r.end_held_out != NULL;
            if (!checked)
                continue;
            char val[256];
            size_t n = 0;
            assert_string_equal(r.end_held_out, cases[i].at);
            append_text("out/val_*.bin", val, &n);
            assert_int_equal(n, strlen(cases[i].val));
            assert_memory_equal(val, cases[i].val, n);
        }
        assert_true(checked);
    }
}

/* Many documents of which none is selected: the end of the last ones, and no document is lost. */
static void no_document_is_selected(void **state)
{
    (void)state;
    enum { N = 50 };
    FILE *file = fopen(scratch_path("many.jsonl"), "wb");
    assert_non_null(file);
    for (int i = 0; i < N; i++)
        fprintf(file, "{\"text\": \"document number %d of a few words\"}\n", i);
    fclose(file);
    struct ddl_build_config c = config_for("out", 0.001);
    struct ddl_build_result r = build(&c, scratch_path("many.jsonl"));
    assert_non_null(r.end_held_out);
    assert_int_equal(r.documents[1], 1);
    assert_int_equal(r.documents[0] + r.documents[1], N + 1); /* the last one is divided */
    assert_true(r.tokens[1] >= 2);
    c = config_for("out", 0.2); /* the usual selection */
    r = build(&c, scratch_path("many.jsonl"));
    assert_null(r.end_held_out);
    assert_int_equal(r.documents[0] + r.documents[1], N);
}

static void too_short(void **state)
{
    (void)state;
    struct ddl_build_config c = config_for("out", 0.1);
    const char *input = scratch_path("word.txt");
    struct ddl_error err;
    write_file(input, "word", 4);
    assert_int_equal(ddl_data_build(&c, &input, 1, NULL, NULL, NULL, &err), DDL_E_FORMAT);
    assert_says(&err, "val_fraction: a text of 1 token cannot be divided");
    assert_false(ddl_file_exists(scratch_path("out")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_document), cmocka_unit_test(forms_of_the_input),
        cmocka_unit_test(boundaries),   cmocka_unit_test(no_document_is_selected),
        cmocka_unit_test(too_short),
    };
    return cmocka_run_group_tests(tests, learn_tokenizer, unload_tokenizer);
}
