#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "support/simulated_memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ALIGN = 64 };

_Noreturn void simulated_stop(const char *what)
{
    fprintf(stderr, "simulated device: %s\n", what);
    abort();
}

void *simulated_map(size_t bytes, int protection)
{
    void *at = mmap(NULL, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return at == MAP_FAILED ? NULL : at;
}

struct simulated_block *simulated_block_create(size_t bytes, bool device_memory)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), used = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    size_t whole = (used / page + 2) * page, filled = whole - page;
    struct simulated_block *block =
        bytes < SIZE_MAX / 2 ? simulated_map(sizeof *block, PROT_READ | PROT_WRITE) : NULL;
    if (!block)
        return NULL;
    *block = (struct simulated_block){ .bytes = bytes, .whole = whole };
    block->pages = simulated_map(whole, PROT_READ | PROT_WRITE);
    unsigned char *reserved = device_memory ? simulated_map(whole, PROT_NONE) : NULL;
    if (!block->pages || (device_memory && !reserved)) {
        if (block->pages)
            munmap(block->pages, whole);
        munmap(block, sizeof *block);
        return NULL;
    }
    block->numbers = block->pages + filled - used;
    block->at = device_memory ? reserved + filled - used : block->numbers;
    memset(block->numbers, SIMULATED_POISON, used);
    if (mprotect(block->pages + filled, page, PROT_NONE))
        simulated_stop("mprotect failed");
    return block;
}

void simulated_block_free(struct simulated_block *block)
{
    if (block->at != block->numbers)
        munmap(block->at - (block->numbers - block->pages), block->whole);
    munmap(block->pages, block->whole);
    munmap(block, sizeof *block);
}

struct simulated_block *simulated_block_find(struct simulated_block *list, const void *at, size_t bytes)
{
    uintptr_t from = (uintptr_t)at;
    for (struct simulated_block *block = list; block; block = block->next) {
        uintptr_t start = (uintptr_t)block->at;
        if (from >= start && from <= start + block->bytes && bytes <= start + block->bytes - from)
            return block;
    }
    return NULL;
}

struct simulated_block *simulated_block_take(struct simulated_block **list, const void *at,
                                             const char *message)
{
    for (struct simulated_block **link = list; *link; link = &(*link)->next) {
        struct simulated_block *block = *link;
        if (block->at != at)
            continue;
        *link = block->next;
        return block;
    }
    simulated_stop(message);
}
