#include "data/text_batch.h"

#include "base/json_scan.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEPT_BYTES = 1 << 21 }; /* larger buffers are freed after use */

ddl_status ddl_text_batch_append(struct ddl_text_batch *batch, const char *text, size_t size,
                                 struct ddl_error *err)
{
    size_t needed;
    if (!ddl_size_add(batch->size, size, &needed))
        return ddl_error_set(err, DDL_E_MEMORY, "out of memory for text");
    if (needed > batch->capacity) {
        size_t capacity = batch->capacity ? batch->capacity : 1 << 16;
        while (capacity < needed)
            capacity *= 2;
        char *grown = realloc(batch->text, capacity);
        if (!grown)
            return ddl_error_set(err, DDL_E_MEMORY, "out of memory for %zu bytes of text", capacity);
        batch->text = grown;
        batch->capacity = capacity;
    }
    if (size)
        memcpy(batch->text + batch->size, text, size);
    batch->size = needed;
    return DDL_OK;
}

ddl_status ddl_text_batch_add_segment(struct ddl_text_batch *batch, const struct ddl_segment *segment,
                                      struct ddl_error *err)
{
    if (batch->n_segments == batch->segment_capacity) {
        size_t capacity = batch->segment_capacity ? 2 * batch->segment_capacity : 64;
        struct ddl_segment *grown = realloc(batch->segments, capacity * sizeof *grown);
        if (!grown)
            return ddl_error_set(err, DDL_E_MEMORY, "out of memory for %zu pieces of text", capacity);
        batch->segments = grown;
        batch->segment_capacity = capacity;
    }
    batch->segments[batch->n_segments++] = *segment;
    return DDL_OK;
}

static ddl_status push_id(struct ddl_ids *ids, int32_t id, struct ddl_error *err)
{
    if (ids->n == ids->capacity) {
        size_t capacity = ids->capacity ? 2 * ids->capacity : 1024;
        int32_t *grown = realloc(ids->ids, capacity * sizeof *grown);
        if (!grown)
            return ddl_error_set(err, DDL_E_MEMORY, "out of memory for %zu ids", capacity);
        ids->ids = grown;
        ids->capacity = capacity;
    }
    ids->ids[ids->n++] = id;
    return DDL_OK;
}

static ddl_status encode_segment(struct ddl_text_batch *batch, struct ddl_segment *segment,
                                 const ddl_tokenizer *tokenizer, int32_t end_of_text)
{
    const size_t before = batch->ids.n;
    ddl_status status = DDL_OK;
    if (segment->size == 0)
        return DDL_OK;
    if (segment->starts)
        status = push_id(&batch->ids, end_of_text, &batch->err);
    const char *text = batch->text + segment->offset;
    const size_t started = batch->ids.n;
    if (!status && segment->prompt > 0)
        status = ddl_tokenizer_encode(tokenizer, text, segment->prompt, false, &batch->ids, &batch->err);
    segment->n_prompt_ids = batch->ids.n - started;
    if (!status)
        status = ddl_tokenizer_encode(tokenizer, text + segment->prompt, segment->size - segment->prompt,
                                      false, &batch->ids, &batch->err);
    segment->n_ids = batch->ids.n - before;
    if (status == DDL_E_FORMAT) { /* a character that the tokenizer does not have */
        char where[1200];
        const unsigned long long line = ddl_segment_line(segment);
        if (line)
            snprintf(where, sizeof where, "%.1024s: document of line %llu", segment->path, line);
        else
            snprintf(where, sizeof where, "%.1024s", segment->path);
        status = ddl_error_prefix(&batch->err, status, where);
    }
    return status;
}

void ddl_text_batch_encode(struct ddl_text_batch *batch, const ddl_tokenizer *tokenizer, int32_t end_of_text)
{
    for (size_t i = 0; i < batch->n_segments && !batch->status; i++)
        batch->status = encode_segment(batch, &batch->segments[i], tokenizer, end_of_text);
}

uint64_t ddl_segment_line(const struct ddl_segment *segment)
{
    uint64_t line = segment->line, left = segment->line_base;
    FILE *file = left > 0 ? fopen(segment->path, "rb") : NULL;
    char text[4096];
    while (file && left > 0) {
        size_t wanted = left < sizeof text ? (size_t)left : sizeof text, n = fread(text, 1, wanted, file);
        for (size_t i = 0; i < n; i++)
            line += text[i] == '\n';
        left = n == wanted ? left - n : 0;
    }
    if (file)
        fclose(file);
    return line;
}

