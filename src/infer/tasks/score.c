/* Log-likelihoods of requests. Documents are sorted by length and packed into waves that fill a session: the
 * tokens that all requests of a document begin with are prefilled once and forked for each request. */
#include "ddl/session.h"
#include "ddl/tasks.h"

#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SESSION_TOKENS = 4096 }; /* capacity of all slots together, unless one document needs more */

/* What the model is given of a request: tokens [0, n), of which rows [first, n) predict targets [0, n -
 * first). */
struct input {
    const int32_t *tokens, *targets;
    size_t n, first;
    size_t same; /* the first request of the document with the same tokens */
};

/* A document to be scored. */
struct job {
    size_t document, longest; /* index; largest n of its inputs */
    size_t shared;            /* tokens that all inputs begin with and none scores */
    size_t slots;             /* different inputs */
    struct input *inputs;     /* (n_requests) */
};

struct scoring {
    const ddl_task *task;
    ddl_model *model;
    struct job *jobs; /* longest first */
    size_t n_jobs;
    struct input *inputs; /* of all jobs */
    ddl_session *session;
    size_t capacity, slots;           /* of the session */
    struct ddl_session_input *passed; /* (slots) */
    int32_t *targets, *ranks;         /* (slots, capacity) */
    float *losses;                    /* (slots, capacity) */
    struct ddl_task_callbacks callbacks;
    size_t n_done; /* jobs */
    struct ddl_task_score *scores;
};

/* ---- jobs ---- */

/* Keeps the last tokens that fit: max of them as input, and one more as the last target. */
static ddl_status make_input(const struct ddl_task_request *r, size_t max, size_t vocab, struct input *out,
                             struct ddl_error *err)
{
    size_t n = r->n_context + r->n_tokens, cut = n > max + 1 ? n - max - 1 : 0;
    if (r->n_tokens > max)
        return ddl_error_set(
            err, DDL_E_FORMAT,
            "continuation too long: expected at most %zu tokens, the model's context, found %zu", max,
            r->n_tokens);
    for (size_t i = 0; i < n; i++) {
        if (r->tokens[i] < 0 || (size_t)r->tokens[i] >= vocab)
            return ddl_error_set(err, DDL_E_FORMAT,
                                 "token %d: expected less than %zu, the model's vocabulary",
                                 (int)r->tokens[i], vocab);
    }
    *out = (struct input){ .tokens = r->tokens + cut,
                           .targets = r->tokens + r->n_context,
                           .n = n - cut - 1,
                           .first = r->n_context - cut - 1 };
    return DDL_OK;
}

/* The last target is not among the input's tokens. */
static bool same_input(const struct input *a, const struct input *b)
{
    return a->n == b->n && a->first == b->first &&
           memcmp(a->tokens, b->tokens, (a->n + 1) * sizeof *a->tokens) == 0;
}

static size_t common_prefix(const struct input *a, const struct input *b, size_t limit)
{
    size_t n = 0;
    while (n < limit && a->tokens[n] == b->tokens[n])
        n++;
    return n;
}

/* Input r of document i. */
static ddl_status make_document_input(const ddl_task *task, size_t i, size_t r,
                                      const struct ddl_config *config, struct input *out,
                                      struct ddl_error *err)
{
    char where[256];
    ddl_status status = make_input(&ddl_task_document(task, i)->requests[r], config->block_size,
                                   config->vocab_size, out, err);
    if (!status)
        return DDL_OK;
    snprintf(where, sizeof where, "task %s: document %zu", ddl_task_title(task), i);
    return ddl_error_prefix(err, status, where);
}

ddl_status ddl_task_check(const ddl_task *task, const struct ddl_config *config, struct ddl_error *err)
{
    struct input input;
    ddl_status status = DDL_OK;
    for (size_t i = 0; i < ddl_task_n_documents(task) && !status; i++) {
        for (size_t r = 0; r < ddl_task_document(task, i)->n_requests && !status; r++)
            status = make_document_input(task, i, r, config, &input, err);
    }
    return status;
}

static ddl_status make_job(const struct scoring *s, size_t i, struct input *inputs, struct job *out,
                           struct ddl_error *err)
{
    const struct ddl_task_document *document = ddl_task_document(s->task, i);
    const struct ddl_config *config = ddl_model_config(s->model);
    *out = (struct job){ .document = i, .inputs = inputs, .shared = SIZE_MAX };
    for (size_t r = 0; r < document->n_requests; r++) {
        ddl_status status = make_document_input(s->task, i, r, config, &inputs[r], err);
        if (status)
            return status;
        while (inputs[r].same < r && !same_input(&inputs[inputs[r].same], &inputs[r]))
            inputs[r].same++;
        out->slots += inputs[r].same == r;
        out->longest = inputs[r].n > out->longest ? inputs[r].n : out->longest;
        out->shared = inputs[r].first < out->shared ? inputs[r].first : out->shared;
        out->shared = common_prefix(&inputs[0], &inputs[r], out->shared);
    }
    if (out->slots == 1)
        out->shared = 0;
    return DDL_OK;
}

