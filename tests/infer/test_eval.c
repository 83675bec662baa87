/* infer/eval.c: windows, strides and bytes against losses of single rows added up by hand. */
#include "support/models.h"
#include "support/runs.h"
#include "support/thread_comm.h"

#include "base/mem.h"

#include "ddl/eval.h"
#include "ddl/train.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

enum { N = 53 };

static ddl_backend *backend;
static ddl_tokenizer *tokenizer;
static ddl_model *model; /* context 16, TINY_VOCAB */
static ddl_shards *shards;
static int32_t ids[N];

static int set_up(void **state)
{
    (void)state;
    struct ddl_error err;
    assert_ok(ddl_backend_create(&backend, "ref", 0, &err), err);
    tokenizer = tiny_tokenizer();
    model = tiny_model("ddl-cc-ec", TINY_VOCAB, 5, backend);
    write_random_shard(scratch_path("eval.bin"), 3, ddl_tokenizer_vocab_size(tokenizer), N);
    assert_ok(ddl_shards_open(&shards, scratch_path("eval.bin"), &err), err);
    ddl_shards_read(shards, 0, N, ids);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    ddl_shards_close(shards);
    ddl_model_free(model);
    ddl_tokenizer_free(tokenizer);
    ddl_backend_free(backend);
    return 0;
}

/* -log p of token `at`, given the tokens from `from` on. */
static double nats_of(size_t from, size_t at)
{
    struct ddl_error err;
    ddl_workspace *ws;
    float losses[N];
    struct ddl_loss loss;
    struct ddl_batch batch = { 1, at - from, ids + from, ids + from + 1 };
    assert_ok(ddl_workspace_create(&ws, model,
                                   &(struct ddl_workspace_options){ .batch = 1, .tokens = at - from }, &err),
              err);
    assert_ok(ddl_model_loss(model, ws, &batch, &loss, losses, &err), err);
    ddl_workspace_free(ws);
    return (double)losses[at - from - 1];
}

