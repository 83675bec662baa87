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
static const size_t SHARED_BYTES = 256 << 10; /* more than a block has on any device, with the gaps */
static const size_t GAP_BYTES = 64;           /* at least, before the arrays and after each */

enum state { RUNNABLE, AT_BARRIER, AT_COLLECTIVE, ENDED };

/* What runs on a stack of its own: a thread, or the scheduler on that of the program. */
struct fiber {
    const void *stack;
    size_t bytes;
    void *tsan, *asan;
#ifdef __x86_64__
    void *top; /* of the stack, while another fiber runs */
#else
    ucontext_t context;
#endif
    bool idle; /* at the end of run_thread's loop */
};

struct thread {
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
static fiber scheduler, *previous; /* previous: what ran before the running fiber */
/* The threads [first, end) of the group that runs, of which those in order[next, count) come next. */
static struct {
    unsigned first, end, next, count, order[MAX_THREADS];
} group;
static uint64_t random_state;
static char failure[512];
static char *shared_memory;
static size_t shared_used, array_bytes; /* array_bytes: without the gaps */
static array arrays[MAX_ARRAYS];
static unsigned array_count;
/* To ThreadSanitizer the accesses of one fiber are ordered, and all those before a barrier precede those
 * after it. With it a block has another set of fibers, and of its synchronization objects, than the block
 * before. */
static unsigned set;
static fiber fibers[2][MAX_THREADS];
static char start_tag, end_tag, barrier_tag[2], warp_tag[2][32];

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

static uint64_t random_below(uint64_t limit)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (random_state >> 32) * limit >> 32;
}

template <class T> static void shuffle_order(T *list, size_t count)
{
    for (size_t i = count; i > 1; i--)
        std::swap(list[i - 1], list[random_below(i)]);
}

#ifdef __x86_64__
/* Keeps the registers that a call preserves, and the top of the stack in *from; goes on at the top `to` of
 * another stack. */
extern "C" void emulator_switch(void **from, void *to) __attribute__((visibility("hidden")));
asm(R"(
    .pushsection .text
    .type emulator_switch, @function
emulator_switch:
    push %rbp
    push %rbx
    push %r12
    push %r13
    push %r14
    push %r15
    mov %rsp, (%rdi)
    mov %rsi, %rsp
    pop %r15
    pop %r14
    pop %r13
    pop %r12
    pop %rbx
    pop %rbp
    pop %rcx
    jmp *%rcx
    .size emulator_switch, .-emulator_switch
    .popsection
)");

/* Makes a fiber call start() when it is switched to. */
static void prepare(fiber *f, void (*start)())
{
    const uintptr_t end = reinterpret_cast<uintptr_t>(f->stack) + f->bytes;
    void **top = reinterpret_cast<void **>(end / 16 * 16) - 8;
    memset(top, 0, 8 * sizeof *top);
    top[6] = reinterpret_cast<void *>(start);
    f->top = top;
}

static void switch_stack(fiber *from, fiber *to)
{
    emulator_switch(&from->top, to->top);
}
#else
static void prepare(fiber *f, void (*start)())
{
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = const_cast<void *>(f->stack);
    f->context.uc_stack.ss_size = f->bytes;
    f->context.uc_link = nullptr;
    makecontext(&f->context, start, 0);
}

static void switch_stack(fiber *from, fiber *to)
{
    swapcontext(&from->context, &to->context);
}
#endif

/* Called by a fiber that has been switched to. */
static void switched(void *asan)
{
    const void *stack;
    size_t bytes;
    if (!__sanitizer_finish_switch_fiber)
        return;
    __sanitizer_finish_switch_fiber(asan, &stack, &bytes);
    if (previous == &scheduler)
        scheduler.stack = stack, scheduler.bytes = bytes;
}

/* Switches from a fiber to another one, until it is switched to again. */
static void switch_fiber(fiber *from, fiber *to, bool ends)
{
    previous = from;
    from->asan = nullptr;
    if (__sanitizer_start_switch_fiber)
        __sanitizer_start_switch_fiber(ends ? nullptr : &from->asan, to->stack, to->bytes);
    if (__tsan_switch_to_fiber)
        __tsan_switch_to_fiber(to->tsan, 1);
    switch_stack(from, to);
    switched(from->asan);
}

/* Chooses the group's next thread that can go on: in turn, in a new order each time. False if none can. */
static bool choose_next()
{
    for (;;) {
        while (group.next < group.count) {
            current = group.order[group.next++];
            if (states[current] == RUNNABLE)
                return true;
        }
        group.next = group.count = 0;
        for (unsigned i = group.first; i < group.end; i++)
            if (states[i] == RUNNABLE)
                group.order[group.count++] = i;
        if (group.count == 0)
            return false;
        shuffle_order(group.order, group.count);
    }
}

/* Lets the next thread of the group run, or the scheduler if none can or the launch has failed. */
static void yield()
{
    fiber *from = &fibers[set][current];
    const bool ends = states[current] == ENDED;
    fiber *to = failure[0] == 0 && choose_next() ? &fibers[set][current] : &scheduler;
    switch_fiber(from, to, ends);
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
    switched(nullptr);
    for (;;) {
        acquire(&start_tag);
        running->body(launch->arguments);
        thread *t = &threads[current];
        if (t->started > t->completed)
            fault({ nullptr, 0 }, "a thread ended with %u asynchronous copies that it did not wait for",
                  t->started - t->completed);
        set_state(current, ENDED);
        fibers[set][current].idle = true;
        release(&end_tag);
        yield();
    }
}

