/* infer/engine.c: a request has the tokens that it has alone, whatever runs with it and ran before it. */
#include "support/models.h"
#include "support/runs.h"

#include "base/rng.h"
#include "ddl/engine.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONTEXT = 160, SLOTS = 9, NEIGHBORS = 32, PROMPT = 100, NEW = 20 };

static const char *const presets[] = { "baseline", "ddl-1", "ddl-tc-ec", "ddl-cc-ec", "mhc" };
enum { PRESETS = sizeof presets / sizeof *presets, PRECISIONS = TEST_PRECISIONS };

static ddl_model *model_of(const char *preset, enum ddl_precision precision)
{
    struct ddl_config config = small_config(preset);
    struct ddl_error err;
    ddl_model *model;
    config.vocab_size = TINY_VOCAB;
    config.block_size = CONTEXT;
    assert_ok(ddl_model_create_for_inference(&model, &config, precision, shared_backend, &err), err);
    assert_ok(ddl_model_init(model, 5, &err), err);
    return model;
}

static ddl_engine *engine_of(ddl_model *model, size_t slots, size_t cached)
{
    ddl_engine *engine;
    struct ddl_error err;
    const struct ddl_engine_options options = { .slots = slots, .cached = cached, .tokens = CONTEXT };
    assert_ok(ddl_engine_create(&engine, model, shared_tokenizer, &options, &err), err);
    return engine;
}

/* n tokens of text `text`: texts from 100 on share their first `shared` tokens. */
static void fill(int32_t *tokens, uint64_t text, size_t n, size_t shared)
{
    size_t V = ddl_tokenizer_vocab_size(shared_tokenizer);
    for (size_t t = 0; t < n; t++)
        tokens[t] = (int32_t)ddl_rng_below(t < shared ? 100 : text, t, V);
}

static ddl_generation *add(ddl_engine *engine, uint64_t text, size_t n, size_t shared,
                           const struct ddl_sampling *sampling)
{
    int32_t tokens[CONTEXT];
    ddl_generation *generation;
    struct ddl_error err;
    fill(tokens, text, n, shared);
    assert_ok(
        ddl_engine_add(engine,
                       &(struct ddl_engine_request){ .prompt = tokens, .n_prompt = n, .sampling = sampling },
                       &generation, &err),
        err);
    return generation;
}

static int finish_of(const ddl_generation *generation)
{
    struct ddl_generation_state state;
    ddl_generation_get(generation, &state);
    return state.finish;
}

static size_t reused_of(const ddl_generation *generation)
{
    struct ddl_generation_state state;
    ddl_generation_get(generation, &state);
    return state.reused;
}

static void run(ddl_engine *engine)
{
    struct ddl_error err;
    while (ddl_engine_running(engine))
        assert_ok(ddl_engine_pass(engine, NULL, &err), err);
}

/* Tokens of a request that runs alone in a new engine. */
static size_t alone(ddl_model *model, uint64_t text, size_t n, size_t shared,
                    const struct ddl_sampling *sampling, int32_t *out)
{
    ddl_engine *engine = engine_of(model, 1, 0);
    ddl_generation *generation = add(engine, text, n, shared, sampling);
    size_t tokens;
    run(engine);
    memcpy(out, ddl_generation_ids(generation, &tokens), NEW * sizeof *out);
    ddl_generation_free(generation);
    ddl_engine_free(engine);
    return tokens;
}

static struct ddl_sampling sampling_of(float temperature, uint64_t seed)
{
    struct ddl_sampling sampling = ddl_sampling_defaults();
    sampling.max_tokens = NEW;
    sampling.temperature = temperature;
    sampling.seed = seed;
    sampling.ignore_end = true;
    return sampling;
}

