/* Cases of ops on the state: embedding, expansion, compressor, the delta rule. */
#include "bench/cases.h"

void make_embed_fwd(struct bench_case *k, const struct bench_sizes *s)
{
    k->args.embed_fwd = (struct embed_args){ .N = s->N, .d = s->d };
    IN(embed_args, tokens, s->N, TOKENS);
    bench_add(k, AT(embed_args, E), s->V * s->d, BENCH_NORMAL, BENCH_GATHER);
    OUT(embed_args, x, s->N * s->d);
    k->bytes = (double)(s->N * s->d * sizeof(float));
}
void make_embed_bf16_fwd(struct bench_case *k, const struct bench_sizes *s)
{
    k->args.embed_bf16_fwd = (struct embed_bf16_args){ .N = s->N, .d = s->d };
    IN(embed_bf16_args, tokens, s->N, TOKENS);
    bench_add(k, AT(embed_bf16_args, E), s->V * s->d, BENCH_BF16, BENCH_GATHER);
    OUT(embed_bf16_args, x, s->N * s->d);
    k->bytes = (double)(s->N * s->d * sizeof(float));
}
void make_embed_q8_fwd(struct bench_case *k, const struct bench_sizes *s)
{
    k->args.embed_q8_fwd = (struct embed_q8_args){ .N = s->N, .d = s->d };
    IN(embed_q8_args, tokens, s->N, TOKENS);
    k->buffer[bench_add(k, AT(embed_q8_args, E), s->V * s->d, BENCH_Q8, BENCH_GATHER)].width = s->d;
    OUT(embed_q8_args, x, s->N * s->d);
    k->bytes = (double)(s->N * s->d * sizeof(float));
}
void make_embed_bwd(struct bench_case *k, const struct bench_sizes *s)
{
    k->args.embed_bwd = (struct embed_grad_args){ .N = s->N, .d = s->d };
    IN(embed_grad_args, tokens, s->N, TOKENS);
    IN(embed_grad_args, dx, s->N * s->d, NORMAL);
    bench_add(k, AT(embed_grad_args, dE), s->V * s->d, BENCH_NORMAL, BENCH_OUT | BENCH_GATHER);
    k->bytes = 2 * (double)(s->N * s->d * sizeof(float));
}

void make_init_state_fwd(struct bench_case *k, const struct bench_sizes *s)
{
    size_t dc = s->d * s->c;
    k->args.init_state_fwd =
        (struct init_state_args){ .B = s->B, .T = s->T, .d = s->d, .c = s->c, .K = s->K_embed };
    IN(init_state_args, x, s->N * s->d, NORMAL);
    IN(init_state_args, w, dc * s->K_embed, NORMAL);
    OUT(init_state_args, X, s->N * dc);
    k->flops = 2 * (double)(s->N * dc * s->K_embed);
}
void make_init_state_bwd(struct bench_case *k, const struct bench_sizes *s)
{
    size_t dc = s->d * s->c;
    k->args.init_state_bwd =
        (struct init_state_grad_args){ .B = s->B, .T = s->T, .d = s->d, .c = s->c, .K = s->K_embed };
    IN(init_state_grad_args, x, s->N * s->d, NORMAL);
    IN(init_state_grad_args, w, dc * s->K_embed, NORMAL);
    IN(init_state_grad_args, dX, s->N * dc, NORMAL);
    OUT(init_state_grad_args, dx, s->N * s->d);
    INOUT(init_state_grad_args, dw, dc * s->K_embed);
    k->flops = 4 * (double)(s->N * dc * s->K_embed);
}

