/* Slots of sequences: their lengths, and the passes that a call is divided into. */
#include "ddl/session.h"

#include "base/mem.h"
#include "ddl/option.h"
#include "infer/session_check.h"
#include "infer/session_rows.h"
#include "model/pass/decode.h"
#include "model/pass/measure.h"
#include "model/pass/poll.h"

#include <stdlib.h>
#include <string.h>

enum { DEFAULT_ROWS = 512, DEFAULT_EXACT_ROWS = 64 };

/* Two histories for each slot: 2 slot and 2 slot + 1. A call reads the current one and writes the other, so
 * that after an error the current one still belongs to the slot's length. Behind those of all slots are the
 * marks: histories at multiples of mark_every tokens. A mark within a slot's length belongs to its content,
 * because every pass that reaches the mark's length writes it. */
struct slot {
    size_t length;
    size_t current; /* 0 or 1 */
    bool in_call;
};

struct ddl_session {
    ddl_model *model; /* borrowed */
    struct ddl_session_options options;
    ddl_workspace *ws;
    ddl_cache *cache;
    struct slot *slot;                     /* (slots)                  */
    int32_t *tokens;                       /* (rows) of a pass         */
    struct ddl_decode_sequence *sequences; /* (rows) of a pass         */
    struct ddl_decode_output *outputs;     /* (rows) of a pass         */
    struct ddl_session_input *inputs;      /* (slots) of a step        */
    size_t n_sequences, n_outputs;         /* of the pass              */
};

static struct ddl_workspace_options workspace_options(const struct ddl_session_options *o)
{
    return (struct ddl_workspace_options){ .batch = o->rows, .tokens = 1 };
}

static size_t marks_of(const struct ddl_session_options *o)
{
    return o->mark_every ? o->tokens / o->mark_every : 0;
}

static struct ddl_cache_options cache_options(const struct ddl_session_options *o,
                                              enum ddl_precision precision)
{
    return (struct ddl_cache_options){ .slots = o->slots,
                                       .histories = o->slots * (2 + marks_of(o)),
                                       .tokens = o->tokens,
                                       .rows = o->rows,
                                       .ids = o->ids,
                                       .exact = o->exact,
                                       .bf16 = ddl_cache_is_bf16(precision, o->form) };
}

/* Checks the options and replaces `rows` and `ids` 0 by the defaults. */
static ddl_status complete(struct ddl_session_options *o, const struct ddl_config *config,
                           struct ddl_error *err)
{
    ddl_status status = ddl_choice_check("cache", ddl_cache_form_names, (int)o->form, err);
    if (status)
        return status;
    if (o->ids > config->vocab_size)
        return ddl_error_set(err, DDL_E_USAGE, "session: ids: expected at most %zu, found %zu",
                             config->vocab_size, o->ids);
    o->ids = o->ids ? o->ids : config->vocab_size;
    if (o->slots == 0 || o->slots > INT32_MAX / 2)
        return ddl_error_set(err, DDL_E_USAGE, "session: slots: expected 1 to %d, found %zu", INT32_MAX / 2,
                             o->slots);
    if (o->tokens == 0 || o->tokens > config->block_size)
        return ddl_error_set(err, DDL_E_USAGE,
                             "session: tokens of a slot: expected 1 to %zu (the model's context), found %zu",
                             config->block_size, o->tokens);
    if (marks_of(o) > INT32_MAX / o->slots - 2)
        return ddl_error_set(err, DDL_E_USAGE, "session: mark_every: %zu is too small for %zu slots",
                             o->mark_every, o->slots);
    if (o->rows == 0) {
        size_t most = o->exact ? DEFAULT_EXACT_ROWS : DEFAULT_ROWS;
        size_t all = o->tokens < most / o->slots + 1 ? o->slots * o->tokens : most;
        o->rows = all < most ? all : most;
    }
    return DDL_OK;
}

size_t ddl_session_bytes(const struct ddl_config *config, enum ddl_precision precision,
                         const struct ddl_session_options *options, const ddl_backend *backend)
{
    struct ddl_session_options o = *options;
    if (ddl_config_check(config, NULL) || complete(&o, config, NULL))
        return SIZE_MAX;
    const struct ddl_workspace_options workspace = workspace_options(&o);
    const struct ddl_cache_options cache = cache_options(&o, precision);
    size_t bytes = ddl_workspace_total_bytes(config, precision, &workspace, backend);
    size_t more = ddl_cache_bytes(config, &cache);
    return bytes != SIZE_MAX && more != SIZE_MAX && ddl_size_add(bytes, more, &bytes) ? bytes : SIZE_MAX;
}

