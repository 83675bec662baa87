/* Ops that are one kernel over rows, or over features or plain numbers: what is split, and about how many
 * numbers each touches. */
#include "backend/cpu/parallel.h"

#define ROWWISE(op, args_type, rows, cost)                                                                   \
    void cpu_##op(void *ctx, const struct args_type *a)                                                      \
    {                                                                                                        \
        const struct cpu *cpu = ctx;                                                                         \
        parallel_rows(cpu, rows, cost, cpu->k->op, a);                                                       \
    }

/* The same over N rows, with d numbers of scratch a thread if `sums`: a sum that has no other memory. */
#define WITH_ROW(op, args_type, sums, cost)                                                                  \
    void cpu_##op(void *ctx, const struct args_type *a)                                                      \
    {                                                                                                        \
        const struct cpu *cpu = ctx;                                                                         \
        if (!(sums)) {                                                                                       \
            parallel_rows(cpu, a->N, cost, cpu->k->op, a);                                                   \
        } else if (a->N) {                                                                                   \
            parallel_fits(cpu, a->d);                                                                        \
            parallel_scratch(cpu, a->N, cost, cpu->k->op, a, 0);                                             \
        }                                                                                                    \
    }

ROWWISE(gather, gather_args, a->N, a->width)
ROWWISE(gather_bf16, gather_bf16_args, a->N, a->width)
ROWWISE(gather_q8, gather_q8_args, a->N, a->width)
ROWWISE(embed_bwd, embed_grad_args, a->d, a->N)
ROWWISE(fold_fwd, fold_args, 1, 1)
ROWWISE(fold_bwd, fold_grad_args, 1, 1)
ROWWISE(compress_fwd, compress_args, a->B * a->T, a->d * a->c * a->taps)
ROWWISE(rmsnorm_fwd, rmsnorm_args, a->N, 2 * a->d)
ROWWISE(rope_fwd, rope_args, a->B * a->T, 4 * a->H * a->h)
ROWWISE(mix_values_fwd, mix_values_args, a->N, 3 * a->width)
ROWWISE(swiglu_fwd, swiglu_args, a->N, 4 * a->m)
ROWWISE(swiglu_bwd, swiglu_grad_args, a->N, 6 * a->m)
ROWWISE(project_fwd, project_args, a->N, a->d * a->c)
ROWWISE(f_norm_fwd, f_norm_args, a->N, 2 * a->d)
ROWWISE(f_norm_bwd, f_norm_grad_args, a->N, 3 * a->d)
ROWWISE(scale_fwd, scale_args, a->N, 2 * a->d)
ROWWISE(gated_fwd, gated_args, a->N, 2 * a->d)
ROWWISE(gated_bwd, gated_grad_args, a->N, 6 * a->d)
ROWWISE(highway_fwd, highway_args, a->N, 3 * a->d + 16 * a->w)
ROWWISE(streams_fold_fwd, streams_fold_args, a->rows[0] + a->rows[1] + a->rows[2], a->n * a->d)
ROWWISE(streams_fold_bwd, streams_fold_grad_args, 1, 1)
ROWWISE(streams_sum, streams_sum_args, a->N, a->n * a->d)
ROWWISE(streams_write_fwd, streams_write_args, a->N, 4 * a->n * a->d)
WITH_ROW(streams_write_bwd, streams_write_grad_args, a->df16, 4 * a->n * a->d)
ROWWISE(hyper_fwd, hyper_args, a->N, 4 * a->n * a->d)
ROWWISE(mhc_fwd, mhc_args, a->N, 8 * a->n * a->d)
ROWWISE(laurel_fwd, laurel_args, a->N, 3 * a->d + 2 * a->r)
ROWWISE(weighted_sum, weighted_sum_args, a->count, a->n + 1)
ROWWISE(depth_fwd, depth_args, a->N, 2 * (a->n + 1) * a->d)
WITH_ROW(source_bwd, source_grad_args, true, 2 * a->n * a->d)
ROWWISE(tanh_fwd, tanh_args, a->n, 4)
ROWWISE(tanh_bwd, tanh_grad_args, a->n, 2)
ROWWISE(gelu_fwd, gelu_args, a->n, 32)
ROWWISE(gelu_bwd, gelu_grad_args, a->n, 32)
ROWWISE(fill, fill_args, a->n, 1)
ROWWISE(bias_fwd, bias_args, a->N, a->d)
ROWWISE(pool_fwd, pool_args, a->N, 4 * a->d * a->c)
#define STEPS(a) ((a)->steps ? (a)->steps : 1)
ROWWISE(delta_fwd, ddl_delta_args, a->N, STEPS(a) * 3 * a->d * a->c)
WITH_ROW(delta_bwd, ddl_delta_grad_args, a->dq16, STEPS(a) * 6 * a->d * a->c)
ROWWISE(delta_inverse, ddl_delta_inverse_args, a->N, STEPS(a) * 2 * a->d * a->c)
ROWWISE(elementwise_fwd, ddl_elementwise_args, a->N, 6 * a->d)
ROWWISE(elementwise_bwd, ddl_elementwise_grad_args, a->N, 12 * a->d)
ROWWISE(cross_entropy, cross_entropy_args, a->N, 4 * a->V)
ROWWISE(loss_tile, loss_tile_args, a->N, 4 * a->n)
ROWWISE(loss_grad, loss_grad_args, a->N, 4 * a->n)
ROWWISE(rank, rank_args, a->N, (a->entropy ? 5 : 1) * a->V)
ROWWISE(likeliest, likeliest_args, a->N, 4 * a->V)
ROWWISE(choose, choose_args, a->N, 8 * a->n)
ROWWISE(quantize_q8, quantize_q8_args, a->rows, 4 * a->width)
ROWWISE(dequantize_q8, dequantize_q8_args, a->rows, 4 * a->width)
ROWWISE(cast_bf16, cast_bf16_args, a->n, 1)
ROWWISE(widen_bf16, widen_bf16_args, a->n, 1)
ROWWISE(copy_bf16, copy_bf16_args, (a->batch ? a->batch : 1) * a->rows, a->width)