/* A request beside 32 random ones, which come, end and are cancelled at random. */
static void check_neighbors(ddl_model *model, float temperature, const char *what)
{
    const struct ddl_sampling sampling = sampling_of(temperature, 3);
    int32_t expected[NEW];
    ddl_generation *neighbors[NEIGHBORS], *generation = NULL;
    ddl_engine *engine = engine_of(model, SLOTS, 2);
    size_t n = alone(model, 7, PROMPT, 30, &sampling, expected), added = 0, count, passes = 0;
    struct ddl_error err;
    while (added < NEIGHBORS || ddl_engine_running(engine) || !generation) {
        while (added < NEIGHBORS && ddl_engine_running(engine) < SLOTS - !generation &&
               ddl_rng_below(11, passes * 64 + added, 3)) {
            struct ddl_sampling other = sampling_of((float)ddl_rng_below(12, added, 2), added);
            other.max_tokens = 1 + (size_t)ddl_rng_below(13, added, NEW);
            other.presence_penalty = (float)(added % 3);
            neighbors[added] =
                add(engine, 200 + added, 1 + (size_t)ddl_rng_below(14, added, 120), added % 50, &other);
            added++;
        }
        if (!generation && added > 5)
            generation = add(engine, 7, PROMPT, 30, &sampling);
        assert_ok(ddl_engine_pass(engine, NULL, &err), err);
        if (added && ddl_rng_below(15, passes, 8) == 0)
            ddl_generation_cancel(neighbors[ddl_rng_below(16, passes, added)]);
        passes++;
    }
    const int32_t *ids = ddl_generation_ids(generation, &count);
    assert_int_equal(count, n);
    if (memcmp(ids, expected, n * sizeof *ids) != 0)
        fail_msg("%s, temperature %g: tokens differ from those of the request alone", what,
                 (double)temperature);
    for (size_t i = 0; i < added; i++)
        ddl_generation_free(neighbors[i]);
    ddl_generation_free(generation);
    ddl_engine_free(engine);
}

static void neighbors_change_nothing(void **state)
{
    (void)state;
    for (size_t i = 0; i < PRESETS * PRECISIONS; i++) {
        ddl_model *model = model_of(presets[i / PRECISIONS], test_precisions[i % PRECISIONS]);
        char what[128];
        snprintf(what, sizeof what, "%s, %s", presets[i / PRECISIONS],
                 ddl_precision_names[test_precisions[i % PRECISIONS]]);
        check_neighbors(model, 0, what);
        check_neighbors(model, 1, what);
        ddl_model_free(model);
    }
}

/* Requests with common prefixes, one after the other and together. */
static void prefixes_are_reused(void **state)
{
    (void)state;
    for (size_t i = 0; i < PRESETS; i++) {
        ddl_model *model = model_of(presets[i], DDL_PRECISION_F32);
        const struct ddl_sampling sampling = sampling_of(1, 9);
        ddl_engine *engine = engine_of(model, 2, 2);
        size_t n,
            convolutions = strncmp(presets[i], "ddl-tc", 6) == 0 || strcmp(presets[i], "ddl-cc-ec") == 0;
        for (uint64_t text = 300; text < 306; text++) {
            int32_t expected[NEW];
            size_t shared = 70 + (size_t)(text % 3) * 10;
            ddl_generation *generation = add(engine, text, PROMPT, shared, &sampling);
            run(engine);
            if (text > 300 && convolutions)
                assert_int_equal(reused_of(generation), 64);
            else if (text > 300)
                assert_true(reused_of(generation) >= 70);
            alone(model, text, PROMPT, shared, &sampling, expected);
            assert_memory_equal(ddl_generation_ids(generation, &n), expected, sizeof expected);
            ddl_generation_free(generation);
        }
        /* The same prompt again, and beside the one that runs. */
        ddl_generation *one = add(engine, 305, PROMPT, 90, &sampling);
        struct ddl_error err;
        for (size_t pass = 0; pass < 5; pass++)
            assert_ok(ddl_engine_pass(engine, NULL, &err), err);
        ddl_generation *two = add(engine, 305, PROMPT, 90, &sampling);
        assert_int_equal(reused_of(one), convolutions ? 64 : PROMPT - 1);
        assert_int_equal(reused_of(two), convolutions ? 64 : PROMPT - 1);
        run(engine);
        assert_memory_equal(ddl_generation_ids(one, &n), ddl_generation_ids(two, &n), NEW * sizeof(int32_t));
        ddl_generation_free(one);
        ddl_generation_free(two);
        ddl_engine_free(engine);
        ddl_model_free(model);
    }
}

/* A long prompt beside a text that runs: a token of the text in every pass, and the prompt in parts. A
 * cancelled request ends within one pass. */
