/* Matrix products: chooses between the library and the kernels. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/library.h"
#include "backend/cpu/parallel.h"

#include <assert.h>

enum {
    FEW_ROWS = 4,         /* of A up to which op(B) = B is read as it is: the library packs it first */
    SMALL = 16 * 16 * 16, /* multiplications up to which a call of the library is not worth its cost */
};

/* Whether C = A B^T has so few rows that B is read once, by the skinny kernels. These compute a row of C in
 * the same order for any number of rows: sessions rely on it. */
static bool is_skinny(bool trans_a, bool trans_b, size_t M)
{
    return !trans_a && trans_b && M <= MOST_SKINNY;
}

static bool is_small(size_t M, size_t N, size_t K)
{
    return K == 0 || (M <= SMALL && N <= SMALL && K <= SMALL && M * N * K <= SMALL);
}

/* Whether the library left the product undone. One that failed halfway is reported by ops->check_error. */
static bool is_left(const struct cpu *cpu, enum library_outcome outcome)
{
    if (outcome == LIBRARY_LOST)
        *cpu->failed = true;
    return outcome == LIBRARY_NOT_TAKEN;
}

static void by_library(const struct cpu *cpu, const struct matmul_args *a)
{
    int before = parallel_limit((int)cpu->threads);
    enum library_outcome outcome = library_matmul(a);
    parallel_limit(before);
    if (is_left(cpu, outcome)) /* no memory for its packing */
        cpu->k->matmul_plain(a, 0, a->M, NULL);
}

void cpu_matmul(void *ctx, const struct matmul_args *a)
{
    const struct cpu *cpu = ctx;
    if (a->M == 0 || a->N == 0)
        return;
    if (is_skinny(a->trans_a, a->trans_b, a->M))
        parallel_rows(cpu, a->N, a->K, cpu->k->matmul_skinny, a);
    else if (is_small(a->M, a->N, a->K))
        cpu->k->matmul_plain(a, 0, a->M, NULL);
    else if (!a->trans_a && !a->trans_b && a->M <= FEW_ROWS)
        parallel_rows(cpu, a->N, a->K, cpu->k->matmul_few_nn, a);
    else
        by_library(cpu, a);
}

/* By the kernels, which convert to float32: in as many tasks as there are threads, divided among rows and
 * columns so that the largest task has the least to multiply and to pack. */
static void by_packing(const struct cpu *cpu, const struct matmul_bf16_args *a)
{
    enum { PACKED_COST = 16 }; /* of a number, in multiplications */
    struct packed_bf16_args by = { .product = a };
    size_t best = SIZE_MAX;
    by.panel = (cpu->piece / PACKED_DEPTH - PACKED_ROWS) / MOST_PANEL * MOST_PANEL;
    for (size_t down = 1; down <= cpu->threads; down++) {
        size_t across = cpu->threads / down;
        size_t rows = round_up((a->M - 1) / down + 1, MOST_TILE_ROWS);
        size_t columns = round_up((a->N - 1) / across + 1, MOST_PANEL);
        size_t cost = rows * columns + PACKED_COST * (rows + columns);
        if (cost >= best)
            continue;
        best = cost, by.rows = rows, by.columns = columns;
    }
    by.tasks_of_a_row = (a->N - 1) / by.columns + 1;
    parallel_scratch(cpu, ((a->M - 1) / by.rows + 1) * by.tasks_of_a_row, by.rows * by.columns / 16 * a->K,
                     cpu->k->matmul_bf16_tiles, &by, 0);
}

/* The same with a rounded result: as many rows at a time as cpu->sums holds in float32. */
static void by_packing_rounded(const struct cpu *cpu, const struct matmul_bf16_args *a)
{
    size_t most = CPU_SUMS / a->N;
    for (size_t m = 0; m < a->M; m += most) {
        struct matmul_bf16_args part = *a;
        part.M = a->M - m < most ? a->M - m : most;
        part.A += a->trans_a ? m : m * a->lda;
        part.C = cpu->sums, part.C16 = NULL, part.ldc = a->N;
        by_packing(cpu, &part);
        const struct copy_bf16_args round = { .rows = part.M,
                                              .width = a->N,
                                              .src = cpu->sums,
                                              .src_stride = a->N,
                                              .dst = a->C16 + m * a->ldc,
                                              .dst_stride = a->ldc };
        parallel_rows(cpu, part.M, a->N, cpu->k->copy_bf16, &round);
    }
}

