/* What is done with a model, with every request for memory failing in turn: text, evaluation, saving, the
 * operator and the block on plain arrays, products of bfloat16, the bench, verify. */
#include "oom/sweep.h"
#include "support/runs.h"

#include "ddl/bench.h"
#include "ddl/block.h"
#include "ddl/data.h"
#include "ddl/delta.h"
#include "ddl/eval.h"
#include "ddl/inspect.h"
#include "ddl/generate.h"
#include "ddl/train.h"
#include "ddl/verify.h"

#include "base/bf16.h"
#include "base/mem.h"
#include "ops/ops.h"

static ddl_backend *backend;
static ddl_model *model;
static ddl_tokenizer *tokenizer;
static double loss;     /* of the last evaluation */
static uint64_t tokens; /* its scores */

static int add_text(void *user, size_t sequence, const char *text, size_t size)
{
    uint64_t *digest = user;
    *digest = digest_add(*digest + sequence, text, size);
    return 0;
}

static ddl_status generate(void *user, uint64_t *digest, struct ddl_error *err)
{
    (void)user;
    static const char *const stop[] = { "never said, all of it" };
    struct ddl_generate_config k = ddl_generate_defaults();
    struct ddl_generate_result results[2];
    k.sampling.max_tokens = 6;
    k.sampling.top_k = 20;
    k.n = 2;
    k.sampling.stop = stop;
    k.sampling.n_stop = 1;
    *digest = 0;
    const struct ddl_generate_request request = { .model = model,
                                                  .tokenizer = tokenizer,
                                                  .config = &k,
                                                  .prompt = "The software",
                                                  .size = 12,
                                                  .text = add_text,
                                                  .user = digest };
    return ddl_generate(&request, results, err);
}

static void text(void **state)
{
    (void)state;
    sweep(&(struct sweep){ .name = "generate", .run = generate });
}

static int add_token(void *user, const struct ddl_token_score *score)
{
    (void)user;
    tokens = digest_add(tokens, score, sizeof *score);
    return 0;
}

static ddl_status evaluate(void *user, uint64_t *digest, struct ddl_error *err)
{
    static const char words[] = "Permission is hereby granted, free of charge";
    const char *what = user;
    struct ddl_eval_config k = { .batch = 2, .stride = 8 };
    struct ddl_eval_result result = { 0 };
    ddl_shards *shards = NULL;
    ddl_status status;
    tokens = 0;
    k.each = strcmp(what, "tokens") == 0 ? add_token : NULL;
    if (strcmp(what, "text") == 0 || k.each) {
        status = ddl_eval_text(model, tokenizer, words, sizeof words - 1, &k, &result, err);
    } else if (strcmp(what, "file") == 0) {
        status = ddl_eval_file(model, tokenizer, scratch_path("words.txt"), &k, &result, err);
    } else {
        status = ddl_shards_open(&shards, scratch_path("eval.bin"), err);
        if (!status)
            status = ddl_eval_shards(model, tokenizer, shards, &k, &result, err);
    }
    ddl_shards_close(shards);
    loss = result.nats;
    if (!status)
        *digest = digest_add(tokens, &result.nats, sizeof result.nats);
    return status;
}

static void evaluation(void **state)
{
    (void)state;
    char what[][8] = { "text", "tokens", "file", "shards" };
    write_file(scratch_path("words.txt"), "the Software is provided \"as is\"", 32);
    write_random_shard(scratch_path("eval.bin"), 5, TINY_VOCAB, 70);
    for (size_t i = 0; i < 4; i++)
        sweep(&(struct sweep){ .name = what[i], .run = evaluate, .user = what[i], .figure = &loss });
}

/* The gates of a text, then the loss with one of them frozen. */
static ddl_status inspect(void *user, uint64_t *digest, struct ddl_error *err)
{
    static const char words[] = "Permission is hereby granted, free of charge";
    const struct ddl_inspect_config k = { .batch = 2, .spectrum_tokens = 4 };
    ddl_inspection *in = NULL, *frozen = NULL;
    (void)user;
    ddl_status status = ddl_inspect_text(&in, model, tokenizer, words, sizeof words - 1, &k, err);
    if (!status)
        status = ddl_inspect_freeze(in, model, 1, (struct ddl_force){ 0 }, err);
    if (!status)
        status = ddl_inspect_text(&frozen, model, tokenizer, words, sizeof words - 1, &k, err);
    if (!status) {
        loss = ddl_inspect_loss(frozen).sum;
        *digest = digest_add(0, &loss, sizeof loss);
    }
    ddl_inspect_free(in);
    ddl_inspect_free(frozen);
    ddl_model_clear_forces(model);
    return status;
}

static void inspection(void **state)
{
    (void)state;
    sweep(&(struct sweep){ .name = "inspect", .run = inspect, .figure = &loss });
}

static ddl_status save(void *user, uint64_t *digest, struct ddl_error *err)
{
    ddl_status status = ddl_model_save(model, user, err);
    *digest = 0;
    return status ? status : ddl_tokenizer_save(tokenizer, user, err);
}

static void saving(void **state)
{
    (void)state;
    char folder[4096];
    snprintf(folder, sizeof folder, "%s", scratch_path("saved"));
    sweep(&(struct sweep){ .name = "save", .run = save, .user = folder, .folder = folder });
}

static ddl_status plan(void *user, uint64_t *digest, struct ddl_error *err)
{
    (void)user;
    struct ddl_train_config t = ddl_train_defaults();
    struct ddl_train_plan out;
    t.config = tiny_config("ddl-tc-ec", TINY_VOCAB);
    ddl_status status = ddl_train_plan(&t, &out, err);
    if (!status)
        *digest = digest_add(0, &out.bytes_total, sizeof out.bytes_total);
    return status;
}

