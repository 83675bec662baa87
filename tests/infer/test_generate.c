/* infer/generate.c: the text equals that of full forward passes, with all options. */
#include "support/runs.h"

#include "ddl/generate.h"

#include <math.h>

enum { MAX_TEXT = 4096 };
struct heard {
    char text[4][MAX_TEXT];
    size_t n[4], calls, stop_after;
};

static int hear(void *user, size_t sequence, const char *text, size_t size)
{
    struct heard *h = user;
    assert_true(sequence < 4 && h->n[sequence] + size < MAX_TEXT);
    memcpy(h->text[sequence] + h->n[sequence], text, size);
    h->n[sequence] += size;
    return ++h->calls == h->stop_after;
}

static ddl_status generate(ddl_model *model, const struct ddl_generate_config *config, const char *prompt,
                           struct heard *h, struct ddl_generate_result *results, struct ddl_error *err)
{
    size_t stop_after = h->stop_after;
    *h = (struct heard){ .stop_after = stop_after };
    const struct ddl_generate_request request = { .model = model,
                                                  .tokenizer = shared_tokenizer,
                                                  .config = config,
                                                  .prompt = prompt,
                                                  .size = strlen(prompt),
                                                  .text = hear,
                                                  .user = h };
    return ddl_generate(&request, results, err);
}

/* Greedy text by a full forward pass for each token, without a cache. */
static void greedy_by_hand(ddl_model *model, const char *prompt, size_t n, char *out)
{
    struct ddl_error err;
    struct ddl_ids ids = { 0 };
    struct ddl_decode_stream stream = { 0 };
    static float logits[TINY_VOCAB];
    size_t used = 0, V = ddl_tokenizer_vocab_size(shared_tokenizer);
    assert_ok(ddl_tokenizer_encode(shared_tokenizer, prompt, strlen(prompt), false, &ids, &err), err);
    int32_t all[32];
    size_t length = ids.n;
    memcpy(all, ids.ids, length * sizeof *all);
    ddl_ids_free(&ids);
    for (size_t i = 0; i < n; i++) {
        ddl_workspace *ws;
        struct ddl_batch batch = { 1, length, all, NULL };
        assert_ok(ddl_workspace_create(&ws, model,
                                       &(struct ddl_workspace_options){ .batch = 1, .tokens = length }, &err),
                  err);
        assert_ok(ddl_model_logits(model, ws, &batch, 1, logits, &err), err);
        ddl_workspace_free(ws);
        size_t best = 0;
        for (size_t v = 1; v < V; v++)
            best = logits[v] > logits[best] ? v : best;
        if ((int32_t)best == ddl_tokenizer_end_of_text(shared_tokenizer))
            break;
        all[length++] = (int32_t)best;
        used += ddl_decode_push(&stream, shared_tokenizer, (int32_t)best, out + used, MAX_TEXT - used);
    }
    used += ddl_decode_flush(&stream, out + used, MAX_TEXT - used);
    out[used] = '\0';
}

static void greedy_is_the_full_forward(void **state)
{
    (void)state;
    static const char *const presets[] = { "baseline", "ddl-1", "ddl-tc-ec", "ddl-cc-ec" };
    for (size_t i = 0; i < 4; i++) {
        ddl_model *model = tiny_model(presets[i], TINY_VOCAB, 7 + i, shared_backend);
        struct ddl_generate_config config = ddl_generate_defaults();
        struct heard h = { 0 };
        struct ddl_error err;
        char expected[MAX_TEXT];
        config.sampling.temperature = 0;
        config.sampling.max_tokens = 9;
        greedy_by_hand(model, "free of", 9, expected);
        assert_ok(generate(model, &config, "free of", &h, NULL, &err), err);
        assert_string_equal(h.text[0], expected);
        /* Sequences side by side have the same. */
        config.n = 3;
        assert_ok(generate(model, &config, "free of", &h, NULL, &err), err);
        for (size_t s = 0; s < 3; s++)
            assert_string_equal(h.text[s], expected);
        ddl_model_free(model);
    }
}

