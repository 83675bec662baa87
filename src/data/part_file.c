#define _POSIX_C_SOURCE 200809L
#include "data/part_file.h"

#include "base/json.h"
#include "data/shard_format.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

enum { MAX_MANIFEST = 64 << 20, WORDS = 3, PACKED = 1 << 14 };

/* Bytes of a document's record. */
static size_t document_bytes(struct ddl_part_layout layout)
{
    return (layout.prompts ? 3 : 2) * sizeof(uint64_t);
}

void ddl_part_path(const struct ddl_build_folder *folder, size_t index, const char *ending,
                   char path[DDL_BUILD_PATH])
{
    char name[64];
    snprintf(name, sizeof name, "part-%06zu.%s", index, ending);
    ddl_build_folder_file(folder, name, path);
}

bool ddl_part_finished(const struct ddl_build_folder *folder, size_t index)
{
    char path[DDL_BUILD_PATH];
    ddl_part_path(folder, index, "json", path);
    return ddl_file_exists(path);
}

/* ---- writing ---- */

static ddl_status begin_file(struct ddl_part_writer *w, struct ddl_part_file *file, const char *ending,
                             struct ddl_error *err)
{
    char path[DDL_BUILD_PATH];
    ddl_part_path(w->folder, w->index, ending, path);
    ddl_status status = ddl_file_writer_begin(&file->writer, path, err);
    file->open = !status;
    return status;
}

static ddl_status write_file(struct ddl_part_file *file, const unsigned char *bytes, size_t size,
                             struct ddl_error *err)
{
    file->crc = (uint32_t)crc32(file->crc, bytes, (uInt)size);
    return ddl_file_writer_write(&file->writer, bytes, size, err);
}

static ddl_status commit_file(struct ddl_part_file *file, struct ddl_error *err)
{
    file->open = false;
    return ddl_file_writer_commit(&file->writer, err);
}

ddl_status ddl_part_writer_begin(struct ddl_part_writer *w, const struct ddl_build_folder *folder,
                                 size_t index, struct ddl_part_layout layout, struct ddl_error *err)
{
    *w = (struct ddl_part_writer){ .folder = folder, .index = index, .layout = layout };
    ddl_status status = begin_file(w, &w->ids, "ids", err);
    if (!status)
        status = begin_file(w, &w->docs, "docs", err);
    if (status)
        ddl_part_writer_discard(w);
    return status;
}

static ddl_status end_document(struct ddl_part_writer *w, struct ddl_error *err)
{
    const uint64_t words[WORDS] = { w->document.tokens, w->document.bytes, w->document.prompt };
    unsigned char bytes[sizeof words];
    if (!w->in_document)
        return DDL_OK;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)(words[i / 8] >> 8 * (i % 8));
    w->in_document = false;
    w->documents++;
    return write_file(&w->docs, bytes, document_bytes(w->layout), err);
}

static ddl_status append_tokens(struct ddl_part_writer *w, const struct ddl_ids *ids, struct ddl_error *err)
{
    unsigned char bytes[PACKED];
    const size_t most = sizeof bytes / (size_t)w->layout.width;
    ddl_status status = DDL_OK;
    for (size_t done = 0, take; done < ids->n && !status; done += take) {
        take = ids->n - done < most ? ids->n - done : most;
        ddl_tokens_pack(bytes, ids->ids + done, take, w->layout.width);
        status = write_file(&w->ids, bytes, take * (size_t)w->layout.width, err);
    }
    w->tokens += ids->n;
    return status;
}

ddl_status ddl_part_writer_append(struct ddl_part_writer *w, const struct ddl_text_batch *batch,
                                  struct ddl_error *err)
{
    ddl_status status = append_tokens(w, &batch->ids, err);
    for (size_t i = 0; i < batch->n_segments && !status; i++) {
        const struct ddl_segment *segment = &batch->segments[i];
        if (segment->starts) {
            status = end_document(w, err);
            w->document = (struct ddl_part_document){ 0 };
            w->in_document = true;
        }
        w->document.tokens += segment->n_ids;
        w->document.bytes += segment->size;
        w->document.prompt += segment->n_prompt_ids;
    }
    return status;
}

/* Adds the counts and checksums; false without memory. */
static bool complete_manifest(const struct ddl_part_writer *w, json_t *manifest)
{
    json_t *counts = json_pack("{s:i, s:I, s:I, s:I, s:I}", "version", 1, "tokens", (json_int_t)w->tokens,
                               "documents", (json_int_t)w->documents, "ids_crc32", (json_int_t)w->ids.crc,
                               "docs_crc32", (json_int_t)w->docs.crc);
    bool ok = counts && json_object_update(manifest, counts) == 0;
    json_decref(counts);
    return ok;
}

ddl_status ddl_part_writer_commit(struct ddl_part_writer *w, json_t *manifest, struct ddl_error *err)
{
    char path[DDL_BUILD_PATH];
    ddl_part_path(w->folder, w->index, "json", path);
    ddl_status status = end_document(w, err);
    if (!status)
        status = commit_file(&w->ids, err);
    if (!status)
        status = commit_file(&w->docs, err);
    if (!status)
        status = ddl_json_write(path, complete_manifest(w, manifest) ? manifest : NULL, err);
    if (status)
        ddl_part_writer_discard(w);
    return status;
}