static void windows_by_hand(void **state)
{
    (void)state;
    static const struct {
        size_t seq, stride, batch, scored;
        uint64_t max_tokens;
    } cases[] = {
        { 0, 0, 0, 52, 0 },  { 16, 16, 1, 52, 0 }, { 16, 16, 3, 52, 0 }, { 13, 13, 2, 52, 0 },
        { 16, 4, 5, 52, 0 }, { 9, 1, 4, 52, 0 },   { 7, 3, 100, 52, 0 }, { 1, 1, 8, 52, 0 },
        { 8, 8, 4, 16, 10 }, { 8, 2, 4, 10, 10 },  { 8, 2, 4, 8, 1 },    { 16, 16, 2, 52, 50 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct ddl_eval_config config = { cases[i].seq, cases[i].batch, cases[i].stride,
                                                cases[i].max_tokens };
        size_t seq = cases[i].seq ? cases[i].seq : 16, stride = cases[i].stride ? cases[i].stride : seq;
        struct ddl_eval_result r;
        struct ddl_error err;
        assert_ok(ddl_eval_shards(model, tokenizer, shards, &config, &r, &err), err);
        double nats = 0, bytes = 0;
        for (size_t at = 1; at <= cases[i].scored; at++) {
            size_t window = at > seq ? (at - seq + stride - 1) / stride : 0, size = 0;
            nats += nats_of(window * stride, at);
            if (ids[at] != ddl_tokenizer_end_of_text(tokenizer) &&
                ddl_tokenizer_bytes(tokenizer, ids[at], &size))
                bytes += (double)size;
        }
        assert_int_equal(r.tokens, cases[i].scored);
        assert_true(fabs(r.nats - nats) < 1e-5 * nats);
        assert_true(fabs(r.loss - r.nats / (double)r.tokens) < 1e-12);
        assert_true(fabs(r.perplexity - exp(r.loss)) < 1e-9 * r.perplexity);
        assert_true((double)r.bytes == bytes);
        assert_true(fabs(r.bits_per_byte - r.nats / log(2) / bytes) < 1e-12);
    }
}

static void no_tokenizer_no_bytes(void **state)
{
    (void)state;
    struct ddl_eval_result r;
    struct ddl_error err;
    const struct ddl_eval_config config = { 0 };
    assert_ok(ddl_eval_shards(model, NULL, shards, &config, &r, &err), err);
    assert_true(r.bytes == 0 && isnan(r.bits_per_byte) && isfinite(r.loss));
}

/* A special token is no text, whichever it is. */
static void special_tokens_have_no_bytes(void **state)
{
    (void)state;
    struct ddl_eval_result r;
    struct ddl_error err;
    ddl_tokenizer *two;
    ddl_shards *own;
    size_t size;
    json_t *json =
        json_load_file(source_path("tests/golden/tokenizer-train/case2.json"), 0, NULL); /* 351 tokens */
    json_t *user = json_pack("{s:i, s:s, s:b}", "id", 351, "content", "<|user|>", "special", 1);
    assert_int_equal(json_array_append_new(json_object_get(json, "added_tokens"), user), 0);
    assert_int_equal(json_dump_file(json, scratch_path("two.json"), 0), 0);
    json_decref(json);
    assert_ok(ddl_tokenizer_load(&two, scratch_path("two.json"), &err), err);
    ddl_model *of_two = tiny_model("baseline", 352, 5, backend);
    write_shard(scratch_path("special.bin"), 2, 349, 3);
    assert_ok(ddl_shards_open(&own, scratch_path("special.bin"), &err), err);
    assert_ok(ddl_eval_shards(of_two, two, own, &(struct ddl_eval_config){ 0 }, &r, &err), err);
    assert_int_equal(r.tokens, 2);
    assert_non_null(ddl_tokenizer_bytes(two, 350, &size));
    assert_int_equal(r.bytes, size);
    ddl_shards_close(own);
    ddl_model_free(of_two);
    ddl_tokenizer_free(two);
}

static void text_is_scored_whole(void **state)
{
    (void)state;
    struct ddl_eval_result r, whole;
    struct ddl_error err;
    const struct ddl_eval_config config = { .seq = 16, .stride = 3 };
    const char *text = "Permission is hereby granted, free of charge, na\xc3\xafve.";
    assert_ok(ddl_eval_text(model, tokenizer, text, strlen(text), &config, &r, &err), err);
    assert_int_equal(r.bytes, strlen(text));
    struct ddl_ids encoded = { 0 };
    assert_ok(ddl_tokenizer_encode(tokenizer, text, strlen(text), false, &encoded, &err), err);
    assert_int_equal(r.tokens, encoded.n);
    ddl_ids_free(&encoded);
    write_file(scratch_path("some.txt"), text, strlen(text));
    assert_ok(ddl_eval_file(model, tokenizer, scratch_path("some.txt"), &config, &whole, &err), err);
    assert_true(whole.nats == r.nats);
}

/* ---- single tokens ---- */

enum { MOST = 200 };

struct collected {
    size_t n;
    struct ddl_token_score score[MOST];
};

static int collect(void *user, const struct ddl_token_score *score)
{
    struct collected *c = user;
    assert_true(c->n < MOST);
    c->score[c->n++] = *score;
    return 0;
}

static const char words[] = "Permission is hereby granted, free of charge, na\xc3\xafve.";

/* The scores of `words`. */
static struct ddl_eval_result score_words(ddl_model *scored, struct ddl_eval_config config,
                                          struct collected *out)
{
    struct ddl_eval_result r;
    struct ddl_error err;
    out->n = 0;
    config.each = collect;
    config.user = out;
    assert_ok(ddl_eval_text(scored, tokenizer, words, strlen(words), &config, &r, &err), err);
    assert_int_equal(out->n, r.tokens);
    return r;
}

/* Logits after tokens from to at - 1. */
static void logits_of(ddl_model *scored, const int32_t *all, size_t from, size_t at, float *logits)
{
    struct ddl_error err;
    ddl_workspace *ws;
    struct ddl_batch batch = { 1, at - from, all + from, NULL };
    assert_ok(ddl_workspace_create(&ws, scored,
                                   &(struct ddl_workspace_options){ .batch = 1, .tokens = at - from }, &err),
              err);
    assert_ok(ddl_model_logits(scored, ws, &batch, 1, logits, &err), err);
    ddl_workspace_free(ws);
}

/* Against a softmax in double. Logits of another batch size differ in rounding: so may the ranks of tokens
 * that are almost as likely. */
static void check_score(const struct ddl_token_score *s, const float *logits)
{
    const double near = 1e-4;
    double total = 0, weighted = 0;
    int32_t above = 0, below = 0;
    for (size_t j = 0; j < TINY_VOCAB; j++) {
        double z = (double)logits[j], own = (double)logits[s->id];
        total += exp(z);
        weighted += z * exp(z);
        above += z > own + near;
        below += z < own - near;
    }
    assert_true(fabs(s->logprob - ((double)logits[s->id] - log(total))) < near);
    assert_true(fabs(s->entropy - (log(total) - weighted / total)) < near);
    assert_true(s->rank >= above && s->rank < TINY_VOCAB - below);
}

static void tokens_by_hand(ddl_model *scored, const struct ddl_ids *all)
{
    static const struct ddl_eval_config configs[] = {
        { 0 }, { .seq = 16, .stride = 3, .batch = 2 }, { .seq = 7, .stride = 7 }, { .seq = 5, .stride = 1 }
    };
    float logits[TINY_VOCAB];
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        struct collected c;
        struct ddl_eval_result plain, r = score_words(scored, configs[i], &c);
        struct ddl_error err;
        size_t seq = configs[i].seq ? configs[i].seq : 16,
               stride = configs[i].stride ? configs[i].stride : seq;
        double sum = 0;
        assert_int_equal(c.n, all->n - 1);
        for (size_t k = 0; k < c.n; k++) {
            size_t at = k + 1, window = at > seq ? (at - seq + stride - 1) / stride : 0;
            assert_int_equal(c.score[k].position, k);
            assert_int_equal(c.score[k].id, all->ids[at]);
            logits_of(scored, all->ids, window * stride, at, logits);
            check_score(&c.score[k], logits);
            sum += c.score[k].logprob;
        }
        assert_ok(ddl_eval_text(scored, tokenizer, words, strlen(words), &configs[i], &plain, &err), err);
        assert_true(fabs(sum + r.nats) < 1e-12 * r.nats);
        assert_true(plain.nats == r.nats);
    }
}