static void chance_is_a_function_of_the_seed(void **state)
{
    (void)state;
    ddl_model *model = tiny_model("ddl-cc", TINY_VOCAB, 7, shared_backend);
    struct ddl_generate_config config = ddl_generate_defaults();
    struct heard a = { 0 }, b = { 0 };
    struct ddl_error err;
    config.sampling.max_tokens = 8;
    config.n = 4;
    config.sampling.seed = 5;
    assert_ok(generate(model, &config, "The", &a, NULL, &err), err);
    assert_ok(generate(model, &config, "The", &b, NULL, &err), err);
    assert_memory_equal(a.text, b.text, sizeof a.text);
    assert_string_not_equal(a.text[0], a.text[1]);
    config.n = 1; /* sequence 0 does not depend on how many there are */
    assert_ok(generate(model, &config, "The", &b, NULL, &err), err);
    assert_string_equal(a.text[0], b.text[0]);
    config.sampling.seed = 6;
    assert_ok(generate(model, &config, "The", &b, NULL, &err), err);
    assert_string_not_equal(a.text[0], b.text[0]);
    ddl_model_free(model);
}

static void ends(void **state)
{
    (void)state;
    ddl_model *model = tiny_model("baseline", TINY_VOCAB, 7, shared_backend);
    struct ddl_generate_config config = ddl_generate_defaults();
    struct ddl_generate_result r[2];
    struct heard h = { 0 };
    struct ddl_error err;
    char all[MAX_TEXT];
    config.sampling.temperature = 0;
    config.sampling.max_tokens = 5;
    assert_ok(generate(model, &config, "free", &h, r, &err), err);
    assert_true(r[0].finish == DDL_FINISH_LENGTH && r[0].tokens == 5);
    config.sampling.max_tokens = 1000;
    assert_ok(generate(model, &config, "free", &h, r, &err), err);
    assert_int_equal(r[0].finish, DDL_FINISH_CONTEXT);
    assert_int_equal(r[0].prompt_tokens + r[0].tokens, 16 + 1);
    assert_true(h.n[0] > 4);
    strcpy(all, h.text[0]);
    /* Some of its text as a stop string. */
    char stop[3] = { all[2], all[3], '\0' };
    const char *stops[] = { "never said", stop };
    config.sampling.stop = stops;
    config.sampling.n_stop = 2;
    assert_ok(generate(model, &config, "free", &h, r, &err), err);
    assert_int_equal(r[0].finish, DDL_FINISH_STOP);
    assert_int_equal(h.n[0], strstr(all, stop) - all);
    assert_memory_equal(h.text[0], all, h.n[0]);
    config.sampling.n_stop = 0;
    h.stop_after = 2;
    assert_ok(generate(model, &config, "free", &h, r, &err), err);
    assert_int_equal(r[0].finish, DDL_FINISH_CANCELLED);
    assert_int_equal(h.calls, 2);
    ddl_model_free(model);
}

/* A model whose every choice is <|endoftext|>: its embedding row is the only one that is not zero... times
 * the final norm, so one of two rows of opposite sign wins. */
static void the_end_of_text_ends(void **state)
{
    (void)state;
    ddl_model *model = tiny_model("baseline", TINY_VOCAB, 7, shared_backend);
    size_t d = 21, count = ddl_model_param(model, 0)->count;
    int32_t end = ddl_tokenizer_end_of_text(shared_tokenizer);
    float *wte = calloc(count, sizeof *wte);
    assert_non_null(wte);
    assert_string_equal(ddl_model_param(model, 0)->name, "transformer.wte.weight");
    for (size_t i = 0; i < d; i++)
        wte[(size_t)end * d + i] = 1;
    ddl_model_write_param(model, 0, wte);
    free(wte);
    for (size_t i = 0; i < ddl_model_n_params(model); i++) {
        const struct ddl_param *p = ddl_model_param(model, i);
        if (!strstr(p->name, "c_proj"))
            continue;
        float *zeros = calloc(p->count, sizeof *zeros); /* the stream stays the embedding */
        assert_non_null(zeros);
        ddl_model_write_param(model, i, zeros);
        free(zeros);
    }
    struct ddl_generate_config config = ddl_generate_defaults();
    struct ddl_generate_result r;
    struct heard h = { 0 };
    struct ddl_error err;
    config.sampling.temperature = 0;
    assert_ok(generate(model, &config, "", &h, &r, &err), err); /* begins with it too */
    assert_true(r.finish == DDL_FINISH_END && r.tokens == 0 && r.prompt_tokens == 1 && h.n[0] == 0);
    ddl_model_free(model);
}

