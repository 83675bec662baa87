#include "cli/serve/openapi.h"

#include "cli/serve/json_text.h"

#include "ddl/version.h"

#include <string.h>

#define ERROR_SCHEMA                                                                                         \
    "{\"type\":\"object\",\"required\":[\"error\"],\"properties\":{\"error\":{\"type\":\"object\","          \
    "\"required\":[\"message\",\"type\",\"param\",\"code\"],\"properties\":{"                                \
    "\"message\":{\"type\":\"string\"},\"type\":{\"type\":\"string\"},"                                      \
    "\"param\":{\"type\":[\"string\",\"null\"]},\"code\":{\"type\":[\"string\",\"null\"]}}}}}"

static void put_content(struct ddl_json *json, const char *type, const char *schema)
{
    ddl_json_open(json, type, '{');
    json_raw(json, "schema", schema);
    ddl_json_close(json, '}');
}

/* The answer of a route: JSON, text for /metrics, or events for a stream. */
static void put_answer(struct ddl_json *json, const struct route *r)
{
    bool is_text = strcmp(r->path, "/metrics") == 0;
    ddl_json_open(json, "200", '{');
    ddl_json_string(json, "description", "The answer");
    ddl_json_open(json, "content", '{');
    put_content(json, is_text ? "text/plain" : "application/json",
                is_text ? "{\"type\":\"string\"}" : "{\"type\":\"object\"}");
    if (r->endpoint)
        put_content(json, "text/event-stream", "{}");
    ddl_json_close(json, '}');
    ddl_json_close(json, '}');
}

static void put_error(struct ddl_json *json, const char *status, const char *about)
{
    ddl_json_open(json, status, '{');
    ddl_json_string(json, "description", about);
    ddl_json_open(json, "content", '{');
    put_content(json, "application/json", ERROR_SCHEMA);
    ddl_json_close(json, '}');
    ddl_json_close(json, '}');
}

static void put_responses(struct ddl_json *json, const struct route *r)
{
    static const struct {
        const char *status, *about;
        bool generates, has_body;
    } errors[] = {
        { "400", "The request is not valid, or has a field that is not supported", false, true },
        { "401", "No valid key", false, false },
        { "403", "Another host name than this machine's", false, false },
        { "404", "No such model", false, false },
        { "413", "The body is too long", false, true },
        { "415", "The body is not application/json", false, true },
        { "429", "The queue is full, or this key has too many requests", true, true },
        { "500", "The model's output is not finite, or the engine has failed", true, true },
        { "503", "The server is stopping, or has no memory", false, false },
        { "504", "The time limit of a request", true, true },
    };
    ddl_json_open(json, "responses", '{');
    put_answer(json, r);
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        if ((!errors[i].generates || r->endpoint) && (!errors[i].has_body || r->endpoint || r->schema))
            put_error(json, errors[i].status, errors[i].about);
    }
    ddl_json_close(json, '}');
}

static void put_body(struct ddl_json *json, const struct route *r)
{
    ddl_json_open(json, "requestBody", '{');
    ddl_json_bool(json, "required", true);
    ddl_json_open(json, "content", '{');
    ddl_json_open(json, "application/json", '{');
    if (r->endpoint)
        request_write_schema(json, "schema", r->endpoint);
    else
        json_raw(json, "schema", r->schema);
    ddl_json_close(json, '}');
    ddl_json_close(json, '}');
    ddl_json_close(json, '}');
}

static void put_components(struct ddl_json *json, size_t tokens)
{
    ddl_json_open(json, "components", '{');
    json_raw(json, "securitySchemes", "{\"key\":{\"type\":\"http\",\"scheme\":\"bearer\"}}");
    ddl_json_open(json, "schemas", '{');
    ddl_json_open(json, "token", '{');
    ddl_json_string(json, "type", "integer");
    ddl_json_count(json, "minimum", 0);
    ddl_json_count(json, "maximum", tokens - 1);
    ddl_json_close(json, '}');
    ddl_json_close(json, '}');
    ddl_json_close(json, '}');
}

void openapi_write(struct ddl_json *json, const struct route *routes, size_t tokens)
{
    ddl_json_open(json, NULL, '{');
    ddl_json_string(json, "openapi", "3.1.0");
    ddl_json_open(json, "info", '{');
    ddl_json_string(json, "title", "ddl serve");
    ddl_json_string(json, "version", DDL_VERSION);
    ddl_json_close(json, '}');
    put_components(json, tokens);
    ddl_json_open(json, "paths", '{');
    for (const struct route *r = routes; r->path; r++) {
        if (!r->about)
            continue;
        ddl_json_open(json, r->path, '{');
        ddl_json_open(json, strcmp(r->method, "GET") == 0 ? "get" : "post", '{');
        ddl_json_string(json, "summary", r->about);
        if (strstr(r->path, "{model}"))
            json_raw(json, "parameters",
                     "[{\"name\":\"model\",\"in\":\"path\",\"required\":true,\"schema\":{\"type\":\"string\","
                     "\"minLength\":1}}]");
        if (!r->open)
            json_raw(json, "security", "[{},{\"key\":[]}]");
        if (r->endpoint || r->schema)
            put_body(json, r);
        put_responses(json, r);
        ddl_json_close(json, '}');
        ddl_json_close(json, '}');
    }
    ddl_json_close(json, '}');
    ddl_json_close(json, '}');
}