static int longer_first(const void *left, const void *right)
{
    const struct job *a = left, *b = right;
    if (a->longest != b->longest)
        return a->longest > b->longest ? -1 : 1;
    return a->document < b->document ? -1 : 1;
}

static ddl_status make_jobs(struct scoring *s, const bool *done, struct ddl_error *err)
{
    size_t n = ddl_task_n_documents(s->task), at = 0;
    ddl_status status = DDL_OK;
    s->jobs = calloc(n, sizeof *s->jobs);
    s->inputs = calloc(ddl_task_n_requests(s->task), sizeof *s->inputs);
    if (!s->jobs || !s->inputs)
        return ddl_error_set(err, DDL_E_MEMORY, "task %s: out of memory", ddl_task_title(s->task));
    for (size_t i = 0; i < n && !status; i++) {
        if (done && done[i])
            continue;
        status = make_job(s, i, s->inputs + at, &s->jobs[s->n_jobs++], err);
        at += ddl_task_document(s->task, i)->n_requests;
    }
    qsort(s->jobs, s->n_jobs, sizeof *s->jobs, longer_first);
    return status;
}

/* ---- the session ---- */

static void close_session(struct scoring *s)
{
    ddl_session_free(s->session);
    ddl_mem_free(s->passed);
    ddl_mem_free(s->targets);
    ddl_mem_free(s->ranks);
    ddl_mem_free(s->losses);
    s->session = NULL;
    s->passed = NULL;
    s->targets = s->ranks = NULL;
    s->losses = NULL;
}

/* A ddl_progress_fn of the session. */
static int poll(void *user, uint64_t done, uint64_t total)
{
    const struct scoring *s = user;
    (void)done;
    (void)total;
    return s->callbacks.progress(s->callbacks.user, s->n_done, s->n_jobs);
}

static struct ddl_session_options session_options(size_t slots, size_t capacity)
{
    return (struct ddl_session_options){ .slots = slots, .tokens = capacity, .form = DDL_CACHE_AUTO };
}

/* Short slots need the most memory: each has states that its convolutions read. Few documents are shorter
 * than SHORT. */
size_t ddl_task_score_bytes(const struct ddl_config *config, enum ddl_precision precision)
{
    enum { SHORT = 16 };
    size_t capacity = config->block_size < SHORT ? config->block_size : SHORT;
    const struct ddl_session_options options = session_options(SESSION_TOKENS / capacity, capacity);
    return ddl_session_bytes(config, precision, &options);
}

/* A session for the job and all shorter ones. */
static ddl_status open_session(struct scoring *s, const struct job *job, struct ddl_error *err)
{
    close_session(s);
    s->capacity = job->longest;
    s->slots = SESSION_TOKENS / s->capacity;
    for (const struct job *j = job; j < s->jobs + s->n_jobs; j++)
        s->slots = j->slots > s->slots ? j->slots : s->slots;
    struct ddl_session_options options = session_options(s->slots, s->capacity);
    options.progress = s->callbacks.progress ? poll : NULL;
    options.user = s;
    size_t n = s->slots * s->capacity;
    s->passed = ddl_mem_alloc(s->slots * sizeof *s->passed);
    s->targets = ddl_mem_alloc(n * sizeof *s->targets);
    s->ranks = ddl_mem_alloc(n * sizeof *s->ranks);
    s->losses = ddl_mem_alloc(n * sizeof *s->losses);
    if (!s->passed || !s->targets || !s->ranks || !s->losses)
        return ddl_error_set(err, DDL_E_MEMORY, "task %s: out of memory for %zu sequences",
                             ddl_task_title(s->task), s->slots);
    return ddl_session_create(&s->session, s->model, &options, err);
}

/* ---- waves ---- */

/* Prefills what the requests of each job share, and forks it into the slots of the job's other requests. */
static ddl_status prefill_shared(struct scoring *s, const struct job *jobs, size_t n, struct ddl_error *err)
{
    size_t slot = 0, n_passed = 0;
    ddl_status status = DDL_OK;
    for (size_t i = 0; i < n; slot += jobs[i++].slots) {
        if (jobs[i].shared)
            s->passed[n_passed++] = (struct ddl_session_input){ .slot = slot,
                                                                .n = jobs[i].shared,
                                                                .tokens = jobs[i].inputs[0].tokens };
    }
    if (n_passed)
        status = ddl_session_prefill(s->session, s->passed, n_passed, err);
    slot = 0;
    for (size_t i = 0; i < n; slot += jobs[i++].slots) {
        for (size_t k = 1; k < jobs[i].slots && jobs[i].shared && !status; k++)
            status = ddl_session_fork(s->session, slot, slot + k, err);
    }
    return status;
}

