/* Model code never dereferences backend memory: golden models on a backend whose memory the host cannot
 * access. The tests called guarded.* are tests of models, training, decoding and checkpoints on the same
 * backend. */
#define _POSIX_C_SOURCE 200809L
#include "support/support.h"

#include "ddl/backend.h"
#include "ddl/verify.h"
#include "model/pass/model.h"
#include "support/models.h"

#include <glob.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* The signal that ends a child process in which fn runs; 0 if it returns. */
static int signal_of(void (*fn)(const struct ddl_model *model), const struct ddl_model *model)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL); /* cmocka handles it */
        fn(model);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void read_directly(const struct ddl_model *model)
{
    volatile float number = model->value[0];
    (void)number;
}

static void read_through_the_backend(const struct ddl_model *model)
{
    float number;
    model->backend->ops->download(model->backend->ctx, &number, model->value, sizeof number);
}

static void stray_access_is_a_crash(void **state)
{
    (void)state;
    struct ddl_config config = small_config("ddl-cc-ec");
    ddl_backend *backend;
    ddl_model *model;
    struct ddl_error err;
    assert_ok(ddl_backend_create(&backend, "cpu", 1, &err), err);
    assert_ok(ddl_model_create(&model, &config, backend, &err), err);
    assert_int_equal(signal_of(read_through_the_backend, model), 0);
    assert_int_equal(signal_of(read_directly, model), SIGSEGV);
    ddl_model_free(model);
    ddl_backend_free(backend);
}

static void each_case(void *user, const struct ddl_verify_case *result)
{
    size_t *failed = user;
    if (result->outcome != DDL_VERIFY_FAIL)
        return;
    print_error("%s: %s\n", result->path, result->sentence);
    ++*failed;
}

/* Changing the protection of all memory twice per op takes most of the time: curves, whose training steps
 * guarded.train.* run, are left out, and the widest models in a sample. */
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
        cmocka_unit_test(stray_access_is_a_crash),
        cmocka_unit_test(golden_models_pass),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
