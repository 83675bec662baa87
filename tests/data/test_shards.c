/* Tests data/shards.c: valid and invalid sets, error messages, and reads across files and the wrap-around. */
#include "support/files.h"

#include "ddl/data.h"

static ddl_shards *open_ok(const char *path)
{
    struct ddl_error err;
    ddl_shards *shards;
    assert_ok(ddl_shards_open(&shards, path, &err), err);
    return shards;
}

/* Three files of 5, 1 and 7 tokens, of both widths: 13 tokens 0 .. 12. */
static void write_set(void)
{
    remove_scratch("set");
    struct ddl_error err;
    assert_ok(ddl_file_make_dir(scratch_path("set"), &err), err);
    write_shard(scratch_path("set/a_2.bin"), 4, 6, 7);
    write_shard(scratch_path("set/a_0.bin"), 2, 0, 5);
    write_shard(scratch_path("set/a_1.bin"), 2, 5, 1);
    write_shard(scratch_path("set/b_0.bin"), 2, 100, 2);
    write_file(scratch_path("set/notes.txt"), "x", 1);
}

static void names_and_order(void **state)
{
    (void)state;
    write_set();
    static const struct {
        const char *path;
        size_t files;
        uint64_t tokens;
    } cases[] = {
        { "set", 4, 15 }, { "set/a_*.bin", 3, 13 }, { "set/b_?.bin", 1, 2 }, { "set/a_2.bin", 1, 7 }
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ddl_shards *shards = open_ok(scratch_path(cases[i].path));
        assert_int_equal(ddl_shards_n_files(shards), cases[i].files);
        assert_int_equal(ddl_shards_count(shards), cases[i].tokens);
        ddl_shards_close(shards);
    }
    ddl_shards *shards = open_ok(scratch_path("set/a_*.bin"));
    uint64_t tokens;
    int width;
    assert_string_equal(ddl_shards_file(shards, 2, &tokens, &width), scratch_path("set/a_2.bin"));
    assert_int_equal(tokens, 7);
    assert_int_equal(width, 4);
    assert_null(ddl_shards_file(shards, 3, NULL, NULL));
    ddl_shards_close(shards);
    ddl_shards_close(NULL);
}

/* Opens `path` for a split; *left_out are the counts of other and of validation files. */
static ddl_shards *open_split(const char *path, int split, size_t left_out[2])
{
    const struct ddl_shards_options options = { .split = split };
    struct ddl_error err;
    ddl_shards *shards;
    assert_ok(ddl_shards_open_with(&shards, path, &options, &err), err);
    left_out[0] = ddl_shards_n_left_out(shards, false);
    left_out[1] = ddl_shards_n_left_out(shards, true);
    return shards;
}

/* Which files a split takes from a folder with the given files; each has one token, its index. */
static void splits(void **state)
{
    (void)state;
    static const struct {
        const char *files[6];
        const char *train, *val;  /* indices of the opened files */
        size_t left_out_train[2]; /* others, validation shards */
    } cases[] = {
        { { "train_000000.bin", "train_000001.bin", "val_000000.bin" }, "01", "2", { 0, 1 } },
        { { "train.bin", "val.bin" }, "0", "1", { 0, 1 } },
        { { "fineweb_train_000001.bin", "fineweb_val_000000.bin" }, "0", "1", { 0, 1 } },
        { { "a-train.bin", "b.bin", "c.valid.bin", "d validation.bin" }, "0", "23", { 1, 2 } },
        { { "a.bin", "b.bin", "val_0.bin" }, "01", "2", { 0, 1 } },
        { { "a.bin", "trainer.bin", "values.bin", "xval.bin" }, "0123", "0123", { 0, 0 } },
        { { "train_0.bin", "train_1.bin" }, "01", "01", { 0, 0 } },
        { { "val_0.bin", "val_1.bin" }, "01", "01", { 0, 0 } },
        { { "train_0.bin", "x.bin" }, "0", "01", { 1, 0 } },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char path[256];
        struct ddl_error err;
        remove_scratch("split");
        assert_ok(ddl_file_make_dir(scratch_path("split"), &err), err);
        for (uint32_t f = 0; f < 6 && cases[i].files[f]; f++) {
            snprintf(path, sizeof path, "split/%s", cases[i].files[f]);
            write_shard(scratch_path(path), 2, f, 1);
        }
        for (int split = DDL_SHARDS_TRAIN; split <= DDL_SHARDS_VAL; split++) {
            const char *wanted = split == DDL_SHARDS_TRAIN ? cases[i].train : cases[i].val;
            size_t left_out[2];
            for (int pattern = 0; pattern < 2; pattern++) { /* a pattern is as good as its folder */
                ddl_shards *shards =
                    open_split(scratch_path(pattern ? "split/*.bin" : "split"), split, left_out);
                assert_int_equal(ddl_shards_n_files(shards), strlen(wanted));
                for (size_t k = 0; k < strlen(wanted); k++) {
                    int32_t token;
                    ddl_shards_read(shards, k, 1, &token);
                    assert_int_equal(token, wanted[k] - '0');
                }
                ddl_shards_close(shards);
            }
            if (split == DDL_SHARDS_TRAIN)
                assert_memory_equal(left_out, cases[i].left_out_train, sizeof left_out);
        }
    }
}

