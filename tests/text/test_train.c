/* Tests tokenizer training against tokenizers trained by Hugging Face `tokenizers`
 * (tests/golden/tokenizer-train/make.py), and its error messages. */
#include "support/support.h"

#include "base/file.h"
#include "text/tokenizer.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

static const char folder[] = "tests/golden/tokenizer-train/";

static const char *golden_path(const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s%s", folder, name);
    return source_path(path);
}

static ddl_tokenizer *train_case(const json_t *row)
{
    struct ddl_tokenizer_train_config config = ddl_tokenizer_train_defaults();
    config.vocab_size = (size_t)json_integer_value(json_object_get(row, "vocab_size"));
    config.min_frequency = (uint64_t)json_integer_value(json_object_get(row, "min_frequency"));
    snprintf(config.special_tokens, sizeof config.special_tokens, "%s",
             json_string_value(json_object_get(row, "special_tokens")));
    const char *file = golden_path(json_string_value(json_object_get(row, "text")));
    ddl_tokenizer *t;
    struct ddl_error err;
    assert_ok(ddl_tokenizer_train(&t, &config, &file, 1, NULL, NULL, &err), err);
    return t;
}

static void assert_same_tokens(const ddl_tokenizer *a, const ddl_tokenizer *b)
{
    assert_int_equal(ddl_tokenizer_vocab_size(a), ddl_tokenizer_vocab_size(b));
    for (size_t id = 0; id < ddl_tokenizer_vocab_size(a); id++) {
        size_t n, m;
        const char *x = ddl_tokenizer_bytes(a, (int32_t)id, &n), *y = ddl_tokenizer_bytes(b, (int32_t)id, &m);
        assert_int_equal(n, m);
        assert_memory_equal(x, y, n);
    }
    assert_int_equal(a->n_merges, b->n_merges);
    assert_memory_equal(a->merges, b->merges, a->n_merges * sizeof *a->merges);
    int32_t id_a, id_b;
    size_t n, m;
    for (size_t i = 0; ddl_tokenizer_special(a, i, &id_a, &n); i++) {
        assert_non_null(ddl_tokenizer_special(b, i, &id_b, &m));
        assert_int_equal(id_a, id_b);
    }
    assert_int_equal(a->n_specials, b->n_specials);
}

static void assert_encodings(const ddl_tokenizer *t, const json_t *encodings)
{
    size_t i;
    const json_t *row;
    json_array_foreach(encodings, i, row)
    {
        const json_t *text = json_object_get(row, "text"), *wanted = json_object_get(row, "ids");
        struct ddl_ids ids = { 0 };
        struct ddl_error err;
        assert_ok(
            ddl_tokenizer_encode(t, json_string_value(text), json_string_length(text), true, &ids, &err),
            err);
        assert_int_equal(ids.n, json_array_size(wanted));
        for (size_t k = 0; k < ids.n; k++)
            assert_int_equal(ids.ids[k], json_integer_value(json_array_get(wanted, k)));
        ddl_ids_free(&ids);
    }
}

static void as_tokenizers_trains(void **state)
{
    (void)state;
    json_t *cases = json_load_file(golden_path("cases.json"), 0, NULL);
    assert_int_equal(json_array_size(cases), 5);
    size_t i;
    const json_t *row;
    json_array_foreach(cases, i, row)
    {
        struct ddl_error err;
        ddl_tokenizer *theirs, *ours = train_case(row), *saved;
        assert_ok(ddl_tokenizer_load(&theirs,
                                     golden_path(json_string_value(json_object_get(row, "tokenizer"))), &err),
                  err);
        assert_same_tokens(theirs, ours);
        assert_ok(ddl_tokenizer_save(ours, scratch_path("trained.json"), &err), err);
        assert_ok(ddl_tokenizer_load(&saved, scratch_path("trained.json"), &err), err);
        assert_same_tokens(theirs, saved);
        const ddl_tokenizer *all[] = { theirs, ours, saved };
        for (size_t k = 0; k < 3; k++)
            assert_encodings(all[k], json_object_get(row, "encodings"));
        ddl_tokenizer_free(theirs);
        ddl_tokenizer_free(ours);
        ddl_tokenizer_free(saved);
    }
    json_decref(cases);
}

static void refused(const struct ddl_tokenizer_train_config *config, const char *file, ddl_status status,
                    const char *gist)
{
    ddl_tokenizer *t;
    struct ddl_error err = { 0 };
    ddl_status got = ddl_tokenizer_train(&t, config, &file, file != NULL, NULL, NULL, &err);
    if (got != status || !strstr(err.text, gist))
        fail_msg("%s: found '%s', expected '%s'", ddl_status_name(got), err.text, gist);
    assert_null(t);
}

