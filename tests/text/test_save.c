/* Tests text/save.c: a saved tokenizer loads with identical results, whatever its source format, and saving
 * again gives the same file. */
#include "support/support.h"

#include "base/file.h"
#include "text/tokenizer.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void assert_same(const ddl_tokenizer *a, const ddl_tokenizer *b)
{
    assert_int_equal(a->n_tokens, b->n_tokens);
    for (size_t id = 0; id < a->n_tokens; id++) {
        assert_int_equal(a->tokens[id].size, b->tokens[id].size);
        assert_int_equal(a->tokens[id].flags, b->tokens[id].flags);
        assert_memory_equal(a->pool + a->tokens[id].offset, b->pool + b->tokens[id].offset,
                            a->tokens[id].size);
    }
    assert_int_equal(a->n_merges, b->n_merges);
    assert_memory_equal(a->merges, b->merges, a->n_merges * sizeof *a->merges);
    assert_int_equal(a->n_specials, b->n_specials);
    for (size_t i = 0; i < a->n_specials; i++) {
        assert_int_equal(a->specials[i].id, b->specials[i].id);
        assert_int_equal(a->specials[i].normalized, b->specials[i].normalized);
        assert_int_equal(a->specials[i].special, b->specials[i].special);
    }
    assert_int_equal(a->add_prefix_space, b->add_prefix_space);
    assert_int_equal(a->ignore_merges, b->ignore_merges);
}

static void round_trip(const char *source)
{
    struct ddl_error err;
    ddl_tokenizer *t, *back;
    char *first, *second;
    size_t n_first, n_second;
    assert_ok(ddl_tokenizer_load(&t, source, &err), err);
    assert_ok(ddl_tokenizer_save(t, scratch_path("folder"), &err), err);
    assert_ok(ddl_file_read(scratch_path("folder/tokenizer.json"), 1 << 24, &first, &n_first, &err), err);
    assert_ok(ddl_tokenizer_load(&back, scratch_path("folder"), &err), err);
    assert_same(t, back);
    assert_ok(ddl_tokenizer_save(back, scratch_path("again.json"), &err), err);
    assert_ok(ddl_file_read(scratch_path("again.json"), 1 << 24, &second, &n_second, &err), err);
    assert_int_equal(n_first, n_second);
    assert_memory_equal(first, second, n_first);
    free(first);
    free(second);
    ddl_tokenizer_free(t);
    ddl_tokenizer_free(back);
}

static void gpt2(void **state)
{
    (void)state;
    round_trip(source_path("data/tokenizer"));
}

static void trained_by_tokenizers(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++) {
        char name[64];
        snprintf(name, sizeof name, "tests/golden/tokenizer-train/case%d.json", i);
        round_trip(source_path(name));
    }
}

/* Settings, and added tokens that are not in the vocabulary. */
static void settings(void **state)
{
    (void)state;
    json_t *root = json_load_file(source_path("tests/golden/tokenizer-train/case2.json"), 0, NULL);
    json_object_set_new(json_object_get(root, "pre_tokenizer"), "add_prefix_space", json_true());
    json_object_set_new(json_object_get(root, "model"), "ignore_merges", json_true());
    json_array_append_new(
        json_object_get(root, "added_tokens"),
        json_pack("{s:i, s:s, s:b}", "id", 400, "content", "d\xC3\xA9j\xC3\xA0 \"vu\"\n", "normalized", 1));
    assert_int_equal(json_dump_file(root, scratch_path("settings.json"), 0), 0);
    round_trip(scratch_path("settings.json"));
    json_decref(root);
}

static void cannot_write(void **state)
{
    (void)state;
    struct ddl_error err;
    ddl_tokenizer *t;
    assert_ok(ddl_tokenizer_load(&t, source_path("tests/golden/tokenizer-train/case2.json"), &err), err);
    assert_ok(ddl_file_replace(scratch_path("plain"), "", 0, &err), err);
    assert_int_equal(ddl_tokenizer_save(t, scratch_path("plain/x.json"), &err), DDL_E_IO);
    assert_non_null(strstr(err.text, "plain"));
    ddl_tokenizer_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt2),
        cmocka_unit_test(trained_by_tokenizers),
        cmocka_unit_test(settings),
        cmocka_unit_test(cannot_write),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
