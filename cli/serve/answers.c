#define _POSIX_C_SOURCE 200809L
#include "cli/serve/answers.h"

#include "cli/output/escape.h"
#include "cli/serve/json_text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- tokens ---- */

static size_t characters(const char *bytes, size_t size)
{
    size_t n = 0;
    for (size_t i = 0; i < size; i++)
        n += ((unsigned char)bytes[i] & 0xc0) != 0x80;
    return n;
}

static const char *bytes_of(const struct job *job, int32_t id, size_t *size)
{
    const char *bytes = ddl_tokenizer_bytes(job->tokenizer, id, size);
    if (!bytes)
        *size = 0;
    return bytes ? bytes : "";
}

/* The name of a token in /v1/completions: its text, or "bytes:\xe2\x80" where it is no text or has the
 * character U+0000, as OpenAI's. A key of an object, or a value where `value` is NAN. */
static void put_token_text(struct ddl_json *json, const struct job *job, int32_t id, float value)
{
    char text[64 + 4 * 256];
    size_t size, used = 6;
    const char *bytes = bytes_of(job, id, &size);
    if (is_utf8(bytes, size) && !memchr(bytes, '\0', size) && size < sizeof text) {
        memcpy(text, bytes, size);
        text[size] = '\0';
        used = size;
    } else {
        memcpy(text, "bytes:", used);
        for (size_t i = 0; i < size && used + 5 < sizeof text; i++)
            used += (size_t)snprintf(text + used, sizeof text - used, "\\x%02x", (unsigned char)bytes[i]);
    }
    if (isnan(value))
        ddl_json_text(json, NULL, text, used);
    else
        ddl_json_number(json, text, value, 9);
}

/* A key is not repeated: of tokens with the same text the first counts. */
static bool is_repeated(const struct job *job, const struct token_record *t, size_t i, int32_t id)
{
    size_t size, other;
    const char *bytes = bytes_of(job, id, &size);
    for (size_t k = 0; k < i; k++) {
        const char *before = bytes_of(job, t->top[k].id, &other);
        if (other == size && memcmp(before, bytes, size) == 0)
            return true;
    }
    return false;
}

/* {"token": logprob} of the candidates, and of the token itself. */
static void put_candidates(struct ddl_json *json, const struct job *job, const struct token_record *t)
{
    if (isnan(t->logprob) || job->request.top == 0) {
        ddl_json_null(json, NULL);
        return;
    }
    ddl_json_open(json, NULL, '{');
    for (size_t i = 0; i < t->n_top; i++) {
        if (!is_repeated(job, t, i, t->top[i].id))
            put_token_text(json, job, t->top[i].id, t->top[i].logprob);
    }
    if (!is_repeated(job, t, t->n_top, t->id))
        put_token_text(json, job, t->id, t->logprob);
    ddl_json_close(json, '}');
}

/* "logprobs" of /v1/completions, of the first n tokens. */
static void put_completion_logprobs(struct ddl_json *json, struct choice *c, size_t n)
{
    const struct job *job = c->job;
    bool is_empty = job->request.prompts[c->prompt].size == 0; /* its <|endoftext|> is not in the text */
    ddl_json_open(json, "logprobs", '{');
    ddl_json_open(json, "tokens", '[');
    for (size_t t = 0; t < n; t++)
        put_token_text(json, job, c->tokens[t].id, NAN);
    ddl_json_close(json, ']');
    ddl_json_open(json, "token_logprobs", '[');
    for (size_t t = 0; t < n; t++)
        ddl_json_number(json, NULL, c->tokens[t].logprob, 9);
    ddl_json_close(json, ']');
    ddl_json_open(json, "top_logprobs", '[');
    for (size_t t = 0; t < n; t++)
        put_candidates(json, job, &c->tokens[t]);
    ddl_json_close(json, ']');
    ddl_json_open(json, "text_offset", '[');
    for (size_t t = 0; t < n; t++) {
        size_t size;
        const char *bytes = bytes_of(job, c->tokens[t].id, &size);
        ddl_json_count(json, NULL, c->offset);
        c->offset += is_empty && c->tokens[t].is_prompt ? 0 : characters(bytes, size);
    }
    ddl_json_close(json, ']');
    ddl_json_close(json, '}');
}

/* {"token", "logprob", "bytes"} of a chat's token, left open. */
static void open_chat_token(struct ddl_json *json, const struct job *job, int32_t id, float logprob)
{
    size_t size;
    const char *bytes = bytes_of(job, id, &size);
    ddl_json_open(json, NULL, '{');
    ddl_json_text(json, "token", bytes, size);
    ddl_json_number(json, "logprob", logprob, 9);
    ddl_json_open(json, "bytes", '[');
    for (size_t i = 0; i < size; i++)
        ddl_json_count(json, NULL, (unsigned char)bytes[i]);
    ddl_json_close(json, ']');
}

