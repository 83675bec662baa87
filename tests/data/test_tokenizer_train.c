/* Tests tokenizer training against tokenizers trained by Hugging Face `tokenizers`
 * (tests/golden/tokenizer-train/make.py), with every kind of input, and its error messages. */
#include "data/pack.h"
#include "support/files.h"

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
    config.input.separator[0] = '\0'; /* for `tokenizers` a file is one text */
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
        { 500, "<x>,\xC4", "\"\\xc4\" is not UTF-8" }, /* printed visibly */
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
    refused(&config, NULL, DDL_E_USAGE, "missing argument: expected files, folders");
    refused(&config, scratch_path("none.txt"), DDL_E_IO, "none.txt: cannot open");
    refused(&config, golden_path("make.py"), DDL_E_USAGE, "make.py: unknown file type: expected .txt");
    assert_ok(ddl_file_replace(scratch_path("binary.txt"), "a\0b", 3, &err), err);
    refused(&config, scratch_path("binary.txt"), DDL_E_FORMAT, "binary.txt: NUL byte at byte 1");
    assert_ok(ddl_file_replace(scratch_path("bad.jsonl"), "{\"text\": \"a\"}\n{\"body\": \"b\"}\n", 29, &err),
              err);
    refused(&config, scratch_path("bad.jsonl"), DDL_E_FORMAT, "bad.jsonl:2: the object has no key \"text\"");
    config.input.text_key[0] = '\0';
    refused(&config, text, DDL_E_USAGE, "--text_key is empty");
    config = ddl_tokenizer_train_defaults();
    config.characters = true;
    const char *bars = scratch_path("bars.txt");
    assert_ok(ddl_file_replace(bars, "a|b|c", 5, &err), err);
    static const char *const lists[] = { "|", "<|endoftext|>,|,z" };
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        snprintf(config.special_tokens, sizeof config.special_tokens, "%s", lists[i]);
        refused(&config, bars, DDL_E_USAGE, "special_tokens: \"|\" is a character of the text");
    }
}

/* Trained on a file of this name with this text. */
static ddl_tokenizer *trained_on(const struct ddl_tokenizer_train_config *config, const char *name,
                                 const char *text)
{
    struct ddl_error err;
    ddl_tokenizer *t;
    const char *file = scratch_path(name);
    write_file(file, text, strlen(text));
    assert_ok(ddl_tokenizer_train(&t, config, &file, 1, NULL, NULL, &err), err);
    return t;
}

/* With characters too, a special token that is listed twice is one token. */
static void repeated_special_tokens(void **state)
{
    (void)state;
    struct ddl_tokenizer_train_config config = ddl_tokenizer_train_defaults();
    config.characters = true;
    snprintf(config.special_tokens, sizeof config.special_tokens, "z,<x>,z,<x>");
    ddl_tokenizer *t = trained_on(&config, "abc.txt", "a|b|c");
    assert_int_equal(ddl_tokenizer_vocab_size(t), 6);
    assert_int_equal(t->n_specials, 2);
    ddl_tokenizer_free(t);
}

/* A prompt and its response are two texts: no token spans both. */
static void prompts_and_responses_are_apart(void **state)
{
    (void)state;
    struct ddl_tokenizer_train_config config = ddl_tokenizer_train_defaults();
    static const char lines[] = "{\"p\":\"foo\",\"r\":\"bar\"}\n{\"p\":\"foo\",\"r\":\"bar\"}\n"
                                "{\"p\":\"\",\"r\":\"bar\"}\n{\"p\":\"foo\",\"r\":\"\"}\n";
    snprintf(config.input.prompt_key, sizeof config.input.prompt_key, "p");
    snprintf(config.input.response_key, sizeof config.input.response_key, "r");
    ddl_tokenizer *t = trained_on(&config, "pairs.jsonl", lines);
    assert_int_equal(ddl_tokenizer_vocab_size(t), 1 + 256 + 4); /* two merges for each of foo and bar */
    ddl_tokenizer_free(t);
}

/* A special token with a character that the byte alphabet spells otherwise is apart from the token of the
 * same bytes; any other is the same. */
static void special_tokens_that_are_in_the_text(void **state)
{
    (void)state;
    static const struct {
        const char *special;
        bool apart;
    } rows[] = { { " the", true }, { " ", true }, { "\u2026", true }, { "the", false }, { "t", false } };
    static const char text[] = "cat the cat the cat the \u2026 cat the";
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct ddl_tokenizer_train_config config = ddl_tokenizer_train_defaults();
        struct ddl_error err;
        struct ddl_ids ids = { 0 };
        const char *out = scratch_path("special.json");
        config.vocab_size = 265;
        snprintf(config.special_tokens, sizeof config.special_tokens, "%s", rows[i].special);
        ddl_tokenizer *t = trained_on(&config, "the.txt", text);
        assert_ok(ddl_tokenizer_save(t, out, &err), err);
        ddl_tokenizer_free(t);
        assert_ok(ddl_tokenizer_load(&t, out, &err), err);
        assert_ok(ddl_tokenizer_encode(t, rows[i].special, strlen(rows[i].special), true, &ids, &err), err);
        assert_true(ids.n == 1 && ids.ids[0] == 0);
        ids.n = 0;
        assert_ok(ddl_tokenizer_encode(t, rows[i].special, strlen(rows[i].special), false, &ids, &err), err);
        assert_true((ids.ids[0] == 0) == !rows[i].apart);
        ddl_ids_free(&ids);
        ddl_tokenizer_free(t);
    }
}

