/* The arguments of the operations in ops/ops.h, with the equation of each.
 *
 * Every pointer to numbers is memory of the backend (ops->alloc). Shapes use the letters of
 * docs/equations.md, which has the derivations in the sections named below; row-major, last index fastest.
 * "=" marks an output that is written, "+=" one that is added to. A member whose name ends in 16 is in
 * bfloat16: what an op writes there is rounded as cast_bf16 does, once, from the float32 result. Outputs may
 * not overlap inputs except where a comment allows it. ops/operands.c describes every operand in a form that
 * programs read. This header needs the freestanding headers of C alone, so that device code can include it.
 */
#ifndef DDL_OPS_ARGS_H
#define DDL_OPS_ARGS_H

#include "ddl/delta_args.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* C (M, N) = alpha op(A) op(B) + beta C, op(A) (M, K), op(B) (K, N); ld*: numbers from row to row as stored.
 */
struct matmul_args {
    bool trans_a, trans_b, tf32; /* tf32: operands may be rounded to TF32, a 10-bit mantissa */
    size_t M, N, K;
    float alpha;
    const float *A;
    size_t lda;
    const float *B;
    size_t ldb;
    float beta; /* 0: C is only written, its old content (NaN included) does not matter */
    float *C;
    size_t ldc;
};

/* y = x rounded to bfloat16 (nearest, ties to even; NaN stays NaN), as its 16 bits. */
struct cast_bf16_args {
    size_t n;
    const float *x;
    uint16_t *y;
};

/* y = x as float32. */
struct widen_bf16_args {
    size_t n;
    const uint16_t *x;
    float *y;
};

/* The product of matmul_args with operands in bfloat16; sums and C are float32. Strides in numbers. C16
 * instead of C: each number is rounded once; then beta is 0. A backend may round subnormal numbers to 0. */
struct matmul_bf16_args {
    bool trans_a, trans_b;
    size_t M, N, K;
    float alpha;
    const uint16_t *A;
    size_t lda;
    const uint16_t *B;
    size_t ldb;
    float beta;
    float *C;
    uint16_t *C16; /* or NULL */
    size_t ldc;    /* of C or C16 */
};

/* 8-bit weights: 32 consecutive numbers of a row are a group, each scale * q with q an integer in [-127,
 * 127], scale = max |x| / 127 and q = x / scale rounded to nearest, ties to even. In a group with a number
 * that is not finite all numbers become NaN. How a matrix (rows, width) is stored is private to the backend:
 * it is a handle to q8_bytes bytes of backend memory, zero before the first write. */

/* Writes rows [first, first + rows) of the matrix W. */
struct quantize_q8_args {
    size_t rows, width, first;
    const float *x; /* (rows, width) */
    void *W;
};

/* Reads them back: x = scale q, rounded once. */
struct dequantize_q8_args {
    size_t rows, width, first;
    const void *W;
    float *x; /* (rows, width) = */
};

/* C (M, N) = alpha A B^T, B (N, K) the rows from `first` on of an 8-bit matrix. */
struct matmul_q8_args {
    size_t M, N, K, first;
    float alpha;
    const float *A; /* (M, K) */
    size_t lda;
    const void *B;
    bool accumulate; /* C += instead */
    float *C;
    size_t ldc;
};

/* Rows of a matrix by their numbers: y_n = x[index_n]. The embedding of tokens is one (section 3). */
struct gather_args {
    size_t N, width, rows; /* rows of y, and of x             */
    const int32_t *index;  /* (N) each in [0, rows)           */
    const float *x;        /* (rows, width)                   */
    float *y;              /* (N, width) =                    */
};
/* The same from a matrix in bfloat16, and from an 8-bit matrix: y is float32. */
struct gather_bf16_args {
    size_t N, width, rows;
    const int32_t *index;
    const uint16_t *x; /* (rows, width) */
    float *y;
};
struct gather_q8_args {
    size_t N, width, rows, first; /* the rows begin at row `first` of the matrix */
    const int32_t *index;
    const void *x; /* rows of `width` numbers */
    float *y;
};
/* dE[token_n] += dx_n.  Section 3 */
struct embed_grad_args {
    size_t N, d, V;
    const int32_t *tokens; /* (N)        */
    const float *dx;       /* (N, d)     */
    float *dE;             /* (V, d) +=  */
};

/* A ragged batch: the N rows of a pass belong to B sequences, of different lengths, that continue slots of a
 * cache. Rows of a sequence are contiguous, in the order of its tokens. Sequence b is rows [first[b],
 * first[b + 1]); its slot holds past[b] tokens before them. An op that takes a `ragged` batch has B T = N
 * rows too (B = 1, T = N); B = 0: dense sequences of T rows each, all from position 0. The arrays are
 * backend memory. No two sequences of a batch may have the same slot, except for attention, which reads the
 * cache only. What changes from pass to pass with the
 * same numbers of sequences and rows is in the arrays alone. */
