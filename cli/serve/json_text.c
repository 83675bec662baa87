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

enum { LEAST_LIMIT = 64 << 20, LIMIT_OF_TEXT = 32, OVERHEAD = 16 };

/* What jansson may still allocate; one thread of the program uses it. It does not check every allocation:
 * without memory it may continue with a truncated key or value. */
static size_t budget;
static bool no_memory, over_budget;

static void *allocate(size_t size)
{
    over_budget = over_budget || size > budget - (budget < OVERHEAD ? budget : OVERHEAD);
    if (over_budget)
        return NULL;
    budget -= size + OVERHEAD;
    void *memory = malloc(size);
    no_memory = no_memory || !memory;
    return memory;
}

ddl_status json_parse(json_t **out, const char *text, size_t size, size_t flags, json_error_t *why)
{
    json_malloc_t malloc_before;
    json_free_t free_before;
    size_t limit = size > LEAST_LIMIT / LIMIT_OF_TEXT ? LIMIT_OF_TEXT * size : LEAST_LIMIT;
    budget = limit;
    no_memory = over_budget = false;
    json_get_alloc_funcs(&malloc_before, &free_before);
    json_set_alloc_funcs(allocate, free);
    *out = json_loadb(text, size, flags, why);
    json_set_alloc_funcs(malloc_before, free_before);
    if (*out && !no_memory && !over_budget)
        return DDL_OK;
    json_decref(*out);
    *out = NULL;
    if (no_memory || over_budget)
        *why = (json_error_t){ .line = 1, .column = 1 };
    if (no_memory)
        snprintf(why->text, sizeof why->text, "out of memory");
    else if (over_budget)
        snprintf(why->text, sizeof why->text, "its values need more than the limit of %zu MiB of memory",
                 limit >> 20);
    return no_memory ? DDL_E_MEMORY : DDL_E_FORMAT;
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
