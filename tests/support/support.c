#define _POSIX_C_SOURCE 200809L
#include "support/support.h"

#include "base/mem.h"
#include "base/rng.h"
#include "ddl/backend.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

static const char *environment(const char *name)
{
    const char *value = getenv(name);
    if (!value) {
        fprintf(stderr, "%s is not set: run the tests through ctest\n", name);
        exit(2);
    }
    return value;
}

static const char *below(const char *folder, const char *relative)
{
    static char buffer[8][2048];
    static int next;
    char *out = buffer[next++ % 8];
    snprintf(out, sizeof buffer[0], "%s/%s", folder, relative);
    return out;
}

const char *source_path(const char *relative)
{
    return below(environment("DDL_SOURCE_DIR"), relative);
}

const char *scratch_path(const char *relative)
{
    return below(environment("DDL_SCRATCH"), relative);
}

bool test_sample(void)
{
    const char *value = getenv("DDL_TEST_SAMPLE");
    return value && strcmp(value, "1") == 0;
}

bool test_sample_sanitized(void)
{
#ifdef DDL_SANITIZED
    return true;
#else
    return test_sample();
#endif
}

bool test_takes(size_t i, size_t stride)
{
    return !test_sample_sanitized() || i % stride == 0;
}

enum { BACKEND_NAME = 64 };

/* Item i of DDL_TEST_BACKENDS; false past the last. */
static bool copy_backend_name(size_t i, char *name)
{
    const char *list = getenv("DDL_TEST_BACKENDS"), *at = list && *list ? list : "cpu,ref";
    for (; *at && i > 0; i--) {
        at += strcspn(at, ",");
        at += *at == ',';
    }
    snprintf(name, BACKEND_NAME, "%.*s", (int)strcspn(at, ","), at);
    return *at;
}

const char *test_backend(size_t i)
{
    static char names[8][BACKEND_NAME];
    static int next;
    char *name = names[next++ % 8];
    return copy_backend_name(i, name) ? name : NULL;
}

struct ddl_backend *open_test_backend(size_t threads)
{
    struct ddl_backend *backend;
    struct ddl_error err;
    char name[BACKEND_NAME]; /* ranks that are threads call this */
    assert_true(copy_backend_name(0, name));
    assert_ok(ddl_backend_create(&backend, name, threads, &err), err);
    return backend;
}

void skip_if_simulated(void)
{
    if (getenv("DDL_SIMULATED"))
        skip();
}

const char *ddl_program(void)
{
    return environment("DDL_PROGRAM");
}

void assert_ok_at(ddl_status status, const struct ddl_error *err, const char *file, int line)
{
    if (status)
        print_error("%s:%d: %s: %s\n", file, line, ddl_status_name(status), err->text);
    _assert_int_equal((LargestIntegralType)status, DDL_OK, file, line);
}

double relative_error(size_t n, const float *found, const float *expected)
{
    double diff = 0, size = 0;
    for (size_t i = 0; i < n; i++) {
        double e = (double)found[i] - (double)expected[i];
        diff += e * e;
        size += (double)expected[i] * (double)expected[i];
    }
    if (diff == 0)
        return 0;
    return isnan(diff) || size == 0 ? (double)INFINITY : sqrt(diff / size);
}

void assert_close_at(size_t n, const float *found, const float *expected, double limit, const char *what,
                     const char *file, int line)
{
    double error = relative_error(n, found, expected);
    if (!(error <= limit)) {
        print_error("%s:%d: %s: relative error %.3g, limit %.3g\n", file, line, what, error, limit);
        _fail(file, line);
    }
}

float *random_floats(size_t n, uint64_t stream)
{
    float *x = ddl_mem_alloc(n * sizeof *x);
    for (size_t i = 0; x && i < n; i++)
        x[i] = (float)ddl_rng_normal(ddl_rng_key(stream, "test"), i);
    return x;
}

float *poisoned_floats(size_t n)
{
    float *x = ddl_mem_alloc(n * sizeof *x);
    for (size_t i = 0; x && i < n; i++)
        x[i] = NAN;
    return x;
}

int run_command(const char *command, char *out, size_t size)
{
    FILE *pipe = popen(command, "r");
    if (!pipe)
        return -1;
    size_t n = fread(out, 1, size - 1, pipe);
    out[n] = '\0';
    while (fgetc(pipe) != EOF)
        continue;
    int status = pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
