/* The table and the backend's state. */
#include "backend/cpu/cpu.h"

#include "backend/cpu/isa.h"
#include "backend/cpu/library.h"
#include "backend/cpu/parallel.h"
#include "backend/host.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>

enum { MOST_THREADS = 4096, LINE = DDL_ALIGN / sizeof(float) };

static ddl_status open_cpu(void **ctx, size_t device, size_t threads, char *text, size_t text_size,
                           struct ddl_error *err)
{
    (void)device;
    const char *isa;
    struct cpu cpu = { .threads = threads ? threads : parallel_default_threads() };
    if (cpu.threads > MOST_THREADS)
        return ddl_error_set(err, DDL_E_USAGE, "backend cpu: %zu threads exceed the limit of %d", cpu.threads,
                             MOST_THREADS);
    ddl_status status = isa_choose(&cpu.k, &isa, err);
    if (status)
        return status;
    status = library_open(&cpu.library, err);
    if (status)
        return status;
    /* DDL_ISA with a set that has no bfloat16 products simulates an older processor: the library's are not
     * used either. The best set of a build may lack them. */
    cpu.bf16_units = library_has_bf16() && (cpu.k->dots_bf16 || cpu.k == isa_best());
    cpu.piece = LINE;
    cpu.scratch = ddl_mem_alloc(cpu.threads * cpu.piece * sizeof *cpu.scratch);
    cpu.sums = cpu.bf16_units ? NULL : ddl_mem_alloc(CPU_SUMS * sizeof *cpu.sums);
    cpu.failed = ddl_mem_zalloc(sizeof *cpu.failed);
    struct cpu *kept = ddl_mem_alloc(sizeof *kept);
    if (!kept || !cpu.scratch || !(cpu.sums || cpu.bf16_units) || !cpu.failed) {
        ddl_mem_free(kept);
        ddl_mem_free(cpu.failed);
        ddl_mem_free(cpu.scratch);
        ddl_mem_free(cpu.sums);
        library_close(cpu.library);
        return ddl_error_set(err, DDL_E_MEMORY, "backend cpu: out of memory");
    }
    *kept = cpu;
    *ctx = kept;
    char library[64];
    library_describe(library, sizeof library);
    snprintf(text, text_size, "cpu (%s, %zu thread%s, %s)", isa, cpu.threads, cpu.threads == 1 ? "" : "s",
             library);
    return DDL_OK;
}

static void close_cpu(void *ctx)
{
    struct cpu *cpu = ctx;
    ddl_mem_free(cpu->scratch);
    ddl_mem_free(cpu->sums);
    ddl_mem_free(cpu->failed);
    library_close(cpu->library);
    ddl_mem_free(cpu);
}

static ddl_status check_error(void *ctx, struct ddl_error *err)
{
    const struct cpu *cpu = ctx;
    bool failed = *cpu->failed;
    *cpu->failed = false;
    return failed ? ddl_error_set(err, DDL_E_MEMORY, "backend cpu: out of memory in a matrix product")
                  : DDL_OK;
}

/* A piece holds the sums of the largest parameter gradient and as much again (a bias beside a weight, or the
 * convolution's weights transposed), attention's blocks, WIDENED rows of a product in float32, or blocks of a
 * bfloat16 product. Its numbers, in whole lines, and the bytes of a piece for each thread; false: out of
 * range. */
static bool size_piece(const struct cpu *cpu, const struct ddl_limits *limits, size_t *piece, size_t *bytes)
{
    size_t sums, rows, blocks = cpu_attention_scratch(limits->T, limits->h);
    if (!ddl_size_mul(limits->summed, 2, &sums) ||
        !ddl_size_mul(ddl_q8_groups(limits->K), DDL_GROUP * WIDENED, &rows) || blocks == SIZE_MAX)
        return false;
    sums = sums > rows ? sums : rows;
    if (!cpu->bf16_units && sums < LEAST_PACKED)
        sums = LEAST_PACKED;
    if (!ddl_size_add(sums > blocks ? sums : blocks, LINE - 1, piece))
        return false;
    *piece = *piece / LINE * LINE;
    return ddl_size_mul(*piece, cpu->threads, bytes) && ddl_size_mul(*bytes, sizeof(float), bytes);
}

static size_t memory_estimate(void *ctx, const struct ddl_limits *limits)
{
    const struct cpu *cpu = ctx;
    size_t piece, bytes;
    if (!size_piece(cpu, limits, &piece, &bytes) ||
        !ddl_size_add(bytes, library_memory(cpu->threads, limits->N, limits->d, limits->bf16), &bytes))
        return SIZE_MAX;
    size_t sums = limits->bf16 && !cpu->bf16_units ? CPU_SUMS * sizeof *cpu->sums : 0;
    return ddl_size_add(bytes, sums, &bytes) ? bytes : SIZE_MAX;
}

/* Without fast products in bfloat16 a second product for the logits takes longer than writing and reading
 * them: whole rows, in blocks of the size that float32 has. */
