/* Traces and forced updates of single requests of an engine (infer/engine_trace.c). */
#include "support/models.h"
#include "support/runs.h"

#include "base/rng.h"
#include "ddl/engine.h"
#include "infer/session_rows.h"
#include "model/observe/probe.h"
#include "ops/ops.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CONTEXT = 96, PROMPT = 70, NEW = 8, MOST_NUMBERS = 4 };

static const char *const presets[] = { "baseline", "ddl-1", "ddl-cc-ec", "mhc", "laurel" };
enum { PRESETS = sizeof presets / sizeof *presets };

static ddl_model *model_of(const char *preset)
{
    struct ddl_config config = small_config(preset);
    struct ddl_error err;
    ddl_model *model;
    config.vocab_size = TINY_VOCAB;
    config.block_size = CONTEXT;
    assert_ok(ddl_model_create_for_inference(&model, &config, DDL_PRECISION_F32, shared_backend, &err), err);
    assert_ok(ddl_model_init(model, 5, &err), err);
    return model;
}

/* What is seen of a tensor of a sublayer: the first numbers of each token. */
struct tensor_seen {
    size_t layer, steps, width;
    int sub;
    bool by_token;
    char name[32];
    size_t tokens;
    float x[CONTEXT][MOST_NUMBERS];
};
enum { MOST_TENSORS = 64 };
struct trace_seen {
    size_t n;
    struct tensor_seen tensor[MOST_TENSORS];
};

static struct tensor_seen *tensor_of(struct trace_seen *seen, size_t layer, int sub, const char *name)
{
    for (size_t i = 0; i < seen->n; i++) {
        struct tensor_seen *t = &seen->tensor[i];
        if (t->layer == layer && t->sub == sub && strcmp(t->name, name) == 0)
            return t;
    }
    assert_in_range(seen->n, 0, MOST_TENSORS - 1);
    struct tensor_seen *t = &seen->tensor[seen->n++];
    *t = (struct tensor_seen){ .layer = layer, .sub = sub };
    strcpy(t->name, name);
    return t;
}

static void see(void *user, size_t sequence, const struct ddl_trace_rows *rows)
{
    struct tensor_seen *t = tensor_of(user, rows->layer, rows->sub, rows->name);
    size_t width = rows->steps * rows->width;
    assert_int_equal(sequence, 9);
    assert_int_equal(rows->first, t->tokens); /* each token once, in order */
    assert_true(*rows->about);
    t->steps = rows->steps, t->width = rows->width, t->by_token = rows->by_token;
    t->tokens += rows->n;
    assert_in_range(t->tokens, 1, CONTEXT);
    for (size_t r = 0; r < rows->n; r++) {
        const float *x = rows->x + (rows->by_token ? r * width : 0);
        memcpy(t->x[rows->first + r], x, (width < MOST_NUMBERS ? width : MOST_NUMBERS) * sizeof *x);
    }
}

static ddl_generation *add(ddl_engine *engine, uint64_t text, size_t n, struct trace_seen *seen,
                           const struct ddl_force *force)
{
    int32_t tokens[CONTEXT];
    struct ddl_sampling sampling = ddl_sampling_defaults();
    struct ddl_error err;
    ddl_generation *generation;
    sampling.max_tokens = NEW, sampling.temperature = 0, sampling.ignore_end = true, sampling.sequence = 9;
    for (size_t t = 0; t < n; t++)
        tokens[t] = (int32_t)ddl_rng_below(text, t, ddl_tokenizer_vocab_size(shared_tokenizer));
    const struct ddl_engine_request request = { .prompt = tokens,
                                                .n_prompt = n,
                                                .sampling = &sampling,
                                                .user = seen,
                                                .trace = seen ? see : NULL,
                                                .force = force };
    assert_ok(ddl_engine_add(engine, &request, &generation, &err), err);
    return generation;
}

static ddl_engine *engine_of(ddl_model *model, size_t slots)
{
    ddl_engine *engine;
    struct ddl_error err;
    const struct ddl_engine_options options = { .slots = slots, .cached = 2, .tokens = CONTEXT, .rows = 24 };
    assert_ok(ddl_engine_create(&engine, model, shared_tokenizer, &options, &err), err);
    return engine;
}

static void run(ddl_engine *engine)
{
    struct ddl_error err;
    while (ddl_engine_running(engine))
        assert_ok(ddl_engine_pass(engine, NULL, &err), err);
}

