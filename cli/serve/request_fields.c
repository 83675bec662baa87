/* The fields of a request: one table from which parsing, its errors and the API's description come. */
#define _POSIX_C_SOURCE 200809L
#include "cli/serve/request.h"

#include "cli/serve/json_text.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BOTH = COMPLETIONS | CHAT };

/* Reads a value, which is not null, into the request. */
typedef bool read_fn(struct request *r, const json_t *value, const char *name, struct api_error *e);

struct field {
    const char *name;
    unsigned endpoints;
    read_fn *read;
    const char *schema; /* JSON */
};

/* ---- values ---- */

static bool wrong(struct api_error *e, const char *name, const char *expected)
{
    return api_fail(e, 400, NULL, name, "%s: expected %s", name, expected);
}

/* A whole number from `min` to `max` into *out. */
static bool read_count(size_t *out, const json_t *value, const char *name, size_t min, size_t max,
                       struct api_error *e)
{
    if (!json_whole(out, value) || *out < min || *out > max)
        return api_fail(e, 400, NULL, name, "%s: expected a whole number from %zu to %zu", name, min, max);
    return true;
}

static bool read_bool(bool *out, const json_t *value, const char *name, struct api_error *e)
{
    *out = json_is_true(value);
    return json_is_boolean(value) || wrong(e, name, "true or false");
}

/* A copy of a string, NUL-terminated. */
static bool copy_text(char **out, size_t *size, const json_t *value, struct api_error *e)
{
    size_t n = json_string_length(value);
    *out = malloc(n + 1);
    if (!*out)
        return api_no_memory(e);
    memcpy(*out, json_string_value(value), n);
    (*out)[n] = '\0';
    *size = n;
    return true;
}

/* ---- fields ---- */

static bool read_model(struct request *r, const json_t *value, const char *name, struct api_error *e)
{
    size_t size;
    return json_is_string(value) ? copy_text(&r->model, &size, value, e) : wrong(e, name, "a string");
}

/* Token ids of a prompt. */
static bool read_ids(struct ddl_ids *ids, const json_t *value, const char *name, struct api_error *e)
{
    size_t n = json_array_size(value);
    ids->ids = malloc((n + 1) * sizeof *ids->ids);
    if (!ids->ids)
        return api_no_memory(e);
    ids->capacity = n + 1;
    for (size_t i = 0; i < n; i++) {
        size_t id = 0;
        if (!read_count(&id, json_array_get(value, i), name, 0, INT32_MAX, e))
            return false;
        ids->ids[ids->n++] = (int32_t)id;
    }
    return true;
}

/* A text or an array of ids. */
static bool read_one_prompt(struct prompt *p, const json_t *value, const char *name, struct api_error *e)
{
    if (json_is_string(value))
        return copy_text(&p->text, &p->size, value, e);
    if (json_is_array(value) && json_array_size(value) > 0)
        return read_ids(&p->ids, value, name, e);
    return wrong(e, name, "a text, an array of token ids, or an array of these");
}

static bool read_prompt(struct request *r, const json_t *value, const char *name, struct api_error *e)
{
    bool many = json_is_array(value) && !json_is_number(json_array_get(value, 0));
    size_t n = many ? json_array_size(value) : 1;
    if (n == 0 || n > MAX_CHOICES)
        return api_fail(e, 400, NULL, name, "%s: expected 1 to %d prompts, found %zu", name, MAX_CHOICES, n);
    r->prompts = calloc(n, sizeof *r->prompts);
    if (!r->prompts)
        return api_no_memory(e);
    r->n_prompts = n;
    for (size_t i = 0; i < n; i++) {
        if (!read_one_prompt(&r->prompts[i], many ? json_array_get(value, i) : value, name, e))
            return false;
    }
    return true;
}

/* Of max_tokens and max_completion_tokens the smaller one counts. */
static bool read_max_tokens(struct request *r, const json_t *value, const char *name, struct api_error *e)
{
    size_t n = 0;
    if (!read_count(&n, value, name, r->endpoint == CHAT, INT32_MAX, e))
        return false;
    r->prompt_only = r->prompt_only || n == 0;
    if (n && (!r->has_max_tokens || n < r->sampling.max_tokens))
        r->sampling.max_tokens = n;
    r->has_max_tokens = true;
    return true;
}

static bool read_n(struct request *r, const json_t *value, const char *name, struct api_error *e)
{
    return read_count(&r->n, value, name, 1, MAX_CHOICES, e);
}