void ddl_part_writer_discard(struct ddl_part_writer *w)
{
    struct ddl_part_file *files[2] = { &w->ids, &w->docs };
    static const char *const endings[2] = { "ids", "docs" };
    char path[DDL_BUILD_PATH];
    ddl_part_path(w->folder, w->index, "json", path); /* first: a manifest means that the others are there */
    (void)remove(path);
    for (size_t i = 0; i < 2; i++) {
        if (files[i]->open)
            ddl_file_writer_discard(&files[i]->writer);
        files[i]->open = false;
        ddl_part_path(w->folder, w->index, endings[i], path);
        (void)remove(path);
    }
}

/* ---- reading ---- */

ddl_status ddl_part_manifest(json_t **out, const struct ddl_build_folder *folder, size_t index,
                             struct ddl_error *err)
{
    char path[DDL_BUILD_PATH];
    ddl_part_path(folder, index, "json", path);
    return ddl_json_read(out, path, MAX_MANIFEST, err);
}

static ddl_status corrupted(const struct ddl_part_reader *r, const char *path, const char *what,
                            unsigned long long expected, unsigned long long found, struct ddl_error *err)
{
    return ddl_error_set(
        err, DDL_E_FORMAT,
        "%.400s: corrupted: expected %s %llu, found %llu; remove %.400s to encode this part again", path,
        what, expected, found, r->manifest);
}

static ddl_status open_stream(struct ddl_part_reader *r, struct ddl_part_stream *s, uint64_t size,
                              struct ddl_error *err)
{
    struct stat st;
    s->stream = fopen(s->path, "rb");
    if (!s->stream || fstat(fileno(s->stream), &st) != 0)
        return ddl_file_error(err, s->path, "open");
    if ((uint64_t)st.st_size != size)
        return corrupted(r, s->path, "a size of", size, (unsigned long long)st.st_size, err);
    return DDL_OK;
}

ddl_status ddl_part_reader_open(struct ddl_part_reader *r, const struct ddl_build_folder *folder,
                                size_t index, struct ddl_part_layout layout, struct ddl_error *err)
{
    json_t *manifest;
    json_int_t version = 0, tokens = -1, documents = -1, ids_crc = 0, docs_crc = 0;
    *r = (struct ddl_part_reader){ .layout = layout };
    ddl_part_path(folder, index, "ids", r->ids.path);
    ddl_part_path(folder, index, "docs", r->docs.path);
    ddl_part_path(folder, index, "json", r->manifest);
    ddl_status status = ddl_part_manifest(&manifest, folder, index, err);
    if (status)
        return status;
    bool valid = json_unpack(manifest, "{s:I, s:I, s:I, s:I, s:I}", "version", &version, "tokens", &tokens,
                             "documents", &documents, "ids_crc32", &ids_crc, "docs_crc32", &docs_crc) == 0;
    json_decref(manifest);
    if (!valid || version != 1 || tokens < 0 || documents < 0)
        return ddl_error_set(
            err, DDL_E_FORMAT,
            "%s: not the manifest of a part: expected version 1, tokens, documents, ids_crc32 "
            "and docs_crc32; remove it to encode this part again",
            r->manifest);
    r->tokens = (uint64_t)tokens;
    r->documents = (uint64_t)documents;
    r->ids.expected_crc = (uint32_t)ids_crc;
    r->docs.expected_crc = (uint32_t)docs_crc;
    status = open_stream(r, &r->ids, r->tokens * (uint64_t)layout.width, err);
    return status ? status : open_stream(r, &r->docs, r->documents * document_bytes(layout), err);
}

static ddl_status read_stream(struct ddl_part_stream *s, unsigned char *bytes, size_t size,
                              struct ddl_error *err)
{
    if (fread(bytes, 1, size, s->stream) != size)
        return ddl_file_error(err, s->path, "read");
    s->crc = (uint32_t)crc32(s->crc, bytes, (uInt)size);
    return DDL_OK;
}

ddl_status ddl_part_reader_document(struct ddl_part_reader *r, struct ddl_part_document *document,
                                    struct ddl_error *err)
{
    unsigned char bytes[WORDS * sizeof(uint64_t)];
    uint64_t words[WORDS] = { 0 };
    const size_t size = document_bytes(r->layout);
    ddl_status status = read_stream(&r->docs, bytes, size, err);
    for (size_t i = 0; i < size && !status; i++)
        words[i / 8] |= (uint64_t)bytes[i] << 8 * (i % 8);
    *document = (struct ddl_part_document){ words[0], words[1], words[2] };
    r->documents--;
    return status;
}

ddl_status ddl_part_reader_tokens(struct ddl_part_reader *r, unsigned char *bytes, size_t n,
                                  struct ddl_error *err)
{
    if (n > r->tokens)
        return corrupted(r, r->docs.path, "at most this number of tokens:", r->tokens, n, err);
    r->tokens -= n;
    return read_stream(&r->ids, bytes, n * (size_t)r->layout.width, err);
}

ddl_status ddl_part_reader_end(const struct ddl_part_reader *r, struct ddl_error *err)
{
    if (r->ids.crc != r->ids.expected_crc)
        return corrupted(r, r->ids.path, "CRC-32", r->ids.expected_crc, r->ids.crc, err);
    if (r->docs.crc != r->docs.expected_crc)
        return corrupted(r, r->docs.path, "CRC-32", r->docs.expected_crc, r->docs.crc, err);
    if (r->tokens > 0)
        return corrupted(r, r->docs.path, "tokens of no document:", 0, r->tokens, err);
    return DDL_OK;
}

void ddl_part_reader_close(struct ddl_part_reader *r)
{
    if (r->ids.stream)
        fclose(r->ids.stream);
    if (r->docs.stream)
        fclose(r->docs.stream);
    *r = (struct ddl_part_reader){ 0 };
}
