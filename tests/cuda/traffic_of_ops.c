/* What the kernels of each op of the CUDA backend move, counted by a stand-in for the driver (traffic.h),
 * relative to what the op's row says is needed; how much of each sector is used; bank conflicts. Prints a
 * table, and fails if an op exceeds its budget. */
#include "traffic.h"

#include "ddl/backend.h"
#include "ops/cases.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* Budgets of the ops that cannot keep the usual one, by the start of the case's name. A product reads an
 * operand once for each tile of the other. */
static const struct budget {
    const char *op;
    double bytes; /* at most this many times what is needed */
    double used;  /* at least this share of the bytes of sectors */
    const char *why;
} usual = { "", 1.05, 0.9, NULL }, budgets[] = {
    { "matmul_q8", 13, 0.9, "a block reads all numbers of eight rows, and weights have a byte" },
    { "matmul", 4.1, 0.9, "a block reads all numbers of eight rows" },
    { "quantize_q8", 1.05, 0.35, "groups of four bytes of a row are 64 bytes apart" },
    { "dequantize_q8", 1.05, 0.35, "likewise" },
    { "gather_q8", 1.05, 0.35, "likewise" },
    { "cross_entropy", 1.55, 0.9, "logits are read again for the gradient" },
    { "loss_grad", 1.05, 0.8, "each warp reads a few numbers of its row" },
    { "rank", 2.05, 0.9, "logits are read again for the entropy" },
    { "likeliest", 6.2, 0.9, "logits are read again for each id, from the cache" },
    { "choose", 6.1, 0.9, "logits are read again for each part of the bits of the keys, from the cache" },
    { "clip", 1.05, 0.25, "a few numbers" },
    { "adamw", 1.05, 0.7, "the parts of trials have odd sizes and begin anywhere" },
    { "sum_squares", 1.05, 0.7, "likewise" },
    { "attention_", 3.6, 0.9, "keys and values are read again for each tile of queries" },
    { "cache_append", 1.05, 0.6, "a sequence has few rows, and their numbers are indices" },
    { "history_push", 1.05, 0.85, "likewise" },
    { "delta_bwd", 1.05, 0.85, "a token has few numbers of gate, target and readout" },
    { "fold_", 1.05, 0.2, "a few parameters, in another order" },
    { "compress_fwd", 3.5, 0.9, "a block reads the states of earlier taps again, from the cache" },
    { "compress_bwd", 2.3, 0.9, "likewise the gradients of later taps" },
    { "init_state_", 6.3, 0.2, "once a pass: a feature's embedding is read for each channel and tap" },
    { "project_bwd", 1.1, 0.9, "partial sums of a few rows" },
    { "elementwise_", 1.9, 0.9, "rows are read again, from the cache" },
    { "embed_bwd", 1.05, 0.85, "a token has a few rows anywhere" },
    { "streams_fold_", 1.05, 0.3, "parameters, in another order" },
    { "streams_write_", 1.05, 0.85, "a token has few weights" },
    { "depth_bwd", 2.6, 0.9, "the sources of a row are read again, from the cache" },
    { "hyper_bwd", 1.15, 0.9, "partial sums of a few rows" },
    { "mhc_fwd", 1.8, 0.9, "streams are read for the products, and for the result" },
    { "mhc_bwd", 2.6, 0.9, "likewise, and partial sums of a few rows" },
    { "pool_", 2.1, 0.9, "a state is read for its scores, then for the result" },
    { NULL, 0, 0, NULL },
};

static const struct budget *budget_of(const char *name)
{
    for (const struct budget *b = budgets; b->op; b++) {
        if (strncmp(name, b->op, strlen(b->op)) == 0)
            return b;
    }
    return &usual;
}