static bool read_best_of(struct request *r, const json_t *value, const char *name, struct api_error *e)
{
    return read_count(&r->best_of, value, name, 1, MAX_CHOICES, e);
}

static bool read_echo(struct request *r, const json_t *value, const char *name, struct api_error *e)
{
    return read_bool(&r->echo, value, name, e);
}

static bool read_stream(struct request *r, const json_t *value, const char *name, struct api_error *e)
{
    return read_bool(&r->stream, value, name, e);
}

static bool read_stream_options(struct request *r, const json_t *value, const char *name, struct api_error *e)
{
    const char *key;
    json_t *member;
    if (!json_is_object(value))
        return wrong(e, name, "an object");
    json_object_foreach((json_t *)value, key, member)
    {
        if (json_is_null(member) || (strcmp(key, "include_obfuscation") == 0 && json_is_false(member)))
            continue;
        if (strcmp(key, "include_usage") != 0)
            return api_fail(e, 400, NULL, name, "%s: '%.100s' is not supported", name, key);
        if (!read_bool(&r->include_usage, member, "stream_options.include_usage", e))
            return false;
    }
    return true;
}

/* Of /v1/completions: a number of candidates. */
static bool read_logprobs(struct request *r, const json_t *value, const char *name, struct api_error *e)
{
    r->has_logprobs = true;
    return read_count(&r->top, value, name, 0, MAX_TOP, e);
}

/* Of a chat: whether. */
static bool read_has_logprobs(struct request *r, const json_t *value, const char *name, struct api_error *e)
{
    return read_bool(&r->has_logprobs, value, name, e);
}

static bool read_top_logprobs(struct request *r, const json_t *value, const char *name, struct api_error *e)
{
    return read_count(&r->top, value, name, 0, MAX_TOP, e);
}

static bool read_one_stop(struct request *r, const json_t *value, const char *name, struct api_error *e)
{
    size_t size;
    if (!json_is_string(value) || json_string_length(value) == 0)
        return wrong(e, name, "a text that is not empty, or an array of these");
    if (strlen(json_string_value(value)) != json_string_length(value))
        return wrong(e, name, "a text without the character U+0000");
    if (r->n_stops == MAX_STOPS - 1) /* one is left for the chat's template */
        return api_fail(e, 400, NULL, name, "%s: expected at most %d texts", name, MAX_STOPS - 1);
    bool ok = copy_text(&r->stops[r->n_stops], &size, value, e);
    r->n_stops += ok;
    r->n_own_stops = r->n_stops;
    return ok;
}

static bool read_stop(struct request *r, const json_t *value, const char *name, struct api_error *e)
{
    if (!json_is_array(value))
        return read_one_stop(r, value, name, e);
    for (size_t i = 0; i < json_array_size(value); i++) {
        if (!read_one_stop(r, json_array_get(value, i), name, e))
            return false;
    }
    return true;
}

static bool read_stop_ids(struct request *r, const json_t *value, const char *name, struct api_error *e)
{
    size_t n = json_array_size(value);
    if (!json_is_array(value) || n > MAX_STOPS)
        return api_fail(e, 400, NULL, name, "%s: expected an array of at most %d token ids", name, MAX_STOPS);
    for (size_t i = 0; i < n; i++) {
        size_t id = 0;
        if (!read_count(&id, json_array_get(value, i), name, 0, INT32_MAX, e))
            return false;
        r->stop_ids[i] = (int32_t)id;
    }
    r->sampling.n_stop_ids = n;
    return true;
}

/* {"token id": bias}. OpenAI's bias of -100 bans a token. */
static bool read_logit_bias(struct request *r, const json_t *value, const char *name, struct api_error *e)
{
    const char *key;
    json_t *member;
    size_t n = 0;
    if (!json_is_object(value) || json_object_size(value) > MAX_BIASES)
        return api_fail(e, 400, NULL, name, "%s: expected an object of at most %d token ids with a bias each",
                        name, MAX_BIASES);
    json_object_foreach((json_t *)value, key, member)
    {
        char *end;
        long id = strtol(key, &end, 10);
        double bias = json_number_value(member);
        if (end == key || *end || id < 0 || id > INT32_MAX || !json_is_number(member) || fabs(bias) > 100)
            return wrong(e, name, "an object whose keys are token ids and whose values are from -100 to 100");
        r->biases[n++] = (struct ddl_logit_bias){ (int32_t)id, bias == -100 ? -INFINITY : (float)bias };
    }
    r->sampling.bias = r->biases;
    r->sampling.n_bias = n;
    return true;
}

