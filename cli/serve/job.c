#define _POSIX_C_SOURCE 200809L
#include "cli/serve/job.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* A random number from the kernel; where it has none, the time and the number of earlier calls. */
static uint64_t random_number(void)
{
    static atomic_uint_least64_t calls;
    uint64_t number = 0;
    int file = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
    if (file < 0 || read(file, &number, sizeof number) != sizeof number)
        number = ((uint64_t)time(NULL) << 32) + atomic_fetch_add(&calls, 1);
    if (file >= 0)
        close(file);
    return number;
}

struct job *job_new(struct request *request, const char *model, const ddl_tokenizer *tokenizer)
{
    size_t n = request->n_prompts * request->best_of;
    struct job *job = calloc(1, sizeof *job);
    struct choice *choices = calloc(n, sizeof *choices);
    if (!job || !choices) {
        free(job);
        free(choices);
        return NULL;
    }
    job->request = *request;
    job->request.sampling.stop = (const char *const *)job->request.stops;
    job->request.sampling.stop_ids = job->request.stop_ids;
    job->request.sampling.bias = job->request.biases;
    *request = (struct request){ 0 };
    job->model = model;
    job->tokenizer = tokenizer;
    job->created = (long)time(NULL);
    job->choices = choices;
    job->n_choices = n;
    job->seed = job->request.has_seed ? job->request.sampling.seed : random_number();
    snprintf(job->id, sizeof job->id, "%s-%016llx", job->request.endpoint == CHAT ? "chatcmpl" : "cmpl",
             (unsigned long long)random_number());
    for (size_t i = 0; i < n; i++)
        choices[i] =
            (struct choice){ .job = job, .index = i, .prompt = i / job->request.best_of, .finish = -1 };
    return job;
}

void job_free(struct job *job)
{
    if (!job)
        return;
    for (size_t i = 0; i < job->n_choices; i++) {
        struct choice *c = &job->choices[i];
        ddl_generation_free(c->generation);
        for (size_t t = 0; t < c->n_tokens; t++)
            free(c->tokens[t].top);
        free(c->tokens);
        for (size_t t = 0; t < c->n_traces; t++)
            free(c->traces[t].x);
        free(c->traces);
        buffer_free(&c->text);
    }
    free(job->choices);
    request_free(&job->request);
    buffer_free(&job->answer);
    free(job);
}

/* ---- what the engine calls ---- */

static int receive_text(void *user, size_t sequence, const char *text, size_t size)
{
    struct choice *c = user;
    (void)sequence;
    c->no_memory = c->no_memory || !buffer_add(&c->text, text, size);
    c->received += size;
    return c->no_memory;
}

static bool add_record(struct choice *c, const struct ddl_engine_token *token)
{
    if (c->n_tokens == c->capacity) {
        size_t capacity = 2 * c->capacity + 16;
        struct token_record *larger = realloc(c->tokens, capacity * sizeof *larger);
        if (!larger)
            return false;
        c->tokens = larger;
        c->capacity = capacity;
    }
    struct token_record *record = &c->tokens[c->n_tokens];
    *record = (struct token_record){
        .id = token->id, .is_prompt = token->is_prompt, .logprob = token->logprob, .n_top = token->n_top
    };
    if (token->n_top) {
        record->top = malloc(token->n_top * sizeof *record->top);
        if (!record->top)
            return false;
        memcpy(record->top, token->top, token->n_top * sizeof *record->top);
    }
    c->n_tokens++;
    return true;
}

static void receive_token(void *user, size_t sequence, const struct ddl_engine_token *token)
{
    struct choice *c = user;
    (void)sequence;
    if (!token->is_prompt) {
        c->logprob_sum += token->logprob;
        c->n_scored++;
    }
    if (c->job->request.has_logprobs)
        c->no_memory = c->no_memory || !add_record(c, token);
}

size_t job_begun_tokens(const struct choice *c, size_t *bytes)
{
    size_t n = 0;
    *bytes = 0;
    for (; n < c->n_tokens && (c->tokens[n].is_prompt || c->reported + *bytes < c->received); n++) {
        size_t size = 0;
        if (!c->tokens[n].is_prompt && ddl_tokenizer_bytes(c->job->tokenizer, c->tokens[n].id, &size))
            *bytes += size;
    }
    return n;
}

/* The tensor of these rows, which is new in the first pass of a text; NULL without memory. */
static struct trace_tensor *find_tensor(struct choice *c, const struct ddl_trace_rows *rows)
{
    for (size_t t = 0; t < c->n_traces; t++) {
        struct trace_tensor *tensor = &c->traces[t];
        if (tensor->layer == rows->layer && tensor->sub == rows->sub && strcmp(tensor->name, rows->name) == 0)
            return tensor;
    }
    struct trace_tensor *larger = realloc(c->traces, (c->n_traces + 1) * sizeof *larger);
    if (!larger)
        return NULL;
    c->traces = larger;
    c->traces[c->n_traces] = (struct trace_tensor){ .layer = rows->layer,
                                                    .sub = rows->sub,
                                                    .name = rows->name,
                                                    .by_token = rows->by_token,
                                                    .size = rows->steps * rows->width };
    return &c->traces[c->n_traces++];
}

static bool add_rows(struct choice *c, const struct ddl_trace_rows *rows)
{
    struct trace_tensor *t = find_tensor(c, rows);
    if (!t)
        return false;
    size_t n = rows->by_token ? rows->n : 1, first = rows->by_token ? rows->first - t->sent : 0;
    if (first + n > t->capacity) {
        size_t capacity = 2 * (first + n);
        float *larger = realloc(t->x, capacity * t->size * sizeof *larger);
        if (!larger)
            return false;
        t->x = larger;
        t->capacity = capacity;
    }
    memcpy(t->x + first * t->size, rows->x, n * t->size * sizeof *t->x);
    t->n = t->sent + first + n;
    c->job->n_traced += n * t->size;
    return true;
}

static void receive_trace(void *user, size_t sequence, const struct ddl_trace_rows *rows)
{
    struct choice *c = user;
    (void)sequence;
    c->no_memory = c->no_memory || !add_rows(c, rows);
}

void job_begin_choice(struct choice *choice, struct ddl_engine_request *out, struct ddl_sampling *sampling)
{
    const struct request *r = &choice->job->request;
    bool scores = r->has_logprobs || r->best_of > r->n; /* which reads a row of logits twice */
    const struct prompt *p = &r->prompts[choice->prompt];
    *sampling = r->sampling;
    sampling->seed = choice->job->seed;
    /* With a seed, a prompt has the same texts as in a request of its own; without, all differ. */
    sampling->sequence = r->has_seed ? choice->index % r->best_of : choice->index;
    *out = (struct ddl_engine_request){ .prompt = p->ids.ids,
                                        .n_prompt = p->ids.n,
                                        .sampling = sampling,
                                        .text = receive_text,
                                        .user = choice,
                                        .token = scores ? receive_token : NULL,
                                        .n_top = r->top,
                                        .score_prompt = r->has_logprobs && r->echo,
                                        .prompt_only = r->prompt_only,
                                        .trace = r->traced ? receive_trace : NULL,
                                        .force = r->forces };
    choice->begun = true;
}
