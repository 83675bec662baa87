/* The thread sanitizer of this build detects races: one in an OpenMP region and one between POSIX threads are
 * reported, and the same work with a barrier or a lock is not. The work is done in another process, this
 * program again, because a report ends it. */
#define _POSIX_C_SOURCE 200809L
#include "support/support.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 1000 };
static long counter, parts[2];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *add_bare(void *arg)
{
    for (int i = 0; i < N; i++)
        counter++;
    return arg;
}

static void *add_locked(void *arg)
{
    for (int i = 0; i < N; i++) {
        pthread_mutex_lock(&lock);
        counter++;
        pthread_mutex_unlock(&lock);
    }
    return arg;
}

static void by_threads(void *(*work)(void *))
{
    pthread_t other;
    if (pthread_create(&other, NULL, work, NULL) != 0)
        exit(3);
    work(NULL);
    pthread_join(other, NULL);
}

static void openmp_race(void)
{
#pragma omp parallel for num_threads(2) schedule(static, 1)
    for (int i = 0; i < 2; i++)
        add_bare(NULL);
}

/* Each thread writes a part; the next region reads the other's. Only the barrier orders that. */
static void openmp_ordered(void)
{
#pragma omp parallel for num_threads(2) schedule(static, 1)
    for (int i = 0; i < 2; i++)
        parts[i] = i + 1;
#pragma omp parallel for num_threads(2) schedule(static, 1)
    for (int i = 0; i < 2; i++) {
        if (parts[1 - i] == 0)
            exit(4);
    }
}

static void threads_race(void)
{
    by_threads(add_bare);
}

static void threads_ordered(void)
{
    by_threads(add_locked);
}

static const struct {
    const char *name;
    void (*run)(void);
    bool race;
} cases[] = { { "openmp_race", openmp_race, true },
              { "openmp_ordered", openmp_ordered, false },
              { "threads_race", threads_race, true },
              { "threads_ordered", threads_ordered, false } };
enum { N_CASES = sizeof cases / sizeof *cases };

static const char *self;

static void reports(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_CASES; i++) {
        char command[4096], out[1 << 14];
        snprintf(command, sizeof command, "'%s' %s 2>&1", self, cases[i].name);
        int status = run_command(command, out, sizeof out);
        bool reported = status != 0 && strstr(out, "ThreadSanitizer: data race");
        if (reported != cases[i].race || (!reported && status != 0))
            fail_msg("%s: exit status %d: %s", cases[i].name, status, out);
    }
}

int main(int argc, char **argv)
{
    self = argv[0];
    for (size_t i = 0; argc > 1 && i < N_CASES; i++) {
        if (strcmp(argv[1], cases[i].name) == 0) {
            cases[i].run();
            return counter < 0;
        }
    }
    const struct CMUnitTest tests[] = { cmocka_unit_test(reports) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
