/* Matrix products of a layer: y = x W^T and its two gradients, in float32, with operands in bfloat16, or with
 * 8-bit weights, by the format of the weight. */
#include "model/pass/linear.h"
#include "model/pass/workspace.h"

/* C (M, N) = alpha op(A) op(B) + beta C */
struct product {
    bool trans_a, trans_b;
    size_t M, N, K;
    bool tf32;
    float alpha;
    struct operand A, B;
    float beta;          /* 0 or 1 */
    struct activation C; /* bf16 where that is not NULL */
};

/* Calls the op for the format of B. 8-bit matrices are multiplied as B^T only: they are not trained. */
static void multiply(const struct pass *p, const struct product *a)
{
    size_t lda = row_stride(a->A.stride, a->trans_a ? a->M : a->K),
           ldb = row_stride(a->B.stride, a->trans_b ? a->K : a->N), ldc = row_stride(a->C.stride, a->N);
    if (a->B.q8)
        p->ops->matmul_q8(p->ctx, &(struct matmul_q8_args){ .M = a->M,
                                                            .N = a->N,
                                                            .K = a->K,
                                                            .alpha = a->alpha,
                                                            .A = a->A.value,
                                                            .lda = lda,
                                                            .first = a->B.first,
                                                            .B = a->B.q8,
                                                            .accumulate = a->beta != 0,
                                                            .C = a->C.value,
                                                            .ldc = ldc });
    else if (a->B.bf16)
        p->ops->matmul_bf16(p->ctx, &(struct matmul_bf16_args){ .trans_a = a->trans_a,
                                                                .trans_b = a->trans_b,
                                                                .M = a->M,
                                                                .N = a->N,
                                                                .K = a->K,
                                                                .alpha = a->alpha,
                                                                .A = a->A.bf16,
                                                                .lda = lda,
                                                                .B = a->B.bf16,
                                                                .ldb = ldb,
                                                                .beta = a->beta,
                                                                .C = a->C.bf16 ? NULL : a->C.value,
                                                                .C16 = a->C.bf16,
                                                                .ldc = ldc });
    else
        p->ops->matmul(p->ctx, &(struct matmul_args){ .trans_a = a->trans_a,
                                                      .trans_b = a->trans_b,
                                                      .M = a->M,
                                                      .N = a->N,
                                                      .K = a->K,
                                                      .tf32 = a->tf32,
                                                      .alpha = a->alpha,
                                                      .A = a->A.value,
                                                      .lda = lda,
                                                      .B = a->B.value,
                                                      .ldb = ldb,
                                                      .beta = a->beta,
                                                      .C = a->C.value,
                                                      .ldc = ldc });
}

void product_fwd(const struct pass *p, const struct linear *l, struct operand x, struct activation y,
                 bool accumulate)
{
    multiply(p, &(struct product){ .trans_b = true,
                                   .M = l->N,
                                   .N = l->out,
                                   .K = l->in,
                                   .tf32 = l->W.tf32,
                                   .alpha = l->scale,
                                   .A = x,
                                   .B = l->W.form,
                                   .beta = accumulate ? 1 : 0,
                                   .C = y });
}

void product_bwd(const struct pass *p, const struct linear *l, struct operand x, struct operand dy,
                 struct activation dx, bool accumulate)
{
    multiply(p, &(struct product){ .trans_a = true,
                                   .M = l->out,
                                   .N = l->in,
                                   .K = l->N,
                                   .tf32 = l->W.tf32,
                                   .alpha = l->scale,
                                   .A = dy,
                                   .B = x,
                                   .beta = l->W.grad_is_zero ? 0 : 1,
                                   .C.value = l->W.grad });
    multiply(p, &(struct product){ .M = l->N,
                                   .N = l->in,
                                   .K = l->out,
                                   .tf32 = l->W.tf32,
                                   .alpha = l->scale,
                                   .A = dy,
                                   .B = l->W.form,
                                   .beta = accumulate ? 1 : 0,
                                   .C = dx });
}

/* x in the format that a product with W reads. */
static struct operand operand_for(const struct weight *W, struct operand x)
{
    return W->form.bf16 ? (struct operand){ .bf16 = x.bf16, .stride = x.stride } : value_operand(x.value);
}

void linear_fwd(const struct pass *p, size_t in, size_t out, struct operand x, struct weight W, float *y,
                bool accumulate)
{
    const struct linear l = { p->N, in, out, 1, W };
    product_fwd(p, &l, operand_for(&W, x), (struct activation){ .value = y }, accumulate);
}

void linear_fwd_rounded(const struct pass *p, size_t in, size_t out, struct operand x, struct weight W,
                        struct activation y)
{
    const struct linear l = { p->N, in, out, 1, W };
    product_fwd(p, &l, operand_for(&W, x), y, false);
}

void linear_bwd(const struct pass *p, size_t in, size_t out, struct operand x, struct operand dy,
                struct weight W, float *dx, bool accumulate)
{
    const struct linear l = { p->N, in, out, 1, W };
    product_bwd(p, &l, operand_for(&W, x), operand_for(&W, dy), (struct activation){ .value = dx },
                accumulate);
}

void linear_bwd_rounded(const struct pass *p, size_t in, size_t out, struct operand x, struct operand dy,
                        struct weight W, struct activation dx)
{
    const struct linear l = { p->N, in, out, 1, W };
    product_bwd(p, &l, operand_for(&W, x), operand_for(&W, dy), dx, false);
}