static void put_chat_logprobs(struct ddl_json *json, const struct choice *c, size_t n)
{
    ddl_json_open(json, "logprobs", '{');
    ddl_json_open(json, "content", '[');
    for (size_t t = 0; t < n; t++) {
        const struct token_record *token = &c->tokens[t];
        open_chat_token(json, c->job, token->id, token->logprob);
        ddl_json_open(json, "top_logprobs", '[');
        for (size_t i = 0; i < token->n_top; i++) {
            open_chat_token(json, c->job, token->top[i].id, token->top[i].logprob);
            ddl_json_close(json, '}');
        }
        ddl_json_close(json, ']');
        ddl_json_close(json, '}');
    }
    ddl_json_close(json, ']');
    ddl_json_close(json, '}');
}

/* ---- choices ---- */

static const char *finish_reason(int finish)
{
    return finish == DDL_FINISH_END || finish == DDL_FINISH_STOP ? "stop" : "length";
}

/* The text of /v1/completions, after the prompt where it is requested. */
static void put_text(struct ddl_json *json, const struct choice *c, bool with_prompt)
{
    const struct prompt *p = &c->job->request.prompts[c->prompt];
    struct buffer joined = { 0 };
    const char *text = c->text.bytes ? c->text.bytes : "";
    if (with_prompt && buffer_add(&joined, p->text ? p->text : "", p->size) &&
        buffer_add(&joined, text, c->text.n))
        ddl_json_text(json, "text", joined.bytes, joined.n);
    else
        ddl_json_text(json, "text", text, c->text.n);
    buffer_free(&joined);
}

/* The text of a chat: {"role", "content"}. */
static void put_message(struct ddl_json *json, const struct choice *c, const char *key, bool with_role)
{
    ddl_json_open(json, key, '{');
    if (with_role)
        ddl_json_string(json, "role", "assistant");
    ddl_json_text(json, "content", c->text.bytes ? c->text.bytes : "", c->text.n);
    ddl_json_close(json, '}');
}

/* The numbers of the tokens that were not sent: a number for each, or an array where it has several. */
static void put_tensor(struct ddl_json *json, struct trace_tensor *t)
{
    ddl_json_open(json, t->name, '[');
    for (size_t token = 0; token < t->n - t->sent; token++) {
        if (t->size != 1)
            ddl_json_open(json, NULL, '[');
        for (size_t i = 0; i < t->size; i++)
            ddl_json_number(json, NULL, t->x[token * t->size + i], 6);
        if (t->size != 1)
            ddl_json_close(json, ']');
    }
    ddl_json_close(json, ']');
    t->sent = t->by_token ? t->n : 0;
}

/* What the sublayers did, from token `first` of prompt and text on. */
static void put_traces(struct ddl_json *json, struct choice *c)
{
    size_t first = 0;
    for (size_t t = 0; t < c->n_traces; t++)
        first = c->traces[t].by_token ? c->traces[t].sent : first;
    ddl_json_open(json, "ddl", '{');
    ddl_json_count(json, "first", first);
    ddl_json_open(json, "sublayers", '[');
    for (size_t t = 0; t < c->n_traces; t++) {
        const struct trace_tensor *tensor = &c->traces[t], *before = t ? tensor - 1 : NULL;
        if (!before || before->layer != tensor->layer || before->sub != tensor->sub) {
            if (before)
                ddl_json_close(json, '}');
            ddl_json_open(json, NULL, '{');
            ddl_json_count(json, "layer", tensor->layer);
            ddl_json_string(json, "sublayer", ddl_sublayer_names[tensor->sub]);
        }
        put_tensor(json, &c->traces[t]);
    }
    if (c->n_traces)
        ddl_json_close(json, '}');
    ddl_json_close(json, ']');
    ddl_json_close(json, '}');
}

/* Frees what was sent, with the first n tokens. */
static void drop_sent(struct choice *c, size_t n)
{
    for (size_t t = 0; t < n; t++)
        free(c->tokens[t].top);
    c->n_tokens -= n;
    if (c->n_tokens)
        memmove(c->tokens, c->tokens + n, c->n_tokens * sizeof *c->tokens);
    c->text.n = 0;
    c->sent = true;
}

/* A choice with what was not sent yet. `index` is its number in the answer. */
static void put_choice(struct ddl_json *json, struct choice *c, size_t index, bool is_chunk)
{
    const struct request *r = &c->job->request;
    bool is_first = !c->sent;
    size_t bytes, begun = job_begun_tokens(c, &bytes), n = c->ended ? c->n_tokens : begun;
    if (is_first && !r->echo) {
        const struct prompt *p = &r->prompts[c->prompt];
        c->offset = characters(p->text ? p->text : "", p->size);
    }
    ddl_json_open(json, NULL, '{');
    ddl_json_count(json, "index", index);
    if (r->endpoint == CHAT)
        put_message(json, c, is_chunk ? "delta" : "message", is_first);
    else
        put_text(json, c, is_first && r->echo);
    if (!r->has_logprobs)
        ddl_json_null(json, "logprobs");
    else if (r->endpoint == CHAT)
        put_chat_logprobs(json, c, n);
    else
        put_completion_logprobs(json, c, n);
    if (r->traced)
        put_traces(json, c);
    ddl_json_string(json, "finish_reason", c->ended ? finish_reason(c->finish) : NULL);
    ddl_json_close(json, '}');
    drop_sent(c, n);
    c->reported += bytes;
}

