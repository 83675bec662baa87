/* The endpoints: a table of paths. */
#define _POSIX_C_SOURCE 200809L
#include "cli/output/page.h"
#include "cli/serve/endpoints.h"
#include "cli/serve/json_text.h"
#include "cli/serve/openapi.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- answers of JSON ---- */

static enum MHD_Result no_memory(struct exchange *x)
{
    struct api_error e;
    api_fail(&e, 503, NULL, NULL, "out of memory");
    return exchange_send_error(x, &e);
}

static enum MHD_Result send_json(struct exchange *x, struct json_text *text)
{
    struct buffer out = { 0 };
    bool complete = json_text_close(text, &out);
    enum MHD_Result result =
        complete ? exchange_send(x, 200, "application/json", out.bytes, out.n) : no_memory(x);
    buffer_free(&out);
    return result;
}

/* The model of this name; NULL, with an error, if there is none. Without a name, the only model. */
static struct served *find_model(struct exchange *x, const char *name, struct api_error *e)
{
    struct server *server = x->server;
    if (!name && server->n_models == 1)
        return &server->models[0];
    for (size_t i = 0; name && i < server->n_models; i++) {
        if (strcmp(name, server->models[i].name) == 0)
            return &server->models[i];
    }
    if (name)
        api_fail(e, 404, "model_not_found", "model", "model: '%.100s' is not served: see /v1/models", name);
    else
        api_fail(e, 400, NULL, "model", "model: missing: expected one of the names in /v1/models");
    return NULL;
}

/* ---- generation ---- */

static enum MHD_Result generate(struct exchange *x)
{
    struct request request;
    struct api_error e = { 0 };
    struct served *served = NULL;
    struct job *job = NULL;
    bool ok = request_parse(&request, x->route->endpoint, x->body.bytes ? x->body.bytes : "", x->body.n, &e);
    if (ok)
        served = find_model(x, request.model, &e);
    if (served) {
        const struct request_limits limits = { .config = ddl_model_config(served->folder.model),
                                               .tokenizer = served->folder.tokenizer,
                                               .chat = &served->chat,
                                               .context = served->options.context };
        ok = request_prepare(&request, &limits, &e);
        job = ok ? job_new(&request, served->name, served->folder.tokenizer) : NULL;
        if (ok && !job)
            api_no_memory(&e);
    }
    buffer_free(&x->body);
    request_free(&request);
    return job ? exchange_submit(x, served, job) : exchange_send_error(x, &e);
}

/* ---- tokenizers ---- */

/* The parsed body: an object with known members only; NULL, with an error, for others. */
static json_t *parse_body(struct exchange *x, const char *const *known, struct api_error *e)
{
    const char *key;
    json_t *value, *root = request_body(x->body.bytes ? x->body.bytes : "", x->body.n, e);
    bool ok = root != NULL;
    json_object_foreach(root, key, value)
    {
        size_t i = 0;
        while (known[i] && strcmp(known[i], key) != 0)
            i++;
        if (ok && !known[i])
            ok = api_fail(e, 400, "unsupported", key, "%.200s: not supported by this server", key);
    }
    if (ok)
        return root;
    json_decref(root);
    return NULL;
}

static struct served *model_of(struct exchange *x, const json_t *root, struct api_error *e)
{
    const json_t *name = json_object_get(root, "model");
    if (name && !json_is_string(name) && !json_is_null(name)) {
        api_fail(e, 400, NULL, "model", "model: expected a string");
        return NULL;
    }
    return find_model(x, json_string_value(name), e);
}

/* An optional member that is true or false. */
static bool flag_of(const json_t *root, const char *key, bool *out, struct api_error *e)
{
    const json_t *value = json_object_get(root, key);
    if (value && !json_is_null(value))
        *out = json_is_true(value);
    return !value || json_is_null(value) || json_is_boolean(value) ||
           api_fail(e, 400, NULL, key, "%s: expected true or false", key);
}

static void put_pieces(struct ddl_json *json, const ddl_tokenizer *tokenizer, const struct ddl_ids *ids)
{
    ddl_json_open(json, "token_strs", '[');
    for (size_t i = 0; i < ids->n; i++) {
        size_t size = 0;
        const char *bytes = ddl_tokenizer_bytes(tokenizer, ids->ids[i], &size);
        ddl_json_text(json, NULL, bytes ? bytes : "", bytes ? size : 0);
    }
    ddl_json_close(json, ']');
}

