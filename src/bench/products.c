/* The matrix products of a step: recorded while the step runs, then repeated back to back on the same
 * operands. Attention's products are part of its op; where the backend can run them alone they are included.
 */
#include "bench/bench.h"
#include "ops/operands.h"

#include <stdlib.h>

struct call {
    int op; /* enum ddl_op */
    union ddl_op_args args;
};
struct bench_products {
    ddl_backend *backend;
    struct call *call;
    size_t n, capacity;
    bool failed; /* memory ran out while recording */
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
    return !products->failed;
}

static struct call *next(struct bench_products *products, int op)
{
    if (products->n == products->capacity) {
        size_t capacity = products->capacity ? 2 * products->capacity : 256;
        struct call *grown = realloc(products->call, capacity * sizeof *grown);
        if (!grown) {
            products->failed = true;
            return NULL;
        }
        products->call = grown;
        products->capacity = capacity;
    }
    struct call *call = &products->call[products->n++];
    call->op = op;
    return call;
}

/* op, type of its arguments, member of ddl_ops that computes its products: the ops whose calls are kept. */
#define KEPT(KEEP)                                                                                           \
    KEEP(matmul, matmul_args, matmul)                                                                        \
    KEEP(matmul_bf16, matmul_bf16_args, matmul_bf16)                                                         \
    KEEP(attention_fwd, attention_args, attention_products_fwd)                                              \
    KEEP(attention_bwd, attention_grad_args, attention_products_bwd)

void bench_products_note(void *user, int op, const void *args)
{
    struct bench_products *products = user;
    struct call *call;
    switch (op) {
#define KEEP(name, type, member)                                                                             \
    case DDL_OP_##name:                                                                                      \
        if (products->backend->ops->member && (call = next(products, op)))                                   \
            call->args.name = *(const struct type *)args;                                                    \
        break;
        KEPT(KEEP)
#undef KEEP
    default:
        break;
    }
}

void bench_products_run(void *user)
{
    const struct bench_products *products = user;
    const struct ddl_ops *ops = products->backend->ops;
    void *ctx = products->backend->ctx;
    for (size_t i = 0; i < products->n; i++) {
        const struct call *call = &products->call[i];
        switch (call->op) {
#define RUN(name, type, member)                                                                              \
    case DDL_OP_##name:                                                                                      \
        ops->member(ctx, &call->args.name);                                                                  \
        break;
            KEPT(RUN)
#undef RUN
        default:
            break;
        }
    }
    ops->synchronize(ctx);
}

double bench_products_flops(const struct bench_products *products)
{
    double sum = 0;
    for (size_t i = 0; i < products->n; i++) {
        struct ddl_op_use use;
        ddl_op_describe((enum ddl_op)products->call[i].op, &products->call[i].args, &use);
        sum += use.flops;
    }
    return sum;
}
