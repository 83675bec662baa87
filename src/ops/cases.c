/* The table of cases. */
#include "ddl/kinds.h"
#include "ops/cases_internal.h"

#include <stdio.h>
#include <string.h>

/* clang-format off */
#define CASE(op, label, ...) { DDL_OP_##op, label, case_##__VA_ARGS__ }
#define PLAIN(op) CASE(op, NULL, op)
#define BOTH(op) PLAIN(op##_fwd), PLAIN(op##_bwd)
#define PRODUCTS(op, label, kind, without) \
    CASE(op, label ".fwd", op, (kind) + FORWARD, without), \
    CASE(op, label ".dw", op, (kind) + WEIGHT_GRAD, without), \
    CASE(op, label ".dx", op, (kind) + INPUT_GRAD, without)
#define CHECK(op, label, sizes, option, without) CASE(op, label, sizes, option, without, true)
/* Transposed operands and factors that the products above do not have; "nt": op(A) = A, op(B) = B^T. */
#define OTHER_FORMS(op, without) \
    CHECK(op, "nt.added", op, FORM(0, 1, ADDED), without), \
    CHECK(op, "nt.scaled", op, FORM(0, 1, SCALED), without), \
    CHECK(op, "nn.added", op, FORM(0, 0, ADDED), without), \
    CHECK(op, "nn.scaled", op, FORM(0, 0, SCALED), without), \
    CHECK(op, "tn.written", op, FORM(1, 0, WRITTEN), without), \
    CHECK(op, "tn.scaled", op, FORM(1, 0, SCALED), without), \
    CHECK(op, "tt.written", op, FORM(1, 1, WRITTEN), without), \
    CHECK(op, "tt.added", op, FORM(1, 1, ADDED), without), \
    CHECK(op, "tt.scaled", op, FORM(1, 1, SCALED), without)