/* Several paths; a file whose name has a comma is not a list. */
static void lists(void **state)
{
    (void)state;
    char list[1024];
    struct ddl_error err;
    ddl_shards *shards;
    write_set();
    snprintf(list, sizeof list, "%s,", scratch_path("set/b_*.bin"));
    snprintf(list + strlen(list), sizeof list - strlen(list), "%s", scratch_path("set/a_1.bin"));
    shards = open_ok(list);
    assert_int_equal(ddl_shards_n_files(shards), 2);
    assert_string_equal(ddl_shards_file(shards, 0, NULL, NULL), scratch_path("set/a_1.bin"));
    ddl_shards_close(shards);
    snprintf(list, sizeof list, "%s,none.bin", scratch_path("set/a_1.bin"));
    assert_int_equal(ddl_shards_open(&shards, list, &err), DDL_E_IO);
    assert_says(&err, "none.bin: cannot open");
    write_shard(scratch_path("a,b.bin"), 2, 7, 1);
    shards = open_ok(scratch_path("a,b.bin"));
    assert_int_equal(ddl_shards_count(shards), 1);
    ddl_shards_close(shards);
}

static void reading_wraps(void **state)
{
    (void)state;
    write_set();
    ddl_shards *shards = open_ok(scratch_path("set/a_*.bin"));
    for (uint64_t start = 0; start < 30; start++) {
        for (size_t n = 0; n < 40; n++) {
            int32_t out[41];
            out[n] = -7;
            ddl_shards_read(shards, start, n, out);
            for (size_t i = 0; i < n; i++)
                assert_int_equal(out[i], (start + i) % 13);
            assert_int_equal(out[n], -7);
        }
    }
    ddl_shards_close(shards);
}

static void an_empty_file_in_a_set(void **state)
{
    (void)state;
    write_set();
    write_shard(scratch_path("set/a_3.bin"), 2, 0, 0);
    write_shard(scratch_path("set/a_00.bin"), 2, 0, 0);
    ddl_shards *shards = open_ok(scratch_path("set/a_*.bin"));
    int32_t out[27];
    ddl_shards_read(shards, 0, 27, out);
    for (int i = 0; i < 27; i++)
        assert_int_equal(out[i], i % 13);
    ddl_shards_close(shards);
}

static void vocabulary(void **state)
{
    (void)state;
    struct ddl_error err;
    write_set();
    ddl_shards *shards = open_ok(scratch_path("set/a_*.bin"));
    assert_ok(ddl_shards_check(shards, 13, NULL, NULL, &err), err);
    assert_int_equal(ddl_shards_check(shards, 12, NULL, NULL, &err), DDL_E_FORMAT);
    assert_says(&err, "a_2.bin: token 12 at position 6 exceeds the vocabulary of 12 tokens");
    struct ddl_shard_stats stats;
    assert_ok(ddl_shards_scan(shards, 2, 8, &stats, NULL, NULL, &err), err);
    assert_int_equal(stats.tokens, 7);
    assert_int_equal(stats.largest, 12);
    assert_int_equal(stats.largest_at, 6);
    assert_int_equal(stats.documents, 1);
    ddl_shards_close(shards);

    write_shard(scratch_path("huge.bin"), 4, 0x80000000u, 1);
    shards = open_ok(scratch_path("huge.bin"));
    assert_int_equal(ddl_shards_check(shards, SIZE_MAX >> 33, NULL, NULL, &err), DDL_E_FORMAT);
    assert_says(&err, "token 2147483648 at position 0");
    ddl_shards_close(shards);
}

