/* infer/generate.c: the text equals that of full forward passes, with all options. */
#include "support/runs.h"

#include "ddl/generate.h"

#include <math.h>

static ddl_backend *backend;
static ddl_tokenizer *tokenizer;

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

static int set_up(void **state)
{
    (void)state;
    struct ddl_error err;
    assert_ok(ddl_backend_create(&backend, "ref", 0, &err), err);
    tokenizer = tiny_tokenizer();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    ddl_tokenizer_free(tokenizer);
    ddl_backend_free(backend);
    return 0;
}

static ddl_status generate(ddl_model *model, const struct ddl_generate_config *config, const char *prompt,
                           struct heard *h, struct ddl_generate_result *results, struct ddl_error *err)
{
    size_t stop_after = h->stop_after;
    *h = (struct heard){ .stop_after = stop_after };
    const struct ddl_generate_request request = { .model = model,
                                                  .tokenizer = tokenizer,
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
    size_t used = 0, V = ddl_tokenizer_vocab_size(tokenizer);
    assert_ok(ddl_tokenizer_encode(tokenizer, prompt, strlen(prompt), false, &ids, &err), err);
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
        if ((int32_t)best == ddl_tokenizer_end_of_text(tokenizer))
            break;
        all[length++] = (int32_t)best;
        used += ddl_decode_push(&stream, tokenizer, (int32_t)best, out + used, MAX_TEXT - used);
    }
    used += ddl_decode_flush(&stream, out + used, MAX_TEXT - used);
    out[used] = '\0';
}

static void greedy_is_the_full_forward(void **state)
{
    (void)state;
    static const char *const presets[] = { "baseline", "ddl-1", "ddl-tc-ec", "ddl-cc-ec" };
    for (size_t i = 0; i < 4; i++) {
        ddl_model *model = tiny_model(presets[i], TINY_VOCAB, 7 + i, backend);
        struct ddl_generate_config config = ddl_generate_defaults();
        struct heard h = { 0 };
        struct ddl_error err;
        char expected[MAX_TEXT];
        config.temperature = 0;
        config.max_tokens = 9;
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
    ddl_model *model = tiny_model("ddl-cc", TINY_VOCAB, 7, backend);
    struct ddl_generate_config config = ddl_generate_defaults();
    struct heard a = { 0 }, b = { 0 };
    struct ddl_error err;
    config.max_tokens = 8;
    config.n = 4;
    config.seed = 5;
    assert_ok(generate(model, &config, "The", &a, NULL, &err), err);
    assert_ok(generate(model, &config, "The", &b, NULL, &err), err);
    assert_memory_equal(a.text, b.text, sizeof a.text);
    assert_string_not_equal(a.text[0], a.text[1]);
    config.n = 1; /* sequence 0 does not depend on how many there are */
    assert_ok(generate(model, &config, "The", &b, NULL, &err), err);
    assert_string_equal(a.text[0], b.text[0]);
    config.seed = 6;
    assert_ok(generate(model, &config, "The", &b, NULL, &err), err);
    assert_string_not_equal(a.text[0], b.text[0]);
    ddl_model_free(model);
}

static void ends(void **state)
{
    (void)state;
    ddl_model *model = tiny_model("baseline", TINY_VOCAB, 7, backend);
    struct ddl_generate_config config = ddl_generate_defaults();
    struct ddl_generate_result r[2];
    struct heard h = { 0 };
    struct ddl_error err;
    char all[MAX_TEXT];
    config.temperature = 0;
    config.max_tokens = 5;
    assert_ok(generate(model, &config, "free", &h, r, &err), err);
    assert_true(r[0].finish == DDL_FINISH_LENGTH && r[0].tokens == 5);
    config.max_tokens = 1000;
    assert_ok(generate(model, &config, "free", &h, r, &err), err);
    assert_int_equal(r[0].finish, DDL_FINISH_CONTEXT);
    assert_int_equal(r[0].prompt_tokens + r[0].tokens, 16 + 1);
    assert_true(h.n[0] > 4);
    strcpy(all, h.text[0]);
    /* Some of its text as a stop string. */
    char stop[3] = { all[2], all[3], '\0' };
    const char *stops[] = { "never said", stop };
    config.stop = stops;
    config.n_stop = 2;
    assert_ok(generate(model, &config, "free", &h, r, &err), err);
    assert_int_equal(r[0].finish, DDL_FINISH_STOP);
    assert_int_equal(h.n[0], strstr(all, stop) - all);
    assert_memory_equal(h.text[0], all, h.n[0]);
    config.n_stop = 0;
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
    ddl_model *model = tiny_model("baseline", TINY_VOCAB, 7, backend);
    size_t d = 21, count = ddl_model_param(model, 0)->count;
    int32_t end = ddl_tokenizer_end_of_text(tokenizer);
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
    config.temperature = 0;
    assert_ok(generate(model, &config, "", &h, &r, &err), err); /* begins with it too */
    assert_true(r.finish == DDL_FINISH_END && r.tokens == 0 && r.prompt_tokens == 1 && h.n[0] == 0);
    ddl_model_free(model);
}

static void refusals(void **state)
{
    (void)state;
    ddl_model *model = tiny_model("baseline", TINY_VOCAB, 7, backend);
    ddl_model *narrow = tiny_model("baseline", 100, 7, backend);
    struct ddl_generate_config config = ddl_generate_defaults();
    struct heard h = { 0 };
    struct ddl_error err;
    const char *longest = "0123456789012345";
    assert_ok(generate(model, &config, longest, &h, NULL, &err), err); /* 16 tokens: one more fits */
    assert_int_equal(generate(model, &config, "01234567890123456", &h, NULL, &err), DDL_E_USAGE);
    assert_says(&err, "the prompt is 17 tokens, the model's context 16");
    assert_int_equal(generate(narrow, &config, "a", &h, NULL, &err), DDL_E_FORMAT);
    assert_says(&err, "the model's vocabulary 100");
    config.temperature = -1;
    assert_int_equal(generate(model, &config, "a", &h, NULL, &err), DDL_E_USAGE);
    assert_says(&err, "temperature: -1 is out of range");
    config.temperature = NAN;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greedy_is_the_full_forward),
        cmocka_unit_test(chance_is_a_function_of_the_seed),
        cmocka_unit_test(ends),
        cmocka_unit_test(the_end_of_text_ends),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
