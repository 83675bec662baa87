/* Replaces the library's mmap, munmap and madvise (linked with --wrap): a file is mapped to a heap copy of
 * its exact size, so that AddressSanitizer detects a read past the end. A real mapping extends to the end of
 * its last page. */
#define _POSIX_C_SOURCE 200809L
#include "fuzz.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* Names defined by the linker. NOLINTBEGIN(bugprone-reserved-identifier) */
void *__real_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset);
int __real_munmap(void *at, size_t size);
void *__wrap_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset);
int __wrap_munmap(void *at, size_t size);
int __wrap_madvise(void *at, size_t size, int advice);

enum { MOST_MAPS = 64, MOST_BYTES = 1 << 24 };
static void *copies[MOST_MAPS];

void *__wrap_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset)
{
    size_t slot = 0;
    while (slot < MOST_MAPS && copies[slot])
        slot++;
    if (fd < 0 || protection != PROT_READ || offset != 0 || size > MOST_BYTES || slot == MOST_MAPS)
        return __real_mmap(at, size, protection, flags, fd, offset);
    unsigned char *copy = malloc(size);
    FUZZ_CHECK(copy != NULL);
    for (size_t used = 0; used < size;) {
        ssize_t got = pread(fd, copy + used, size - used, (off_t)used);
        FUZZ_CHECK(got > 0);
        used += (size_t)got;
    }
    return copies[slot] = copy;
}

int __wrap_munmap(void *at, size_t size)
{
    for (size_t slot = 0; slot < MOST_MAPS; slot++) {
        if (copies[slot] == at) {
            free(at);
            copies[slot] = NULL;
            return 0;
        }
    }
    return __real_munmap(at, size);
}

/* Pages of a heap copy would read as zeros afterwards, not as the file's bytes. */
int __wrap_madvise(void *at, size_t size, int advice)
{
    (void)at;
    (void)size;
    (void)advice;
    return 0;
}
/* NOLINTEND(bugprone-reserved-identifier) */