struct ddl_ragged {
    size_t B, N;
    size_t max_rows;         /* of a sequence                                              */
    size_t max_span;         /* of the cache: positions of a slot, past + rows at most     */
    size_t slots, histories; /* of the cache: slot[b] < slots, from[b] and to[b] < histories */
    const int32_t *sequence; /* (N) of each row                                            */
    const int32_t *position; /* (N) of each row's token, from 0                            */
    const int32_t *first;    /* (B + 1)                                                    */
    const int32_t *past;     /* (B)                                                        */
    const int32_t *slot;     /* (B) where keys and values are                              */
    const int32_t *from;     /* (B) history that holds the rows before the first           */
    const int32_t *to;       /* (B) history to be written, see history_push; may be from[b] */
};

/* The input state X_0 from embeddings: repeated over the channels (w NULL), or a depthwise causal convolution
 * over tokens, X_t,(i,j) = sum_s w_(ic+j),s x_(t-K+1+s),i.  Section 3 */
struct init_state_args {
    size_t B, T, d, c, K;
    const float *x; /* (B, T, d)                                                       */
    const float *w; /* (d*c, K), last tap on the current token; or NULL: repeat        */
    float *X;       /* (B, T, d, c) =                                                  */
    struct ddl_ragged ragged;
    const float *history; /* ragged: (histories, K-1, d) embeddings before the first token */
};
struct init_state_grad_args {
    size_t B, T, d, c, K;
    const float *x, *w;
    const float *dX; /* (B, T, d, c)  */
    float *dx;       /* (B, T, d) =   */
    float *dw;       /* (d*c, K) +=, NULL where w is */
};

/* The compressor's weights folded into one weight per tap and channel of the state: token: e_s,(i,j) = r_j
 * w_(ic+j),s with as many taps as the kernel; channel: e_0,(i,j) = sum_s w_i,s r_(j-s+(K-1)/2) over 0 <=
 * j-s+(K-1)/2 < c; mix: e_0 = w.  Section 2 */
struct fold_args {
    int kind; /* enum ddl_compress */
    size_t d, c, K;
    const float *w; /* token (d*c, K); channel (d, K); mix (d, c)       */
    const float *r; /* (c), NULL for mix                                */
    float *e;       /* (taps, d*c) =, taps = K for token, 1 otherwise   */
};
struct fold_grad_args {
    int kind;
    size_t d, c, K;
    const float *w, *r;
    const float *de; /* (taps, d*c) */
    float *dw, *dr;  /* +=, shapes of w and r */
};

/* x_in_t,i = sum_s sum_j e_s,(i,j) X_(t-taps+1+s),(i,j), zeros before the sequence.  Section 2 */
struct compress_args {
    size_t B, T, d, c, taps;
    const float *X; /* (B, T, d, c)               */
    const float *e; /* (taps, d*c)                */
    float *x_in;    /* (B, T, d) =                */
    struct ddl_ragged ragged;
    const float *history; /* ragged: (histories, taps-1, d, c) states before the first token */
};
struct compress_grad_args {
    size_t B, T, d, c, taps;
    const float *X, *e;
    const float *dx_in; /* (B, T, d)         */
    float *dX;          /* (B, T, d, c) +=   */
    float *de;          /* (taps, d*c) =     */
};

/* y = x rsqrt(mean(x^2) + eps) w.  Section 5 */
struct rmsnorm_args {
    size_t N, d;
    float eps;
    const float *x; /* (N, d) */
    const float *w; /* (d)    */
    float *y;       /* (N, d) =, may be x; or NULL */
    uint16_t *y16;  /* (N, d) = y, or NULL         */
    uint16_t *x16;  /* (N, d) = x, or NULL         */
    float *rstd;    /* (N) =, or NULL              */
};
struct rmsnorm_grad_args {
    size_t N, d;
    const float *x, *w, *rstd, *dy;
    bool accumulate; /* dx += instead of dx = */
    float *dx;       /* (N, d), may be dy     */
    uint16_t *dx16;  /* (N, d) = dx, or NULL  */
    float *dw;       /* (d) +=                */
};

/* Rotary embedding of the first R dimensions of every head, half-split pairs (i, i + R/2), then RMSNorm over
 * h with one weight for all heads (w NULL: none), eps inside.  Section 6. Dense
 * sequences begin at position 0. */
