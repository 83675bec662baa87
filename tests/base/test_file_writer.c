/* ddl/file.h: lists of folders; files that are replaced atomically, whatever is at their path. */
#define _GNU_SOURCE
#include "support/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static bool is_wanted(void *user, const char *name)
{
    return strstr(name, user) != NULL;
}

static void lists_are_sorted(void **state)
{
    (void)state;
    struct ddl_error err;
    struct ddl_file_names list;
    static const char *const names[] = { "listed/b", "listed/.hidden", "listed/a2", "listed/a10",
                                         "listed/B" },
                             *const sorted[] = { ".hidden", "B", "a10", "a2", "b" };
    remove_scratch("listed");
    assert_ok(ddl_file_make_dir(scratch_path("listed"), &err), err);
    for (size_t i = 0; i < 5; i++)
        write_file(scratch_path(names[i]), "", 0);
    assert_ok(ddl_file_list(&list, scratch_path("listed"), NULL, NULL, &err), err);
    assert_int_equal(list.n, 5);
    for (size_t i = 0; i < 5; i++)
        assert_string_equal(list.names[i], sorted[i]);
    ddl_file_names_free(&list);
    assert_ok(ddl_file_list(&list, scratch_path("listed"), is_wanted, "a", &err), err);
    assert_int_equal(list.n, 2);
    ddl_file_names_free(&list);
    ddl_file_names_free(&list);
    assert_int_equal(ddl_file_list(&list, scratch_path("listed/none"), NULL, NULL, &err), DDL_E_IO);
    assert_true(list.missing);
    assert_says(&err, "listed/none: cannot open folder: No such file");
    assert_int_equal(ddl_file_list(&list, scratch_path("listed/b"), NULL, NULL, &err), DDL_E_IO);
    assert_false(list.missing);
    assert_says(&err, "listed/b: cannot open folder: Not a directory");
}

/* Number of entries of the folder. */
static size_t count(const char *folder)
{
    struct ddl_error err;
    struct ddl_file_names list;
    assert_ok(ddl_file_list(&list, folder, NULL, NULL, &err), err);
    size_t n = list.n;
    ddl_file_names_free(&list);
    return n;
}

/* Two writers of one file at a time have two temporary files, whose names the cleaning of folders knows. */
static void temporary_names_differ(void **state)
{
    (void)state;
    struct ddl_error err;
    struct ddl_file_writer a, b;
    remove_scratch("names");
    assert_ok(ddl_file_make_dir(scratch_path("names"), &err), err);
    assert_ok(ddl_file_writer_begin(&a, scratch_path("names/x.json"), &err), err);
    assert_ok(ddl_file_writer_begin(&b, scratch_path("names/x.json"), &err), err);
    assert_string_not_equal(a.temporary, b.temporary);
    assert_true(ddl_file_is_temporary(strrchr(a.temporary, '/') + 1, "x.json"));
    assert_false(ddl_file_is_temporary(strrchr(a.temporary, '/') + 1, "y.json"));
    assert_true(ddl_file_is_temporary("x.json.tmp-123", "x.json"));
    assert_false(ddl_file_is_temporary("x.json.tmp-", "x.json"));
    assert_false(ddl_file_is_temporary("x.json.tmp-1z", "x.json"));
    assert_ok(ddl_file_writer_write(&a, "a", 1, &err), err);
    assert_ok(ddl_file_writer_write(&b, "b", 1, &err), err);
    assert_ok(ddl_file_writer_commit(&b, &err), err);
    assert_ok(ddl_file_writer_commit(&a, &err), err);
    assert_int_equal(count(scratch_path("names")), 1);
    char longest[256], *text;
    memset(longest, 'n', 255);
    memcpy(longest, "names/", 6);
    longest[255] = '\0'; /* 249 bytes */
    assert_ok(ddl_file_replace(scratch_path(longest), "c", 1, &err), err);
    text = read_file(scratch_path(longest), NULL);
    assert_string_equal(text, "c");
    free(text);
    assert_int_equal(count(scratch_path("names")), 2);
}

static void assert_content(const char *relative, const char *expected)
{
    char *text = read_file(scratch_path(relative), NULL);
    assert_string_equal(text, expected);
    free(text);
}

/* What a link points at stays as it is, also if the writer is given the path as a place of output. */
static void links_are_replaced(void **state)
{
    (void)state;
    struct ddl_error err;
    remove_scratch("links");
    assert_ok(ddl_file_make_dir(scratch_path("links"), &err), err);
    for (int output = 0; output < 2; output++) {
        struct ddl_file_writer w;
        struct stat st;
        char link[4096];
        snprintf(link, sizeof link, "%s", scratch_path("links/link"));
        write_file(scratch_path("links/victim"), "precious", 8);
        (void)unlink(link);
        assert_int_equal(symlink("victim", link), 0);
        assert_ok(output ? ddl_file_writer_begin_output(&w, link, &err)
                         : ddl_file_writer_begin(&w, link, &err),
                  err);
        assert_ok(ddl_file_writer_write(&w, "new", 3, &err), err);
        assert_ok(ddl_file_writer_commit(&w, &err), err);
        assert_content("links/victim", "precious");
        assert_content("links/link", "new");
        assert_int_equal(lstat(link, &st), 0);
        assert_true(S_ISREG(st.st_mode));
        assert_int_equal(count(scratch_path("links")), 2);
    }
}