static void tokens_are_scored(void **state)
{
    (void)state;
    struct ddl_ids all = { 0 };
    struct ddl_error err;
    assert_ok(ddl_tokenizer_encode(tokenizer, "<|endoftext|>", 13, true, &all, &err), err);
    assert_int_equal(all.n, 1);
    assert_ok(ddl_tokenizer_encode(tokenizer, words, strlen(words), false, &all, &err), err);
    tokens_by_hand(model, &all);
    ddl_backend *cpu = open_test_backend(2);
    ddl_model *same = tiny_model("ddl-cc-ec", TINY_VOCAB, 5, cpu);
    tokens_by_hand(same, &all);
    ddl_model_free(same);
    ddl_backend_free(cpu);
    ddl_ids_free(&all);
}

/* In bfloat16 the losses of single tokens come from whole rows of logits, others from tiles. */
static void tokens_of_reduced_weights(void **state)
{
    (void)state;
    struct ddl_error err;
    ddl_backend *cpu = open_test_backend(2);
    ddl_model *reduced = tiny_model("ddl-cc-ec", TINY_VOCAB, 5, cpu);
    for (size_t p = 1; p < TEST_PRECISIONS; p++) {
        struct collected c;
        struct ddl_eval_result plain;
        const struct ddl_eval_config config = { .stride = 5 };
        double sum = 0;
        assert_ok(ddl_model_set_precision(reduced, test_precisions[p], &err), err);
        struct ddl_eval_result r = score_words(reduced, config, &c);
        assert_ok(ddl_eval_text(reduced, tokenizer, words, strlen(words), &config, &plain, &err), err);
        for (size_t k = 0; k < c.n; k++) {
            sum += c.score[k].logprob;
            assert_in_range(c.score[k].rank, 0, TINY_VOCAB - 1);
            assert_true(c.score[k].entropy > 0 && c.score[k].entropy < log(TINY_VOCAB) + 1e-5);
        }
        assert_true(fabs(sum + r.nats) < 1e-12 * r.nats);
        assert_true(fabs(plain.nats - r.nats) < 1e-5 * r.nats);
    }
    ddl_model_free(reduced);
    ddl_backend_free(cpu);
}