static enum MHD_Result send_tokens(struct exchange *x, const struct served *served, const struct ddl_ids *ids,
                                   bool pieces)
{
    struct json_text text;
    if (!json_text_open(&text))
        return no_memory(x);
    ddl_json_open(&text.json, NULL, '{');
    ddl_json_count(&text.json, "count", ids->n);
    ddl_json_count(&text.json, "max_model_len", served->options.context);
    ddl_json_open(&text.json, "tokens", '[');
    for (size_t i = 0; i < ids->n; i++)
        ddl_json_count(&text.json, NULL, (uint64_t)ids->ids[i]);
    ddl_json_close(&text.json, ']');
    if (pieces)
        put_pieces(&text.json, served->folder.tokenizer, ids);
    ddl_json_close(&text.json, '}');
    return send_json(x, &text);
}

/* vLLM's names of members, and llama-server's "content". No token is added to a text, whatever
 * add_special_tokens is. */
static enum MHD_Result tokenize(struct exchange *x)
{
    static const char *const known[] = {
        "model", "prompt", "content", "add_special_tokens", "return_token_strs", NULL
    };
    struct api_error e = { 0 };
    struct ddl_error err = { 0 };
    struct ddl_ids ids = { 0 };
    bool pieces = false, adds = false;
    json_t *root = parse_body(x, known, &e);
    struct served *served = root ? model_of(x, root, &e) : NULL;
    const json_t *prompt = json_object_get(root, "prompt"), *content = json_object_get(root, "content");
    const json_t *text = prompt ? prompt : content;
    bool ok = served && flag_of(root, "return_token_strs", &pieces, &e) &&
              flag_of(root, "add_special_tokens", &adds, &e);
    if (ok && (!json_is_string(text) || (prompt && content)))
        ok = api_fail(&e, 400, NULL, "prompt", "prompt: expected a text");
    if (ok && ddl_tokenizer_encode(served->folder.tokenizer, json_string_value(text),
                                   json_string_length(text), true, &ids, &err))
        ok = api_fail_with(&e, "prompt", &err);
    enum MHD_Result result = ok ? send_tokens(x, served, &ids, pieces) : exchange_send_error(x, &e);
    ddl_ids_free(&ids);
    json_decref(root);
    return result;
}

/* Appends the text of token i of `tokens`. */
static bool add_token(struct buffer *out, const struct served *served, const json_t *tokens, size_t i,
                      struct api_error *e)
{
    size_t id, size = 0, V = ddl_tokenizer_vocab_size(served->folder.tokenizer);
    if (!json_whole(&id, json_array_get(tokens, i)) || id >= V)
        return api_fail(e, 400, NULL, "tokens", "tokens: expected ids from 0 to %zu", V - 1);
    const char *bytes = ddl_tokenizer_bytes(served->folder.tokenizer, (int32_t)id, &size);
    return buffer_add(out, bytes ? bytes : "", bytes ? size : 0) ||
           api_fail(e, 503, NULL, NULL, "out of memory");
}

static enum MHD_Result send_text(struct exchange *x, const struct buffer *bytes)
{
    struct json_text text;
    if (!json_text_open(&text))
        return no_memory(x);
    ddl_json_open(&text.json, NULL, '{');
    ddl_json_text(&text.json, "prompt", bytes->bytes ? bytes->bytes : "", bytes->n);
    ddl_json_text(&text.json, "content", bytes->bytes ? bytes->bytes : "", bytes->n);
    ddl_json_close(&text.json, '}');
    return send_json(x, &text);
}

static enum MHD_Result detokenize(struct exchange *x)
{
    static const char *const known[] = { "model", "tokens", NULL };
    struct api_error e = { 0 };
    struct buffer bytes = { 0 };
    json_t *root = parse_body(x, known, &e);
    struct served *served = root ? model_of(x, root, &e) : NULL;
    const json_t *tokens = json_object_get(root, "tokens");
    bool ok = served && (json_is_array(tokens) ||
                         api_fail(&e, 400, NULL, "tokens", "tokens: expected an array of token ids"));
    for (size_t i = 0; ok && i < json_array_size(tokens); i++)
        ok = add_token(&bytes, served, tokens, i, &e);
    enum MHD_Result result = ok ? send_text(x, &bytes) : exchange_send_error(x, &e);
    buffer_free(&bytes);
    json_decref(root);
    return result;
}

