/* Tests data/shard_set.c and data/publish.c: tokens of both splits are written to valid shards; nothing is
 * visible before they are published; a publication that is interrupted can be completed. */
#include "support/files.h"

#include "data/publish.h"
#include "data/shard_set.h"
#include "ddl/data.h"

static struct ddl_build_folder folder;

static void begin_in_folder(struct ddl_shard_set *set, int width, size_t shard_tokens)
{
    struct ddl_error err;
    char work[DDL_BUILD_PATH];
    assert_ok(ddl_build_folder_open(&folder, scratch_path("deep/er/out"), 0, 1, &err), err);
    ddl_build_folder_file(&folder, DDL_BUILD_SHARDS, work);
    assert_ok(ddl_shard_set_begin(set, work, width, shard_tokens, &err), err);
}

static void begin(struct ddl_shard_set *set, int width, size_t shard_tokens)
{
    remove_scratch("deep");
    begin_in_folder(set, width, shard_tokens);
}

static void publish(struct ddl_shard_set *set)
{
    struct ddl_error err;
    assert_ok(ddl_shard_set_close(set, &err), err);
    assert_ok(ddl_publish_begin(&folder, false, &err), err);
    assert_ok(ddl_publish_finish(&folder, &err), err);
    ddl_build_folder_close(&folder);
}

static void assert_content(const char *wanted)
{
    char command[4096], out[4096];
    snprintf(command, sizeof command, "ls -A '%s'", scratch_path("deep/er/out"));
    assert_int_equal(run_command(command, out, sizeof out), 0);
    assert_string_equal(out, wanted);
}

static void append(struct ddl_shard_set *set, int split, int32_t first, size_t n)
{
    int32_t ids[5000];
    struct ddl_error err;
    assert_true(n <= 5000);
    for (size_t i = 0; i < n; i++)
        ids[i] = first + (int32_t)i;
    assert_ok(ddl_shard_set_append(set, split, ids, n, &err), err);
}

static void check_split(const char *pattern, int width, size_t n, size_t shard_tokens, int32_t first)
{
    struct ddl_error err;
    ddl_shards *shards;
    int found;
    assert_ok(ddl_shards_open(&shards, scratch_path(pattern), &err), err);
    assert_int_equal(ddl_shards_count(shards), n);
    assert_int_equal(ddl_shards_n_files(shards), (n + shard_tokens - 1) / shard_tokens);
    ddl_shards_file(shards, 0, NULL, &found);
    assert_int_equal(found, width);
    for (size_t i = 0; i < n; i++) {
        int32_t id;
        ddl_shards_read(shards, i, 1, &id);
        assert_int_equal(id, first + (int32_t)i);
    }
    ddl_shards_close(shards);
}

static void round_trip(void **state)
{
    (void)state;
    static const size_t sizes[] = { 1, 63, 100, 5000, 2147483647 };
    for (int width = 2; width <= 4; width += 2) {
        int32_t first = width == 2 ? 60000 : 2147483647 - 9000, second = 7;
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            struct ddl_shard_set set;
            size_t scale = sizes[s] == 1 ? 1 : 40, n = 0, m = 0;
            begin(&set, width, sizes[s]);
            for (size_t k = 0; k < 16; k++) {
                append(&set, DDL_SPLIT_TRAIN, first + (int32_t)n, k * scale);
                append(&set, DDL_SPLIT_VAL, second + (int32_t)m, k % 3);
                n += k * scale;
                m += k % 3;
            }
            assert_false(ddl_file_exists(scratch_path("deep/er/out/train_000000.bin")));
            publish(&set);
            check_split("deep/er/out/train_*.bin", width, n, sizes[s], first);
            check_split("deep/er/out/val_*.bin", width, m, sizes[s], second);
        }
    }
}

static void discard_leaves_nothing(void **state)
{
    (void)state;
    struct ddl_shard_set set;
    struct ddl_error err;
    begin(&set, 2, 10);
    append(&set, DDL_SPLIT_TRAIN, 0, 55);
    append(&set, DDL_SPLIT_VAL, 0, 3);
    ddl_shard_set_discard(&set);
    ddl_build_folder_close(&folder);
    assert_false(ddl_file_exists(scratch_path("deep")));
    /* A folder that existed before, and its content, must be preserved. */
    assert_ok(ddl_file_make_dir(scratch_path("deep/er/out"), &err), err);
    write_file(scratch_path("deep/er/out/note.txt"), "x", 1);
    begin_in_folder(&set, 2, 10);
    append(&set, DDL_SPLIT_TRAIN, 0, 5);
    ddl_shard_set_discard(&set);
    ddl_build_folder_close(&folder);
    assert_content("note.txt\n");
}

/* Interrupted after some of the shards were moved. */
static void publication_is_completed(void **state)
{
    (void)state;
    struct ddl_shard_set set;
    struct ddl_error err;
    begin(&set, 2, 10);
    append(&set, DDL_SPLIT_TRAIN, 0, 35);
    assert_ok(ddl_shard_set_close(&set, &err), err);
    const struct ddl_tokenizer_identity identity = { .vocab_size = 100 };
    const struct ddl_shard_record record = { .tokenizer = &identity, .build = "" };
    assert_ok(ddl_shard_set_record(&set, &record, json_object(), &err), err);
    assert_ok(ddl_publish_begin(&folder, false, &err), err);
    assert_int_equal(rename(scratch_path("deep/er/out/.build/ready/train_000002.bin"),
                            scratch_path("deep/er/out/train_000002.bin")),
                     0);
    ddl_build_folder_close(&folder);
    assert_ok(ddl_build_folder_open(&folder, scratch_path("deep/er/out"), 0, 1, &err), err);
    assert_true(ddl_publish_pending(&folder));
    assert_ok(ddl_publish_finish(&folder, &err), err);
    assert_false(ddl_publish_pending(&folder));
    ddl_build_folder_close(&folder);
    assert_content("shards.json\ntrain_000000.bin\ntrain_000001.bin\ntrain_000002.bin\ntrain_000003.bin\n");
    check_split("deep/er/out", 2, 35, 10, 0);
}

/* Shards that appear during the build must not be modified. */
static void shards_created_meanwhile(void **state)
{
    (void)state;
    struct ddl_shard_set set;
    struct ddl_error err;
    begin(&set, 2, 10);
    append(&set, DDL_SPLIT_TRAIN, 0, 5);
    write_shard(scratch_path("deep/er/out/train_000000.bin"), 2, 0, 1);
    assert_ok(ddl_shard_set_close(&set, &err), err);
    assert_int_equal(ddl_publish_begin(&folder, false, &err), DDL_E_USAGE);
    assert_says(&err, "already has shards (train_000000.bin)");
    ddl_shard_set_discard(&set);
    ddl_build_folder_close(&folder);
    check_split("deep/er/out", 2, 1, 1, 0);
}

static void long_names(void **state)
{
    (void)state;
    char name[1100];
    struct ddl_error err;
    memset(name, 'a', sizeof name);
    name[sizeof name - 1] = '\0';
    assert_int_equal(ddl_build_folder_open(&folder, name, 0, 1, &err), DDL_E_USAGE);
    assert_says(&err, "folder name too long");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trip),
        cmocka_unit_test(discard_leaves_nothing),
        cmocka_unit_test(publication_is_completed),
        cmocka_unit_test(shards_created_meanwhile),
        cmocka_unit_test(long_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
