/* The scheduler of the emulator: fibers, rendezvous, shared memory. */
#include "emulator.h"
#include "emulator_device.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <sys/mman.h>
#include <tuple>
#include <ucontext.h>
#include <vector>

/* The sanitizers' interfaces for fibers and memory, where the program is linked with one. */
extern "C" {
#define WEAK __attribute__((weak))
void *__tsan_get_current_fiber() WEAK;
void *__tsan_create_fiber(unsigned) WEAK;
void __tsan_destroy_fiber(void *) WEAK;
void __tsan_switch_to_fiber(void *, unsigned) WEAK;
void __tsan_acquire(void *) WEAK;
void __tsan_release(void *) WEAK;
void __sanitizer_start_switch_fiber(void **, const void *, size_t) WEAK;
void __sanitizer_finish_switch_fiber(void *, const void **, size_t *) WEAK;
void __asan_poison_memory_region(const volatile void *, size_t) WEAK;
void __asan_unpoison_memory_region(const volatile void *, size_t) WEAK;
void emulator_block_ended() WEAK;
}

namespace emulator
{

static const size_t STACK_BYTES = 124 << 10, GUARD_BYTES = 4 << 10;
static const unsigned MAX_THREADS = 1024, MAX_ARRAYS = 32, MAX_COPIES = 64;
static const unsigned COLORS = 64; /* of stacks: their tops are in different sets of the caches */
static const size_t COLOR_BYTES = 448;
static const size_t SHARED_BYTES = 227 << 10; /* of a block, compute capability 9.0 */
static const size_t GAP_BYTES = 64;           /* between arrays, for AddressSanitizer */

enum state { RUNNABLE, AT_BARRIER, AT_COLLECTIVE, ENDED };

struct thread {
    ucontext_t context; /* before its first switch */
    void *jump[5];      /* after it: switching takes no system call */
    bool fresh, idle;   /* not entered yet; at the end of run_thread's loop */
    char *stack;
    void *tsan, *asan;
    dim3 index;
    site where;
    /* The collective operation that it waits for. */
    unsigned mask;
    void (*combine)(void *const[32], unsigned);
    void *operand;
    /* A queue of the copies under way, with the group of each. */
    copy copies[MAX_COPIES];
    int group_of[MAX_COPIES];
    unsigned started, completed;
    int groups; /* committed */
};

struct array {
    const void *key;
    char *start;
    size_t bytes;
};

static const kernel *kernels;
/* Nothing is allocated by a fiber: ThreadSanitizer would see the allocator's accesses. */
static thread threads[MAX_THREADS]; /* of the block: the first n */
static unsigned char states[MAX_THREADS];
static unsigned ended[MAX_THREADS / 32], at_collective[MAX_THREADS / 32]; /* lanes of each warp */
static unsigned n, current;
static char *stacks;
static size_t stack_count;
static const emulator_launch *launch;
static const kernel *running;
static dim3 block, size, grid;
static void *scheduler_jump[5];
static void *scheduler_tsan, *scheduler_asan;
static const void *scheduler_stack;
static size_t scheduler_stack_bytes;
static uint64_t random_state;
static char failure[512];
static char *shared_memory;
static size_t shared_used;
static array arrays[MAX_ARRAYS];
static unsigned array_count;
static char start_tag, end_tag, barrier_tag, warp_tag[32]; /* ThreadSanitizer's synchronization objects */

kernel::kernel(const char *name, unsigned threads, size_t bytes, void (*body)(const void *))
    : name(name), threads(threads), bytes(bytes), body(body), next(kernels)
{
    kernels = this;
}

const dim3 &thread_index()
{
    return threads[current].index;
}

const dim3 &block_index()
{
    return block;
}

const dim3 &block_size()
{
    return size;
}

const dim3 &grid_size()
{
    return grid;
}

static void acquire(char *tag)
{
    if (__tsan_acquire)
        __tsan_acquire(tag);
}

static void release(char *tag)
{
    if (__tsan_release)
        __tsan_release(tag);
}

static std::string text(const char *format, ...) __attribute__((format(printf, 1, 2)));
static std::string text(const char *format, ...)
{
    char line[512];
    va_list list;
    va_start(list, format);
    vsnprintf(line, sizeof line, format, list);
    va_end(list);
    return line;
}

static const char *base_name(const char *file)
{
    const char *slash = strrchr(file, '/');
    return slash ? slash + 1 : file;
}

static void set_state(unsigned i, enum state state)
{
    const unsigned bit = 1u << i % 32, warp = i / 32;
    ended[warp] = state == ENDED ? ended[warp] | bit : ended[warp] & ~bit;
    at_collective[warp] = state == AT_COLLECTIVE ? at_collective[warp] | bit : at_collective[warp] & ~bit;
    states[i] = state;
}

/* Switches from the running fiber to the scheduler, until it is scheduled again. */
static void yield()
{
    thread *t = &threads[current];
    t->asan = nullptr;
    if (__sanitizer_start_switch_fiber)
        __sanitizer_start_switch_fiber(states[current] == ENDED ? nullptr : &t->asan, scheduler_stack,
                                       scheduler_stack_bytes);
    if (__tsan_switch_to_fiber)
        __tsan_switch_to_fiber(scheduler_tsan, 1);
    if (__builtin_setjmp(t->jump) == 0)
        __builtin_longjmp(scheduler_jump, 1);
    if (__sanitizer_finish_switch_fiber)
        __sanitizer_finish_switch_fiber(threads[current].asan, nullptr, nullptr);
}

static void resume(unsigned i)
{
    thread *t = &threads[i];
    current = i;
    if (__sanitizer_start_switch_fiber)
        __sanitizer_start_switch_fiber(&scheduler_asan, t->stack, STACK_BYTES);
    if (__tsan_switch_to_fiber)
        __tsan_switch_to_fiber(t->tsan, 1);
    if (__builtin_setjmp(scheduler_jump) == 0) {
        if (!t->fresh)
            __builtin_longjmp(t->jump, 1);
        t->fresh = false;
        setcontext(&t->context);
    }
    if (__sanitizer_finish_switch_fiber)
        __sanitizer_finish_switch_fiber(scheduler_asan, nullptr, nullptr);
}

void fault(site where, const char *format, ...)
{
    int length =
        where.file ? snprintf(failure, sizeof failure, "%s:%d: ", base_name(where.file), where.line) : 0;
    va_list list;
    va_start(list, format);
    vsnprintf(failure + length, sizeof failure - static_cast<size_t>(length), format, list);
    va_end(list);
    set_state(current, ENDED);
    for (;;)
        yield();
}

/* What a fiber runs: a thread of each block. */
static void run_thread()
{
    if (__sanitizer_finish_switch_fiber)
        __sanitizer_finish_switch_fiber(nullptr, &scheduler_stack, &scheduler_stack_bytes);
    for (;;) {
        acquire(&start_tag);
        running->body(launch->arguments);
        thread *t = &threads[current];
        if (t->started > t->completed)
            fault({ nullptr, 0 }, "a thread ended with %u asynchronous copies that it did not wait for",
                  t->started - t->completed);
        set_state(current, ENDED);
        t->idle = true;
        release(&end_tag);
        yield();
    }
}

void barrier(site where)
{
    thread *t = &threads[current];
    set_state(current, AT_BARRIER);
    t->where = where;
    release(&barrier_tag);
    yield();
    acquire(&barrier_tag);
}

/* The mask names a lane that the block does not have, or that has ended. */
[[noreturn]] static void fault_of_mask(site where, unsigned mask)
{
    const unsigned warp = current / 32, lane = static_cast<unsigned>(__builtin_ctz(mask & ended[warp]));
    fault(where, "the mask %#x names lane %u, which %s", mask, lane,
          32 * warp + lane < n ? "has ended" : "the block does not have");
}

/* Whether the lanes that t's mask names, all at a collective operation, are at the same one. */
static bool all_wait_for(const thread *t)
{
    const thread *first = threads + current / 32 * 32;
    for (unsigned lane = 0; lane < 32; lane++)
        if (t->mask >> lane & 1 && (first[lane].combine != t->combine || first[lane].mask != t->mask))
            return false;
    return true;
}

static void complete(const thread *t)
{
    const unsigned first = current / 32 * 32;
    void *operands[32] = {};
    for (unsigned lane = 0; lane < 32; lane++)
        if (t->mask >> lane & 1)
            operands[lane] = threads[first + lane].operand;
    t->combine(operands, t->mask);
    for (unsigned lane = 0; lane < 32; lane++)
        if (t->mask >> lane & 1)
            set_state(first + lane, RUNNABLE);
}

void collective(unsigned mask, void (*combine)(void *const[32], unsigned), void *operand, bool orders_memory,
                site where)
{
    thread *t = &threads[current];
    if (!(mask >> (current % 32) & 1))
        fault(where, "a lane calls a warp operation whose mask does not name it");
    set_state(current, AT_COLLECTIVE);
    t->where = where;
    t->mask = mask;
    t->combine = combine;
    t->operand = operand;
    const unsigned warp = current / 32;
    if (orders_memory)
        release(&warp_tag[warp]);
    if (mask & ended[warp])
        fault_of_mask(where, mask);
    if ((mask & at_collective[warp]) == mask && all_wait_for(t))
        complete(t);
    else
        yield();
    if (orders_memory)
        acquire(&warp_tag[current / 32]);
}

void meet(void *const *, unsigned) {}

void exchange(void *const operands[32], unsigned mask)
{
    for (unsigned lane = 0; lane < 32; lane++) {
        if (!(mask >> lane & 1))
            continue;
        exchanged *to = static_cast<exchanged *>(operands[lane]);
        if (!(mask >> to->source & 1))
            fault(to->where, "a lane reads from a lane that the mask does not name");
        to->received = static_cast<exchanged *>(operands[to->source])->value;
    }
}

void count_votes(void *const operands[32], unsigned mask)
{
    unsigned result = 0;
    for (unsigned lane = 0; lane < 32; lane++)
        if (mask >> lane & 1 && static_cast<vote *>(operands[lane])->predicate)
            result |= 1u << lane;
    for (unsigned lane = 0; lane < 32; lane++)
        if (mask >> lane & 1)
            static_cast<vote *>(operands[lane])->result = result;
}

static float value(uint32_t pair, unsigned half)
{
    const uint32_t bits = (half ? pair >> 16 : pair & 0xffff) << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

void multiply(void *const operands[32], unsigned)
{
    float a[16][16], b[16][8];
    for (unsigned lane = 0; lane < 32; lane++) {
        const fragments *f = static_cast<fragments *>(operands[lane]);
        const unsigned g = lane / 4, t = lane % 4;
        for (unsigned half = 0; half < 2; half++) {
            for (unsigned i = 0; i < 4; i++)
                a[g + 8 * (i % 2)][2 * t + 8 * (i / 2) + half] = value(f->a[i], half);
            for (unsigned i = 0; i < 2; i++)
                b[2 * t + 8 * i + half][g] = value(f->b[i], half);
        }
    }
    for (unsigned lane = 0; lane < 32; lane++) {
        float *d = static_cast<fragments *>(operands[lane])->d;
        for (unsigned i = 0; i < 4; i++) {
            const unsigned row = lane / 4 + 8 * (i / 2), column = 2 * (lane % 4) + i % 2;
            for (unsigned k = 0; k < 16; k++)
                d[i] += a[row][k] * b[k][column];
        }
    }
}

void distribute(void *const operands[32], unsigned)
{
    for (unsigned lane = 0; lane < 32; lane++)
        for (unsigned i = 0; i < 4; i++) {
            const uint16_t *row =
                static_cast<matrix_rows *>(operands[8 * i + lane / 4])->row + 2 * (lane % 4);
            static_cast<matrix_rows *>(operands[lane])->r[i] = row[0] | static_cast<uint32_t>(row[1]) << 16;
        }
}

void distribute_transposed(void *const operands[32], unsigned)
{
    for (unsigned lane = 0; lane < 32; lane++)
        for (unsigned i = 0; i < 4; i++) {
            const unsigned first = 8 * i + 2 * (lane % 4);
            const uint16_t low = static_cast<matrix_rows *>(operands[first])->row[lane / 4];
            const uint16_t high = static_cast<matrix_rows *>(operands[first + 1])->row[lane / 4];
            static_cast<matrix_rows *>(operands[lane])->r[i] = low | static_cast<uint32_t>(high) << 16;
        }
}

void start_copy(copy c)
{
    thread *t = &threads[current];
    if (t->started - t->completed == MAX_COPIES)
        fault({ nullptr, 0 }, "a thread has more than %u asynchronous copies under way", MAX_COPIES);
    t->copies[t->started % MAX_COPIES] = c;
    t->group_of[t->started++ % MAX_COPIES] = t->groups;
}

void commit_copies()
{
    threads[current].groups++;
}

bool next_copy(int groups, copy *c)
{
    thread *t = &threads[current];
    const unsigned next = t->completed % MAX_COPIES;
    if (t->started == t->completed || t->group_of[next] >= t->groups - groups)
        return false;
    *c = t->copies[next];
    t->completed++;
    return true;
}

static void poison(const char *start, size_t bytes, bool on)
{
    if (__asan_poison_memory_region)
        on ? __asan_poison_memory_region(start, bytes) : __asan_unpoison_memory_region(start, bytes);
}

void *shared(const void *key, size_t bytes)
{
    for (unsigned i = 0; i < array_count; i++)
        if (arrays[i].key == key)
            return arrays[i].start;
    if (array_count == MAX_ARRAYS || shared_used + bytes > SHARED_BYTES)
        fault({ nullptr, 0 }, "a block has more than %u arrays or %zu bytes of shared memory", MAX_ARRAYS,
              SHARED_BYTES);
    char *start = shared_memory + shared_used;
    arrays[array_count++] = { key, start, bytes };
    poison(start, bytes, false);
    shared_used += (bytes + GAP_BYTES + 15) / 16 * 16;
    return start;
}

void *dynamic_shared()
{
    return shared(&launch->shared, launch->shared);
}

bool is_shared(const void *p, size_t bytes)
{
    const char *start = static_cast<const char *>(p);
    for (unsigned i = 0; i < array_count; i++)
        if (start >= arrays[i].start && start + bytes <= arrays[i].start + arrays[i].bytes)
            return true;
    return false;
}

static char *map(size_t bytes)
{
    void *memory =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        abort();
    return static_cast<char *>(memory);
}

/* Stacks for n threads, each above a page that must not be accessed. */
static void map_stacks()
{
    stacks = map(n * (GUARD_BYTES + STACK_BYTES));
    stack_count = n;
    for (unsigned i = 0; i < n; i++) {
        threads[i].stack = stacks + i * (GUARD_BYTES + STACK_BYTES) + GUARD_BYTES;
        threads[i].idle = false;
        if (!__tsan_create_fiber)
            mprotect(threads[i].stack - GUARD_BYTES, GUARD_BYTES, PROT_NONE);
    }
}

/* Stacks, and new shared memory, all NaN. ThreadSanitizer forgets the accesses of an earlier block where
 * memory is mapped again. */
static void make_memory()
{
    if (stacks && (__tsan_create_fiber || stack_count < n)) {
        munmap(stacks, stack_count * (GUARD_BYTES + STACK_BYTES));
        stacks = nullptr;
    }
    if (!stacks)
        map_stacks();
    if (shared_memory && __tsan_create_fiber) {
        munmap(shared_memory, SHARED_BYTES + GAP_BYTES);
        shared_memory = nullptr;
    }
    if (!shared_memory) {
        shared_memory = map(SHARED_BYTES + GAP_BYTES);
        shared_used = SHARED_BYTES;
    }
    poison(shared_memory, SHARED_BYTES, false);
    memset(shared_memory, 0xff, shared_used);
    poison(shared_memory, SHARED_BYTES, true);
    shared_used = 0;
    array_count = 0;
}

static uint64_t random_below(uint64_t limit)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (random_state >> 33) % limit;
}

template <class T> static void shuffle_order(std::vector<T> &list)
{
    for (size_t i = list.size(); i > 1; i--)
        std::swap(list[i - 1], list[random_below(i)]);
}

/* What keeps the threads of a block from going on: how many wait where. */
static std::string describe_deadlock()
{
    std::map<std::tuple<int, std::string, int>, unsigned> waiting;
    unsigned gone = 0;
    for (unsigned i = 0; i < n; i++)
        if (states[i] == ENDED)
            gone++;
        else
            waiting[{ states[i], base_name(threads[i].where.file), threads[i].where.line }]++;
    std::string s;
    for (const auto &each : waiting)
        s += text("%s%u of %u threads wait at the %s %s:%d", s.empty() ? "" : ", ", each.second, n,
                  std::get<0>(each.first) == AT_BARRIER ? "barrier" : "warp operation",
                  std::get<1>(each.first).c_str(), std::get<2>(each.first));
    return gone ? s + text(", %u have ended", gone) : s;
}

/* Lets the threads that wait at a barrier go on if all of the block's do, at the same one. */
static bool pass_barrier()
{
    for (unsigned i = 0; i < n; i++)
        if (states[i] != AT_BARRIER || threads[i].where.line != threads[0].where.line ||
            strcmp(threads[i].where.file, threads[0].where.file) != 0)
            return false;
    for (unsigned i = 0; i < n; i++)
        set_state(i, RUNNABLE);
    return true;
}

static void start_thread(unsigned i)
{
    thread *t = &threads[i];
    if (!t->idle || __tsan_create_fiber) {
        getcontext(&t->context);
        t->context.uc_stack.ss_sp = t->stack;
        t->context.uc_stack.ss_size = STACK_BYTES - i % COLORS * COLOR_BYTES;
        t->context.uc_link = nullptr;
        makecontext(&t->context, run_thread, 0);
        poison(t->stack, STACK_BYTES, false); /* of a fiber that was abandoned */
        if (__tsan_create_fiber)
            t->tsan = __tsan_create_fiber(0);
        t->fresh = true;
    }
    t->idle = false;
    set_state(i, RUNNABLE);
    t->index = dim3(i % size.x, i / size.x % size.y, i / (size.x * size.y));
    t->started = t->completed = 0;
    t->groups = 0;
}

/* Runs the threads from `first` up to `end` in turn, in a new order each time, until none of them can go on.
 * Whether any did. */
static bool run_group(unsigned first, unsigned end)
{
    static std::vector<unsigned> order;
    for (bool any = false;; any = true) {
        order.clear();
        for (unsigned i = first; i < end; i++)
            if (states[i] == RUNNABLE)
                order.push_back(i);
        if (order.empty())
            return any;
        shuffle_order(order);
        for (size_t i = 0; i < order.size(); i++) {
            if (states[order[i]] == RUNNABLE)
                resume(order[i]);
            if (failure[0] != 0)
                return true;
        }
    }
}

static bool all_ended()
{
    return std::all_of(states, states + n, [](unsigned char state) { return state == ENDED; });
}

/* Runs groups of `width` threads in an order of chance, each until its threads wait for others. Warp after
 * warp is fast, for their stacks stay in the cache, and separates warps as far as barriers let it; the whole
 * block as one group mixes them. */
static void run_threads(unsigned width)
{
    std::vector<unsigned> groups;
    for (unsigned first = 0; first < n; first += width)
        groups.push_back(first);
    while (failure[0] == 0 && !all_ended()) {
        bool any = false;
        shuffle_order(groups);
        for (size_t i = 0; i < groups.size() && failure[0] == 0; i++)
            any = run_group(groups[i], std::min(groups[i] + width, n)) || any;
        if (!any && !pass_barrier())
            snprintf(failure, sizeof failure, "%s", describe_deadlock().c_str());
    }
}

static void run_block()
{
    make_memory();
    release(&start_tag);
    for (unsigned warp = 0; warp < MAX_THREADS / 32; warp++)
        ended[warp] = ~0u, at_collective[warp] = 0; /* lanes that the block does not have */
    for (unsigned i = 0; i < n; i++)
        start_thread(i);
    run_threads(random_below(4) == 0 ? n : 32);
    if (emulator_block_ended)
        emulator_block_ended();
    for (unsigned i = 0; i < n && __tsan_destroy_fiber; i++) {
        if (states[i] != ENDED || failure[0] != 0) { /* the end of the launch comes after what it did, too */
            __tsan_switch_to_fiber(threads[i].tsan, 1);
            release(&end_tag);
            __tsan_switch_to_fiber(scheduler_tsan, 1);
        }
        __tsan_destroy_fiber(threads[i].tsan);
    }
}

static const kernel *find(const char *name)
{
    const kernel *k = kernels;
    while (k && strcmp(k->name, name) != 0)
        k = k->next;
    return k;
}

/* What is wrong with a launch, or an empty string. */
static std::string check()
{
    if (!running)
        return "no such kernel";
    if (n == 0 || n > running->threads || n > MAX_THREADS)
        return text("the block has %u threads, the kernel takes 1 to %u", n, running->threads);
    if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > 0x7fffffff || grid.y > 65535 || grid.z > 65535)
        return text("the grid %u x %u x %u is not valid", grid.x, grid.y, grid.z);
    if (launch->shared > SHARED_BYTES)
        return text("%zu bytes of shared memory: at most %zu", launch->shared, SHARED_BYTES);
    return "";
}

} // namespace emulator

