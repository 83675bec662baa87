/* Tests data/pipeline.c: batches leave in the order in which they entered; stop unblocks all threads. */
#define _POSIX_C_SOURCE 200809L
#include "support/files.h"

#include "base/rng.h"
#include "data/pipeline.h"

#include <time.h>

enum { N = 2000, WORKERS = 4 };

static void *read_thread(void *arg)
{
    struct ddl_pipeline *p = arg;
    struct ddl_text_batch *batch;
    for (uint64_t i = 0; i < N && (batch = ddl_pipeline_acquire(p)); i++) {
        batch->consumed = i;
        if (ddl_text_batch_append(batch, "text", 4, NULL))
            break;
        ddl_pipeline_push(p);
    }
    ddl_pipeline_finish(p);
    return NULL;
}

static void *work_thread(void *arg)
{
    struct ddl_pipeline *p = arg;
    for (struct ddl_text_batch *batch; (batch = ddl_pipeline_take(p));) {
        if (ddl_rng_below(1, batch->consumed, 20) == 0)
            nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
        batch->n_segments = 2 * batch->consumed;
        ddl_pipeline_done(p, batch);
    }
    return NULL;
}

static void start(struct ddl_pipeline *p, pthread_t *threads, size_t slots)
{
    struct ddl_error err;
    assert_ok(ddl_pipeline_init(p, slots, &err), err);
    for (int i = 0; i <= WORKERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, i ? work_thread : read_thread, p), 0);
}

static void join(struct ddl_pipeline *p, const pthread_t *threads)
{
    for (int i = 0; i <= WORKERS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    ddl_pipeline_free(p);
}

static void order_is_kept(void **state)
{
    (void)state;
    static const size_t slots[] = { 1, 2, 7, 64 };
    for (size_t s = 0; s < 4; s++) {
        struct ddl_pipeline p;
        pthread_t threads[WORKERS + 1];
        start(&p, threads, slots[s]);
        uint64_t n = 0;
        for (bool end = false; !end;) {
            struct ddl_text_batch *batch = ddl_pipeline_next(&p, 10, &end);
            if (!batch)
                continue;
            assert_int_equal(batch->consumed, n);
            assert_int_equal(batch->n_segments, 2 * n);
            assert_int_equal(batch->size, 4);
            n++;
            ddl_pipeline_release(&p);
        }
        assert_int_equal(n, N);
        join(&p, threads);
    }
}

/* The writer stops after some batches: all threads must return. */
static void stop_ends_all(void **state)
{
    (void)state;
    for (uint64_t until = 0; until < 40; until += 13) {
        struct ddl_pipeline p;
        pthread_t threads[WORKERS + 1];
        start(&p, threads, 3);
        bool end;
        for (uint64_t n = 0; n < until;) {
            if (ddl_pipeline_next(&p, 10, &end)) {
                ddl_pipeline_release(&p);
                n++;
            }
        }
        ddl_pipeline_stop(&p);
        join(&p, threads);
    }
}

static void waiting_has_a_limit(void **state)
{
    (void)state;
    struct ddl_pipeline p;
    struct ddl_error err;
    bool end = true;
    assert_ok(ddl_pipeline_init(&p, 2, &err), err);
    assert_null(ddl_pipeline_next(&p, 1, &end));
    assert_false(end);
    ddl_pipeline_finish(&p);
    assert_null(ddl_pipeline_next(&p, 1, &end));
    assert_true(end);
    ddl_pipeline_free(&p);
    ddl_pipeline_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(order_is_kept),
        cmocka_unit_test(stop_ends_all),
        cmocka_unit_test(waiting_has_a_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
