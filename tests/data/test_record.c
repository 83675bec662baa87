/* data/record.c: the record that a build writes beside its shards, and what must fit together. */
#define _POSIX_C_SOURCE 200809L
#include "support/runs.h"

#include "base/json.h"
#include "base/sha256.h"
#include "ddl/data.h"

#include <unistd.h>

static ddl_tokenizer *other_tokenizer(void)
{
    struct ddl_error err;
    ddl_tokenizer *tokenizer;
    const char *files[] = { source_path("data/text/tinyshakespeare.txt") };
    struct ddl_tokenizer_train_config config = ddl_tokenizer_train_defaults();
    config.vocab_size = TINY_VOCAB;
    assert_ok(ddl_tokenizer_train(&tokenizer, &config, files, 1, NULL, NULL, &err), err);
    return tokenizer;
}

static void save(const char *name, ddl_tokenizer *tokenizer)
{
    struct ddl_error err;
    assert_ok(ddl_tokenizer_save(tokenizer, scratch_path(name), &err), err);
    ddl_tokenizer_free(tokenizer);
}

static void build(const char *out, const char *tokenizer)
{
    struct ddl_error err;
    struct ddl_build_config config = ddl_build_defaults();
    const char *input = scratch_path("license.txt");
    snprintf(config.out, sizeof config.out, "%s", scratch_path(out));
    snprintf(config.tokenizer, sizeof config.tokenizer, "%s", scratch_path(tokenizer));
    config.val_fraction = 0.2;
    config.shard_tokens = 200;
    config.overwrite = true;
    assert_ok(ddl_data_build(&config, &input, 1, NULL, NULL, NULL, &err), err);
}

static void copy_license(void)
{
    size_t size;
    char *text = read_file(source_path("LICENSE"), &size);
    write_file(scratch_path("license.txt"), text, size);
    free(text);
}

static int prepare(void **state)
{
    (void)state;
    copy_license();
    save("a.json", tiny_tokenizer());
    save("b.json", other_tokenizer());
    build("a", "a.json");
    build("b", "b.json");
    return 0;
}

static ddl_shards *open_shards(const char *path)
{
    struct ddl_error err;
    ddl_shards *shards;
    assert_ok(ddl_shards_open(&shards, scratch_path(path), &err), err);
    return shards;
}

static ddl_tokenizer *load(const char *name)
{
    struct ddl_error err;
    ddl_tokenizer *tokenizer;
    assert_ok(ddl_tokenizer_load(&tokenizer, scratch_path(name), &err), err);
    return tokenizer;
}

/* The SHA-256 is that of the saved file. */
static void identity_of_a_tokenizer(void **state)
{
    (void)state;
    struct ddl_error err;
    struct ddl_tokenizer_identity id, again;
    struct ddl_sha256 hash;
    char hex[65];
    size_t size;
    ddl_tokenizer *tokenizer = load("a.json");
    assert_ok(ddl_tokenizer_identify(tokenizer, "some/path", &id, &err), err);
    char *text = read_file(scratch_path("a.json"), &size);
    ddl_sha256_begin(&hash);
    ddl_sha256_add(&hash, text, size);
    ddl_sha256_end_hex(&hash, hex);
    assert_string_equal(id.sha256, hex);
    assert_string_equal(id.name, "some/path");
    assert_int_equal(id.vocab_size, ddl_tokenizer_vocab_size(tokenizer));
    assert_int_equal(id.end_of_text, ddl_tokenizer_end_of_text(tokenizer));
    /* White space in the file has no effect. */
    json_t *root;
    assert_ok(ddl_json_read(&root, scratch_path("a.json"), 1 << 20, &err), err);
    char *compact = json_dumps(root, JSON_COMPACT);
    write_file(scratch_path("compact.json"), compact, strlen(compact));
    json_decref(root);
    free(compact);
    free(text);
    ddl_tokenizer_free(tokenizer);
    tokenizer = load("compact.json");
    assert_ok(ddl_tokenizer_identify(tokenizer, "", &again, &err), err);
    assert_string_equal(id.sha256, again.sha256);
    ddl_tokenizer_free(tokenizer);
}

static void a_build_records_its_tokenizer(void **state)
{
    (void)state;
    struct ddl_error err;
    struct ddl_tokenizer_identity a, b;
    ddl_shards *shards = open_shards("a");
    assert_ok(ddl_shards_identity(shards, &a, &err), err);
    assert_int_equal(strlen(a.sha256), 64);
    assert_int_equal(a.end_of_text, 0); /* of its tokenizer; that of GPT-2 without a record */
    assert_int_equal(ddl_shards_usual_end_of_text(shards), 50256);
    json_t *root, *size;
    const char *name;
    assert_ok(ddl_json_read(&root, scratch_path("a/shards.json"), 1 << 20, &err), err);
    assert_int_equal(json_object_size(json_object_get(root, "files")), ddl_shards_n_files(shards));
    json_object_foreach(json_object_get(root, "files"), name, size)
        assert_true(json_integer_value(size) > 1024);
    assert_true(json_integer_value(json_object_get(json_object_get(root, "val"), "tokens")) > 0);
    json_decref(root);
    ddl_shards_close(shards);
    /* Built again with another tokenizer: the record is the new one. */
    build("again", "a.json");
    build("again", "b.json");
    shards = open_shards("again");
    assert_ok(ddl_shards_identity(shards, &b, &err), err);
    assert_string_not_equal(a.sha256, b.sha256);
    ddl_shards_close(shards);
}

