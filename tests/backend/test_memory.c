/* Memory, transfers and events of every backend. Only host memory is accessed here. */
#define _POSIX_C_SOURCE 200809L
#include "support/properties.h"
#include "support/support.h"

#include "ddl/backend.h"
#include "ops/ops.h"

#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 100003 };

static void numbers(unsigned char *bytes, unsigned first)
{
    for (size_t i = 0; i < BYTES; i++)
        bytes[i] = (unsigned char)(first + i % 251);
}

static void check_error(const ddl_backend *backend)
{
    struct ddl_error err;
    assert_ok(backend->ops->check_error(backend->ctx, &err), err);
}

static void transfers(ddl_backend *backend)
{
    const struct ddl_ops *ops = backend->ops;
    void *ctx = backend->ctx;
    static unsigned char up[BYTES], down[BYTES];
    unsigned char *block = ops->alloc(ctx, BYTES);
    assert_non_null(block);
    assert_int_equal((uintptr_t)block % 64, 0);
    numbers(up, 1);
    ops->upload(ctx, block, up, BYTES);
    memset(up, 0, BYTES); /* allowed once upload returned */
    ops->upload(ctx, block + BYTES - 2, "ab", 2);
    ops->zero(ctx, block, 100);
    ops->zero(ctx, block + 100, 0);
    ops->upload(ctx, block, NULL, 0);
    ops->download(ctx, NULL, block, 0);
    ops->download(ctx, down, block, BYTES);
    numbers(up, 1);
    memset(up, 0, 100);
    memcpy(up + BYTES - 2, "ab", 2);
    assert_memory_equal(down, up, BYTES);
    ops->free(ctx, block);
    check_error(backend);
}
PROPERTY(transfers)

/* Each download sees what was submitted before it, whatever is submitted after it. */
static void transfers_take_place_in_order(ddl_backend *backend)
{
    const struct ddl_ops *ops = backend->ops;
    void *ctx = backend->ctx;
    enum { TIMES = 5 };
    unsigned char *block = ops->alloc(ctx, BYTES), *up[TIMES], *down[TIMES], zeros[100] = { 0 };
    ddl_event event[TIMES];
    assert_non_null(block);
    for (size_t t = 0; t < TIMES; t++) {
        up[t] = ops->alloc_host(ctx, BYTES);
        down[t] = ops->alloc_host(ctx, BYTES);
        assert_true(up[t] && down[t]);
        assert_true((uintptr_t)up[t] % 64 == 0 && (uintptr_t)down[t] % 64 == 0);
        numbers(up[t], (unsigned)t);
    }
    for (size_t t = 0; t < TIMES; t++) {
        ops->upload_async(ctx, block, up[t], BYTES);
        ops->zero(ctx, block + t, sizeof zeros);
        event[t] = ops->download_async(ctx, down[t], block, BYTES);
    }
    ops->zero(ctx, block, BYTES);
    ops->free(ctx, block); /* submitted calls complete */
    for (size_t t = TIMES; t-- > 0;) {
        ops->wait(ctx, event[t]);
        assert_true(ops->is_done(ctx, event[t]));
        memset(up[t] + t, 0, sizeof zeros);
        assert_memory_equal(down[t], up[t], BYTES);
        ops->free_host(ctx, up[t]);
        ops->free_host(ctx, down[t]);
    }
    check_error(backend);
}
PROPERTY(transfers_take_place_in_order)

static void events_complete(ddl_backend *backend)
{
    const struct ddl_ops *ops = backend->ops;
    void *ctx = backend->ctx;
    float *x = ops->alloc(ctx, sizeof *x), *host = ops->alloc_host(ctx, sizeof *host);
    assert_true(x && host);
    assert_true(ops->is_done(ctx, 0));
    ops->wait(ctx, 0);
    ops->fill(ctx, &(struct fill_args){ .n = 1, .value = 3, .x = x });
    ddl_event event = ops->record(ctx), last = ops->download_async(ctx, host, x, sizeof *x);
    while (!ops->is_done(ctx, event)) {
    }
    ops->wait(ctx, event);
    ops->synchronize(ctx);
    assert_true(ops->is_done(ctx, last));
    ops->wait(ctx, last);
    assert_true(*host == 3.0f);
    ops->free_host(ctx, host);
    ops->free(ctx, x);
    check_error(backend);
}
PROPERTY(events_complete)

