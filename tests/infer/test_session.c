/* infer/session.c: slots with their own lengths give what the full forward pass gives, whatever else the
 * session does. */
#include "support/models.h"
#include "support/runs.h"

#include "base/rng.h"
#include "ddl/session.h"
#include "model/pass/model.h"
#include "ops/profile.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { V = 67, CONTEXT = 40, SLOTS = 11 };

static const char *const presets[] = { "baseline", "ddl-1",   "ddl-tc-ec", "ddl-cc-ec",  "hyper",
                                       "mhc",      "attnres", "mixed",     "denseformer" };
enum { PRESETS = sizeof presets / sizeof *presets, PRECISIONS = TEST_PRECISIONS };

static struct ddl_config config_of(const char *preset)
{
    bool mixed = strcmp(preset, "mixed") == 0;
    struct ddl_config k = small_config(mixed ? "ddl-1" : preset);
    if (mixed)
        k = variant_config(&small_variants[13]);
    assert_true(!mixed || strcmp(small_variants[13].name, "ddl-1 mixed") == 0);
    k.vocab_size = V;
    k.block_size = CONTEXT;
    return k;
}

static ddl_model *model_of(const struct ddl_config *config, enum ddl_precision precision,
                           ddl_backend *backend)
{
    ddl_model *model;
    struct ddl_error err;
    assert_ok(ddl_model_create_for_inference(&model, config, precision, backend, &err), err);
    assert_ok(ddl_model_init(model, 5, &err), err);
    return model;
}

static ddl_backend *backend_of(const char *name, size_t threads)
{
    ddl_backend *backend;
    struct ddl_error err;
    assert_ok(ddl_backend_create(&backend, name, threads, &err), err);
    return backend;
}

static ddl_session *session_of(ddl_model *model, size_t slots, size_t rows)
{
    ddl_session *session;
    struct ddl_error err;
    assert_ok(ddl_session_create(
                  &session, model,
                  &(struct ddl_session_options){ .slots = slots, .tokens = CONTEXT, .rows = rows }, &err),
              err);
    return session;
}

/* Token t of text `text`. */
static int32_t token(uint64_t text, size_t t)
{
    return (int32_t)ddl_rng_below(text, t, V);
}

static void fill(int32_t *tokens, uint64_t text, size_t n)
{
    for (size_t t = 0; t < n; t++)
        tokens[t] = token(text, t);
}

static void prefill(ddl_session *session, size_t slot, uint64_t text, size_t n, float *last)
{
    int32_t tokens[CONTEXT];
    struct ddl_error err;
    fill(tokens, text, n);
    const struct ddl_session_input input = {
        .slot = slot, .n = n, .tokens = tokens, .n_logits = 1, .logits = last
    };
    assert_ok(ddl_session_prefill(session, &input, 1, &err), err);
}

static int32_t largest(const float *logits)
{
    size_t best = 0;
    for (size_t i = 1; i < V; i++)
        best = logits[i] > logits[best] ? i : best;
    return (int32_t)best;
}

/* ---- greedy output of a slot, whatever the others do ---- */

enum { NEW = 12 };

/* Greedy logits (NEW, V) of a text of n tokens, in a session of its own. */
static void greedy_alone(ddl_model *model, uint64_t text, size_t n, float *out)
{
    ddl_session *session = session_of(model, 1, 16);
    struct ddl_error err;
    prefill(session, 0, text, n, out);
    for (size_t t = 1; t < NEW; t++) {
        int32_t next = largest(out + (t - 1) * V);
        assert_ok(ddl_session_step(session, 1, &(size_t){ 0 }, &next, out + t * V, &err), err);
    }
    assert_int_equal(ddl_session_length(session, 0), n + NEW - 1);
    ddl_session_free(session);
}

/* All slots hold texts of different lengths. Subsets that change from step to step are stepped, in an order
 * that changes too; every slot's logits must be those of greedy_alone. */
static void greedy_together(ddl_model *model, size_t slots, const char *what)
{
    float *alone = malloc(slots * NEW * V * sizeof *alone), *now = malloc(slots * V * sizeof *now);
    float *step = malloc(slots * V * sizeof *step);
    ddl_session *session = session_of(model, slots, 16);
    size_t made[64] = { 0 }, live[64];
    struct ddl_error err;
    for (size_t s = 0; s < slots; s++) {
        greedy_alone(model, s, 1 + s * 5 % 23, alone + s * NEW * V);
        prefill(session, s, s, 1 + s * 5 % 23, now + s * V);
        made[s] = 1;
        assert_memory_equal(now + s * V, alone + s * NEW * V, V * sizeof *now);
    }
    for (uint64_t round = 0; round < 4 * NEW; round++) {
        int32_t tokens[64];
        size_t n = 0;
        for (size_t i = 0; i < slots; i++) {
            size_t s = (i * 7 + (size_t)round) % slots; /* 7 and the number of slots have no common factor */
            if (made[s] == NEW || (round % 5 && ddl_rng_below(9, round * 64 + s, 2)))
                continue;
            tokens[n] = largest(now + s * V);
            live[n++] = s;
        }
        assert_ok(ddl_session_step(session, n, live, tokens, step, &err), err);
        for (size_t i = 0; i < n; i++) {
            size_t s = live[i];
            memcpy(now + s * V, step + i * V, V * sizeof *now);
            if (memcmp(now + s * V, alone + (s * NEW + made[s]) * V, V * sizeof *now) != 0)
                fail_msg("%s: slot %zu, new token %zu, one of %zu slots: differs from the slot alone by %g",
                         what, s, made[s], n,
                         relative_error(V, now + s * V, alone + (s * NEW + made[s]) * V));
            made[s]++;
        }
    }
    for (size_t s = 0; s < slots; s++)
        assert_int_equal(made[s], NEW);
    ddl_session_free(session);
    free(alone);
    free(now);
    free(step);
}

/* Calls `check` with each model in each precision, on ref and on cpu with one and two threads. */
static void each_model(void (*check)(ddl_model *model, const char *preset, size_t threads, const char *what))
{
    for (size_t i = 0; i < PRESETS * PRECISIONS; i++) {
        struct ddl_config config = config_of(presets[i / PRECISIONS]);
        for (size_t b = 0; b < 3; b++) {
            ddl_backend *backend = b ? open_test_backend(b) : backend_of("ref", b);
            char what[128];
            ddl_model *model = model_of(&config, test_precisions[i % PRECISIONS], backend);
            snprintf(what, sizeof what, "%s, %s, %s", presets[i / PRECISIONS],
                     ddl_precision_names[test_precisions[i % PRECISIONS]], ddl_backend_description(backend));
            check(model, presets[i / PRECISIONS], b, what);
            ddl_model_free(model);
            ddl_backend_free(backend);
        }
    }
}