static bool read_seed(struct request *r, const json_t *value, const char *name, struct api_error *e)
{
    double number = json_number_value(value);
    r->has_seed = true;
    r->sampling.seed = (uint64_t)(json_is_integer(value) ? json_integer_value(value)
                                  : fabs(number) < 9e15  ? (json_int_t)number
                                                         : 0);
    return json_is_integer(value) ||
           (json_is_real(value) && fabs(number) < 9e15 && floor(number) == number) ||
           wrong(e, name, "a whole number");
}

static bool read_traced(struct request *r, const json_t *value, const char *name, struct api_error *e)
{
    return read_bool(&r->traced, value, name, e);
}

/* One spec, as a line of its own. */
static bool read_spec(struct request *r, const json_t *value, const char *name, struct api_error *e)
{
    const char *text = json_string_value(value);
    if (!text || strlen(text) != json_string_length(value) || strchr(text, '\n'))
        return wrong(e, name, "a spec of ddl eval --force, or an array of these");
    return (buffer_add(&r->force, text, strlen(text)) && buffer_add(&r->force, "\n", 1)) || api_no_memory(e);
}

static bool read_force(struct request *r, const json_t *value, const char *name, struct api_error *e)
{
    if (!json_is_array(value))
        return read_spec(r, value, name, e);
    for (size_t i = 0; i < json_array_size(value); i++) {
        if (!read_spec(r, json_array_get(value, i), name, e))
            return false;
    }
    return true;
}

/* Accepted and without effect, as OpenAI's API says of it. */
static bool read_user(struct request *r, const json_t *value, const char *name, struct api_error *e)
{
    (void)r;
    return json_is_string(value) || wrong(e, name, "a string");
}

/* The text of a message: a string, or an array of parts of type text. */
static bool read_content(struct message *out, const json_t *content, struct api_error *e)
{
    struct buffer text = { 0 };
    bool ok = true;
    if (json_is_string(content))
        return copy_text(&out->content, &out->size, content, e);
    if (!json_is_array(content))
        return wrong(e, "messages", "a content that is a text or an array of texts");
    for (size_t i = 0; ok && i < json_array_size(content); i++) {
        const json_t *part = json_array_get(content, i), *value = json_object_get(part, "text");
        const char *type = json_string_value(json_object_get(part, "type"));
        if (!type || strcmp(type, "text") != 0 || !json_is_string(value) || json_object_size(part) != 2)
            ok = wrong(e, "messages", "parts of a content of the form {\"type\": \"text\", \"text\": ...}");
        else if (!buffer_add(&text, json_string_value(value), json_string_length(value)))
            ok = api_no_memory(e);
    }
    if (ok && !text.bytes && !buffer_add(&text, "", 0))
        ok = api_no_memory(e);
    out->content = text.bytes;
    out->size = text.n;
    return ok;
}

static bool read_message(struct message *out, const json_t *message, struct api_error *e)
{
    const char *role = json_string_value(json_object_get(message, "role")), *key;
    enum chat_role number;
    json_t *value;
    if (!json_is_object(message) || !role || !chat_role_find(&number, role))
        return wrong(e, "messages", "messages with the role system, developer, user or assistant");
    json_object_foreach((json_t *)message, key, value)
    {
        bool is_empty = json_is_null(value) || (json_is_array(value) && json_array_size(value) == 0);
        if (strcmp(key, "role") != 0 && strcmp(key, "content") != 0 && strcmp(key, "name") != 0 && !is_empty)
            return api_fail(e, 400, NULL, "messages", "messages: '%.100s' is not supported", key);
        if (strcmp(key, "name") == 0 && !json_is_string(value) && !json_is_null(value))
            return wrong(e, "messages", "a name that is a text");
    }
    out->role = number;
    return read_content(out, json_object_get(message, "content"), e);
}

static bool read_messages(struct request *r, const json_t *value, const char *name, struct api_error *e)
{
    size_t n = json_array_size(value);
    if (n == 0 || n > MAX_CHOICES)
        return api_fail(e, 400, NULL, name, "%s: expected an array of 1 to %d messages", name, MAX_CHOICES);
    r->messages = calloc(n, sizeof *r->messages);
    if (!r->messages)
        return api_no_memory(e);
    r->n_messages = n;
    for (size_t i = 0; i < n; i++) {
        if (!read_message(&r->messages[i], json_array_get(value, i), e))
            return false;
    }
    return true;
}

