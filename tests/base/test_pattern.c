/* base/pattern.c: which paths fit, in any part of them. */
#include "support/files.h"

#include "base/pattern.h"

struct found {
    size_t n;
    unsigned long sum; /* of the digits in the names */
    ddl_status status;
};

static ddl_status count(void *user, const char *path, struct ddl_error *err)
{
    struct found *found = user;
    found->n++;
    found->sum += strtoul(strrchr(path, '/') + 2, NULL, 10);
    return found->status ? ddl_error_set(err, found->status, "%s: enough", path) : DDL_OK;
}

static void parts_of_a_path(void **state)
{
    (void)state;
    static const char *const files[] = { "p/a1.bin",  "p/a2.bin", "p/b4.bin",
                                         "p/.a8.bin", "p/s1/a16", "p/s2/a32" };
    static const struct {
        const char *pattern;
        size_t n;
        unsigned long sum;
    } cases[] = {
        { "p/a*.bin", 2, 3 },     { "p/?[14].bin", 2, 5 }, { "p/*.bin", 3, 7 },   { "p/.a*", 1, 0 },
        { "p/s*/a*", 2, 48 },     { "p/s[2]/a32", 1, 32 }, { "p//a?.bin", 2, 3 }, { "p/none*", 0, 0 },
        { "none*/a1.bin", 0, 0 }, { "p/a1.bin/*", 0, 0 },  { "p/s*/none", 0, 0 }, { "p/a1.bin", 1, 1 },
    };
    struct ddl_error err;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        assert_ok(ddl_file_make_parent(scratch_path(files[i]), &err), err);
        write_file(scratch_path(files[i]), "x", 1);
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct found found = { 0 };
        assert_ok(ddl_pattern_walk(scratch_path(cases[i].pattern), count, &found, &err), err);
        if (found.n != cases[i].n || found.sum != cases[i].sum)
            fail_msg("%s: %zu paths, digits %lu", cases[i].pattern, found.n, found.sum);
    }
}

static void errors(void **state)
{
    (void)state;
    struct ddl_error err;
    struct found found = { .status = DDL_E_USAGE };
    assert_int_equal(ddl_pattern_walk(scratch_path("p/*.bin"), count, &found, &err), DDL_E_USAGE);
    assert_int_equal(found.n, 1);
    assert_says(&err, "enough");
    char pattern[4096];
    memset(pattern, '*', sizeof pattern - 1);
    pattern[sizeof pattern - 1] = '\0';
    assert_int_equal(ddl_pattern_walk(pattern, count, &found, &err), DDL_E_USAGE);
    assert_says(&err, "longer than 1023 bytes");
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(parts_of_a_path), cmocka_unit_test(errors) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