static void check_slots(ddl_model *model, const char *preset, size_t threads, const char *what)
{
    greedy_together(model, SLOTS, what);
    if (threads == 2 && preset == presets[3])
        greedy_together(model, 37, what); /* more than one pass a step */
}

static void other_slots_change_nothing(void **state)
{
    (void)state;
    each_model(check_slots);
}

/* A model whose products are too large for the smallest cases of a backend's dispatch. */
static void other_slots_change_nothing_in_wide_models(void **state)
{
    (void)state;
    for (size_t i = 0; i < PRECISIONS; i++) {
        enum ddl_precision precision = test_precisions[i];
        struct ddl_config config = config_of("ddl-cc-ec");
        config.d_model = 192;
        config.head_dim = 64;
        config.n_heads = 3;
        ddl_backend *backend = open_test_backend(2);
        ddl_model *model = model_of(&config, precision, backend);
        greedy_together(model, 33, ddl_precision_names[precision]);
        ddl_model_free(model);
        ddl_backend_free(backend);
    }
}

/* ---- against the full forward pass ---- */

static float *full_logits(ddl_model *model, uint64_t text, size_t n)
{
    int32_t tokens[CONTEXT];
    float *logits = malloc(n * V * sizeof *logits);
    ddl_workspace *ws;
    struct ddl_error err;
    fill(tokens, text, n);
    const struct ddl_batch batch = { 1, n, tokens, NULL };
    assert_ok(
        ddl_workspace_create(&ws, model, &(struct ddl_workspace_options){ .batch = 1, .tokens = n }, &err),
        err);
    assert_ok(ddl_model_logits(model, ws, &batch, n, logits, &err), err);
    ddl_workspace_free(ws);
    return logits;
}

/* -log p(target) of a row of logits. */
static double loss_of(const float *logits, int32_t target)
{
    double total = 0;
    for (size_t i = 0; i < V; i++)
        total += exp((double)logits[i]);
    return log(total) - (double)logits[target];
}

/* Logits above the target's. */
static int32_t rank_of(const float *logits, int32_t target)
{
    int32_t rank = 0;
    for (int32_t j = 0; j < V; j++)
        rank += logits[j] > logits[target] || (logits[j] == logits[target] && j < target);
    return rank;
}

static double entropy_of(const float *logits)
{
    double sum = 0;
    for (int32_t j = 0; j < V; j++) {
        double loss = loss_of(logits, j);
        sum += loss * exp(-loss);
    }
    return sum;
}

/* Several slots with different numbers of tokens in one call, in passes of every size, in two parts: logits
 * of all rows, losses of some. */
static void check_ragged(ddl_model *model, size_t rows, const char *what)
{
    static const size_t first[] = { 1, 9, 3, 20 }, second[] = { 12, 1, 30, 2 };
    float *logits[4], losses[4][CONTEXT], entropies[4][CONTEXT];
    int32_t tokens[4][CONTEXT], targets[4][CONTEXT], ranks[4][CONTEXT];
    ddl_session *session = session_of(model, 5, rows);
    struct ddl_error err;
    for (int part = 0; part < 2; part++) {
        struct ddl_session_input inputs[4];
        for (size_t i = 0; i < 4; i++) {
            size_t at = part ? first[i] : 0, n = part ? second[i] : first[i];
            fill(tokens[i], i, first[i] + second[i]);
            for (size_t t = 0; t < first[i] + second[i]; t++)
                targets[i][t] = t % 3 == 1 ? -1 : token(i, t + 1);
            logits[i] = part ? logits[i] : malloc(CONTEXT * V * sizeof **logits);
            inputs[i] = (struct ddl_session_input){ .slot = 4 - i,
                                                    .n = n,
                                                    .tokens = tokens[i] + at,
                                                    .n_logits = n,
                                                    .logits = logits[i] + at * V,
                                                    .targets = targets[i] + at,
                                                    .losses = losses[i] + at,
                                                    .ranks = i == 1 ? NULL : ranks[i] + at,
                                                    .entropies = i == 2 ? NULL : entropies[i] + at };
        }
        assert_ok(ddl_session_prefill(session, inputs, 4, &err), err);
    }
    assert_int_equal(ddl_session_length(session, 0), 0);
    for (size_t i = 0; i < 4; i++) {
        size_t n = first[i] + second[i];
        float *full = full_logits(model, i, n);
        assert_int_equal(ddl_session_length(session, 4 - i), n);
        if (!(relative_error(n * V, logits[i], full) <= 1e-5))
            fail_msg("%s, passes of %zu: sequence %zu differs by %g", what, rows, i,
                     relative_error(n * V, logits[i], full));
        for (size_t t = 0; t < n; t++) {
            double expected = t % 3 == 1 ? 0 : loss_of(logits[i] + t * V, targets[i][t]);
            assert_true(fabs((double)losses[i][t] - expected) <= 1e-5 * (1 + expected));
            if (i != 1)
                assert_int_equal(ranks[i][t], t % 3 == 1 ? -1 : rank_of(logits[i] + t * V, targets[i][t]));
            expected = t % 3 == 1 ? 0 : entropy_of(logits[i] + t * V);
            if (i != 2)
                assert_true(fabs((double)entropies[i][t] - expected) <= 1e-5 * (1 + expected));
        }
        free(full);
        free(logits[i]);
    }
    ddl_session_free(session);
}

static void ragged_prefill_is_the_forward_pass(void **state)
{
    (void)state;
    static const size_t rows[] = { 1, 2, 7, 33, 200 };
    for (size_t i = 0; i < PRESETS * 2; i++) {
        struct ddl_config config = config_of(presets[i / 2]);
        ddl_backend *backend = backend_of(test_backend(i % 2), 2);
        ddl_model *model = model_of(&config, DDL_PRECISION_F32, backend);
        for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
            check_ragged(model, rows[r], presets[i / 2]);
        ddl_model_free(model);
        ddl_backend_free(backend);
    }
}

/* ---- fork, reset ---- */