/* The tokens of a request that runs alone in an engine of its own, and its trace. */
static void alone(ddl_model *model, uint64_t text, struct trace_seen *seen, int32_t *out)
{
    ddl_engine *engine = engine_of(model, 1);
    ddl_generation *generation = add(engine, text, PROMPT, seen, NULL);
    size_t n;
    run(engine);
    memcpy(out, ddl_generation_ids(generation, &n), NEW * sizeof *out);
    assert_int_equal(n, NEW);
    ddl_generation_free(generation);
    ddl_engine_free(engine);
}

/* A session's pass over all tokens at once, seen by a probe. */
struct whole {
    struct trace_seen *seen;
    float *before;
    size_t width, compared;
};

static void compare_sublayer(void *user, const struct ddl_sublayer_trace *trace)
{
    struct whole *whole = user;
    if (!trace->after) {
        memcpy(whole->before, trace->X, trace->rows * whole->width * sizeof *whole->before);
        return;
    }
    const struct tensor_seen *step = tensor_of(whole->seen, trace->layer, trace->sub, "step");
    assert_int_equal(step->tokens, trace->rows);
    for (size_t n = 0; n < trace->rows; n++) {
        double change = 0, length = 0;
        for (size_t i = n * whole->width; i < (n + 1) * whole->width; i++) {
            change += pow((double)trace->X[i] - (double)whole->before[i], 2);
            length += pow((double)whole->before[i], 2);
        }
        assert_true(fabs(sqrt(change / length) - (double)step->x[n][0]) < 1e-4);
    }
    for (size_t i = 0; i < trace->n; i++) {
        const struct ddl_traced *owner = &trace->tensor[trace->tensor[i].part];
        if (!owner->x)
            continue;
        const struct tensor_seen *t =
            tensor_of(whole->seen, trace->layer, trace->sub, trace->tensor[i].of->name);
        size_t steps = owner->of->extent == TRACE_STEPS ? trace->steps : 1;
        assert_int_equal(t->tokens, trace->rows);
        assert_int_equal(t->width, trace->tensor[i].width);
        assert_int_equal(t->steps, steps);
        assert_int_equal(t->by_token, owner->of->extent != TRACE_PARAMETER);
        for (size_t n = 0; n < trace->rows; n++) {
            const float *x =
                owner->x + (t->by_token ? n * steps * owner->width : 0) + trace->tensor[i].offset;
            for (size_t k = 0; k < t->width && k < MOST_NUMBERS; k++, whole->compared++)
                assert_true(fabsf(x[k] - t->x[n][k]) <= 1e-4F * (1 + fabsf(x[k])));
        }
    }
}

/* A trace has the numbers of one pass over the prompt and the new tokens, whatever runs with the request
 * and ran before it, to the bit those that it has alone, and it changes no token. */
static void traces_are_the_passes(void **state)
{
    (void)state;
    struct trace_seen *seen = calloc(1, sizeof *seen), *shared = calloc(1, sizeof *shared);
    assert_true(seen && shared);
    for (size_t i = 0; i < PRESETS; i++) {
        ddl_model *model = model_of(presets[i]);
        const struct ddl_config *k = ddl_model_config(model);
        int32_t tokens[CONTEXT], plain[NEW];
        seen->n = shared->n = 0;
        alone(model, 1, NULL, plain);
        alone(model, 1, seen, tokens + PROMPT);
        assert_memory_equal(tokens + PROMPT, plain, sizeof plain);
        for (size_t t = 0; t < PROMPT; t++)
            tokens[t] = (int32_t)ddl_rng_below(1, t, ddl_tokenizer_vocab_size(shared_tokenizer));

        ddl_engine *engine = engine_of(model, 3);
        ddl_generation *earlier = add(engine, 1, PROMPT, NULL, NULL); /* whose tokens are not reused */
        run(engine);
        ddl_generation_free(earlier);
        ddl_generation *of[] = { add(engine, 2, 50, NULL, NULL), add(engine, 1, PROMPT, shared, NULL),
                                 add(engine, 3, 7, NULL, NULL) };
        run(engine);
        for (size_t r = 0; r < 3; r++)
            ddl_generation_free(of[r]);
        ddl_engine_free(engine);
        assert_int_equal(seen->n, shared->n);
        assert_memory_equal(seen->tensor, shared->tensor, seen->n * sizeof *seen->tensor);

        ddl_session *session;
        struct ddl_error err;
        const struct ddl_session_options options = { .slots = 1, .tokens = CONTEXT, .rows = CONTEXT };
        struct whole whole = { .seen = seen, .width = k->d_model * ddl_config_state_channels(k) };
        struct ddl_probe probe = { .step = compare_sublayer, .user = &whole };
        const struct ddl_session_input input = { .slot = 0, .n = PROMPT + NEW - 1, .tokens = tokens };
        whole.before = malloc(CONTEXT * whole.width * sizeof *whole.before);
        assert_non_null(whole.before);
        assert_ok(ddl_session_create(&session, model, &options, &err), err);
        session_set_probe(session, &probe);
        assert_ok(ddl_session_prefill(session, &input, 1, &err), err);
        assert_true(whole.compared > 0 || i == 0);
        free(whole.before);
        ddl_session_free(session);
        ddl_model_free(model);
    }
    free(seen);
    free(shared);
}

