#define _POSIX_C_SOURCE 200809L
#include "cli/serve/api_error.h"

#include "cli/serve/json_text.h"

#include <stdarg.h>
#include <stdio.h>

bool api_fail(struct api_error *e, int status, const char *code, const char *param, const char *format, ...)
{
    va_list values;
    e->status = status;
    e->code = code;
    snprintf(e->param, sizeof e->param, "%s", param ? param : "");
    va_start(values, format);
    vsnprintf(e->message, sizeof e->message, format, values);
    va_end(values);
    return false;
}

bool api_fail_with(struct api_error *e, const char *param, const struct ddl_error *err)
{
    int status = err->status == DDL_E_USAGE || err->status == DDL_E_FORMAT ? 400
                 : err->status == DDL_E_MEMORY                             ? 503
                                                                           : 500;
    return api_fail(e, status, NULL, param, "%s", err->text);
}

bool api_no_memory(struct api_error *e)
{
    return api_fail(e, 503, NULL, NULL, "out of memory for the request");
}

static const char *type_of(int status)
{
    return status == 401   ? "authentication_error"
           : status == 403 ? "permission_error"
           : status == 429 ? "rate_limit_error"
           : status >= 500 ? "server_error"
                           : "invalid_request_error";
}

bool api_error_write(const struct api_error *e, struct buffer *out)
{
    struct json_text text;
    if (!json_text_open(&text))
        return false;
    struct ddl_json *json = &text.json;
    ddl_json_open(json, NULL, '{');
    ddl_json_open(json, "error", '{');
    ddl_json_string(json, "message", e->message);
    ddl_json_string(json, "type", type_of(e->status));
    ddl_json_string(json, "param", *e->param ? e->param : NULL);
    ddl_json_string(json, "code", e->code);
    ddl_json_close(json, '}');
    ddl_json_close(json, '}');
    return json_text_close(&text, out);
}
