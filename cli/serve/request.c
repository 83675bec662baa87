/* What follows from a request when its model is known, and its end. */
#define _POSIX_C_SOURCE 200809L
#include "cli/serve/request.h"

#include "cli/model/force.h"

#include <stdlib.h>
#include <string.h>

/* The messages become one prompt. */
static bool apply_template(struct request *r, const struct request_limits *limits, struct api_error *e)
{
    struct ddl_error err = { 0 };
    r->prompts = calloc(1, sizeof *r->prompts);
    if (!r->prompts)
        return api_no_memory(e);
    r->n_prompts = 1;
    ddl_status status =
        chat_encode(limits->chat, limits->tokenizer, r->messages, r->n_messages, &r->prompts[0].ids, &err);
    if (status)
        return api_fail_with(e, "messages", &err);
    if (!limits->chat->stop)
        return true;
    r->stops[r->n_stops] = strdup(limits->chat->stop);
    if (!r->stops[r->n_stops])
        return api_no_memory(e);
    r->n_stops++;
    return true;
}

/* The text of the prompt's ids into p->text. */
static bool decode(struct prompt *p, const ddl_tokenizer *tokenizer, struct api_error *e)
{
    struct buffer text = { 0 };
    size_t V = ddl_tokenizer_vocab_size(tokenizer);
    bool ok = true;
    for (size_t i = 0; ok && i < p->ids.n; i++) {
        size_t size = 0;
        const char *bytes = ddl_tokenizer_bytes(tokenizer, p->ids.ids[i], &size);
        if ((size_t)p->ids.ids[i] >= V)
            ok = api_fail(e, 400, NULL, "prompt", "prompt: token %zu: expected 0 to %zu, found %ld", i, V - 1,
                          (long)p->ids.ids[i]);
        else if (!buffer_add(&text, bytes ? bytes : "", bytes ? size : 0))
            ok = api_no_memory(e);
    }
    p->text = text.bytes;
    p->size = text.n;
    return ok;
}

/* Encodes a text, or decodes ids; an empty text is <|endoftext|>, with which documents begin in training. */
static bool complete_prompt(struct prompt *p, const struct request_limits *limits, struct api_error *e)
{
    struct ddl_error err = { 0 };
    int32_t end = ddl_tokenizer_end_of_text(limits->tokenizer);
    if (p->text && p->size == 0 && end >= 0) {
        p->ids.ids = malloc(sizeof *p->ids.ids);
        if (!p->ids.ids)
            return api_no_memory(e);
        p->ids.ids[p->ids.n++] = end;
        return true;
    }
    if (!p->text)
        return decode(p, limits->tokenizer, e);
    return !ddl_tokenizer_encode(limits->tokenizer, p->text, p->size, true, &p->ids, &err) ||
           api_fail_with(e, "prompt", &err);
}

static bool check_length(const struct request *r, const struct prompt *p, const struct request_limits *limits,
                         struct api_error *e)
{
    const char *name = r->endpoint == CHAT ? "messages" : "prompt";
    if (p->ids.n == 0)
        return api_fail(e, 400, NULL, name, "%s: has no tokens", name);
    if (p->ids.n > limits->context)
        return api_fail(e, 400, "context_length_exceeded", name,
                        "%s: has %zu tokens, the context of this server is %zu tokens", name, p->ids.n,
                        limits->context);
    return true;
}

/* What is forced in each sublayer. */
static bool plan_forces(struct request *r, const struct ddl_config *config, struct api_error *e)
{
    struct force_plan plan = { 0 };
    struct ddl_error err = { 0 };
    ddl_status status = force_plan_make(&plan, "ddl_force", r->force.bytes, config, &err);
    bool ok = !status || api_fail_with(e, "ddl_force", &err);
    if (ok && plan.needs_means)
        ok = api_fail(e, 400, "unsupported", "ddl_force",
                      "ddl_force: 'mean' is not supported: expected a number");
    r->forces = ok ? calloc(plan.n, sizeof *r->forces) : NULL;
    if (ok && !r->forces)
        ok = api_no_memory(e);
    for (size_t s = 0; ok && s < plan.n; s++)
        r->forces[s] = plan.sublayer[s].force;
    force_plan_free(&plan);
    return ok;
}

