#include "backend/cpu/parallel.h"

#include <assert.h>
#include <omp.h>
#include <string.h>

enum { WORTH_A_THREAD = 16384 }; /* numbers: some microseconds, several times what it costs to start a team */

size_t parallel_default_threads(void)
{
    return (size_t)omp_get_max_threads();
}

int parallel_limit(int threads)
{
    int before = omp_get_max_threads();
    if (threads != before)
        omp_set_num_threads(threads);
    return before;
}

void parallel_fits(const struct cpu *cpu, size_t numbers)
{
    (void)cpu;
    (void)numbers;
    assert(numbers <= cpu->piece);
}

static size_t chunks_of(const struct cpu *cpu, size_t n, size_t cost)
{
    size_t most = n < cpu->threads ? n : cpu->threads;
    size_t row = cost ? cost : 1;
    size_t worth = n > SIZE_MAX / row ? most : n * row / WORTH_A_THREAD;
    size_t chunks = most < worth ? most : worth;
    return chunks ? chunks : 1;
}

/* Where chunk i of n rows begins. */
static size_t chunk_start(size_t n, size_t chunks, size_t i)
{
    return n / chunks * i + (i < n % chunks ? i : n % chunks);
}

static void run_chunk(const struct cpu *cpu, size_t n, size_t chunks, size_t i, rows_fn *fn, const void *args,
                      bool with_scratch, size_t zeroed)
{
    float *scratch = with_scratch ? cpu->scratch + i * cpu->piece : NULL;
    if (zeroed)
        memset(scratch, 0, zeroed * sizeof *scratch);
    fn(args, chunk_start(n, chunks, i), chunk_start(n, chunks, i + 1), scratch);
}

static size_t run(const struct cpu *cpu, size_t n, size_t cost, rows_fn *fn, const void *args,
                  bool with_scratch, size_t zeroed)
{
    size_t chunks = chunks_of(cpu, n, cost);
    if (chunks == 1) {
        run_chunk(cpu, n, 1, 0, fn, args, with_scratch, zeroed);
        return 1;
    }
#pragma omp parallel for schedule(static, 1) num_threads((int)chunks)
    for (size_t i = 0; i < chunks; i++)
        run_chunk(cpu, n, chunks, i, fn, args, with_scratch, zeroed);
    return chunks;
}

void parallel_rows(const struct cpu *cpu, size_t n, size_t cost, rows_fn *fn, const void *args)
{
    if (n)
        run(cpu, n, cost, fn, args, false, 0);
}

size_t parallel_scratch(const struct cpu *cpu, size_t n, size_t cost, rows_fn *fn, const void *args,
                        size_t zeroed)
{
    parallel_fits(cpu, zeroed);
    return run(cpu, n, cost, fn, args, true, zeroed);
}

const float *parallel_sums(const struct cpu *cpu, size_t n, size_t cost, rows_fn *fn, const void *args,
                           size_t count)
{
    size_t chunks = parallel_scratch(cpu, n, cost, fn, args, count);
    if (chunks > 1)
        parallel_rows(cpu, count, chunks, cpu->k->sum_parts,
                      &(struct parts_args){ .parts = chunks, .stride = cpu->piece, .first = cpu->scratch });
    return cpu->scratch;
}

void parallel_tasks(const struct cpu *cpu, size_t n, size_t cost, rows_fn *fn, const void *args)
{
    size_t team = chunks_of(cpu, n, cost);
    if (team == 1) {
        for (size_t i = 0; i < n; i++)
            fn(args, i, i + 1, cpu->scratch);
        return;
    }
#pragma omp parallel for schedule(dynamic, 1) num_threads((int)team)
    for (size_t i = 0; i < n; i++)
        fn(args, i, i + 1, cpu->scratch + (size_t)omp_get_thread_num() * cpu->piece);
}

size_t parallel_list_chunks(const struct cpu *cpu, const struct parallel_list *list, size_t part)
{
    return chunks_of(cpu, (size_t)list->size[part], list->cost);
}

/* A part has at most as many chunks as the team has threads, since it is not larger than all parts. */
size_t parallel_list_thread(const struct cpu *cpu, const struct parallel_list *list, size_t part,
                            size_t chunk)
{
    return (part + chunk) % chunks_of(cpu, list->numbers, list->cost);
}

/* The chunks of one thread. */
static void run_share(const struct cpu *cpu, const struct parallel_list *list, size_t thread, part_fn *fn,
                      const void *args)
{
    size_t team = chunks_of(cpu, list->numbers, list->cost);
    for (size_t part = 0; part < list->n; part++) {
        size_t n = (size_t)list->size[part], chunks = parallel_list_chunks(cpu, list, part);
        size_t chunk = (thread + team - part % team) % team;
        if (chunk < chunks)
            fn(args, part, chunk_start(n, chunks, chunk), chunk_start(n, chunks, chunk + 1),
               cpu->scratch + thread * cpu->piece);
    }
}

void parallel_list(const struct cpu *cpu, const struct parallel_list *list, part_fn *fn, const void *args)
{
    size_t team = chunks_of(cpu, list->numbers, list->cost);
    if (team == 1) {
        run_share(cpu, list, 0, fn, args);
        return;
    }
#pragma omp parallel for schedule(static, 1) num_threads((int)team)
    for (size_t thread = 0; thread < team; thread++)
        run_share(cpu, list, thread, fn, args);
}
