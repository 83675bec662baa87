#define _POSIX_C_SOURCE 200809L
#include "data/shard_set.h"

#include "base/file.h"

#include "base/json.h"
#include "data/shard_format.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_SHARDS = 1000000, NAME_SIZE = 32 }; /* with six digits, name order is shard order */

static const char *const split_names[DDL_SPLITS] = { "train", "val" };

static void shard_name(char name[NAME_SIZE], int split, size_t i)
{
    snprintf(name, NAME_SIZE, "%s_%06zu.bin", split_names[split], i);
}

/* True if a build writes files of this name. */
static bool is_build_name(const char *name)
{
    for (int split = 0; split < DDL_SPLITS; split++) {
        size_t n = strlen(split_names[split]);
        if (strncmp(name, split_names[split], n) == 0 && name[n] == '_' &&
            strspn(name + n + 1, "0123456789") == 6 && strcmp(name + n + 7, ".bin") == 0)
            return true;
    }
    return false;
}

static ddl_status check_no_shards(const char *out, bool overwrite, struct ddl_error *err)
{
    DIR *dir = opendir(out);
    if (!dir)
        return ddl_file_error(err, out, "open folder");
    ddl_status status = DDL_OK;
    for (struct dirent *entry; !status && (entry = readdir(dir));) {
        if (!ddl_shard_name_fits(entry->d_name))
            continue;
        if (!is_build_name(entry->d_name))
            status = ddl_error_set(err, DDL_E_USAGE,
                                   "%s: contains %s, which is not from a build: choose another folder", out,
                                   entry->d_name);
        else if (!overwrite)
            status = ddl_error_set(err, DDL_E_USAGE,
                                   "%s: already has shards (%s): choose another folder or use --overwrite",
                                   out, entry->d_name);
    }
    closedir(dir);
    return status;
}

static size_t existing_prefix(const char *path)
{
    char part[1024];
    size_t n = strlen(path);
    memcpy(part, path, n + 1);
    while (n > 0 && !ddl_file_exists(part)) {
        while (n > 0 && part[n - 1] != '/')
            n--;
        while (n > 0 && part[n - 1] == '/')
            n--;
        part[n] = '\0';
    }
    return n;
}

ddl_status ddl_shard_set_begin(struct ddl_shard_set *set, const char *out, bool overwrite, int width,
                               size_t shard_tokens, struct ddl_error *err)
{
    *set = (struct ddl_shard_set){ .overwrite = overwrite, .width = width, .shard_tokens = shard_tokens };
    if (strlen(out) + 64 > sizeof set->out)
        return ddl_error_set(err, DDL_E_USAGE, "%.200s...: folder name too long", out);
    strcpy(set->out, out);
    set->out_kept = existing_prefix(out);
    ddl_status status = ddl_file_make_dir(out, err);
    if (!status)
        status = check_no_shards(out, overwrite, err);
    snprintf(set->work, sizeof set->work, "%s/.build-%ld", out, (long)getpid());
    if (!status)
        status = ddl_file_make_dir(set->work, err);
    if (status)
        ddl_shard_set_discard(set);
    return status;
}

static ddl_status begin_shard(struct ddl_shard_set *set, int split, struct ddl_error *err)
{
    struct ddl_shard_sequence *s = &set->split[split];
    char name[NAME_SIZE], path[1024 + 128];
    if (s->shards == MAX_SHARDS)
        return ddl_error_set(err, DDL_E_USAGE, "%s: more than %d shards of %zu tokens: increase shard_tokens",
                             set->out, MAX_SHARDS, set->shard_tokens);
    shard_name(name, split, s->shards);
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
                            : ddl_file_error(err, s->writer.temporary, "seek");
    if (status) {
        ddl_file_writer_discard(&s->writer);
        return status;
    }
    return ddl_file_writer_commit(&s->writer, err);
}

static ddl_status write_ids(struct ddl_shard_set *set, struct ddl_shard_sequence *s, const int32_t *ids,
                            size_t n, struct ddl_error *err)
{
    unsigned char bytes[4096];
    size_t width = (size_t)set->width, most = sizeof bytes / width;
    ddl_status status = DDL_OK;
    for (size_t done = 0; done < n && !status;) {
        size_t take = n - done < most ? n - done : most;
        for (size_t i = 0; i < take; i++) {
            for (size_t b = 0; b < width; b++)
                bytes[i * width + b] = (unsigned char)((uint32_t)ids[done + i] >> 8 * b);
        }
        status = ddl_file_writer_write(&s->writer, bytes, take * width, err);
        done += take;
    }
    return status;
}

ddl_status ddl_shard_set_append(struct ddl_shard_set *set, int split, const int32_t *ids, size_t n,
                                struct ddl_error *err)
{
    struct ddl_shard_sequence *s = &set->split[split];
    ddl_status status = DDL_OK;
    while (n > 0 && !status) {
        if (s->open && s->in_shard == set->shard_tokens)
            status = end_shard(set, split, err);
        if (!status && !s->open)
            status = begin_shard(set, split, err);
        if (status)
            break;
        size_t left = set->shard_tokens - (size_t)s->in_shard, take = n < left ? n : left;
        status = write_ids(set, s, ids, take, err);
        s->in_shard += take;
        s->tokens += take;
        ids += take;
        n -= take;
    }
    return status;
}