/* A valid shard of four tokens with one 32-bit word of its header changed, or truncated to a size. */
static void broken_headers(void **state)
{
    (void)state;
    static const struct {
        int word;
        uint32_t value;
        size_t size;
        ddl_status status;
        const char *gist;
    } cases[] = {
        { -1, 0, 0, DDL_E_FORMAT, "0 bytes, less than the shard header of 1024 bytes" },
        { -1, 0, 1023, DDL_E_FORMAT, "1023 bytes, less than the shard header" },
        { 0, 20240522, 1032, DDL_E_FORMAT,
          "not a shard: expected magic number 20240520 or 20240801, found 20240522" },
        { 0, 20240801, 1032, DDL_E_UNSUPPORTED, "shard version: expected 7 (uint32), found 1" },
        { 1, 0, 1032, DDL_E_UNSUPPORTED, "shard version: expected 1 (uint16) or 2 (uint32), found 0" },
        { 1, 7, 1032, DDL_E_UNSUPPORTED, "shard version: expected 1 (uint16) or 2 (uint32), found 7" },
        { 1, 2, 1032, DDL_E_FORMAT, "expected 1040 bytes for 4 tokens of uint32, found 1032: truncated" },
        { 2, 0xffffffff, 1032, DDL_E_FORMAT, "invalid token count -1" },
        { 2, 5, 1032, DDL_E_FORMAT, "expected 1034 bytes for 5 tokens of uint16, found 1032: truncated" },
        { 2, 3, 1032, DDL_E_FORMAT, "expected 1030 bytes for 3 tokens of uint16, found 1032: extra bytes" },
        { 2, 0x7fffffff, 1032, DDL_E_FORMAT, "truncated" },
        { -1, 0, 1031, DDL_E_FORMAT, "expected 1032 bytes" },
        { 2, 0, 1024, DDL_E_FORMAT, "no tokens in 1 file" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        unsigned char data[1040] = { 0 };
        const uint32_t header[3] = { 20240520, 1, 4 };
        for (int w = 0; w < 3; w++) {
            uint32_t value = cases[i].word == w ? cases[i].value : header[w];
            for (int b = 0; b < 4; b++)
                data[4 * w + b] = (unsigned char)(value >> 8 * b);
        }
        write_file(scratch_path("broken.bin"), data, cases[i].size);
        struct ddl_error err;
        ddl_shards *shards;
        assert_int_equal(ddl_shards_open(&shards, scratch_path("broken.bin"), &err), cases[i].status);
        assert_null(shards);
        assert_says(&err, "broken.bin: ");
        assert_says(&err, cases[i].gist);
    }
}

static void write_words(const char *path, uint32_t magic, uint32_t version, const uint32_t *tokens,
                        uint32_t n, int width)
{
    unsigned char data[2048] = { 0 };
    const uint32_t header[3] = { magic, version, n };
    size_t size = 0;
    for (size_t i = 0; i < sizeof header && magic; i++)
        data[i] = (unsigned char)(header[i / 4] >> 8 * (i % 4));
    size = magic ? 1024 : 0;
    for (uint32_t i = 0; i < n; i++) {
        for (int b = 0; b < width; b++)
            data[size++] = (unsigned char)(tokens[i] >> 8 * b);
    }
    write_file(path, data, size);
}

/* llm.c's two kinds of shards and nanoGPT's files; `assumed`: nanoGPT's, recognized by name. */
static void formats(void **state)
{
    (void)state;
    static const uint32_t tokens[8] = { 1, 2, 300, 65535, 5, 6, 7, 128000 };
    enum { NANOGPT = 0 };
    static const struct {
        const char *name;
        uint32_t magic, version;
        int width, format;
        bool assumed;
        const char *error; /* NULL: opens */
    } cases[] = {
        { "x.bin", 20240520, 1, 2, DDL_SHARDS_AUTO, false, NULL },
        { "x.bin", 20240520, 2, 4, DDL_SHARDS_LLMC, false, NULL },
        { "x.bin", 20240801, 7, 4, DDL_SHARDS_AUTO, false, NULL },
        { "train.bin", 20240801, 7, 4, DDL_SHARDS_AUTO, false, NULL },
        { "train.bin", NANOGPT, 0, 2, DDL_SHARDS_AUTO, true, NULL },
        { "val.bin", NANOGPT, 0, 2, DDL_SHARDS_AUTO, true, NULL },
        { "val.bin", NANOGPT, 0, 2, DDL_SHARDS_NANOGPT, false, NULL },
        { "x.bin", NANOGPT, 0, 2, DDL_SHARDS_NANOGPT, false, NULL },
        { "x.bin", NANOGPT, 0, 2, DDL_SHARDS_AUTO, false, "x.bin: 14 bytes, less than the shard header" },
        { "train.bin", NANOGPT, 0, 2, DDL_SHARDS_LLMC, false, "train.bin: 14 bytes, less than the shard" },
        { "train.bin", 99, 1, 2, DDL_SHARDS_AUTO, false,
          "not a shard: expected magic" }, /* corrupted, not nanoGPT */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct ddl_shards_options options = { .format = cases[i].format };
        const uint32_t n = cases[i].width == 2 ? 7 : 8;
        const char *path = scratch_path(cases[i].name);
        struct ddl_error err;
        ddl_shards *shards;
        write_words(path, cases[i].magic, cases[i].version, tokens, n, cases[i].width);
        ddl_status status = ddl_shards_open_with(&shards, path, &options, &err);
        if (cases[i].error) {
            assert_int_equal(status, DDL_E_FORMAT);
            assert_says(&err, cases[i].error);
            continue;
        }
        assert_ok(status, err);
        int32_t found[8];
        int width;
        ddl_shards_file(shards, 0, NULL, &width);
        assert_int_equal(width, cases[i].width);
        assert_int_equal(ddl_shards_assumed(shards) != NULL, cases[i].assumed);
        assert_int_equal(ddl_shards_count(shards), n);
        assert_int_equal(ddl_shards_usual_end_of_text(shards), cases[i].magic == 20240801 ? 128000 : 50256);
        ddl_shards_read(shards, 0, n, found);
        assert_memory_equal(found, tokens, n * sizeof *found);
        ddl_shards_close(shards);
    }
    const struct ddl_shards_options nanogpt = { .format = DDL_SHARDS_NANOGPT };
    struct ddl_error err;
    ddl_shards *shards;
    write_file(scratch_path("odd.bin"), "abc", 3);
    assert_int_equal(ddl_shards_open_with(&shards, scratch_path("odd.bin"), &nanogpt, &err), DDL_E_FORMAT);
    assert_says(&err, "odd.bin: 3 bytes: expected uint16 tokens, an even number of bytes");
}

static void absent(void **state)
{
    (void)state;
    struct ddl_error err;
    ddl_shards *shards;
    assert_int_equal(ddl_shards_open(&shards, scratch_path("none.bin"), &err), DDL_E_IO);
    assert_says(&err, "none.bin: cannot open: ");
    assert_int_equal(ddl_shards_open(&shards, scratch_path("none_*.bin"), &err), DDL_E_IO);
    assert_says(&err, "none_*.bin: no matching file");
    assert_ok(ddl_file_make_dir(scratch_path("hollow"), &err), err);
    assert_int_equal(ddl_shards_open(&shards, scratch_path("hollow"), &err), DDL_E_FORMAT);
    assert_says(&err, "hollow: no .bin file");
    /* One corrupted file makes the set invalid, and the error names it. */
    write_set();
    write_file(scratch_path("set/a_1.bin"), "x", 1);
    assert_int_equal(ddl_shards_open(&shards, scratch_path("set"), &err), DDL_E_FORMAT);
    assert_says(&err, "a_1.bin: 1 bytes");
    static const char text[] = "Once upon a time, d\xc3\xa9j\xc3\xa0 vu.\n";
    write_file(scratch_path("set/a_1.bin"), text, sizeof text - 1);
    assert_int_equal(ddl_shards_open(&shards, scratch_path("set"), &err), DDL_E_FORMAT);
    assert_says(&err, "a_1.bin: not a shard but text: ddl data build makes shards of text");
}

/* a_0 has tokens 0 .. 4, a_1 token 5, a_2 tokens 6 .. 12; a_1 has no mask. */
static void masks(void **state)
{
    (void)state;
    static const struct {
        uint64_t start;
        size_t n;
        int32_t targets[8];
        unsigned char groups[8];
    } reads[] = {
        { 0, 6, { -1, 1, 2, -1, 4, 5 }, { 0, 1, 2, 0, 255, 1 } },
        { 4, 4, { 4, 5, -1, -1 }, { 255, 1, 0, 0 } },
        { 11, 4, { -1, 12, -1, 1 }, { 0, 3, 0, 1 } },
    };
    write_set();
    write_file(scratch_path("set/a_0.mask"), "\0\1\2\0\377", 5);
    write_file(scratch_path("set/a_2.mask"), "\0\0\0\0\0\0\3", 7);
    ddl_shards *shards = open_ok(scratch_path("set/a_*.bin"));
    assert_int_equal(ddl_shards_n_masks(shards), 2);
    for (size_t i = 0; i < sizeof reads / sizeof *reads; i++) {
        int32_t targets[8], tokens[8];
        unsigned char groups[8];
        ddl_shards_read_targets(shards, reads[i].start, reads[i].n, targets);
        ddl_shards_read_groups(shards, reads[i].start, reads[i].n, groups);
        ddl_shards_read(shards, reads[i].start, reads[i].n, tokens);
        assert_memory_equal(targets, reads[i].targets, reads[i].n * sizeof *targets);
        assert_memory_equal(groups, reads[i].groups, reads[i].n);
        for (size_t j = 0; j < reads[i].n; j++)
            assert_int_equal(tokens[j], (reads[i].start + j) % 13);
    }
    struct ddl_loader loader = { .shards = shards, .order = DDL_ORDER_SEQUENTIAL, .T = 3 };
    int32_t tokens[6], targets[6];
    ddl_loader_next(&loader, 2, tokens, targets);
    assert_memory_equal(targets, ((int32_t[]){ 1, 2, -1, 4, 5, -1 }), sizeof targets);
    struct ddl_shard_stats stats;
    struct ddl_error err;
    assert_ok(ddl_shards_scan(shards, 2, -1, &stats, NULL, NULL, &err), err);
    assert_true(stats.masked && stats.groups[0] == 6 && stats.groups[3] == 1);
    assert_ok(ddl_shards_scan(shards, 1, -1, &stats, NULL, NULL, &err), err);
    assert_true(!stats.masked && stats.groups[1] == 1);
    ddl_shards_close(shards);
}

static void wrong_masks(void **state)
{
    (void)state;
    struct ddl_error err;
    ddl_shards *shards;
    write_set();
    write_file(scratch_path("set/a_0.mask"), "\0\0\0\0", 4);
    assert_int_equal(ddl_shards_open(&shards, scratch_path("set/a_0.bin"), &err), DDL_E_FORMAT);
    assert_says(&err, "a_0.mask: expected 5 bytes, one per token of ");
    assert_says(&err, "a_0.bin, found 4");
    write_file(scratch_path("set/a_0.mask"), "\0\0\0\0\0", 5);
    assert_int_equal(ddl_shards_open(&shards, scratch_path("set/a_0.bin"), &err), DDL_E_FORMAT);
    assert_says(&err, "a_0.bin: the masks of these shards count no token");
    assert_null(shards);
    ddl_shards_close(open_ok(scratch_path("set/a_[01].bin")));
}

/* Written by the reference implementation, not by this program. */
static void golden_shard(void **state)
{
    (void)state;
    struct ddl_error err;
    ddl_shards *shards = open_ok(source_path("tests/golden/curve-baseline/tokens.bin"));
    assert_int_equal(ddl_shards_count(shards), (154626 - 1024) / 2);
    assert_ok(ddl_shards_check(shards, 50304, NULL, NULL, &err), err);
    ddl_shards_close(shards);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_and_order),
        cmocka_unit_test(splits),
        cmocka_unit_test(lists),
        cmocka_unit_test(reading_wraps),
        cmocka_unit_test(an_empty_file_in_a_set),
        cmocka_unit_test(vocabulary),
        cmocka_unit_test(broken_headers),
        cmocka_unit_test(absent),
        cmocka_unit_test(masks),
        cmocka_unit_test(wrong_masks),
        cmocka_unit_test(golden_shard),
        cmocka_unit_test(formats),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
