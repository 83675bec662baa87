/* Options of several paths: base/option_paths.c, and how ddl_option_parse collects what a shell expanded. */
#define _POSIX_C_SOURCE 200809L
#include "support/files.h"

#include "ddl/option.h"

#include <unistd.h>

struct thing {
    char data[96], other[96];
    size_t n;
};
static const struct ddl_option table[] = {
    { "data", DDL_OPTION_PATHS, offsetof(struct thing, data), 96, 0, 0, NULL, "PATH", "paths" },
    { "other", DDL_OPTION_PATHS, offsetof(struct thing, other), 96, 0, 0, NULL, "PATH", "paths" },
    { "n", DDL_OPTION_SIZE, offsetof(struct thing, n), 0, 0, 0, NULL, "N", "a count" },
    { 0 },
};

enum { MAX_PATHS = 8 };

/* Joins space-separated names; the caller's folder is the scratch folder. */
static ddl_status join(const char *names, char *out, size_t size, struct ddl_error *err)
{
    char text[512], *paths[MAX_PATHS];
    size_t n = 0;
    snprintf(text, sizeof text, "%s", names);
    for (char *name = strtok(text, " "); name; name = strtok(NULL, " "))
        paths[n++] = name;
    return ddl_option_join_paths((const char *const *)paths, n, "--data", out, size, err);
}

static void joined(void **state)
{
    (void)state;
    static const char *const files[] = { "s/a_0.bin",   "s/a_1.bin",   "s/a_10.bin", "s/val_0.bin",
                                         "s/notes.txt", "t/x_00.bin",  "t/x_01.bin", "t/x_1.bin",
                                         "u/[1]_0.bin", "u/[1]_1.bin", "u/1_0.bin" };
    static const struct {
        const char *names, *text;
    } cases[] = {
        { "s/a_1.bin", "s/a_1.bin" },
        { "s", "s" },
        { "s/a_0.bin s/a_1.bin s/a_10.bin", "s/a_*.bin" },
        { "s/a_10.bin s/a_0.bin s/a_1.bin", "s/a_*.bin" },
        { "s/a_0.bin s/a_1.bin s/a_10.bin s/val_0.bin", "s/*.bin" },
        { "s/a_1.bin s/a_10.bin", "s/a_1*.bin" },
        { "t/x_00.bin t/x_01.bin", "t/x_0*.bin" },
        { "s/a_0.bin s/a_1.bin", "s/a_0.bin,s/a_1.bin" }, /* s/a_10.bin would match too */
        { "s/a_0.bin t/x_1.bin", "s/a_0.bin,t/x_1.bin" },
        { "s/val_0.bin s/notes.txt", "s/val_0.bin,s/notes.txt" },
        { "s/none_0.bin s/none_1.bin", "s/none_0.bin,s/none_1.bin" },
        { "u/[1]_0.bin u/[1]_1.bin", "u/[1]_0.bin,u/[1]_1.bin" }, /* no pattern of a name with brackets */
        { "s t", "s,t" },
    };
    char out[96];
    struct ddl_error err;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        assert_ok(ddl_file_make_parent(files[i], &err), err);
        write_file(files[i], "x", 1);
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_ok(join(cases[i].names, out, sizeof out, &err), err);
        assert_string_equal(out, cases[i].text);
    }
    assert_int_equal(join("a,b.bin c.bin", out, sizeof out, &err), DDL_E_USAGE);
    assert_says(&err, "--data: 'a,b.bin' contains a comma, which separates paths");
    assert_int_equal(join("s/a_0.bin t/x_1.bin", out, 18, &err), DDL_E_USAGE);
    assert_says(&err, "--data: 2 paths, 's/a_0.bin...', exceed the limit of 17 bytes");
    assert_ok(join("s/a_0.bin t/x_1.bin", out, 20, &err), err);
}

static void command_lines(void **state)
{
    (void)state;
    static const struct {
        const char *line, *data, *other, *rest;
        size_t n;
    } cases[] = {
        { "--data a.bin", "a.bin", "", "", 0 },
        { "--data a.bin b.bin --n 3", "a.bin,b.bin", "", "", 3 },
        { "recipe.yaml --data a.bin b.bin --other c.bin d.bin", "a.bin,b.bin", "c.bin,d.bin", "recipe.yaml",
          0 },
        { "--data a.bin b.bin recipe.yaml", "a.bin,b.bin", "", "recipe.yaml", 0 },
        { "--data folder x.bin", "folder", "", "x.bin", 0 },
        { "--data fol.der/x y.bin", "fol.der/x", "", "y.bin", 0 },
        { "--data a.bin --n 1 b.bin", "a.bin", "", "b.bin", 1 },
        { "--data=a.bin b.bin", "a.bin", "", "b.bin", 0 },
        { "--data a.bin -- b.bin", "a.bin", "", "b.bin", 0 },
        { "--data a.bin b.bin --data c.bin", "c.bin", "", "", 0 }, /* the last one counts, as of any option */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[512], *argv[16] = { "ddl" };
        struct thing thing = { 0 };
        struct ddl_error err;
        int argc = 1, n;
        snprintf(text, sizeof text, "%s", cases[i].line);
        for (char *word = strtok(text, " "); word; word = strtok(NULL, " "))
            argv[argc++] = word;
        assert_ok(ddl_option_parse(table, &thing, NULL, NULL, argc, argv, &n, &err), err);
        assert_string_equal(thing.data, cases[i].data);
        assert_string_equal(thing.other, cases[i].other);
        assert_int_equal(thing.n, cases[i].n);
        assert_int_equal(n, *cases[i].rest != '\0');
        assert_string_equal(n ? argv[1] : "", cases[i].rest);
    }
}

static int enter_scratch(void **state)
{
    (void)state;
    return chdir(scratch_path("."));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(joined), cmocka_unit_test(command_lines) };
    return cmocka_run_group_tests(tests, enter_scratch, NULL);
}
