/* Products: which of them pay for the library, and which are done in place. */
#include "backend/cpu/gemm.h"
#include "backend/cpu/library.h"
#include "backend/cpu/parallel.h"

enum {
    FEW_ROWS = 4,         /* up to here B is read once, where a library would pack it first */
    SMALL = 16 * 16 * 16, /* products of at most so many multiplications are done in place  */
};

/* Columns of C by a kernel that reads B once. */
static rows_fn *thin_kernel(const struct cpu *cpu, const struct matmul_args *a)
{
    if (a->trans_a || a->M > FEW_ROWS)
        return NULL;
    return a->trans_b ? cpu->k->matmul_thin_nt : cpu->k->matmul_thin_nn;
}

static bool is_small(const struct matmul_args *a)
{
    return a->K == 0 || (a->M <= SMALL && a->N <= SMALL && a->K <= SMALL && a->M * a->N * a->K <= SMALL);
}

static void by_library(const struct cpu *cpu, const struct matmul_args *a, size_t threads)
{
    int before = parallel_limit((int)threads);
    bool done = library_matmul(a);
    parallel_limit(before);
    if (!done) /* no memory for its packing: slower, but never wrong */
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
        by_library(cpu, a, cpu->threads);
}

void gemm_serial(const struct cpu *cpu, const struct matmul_args *a)
{
    rows_fn *thin = thin_kernel(cpu, a);
    if (a->M == 0 || a->N == 0)
        return;
    if (thin)
        thin(a, 0, a->N, NULL);
    else if (is_small(a))
        cpu->k->matmul_plain(a, 0, a->M, NULL);
    else
        by_library(cpu, a, 1);
}

/* Without units for bfloat16 the kernel widens as it goes. */
void cpu_matmul16(void *ctx, const struct matmul16_args *a)
{
    const struct cpu *cpu = ctx;
    bool done = false;
    if (a->M == 0 || a->N == 0)
        return;
    if (cpu->bf16_units && a->K > 0) {
        int before = parallel_limit((int)cpu->threads);
        done = library_matmul16(cpu->library, a);
        parallel_limit(before);
    }
    if (!done)
        parallel_rows(cpu, a->M, a->N * a->K, cpu->k->matmul16_plain, a);
}
