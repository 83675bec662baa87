/* Tests the GPT-2 tokenizer: all golden cases, round trips of random bytes, streaming, special tokens,
 * threads. */
#include "support/support.h"

#include "base/file.h"
#include "base/rng.h"
#include "ddl/tokenizer.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static ddl_tokenizer *gpt2;

static int set_up(void **state)
{
    (void)state;
    struct ddl_error err;
    ddl_status status = ddl_tokenizer_load(&gpt2, source_path("data/tokenizer"), &err);
    if (status)
        print_error("%s\n", err.text);
    return (int)status;
}

static int tear_down(void **state)
{
    (void)state;
    ddl_tokenizer_free(gpt2);
    return 0;
}

/* Returns a newly allocated list; the caller frees it. */
static struct ddl_ids encode(const ddl_tokenizer *t, const char *text, size_t size, bool special)
{
    struct ddl_ids ids = { 0 };
    struct ddl_error err;
    assert_ok(ddl_tokenizer_encode(t, text, size, special, &ids, &err), err);
    return ids;
}

/* Returns the number of golden cases that t encodes to other ids. */
static size_t failures(const ddl_tokenizer *t, size_t *n_cases)
{
    char *file;
    size_t size, failed = 0;
    struct ddl_error err;
    assert_ok(ddl_file_read(source_path("tests/golden/tokenizer/cases.jsonl"), 1 << 24, &file, &size, &err),
              err);
    *n_cases = 0;
    for (char *line = file; *line;) {
        size_t n = strcspn(line, "\n");
        json_t *root = json_loadb(line, n, JSON_ALLOW_NUL, NULL);
        const json_t *text = json_object_get(root, "text"), *wanted = json_object_get(root, "ids");
        assert_true(json_is_string(text) && json_is_array(wanted));
        struct ddl_ids ids = encode(t, json_string_value(text), json_string_length(text), false);
        bool same = ids.n == json_array_size(wanted);
        for (size_t i = 0; same && i < ids.n; i++)
            same = json_integer_value(json_array_get(wanted, i)) == ids.ids[i];
        failed += !same;
        ++*n_cases;
        ddl_ids_free(&ids);
        json_decref(root);
        line += n + (line[n] != '\0');
    }
    free(file);
    return failed;
}

static void golden_cases(void **state)
{
    (void)state;
    size_t n;
    assert_int_equal(failures(gpt2, &n), 0);
    assert_int_equal(n, 644);
}

/* The same tokenizer, saved as tokenizer.json and loaded again. */
static void golden_cases_from_json(void **state)
{
    (void)state;
    ddl_tokenizer *t;
    struct ddl_error err;
    size_t n;
    const char *path = scratch_path("gpt2.json");
    assert_ok(ddl_tokenizer_save(gpt2, path, &err), err);
    assert_ok(ddl_tokenizer_load(&t, path, &err), err);
    assert_int_equal(failures(t, &n), 0);
    assert_int_equal(ddl_tokenizer_vocab_size(t), 50257);
    assert_int_equal(ddl_tokenizer_end_of_text(t), 50256);
    ddl_tokenizer_free(t);
}

static void facts(void **state)
{
    (void)state;
    int32_t id;
    size_t size;
    assert_int_equal(ddl_tokenizer_vocab_size(gpt2), 50257);
    assert_int_equal(ddl_tokenizer_n_merges(gpt2), 50000);
    assert_int_equal(ddl_tokenizer_end_of_text(gpt2), 50256);
    assert_memory_equal(ddl_tokenizer_special(gpt2, 0, &id, &size), "<|endoftext|>", 13);
    assert_int_equal(id, 50256);
    assert_int_equal(size, 13);
    assert_null(ddl_tokenizer_special(gpt2, 1, &id, &size));
    assert_memory_equal(ddl_tokenizer_bytes(gpt2, 995, &size), " world", 6);
    assert_int_equal(size, 6);
    assert_null(ddl_tokenizer_bytes(gpt2, -1, &size));
    assert_null(ddl_tokenizer_bytes(gpt2, 50257, &size));
    assert_int_equal(size, 0);
}