static void put_special(struct ddl_json *json, const ddl_tokenizer *tokenizer, const char *key, int32_t id)
{
    size_t size = 0;
    const char *bytes = id >= 0 ? ddl_tokenizer_bytes(tokenizer, id, &size) : NULL;
    if (bytes)
        ddl_json_text(json, key, bytes, size);
    else
        ddl_json_null(json, key);
}

/* Of the first model, or of ?model=NAME. */
static enum MHD_Result tokenizer_info(struct exchange *x)
{
    const char *name = MHD_lookup_connection_value(x->handle, MHD_GET_ARGUMENT_KIND, "model");
    struct api_error e = { 0 };
    struct served *served = find_model(x, name ? name : x->server->models[0].name, &e);
    struct json_text text;
    if (!served)
        return exchange_send_error(x, &e);
    if (!json_text_open(&text))
        return no_memory(x);
    const ddl_tokenizer *tokenizer = served->folder.tokenizer;
    int32_t end = ddl_tokenizer_end_of_text(tokenizer);
    ddl_json_open(&text.json, NULL, '{');
    ddl_json_string(&text.json, "model", served->name);
    ddl_json_count(&text.json, "vocab_size", ddl_tokenizer_vocab_size(tokenizer));
    ddl_json_count(&text.json, "model_max_length", served->options.context);
    put_special(&text.json, tokenizer, "eos_token", end);
    put_special(&text.json, tokenizer, "bos_token", end);
    ddl_json_null(&text.json, "pad_token");
    ddl_json_null(&text.json, "chat_template");
    ddl_json_close(&text.json, '}');
    return send_json(x, &text);
}

/* ---- the server itself ---- */

static void put_model(struct ddl_json *json, const struct served *s)
{
    const struct ddl_config *config = ddl_model_config(s->folder.model);
    ddl_json_open(json, NULL, '{');
    ddl_json_string(json, "id", s->name);
    ddl_json_string(json, "object", "model");
    ddl_json_count(json, "created", 0);
    ddl_json_string(json, "owned_by", "ddl");
    ddl_json_count(json, "max_model_len", s->options.context);
    ddl_json_open(json, "meta", '{');
    ddl_json_count(json, "n_vocab", config->vocab_size);
    ddl_json_count(json, "n_ctx_train", config->block_size);
    ddl_json_count(json, "n_embd", config->d_model);
    ddl_json_count(json, "n_params", ddl_model_size(s->folder.model));
    ddl_json_close(json, '}');
    ddl_json_close(json, '}');
}

static enum MHD_Result model(struct exchange *x)
{
    struct json_text text;
    struct api_error e = { 0 };
    const struct served *s = find_model(x, x->parameter, &e);
    if (!s)
        return exchange_send_error(x, &e);
    if (!json_text_open(&text))
        return no_memory(x);
    put_model(&text.json, s);
    return send_json(x, &text);
}

static enum MHD_Result models(struct exchange *x)
{
    struct json_text text;
    if (!json_text_open(&text))
        return no_memory(x);
    ddl_json_open(&text.json, NULL, '{');
    ddl_json_string(&text.json, "object", "list");
    ddl_json_open(&text.json, "data", '[');
    for (size_t i = 0; i < x->server->n_models; i++)
        put_model(&text.json, &x->server->models[i]);
    ddl_json_close(&text.json, ']');
    ddl_json_close(&text.json, '}');
    return send_json(x, &text);
}

static enum MHD_Result health(struct exchange *x)
{
    struct api_error e = { 0 };
    pthread_mutex_lock(&x->server->lock);
    if (x->server->draining)
        api_fail(&e, 503, NULL, NULL, "the server is stopping");
    pthread_mutex_unlock(&x->server->lock);
    for (size_t i = 0; i < x->server->n_models; i++) {
        struct served *s = &x->server->models[i];
        pthread_mutex_lock(&s->lock);
        if (*s->failed)
            api_fail(&e, 503, NULL, NULL, "%s: the engine has failed: %s", s->name, s->failed);
        pthread_mutex_unlock(&s->lock);
    }
    return e.status ? exchange_send_error(x, &e)
                    : exchange_send(x, 200, "application/json", "{\"status\":\"ok\"}", 15);
}

