#include "base/json.h"
#include "base/rng.h"
#include "data/build.h"
#include "data/hold_out.h"
#include "data/part_file.h"
#include "data/publish.h"

#include <stdlib.h>
#include <string.h>

enum { COPY_BYTES = 1 << 16 };

struct merge {
    struct ddl_build *b;
    struct ddl_shard_set set;
    struct ddl_part_reader part;
    uint64_t key;      /* of the selection of documents */
    uint64_t document; /* index of the next one, in all inputs */
    int split;         /* of the documents that are read but not copied */
    uint64_t waiting;  /* their tokens */
    unsigned char *bytes;
};

static ddl_status check_progress(void *user, struct ddl_error *err)
{
    return ddl_build_show(user, false, err);
}

/* Copies the tokens of the waiting documents into their split. */
static ddl_status flush(struct merge *m, struct ddl_error *err)
{
    const size_t width = (size_t)m->part.layout.width, most = COPY_BYTES / width;
    ddl_status status = DDL_OK;
    while (m->waiting > 0 && !status) {
        size_t n = m->waiting < most ? (size_t)m->waiting : most;
        status = ddl_part_reader_tokens(&m->part, m->bytes, n, err);
        if (!status)
            status = ddl_shard_set_append_packed(&m->set, m->split, m->bytes, n, err);
        m->waiting -= n;
        m->b->shown.bytes_in += n * width;
        if (!status)
            status = check_progress(m->b, err);
    }
    return status;
}

/* A hash of (seed, document index) selects the split of a document, independently of all other documents. */
static int next_split(struct merge *m)
{
    double u = ddl_rng_uniform(m->key, m->document++);
    return u < m->b->config->val_fraction ? DDL_SPLIT_VAL : DDL_SPLIT_TRAIN;
}

/* The response is counted, and <|endoftext|>, which ends the response before it if there is one. */
static ddl_status append_mask(struct merge *m, int split, const struct ddl_part_document *document,
                              struct ddl_error *err)
{
    if (document->prompt >= document->tokens)
        return ddl_error_set(
            err, DDL_E_FORMAT, "%s: corrupted: a prompt of %llu tokens in a document of %llu",
            m->part.docs.path, (unsigned long long)document->prompt, (unsigned long long)document->tokens);
    const bool is_first = m->b->result.documents[split] == 1;
    ddl_status status = ddl_shard_set_append_mask(&m->set, split, !is_first, 1, err);
    if (!status)
        status = ddl_shard_set_append_mask(&m->set, split, 0, document->prompt, err);
    return status
               ? status
               : ddl_shard_set_append_mask(&m->set, split, 1, document->tokens - 1 - document->prompt, err);
}

static ddl_status take_document(struct merge *m, struct ddl_error *err)
{
    struct ddl_build_result *r = &m->b->result;
    struct ddl_part_document document;
    ddl_status status = ddl_part_reader_document(&m->part, &document, err);
    const int split = next_split(m);
    if (status)
        return status;
    if (document.bytes == 0) {
        r->skipped++;
        return DDL_OK;
    }
    if (split != m->split)
        status = flush(m, err);
    m->split = split;
    m->waiting += document.tokens;
    r->documents[split]++;
    r->bytes[split] += document.bytes;
    r->tokens[split] += document.tokens;
    if (!status && m->part.layout.prompts)
        status = append_mask(m, split, &document, err);
    return status;
}

static ddl_status merge_part(struct merge *m, size_t i, struct ddl_error *err)
{
    ddl_status status = ddl_part_reader_open(&m->part, &m->b->folder, i, ddl_build_part_layout(m->b), err);
    while (!status && m->part.documents > 0)
        status = take_document(m, err);
    if (!status)
        status = flush(m, err);
    if (!status)
        status = ddl_part_reader_end(&m->part, err);
    ddl_part_reader_close(&m->part);
    return status;
}

/* Bytes of the tokens of all parts, for the progress. */
static ddl_status sum_parts(struct ddl_build *b, uint64_t *bytes, struct ddl_error *err)
{
    ddl_status status = DDL_OK;
    for (size_t i = 0; i < b->parts.n && !status; i++) {
        struct ddl_part_reader part;
        status = ddl_part_reader_open(&part, &b->folder, i, ddl_build_part_layout(b), err);
        *bytes += part.tokens * (uint64_t)part.layout.width;
        ddl_part_reader_close(&part);
    }
    return status;
}

static ddl_status merge_all(struct merge *m, struct ddl_error *err)
{
    struct ddl_build *b = m->b;
    struct ddl_build_result *r = &b->result;
    b->shown.merging = true;
    b->shown.bytes_in = b->shown.bytes_total = 0;
    ddl_status status = sum_parts(b, &b->shown.bytes_total, err);
    m->key = ddl_rng_key(b->config->seed, "held-out split");
    m->bytes = malloc(COPY_BYTES);
    if (!status && !m->bytes)
        status = ddl_error_set(err, DDL_E_MEMORY, "out of memory for %d bytes", COPY_BYTES);
    for (size_t i = 0; i < b->parts.n && !status; i++)
        status = merge_part(m, i, err);
    free(m->bytes);
    if (status || r->documents[0] + r->documents[1] > 0)
        return status;
    b->worthless = true;
    return ddl_error_set(err, DDL_E_FORMAT, "no text: %zu file%s, %llu empty document%s", b->inputs.n,
                         b->inputs.n == 1 ? "" : "s", (unsigned long long)r->skipped,
                         r->skipped == 1 ? "" : "s");
}

