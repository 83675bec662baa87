/* The engine: which slot a request takes, and what each pass computes. */
#include "ddl/engine.h"

#include "base/mem.h"
#include "infer/engine_trace.h"
#include "infer/generation.h"
#include "model/observe/force_set.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Tokens between the lengths to which a slot of a model with causal convolutions can be truncated. */
enum { MARK_EVERY = 64, PROMPT_SHARE = 4, DEFAULT_ROWS = 64 };

struct ddl_generation {
    ddl_engine *engine; /* NULL: ended */
    struct generation g;
    atomic_bool cancelled;
    size_t slot, n_prompt, done, reused; /* done: tokens of the prompt in the slot */
    int32_t *ids;                        /* (max_tokens or fewer) chosen */
    bool failed, score_prompt, prompt_only;
    ddl_token_fn *token;
    void *user;
    size_t n_top;
    ddl_trace_fn *trace;
    bool is_forced;
    struct force_set forces; /* of a forced request */
    struct ddl_error error;
};

/* State of a session's slot. */
struct slot {
    int32_t *ids; /* (tokens) prompt and new tokens; the session holds the first ones */
    size_t n;
    uint64_t used;        /* number of the last use, 0: never */
    bool running, forced; /* forced: no other request may read its tokens */
};

struct ddl_engine {
    ddl_model *model;
    const ddl_tokenizer *tokenizer;
    struct ddl_engine_options options; /* rows: of the session */
    size_t V, n_slots;
    ddl_session *session;
    struct slot *slot;                /* (n_slots) */
    int32_t *ids;                     /* (n_slots, tokens) */
    ddl_generation **running;         /* (slots) the oldest first; n_running of them */
    struct ddl_session_input *inputs; /* (slots) of a pass, and the request of each */
    ddl_generation **inputs_of;       /* (slots) */
    struct ddl_session_pick *picks;   /* (slots) */
    int32_t *targets;                 /* (rows) of a pass: tokens of scored prompts */
    float *losses;                    /* (rows) */
    struct ddl_scored_token *top;     /* (rows, most_top) */
    size_t most_top;
    struct engine_trace *trace; /* NULL until a request has a trace */
    size_t n_running, passes;
    size_t turn; /* where the next pass begins among the decoding requests */
    uint64_t uses;
};

/* `ids`: tokens of the tokenizer. */
static struct ddl_session_options session_options(const struct ddl_engine_options *o, size_t ids)
{
    return (struct ddl_session_options){ .slots = o->slots + o->cached,
                                         .tokens = o->tokens,
                                         .rows = o->rows,
                                         .ids = ids,
                                         .exact = true,
                                         .mark_every = MARK_EVERY,
                                         .filled = true,
                                         .form = o->form };
}

static size_t rows_of(const struct ddl_engine_options *o)
{
    return o->rows ? o->rows : DEFAULT_ROWS;
}

static bool too_many_slots(const struct ddl_engine_options *o)
{
    return o->cached > INT32_MAX / 2 || o->slots > INT32_MAX / 2;
}

/* Likeliest tokens of one prediction. */
static size_t most_top(size_t V)
{
    return V < DDL_MOST_TOP ? V : DDL_MOST_TOP;
}

size_t ddl_engine_bytes(const struct ddl_config *config, enum ddl_precision precision,
                        const struct ddl_engine_options *options, const ddl_backend *backend)
{
    const struct ddl_session_options session = session_options(options, 0);
    if (too_many_slots(options))
        return SIZE_MAX;
    size_t bytes = ddl_session_bytes(config, precision, &session, backend), scores, ids;
    size_t row =
        sizeof(int32_t) + sizeof(float) + most_top(config->vocab_size) * sizeof(struct ddl_scored_token);
    bool fits = bytes < SIZE_MAX && options->slots > 0 && ddl_size_mul(rows_of(options), row, &scores) &&
                ddl_size_mul(session.slots, options->tokens * sizeof(int32_t), &ids) &&
                ddl_size_add(bytes, scores, &bytes) && ddl_size_add(bytes, ids, &bytes);
    return fits ? bytes : SIZE_MAX;
}