static ddl_status bench(void *user, uint64_t *digest, struct ddl_error *err)
{
    (void)user;
    const struct ddl_bench_step_config k = { .at = { .model = tiny_config("ddl-mix", TINY_VOCAB),
                                                     .batch = 1,
                                                     .seq = 8,
                                                     .warmup = 1,
                                                     .steps = 1,
                                                     .profiled = 1 },
                                             .products = true };
    static struct ddl_bench_report out;
    *digest = 0;
    return ddl_bench_step(&k, backend, &out, err);
}

static void measures(void **state)
{
    (void)state;
    sweep(&(struct sweep){ .name = "plan", .run = plan });
    sweep(&(struct sweep){ .name = "bench", .run = bench });
}

/* C = A B, then C += A B with longer rows of A: oneDNN needs a scratch buffer, then a larger one. */
enum { ROWS = 33, COLUMNS = 40, LEAST = 65, MOST = 1000 };
static const size_t lengths[] = { LEAST, MOST };
static struct products {
    uint16_t A[ROWS * MOST], B[MOST * COLUMNS];
    float C[ROWS * COLUMNS];
} products;

static ddl_status multiply(const char *name, float *C, struct ddl_error *err)
{
    struct ddl_backend *made;
    ddl_status status = ddl_backend_create(&made, name, 2, err);
    if (status)
        return status;
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        made->ops->matmul_bf16(made->ctx, &(struct matmul_bf16_args){ .M = ROWS,
                                                                      .N = COLUMNS,
                                                                      .K = lengths[i],
                                                                      .alpha = 1,
                                                                      .A = products.A,
                                                                      .lda = lengths[i],
                                                                      .B = products.B,
                                                                      .ldb = COLUMNS,
                                                                      .beta = i ? 1 : 0,
                                                                      .C = C,
                                                                      .ldc = COLUMNS });
    status = made->ops->check_error ? made->ops->check_error(made->ctx, err) : DDL_OK;
    ddl_backend_free(made);
    return status;
}

/* Without a scratch buffer our kernel multiplies, which adds in another order: results are close. */
static ddl_status halves(void *user, uint64_t *digest, struct ddl_error *err)
{
    (void)user;
    float C[ROWS * COLUMNS];
    ddl_status status = multiply("cpu", C, err);
    *digest = !status && relative_error(ROWS * COLUMNS, C, products.C) <= 2e-6;
    return status;
}

static void round_random(uint16_t *out, size_t n, uint64_t stream)
{
    float *x = random_floats(n, stream);
    assert_non_null(x);
    for (size_t i = 0; i < n; i++)
        out[i] = ddl_bf16_round(x[i]);
    ddl_mem_free(x);
}

static void products_of_halves(void **state)
{
    (void)state;
    struct ddl_error err;
    uint64_t close;
    round_random(products.A, ROWS * MOST, 1);
    round_random(products.B, MOST * COLUMNS, 2);
    assert_ok(multiply("ref", products.C, &err), err);
    assert_ok(halves(NULL, &close, &err), err);
    assert_int_equal(close, 1);
    sweep(&(struct sweep){ .name = "products of bfloat16", .run = halves });
}

struct outcome {
    uint64_t *digest;
    char message[1024];
};

static void add_case(void *user, const struct ddl_verify_case *r)
{
    struct outcome *v = user;
    *v->digest = digest_add(*v->digest + (uint64_t)r->outcome, r->path, strlen(r->path));
    if (r->outcome == DDL_VERIFY_FAIL)
        snprintf(v->message, sizeof v->message, "%s", r->message);
}

/* A case that could not be run has failed and says why; a case that ran must have passed. */
static ddl_status verify(void *user, uint64_t *digest, struct ddl_error *err)
{
    const char *const path = user;
    struct outcome v = { .digest = digest };
    struct ddl_verify_config k = ddl_verify_defaults();
    struct ddl_verify_totals totals;
    snprintf(k.backend, sizeof k.backend, "cpu");
    k.threads = 2;
    *digest = 0;
    ddl_status status = ddl_verify_run(&k, &path, 1, add_case, &v, &totals, err);
    if (!status && totals.failed)
        status =
            ddl_error_set(err, strstr(v.message, "emory") ? DDL_E_MEMORY : DDL_E_NUMERIC, "%s", v.message);
    return status;
}

static void verification(void **state)
{
    (void)state;
    static const char *const cases[] = { "tests/golden/ddl-1", "tests/golden/block",
                                         "tests/golden/operator" };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s", source_path(cases[i]));
        assert_true(ddl_file_exists(path));
        sweep(&(struct sweep){ .name = cases[i], .run = verify, .user = path, .sampled = 50 });
    }
}

static int set_up(void **state)
{
    (void)state;
    struct ddl_error err;
    assert_ok(ddl_backend_create(&backend, "cpu", 2, &err), err);
    model = tiny_model("ddl-cc-ec", TINY_VOCAB, 7, backend);
    tokenizer = tiny_tokenizer();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    ddl_tokenizer_free(tokenizer);
    ddl_model_free(model);
    ddl_backend_free(backend);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text),         cmocka_unit_test(evaluation), cmocka_unit_test(saving),
        cmocka_unit_test(inspection),   cmocka_unit_test(measures),   cmocka_unit_test(products_of_halves),
        cmocka_unit_test(verification),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
