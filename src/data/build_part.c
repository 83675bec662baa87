#define _POSIX_C_SOURCE 200809L
#include "base/file.h"
#include "base/json.h"
#include "base/process.h"
#include "data/build.h"
#include "data/part_file.h"
#include "data/reader.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

enum { CHECK_BYTES = 1 << 18 };

/* The encoding of a part. */
struct encoding {
    struct ddl_build *b;
    struct ddl_pipeline pipeline;
    struct ddl_reader reader;
    struct ddl_part_writer writer;
    uint64_t bytes_before; /* of the parts that this process has encoded before */
};

/* An input file as it is now. Standard input has zeros. */
struct version {
    uint64_t size;
    int64_t modified; /* nanoseconds since 1970 */
};

struct ddl_part_layout ddl_build_part_layout(const struct ddl_build *b)
{
    return (struct ddl_part_layout){ b->result.bytes_per_token, b->config->input.prompt_key[0] != '\0' };
}

static ddl_status find_version(const char *path, struct version *version, struct ddl_error *err)
{
    struct stat st;
    *version = (struct version){ 0 };
    if (strcmp(path, "-") == 0)
        return DDL_OK;
    if (stat(path, &st) != 0)
        return ddl_file_error(err, path, "open");
    version->size = (uint64_t)st.st_size;
    version->modified = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
    return DDL_OK;
}

static void *read_thread(void *arg)
{
    ddl_reader_run(&((struct encoding *)arg)->reader);
    return NULL;
}

static void *encode_thread(void *arg)
{
    struct encoding *e = arg;
    for (struct ddl_text_batch *batch; (batch = ddl_pipeline_take(&e->pipeline));) {
        ddl_text_batch_decode(batch, &e->b->config->input);
        ddl_text_batch_encode(batch, e->b->tokenizer, e->b->end_of_text);
        ddl_pipeline_done(&e->pipeline, batch);
    }
    return NULL;
}

static ddl_status write_batch(struct encoding *e, const struct ddl_text_batch *batch, struct ddl_error *err)
{
    struct ddl_build_progress *shown = &e->b->shown;
    if (batch->status) {
        if (err)
            *err = batch->err;
        return batch->status;
    }
    for (size_t i = 0; i < batch->n_segments; i++)
        shown->documents += batch->segments[i].starts && batch->segments[i].size > 0;
    shown->tokens += batch->ids.n;
    shown->bytes_in = e->bytes_before + batch->consumed;
    return ddl_part_writer_append(&e->writer, batch, err);
}

static ddl_status write_all(void *user, struct ddl_error *err)
{
    struct encoding *e = user;
    for (;;) {
        bool end;
        struct ddl_text_batch *batch = ddl_pipeline_next(&e->pipeline, DDL_BUILD_PROGRESS_MS, &end);
        if (end)
            return DDL_OK;
        ddl_status status = batch ? write_batch(e, batch, err) : DDL_OK;
        if (batch)
            ddl_pipeline_release(&e->pipeline);
        if (!status)
            status = ddl_build_show(e->b, false, err);
        if (status)
            return status;
    }
}

static size_t thread_count(const struct ddl_build_config *config)
{
    if (config->threads > 0)
        return config->threads;
    size_t cores = ddl_process_cores();
    return cores < DDL_BUILD_MAX_THREADS ? cores : DDL_BUILD_MAX_THREADS;
}

static ddl_status find_versions(const struct ddl_build *b, const struct ddl_range *ranges, size_t n,
                                struct version *versions, struct ddl_error *err)
{
    ddl_status status = DDL_OK;
    for (size_t i = 0; i < n && !status; i++)
        status = find_version(b->inputs.items[ranges[i].input].path, &versions[i], err);
    return status;
}

/* The inputs of the part as they were read, for its manifest; DDL_E_IO if one has changed meanwhile. */
static ddl_status make_manifest(const struct ddl_build *b, const struct ddl_range *ranges, size_t n,
                                const struct ddl_range_text *texts, const struct version *versions,
                                json_t **out, struct ddl_error *err)
{
    json_t *rows = json_array();
    bool complete = rows != NULL;
    ddl_status status = DDL_OK;
    for (size_t i = 0; i < n && !status; i++) {
        const char *path = b->inputs.items[ranges[i].input].path;
        struct version now;
        status = find_version(path, &now, err);
        if (!status && (now.size != versions[i].size || now.modified != versions[i].modified))
            status = ddl_error_set(err, DDL_E_IO, "%s: changed while it was read", path);
        json_t *row = json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "input", (json_int_t)ranges[i].input,
                                "from", (json_int_t)ranges[i].from, "end", (json_int_t)texts[i].end, "crc32",
                                (json_int_t)texts[i].crc, "size", (json_int_t)versions[i].size, "modified",
                                (json_int_t)versions[i].modified);
        complete = json_array_append_new(rows, row) == 0 && complete; /* frees the row if it fails */
    }
    *out = complete && !status ? json_pack("{s:O}", "inputs", rows) : NULL;
    json_decref(rows);
    if (!status && !*out)
        status = ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory", b->folder.path);
    return status;
}

static ddl_status encode(struct encoding *e, size_t part, struct ddl_error *err)
{
    struct ddl_build *b = e->b;
    const struct ddl_pipeline_roles roles = { e, read_thread, encode_thread, write_all };
    ddl_status status = ddl_part_writer_begin(&e->writer, &b->folder, part, ddl_build_part_layout(b), err);
    if (status)
        return status;
    status = ddl_pipeline_run(&e->pipeline, thread_count(b->config), &roles, err);
    if (status)
        ddl_part_writer_discard(&e->writer);
    return status;
}