/* Prefills the rest of each different request, with targets from its first scored row on. */
static ddl_status prefill_rest(struct scoring *s, const struct job *jobs, size_t n, struct ddl_error *err)
{
    size_t slot = 0;
    for (size_t i = 0; i < n; i++) {
        size_t n_requests = ddl_task_document(s->task, jobs[i].document)->n_requests;
        for (size_t r = 0; r < n_requests; r++) {
            const struct input *in = &jobs[i].inputs[r];
            size_t at = slot * s->capacity, skipped = in->first - jobs[i].shared,
                   rows = in->n - jobs[i].shared;
            if (in->same != r)
                continue;
            for (size_t t = 0; t < rows; t++)
                s->targets[at + t] = t < skipped ? -1 : in->targets[t - skipped];
            s->passed[slot] = (struct ddl_session_input){ .slot = slot,
                                                          .n = rows,
                                                          .tokens = in->tokens + jobs[i].shared,
                                                          .targets = s->targets + at,
                                                          .losses = s->losses + at,
                                                          .ranks = s->ranks + at };
            slot++;
        }
    }
    return ddl_session_prefill(s->session, s->passed, slot, err);
}

static struct ddl_task_score score_of(const struct scoring *s, size_t slot)
{
    const struct ddl_session_input *in = &s->passed[slot];
    struct ddl_task_score score = { .is_greedy = true };
    for (size_t t = 0; t < in->n; t++) {
        score.loglikelihood -= (double)in->losses[t];
        score.is_greedy = score.is_greedy && in->ranks[t] <= 0;
    }
    return score;
}

static ddl_status take_scores(struct scoring *s, const struct job *jobs, size_t n, struct ddl_error *err)
{
    size_t slot = 0;
    for (size_t i = 0; i < n; i++) {
        size_t document = jobs[i].document, n_requests = ddl_task_document(s->task, document)->n_requests;
        struct ddl_task_score *scores = s->scores + ddl_task_first_request(s->task, document);
        for (size_t r = 0; r < n_requests; r++) {
            size_t same = jobs[i].inputs[r].same;
            scores[r] = same < r ? scores[same] : score_of(s, slot++);
        }
        s->n_done++;
        bool stop = s->callbacks.each && s->callbacks.each(s->callbacks.user, document, scores);
        if (stop || (s->callbacks.progress && poll(s, 0, 0)))
            return ddl_error_set(err, DDL_E_INTERRUPTED, "interrupted");
    }
    return DDL_OK;
}

/* Jobs from `first` on that fit into the session together. */
static size_t wave_size(const struct scoring *s, size_t first)
{
    size_t n = 0, slots = 0;
    while (first + n < s->n_jobs && slots + s->jobs[first + n].slots <= s->slots)
        slots += s->jobs[first + n++].slots;
    return n;
}

static ddl_status run_waves(struct scoring *s, struct ddl_error *err)
{
    ddl_status status = DDL_OK;
    for (size_t at = 0, n; at < s->n_jobs && !status; at += n) {
        const struct job *jobs = s->jobs + at;
        if (!s->session || jobs->longest <= s->capacity / 2)
            status = open_session(s, jobs, err);
        n = wave_size(s, at);
        for (size_t slot = 0; slot < s->slots && !status; slot++)
            status = ddl_session_reset(s->session, slot, err);
        if (!status)
            status = prefill_shared(s, jobs, n, err);
        if (!status)
            status = prefill_rest(s, jobs, n, err);
        if (!status)
            status = take_scores(s, jobs, n, err);
    }
    return status;
}

ddl_status ddl_task_score(const ddl_task *task, ddl_model *model, const bool *done,
                          const struct ddl_task_callbacks *callbacks, struct ddl_task_score *scores,
                          struct ddl_error *err)
{
    struct scoring s = { .task = task, .model = model, .scores = scores };
    if (callbacks)
        s.callbacks = *callbacks;
    ddl_status status = make_jobs(&s, done, err);
    if (!status)
        status = run_waves(&s, err);
    if (status == DDL_E_INTERRUPTED)
        ddl_error_set(err, status, "task %s: interrupted after %zu of %zu documents", ddl_task_title(task),
                      s.n_done, s.n_jobs);
    close_session(&s);
    free(s.jobs);
    free(s.inputs);
    return status;
}