struct rope_args {
    size_t B, T, H, h, R;
    struct ddl_ragged ragged;
    float eps;
    const float *cos, *sin; /* (positions, R/2)                                          */
    const float *x;         /* (B*T) rows x_stride apart, each H*h                        */
    const uint16_t *x16;    /* in bfloat16 instead: then x is NULL                        */
    size_t x_stride;
    const float *w; /* (h) or NULL                                               */
    float *y;
    uint16_t *y16;   /* with x16, instead of y */
    size_t y_stride; /* rows of y */
};
struct rope_grad_args { /* dense sequences */
    size_t B, T, H, h, R;
    float eps;
    const float *cos, *sin;
    const float *x; /* as forward had it */
    const uint16_t *x16;
    size_t x_stride;
    const float *w;
    const float *dy;
    const uint16_t *dy16; /* with x16, instead of dy */
    size_t dy_stride;
    float *dx;      /* =, may be dy (with its stride)   */
    uint16_t *dx16; /* with x16; may be dy16            */
    size_t dx_stride;
    float *dw; /* (h) +=, NULL where w is */
};

/* y = m_0 v + m_1 first, m = mix, or (1, 1) where mix is NULL: values of attention mixed with those of the
 * first layer. Section 6. */
struct mix_values_args {
    size_t N, width;
    const float *v;      /* (N) rows v_stride apart, each of `width` numbers */
    const uint16_t *v16; /* in bfloat16 instead: then y16 is written */
    size_t v_stride;
    const float *first;      /* (N, width) */
    const uint16_t *first16; /* with v16; or first */
    const float *mix;        /* (2), or NULL */
    float *y;                /* (N) rows =, may be v with its stride */
    uint16_t *y16;           /* may be v16 */
    size_t y_stride;
};
struct mix_values_grad_args {
    size_t N, width;
    const float *v;
    const uint16_t *v16; /* in bfloat16 all three: v, first and dv are NULL then */
    size_t v_stride;
    const float *first;
    const uint16_t *first16;
    const float *mix; /* not NULL */
    float *dv;        /* (N) rows dv_stride apart: dy on entry, then m_0 dy */
    uint16_t *dv16;
    size_t dv_stride;
    bool accumulate; /* dfirst += instead of dfirst = */
    float *dfirst;   /* (N, width) m_1 dy */
    float *dmix;     /* (2) += */
};

/* Causal softmax attention: query t of sequence b attends to keys 0 .. past + t.  Section 6. Head a of a row
 * is at a*h. Ragged: each sequence has its own past, and the keys and values of its slot, k_batch and v_batch
 * from slot to slot, which include those of the queries' own tokens. */
struct attention_args {
    size_t B, T, H, h, past;
    struct ddl_ragged ragged;
    float scale;         /* 1/sqrt(h) */
    const float *q;      /* (B*T) rows q_stride apart                          */
    const uint16_t *q16; /* in bfloat16 instead: then q is NULL */
    size_t q_stride;
    const float *k, *v; /* (past + T) rows k_stride, v_stride apart; sequences k_batch, v_batch apart */
    const uint16_t *k16, *v16; /* in bfloat16 instead: then k and v are NULL */
    size_t k_stride, k_batch, v_stride, v_batch;
    float *y;      /* (B*T, H*h) =                                       */
    uint16_t *y16; /* or rounded: then y is NULL                         */
    float *lse;    /* (B*T, H) = log of the softmax's denominator, or NULL */
};
struct attention_grad_args { /* past 0 */
    size_t B, T, H, h;
    float scale;
    const float *q, *k, *v;
    const uint16_t *q16, *k16, *v16;     /* all in bfloat16 instead, with y16, dq16, dk16 and dv16 */
    size_t q_stride, k_stride, v_stride; /* sequences dense: batch stride = T * stride */
    const float *y;                      /* (B*T, H*h) */
    const uint16_t *y16;
    const float *lse, *dy; /* (B*T, H), (B*T, H*h)  */
    float *dq, *dk, *dv;   /* =                     */
    uint16_t *dq16, *dk16, *dv16;
    size_t dq_stride, dk_stride, dv_stride;
};

/* s = silu(u) (*) g, with u and g in one row: ug row = (u_0 .. u_(m-1), g_0 .. g_(m-1)).  Section 7 */
struct swiglu_args {
    size_t N, m;
    const float *ug;      /* (N, 2m) */
    const uint16_t *ug16; /* in bfloat16 instead: then ug is NULL */
    size_t ug_stride;
    float *s;      /* (N, m) = */
    uint16_t *s16; /* then instead of s */
    size_t s_stride;
};
struct swiglu_grad_args {
    size_t N, m;
    const float *ug; /* (N, 2m) */
    const uint16_t *ug16;
    size_t ug_stride;
    const float *ds; /* (N, m)                    */
    float *dug;      /* (N, 2m) =, rows as far apart as those of ug; may be ug */
    uint16_t *dug16; /* with ug16; may be ug16 */
};

