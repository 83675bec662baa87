/* Paths relative to folders, through symbolic links, and of files that do not exist. */
#define _XOPEN_SOURCE 700
#include "support/files.h"

#include "base/path.h"

#include <limits.h>
#include <unistd.h>

static char root[PATH_MAX]; /* the scratch folder, which is the working directory */

/* real/run, real/data/a.bin, and link -> real. */
static int prepare(void **state)
{
    (void)state;
    struct ddl_error err;
    assert_non_null(realpath(scratch_path("."), root));
    assert_int_equal(chdir(root), 0);
    remove_scratch("real");
    remove_scratch("link");
    assert_ok(ddl_file_make_dir("real/run", &err), err);
    assert_ok(ddl_file_make_dir("real/data", &err), err);
    write_file("real/data/a.bin", "a", 1);
    assert_int_equal(symlink("real", "link"), 0);
    assert_int_equal(symlink("real/data", "data"), 0);
    return 0;
}

static int tidy(void **state)
{
    (void)state;
    return unlink("data");
}

static void folders(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        { "a/b", "a" }, { "b", "." }, { "/b", "/" }, { "/a/b/c", "/a/b" }
    };
    char out[64], small[3];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_true(ddl_path_folder(cases[i][0], out, sizeof out));
        assert_string_equal(out, cases[i][1]);
    }
    assert_false(ddl_path_folder("/a/b/c", small, sizeof small));
    assert_true(ddl_path_is_relative("a") && ddl_path_is_relative("../a"));
    assert_false(ddl_path_is_relative("/a") || ddl_path_is_relative(""));
}

static void relative(void **state)
{
    (void)state;
    static const char *const cases[][3] = {
        { "real/run", "real/data/train_*.bin", "../data/train_*.bin" },
        { "real/run", "./real//data/../data/a.bin", "../data/a.bin" },
        { "real/run", "real/run", "." },
        { "real/run", "real/run/", "." },
        { "real/run", "real/run/x", "x" },
        { "real/run", "real", ".." },
        { "real/run", "real/running", "../running" },
        { "real/run", "none/such*/x", "../../none/such*/x" },
        { ".", "a", "a" },
        { ".", "real/run/../data/a.bin", "real/data/a.bin" },
        /* Links are kept where that is as short, and resolved before "..". */
        { "real/run", "data/a.bin", "../data/a.bin" },
        { "link/run", "link/data/a.bin", "../data/a.bin" },
        { "real", "data/a.bin", "data/a.bin" },
        { ".", "data/a.bin", "data/a.bin" },
        { ".", "data/../run", "real/run" },
        { "none", "data/a.bin", "../data/a.bin" },
    };
    char out[PATH_MAX], whole[PATH_MAX + 64], small[8];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_true(ddl_path_relative_to(cases[i][0], cases[i][1], out, sizeof out));
        assert_string_equal(out, cases[i][2]);
    }
    snprintf(whole, sizeof whole, "%s/real/data", root);
    assert_true(ddl_path_relative_to("real/run", whole, out, sizeof out));
    assert_string_equal(out, "../data");
    assert_true(ddl_path_relative_to("/", "/a", out, sizeof out));
    assert_string_equal(out, "a");
    assert_true(ddl_path_relative_to("/", "/..", out, sizeof out));
    assert_string_equal(out, ".");
    assert_false(ddl_path_relative_to(".", "real/data", small, sizeof small));
    memset(whole, 'x', sizeof whole);
    whole[sizeof whole - 1] = '\0';
    assert_false(ddl_path_relative_to(".", whole, out, sizeof out));
}

static bool same(const char *a, const char *b)
{
    char x[PATH_MAX], y[PATH_MAX];
    assert_true(ddl_path_canonical(a, x, sizeof x) && ddl_path_canonical(b, y, sizeof y));
    return strcmp(x, y) == 0;
}

static void canonical(void **state)
{
    (void)state;
    char whole[PATH_MAX + 64], small[8];
    snprintf(whole, sizeof whole, "%s/real/data/a.bin", root);
    assert_true(same("real/data/a.bin", whole));
    assert_true(same("link/data/a.bin", "./real/run/../data/a.bin"));
    assert_true(same("real/data/t_*.bin", "data/t_*.bin"));
    assert_true(same("/", "/.."));
    assert_false(same("real/data/a.bin", "real/data/b.bin"));
    assert_false(ddl_path_canonical("real", small, sizeof small));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(folders),
        cmocka_unit_test(relative),
        cmocka_unit_test(canonical),
    };
    return cmocka_run_group_tests(tests, prepare, tidy);
}