/* With other contents of some operands. */
#define CHANGED(change, op, label, option, without, which) \
    CASE(op, label, op, option, without, true, which, DDL_TRIAL_##change)
#define UPDATE_OF(update, form) (DDL_UPDATE_##update + 4 * DDL_FORM_##form)
#define VARIANTS(op) \
    CHECK(op, "write", op, UPDATE_OF(WRITE, UNIT), op##_without), \
    CHECK(op, "erase", op, UPDATE_OF(ERASE, UNIT), op##_without), \
    CHECK(op, "ratio", op, UPDATE_OF(DELTA, RATIO), op##_without), \
    CHECK(op, "l2", op, UPDATE_OF(DELTA, L2), op##_without)
#define delta_fwd_without NULL
#define delta_bwd_without ",X,dq16,"
#define delta_inverse_without NULL

static const struct ddl_op_case cases[] = {
    PRODUCTS(matmul, "qkv", QKV, NULL),
    PRODUCTS(matmul, "proj", PROJ, NULL),
    PRODUCTS(matmul, "fc", FC, NULL),
    PRODUCTS(matmul, "mlp", MLP, NULL),
    PRODUCTS(matmul, "head", HEAD, NULL),
    CASE(matmul, "fc.one", matmul, ONE),
    OTHER_FORMS(matmul, NULL),
    CHECK(matmul, "tf32", matmul, TF32_FORM(0, 1, WRITTEN), NULL),
    CHECK(matmul, "tf32.dw", matmul, TF32_FORM(1, 0, ADDED), NULL),
    CHECK(matmul, "tf32.dx", matmul, TF32_FORM(0, 0, WRITTEN), NULL),
    PRODUCTS(matmul_bf16, "qkv", QKV, ",C16,"),
    PRODUCTS(matmul_bf16, "proj", PROJ, ",C16,"),
    PRODUCTS(matmul_bf16, "fc", FC, ",C16,"),
    PRODUCTS(matmul_bf16, "mlp", MLP, ",C16,"),
    PRODUCTS(matmul_bf16, "head", HEAD, ",C16,"),
    CASE(matmul_bf16, "fc.one", matmul_bf16, ONE, ",C16,"),
    OTHER_FORMS(matmul_bf16, ",C16,"),
    CHANGED(ZEROS, matmul_bf16, "zeros", FC + FORWARD, ",C16,", ",A,B,"),
    CASE(matmul_bf16, "fc.rounded", matmul_bf16, FC + FORWARD, ",C,"),
    CHECK(matmul_bf16, "fc.one.rounded", matmul_bf16, ONE, ",C,"),
    CHECK(matmul_bf16, "fc.dx.rounded", matmul_bf16, FC + INPUT_GRAD, ",C,"),
    CASE(matmul_q8, "fc", matmul_q8, FC),
    CASE(matmul_q8, "fc.one", matmul_q8, ONE),
    CHECK(matmul_q8, "scaled", matmul_q8, FORM(0, 1, SCALED), NULL),
    CHECK(matmul_q8, "long", matmul_q8, LONG, NULL),
    CHANGED(TINY, matmul_q8, "tiny", FC, NULL, ",A,"),
    CHANGED(HUGE, matmul_q8, "huge", FC, NULL, ",A,"),
    CHANGED(DIGITS, matmul_q8, "digits", FC, NULL, ",A,"),
    PLAIN(quantize_q8),
    CHANGED(EXTREME, quantize_q8, "extreme", 0, NULL, ",x,"),
    PLAIN(dequantize_q8),
    CASE(attention_fwd, NULL, attention_fwd, ALL_TOKENS, ",q16,k16,v16,y16,"),
    CASE(attention_bwd, NULL, attention_bwd, 0, ",q16,k16,v16,y16,dq16,dk16,dv16,"),
    CASE(attention_fwd, "bf16", attention_fwd, ALL_TOKENS, ",q,k,v,y,"),
    CASE(attention_bwd, "bf16", attention_bwd, 0, ",q,k,v,y,dq,dk,dv,"),
    CASE(attention_fwd, "one", attention_fwd, LAST_TOKEN, ",q16,k16,v16,y16,lse,"),
    CASE(attention_fwd, "one.bf16", attention_fwd, LAST_TOKEN, ",q,k,v,y,lse,"),
    CHECK(attention_fwd, "one.cache_bf16", attention_fwd, LAST_TOKEN, ",q16,k,v,y16,lse,"),
    CHECK(attention_fwd, "one.cache_f32", attention_fwd, LAST_TOKEN, ",q,k16,v16,y,lse,"),
    CHECK(attention_fwd, "later", attention_fwd, LATER_HALF, ",q16,k16,v16,y16,"),
    CHECK(attention_fwd, "later.bf16", attention_fwd, LATER_HALF, ",q,k,v,y,lse,"),
    CHECK(attention_fwd, "later.cache_bf16", attention_fwd, LATER_HALF, ",q16,k,v,y16,lse,"),
    CHECK(attention_fwd, "ragged", attention_fwd, SLOTS, ",q16,k16,v16,y16,"),
    CHECK(attention_fwd, "ragged.bf16", attention_fwd, SLOTS, ",q,k,v,y,lse,"),
    CHECK(attention_fwd, "ragged.cache_bf16", attention_fwd, SLOTS, ",q16,k,v,y16,lse,"),
    CHECK(attention_fwd, "ragged.cache_f32", attention_fwd, SLOTS, ",q,k16,v16,y,lse,"),
    CHANGED(LARGE, attention_fwd, "large", ALL_TOKENS, ",q16,k16,v16,y16,", ",q,"),
    CHANGED(LARGE, attention_fwd, "large.ragged", SLOTS, ",q16,k16,v16,y16,", ",q,"),
    CASE(delta_fwd, NULL, delta_fwd, .in_place = true),
    VARIANTS(delta_fwd),
    CASE(delta_bwd, NULL, delta_bwd, 0, ",X,dq16,", .in_place = true),
    CASE(delta_bwd, "bf16", delta_bwd, 0, ",X,dq,", .in_place = true),
    CHECK(delta_bwd, "ratio.bf16", delta_bwd, UPDATE_OF(DELTA, RATIO), ",X,dq,"),
    VARIANTS(delta_bwd),
    CHECK(delta_bwd, "from_state", delta_bwd_from_state, 0, ",X_next,dq16,"),
    CHECK(delta_bwd, "from_state.alone", delta_bwd_from_state, UPDATE_OF(DELTA, RATIO), ",X_next,readout,dq16,"),
    PLAIN(delta_inverse),
    VARIANTS(delta_inverse),
    BOTH(fold),
    CHECK(fold_fwd, "token", fold_fwd, 1 + DDL_COMPRESS_TOKEN, NULL),
    CHECK(fold_bwd, "token", fold_bwd, 1 + DDL_COMPRESS_TOKEN, NULL),
    CHECK(fold_fwd, "mix", fold_fwd, 1 + DDL_COMPRESS_MIX, NULL),
    CHECK(fold_bwd, "mix", fold_bwd, 1 + DDL_COMPRESS_MIX, NULL),
    BOTH(compress),
    CHECK(compress_fwd, "ragged", compress_fwd, RAGGED, NULL),
    BOTH(init_state),
    CHECK(init_state_fwd, "repeat", init_state_fwd, DENSE, ",w,"),
    CHECK(init_state_bwd, "repeat", init_state_bwd, DENSE, ",w,dw,"),
    CHECK(init_state_fwd, "ragged", init_state_fwd, RAGGED, NULL),
    CASE(project_fwd, "gate", project_fwd, GATE),
    CASE(project_bwd, "gate", project_bwd, GATE, ",dx16,"),
    CASE(project_fwd, "target", project_fwd, TARGET),
    CASE(project_bwd, "target", project_bwd, TARGET, ",dx16,"),
    CHECK(project_bwd, "target.bf16", project_bwd, TARGET, NULL),
    PLAIN(f_norm_fwd),
    CASE(f_norm_bwd, NULL, f_norm_bwd, 0, ",df16,"),
    CHECK(f_norm_bwd, "bf16", f_norm_bwd, 0, NULL),
    CHECK(f_norm_fwd, "without_rstd", f_norm_fwd, 0, ",rstd,"),
    PLAIN(scale_fwd),
    CASE(scale_bwd, NULL, scale_bwd, 0, ",df16,"),
    CASE(scale_bwd, "bf16", scale_bwd, 0, ",df,"),
    CHECK(scale_fwd, "one", scale_fwd, ONE_NUMBER, NULL),
    CHECK(scale_bwd, "one", scale_bwd, ONE_NUMBER, ",X,df16,"),
    CHECK(scale_bwd, "one.bf16", scale_bwd, ONE_NUMBER, ",X,df,"),
    CHECK(scale_fwd, "plain", scale_fwd, ONE_NUMBER, ",lambda,"),
    CHECK(scale_bwd, "plain", scale_bwd, ONE_NUMBER, ",lambda,dlambda,df16,"),
    PLAIN(gated_fwd),
    CASE(gated_bwd, NULL, gated_bwd, 0, ",df16,"),
    CASE(gated_bwd, "bf16", gated_bwd, 0, ",df,"),
    CHECK(gated_bwd, "kept", gated_bwd, 0, ",X,df16,"),
    PLAIN(highway_fwd),
    CASE(highway_bwd, NULL, highway_bwd, 0, ",df16,dz16,"),
    CASE(highway_bwd, "bf16", highway_bwd, 0, ",df,dz,"),
    CHECK(highway_bwd, "float_dz", highway_bwd, 0, ",df,dz16,"),
    CHECK(highway_bwd, "float_df", highway_bwd, 0, ",df16,dz,"),
    CHECK(highway_fwd, "one", highway_fwd, ONE_NUMBER, NULL),
    CHECK(highway_bwd, "one", highway_bwd, ONE_NUMBER, ",df16,dz16,"),
    CHECK(highway_bwd, "one.bf16", highway_bwd, ONE_NUMBER, ",df,dz,"),
    BOTH(streams_fold),
    CHECK(streams_fold_fwd, "hyper", streams_fold_fwd, 1, ",W[2],"),
    CHECK(streams_fold_bwd, "hyper", streams_fold_bwd, 1, ",W[2],dW[2],"),
    PLAIN(streams_sum),
    PLAIN(streams_write_fwd),
    CASE(streams_write_bwd, NULL, streams_write_bwd, 0, ",df16,"),
    CASE(streams_write_bwd, "bf16", streams_write_bwd, 0, ",df,"),
    CHECK(streams_write_bwd, "without_input", streams_write_bwd, 0, ",x_in,df16,"),
    BOTH(hyper),
    CHECK(hyper_fwd, "identity", hyper_fwd, 1, NULL),
    CHECK(hyper_fwd, "static", hyper_fwd, 0, ",Wf,a,e,t,rstd,"),
    CHECK(hyper_bwd, "static", hyper_bwd, 0, ",Wf,a,e,t,rstd,dz,da,de,dWf,"),
    BOTH(mhc),
    CHECK(mhc_fwd, "identity", mhc_fwd, 1, NULL),
    CASE(laurel_fwd, NULL, laurel_fwd, 0, ",low16,"),
    CHECK(laurel_fwd, "bf16", laurel_fwd, 0, NULL),
    CASE(laurel_bwd, NULL, laurel_bwd, 0, ",X16,dlow16,df16,"),
    CASE(laurel_bwd, "bf16", laurel_bwd, 0, ",df,"),
    CHECK(laurel_fwd, "fixed", laurel_fwd, 1, ",mix,low,low16,"),
    CHECK(laurel_bwd, "no_rank", laurel_bwd, 1, ",X16,low,dlow,dlow16,df16,"),
    CASE(depth_fwd, NULL, depth_fwd, 0, ",rms,"),
    CHECK(depth_fwd, "rms", depth_fwd, 0, NULL),
    PLAIN(depth_bwd),
    CHECK(depth_fwd, "first", depth_fwd, 1, NULL),
    CHECK(depth_bwd, "first", depth_bwd, 1, NULL),
    CASE(source_bwd, NULL, source_bwd, 0, ",dv16,"),
    CHECK(source_bwd, "bf16", source_bwd, 0, NULL),
    CHECK(source_bwd, "part", source_bwd, 1, ",dv16,"),
    CHECK(source_bwd, "part.bf16", source_bwd, 1, NULL),
    CASE(weighted_sum, NULL, weighted_sum, 0, ",out16,"),
    CHECK(weighted_sum, "bf16", weighted_sum, 0, NULL),
    CHECK(weighted_sum, "accumulate", weighted_sum, 1, ",out16,"),
    CHECK(weighted_sum, "accumulate.bf16", weighted_sum, 1, NULL),
    PLAIN(weighted_sum_bwd),
    CASE(rmsnorm_fwd, NULL, rmsnorm_fwd, 0, ",y16,x16,"),
    CASE(rmsnorm_fwd, "bf16", rmsnorm_fwd, 0, ",y,x16,"),
    CHECK(rmsnorm_fwd, "both", rmsnorm_fwd, 0, ",rstd,"),
    CASE(rmsnorm_bwd, NULL, rmsnorm_bwd, 0, ",dx16,"),
    CHECK(rmsnorm_bwd, "accumulate", rmsnorm_bwd, 1, ",dx16,"),
    CHECK(rmsnorm_bwd, "bf16", rmsnorm_bwd, 0, NULL),
    CHECK(rmsnorm_bwd, "accumulate.bf16", rmsnorm_bwd, 1, NULL),
    CASE(rope_fwd, NULL, rope_fwd, DENSE, ",x16,y16,"),
    CASE(rope_bwd, NULL, rope_bwd, DENSE, ",x16,dy16,dx16,"),
    CASE(rope_fwd, "bf16", rope_fwd, DENSE, ",x,y,"),
    CASE(rope_bwd, "bf16", rope_bwd, DENSE, ",x,dy,dx,"),
    CHECK(rope_fwd, "without_norm", rope_fwd, DENSE, ",w,x16,y16,"),
    CHECK(rope_bwd, "without_norm", rope_bwd, DENSE, ",w,dw,x16,dy16,dx16,"),
    CHECK(rope_fwd, "without_norm.bf16", rope_fwd, DENSE, ",w,x,y,"),
    CHECK(rope_bwd, "without_norm.bf16", rope_bwd, DENSE, ",w,dw,x,dy,dx,"),
    CHANGED(ZEROS, rope_bwd, "zeros.bf16", DENSE, ",x,dy,dx,", ",x16,dy16,"),
    CHECK(rope_fwd, "ragged", rope_fwd, RAGGED, ",x16,y16,"),
    CHECK(rope_fwd, "ragged.bf16", rope_fwd, RAGGED, ",x,y,"),
    CASE(mix_values_fwd, NULL, mix_values_fwd, 0, ",v16,first16,y16,"),
    CASE(mix_values_bwd, NULL, mix_values_bwd, 0, ",v16,first16,dv16,"),
    CASE(mix_values_fwd, "bf16", mix_values_fwd, 0, ",v,first,y,"),
    CASE(mix_values_bwd, "bf16", mix_values_bwd, 0, ",v,first,dv,"),
    CHECK(mix_values_fwd, "sum", mix_values_fwd, 0, ",mix,v16,first16,y16,"),
    CHECK(mix_values_fwd, "sum.bf16", mix_values_fwd, 0, ",mix,v,first16,y,"),
    CHECK(mix_values_bwd, "write", mix_values_bwd, 1, ",v16,first16,dv16,"),
    CHECK(mix_values_bwd, "write.bf16", mix_values_bwd, 1, ",v,first,dv,"),
    CASE(swiglu_fwd, NULL, swiglu_fwd, 0, ",ug16,s16,"),
    CASE(swiglu_bwd, NULL, swiglu_bwd, 0, ",ug16,dug16,"),
    CASE(swiglu_fwd, "bf16", swiglu_fwd, 0, ",ug,s,"),
    CASE(swiglu_bwd, "bf16", swiglu_bwd, 0, ",ug,dug,"),
    PLAIN(gather),
    PLAIN(gather_bf16),
    PLAIN(gather_q8),
    PLAIN(embed_bwd),
    PLAIN(cross_entropy),
    CHECK(cross_entropy, "loss", cross_entropy, 1, NULL),
    CASE(loss_tile, NULL, loss_tile, 0, ",loss,"),
    CHANGED(LARGE, cross_entropy, "large", 0, NULL, ",z,"),
    CHECK(loss_tile, "last", loss_tile, 1, NULL),
    CHANGED(LARGE, loss_tile, "large", 0, ",loss,", ",z,"),
    PLAIN(loss_grad),
    CHANGED(NEGATIVE, loss_grad, "negative", 0, NULL, ",z,"),
    PLAIN(rank),
    CHANGED(TIES, rank, "ties", 0, NULL, ",z,"),
    PLAIN(likeliest),
    CHECK(likeliest, "all", likeliest, 1, NULL),
    CHANGED(TIES, likeliest, "ties", 1, NULL, ",z,"),
    PLAIN(choose),
    CHECK(choose, "unchanged", choose, 1, NULL),
    CHANGED(TIES, choose, "ties", 1, NULL, ",z,"),
    CHANGED(SPECIAL, choose, "special", 0, NULL, ",z,"),
    CHANGED(ZEROS, choose, "greedy", 0, NULL, ",temperature,"),
    CHANGED(NEGATIVE, choose, "none", 0, NULL, ",temperature,"),
    CASE(adamw, NULL, adamw, 0, ",p16,copy,"),
    CASE(adamw, "bf16", adamw, 0),
    CHANGED(ZEROS, adamw, "zeros", 0, ",p16,copy,", ",g,v,"),
    PLAIN(cast_bf16),
    CHANGED(SPECIAL, cast_bf16, "special", 0, NULL, ",x,"),
    CHANGED(HALFWAY, cast_bf16, "ties", 0, NULL, ",x,"),
    PLAIN(widen_bf16),
    CHANGED(SPECIAL, widen_bf16, "special", 0, NULL, ",x,"),
    CASE(copy, NULL, copy, 0, ",src16,dst16,"),
    CASE(copy, "bf16", copy, 0, ",src,dst,"),
    CHANGED(SPECIAL, copy, "special", 0, ",src16,dst16,", ",src,"),
    PLAIN(copy_bf16),
    CHANGED(SPECIAL, copy_bf16, "special", 0, NULL, ",src,"),
    CHANGED(HALFWAY, copy_bf16, "ties", 0, NULL, ",src,"),
    CASE(cache_append, NULL, cache_append, 0, ",src16,dst16,"),
    CASE(cache_append, "bf16", cache_append, 0, ",src,dst,"),
    CHECK(cache_append, "round", cache_append, 0, ",src16,dst,"),
    CHANGED(HALFWAY, cache_append, "round.ties", 0, ",src16,dst,", ",src,"),
    CHECK(cache_append, "widen", cache_append, 0, ",src,dst16,"),
    PLAIN(history_push),
    PLAIN(fill),
    PLAIN(sum),
    CASE(sum_squares, NULL, sum_squares, 0, ",into,"),
    CHECK(sum_squares, "several", sum_squares, 1, NULL),
    PLAIN(clip),
    CHECK(clip, "unlimited", clip, 1, NULL),
    BOTH(tanh),
    BOTH(gelu),
    BOTH(bias),
    BOTH(pool),
    CHECK(pool_fwd, "mean", pool_fwd, 0, ",w_a,a,"),
    CHECK(pool_bwd, "mean", pool_bwd, 0, ",w_a,a,dw_a,"),
    BOTH(elementwise),
};
/* clang-format on */

const struct ddl_op_case *ddl_op_cases(size_t *n)
{
    *n = sizeof cases / sizeof *cases;
    return cases;
}

void ddl_op_case_name(const struct ddl_op_case *k, char *text, size_t size)
{
    snprintf(text, size, "%s%s%s", ddl_op_name(k->op), k->label ? "." : "", k->label ? k->label : "");
}

void ddl_op_case_plan(const struct ddl_op_case *k, const struct ddl_op_sizes *s, union ddl_op_args *args,
                      struct ddl_trial_plan *plan)
{
    memset(args, 0, sizeof *args);
    k->sizes(args, s, k->option);
    *plan = (struct ddl_trial_plan){ .op = k->op,
                                     .sizes = args,
                                     .without = k->without,
                                     .changed = k->changed,
                                     .change = k->change,
                                     .sequences = s->sequences };
}