/* y = scale sigmoid(x W^T + b), or x W^T + b without the sigmoid: the gate (c = 1, scale 2) and the target.
 * Section 4 */
struct project_args {
    size_t N, d, c;
    bool sigmoid;
    float scale;
    const float *x; /* (N, d)   */
    const float *W; /* (c, d)   */
    const float *b; /* (c)      */
    float *y;       /* (N, c) = */
};
struct project_grad_args {
    size_t N, d, c;
    bool sigmoid;
    float scale;
    const float *x, *W;
    const float *y;  /* (N, c) as forward gave it */
    const float *dy; /* (N, c)    */
    float *dx;       /* (N, d) += */
    uint16_t *dx16;  /* (N, d) = dx, or NULL */
    float *dW, *db;  /* +=        */
};

/* f times rsqrt(mean(f^2) + eps), in place. Backward has the result; df = rstd (g - f mean(f g)). Section 9
 */
struct f_norm_args {
    size_t N, d;
    float eps;
    float *f;    /* (N, d) in place   */
    float *rstd; /* (N) =, or NULL    */
};
struct f_norm_grad_args {
    size_t N, d;
    const float *f; /* (N, d) the result of forward     */
    const float *rstd;
    float *df;      /* (N, d) the gradient of the result -> that of f, in place */
    uint16_t *df16; /* (N, d) = df, or NULL */
};

/* X += lambda (*) f: lambda one number (w = 1), or one per feature (w = d); 1 where it is NULL (w = 1).
 * Backward takes X back to what it was. Section 9 */
struct scale_args {
    size_t N, d, w;
    const float *f;      /* (N, d) */
    const float *lambda; /* (w), or NULL */
    float *X;            /* (N, d) += */
};
struct scale_grad_args {
    size_t N, d, w;
    const float *f, *lambda;
    const float *G; /* (N, d) gradient of X', which is that of X too */
    float *X;       /* (N, d) X' -> X, or NULL                       */
    float *df;      /* (N, d) = */
    uint16_t *df16; /* in bfloat16 instead: then df is NULL */
    float *dlambda; /* (w) +=; NULL where lambda is */
};

/* out = sum_j w_j X_j over n arrays X_stride apart, each with a weight of its own, w_stride apart; with
 * `accumulate` out += it. out is none of the X_j. Section 9 */
struct weighted_sum_args {
    size_t count, n;
    const float *X; /* n arrays of `count` numbers */
    size_t X_stride;
    const float *w; /* n numbers */
    size_t w_stride;
    bool accumulate;
    float *out;      /* (count) = or += */
    uint16_t *out16; /* (count) = out, or NULL */
};
struct weighted_sum_grad_args { /* of the weights, w_stride 1 */
    size_t count, n;
    const float *X;
    size_t X_stride;
    const float *G; /* (count) gradient of the sum */
    float *dw;      /* (n) +=                      */
};

/* X += beta f, beta a number per row. Backward takes X back to what it was. Section 9 */
struct gated_args {
    size_t N, d;
    const float *f;    /* (N, d) */
    const float *beta; /* (N)    */
    float *X;          /* (N, d) += */
};
struct gated_grad_args {
    size_t N, d;
    const float *f, *beta;
    const float *G; /* (N, d) gradient of X', which is that of X too */
    float *X;       /* (N, d) X' -> X, or NULL                       */
    float *df;      /* (N, d) = */
    uint16_t *df16; /* in bfloat16 instead: then df is NULL */
    float *dbeta;   /* (N) =    */
};

/* tau = sigmoid(z + b), X = (1 - tau) (*) X + tau (*) f, with one tau per row (w = 1) or per row and feature
 * (w = d). Backward keeps X. Section 9 */
struct highway_args {
    size_t N, d, w;
    const float *f; /* (N, d)                  */
    const float *b; /* (w)                     */
    float *tau;     /* (N, w) z on entry, then tau */
    float *X;       /* (N, d) in place         */
};
struct highway_grad_args {
    size_t N, d, w;
    const float *X; /* (N, d) the state before */
    const float *f, *tau;
    const float *G; /* (N, d) gradient of the state after */
    float *dX;      /* (N, d) = ; may be G */
    float *df;      /* (N, d) = */
    uint16_t *df16; /* in bfloat16 instead: then df is NULL */
    float *dz;      /* (N, w) = */
    uint16_t *dz16; /* in bfloat16 instead: then dz is NULL */
    float *db;      /* (w) +=   */
};