/* Trains on one input and saves the result. */
static void train_to(const char *input, const char *text_key, const char *out)
{
    struct ddl_tokenizer_train_config config = ddl_tokenizer_train_defaults();
    struct ddl_error err;
    ddl_tokenizer *t;
    config.vocab_size = 400;
    snprintf(config.input.text_key, sizeof config.input.text_key, "%s", text_key);
    assert_ok(ddl_tokenizer_train(&t, &config, &input, 1, NULL, NULL, &err), err);
    assert_ok(ddl_tokenizer_save(t, out, &err), err);
    ddl_tokenizer_free(t);
}

static void write_packed(const char *path, pack_fn *pack, const void *data, size_t size)
{
    size_t packed;
    unsigned char *bytes = pack(data, size, &packed);
    write_file(path, bytes, packed);
    free(bytes);
}

/* The same two documents in every form that a build reads give the same tokenizer. */
static void kinds_of_input(void **state)
{
    (void)state;
    static const char text[] = "the cat \"and\" the dog\n<|endoftext|>\nthe end of the caf\xC3\xA9\n",
                      json[] = "{\"body\": \"the cat \\\"and\\\" the dog\\n\", \"id\": 1}\n\n"
                               "{\"body\": \"the end of the caf\\u00e9\\n\"}\n";
    static const char *const names[] = { "in/a.txt",    "in.txt.gz",    "in.txt.zst", "in.jsonl",
                                         "in.jsonl.gz", "in.jsonl.zst", "in" };
    struct ddl_error err;
    remove_scratch("in");
    assert_ok(ddl_file_make_dir(scratch_path("in"), &err), err);
    write_file(scratch_path("in/a.txt"), text, sizeof text - 1);
    write_file(scratch_path("in.jsonl"), json, sizeof json - 1);
    write_packed(scratch_path("in.txt.gz"), pack_gzip, text, sizeof text - 1);
    write_packed(scratch_path("in.jsonl.gz"), pack_gzip, json, sizeof json - 1);
    write_packed(scratch_path("in.txt.zst"), pack_zstd, text, sizeof text - 1);
    write_packed(scratch_path("in.jsonl.zst"), pack_zstd, json, sizeof json - 1);
    train_to(scratch_path(names[0]), "body", scratch_path("wanted.json"));
    for (size_t i = 1; i < sizeof names / sizeof *names; i++) {
        train_to(scratch_path(names[i]), "body", scratch_path("found.json"));
        assert_same_file(scratch_path("wanted.json"), scratch_path("found.json"));
    }
    char *learned = read_file(scratch_path("wanted.json"), NULL);
    assert_null(strstr(learned, "\"<|\"")); /* the separator is not text */
    free(learned);
}

/* A text longer than the reader's batches gives the tokenizer of the whole text: case 1 of the golden tests
 * has the same pieces, each many times. */
static void long_text(void **state)
{
    (void)state;
    enum { COPIES = 40 };
    size_t size;
    char *text = read_file(golden_path("shakespeare.txt"), &size);
    FILE *one = fopen(scratch_path("copies.txt"), "wb"), *lines = fopen(scratch_path("lines.jsonl"), "wb");
    assert_non_null(one);
    assert_non_null(lines);
    for (int i = 0; i < COPIES; i++) {
        json_t *object = json_pack("{s:s}", "text", text);
        assert_non_null(object);
        fputs(text, one);
        json_dumpf(object, lines, JSON_COMPACT);
        fputc('\n', lines);
        json_decref(object);
    }
    fclose(one);
    fclose(lines);
    assert_true(size * COPIES > 1 << 20);
    train_to(scratch_path("copies.txt"), "text", scratch_path("wanted.json"));
    train_to(scratch_path("lines.jsonl"), "text", scratch_path("found.json"));
    assert_same_file(scratch_path("wanted.json"), scratch_path("found.json"));
    free(text);
}

/* Several files are separate texts; bytes that are not UTF-8 are accepted; words that occur twice become
 * tokens. */
static void several_files(void **state)
{
    (void)state;
    struct ddl_tokenizer_train_config config = ddl_tokenizer_train_defaults();
    struct ddl_error err;
    ddl_tokenizer *t;
    static const char one[] = "zebra zebra", two[] = "\1\xFF\xFE\1\xFF\xFE.zebra";
    const char *files[] = { scratch_path("one.txt"), scratch_path("two.txt") };
    config.vocab_size = 1000;
    assert_ok(ddl_file_replace(files[0], one, sizeof one - 1, &err), err);
    assert_ok(ddl_file_replace(files[1], two, sizeof two - 1, &err), err);
    assert_ok(ddl_tokenizer_train(&t, &config, files, 2, NULL, NULL, &err), err);
    struct ddl_ids ids = { 0 };
    assert_ok(ddl_tokenizer_encode(t, "zebra", 5, false, &ids, &err), err);
    assert_int_equal(ids.n, 1);
    assert_ok(ddl_tokenizer_encode(t, two, 6, false, &ids, &err), err);
    assert_int_equal(ids.n, 3); /* 01 FF FE became one token */
    ddl_ids_free(&ids);
    ddl_tokenizer_free(t);
}

/* On a busy machine the first reports may come before any batch of the text. */
static int stop_once_read(void *user, const struct ddl_tokenizer_train_progress *p)
{
    *(uint64_t *)user = p->bytes_in;
    return p->bytes_in > 0;
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
    assert_int_equal(ddl_tokenizer_train(&t, &config, &path, 1, stop_once_read, &bytes, &err),
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
        cmocka_unit_test(repeated_special_tokens),
        cmocka_unit_test(special_tokens_that_are_in_the_text),
        cmocka_unit_test(prompts_and_responses_are_apart),
        cmocka_unit_test(kinds_of_input),
        cmocka_unit_test(long_text),
        cmocka_unit_test(several_files),
        cmocka_unit_test(interrupted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