/* A pipe in the place of a file of a folder is replaced; as a place of output it is written. */
static void pipes(void **state)
{
    (void)state;
    struct ddl_error err;
    struct ddl_file_writer w;
    struct stat st;
    char pipe[4096], text[8] = "";
    remove_scratch("pipes");
    assert_ok(ddl_file_make_dir(scratch_path("pipes"), &err), err);
    snprintf(pipe, sizeof pipe, "%s", scratch_path("pipes/p"));
    assert_int_equal(mkfifo(pipe, 0600), 0);
    int reader = open(pipe, O_RDONLY | O_NONBLOCK);
    assert_ok(ddl_file_writer_begin_output(&w, pipe, &err), err);
    assert_ok(ddl_file_writer_write(&w, "text", 4, &err), err);
    assert_ok(ddl_file_writer_commit(&w, &err), err);
    assert_int_equal(read(reader, text, sizeof text), 4);
    close(reader);
    assert_string_equal(text, "text");
    assert_int_equal(lstat(pipe, &st), 0);
    assert_true(S_ISFIFO(st.st_mode));
    assert_ok(ddl_file_replace(pipe, "file", 4, &err), err);
    assert_content("pipes/p", "file");
    assert_ok(ddl_file_writer_begin_output(&w, "/dev/full", &err), err);
    assert_ok(ddl_file_writer_write(&w, "x", 1, &err), err);
    assert_int_equal(ddl_file_writer_commit(&w, &err), DDL_E_IO);
    assert_says(&err, "/dev/full: cannot write: No space left");
}

/* Standard output that is a file, by the names that the system has for it. */
static void standard_output(void **state)
{
    (void)state;
    static const char *const names[] = { "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char file[4096];
        int status;
        snprintf(file, sizeof file, "%s", scratch_path("stdout.txt"));
        fflush(NULL);
        pid_t child = fork();
        if (child == 0) {
            struct ddl_file_writer w;
            int fd = open(file, O_WRONLY | O_CREAT | O_TRUNC, 0666);
            bool good = dup2(fd, STDOUT_FILENO) == STDOUT_FILENO &&
                        ddl_file_writer_begin_output(&w, names[i], NULL) == DDL_OK &&
                        ddl_file_writer_write(&w, "text", 4, NULL) == DDL_OK &&
                        ddl_file_writer_commit(&w, NULL) == DDL_OK;
            _exit(good ? 0 : 1);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        assert_content("stdout.txt", "text");
    }
}

/* The mode of a new file is that of the umask. */
static void modes(void **state)
{
    (void)state;
    static const mode_t masks[] = { 022, 077, 002 };
    for (size_t i = 0; i < 3; i++) {
        struct ddl_error err;
        struct stat st;
        mode_t before = umask(masks[i]);
        assert_ok(ddl_file_replace(scratch_path("mode"), "x", 1, &err), err);
        umask(before);
        assert_int_equal(stat(scratch_path("mode"), &st), 0);
        assert_int_equal(st.st_mode & 0777, 0666 & ~masks[i]);
    }
}

static void appending(void **state)
{
    (void)state;
    struct ddl_error err;
    FILE *stream;
    char path[4096];
    remove_scratch("append");
    assert_ok(ddl_file_make_dir(scratch_path("append"), &err), err);
    snprintf(path, sizeof path, "%s", scratch_path("append/lines"));
    for (int i = 0; i < 2; i++) {
        assert_ok(ddl_file_append(&stream, path, &err), err);
        assert_true(fputs("line\n", stream) >= 0);
        assert_int_equal(fclose(stream), 0);
    }
    assert_content("append/lines", "line\nline\n");
    snprintf(path, sizeof path, "%s", scratch_path("append/link"));
    assert_int_equal(symlink("lines", path), 0);
    assert_int_equal(ddl_file_append(&stream, path, &err), DDL_E_IO);
    assert_says(&err, "append/link: is a symbolic link: expected a regular file");
    assert_null(stream);
    snprintf(path, sizeof path, "%s", scratch_path("append/pipe"));
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(ddl_file_append(&stream, path, &err), DDL_E_IO);
    assert_says(&err, "append/pipe: not a regular file");
    assert_int_equal(ddl_file_append(&stream, "/dev/null", &err), DDL_E_IO);
}

/* A path that cannot be examined exists: the caller goes on to open it and reports why it cannot. */
static void what_exists(void **state)
{
    (void)state;
    char path[4096];
    remove_scratch("exists");
    snprintf(path, sizeof path, "%s", scratch_path("exists"));
    assert_false(ddl_file_exists(path));
    assert_int_equal(symlink("exists", path), 0); /* ELOOP */
    assert_true(ddl_file_exists(path));
    assert_false(ddl_file_is_dir(path));
    write_file(scratch_path("file"), "", 0);
    assert_false(ddl_file_exists(scratch_path("file/below")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_are_sorted),   cmocka_unit_test(temporary_names_differ),
        cmocka_unit_test(links_are_replaced), cmocka_unit_test(pipes),
        cmocka_unit_test(standard_output),    cmocka_unit_test(modes),
        cmocka_unit_test(appending),          cmocka_unit_test(what_exists),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