/* The state of hyper-connections: (N, n, d), the n <= DDL_MAX_STREAMS streams X_:j of a token one after the
 * other. Its mixing weights, w (N, n (n + 2)): r_j (n), b_k (n), M_kj (n, n), and with F's output f
 *
 *     x_in = sum_j r_j X_:j,   X'_:k = sum_j M_kj X_:j + b_k f.  Section 9 */

/* The weights of projections, times a norm's weight, in the order of the state: rows of up to three matrices,
 * one matrix after the other, Wf_p,(j d + i) = W_p,(i n + j) norm_(i n + j). n = 1: no change of order. */
struct streams_fold_args {
    size_t d, n;
    const float *norm; /* (d n)                                */
    size_t rows[3];    /* of the matrices; 0: none             */
    const float *W[3]; /* (rows, d n)                          */
    float *Wf;         /* (rows[0] + rows[1] + rows[2], n d) = */
};
struct streams_fold_grad_args {
    size_t d, n;
    const float *norm;
    size_t rows[3];
    const float *W[3];
    const float *dWf;
    float *dW[3], *dnorm; /* += */
};

/* y = sum_j X_:j */
struct streams_sum_args {
    size_t N, d, n;
    const float *X; /* (N, n, d) */
    float *y;       /* (N, d) =  */
};

/* X'_:k = sum_j M_kj X_:j + b_k f. Backward: the gradients of f, and of b and M in w; it also recomputes x_in
 * unless that is NULL. */
struct streams_write_args {
    size_t N, d, n;
    const float *X, *w;
    const float *f; /* (N, d)                   */
    float *X_out;   /* (N, n, d) =, may be X    */
};
struct streams_write_grad_args {
    size_t N, d, n;
    const float *X, *w, *f;
    const float *G; /* (N, n, d) gradient of X'                        */
    float *df;      /* (N, d) =                                        */
    uint16_t *df16; /* in bfloat16 instead: then df is NULL */
    float *dw;      /* (N, n (n + 2)) =, of b and M; that of r is left */
    float *x_in;    /* (N, d) =, or NULL                               */
};

/* Hyper-connections: A_j,o (o < n + 1) and b_j from the static weights and, of each stream,
 * t_j = Wf X_:j / sqrt(mean(X_:j^2) + eps): A_j,o = alpha_j,o + a tanh(t_j,o), b_j = beta_j + e
 * tanh(t_j,n+1). In w, r_j = A_j,0 and M_kj = A_j,1+k. Then x_in. Wf NULL: the static weights alone. */
struct hyper_args {
    size_t N, d, n;
    float eps;
    bool identity;             /* M = I instead                                   */
    const float *X;            /* (N, n, d)                                       */
    const float *alpha, *beta; /* (n, n + 1), (n)                                 */
    const float *Wf;           /* (n + 2, d) as streams_fold_fwd has it, or NULL  */
    const float *a, *e;        /* (1) each; NULL where Wf is                      */
    float *t, *rstd;           /* (N, n, n + 2) =, (N, n) =; likewise             */
    float *w;                  /* (N, n (n + 2)) =                                */
    float *x_in;               /* (N, d) =                                        */
};
/* Backward, with identity false: from the gradient of w (without r), that of x_in and that of X' computes
 * that of X, in place, and those of the weights. */
struct hyper_grad_args {
    size_t N, d, n;
    const float *X, *Wf, *a, *e, *t, *rstd, *w;
    const float *dw, *dx_in;
    float *dX;                       /* (N, n, d) G on entry      */
    float *dz;                       /* (N, n, n + 2) = gradient of Wf X_:j; NULL where Wf is */
    float *dalpha, *dbeta, *da, *de; /* +=; da, de NULL where Wf is */
    float *dWf;                      /* (n + 2, d) =; likewise    */
};

/* Manifold-constrained hyper-connections: with t = Wf X / sqrt(mean(X^2) + eps) over all n d numbers of a
 * token, z_p = scale_p t_p + bias_p for p = 0: n rows, 1: n, 2: n n. r = sigmoid(z_0), b = 2 sigmoid(z_1),
 * and M = exp(z_2) after `iterations` times dividing columns, then rows, by their sums. Then x_in. */
