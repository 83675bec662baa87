/* For every test: cmocka with its headers in order, paths, comparisons. */
#ifndef DDL_TEST_SUPPORT_H
#define DDL_TEST_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ddl/status.h"

/* A path below the source tree ("data/tokenizer"), or below this test's scratch folder. Each call returns one
 * of a few rotating static buffers. */
const char *source_path(const char *relative);
const char *scratch_path(const char *relative);
/* Whether tests that repeat something many times run a sample of it: DDL_TEST_SAMPLE=1, as in ./dev test. */
bool test_sample(void);
/* The same for what takes too long under sanitizers: there always. */
bool test_sample_sanitized(void);
/* Whether case i is tested: every `stride`-th one in a sample of the second kind, else all. */
bool test_takes(size_t i, size_t stride);
/* Name of backend i that tests run on, or NULL past the last: those built in, or those that DDL_TEST_BACKENDS
 * lists ("cuda:1,cpu"); the first is the one of tests that need only one. Each call returns one of a few
 * rotating static buffers. */
const char *test_backend(size_t i);
/* The first of them, open; the caller frees it. */
struct ddl_backend *open_test_backend(size_t threads);
/* Skips the test where backends are simulated devices: it accesses their memory. */
void skip_if_simulated(void);
/* The `ddl` program under test. */
const char *ddl_program(void);

/* Asserts that the call returned DDL_OK; prints the error message otherwise. */
#define assert_ok(status, err) assert_ok_at((status), &(err), __FILE__, __LINE__)
void assert_ok_at(ddl_status status, const struct ddl_error *err, const char *file, int line);

/* rms(a - b) / rms(expected); 0 if both are zero throughout, infinity for a NaN. */
double relative_error(size_t n, const float *found, const float *expected);
/* Fails if the above exceeds the limit. */
#define assert_close(n, found, expected, limit)                                                              \
    assert_close_at((n), (found), (expected), (limit), #found, __FILE__, __LINE__)
void assert_close_at(size_t n, const float *found, const float *expected, double limit, const char *what,
                     const char *file, int line);

/* n floats, standard normal from a fixed stream; or NaN, for outputs. Free with ddl_mem_free. */
float *random_floats(size_t n, uint64_t stream);
float *poisoned_floats(size_t n);

/* Runs a shell command, returns its exit status, and its standard output in out (NUL-terminated, truncated).
 */
int run_command(const char *command, char *out, size_t size);

#endif
