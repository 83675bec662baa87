#define _DEFAULT_SOURCE /* madvise */
#include "base/mem.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    LARGE = 1 << 30,     /* bytes from which the machine's memory is checked      */
    HUGE_PAGE = 1 << 21, /* of x86-64 and of most AArch64                         */
    MANY_PAGES = 1 << 23 /* bytes from which huge pages are requested */
};

size_t ddl_mem_machine(void)
{
    size_t most = SIZE_MAX;
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    if (pages > 0 && page > 0)
        most = (size_t)pages * (size_t)page;
    FILE *file = fopen("/sys/fs/cgroup/memory.max", "r"); /* a number or "max" */
    char text[32] = "";
    if (file && fgets(text, sizeof text, file)) {
        char *end;
        unsigned long long limit = strtoull(text, &end, 10);
        if (end != text && limit > 0 && limit < most)
            most = (size_t)limit;
    }
    if (file)
        fclose(file);
    return most;
}

static void *aligned(size_t align, size_t bytes)
{
    size_t rounded = (bytes + align - 1) / align * align;
    return aligned_alloc(align, rounded ? rounded : align);
}

/* Weights that are streamed past once a token spend half their time on looking pages up, where pages have 4
 * KiB (docs/performance.md). The system may decline: that changes nothing but speed. */
static void *alloc_in_huge_pages(size_t bytes)
{
    void *block = aligned(HUGE_PAGE, bytes);
#ifdef MADV_HUGEPAGE
    if (block)
        (void)madvise(block, bytes, MADV_HUGEPAGE);
#endif
    return block;
}

void *ddl_mem_alloc(size_t bytes)
{
    if (bytes > SIZE_MAX - HUGE_PAGE || (bytes > LARGE && bytes > ddl_mem_machine()))
        return NULL;
    return bytes >= MANY_PAGES ? alloc_in_huge_pages(bytes) : aligned(DDL_ALIGN, bytes);
}

void *ddl_mem_zalloc(size_t bytes)
{
    void *block = ddl_mem_alloc(bytes);
    if (block)
        memset(block, 0, bytes);
    return block;
}

void ddl_mem_free(void *block)
{
    free(block);
}

char *ddl_mem_strdup(const char *text)
{
    size_t size = strlen(text) + 1;
    char *copy = malloc(size);
    if (copy)
        memcpy(copy, text, size);
    return copy;
}

bool ddl_size_mul(size_t a, size_t b, size_t *out)
{
    if (b && a > SIZE_MAX / b)
        return false;
    *out = a * b;
    return true;
}

bool ddl_size_add(size_t a, size_t b, size_t *out)
{
    if (a > SIZE_MAX - b)
        return false;
    *out = a + b;
    return true;
}

void *ddl_arena_take(struct ddl_arena *arena, size_t count, size_t element_size)
{
    size_t bytes, end;
    if (!ddl_size_mul(count, element_size, &bytes) || bytes > SIZE_MAX - DDL_ALIGN ||
        !ddl_size_add(arena->used, (bytes + DDL_ALIGN - 1) / DDL_ALIGN * DDL_ALIGN, &end)) {
        arena->overflow = true;
        return NULL;
    }
    void *piece = arena->base ? arena->base + arena->used : NULL;
    arena->used = end;
    return piece;
}