/* A fork goes on as its source would, and both are independent; lengths are odd and histories half full. */
static void forks_and_resets(void **state)
{
    (void)state;
    static const size_t lengths[] = { 1, 2, 5, 13 };
    for (size_t i = 0; i < PRESETS * PRECISIONS * 4; i++) {
        struct ddl_config config = config_of(presets[i / 12]);
        ddl_backend *backend = open_test_backend(2);
        ddl_model *model = model_of(&config, test_precisions[i / 4 % PRECISIONS], backend);
        ddl_session *session = session_of(model, 3, 8);
        size_t n = lengths[i % 4], slots[] = { 2, 0 };
        float first[V], again[V], apart[2 * V];
        int32_t tokens[] = { 3, 8 };
        struct ddl_error err;
        prefill(session, 2, 77, 20, first); /* is replaced */
        prefill(session, 0, 1, n, first);
        assert_ok(ddl_session_fork(session, 0, 2, &err), err);
        assert_ok(ddl_session_fork(session, 0, 0, &err), err);
        assert_int_equal(ddl_session_length(session, 2), n);
        assert_ok(ddl_session_step(session, 2, slots, tokens, apart, &err), err);
        assert_ok(ddl_session_fork(session, 2, 1, &err), err); /* 3 behind the text, in slot 1 too */
        for (size_t s = 0; s < 2; s++) {
            ddl_session *alone = session_of(model, 1, 8);
            prefill(alone, 0, 1, n, again);
            assert_memory_equal(first, again, sizeof first);
            assert_ok(ddl_session_step(alone, 1, &(size_t){ 0 }, &tokens[s], again, &err), err);
            assert_memory_equal(again, apart + s * V, sizeof again);
            if (s == 0) {
                assert_ok(ddl_session_step(alone, 1, &(size_t){ 0 }, &tokens[1], again, &err), err);
                assert_ok(ddl_session_step(session, 1, &(size_t){ 1 }, &tokens[1], apart, &err), err);
                assert_memory_equal(again, apart, sizeof again);
                assert_ok(ddl_session_step(session, 1, &(size_t){ 2 }, &tokens[1], apart, &err), err);
                assert_memory_equal(again, apart, sizeof again);
                assert_ok(ddl_session_reset(session, 0, &err), err);
                prefill(session, 0, 1, n, again); /* as new */
                assert_memory_equal(first, again, sizeof first);
                assert_ok(ddl_session_step(session, 1, &(size_t){ 0 }, &tokens[1], apart + V, &err), err);
            }
            ddl_session_free(alone);
        }
        assert_ok(ddl_session_reset(session, 0, &err), err);
        assert_ok(ddl_session_reset(session, 0, &err), err);
        assert_int_equal(ddl_session_length(session, 0), 0);
        assert_ok(ddl_session_fork(session, 0, 1, &err), err); /* an empty slot */
        assert_int_equal(ddl_session_length(session, 1), 0);
        ddl_session_free(session);
        ddl_model_free(model);
        ddl_backend_free(backend);
    }
}

/* A shared context, and choices of different lengths scored in one call: the same as the whole text. */
static void choices_are_scored_by_forks(void **state)
{
    (void)state;
    enum { SHARED = 9, CHOICES = 3 };
    struct ddl_config config = config_of("ddl-tc-ec");
    ddl_backend *backend = open_test_backend(2);
    ddl_model *model = model_of(&config, DDL_PRECISION_F32, backend);
    ddl_session *session = session_of(model, CHOICES + 1, 8);
    int32_t context[SHARED], tokens[CHOICES][CONTEXT], targets[CHOICES][CONTEXT];
    float losses[CHOICES][CONTEXT];
    struct ddl_session_input inputs[CHOICES];
    struct ddl_error err;
    fill(context, 1, SHARED);
    const struct ddl_session_input shared = { .slot = CHOICES, .n = SHARED - 1, .tokens = context };
    assert_ok(ddl_session_prefill(session, &shared, 1, &err), err);
    for (size_t i = 0; i < CHOICES; i++) {
        size_t n = 1 + 4 * i;
        fill(targets[i], 50 + i, n);
        tokens[i][0] = context[SHARED - 1];
        memcpy(tokens[i] + 1, targets[i], (n - 1) * sizeof **tokens);
        assert_ok(ddl_session_fork(session, CHOICES, i, &err), err);
        inputs[i] = (struct ddl_session_input){
            .slot = i, .n = n, .tokens = tokens[i], .targets = targets[i], .losses = losses[i]
        };
    }
    assert_ok(ddl_session_prefill(session, inputs, CHOICES, &err), err);
    for (size_t i = 0; i < CHOICES; i++) {
        int32_t text[CONTEXT], next[CONTEXT];
        float rows[CONTEXT];
        size_t n = inputs[i].n, all = SHARED + n - 1;
        memcpy(text, context, sizeof context);
        memcpy(text + SHARED, targets[i], (n - 1) * sizeof *text);
        for (size_t t = 0; t < all; t++)
            next[t] = t + 1 < SHARED ? -1 : targets[i][t + 1 - SHARED];
        ddl_workspace *ws;
        struct ddl_loss loss;
        assert_ok(ddl_workspace_create(&ws, model,
                                       &(struct ddl_workspace_options){ .batch = 1, .tokens = all }, &err),
                  err);
        assert_ok(ddl_model_loss(model, ws, &(struct ddl_batch){ 1, all, text, next }, &loss, rows, &err),
                  err);
        assert_close(n, losses[i], rows + SHARED - 1, 1e-5);
        ddl_workspace_free(ws);
    }
    ddl_session_free(session);
    ddl_model_free(model);
    ddl_backend_free(backend);
}

/* Several choices after the last token of each slot: losses and ranks of the logits there, whatever the size
 * of the passes. */
static void choices_of_the_last_token(void **state)
{
    (void)state;
    enum { CHOICES = 11, ROWS = 9 };
    static const size_t rows[] = { 1, 4, 100 };
    struct ddl_config config = config_of("ddl-cc-ec");
    for (size_t i = 0; i < 2 * sizeof rows / sizeof *rows; i++) {
        ddl_backend *backend = backend_of(test_backend(i % 2), 2);
        ddl_model *model = model_of(&config, DDL_PRECISION_F32, backend);
        ddl_session *session = session_of(model, 2, rows[i / 2]);
        int32_t tokens[2][ROWS], targets[2][ROWS], choices[2][CHOICES], ranks[2][CHOICES];
        float losses[2][ROWS], choice_losses[2][CHOICES], *logits = malloc(2 * V * sizeof *logits);
        struct ddl_session_input inputs[2];
        struct ddl_error err;
        for (size_t b = 0; b < 2; b++) {
            fill(tokens[b], b, ROWS);
            fill(targets[b], 7 + b, ROWS);
            fill(choices[b], 20 + b, CHOICES);
            targets[b][ROWS - 1] = -1;
            inputs[b] = (struct ddl_session_input){ .slot = b,
                                                    .n = ROWS,
                                                    .tokens = tokens[b],
                                                    .n_logits = 1,
                                                    .logits = logits + b * V,
                                                    .targets = b ? targets[b] : NULL,
                                                    .losses = b ? losses[b] : NULL,
                                                    .n_choices = CHOICES - b,
                                                    .choices = choices[b],
                                                    .choice_losses = choice_losses[b],
                                                    .choice_ranks = b ? NULL : ranks[b] };
        }
        assert_ok(ddl_session_prefill(session, inputs, 2, &err), err);
        for (size_t b = 0; b < 2; b++) {
            for (size_t k = 0; k < inputs[b].n_choices; k++) {
                double expected = loss_of(logits + b * V, choices[b][k]);
                assert_true(fabs((double)choice_losses[b][k] - expected) <= 1e-5 * (1 + expected));
                if (!b)
                    assert_int_equal(ranks[b][k], rank_of(logits + b * V, choices[b][k]));
            }
        }
        assert_true(losses[1][0] > 0 && losses[1][ROWS - 2] > 0 && losses[1][ROWS - 1] == 0);
        free(logits);
        ddl_session_free(session);
        ddl_model_free(model);
        ddl_backend_free(backend);
    }
}

