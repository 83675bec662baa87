/* base/file.h: whole or not at all, and sentences that name the path. */
#define _POSIX_C_SOURCE 200809L
#include "support/support.h"

#include "base/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void replace_and_read_back(void **state)
{
    (void)state;
    struct ddl_error err;
    const char *path = scratch_path("whole");
    char *text;
    size_t size;
    assert_ok(ddl_file_replace(path, "one", 3, &err), err);
    assert_ok(ddl_file_replace(path, "a\0b", 3, &err), err);
    assert_ok(ddl_file_read(path, 3, &text, &size, &err), err);
    assert_int_equal(size, 3);
    assert_memory_equal(text, "a\0b", 4); /* and the NUL that is put behind it */
    free(text);
    assert_int_equal(ddl_file_read(path, 2, &text, &size, &err), DDL_E_FORMAT);
    assert_non_null(strstr(err.text, "3 bytes, at most 2 are read"));
}

static void discarded_leaves_nothing(void **state)
{
    (void)state;
    struct ddl_error err;
    struct ddl_file_writer w;
    const char *path = scratch_path("discarded");
    assert_ok(ddl_file_writer_begin(&w, path, &err), err);
    assert_ok(ddl_file_writer_write(&w, "x", 1, &err), err);
    assert_true(ddl_file_exists(w.temporary));
    ddl_file_writer_discard(&w);
    assert_false(ddl_file_exists(w.temporary));
    assert_false(ddl_file_exists(path));
}

static void maps(void **state)
{
    (void)state;
    struct ddl_error err;
    struct ddl_file_map map;
    const char *empty = scratch_path("empty");
    assert_ok(ddl_file_replace(empty, "", 0, &err), err);
    assert_ok(ddl_file_map_open(&map, empty, &err), err);
    assert_true(map.data && map.size == 0);
    ddl_file_map_close(&map);
    ddl_file_map_close(&map);
    assert_int_equal(ddl_file_map_open(&map, scratch_path("absent"), &err), DDL_E_IO);
    assert_non_null(strstr(err.text, "absent: cannot open: No such file"));
    assert_int_equal(ddl_file_map_open(&map, scratch_path("."), &err), DDL_E_IO);
    assert_non_null(strstr(err.text, "not a regular file"));
}

static void folders(void **state)
{
    (void)state;
    struct ddl_error err;
    char path[64];
    assert_ok(ddl_file_make_dir(scratch_path("a/b/c"), &err), err);
    assert_true(ddl_file_is_dir(scratch_path("a/b/c")));
    assert_ok(ddl_file_make_dir(scratch_path("a/b/c"), &err), err);
    assert_ok(ddl_file_replace(scratch_path("plain"), "", 0, &err), err);
    assert_int_equal(ddl_file_make_dir(scratch_path("plain/under"), &err), DDL_E_IO);
    assert_int_equal(ddl_file_make_dir("", &err), DDL_E_USAGE);
    assert_true(ddl_path_join(path, sizeof path, "a", "b"));
    assert_string_equal(path, "a/b");
    assert_false(ddl_path_join(path, 3, "a", "b"));
    assert_ok(ddl_file_sync_parent(scratch_path("a/b/c"), &err), err);
    assert_int_equal(ddl_file_sync_parent(scratch_path("no/such"), &err), DDL_E_IO);
}

static void folders_are_removed_with_their_files(void **state)
{
    (void)state;
    struct ddl_error err;
    assert_ok(ddl_file_make_dir(scratch_path("gone/deeper"), &err), err);
    assert_ok(ddl_file_replace(scratch_path("gone/deeper/x"), "1", 1, &err), err);
    assert_ok(ddl_file_replace(scratch_path("gone/deeper/.y"), "2", 1, &err), err);
    assert_int_equal(ddl_file_remove_dir(scratch_path("gone"), &err), DDL_E_IO); /* a folder is in it */
    assert_non_null(strstr(err.text, "gone: cannot remove folder"));
    assert_true(ddl_file_is_dir(scratch_path("gone/deeper")));
    assert_ok(ddl_file_remove_dir(scratch_path("gone/deeper"), &err), err);
    assert_ok(ddl_file_remove_dir(scratch_path("gone"), &err), err);
    assert_int_equal(ddl_file_remove_dir(scratch_path("gone"), &err), DDL_E_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replace_and_read_back),
        cmocka_unit_test(discarded_leaves_nothing),
        cmocka_unit_test(maps),
        cmocka_unit_test(folders),
        cmocka_unit_test(folders_are_removed_with_their_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