static void refusals(void **state)
{
    (void)state;
    ddl_model *model = tiny_model("baseline", TINY_VOCAB, 7, shared_backend);
    ddl_model *narrow = tiny_model("baseline", 100, 7, shared_backend);
    struct ddl_generate_config config = ddl_generate_defaults();
    struct heard h = { 0 };
    struct ddl_error err;
    const char *longest = "0123456789012345";
    assert_ok(generate(model, &config, longest, &h, NULL, &err), err); /* 16 tokens: one more fits */
    assert_int_equal(generate(model, &config, "01234567890123456", &h, NULL, &err), DDL_E_USAGE);
    assert_says(&err, "the prompt is 17 tokens, the model's context 16");
    assert_int_equal(generate(narrow, &config, "a", &h, NULL, &err), DDL_E_FORMAT);
    assert_says(&err, "the model's vocabulary 100");
    config.sampling.temperature = -1;
    assert_int_equal(generate(model, &config, "a", &h, NULL, &err), DDL_E_USAGE);
    assert_says(&err, "temperature: -1 is out of range");
    config.sampling.temperature = NAN;
    assert_int_equal(generate(model, &config, "a", &h, NULL, &err), DDL_E_USAGE);
    config = ddl_generate_defaults();
    config.n = 0;
    assert_int_equal(generate(model, &config, "a", &h, NULL, &err), DDL_E_USAGE);
    config = ddl_generate_defaults();
    config.cache = 3;
    assert_int_equal(generate(model, &config, "a", &h, NULL, &err), DDL_E_USAGE);
    assert_says(&err, "cache: 3 is out of range (0 to 2)");
    config = ddl_generate_defaults();
    size_t count = ddl_model_param(model, 0)->count;
    float *wte = malloc(count * sizeof *wte);
    assert_non_null(wte);
    for (size_t i = 0; i < count; i++)
        wte[i] = NAN;
    ddl_model_write_param(model, 0, wte);
    free(wte);
    assert_int_equal(generate(model, &config, "a", &h, NULL, &err), DDL_E_NUMERIC);
    assert_says(&err, "no logit of new token 0 is finite");
    ddl_model_free(narrow);
    ddl_model_free(model);
}

/* Text of a greedy generation with `sampling`, and its result. */
static void greedy_with(ddl_model *model, struct ddl_sampling sampling, const char *prompt, struct heard *h,
                        struct ddl_generate_result *result)
{
    struct ddl_generate_config config = ddl_generate_defaults();
    struct ddl_error err;
    config.sampling = sampling;
    config.sampling.temperature = 0;
    assert_ok(generate(model, &config, prompt, h, result, &err), err);
}

static void biases_and_stop_ids(void **state)
{
    (void)state;
    ddl_model *model = tiny_model("ddl-1", TINY_VOCAB, 7, shared_backend);
    struct ddl_sampling sampling = ddl_sampling_defaults();
    struct ddl_generate_result r;
    struct heard h = { 0 };
    struct ddl_ids ids = { 0 };
    struct ddl_error err;
    sampling.max_tokens = 6;
    assert_ok(ddl_tokenizer_encode(shared_tokenizer, "x", 1, false, &ids, &err), err);
    struct ddl_logit_bias always = { ids.ids[0], 1000 }, never = { ids.ids[0], -INFINITY };
    sampling.bias = &always;
    sampling.n_bias = 1;
    greedy_with(model, sampling, "free", &h, &r);
    assert_string_equal(h.text[0], "xxxxxx");
    /* A penalty for each occurrence; the one for presence once; of the prompt's tokens only repeat_penalty.
     */
    sampling.frequency_penalty = 100;
    always.bias = 250;
    greedy_with(model, sampling, "free", &h, &r);
    assert_true(h.n[0] >= 6 && strncmp(h.text[0], "xxx", 3) == 0 && h.text[0][3] != 'x');
    sampling.frequency_penalty = 0;
    sampling.presence_penalty = 100;
    always.bias = 50;
    greedy_with(model, sampling, "x", &h, &r);
    assert_true(h.text[0][0] == 'x' && strchr(h.text[0] + 1, 'x') == NULL);
    sampling.presence_penalty = 0;
    sampling.stop_ids = ids.ids;
    sampling.n_stop_ids = 1;
    greedy_with(model, sampling, "free", &h, &r);
    assert_true(r.finish == DDL_FINISH_STOP && r.tokens == 0 && h.n[0] == 0);
    struct ddl_logit_bias both[] = { always, never };
    sampling.bias = both;
    sampling.n_bias = 2; /* 50 and -infinity */
    greedy_with(model, sampling, "free", &h, &r);
    assert_true(r.finish == DDL_FINISH_LENGTH && strchr(h.text[0], 'x') == NULL);
    ddl_ids_free(&ids);
    ddl_model_free(model);
}