/* Fields of which only values that ask for nothing are supported: a JSON array of these. */
#define NEUTRAL_FIELDS(X)                                                                                    \
    X(store, CHAT, "[false]")                                                                                \
    X(response_format, CHAT, "[{\"type\":\"text\"}]")                                                        \
    X(modalities, CHAT, "[[\"text\"]]")                                                                      \
    X(tools, CHAT, "[[]]")                                                                                   \
    X(tool_choice, CHAT, "[\"none\",\"auto\"]")                                                              \
    X(parallel_tool_calls, CHAT, "[true,false]")                                                             \
    X(service_tier, BOTH, "[\"auto\",\"default\"]")                                                          \
    X(metadata, BOTH, "[{}]")                                                                                \
    X(suffix, COMPLETIONS, "[\"\"]")

static bool read_neutral(struct request *r, const json_t *value, const char *name, struct api_error *e)
{
    static const struct {
        const char *name, *values;
    } rows[] = {
#define ROW(name, endpoint, values) { #name, values },
        NEUTRAL_FIELDS(ROW)
#undef ROW
    };
    bool found = false;
    (void)r;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        json_t *values = strcmp(rows[i].name, name) == 0 ? json_loads(rows[i].values, 0, NULL) : NULL, *one;
        size_t at;
        json_array_foreach(values, at, one) found = found || json_equal(one, value);
        json_decref(values);
    }
    return found || api_fail(e, 400, "unsupported", name, "%s: not supported by this server", name);
}

#define COUNT_SCHEMA(min, max) "{\"type\":\"integer\",\"minimum\":" #min ",\"maximum\":" #max "}"
#define BOOL_SCHEMA "{\"type\":\"boolean\"}"
#define ID_SCHEMA "{\"$ref\":\"#/components/schemas/token\"}"
#define STOP_SCHEMA "{\"type\":\"string\",\"minLength\":1,\"pattern\":\"^[^\\\\x00]+$\"}"
#define MESSAGE_SCHEMA                                                                                       \
    "{\"type\":\"object\",\"required\":[\"role\",\"content\"],"                                              \
    "\"additionalProperties\":{\"type\":[\"array\",\"null\"],\"maxItems\":0},"                               \
    "\"properties\":{\"role\":{\"enum\":[\"system\",\"developer\",\"user\",\"assistant\"]},"                 \
    "\"name\":{\"type\":[\"string\",\"null\"]},\"content\":{\"anyOf\":[{\"type\":\"string\"},{\"type\":"     \
    "\"array\","                                                                                             \
    "\"items\":{\"type\":\"object\",\"required\":[\"type\",\"text\"],\"additionalProperties\":false,"        \
    "\"properties\":{\"type\":{\"enum\":[\"text\"]},\"text\":{\"type\":\"string\"}}}}]}}}"