ddl_status ddl_build_part(struct ddl_build *b, size_t i, struct ddl_error *err)
{
    const struct ddl_range *ranges = b->parts.ranges + b->parts.first[i];
    const size_t n = b->parts.first[i + 1] - b->parts.first[i];
    struct ddl_range_text *texts = calloc(n, sizeof *texts);
    struct version *versions = calloc(n, sizeof *versions);
    json_t *manifest = NULL;
    struct encoding e = { .b = b, .bytes_before = b->shown.bytes_in };
    e.reader = (struct ddl_reader){ .inputs = &b->inputs,
                                    .ranges = ranges,
                                    .n_ranges = n,
                                    .texts = texts,
                                    .pipeline = &e.pipeline,
                                    .separator = b->config->input.separator,
                                    .cut_at_space = b->cut_at_space };
    ddl_status status = DDL_OK;
    if (!texts || !versions)
        status = ddl_error_set(err, DDL_E_MEMORY, "out of memory for %zu inputs", n);
    if (!status)
        status = find_versions(b, ranges, n, versions, err);
    if (!status)
        status = encode(&e, i, err);
    if (!status) {
        status = make_manifest(b, ranges, n, texts, versions, &manifest, err);
        if (status)
            ddl_part_writer_discard(&e.writer);
        else
            status = ddl_part_writer_commit(&e.writer, manifest, err);
    }
    json_decref(manifest);
    free(texts);
    free(versions);
    return status;
}

/* ---- checking ---- */

static ddl_status changed(const struct ddl_build *b, size_t part, const char *path, const char *what,
                          unsigned long long expected, unsigned long long found, struct ddl_error *err)
{
    char manifest[DDL_BUILD_PATH];
    ddl_part_path(&b->folder, part, "json", manifest);
    return ddl_error_set(
        err, DDL_E_FORMAT,
        "%.300s: changed since a part of the build was made from it: expected %s %llu, found "
        "%llu; restore it, or remove %.300s to encode the part again",
        path, what, expected, found, manifest);
}

/* Computes the CRC-32 of the text of a range up to `end`; text->end is where the text ends, `end` at most if
 * the range does not extend to the end of the file. */
static ddl_status sum_text(struct ddl_build *b, const struct ddl_range *range, uint64_t end,
                           struct ddl_range_text *text, struct ddl_error *err)
{
    const struct ddl_input *input = &b->inputs.items[range->input];
    struct ddl_source source;
    unsigned char *bytes = malloc(CHECK_BYTES);
    *text = (struct ddl_range_text){ .end = range->from };
    ddl_status status = bytes ? DDL_OK : ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory", input->path);
    if (!status)
        status = ddl_source_open(&source, input->path, input->packing, NULL, err);
    if (status) {
        free(bytes);
        return status;
    }
    if (range->from > 0)
        status = ddl_source_seek(&source, range->from, err);
    for (size_t n = 1; n > 0 && !status;) {
        uint64_t left = range->to == UINT64_MAX ? CHECK_BYTES : end - text->end;
        status = left == 0 ? DDL_OK
                           : ddl_source_read(&source, bytes, left < CHECK_BYTES ? (size_t)left : CHECK_BYTES,
                                             &n, err);
        n = status || left == 0 ? 0 : n;
        text->crc = (uint32_t)crc32(text->crc, bytes, (uInt)n);
        text->end += n;
        if (!status)
            status = ddl_build_show(b, false, err);
    }
    ddl_source_close(&source);
    free(bytes);
    return status;
}

static ddl_status check_input(struct ddl_build *b, size_t part, const struct ddl_range *range,
                              const json_t *row, struct ddl_error *err)
{
    const char *path = b->inputs.items[range->input].path;
    const uint64_t size = (uint64_t)json_integer_value(json_object_get(row, "size")),
                   end = (uint64_t)json_integer_value(json_object_get(row, "end"));
    const uint32_t crc = (uint32_t)json_integer_value(json_object_get(row, "crc32"));
    struct version now;
    struct ddl_range_text text;
    ddl_status status = find_version(path, &now, err);
    if (status)
        return status;
    if (now.size != size)
        return changed(b, part, path, "a size of", size, now.size, err);
    if (now.modified == json_integer_value(json_object_get(row, "modified")))
        return DDL_OK;
    status = sum_text(b, range, end, &text, err);
    if (!status && text.end != end)
        status = changed(b, part, path, "text up to byte", end, text.end, err);
    if (!status && text.crc != crc)
        status = changed(b, part, path, "CRC-32", crc, text.crc, err);
    return status;
}

ddl_status ddl_build_check_part(struct ddl_build *b, size_t i, struct ddl_error *err)
{
    const struct ddl_range *ranges = b->parts.ranges + b->parts.first[i];
    const size_t n = b->parts.first[i + 1] - b->parts.first[i];
    json_t *manifest;
    ddl_status status = b->resumable ? ddl_part_manifest(&manifest, &b->folder, i, err) : DDL_OK;
    if (status || !b->resumable)
        return status;
    const json_t *rows = json_object_get(manifest, "inputs");
    for (size_t k = 0; k < n && !status; k++) {
        const json_t *row = json_array_get(rows, k);
        if (json_array_size(rows) != n ||
            json_integer_value(json_object_get(row, "input")) != (json_int_t)ranges[k].input ||
            json_integer_value(json_object_get(row, "from")) != (json_int_t)ranges[k].from) {
            char path[DDL_BUILD_PATH];
            ddl_part_path(&b->folder, i, "json", path);
            status =
                ddl_error_set(err, DDL_E_FORMAT,
                              "%s: describes other inputs than those of part %zu: remove it to encode the "
                              "part again",
                              path, i);
        } else {
            status = check_input(b, i, &ranges[k], row, err);
        }
    }
    json_decref(manifest);
    return status;
}