/* Decodes as a stream; checks that the output ends at whole characters as long as the text is valid. */
static void decode_is(const struct ddl_ids *ids, const char *text, size_t size)
{
    struct ddl_decode_stream stream = { 0 };
    char *out = malloc(size + 256);
    size_t n = 0;
    assert_non_null(out);
    for (size_t i = 0; i < ids->n; i++)
        n += ddl_decode_push(&stream, gpt2, ids->ids[i], out + n, size + 256 - n);
    n += ddl_decode_flush(&stream, out + n, size + 256 - n);
    assert_int_equal(n, size);
    assert_memory_equal(out, text, size);
    free(out);
}

static void random_bytes_round_trip(void **state)
{
    (void)state;
    uint64_t key = ddl_rng_key(1, "bytes"), draw = 0;
    for (int round = 0; round < 3000; round++) {
        char text[300];
        size_t size = ddl_rng_below(key, draw++, sizeof text);
        /* all bytes; only those that form characters; only high bytes */
        static const struct {
            unsigned low, n;
        } kinds[] = { { 0, 256 }, { 32, 96 }, { 0x80, 128 }, { 0xC0, 64 } };
        unsigned kind = (unsigned)round % 4;
        for (size_t i = 0; i < size; i++)
            text[i] = (char)(kinds[kind].low + ddl_rng_below(key, draw++, kinds[kind].n));
        struct ddl_ids ids = encode(gpt2, text, size, round & 1);
        decode_is(&ids, text, size);
        ddl_ids_free(&ids);
    }
}

static void long_pieces_round_trip(void **state)
{
    (void)state;
    enum { SIZE = 300000 };
    char *text = malloc(SIZE);
    assert_non_null(text);
    for (unsigned kind = 0; kind < 4; kind++) {
        for (size_t i = 0; i < SIZE; i++)
            text[i] = kind == 0 ? 'a' : kind == 1 ? ' ' : kind == 2 ? "abcdefghij"[i * i % 10] : (char)0x80;
        struct ddl_ids ids = encode(gpt2, text, SIZE, false);
        decode_is(&ids, text, SIZE);
        ddl_ids_free(&ids);
    }
    free(text);
}

static void split_emoji_are_held_back(void **state)
{
    (void)state;
    static const char text[] = "x\xF0\x9F\x98\x80\xE4\xBB\xAE";
    struct ddl_ids ids = encode(gpt2, text, sizeof text - 1, false);
    assert_true(ids.n > 3); /* both characters take more than one token */
    struct ddl_decode_stream stream = { 0 };
    size_t done = 0, whole[] = { 0, 1, 5, 8 };
    for (size_t i = 0; i < ids.n; i++) {
        char out[64];
        size_t n = ddl_decode_push(&stream, gpt2, ids.ids[i], out, sizeof out), at_end = 0;
        assert_memory_equal(out, text + done, n);
        done += n;
        for (size_t k = 0; k < 4; k++)
            at_end += done == whole[k];
        assert_int_equal(at_end, 1);
    }
    assert_int_equal(done, sizeof text - 1);
    ddl_ids_free(&ids);
}

