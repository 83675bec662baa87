/* Blocks of memory of a simulated device. */
#ifndef DDL_TEST_SIMULATED_MEMORY_H
#define DDL_TEST_SIMULATED_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SIMULATED_POISON = 0xff }; /* each byte of memory that was not written: floats are NaN */

/* Memory of alloc: `at` is what the host has, `numbers` what ops use. Of alloc_host: both are the same. */
struct simulated_block {
    unsigned char *at, *numbers, *pages; /* pages: of `numbers` */
    size_t bytes, whole;                 /* whole: bytes of each mapping */
    uint64_t last_use;                   /* of alloc_host: the last call that transfers it */
    struct simulated_block *next;
};

/* Ends the program with a message. */
_Noreturn void simulated_stop(const char *what);
/* Not malloc, which some programs count. NULL if there is no memory; freed by munmap. */
void *simulated_map(size_t bytes, int protection);
/* NULL if there is no memory. */
struct simulated_block *simulated_block_create(size_t bytes, bool device_memory);
void simulated_block_free(struct simulated_block *block);
/* The block in the list that has [at, at + bytes); NULL if there is none. */
struct simulated_block *simulated_block_find(struct simulated_block *list, const void *at, size_t bytes);
/* Takes the block that begins at `at` out of the list. */
struct simulated_block *simulated_block_take(struct simulated_block **list, const void *at,
                                             const char *message);

#endif
