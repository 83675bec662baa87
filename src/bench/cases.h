/* Functions that fill in benchmark cases, one per op. */
#ifndef DDL_BENCH_CASES_H
#define DDL_BENCH_CASES_H

#include "bench/bench.h"

/* cases_buffers.c: adds a buffer of n numbers whose pointer is at offset `slot` of the args; returns its
 * number. */
int bench_add(struct bench_case *k, size_t slot, size_t n, enum bench_fill fill, enum bench_use use);
/* Adds a second pointer to buffer `of`. */
void bench_add_alias(struct bench_case *k, size_t slot, int of, enum bench_use use);

#define AT(type, field) offsetof(struct type, field)
#define IN(type, field, n, fill) bench_add(k, AT(type, field), n, BENCH_##fill, BENCH_IN)
#define OUT(type, field, n) bench_add(k, AT(type, field), n, BENCH_NORMAL, BENCH_OUT)
#define INOUT(type, field, n) bench_add(k, AT(type, field), n, BENCH_NORMAL, BENCH_INOUT)

typedef void bench_make(struct bench_case *k, const struct bench_sizes *s);
bench_make make_embed_fwd, make_embed_bf16_fwd, make_embed_q8_fwd, make_embed_bwd, make_init_state_fwd,
    make_init_state_bwd, make_fold_fwd, make_fold_bwd, make_compress_fwd, make_compress_bwd, make_pool_fwd,
    make_pool_bwd, make_delta_fwd, make_delta_bwd, make_delta_inverse, make_elementwise_fwd,
    make_elementwise_bwd;
bench_make make_rmsnorm_fwd, make_rmsnorm_bwd, make_rope_fwd, make_rope_bwd, make_swiglu_fwd, make_swiglu_bwd,
    make_gate_fwd, make_gate_bwd, make_target_fwd, make_target_bwd, make_tanh_fwd, make_tanh_bwd,
    make_gelu_fwd, make_gelu_bwd, make_sum, make_sum_squares, make_fill, make_bias_fwd, make_bias_bwd,
    make_scale_fwd, make_scale_bwd, make_gated_fwd, make_gated_bwd, make_highway_fwd, make_highway_bwd,
    make_laurel_fwd, make_laurel_bwd, make_mix_values_fwd, make_mix_values_bwd, make_weighted_sum,
    make_weighted_sum_bwd, make_adamw, make_adamw_bf16;
bench_make make_streams_fold_fwd, make_streams_fold_bwd, make_streams_sum, make_streams_write_fwd,
    make_streams_write_bwd, make_hyper_fwd, make_hyper_bwd, make_mhc_fwd, make_mhc_bwd;

#endif
