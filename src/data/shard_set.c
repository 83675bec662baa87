#define _POSIX_C_SOURCE 200809L
#include "data/shard_set.h"

#include "base/file.h"
#include "base/json.h"
#include "base/utf8.h"
#include "data/shard_format.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_SHARDS = 1000000 }; /* with six digits, name order is shard order */

ddl_status ddl_shard_set_begin(struct ddl_shard_set *set, const char *work, int width, size_t shard_tokens,
                               struct ddl_error *err)
{
    *set = (struct ddl_shard_set){ .width = width, .shard_tokens = shard_tokens };
    if (strlen(work) + 64 > sizeof set->work)
        return ddl_error_set(err, DDL_E_USAGE, "%.200s...: folder name too long", work);
    strcpy(set->work, work);
    ddl_status status = ddl_file_exists(work) ? ddl_file_remove_dir(work, err) : DDL_OK;
    return status ? status : ddl_file_make_only_dir(work, err);
}

/* Files of a split: shards, and masks, which have one byte per token and no header. */
enum { SHARDS, MASKS, KINDS };

static struct ddl_shard_sequence *sequence_of(struct ddl_shard_set *set, int split, int kind)
{
    return kind == MASKS ? &set->mask[split] : &set->split[split];
}

/* Path of a file that is not published yet. */
static void work_path(const struct ddl_shard_set *set, int split, int kind, size_t i, char *path, size_t size)
{
    char name[DDL_SHARD_NAME], shard[2048];
    ddl_shard_name(name, split, i);
    ddl_path_join(shard, sizeof shard, set->work, name);
    if (kind == MASKS)
        ddl_shard_mask_path(path, size, shard);
    else
        snprintf(path, size, "%s", shard);
}

static ddl_status begin_file(struct ddl_shard_set *set, int split, int kind, struct ddl_error *err)
{
    struct ddl_shard_sequence *s = sequence_of(set, split, kind);
    char path[2048];
    if (s->shards == MAX_SHARDS)
        return ddl_error_set(err, DDL_E_USAGE, "%s: more than %d shards of %zu tokens: increase shard_tokens",
                             set->work, MAX_SHARDS, set->shard_tokens);
    work_path(set, split, kind, s->shards, path, sizeof path);
    ddl_status status = ddl_file_writer_begin(&s->writer, path, err);
    if (status)
        return status;
    s->open = true;
    s->shards++;
    s->in_shard = 0;
    const unsigned char header[DDL_SHARD_HEADER] = { 0 }; /* overwritten when the shard is complete */
    return kind == MASKS ? DDL_OK : ddl_file_writer_write(&s->writer, header, sizeof header, err);
}

/* Writes the header of the current shard, which is complete. */
static ddl_status write_header(const struct ddl_shard_set *set, struct ddl_shard_sequence *s,
                               struct ddl_error *err)
{
    const uint32_t words[3] = { DDL_SHARD_MAGIC, set->width == 2 ? 1 : 2, (uint32_t)s->in_shard };
    unsigned char bytes[sizeof words];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)(words[i / 4] >> 8 * (i % 4));
    return fseek(s->writer.stream, 0, SEEK_SET) == 0
               ? ddl_file_writer_write(&s->writer, bytes, sizeof bytes, err)
               : ddl_file_error(err, s->writer.path, "seek");
}

static ddl_status end_file(struct ddl_shard_set *set, int split, int kind, struct ddl_error *err)
{
    struct ddl_shard_sequence *s = sequence_of(set, split, kind);
    if (!s->open)
        return DDL_OK;
    s->open = false;
    ddl_status status = kind == MASKS ? DDL_OK : write_header(set, s, err);
    if (status) {
        ddl_file_writer_discard(&s->writer);
        return status;
    }
    return ddl_file_writer_commit(&s->writer, err);
}

/* Appends the bytes of n tokens to the files of the kind. */
static ddl_status append(struct ddl_shard_set *set, int split, int kind, const unsigned char *bytes, size_t n,
                         struct ddl_error *err)
{
    struct ddl_shard_sequence *s = sequence_of(set, split, kind);
    const size_t width = kind == MASKS ? 1 : (size_t)set->width;
    ddl_status status = DDL_OK;
    while (n > 0 && !status) {
        if (s->open && s->in_shard == set->shard_tokens)
            status = end_file(set, split, kind, err);
        if (!status && !s->open)
            status = begin_file(set, split, kind, err);
        if (status)
            break;
        size_t left = set->shard_tokens - (size_t)s->in_shard, take = n < left ? n : left;
        status = ddl_file_writer_write(&s->writer, bytes, take * width, err);
        s->in_shard += take;
        s->tokens += take;
        bytes += take * width;
        n -= take;
    }
    return status;
}

