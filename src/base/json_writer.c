#include "ddl/json.h"

#include "base/locale.h"
#include "base/utf8.h"

#include <math.h>
#include <string.h>

/* ---- strings ---- */

static void write_quoted(FILE *out, const char *text, size_t size)
{
    const unsigned char *bytes = (const unsigned char *)text;
    putc('"', out);
    for (size_t i = 0; i < size;) {
        uint32_t code;
        size_t n = ddl_utf8_decode(bytes + i, size - i, &code);
        if (n == 0)
            fputs("\\ufffd", out);
        else if (bytes[i] == '"' || bytes[i] == '\\')
            fprintf(out, "\\%c", bytes[i]);
        else if (bytes[i] < 0x20 || bytes[i] == 0x7f)
            fprintf(out, "\\u%04x", bytes[i]);
        else if (ddl_utf8_is_hidden(code))
            fprintf(out, "\\u%04x", (unsigned)code);
        else
            fwrite(bytes + i, 1, n, out);
        i += n ? n : 1;
    }
    putc('"', out);
}

/* ---- values ---- */

static void begin_value(struct ddl_json *json, const char *key)
{
    if (json->comma)
        putc(',', json->out);
    json->comma = true;
    if (key) {
        write_quoted(json->out, key, strlen(key));
        putc(':', json->out);
    }
}

void ddl_json_open(struct ddl_json *json, const char *key, char bracket)
{
    begin_value(json, key);
    putc(bracket, json->out);
    json->comma = false;
}

void ddl_json_close(struct ddl_json *json, char bracket)
{
    putc(bracket, json->out);
    json->comma = true;
}

void ddl_json_null(struct ddl_json *json, const char *key)
{
    begin_value(json, key);
    fputs("null", json->out);
}

void ddl_json_bool(struct ddl_json *json, const char *key, bool value)
{
    begin_value(json, key);
    fputs(value ? "true" : "false", json->out);
}

void ddl_json_count(struct ddl_json *json, const char *key, uint64_t value)
{
    begin_value(json, key);
    fprintf(json->out, "%llu", (unsigned long long)value);
}

static void number(struct ddl_json *json, const char *key, double value, int digits, char conversion)
{
    char text[384]; /* the largest double has 309 digits before the point */
    begin_value(json, key);
    ddl_format_double(text, sizeof text, digits, conversion, value);
    fputs(isfinite(value) ? text : "null", json->out);
}

void ddl_json_number(struct ddl_json *json, const char *key, double value, int digits)
{
    number(json, key, value, digits, 'g');
}

void ddl_json_fixed(struct ddl_json *json, const char *key, double value, int decimals)
{
    number(json, key, value, decimals, 'f');
}

void ddl_json_text(struct ddl_json *json, const char *key, const char *text, size_t size)
{
    begin_value(json, key);
    write_quoted(json->out, text, size);
}

void ddl_json_string(struct ddl_json *json, const char *key, const char *text)
{
    if (text)
        ddl_json_text(json, key, text, strlen(text));
    else
        ddl_json_null(json, key);
}

void ddl_json_option(struct ddl_json *json, const struct ddl_option *option, const void *object)
{
    char text[8192];
    ddl_option_format(option, object, text, sizeof text);
    bool automatic = option->automatic && strcmp(text, "auto") == 0;
    if (ddl_option_is_text(option) || option->type == DDL_OPTION_CHOICE || automatic) {
        ddl_json_string(json, option->name, text);
        return;
    }
    begin_value(json, option->name);
    fputs(text, json->out);
}