/* Whether id is what the pick leaves of the logits z: greedy, of the k likeliest, or not excluded. */
static void check_pick(const struct ddl_session_pick *pick, const float *z)
{
    int32_t excluded = pick->n_changes ? pick->changes[0].token : -1;
    size_t before = 0;
    assert_in_range(pick->id, 0, V - 1);
    assert_int_not_equal(pick->id, excluded);
    for (int32_t i = 0; i < V; i++)
        before += i != excluded && (z[i] > z[pick->id] || (z[i] == z[pick->id] && i < pick->id));
    assert_true(pick->temperature > 0 || before == 0);
    assert_true(pick->top_k == 0 || before < pick->top_k);
    double loss = pick->scored ? loss_of(z, pick->id) : 0;
    assert_true(fabs((double)pick->loss - loss) <= 1e-5 * (1 + loss));
}

/* The likeliest tokens of a row of logits. */
static void check_top(const struct ddl_scored_token *top, size_t n, const float *z)
{
    for (size_t i = 0; i < n; i++) {
        double loss = loss_of(z, top[i].id);
        assert_int_equal(rank_of(z, top[i].id), i);
        assert_true(fabs((double)top[i].logprob + loss) <= 1e-5 * (1 + loss));
    }
}

/* Several picks after the last token of each slot, whatever the size of the passes; scores and likeliest
 * tokens of the tokens before it. */
static void picks_of_the_last_token(void **state)
{
    (void)state;
    enum { PICKS = 7, ROWS = 9, TOP = 5 };
    static const size_t rows[] = { 1, 4, 100 };
    static const struct ddl_logit_change never = { 3, 1, -INFINITY };
    struct ddl_config config = config_of("ddl-cc-ec");
    for (size_t i = 0; i < 2 * sizeof rows / sizeof *rows; i++) {
        ddl_backend *backend = backend_of(test_backend(i % 2), 2);
        ddl_model *model = model_of(&config, DDL_PRECISION_F32, backend);
        ddl_session *session = session_of(model, 2, rows[i / 2]);
        int32_t tokens[2][ROWS], targets[ROWS];
        float losses[ROWS], *logits = malloc((ROWS + 1) * V * sizeof *logits);
        struct ddl_session_pick picks[2][PICKS];
        struct ddl_scored_token top[2][ROWS * TOP];
        struct ddl_session_input inputs[2];
        struct ddl_error err;
        assert_non_null(logits);
        memset(top, 0, sizeof top);
        for (size_t b = 0; b < 2; b++) {
            fill(tokens[b], b, ROWS);
            for (size_t k = 0; k < PICKS; k++)
                picks[b][k] = (struct ddl_session_pick){ .temperature = k % 3 ? 1 : 0,
                                                         .top_k = k % 3 == 2 ? 3 : 0,
                                                         .top_p = k % 2 ? 0.9f : 1,
                                                         .u = (double)k / PICKS,
                                                         .scored = k % 2,
                                                         .changes = k % 4 ? &never : NULL,
                                                         .n_changes = k % 4 ? 1 : 0 };
            inputs[b] = (struct ddl_session_input){ .slot = b,
                                                    .n = ROWS,
                                                    .tokens = tokens[b],
                                                    .n_logits = b ? 1 : ROWS,
                                                    .logits = logits + b * ROWS * V,
                                                    .targets = b ? NULL : targets,
                                                    .losses = b ? NULL : losses,
                                                    .n_picks = PICKS - b,
                                                    .picks = picks[b],
                                                    .n_top = TOP - b,
                                                    .top = top[b] };
        }
        fill(targets, 7, ROWS);
        targets[ROWS - 1] = -1;
        assert_ok(ddl_session_prefill(session, inputs, 2, &err), err);
        for (size_t b = 0; b < 2; b++) {
            const float *last = logits + (ROWS - 1 + b) * V;
            for (size_t k = 0; k < inputs[b].n_picks; k++)
                check_pick(&picks[b][k], last);
            check_top(top[b] + (ROWS - 1) * inputs[b].n_top, inputs[b].n_top, last);
        }
        for (size_t t = 0; t < ROWS - 1; t++) {
            assert_true(fabs((double)losses[t] - loss_of(logits + t * V, targets[t])) <= 1e-4);
            check_top(top[0] + t * TOP, TOP, logits + t * V);
        }
        assert_true(losses[ROWS - 1] == 0 && top[1][0].id == 0 && top[1][0].logprob == 0); /* no target */
        free(logits);
        ddl_session_free(session);
        ddl_model_free(model);
        ddl_backend_free(backend);
    }
}

/* ---- errors ---- */

/* A backend that reports a lost product at the pass number `at`, counted from 0. */
static struct {
    const struct ddl_ops *ops;
    size_t pass, at;
} losing;

static ddl_status lose(void *ctx, struct ddl_error *err)
{
    if (losing.pass++ == losing.at)
        return ddl_error_set(err, DDL_E_MEMORY, "lost");
    return losing.ops->check_error(ctx, err);
}

struct polls {
    size_t n, stop_at;
    uint64_t done, total; /* of the last */
};

static int poll(void *user, uint64_t done, uint64_t total)
{
    struct polls *polls = user;
    assert_true(done >= polls->done && done < total);
    polls->done = done;
    polls->total = total;
    return ++polls->n == polls->stop_at;
}

