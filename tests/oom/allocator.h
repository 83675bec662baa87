/* malloc and related functions, mmap and pthread_create of a whole program including its libraries: each call
 * can be made to fail, and leaks are counted. Linked into the programs of tests/oom/ only, where these
 * definitions take precedence over the C library's (and the sanitizers', which they call).
 *
 * Never made to fail, because the caller ends the process or cannot report it: the OpenMP runtime ("libgomp:
 * Out of memory", then exit), the dynamic loader (thread-local storage), C++'s operator new (std::bad_alloc
 * leaves oneDNN's C functions), jansson's requests of 32, 64, 128 ... bytes (2.14 asserts if a buffer for a
 * long number cannot grow), and in oneDNN everything but dnnl_sgemm (dnnl_engine_create of 2.6 uses the NULL
 * that it was given). fsync does nothing here: a sweep writes thousands of files that need not be durable.
 */
#ifndef DDL_TEST_ALLOCATOR_H
#define DDL_TEST_ALLOCATOR_H

#include <stdbool.h>
#include <stddef.h>

enum { FAULT_NEVER = -1 };

/* From now on requests are counted from 0, in all threads, and blocks remembered; request number n fails
 * (FAULT_NEVER: none does), and with `persistent` every one after it. */
void faults_arm(long n, bool persistent);
void faults_disarm(void);
long faults_requests(void); /* since faults_arm */
bool faults_fired(void);    /* whether one has failed */
bool faults_onednn(void);   /* and the first that did was oneDNN's */
/* Blocks and mappings of the armed time that are not given back. */
size_t faults_alive(void);
/* To standard error: whence the first failed request came, and each block still alive. */
void faults_explain(void);

#endif