struct mhc_args {
    size_t N, d, n, iterations;
    float eps;
    bool identity;         /* M = I instead                       */
    const float *X;        /* (N, n, d)                           */
    const float *Wf;       /* (n (n + 2), n d)                    */
    const float *bias[3];  /* (n), (n), (n n)                     */
    const float *scale[3]; /* (1) each                            */
    float *t, *rstd;       /* (N, n (n + 2)) =, (N) =             */
    float *w;              /* (N, n (n + 2)) =                    */
    float *x_in;           /* (N, d) =                            */
};
/* As hyper_grad_args. */
struct mhc_grad_args {
    size_t N, d, n, iterations;
    const float *X, *Wf, *bias[3], *scale[3], *t, *rstd, *w;
    const float *dw, *dx_in;
    float *dX;
    float *dz;                   /* (N, n (n + 2)) = gradient of Wf X */
    float *dbias[3], *dscale[3]; /* += */
    float *dWf;                  /* =  */
};

/* m = 2 softmax(mix), or (1, 1) where mix is NULL; X = m_0 f + m_1 X and low = m_1 low, in place.
 * Section 9 */
struct laurel_args {
    size_t N, d, r;   /* r 0: no low */
    const float *f;   /* (N, d)      */
    const float *mix; /* (2) or NULL */
    float *low;       /* (N, r) in place */
    uint16_t *low16;  /* (N, r) = low, or NULL */
    float *X;         /* (N, d) in place */
};
/* dmix from G, the gradient of the new X, and dlow, that of the new low; df = m_0 G, dX = m_1 G, dlow = m_1
 * dlow. */
struct laurel_grad_args {
    size_t N, d, r;
    const float *X;   /* (N, d) the state before                  */
    uint16_t *X16;    /* (N, d) = X, or NULL                      */
    const float *f;   /* (N, d)                                   */
    const float *mix; /* (2)                                      */
    const float *low; /* (N, r) as forward left it                */
    const float *G;   /* (N, d)                                   */
    float *dlow;      /* (N, r) in place                          */
    uint16_t *dlow16; /* in bfloat16 instead: then dlow is read; or NULL */
    float *dX;        /* (N, d) = ; may be G                      */
    float *df;        /* (N, d) =                                 */
    uint16_t *df16;   /* in bfloat16 instead: then df is NULL */
    float *dmix;      /* (2) +=                                   */
};

/* Attention over depth: of each row the sources v_i, n finished blocks and the running part, in this order;
 * with r_i = rsqrt(mean(v_i^2) + eps), alpha = softmax_i(r_i v_i . q) and h = sum_i alpha_i v_i.  Section 9
 */
struct depth_args {
    size_t N, d, n;
    float eps;
    const float *blocks; /* n arrays (N, d), `stride` numbers apart */
    size_t stride;
    const float *part; /* (N, d) */
    const float *q;    /* (d)    */
    size_t width;      /* numbers from row to row of alpha, n + 1 or more */
    float *alpha;      /* (N, n + 1) = */
    float *rms;        /* (N, n + 1) = root mean squares of the sources, rows as of alpha; NULL: not wanted */
    float *h;          /* (N, d) =     */
};
/* With g_i = dh . v_i and e_i = alpha_i (g_i - sum_j alpha_j g_j) r_i, the gradient of the score times r_i:
 * dq = sum e_i v_i over rows and sources. source_bwd computes the gradients of the sources. */
struct depth_grad_args {
    struct depth_args fwd; /* without alpha and h */
    const float *dh;       /* (N, d) */
    float *alpha, *e;      /* (N, n + 1) =, rows fwd.width apart */
    float *dq;             /* (d) = */
};
/* The gradient of a source v from the n sums s that read it, each with its q_s, alpha_s, e_s and dh_s: with
 * Q = sum_s e_s q_s and r = rsqrt(mean(v^2) + eps), dv = sum_s alpha_s dh_s + Q - v r^2 mean(v Q). */
struct source_grad_args {
    size_t N, d, n;
    float eps;
    const float *v;         /* (N, d) */
    const float *q;         /* (n, d) */
    const float *alpha, *e; /* n arrays, weights_stride apart, of N numbers, width apart */
    size_t width, weights_stride;
    const float *dh; /* n arrays (N, d), dh_stride apart */
    size_t dh_stride;
    bool accumulate;
    float *dv;      /* (N, d) = or += */
    uint16_t *dv16; /* (N, d) = dv, or NULL */
};

/* y = tanh(x) element by element; dx = dy (1 - y^2). In place allowed. */
struct tanh_args {
    size_t n;
    const float *x;
    float *y;
};
struct tanh_grad_args {
    size_t n;
    const float *y, *dy;
    float *dx;
};

/* The exact GELU, y = x/2 (1 + erf(x/sqrt 2)), element by element. Backward may write dx over dy. */
struct gelu_args {
    size_t n;
    const float *x;
    float *y;
};
struct gelu_grad_args {
    size_t n;
    const float *x, *dy;
    float *dx;
};

