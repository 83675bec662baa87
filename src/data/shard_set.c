#define _POSIX_C_SOURCE 200809L
#include "data/shard_set.h"

#include "base/file.h"
#include "base/json.h"
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

static ddl_status begin_shard(struct ddl_shard_set *set, int split, struct ddl_error *err)
{
    struct ddl_shard_sequence *s = &set->split[split];
    char name[DDL_SHARD_NAME], path[1024 + 128];
    if (s->shards == MAX_SHARDS)
        return ddl_error_set(err, DDL_E_USAGE, "%s: more than %d shards of %zu tokens: increase shard_tokens",
                             set->work, MAX_SHARDS, set->shard_tokens);
    ddl_shard_name(name, split, s->shards);
    ddl_path_join(path, sizeof path, set->work, name);
    ddl_status status = ddl_file_writer_begin(&s->writer, path, err);
    if (status)
        return status;
    s->open = true;
    s->shards++;
    s->in_shard = 0;
    const unsigned char header[DDL_SHARD_HEADER] = { 0 }; /* overwritten when the shard is complete */
    return ddl_file_writer_write(&s->writer, header, sizeof header, err);
}

static ddl_status end_shard(struct ddl_shard_set *set, int split, struct ddl_error *err)
{
    struct ddl_shard_sequence *s = &set->split[split];
    if (!s->open)
        return DDL_OK;
    const uint32_t words[3] = { DDL_SHARD_MAGIC, set->width == 2 ? 1 : 2, (uint32_t)s->in_shard };
    unsigned char bytes[sizeof words];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)(words[i / 4] >> 8 * (i % 4));
    s->open = false;
    ddl_status status = fseek(s->writer.stream, 0, SEEK_SET) == 0
                            ? ddl_file_writer_write(&s->writer, bytes, sizeof bytes, err)
                            : ddl_file_error(err, s->writer.path, "seek");
    if (status) {
        ddl_file_writer_discard(&s->writer);
        return status;
    }
    return ddl_file_writer_commit(&s->writer, err);
}

ddl_status ddl_shard_set_append_packed(struct ddl_shard_set *set, int split, const unsigned char *bytes,
                                       size_t n, struct ddl_error *err)
{
    struct ddl_shard_sequence *s = &set->split[split];
    const size_t width = (size_t)set->width;
    ddl_status status = DDL_OK;
    while (n > 0 && !status) {
        if (s->open && s->in_shard == set->shard_tokens)
            status = end_shard(set, split, err);
        if (!status && !s->open)
            status = begin_shard(set, split, err);
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

/* Path of a complete shard that is not published yet. */
static void work_path(const struct ddl_shard_set *set, int split, size_t i, char *path, size_t size)
{
    char name[DDL_SHARD_NAME];
    ddl_shard_name(name, split, i);
    ddl_path_join(path, size, set->work, name);
}

/* ---- masks ---- */

/* Path of a mask that is not published yet. */
static void mask_path(const struct ddl_shard_set *set, int split, size_t i, char *path, size_t size)
{
    char shard[2048];
    work_path(set, split, i, shard, sizeof shard);
    ddl_shard_mask_path(path, size, shard);
}

static ddl_status end_mask(struct ddl_mask_sequence *mask, struct ddl_error *err)
{
    if (!mask->open)
        return DDL_OK;
    mask->open = false;
    return ddl_file_writer_commit(&mask->writer, err);
}

static ddl_status begin_mask(struct ddl_shard_set *set, int split, struct ddl_error *err)
{
    struct ddl_mask_sequence *mask = &set->split[split].mask;
    char path[2048];
    mask_path(set, split, mask->masks, path, sizeof path);
    ddl_status status = ddl_file_writer_begin(&mask->writer, path, err);
    if (status)
        return status;
    mask->open = true;
    mask->masks++;
    mask->in_mask = 0;
    return DDL_OK;
}

ddl_status ddl_shard_set_append_mask(struct ddl_shard_set *set, int split, unsigned char group, uint64_t n,
                                     struct ddl_error *err)
{
    struct ddl_mask_sequence *mask = &set->split[split].mask;
    unsigned char bytes[4096];
    ddl_status status = DDL_OK;
    memset(bytes, group, sizeof bytes);
    while (n > 0 && !status) {
        if (mask->open && mask->in_mask == set->shard_tokens)
            status = end_mask(mask, err);
        if (!status && !mask->open)
            status = begin_mask(set, split, err);
        if (status)
            break;
        uint64_t left = set->shard_tokens - mask->in_mask, take = n < left ? n : left;
        take = take < sizeof bytes ? take : sizeof bytes;
        status = ddl_file_writer_write(&mask->writer, bytes, (size_t)take, err);
        mask->in_mask += take;
        n -= take;
    }
    return status;
}

/* ---- complete shards ---- */

ddl_status ddl_shard_set_close(struct ddl_shard_set *set, struct ddl_error *err)
{
    ddl_status status = DDL_OK;
    for (int split = 0; split < DDL_SPLITS && !status; split++)
        status = end_shard(set, split, err);
    for (int split = 0; split < DDL_SPLITS && !status; split++)
        status = end_mask(&set->split[split].mask, err);
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
        work_path(set, split, (size_t)(start / set->shard_tokens), path, sizeof path);
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
        work_path(set, DDL_SPLIT_VAL, train->shards, from, sizeof from);
        work_path(set, DDL_SPLIT_TRAIN, train->shards, to, sizeof to);
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
        work_path(set, split, s->shards - 1, path, sizeof path);
        if (unlink(path) != 0)
            return ddl_file_error(err, path, "remove");
        s->shards--;
    }
    work_path(set, split, last, path, sizeof path);
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

ddl_status ddl_shard_set_record(struct ddl_shard_set *set, json_t *about, struct ddl_error *err)
{
    char path[2048];
    json_t *files = json_object();
    ddl_status status = DDL_OK;
    for (int split = 0; split < DDL_SPLITS; split++) {
        for (size_t i = 0; i < set->split[split].shards && !status; i++) {
            work_path(set, split, i, path, sizeof path);
            status = record_size(files, path, err);
        }
        for (size_t i = 0; i < set->split[split].mask.masks && !status; i++) {
            mask_path(set, split, i, path, sizeof path);
            status = record_size(files, path, err);
        }
    }
    if (status) {
        json_decref(files);
        return status;
    }
    ddl_path_join(path, sizeof path, set->work, DDL_SHARD_RECORD);
    if (json_object_set_new(about, "files", files) != 0)
        return ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory", path);
    return ddl_json_write(path, about, err);
}

void ddl_shard_set_discard(struct ddl_shard_set *set)
{
    char path[2048];
    for (int split = 0; split < DDL_SPLITS; split++) {
        if (set->split[split].open)
            ddl_file_writer_discard(&set->split[split].writer);
        set->split[split].open = false;
        for (size_t i = 0; i < set->split[split].shards; i++) {
            work_path(set, split, i, path, sizeof path);
            unlink(path);
        }
        struct ddl_mask_sequence *mask = &set->split[split].mask;
        if (mask->open)
            ddl_file_writer_discard(&mask->writer);
        mask->open = false;
        for (size_t i = 0; i < mask->masks; i++) {
            mask_path(set, split, i, path, sizeof path);
            unlink(path);
        }
    }
    ddl_path_join(path, sizeof path, set->work, DDL_SHARD_RECORD);
    unlink(path);
    rmdir(set->work);
}
