/* Causal attention in blocks of queries against all keys so far. A block's scores are (rows, span)
 * numbers of the thread's scratch, so memory grows with T, not T^2. Forward is parallel over (sequence, head,
 * block), backward over (sequence, head), since blocks of one head add to the same dk and dv; they do so in a
 * fixed order. */
#include "backend/cpu/gemm.h"
#include "backend/cpu/parallel.h"

#include "base/mem.h"

#include <stdint.h>

enum {
    BLOCK = 64, /* queries                                                       */
    PANEL = 32, /* keys or values in bfloat16 that are widened at a time, at least */
};

/* Numbers a thread needs: two score blocks (backward), and what each row of the block is divided by; forward
 * has a panel in the place of the second block. */
size_t cpu_attention_scratch(size_t T, size_t h)
{
    size_t numbers, panel;
    if (!ddl_size_mul(T, 2 * BLOCK, &numbers) || !ddl_size_mul(h, PANEL, &panel) ||
        !ddl_size_add(numbers, panel, &numbers) || !ddl_size_add(numbers, BLOCK, &numbers))
        return SIZE_MAX;
    return numbers;
}

struct task {
    const struct cpu *cpu;
    const void *args;
    size_t blocks;
};

static size_t blocks_of(size_t T)
{
    return T / BLOCK + (T % BLOCK != 0);
}

/* The product with a head's keys (B^T) or values (B) in bfloat16, x, rows ldb apart. Few queries meet them as
 * they are read. For more a panel at a time is widened in `room`, as much as that has space for, for the
 * library. */
static void multiply16(const struct task *task, const struct matmul_args *p, const uint16_t *x, float *room,
                       size_t space)
{
    const struct ddl_kernels *k = task->cpu->k;
    size_t h = ((const struct attention_args *)task->args)->h, rows = p->trans_b ? p->N : p->K;
    if (p->M <= MOST_THIN) {
        struct mixed_args few = { p->M, p->N, p->K, p->alpha, p->A, p->lda, x, p->ldb, p->C, p->ldc };
        if (p->trans_b)
            k->mixed_thin(&few, 0, few.N, NULL);
        else
            k->mixed_thin_nn(&few, 0, few.M, NULL);
        return;
    }
    for (size_t at = 0, n; at < rows; at += n) {
        struct matmul_args part = *p;
        n = rows - at < space / h ? rows - at : space / h;
        k->widen16(&(struct widen16_args){ h, p->ldb, x + at * p->ldb, room }, 0, n, NULL);
        part.B = room, part.ldb = h;
        if (p->trans_b)
            part.N = n, part.C += at;
        else
            part.K = n, part.A += at, part.beta = at > 0;
        gemm_serial(task->cpu, &part);
    }
}

/* With what begins `at` numbers behind x or, in bfloat16, x16. Behind the block's scores there is `room`. */
static void multiply(const struct task *task, struct matmul_args *product, const float *x,
                     const uint16_t *x16, size_t at, float *room)
{
    const struct attention_args *a = task->args;
    size_t span = a->past + a->T;
    if (x16) {
        multiply16(task, product, x16 + at, room,
                   cpu_attention_scratch(span, a->h) - BLOCK - product->M * span);
        return;
    }
    product->B = x + at;
    gemm_serial(task->cpu, product);
}

static void block_fwd(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct task *task = args;
    const struct attention_args *a = task->args;
    const struct ddl_kernels *k = task->cpu->k;
    (void)hi;
    size_t block = task->blocks - 1 - lo % task->blocks; /* the longest first, so that threads end together */
    size_t head = lo / task->blocks % a->H, b = lo / task->blocks / a->H;
    size_t t = block * BLOCK, rows = a->T - t < BLOCK ? a->T - t : BLOCK, span = a->past + t + rows;
    size_t n = b * a->T + t, offset = head * a->h, width = a->H * a->h;
    struct softmax_args s = { .first = a->past + t,
                              .span = span,
                              .S = scratch + BLOCK,
                              .h = a->h,
                              .y = a->y + n * width + offset,
                              .y_stride = width,
                              .inverse = scratch,
                              .lse = a->lse ? a->lse + n * a->H + head : NULL,
                              .lse_stride = a->H };
    struct matmul_args scores = { .trans_b = true,
                                  .M = rows,
                                  .N = span,
                                  .K = a->h,
                                  .alpha = a->scale,
                                  .A = a->q + n * a->q_stride + offset,
                                  .lda = a->q_stride,
                                  .ldb = a->k_stride,
                                  .C = s.S,
                                  .ldc = span };
    struct matmul_args mix = { .M = rows,
                               .N = a->h,
                               .K = span,
                               .alpha = 1,
                               .A = s.S,
                               .lda = span,
                               .ldb = a->v_stride,
                               .C = s.y,
                               .ldc = width };
    multiply(task, &scores, a->k, a->k16, b * a->k_batch + offset, s.S + rows * span);
    if (!a->products_only)
        k->softmax_fwd(&s, 0, rows, NULL);
    multiply(task, &mix, a->v, a->v16, b * a->v_batch + offset, s.S + rows * span);
    if (!a->products_only)
        k->softmax_finish(&s, 0, rows, NULL);
}