/* A prefill is interrupted at any call of progress, in any of its passes, and then repeated. */
static void a_prefill_is_interrupted(void **state)
{
    (void)state;
    enum { ROWS = 5, TOKENS = 13, FIRST = 4 };
    for (size_t b = 0; test_backend(b); b++) {
        struct ddl_config config = config_of("ddl-cc-ec");
        ddl_backend *backend = backend_of(test_backend(b), 1);
        ddl_model *model = model_of(&config, DDL_PRECISION_F32, backend);
        struct polls polls = { 0 };
        const struct ddl_session_options options = {
            .slots = 1, .tokens = CONTEXT, .rows = ROWS, .progress = poll, .user = &polls
        };
        float expected[V], logits[V];
        int32_t tokens[TOKENS];
        struct ddl_error err;
        ddl_session *session;
        fill(tokens, 3, TOKENS);
        const struct ddl_session_input first = { .slot = 0, .n = FIRST, .tokens = tokens };
        struct ddl_session_input rest = {
            .slot = 0, .n = TOKENS - FIRST, .tokens = tokens + FIRST, .n_logits = 1, .logits = expected
        };
        assert_ok(ddl_session_create(&session, model, &options, &err), err);
        assert_ok(ddl_session_prefill(session, &first, 1, &err), err);
        polls = (struct polls){ 0 };
        assert_ok(ddl_session_prefill(session, &rest, 1, &err), err);
        size_t n = polls.n;
        assert_int_equal(polls.total, TOKENS - FIRST);
        assert_int_equal(polls.done, ROWS);
        assert_true(n > 4 * config.n_layers);
        rest.logits = logits;
        for (size_t stop = 1; stop <= n; stop++) {
            assert_ok(ddl_session_reset(session, 0, &err), err);
            polls = (struct polls){ 0 };
            assert_ok(ddl_session_prefill(session, &first, 1, &err), err);
            polls = (struct polls){ .stop_at = stop };
            assert_int_equal(ddl_session_prefill(session, &rest, 1, &err), DDL_E_INTERRUPTED);
            assert_int_equal(ddl_session_length(session, 0), FIRST);
            polls = (struct polls){ 0 };
            assert_ok(ddl_session_prefill(session, &rest, 1, &err), err);
            assert_memory_equal(logits, expected, sizeof logits);
        }
        ddl_session_free(session);
        ddl_model_free(model);
        ddl_backend_free(backend);
    }
}

/* A failed call changes no length, and its retry gives the same as if it had not failed: at any pass of a
 * prefill, and in a step. */
static void a_retry_appends_once(void **state)
{
    (void)state;
    for (size_t i = 0; i < PRESETS * 5; i++) {
        struct ddl_config config = config_of(presets[i / 5]);
        ddl_backend *backend = open_test_backend(1);
        struct ddl_backend wrapper = *backend;
        struct ddl_ops ops = *backend->ops;
        ops.check_error = lose;
        wrapper.ops = &ops;
        losing.ops = backend->ops;
        losing.at = SIZE_MAX;
        ddl_model *model = model_of(&config, DDL_PRECISION_F32, &wrapper);
        ddl_session *session = session_of(model, 2, 4), *calm = session_of(model, 2, 4);
        float found[2 * V], expected[2 * V];
        int32_t tokens[CONTEXT];
        struct ddl_error err;
        prefill(session, 0, 4, 7, found);
        prefill(calm, 0, 4, 7, expected);
        fill(tokens, 6, 13);
        const struct ddl_session_input inputs[] = {
            { .slot = 0, .n = 13, .tokens = tokens, .n_logits = 1, .logits = found },
            { .slot = 1, .n = 3, .tokens = tokens, .n_logits = 1, .logits = found + V }
        };
        losing.pass = 0;
        losing.at = i % 5; /* of four passes and a step */
        ddl_status status = ddl_session_prefill(session, inputs, 2, &err);
        if (i % 5 < 4) {
            assert_int_equal(status, DDL_E_MEMORY);
            assert_int_equal(ddl_session_length(session, 0), 7);
            assert_int_equal(ddl_session_length(session, 1), 0);
            assert_ok(ddl_session_prefill(session, inputs, 2, &err), err);
        }
        losing.at = SIZE_MAX;
        struct ddl_session_input same[] = { inputs[0], inputs[1] };
        same[0].logits = expected;
        same[1].logits = expected + V;
        assert_ok(ddl_session_prefill(calm, same, 2, &err), err);
        assert_memory_equal(found, expected, sizeof found);
        losing.pass = 0;
        losing.at = 0;
        const size_t both[] = { 0, 1 };
        assert_int_equal(ddl_session_step(session, 2, both, tokens, found, &err), DDL_E_MEMORY);
        assert_int_equal(ddl_session_length(session, 0), 20);
        assert_ok(ddl_session_step(session, 2, both, tokens, found, &err), err);
        assert_ok(ddl_session_step(calm, 2, both, tokens, expected, &err), err);
        assert_int_equal(ddl_session_length(session, 0), 21);
        assert_memory_equal(found, expected, sizeof found);
        ddl_session_free(session);
        ddl_session_free(calm);
        ddl_model_free(model);
        ddl_backend_free(backend);
    }
}

#define assert_refused(call, part)                                                                           \
    do {                                                                                                     \
        assert_int_equal(call, DDL_E_USAGE);                                                                 \
        assert_says(&err, part);                                                                             \
        for (size_t slot_ = 0; slot_ < 3; slot_++)                                                           \
            assert_int_equal(ddl_session_length(session, slot_), slot_ ? 0 : 38);                            \
    } while (0)

static void misused_picks(ddl_session *session, struct ddl_session_input in)
{
    struct ddl_session_pick pick = { .top_p = 1 };
    struct ddl_logit_change change = { .token = V, .repeat = 1 };
    struct ddl_scored_token top[1];
    struct ddl_error err;
    float losses[2];
    in.n_choices = 0, in.n_picks = 1;
    assert_refused(ddl_session_prefill(session, &in, 1, &err),
                   "the last token of slot 1 has picks: expected target -1, found 2");
    in.targets = NULL, in.losses = NULL;
    assert_refused(ddl_session_prefill(session, &in, 1, &err), "no array for the picks of slot 1");
    in.picks = &pick, in.n_choices = 2, in.choices = in.tokens, in.choice_losses = losses;
    assert_refused(ddl_session_prefill(session, &in, 1, &err), "slot 1 has both choices and picks");
    in.n_choices = 0, pick.temperature = NAN;
    assert_refused(ddl_session_prefill(session, &in, 1, &err), "temperature of a pick for slot 1");
    pick.temperature = 1, pick.u = 1;
    assert_refused(ddl_session_prefill(session, &in, 1, &err), "u of a pick for slot 1");
    pick.u = 0, pick.top_p = 1.5f;
    assert_refused(ddl_session_prefill(session, &in, 1, &err), "top_p of a pick for slot 1");
    pick.top_p = 1, pick.min_p = -1;
    assert_refused(ddl_session_prefill(session, &in, 1, &err), "min_p of a pick for slot 1");
    pick.min_p = 0, pick.changes = &change, pick.n_changes = 1;
    assert_refused(ddl_session_prefill(session, &in, 1, &err),
                   "changed token 0 for slot 1: expected 0 to 66, found 67");
    pick.n_changes = V + 1;
    assert_refused(ddl_session_prefill(session, &in, 1, &err), "68 changes of logits for slot 1");
    pick.n_changes = 0, in.n_top = 1;
    assert_refused(ddl_session_prefill(session, &in, 1, &err), "no array for the likeliest tokens of slot 1");
    in.n_top = V + 1, in.top = top;
    assert_refused(ddl_session_prefill(session, &in, 1, &err),
                   "n_top of slot 1: expected at most 67, found 68");
}