/* As in a model of width 256: rows are whole vectors. */
static const struct ddl_trial_sequence sequences[] = { { 17, 8 }, { 0, 24 }, { 40, 1 } };
static const struct ddl_op_sizes sizes = { .B = 2,
                                           .T = 256,
                                           .d = 256,
                                           .c = 4,
                                           .n = 4,
                                           .H = 4,
                                           .h = 64,
                                           .R = 64,
                                           .m = 512,
                                           .V = 1024,
                                           .K = 4,
                                           .K_embed = 4,
                                           .rows = 64,
                                           .tile = 512,
                                           .iterations = 20,
                                           .steps = 1,
                                           .rank = 16,
                                           .states = 4,
                                           .kind = DDL_COMPRESS_TOKEN,
                                           .n_sequences = sizeof sequences / sizeof *sequences,
                                           .sequences = sequences };

/* Counts one call; false on failure. */
static bool measure(const struct ddl_op_case *k, ddl_backend *backend, cuda_traffic_take take,
                    cuda_traffic_share share)
{
    union ddl_op_args args;
    struct ddl_trial_plan plan;
    struct ddl_trial trial;
    struct ddl_error err = { 0 };
    struct cuda_traffic t;
    char name[64];
    ddl_op_case_name(k, name, sizeof name);
    ddl_op_case_plan(k, &sizes, &args, &plan);
    plan.shared = k->in_place;
    ddl_status status = ddl_trial_make(&trial, backend, &plan, &err);
    if (!status) {
        backend->ops->synchronize(backend->ctx);
        take(&t);
        for (size_t i = 0; i < trial.use.n; i++) {
            const struct ddl_operand *operand = &trial.use.operand[i];
            if (operand->access == DDL_READ && operand->item_stride == 0)
                share(ddl_operand_get(operand, &trial.args), ddl_operand_bytes(operand, backend));
        }
        ddl_trial_call(&trial);
        backend->ops->synchronize(backend->ctx);
        take(&t);
        status = backend->ops->check_error(backend->ctx, &err);
    }
    bool passed = false;
    if (status) {
        printf("%s: %s\n", name, err.text);
    } else {
        const struct budget *b = budget_of(name);
        double needed = ddl_op_traffic(&trial.use, &trial.args, backend);
        double moved = (double)(t.read + t.written);
        double used = t.sectors ? (double)t.used / (32 * (double)t.sectors) : 1;
        passed = moved <= b->bytes * needed && used >= b->used;
        printf("%-28s %12.0f %12.0f %6.2f %6.2f %10.0f %10.0f  %s%s%s\n", name, needed, moved, moved / needed,
               used, (double)t.passes, (double)(t.passes - t.fewest), passed ? "" : "OVER BUDGET",
               b->why ? " " : "", b->why ? b->why : "");
    }
    ddl_trial_free(&trial);
    return passed;
}

int main(void)
{
    ddl_backend *backend;
    struct ddl_error err;
    if (ddl_backend_create(&backend, "cuda", 0, &err)) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    cuda_traffic_take take = NULL;
    cuda_traffic_share share = NULL;
    if (driver) {
        *(void **)&take = dlsym(driver, CUDA_TRAFFIC_TAKE);
        *(void **)&share = dlsym(driver, CUDA_TRAFFIC_SHARE);
    }
    const struct ddl_limits limits = ddl_op_limits(&sizes);
    if (!take || !share || backend->ops->reserve(backend->ctx, &limits, &err)) {
        fprintf(stderr, "the driver does not count\n");
        return 1;
    }
    size_t n, over = 0;
    const struct ddl_op_case *cases = ddl_op_cases(&n);
    printf("%-28s %12s %12s %6s %6s %10s %10s\n", "op", "needed", "moved", "ratio", "used", "passes",
           "conflicts");
    for (size_t i = 0; i < n; i++) {
        if (!cases[i].check_only && ddl_op_is_there(cases[i].op, backend->ops))
            over += !measure(&cases[i], backend, take, share);
    }
    ddl_backend_free(backend);
    dlclose(driver);
    return over > 0;
}