void cpu_attention_fwd(void *ctx, const struct attention_args *a)
{
    struct task task = { .cpu = ctx, .args = a, .blocks = blocks_of(a->T) };
    size_t rows = a->T < BLOCK ? a->T : BLOCK;
    parallel_fits(ctx, cpu_attention_scratch(a->past + a->T, a->k16 ? a->h : 0));
    parallel_tasks(ctx, a->B * a->H * task.blocks, (1 + rows / 4) * (a->past + a->T) * a->h, block_fwd,
                   &task);
}

/* The products of one block of queries: P and dP, then dq, and what it adds to dk and dv (`add` false:
 * writes). */
static void block_bwd(const struct cpu *cpu, const struct attention_grad_args *a, size_t b, size_t head,
                      size_t t, size_t rows, bool add, float *scratch)
{
    size_t span = t + rows, first = b * a->T, n = first + t, offset = head * a->h, width = a->H * a->h;
    float *S = scratch, *dP = scratch + rows * span, beta = add ? 1 : 0;
    const float *q = a->q + n * a->q_stride + offset, *dy = a->dy + n * width + offset;
    const float *k = a->k + first * a->k_stride + offset, *v = a->v + first * a->v_stride + offset;
    struct matmul_args scores = { .trans_b = true, .M = rows, .N = span, .K = a->h, .ldc = span };
    struct matmul_args by_key = {
        .trans_a = true, .M = span, .N = a->h, .K = rows, .lda = span, .beta = beta
    };
    scores.alpha = a->scale, scores.A = q, scores.lda = a->q_stride;
    scores.B = k, scores.ldb = a->k_stride, scores.C = S;
    gemm_serial(cpu, &scores);
    scores.alpha = 1, scores.A = dy, scores.lda = width;
    scores.B = v, scores.ldb = a->v_stride, scores.C = dP;
    gemm_serial(cpu, &scores);
    struct softmax_grad_args softmax = { .first = t,
                                         .span = span,
                                         .h = a->h,
                                         .scale = a->scale,
                                         .S = S,
                                         .dP = dP,
                                         .v = v,
                                         .y = a->y + n * width + offset,
                                         .dy = dy,
                                         .y_stride = width,
                                         .lse = a->lse + n * a->H + head,
                                         .lse_stride = a->H };
    if (!a->products_only)
        cpu->k->softmax_bwd(&softmax, 0, rows, NULL);
    gemm_serial(cpu, &(struct matmul_args){ .M = rows,
                                            .N = a->h,
                                            .K = span,
                                            .alpha = 1,
                                            .A = dP,
                                            .lda = span,
                                            .B = k,
                                            .ldb = a->k_stride,
                                            .C = a->dq + n * a->dq_stride + offset,
                                            .ldc = a->dq_stride });
    by_key.alpha = 1, by_key.A = dP, by_key.B = q, by_key.ldb = a->q_stride;
    by_key.C = a->dk + first * a->dk_stride + offset, by_key.ldc = a->dk_stride;
    gemm_serial(cpu, &by_key);
    by_key.A = S, by_key.B = dy, by_key.ldb = width;
    by_key.C = a->dv + first * a->dv_stride + offset, by_key.ldc = a->dv_stride;
    gemm_serial(cpu, &by_key);
}

/* From the last block, which sees all keys and so writes all of dk and dv, to the first. */
static void head_bwd(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct task *task = args;
    const struct attention_grad_args *a = task->args;
    (void)hi;
    for (size_t block = task->blocks; block-- > 0;) {
        size_t t = block * BLOCK, rows = a->T - t < BLOCK ? a->T - t : BLOCK;
        block_bwd(task->cpu, a, lo / a->H, lo % a->H, t, rows, block + 1 < task->blocks, scratch);
    }
}

void cpu_attention_bwd(void *ctx, const struct attention_grad_args *a)
{
    struct task task = { .cpu = ctx, .args = a, .blocks = blocks_of(a->T) };
    parallel_fits(ctx, cpu_attention_scratch(a->T, 0));
    parallel_tasks(ctx, a->B * a->H, a->T * a->T * a->h / 4, head_bwd, &task);
}
