/* Sessions with so many tokens that a backend may divide the keys of a query into parts: a slot has the same
 * bits whatever the other slots, the capacity and the passes are. */
#include "support/models.h"

#include "base/rng.h"
#include "ddl/session.h"

#include <stdio.h>
#include <string.h>

enum { V = 67, CONTEXT = 140, SLOTS = 4, STEPS = 8 };

/* Around 128, where a second part begins. */
static const size_t lengths[SLOTS] = { 124, 5, 119, 130 };

static int32_t token(uint64_t text, size_t t)
{
    return (int32_t)ddl_rng_below(text, t, V);
}

static void fill(int32_t *tokens, uint64_t text, size_t n)
{
    for (size_t t = 0; t < n; t++)
        tokens[t] = token(text, t);
}

static ddl_session *session_of(ddl_model *model, const struct ddl_session_options *options)
{
    ddl_session *session;
    struct ddl_error err;
    assert_ok(ddl_session_create(&session, model, options, &err), err);
    return session;
}

/* Appends n tokens of a text to its slot in one call; the logits of the last `n_logits`. */
static void append(ddl_session *session, size_t slot, uint64_t text, size_t n, size_t n_logits, float *logits)
{
    int32_t tokens[CONTEXT];
    struct ddl_error err;
    size_t at = ddl_session_length(session, slot);
    fill(tokens, text, at + n);
    const struct ddl_session_input input = {
        .slot = slot, .n = n, .tokens = tokens + at, .n_logits = n_logits, .logits = logits
    };
    assert_ok(ddl_session_prefill(session, &input, 1, &err), err);
}

/* The logits (STEPS, V) of the tokens after a text's first lengths[text], in a session of its own that is as
 * large as it must be. */
static void steps_alone(ddl_model *model, uint64_t text, bool exact, float *logits)
{
    size_t n = lengths[text];
    ddl_session *session = session_of(
        model, &(struct ddl_session_options){ .slots = 1, .tokens = n + STEPS, .rows = 40, .exact = exact });
    struct ddl_error err;
    append(session, 0, text, n, 0, NULL);
    for (size_t t = 0; t < STEPS; t++) {
        int32_t id = token(text, n + t);
        assert_ok(ddl_session_step(session, 1, &(size_t){ 0 }, &id, logits + t * V, &err), err);
    }
    ddl_session_free(session);
}

/* The same of all texts in one session, whose steps have subsets of the slots. `alone`: (SLOTS, STEPS, V). */
static void check_steps_together(ddl_model *model, const float *alone, const char *what)
{
    ddl_session *session =
        session_of(model, &(struct ddl_session_options){ .slots = SLOTS, .tokens = CONTEXT, .rows = 40 });
    struct ddl_error err;
    size_t made[SLOTS] = { 0 }, left = SLOTS * STEPS;
    for (size_t s = 0; s < SLOTS; s++)
        append(session, s, s, lengths[s], 0, NULL);
    for (size_t round = 0; left > 0; round++) {
        size_t live[SLOTS], n = 0;
        int32_t ids[SLOTS];
        float logits[SLOTS * V];
        for (size_t i = 0; i < SLOTS; i++) {
            size_t s = (i + round) % SLOTS;
            if (made[s] == STEPS || (round + s) % 3 == 0)
                continue;
            ids[n] = token(s, lengths[s] + made[s]);
            live[n++] = s;
        }
        assert_ok(ddl_session_step(session, n, live, ids, logits, &err), err);
        for (size_t i = 0; i < n; i++) {
            const float *expected = alone + (live[i] * STEPS + made[live[i]]++) * V;
            if (memcmp(logits + i * V, expected, V * sizeof *expected) != 0)
                fail_msg("%s: slot %zu, token %zu: differs from the slot alone by %g", what, live[i],
                         ddl_session_length(session, live[i]) - 1,
                         relative_error(V, logits + i * V, expected));
        }
        left -= n;
    }
    ddl_session_free(session);
}

/* An exact session has the bits of single steps in passes of several tokens too. */
static void check_exact(ddl_model *model, uint64_t text, const char *what)
{
    float single[STEPS * V], together[STEPS * V];
    ddl_session *session = session_of(
        model, &(struct ddl_session_options){ .slots = 1, .tokens = CONTEXT, .rows = 40, .exact = true });
    steps_alone(model, text, true, single);
    append(session, 0, text, lengths[text] + STEPS, STEPS, together);
    if (memcmp(single, together, sizeof single) != 0)
        fail_msg("%s, exact, text %d: differs from single steps by %g", what, (int)text,
                 relative_error(STEPS * V, together, single));
    ddl_session_free(session);
}

static void check_full(ddl_model *model, uint64_t text, const float *steps, const char *what)
{
    size_t n = lengths[text] + STEPS;
    int32_t tokens[CONTEXT];
    float full[STEPS * V];
    ddl_workspace *ws;
    struct ddl_error err;
    fill(tokens, text, n);
    const struct ddl_batch batch = { 1, n, tokens, NULL };
    assert_ok(
        ddl_workspace_create(&ws, model, &(struct ddl_workspace_options){ .batch = 1, .tokens = n }, &err),
        err);
    assert_ok(ddl_model_logits(model, ws, &batch, STEPS, full, &err), err);
    ddl_workspace_free(ws);
    if (!(relative_error(STEPS * V, steps, full) <= 1e-5))
        fail_msg("%s, text %d: differs from the forward pass by %g", what, (int)text,
                 relative_error(STEPS * V, steps, full));
}

static void check_model(ddl_backend *backend, const char *preset, enum ddl_precision precision)
{
    static float alone[SLOTS * STEPS * V];
    struct ddl_config config = small_config(preset);
    ddl_model *model;
    struct ddl_error err;
    char what[128];
    config.vocab_size = V;
    config.block_size = CONTEXT;
    snprintf(what, sizeof what, "%s, %s, %s", preset, ddl_precision_names[precision],
             ddl_backend_description(backend));
    assert_ok(ddl_model_create_for_inference(&model, &config, precision, backend, &err), err);
    assert_ok(ddl_model_init(model, 5, &err), err);
    for (size_t text = 0; text < SLOTS; text++) {
        steps_alone(model, text, false, alone + text * STEPS * V);
        if (precision == DDL_PRECISION_F32)
            check_full(model, text, alone + text * STEPS * V, what);
    }
    check_steps_together(model, alone, what);
    check_exact(model, 0, what);
    ddl_model_free(model);
}

static void long_contexts(void **state)
{
    (void)state;
    for (size_t b = 0; test_backend(b); b++) {
        ddl_backend *backend;
        struct ddl_error err;
        assert_ok(ddl_backend_create(&backend, test_backend(b), 2, &err), err);
        for (size_t i = 0; i < TEST_PRECISIONS; i++)
            check_model(backend, "baseline", test_precisions[i]);
        check_model(backend, "ddl-tc-ec", DDL_PRECISION_F32);
        ddl_backend_free(backend);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(long_contexts) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