static void open_answer(struct ddl_json *json, const struct job *job, bool is_chunk)
{
    bool chat = job->request.endpoint == CHAT;
    ddl_json_open(json, NULL, '{');
    ddl_json_string(json, "id", job->id);
    ddl_json_string(json, "object",
                    !chat      ? "text_completion"
                    : is_chunk ? "chat.completion.chunk"
                               : "chat.completion");
    ddl_json_count(json, "created", (uint64_t)job->created);
    ddl_json_string(json, "model", job->model);
}

static void put_usage(struct ddl_json *json, const struct job *job)
{
    size_t prompt = 0, tokens = 0, reused = 0;
    for (size_t i = 0; i < job->n_choices; i++) {
        const struct choice *c = &job->choices[i];
        if (i % job->request.best_of == 0)
            prompt += job->request.prompts[c->prompt].ids.n;
        tokens += c->new_tokens;
        reused += c->index % job->request.best_of == 0 ? c->reused : 0; /* the order is that of rank */
    }
    ddl_json_open(json, "usage", '{');
    ddl_json_count(json, "prompt_tokens", prompt);
    ddl_json_count(json, "completion_tokens", tokens);
    ddl_json_count(json, "total_tokens", prompt + tokens);
    ddl_json_open(json, "prompt_tokens_details", '{');
    ddl_json_count(json, "cached_tokens", reused);
    ddl_json_close(json, '}');
    ddl_json_close(json, '}');
}

/* ---- whole answers ---- */

static double mean_logprob(const struct choice *c)
{
    return c->n_scored ? c->logprob_sum / (double)c->n_scored : -INFINITY;
}

/* Moves the n likeliest of a prompt's best_of texts to the front, by their mean log-probability. */
static void rank(struct choice *choices, size_t n, size_t best_of)
{
    for (size_t i = 0; i < n; i++) {
        size_t best = i;
        for (size_t k = i + 1; k < best_of; k++)
            best = mean_logprob(&choices[k]) > mean_logprob(&choices[best]) ? k : best;
        struct choice swap = choices[i];
        choices[i] = choices[best];
        choices[best] = swap;
    }
}

bool answer_write(struct job *job, struct buffer *out)
{
    const struct request *r = &job->request;
    struct json_text text;
    if (!json_text_open(&text))
        return false;
    struct ddl_json *json = &text.json;
    open_answer(json, job, false);
    ddl_json_open(json, "choices", '[');
    for (size_t p = 0; p < r->n_prompts; p++) {
        struct choice *choices = job->choices + p * r->best_of;
        if (r->best_of > r->n)
            rank(choices, r->n, r->best_of);
        for (size_t i = 0; i < r->n; i++)
            put_choice(json, &choices[i], p * r->n + i, false);
    }
    ddl_json_close(json, ']');
    put_usage(json, job);
    ddl_json_close(json, '}');
    return json_text_close(&text, out);
}

/* ---- streams ---- */

static bool add_event(struct buffer *out, const struct buffer *data)
{
    return buffer_add(out, "data: ", 6) && buffer_add(out, data->bytes, data->n) &&
           buffer_add(out, "\n\n", 2);
}

static bool close_event(struct json_text *text, struct buffer *out)
{
    struct buffer data = { 0 };
    bool complete = json_text_close(text, &data) && add_event(out, &data);
    buffer_free(&data);
    return complete;
}

bool answer_stream_choice(struct choice *c, struct buffer *out)
{
    struct json_text text;
    if (!c->ended && c->text.n == 0) /* tokens wait for their text */
        return true;
    if (!json_text_open(&text))
        return false;
    open_answer(&text.json, c->job, true);
    ddl_json_open(&text.json, "choices", '[');
    put_choice(&text.json, c, c->index, true);
    ddl_json_close(&text.json, ']');
    ddl_json_close(&text.json, '}');
    return close_event(&text, out);
}

bool answer_stream_end(struct job *job, struct buffer *out)
{
    struct buffer error = { 0 };
    if (job->error.status) {
        bool complete = api_error_write(&job->error, &error) && add_event(out, &error);
        buffer_free(&error);
        return complete;
    }
    if (job->request.include_usage) {
        struct json_text text;
        if (!json_text_open(&text))
            return false;
        open_answer(&text.json, job, true);
        ddl_json_open(&text.json, "choices", '[');
        ddl_json_close(&text.json, ']');
        put_usage(&text.json, job);
        ddl_json_close(&text.json, '}');
        if (!close_event(&text, out))
            return false;
    }
    return buffer_add(out, "data: [DONE]\n\n", 14);
}