static ddl_status allocate(struct ddl_session *s, struct ddl_error *err)
{
    const struct ddl_session_options *o = &s->options;
    const struct ddl_workspace_options workspace = workspace_options(o);
    const struct ddl_cache_options cache = cache_options(o, ddl_model_precision(s->model));
    ddl_status status = ddl_workspace_create(&s->ws, s->model, &workspace, err); /* limits `rows` */
    if (!status)
        status = ddl_cache_create(&s->cache, s->model, &cache, err);
    if (status)
        return status;
    if (o->filled) {
        ddl_workspace_fill(s->ws);
        ddl_cache_fill(s->cache);
    }
    s->slot = calloc(o->slots, sizeof *s->slot);
    s->tokens = calloc(o->rows, sizeof *s->tokens);
    s->sequences = calloc(o->rows, sizeof *s->sequences);
    s->outputs = calloc(o->rows, sizeof *s->outputs);
    s->inputs = calloc(o->slots, sizeof *s->inputs);
    if (!s->slot || !s->tokens || !s->sequences || !s->outputs || !s->inputs)
        return ddl_error_set(err, DDL_E_MEMORY, "session: out of memory for %zu slots", o->slots);
    return DDL_OK;
}

ddl_status ddl_session_create(ddl_session **out, ddl_model *model, const struct ddl_session_options *options,
                              struct ddl_error *err)
{
    struct ddl_session_options o = *options;
    *out = NULL;
    ddl_status status = complete(&o, ddl_model_config(model), err);
    if (status)
        return status;
    struct ddl_session *session = ddl_mem_zalloc(sizeof *session);
    if (!session)
        return ddl_error_set(err, DDL_E_MEMORY, "session: out of memory");
    if (o.exact && o.rows > ddl_model_step_rows(model))
        o.rows = ddl_model_step_rows(model);
    session->model = model;
    session->options = o;
    status = allocate(session, err);
    if (status) {
        ddl_session_free(session);
        return status;
    }
    if (!ddl_cache_has_histories(session->cache))
        session->options.mark_every = 0; /* such a slot can be cut anywhere */
    *out = session;
    return DDL_OK;
}

void ddl_session_free(ddl_session *session)
{
    if (!session)
        return;
    ddl_workspace_free(session->ws);
    ddl_cache_free(session->cache);
    free(session->slot);
    free(session->tokens);
    free(session->sequences);
    free(session->outputs);
    free(session->inputs);
    ddl_mem_free(session);
}

size_t ddl_session_slots(const ddl_session *session)
{
    return session->options.slots;
}

size_t ddl_session_capacity(const ddl_session *session)
{
    return session->options.tokens;
}

size_t ddl_session_length(const ddl_session *session, size_t slot)
{
    return slot < session->options.slots ? session->slot[slot].length : 0;
}

size_t ddl_session_exact_rows(const ddl_model *model)
{
    return ddl_model_step_rows(model);
}

/* The history that is kept for a slot at n tokens, a multiple of mark_every. */
static size_t mark_at(const struct ddl_session *s, size_t slot, size_t n)
{
    return 2 * s->options.slots + slot * marks_of(&s->options) + n / s->options.mark_every - 1;
}

size_t ddl_session_prefix(const ddl_session *session, size_t slot, size_t n)
{
    size_t length = ddl_session_length(session, slot), every = session->options.mark_every;
    if (n >= length)
        return length;
    return !ddl_cache_has_histories(session->cache) ? n : every ? n - n % every : 0;
}

/* ---- checks ---- */

static ddl_status check_slot(const struct ddl_session *s, size_t slot, struct ddl_error *err)
{
    if (slot < s->options.slots)
        return DDL_OK;
    return ddl_error_set(err, DDL_E_USAGE, "session: slot: expected 0 to %zu, found %zu",
                         s->options.slots - 1, slot);
}

static ddl_status check_input(const struct ddl_session *s, const struct ddl_session_input *in,
                              struct ddl_error *err)
{
    ddl_status status = check_slot(s, in->slot, err);
    if (status)
        return status;
    const struct slot *slot = &s->slot[in->slot];
    if (slot->in_call)
        return ddl_error_set(err, DDL_E_USAGE, "session: slot %zu occurs twice in one call", in->slot);
    const struct session_sizes sizes = { .V = ddl_model_config(s->model)->vocab_size,
                                         .length = slot->length,
                                         .tokens = s->options.tokens };
    return session_check_input(&sizes, in, err);
}

/* Checks all inputs; in_call is false for all slots again afterwards. */
static ddl_status check_inputs(struct ddl_session *s, const struct ddl_session_input *inputs, size_t n,
                               struct ddl_error *err)
{
    ddl_status status = DDL_OK;
    size_t checked = 0;
    for (; checked < n; checked++) {
        status = check_input(s, &inputs[checked], err);
        if (status)
            break;
        s->slot[inputs[checked].slot].in_call = true;
    }
    while (checked > 0)
        s->slot[inputs[--checked].slot].in_call = false;
    return status;
}