enum { CALLS = 12 }; /* of a pass: enough for a graph */

/* x_i = value + i, (CALLS) by as many ops. */
static void pass(ddl_backend *backend, float value, float *x)
{
    for (size_t i = 0; i < CALLS; i++)
        backend->ops->fill(backend->ctx, &(struct fill_args){ 1, value + (float)i, x + i });
}

/* Whether x has what a pass writes. */
static void check_pass(ddl_backend *backend, float value, const float *x)
{
    float host[CALLS];
    backend->ops->download(backend->ctx, host, x, sizeof host);
    for (size_t i = 0; i < CALLS; i++)
        assert_true(host[i] == value + (float)i);
}

/* More passes than a backend has graphs of; each is repeated at once and after all others. */
static void passes_are_repeated(ddl_backend *backend)
{
    enum { PASSES = 70 };
    const struct ddl_ops *ops = backend->ops;
    void *ctx = backend->ctx;
    float *x = ops->alloc(ctx, CALLS * sizeof *x);
    assert_non_null(x);
    for (size_t i = 0; i < 3 * PASSES; i++) {
        float value = (float)(i < 2 * PASSES ? i / 2 : i - 2 * PASSES);
        ops->zero(ctx, x, CALLS * sizeof *x);
        ddl_begin_graph(ops, ctx);
        pass(backend, value, x);
        ddl_end_graph(ops, ctx);
        check_pass(backend, value, x);
    }
    ops->free(ctx, x);
    check_error(backend);
}
PROPERTY(passes_are_repeated)

/* Other calls within a pass are in order with its ops. */
static void passes_with_transfers(ddl_backend *backend)
{
    const struct ddl_ops *ops = backend->ops;
    void *ctx = backend->ctx;
    const float other[CALLS] = { 5, 6, 7 };
    float *x = ops->alloc(ctx, sizeof other);
    assert_non_null(x);
    for (size_t i = 0; i < 4; i++) {
        ddl_begin_graph(ops, ctx);
        pass(backend, 1, x);
        check_pass(backend, 1, x);
        pass(backend, 2, x);
        ops->zero(ctx, x, sizeof *x);
        ops->upload(ctx, x + 1, other + 1, (CALLS - 1) * sizeof *x);
        pass(backend, 3, x);
        float *y = ops->alloc(ctx, sizeof other);
        assert_non_null(y);
        pass(backend, 4, y);
        ops->copy(ctx, &(struct copy_args){ .rows = 1, .width = 1, .src = y, .dst = x });
        ops->free(ctx, y);
        ddl_event event = ops->record(ctx);
        pass(backend, 5, x);
        ops->wait(ctx, event);
        ops->zero(ctx, x, 2 * sizeof *x);
        ddl_end_graph(ops, ctx);
        float found[CALLS];
        ops->download(ctx, found, x, sizeof found);
        for (size_t k = 0; k < CALLS; k++)
            assert_true(found[k] == (k < 2 ? 0 : 5 + (float)k));
    }
    ops->free(ctx, x);
    check_error(backend);
}
PROPERTY(passes_with_transfers)

/* After a fork, a device of the parent cannot be used, and the error names the reason. */
static void forked_processes(ddl_backend *backend)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        ddl_backend *own;
        struct ddl_error err;
        ddl_status status = ddl_backend_create(&own, backend->ops->name, 1, &err);
        _exit(strcmp(backend->ops->name, "cuda") == 0
                  ? status != DDL_E_UNSUPPORTED || !strstr(err.text, "was forked")
                  : status != DDL_OK);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}
PROPERTY(forked_processes)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_transfers),
        cmocka_unit_test(test_transfers_take_place_in_order),
        cmocka_unit_test(test_events_complete),
        cmocka_unit_test(test_passes_are_repeated),
        cmocka_unit_test(test_passes_with_transfers),
        cmocka_unit_test(test_forked_processes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
