/* base/lock.c: one holder at a time, whatever dies or is removed meanwhile. */
#define _DEFAULT_SOURCE /* syscall */
#include "support/files.h"

#include "base/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* The error of flock in this program; 0: none. EINTR: every second time. */
static int flock_error;

int flock(int fd, int operation)
{
    static unsigned turn;
    if (!flock_error || (flock_error == EINTR && turn++ % 2 == 1))
        return (int)syscall(SYS_flock, fd, operation);
    errno = flock_error;
    return -1;
}

/* An empty folder of the scratch folder. */
static const char *new_folder(const char *name)
{
    remove_scratch(name);
    const char *path = scratch_path(name);
    assert_int_equal(mkdir(path, 0777), 0);
    return path;
}

static void held_and_released(void **state)
{
    (void)state;
    char folder[1024], file[1100], who[64];
    struct ddl_lock first, second;
    struct ddl_error err;
    snprintf(folder, sizeof folder, "%s", new_folder("held"));
    snprintf(file, sizeof file, "%s/.lock", folder);
    assert_ok(ddl_lock_take(&first, folder, &err), err);
    assert_int_equal(ddl_lock_take(&second, folder, &err), DDL_E_IO);
    snprintf(who, sizeof who, "held: in use by process %ld on ", (long)getpid());
    assert_says(&err, who);
    assert_says(&err, "; wait for it, stop it, or choose another folder");
    ddl_lock_release(&second);
    assert_true(ddl_file_exists(file));
    ddl_lock_release(&first);
    ddl_lock_release(&first);
    assert_false(ddl_file_exists(file));
    assert_ok(ddl_lock_take(&second, folder, &err), err);
    ddl_lock_release(&second);
    ddl_lock_release(&(struct ddl_lock){ 0 });
}

/* What a killed process leaves is a file that says nothing. */
static void the_dead_hold_nothing(void **state)
{
    (void)state;
    char folder[1024];
    struct ddl_lock lock;
    struct ddl_error err;
    snprintf(folder, sizeof folder, "%s", new_folder("dead"));
    pid_t child = fork();
    if (child == 0)
        _exit(ddl_lock_take(&lock, folder, &err) ? 1 : 0);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_true(ddl_file_exists(scratch_path("dead/.lock")));
    assert_ok(ddl_lock_take(&lock, folder, &err), err);
    char *text = read_file(scratch_path("dead/.lock"), NULL);
    assert_int_equal(strtol(text + strlen("process "), NULL, 10), getpid());
    free(text);
    ddl_lock_release(&lock);
}

/* ddl_lock_is_held holds a shared lock for a moment: who takes the lock then waits for it. */
static void a_look_does_not_hold(void **state)
{
    (void)state;
    char folder[1024];
    struct ddl_lock lock;
    struct ddl_error err;
    int ready[2];
    char byte;
    snprintf(folder, sizeof folder, "%s", new_folder("look"));
    write_file(scratch_path("look/.lock"), "", 0);
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        int fd = open(scratch_path("look/.lock"), O_RDONLY);
        bool locked = flock(fd, LOCK_SH) == 0 && write(ready[1], "", 1) == 1;
        nanosleep(&(struct timespec){ .tv_nsec = 50000000 }, NULL);
        _exit(locked ? 0 : 1);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_ok(ddl_lock_take(&lock, folder, &err), err);
    assert_true(ddl_lock_is_held(folder));
    ddl_lock_release(&lock);
    assert_false(ddl_lock_is_held(folder));
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    close(ready[0]);
    close(ready[1]);
}

static void what_cannot_be_locked(void **state)
{
    (void)state;
    struct ddl_lock lock;
    struct ddl_error err;
    const char *folder = new_folder("bad");
    write_file(scratch_path("target"), "kept", 4);
    assert_int_equal(symlink(scratch_path("target"), scratch_path("bad/.lock")), 0);
    assert_int_equal(ddl_lock_take(&lock, folder, &err), DDL_E_IO); /* not through a link */
    assert_says(&err, "bad/.lock: cannot create: ");
    char *text = read_file(scratch_path("target"), NULL);
    assert_string_equal(text, "kept");
    free(text);
    assert_int_equal(ddl_lock_take(&lock, scratch_path("no-such"), &err), DDL_E_IO);
    assert_says(&err, "no-such/.lock: cannot create: ");
    ddl_lock_release(&lock);
}

/* Takes it so many times; each time a number in a file becomes one more, in two steps. */
static int take_often(const char *folder, const char *path, int times)
{
    struct ddl_lock lock;
    while (times > 0) {
        if (ddl_lock_take(&lock, folder, NULL))
            continue;
        FILE *file = fopen(path, "r+");
        int n = 0, found = file ? fscanf(file, "%d", &n) : 0;
        if (found != 1 || fseek(file, 0, SEEK_SET) != 0 || fprintf(file, "%d\n", n + 1) < 0 ||
            fclose(file) != 0)
            return 1;
        ddl_lock_release(&lock);
        times--;
    }
    return 0;
}