static void prompts_do_not_stall_texts(void **state)
{
    (void)state;
    ddl_model *model = model_of("ddl-cc-ec", DDL_PRECISION_F32);
    ddl_engine *engine = engine_of(model, 2, 0);
    const struct ddl_sampling sampling = sampling_of(0, 0);
    struct ddl_engine_progress progress;
    struct ddl_error err;
    ddl_generation *text = add(engine, 1, 3, 0, &sampling);
    assert_ok(ddl_engine_pass(engine, &progress, &err), err);
    assert_true(progress.prompt_tokens == 3 && progress.new_tokens == 1 && progress.running == 1);
    ddl_generation *prompt = add(engine, 2, 150, 0, &sampling);
    for (size_t pass = 0; pass < 2; pass++) {
        assert_ok(ddl_engine_pass(engine, &progress, &err), err);
        assert_true(progress.new_tokens == 1 && progress.prompt_tokens == 63);
    }
    ddl_generation_cancel(text);
    assert_ok(ddl_engine_pass(engine, &progress, &err), err);
    assert_int_equal(finish_of(text), DDL_FINISH_CANCELLED);
    assert_true(progress.new_tokens == 1 && progress.prompt_tokens == 24 && progress.running == 1);
    ddl_generation_free(prompt); /* before its end */
    assert_int_equal(ddl_engine_running(engine), 0);
    ddl_generation_free(text);
    ddl_engine_free(engine);
    ddl_model_free(model);
}

/* The size of a pass changes no token. */
static void rows_change_nothing(void **state)
{
    (void)state;
    static const size_t rows[] = { 1, 2, 7, 1000 };
    ddl_model *model = model_of("ddl-tc-ec", DDL_PRECISION_F32);
    const struct ddl_sampling sampling = sampling_of(1, 4);
    int32_t expected[3][NEW];
    struct ddl_error err;
    size_t n;
    for (size_t i = 0; i < 3; i++)
        alone(model, 20 + i, 3 + 40 * i, 0, &sampling, expected[i]);
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        ddl_engine *engine;
        ddl_generation *of[3];
        const struct ddl_engine_options options = { .slots = 3, .tokens = CONTEXT, .rows = rows[k] };
        assert_ok(ddl_engine_create(&engine, model, shared_tokenizer, &options, &err), err);
        for (size_t i = 0; i < 3; i++)
            of[i] = add(engine, 20 + i, 3 + 40 * i, 0, &sampling);
        run(engine);
        for (size_t i = 0; i < 3; i++) {
            assert_memory_equal(ddl_generation_ids(of[i], &n), expected[i], sizeof expected[i]);
            ddl_generation_free(of[i]);
        }
        ddl_engine_free(engine);
    }
    ddl_model_free(model);
}

/* A first token that all prompts share keeps no slot from being replaced. */
/* What a request's tokens were scored as. */
struct scores {
    struct ddl_engine_token token[CONTEXT];
    struct ddl_scored_token top[CONTEXT][3];
    size_t n;
};

static void score(void *user, size_t sequence, const struct ddl_engine_token *token)
{
    struct scores *scores = user;
    (void)sequence;
    assert_in_range(scores->n, 0, CONTEXT - 1);
    assert_int_equal(token->n_top, isnan(token->logprob) ? 0 : 3);
    scores->token[scores->n] = *token;
    for (size_t i = 0; i < token->n_top; i++)
        scores->top[scores->n][i] = token->top[i];
    scores->n++;
}

static ddl_generation *add_scored(ddl_engine *engine, const int32_t *tokens, size_t n, struct scores *scores,
                                  const struct ddl_sampling *sampling, bool prompt_only)
{
    const struct ddl_engine_request request = { .prompt = tokens,
                                                .n_prompt = n,
                                                .sampling = sampling,
                                                .user = scores,
                                                .token = score,
                                                .n_top = 3,
                                                .score_prompt = true,
                                                .prompt_only = prompt_only };
    ddl_generation *generation;
    struct ddl_error err;
    assert_ok(ddl_engine_add(engine, &request, &generation, &err), err);
    return generation;
}