static ddl_status allocate(ddl_engine *e, struct ddl_error *err)
{
    struct ddl_engine_options *o = &e->options;
    const struct ddl_session_options session = session_options(o, ddl_tokenizer_vocab_size(e->tokenizer));
    size_t ids;
    if (o->slots == 0)
        return ddl_error_set(err, DDL_E_USAGE, "engine: slots: expected 1 or more, found 0");
    if (too_many_slots(o))
        return ddl_error_set(err, DDL_E_USAGE, "engine: slots and cached: expected at most %d each",
                             INT32_MAX / 2);
    ddl_status status = ddl_session_create(&e->session, e->model, &session, err);
    if (status)
        return status;
    e->n_slots = session.slots;
    size_t most = ddl_session_exact_rows(e->model);
    o->rows = rows_of(o) < most ? rows_of(o) : most;
    e->most_top = most_top(e->V);
    e->targets = ddl_mem_alloc(o->rows * sizeof *e->targets);
    e->losses = ddl_mem_alloc(o->rows * sizeof *e->losses);
    e->top = ddl_mem_alloc(o->rows * e->most_top * sizeof *e->top);
    if (ddl_size_mul(e->n_slots * sizeof *e->ids, o->tokens, &ids))
        e->ids = ddl_mem_alloc(ids);
    e->slot = calloc(e->n_slots, sizeof *e->slot);
    e->running = calloc(o->slots, sizeof(ddl_generation *));
    e->inputs = calloc(o->slots, sizeof *e->inputs);
    e->inputs_of = calloc(o->slots, sizeof(ddl_generation *));
    e->picks = calloc(o->slots, sizeof *e->picks);
    if (!e->targets || !e->losses || !e->top || !e->ids || !e->slot || !e->running || !e->inputs ||
        !e->inputs_of || !e->picks)
        return ddl_error_set(err, DDL_E_MEMORY, "engine: out of memory for %zu slots", e->n_slots);
    for (size_t s = 0; s < e->n_slots; s++)
        e->slot[s].ids = e->ids + s * o->tokens;
    return DDL_OK;
}

ddl_status ddl_engine_create(ddl_engine **out, ddl_model *model, const ddl_tokenizer *tokenizer,
                             const struct ddl_engine_options *options, struct ddl_error *err)
{
    size_t V = ddl_model_config(model)->vocab_size, known = ddl_tokenizer_vocab_size(tokenizer);
    *out = NULL;
    if (known > V)
        return ddl_error_set(err, DDL_E_FORMAT, "the tokenizer has %zu tokens, the model's vocabulary %zu",
                             known, V);
    ddl_engine *e = ddl_mem_zalloc(sizeof *e);
    if (!e)
        return ddl_error_set(err, DDL_E_MEMORY, "engine: out of memory");
    e->model = model;
    e->tokenizer = tokenizer;
    e->options = *options;
    e->V = V;
    ddl_status status = allocate(e, err);
    if (status) {
        ddl_engine_free(e);
        return status;
    }
    *out = e;
    return DDL_OK;
}

void ddl_engine_free(ddl_engine *engine)
{
    if (!engine)
        return;
    engine_trace_free(engine->trace);
    ddl_session_free(engine->session);
    free(engine->slot);
    free(engine->running);
    free(engine->inputs);
    free(engine->inputs_of);
    free(engine->picks);
    ddl_mem_free(engine->targets);
    ddl_mem_free(engine->losses);
    ddl_mem_free(engine->top);
    ddl_mem_free(engine->ids);
    ddl_mem_free(engine);
}

size_t ddl_engine_running(const ddl_engine *engine)
{
    return engine->n_running;
}

/* ---- slots ---- */

/* Tokens of the prompt that slot s can be truncated to; the last one is left to be computed. */
static size_t reusable(const ddl_engine *e, size_t s, const int32_t *prompt, size_t n)
{
    size_t most = ddl_session_length(e->session, s), same = 0;
    while (same < most && same + 1 < n && e->slot[s].ids[same] == prompt[same])
        same++;
    return ddl_session_prefix(e->session, s, same);
}

/* The least recently used slot without an active request; there is one while a request can be added. */
static size_t oldest_slot(const ddl_engine *e)
{
    size_t best = e->n_slots;
    for (size_t s = 0; s < e->n_slots; s++) {
        if (!e->slot[s].running && (best == e->n_slots || e->slot[s].used < e->slot[best].used))
            best = s;
    }
    return best;
}

/* Gives the request a slot with the longest cached prefix of its prompt. The slot itself, if it has no active
 * request and keeps at least half of its tokens; else a copy in the least recently used slot. */
