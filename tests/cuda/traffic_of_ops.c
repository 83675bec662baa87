/* What the kernels of each op of the CUDA backend move, counted by a stand-in for the driver (traffic.h),
 * relative to what the op's row says is needed; how much of each sector is used; bank conflicts. The same of
 * kernels that compute several ops. Prints a table, and fails if an op exceeds its budget, or moves much less
 * than is needed: it was not counted. */
#include "traffic.h"

#include "ddl/backend.h"
#include "ops/cases.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* Budgets of the ops that cannot keep the usual one, by the start of the name. */
static const struct budget {
    const char *op;
    double bytes; /* at most this many times what is needed */
    double used;  /* at least this share of the bytes of sectors */
    const char *why;
    double least; /* at least this many times what is needed; 0: as usual. What is written in part counts as
                     read and written */
} usual = { "", 1.05, 0.9, NULL, 0.75 }, budgets[] = {
    { "matmul_q8", 13, 0.9, "a block reads all numbers of eight rows, and weights have a byte" },
    { "matmul.head.fwd", 3.6, 0.9, "a block reads all numbers of eight rows" },
    { "matmul.fc.one", 1.1, 0.9, "likewise" },
    { "matmul_bf16.fc.one", 1.1, 0.9, "likewise" },
    { "matmul", 1.75, 0.4, "an operand is read for each tile of the other, numbers are written one by one" },
    { "quantize_q8", 1.05, 0.35, "groups of four bytes of a row are 64 bytes apart" },
    { "dequantize_q8", 1.05, 0.35, "likewise" },
    { "gather_q8", 1.05, 0.35, "likewise" },
    { "cross_entropy", 1.55, 0.9, "logits are read again for the gradient" },
    { "loss_grad", 1.05, 0.8, "each warp reads a few numbers of its row" },
    { "rank", 2.05, 0.9, "logits are read again for the entropy" },
    { "likeliest", 6.2, 0.9, "logits are read again for each id, from the cache" },
    { "choose", 6.1, 0.9, "logits are read again for each part of the bits of the keys, from the cache" },
    { "clip", 1.3, 0.25, "a few numbers" },
    { "adamw", 1.05, 0.7, "the parts of trials have odd sizes and begin anywhere" },
    { "sum_squares", 1.1, 0.7, "likewise, and each block reads their list" },
    { "attention_wide_fwd", 15.5, 0.9, "a query and a key are read again for each pair, from the cache" },
    { "attention_wide_bwd", 21.5, 0.9, "likewise" },
    { "attention_", 3.6, 0.9, "keys and values are read again for each tile of queries" },
    { "cache_append", 1.05, 0.6, "a sequence has few rows, and their numbers are indices", 0.65 },
    { "history_push", 1.05, 0.85, "likewise", 0.35 },
    { "delta_fwd_long", 1.5, 0.9, "a state is read for its products, then for the update" },
    { "delta_bwd_long", 1.5, 0.9, "likewise" },
    { "delta_bwd_read", 1.05, 0.6, "a thread writes four numbers of dq one after the other" },
    { "read_delta_bwd", 1.8, 0.9, "gradients of later taps are read for each channel, from the cache" },
    { "delta_bwd", 1.05, 0.85, "a token has few numbers of gate, target and readout" },
    { "fold_", 1.3, 0.2, "a few parameters, in another order, some of them twice" },
    { "compress_fwd", 3.5, 0.9, "a block reads the states of earlier taps again, from the cache" },
    { "compress_bwd", 2.3, 0.9, "likewise the gradients of later taps" },
    { "init_state_", 6.3, 0.2, "once a pass: a feature's embedding is read for each channel and tap" },
    { "project_bwd", 1.1, 0.9, "partial sums of a few rows" },
    { "projected_norm_bwd", 1.15, 0.85, "likewise" },
    { "elementwise_", 1.9, 0.9, "rows are read again, from the cache" },
    { "embed_bwd", 1.5, 0.85, "a token has a few rows anywhere, and each block reads all tokens" },
    { "streams_fold_", 1.5, 0.3, "parameters, in another order, those of the norm for each row" },
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

static const struct ddl_trial_sequence ragged[] = { { 17, 8 }, { 0, 24 }, { 40, 1 } };
#define SIZES(batch, tokens, width, channels, heads, head, inner)                                            \
    {                                                                                                        \
        .B = (batch), .T = (tokens), .d = (width), .c = (channels), .n = 4, .H = (heads), .h = (head),       \
        .R = 64, .m = (inner), .V = 1024, .K = 4, .K_embed = 4, .rows = 64, .tile = 512, .iterations = 20,   \
        .steps = 1, .rank = 16, .states = 4, .kind = DDL_COMPRESS_TOKEN,                                     \
        .n_sequences = sizeof ragged / sizeof *ragged, .sequences = ragged                                   \
    }
/* As in a model of width 256: rows are whole vectors. */
static const struct ddl_op_sizes sizes = SIZES(2, 256, 256, 4, 4, 64, 512);
/* Products have several tiles; larger ones take long on the emulator. */
static const struct ddl_op_sizes of_products = SIZES(2, 64, 128, 4, 2, 64, 128);
static const struct ddl_op_sizes one_channel = SIZES(2, 64, 256, 1, 4, 64, 512);
static const struct ddl_op_sizes heads_of_48 = SIZES(1, 128, 256, 4, 4, 48, 512);
static const struct ddl_op_sizes heads_of_96 = SIZES(1, 128, 256, 4, 2, 96, 512);
static const struct ddl_op_sizes heads_of_128 = SIZES(1, 128, 256, 4, 2, 128, 512);
static const struct ddl_op_sizes wide_heads = SIZES(1, 16, 256, 4, 2, 192, 512);
static const struct ddl_op_sizes long_rows = SIZES(1, 256, 1536, 1, 4, 64, 512);
static const struct ddl_op_sizes long_states = SIZES(1, 8, 2304, 4, 4, 64, 512);

/* An op of a sequence: a case, whose operands may be those of ops before it. */
enum { MOST_OPS = 6, MOST_LINKS = 3 };
struct step {
    const char *name;
    struct {
        const char *operand;
        size_t step; /* number of the other op */
        const char *other;
    } link[MOST_LINKS];
    const char *unwritten; /* an operand that the kernel has in registers instead; or NULL */
};

/* Calls for the kernels that no case above has: of other sizes, or of several ops in a list of commands,
 * which one kernel computes (src/backend/cuda/fuse.c). */
static const struct sequence {
    const char *name; /* of the kernel */
    const struct ddl_op_sizes *sizes;
    struct step step[MOST_OPS];
} sequences[] = {
    { "attention_mma_fwd_128", &heads_of_128, { { "attention_fwd.bf16" } } },
    { "attention_mma_bwd_128", &heads_of_128, { { "attention_bwd.bf16" } } },
    { "attention_mma_fwd_to_64", &heads_of_48, { { "attention_fwd.bf16" } } },
    { "attention_mma_bwd_to_64", &heads_of_48, { { "attention_bwd.bf16" } } },
    { "attention_mma_fwd_to_128", &heads_of_96, { { "attention_fwd.bf16" } } },
    { "attention_mma_bwd_to_128", &heads_of_96, { { "attention_bwd.bf16" } } },
    { "attention_wide_fwd", &wide_heads, { { "attention_fwd" } } },
    { "attention_wide_bwd", &wide_heads, { { "attention_bwd" } } },
    { "delta_fwd_long", &long_states, { { "delta_fwd" } } },
    { "delta_inverse_long", &long_states, { { "delta_inverse" } } },
    { "delta_bwd_long", &long_states, { { "delta_bwd" } } },
    { "rmsnorm_fwd_long", &long_rows, { { "rmsnorm_fwd" } } },
    { "rmsnorm_bwd_long", &long_rows, { { "rmsnorm_bwd" } } },
    { "f_norm_fwd_long", &long_rows, { { "f_norm_fwd" } } },
    { "f_norm_bwd_long", &long_rows, { { "f_norm_bwd" } } },
    { "source_bwd_long", &long_rows, { { "source_bwd" } } },
    { "depth_bwd_long", &long_rows, { { "depth_bwd" } } },
    { "highway_one_bwd", &sizes, { { "highway_bwd.one" } } },
    { "copy_in_order", &one_channel, { { "copy", { { "src", 0, "dst" } } } } },
    { "delta_fwd_read",
      &sizes,
      { { "delta_fwd" },
        { "fold_fwd" },
        { "compress_fwd", { { "X", 0, "X_out" }, { "e", 1, "e" } } },
        { "rmsnorm_fwd", { { "x", 2, "x_in" } } },
        { "project_fwd.gate", { { "x", 3, "y" } } },
        { "project_fwd.target", { { "x", 3, "x" } } } } },
    { "delta_bwd_read", &one_channel, { { "delta_bwd" }, { "rmsnorm_fwd", { { "x", 0, "X_next" } } } } },
    { "read_delta_bwd",
      &sizes,
      { { "compress_bwd" },
        { "fold_bwd", { { "de", 0, "de" } } },
        { "delta_bwd", { { "X_next", 0, "X" }, { "G", 0, "dX" }, { "dX", 0, "dX" } } },
        { "fold_fwd", { { "w", 1, "w" }, { "r", 1, "r" } } },
        { "compress_fwd", { { "X", 2, "X_next" }, { "e", 3, "e" } } },
        { "rmsnorm_fwd", { { "x", 4, "x_in" } } } } },
    { "projected_norm_fwd",
      &sizes,
      { { "rmsnorm_fwd" },
        { "project_fwd.gate", { { "x", 0, "y" } } },
        { "project_fwd.target", { { "x", 0, "x" } } } } },
    { "projected_norm_bwd",
      &sizes,
      { { "project_bwd.gate", .unwritten = "dx" },
        { "rmsnorm_bwd", { { "dy", 0, "dx" } } },
        { "project_bwd.target", { { "x", 1, "x" }, { "dx", 1, "dx" } } } } },
    { "hyper_fwd_read",
      &sizes,
      { { "streams_write_fwd" },
        { "hyper_fwd", { { "X", 0, "X_out" } } },
        { "rmsnorm_fwd", { { "x", 1, "x_in" } } } } },
    { "hyper_bwd_write",
      &sizes,
      { { "hyper_bwd" },
        { "streams_write_bwd", { { "G", 0, "dX" } } },
        { "rmsnorm_fwd", { { "x", 1, "x_in" } } } } },
    { "scale_fwd_read", &sizes, { { "scale_fwd" }, { "rmsnorm_fwd", { { "x", 0, "X" } } } } },
    { "gated_fwd_read",
      &sizes,
      { { "gated_fwd" },
        { "rmsnorm_fwd", { { "x", 0, "X" } } },
        { "project_fwd.gate", { { "x", 1, "y" } } } } },
    { "gated_bwd_read", &sizes, { { "gated_bwd" }, { "rmsnorm_fwd", { { "x", 0, "X" } } } } },
    { "highway_fwd_read", &sizes, { { "highway_fwd" }, { "rmsnorm_fwd", { { "x", 0, "X" } } } } },
    { "laurel_fwd_read", &sizes, { { "laurel_fwd" }, { "rmsnorm_fwd", { { "x", 0, "X" } } } } },
};

/* The stand-in for the driver. */
static cuda_traffic_take take;
static cuda_traffic_share share;

/* ---- what is needed ---- */

/* Operands of the ops so far, by address. */
struct accesses {
    size_t n;
    struct {
        const void *at;
        int access;
    } each[MOST_OPS * DDL_MOST_OPERANDS];
};

/* The part of an op's accesses that a kernel must make which has made these: of what it has read or written
 * it reads nothing, and it writes a result once. */
static int new_access(struct accesses *made, const void *at, int access)
{
    size_t i = 0;
    while (i < made->n && made->each[i].at != at)
        i++;
    if (i == made->n) {
        made->each[made->n].at = at;
        made->each[made->n++].access = access;
        return access;
    }
    const int added = access & DDL_WRITE & ~made->each[i].access;
    made->each[i].access |= access;
    return added;
}

/* Bytes that the op must move after those that have made the accesses. */
static double needed_bytes(const struct ddl_trial *trial, const struct step *step, struct accesses *made)
{
    struct ddl_op_use use = trial->use;
    for (size_t i = 0; i < use.n; i++) {
        struct ddl_operand *o = &use.operand[i];
        const void *at = ddl_operand_get(o, &trial->args);
        if (!at)
            continue;
        int access = new_access(made, at, (int)o->access);
        if (step->unwritten && strcmp(o->name, step->unwritten) == 0)
            access &= ~DDL_WRITE;
        o->access = (enum ddl_access)access;
    }
    return ddl_op_traffic(&use, &trial->args, trial->backend);
}

/* ---- measurements ---- */

static const struct ddl_op_case *case_named(const char *wanted)
{
    char name[64];
    size_t n;
    const struct ddl_op_case *cases = ddl_op_cases(&n), *found = NULL;
    for (size_t i = 0; i < n && !found; i++) {
        ddl_op_case_name(&cases[i], name, sizeof name);
        if (strcmp(name, wanted) == 0)
            found = &cases[i];
    }
    return found;
}

static void *operand_of(const struct ddl_trial *trial, const char *name)
{
    return ddl_operand_get(ddl_operand_find(&trial->use, name), &trial->args);
}

/* Makes trial i of a sequence. */
static ddl_status prepare(struct ddl_trial *trials, size_t i, const struct ddl_op_case *k,
                          const struct sequence *s, ddl_backend *backend, struct ddl_error *err)
{
    union ddl_op_args args;
    struct ddl_trial_plan plan;
    struct ddl_trial *trial = &trials[i];
    ddl_op_case_plan(k, s->sizes, &args, &plan);
    plan.shared = k->in_place;
    const ddl_status status = ddl_trial_make(trial, backend, &plan, err);
    for (size_t j = 0; !status && j < MOST_LINKS && s->step[i].link[j].operand; j++)
        ddl_operand_set(ddl_operand_find(&trial->use, s->step[i].link[j].operand), &trial->args,
                        operand_of(&trials[s->step[i].link[j].step], s->step[i].link[j].other));
    return status;
}

/* Counts the calls of a sequence whose cases are these; false on failure. */
static bool measure(const struct sequence *s, const struct ddl_op_case *const *cases, ddl_backend *backend)
{
    struct ddl_trial trials[MOST_OPS] = { 0 };
    struct accesses made = { 0 };
    struct ddl_error err = { 0 };
    struct cuda_traffic t;
    ddl_status status = DDL_OK;
    double needed = 0;
    size_t n = 0;
    for (; !status && n < MOST_OPS && cases[n]; n++)
        status = prepare(trials, n, cases[n], s, backend, &err);
    if (!status) {
        backend->ops->synchronize(backend->ctx);
        take(&t);
        for (size_t i = 0; i < n; i++) {
            needed += needed_bytes(&trials[i], &s->step[i], &made);
            for (size_t j = 0; j < trials[i].use.n; j++) {
                const struct ddl_operand *operand = &trials[i].use.operand[j];
                if (trials[i].use.items && operand->access == DDL_READ && operand->item_stride == 0)
                    share(ddl_operand_get(operand, &trials[i].args), ddl_operand_bytes(operand, backend));
            }
        }
        backend->ops->begin_graph(backend->ctx);
        for (size_t i = 0; i < n; i++)
            ddl_trial_call(&trials[i]);
        backend->ops->end_graph(backend->ctx);
        backend->ops->synchronize(backend->ctx);
        take(&t);
        status = backend->ops->check_error(backend->ctx, &err);
    }
    bool passed = false;
    if (status) {
        printf("%s: %s\n", s->name, err.text);
    } else {
        const struct budget *b = budget_of(s->name);
        double moved = (double)(t.read + t.written), least = b->least > 0 ? b->least : usual.least;
        double used = t.sectors ? (double)t.used / (32 * (double)t.sectors) : 1;
        const char *wrong = moved < least * needed                            ? "NOT COUNTED"
                            : moved > b->bytes * needed || !(used >= b->used) ? "OVER BUDGET"
                                                                              : "";
        passed = !*wrong;
        printf("%-28s %12.0f %12.0f %6.2f %6.2f %10.0f %10.0f  %s%s%s\n", s->name, needed, moved,
               moved / needed, used, (double)t.passes, (double)(t.passes - t.fewest), wrong,
               b->why ? " " : "", b->why ? b->why : "");
    }
    for (size_t i = 0; i < n; i++)
        ddl_trial_free(&trials[i]);
    return passed;
}

static bool measure_case(const struct ddl_op_case *k, ddl_backend *backend)
{
    const bool product = k->op == DDL_OP_matmul || k->op == DDL_OP_matmul_bf16;
    const struct ddl_op_case *const cases[MOST_OPS] = { k };
    char name[64];
    ddl_op_case_name(k, name, sizeof name);
    return measure(&(struct sequence){ name, product ? &of_products : &sizes, { { NULL } } }, cases, backend);
}

static bool measure_sequence(const struct sequence *s, ddl_backend *backend)
{
    const struct ddl_op_case *cases[MOST_OPS] = { NULL };
    for (size_t i = 0; i < MOST_OPS && s->step[i].name; i++) {
        cases[i] = case_named(s->step[i].name);
        if (!cases[i]) {
            printf("%s: there is no case %s\n", s->name, s->step[i].name);
            return false;
        }
    }
    return measure(s, cases, backend);
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
            over += !measure_case(&cases[i], backend);
    }
    for (size_t i = 0; i < sizeof sequences / sizeof *sequences; i++)
        over += !measure_sequence(&sequences[i], backend);
    ddl_backend_free(backend);
    dlclose(driver);
    return over > 0;
}
