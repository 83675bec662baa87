/* Host memory: aligned blocks, and an arena that is measured and then placed by the same code. */
#ifndef DDL_BASE_MEM_H
#define DDL_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>

enum { DDL_ALIGN = 64 }; /* a cache line, and the widest vector */

/* Bytes of memory that the machine has, or the limit of the process's control group (of a container, a batch
 * job) if that is lower; SIZE_MAX if unknown. */
size_t ddl_mem_machine(void);
/* The lowest limit of a control group (a path that begins with /) and those that contain it, from the files
 * memory.max in and below the folder `root`; SIZE_MAX if there is none. */
size_t ddl_mem_group_limit(const char *root, const char *group);

/* `bytes` of memory aligned to DDL_ALIGN, or NULL. Free with ddl_mem_free. Zero bytes give a valid block.
 * More than the machine has is refused here, because the system would promise it and end the process later.
 */
void *ddl_mem_alloc(size_t bytes);
void *ddl_mem_zalloc(size_t bytes); /* zeroed */
void ddl_mem_free(void *block);     /* NULL is allowed */

/* A copy of `text` (malloc'ed; free with free), or NULL. */
char *ddl_mem_strdup(const char *text);

/* *out = a * b, *out = a + b; false (and *out untouched) on overflow. */
bool ddl_size_mul(size_t a, size_t b, size_t *out);
bool ddl_size_add(size_t a, size_t b, size_t *out);

/* With base NULL an arena only measures: take returns NULL and counts. Run the same layout function once to
 * measure, allocate `used` bytes, and once more to place. Every piece is aligned to DDL_ALIGN. `overflow` is
 * set (and stays set) if the sizes do not fit a size_t. */
struct ddl_arena {
    unsigned char *base;
    size_t used;
    bool overflow;
};
void *ddl_arena_take(struct ddl_arena *arena, size_t count, size_t element_size);

#endif