static ddl_status take_slot(ddl_engine *e, ddl_generation *r, const int32_t *prompt, struct ddl_error *err)
{
    size_t from = 0, n = 0;
    for (size_t s = 0; s < e->n_slots; s++) {
        bool computes_all = r->score_prompt || r->trace || r->is_forced || e->slot[s].forced;
        size_t same = computes_all ? 0 : reusable(e, s, prompt, r->n_prompt);
        if (same > n || (same == n && n > 0 && e->slot[from].running && !e->slot[s].running))
            from = s, n = same;
    }
    size_t to = oldest_slot(e);
    if (n && !e->slot[from].running && 2 * n >= ddl_session_length(e->session, from))
        to = from;
    ddl_status status =
        n ? ddl_session_fork_prefix(e->session, from, to, n, err) : ddl_session_reset(e->session, to, err);
    if (status)
        return status;
    struct slot *slot = &e->slot[to];
    memcpy(slot->ids, prompt, r->n_prompt * sizeof *prompt);
    slot->n = r->n_prompt;
    slot->used = ++e->uses;
    slot->running = true;
    slot->forced = r->is_forced;
    r->slot = to;
    r->done = r->reused = n;
    return DDL_OK;
}

/* Ends a request; its slot keeps what it holds. */
static void end_request(ddl_generation *r)
{
    ddl_engine *e = r->engine;
    size_t i = 0;
    if (!e)
        return;
    while (e->running[i] != r)
        i++;
    e->n_running--;
    memmove(e->running + i, e->running + i + 1, (e->n_running - i) * sizeof(ddl_generation *));
    e->slot[r->slot].running = false;
    e->slot[r->slot].used = ++e->uses;
    r->engine = NULL;
}

/* ---- requests ---- */

static ddl_status check_request(const ddl_engine *e, const struct ddl_engine_request *request,
                                struct ddl_error *err)
{
    if (e->n_running == e->options.slots)
        return ddl_error_set(err, DDL_E_USAGE, "engine: all %zu slots are in use", e->options.slots);
    if (request->n_prompt == 0 || request->n_prompt > e->options.tokens)
        return ddl_error_set(err, DDL_E_USAGE, "prompt: expected 1 to %zu tokens, found %zu",
                             e->options.tokens, request->n_prompt);
    for (size_t t = 0; t < request->n_prompt; t++) {
        if (request->prompt[t] < 0 || (size_t)request->prompt[t] >= e->V)
            return ddl_error_set(err, DDL_E_USAGE, "prompt: token %zu: expected 0 to %zu, found %d", t,
                                 e->V - 1, (int)request->prompt[t]);
    }
    if (request->n_top > e->most_top)
        return ddl_error_set(err, DDL_E_USAGE, "n_top: expected at most %zu, found %zu", e->most_top,
                             request->n_top);
    return ddl_sampling_check(request->sampling, ddl_tokenizer_vocab_size(e->tokenizer), err);
}

ddl_status ddl_engine_add(ddl_engine *engine, const struct ddl_engine_request *request, ddl_generation **out,
                          struct ddl_error *err)
{
    *out = NULL;
    ddl_status status = check_request(engine, request, err);
    if (status)
        return status;
    /* The last new token is not fed back to the model and takes no position. */
    size_t space = engine->options.tokens - request->n_prompt + 1, most = request->sampling->max_tokens;
    ddl_generation *r = ddl_mem_zalloc(sizeof *r);
    if (!r)
        return ddl_error_set(err, DDL_E_MEMORY, "engine: out of memory for a request");
    atomic_init(&r->cancelled, false);
    r->n_prompt = request->n_prompt;
    r->token = request->token;
    r->user = request->user;
    r->n_top = request->token ? request->n_top : 0;
    r->score_prompt = request->token && request->score_prompt;
    r->prompt_only = request->prompt_only;
    r->trace = request->trace;
    r->is_forced = request->force != NULL;
    r->ids = ddl_mem_alloc(((most < space ? most : space) + 1) * sizeof *r->ids);
    if (!r->ids)
        status = ddl_error_set(err, DDL_E_MEMORY, "engine: out of memory for a request");
    if (!status)
        status = generation_init(&r->g,
                                 &(struct generation_start){ .tokenizer = engine->tokenizer,
                                                             .sampling = request->sampling,
                                                             .prompt = request->prompt,
                                                             .n_prompt = request->n_prompt,
                                                             .space = space,
                                                             .text = request->text,
                                                             .user = request->user },
                                 err);
    if (!status && r->is_forced)
        status = force_set_make(&r->forces, engine->model, request->force, err);
    if (!status && r->trace && !engine->trace)
        status = engine_trace_create(&engine->trace, engine->session, engine->model, engine->options.rows,
                                     engine->options.slots, err);
    if (!status)
        status = take_slot(engine, r, request->prompt, err);
    if (status) {
        ddl_generation_free(r);
        return status;
    }
    r->engine = engine;
    r->g.chosen = r->ids;
    engine->running[engine->n_running++] = r;
    *out = r;
    return DDL_OK;
}

