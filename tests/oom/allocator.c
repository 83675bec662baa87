/* glibc's _GNU_SOURCE: dl_iterate_phdr, RTLD_NEXT and memalign have no POSIX name. */
#define _GNU_SOURCE
#include "oom/allocator.h"

#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <link.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXPORTED __attribute__((visibility("default")))

#ifdef DDL_SANITIZED
#define REAL(name) __interceptor_##name
#else
#define REAL(name) __libc_##name
#endif
void *REAL(malloc)(size_t size);
void *REAL(calloc)(size_t count, size_t size);
void *REAL(realloc)(void *block, size_t size);
void *REAL(memalign)(size_t alignment, size_t size);
void REAL(free)(void *block);

/* ---- what is requested ---- */

static atomic_bool armed, persist, fired, in_onednn;
static atomic_long requests, failing = FAULT_NEVER;

enum { FRAMES = 24 };
static void *frames[FRAMES];
static int n_frames;

/* ---- whose requests are spared ---- */

struct range {
    uintptr_t begin, end;
};
enum { MOST_RANGES = 8 };
static struct range spared[MOST_RANGES], onednn[MOST_RANGES], jansson[MOST_RANGES];
static size_t n_spared, n_onednn, n_jansson;

static bool is_named(const char *name, const char *const *prefixes)
{
    for (; *prefixes; prefixes++) {
        if (strncmp(name, *prefixes, strlen(*prefixes)) == 0)
            return true;
    }
    return false;
}

static int find_ranges(struct dl_phdr_info *info, size_t size, void *user)
{
    static const char *const never[] = { "libgomp.", "libomp.", "ld-linux", "libstdc++.", NULL };
    static const char *const products[] = { "libdnnl.", NULL }, *const json[] = { "libjansson.", NULL };
    static const struct {
        const char *const *names;
        struct range *ranges;
        size_t *n;
    } rows[] = { { never, spared, &n_spared },
                 { products, onednn, &n_onednn },
                 { json, jansson, &n_jansson } };
    (void)size;
    (void)user;
    const char *slash = strrchr(info->dlpi_name, '/'), *name = slash ? slash + 1 : info->dlpi_name;
    struct range *ranges = NULL;
    size_t *n = NULL;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (is_named(name, rows[i].names)) {
            ranges = rows[i].ranges;
            n = rows[i].n;
        }
    }
    for (size_t i = 0; ranges && i < info->dlpi_phnum && *n < MOST_RANGES; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        if (segment->p_type != PT_LOAD || !(segment->p_flags & PF_X))
            continue;
        ranges[*n].begin = (uintptr_t)(info->dlpi_addr + segment->p_vaddr);
        ranges[*n].end = ranges[*n].begin + (uintptr_t)segment->p_memsz;
        ++*n;
    }
    return 0;
}

static bool is_within(const void *caller, const struct range *ranges, size_t n)
{
    uintptr_t at = (uintptr_t)caller;
    for (size_t i = 0; i < n; i++) {
        if (at >= ranges[i].begin && at < ranges[i].end)
            return true;
    }
    return false;
}

static bool is_spared(const void *caller)
{
    return is_within(caller, spared, n_spared);
}

static bool called_from(const char *function)
{
    void *stack[FRAMES];
    for (int i = 0, n = backtrace(stack, FRAMES); i < n; i++) {
        Dl_info where;
        if (dladdr(stack[i], &where) && where.dli_sname && strcmp(where.dli_sname, function) == 0)
            return true;
    }
    return false;
}

/* oneDNN outside the calls that report it; jansson where the request may be a buffer of a long number that
 * grows (16 bytes, doubled each time); the sanitizer's start of a thread. */
static bool is_fragile(const void *caller, size_t size)
{
    if (is_within(caller, jansson, n_jansson))
        return size >= 32 && (size & (size - 1)) == 0;
    if (is_within(caller, onednn, n_onednn))
        return !called_from("dnnl_sgemm");
#ifdef DDL_SANITIZED
    return called_from("pthread_getattr_np");
#else
    return false;
#endif
}

/* ---- blocks that are alive: open addressing, a spin lock ---- */

enum { SLOTS = 1 << 17 };
struct slot {
    uintptr_t block;
    const void *caller;
    long request;
};
static struct slot slots[SLOTS];
static size_t n_alive;
static atomic_flag lock = ATOMIC_FLAG_INIT;

static void lock_slots(void)
{
    while (atomic_flag_test_and_set_explicit(&lock, memory_order_acquire))
        continue;
}

static void unlock_slots(void)
{
    atomic_flag_clear_explicit(&lock, memory_order_release);
}

static size_t home_of(uintptr_t block)
{
    return (size_t)((uint64_t)block * 0x9e3779b97f4a7c15u >> 47);
}

static size_t slot_of(uintptr_t block)
{
    size_t i = home_of(block);
    while (slots[i].block && slots[i].block != block)
        i = (i + 1) % SLOTS;
    return i;
}

static void *remember(void *block, const void *caller, long request)
{
    if (!block || !atomic_load(&armed) || is_spared(caller))
        return block;
    lock_slots();
    if (n_alive < SLOTS / 2) {
        struct slot *slot = &slots[slot_of((uintptr_t)block)];
        n_alive += slot->block == 0;
        *slot = (struct slot){ (uintptr_t)block, caller, request };
    }
    unlock_slots();
    return block;
}