/* y_n += b for every row; db += sum_n dy_n. */
struct bias_args {
    size_t N, d;
    const float *b; /* (d)       */
    float *y;       /* (N, d) += */
};
struct bias_grad_args {
    size_t N, d;
    const float *dy; /* (N, d) */
    float *db;       /* (d) += */
};

/* z_n = sum_j a_nj X_n,:j over the value channels; a_nj = 1/c everywhere where w_a is NULL, else
 * a_n = softmax_j(w_a . X_n,:j / sqrt(d)).  Section 11 */
struct pool_args {
    size_t N, d, c;
    const float *X;   /* (N, d, c)   */
    const float *w_a; /* (d) or NULL */
    float *a;         /* (N, c) =, NULL where w_a is */
    float *z;         /* (N, d) =    */
};
struct pool_grad_args {
    size_t N, d, c;
    const float *X, *w_a, *a;
    const float *dz; /* (N, d)       */
    float *dX;       /* (N, d, c) += */
    float *dw_a;     /* (d) +=, NULL where w_a is */
};

/* sum = x_0 + x_1 + ..., in double and in ascending order. */
struct sum_args {
    size_t n;
    const float *x;
    double *sum; /* (1) = */
};

/* Parts of an array of `total` numbers: part i is numbers [begin_i, begin_i + size_i). No two parts overlap.
 * The parts that an optimizer updates are a list like this, so that all of them take one call. */
struct ddl_parts {
    size_t n, total;
    size_t numbers;       /* of all parts; at most `total` */
    const int64_t *begin; /* (n) */
    const int64_t *size;  /* (n), may be 0 */
};

/* sum_s = the squares of the numbers of all parts i with into_i = s, part by part in ascending order; of each
 * part in double, in an order that depends on its size and the backend's thread count alone. */
struct sum_squares_args {
    struct ddl_parts parts;
    const float *x;      /* (total) */
    const int32_t *into; /* (n) each in [0, sums), or NULL: all 0 */
    size_t sums;
    double *sum; /* (sums) = */
};

/* x = value, n times */
struct fill_args {
    size_t n;
    float value;
    float *x;
};

/* loss_n = log sum_j exp(z_nj) - z_n,target; rows whose target is -1 give 0. If grad: z becomes
 * grad_scale (softmax(z) - onehot(target)), zero rows where ignored.  Section 8 */
struct cross_entropy_args {
    size_t N, V;
    float *z;               /* (N, V) logits */
    const int32_t *targets; /* (N)           */
    bool grad;
    const float *grad_scale; /* (1), NULL without grad */
    float *loss;             /* (N) =         */
};

/* Cross-entropy of logits that exist a tile of columns at a time: columns [first, first + n) of all rows.
 * The tiles in turn give, for each row, top = max_j z_j, total = sum_j exp(z_j - top) and at_target so far;
 * the last one (loss not NULL) gives the losses. `first` 0 initializes them. */
struct loss_tile_args {
    size_t N, n, first;
    const float *z;                /* (N, n)                                       */
    const int32_t *targets;        /* (N); -1: ignored, loss 0                      */
    float *top, *at_target, *loss; /* (N) from tile to tile; loss (N) = or NULL     */
    double *total;                 /* (N)                                          */
};
/* The gradient of a tile after all of them: dz = grad_scale (exp(z - top) / total - onehot(target)), rounded
 * to bfloat16; zero rows where ignored. */
struct loss_grad_args {
    size_t N, n, first;
    const float *z;
    const int32_t *targets;
    const float *top;
    const double *total;
    const float *grad_scale; /* (1)      */
    uint16_t *dz;            /* (N, n) = */
};

/* The place of each row's target among its logits. rank = number of j with z_j > z_target, or z_j = z_target
 * and j < target: 0 if the target is the (first) largest. entropy = -sum_j p_j log p_j in nats with p =
 * softmax(z). */
struct rank_args {
    size_t N, V;
    const float *z;         /* (N, V) finite logits                             */
    const int32_t *targets; /* (N); -1: ignored, rank -1                       */
    int32_t *rank;          /* (N) =                                           */
    float *entropy;         /* (N) = of every row, also where ignored; or NULL */
};

/* The k likeliest ids of each row, the lowest first among equals, with their log-probabilities in nats, log
 * softmax(z). NaN is never among them; where a row has fewer than k others: id -1, log-probability 0. */
struct likeliest_args {
    size_t N, V, k;
    const float *z; /* (N, V) logits */
    int32_t *id;    /* (N, k) =      */
    float *logprob; /* (N, k) =      */
};