/* If the selection of documents has left one of the sets empty, holds out the end of the text. */
static ddl_status hold_out_end(struct merge *m, struct ddl_error *err)
{
    struct ddl_build *b = m->b;
    struct ddl_build_result *r = &b->result;
    const double share = b->config->val_fraction;
    struct ddl_hold_out h = { .set = &m->set,
                              .tokenizer = b->tokenizer,
                              .end_of_text = b->end_of_text,
                              .share = share,
                              .check = check_progress,
                              .user = b };
    if (share == 0 || share == 1 || (r->documents[0] > 0 && r->documents[1] > 0))
        return DDL_OK;
    if (b->config->input.prompt_key[0]) {
        const unsigned long long all = r->documents[0] + r->documents[1];
        b->worthless = true;
        return ddl_error_set(
            err, DDL_E_FORMAT,
            "val_fraction: %g selects %s of %llu documents for validation, and a prompt and its "
            "response are not divided: expected another fraction or more documents",
            share, r->documents[DDL_SPLIT_VAL] ? "all" : "none", all);
    }
    ddl_status status = ddl_hold_out_end(&h, err);
    b->worthless = status == DDL_E_FORMAT;
    if (status)
        return status;
    r->end_held_out = h.at;
    r->documents[DDL_SPLIT_TRAIN] += r->documents[DDL_SPLIT_VAL] + h.divided - h.documents;
    r->documents[DDL_SPLIT_VAL] = h.documents;
    r->bytes[DDL_SPLIT_TRAIN] += r->bytes[DDL_SPLIT_VAL] - h.bytes;
    r->bytes[DDL_SPLIT_VAL] = h.bytes;
    for (int split = 0; split < DDL_SPLITS; split++)
        r->tokens[split] = m->set.split[split].tokens;
    return DDL_OK;
}

/* Writes shards.json. */
static ddl_status write_record(struct merge *m, struct ddl_error *err)
{
    const struct ddl_build_result *r = &m->b->result;
    const struct ddl_shard_record record = { .tokenizer = &m->b->identity,
                                             .documents = { r->documents[0], r->documents[1] },
                                             .bytes = { r->bytes[0], r->bytes[1] },
                                             .skipped = r->skipped,
                                             .build = m->b->name };
    ddl_status status = ddl_shard_set_close(&m->set, err);
    return status
               ? status
               : ddl_shard_set_record(&m->set, &record, ddl_build_recorded_options(m->b->config, false), err);
}

ddl_status ddl_build_finish(struct ddl_build *b, struct ddl_error *err)
{
    struct merge m = { .b = b };
    char work[DDL_BUILD_PATH];
    ddl_build_folder_file(&b->folder, DDL_BUILD_SHARDS, work);
    ddl_status status =
        ddl_shard_set_begin(&m.set, work, b->result.bytes_per_token, b->config->shard_tokens, err);
    if (!status)
        status = merge_all(&m, err);
    if (!status)
        status = hold_out_end(&m, err);
    if (!status)
        status = write_record(&m, err);
    if (!status)
        status = ddl_build_show(b, true, err);
    if (!status)
        status = ddl_build_folder_lock(&b->folder, err);
    if (!status)
        status = ddl_build_folder_in_place(&b->folder, err);
    if (!status)
        status = ddl_publish_begin(&b->folder, b->config->overwrite, err);
    if (status) {
        ddl_shard_set_discard(&m.set);
        return status;
    }
    for (int split = 0; split < DDL_SPLITS; split++)
        b->result.shards[split] = m.set.split[split].shards;
    return ddl_publish_finish(&b->folder, err);
}

ddl_status ddl_build_read_result(struct ddl_build *b, bool *same, struct ddl_error *err)
{
    static const char *const names[DDL_SPLITS] = { "train", "val" };
    enum { MAX_RECORD = 64 << 20 };
    char path[2048];
    json_t *record;
    ddl_path_join(path, sizeof path, b->folder.out, DDL_SHARD_RECORD);
    ddl_status status = ddl_json_read(&record, path, MAX_RECORD, err);
    if (status)
        return status;
    const char *found = json_string_value(json_object_get(record, "build"));
    *same = b->resumable && found && strcmp(found, b->name) == 0;
    for (int split = 0; split < DDL_SPLITS && *same; split++) {
        const json_t *object = json_object_get(record, names[split]);
        struct ddl_build_result *r = &b->result;
        char name[DDL_SHARD_NAME];
        r->documents[split] = (uint64_t)json_integer_value(json_object_get(object, "documents"));
        r->tokens[split] = (uint64_t)json_integer_value(json_object_get(object, "tokens"));
        r->bytes[split] = (uint64_t)json_integer_value(json_object_get(object, "bytes"));
        do
            ddl_shard_name(name, split, r->shards[split]);
        while (json_object_get(json_object_get(record, "files"), name) && ++r->shards[split]);
    }
    if (*same)
        b->result.skipped = (uint64_t)json_integer_value(json_object_get(record, "skipped"));
    json_decref(record);
    return DDL_OK;
}