ddl_status ddl_shard_set_close(struct ddl_shard_set *set, struct ddl_error *err)
{
    ddl_status status = DDL_OK;
    for (int split = 0; split < DDL_SPLITS && !status; split++)
        status = end_shard(set, split, err);
    return status;
}

/* Path of a complete shard that is not published yet. */
static void work_path(const struct ddl_shard_set *set, int split, size_t i, char *path, size_t size)
{
    char name[NAME_SIZE];
    shard_name(name, split, i);
    ddl_path_join(path, size, set->work, name);
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
        for (size_t i = 0; ok && i < take; i++) {
            uint32_t id = 0;
            for (size_t b = 0; b < width; b++)
                id |= (uint32_t)bytes[i * width + b] << 8 * b;
            ids[done + i] = (int32_t)id;
        }
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
            status = ddl_file_error(err, to, "rename to");
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

/* Removes the shards of an earlier build, their record first. */
static ddl_status remove_old(const struct ddl_shard_set *set, struct ddl_error *err)
{
    char record[2048];
    DIR *dir = opendir(set->out);
    if (!dir)
        return ddl_file_error(err, set->out, "open folder");
    ddl_status status = DDL_OK;
    ddl_path_join(record, sizeof record, set->out, DDL_SHARD_RECORD);
    if (unlink(record) != 0 && ddl_file_exists(record))
        status = ddl_file_error(err, record, "remove");
    for (struct dirent *entry; !status && (entry = readdir(dir));) {
        char path[2048];
        if (!is_build_name(entry->d_name))
            continue;
        ddl_path_join(path, sizeof path, set->out, entry->d_name);
        if (unlink(path) != 0)
            status = ddl_file_error(err, path, "remove");
    }
    closedir(dir);
    return status;
}

/* Removes this set's shards from the folder `place`, as far as they exist. */
static void remove_shards(const struct ddl_shard_set *set, const char *place)
{
    char record[2048];
    ddl_path_join(record, sizeof record, place, DDL_SHARD_RECORD);
    unlink(record);
    for (int split = 0; split < DDL_SPLITS; split++) {
        for (size_t i = 0; i < set->split[split].shards; i++) {
            char name[NAME_SIZE], path[2048];
            shard_name(name, split, i);
            ddl_path_join(path, sizeof path, place, name);
            unlink(path);
        }
    }
}

static ddl_status move_all(const struct ddl_shard_set *set, struct ddl_error *err)
{
    for (int split = 0; split < DDL_SPLITS; split++) {
        for (size_t i = 0; i < set->split[split].shards; i++) {
            char name[NAME_SIZE], from[2048], to[2048];
            shard_name(name, split, i);
            work_path(set, split, i, from, sizeof from);
            ddl_path_join(to, sizeof to, set->out, name);
            if (rename(from, to) != 0)
                return ddl_file_error(err, to, "move into place");
        }
    }
    char from[2048], to[2048];
    ddl_path_join(from, sizeof from, set->work, DDL_SHARD_RECORD);
    ddl_path_join(to, sizeof to, set->out, DDL_SHARD_RECORD);
    if (ddl_file_exists(from) && rename(from, to) != 0)
        return ddl_file_error(err, to, "move into place");
    return DDL_OK;
}

ddl_status ddl_shard_set_record(struct ddl_shard_set *set, json_t *about, struct ddl_error *err)
{
    char path[2048];
    json_t *files = json_object();
    bool complete = true;
    for (int split = 0; split < DDL_SPLITS; split++) {
        for (size_t i = 0; i < set->split[split].shards; i++) {
            char name[NAME_SIZE];
            struct stat st;
            shard_name(name, split, i);
            work_path(set, split, i, path, sizeof path);
            if (stat(path, &st) != 0) {
                json_decref(files);
                return ddl_file_error(err, path, "read the size of");
            }
            complete =
                complete && json_object_set_new(files, name, json_integer((json_int_t)st.st_size)) == 0;
        }
    }
    ddl_path_join(path, sizeof path, set->work, DDL_SHARD_RECORD);
    if (json_object_set_new(about, "files", files) != 0 || !complete)
        return ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory", path);
    return ddl_json_write(path, about, err);
}

ddl_status ddl_shard_set_publish(struct ddl_shard_set *set, struct ddl_error *err)
{
    ddl_status status = ddl_shard_set_close(set, err);
    /* Another process may have created shards in the meantime. */
    if (!status)
        status = check_no_shards(set->out, set->overwrite, err);
    /* Remove old shards first: an interruption leaves fewer shards, never a mixture of two builds. */
    if (!status)
        status = remove_old(set, err);
    if (!status) {
        status = move_all(set, err);
        if (status)
            remove_shards(set, set->out);
    }
    if (status) {
        ddl_shard_set_discard(set);
        return status;
    }
    rmdir(set->work);
    return ddl_file_sync_dir(set->out, err);
}

void ddl_shard_set_discard(struct ddl_shard_set *set)
{
    for (int split = 0; split < DDL_SPLITS; split++) {
        if (set->split[split].open)
            ddl_file_writer_discard(&set->split[split].writer);
        set->split[split].open = false;
    }
    remove_shards(set, set->work);
    rmdir(set->work);
    /* Remove the folders created by begin, innermost first, if they are empty. */
    for (size_t n = strlen(set->out); n > set->out_kept; n--) {
        if (set->out[n] != '\0' && set->out[n] != '/')
            continue;
        set->out[n] = '\0';
        if (set->out[n - 1] != '/' && rmdir(set->out) != 0)
            break;
    }
}
