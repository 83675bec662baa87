/* Tests data/text_batch.c: segments become ids of their split, in order; the first error ends a batch. */
#include "support/files.h"
#include "support/tokenizer.h"

#include "data/text_batch.h"

static void add(struct ddl_text_batch *batch, const char *text, bool json, bool starts, unsigned char split)
{
    struct ddl_error err;
    struct ddl_segment segment = { .offset = batch->size,
                                   .size = strlen(text),
                                   .path = "file",
                                   .line = batch->n_segments + 1,
                                   .json = json,
                                   .starts = starts,
                                   .split = split };
    assert_ok(ddl_text_batch_append(batch, text, segment.size, &err), err);
    assert_ok(ddl_text_batch_add_segment(batch, &segment, &err), err);
}

static void segments_to_splits(void **state)
{
    (void)state;
    struct ddl_text_batch batch = { 0 };
    for (int use = 0; use < 3; use++) {
        add(&batch, "a", false, true, DDL_SPLIT_TRAIN);
        add(&batch, "{\"key\": \"b\"}", true, true, DDL_SPLIT_VAL);
        add(&batch, "\n", false, false, DDL_SPLIT_TRAIN); /* another piece of the same document */
        add(&batch, "{\"key\": \"\"}", true, true, DDL_SPLIT_VAL);
        add(&batch, "c", false, true, DDL_SPLIT_VAL);
        ddl_text_batch_decode(&batch, "key");
        ddl_text_batch_encode(&batch, tokenizer, 50256);
        assert_ok(batch.status, batch.err);
        static const int32_t train[] = { 50256, 64, 198 }, val[] = { 50256, 65, 50256, 66 };
        assert_int_equal(batch.ids[0].n, 3);
        assert_memory_equal(batch.ids[0].ids, train, sizeof train);
        assert_int_equal(batch.ids[1].n, 4);
        assert_memory_equal(batch.ids[1].ids, val, sizeof val);
        assert_int_equal(batch.documents[0], 1);
        assert_int_equal(batch.documents[1], 2);
        assert_int_equal(batch.bytes[0], 2);
        assert_int_equal(batch.bytes[1], 2);
        assert_int_equal(batch.skipped, 1);
        ddl_text_batch_reset(&batch);
        assert_int_equal(batch.n_segments + batch.size + batch.ids[0].n + batch.documents[0] + batch.skipped,
                         0);
    }
    ddl_text_batch_free(&batch);
}

static void first_error_ends_it(void **state)
{
    (void)state;
    struct ddl_text_batch batch = { 0 };
    add(&batch, "a", false, true, DDL_SPLIT_TRAIN);
    add(&batch, "{\"key\": 1}", true, true, DDL_SPLIT_TRAIN);
    add(&batch, "{", true, true, DDL_SPLIT_TRAIN);
    ddl_text_batch_decode(&batch, "key");
    ddl_text_batch_encode(&batch, tokenizer, 50256);
    assert_int_equal(batch.status, DDL_E_FORMAT);
    assert_says(&batch.err, "file:2: \"key\": expected a string, found a number");
    ddl_text_batch_free(&batch);
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
        cmocka_unit_test(segments_to_splits),
        cmocka_unit_test(first_error_ends_it),
        cmocka_unit_test(large_buffers_are_freed),
    };
    return cmocka_run_group_tests(tests, load_tokenizer, unload_tokenizer);
}
