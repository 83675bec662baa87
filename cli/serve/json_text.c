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
    fprintf(json->out, "%s\"%s\":%s", json->comma ? "," : "", key, text);
    json->comma = true;
}