/* Three favored tokens and a penalty above any difference of their logits: each of them once. */
static void repeated_tokens_are_penalized(void **state)
{
    (void)state;
    ddl_model *model = tiny_model("baseline", TINY_VOCAB, 7, shared_backend);
    struct ddl_logit_bias favored[3];
    struct ddl_sampling sampling = ddl_sampling_defaults();
    struct ddl_generate_result r;
    struct heard h = { 0 };
    struct ddl_ids ids = { 0 };
    struct ddl_error err;
    assert_ok(ddl_tokenizer_encode(shared_tokenizer, "xyz", 3, false, &ids, &err), err);
    assert_int_equal(ids.n, 3);
    for (size_t i = 0; i < 3; i++)
        favored[i] = (struct ddl_logit_bias){ ids.ids[i], 50 };
    ddl_ids_free(&ids);
    sampling.bias = favored;
    sampling.n_bias = 3;
    sampling.max_tokens = 3;
    sampling.presence_penalty = 20;
    greedy_with(model, sampling, "f", &h, &r);
    assert_true(h.n[0] == 3 && strchr(h.text[0], 'x') && strchr(h.text[0], 'y') && strchr(h.text[0], 'z'));
    ddl_model_free(model);
}

static void sampling_is_checked(void **state)
{
    (void)state;
    static const char *const empty[] = { "a", "" };
    static const int32_t ids[] = { 1, 10 };
    static const struct ddl_logit_bias outside = { -1, 0 }, endless = { 2, INFINITY };
    struct ddl_sampling k = ddl_sampling_defaults();
    struct ddl_error err;
    assert_ok(ddl_sampling_check(&k, 10, &err), err);
    k.stop = empty;
    k.n_stop = 2;
    assert_int_equal(ddl_sampling_check(&k, 10, &err), DDL_E_USAGE);
    assert_says(&err, "stop 1: an empty text");
    k.n_stop = 1;
    k.stop_ids = ids;
    k.n_stop_ids = 2;
    assert_int_equal(ddl_sampling_check(&k, 10, &err), DDL_E_USAGE);
    assert_says(&err, "stop_id 1: expected a token from 0 to 9, found 10");
    k.n_stop_ids = 1;
    k.bias = &outside;
    k.n_bias = 1;
    assert_int_equal(ddl_sampling_check(&k, 10, &err), DDL_E_USAGE);
    assert_says(&err, "logit_bias 0: expected a token from 0 to 9, found -1");
    k.bias = &endless;
    assert_int_equal(ddl_sampling_check(&k, 10, &err), DDL_E_USAGE);
    assert_says(&err, "expected a number from -1e6 to 1e6, or -infinity");
    k.n_bias = 0;
    k.min_p = 2;
    assert_int_equal(ddl_sampling_check(&k, 10, &err), DDL_E_USAGE);
    assert_says(&err, "min_p");
    k = ddl_sampling_defaults();
    k.sequence = (uint64_t)1 << 32;
    assert_int_equal(ddl_sampling_check(&k, 10, &err), DDL_E_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greedy_is_the_full_forward),
        cmocka_unit_test(chance_is_a_function_of_the_seed),
        cmocka_unit_test(ends),
        cmocka_unit_test(the_end_of_text_ends),
        cmocka_unit_test(refusals),
        cmocka_unit_test(biases_and_stop_ids),
        cmocka_unit_test(repeated_tokens_are_penalized),
        cmocka_unit_test(sampling_is_checked),
    };
    return cmocka_run_group_tests(tests, share_ref, unshare);
}
