/* The simulated device (support/simulated_device.h) finds what it is for, and golden models pass on it. The
 * tests called simulated.* are tests of models, training, decoding and checkpoints on the same device. */
#define _POSIX_C_SOURCE 200809L
#include "support/support.h"

#include "ddl/backend.h"
#include "ddl/verify.h"
#include "ops/ops.h"

#include <glob.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NUMBERS = 5 };

/* A device with an array x (NUMBERS) of ones, and host memory for it. */
struct fixture {
    ddl_backend *backend;
    const struct ddl_ops *ops;
    void *ctx;
    float *x, *host;
};

static void setup(struct fixture *f)
{
    struct ddl_error err;
    assert_ok(ddl_backend_create(&f->backend, "ref", 1, &err), err);
    f->ops = f->backend->ops;
    f->ctx = f->backend->ctx;
    f->x = f->ops->alloc(f->ctx, NUMBERS * sizeof *f->x);
    f->host = f->ops->alloc_host(f->ctx, NUMBERS * sizeof *f->host);
    assert_true(f->x && f->host);
    f->ops->fill(f->ctx, &(struct fill_args){ .n = NUMBERS, .value = 1, .x = f->x });
}

static void teardown(struct fixture *f)
{
    f->ops->synchronize(f->ctx);
    f->ops->free_host(f->ctx, f->host);
    f->ops->free(f->ctx, f->x);
    ddl_backend_free(f->backend);
}

/* The signal that ends a child process in which fn runs; 0 if it returns. */
static int signal_of(void (*fn)(const struct fixture *f))
{
    struct fixture f;
    setup(&f);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL); /* cmocka handles these */
        signal(SIGABRT, SIG_DFL);
        if (!freopen("/dev/null", "w", stderr))
            _exit(1);
        fn(&f);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    teardown(&f);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void read_by_download(const struct fixture *f)
{
    float number;
    f->ops->download(f->ctx, &number, f->x, sizeof number);
}

static void read_directly(const struct fixture *f)
{
    volatile float number = f->x[0];
    (void)number;
}

static void write_directly(const struct fixture *f)
{
    *(volatile float *)f->x = 0;
}

static void give_an_op_host_memory(const struct fixture *f)
{
    f->ops->fill(f->ctx, &(struct fill_args){ .n = 1, .x = f->host });
}

static void exceed_a_block(const struct fixture *f)
{
    f->ops->fill(f->ctx, &(struct fill_args){ .n = NUMBERS + 1, .x = f->x });
}

static void download_too_much(const struct fixture *f)
{
    float numbers[NUMBERS + 1];
    f->ops->download(f->ctx, numbers, f->x, sizeof numbers);
}

static void transfer_pageable_memory(const struct fixture *f)
{
    float number = 0;
    f->ops->upload_async(f->ctx, f->x, &number, sizeof number);
}

static void free_the_destination_early(const struct fixture *f)
{
    f->ops->download_async(f->ctx, f->host, f->x, NUMBERS * sizeof *f->host);
    f->ops->free_host(f->ctx, f->host);
}

static void use_after_free(const struct fixture *f)
{
    f->ops->free(f->ctx, f->x);
    f->ops->zero(f->ctx, f->x, 1);
}

static void wrong_accesses_end_the_program(void **state)
{
    (void)state;
    assert_int_equal(signal_of(read_by_download), 0);
    assert_int_equal(signal_of(read_directly), SIGSEGV);
    assert_int_equal(signal_of(write_directly), SIGSEGV);
    assert_int_equal(signal_of(give_an_op_host_memory), SIGABRT);
    assert_int_equal(signal_of(exceed_a_block), SIGABRT);
    assert_int_equal(signal_of(download_too_much), SIGABRT);
    assert_int_equal(signal_of(transfer_pageable_memory), SIGABRT);
    assert_int_equal(signal_of(free_the_destination_early), SIGABRT);
    assert_int_equal(signal_of(use_after_free), SIGABRT);
}

static void a_download_is_complete_at_its_event(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f);
    f.host[0] = 7;
    ddl_event event = f.ops->download_async(f.ctx, f.host, f.x, NUMBERS * sizeof *f.host);
    f.ops->fill(f.ctx, &(struct fill_args){ .n = NUMBERS, .value = 2, .x = f.x });
    assert_true(isnan(f.host[0]) && isnan(f.host[NUMBERS - 1]));
    f.ops->wait(f.ctx, event);
    assert_true(f.host[0] == 1 && f.host[NUMBERS - 1] == 1);
    teardown(&f);
}

static void an_upload_reads_its_source_late(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f);
    f.host[0] = 7;
    f.ops->upload_async(f.ctx, f.x, f.host, sizeof *f.host);
    f.host[0] = 8; /* a mistake: the event was not waited for */
    f.ops->download(f.ctx, f.host + 1, f.x, sizeof *f.host);
    assert_true(f.host[1] == 8);
    teardown(&f);
}

static void ops_have_the_arguments_of_the_call(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f);
    struct fill_args args = { .n = 1, .value = 3, .x = f.x };
    f.ops->fill(f.ctx, &args);
    args.value = 4;
    f.ops->download(f.ctx, f.host, f.x, sizeof *f.host);
    assert_true(f.host[0] == 3);
    teardown(&f);
}

static void each_case(void *user, const struct ddl_verify_case *result)
{
    size_t *failed = user;
    if (result->outcome != DDL_VERIFY_FAIL)
        return;
    print_error("%s: %s\n", result->path, result->message);
    ++*failed;
}

/* Curves take long; simulated.train.* train. */
static void golden_models_pass(void **state)
{
    (void)state;
    struct ddl_verify_config config = { .backend = "cpu", .threads = 2 };
    struct ddl_verify_totals totals;
    struct ddl_error err;
    glob_t found;
    size_t failed = 0, n = 0;
    assert_int_equal(glob(source_path("tests/golden/*"), 0, NULL, &found), 0);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        bool wide = strstr(found.gl_pathv[i], "/wide-");
        if (!(wide && test_sample()) && !strstr(found.gl_pathv[i], "/curve-") &&
            !strstr(found.gl_pathv[i], "/tokenizer"))
            found.gl_pathv[n++] = found.gl_pathv[i];
        else
            free(found.gl_pathv[i]);
    }
    found.gl_pathc = n;
    assert_ok(
        ddl_verify_run(&config, (const char *const *)found.gl_pathv, n, each_case, &failed, &totals, &err),
        err);
    globfree(&found);
    assert_int_equal(failed, 0);
    assert_true(totals.passed > 40);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_accesses_end_the_program),
        cmocka_unit_test(a_download_is_complete_at_its_event),
        cmocka_unit_test(an_upload_reads_its_source_late),
        cmocka_unit_test(ops_have_the_arguments_of_the_call),
        cmocka_unit_test(golden_models_pass),
    };
    if (setenv("DDL_SIMULATED", "1", 1))
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