void ddl_generation_get(const ddl_generation *generation, struct ddl_generation_state *out)
{
    *out = (struct ddl_generation_state){ .prompt_tokens = generation->n_prompt,
                                          .prompt_done = generation->done,
                                          .reused = generation->reused,
                                          .tokens = generation->g.tokens,
                                          .finish = generation->g.finish };
}

const int32_t *ddl_generation_ids(const ddl_generation *generation, size_t *n)
{
    *n = generation->g.n;
    return generation->ids;
}

const struct ddl_error *ddl_generation_error(const ddl_generation *generation)
{
    return generation->failed ? &generation->error : NULL;
}

void ddl_generation_cancel(ddl_generation *generation)
{
    atomic_store(&generation->cancelled, true);
}

void ddl_generation_free(ddl_generation *generation)
{
    if (!generation)
        return;
    end_request(generation);
    generation_free(&generation->g);
    ddl_mem_free(generation->ids);
    force_set_free(&generation->forces);
    ddl_mem_free(generation);
}

/* ---- scores ---- */

/* Passes on the token `id`, scored by `loss` and `top`; top NULL: the first of the prompt. Where top has the
 * token too, it gets the same number: loss and top are rounded differently. */
static void report_token(const ddl_generation *r, int32_t id, size_t index, bool is_prompt, float loss,
                         struct ddl_scored_token *top)
{
    for (size_t i = 0; top && i < r->n_top; i++) {
        if (top[i].id == id)
            top[i].logprob = -loss;
    }
    const struct ddl_engine_token token = { .id = id,
                                            .index = index,
                                            .is_prompt = is_prompt,
                                            .logprob = top ? -loss : NAN,
                                            .top = top,
                                            .n_top = top ? r->n_top : 0 };
    r->token(r->user, r->g.sampling.sequence, &token);
}

/* Passes on the tokens of the prompt that the input's tokens predict, which follow the first r->done ones. */
static void report_prompt(const ddl_engine *e, const ddl_generation *r, const struct ddl_session_input *input)
{
    const int32_t *prompt = e->slot[r->slot].ids;
    if (r->done == 0)
        report_token(r, prompt[0], 0, true, 0, NULL);
    for (size_t t = 0; t < input->n && r->done + t + 1 < r->n_prompt; t++)
        report_token(r, prompt[r->done + t + 1], r->done + t + 1, true, input->losses[t],
                     input->top + t * r->n_top);
}

/* ---- passes ---- */

/* The tokens that are expected after n tokens of the request: those of its prompt. */
static int32_t *expect(const ddl_engine *e, const ddl_generation *r, size_t rows, size_t n)
{
    const int32_t *prompt = e->slot[r->slot].ids;
    for (size_t t = 0; t < n; t++)
        e->targets[rows + t] = r->done + t + 1 < r->n_prompt ? prompt[r->done + t + 1] : -1;
    return e->targets + rows;
}

/* Adds n tokens of the request to the pass, which has `inputs` already, with `rows` tokens. */
static void add_input(ddl_engine *e, ddl_generation *r, size_t inputs, size_t rows, size_t n)
{
    size_t length = ddl_session_length(e->session, r->slot);
    bool chooses = length + n >= r->n_prompt && !r->prompt_only;
    bool scores = r->done < r->n_prompt && r->score_prompt;
    struct ddl_session_pick *pick = &e->picks[inputs];
    if (chooses)
        *pick = generation_pick(&r->g);
    pick->scored = r->token != NULL;
    e->inputs_of[inputs] = r;
    e->inputs[inputs] = (struct ddl_session_input){ .slot = r->slot,
                                                    .n = n,
                                                    .tokens = e->slot[r->slot].ids + length,
                                                    .targets = scores ? expect(e, r, rows, n) : NULL,
                                                    .losses = scores ? e->losses + rows : NULL,
                                                    .n_picks = chooses,
                                                    .picks = pick,
                                                    .n_top = r->n_top,
                                                    .top = e->top + rows * e->most_top };
}

/* Whether the request takes part in a pass of all requests without forced updates, or of `only`. */
static bool takes_part(const ddl_generation *r, const ddl_generation *only)
{
    return only ? r == only : !r->is_forced;
}