/* The scores of token t > 0 of `tokens`, from a session's logits: log p(t) and the three likeliest. */
static void check_scores(ddl_model *model, const struct scores *scores, const int32_t *tokens, size_t n)
{
    size_t V = ddl_model_config(model)->vocab_size;
    const struct ddl_session_options options = { .slots = 1, .tokens = CONTEXT, .exact = true };
    float *logits = malloc(n * V * sizeof *logits);
    ddl_session *session;
    struct ddl_error err;
    assert_non_null(logits);
    assert_ok(ddl_session_create(&session, model, &options, &err), err);
    assert_ok(ddl_session_prefill(session,
                                  &(struct ddl_session_input){
                                      .slot = 0, .n = n, .tokens = tokens, .n_logits = n, .logits = logits },
                                  1, &err),
              err);
    for (size_t t = 1; t < n; t++) {
        const float *row = logits + (t - 1) * V;
        double sum = 0;
        for (size_t i = 0; i < V; i++)
            sum += exp(row[i]);
        assert_int_equal(scores->token[t].id, tokens[t]);
        assert_float_equal(scores->token[t].logprob, (float)(row[tokens[t]] - log(sum)), 1e-5f);
        for (size_t k = 0; k < 3; k++) {
            const struct ddl_scored_token *top = &scores->top[t][k];
            size_t before = 0;
            for (size_t i = 0; i < V; i++)
                before += row[i] > row[top->id] || (row[i] == row[top->id] && i < (size_t)top->id);
            assert_int_equal(before, k);
            assert_float_equal(top->logprob, (float)(row[top->id] - log(sum)), 1e-5f);
        }
    }
    ddl_session_free(session);
    free(logits);
}

/* Prompt and new tokens are scored without penalties and temperature, whatever is cached. */
static void tokens_are_scored(void **state)
{
    (void)state;
    static struct scores scores, again;
    int32_t tokens[CONTEXT];
    struct ddl_sampling sampling = ddl_sampling_defaults();
    sampling.max_tokens = NEW;
    sampling.temperature = 0.5f;
    sampling.repeat_penalty = 1.5f;
    sampling.ignore_end = true;
    for (size_t m = 0; m < PRESETS; m++) {
        ddl_model *model = model_of(presets[m], DDL_PRECISION_F32);
        ddl_engine *engine = engine_of(model, 3, 2);
        ddl_generation *other = add(engine, 7, PROMPT / 2, 0, &sampling);
        scores.n = again.n = 0;
        fill(tokens, 3, PROMPT, 0);
        ddl_generation *generation = add_scored(engine, tokens, PROMPT, &scores, &sampling, false);
        run(engine);
        assert_int_equal(scores.n, PROMPT + NEW);
        for (size_t t = 0; t < scores.n; t++) {
            assert_int_equal(scores.token[t].is_prompt, t < PROMPT);
            assert_int_equal(scores.token[t].index, t < PROMPT ? t : t - PROMPT);
        }
        assert_true(isnan(scores.token[0].logprob));
        size_t n;
        memcpy(tokens + PROMPT, ddl_generation_ids(generation, &n), NEW * sizeof *tokens);
        assert_int_equal(n, NEW);
        check_scores(model, &scores, tokens, PROMPT + NEW);
        ddl_generation *scored = add_scored(engine, tokens, PROMPT + NEW, &again, &sampling, true);
        run(engine);
        assert_int_equal(again.n, PROMPT + NEW);
        assert_int_equal(reused_of(scored), 0);
        assert_int_equal(finish_of(scored), DDL_FINISH_LENGTH);
        ddl_generation_ids(scored, &n);
        assert_int_equal(n, 0);
        for (size_t t = 1; t < again.n; t++)
            assert_true(again.token[t].logprob == scores.token[t].logprob);
        ddl_generation_free(other);
        ddl_generation_free(scored);
        ddl_generation_free(generation);
        ddl_engine_free(engine);
        ddl_model_free(model);
    }
}

static void the_oldest_slot_is_replaced(void **state)
{
    (void)state;
    static const uint64_t texts[] = { 400, 401, 402, 401 };
    ddl_model *model = model_of("baseline", DDL_PRECISION_F32);
    ddl_engine *engine = engine_of(model, 1, 1);
    const struct ddl_sampling sampling = sampling_of(0, 0);
    size_t reused = 0;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        ddl_generation *generation = add(engine, texts[i], PROMPT, 1, &sampling);
        run(engine);
        reused = reused_of(generation);
        ddl_generation_free(generation);
    }
    assert_int_equal(reused, PROMPT - 1);
    ddl_engine_free(engine);
    ddl_model_free(model);
}

struct listener {
    ddl_generation *generation;
    const int32_t *expected;
    size_t calls, until; /* calls until the request ends; 0: never */
};

