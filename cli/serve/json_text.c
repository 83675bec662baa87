#define _POSIX_C_SOURCE 200809L
#include "cli/serve/json_text.h"

#include <stdio.h>
#include <stdlib.h>

bool json_text_open(struct json_text *text)
{
    *text = (struct json_text){ 0 };
    text->json.out = open_memstream(&text->bytes, &text->n);
    return text->json.out != NULL;
}

bool json_text_close(struct json_text *text, struct buffer *out)
{
    bool complete = ferror(text->json.out) == 0;
    complete = fclose(text->json.out) == 0 && complete;
    complete = complete && buffer_add(out, text->bytes, text->n);
    free(text->bytes);
    return complete;
}

void json_raw(struct ddl_json *json, const char *key, const char *text)
{
    if (json->comma)
        putc(',', json->out);
    if (key)
        fprintf(json->out, "\"%s\":", key);
    fputs(text, json->out);
    json->comma = true;
}

bool json_whole(size_t *out, const json_t *value)
{
    double real = json_real_value(value);
    json_int_t number =
        json_is_real(value) && real >= 0 && real <= 1e15 ? (json_int_t)real : json_integer_value(value);
    bool ok = number >= 0 && (json_is_integer(value) || (json_is_real(value) && (double)number == real));
    *out = ok ? (size_t)number : 0;
    return ok;
}