/* Takes the block out and closes the gap, so that every block stays reachable from its home. */
static void forget(const void *block)
{
    if (!block)
        return;
    lock_slots();
    size_t gap = n_alive ? slot_of((uintptr_t)block) : 0;
    if (n_alive && slots[gap].block) {
        n_alive--;
        for (size_t i = (gap + 1) % SLOTS; slots[i].block; i = (i + 1) % SLOTS) {
            if ((i - home_of(slots[i].block)) % SLOTS >= (i - gap) % SLOTS) {
                slots[gap] = slots[i];
                gap = i;
            }
        }
        slots[gap] = (struct slot){ 0 };
    }
    unlock_slots();
}

/* ---- the decision ---- */

/* Whether this request is to fail; *request gets its number. */
static bool refuse(const void *caller, size_t size, long *request)
{
    *request = -1;
    if (!atomic_load(&armed) || is_spared(caller))
        return false;
    long n = *request = atomic_fetch_add(&requests, 1), at = atomic_load(&failing);
    if (at == FAULT_NEVER || n < at || (n > at && !atomic_load(&persist)))
        return false;
    if (is_fragile(caller, size))
        return false;
    if (!atomic_exchange(&fired, true)) {
        n_frames = backtrace(frames, FRAMES);
        atomic_store(&in_onednn, is_within(caller, onednn, n_onednn));
    }
    errno = ENOMEM;
    return true;
}

#define CALLER __builtin_return_address(0)

EXPORTED void *malloc(size_t size)
{
    long request;
    return refuse(CALLER, size, &request) ? NULL : remember(REAL(malloc)(size), CALLER, request);
}

EXPORTED void *calloc(size_t count, size_t size)
{
    long request;
    return refuse(CALLER, count * size, &request) ? NULL
                                                  : remember(REAL(calloc)(count, size), CALLER, request);
}

EXPORTED void *realloc(void *block, size_t size)
{
    long request;
    if (refuse(CALLER, size, &request))
        return NULL;
    forget(block); /* before another thread may be given its address */
    return remember(REAL(realloc)(block, size), CALLER, request);
}

EXPORTED void *memalign(size_t alignment, size_t size)
{
    long request;
    return refuse(CALLER, size, &request) ? NULL : remember(REAL(memalign)(alignment, size), CALLER, request);
}

EXPORTED void *aligned_alloc(size_t alignment, size_t size)
{
    long request;
    return refuse(CALLER, size, &request) ? NULL : remember(REAL(memalign)(alignment, size), CALLER, request);
}

EXPORTED int posix_memalign(void **out, size_t alignment, size_t size)
{
    long request;
    if (refuse(CALLER, size, &request))
        return ENOMEM;
    void *block = remember(REAL(memalign)(alignment, size), CALLER, request);
    if (block)
        *out = block;
    return block ? 0 : ENOMEM;
}

EXPORTED void free(void *block)
{
    int kept = errno;
    forget(block);
    REAL(free)(block);
    errno = kept;
}

EXPORTED void *mmap(void *address, size_t size, int protection, int flags, int fd, off_t offset)
{
    long request;
    if (refuse(CALLER, size, &request))
        return MAP_FAILED;
    long view = syscall(SYS_mmap, address, size, protection, flags, fd, offset);
    if (view == -1)
        return MAP_FAILED;
    return remember((void *)(uintptr_t)view, CALLER, request);
}

EXPORTED int munmap(void *address, size_t size)
{
    forget(address);
    return (int)syscall(SYS_munmap, address, size);
}

EXPORTED int fsync(int fd)
{
    (void)fd;
    return 0;
}

typedef int create_fn(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *arg);
static create_fn *real_create;

EXPORTED int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *),
                            void *arg)
{
    long request;
    return refuse(CALLER, 0, &request) ? EAGAIN : real_create(thread, attributes, start, arg);
}

/* ---- for the tests ---- */

void faults_arm(long n, bool persistent)
{
    memset(slots, 0, sizeof slots);
    n_alive = 0;
    n_frames = 0;
    atomic_store(&requests, 0);
    atomic_store(&failing, n);
    atomic_store(&persist, persistent);
    atomic_store(&fired, false);
    atomic_store(&armed, true);
}

void faults_disarm(void)
{
    atomic_store(&armed, false);
}

long faults_requests(void)
{
    return atomic_load(&requests);
}

bool faults_fired(void)
{
    return atomic_load(&fired);
}

bool faults_onednn(void)
{
    return faults_fired() && atomic_load(&in_onednn);
}

size_t faults_alive(void)
{
    return n_alive;
}

void faults_explain(void)
{
    if (n_frames) {
        fprintf(stderr, "the first request that failed:\n");
        backtrace_symbols_fd(frames + 1, n_frames - 1, STDERR_FILENO);
    }
    for (size_t i = 0; i < SLOTS; i++) {
        if (!slots[i].block)
            continue;
        Dl_info where = { 0 };
        void *caller = (void *)(uintptr_t)slots[i].caller;
        (void)dladdr(caller, &where);
        fprintf(stderr, "alive: request %ld, from %s+0x%zx\n", slots[i].request,
                where.dli_fname ? where.dli_fname : "?", (size_t)caller - (size_t)where.dli_fbase);
    }
}

#ifdef DDL_SANITIZED
/* What the dynamic loader keeps of a library that is loaded at run time: backtrace's. */
EXPORTED const char *__lsan_default_suppressions(void);
EXPORTED const char *__lsan_default_suppressions(void)
{
    return "leak:_dl_map_object_deps\n";
}
#endif

/* ---- before main ---- */

__attribute__((constructor)) static void begin(void)
{
    void *frame[1];
    (void)backtrace(frame, 1); /* loads what it needs */
    *(void **)&real_create = dlsym(RTLD_NEXT, "pthread_create");
    dl_iterate_phdr(find_ranges, NULL);
}