void barrier(site where)
{
    thread *t = &threads[current];
    set_state(current, AT_BARRIER);
    t->where = where;
    release(&barrier_tag[set]);
    yield();
    acquire(&barrier_tag[set]);
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
        release(&warp_tag[set][warp]);
    if (mask & ended[warp])
        fault_of_mask(where, mask);
    if ((mask & at_collective[warp]) == mask && all_wait_for(t))
        complete(t);
    else
        yield();
    if (orders_memory)
        acquire(&warp_tag[set][current / 32]);
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
    array_bytes += bytes;
    if (array_count == MAX_ARRAYS || array_bytes > launch->most_shared)
        fault({ nullptr, 0 }, "a block has more than %u arrays or %zu bytes of shared memory", MAX_ARRAYS,
              launch->most_shared);
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

/* Stacks for `count` fibers, those of each set for n threads, each above a page that must not be accessed. */
static void map_stacks(size_t count)
{
    stacks = map(count * (GUARD_BYTES + STACK_BYTES));
    stack_count = count;
    for (size_t i = 0; i < count; i++) {
        char *guard = stacks + i * (GUARD_BYTES + STACK_BYTES);
        fiber *f = &fibers[i / n][i % n];
        f->stack = guard + GUARD_BYTES;
        f->bytes = STACK_BYTES - i % COLORS * COLOR_BYTES;
        f->idle = false;
        if (!__tsan_create_fiber)
            mprotect(guard, GUARD_BYTES, PROT_NONE);
    }
}

/* Stacks, and shared memory that is all NaN. With ThreadSanitizer it is mapped again, which discards the
 * earlier block's accesses; stacks remain those of their fibers. */
static void make_memory()
{
    const size_t needed = __tsan_create_fiber ? 2 * n : n;
    if (stacks && stack_count < needed) {
        poison(stacks, stack_count * (GUARD_BYTES + STACK_BYTES), false);
        munmap(stacks, stack_count * (GUARD_BYTES + STACK_BYTES));
        stacks = nullptr;
    }
    if (!stacks)
        map_stacks(needed);
    if (shared_memory && __tsan_create_fiber && shared_used > GAP_BYTES) {
        munmap(shared_memory, SHARED_BYTES);
        shared_memory = nullptr;
    }
    if (!shared_memory) {
        shared_memory = map(SHARED_BYTES);
        shared_used = SHARED_BYTES;
    }
    poison(shared_memory, SHARED_BYTES, false);
    memset(shared_memory, 0xff, shared_used);
    poison(shared_memory, SHARED_BYTES, true);
    shared_used = GAP_BYTES;
    array_bytes = 0;
    array_count = 0;
}

/* Fails if the block has written to a gap. */
static void check_gaps()
{
    poison(shared_memory, shared_used, false);
    const char *gap = shared_memory;
    for (unsigned i = 0; i <= array_count && failure[0] == 0; i++) {
        const char *end = i < array_count ? arrays[i].start : shared_memory + shared_used;
        const char *written = std::find_if(gap, end, [](char byte) { return byte != '\xff'; });
        if (written != end && i == 0)
            snprintf(failure, sizeof failure, "a write to shared memory %td bytes before the first array",
                     end - written);
        else if (written != end)
            snprintf(failure, sizeof failure,
                     "a write to shared memory %td bytes after the start of an array of %zu bytes",
                     written - arrays[i - 1].start, arrays[i - 1].bytes);
        gap = i < array_count ? end + arrays[i].bytes : end;
    }
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
            (threads[i].where.file != threads[0].where.file &&
             strcmp(threads[i].where.file, threads[0].where.file) != 0))
            return false;
    for (unsigned i = 0; i < n; i++)
        set_state(i, RUNNABLE);
    return true;
}

static void start_thread(unsigned i)
{
    thread *t = &threads[i];
    fiber *f = &fibers[set][i];
    if (!f->idle) { /* new, or abandoned in a function */
        poison(static_cast<const char *>(f->stack), STACK_BYTES, false);
        prepare(f, run_thread);
        if (__tsan_destroy_fiber && f->tsan)
            __tsan_destroy_fiber(f->tsan);
        if (__tsan_create_fiber)
            f->tsan = __tsan_create_fiber(0);
    }
    f->idle = false;
    set_state(i, RUNNABLE);
    t->index = dim3(i % size.x, i / size.x % size.y, i / (size.x * size.y));
    t->started = t->completed = 0;
    t->groups = 0;
}

/* Runs the threads [first, end) until none of them can go on. Whether any did. */
static bool run_group(unsigned first, unsigned end)
{
    group.first = first;
    group.end = end;
    group.next = group.count = 0;
    if (!choose_next())
        return false;
    switch_fiber(&scheduler, &fibers[set][current], false);
    return true;
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
        shuffle_order(groups.data(), groups.size());
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
    if (__tsan_create_fiber)
        set = 1 - set;
    for (unsigned i = 0; i < n; i++)
        start_thread(i);
    run_threads(random_below(4) == 0 ? n : 32);
    check_gaps();
    if (emulator_block_ended)
        emulator_block_ended();
    for (unsigned i = 0; i < n && __tsan_switch_to_fiber; i++)
        if (states[i] != ENDED || failure[0] != 0) { /* the end of the launch comes after what it did, too */
            __tsan_switch_to_fiber(fibers[set][i].tsan, 1);
            release(&end_tag);
            __tsan_switch_to_fiber(scheduler.tsan, 1);
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
        scheduler.tsan = __tsan_get_current_fiber();
    std::vector<uint64_t> blocks(static_cast<uint64_t>(grid.x) * grid.y * grid.z);
    for (size_t i = 0; i < blocks.size(); i++)
        blocks[i] = i;
    shuffle_order(blocks.data(), blocks.size());
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
