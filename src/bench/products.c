/* The matrix products of a step: noted as the step calls them, then made again, back to back, on the operands
 * where they stand. Attention's block products are part of its op, which is told to do nothing else. */
#include "bench/bench.h"
#include "bench/profile.h"

#include <stdlib.h>

struct call {
    int op; /* of profile.h */
    union bench_args args;
};
struct bench_products {
    ddl_backend *backend;
    struct call *call;
    size_t n, room;
    bool lost;
};

ddl_status bench_products_create(struct bench_products **out, ddl_backend *backend, struct ddl_error *err)
{
    struct bench_products *products = calloc(1, sizeof *products);
    *out = products;
    if (!products)
        return ddl_error_set(err, DDL_E_MEMORY, "bench: out of memory");
    products->backend = backend;
    return DDL_OK;
}

void bench_products_free(struct bench_products *products)
{
    if (products)
        free(products->call);
    free(products);
}

bool bench_products_complete(const struct bench_products *products)
{
    return !products->lost;
}

static struct call *next(struct bench_products *products, int op)
{
    if (products->n == products->room) {
        size_t room = products->room ? 2 * products->room : 256;
        struct call *grown = realloc(products->call, room * sizeof *grown);
        if (!grown) {
            products->lost = true;
            return NULL;
        }
        products->call = grown;
        products->room = room;
    }
    struct call *call = &products->call[products->n++];
    call->op = op;
    return call;
}

/* op, member, type: those whose calls are kept. */
#define KEPT(KEEP)                                                                                           \
    KEEP(matmul, matmul_args)                                                                                \
    KEEP(matmul_bf16, matmul_bf16_args)                                                                      \
    KEEP(attention_fwd, attention_args)                                                                      \
    KEEP(attention_bwd, attention_grad_args)

void bench_products_note(void *user, int op, const void *args)
{
    struct call *call;
    switch (op) {
#define KEEP(name, type)                                                                                     \
    case DDL_PROFILE_##name:                                                                                 \
        if ((call = next(user, op)))                                                                         \
            call->args.name = *(const struct type *)args;                                                    \
        break;
        KEPT(KEEP)
#undef KEEP
    default:
        break;
    }
    if (op == DDL_PROFILE_attention_fwd && !((struct bench_products *)user)->lost)
        call->args.attention_fwd.products_only = true;
    if (op == DDL_PROFILE_attention_bwd && !((struct bench_products *)user)->lost)
        call->args.attention_bwd.products_only = true;
}

void bench_products_run(void *user)
{
    const struct bench_products *products = user;
    const struct ddl_ops *ops = products->backend->ops;
    void *ctx = products->backend->ctx;
    for (size_t i = 0; i < products->n; i++) {
        const struct call *call = &products->call[i];
        switch (call->op) {
#define RUN(name, type)                                                                                      \
    case DDL_PROFILE_##name:                                                                                 \
        ops->name(ctx, &call->args.name);                                                                    \
        break;
            KEPT(RUN)
#undef RUN
        default:
            break;
        }
    }
}

static double operations(const struct call *call)
{
    const union bench_args *a = &call->args;
    double pairs;
    switch (call->op) {
    case DDL_PROFILE_matmul:
        return 2 * (double)a->matmul.M * (double)a->matmul.N * (double)a->matmul.K;
    case DDL_PROFILE_matmul_bf16:
        return 2 * (double)a->matmul_bf16.M * (double)a->matmul_bf16.N * (double)a->matmul_bf16.K;
    case DDL_PROFILE_attention_fwd:
        pairs = (double)a->attention_fwd.T * (double)(a->attention_fwd.T + 1) / 2;
        return 4 * pairs * (double)(a->attention_fwd.B * a->attention_fwd.H * a->attention_fwd.h);
    default:
        pairs = (double)a->attention_bwd.T * (double)(a->attention_bwd.T + 1) / 2;
        return 10 * pairs * (double)(a->attention_bwd.B * a->attention_bwd.H * a->attention_bwd.h);
    }
}

double bench_products_flops(const struct bench_products *products)
{
    double sum = 0;
    for (size_t i = 0; i < products->n; i++)
        sum += operations(&products->call[i]);
    return sum;
}