/* Of a model of zeros all tokens are equally likely: the rank is the id. */
static void equal_logits_rank_by_id(void **state)
{
    (void)state;
    struct ddl_config config = tiny_config("baseline", TINY_VOCAB);
    struct ddl_error err;
    struct collected c;
    ddl_model *zeros;
    assert_ok(ddl_model_create(&zeros, &config, backend, &err), err);
    score_words(zeros, (struct ddl_eval_config){ 0 }, &c);
    for (size_t k = 0; k < c.n; k++) {
        assert_int_equal(c.score[k].rank, c.score[k].id);
        assert_true(fabs(c.score[k].logprob + log(TINY_VOCAB)) < 1e-5);
        assert_true(fabs(c.score[k].entropy - log(TINY_VOCAB)) < 1e-5);
    }
    ddl_model_free(zeros);
}

static int stop_at_third(void *user, const struct ddl_token_score *score)
{
    (void)score;
    return ++*(int *)user == 3;
}

static void tokens_of_shards(void **state)
{
    (void)state;
    struct collected c = { 0 };
    struct ddl_eval_config config = { .seq = 8, .stride = 3, .each = collect, .user = &c };
    struct ddl_eval_result r;
    struct ddl_error err;
    int calls = 0;
    assert_ok(ddl_eval_shards(model, NULL, shards, &config, &r, &err), err);
    assert_int_equal(c.n, N - 1);
    for (size_t k = 0; k < c.n; k++) {
        assert_int_equal(c.score[k].position, k + 1);
        assert_int_equal(c.score[k].id, ids[k + 1]);
    }
    config.each = stop_at_third;
    config.user = &calls;
    assert_int_equal(ddl_eval_shards(model, NULL, shards, &config, &r, &err), DDL_E_INTERRUPTED);
    assert_int_equal(calls, 3);
}

static int stop_at_once(void *user, uint64_t done, uint64_t total)
{
    (void)user;
    assert_true(done <= total);
    return 1;
}