static int listen(void *user, size_t sequence, const char *text, size_t size)
{
    struct listener *listener = user;
    size_t n;
    const int32_t *ids = ddl_generation_ids(listener->generation, &n);
    assert_true(sequence == 5 && text && size > 0 && n > 0);
    assert_memory_equal(ids, listener->expected, n * sizeof *ids);
    return ++listener->calls == listener->until;
}

/* Inside of `text` the tokens are complete; what it returns ends its own request only. */
static void text_is_received(void **state)
{
    (void)state;
    ddl_model *model = model_of("ddl-1", DDL_PRECISION_F32);
    struct ddl_sampling sampling = sampling_of(1, 6);
    sampling.sequence = 5;
    int32_t tokens[PROMPT], expected[NEW];
    struct listener listeners[2] = { { .expected = expected, .until = 3 }, { .expected = expected } };
    struct ddl_error err;
    alone(model, 30, PROMPT, 0, &sampling, expected);
    fill(tokens, 30, PROMPT, 0);
    ddl_engine *engine = engine_of(model, 2, 0);
    for (size_t i = 0; i < 2; i++) {
        const struct ddl_engine_request request = { tokens, PROMPT, &sampling, listen, &listeners[i] };
        assert_ok(ddl_engine_add(engine, &request, &listeners[i].generation, &err), err);
    }
    run(engine);
    assert_int_equal(finish_of(listeners[0].generation), DDL_FINISH_CANCELLED);
    assert_int_equal(listeners[0].calls, 3);
    assert_int_equal(finish_of(listeners[1].generation), DDL_FINISH_LENGTH);
    assert_true(listeners[1].calls > 3);
    for (size_t i = 0; i < 2; i++)
        ddl_generation_free(listeners[i].generation);
    ddl_engine_free(engine);
    ddl_model_free(model);
}

static void refusals(void **state)
{
    (void)state;
    ddl_model *model = model_of("baseline", DDL_PRECISION_F32);
    ddl_engine *engine, *none;
    const struct ddl_sampling sampling = sampling_of(0, 0);
    const int32_t tokens[] = { 1, 2, TINY_VOCAB };
    struct ddl_engine_request request = { tokens, 3, &sampling, NULL, NULL };
    ddl_generation *generation;
    struct ddl_error err;
    assert_int_equal(ddl_engine_create(&none, model, shared_tokenizer,
                                       &(struct ddl_engine_options){ .slots = 0, .tokens = 9 }, &err),
                     DDL_E_USAGE);
    assert_null(none);
    assert_int_equal(ddl_engine_create(&none, model, shared_tokenizer,
                                       &(struct ddl_engine_options){ .slots = 1, .tokens = CONTEXT + 1 },
                                       &err),
                     DDL_E_USAGE);
    const struct ddl_engine_options many = { .slots = 2, .cached = SIZE_MAX, .tokens = CONTEXT };
    assert_int_equal(ddl_engine_create(&none, model, shared_tokenizer, &many, &err), DDL_E_USAGE);
    assert_says(&err, "engine: slots and cached: expected at most ");
    assert_true(ddl_engine_bytes(ddl_model_config(model), DDL_PRECISION_F32, &many, NULL) == SIZE_MAX);
    engine = engine_of(model, 1, 1);
    assert_int_equal(ddl_engine_add(engine, &request, &generation, &err), DDL_E_USAGE);
    assert_says(&err, "prompt: token 2: expected 0 to ");
    request.n_prompt = 0;
    assert_int_equal(ddl_engine_add(engine, &request, &generation, &err), DDL_E_USAGE);
    request.n_prompt = 2;
    assert_ok(ddl_engine_add(engine, &request, &generation, &err), err);
    assert_null(ddl_generation_error(generation));
    ddl_generation *second;
    assert_int_equal(ddl_engine_add(engine, &request, &second, &err), DDL_E_USAGE);
    assert_says(&err, "engine: all 1 slots are in use");
    assert_null(second);
    ddl_generation_free(generation);
    ddl_engine_free(engine);
    ddl_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(neighbors_change_nothing), cmocka_unit_test(prefixes_are_reused),
        cmocka_unit_test(tokens_are_scored),        cmocka_unit_test(prompts_do_not_stall_texts),
        cmocka_unit_test(rows_change_nothing),      cmocka_unit_test(the_oldest_slot_is_replaced),
        cmocka_unit_test(text_is_received),         cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, share_backend, unshare);
}