/* The next token of each row. First, logits of a row change: z = (z > 0 ? z / repeat : z repeat) + shift; at
 * the end all have their old values again. The weight of an id below n whose logit is finite is exp((z - max
 * z) / temperature), in float32, rounded to a multiple of DDL_WEIGHT_UNIT; sums of weights are exact. Of the
 * top_k likeliest ids (0: all; the lowest first among equals), of these the fewest whose weights reach top_p
 * of their sum (1: all), and of these those with a weight of at least min_p, it is the one at share u of the
 * sum in the order of ids. With temperature 0 it is the likeliest id. -1 where no logit is finite. */
#define DDL_WEIGHT_UNIT 0x1p-30f
struct choose_args {
    size_t N, V, n, changes;    /* n <= V                                            */
    float *z;                   /* (N, V) logits                                     */
    const int32_t *changed;     /* (N, changes) different ids in a row; -1: none     */
    const float *repeat;        /* (N, changes)                                      */
    const float *shift;         /* (N, changes)                                      */
    float *before;              /* (N, changes) = the old logits, 0 for none         */
    const float *temperature;   /* (N) negative: the row's id does not change       */
    const int32_t *top_k;       /* (N)                                              */
    const float *top_p, *min_p; /* (N)                                            */
    const double *u;            /* (N) in [0, 1)                                  */
    int32_t *id;                /* (N) = but for negative temperatures            */
};

/* What clipping multiplies a gradient with by: factor = min(1, clip / (norm + 1e-6)) with norm = sqrt(square)
 * the global norm, 1 where clip is 0; computed in double. NaN, with which adamw changes nothing, unless the
 * square and all n losses are finite.  Section 10 */
struct clip_args {
    float clip;
    size_t n;
    const double *losses; /* (n) */
    const double *square; /* (1) */
    float *factor;        /* (1) = */
};

/* One AdamW step on the parts of a parameter array, as PyTorch (section 10). g is multiplied by g_scale
 * (clipping) first; where that is NaN, nothing changes. */
enum { DDL_RATES = 3 };
struct adamw_args {
    struct ddl_parts parts;    /* of p and g */
    const int64_t *moments;    /* (n) where the moments of each part begin in m and v */
    const int64_t *copy;       /* (n) where its copy begins in p16, -1: it has none; NULL where p16 is */
    const float *lr_scale;     /* (n) the learning rate of a part is lr lr_scale, rounded to float32 */
    const float *weight_decay; /* (n) */
    float *p;                  /* (total) */
    size_t copies;             /* numbers of p16, all of which parts have */
    uint16_t *p16;             /* = the new p rounded to bfloat16, or NULL */
    const float *g;            /* (total) */
    size_t n_moments;
    float *m, *v;         /* (n_moments) */
    const float *g_scale; /* (1) */
    const double *rates;  /* (DDL_RATES) lr; the float32 numbers 1 - beta1^t and 1 - beta2^t */
    float beta1, beta2, eps;
};

/* dst = src for `batch` matrices of rows x width numbers. Strides in numbers, from row to row and from matrix
 * to matrix. Rows of a matrix are copied in ascending order, so that dst may overlap src in the same matrix
 * if dst begins before src. */
struct copy_args {
    size_t rows, width;
    const float *src;
    const uint16_t *src16; /* in bfloat16 both instead: src and dst are NULL then */
    size_t src_stride;
    float *dst;
    uint16_t *dst16;
    size_t dst_stride;
    size_t batch; /* 0: one matrix */
    size_t src_batch, dst_batch;
};
/* The same of float32 numbers, with each rounded as cast_bf16 does. No overlap. */
struct copy_bf16_args {
    size_t rows, width;
    const float *src;
    size_t src_stride;
    uint16_t *dst;
    size_t dst_stride;
    size_t batch;
    size_t src_batch, dst_batch;
};

/* Writes rows of a ragged batch to their positions in a cache, each in one of two formats: float32 numbers
 * are rounded to bfloat16 as cast_bf16 does. */
struct cache_append_args {
    struct ddl_ragged ragged;
    size_t width;
    const float *src;      /* (N) rows src_stride apart */
    const uint16_t *src16; /* then src is NULL */
    size_t src_stride;
    float *dst;      /* slots slot_stride apart, (positions, width) each; NULL: dst16 */
    uint16_t *dst16; /* the same in bfloat16 */
    size_t slot_stride;
};

/* A history holds the last `keep` rows of a sequence, row keep-1 the latest; rows before position 0 may hold
 * anything and are never read. Writes history to[b] of every sequence: what remains of from[b] after its new
 * rows. */
struct history_push_args {
    struct ddl_ragged ragged;
    size_t keep, width;
    const float *X; /* (N, width)                */
    float *history; /* (histories, keep, width) */
};

#endif
