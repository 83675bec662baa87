/* How much memory a program takes. */
#ifndef DDL_TEST_MEMORY_H
#define DDL_TEST_MEMORY_H

#include <stddef.h>

/* Runs `program` with arguments (NULL past the last, the first one its name), standard output thrown away;
 * fails the test unless it exits with 0. Its largest resident memory in bytes, or what this process holds now
 * where that is more. */
size_t peak_memory_of(const char *program, const char *const arguments[]);

/* The largest resident memory of this process so far, in bytes. */
size_t peak_memory(void);

#endif