static void errors(void **state)
{
    (void)state;
    static const struct {
        size_t vocab_size;
        const char *special, *gist;
    } rows[] = {
        { 255, "", "vocab_size: 255 is out of range" },
        { 1u << 30, "", "vocab_size: 1073741824 is out of range" },
        { 256, "<|endoftext|>", "vocab_size: expected at least 257 (bytes and special tokens), found 256" },
        { 500, "a,,b", "\"a,,b\" contains an empty token" },
        { 500, "a,", "\"a,\" contains an empty token" },
        { 500, ",a", "\",a\" contains an empty token" },
        { 500, "<x>,\xC4\xA0the", "\"\xC4\xA0the\" is the byte-level spelling of another text" },
    };
    const char *text = golden_path("runs.txt");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct ddl_tokenizer_train_config config = ddl_tokenizer_train_defaults();
        config.vocab_size = rows[i].vocab_size;
        snprintf(config.special_tokens, sizeof config.special_tokens, "%s", rows[i].special);
        refused(&config, text, DDL_E_USAGE, rows[i].gist);
    }
    struct ddl_tokenizer_train_config config = ddl_tokenizer_train_defaults();
    struct ddl_error err;
    const char *empty = scratch_path("empty.txt");
    assert_ok(ddl_file_replace(empty, "", 0, &err), err);
    refused(&config, empty, DDL_E_FORMAT, "empty.txt: no training text");
    refused(&config, NULL, DDL_E_FORMAT, "no training text");
    refused(&config, scratch_path("none.txt"), DDL_E_IO, "none.txt: cannot open");
    refused(&config, scratch_path("."), DDL_E_IO, "not a regular file");
}

/* Several files are separate texts; binary data is accepted; words that occur twice become tokens. */
static void several_files(void **state)
{
    (void)state;
    struct ddl_tokenizer_train_config config = ddl_tokenizer_train_defaults();
    struct ddl_error err;
    ddl_tokenizer *t;
    static const char one[] = "zebra zebra", two[] = "\0\xFF\xFE\0\xFF\xFE.zebra";
    const char *files[] = { scratch_path("one"), scratch_path("two") };
    config.vocab_size = 1000;
    assert_ok(ddl_file_replace(files[0], one, sizeof one - 1, &err), err);
    assert_ok(ddl_file_replace(files[1], two, sizeof two - 1, &err), err);
    assert_ok(ddl_tokenizer_train(&t, &config, files, 2, NULL, NULL, &err), err);
    struct ddl_ids ids = { 0 };
    assert_ok(ddl_tokenizer_encode(t, "zebra", 5, false, &ids, &err), err);
    assert_int_equal(ids.n, 1);
    assert_ok(ddl_tokenizer_encode(t, two, 6, false, &ids, &err), err);
    assert_int_equal(ids.n, 3); /* 00 FF FE became one token */
    ddl_ids_free(&ids);
    ddl_tokenizer_free(t);
}

static int stop_at_once(void *user, const struct ddl_tokenizer_train_progress *p)
{
    *(uint64_t *)user = p->bytes_in;
    return 1;
}

/* A text large enough to trigger a progress report. */
static void interrupted(void **state)
{
    (void)state;
    struct ddl_tokenizer_train_config config = ddl_tokenizer_train_defaults();
    struct ddl_error err;
    struct ddl_file_writer w;
    const char *path = scratch_path("large.txt");
    assert_ok(ddl_file_writer_begin(&w, path, &err), err);
    for (int i = 0; i < 2000000; i++) {
        char word[32];
        int n = snprintf(word, sizeof word, " %x%d", (unsigned)i * 2654435761u, i);
        assert_ok(ddl_file_writer_write(&w, word, (size_t)n, &err), err);
    }
    assert_ok(ddl_file_writer_commit(&w, &err), err);
    ddl_tokenizer *t;
    uint64_t bytes = 0;
    assert_int_equal(ddl_tokenizer_train(&t, &config, &path, 1, stop_at_once, &bytes, &err),
                     DDL_E_INTERRUPTED);
    assert_null(t);
    assert_true(bytes > 0);
    remove(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_tokenizers_trains),
        cmocka_unit_test(errors),
        cmocka_unit_test(several_files),
        cmocka_unit_test(interrupted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