/* ---- passes ---- */

static void skip_target(const struct ddl_session_input *in, size_t t)
{
    in->losses[t] = 0;
    if (in->ranks)
        in->ranks[t] = -1;
    if (in->entropies)
        in->entropies[t] = 0;
}

/* Adds what is wanted of token t of the input, which is `row` of the pass. */
static void add_output(struct ddl_session *s, const struct ddl_session_input *in, size_t t, size_t row)
{
    size_t V = ddl_model_config(s->model)->vocab_size, first = in->n - in->n_logits;
    struct ddl_decode_output output = { .row = row };
    if (t >= first)
        output.logits = in->logits + (t - first) * V;
    if (in->targets && in->targets[t] >= 0) {
        output.n_targets = 1;
        output.targets = in->targets + t;
        output.losses = in->losses + t;
        output.ranks = in->ranks ? in->ranks + t : NULL;
        output.entropy = in->entropies ? in->entropies + t : NULL;
    } else if (in->targets) {
        skip_target(in, t);
    }
    if (t + 1 == in->n && in->n_choices) {
        output.n_targets = in->n_choices;
        output.targets = in->choices;
        output.losses = in->choice_losses;
        output.ranks = in->choice_ranks;
    }
    if (t + 1 == in->n) {
        output.n_picks = in->n_picks;
        output.picks = in->picks;
    }
    if (output.n_picks || (in->targets && in->targets[t] >= 0)) {
        output.n_top = in->n_top;
        output.top = in->n_top ? in->top + t * in->n_top : NULL;
    }
    if (output.logits || output.n_targets || output.n_picks)
        s->outputs[s->n_outputs++] = output;
}

/* Adds tokens [at, at + rows) of the input to the pass, from row `row` on. */
static struct ddl_decode_sequence add_rows(struct ddl_session *s, const struct ddl_session_input *in,
                                           size_t at, size_t rows, size_t row)
{
    const struct slot *slot = &s->slot[in->slot];
    size_t current = 2 * in->slot + slot->current, other = 2 * in->slot + 1 - slot->current;
    memcpy(s->tokens + row, in->tokens + at, rows * sizeof *s->tokens);
    for (size_t t = 0; t < rows; t++)
        add_output(s, in, at + t, row + t);
    return (struct ddl_decode_sequence){
        .slot = in->slot, .past = slot->length + at, .rows = rows, .from = at ? other : current, .to = other
    };
}

/* Tokens from token number `at` of the input to the next mark. */
static size_t rows_to_mark(const struct ddl_session *s, const struct ddl_session_input *in, size_t at)
{
    size_t every = s->options.mark_every;
    return every ? every - (s->slot[in->slot].length + at) % every : SIZE_MAX;
}

/* Keeps the histories of the sequences of a pass that have reached a mark. */
static void mark(struct ddl_session *s)
{
    size_t every = s->options.mark_every;
    for (size_t i = 0; every && i < s->n_sequences; i++) {
        const struct ddl_decode_sequence *sequence = &s->sequences[i];
        size_t length = sequence->past + sequence->rows;
        if (length % every == 0)
            ddl_cache_copy_histories(s->cache, sequence->to, mark_at(s, sequence->slot, length));
    }
}

/* All tokens of the inputs, which are valid, in passes of at most max_rows; lengths are unchanged. */
static ddl_status run_passes(struct ddl_session *s, const struct ddl_session_input *inputs, size_t n,
                             size_t max_rows, ddl_progress_fn *progress, struct ddl_error *err)
{
    ddl_status status = DDL_OK;
    struct ddl_poll poll = { .progress = progress, .user = s->options.user };
    size_t i = 0, at = 0; /* the next token: number `at` of input i */
    for (size_t k = 0; k < n; k++)
        poll.total += inputs[k].n;
    while (i < n && !status) {
        size_t row = 0;
        s->n_sequences = s->n_outputs = 0;
        while (i < n && row < max_rows) {
            size_t left = inputs[i].n - at, rows = left < max_rows - row ? left : max_rows - row;
            size_t to_mark = rows_to_mark(s, &inputs[i], at);
            rows = rows < to_mark ? rows : to_mark;
            s->sequences[s->n_sequences++] = add_rows(s, &inputs[i], at, rows, row);
            row += rows;
            at = rows < left ? at + rows : 0;
            i += rows == left;
            if (at) /* a slot has one sequence in a pass */
                break;
        }
        const struct ddl_decode_batch batch = { s->n_sequences, s->sequences, s->tokens, s->n_outputs,
                                                s->outputs };
        status = ddl_model_decode_polled(s->model, s->ws, s->cache, &batch, &poll, err);
        if (!status)
            mark(s);
        poll.done += row;
    }
    return status;
}

void session_set_probe(ddl_session *session, struct ddl_probe *probe)
{
    ddl_workspace_set_probe(session->ws, probe);
}