static void misuse(void **state)
{
    (void)state;
    struct ddl_config config = config_of("ddl-tc-ec");
    ddl_backend *backend = backend_of("ref", 1);
    ddl_model *model;
    struct ddl_error err;
    assert_ok(ddl_model_create(&model, &config, backend, &err), err);
    ddl_session *session = session_of(model, 3, 8), *none;
    float logits[4 * V], losses[4];
    int32_t tokens[] = { 1, 2, 3, 4 }, wrong[] = { 1, V }, negative[] = { 1, -1 }, lower[] = { -2, 0 };
    prefill(session, 0, 1, CONTEXT - 2, logits);
    struct ddl_session_input in = { .slot = 3, .n = 2, .tokens = tokens };
    assert_refused(ddl_session_prefill(session, &in, 1, &err), "slot: expected 0 to 2, found 3");
    in.slot = 0, in.n = 3;
    assert_refused(ddl_session_prefill(session, &in, 1, &err),
                   "slot 0 holds 38 of 40 tokens: no space for 3");
    in.n = SIZE_MAX;
    assert_refused(ddl_session_prefill(session, &in, 1, &err), "no space for");
    in.slot = 1, in.n = 0;
    assert_refused(ddl_session_prefill(session, &in, 1, &err), "no tokens for slot 1");
    in.n = 2, in.tokens = wrong;
    assert_refused(ddl_session_prefill(session, &in, 1, &err),
                   "token 1 for slot 1: expected 0 to 66, found 67");
    in.tokens = negative;
    assert_refused(ddl_session_prefill(session, &in, 1, &err), "found -1");
    in.tokens = tokens, in.n_logits = 3, in.logits = logits;
    assert_refused(ddl_session_prefill(session, &in, 1, &err), "logits of 3 tokens requested of 2");
    in.n_logits = 2, in.logits = NULL;
    assert_refused(ddl_session_prefill(session, &in, 1, &err), "no array for the logits of slot 1");
    in.n_logits = 0, in.targets = lower, in.losses = losses;
    assert_refused(ddl_session_prefill(session, &in, 1, &err), "target 0 for slot 1: expected -1 to 66");
    in.targets = wrong;
    assert_refused(ddl_session_prefill(session, &in, 1, &err), "target 1 for slot 1");
    in.targets = tokens, in.losses = NULL;
    assert_refused(ddl_session_prefill(session, &in, 1, &err), "no array for the losses of slot 1");
    in.targets = NULL, in.ranks = tokens;
    assert_refused(ddl_session_prefill(session, &in, 1, &err), "ranks of slot 1 requested without targets");
    in.ranks = NULL, in.entropies = losses;
    assert_refused(ddl_session_prefill(session, &in, 1, &err),
                   "entropies of slot 1 requested without targets");
    in.entropies = NULL, in.n_choices = 2;
    assert_refused(ddl_session_prefill(session, &in, 1, &err), "no array for the choices of slot 1");
    in.choices = tokens;
    assert_refused(ddl_session_prefill(session, &in, 1, &err),
                   "no array for the losses of choices of slot 1");
    in.choice_losses = losses, in.choices = wrong;
    assert_refused(ddl_session_prefill(session, &in, 1, &err),
                   "choice 1 for slot 1: expected 0 to 66, found 67");
    in.choices = tokens, in.targets = tokens, in.losses = logits;
    assert_refused(ddl_session_prefill(session, &in, 1, &err),
                   "the last token of slot 1 has choices: expected target -1, found 2");
    misused_picks(session, in);
    in.n_choices = 0, in.targets = NULL, in.losses = NULL;
    struct ddl_session_input twice[] = { in, in };
    assert_refused(ddl_session_prefill(session, twice, 2, &err), "slot 1 occurs twice");
    twice[1].slot = 0, twice[1].n = 3; /* the first is fine and is not appended */
    assert_refused(ddl_session_prefill(session, twice, 2, &err), "no space");
    const size_t slots[] = { 1, 1, 2, 0 }, far[] = { 1, 9 };
    assert_refused(ddl_session_step(session, 2, slots, tokens, logits, &err), "slot 1 occurs twice");
    assert_refused(ddl_session_step(session, 4, slots, tokens, logits, &err), "4 slots in one step");
    assert_refused(ddl_session_step(session, 2, far, tokens, logits, &err), "found 9");
    assert_refused(ddl_session_step(session, 2, slots + 1, wrong, logits, &err), "token 0 for slot 2");
    assert_refused(ddl_session_fork(session, 0, 3, &err), "found 3");
    assert_refused(ddl_session_fork(session, 3, 0, &err), "found 3");
    assert_refused(ddl_session_reset(session, 3, &err), "found 3");
    assert_ok(ddl_session_prefill(session, NULL, 0, &err), err);
    assert_ok(ddl_session_step(session, 0, NULL, NULL, NULL, &err), err);
    assert_int_equal(ddl_session_length(session, 7), 0);
    assert_int_equal(ddl_session_slots(session), 3);
    assert_int_equal(ddl_session_capacity(session), CONTEXT);
    /* nothing of all this is left behind: the slot takes a token, without logits, then two more at once */
    assert_ok(ddl_session_step(session, 1, slots, tokens, NULL, &err), err);
    assert_int_equal(ddl_session_length(session, 1), 1);
    assert_ok(ddl_model_set_precision(model, DDL_PRECISION_BF16, &err), err);
    assert_int_equal(ddl_session_step(session, 1, slots, tokens, NULL, &err), DDL_E_USAGE);
    assert_says(&err, "precision was changed");
    assert_int_equal(ddl_session_length(session, 1), 1);
    assert_ok(ddl_model_set_precision(model, DDL_PRECISION_F32, &err), err);
    assert_ok(ddl_session_step(session, 1, slots, tokens, NULL, &err), err);
    ddl_session_free(session);
    static const struct ddl_session_options sizes[] = {
        { .slots = 0, .tokens = 4 },
        { .slots = 1, .tokens = 0 },
        { .slots = 1, .tokens = CONTEXT + 1 },
        { .slots = SIZE_MAX, .tokens = 4 },
        { .slots = 1, .tokens = 4, .rows = SIZE_MAX },
        { .slots = 1, .tokens = 4, .ids = V + 1 },
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        assert_int_equal(ddl_session_create(&none, model, &sizes[i], &err), DDL_E_USAGE);
        assert_null(none);
        assert_true(ddl_session_bytes(&config, DDL_PRECISION_F32, &sizes[i], NULL) == SIZE_MAX);
    }
    ddl_session_free(NULL);
    ddl_model_free(model);
    ddl_backend_free(backend);
}