/* The string of the key in the segment's JSON object, which it does not change. */
static ddl_status find_string(const struct ddl_segment *segment, const char *text, const char *key,
                              struct ddl_json_found *found, struct ddl_error *err)
{
    struct ddl_json_scan scan = {
        .text = text, .at = text, .end = text + segment->size, .longest = segment->size
    };
    bool valid = ddl_json_find(&scan, key, found);
    if (valid && found->type == DDL_JSON_STRING)
        return DDL_OK;
    unsigned long long number = ddl_segment_line(segment);
    size_t line, column;
    if (!valid) {
        ddl_json_scan_position(&scan, &line, &column);
        return ddl_error_set(err, DDL_E_FORMAT, "%s:%llu: invalid JSON at column %zu: %s", segment->path,
                             number, column, scan.why);
    }
    if (found->root != DDL_JSON_OBJECT)
        return ddl_error_set(err, DDL_E_FORMAT, "%s:%llu: expected an object with the key \"%s\", found %s",
                             segment->path, number, key, ddl_json_token_name(found->root));
    if (found->type == DDL_JSON_END)
        return ddl_error_set(err, DDL_E_FORMAT, "%s:%llu: the object has no key \"%s\"", segment->path,
                             number, key);
    return ddl_error_set(err, DDL_E_FORMAT, "%s:%llu: \"%s\": expected a string, found %s", segment->path,
                         number, key, ddl_json_token_name(found->type));
}

/* The text of a JSON string is never longer than its source: it is decoded in place. */
static ddl_status decode_text(struct ddl_text_batch *batch, struct ddl_segment *segment, const char *key)
{
    char *text = batch->text + segment->offset;
    struct ddl_json_found found;
    ddl_status status = find_string(segment, text, key, &found, &batch->err);
    if (!status)
        segment->size = ddl_json_unescape(found.value, found.size, text);
    return status;
}

/* Prompt and response may be in any order: they are decoded into other memory and copied back. */
static ddl_status decode_response(struct ddl_text_batch *batch, struct ddl_segment *segment,
                                  const struct ddl_text_input *input)
{
    char *text = batch->text + segment->offset;
    struct ddl_json_found prompt, response;
    ddl_status status = find_string(segment, text, input->prompt_key, &prompt, &batch->err);
    if (!status)
        status = find_string(segment, text, input->response_key, &response, &batch->err);
    if (status)
        return status;
    char *decoded = malloc(prompt.size + response.size + 1);
    if (!decoded)
        return ddl_error_set(&batch->err, DDL_E_MEMORY, "%s: out of memory for %zu bytes of text",
                             segment->path, prompt.size + response.size);
    segment->prompt = ddl_json_unescape(prompt.value, prompt.size, decoded);
    size_t size = ddl_json_unescape(response.value, response.size, decoded + segment->prompt);
    segment->prompt = size > 0 ? segment->prompt : 0;
    segment->size = size > 0 ? segment->prompt + size : 0;
    memcpy(text, decoded, segment->size);
    free(decoded);
    return DDL_OK;
}

void ddl_text_batch_decode(struct ddl_text_batch *batch, const struct ddl_text_input *input)
{
    for (size_t i = 0; i < batch->n_segments && !batch->status; i++) {
        struct ddl_segment *segment = &batch->segments[i];
        if (segment->json)
            batch->status = *input->prompt_key ? decode_response(batch, segment, input)
                                               : decode_text(batch, segment, input->text_key);
        else if (*input->prompt_key)
            batch->status =
                ddl_error_set(&batch->err, DDL_E_FORMAT,
                              "%s: expected JSON lines with the keys \"%s\" and \"%s\", found text",
                              segment->path, input->prompt_key, input->response_key);
        if (!batch->status)
            segment->json = false;
    }
}

void ddl_text_batch_reset(struct ddl_text_batch *batch)
{
    struct ddl_text_batch kept = { 0 };
    if (batch->capacity <= KEPT_BYTES) {
        kept.text = batch->text;
        kept.capacity = batch->capacity;
    } else {
        free(batch->text);
    }
    kept.segments = batch->segments;
    kept.segment_capacity = batch->segment_capacity;
    if (batch->ids.capacity * sizeof(int32_t) > KEPT_BYTES)
        ddl_ids_free(&batch->ids);
    else
        kept.ids = batch->ids;
    kept.ids.n = 0;
    *batch = kept;
}

void ddl_text_batch_free(struct ddl_text_batch *batch)
{
    free(batch->text);
    free(batch->segments);
    ddl_ids_free(&batch->ids);
    *batch = (struct ddl_text_batch){ 0 };
}