bool session_rows_of(const ddl_session *session, size_t slot, struct session_rows *out)
{
    *out = (struct session_rows){ 0 };
    for (size_t i = 0; i < session->n_sequences; i++) {
        const struct ddl_decode_sequence *sequence = &session->sequences[i];
        out->past = sequence->past;
        out->n = sequence->rows;
        if (sequence->slot == slot)
            return true;
        out->row += sequence->rows;
    }
    return false;
}

static ddl_status append(struct ddl_session *s, const struct ddl_session_input *inputs, size_t n,
                         size_t max_rows, ddl_progress_fn *progress, struct ddl_error *err)
{
    ddl_status status = check_inputs(s, inputs, n, err);
    if (!status)
        status = run_passes(s, inputs, n, max_rows, progress, err);
    for (size_t i = 0; !status && i < n; i++) {
        struct slot *slot = &s->slot[inputs[i].slot];
        slot->length += inputs[i].n;
        slot->current = 1 - slot->current;
    }
    return status;
}

ddl_status ddl_session_prefill(ddl_session *session, const struct ddl_session_input *inputs, size_t n,
                               struct ddl_error *err)
{
    return append(session, inputs, n, session->options.rows, session->options.progress, err);
}

/* One token for each of n slots, with logits (n, V) or picks (n), which may be NULL. */
static ddl_status step(struct ddl_session *s, size_t n, const size_t *slots, const int32_t *tokens,
                       float *logits, struct ddl_session_pick *picks, struct ddl_error *err)
{
    /* Up to so many rows, a slot's result has the same bits beside others. */
    size_t most = ddl_model_step_rows(s->model), rows = s->options.rows < most ? s->options.rows : most;
    size_t V = ddl_model_config(s->model)->vocab_size;
    if (n > s->options.slots)
        return ddl_error_set(err, DDL_E_USAGE, "session: %zu slots in one step, the session has %zu", n,
                             s->options.slots);
    for (size_t i = 0; i < n; i++)
        s->inputs[i] = (struct ddl_session_input){ .slot = slots[i],
                                                   .n = 1,
                                                   .tokens = &tokens[i],
                                                   .n_logits = logits ? 1 : 0,
                                                   .logits = logits ? logits + i * V : NULL,
                                                   .n_picks = picks ? 1 : 0,
                                                   .picks = picks ? picks + i : NULL };
    return append(s, s->inputs, n, rows, NULL, err);
}

ddl_status ddl_session_step(ddl_session *session, size_t n, const size_t *slots, const int32_t *tokens,
                            float *logits, struct ddl_error *err)
{
    return step(session, n, slots, tokens, logits, NULL, err);
}

ddl_status ddl_session_choose(ddl_session *session, size_t n, const size_t *slots, const int32_t *tokens,
                              struct ddl_session_pick *picks, struct ddl_error *err)
{
    return step(session, n, slots, tokens, NULL, picks, err);
}

/* ---- slots ---- */

ddl_status ddl_session_fork_prefix(ddl_session *session, size_t from, size_t to, size_t n,
                                   struct ddl_error *err)
{
    ddl_status status = check_slot(session, from, err);
    if (!status)
        status = check_slot(session, to, err);
    if (status)
        return status;
    if (ddl_session_prefix(session, from, n) != n)
        return ddl_error_set(err, DDL_E_USAGE,
                             "session: slot %zu holds %zu tokens: cannot be cut at %zu, but at %zu", from,
                             session->slot[from].length, n, ddl_session_prefix(session, from, n));
    const struct slot *source = &session->slot[from];
    if (from == to && n == source->length)
        return DDL_OK;
    struct slot *target = &session->slot[to];
    bool marked = session->options.mark_every > 0;
    size_t history =
        n < source->length && n > 0 && marked ? mark_at(session, from, n) : 2 * from + source->current;
    const struct ddl_decode_sequence sequence = { .slot = from, .past = n, .from = history };
    if (n > 0)
        ddl_cache_copy(session->cache, &sequence, to, 2 * to + target->current);
    for (size_t k = 1; marked && from != to && k <= n / session->options.mark_every; k++) {
        size_t at = k * session->options.mark_every;
        ddl_cache_copy_histories(session->cache, mark_at(session, from, at), mark_at(session, to, at));
    }
    target->length = n;
    return DDL_OK;
}

ddl_status ddl_session_fork(ddl_session *session, size_t from, size_t to, struct ddl_error *err)
{
    return ddl_session_fork_prefix(session, from, to, ddl_session_length(session, from), err);
}

ddl_status ddl_session_reset(ddl_session *session, size_t slot, struct ddl_error *err)
{
    ddl_status status = check_slot(session, slot, err);
    if (!status)
        session->slot[slot].length = 0;
    return status;
}
