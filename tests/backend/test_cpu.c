/* The choice of instruction set, and the backend's handle. */
#define _POSIX_C_SOURCE 200809L
#include "support/backends.h"

#include <stdlib.h>
#include <string.h>

static void test_chosen_set_is_described(void **state)
{
    (void)state;
    size_t found = 0;
    for (size_t i = 0; isa_name(i); i++) {
        struct ddl_backend *backend = cpu_backend(isa_name(i), 2);
        if (!backend)
            continue;
        found++;
        assert_non_null(strstr(ddl_backend_description(backend), isa_name(i)));
        assert_non_null(strstr(ddl_backend_description(backend), "2 threads"));
        assert_string_equal(ddl_backend_name(backend), "cpu");
        ddl_backend_free(backend);
    }
    assert_true(found > 0);
}

static void test_unknown_set_is_an_error(void **state)
{
    (void)state;
    struct ddl_backend *backend;
    struct ddl_error err;
    setenv("DDL_ISA", "sse9", 1);
    assert_int_equal(ddl_backend_create(&backend, "cpu", 1, &err), DDL_E_USAGE);
    unsetenv("DDL_ISA");
    assert_null(backend);
    assert_non_null(strstr(err.text, "'sse9'"));
    assert_non_null(strstr(err.text, "baseline"));
}

static void test_too_many_threads(void **state)
{
    (void)state;
    struct ddl_backend *backend;
    struct ddl_error err;
    assert_int_equal(ddl_backend_create(&backend, "cpu", 1000000, &err), DDL_E_USAGE);
    assert_non_null(strstr(err.text, "1000000 threads"));
}

static void test_cpu_is_the_default(void **state)
{
    (void)state;
    struct ddl_backend *backend;
    struct ddl_error err;
    assert_ok(ddl_backend_create(&backend, NULL, 0, &err), err);
    assert_string_equal(ddl_backend_name(backend), "cpu");
    ddl_backend_free(backend);
}

static void test_sizes_that_do_not_fit(void **state)
{
    (void)state;
    struct ddl_backend *backend = cpu_backend(NULL, 2);
    struct ddl_error err;
    assert_int_equal(
        backend->ops->reserve(backend->ctx, &(struct ddl_limits){ .summed = SIZE_MAX / 2 }, &err),
        DDL_E_MEMORY);
    assert_int_equal(backend->ops->reserve(backend->ctx, &(struct ddl_limits){ .T = SIZE_MAX / 64 }, &err),
                     DDL_E_MEMORY);
    assert_int_equal(
        backend->ops->reserve(backend->ctx, &(struct ddl_limits){ .summed = SIZE_MAX / 10 }, &err),
        DDL_E_MEMORY);
    struct ddl_limits huge = { .T = SIZE_MAX / 64 };
    assert_true(backend->ops->memory_estimate(backend->ctx, &huge) == SIZE_MAX);
    ddl_backend_free(backend);
}

static size_t overhead_of(size_t threads, size_t T, size_t h)
{
    struct ddl_backend *backend = cpu_backend(NULL, threads);
    const struct ddl_limits demand = { .N = T, .T = T, .d = 384, .h = h, .K = 64 };
    size_t bytes = backend->ops->memory_estimate(backend->ctx, &demand);
    ddl_backend_free(backend);
    return bytes;
}

/* Scratch is counted for each thread; a longer context takes a few numbers a token more, and a row of y or dq
 * before it is rounded to bfloat16; a head's keys and
 * values are there a block at a time. */
static void test_overhead_grows_with_threads_and_context(void **state)
{
    (void)state;
    for (size_t T = 1024; T <= 65536; T *= 2) {
        size_t one = overhead_of(1, T, 64), two = overhead_of(2, T, 64);
        assert_true(two > one && two <= 2 * one);
        assert_true(overhead_of(1, 2 * T, 64) - one <= (16 + 64) * T * sizeof(float));
    }
    assert_true(overhead_of(1, 1024, 128) > overhead_of(1, 1024, 64));
    assert_true(overhead_of(1, 1024, SIZE_MAX / 8) == SIZE_MAX && overhead_of(1, 1024, SIZE_MAX) == SIZE_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chosen_set_is_described),
        cmocka_unit_test(test_unknown_set_is_an_error),
        cmocka_unit_test(test_too_many_threads),
        cmocka_unit_test(test_cpu_is_the_default),
        cmocka_unit_test(test_sizes_that_do_not_fit),
        cmocka_unit_test(test_overhead_grows_with_threads_and_context),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
