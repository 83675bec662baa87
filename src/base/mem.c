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

enum { GROUP_PATH = 1024 };

/* The limit in the memory.max of a group's folder; SIZE_MAX if there is none. */
static size_t limit_in(const char *folder)
{
    char path[GROUP_PATH + 16], text[32] = ""; /* a number or "max" */
    snprintf(path, sizeof path, "%s/memory.max", folder);
    FILE *file = fopen(path, "r");
    bool found = file && fgets(text, sizeof text, file);
    char *end = text;
    unsigned long long limit = found ? strtoull(text, &end, 10) : 0;
    if (file)
        fclose(file);
    return end != text && limit > 0 && limit < SIZE_MAX ? (size_t)limit : SIZE_MAX;
}

size_t ddl_mem_group_limit(const char *root, const char *group)
{
    char folder[GROUP_PATH];
    int n = snprintf(folder, sizeof folder, "%s%s", root, group);
    if (n < 0 || (size_t)n >= sizeof folder)
        return limit_in(root);
    size_t least = limit_in(folder);
    while (strlen(folder) > strlen(root)) {
        *strrchr(folder, '/') = '\0';
        size_t limit = limit_in(folder);
        least = limit < least ? limit : least;
    }
    return least;
}

/* The group of this process in the second version of control groups: "0::PATH". "/" if unknown. */
static void find_group(char *group, size_t size)
{
    char line[GROUP_PATH];
    FILE *file = fopen("/proc/self/cgroup", "r");
    snprintf(group, size, "/");
    while (file && fgets(line, sizeof line, file)) {
        if (strncmp(line, "0::/", 4) != 0)
            continue;
        line[strcspn(line, "\n")] = '\0';
        snprintf(group, size, "%s", line + 3);
    }
    if (file)
        fclose(file);
}

size_t ddl_mem_machine(void)
{
    size_t most = SIZE_MAX;
    char group[GROUP_PATH];
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    if (pages > 0 && page > 0)
        most = (size_t)pages * (size_t)page;
    find_group(group, sizeof group);
    size_t limit = ddl_mem_group_limit("/sys/fs/cgroup", group);
    return limit < most ? limit : most;
}

static void *aligned(size_t align, size_t bytes)
{
    size_t rounded = (bytes + align - 1) / align * align;
    return aligned_alloc(align, rounded ? rounded : align);
}

/* With pages of 4 KiB, half of the time to read all weights once per token goes to page lookups
 * (docs/performance.md). The system may decline: that changes nothing but speed. */
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