/* A forced request has the tokens of a forced model, and its neighbors those of the model as it is. */
static void forces_are_of_one_request(void **state)
{
    (void)state;
    for (size_t i = 0; i < PRESETS; i++) {
        ddl_model *model = model_of(presets[i]);
        const struct ddl_config *k = ddl_model_config(model);
        size_t n_sublayers = DDL_SUBLAYERS * k->n_layers, n;
        struct ddl_force *force = calloc(n_sublayers, sizeof *force);
        int32_t expected[2][NEW], none[NEW];
        struct ddl_error err;
        assert_non_null(force);
        for (size_t s = 0; s < n_sublayers; s++) {
            bool has_beta = ddl_config_force_keys(k, s / DDL_SUBLAYERS) & DDL_FORCE_BETA;
            force[s] = has_beta ? (struct ddl_force){ .keys = DDL_FORCE_BETA, .beta = 0 }
                                : (struct ddl_force){ .keys = DDL_FORCE_F_SCALE, .f_scale = 0 };
            assert_ok(ddl_model_force(model, s / DDL_SUBLAYERS, (int)(s % DDL_SUBLAYERS), &force[s], &err),
                      err);
        }
        alone(model, 1, NULL, expected[0]);
        ddl_model_clear_forces(model);
        alone(model, 1, NULL, expected[1]);
        assert_memory_not_equal(expected[0], expected[1], sizeof *expected);

        ddl_engine *engine = engine_of(model, 4);
        ddl_generation *of[] = { add(engine, 1, PROMPT, NULL, force), add(engine, 1, PROMPT, NULL, NULL),
                                 add(engine, 1, PROMPT, NULL, force) };
        struct ddl_engine_progress progress;
        assert_ok(ddl_engine_pass(engine, &progress, &err), err);
        assert_int_equal(progress.prompt_tokens, 3 * 24);
        run(engine);
        for (size_t r = 0; r < 3; r++) {
            assert_memory_equal(ddl_generation_ids(of[r], &n), expected[r == 1], sizeof *expected);
            ddl_generation_free(of[r]);
        }
        /* A later request reuses the tokens of the one without forces only. */
        of[0] = add(engine, 1, PROMPT, NULL, NULL);
        of[1] = add(engine, 1, PROMPT, NULL, force);
        run(engine);
        assert_memory_equal(ddl_generation_ids(of[0], &n), expected[1], sizeof *expected);
        assert_memory_equal(ddl_generation_ids(of[1], &n), expected[0], sizeof *expected);
        struct ddl_generation_state reused;
        ddl_generation_get(of[1], &reused);
        assert_int_equal(reused.reused, 0);
        ddl_generation_free(of[0]);
        ddl_generation_free(of[1]);

        /* The model keeps what it has; a forced update that does not apply is refused. */
        alone(model, 1, NULL, none);
        assert_memory_equal(none, expected[1], sizeof none);
        const struct ddl_sampling sampling = ddl_sampling_defaults();
        const int32_t token = 1;
        ddl_generation *refused;
        force[0] = (struct ddl_force){ .keys = DDL_FORCE_VALUES };
        assert_int_equal(
            ddl_engine_add(engine,
                           &(struct ddl_engine_request){
                               .prompt = &token, .n_prompt = 1, .sampling = &sampling, .force = force },
                           &refused, &err),
            DDL_E_USAGE);
        assert_null(refused);
        assert_says(&err, "force: values does not apply to layer 0");
        free(force);
        ddl_engine_free(engine);
        ddl_model_free(model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(traces_are_the_passes),
                                        cmocka_unit_test(forces_are_of_one_request) };
    return cmocka_run_group_tests(tests, share_backend, unshare);
}
