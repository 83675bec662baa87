/* Tests text/load.c: error messages for corrupted and unsupported files, and unusual files that are
 * accepted. */
#include "support/files.h"
#include "support/support.h"

#include "base/file.h"
#include "ddl/tokenizer.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Returns a tokenizer.json by `tokenizers` with 351 tokens, <|endoftext|> as 0, and merges as pairs. */
static json_t *good_file(void)
{
    json_t *root = json_load_file(source_path("tests/golden/tokenizer-train/case2.json"), 0, NULL);
    assert_non_null(root);
    return root;
}

/* Sets "a.b" of root to the JSON text, or removes it if value is NULL. "a.3" is element 3 of a list, "a.+"
 * appends. */
static void change(json_t *root, const char *path, const char *value)
{
    char key[64];
    size_t n = strcspn(path, ".");
    snprintf(key, sizeof key, "%.*s", (int)n, path);
    json_t *new = value ? json_loads(value, JSON_DECODE_ANY, NULL) : NULL;
    assert_true(!value || new);
    if (path[n] == '.') {
        json_decref(new);
        json_t *child =
            json_is_array(root) ? json_array_get(root, (size_t)atoi(key)) : json_object_get(root, key);
        change(child, path + n + 1, value);
    } else if (json_is_array(root)) {
        assert_int_equal(*key == '+' ? json_array_append_new(root, new)
                                     : json_array_set_new(root, (size_t)atoi(key), new),
                         0);
    } else {
        assert_int_equal(value ? json_object_set_new(root, key, new) : json_object_del(root, key), 0);
    }
}

static ddl_status load_json(const json_t *root, ddl_tokenizer **t, struct ddl_error *err)
{
    const char *path = scratch_path("changed.json");
    assert_int_equal(json_dump_file(root, path, 0), 0);
    return ddl_tokenizer_load(t, path, err);
}