static bool check_top(const struct request *r, const struct ddl_config *config, struct api_error *e)
{
    const char *name = r->endpoint == CHAT ? "top_logprobs" : "logprobs";
    return r->top <= config->vocab_size ||
           api_fail(e, 400, NULL, name, "%s: expected at most the vocabulary's %zu tokens, found %zu", name,
                    (size_t)config->vocab_size, r->top);
}

/* An answer that is not streamed is in memory until all of its texts have ended. */
static bool check_scores(const struct request *r, const struct request_limits *limits, struct api_error *e)
{
    const char *name = r->endpoint == CHAT ? "top_logprobs" : "logprobs";
    size_t tokens = 0;
    for (size_t i = 0; i < r->n_prompts; i++) {
        size_t n = r->prompts[i].ids.n, left = limits->context + 1 - n; /* the last token is not computed */
        size_t most = r->sampling.max_tokens < left ? r->sampling.max_tokens : left;
        tokens += r->best_of * ((r->prompt_only ? 0 : most) + (r->echo ? n : 0));
    }
    size_t scores = tokens * (r->top + 1);
    return r->stream || !r->has_logprobs || scores <= MAX_NUMBERS ||
           api_fail(e, 400, NULL, name,
                    "%s: expected at most %d log-probabilities in an answer, found up to %zu: stream it, or "
                    "lower max_tokens",
                    name, MAX_NUMBERS, scores);
}

/* The tokens that a request names are tokens of the model's tokenizer. */
static bool check_tokens(const struct request *r, size_t n_tokens, struct api_error *e)
{
    const struct ddl_sampling *s = &r->sampling;
    for (size_t i = 0; i < s->n_stop_ids + s->n_bias; i++) {
        const bool stops = i < s->n_stop_ids;
        const char *name = stops ? "stop_token_ids" : "logit_bias";
        const int32_t token = stops ? r->stop_ids[i] : s->bias[i - s->n_stop_ids].token;
        if (token < 0 || (size_t)token >= n_tokens)
            return api_fail(e, 400, NULL, name, "%s: expected tokens below %zu, found %ld", name, n_tokens,
                            (long)token);
    }
    return true;
}

bool request_prepare(struct request *r, const struct request_limits *limits, struct api_error *e)
{
    struct ddl_error err = { 0 };
    if (!check_top(r, limits->config, e) || (r->endpoint == CHAT && !apply_template(r, limits, e)))
        return false;
    for (size_t i = 0; i < r->n_prompts; i++) {
        struct prompt *p = &r->prompts[i];
        if (!complete_prompt(p, limits, e) || !check_length(r, p, limits, e))
            return false;
    }
    if (!check_scores(r, limits, e))
        return false;
    if (r->force.n && !plan_forces(r, limits->config, e))
        return false;
    r->sampling.stop = (const char *const *)r->stops;
    r->sampling.n_stop = r->n_stops;
    r->sampling.stop_ids = r->stop_ids;
    if (!check_tokens(r, ddl_tokenizer_vocab_size(limits->tokenizer), e))
        return false;
    ddl_status status = ddl_sampling_check(&r->sampling, ddl_tokenizer_vocab_size(limits->tokenizer), &err);
    return status ? api_fail_with(e, NULL, &err) : true;
}

void request_free(struct request *r)
{
    for (size_t i = 0; i < r->n_prompts; i++) {
        free(r->prompts[i].text);
        free(r->prompts[i].ids.ids);
    }
    for (size_t i = 0; i < r->n_messages; i++)
        free(r->messages[i].content);
    for (size_t i = 0; i < r->n_stops; i++)
        free(r->stops[i]);
    free(r->messages);
    buffer_free(&r->force);
    free(r->forces);
    free(r->prompts);
    free(r->model);
    *r = (struct request){ 0 };
}