using namespace emulator;

size_t emulator_kernel(const char *name)
{
    const kernel *k = find(name);
    return k ? k->bytes : 0;
}

bool emulator_run(const struct emulator_launch *l, char *message, size_t bytes)
{
    launch = l;
    running = find(l->kernel);
    grid = dim3(l->grid[0], l->grid[1], l->grid[2]);
    size = dim3(l->block[0], l->block[1], l->block[2]);
    n = size.x * size.y * size.z;
    random_state = l->seed;
    snprintf(failure, sizeof failure, "%s", check().c_str());
    if (failure[0] != 0) {
        snprintf(message, bytes, "kernel %s: %s", l->kernel, failure);
        return false;
    }
    if (__tsan_get_current_fiber)
        scheduler_tsan = __tsan_get_current_fiber();
    std::vector<uint64_t> blocks(static_cast<uint64_t>(grid.x) * grid.y * grid.z);
    for (size_t i = 0; i < blocks.size(); i++)
        blocks[i] = i;
    shuffle_order(blocks);
    for (size_t i = 0; i < blocks.size() && failure[0] == 0; i++) {
        block = dim3(static_cast<unsigned>(blocks[i] % grid.x),
                     static_cast<unsigned>(blocks[i] / grid.x % grid.y),
                     static_cast<unsigned>(blocks[i] / grid.x / grid.y));
        run_block();
    }
    acquire(&end_tag);
    if (failure[0] == 0)
        return true;
    snprintf(message, bytes, "kernel %s, block (%u, %u, %u), seed %llu: %s", l->kernel, block.x, block.y,
             block.z, static_cast<unsigned long long>(l->seed), failure);
    return false;
}