/* Fills the pass, see takes_part; the number of its inputs. */
static size_t plan(ddl_engine *e, const ddl_generation *only)
{
    size_t n = 0, rows = 0, prompts = 0, most = e->options.rows;
    for (size_t i = 0; i < e->n_running; i++)
        prompts += takes_part(e->running[i], only) && e->running[i]->done < e->running[i]->n_prompt;
    size_t steps = prompts ? most - (most + PROMPT_SHARE - 1) / PROMPT_SHARE : most;
    steps = steps ? steps : e->passes++ % 2; /* a pass of one row: in turn */
    for (size_t i = 0; i < e->n_running && rows < steps; i++) {
        ddl_generation *r = e->running[(e->turn + i) % e->n_running];
        if (takes_part(r, only) && r->done == r->n_prompt) {
            add_input(e, r, n++, rows, 1);
            rows++;
        }
    }
    e->turn += rows;
    for (size_t i = 0; i < e->n_running && rows < most; i++) {
        ddl_generation *r = e->running[i];
        size_t left = takes_part(r, only) ? r->n_prompt - r->done : 0;
        size_t take = left < most - rows ? left : most - rows;
        if (take)
            add_input(e, r, n++, rows, take);
        rows += take;
    }
    return n;
}

/* Takes the next token of the request, which the input has chosen. */
static void take_token(ddl_engine *e, ddl_generation *r, const struct ddl_session_input *input)
{
    struct slot *slot = &e->slot[r->slot];
    if (generation_take(&r->g, input->picks->id, &r->error)) {
        r->failed = true;
        r->g.finish = DDL_FINISH_FAILED;
    } else if (r->token) {
        report_token(r, r->g.last, r->g.n - 1, false, input->picks->loss,
                     input->top + (input->n - 1) * r->n_top);
    }
    if (r->g.finish < 0)
        slot->ids[slot->n++] = r->g.last;
    else
        end_request(r);
}

/* What follows from the computed tokens of an input. */
static void complete_input(ddl_engine *e, const struct ddl_session_input *input, ddl_generation *r,
                           struct ddl_engine_progress *progress)
{
    if (r->done < r->n_prompt) {
        if (r->score_prompt)
            report_prompt(e, r, input);
        r->done += input->n;
        progress->prompt_tokens += input->n;
    }
    if (r->done < r->n_prompt)
        return;
    if (r->prompt_only) {
        r->g.finish = DDL_FINISH_LENGTH;
        end_request(r);
        return;
    }
    take_token(e, r, input);
    progress->new_tokens += !r->failed;
}

/* Computes the n inputs of the pass. */
static ddl_status compute(ddl_engine *e, size_t n, struct ddl_error *err)
{
    struct engine_trace *trace = e->trace;
    for (size_t i = 0; trace && i < n; i++) {
        const ddl_generation *r = e->inputs_of[i];
        if (r->trace)
            trace->request[trace->n++] =
                (struct traced_request){ r->slot, r->trace, r->user, r->g.sampling.sequence };
    }
    bool is_traced = trace && trace->n;
    if (is_traced)
        engine_trace_begin(trace);
    ddl_status status = ddl_session_prefill(e->session, e->inputs, n, err);
    if (is_traced)
        engine_trace_end(trace);
    return status;
}

/* A pass, see takes_part. */
static ddl_status run_pass(ddl_engine *e, ddl_generation *only, struct ddl_engine_progress *progress,
                           struct ddl_error *err)
{
    size_t n = plan(e, only);
    if (n == 0)
        return DDL_OK;
    if (only)
        force_exchange(e->model, &only->forces);
    ddl_status status = compute(e, n, err);
    if (only)
        force_exchange(e->model, &only->forces);
    for (size_t i = 0; !status && i < n; i++)
        complete_input(e, &e->inputs[i], e->inputs_of[i], progress);
    return status;
}

ddl_status ddl_engine_pass(ddl_engine *engine, struct ddl_engine_progress *progress, struct ddl_error *err)
{
    struct ddl_engine_progress done = { 0 };
    for (size_t i = engine->n_running; i-- > 0;) {
        ddl_generation *r = engine->running[i];
        if (atomic_load(&r->cancelled)) {
            generation_cancel(&r->g);
            end_request(r);
        }
    }
    ddl_status status = run_pass(engine, NULL, &done, err);
    for (size_t i = engine->n_running; !status && i-- > 0;) {
        if (engine->running[i]->is_forced)
            status = run_pass(engine, engine->running[i], &done, err);
    }
    done.running = engine->n_running;
    if (progress)
        *progress = done;
    return status;
}