void cpu_matmul_bf16(void *ctx, const struct matmul_bf16_args *a)
{
    const struct cpu *cpu = ctx;
    enum library_outcome outcome = LIBRARY_NOT_TAKEN;
    if (a->M == 0 || a->N == 0)
        return;
    if (is_skinny(a->trans_a, a->trans_b, a->M) && a->M * a->K <= cpu->piece) {
        parallel_scratch(cpu, a->N, a->K, cpu->k->matmul_bf16_skinny, a, 0);
        return;
    }
    if (cpu->bf16_units && a->K > 0) {
        int before = parallel_limit((int)cpu->threads);
        outcome = library_matmul_bf16(cpu->library, a);
        parallel_limit(before);
    }
    if (!is_left(cpu, outcome))
        return;
    if (!is_small(a->M, a->N, a->K) && !cpu->bf16_units && cpu->piece >= LEAST_PACKED &&
        (!a->C16 || a->N <= CPU_SUMS)) {
        (a->C16 ? by_packing_rounded : by_packing)(cpu, a);
    } else if (a->C16) {
        parallel_fits(cpu, a->N);
        parallel_scratch(cpu, a->M, a->N * a->K, cpu->k->matmul_bf16_plain, a, 0);
    } else {
        parallel_rows(cpu, a->M, a->N * a->K, cpu->k->matmul_bf16_plain, a);
    }
}

/* C's columns of the n rows of tiles from `tile` on, dequantized to a panel for the library. */
static void by_panel(const struct cpu *cpu, const struct matmul_q8_args *a, size_t tile, size_t n)
{
    size_t row = tile * DDL_Q8_ROWS, ld = n * DDL_Q8_ROWS;
    size_t skip = row < a->first ? a->first - row : 0, left = a->first + a->N - row;
    parallel_rows(cpu, n, a->K * DDL_Q8_ROWS, cpu->k->q8_panel,
                  &(struct q8_panel_args){ a->K, (const struct ddl_q8 *)a->B + tile * ddl_q8_groups(a->K),
                                           cpu->scratch, ld });
    by_library(cpu, &(struct matmul_args){ .M = a->M,
                                           .N = (left < ld ? left : ld) - skip,
                                           .K = a->K,
                                           .alpha = a->alpha,
                                           .A = a->A,
                                           .lda = a->lda,
                                           .B = cpu->scratch + skip,
                                           .ldb = ld,
                                           .beta = a->accumulate ? 1 : 0,
                                           .C = a->C + row + skip - a->first,
                                           .ldc = a->ldc });
}

/* C from the tiles directly, for as many rows of A at a time as the scratch of all threads holds as slices.
 */
static void by_tiles(const struct cpu *cpu, const struct matmul_q8_args *a, size_t tiles)
{
    size_t row = ddl_q8_groups(a->K) * DDL_GROUP, most = row ? cpu->threads * cpu->piece / row : a->M;
    assert(most > 0);
    for (size_t m = 0; m < a->M; m += most) {
        struct matmul_q8_args part = *a;
        part.M = a->M - m < most ? a->M - m : most;
        part.A += m * a->lda;
        part.C += m * a->ldc;
        const struct tiles_q8_args by = { &part, cpu->scratch };
        parallel_rows(cpu, part.M, 4 * a->K, cpu->k->slice_q8, &by);
        parallel_rows(cpu, tiles, a->K * DDL_Q8_ROWS, cpu->k->matmul_q8_tiles, &by);
    }
}

/* Few rows are multiplied with the tiles directly, in the same order for any number of rows up to
 * MOST_SKINNY. For more it may be faster to dequantize a panel of B at a time, as much as the scratch of all
 * threads holds, for the library. */
void cpu_matmul_q8(void *ctx, const struct matmul_q8_args *args)
{
    const struct cpu *cpu = ctx;
    struct matmul_q8_args a = *args;
    a.B = (const struct ddl_q8 *)a.B + a.first / DDL_Q8_ROWS * ddl_q8_groups(a.K);
    a.first %= DDL_Q8_ROWS;
    size_t tiles = (a.first + a.N + DDL_Q8_ROWS - 1) / DDL_Q8_ROWS;
    if (a.M == 0 || a.N == 0)
        return;
    if (a.M <= cpu->k->most_tiles || a.K == 0) {
        by_tiles(cpu, &a, tiles);
        return;
    }
    size_t panel = cpu->threads * cpu->piece / a.K / DDL_Q8_ROWS;
    assert(panel > 0);
    for (size_t tile = 0; tile < tiles; tile += panel)
        by_panel(cpu, &a, tile, tiles - tile < panel ? tiles - tile : panel);
}