static const struct field fields[] = {
    { "model", BOTH, read_model, "{\"type\":\"string\"}" },
    { "prompt", COMPLETIONS, read_prompt,
      "{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"array\",\"minItems\":1,\"items\":" ID_SCHEMA
      "},{\"type\":\"array\",\"minItems\":1,\"maxItems\":1024,\"items\":{\"type\":\"string\"}},"
      "{\"type\":\"array\",\"minItems\":1,\"maxItems\":1024,\"items\":{\"type\":\"array\",\"minItems\":1,"
      "\"items\":" ID_SCHEMA "}}]}" },
    { "messages", CHAT, read_messages,
      "{\"type\":\"array\",\"minItems\":1,\"maxItems\":1024,\"items\":" MESSAGE_SCHEMA "}" },
    { "max_tokens", COMPLETIONS, read_max_tokens, COUNT_SCHEMA(0, 2147483647) },
    { "max_tokens", CHAT, read_max_tokens, COUNT_SCHEMA(1, 2147483647) },
    { "max_completion_tokens", COMPLETIONS, read_max_tokens, COUNT_SCHEMA(0, 2147483647) },
    { "max_completion_tokens", CHAT, read_max_tokens, COUNT_SCHEMA(1, 2147483647) },
    { "n", BOTH, read_n, COUNT_SCHEMA(1, 1024) },
    { "best_of", COMPLETIONS, read_best_of, COUNT_SCHEMA(1, 1024) },
    { "echo", COMPLETIONS, read_echo, BOOL_SCHEMA },
    { "stream", BOTH, read_stream, BOOL_SCHEMA },
    { "stream_options", BOTH, read_stream_options,
      "{\"type\":\"object\",\"additionalProperties\":false,\"properties\":{\"include_usage\":{\"type\":["
      "\"boolean\",\"null\"]},"
      "\"include_obfuscation\":{\"enum\":[false,null]}}}" },
    { "logprobs", COMPLETIONS, read_logprobs, COUNT_SCHEMA(0, 100) },
    { "logprobs", CHAT, read_has_logprobs, BOOL_SCHEMA },
    { "top_logprobs", CHAT, read_top_logprobs, COUNT_SCHEMA(0, 100) },
    { "stop", BOTH, read_stop,
      "{\"anyOf\":[" STOP_SCHEMA ",{\"type\":\"array\",\"maxItems\":15,\"items\":" STOP_SCHEMA "}]}" },
    { "stop_token_ids", BOTH, read_stop_ids, "{\"type\":\"array\",\"maxItems\":16,\"items\":" ID_SCHEMA "}" },
    { "logit_bias", BOTH, read_logit_bias,
      "{\"type\":\"object\",\"maxProperties\":1024,\"propertyNames\":{\"pattern\":\"^[0-9]{1,9}$\"},"
      "\"additionalProperties\":{\"type\":\"number\",\"minimum\":-100,\"maximum\":100}}" },
    { "seed", BOTH, read_seed,
      "{\"type\":\"integer\",\"minimum\":-9223372036854775808,\"maximum\":9223372036854775807}" },
    { "ddl", BOTH, read_traced, BOOL_SCHEMA },
    { "ddl_force", BOTH, read_force,
      "{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"array\",\"items\":{\"type\":\"string\"}}]}" },
    { "user", BOTH, read_user, "{\"type\":\"string\"}" },
#define ROW(name, endpoint, values) { #name, endpoint, read_neutral, "{\"enum\":" values "}" },
    NEUTRAL_FIELDS(ROW)
#undef ROW
        { 0 },
};

/* ---- sampling: the rows of struct ddl_sampling that have no row above ---- */

static bool has_own_field(const struct ddl_option *row)
{
    return strcmp(row->name, "max_tokens") == 0 || strcmp(row->name, "seed") == 0;
}

static const struct ddl_option *find_sampling(const char *name)
{
    char other[64];
    for (const struct ddl_option *row = ddl_sampling_options(); row->name; row++) {
        for (size_t i = 0; !has_own_field(row) && ddl_option_name(row, i, other, sizeof other); i++) {
            if (strcmp(name, other) == 0)
                return row;
        }
    }
    return NULL;
}

static bool read_sampling(struct request *r, const struct ddl_option *row, const json_t *value,
                          struct api_error *e)
{
    char *at = (char *)&r->sampling + row->offset, range[64];
    double number = json_number_value(value);
    if (row->type == DDL_OPTION_BOOL)
        return read_bool((bool *)at, value, row->name, e);
    if (row->type == DDL_OPTION_SIZE)
        return read_count((size_t *)at, value, row->name, (size_t)row->min, (size_t)row->max, e);
    ddl_option_range(row, range, sizeof range);
    if (!json_is_number(value) || number < row->min || number > row->max)
        return api_fail(e, 400, NULL, row->name, "%s: expected a number from %s", row->name, range);
    *(float *)at = (float)number;
    return true;
}

/* ---- parsing ---- */

static const struct field *find_field(const char *name, enum endpoint endpoint)
{
    const struct field *f = fields;
    while (f->name && (strcmp(f->name, name) != 0 || !(f->endpoints & endpoint)))
        f++;
    return f->name ? f : NULL;
}

static bool read_member(struct request *r, const char *name, const json_t *value, struct api_error *e)
{
    const struct field *f = find_field(name, r->endpoint);
    const struct ddl_option *row = f ? NULL : find_sampling(name);
    if (json_is_null(value))
        return true;
    if (f)
        return f->read(r, value, f->name, e);
    if (row)
        return read_sampling(r, row, value, e);
    return api_fail(e, 400, "unsupported", name, "%.200s: not supported by this server", name);
}

