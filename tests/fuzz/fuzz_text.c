/* Fuzzes the conversion of text and JSON lines to shards: reading, cutting, encoding. Text must be reproduced
 * by its ids, except for separator lines; a file read in two ranges gives the documents of the whole. */
#include "fuzz.h"

#include "data/reader.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static const char separator[] = "<|endoftext|>";

static void *read_all(void *reader)
{
    ddl_reader_run(reader);
    return NULL;
}

/* Copies the input without its separator lines to out; returns the size. */
static size_t expected_text(const char *text, size_t size, char *out)
{
    size_t used = 0;
    for (size_t at = 0; at < size;) {
        const char *end = memchr(text + at, '\n', size - at);
        size_t line = end ? (size_t)(end - text) + 1 - at : size - at, n = line;
        if (n && text[at + n - 1] == '\n')
            n--;
        if (n && text[at + n - 1] == '\r')
            n--;
        if (n != sizeof separator - 1 || memcmp(text + at, separator, n) != 0) {
            memcpy(out + used, text + at, line);
            used += line;
        }
        at += line;
    }
    return used;
}

struct result {
    ddl_status status;
    char *text; /* decoded from the ids */
    size_t size;
    uint64_t documents; /* also empty ones */
};

static void take_batch(struct result *r, const struct ddl_text_batch *batch, int32_t end_of_text,
                       size_t capacity)
{
    if (!r->status)
        r->status = batch->status;
    fuzz_ok(batch->status, &batch->err);
    for (size_t i = 0; i < batch->n_segments; i++)
        r->documents += batch->segments[i].starts;
    for (size_t i = 0; i < batch->ids.n; i++) {
        size_t size;
        const char *bytes = ddl_tokenizer_bytes(fuzz_tokenizer(), batch->ids.ids[i], &size);
        FUZZ_CHECK(bytes && (batch->ids.ids[i] == end_of_text || size <= capacity - r->size));
        if (batch->ids.ids[i] == end_of_text)
            continue;
        memcpy(r->text + r->size, bytes, size);
        r->size += size;
    }
}

/* The roles of a worker and of the writer, in one thread. The file is read in two ranges that meet at the
 * byte `cut`; 0: in one. */
static struct result build(const char *path, bool json, size_t capacity, size_t cut)
{
    char name[512];
    struct ddl_error err = { 0 };
    struct ddl_input item = { .path = strcpy(name, path), .json = json };
    struct ddl_inputs inputs = { .items = &item, .n = 1 };
    struct ddl_pipeline pipeline;
    const struct ddl_range ranges[2] = { { 0, 0, cut ? cut : UINT64_MAX }, { 0, cut, UINT64_MAX } };
    struct ddl_reader reader = { .inputs = &inputs,
                                 .ranges = ranges,
                                 .n_ranges = cut ? 2 : 1,
                                 .pipeline = &pipeline,
                                 .separator = separator };
    struct result r = { .text = malloc(capacity + 1) };
    int32_t end_of_text = ddl_tokenizer_end_of_text(fuzz_tokenizer());
    pthread_t thread;
    bool end = false;
    FUZZ_CHECK(r.text && ddl_pipeline_init(&pipeline, 4, &err) == DDL_OK);
    FUZZ_CHECK(pthread_create(&thread, NULL, read_all, &reader) == 0);
    for (struct ddl_text_batch *batch; (batch = ddl_pipeline_take(&pipeline));) {
        ddl_text_batch_decode(batch, &(struct ddl_text_input){ .text_key = "text" });
        ddl_text_batch_encode(batch, fuzz_tokenizer(), end_of_text);
        ddl_pipeline_done(&pipeline, batch);
        FUZZ_CHECK(ddl_pipeline_next(&pipeline, 1000, &end) == batch && !end);
        take_batch(&r, batch, end_of_text, capacity);
        ddl_pipeline_release(&pipeline);
    }
    pthread_join(thread, NULL);
    ddl_pipeline_free(&pipeline);
    return r;
}

/* "@@@ 600000\nthe cat " expands to "the cat the cat ..." of that many bytes: more than the reader's
 * buffer. */
static uint8_t *expand(const uint8_t *data, size_t *size)
{
    enum { MOST = 1 << 20 };
    size_t begin = 0, n = *size;
    if (fuzz_is_archive(data, *size)) {
        for (begin = 4, n = 0; begin < *size && data[begin] >= '0' && data[begin] <= '9' && n < MOST; begin++)
            n = 10 * n + (size_t)(data[begin] - '0');
        begin += begin < *size;
        n = n > MOST ? MOST : begin == *size ? 0 : n;
    }
    uint8_t *out = malloc(n + 1);
    FUZZ_CHECK(out != NULL);
    for (size_t i = 0; i < n; i++)
        out[i] = data[begin + i % (*size - begin)];
    *size = n;
    return out;
}

/* Reads the file in two ranges. */
static void check_ranges(const char *path, bool json, size_t capacity, size_t size,
                         const struct result *whole)
{
    struct result r = build(path, json, capacity, size > 1 ? 1 + size / 3 : 0);
    FUZZ_CHECK(r.status == whole->status);
    if (!r.status)
        FUZZ_CHECK(r.documents == whole->documents && r.size == whole->size &&
                   memcmp(r.text, whole->text, r.size) == 0);
    free(r.text);
}

static void check(const uint8_t *data, size_t size)
{
    (void)fuzz_tokenizer();
    const char *path = fuzz_file("input", data, size);
    const size_t capacity = 4 * size + 16;
    struct result text = build(path, false, size, 0), json = build(path, true, capacity, 0);
    check_ranges(path, false, size, size, &text);
    check_ranges(path, true, capacity, size, &json);
    char *expected = malloc(size + 1);
    FUZZ_CHECK(expected != NULL);
    size_t n = expected_text((const char *)data, size, expected);
    if (!text.status)
        FUZZ_CHECK(text.size == n && memcmp(text.text, expected, n) == 0);
    FUZZ_CHECK(text.status || !size || !memchr(data, '\0', size));
    free(expected);
    free(text.text);
    free(json.text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *whole = expand(data, &size);
    check(whole, size);
    free(whole);
    return 0;
}