static void files_without_a_record(void **state)
{
    (void)state;
    struct ddl_error err;
    struct ddl_tokenizer_identity id;
    /* Of a folder without one, and a file that a record does not describe. */
    build("bare", "a.json");
    assert_int_equal(unlink(scratch_path("bare/shards.json")), 0);
    ddl_shards *shards = open_shards("bare");
    assert_ok(ddl_shards_identity(shards, &id, &err), err);
    assert_string_equal(id.sha256, "");
    ddl_shards_close(shards);
    build("replaced", "a.json");
    write_random_shard(scratch_path("replaced/train_000000.bin"), 1, 100, 50);
    shards = open_shards("replaced/train_000000.bin");
    assert_ok(ddl_shards_identity(shards, &id, &err), err);
    assert_string_equal(id.sha256, "");
    ddl_shards_close(shards);
    /* A damaged record is an error. */
    build("damaged", "a.json");
    char *text = read_file(scratch_path("damaged/shards.json"), NULL), *sha = strstr(text, "\"sha256\": \"");
    sha[12] = 'x';
    write_file(scratch_path("damaged/shards.json"), text, strlen(text));
    free(text);
    shards = open_shards("damaged");
    assert_int_equal(ddl_shards_identity(shards, &id, &err), DDL_E_FORMAT);
    assert_says(&err, "damaged/shards.json: tokenizer: expected name, vocab_size, end_of_text and sha256");
    ddl_shards_close(shards);
}

static void count_warning(void *user, const char *message)
{
    assert_non_null(strstr(message, "padded to a multiple of 64"));
    ++*(int *)user;
}

/* Shards, tokenizer and vocab_size: what is an error, what a warning. */
static void what_fits_together(void **state)
{
    (void)state;
    static const struct {
        const char *tokenizer, *train, *val;
        size_t vocab_size;
        const char *says;
        int warnings;
    } cases[] = {
        { "a.json", "a", "a", 320, NULL, 0 },
        { "a.json", "a", NULL, TINY_VOCAB, NULL, 0 },
        { "a.json", "bare", "a", 320, NULL, 0 },
        { NULL, "a", "a", 320, NULL, 0 },
        { NULL, "bare", NULL, 5, NULL, 0 },
        { NULL, "bare", NULL, 100000, NULL, 0 },
        { "a.json", "a", NULL, 4096, NULL, 1 },
        { NULL, "a", NULL, 4096, NULL, 1 },
        { "b.json", "a", NULL, 320, "a/train_000000.bin: built with another tokenizer: expected ", 0 },
        { "a.json", "a", "b", 320, "b/train_000000.bin: built with another tokenizer: expected ", 0 },
        { NULL, "a", "b", 320, "b.json (", 0 },
        { "a.json", NULL, NULL, 256, "vocab_size is 256: expected at least the ", 0 },
        { NULL, "a", NULL, 256, "vocab_size is 256: expected at least the ", 0 },
    };
    build("bare", "a.json");
    assert_int_equal(unlink(scratch_path("bare/shards.json")), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ddl_error err = { 0 };
        int warnings = 0;
        ddl_tokenizer *tokenizer = cases[i].tokenizer ? load(cases[i].tokenizer) : NULL;
        ddl_shards *train = cases[i].train ? open_shards(cases[i].train) : NULL;
        ddl_shards *val = cases[i].val ? open_shards(cases[i].val) : NULL;
        const struct ddl_vocabulary v = { cases[i].vocab_size, tokenizer, cases[i].tokenizer, train, val };
        ddl_status status = ddl_vocabulary_check(&v, NULL, count_warning, &warnings, &err);
        assert_int_equal(status, cases[i].says ? DDL_E_FORMAT : DDL_OK);
        if (cases[i].says)
            assert_says(&err, cases[i].says);
        assert_int_equal(warnings, cases[i].warnings);
        ddl_shards_close(val);
        ddl_shards_close(train);
        ddl_tokenizer_free(tokenizer);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(identity_of_a_tokenizer),
        cmocka_unit_test(a_build_records_its_tokenizer),
        cmocka_unit_test(files_without_a_record),
        cmocka_unit_test(what_fits_together),
    };
    return cmocka_run_group_tests(tests, prepare, NULL);
}