static void refusals(void **state)
{
    (void)state;
    struct ddl_eval_result r;
    struct ddl_error err;
    static const struct {
        struct ddl_eval_config config;
        const char *says;
    } cases[] = {
        { { .seq = 17 }, "seq: expected at most 16, the model's context, found 17" },
        { { .seq = 8, .stride = 9 }, "stride: expected at most 8, the value of seq, found 9" },
        { { .batch = 5000 }, "batch: expected at most 4096, found 5000" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(ddl_eval_shards(model, NULL, shards, &cases[i].config, &r, &err), DDL_E_USAGE);
        assert_says(&err, cases[i].says);
    }
    const struct ddl_eval_config config = { 0 }, stopped = { .progress = stop_at_once };
    assert_int_equal(ddl_eval_shards(model, NULL, shards, &stopped, &r, &err), DDL_E_INTERRUPTED);
    ddl_shards *other;
    write_random_shard(scratch_path("wide.bin"), 1, 4000, 100);
    assert_ok(ddl_shards_open(&other, scratch_path("wide.bin"), &err), err);
    assert_int_equal(ddl_eval_shards(model, NULL, other, &config, &r, &err), DDL_E_FORMAT);
    assert_says(&err, "the vocabulary has 300 tokens");
    ddl_shards_close(other);
    write_random_shard(scratch_path("one.bin"), 1, 10, 1);
    assert_ok(ddl_shards_open(&other, scratch_path("one.bin"), &err), err);
    assert_int_equal(ddl_eval_shards(model, NULL, other, &config, &r, &err), DDL_E_FORMAT);
    assert_says(&err, "expected at least 2 tokens, found 1");
    ddl_shards_close(other);
    write_file(scratch_path("empty.txt"), "", 0);
    write_file(scratch_path("binary.txt"), "ab\0c", 4);
    assert_int_equal(ddl_eval_file(model, tokenizer, scratch_path("empty.txt"), &config, &r, &err),
                     DDL_E_FORMAT);
    assert_says(&err, "empty.txt: expected text, found nothing");
    assert_int_equal(ddl_eval_file(model, tokenizer, scratch_path("binary.txt"), &config, &r, &err),
                     DDL_E_FORMAT);
    assert_says(&err, "binary.txt: expected text, found a zero byte at 2");
}

/* ---- ranks ---- */

enum { MAX_RANKS = 4 };

/* What a rank evaluates, and what it got. */
struct rank {
    struct ddl_eval_config config;
    const ddl_shards *shards; /* NULL: the text */
    ddl_progress_fn *progress;
    struct ddl_eval_result result;
    ddl_status status;
    struct ddl_error err;
};

static const char text[] = "The cat sat on the mat, and the dog on the cat.";

static void evaluate_rank(ddl_comm *comm, void *user)
{
    struct rank *rank = (struct rank *)user + ddl_comm_rank(comm);
    ddl_backend *own = open_test_backend(1);
    ddl_model *m = tiny_model("ddl-cc-ec", TINY_VOCAB, 5, own);
    rank->config.comm = comm;
    rank->config.progress = rank->progress;
    if (rank->shards)
        rank->status = ddl_eval_shards(m, tokenizer, rank->shards, &rank->config, &rank->result, &rank->err);
    else
        rank->status =
            ddl_eval_text(m, tokenizer, text, sizeof text - 1, &rank->config, &rank->result, &rank->err);
    ddl_model_free(m);
    ddl_backend_free(own);
}

/* All ranks have the status, and the message or the result. */
static ddl_status evaluate_ranks(struct rank *ranks, size_t n)
{
    thread_comm_run(n, evaluate_rank, ranks);
    for (size_t i = 1; i < n; i++) {
        assert_int_equal(ranks[i].status, ranks[0].status);
        if (ranks[0].status)
            assert_string_equal(ranks[i].err.text, ranks[0].err.text);
        else
            assert_true(ranks[i].result.nats == ranks[0].result.nats);
    }
    return ranks[0].status;
}

static void ranks_have_the_result_of_one(void **state)
{
    (void)state;
    static const struct ddl_eval_config configs[] = { { .seq = 8, .batch = 1 },
                                                      { .seq = 7, .batch = 2, .stride = 3 },
                                                      { .batch = 8 },
                                                      { .seq = 4, .batch = 3, .max_tokens = 30 } };
    for (size_t i = 0; i < 2 * (sizeof configs / sizeof *configs); i++) {
        struct ddl_eval_result one = { 0 };
        for (size_t n = 1; n <= MAX_RANKS; n++) {
            struct rank ranks[MAX_RANKS];
            for (size_t r = 0; r < n; r++)
                ranks[r] = (struct rank){ .config = configs[i / 2], .shards = i % 2 ? shards : NULL };
            assert_ok(evaluate_ranks(ranks, n), ranks[0].err);
            const struct ddl_eval_result *found = &ranks[n - 1].result;
            one = n == 1 ? *found : one;
            assert_true(found->nats == one.nats && found->tokens == one.tokens && found->bytes == one.bytes);
            assert_true(found->loss == one.loss && found->bits_per_byte == one.bits_per_byte);
        }
    }
}

static int stop_later(void *user, uint64_t done, uint64_t total)
{
    (void)user;
    return 2 * done >= total;
}

/* An error of one rank ends all of them. */
/* ---- masks ---- */

/* Groups of the tokens of a shard whose tokens are 0 or 1. */
static ddl_shards *masked_shards(unsigned char mask[N])
{
    struct ddl_error err;
    ddl_shards *masked;
    for (size_t i = 0; i < N; i++)
        mask[i] = (unsigned char)("0110222213"[i % 10] - '0');
    write_random_shard(scratch_path("masked.bin"), 4, 2, N);
    write_file(scratch_path("masked.mask"), mask, N);
    assert_ok(ddl_shards_open(&masked, scratch_path("masked.bin"), &err), err);
    return masked;
}

/* The groups of the scores of all tokens, added up one answer after the other. */
static void groups_of_scores(const struct collected *c, const unsigned char *mask,
                             struct ddl_eval_group groups[DDL_MASK_GROUPS])
{
    memset(groups, 0, DDL_MASK_GROUPS * sizeof *groups);
    for (size_t k = 0, end; k < c->n; k = end) {
        const int g = mask[c->score[k].position];
        bool exact = true;
        for (end = k; end < c->n && mask[c->score[end].position] == g; end++) {
            exact = exact && c->score[end].rank == 0;
            groups[g].correct += c->score[end].rank == 0;
            groups[g].nats -= c->score[end].logprob;
            groups[g].tokens++;
        }
        groups[g].answers++;
        groups[g].exact += exact;
    }
}

/* With logits that are all equal, greedy decoding chooses token 0. */
static void groups_by_hand(void **state)
{
    (void)state;
    static const struct ddl_eval_config configs[] = { { .batch = 1 }, { .seq = 7, .stride = 3, .batch = 2 } };
    unsigned char mask[N];
    struct ddl_error err;
    struct ddl_config zero = tiny_config("baseline", TINY_VOCAB);
    ddl_model *zeros;
    ddl_shards *masked = masked_shards(mask), *all;
    assert_ok(ddl_model_create(&zeros, &zero, backend, &err), err);
    write_random_shard(scratch_path("unmasked.bin"), 4, 2, N);
    assert_ok(ddl_shards_open(&all, scratch_path("unmasked.bin"), &err), err);
    for (size_t i = 0; i < 4; i++) {
        ddl_model *scored = i / 2 ? zeros : model;
        struct ddl_eval_config config = configs[i % 2];
        struct ddl_eval_group expected[DDL_MASK_GROUPS], found[DDL_MASK_GROUPS];
        struct ddl_eval_result r;
        struct collected c = { 0 };
        config.each = collect;
        config.user = &c;
        assert_ok(ddl_eval_shards(scored, NULL, all, &config, &r, &err), err);
        groups_of_scores(&c, mask, expected);
        config.each = NULL;
        config.groups = found;
        assert_ok(ddl_eval_shards(scored, NULL, masked, &config, &r, &err), err);
        assert_int_equal(r.positions, N - 1);
        assert_int_equal(r.tokens, expected[1].tokens + expected[2].tokens + expected[3].tokens);
        double nats = expected[1].nats + expected[2].nats + expected[3].nats;
        assert_true(fabs(r.nats - nats) < 1e-5 * nats && fabs(r.loss - nats / (double)r.tokens) < 1e-5);
        for (int g = 1; g < DDL_MASK_GROUPS; g++) {
            assert_int_equal(found[g].tokens, expected[g].tokens);
            assert_int_equal(found[g].correct, expected[g].correct);
            assert_int_equal(found[g].answers, expected[g].answers);
            assert_int_equal(found[g].exact, expected[g].exact);
            assert_true(fabs(found[g].nats - expected[g].nats) <= 1e-5 * expected[g].nats);
        }
        assert_true(scored == model || (found[1].exact > 0 && found[1].exact < found[1].answers));
        assert_true(found[0].tokens == 0);
    }
    ddl_shards_close(all);
    ddl_shards_close(masked);
    ddl_model_free(zeros);
}

static void ranks_have_the_groups_of_one(void **state)
{
    (void)state;
    unsigned char mask[N];
    ddl_shards *masked = masked_shards(mask);
    struct ddl_eval_group groups[MAX_RANKS][DDL_MASK_GROUPS], one[DDL_MASK_GROUPS];
    for (size_t n = 1; n <= MAX_RANKS; n++) {
        struct rank ranks[MAX_RANKS];
        for (size_t r = 0; r < n; r++)
            ranks[r] =
                (struct rank){ .config = { .seq = 3, .batch = 2, .groups = groups[r] }, .shards = masked };
        assert_ok(evaluate_ranks(ranks, n), ranks[0].err);
        if (n == 1)
            memcpy(one, groups[0], sizeof one);
        for (size_t r = 0; r < n; r++)
            assert_memory_equal(groups[r], one, sizeof one);
    }
    assert_int_equal(one[2].answers, 5);
    ddl_shards_close(masked);
}

static void masks_that_count_nothing_here(void **state)
{
    (void)state;
    unsigned char mask[N] = { 0 };
    struct ddl_error err;
    struct ddl_eval_result r;
    ddl_shards *masked;
    mask[N - 1] = 1;
    write_random_shard(scratch_path("masked.bin"), 4, 2, N);
    write_file(scratch_path("masked.mask"), mask, N);
    assert_ok(ddl_shards_open(&masked, scratch_path("masked.bin"), &err), err);
    const struct ddl_eval_config config = { .seq = 8, .max_tokens = 16 };
    assert_int_equal(ddl_eval_shards(model, NULL, masked, &config, &r, &err), DDL_E_FORMAT);
    assert_says(&err, "the masks count none of the 16 tokens");
    ddl_shards_close(masked);
}

static void an_error_of_a_rank(void **state)
{
    (void)state;
    struct rank ranks[3];
    struct ddl_error err;
    ddl_shards *other;
    for (size_t r = 0; r < 3; r++)
        ranks[r] = (struct rank){ .config = { .seq = 4, .batch = 1 }, .shards = shards };
    ranks[2].progress = stop_later;
    assert_int_equal(evaluate_ranks(ranks, 3), DDL_E_INTERRUPTED);
    assert_says(&ranks[0].err, "rank 2 of 3 (host host2): the evaluation was stopped after ");
    ranks[2].progress = NULL;
    ranks[1].config.seq = 100;
    assert_int_equal(evaluate_ranks(ranks, 3), DDL_E_USAGE);
    assert_says(&ranks[0].err, "rank 1 of 3 (host host1): seq: expected at most 16");
    ranks[1].config.seq = 4;
    write_random_shard(scratch_path("shorter.bin"), 3, 100, N - 1);
    assert_ok(ddl_shards_open(&other, scratch_path("shorter.bin"), &err), err);
    ranks[1].shards = other;
    assert_int_equal(evaluate_ranks(ranks, 3), DDL_E_USAGE);
    assert_string_equal(ranks[0].err.text, "rank 1 of 3 (host host1): tokens: the ranks differ: expected 53 "
                                           "as on rank 0, found 52");
    ddl_shards_close(other);
}

/* Weights of NaN give an error instead of a result: JSON has no NaN. */
static void a_loss_that_is_no_number(void **state)
{
    (void)state;
    struct ddl_error err;
    struct ddl_eval_result r;
    const struct ddl_eval_config config = { 0 };
    size_t n = ddl_model_param(model, 0)->count;
    float *kept = poisoned_floats(n), *nans = poisoned_floats(n);
    ddl_model_read_param(model, 0, kept);
    ddl_model_write_param(model, 0, nans);
    assert_int_equal(ddl_eval_shards(model, NULL, shards, &config, &r, &err), DDL_E_NUMERIC);
    assert_says(&err, "the loss is not finite");
    ddl_model_write_param(model, 0, kept);
    ddl_mem_free(kept);
    ddl_mem_free(nans);
}

/* A run of a few seconds, most of whose rule the model learns: what reduced weights cost it. */
static void train_small(const char *shard, const char *out)
{
    struct ddl_train_config t = ddl_train_defaults();
    struct ddl_error err;
    t.config = tiny_config("ddl-cc-ec", 97);
    t.config.d_model = 64;
    t.config.head_dim = 16;
    t.config.block_size = 32;
    t.config.n_layers = 2;
    snprintf(t.model, sizeof t.model, "ddl-cc-ec");
    snprintf(t.train_data, sizeof t.train_data, "%s", shard);
    snprintf(t.out, sizeof t.out, "%s", out);
    t.steps = 150;
    t.batch = 8;
    t.lr = 1e-2;
    t.warmup = 10;
    t.val_every = 0;
    t.checkpoint_every = 0;
    t.threads = 2;
    assert_ok(ddl_train_run(&t, NULL, NULL, &err), err);
}

/* Below the rule's own uncertainty by far: 0.002 nats in bfloat16 and 0.005 in eight bits, of 1.8. */
static void reduced_weights_cost_little(void **state)
{
    (void)state;
    static const double most[] = { 0, 2e-3, 5e-3 };
    struct ddl_error err;
    double loss[3];
    ddl_shards *unseen;
    write_random_shard(scratch_path("rule.bin"), 4, 97, 40000);
    write_random_shard(scratch_path("unseen.bin"), 5, 97, 4000);
    remove_scratch("trained");
    train_small(scratch_path("rule.bin"), scratch_path("trained"));
    assert_ok(ddl_shards_open(&unseen, scratch_path("unseen.bin"), &err), err);
    ddl_backend *cpu = open_test_backend(2);
    for (size_t p = 0; p < TEST_PRECISIONS; p++) {
        enum ddl_precision precision = test_precisions[p];
        const struct ddl_load_options options = { .precision = precision };
        struct ddl_eval_result r;
        ddl_model *trained;
        assert_ok(ddl_model_load_with(&trained, scratch_path("trained"), cpu, &options, &err), err);
        assert_ok(ddl_eval_shards(trained, NULL, unseen, &(struct ddl_eval_config){ .batch = 4 }, &r, &err),
                  err);
        loss[p] = r.loss;
        print_message("%s: %.6f\n", ddl_precision_names[precision], r.loss);
        assert_true(fabs(r.loss - loss[0]) <= most[p]);
        assert_true(p == 0 || r.loss != loss[0]);
        ddl_model_free(trained);
    }
    assert_true(loss[0] < 0.5 * log(97)); /* it has learnt */
    ddl_shards_close(unseen);
    ddl_backend_free(cpu);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(windows_by_hand),
        cmocka_unit_test(no_tokenizer_no_bytes),
        cmocka_unit_test(special_tokens_have_no_bytes),
        cmocka_unit_test(text_is_scored_whole),
        cmocka_unit_test(tokens_are_scored),
        cmocka_unit_test(tokens_of_reduced_weights),
        cmocka_unit_test(equal_logits_rank_by_id),
        cmocka_unit_test(tokens_of_shards),
        cmocka_unit_test(refusals),
        cmocka_unit_test(a_loss_that_is_no_number),
        cmocka_unit_test(reduced_weights_cost_little),
        cmocka_unit_test(ranks_have_the_result_of_one),
        cmocka_unit_test(groups_by_hand),
        cmocka_unit_test(ranks_have_the_groups_of_one),
        cmocka_unit_test(masks_that_count_nothing_here),
        cmocka_unit_test(an_error_of_a_rank),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
