/* The reference backend: the specification made executable. Scalar, double accumulators, one thread, no
 * library. Each op's equation stands above its arguments in ops/ops.h; the code below says it again as
 * plainly as it can. */
#ifndef DDL_BACKEND_REF_H
#define DDL_BACKEND_REF_H

#include "ops/ops.h"

extern const struct ddl_ops ddl_ops_ref;

void ref_matmul(void *ctx, const struct matmul_args *a);
void ref_embed_fwd(void *ctx, const struct embed_args *a);
void ref_embed_bwd(void *ctx, const struct embed_grad_args *a);
void ref_expand_fwd(void *ctx, const struct expand_args *a);
void ref_expand_bwd(void *ctx, const struct expand_grad_args *a);
void ref_collapse_fwd(void *ctx, const struct collapse_args *a);
void ref_collapse_bwd(void *ctx, const struct collapse_grad_args *a);
void ref_compress_fwd(void *ctx, const struct compress_args *a);
void ref_compress_bwd(void *ctx, const struct compress_grad_args *a);
void ref_rmsnorm_fwd(void *ctx, const struct rmsnorm_args *a);
void ref_rmsnorm_bwd(void *ctx, const struct rmsnorm_grad_args *a);
void ref_rope_fwd(void *ctx, const struct rope_args *a);
void ref_rope_bwd(void *ctx, const struct rope_grad_args *a);
void ref_attention_fwd(void *ctx, const struct attention_args *a);
void ref_attention_bwd(void *ctx, const struct attention_grad_args *a);
void ref_swiglu_fwd(void *ctx, const struct swiglu_args *a);
void ref_swiglu_bwd(void *ctx, const struct swiglu_grad_args *a);
void ref_project_fwd(void *ctx, const struct project_args *a);
void ref_project_bwd(void *ctx, const struct project_grad_args *a);
void ref_tanh_fwd(void *ctx, const struct tanh_args *a);
void ref_tanh_bwd(void *ctx, const struct tanh_grad_args *a);
void ref_gelu_fwd(void *ctx, const struct gelu_args *a);
void ref_gelu_bwd(void *ctx, const struct gelu_grad_args *a);
void ref_axpy(void *ctx, const struct axpy_args *a);
void ref_fill(void *ctx, const struct fill_args *a);
void ref_bias_fwd(void *ctx, const struct bias_args *a);
void ref_bias_bwd(void *ctx, const struct bias_grad_args *a);
void ref_pool_fwd(void *ctx, const struct pool_args *a);
void ref_pool_bwd(void *ctx, const struct pool_grad_args *a);
void ref_delta_fwd(void *ctx, const struct ddl_delta_args *a);
void ref_delta_bwd(void *ctx, const struct ddl_delta_grad_args *a);
void ref_delta_inverse(void *ctx, const struct ddl_delta_inverse_args *a);
void ref_elementwise_fwd(void *ctx, const struct ddl_elementwise_args *a);
void ref_elementwise_bwd(void *ctx, const struct ddl_elementwise_grad_args *a);
void ref_cross_entropy(void *ctx, const struct cross_entropy_args *a);
double ref_sum_squares(void *ctx, size_t n, const float *x);
void ref_adamw(void *ctx, const struct adamw_args *a);

#endif
