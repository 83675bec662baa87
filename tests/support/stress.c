#define _POSIX_C_SOURCE 200809L
#include "support/stress.h"

#include "support/support.h"

#include "base/rng.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

enum { THREADS = 3, MOST_SPINS = 20000, MOST_SLEEP = 100000 /* ns */ };

static pthread_t threads[THREADS];
static atomic_bool stopped;
static atomic_ullong stream;

static void *disturb(void *arg)
{
    uint64_t key = atomic_fetch_add(&stream, 1), i = 0;
    while (!atomic_load(&stopped)) {
        for (uint64_t n = ddl_rng_below(key, i++, MOST_SPINS); n > 0 && !atomic_load(&stopped); n--)
            continue;
        nanosleep(&(struct timespec){ .tv_nsec = (long)ddl_rng_below(key, i++, MOST_SLEEP) }, NULL);
    }
    return arg;
}

void stress_begin(void)
{
    atomic_store(&stopped, false);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, disturb, NULL), 0);
}

void stress_end(void)
{
    atomic_store(&stopped, true);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
}
