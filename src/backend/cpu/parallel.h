/* Threads: only here. Work is cut into one contiguous chunk of rows a thread; how, depends on the sizes and
 * the backend's thread count alone, and sums over chunks are taken in their order, so that results repeat bit
 * for bit. `cost` is about how many numbers a row touches: little work runs on the calling thread. */
#ifndef DDL_BACKEND_CPU_PARALLEL_H
#define DDL_BACKEND_CPU_PARALLEL_H

#include "backend/cpu/cpu.h"

/* As many threads as OpenMP would use. */
size_t parallel_default_threads(void);

/* Asserts that a thread's piece of scratch holds `numbers`: that ops->reserve was called with these sizes. */
void parallel_fits(const struct cpu *cpu, size_t numbers);

/* fn on [0, n) in chunks, scratch NULL. */
void parallel_rows(const struct cpu *cpu, size_t n, size_t cost, rows_fn *fn, const void *args);

/* The same with the chunk's piece of cpu->scratch, whose first `zeroed` numbers are set to 0 before. Returns
 * the number of chunks; chunk i had cpu->scratch + i * cpu->piece. */
size_t parallel_scratch(const struct cpu *cpu, size_t n, size_t cost, rows_fn *fn, const void *args,
                        size_t zeroed);

/* The same for sums over rows: returns the `count` totals, which stay until the next op. */
const float *parallel_sums(const struct cpu *cpu, size_t n, size_t cost, rows_fn *fn, const void *args,
                           size_t count);

/* fn(args, i, i + 1, the thread's piece of scratch) for i in [0, n), in any order: for tasks that write to
 * places of their own and differ in size. */
void parallel_tasks(const struct cpu *cpu, size_t n, size_t cost, rows_fn *fn, const void *args);

/* Parts of a list of arrays. */
struct parallel_list {
    size_t n;
    const int64_t *size; /* (n) numbers of each part         */
    size_t numbers;      /* of all parts, or of more of them */
    size_t cost;
};
/* Chunk `chunk` of part `part`: its numbers [lo, hi). */
typedef void part_fn(const void *args, size_t part, size_t lo, size_t hi, float *scratch);

/* fn on all parts in one parallel region. Each part is cut into the chunks that parallel_rows would cut it
 * into, no two of which have the same thread; scratch is the thread's piece. */
void parallel_list(const struct cpu *cpu, const struct parallel_list *list, part_fn *fn, const void *args);
size_t parallel_list_chunks(const struct cpu *cpu, const struct parallel_list *list, size_t part);
/* The thread of a chunk. */
size_t parallel_list_thread(const struct cpu *cpu, const struct parallel_list *list, size_t part,
                            size_t chunk);

/* Tells OpenMP how many threads a library that we call next may use; returns what it was. */
int parallel_limit(int threads);

#endif