ddl_status ddl_shard_set_append_packed(struct ddl_shard_set *set, int split, const unsigned char *bytes,
                                       size_t n, struct ddl_error *err)
{
    return append(set, split, SHARDS, bytes, n, err);
}

ddl_status ddl_shard_set_append(struct ddl_shard_set *set, int split, const int32_t *ids, size_t n,
                                struct ddl_error *err)
{
    unsigned char bytes[4096];
    const size_t most = sizeof bytes / (size_t)set->width;
    ddl_status status = DDL_OK;
    for (size_t done = 0, take; done < n && !status; done += take) {
        take = n - done < most ? n - done : most;
        ddl_tokens_pack(bytes, ids + done, take, set->width);
        status = ddl_shard_set_append_packed(set, split, bytes, take, err);
    }
    return status;
}

ddl_status ddl_shard_set_append_mask(struct ddl_shard_set *set, int split, unsigned char group, uint64_t n,
                                     struct ddl_error *err)
{
    unsigned char bytes[4096];
    ddl_status status = DDL_OK;
    memset(bytes, group, sizeof bytes);
    for (uint64_t done = 0, take; done < n && !status; done += take) {
        take = n - done < sizeof bytes ? n - done : sizeof bytes;
        status = append(set, split, MASKS, bytes, (size_t)take, err);
    }
    return status;
}

ddl_status ddl_shard_set_close(struct ddl_shard_set *set, struct ddl_error *err)
{
    ddl_status status = DDL_OK;
    for (int kind = 0; kind < KINDS; kind++) {
        for (int split = 0; split < DDL_SPLITS && !status; split++)
            status = end_file(set, split, kind, err);
    }
    return status;
}

/* Reads n tokens of shard i, from token `from` of it. */
static ddl_status read_ids(const struct ddl_shard_set *set, const char *path, uint64_t from, size_t n,
                           int32_t *ids, struct ddl_error *err)
{
    const size_t width = (size_t)set->width;
    unsigned char bytes[4096];
    FILE *file = fopen(path, "rb");
    if (!file)
        return ddl_file_error(err, path, "open");
    bool ok = fseeko(file, (off_t)(DDL_SHARD_HEADER + from * width), SEEK_SET) == 0;
    for (size_t done = 0; ok && done < n;) {
        size_t most = sizeof bytes / width, take = n - done < most ? n - done : most;
        ok = fread(bytes, width, take, file) == take;
        if (ok)
            ddl_tokens_unpack(ids + done, bytes, take, set->width);
        done += take;
    }
    ddl_status status = ok ? DDL_OK : ddl_file_error(err, path, "read");
    fclose(file);
    return status;
}

ddl_status ddl_shard_set_read(const struct ddl_shard_set *set, int split, uint64_t start, size_t n,
                              int32_t *ids, struct ddl_error *err)
{
    ddl_status status = DDL_OK;
    while (n > 0 && !status) {
        char path[2048];
        uint64_t from = start % set->shard_tokens, left = set->shard_tokens - from;
        size_t take = n < left ? n : (size_t)left;
        work_path(set, split, SHARDS, (size_t)(start / set->shard_tokens), path, sizeof path);
        status = read_ids(set, path, from, take, ids, err);
        start += take;
        ids += take;
        n -= take;
    }
    return status;
}

ddl_status ddl_shard_set_make_train(struct ddl_shard_set *set, struct ddl_error *err)
{
    struct ddl_shard_sequence *val = &set->split[DDL_SPLIT_VAL], *train = &set->split[DDL_SPLIT_TRAIN];
    ddl_status status = DDL_OK;
    while (train->shards < val->shards && !status) {
        char from[2048], to[2048];
        work_path(set, DDL_SPLIT_VAL, SHARDS, train->shards, from, sizeof from);
        work_path(set, DDL_SPLIT_TRAIN, SHARDS, train->shards, to, sizeof to);
        if (rename(from, to) != 0)
            status = ddl_file_error(err, to, "rename a file to this name");
        else
            train->shards++;
    }
    if (!status) {
        *train = *val;
        *val = (struct ddl_shard_sequence){ 0 };
    }
    return status;
}