static size_t compressor_numbers(const struct bench_sizes *s)
{
    return s->kind == DDL_COMPRESS_CHANNEL ? s->d * s->K : s->d * s->c * s->taps;
}
void make_fold_fwd(struct bench_case *k, const struct bench_sizes *s)
{
    k->args.fold_fwd = (struct fold_args){ .kind = s->kind, .d = s->d, .c = s->c, .K = s->K };
    IN(fold_args, w, compressor_numbers(s), NORMAL);
    if (s->kind != DDL_COMPRESS_MIX)
        IN(fold_args, r, s->c, NORMAL);
    OUT(fold_args, e, s->taps * s->d * s->c);
}
void make_fold_bwd(struct bench_case *k, const struct bench_sizes *s)
{
    k->args.fold_bwd = (struct fold_grad_args){ .kind = s->kind, .d = s->d, .c = s->c, .K = s->K };
    IN(fold_grad_args, w, compressor_numbers(s), NORMAL);
    if (s->kind != DDL_COMPRESS_MIX)
        IN(fold_grad_args, r, s->c, NORMAL);
    IN(fold_grad_args, de, s->taps * s->d * s->c, NORMAL);
    INOUT(fold_grad_args, dw, compressor_numbers(s));
    if (s->kind != DDL_COMPRESS_MIX)
        INOUT(fold_grad_args, dr, s->c);
}

void make_compress_fwd(struct bench_case *k, const struct bench_sizes *s)
{
    size_t dc = s->d * s->c;
    k->args.compress_fwd =
        (struct compress_args){ .B = s->B, .T = s->T, .d = s->d, .c = s->c, .taps = s->taps };
    IN(compress_args, X, s->N * dc, NORMAL);
    IN(compress_args, e, s->taps * dc, NORMAL);
    OUT(compress_args, x_in, s->N * s->d);
    k->flops = 2 * (double)(s->N * dc * s->taps);
}
void make_compress_bwd(struct bench_case *k, const struct bench_sizes *s)
{
    size_t dc = s->d * s->c;
    k->args.compress_bwd =
        (struct compress_grad_args){ .B = s->B, .T = s->T, .d = s->d, .c = s->c, .taps = s->taps };
    IN(compress_grad_args, X, s->N * dc, NORMAL);
    IN(compress_grad_args, e, s->taps * dc, NORMAL);
    IN(compress_grad_args, dx_in, s->N * s->d, NORMAL);
    INOUT(compress_grad_args, dX, s->N * dc);
    OUT(compress_grad_args, de, s->taps * dc);
    k->flops = 4 * (double)(s->N * dc * s->taps);
}

void make_pool_fwd(struct bench_case *k, const struct bench_sizes *s)
{
    k->args.pool_fwd = (struct pool_args){ .N = s->N, .d = s->d, .c = s->c };
    IN(pool_args, X, s->N * s->d * s->c, NORMAL);
    IN(pool_args, w_a, s->d, NORMAL);
    OUT(pool_args, a, s->N * s->c);
    OUT(pool_args, z, s->N * s->d);
}
void make_pool_bwd(struct bench_case *k, const struct bench_sizes *s)
{
    k->args.pool_bwd = (struct pool_grad_args){ .N = s->N, .d = s->d, .c = s->c };
    IN(pool_grad_args, X, s->N * s->d * s->c, NORMAL);
    IN(pool_grad_args, w_a, s->d, NORMAL);
    IN(pool_grad_args, a, s->N * s->c, WEIGHT);
    IN(pool_grad_args, dz, s->N * s->d, NORMAL);
    INOUT(pool_grad_args, dX, s->N * s->d * s->c);
    INOUT(pool_grad_args, dw_a, s->d);
}