/* ---- memory ---- */

static struct {
    const struct ddl_ops *ops;
    size_t bytes;
} count;

static void *counted_alloc(void *ctx, size_t bytes)
{
    count.bytes += bytes;
    return count.ops->alloc(ctx, bytes);
}

/* ddl_session_bytes is what creation allocates; calls allocate nothing. */
static void memory_is_known_beforehand(void **state)
{
    (void)state;
    static const struct ddl_session_options sizes[] = { { .slots = 1, .tokens = 1 },
                                                        { .slots = 3, .tokens = 17, .rows = 5 },
                                                        { .slots = 9, .tokens = CONTEXT },
                                                        { .slots = 2, .tokens = 7, .form = DDL_CACHE_BF16 } };
    for (size_t i = 0; i < PRESETS * PRECISIONS * 4; i++) {
        struct ddl_config config = config_of(presets[i / 12]);
        enum ddl_precision precision = test_precisions[i / 4 % PRECISIONS];
        ddl_backend *backend = open_test_backend(1);
        struct ddl_backend counted = *backend;
        struct ddl_ops ops = *backend->ops;
        ops.alloc = counted_alloc;
        counted.ops = &ops;
        count.ops = backend->ops;
        ddl_model *model = model_of(&config, precision, &counted);
        ddl_session *session;
        struct ddl_error err;
        count.bytes = 0;
        assert_ok(ddl_session_create(&session, model, &sizes[i % 4], &err), err);
        assert_int_equal(count.bytes, ddl_session_bytes(&config, precision, &sizes[i % 4], backend));
        int32_t one = 1;
        assert_ok(ddl_session_step(session, 1, &(size_t){ 0 }, &one, NULL, &err), err);
        assert_ok(ddl_session_fork(session, 0, sizes[i % 4].slots - 1, &err), err);
        assert_int_equal(count.bytes, ddl_session_bytes(&config, precision, &sizes[i % 4], backend));
        ddl_session_free(session);
        ddl_model_free(model);
        ddl_backend_free(backend);
    }
}

/* ---- a step that a device can capture and replay ---- */

struct recording {
    size_t n, most;
    struct recorded {
        enum ddl_op op;
        struct ddl_op_use use;
        const void *at[DDL_MOST_OPERANDS];
    } * calls;
};

static void record(void *user, int op, const void *args)
{
    struct recording *r = user;
    if (r->n == r->most) {
        r->most = 2 * r->most + 64;
        r->calls = realloc(r->calls, r->most * sizeof *r->calls);
        assert_non_null(r->calls);
    }
    struct recorded *call = &r->calls[r->n++];
    *call = (struct recorded){ .op = (enum ddl_op)op };
    ddl_op_describe(call->op, args, &call->use);
    for (size_t i = 0; i < call->use.n; i++)
        call->at[i] = ddl_operand_get(&call->use.operand[i], args);
}

/* Whether two calls are of one op with the same operands, of the same shapes. */
static bool are_equal(const struct recorded *x, const struct recorded *y)
{
    bool equal = x->op == y->op && x->use.n == y->use.n && x->use.items == y->use.items &&
                 memcmp(&x->use.flops, &y->use.flops, sizeof x->use.flops) == 0;
    for (size_t i = 0; equal && i < x->use.n; i++) {
        const struct ddl_operand *a = &x->use.operand[i], *b = &y->use.operand[i];
        equal = x->at[i] == y->at[i] && a->access == b->access && a->batch == b->batch &&
                a->rows == b->rows && a->width == b->width && a->stride == b->stride &&
                a->batch_stride == b->batch_stride;
    }
    return equal;
}

/* Steps of two slots: their ops have the same arguments, whatever the slots and their lengths are. */
static void steps_differ_in_memory_only(void **state)
{
    (void)state;
    enum { STEPS = 3, FIRST_LENGTH = 3 };
    static const size_t slots[STEPS][2] = { { 0, 2 }, { 0, 2 }, { 3, 1 } };
    for (size_t i = 0; i < PRESETS * PRECISIONS; i++) {
        struct ddl_config config = config_of(presets[i / PRECISIONS]);
        ddl_backend *backend = open_test_backend(1);
        ddl_model *model = model_of(&config, test_precisions[i % PRECISIONS], backend);
        ddl_session *session = session_of(model, 4, 16);
        struct ddl_profile profile;
        struct recording recordings[STEPS] = { { 0 } };
        float logits[2 * V];
        struct ddl_error err;
        for (size_t slot = 0; slot < 4; slot++)
            prefill(session, slot, slot, FIRST_LENGTH + slot, logits);
        ddl_profile_init(&profile, backend);
        ddl_model_replace_backend(model, &profile.backend);
        profile.watch = record;
        for (size_t s = 0; s < STEPS; s++) {
            const int32_t tokens[] = { (int32_t)s, (int32_t)s + 7 };
            profile.watch_user = &recordings[s];
            assert_ok(ddl_session_step(session, 2, slots[s], tokens, logits, &err), err);
            assert_true(recordings[s].n > 20 && recordings[s].n == recordings[0].n);
            for (size_t c = 0; c < recordings[s].n; c++) {
                if (!are_equal(&recordings[s].calls[c], &recordings[0].calls[c]))
                    fail_msg("%s, step %zu: call %zu, %s, has other arguments", presets[i / PRECISIONS], s, c,
                             ddl_op_name(recordings[s].calls[c].op));
            }
        }
        for (size_t s = 0; s < STEPS; s++)
            free(recordings[s].calls);
        ddl_model_replace_backend(model, backend);
        ddl_session_free(session);
        ddl_model_free(model);
        ddl_backend_free(backend);
    }
}

/* ---- the same bits in every combination of parts, slots, forks and cuts ---- */

enum { MARK = 8, PARTS_SLOTS = 6 };

static ddl_session *marked_session(ddl_model *model)
{
    ddl_session *session;
    struct ddl_error err;
    assert_ok(
        ddl_session_create(&session, model,
                           &(struct ddl_session_options){
                               .slots = PARTS_SLOTS, .tokens = CONTEXT, .exact = true, .mark_every = MARK },
                           &err),
        err);
    return session;
}