static bool check(struct request *r, struct api_error *e)
{
    if (!r->prompts && !r->messages) {
        const char *name = r->endpoint == CHAT ? "messages" : "prompt";
        return api_fail(e, 400, NULL, name, "%s: missing", name);
    }
    r->has_logprobs = r->has_logprobs || r->top > 0;
    r->best_of = r->best_of ? r->best_of : r->n;
    if (r->best_of < r->n)
        return api_fail(e, 400, NULL, "best_of", "best_of: expected at least n, %zu, found %zu", r->n,
                        r->best_of);
    if (r->stream && r->best_of > r->n)
        return api_fail(e, 400, NULL, "best_of", "best_of: texts cannot be compared while they are streamed");
    size_t prompts = r->endpoint == CHAT ? 1 : r->n_prompts;
    if (r->best_of * prompts > MAX_CHOICES)
        return api_fail(e, 400, NULL, r->best_of > 1 ? "n" : "prompt", "expected at most %d texts, found %zu",
                        MAX_CHOICES, r->best_of * prompts);
    return true;
}

json_t *request_body(const char *body, size_t size, struct api_error *e)
{
    json_error_t why;
    json_t *root;
    ddl_status status = json_parse(&root, body, size, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &why);
    if (status == DDL_E_MEMORY)
        api_no_memory(e);
    else if (status)
        api_fail(e, 400, "invalid_json", NULL, "the body is not valid JSON: line %d, column %d: %s", why.line,
                 why.column, why.text);
    else if (!json_is_object(root))
        api_fail(e, 400, NULL, NULL, "the body is not an object");
    if (!root || json_is_object(root))
        return root;
    json_decref(root);
    return NULL;
}

bool request_parse(struct request *r, enum endpoint endpoint, const char *body, size_t size,
                   struct api_error *e)
{
    const char *key;
    json_t *value, *root = request_body(body, size, e);
    bool ok = true;
    *r = (struct request){ .endpoint = endpoint, .n = 1, .sampling = ddl_sampling_defaults() };
    r->sampling.max_tokens = endpoint == CHAT ? INT32_MAX : 16; /* as OpenAI's */
    if (!root)
        return false;
    json_object_foreach(root, key, value)
    {
        ok = ok && read_member(r, key, value, e);
    }
    json_decref(root);
    return ok && check(r, e);
}

/* ---- description ---- */

static void write_sampling_schema(struct ddl_json *json, const struct ddl_option *row)
{
    ddl_json_open(json, NULL, '{');
    ddl_json_string(json, "description", row->help);
    ddl_json_string(json, "type",
                    row->type == DDL_OPTION_BOOL   ? "boolean"
                    : row->type == DDL_OPTION_SIZE ? "integer"
                                                   : "number");
    if (row->type != DDL_OPTION_BOOL) {
        ddl_json_number(json, "minimum", row->min, 17);
        ddl_json_number(json, "maximum", row->max, 17);
    }
    ddl_json_close(json, '}');
}

/* A field that may be null: `schema`, or the row. */
static void write_optional(struct ddl_json *json, const char *name, const char *schema,
                           const struct ddl_option *row)
{
    ddl_json_open(json, name, '{');
    ddl_json_open(json, "anyOf", '[');
    if (row)
        write_sampling_schema(json, row);
    else
        json_raw(json, NULL, schema);
    json_raw(json, NULL, "{\"type\":\"null\"}");
    ddl_json_close(json, ']');
    ddl_json_close(json, '}');
}

void request_write_schema(struct ddl_json *json, const char *key, enum endpoint endpoint)
{
    ddl_json_open(json, key, '{');
    ddl_json_string(json, "type", "object");
    ddl_json_bool(json, "additionalProperties", false);
    ddl_json_open(json, "required", '[');
    ddl_json_string(json, NULL, endpoint == CHAT ? "messages" : "prompt");
    ddl_json_close(json, ']');
    ddl_json_open(json, "properties", '{');
    for (const struct field *f = fields; f->name; f++) {
        bool required = f->read == read_prompt || f->read == read_messages;
        if ((f->endpoints & endpoint) && required)
            json_raw(json, f->name, f->schema);
        else if (f->endpoints & endpoint)
            write_optional(json, f->name, f->schema, NULL);
    }
    for (const struct ddl_option *row = ddl_sampling_options(); row->name; row++) {
        char name[64];
        for (size_t i = 0; !has_own_field(row) && ddl_option_name(row, i, name, sizeof name); i++)
            write_optional(json, name, NULL, row);
    }
    ddl_json_close(json, '}');
    ddl_json_close(json, '}');
}