/* In place, as the model does it: X' over X, and backwards X over X', dX over G. */
void make_delta_fwd(struct bench_case *k, const struct bench_sizes *s)
{
    size_t Ndc = s->N * s->d * s->c;
    k->args.delta_fwd = (struct ddl_delta_args){ .N = s->N, .d = s->d, .c = s->c, .eps = 1e-5f };
    int X = IN(ddl_delta_args, X, Ndc, NORMAL);
    IN(ddl_delta_args, q, s->N * s->d, NORMAL);
    IN(ddl_delta_args, v, s->N * s->c, NORMAL);
    IN(ddl_delta_args, beta, s->N, GATE);
    bench_add_alias(k, AT(ddl_delta_args, X_out), X, BENCH_OUT);
    OUT(ddl_delta_args, readout, s->N * s->c);
    k->flops = 4 * (double)Ndc;
}
/* Backward rebuilds X from what forward gave: X' and its readout. */
static void delta_once(const ddl_backend *backend, const union bench_args *args)
{
    const struct ddl_delta_grad_args *a = &args->delta_bwd;
    backend->ops->delta_fwd(backend->ctx,
                            &(struct ddl_delta_args){ .N = a->N,
                                                      .d = a->d,
                                                      .c = a->c,
                                                      .eps = a->eps,
                                                      .X = a->X_next,
                                                      .q = a->q,
                                                      .v = a->v,
                                                      .beta = a->beta,
                                                      .X_out = a->X_next,
                                                      .readout = (float *)(uintptr_t)a->readout });
}
void make_delta_bwd(struct bench_case *k, const struct bench_sizes *s)
{
    size_t Ndc = s->N * s->d * s->c;
    k->args.delta_bwd = (struct ddl_delta_grad_args){ .N = s->N, .d = s->d, .c = s->c, .eps = 1e-5f };
    INOUT(ddl_delta_grad_args, X_next, Ndc);
    IN(ddl_delta_grad_args, q, s->N * s->d, NORMAL);
    IN(ddl_delta_grad_args, v, s->N * s->c, NORMAL);
    IN(ddl_delta_grad_args, beta, s->N, GATE);
    IN(ddl_delta_grad_args, readout, s->N * s->c, NORMAL);
    int G = IN(ddl_delta_grad_args, G, Ndc, NORMAL);
    bench_add_alias(k, AT(ddl_delta_grad_args, dX), G, BENCH_OUT);
    OUT(ddl_delta_grad_args, dq, s->N * s->d);
    OUT(ddl_delta_grad_args, dv, s->N * s->c);
    OUT(ddl_delta_grad_args, dbeta, s->N);
    k->prepare = delta_once;
    k->flops = 12 * (double)Ndc;
}
void make_delta_inverse(struct bench_case *k, const struct bench_sizes *s)
{
    size_t Ndc = s->N * s->d * s->c;
    k->args.delta_inverse = (struct ddl_delta_inverse_args){ .N = s->N, .d = s->d, .c = s->c, .eps = 1e-5f };
    IN(ddl_delta_inverse_args, X_out, Ndc, NORMAL);
    IN(ddl_delta_inverse_args, q, s->N * s->d, NORMAL);
    IN(ddl_delta_inverse_args, v, s->N * s->c, NORMAL);
    IN(ddl_delta_inverse_args, beta, s->N, GATE);
    IN(ddl_delta_inverse_args, readout, s->N * s->c, NORMAL);
    OUT(ddl_delta_inverse_args, X, Ndc);
    k->flops = 2 * (double)Ndc;
}
void make_elementwise_fwd(struct bench_case *k, const struct bench_sizes *s)
{
    size_t Nd = s->N * s->d;
    k->args.elementwise_fwd = (struct ddl_elementwise_args){ .N = s->N, .d = s->d, .eps = 1e-5f };
    IN(ddl_elementwise_args, x, Nd, NORMAL);
    IN(ddl_elementwise_args, q, Nd, NORMAL);
    IN(ddl_elementwise_args, v, Nd, NORMAL);
    IN(ddl_elementwise_args, beta, s->N, GATE);
    OUT(ddl_elementwise_args, x_out, Nd);
}
void make_elementwise_bwd(struct bench_case *k, const struct bench_sizes *s)
{
    size_t Nd = s->N * s->d;
    k->args.elementwise_bwd = (struct ddl_elementwise_grad_args){ .N = s->N, .d = s->d, .eps = 1e-5f };
    IN(ddl_elementwise_grad_args, x, Nd, NORMAL);
    IN(ddl_elementwise_grad_args, q, Nd, NORMAL);
    IN(ddl_elementwise_grad_args, v, Nd, NORMAL);
    IN(ddl_elementwise_grad_args, beta, s->N, GATE);
    IN(ddl_elementwise_grad_args, G, Nd, NORMAL);
    OUT(ddl_elementwise_grad_args, dx, Nd);
    OUT(ddl_elementwise_grad_args, dq, Nd);
    OUT(ddl_elementwise_grad_args, dv, Nd);
    OUT(ddl_elementwise_grad_args, dbeta, s->N);
}