static void streams_that_end_early(void **state)
{
    (void)state;
    /* Three bytes of an emoji, then the end; then the same followed by a byte that cannot continue it. */
    static const char text[] = "\xF0\x9F\x98";
    struct ddl_ids ids = encode(gpt2, text, 3, false);
    struct ddl_decode_stream stream = { 0 };
    char out[16];
    for (size_t i = 0; i < ids.n; i++)
        assert_int_equal(ddl_decode_push(&stream, gpt2, ids.ids[i], out, sizeof out), 0);
    assert_int_equal(ddl_decode_push(&stream, gpt2, -5, out, sizeof out), 0);
    assert_int_equal(ddl_decode_push(&stream, gpt2, 64, NULL, 0),
                     4); /* reports the required size although out has none */
    for (size_t i = 0; i < ids.n; i++)
        ddl_decode_push(&stream, gpt2, ids.ids[i], out, sizeof out);
    assert_int_equal(ddl_decode_push(&stream, gpt2, 64, out, sizeof out), 4);
    assert_memory_equal(out,
                        "\xF0\x9F\x98"
                        "a",
                        4);
    for (size_t i = 0; i < ids.n; i++)
        ddl_decode_push(&stream, gpt2, ids.ids[i], out, sizeof out);
    assert_int_equal(ddl_decode_flush(&stream, out, sizeof out), 3);
    assert_memory_equal(out, text, 3);
    assert_int_equal(ddl_decode_flush(&stream, NULL, 0), 0);
    ddl_ids_free(&ids);
}

static void special_tokens_on_request(void **state)
{
    (void)state;
    static const char text[] = "a<|endoftext|><|endoftext|> b<|endoftext|";
    struct ddl_ids ids = encode(gpt2, text, sizeof text - 1, true);
    static const int32_t wanted[] = { 64, 50256, 50256, 275 };
    assert_true(ids.n > 4);
    assert_memory_equal(ids.ids, wanted, sizeof wanted);
    for (size_t i = 4; i < ids.n; i++)
        assert_int_not_equal(ids.ids[i], 50256);
    decode_is(&ids, text, sizeof text - 1);
    ddl_ids_free(&ids);
    ids = encode(gpt2, text, sizeof text - 1, false);
    for (size_t i = 0; i < ids.n; i++)
        assert_int_not_equal(ids.ids[i], 50256);
    decode_is(&ids, text, sizeof text - 1);
    ddl_ids_free(&ids);
}

static void encoding_appends(void **state)
{
    (void)state;
    struct ddl_ids ids = encode(gpt2, "Hello", 5, false);
    struct ddl_error err;
    assert_ok(ddl_tokenizer_encode(gpt2, " world", 6, false, &ids, &err), err);
    assert_ok(ddl_tokenizer_encode(gpt2, "", 0, true, &ids, &err), err);
    assert_int_equal(ids.n, 2);
    assert_int_equal(ids.ids[0], 15496);
    assert_int_equal(ids.ids[1], 995);
    ddl_ids_free(&ids);
    ddl_ids_free(&ids);
}

static void threads_share_one(void **state)
{
    (void)state;
    char *text;
    size_t size;
    struct ddl_error err;
    assert_ok(
        ddl_file_read(source_path("tests/golden/tokenizer-train/mixed.txt"), 1 << 20, &text, &size, &err),
        err);
    struct ddl_ids one = encode(gpt2, text, size, false);
    int wrong = 0;
#pragma omp parallel for num_threads(4) reduction(+ : wrong)
    for (int i = 0; i < 16; i++) {
        struct ddl_ids ids = { 0 };
        ddl_status status = ddl_tokenizer_encode(gpt2, text, size, false, &ids, NULL);
        wrong += status || ids.n != one.n || memcmp(ids.ids, one.ids, one.n * sizeof *one.ids) != 0;
        ddl_ids_free(&ids);
    }
    assert_int_equal(wrong, 0);
    ddl_ids_free(&one);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_cases),
        cmocka_unit_test(golden_cases_from_json),
        cmocka_unit_test(facts),
        cmocka_unit_test(random_bytes_round_trip),
        cmocka_unit_test(long_pieces_round_trip),
        cmocka_unit_test(split_emoji_are_held_back),
        cmocka_unit_test(streams_that_end_early),
        cmocka_unit_test(special_tokens_on_request),
        cmocka_unit_test(encoding_appends),
        cmocka_unit_test(threads_share_one),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