static void one_at_a_time(void **state)
{
    (void)state;
    enum { PROCESSES = 4, TIMES = 250 };
    char folder[1024], number[1024];
    snprintf(folder, sizeof folder, "%s", new_folder("busy"));
    snprintf(number, sizeof number, "%s", scratch_path("number"));
    write_file(number, "0\n", 2);
    for (int i = 0; i < PROCESSES; i++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0)
            _exit(take_often(folder, number, TIMES));
    }
    for (int i = 0, status; i < PROCESSES; i++) {
        assert_true(wait(&status) > 0);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    char *text = read_file(number, NULL);
    assert_int_equal(atoi(text), PROCESSES * TIMES);
    free(text);
    assert_false(ddl_file_exists(scratch_path("busy/.lock")));
}

static const int no_locks[] = { ENOSYS, ENOLCK, EOPNOTSUPP };

/* Without locks of the file system the file is the lock. What a process that has ended has left is replaced;
 * what may be of a running process is not. */
static void without_flock(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof no_locks / sizeof *no_locks; i++) {
        flock_error = no_locks[i];
        held_and_released(state);
        the_dead_hold_nothing(state);
        if (i == 0)
            one_at_a_time(state);
        char folder[1024], *own;
        struct ddl_lock lock, other;
        struct ddl_error err;
        snprintf(folder, sizeof folder, "%s", new_folder("owner"));
        assert_ok(ddl_lock_take(&lock, folder, &err), err);
        assert_true(ddl_lock_is_held(folder));
        own = read_file(scratch_path("owner/.lock"), NULL);
        ddl_lock_release(&lock);
        assert_false(ddl_lock_is_held(folder));
        /* Of another machine, of an earlier version, or just being written: it cannot be found out. */
        static const char *const unknown[] = { "process 1 on far\nstarted 12 pid:[4026531836] 0-1-2\n",
                                               "process 1 on near\n", "" };
        for (size_t j = 0; j < sizeof unknown / sizeof *unknown; j++) {
            write_file(scratch_path("owner/.lock"), unknown[j], strlen(unknown[j]));
            assert_true(ddl_lock_is_held(folder));
            assert_int_equal(ddl_lock_take(&other, folder, &err), DDL_E_IO);
            assert_says(&err,
                        "this file system has no locks, by which to find out; if it has ended, remove ");
            assert_says(&err, "owner/.lock");
            assert_true(other.busy);
        }
        /* Of this process, which started at another time: another process of its number, which has ended. */
        char *start = strstr(own, "started ") + strlen("started ");
        start[0] = start[0] == '9' ? '8' : '9';
        write_file(scratch_path("owner/.lock"), own, strlen(own));
        assert_false(ddl_lock_is_held(folder));
        assert_ok(ddl_lock_take(&other, folder, &err), err);
        ddl_lock_release(&other);
        assert_int_equal(rmdir(folder), 0);
        free(own);
    }
    flock_error = 0;
}

static void interrupted_flock(void **state)
{
    flock_error = EINTR;
    held_and_released(state);
    one_at_a_time(state);
    flock_error = 0;
}

/* Other errors are errors. */
static void failed_flock(void **state)
{
    (void)state;
    struct ddl_lock lock;
    struct ddl_error err;
    flock_error = EIO;
    assert_int_equal(ddl_lock_take(&lock, new_folder("broken"), &err), DDL_E_IO);
    assert_says(&err, "broken/.lock: cannot lock: ");
    assert_false(lock.busy);
    flock_error = 0;
}

static void moved_and_removed(void **state)
{
    (void)state;
    char folder[1024], now[1024];
    struct ddl_lock lock;
    struct ddl_error err;
    bool moved;
    snprintf(folder, sizeof folder, "%s", new_folder("place"));
    remove_scratch("elsewhere");
    assert_ok(ddl_lock_take(&lock, folder, &err), err);
    assert_ok(ddl_lock_check(&lock, &moved, now, sizeof now, &err), err);
    assert_false(moved);
    assert_int_equal(rename(folder, scratch_path("elsewhere")), 0);
    assert_ok(ddl_lock_check(&lock, &moved, now, sizeof now, &err), err);
    assert_true(moved && strstr(now, "elsewhere"));
    assert_int_equal(ddl_lock_check_in_place(&lock, &err), DDL_E_IO);
    assert_says(&err, "place: the folder was moved to ");
    new_folder("place"); /* another one in its place */
    assert_int_equal(ddl_lock_check_in_place(&lock, &err), DDL_E_IO);
    remove_scratch("elsewhere");
    assert_int_equal(ddl_lock_check(&lock, &moved, now, sizeof now, &err), DDL_E_IO);
    assert_says(&err, "place: the folder or its file .lock was removed or replaced while it was in use");
    ddl_lock_release(&lock);
    assert_ok(ddl_lock_check_in_place(&(struct ddl_lock){ 0 }, &err), err);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(held_and_released),    cmocka_unit_test(the_dead_hold_nothing),
        cmocka_unit_test(a_look_does_not_hold), cmocka_unit_test(what_cannot_be_locked),
        cmocka_unit_test(one_at_a_time),        cmocka_unit_test(without_flock),
        cmocka_unit_test(interrupted_flock),    cmocka_unit_test(failed_flock),
        cmocka_unit_test(moved_and_removed)
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
