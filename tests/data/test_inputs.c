/* Tests data/inputs.c: which files are read, in which order, as which type. */
#define _POSIX_C_SOURCE 200809L
#include "support/files.h"

#include "data/inputs.h"

#include <sys/stat.h>
#include <unistd.h>

static void make_tree(void)
{
    static const char *const files[] = {
        "in/b.txt",       "in/a.jsonl.gz",  "in/c/z.txt.zst",   "in/c/a.jsonl",
        "in/c/readme.md", "in/.hidden.txt", "in/.git/x.txt",    "in/a.txt.gz",
        "in/d.jsonl.zst", "in/txt",         "in/empty/note.md",
    };
    static const char *const folders[] = { "in/c", "in/.git", "in/empty" };
    struct ddl_error err;
    remove_scratch("in");
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        assert_ok(ddl_file_make_dir(scratch_path(folders[i]), &err), err);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        write_file(scratch_path(files[i]), "xyz", 3);
}

static void folders_in_name_order(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        bool json;
        enum ddl_packing packing;
    } wanted[] = {
        { "in/a.jsonl.gz", true, DDL_PACKING_GZIP },   { "in/a.txt.gz", false, DDL_PACKING_GZIP },
        { "in/b.txt", false, DDL_PACKING_NONE },       { "in/c/a.jsonl", true, DDL_PACKING_NONE },
        { "in/c/z.txt.zst", false, DDL_PACKING_ZSTD }, { "in/d.jsonl.zst", true, DDL_PACKING_ZSTD },
    };
    make_tree();
    const char *names[] = { scratch_path("in") };
    struct ddl_inputs inputs = { 0 };
    struct ddl_error err;
    assert_ok(ddl_inputs_list(&inputs, names, 1, DDL_TEXT_PLAIN, &err), err);
    assert_int_equal(inputs.n, sizeof wanted / sizeof *wanted);
    assert_int_equal(inputs.bytes, 18);
    for (size_t i = 0; i < inputs.n; i++) {
        assert_string_equal(inputs.items[i].path, scratch_path(wanted[i].path));
        assert_int_equal(inputs.items[i].json, wanted[i].json);
        assert_int_equal(inputs.items[i].packing, wanted[i].packing);
        assert_int_equal(inputs.items[i].size, 3);
    }
    ddl_inputs_free(&inputs);
}

/* Without cycle detection, one such link would be followed until the system's limit of 40; two would give
 * 2^40 paths. */
static void symbolic_link_cycle(void **state)
{
    (void)state;
    struct ddl_error err;
    struct ddl_inputs inputs = { 0 };
    make_tree();
    const char *loop[] = { scratch_path("in") }, *const targets[] = { ".", ".." };
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(symlink(targets[i], scratch_path("in/c/back")), 0);
        assert_int_equal(ddl_inputs_list(&inputs, loop, 1, DDL_TEXT_PLAIN, &err), DDL_E_IO);
        assert_says(&err, "in/c/back: symbolic link cycle");
        ddl_inputs_free(&inputs);
        unlink(scratch_path("in/c/back"));
    }
    assert_int_equal(symlink("c", scratch_path("in/d")), 0); /* not a cycle: the folder is read twice */
    assert_ok(ddl_inputs_list(&inputs, loop, 1, DDL_TEXT_PLAIN, &err), err);
    assert_int_equal(inputs.n, 8);
    ddl_inputs_free(&inputs);
}

static void not_files(void **state)
{
    (void)state;
    struct ddl_error err;
    struct ddl_inputs inputs = { 0 };
    make_tree();
    assert_int_equal(mkfifo(scratch_path("in/pipe.txt"), 0600), 0);
    const char *folder[] = { scratch_path("in") };
    assert_int_equal(ddl_inputs_list(&inputs, folder, 1, DDL_TEXT_PLAIN, &err), DDL_E_IO);
    assert_says(&err, "pipe.txt: not a regular file");
    ddl_inputs_free(&inputs);
}

static void refused(void **state)
{
    (void)state;
    make_tree();
    static const struct {
        const char *path;
        ddl_status status;
        const char *gist;
    } cases[] = {
        { "in/none.txt", DDL_E_IO, "none.txt: cannot open: No such file" },
        { "in/c/readme.md", DDL_E_USAGE, "readme.md: unknown file type: expected .txt, .jsonl, " },
        { "in/txt", DDL_E_USAGE, "unknown file type" },
        { "in/empty", DDL_E_FORMAT, "empty: no .txt or .jsonl file" },
    };
    struct ddl_error err;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *names[] = { scratch_path("in/b.txt"), scratch_path(cases[i].path) };
        struct ddl_inputs inputs = { 0 };
        assert_int_equal(ddl_inputs_list(&inputs, names, 2, DDL_TEXT_PLAIN, &err), cases[i].status);
        assert_says(&err, cases[i].gist);
        ddl_inputs_free(&inputs);
    }
    const char *twice[] = { "-", "-" };
    struct ddl_inputs inputs = { 0 };
    assert_int_equal(ddl_inputs_list(&inputs, twice, 2, DDL_TEXT_PLAIN, &err), DDL_E_USAGE);
    assert_says(&err, "standard input is given twice");
    ddl_inputs_free(&inputs);
    assert_int_equal(ddl_inputs_list(&inputs, NULL, 0, DDL_TEXT_PLAIN, &err), DDL_E_USAGE);
    assert_says(&err, "input: missing argument");
}

static void standard_input_has_no_size(void **state)
{
    (void)state;
    make_tree();
    const char *names[] = { scratch_path("in/b.txt"), "-" };
    struct ddl_inputs inputs = { 0 };
    struct ddl_error err;
    assert_ok(ddl_inputs_list(&inputs, names, 2, DDL_TEXT_PLAIN, &err), err);
    assert_int_equal(inputs.n, 2);
    assert_int_equal(inputs.bytes, 0);
    assert_false(inputs.items[1].json);
    ddl_inputs_free(&inputs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(folders_in_name_order),
        cmocka_unit_test(symbolic_link_cycle),
        cmocka_unit_test(not_files),
        cmocka_unit_test(refused),
        cmocka_unit_test(standard_input_has_no_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
