/* Tests data/text_batch.c: segments become ids, in order; the first error ends a batch. */
#include "support/files.h"
#include "support/tokenizer.h"

#include "data/text_batch.h"

static void add(struct ddl_text_batch *batch, const char *text, bool json, bool starts)
{
    struct ddl_error err;
    struct ddl_segment segment = { .offset = batch->size,
                                   .size = strlen(text),
                                   .path = "file",
                                   .line = batch->n_segments + 1,
                                   .json = json,
                                   .starts = starts };
    assert_ok(ddl_text_batch_append(batch, text, segment.size, &err), err);
    assert_ok(ddl_text_batch_add_segment(batch, &segment, &err), err);
}

static void segments_to_ids(void **state)
{
    (void)state;
    struct ddl_text_batch batch = { 0 };
    for (int use = 0; use < 3; use++) {
        add(&batch, "a", false, true);
        add(&batch, "{\"key\": \"b\"}", true, true);
        add(&batch, "\n", false, false); /* another piece of the same document */
        add(&batch, "{\"key\": \"\"}", true, true);
        add(&batch, "c", false, true);
        ddl_text_batch_decode(&batch, &(struct ddl_text_input){ .text_key = "key" });
        ddl_text_batch_encode(&batch, tokenizer, 50256);
        assert_ok(batch.status, batch.err);
        static const int32_t ids[] = { 50256, 64, 50256, 65, 198, 50256, 66 };
        static const size_t of_segments[] = { 2, 2, 1, 0, 2 }, sizes[] = { 1, 1, 1, 0, 1 };
        assert_int_equal(batch.ids.n, 7);
        assert_memory_equal(batch.ids.ids, ids, sizeof ids);
        for (size_t i = 0; i < 5; i++) {
            assert_int_equal(batch.segments[i].n_ids, of_segments[i]);
            assert_int_equal(batch.segments[i].size, sizes[i]);
        }
        ddl_text_batch_reset(&batch);
        assert_int_equal(batch.n_segments + batch.size + batch.ids.n, 0);
    }
    ddl_text_batch_free(&batch);
}

static void first_error_ends_it(void **state)
{
    (void)state;
    struct ddl_text_batch batch = { 0 };
    add(&batch, "a", false, true);
    add(&batch, "{\"key\": 1}", true, true);
    add(&batch, "{", true, true);
    ddl_text_batch_decode(&batch, &(struct ddl_text_input){ .text_key = "key" });
    ddl_text_batch_encode(&batch, tokenizer, 50256);
    assert_int_equal(batch.status, DDL_E_FORMAT);
    assert_says(&batch.err, "file:2: \"key\": expected a string, found a number");
    ddl_text_batch_free(&batch);
}

/* Lines of a range of a file are counted from a byte of it. */
static void lines_of_a_range(void **state)
{
    (void)state;
    char path[4096];
    snprintf(path, sizeof path, "%s", scratch_path("lines.jsonl"));
    write_file(path, "a\nb\nccc\nd\n", 11);
    struct ddl_segment segment = { .path = path, .line = 2 };
    assert_int_equal(ddl_segment_line(&segment), 2);
    segment.line_base = 8;
    assert_int_equal(ddl_segment_line(&segment), 5);
}

/* Memory of one unusually large use must be freed. */
static void large_buffers_are_freed(void **state)
{
    (void)state;
    struct ddl_text_batch batch = { 0 };
    struct ddl_error err;
    char *text = calloc(1, 8 << 20);
    assert_non_null(text);
    memset(text, ' ', 8 << 20);
    assert_ok(ddl_text_batch_append(&batch, text, 8 << 20, &err), err);
    assert_ok(ddl_text_batch_append(&batch, text, 1, &err), err);
    assert_int_equal(batch.size, (8 << 20) + 1);
    ddl_text_batch_reset(&batch);
    assert_int_equal(batch.capacity, 0);
    assert_ok(ddl_text_batch_append(&batch, text, 1000, &err), err);
    ddl_text_batch_reset(&batch);
    assert_true(batch.capacity >= 1000);
    free(text);
    ddl_text_batch_free(&batch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(segments_to_ids),
        cmocka_unit_test(first_error_ends_it),
        cmocka_unit_test(lines_of_a_range),
        cmocka_unit_test(large_buffers_are_freed),
    };
    return cmocka_run_group_tests(tests, load_tokenizer, unload_tokenizer);
}