static enum MHD_Result metrics(struct exchange *x)
{
    struct metrics_of *of = calloc(x->server->n_models, sizeof *of);
    char *bytes = NULL;
    size_t size = 0;
    FILE *out = of ? open_memstream(&bytes, &size) : NULL;
    for (size_t i = 0; out && i < x->server->n_models; i++) {
        struct served *s = &x->server->models[i];
        pthread_mutex_lock(&s->lock);
        of[i] = (struct metrics_of){ s->name, s->metrics, s->n_jobs - s->n_waiting, s->n_waiting };
        pthread_mutex_unlock(&s->lock);
    }
    if (out)
        metrics_write(out, of, x->server->n_models);
    bool complete = out && fclose(out) == 0;
    enum MHD_Result result =
        complete ? exchange_send(x, 200, "text/plain; version=0.0.4", bytes, size) : no_memory(x);
    free(bytes);
    free(of);
    return result;
}

static enum MHD_Result openapi(struct exchange *x)
{
    struct json_text text;
    size_t tokens = SIZE_MAX;
    for (size_t i = 0; i < x->server->n_models; i++) {
        size_t n = ddl_tokenizer_vocab_size(x->server->models[i].folder.tokenizer);
        tokens = n < tokens ? n : tokens;
    }
    if (!json_text_open(&text))
        return no_memory(x);
    openapi_write(&text.json, x->server->options.routes, tokens);
    return send_json(x, &text);
}

/* A file of the page, which is in the program. */
static enum MHD_Result send_asset(struct exchange *x, const char *name, const char *type)
{
    const struct page_asset *asset = find_page_asset(name);
    struct api_error e;
    if (asset)
        return exchange_send(x, 200, type, (const char *)asset->bytes, asset->size);
    api_fail(&e, 404, "not_found", NULL, "no such path");
    return exchange_send_error(x, &e);
}

static enum MHD_Result page(struct exchange *x)
{
    return send_asset(x, "serve.html", "text/html; charset=utf-8");
}

static enum MHD_Result page_style(struct exchange *x)
{
    return send_asset(x, "page.css", "text/css; charset=utf-8");
}

static enum MHD_Result own_style(struct exchange *x)
{
    return send_asset(x, "serve.css", "text/css; charset=utf-8");
}

static enum MHD_Result script(struct exchange *x)
{
    return send_asset(x, "serve.js", "text/javascript; charset=utf-8");
}

#define NULLABLE(type) "{\"type\":[\"" type "\",\"null\"]}"
#define TOKENIZE_SCHEMA                                                                                      \
    "{\"type\":\"object\",\"required\":[\"prompt\"],\"additionalProperties\":false,\"properties\":{"         \
    "\"model\":" NULLABLE("string") ",\"prompt\":{\"type\":\"string\"},"                                     \
                                    "\"add_special_tokens\":" NULLABLE(                                      \
                                        "boolean") ",\"return_token_strs\":" NULLABLE("boolean") "}}"
#define DETOKENIZE_SCHEMA                                                                                    \
    "{\"type\":\"object\",\"required\":[\"tokens\"],\"additionalProperties\":false,\"properties\":{"         \
    "\"model\":" NULLABLE("string") ",\"tokens\":{\"type\":\"array\",\"items\":"                             \
                                    "{\"$ref\":\"#/components/schemas/token\"}}}}"

const struct route routes[] = {
    { "POST", "/v1/completions", "Continue texts, or score them", false, generate, COMPLETIONS, NULL },
    { "POST", "/v1/chat/completions", "Answer in a chat", false, generate, CHAT, NULL },
    { "GET", "/v1/models", "The models that are served", false, models, 0, NULL },
    { "GET", "/v1/models/{model}", "One of them", false, model, 0, NULL },
    { "POST", "/tokenize", "The tokens of a text", false, tokenize, 0, TOKENIZE_SCHEMA },
    { "POST", "/detokenize", "The text of tokens", false, detokenize, 0, DETOKENIZE_SCHEMA },
    { "GET", "/tokenizer_info", "Special tokens and sizes", false, tokenizer_info, 0, NULL },
    { "GET", "/health", "Whether the server answers", true, health, 0, NULL },
    { "GET", "/metrics", "Counters in the text format of Prometheus", false, metrics, 0, NULL },
    { "GET", "/openapi.json", "This description", true, openapi, 0, NULL },
    { "GET", "/", NULL, true, page, 0, NULL },
    { "GET", "/page.css", NULL, true, page_style, 0, NULL },
    { "GET", "/serve.css", NULL, true, own_style, 0, NULL },
    { "GET", "/serve.js", NULL, true, script, 0, NULL },
    { 0 },
};