/* Appends up to 12 tokens to slots that have space, in one call, and compares all logits with those of the
 * texts' tokens appended one by one. Slot s has text text[s]; by_steps: (PARTS_SLOTS, CONTEXT, V). */
static void append_parts(ddl_session *session, const float *by_steps, const size_t *text, uint64_t round,
                         const char *what)
{
    static float logits[PARTS_SLOTS][12 * V];
    int32_t tokens[PARTS_SLOTS][12];
    struct ddl_session_input inputs[PARTS_SLOTS];
    struct ddl_error err;
    size_t n = 0, start[PARTS_SLOTS];
    for (size_t i = 0; i < PARTS_SLOTS; i++) {
        size_t s = (i + (size_t)round) % PARTS_SLOTS, length = ddl_session_length(session, s);
        size_t rows = 1 + (size_t)ddl_rng_below(3, round * 64 + s, 12);
        rows = ddl_rng_below(4, round * 64 + s, 3) ? rows : 1;
        if (length == CONTEXT || ddl_rng_below(5, round * 64 + s, 4) == 0)
            continue;
        rows = rows < CONTEXT - length ? rows : CONTEXT - length;
        for (size_t t = 0; t < rows; t++)
            tokens[n][t] = token(text[s], length + t);
        start[n] = length;
        inputs[n] = (struct ddl_session_input){
            .slot = s, .n = rows, .tokens = tokens[n], .n_logits = rows, .logits = logits[n]
        };
        n++;
    }
    if (n)
        assert_ok(ddl_session_prefill(session, inputs, n, &err), err);
    for (size_t i = 0; i < n; i++) {
        const float *expected = by_steps + (text[inputs[i].slot] * CONTEXT + start[i]) * V;
        if (memcmp(logits[i], expected, inputs[i].n * V * sizeof *expected) != 0)
            fail_msg("%s: slot %zu, tokens %zu to %zu, round %d: differ from single steps by %g", what,
                     inputs[i].slot, start[i], start[i] + inputs[i].n, (int)round,
                     relative_error(inputs[i].n * V, logits[i], expected));
    }
}

/* Between calls, random slots are cut, or replaced by a prefix of another one. */
static void check_parts(ddl_model *model, const char *preset, size_t threads, const char *what)
{
    (void)preset;
    (void)threads;
    float *by_steps = malloc(PARTS_SLOTS * CONTEXT * V * sizeof *by_steps);
    ddl_session *session = session_of(model, PARTS_SLOTS, 1);
    size_t text[PARTS_SLOTS], cuts = 0;
    struct ddl_error err;
    for (size_t i = 0; i < PARTS_SLOTS * CONTEXT; i++) {
        int32_t id = token(i / CONTEXT, i % CONTEXT);
        assert_ok(ddl_session_step(session, 1, &(size_t){ i / CONTEXT }, &id, by_steps + i * V, &err), err);
    }
    ddl_session_free(session);
    session = marked_session(model);
    for (size_t s = 0; s < PARTS_SLOTS; s++)
        text[s] = s;
    for (uint64_t round = 0; round < 60; round++) {
        append_parts(session, by_steps, text, round, what);
        size_t from = (size_t)ddl_rng_below(6, round, PARTS_SLOTS);
        size_t to = round % 3 ? from : (size_t)ddl_rng_below(7, round, PARTS_SLOTS);
        size_t wanted = (size_t)ddl_rng_below(8, round, CONTEXT + 1);
        size_t n = ddl_session_prefix(session, from, wanted);
        assert_true(n <= wanted && n <= ddl_session_length(session, from));
        if (round % 2)
            continue;
        assert_ok(ddl_session_fork_prefix(session, from, to, n, &err), err);
        assert_int_equal(ddl_session_length(session, to), n);
        text[to] = text[from];
        cuts += n > 0 && n < wanted;
    }
    assert_true(cuts > 2);
    ddl_session_free(session);
    free(by_steps);
}

static void parts_and_cuts_have_the_same_bits(void **state)
{
    (void)state;
    each_model(check_parts);
}

static void cuts_are_checked(void **state)
{
    (void)state;
    ddl_backend *backend = open_test_backend(1);
    struct ddl_config config = config_of("ddl-tc-ec");
    ddl_model *model = model_of(&config, DDL_PRECISION_F32, backend);
    ddl_session *session = marked_session(model), *plain = session_of(model, 2, 16);
    struct ddl_error err;
    float logits[V];
    prefill(session, 0, 1, 21, logits);
    prefill(plain, 0, 1, 21, logits);
    assert_int_equal(ddl_session_prefix(session, 0, 40), 21);
    assert_int_equal(ddl_session_prefix(session, 0, 20), 16);
    assert_int_equal(ddl_session_prefix(session, 0, 7), 0);
    assert_int_equal(ddl_session_prefix(session, 9, 7), 0);
    assert_int_equal(ddl_session_prefix(plain, 0, 20), 0);
    assert_int_equal(ddl_session_fork_prefix(session, 0, 1, 17, &err), DDL_E_USAGE);
    assert_says(&err, "slot 0 holds 21 tokens: cannot be cut at 17, but at 16");
    assert_int_equal(ddl_session_fork_prefix(session, 0, 1, 22, &err), DDL_E_USAGE);
    assert_int_equal(ddl_session_fork_prefix(session, 0, 9, 8, &err), DDL_E_USAGE);
    assert_int_equal(ddl_session_length(session, 1), 0);
    assert_ok(ddl_session_fork_prefix(session, 0, 0, 0, &err), err);
    assert_int_equal(ddl_session_length(session, 0), 0);
    ddl_session_free(session);
    ddl_session_free(plain);
    ddl_model_free(model);
    ddl_backend_free(backend);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_slots_change_nothing),
        cmocka_unit_test(other_slots_change_nothing_in_wide_models),
        cmocka_unit_test(ragged_prefill_is_the_forward_pass),
        cmocka_unit_test(forks_and_resets),
        cmocka_unit_test(parts_and_cuts_have_the_same_bits),
        cmocka_unit_test(cuts_are_checked),
        cmocka_unit_test(choices_are_scored_by_forks),
        cmocka_unit_test(choices_of_the_last_token),
        cmocka_unit_test(picks_of_the_last_token),
        cmocka_unit_test(a_retry_appends_once),
        cmocka_unit_test(a_prefill_is_interrupted),
        cmocka_unit_test(misuse),
        cmocka_unit_test(memory_is_known_beforehand),
        cmocka_unit_test(steps_differ_in_memory_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