static size_t logit_block(void *ctx)
{
    const struct cpu *cpu = ctx;
    return cpu->bf16_units ? 0 : DDL_HOST_LOGITS;
}

static ddl_status reserve(void *ctx, const struct ddl_limits *limits, struct ddl_error *err)
{
    struct cpu *cpu = ctx;
    size_t piece, bytes;
    if (!size_piece(cpu, limits, &piece, &bytes))
        return ddl_error_set(err, DDL_E_MEMORY, "backend cpu: sizes out of range");
    if (piece <= cpu->piece)
        return DDL_OK;
    float *scratch = ddl_mem_alloc(bytes);
    if (!scratch)
        return ddl_error_set(err, DDL_E_MEMORY, "backend cpu: no memory for %zu bytes of scratch", bytes);
    ddl_mem_free(cpu->scratch);
    cpu->scratch = scratch;
    cpu->piece = piece;
    return DDL_OK;
}

struct zero_args {
    unsigned char *dst;
    size_t bytes;
};
enum { ZERO_BLOCK = 1 << 14 };

static void zero_blocks(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct zero_args *a = args;
    size_t end = hi * ZERO_BLOCK < a->bytes ? hi * ZERO_BLOCK : a->bytes;
    (void)scratch;
    memset(a->dst + lo * ZERO_BLOCK, 0, end - lo * ZERO_BLOCK);
}

static void zero_bytes(void *ctx, void *dst, size_t bytes)
{
    size_t blocks = bytes / ZERO_BLOCK + (bytes % ZERO_BLOCK != 0);
    parallel_rows(ctx, blocks, ZERO_BLOCK / sizeof(float), zero_blocks, &(struct zero_args){ dst, bytes });
}

/* Bytes of a number. */
static size_t copy_size(const struct copy_args *a)
{
    return a->dst16 ? sizeof *a->dst16 : sizeof *a->dst;
}

static const char *copy_src(const struct copy_args *a, size_t b, size_t row)
{
    const void *src = a->dst16 ? (const void *)a->src16 : a->src;
    return (const char *)src + host_copy_offset(b, row, a->src_stride, a->src_batch) * copy_size(a);
}

static char *copy_dst(const struct copy_args *a, size_t b, size_t row)
{
    void *dst = a->dst16 ? (void *)a->dst16 : a->dst;
    return (char *)dst + host_copy_offset(b, row, a->dst_stride, a->dst_batch) * copy_size(a);
}

/* Rows [lo, hi) of all matrices. */
static void copy_rows(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct copy_args *a = args;
    (void)scratch;
    for (size_t n = lo; n < hi; n++)
        memmove(copy_dst(a, n / a->rows, n % a->rows), copy_src(a, n / a->rows, n % a->rows),
                a->width * copy_size(a));
}

/* Whole matrices [lo, hi). */
static void copy_matrices(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct copy_args *a = args;
    copy_rows(a, lo * a->rows, hi * a->rows, scratch);
}

/* Whether dst and src overlap in one of the matrices: then the order of rows matters. */
static bool copy_overlaps(const struct copy_args *a, size_t batch)
{
    for (size_t b = 0; b < batch; b++) {
        uintptr_t src = (uintptr_t)copy_src(a, b, 0), src_end = (uintptr_t)copy_src(a, b, a->rows);
        uintptr_t dst = (uintptr_t)copy_dst(a, b, 0), dst_end = (uintptr_t)copy_dst(a, b, a->rows);
        if (dst < src_end && src < dst_end)
            return true;
    }
    return false;
}

void cpu_copy(void *ctx, const struct copy_args *a)
{
    size_t batch = a->batch ? a->batch : 1;
    if (copy_overlaps(a, batch))
        parallel_rows(ctx, batch, a->rows * a->width, copy_matrices, a);
    else
        parallel_rows(ctx, batch * a->rows, a->width, copy_rows, a);
}

const struct ddl_ops ddl_ops_cpu = { .name = "cpu",
                                     .host_memory = true,
                                     .step_rows = MOST_SKINNY,
                                     .devices = host_devices,
                                     .open = open_cpu,
                                     .close = close_cpu,
                                     .reserve = reserve,
                                     .memory_estimate = memory_estimate,
                                     .logit_block = logit_block,
                                     .memory_capacity = host_memory_capacity,
                                     .check_error = check_error,
                                     .alloc = host_alloc,
                                     .free = host_free,
                                     .alloc_host = host_alloc,
                                     .free_host = host_free,
                                     .upload_async = host_move_async,
                                     .download_async = host_move_async,
                                     .upload = host_move,
                                     .download = host_move,
                                     .zero = zero_bytes,
                                     .record = host_record,
                                     .is_done = host_is_done,
                                     .wait = host_wait,
                                     .synchronize = host_synchronize,
                                     .q8_bytes = host_q8_bytes,
                                     .attention_products_fwd = cpu_attention_products_fwd,
                                     .attention_products_bwd = cpu_attention_products_bwd,
#define FILL_OP(op, args) .op = cpu_##op,
                                     DDL_OPS(FILL_OP)
#undef FILL_OP
};