static void refused_settings(void **state)
{
    (void)state;
    static const struct {
        const char *path, *value;
        ddl_status status;
        const char *gist;
    } rows[] = {
        { "truncation", "{\"max_length\": 5}", DDL_E_UNSUPPORTED,
          "truncation is {\"max_length\":5}; only null is supported" },
        { "padding", "{}", DDL_E_UNSUPPORTED, "padding is {}; only null is supported" },
        { "normalizer", "{\"type\": \"NFC\"}", DDL_E_UNSUPPORTED,
          "normalizer is {\"type\":\"NFC\"}; only null is supported" },
        { "pre_tokenizer", NULL, DDL_E_UNSUPPORTED,
          "pre_tokenizer is missing; only type ByteLevel is supported" },
        { "pre_tokenizer", "null", DDL_E_UNSUPPORTED, "pre_tokenizer is null; only type ByteLevel" },
        { "pre_tokenizer.type", "\"Whitespace\"", DDL_E_UNSUPPORTED, "\"Whitespace\"" },
        { "pre_tokenizer.use_regex", "false", DDL_E_UNSUPPORTED,
          "pre_tokenizer.use_regex is false; only true is supported" },
        { "post_processor", "{\"type\": \"TemplateProcessing\"}", DDL_E_UNSUPPORTED, "post_processor is" },
        { "decoder", "{\"type\": \"WordPiece\"}", DDL_E_UNSUPPORTED, "decoder is" },
        { "model.type", "\"Unigram\"", DDL_E_UNSUPPORTED,
          "model.type is \"Unigram\"; only \"BPE\" is supported" },
        { "model.dropout", "0.1", DDL_E_UNSUPPORTED, "model.dropout is 0.1" },
        { "model.continuing_subword_prefix", "\"##\"", DDL_E_UNSUPPORTED,
          "model.continuing_subword_prefix is \"##\"" },
        { "model.end_of_word_suffix", "\"</w>\"", DDL_E_UNSUPPORTED, "model.end_of_word_suffix is \"</w>\"" },
        { "added_tokens.0.lstrip", "true", DDL_E_UNSUPPORTED,
          "added token \"<|endoftext|>\" has lstrip true" },
        { "added_tokens.0.rstrip", "true", DDL_E_UNSUPPORTED, "has rstrip true" },
        { "added_tokens.0.single_word", "true", DDL_E_UNSUPPORTED, "has single_word true" },
        { "model", NULL, DDL_E_FORMAT, "model.vocab: expected an object, found nothing" },
        { "model.vocab", "[1]", DDL_E_FORMAT, "model.vocab: expected an object, found a list" },
        { "model.merges", NULL, DDL_E_FORMAT, "model.merges: expected a list, found nothing" },
        { "model.merges", "{}", DDL_E_FORMAT, "model.merges: expected a list, found an object" },
        { "model.merges.1", "7", DDL_E_FORMAT,
          "merge 1: expected \"a b\" or a list of two strings, found an integer" },
        { "model.merges.1", "[\"a\"]", DDL_E_FORMAT,
          "merge 1: expected \"a b\" or a list of two strings, found a list" },
        { "model.merges.1", "[\"a\", 5]", DDL_E_FORMAT,
          "merge 1: expected \"a b\" or a list of two strings, found a list" },
        { "model.merges.1", "\"ab\"", DDL_E_FORMAT,
          "merge 1: expected two tokens separated by a space, found \"ab\"" },
        { "model.merges.1", "\"a b c\"", DDL_E_FORMAT, "two tokens separated by a space, found \"a b c\"" },
        { "model.merges.1", "\"a \"", DDL_E_FORMAT, "two tokens separated by a space, found \"a \"" },
        { "model.merges.1", "\"q zzz\"", DDL_E_FORMAT, "merge 1: \"zzz\" is not in the vocabulary" },
        { "model.merges.1", "[\"zzz\", \"q\"]", DDL_E_FORMAT, "merge 1: \"zzz\" is not in the vocabulary" },
        { "model.merges.1", "\"q q\"", DDL_E_FORMAT, "merge 1: \"qq\" is not in the vocabulary" },
        { "model.merges.+", "\"h e\"", DDL_E_FORMAT, "duplicate merge" },
        { "model.vocab.a", "\"5\"", DDL_E_FORMAT, "id of token \"a\": expected an integer, found a string" },
        { "model.vocab.a", "1.5", DDL_E_FORMAT, "id of token \"a\": expected an integer, found a number" },
        { "model.vocab.a", "-1", DDL_E_FORMAT, "id of token \"a\": expected 0 to 4194303, found -1" },
        { "model.vocab.a", "4611686018427387904", DDL_E_FORMAT, "found 4611686018427387904" },
        { "model.vocab.a", "4194303", DDL_E_FORMAT,
          "the largest id is 4194303, but there are only 352 tokens" },
        { "model.vocab.a", "5", DDL_E_FORMAT, "duplicate id 5" },
        { "model.vocab.a", NULL, DDL_E_FORMAT, "\"a\" is not in the vocabulary" },
        { "model.vocab.\xC4\x80", NULL, DDL_E_FORMAT, "no token for byte 0x00 ('\xC4\x80')" },
        { "added_tokens", "5", DDL_E_FORMAT, "added_tokens: expected a list, found an integer" },
        { "added_tokens.0", "5", DDL_E_FORMAT, "id of added token \"\": expected an integer, found nothing" },
        { "added_tokens.0.id", "99999999", DDL_E_FORMAT,
          "id of added token \"<|endoftext|>\": expected 0 to 4194303, found 99999999" },
        { "added_tokens.0.id", "3", DDL_E_FORMAT,
          "added token \"<|endoftext|>\" has id 3, but id 0 in the vocabulary" },
        { "added_tokens.0.content", "\"<new>\"", DDL_E_FORMAT,
          "added token \"<new>\": id 0 belongs to another token" },
        { "added_tokens.0.content", "\"\"", DDL_E_FORMAT,
          "added_tokens[0].content: expected a nonempty string, found an empty string" },
        { "added_tokens.0.content", "7", DDL_E_FORMAT,
          "added_tokens[0].content: expected a nonempty string, found an integer" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        json_t *root = good_file();
        ddl_tokenizer *t;
        struct ddl_error err = { 0 };
        change(root, rows[i].path, rows[i].value);
        ddl_status status = load_json(root, &t, &err);
        if (status != rows[i].status || !strstr(err.text, rows[i].gist) ||
            !strstr(err.text, "changed.json: "))
            fail_msg("%s = %s: %s: found '%s', expected '%s'", rows[i].path,
                     rows[i].value ? rows[i].value : "(removed)", ddl_status_name(status), err.text,
                     rows[i].gist);
        assert_null(t);
        json_decref(root);
    }
}

/* Settings that have no effect, or that are supported. */
static void accepted_settings(void **state)
{
    (void)state;
    static const struct {
        const char *path, *value;
    } rows[] = {
        { "model.type", NULL },
        { "model.dropout", "0.0" },
        { "model.dropout", NULL },
        { "model.continuing_subword_prefix", "\"\"" },
        { "model.end_of_word_suffix", "\"\"" },
        { "model.unk_token", "\"<|endoftext|>\"" }, /* every byte has a token: never used */
        { "model.byte_fallback", "true" },
        { "pre_tokenizer.use_regex", NULL },
        { "post_processor", "{\"type\": \"ByteLevel\", \"trim_offsets\": false}" },
        { "decoder", "null" },
        { "added_tokens", NULL },
        { "added_tokens.0.id", "0" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        json_t *root = good_file();
        ddl_tokenizer *t;
        struct ddl_error err = { 0 };
        change(root, rows[i].path, rows[i].value);
        assert_ok(load_json(root, &t, &err), err);
        assert_int_equal(ddl_tokenizer_vocab_size(t), 351);
        ddl_tokenizer_free(t);
        json_decref(root);
    }
}

static void expect_ids(const ddl_tokenizer *t, const char *text, size_t n, const int32_t *wanted)
{
    struct ddl_ids ids = { 0 };
    struct ddl_error err;
    assert_ok(ddl_tokenizer_encode(t, text, strlen(text), true, &ids, &err), err);
    assert_int_equal(ids.n, n);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(ids.ids[i], wanted[i]);
    ddl_ids_free(&ids);
}

/* Same ids as from `tokenizers` for the same file: the space is prepended to each part next to a special
 * token, but not to an empty one. */
static void prefix_space(void **state)
{
    (void)state;
    json_t *root = good_file();
    ddl_tokenizer *t;
    struct ddl_error err;
    change(root, "pre_tokenizer.add_prefix_space", "true");
    assert_ok(load_json(root, &t, &err), err);
    expect_ids(t, "", 0, (const int32_t[]){ 0 });
    expect_ids(t, "the", 1, (const int32_t[]){ 261 });
    expect_ids(t, " the", 1, (const int32_t[]){ 261 });
    expect_ids(t, "\tthe", 4, (const int32_t[]){ 221, 198, 84, 258 });
    expect_ids(t, "the<|endoftext|>", 2, (const int32_t[]){ 261, 0 });
    expect_ids(t, "<|endoftext|>the<|endoftext|> the", 4, (const int32_t[]){ 0, 261, 0, 261 });
    expect_ids(t, "<|endoftext|><|endoftext|>", 2, (const int32_t[]){ 0, 0 });
    ddl_tokenizer_free(t);
    json_decref(root);
}

static void add_token(json_t *root, int id, const char *content, bool normalized)
{
    char value[256];
    snprintf(value, sizeof value,
             "{\"id\": %d, \"content\": \"%s\", \"normalized\": %s, \"single_word\": false, "
             "\"lstrip\": false, \"rstrip\": false, \"special\": true}",
             id, content, normalized ? "true" : "false");
    change(root, "added_tokens.+", value);
}

/* At each position the longest match wins; tokens that are not normalized are matched first; texts need not
 * be in the vocabulary. */
static void several_special_tokens(void **state)
{
    (void)state;
    json_t *root = good_file();
    ddl_tokenizer *t;
    struct ddl_error err;
    size_t size;
    add_token(root, 351, "<a>", false);
    add_token(root, 352, "<a><b>", false);
    add_token(root, 353, "<b>", true);
    add_token(root, 354, "x<a", true);
    add_token(root, 355, " the ", false);
    add_token(root, 360, "caf\\u00e9 au", false);
    assert_ok(load_json(root, &t, &err), err);
    assert_int_equal(ddl_tokenizer_vocab_size(t), 361);
    assert_null(ddl_tokenizer_bytes(t, 357, &size)); /* unused id */
    assert_memory_equal(ddl_tokenizer_bytes(t, 360, &size), "caf\xC3\xA9 au", 8);
    expect_ids(t, "<a><b><b><a>", 3, (const int32_t[]){ 352, 353, 351 });
    expect_ids(t, "x<a>x<a", 3, (const int32_t[]){ 88, 351, 354 });
    expect_ids(t, "is the end", 4, (const int32_t[]){ 277, 355, 69, 268 });
    expect_ids(t,
               "<|endoftext|>caf\xC3\xA9"
               " au<a",
               4, (const int32_t[]){ 0, 360, 28, 65 });
    ddl_tokenizer_free(t);
    json_decref(root);
}

static void ignored_merges(void **state)
{
    (void)state;
    json_t *root = good_file();
    ddl_tokenizer *t;
    struct ddl_error err;
    change(root, "model.vocab.zebra", "351");
    assert_ok(load_json(root, &t, &err), err);
    expect_ids(t, "zebra", 5, (const int32_t[]){ 90, 69, 66, 82, 65 });
    expect_ids(t, " zebra", 6, (const int32_t[]){ 221, 90, 69, 66, 82, 65 });
    ddl_tokenizer_free(t);
    change(root, "model.ignore_merges", "true");
    assert_ok(load_json(root, &t, &err), err);
    expect_ids(t, "zebra", 1, (const int32_t[]){ 351 });
    expect_ids(t, " zebra", 6, (const int32_t[]){ 221, 90, 69, 66, 82, 65 });
    ddl_tokenizer_free(t);
    json_decref(root);
}

static void refuse_text(const char *text, size_t size, const char *gist)
{
    struct ddl_error err;
    ddl_tokenizer *t;
    const char *path = scratch_path("text.json");
    assert_ok(ddl_file_replace(path, text, size, &err), err);
    assert_int_equal(ddl_tokenizer_load(&t, path, &err), DDL_E_FORMAT);
    if (!strstr(err.text, gist))
        fail_msg("found '%s', expected '%s'", err.text, gist);
}

static void broken_json(void **state)
{
    (void)state;
    char *text;
    size_t size;
    struct ddl_error err;
    assert_ok(
        ddl_file_read(source_path("tests/golden/tokenizer-train/case2.json"), 1 << 20, &text, &size, &err),
        err);
    static const size_t cuts[] = { 0, 1, 100, 1000, 4000 };
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++)
        refuse_text(text, cuts[i], "not valid JSON: ");
    refuse_text(text, size - 1, "text.json:1:");
    free(text);
    refuse_text("[]", 2, "model.vocab: expected an object, found nothing");
    refuse_text("{\"a\": 1, \"a\": 2}", 16, "duplicate object key");
    refuse_text("{\"model\": {\"vocab\": {\"a\": 1, \"a\": 2}}}", 39, "duplicate object key");
}

static void missing_files(void **state)
{
    (void)state;
    struct ddl_error err;
    ddl_tokenizer *t;
    assert_int_equal(ddl_tokenizer_load(&t, scratch_path("none.json"), &err), DDL_E_IO);
    assert_non_null(strstr(err.text, "none.json: cannot open: "));
    assert_int_equal(ddl_tokenizer_load(&t, source_path("docs-none"), &err), DDL_E_IO);
    assert_ok(ddl_file_make_dir(scratch_path("empty"), &err), err);
    assert_int_equal(ddl_tokenizer_load(&t, scratch_path("empty"), &err), DDL_E_IO);
    assert_non_null(strstr(err.text, "empty: no tokenizer in this folder"));
    assert_null(t);
}

/* A folder with vocab.bpe and encoder.json; either is absent if NULL. */
static void gpt2_folder(const char *merges, size_t n_merges, const char *vocab, ddl_status status,
                        const char *gist)
{
    struct ddl_error err;
    ddl_tokenizer *t;
    const char *folder = scratch_path("gpt2"), *bpe = scratch_path("gpt2/vocab.bpe"),
               *json = scratch_path("gpt2/encoder.json");
    assert_ok(ddl_file_make_dir(folder, &err), err);
    remove(bpe);
    remove(json);
    if (merges)
        assert_ok(ddl_file_replace(bpe, merges, n_merges, &err), err);
    if (vocab)
        assert_ok(ddl_file_replace(json, vocab, strlen(vocab), &err), err);
    assert_int_equal(ddl_tokenizer_load(&t, folder, &err), status);
    if (status && !strstr(err.text, gist))
        fail_msg("found '%s', expected '%s'", err.text, gist);
    ddl_tokenizer_free(t);
}

static void broken_gpt2_files(void **state)
{
    (void)state;
    char *merges, *vocab;
    size_t n;
    struct ddl_error err;
    assert_ok(ddl_file_read(source_path("data/tokenizer/vocab.bpe"), 1 << 24, &merges, &n, &err), err);
    assert_ok(ddl_file_read(source_path("data/tokenizer/encoder.json"), 1 << 24, &vocab, NULL, &err), err);
    gpt2_folder(merges, n, vocab, DDL_OK, "");
    gpt2_folder(NULL, 0, vocab, DDL_E_IO, "vocab.bpe: cannot open");
    gpt2_folder(merges, n, NULL, DDL_E_IO, "encoder.json: cannot open");
    gpt2_folder(merges, n - 10, vocab, DDL_E_FORMAT, "vocab.bpe: ");
    gpt2_folder(merges, 20000, vocab, DDL_E_FORMAT, "vocab.bpe: ");
    gpt2_folder("", 0, vocab, DDL_E_FORMAT, "vocab.bpe: no merge produces \"");
    gpt2_folder(merges, n, "[]", DDL_E_FORMAT,
                "encoder.json: expected an object of tokens and ids, found a list");
    gpt2_folder(merges, n, "{}", DDL_E_FORMAT, "vocab.bpe: merge 0: \"\xC4\xA0\" is not in the vocabulary");
    gpt2_folder(merges, n, "{\"!\": 0", DDL_E_FORMAT, "encoder.json:1:7: not valid JSON");
    gpt2_folder(merges, n, "{\"!\": true}", DDL_E_FORMAT,
                "id of token \"!\": expected an integer, found true");
    gpt2_folder("#version: 0.2\nh e x\n", 20, vocab, DDL_E_FORMAT,
                "two tokens separated by a space, found \"h e x\"");
    gpt2_folder("#version: 0.2\r\nh e\r\n", 20, vocab, DDL_E_FORMAT, "merge 0: \"e ");
    free(merges);
    free(vocab);
}

/* The name is the tokenizer that comes with ddl, also beside a file of that name. */
static void the_shipped_one(void **state)
{
    (void)state;
    struct ddl_error err;
    struct ddl_tokenizer_identity by_name, by_path;
    ddl_tokenizer *named, *read;
    remove_scratch("named");
    assert_int_equal(mkdir(scratch_path("named"), 0777), 0);
    assert_ok(ddl_file_replace(scratch_path("named/gpt2"), "{", 1, &err), err);
    assert_int_equal(chdir(scratch_path("named")), 0);
    assert_ok(ddl_tokenizer_load(&named, DDL_TOKENIZER_SHIPPED, &err), err);
    assert_ok(ddl_tokenizer_load(&read, source_path("data/tokenizer"), &err), err);
    assert_ok(ddl_tokenizer_identify(named, DDL_TOKENIZER_SHIPPED, &by_name, &err), err);
    assert_ok(ddl_tokenizer_identify(read, "", &by_path, &err), err);
    assert_string_equal(by_name.sha256, by_path.sha256);
    assert_int_equal(by_name.vocab_size, 50257);
    ddl_tokenizer_free(named);
    ddl_tokenizer_free(read);
    assert_int_equal(ddl_tokenizer_load(&read, "./gpt2", &err), DDL_E_FORMAT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refused_settings),       cmocka_unit_test(accepted_settings),
        cmocka_unit_test(prefix_space),           cmocka_unit_test(ignored_merges),
        cmocka_unit_test(several_special_tokens), cmocka_unit_test(broken_json),
        cmocka_unit_test(missing_files),          cmocka_unit_test(broken_gpt2_files),
        cmocka_unit_test(the_shipped_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