/* Shortens a complete shard to so many tokens. */
static ddl_status shorten(const struct ddl_shard_set *set, const char *path, uint64_t tokens,
                          struct ddl_error *err)
{
    unsigned char count[4];
    FILE *file = fopen(path, "r+b");
    if (!file)
        return ddl_file_error(err, path, "open");
    for (size_t b = 0; b < sizeof count; b++)
        count[b] = (unsigned char)(tokens >> 8 * b);
    bool ok = fseek(file, 8, SEEK_SET) == 0 && fwrite(count, 1, sizeof count, file) == sizeof count &&
              fflush(file) == 0 &&
              ftruncate(fileno(file), (off_t)(DDL_SHARD_HEADER + tokens * (uint64_t)set->width)) == 0 &&
              fsync(fileno(file)) == 0;
    ddl_status status = ok ? DDL_OK : ddl_file_error(err, path, "shorten");
    if (fclose(file) != 0 && !status)
        status = ddl_file_error(err, path, "close");
    return status;
}

ddl_status ddl_shard_set_truncate(struct ddl_shard_set *set, int split, uint64_t tokens,
                                  struct ddl_error *err)
{
    struct ddl_shard_sequence *s = &set->split[split];
    size_t last = (size_t)((tokens - 1) / set->shard_tokens);
    char path[2048];
    while (s->shards > last + 1) {
        work_path(set, split, SHARDS, s->shards - 1, path, sizeof path);
        if (unlink(path) != 0)
            return ddl_file_error(err, path, "remove");
        s->shards--;
    }
    work_path(set, split, SHARDS, last, path, sizeof path);
    s->tokens = tokens;
    s->in_shard = tokens - last * (uint64_t)set->shard_tokens;
    return shorten(set, path, s->in_shard, err);
}

/* Adds the size of the file at `path` to `files`, under its name. */
static ddl_status record_size(json_t *files, const char *path, struct ddl_error *err)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return ddl_file_error(err, path, "read its size");
    return json_object_set_new(files, strrchr(path, '/') + 1, json_integer((json_int_t)st.st_size)) == 0
               ? DDL_OK
               : ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory", path);
}

static ddl_status record_files(struct ddl_shard_set *set, json_t *files, struct ddl_error *err)
{
    ddl_status status = DDL_OK;
    for (int part = 0; part < DDL_SPLITS * KINDS; part++) {
        const int split = part / KINDS, kind = part % KINDS;
        for (size_t i = 0; i < sequence_of(set, split, kind)->shards && !status; i++) {
            char path[2048];
            work_path(set, split, kind, i, path, sizeof path);
            status = record_size(files, path, err);
        }
    }
    return status;
}

static json_t *split_object(const struct ddl_shard_set *set, const struct ddl_shard_record *record, int split)
{
    return json_pack("{s:I, s:I, s:I}", "documents", (json_int_t)record->documents[split], "tokens",
                     (json_int_t)set->split[split].tokens, "bytes", (json_int_t)record->bytes[split]);
}

ddl_status ddl_shard_set_record(struct ddl_shard_set *set, const struct ddl_shard_record *record,
                                json_t *options, struct ddl_error *err)
{
    const struct ddl_tokenizer_identity *id = record->tokenizer;
    /* A path that is not UTF-8 has no text in JSON: then the name is empty. */
    const char *name = ddl_utf8_is_valid(id->name, strlen(id->name)) ? id->name : "";
    json_t *files = json_object(), *tokenizer = json_pack("{s:s, s:I, s:i, s:s}", "name", name, "vocab_size",
                                                          (json_int_t)id->vocab_size, "end_of_text",
                                                          (int)id->end_of_text, "sha256", id->sha256);
    char path[2048];
    ddl_status status = record_files(set, files, err);
    json_t *about = json_pack(
        "{s:i, s:o, s:o, s:o, s:I, s:o, s:s, s:o}", "version", 1, "tokenizer", tokenizer, "train",
        split_object(set, record, DDL_SPLIT_TRAIN), "val", split_object(set, record, DDL_SPLIT_VAL),
        "skipped", (json_int_t)record->skipped, "options", options, "build", record->build, "files", files);
    ddl_path_join(path, sizeof path, set->work, DDL_SHARD_RECORD);
    if (!status)
        status = about ? ddl_json_write(path, about, err)
                       : ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory", path);
    json_decref(about);
    return status;
}

void ddl_shard_set_discard(struct ddl_shard_set *set)
{
    char path[2048];
    for (int part = 0; part < DDL_SPLITS * KINDS; part++) {
        const int split = part / KINDS, kind = part % KINDS;
        struct ddl_shard_sequence *s = sequence_of(set, split, kind);
        if (s->open)
            ddl_file_writer_discard(&s->writer);
        s->open = false;
        for (size_t i = 0; i < s->shards; i++) {
            work_path(set, split, kind, i, path, sizeof path);
            unlink(path);
        }
    }
    ddl_path_join(path, sizeof path, set->work, DDL_SHARD_RECORD);
    unlink(path);
    rmdir(set->work);
}
