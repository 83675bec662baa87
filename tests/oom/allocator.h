/* malloc and its kin, mmap and pthread_create for a whole program, libraries and their calls included: each
 * can be made to fail, and what was not given back is known. Linked into the programs of tests/oom/ alone,
 * where these definitions come before the C library's (and before the sanitizers', to which they hand on).
 *
 * Never made to fail, because what asks ends the process or has no way to say so: the OpenMP runtime
 * ("libgomp: Out of memory", then exit), the dynamic loader (thread-local storage), C++'s operator new
 * (oneDNN lets std::bad_alloc out through its C calls), jansson's requests of 32, 64, 128 ... bytes (2.14
 * asserts, and so ends the process, where the character after a long number finds no room), and in oneDNN
 * itself everything but dnnl_sgemm (dnnl_engine_create of 2.6 uses the NULL that it was given). fsync does
 * nothing here: a sweep writes thousands of files that no power cut needs to spare.
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
