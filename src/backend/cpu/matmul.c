/* Products: which of them pay for the library, and which are done in place. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/library.h"
#include "backend/cpu/parallel.h"

#include <assert.h>

enum {
    FEW_ROWS = 4,         /* of A for B as it stands: more are worth the library's packing  */
    SMALL = 16 * 16 * 16, /* products of at most so many multiplications are done in place  */
};

/* Columns of C by a kernel that reads B once, where a library would pack it first. */
static rows_fn *thin_kernel(const struct cpu *cpu, const struct matmul_args *a)
{
    if (a->trans_a || a->M > (a->trans_b ? (size_t)MOST_THIN : FEW_ROWS))
        return NULL;
    return a->trans_b ? cpu->k->matmul_thin : cpu->k->matmul_thin_nn;
}

static bool is_small(const struct matmul_args *a)
{
    return a->K == 0 || (a->M <= SMALL && a->N <= SMALL && a->K <= SMALL && a->M * a->N * a->K <= SMALL);
}

/* Whether the product is still to be made. One that was lost is not made but reported, by ops->check_error.
 */
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
    if (is_left(cpu, outcome)) /* no memory for its packing: slower, but right */
        cpu->k->matmul_plain(a, 0, a->M, NULL);
}

void cpu_matmul(void *ctx, const struct matmul_args *a)
{
    const struct cpu *cpu = ctx;
    rows_fn *thin = thin_kernel(cpu, a);
    if (a->M == 0 || a->N == 0)
        return;
    if (is_small(a))
        cpu->k->matmul_plain(a, 0, a->M, NULL);
    else if (thin)
        parallel_rows(cpu, a->N, a->K, thin, a);
    else
        by_library(cpu, a);
}

/* Without units for bfloat16 the kernel widens as it goes. */
void cpu_matmul_bf16(void *ctx, const struct matmul_bf16_args *a)
{
    const struct cpu *cpu = ctx;
    enum library_outcome outcome = LIBRARY_NOT_TAKEN;
    if (a->M == 0 || a->N == 0)
        return;
    if (a->M <= MOST_THIN && !a->trans_a && a->trans_b && a->M * a->K <= cpu->piece) {
        parallel_scratch(cpu, a->N, a->K, cpu->k->matmul16_thin, a, 0);
        return;
    }
    if (cpu->bf16_units && a->K > 0) {
        int before = parallel_limit((int)cpu->threads);
        outcome = library_matmul_bf16(cpu->library, a);
        parallel_limit(before);
    }
    if (is_left(cpu, outcome))
        parallel_rows(cpu, a->M, a->N * a->K, cpu->k->matmul16_plain, a);
}

/* C by rows of tiles [tile, tile + n), widened to a panel for the library. */
static void by_panel(const struct cpu *cpu, const struct matmul_q8_args *a, size_t tile, size_t n)
{
    size_t row = tile * DDL_Q8_ROWS, ld = n * DDL_Q8_ROWS;
    size_t skip = row < a->first ? a->first - row : 0, left = a->first + a->N - row;
    parallel_rows(cpu, n, a->K * DDL_Q8_ROWS, cpu->k->dequantize_q8,
                  &(struct dequantize_q8_args){ a->K, a->B + tile * ddl_q8_groups(a->K), cpu->scratch, ld });
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

/* C by the tiles as they are, for as many rows of A at a time as the scratch of all threads holds in slices.
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
        const struct tiles8_args by = { &part, cpu->scratch };
        parallel_rows(cpu, part.M, 4 * a->K, cpu->k->slice8, &by);
        size_t passes = (part.M + MOST_THIN - 1) / MOST_THIN;
        parallel_rows(cpu, tiles, passes * a->K * DDL_Q8_ROWS, cpu->k->matmul8_tiles, &by);
    }
}

/* Few rows meet the tiles as they are read. More may be worth widening a panel of B at a time, as much as the
 * scratch of all threads holds, for the library. */
void cpu_matmul_q8(void *ctx, const struct matmul_q8_args *args)
{
    const struct cpu *cpu = ctx;
    struct matmul_q8_args a = *args;
    a.B += a.first / DDL_Q8_ROWS * ddl_q8_groups(a.K);
    a.first %= DDL_Q8_ROWS;
    size_t tiles = (a.first + a.N + DDL_Q8_ROWS - 1) / DDL_Q8_ROWS;
    if (a.M == 0 || a.N == 0)
        return;
    if (a.M <= cpu->k->most_tiles8 || a.K == 0) {
        by_tiles(cpu, &a, tiles);
        return;
    }
    size_t panel = cpu->threads * cpu->piece / a.K / DDL_Q8_ROWS;
    assert(panel > 0);
    for (size_t tile = 0; tile < tiles; tile += panel)
        by_panel(cpu, &a, tile, tiles - tile < panel ? tiles - tile : panel);
}
