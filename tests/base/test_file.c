/* base/file.h: files are replaced atomically, and error messages have the path. */
#define _POSIX_C_SOURCE 200809L
#include "support/support.h"

#include "base/clock.h"
#include "base/file.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
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
    assert_non_null(strstr(err.text, "not a regular file but a folder"));
}

/* A released range of a map has the same content when it is read again. */
static void released(void **state)
{
    (void)state;
    enum { SIZE = 5 * 4096 + 17 };
    static const size_t ranges[][2] = { { 0, 0 },    { 0, 1 },        { 0, SIZE }, { 5000, 9000 },
                                        { 4096, 2 }, { SIZE - 1, 1 }, { SIZE, 0 }, { 4095, 4097 } };
    static unsigned char bytes[SIZE];
    struct ddl_error err;
    struct ddl_file_map map;
    for (size_t i = 0; i < SIZE; i++)
        bytes[i] = (unsigned char)(i * 7 + i / 256);
    const char *path = scratch_path("pages");
    assert_ok(ddl_file_replace(path, bytes, SIZE, &err), err);
    assert_ok(ddl_file_map_open(&map, path, &err), err);
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        assert_memory_equal(map.data, bytes, SIZE);
        ddl_file_map_release(&map, map.data + ranges[i][0], ranges[i][1]);
        assert_memory_equal(map.data, bytes, SIZE);
    }
    ddl_file_map_close(&map);
}

/* Nothing of what these are is waited for or read from. */
static void only_regular_files(void **state)
{
    (void)state;
    struct ddl_error err;
    struct ddl_file_map map;
    char *text;
    const char *pipe = scratch_path("pipe");
    unlink(pipe);
    assert_int_equal(mkfifo(pipe, 0600), 0);
    const char *paths[] = { pipe, "/dev/zero", "/dev/tty", scratch_path(".") };
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        assert_int_equal(ddl_file_map_open(&map, paths[i], &err), DDL_E_IO);
        assert_null(map.data);
        assert_int_equal(ddl_file_read(paths[i], 10, &text, NULL, &err), DDL_E_IO);
        assert_null(text);
        assert_non_null(strstr(err.text, paths[i]));
    }
    unlink(pipe);
}

/* The largest file that the file system has; it is sparse. Under qemu-user, which keeps 24
 * bytes for every page of a map (48 GiB for 8 TiB), one that 32 bits do not hold. */
static void sparse_files(void **state)
{
    (void)state;
    const off_t most = getenv("DDL_EMULATED") ? (off_t)1 << 33 : INT64_MAX / 2;
    struct ddl_error err;
    struct ddl_file_map map;
    char *text;
    const char *path = scratch_path("sparse");
    assert_ok(ddl_file_replace(path, "x", 1, &err), err);
    off_t size = 1;
    for (off_t next = 1; next > 0 && truncate(path, next) == 0; next = next < most ? 2 * next : -1)
        size = next;
    assert_true(size > 1 << 30);
    assert_int_equal(ddl_file_read(path, 1 << 20, &text, NULL, &err), DDL_E_FORMAT);
    assert_non_null(strstr(err.text, "at most 1048576 are read"));
    if (ddl_file_map_open(&map, path, &err))
        assert_non_null(strstr(err.text, "sparse: cannot map"));
    else
        assert_int_equal(map.data[map.size - 1], 0);
    ddl_file_map_close(&map);
    unlink(path);
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
    (void)rmdir(scratch_path("new/folder")); /* of an earlier run of this test */
    bool made;
    assert_ok(ddl_file_make_new_dir(scratch_path("new/folder"), &made, &err), err);
    assert_true(made && ddl_file_is_dir(scratch_path("new/folder")));
    assert_ok(ddl_file_make_new_dir(scratch_path("new/folder"), &made, &err), err);
    assert_false(made);
    assert_int_equal(ddl_file_make_new_dir(scratch_path("plain/under"), &made, &err), DDL_E_IO);
    assert_false(made);
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
    (void)remove(scratch_path("link"));
    assert_int_equal(symlink("gone/deeper", scratch_path("link")), 0);
    assert_ok(ddl_file_remove_dir(scratch_path("link"), &err), err);
    assert_false(ddl_file_is_dir(scratch_path("link")));
    assert_true(ddl_file_is_dir(scratch_path("gone/deeper")));
    assert_ok(ddl_file_remove_dir(scratch_path("gone/deeper"), &err), err);
    assert_ok(ddl_file_remove_dir(scratch_path("gone"), &err), err);
    assert_int_equal(ddl_file_remove_dir(scratch_path("gone"), &err), DDL_E_IO);
}

struct remover {
    atomic_bool stop;
    char paths[3][4096]; /* the innermost first */
};

static void *remove_folders(void *user)
{
    struct remover *r = user;
    while (!atomic_load(&r->stop)) {
        double start = ddl_clock_seconds();
        for (size_t i = 0; i < 3; i++)
            (void)rmdir(r->paths[i]);
        /* Without a pause that is longer than what it does, it would win every time. */
        double pause = fmin(1e-4 + 4 * (ddl_clock_seconds() - start), 0.5);
        nanosleep(&(struct timespec){ .tv_nsec = (long)(pause * 1e9) }, NULL);
    }
    return NULL;
}

/* Another process removes the folders as soon as they are empty. */
static void folders_removed_meanwhile(void **state)
{
    (void)state;
    static const char *const names[] = { "shared/deep/er", "shared/deep", "shared" };
    static struct remover remover;
    pthread_t thread;
    for (size_t i = 0; i < 3; i++)
        snprintf(remover.paths[i], sizeof remover.paths[i], "%s", scratch_path(names[i]));
    assert_int_equal(pthread_create(&thread, NULL, remove_folders, &remover), 0);
    double end = ddl_clock_seconds() + 10; /* where a sync takes long */
    for (int i = 0; i < 1000 && ddl_clock_seconds() < end; i++) {
        struct ddl_error err;
        assert_ok(ddl_file_make_dir(remover.paths[0], &err), err);
    }
    atomic_store(&remover.stop, true);
    pthread_join(thread, NULL);
    for (size_t i = 0; i < 3; i++)
        (void)rmdir(remover.paths[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replace_and_read_back),
        cmocka_unit_test(discarded_leaves_nothing),
        cmocka_unit_test(maps),
        cmocka_unit_test(released),
        cmocka_unit_test(only_regular_files),
        cmocka_unit_test(sparse_files),
        cmocka_unit_test(folders),
        cmocka_unit_test(folders_removed_meanwhile),
        cmocka_unit_test(folders_are_removed_with_their_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
