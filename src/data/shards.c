#define _POSIX_C_SOURCE 200809L
#include "ddl/data.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/pattern.h"
#include "data/shard_format.h"
#include "data/shard_layout.h"
#include "data/shard_list.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct shard {
    char *path;
    struct ddl_file_map map;
    struct ddl_shard_layout layout;
    uint64_t start;           /* tokens of the set before this file */
    struct ddl_file_map mask; /* one byte per token; data is NULL without a mask */
};

struct ddl_shards {
    struct shard *files;
    size_t n;
    uint64_t tokens;
    size_t left_out[2]; /* files of the path that are not in the set: others, validation shards */
};

struct paths {
    char **items;
    size_t n, capacity;
};

static void paths_free(struct paths *paths)
{
    for (size_t i = 0; i < paths->n; i++)
        free(paths->items[i]);
    free(paths->items);
    *paths = (struct paths){ 0 };
}

static ddl_status paths_add(struct paths *paths, const char *path, struct ddl_error *err)
{
    if (paths->n == paths->capacity) {
        size_t capacity = paths->capacity ? 2 * paths->capacity : 16;
        char **items = realloc(paths->items, capacity * sizeof *items);
        if (!items)
            return ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory", path);
        paths->items = items;
        paths->capacity = capacity;
    }
    char *copy = ddl_mem_strdup(path);
    if (!copy)
        return ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory", path);
    paths->items[paths->n++] = copy;
    return DDL_OK;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool is_shard(void *user, const char *name)
{
    (void)user;
    return ddl_shard_name_fits(name);
}

static ddl_status list_folder(struct paths *paths, const char *folder, struct ddl_error *err)
{
    struct ddl_file_names list;
    ddl_status status = ddl_file_list(&list, folder, is_shard, NULL, err);
    if (!status && list.n == 0)
        status = ddl_error_set(err, DDL_E_FORMAT, "%s: no .bin file in this folder", folder);
    if (!status)
        status = ddl_shards_check_listed(folder, &list, err);
    for (size_t i = 0; !status && i < list.n; i++) {
        char path[2048];
        if (ddl_path_join(path, sizeof path, folder, list.names[i]))
            status = paths_add(paths, path, err);
        else
            status = ddl_error_set(err, DDL_E_USAGE, "%.200s...: path too long", folder);
    }
    ddl_file_names_free(&list);
    return status;
}

static ddl_status add_found(void *paths, const char *path, struct ddl_error *err)
{
    return paths_add(paths, path, err);
}

static ddl_status list_pattern(struct paths *paths, const char *pattern, struct ddl_error *err)
{
    ddl_status status = ddl_pattern_walk(pattern, add_found, paths, err);
    if (!status && paths->n == 0)
        status = ddl_error_set(err, DDL_E_IO, "%s: no matching file", pattern);
    return status;
}

static ddl_status list_one(struct paths *paths, const char *path, struct ddl_error *err)
{
    if (ddl_file_is_dir(path))
        return list_folder(paths, path, err);
    if (!ddl_file_exists(path) && ddl_pattern_is(path))
        return list_pattern(paths, path, err);
    return paths_add(paths, path, err);
}

/* A path that exists is not a list, even if it contains a comma. */
static ddl_status list_files(struct paths *paths, const char *path, struct ddl_error *err)
{
    ddl_status status = DDL_OK;
    if (ddl_file_exists(path) || !strchr(path, ',')) {
        status = list_one(paths, path, err);
    } else {
        char *list = ddl_mem_strdup(path);
        if (!list)
            return ddl_error_set(err, DDL_E_MEMORY, "%.200s: out of memory", path);
        for (char *part = list, *end; !status && part; part = end) {
            end = strchr(part, ',');
            if (end)
                *end++ = '\0';
            status = list_one(paths, part, err);
        }
        free(list);
    }
    if (!status)
        qsort(paths->items, paths->n, sizeof *paths->items, compare_names);
    return status;
}

enum kind { OTHER, TRAIN, VAL, KINDS };

/* The kind of a file, by the words of its name. */
static enum kind kind_of(const char *path)
{
    static const struct {
        const char *word;
        enum kind kind;
    } words[] = { { "train", TRAIN }, { "val", VAL }, { "valid", VAL }, { "validation", VAL } };
    const char *slash = strrchr(path, '/'), *word = slash ? slash + 1 : path;
    for (size_t length; *word; word += length + (word[length] != '\0')) {
        length = strcspn(word, "_-. ");
        for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
            if (strlen(words[i].word) == length && strncmp(word, words[i].word, length) == 0)
                return words[i].kind;
        }
    }
    return OTHER;
}

/* Which kinds are opened, by how many files of each kind there are. */
static void kinds_of_split(int split, const size_t count[KINDS], bool open[KINDS])
{
    bool all = split == DDL_SHARDS_ALL || (split == DDL_SHARDS_VAL && count[VAL] == 0) ||
               (split == DDL_SHARDS_TRAIN && count[TRAIN] + count[OTHER] == 0);
    open[VAL] = all || split == DDL_SHARDS_VAL;
    open[TRAIN] = all || split == DDL_SHARDS_TRAIN;
    open[OTHER] = all || (split == DDL_SHARDS_TRAIN && count[TRAIN] == 0);
}

/* Removes the files that do not belong to the split. */
static void select_files(ddl_shards *shards, struct paths *paths, int split)
{
    size_t count[KINDS] = { 0 }, kept = 0;
    bool open[KINDS];
    for (size_t i = 0; i < paths->n; i++)
        count[kind_of(paths->items[i])]++;
    kinds_of_split(split, count, open);
    for (size_t i = 0; i < paths->n; i++) {
        enum kind kind = kind_of(paths->items[i]);
        if (open[kind]) {
            paths->items[kept++] = paths->items[i];
        } else {
            shards->left_out[kind == VAL]++;
            free(paths->items[i]);
        }
    }
    paths->n = kept;
}

/* The mask beside a shard, if there is one. */
static ddl_status open_mask(struct shard *shard, struct ddl_error *err)
{
    char path[2048];
    if (!ddl_shard_mask_path(path, sizeof path, shard->path) || !ddl_file_exists(path))
        return DDL_OK;
    ddl_status status = ddl_file_map_open(&shard->mask, path, err);
    if (!status && shard->mask.size != shard->layout.tokens)
        status = ddl_error_set(err, DDL_E_FORMAT, "%s: expected %llu bytes, one per token of %s, found %zu",
                               path, (unsigned long long)shard->layout.tokens, shard->path, shard->mask.size);
    return status;
}

/* Whether a target is counted. Reads no more than the ignored ones before it. */
static bool counts_any(const ddl_shards *shards)
{
    for (size_t i = 0; i < shards->n; i++) {
        const struct shard *shard = &shards->files[i];
        uint64_t at = 0;
        while (shard->mask.data && at < shard->layout.tokens && shard->mask.data[at] == 0)
            at++;
        if (at < shard->layout.tokens)
            return true;
    }
    return false;
}

static ddl_status open_all(ddl_shards *shards, struct paths *paths, int format, struct ddl_error *err)
{
    shards->files = calloc(paths->n, sizeof *shards->files);
    if (!shards->files)
        return ddl_error_set(err, DDL_E_MEMORY, "out of memory for %zu shards", paths->n);
    for (size_t i = 0; i < paths->n; i++) {
        struct shard *shard = &shards->files[shards->n++];
        shard->path = paths->items[i];
        paths->items[i] = NULL;
        ddl_status status = ddl_file_map_open(&shard->map, shard->path, err);
        if (!status)
            status = ddl_shard_layout_find(&shard->layout, shard->path, shard->map.data, shard->map.size,
                                           format, err);
        if (!status)
            status = open_mask(shard, err);
        if (status)
            return status;
        shard->start = shards->tokens;
        shards->tokens += shard->layout.tokens;
    }
    return DDL_OK;
}

ddl_status ddl_shards_open_with(ddl_shards **out, const char *path, const struct ddl_shards_options *options,
                                struct ddl_error *err)
{
    const struct ddl_shards_options o = options ? *options : (struct ddl_shards_options){ 0 };
    *out = NULL;
    struct paths paths = { 0 };
    ddl_shards *shards = calloc(1, sizeof *shards);
    ddl_status status =
        shards ? list_files(&paths, path, err) : ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory", path);
    if (!status) {
        select_files(shards, &paths, o.split);
        status = open_all(shards, &paths, o.format, err);
    }
    if (!status && shards->tokens == 0)
        status = ddl_error_set(err, DDL_E_FORMAT, "%s: no tokens in %zu file%s", path, shards->n,
                               shards->n == 1 ? "" : "s");
    if (!status && !counts_any(shards))
        status = ddl_error_set(err, DDL_E_FORMAT, "%s: the masks of these shards count no token", path);
    paths_free(&paths);
    if (status) {
        ddl_shards_close(shards);
        return status;
    }
    *out = shards;
    return DDL_OK;
}

ddl_status ddl_shards_open(ddl_shards **out, const char *path, struct ddl_error *err)
{
    return ddl_shards_open_with(out, path, NULL, err);
}

void ddl_shards_close(ddl_shards *shards)
{
    if (!shards)
        return;
    for (size_t i = 0; i < shards->n; i++) {
        ddl_file_map_close(&shards->files[i].map);
        ddl_file_map_close(&shards->files[i].mask);
        free(shards->files[i].path);
    }
    free(shards->files);
    free(shards);
}

uint64_t ddl_shards_count(const ddl_shards *shards)
{
    return shards->tokens;
}

size_t ddl_shards_n_files(const ddl_shards *shards)
{
    return shards->n;
}

const char *ddl_shards_assumed(const ddl_shards *shards)
{
    for (size_t i = 0; i < shards->n; i++) {
        if (shards->files[i].layout.assumed)
            return shards->files[i].path;
    }
    return NULL;
}

size_t ddl_shards_n_left_out(const ddl_shards *shards, bool validation)
{
    return shards->left_out[validation];
}

const char *ddl_shards_file(const ddl_shards *shards, size_t i, uint64_t *tokens, int *bytes_per_token)
{
    if (i >= shards->n)
        return NULL;
    if (tokens)
        *tokens = shards->files[i].layout.tokens;
    if (bytes_per_token)
        *bytes_per_token = shards->files[i].layout.width;
    return shards->files[i].path;
}

static inline uint32_t token_at(const unsigned char *p, int width)
{
    uint32_t low = (uint32_t)p[0] | (uint32_t)p[1] << 8;
    return width == 2 ? low : low | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static const unsigned char *shard_tokens(const struct shard *shard)
{
    return shard->map.data + shard->layout.offset;
}

/* Returns the file that contains position `at` (< total tokens): the last one that starts at or before it. */
static size_t file_of(const ddl_shards *shards, uint64_t at)
{
    size_t low = 0, high = shards->n;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (shards->files[middle].start <= at)
            low = middle;
        else
            high = middle;
    }
    return low;
}

int32_t ddl_shards_usual_end_of_text(const ddl_shards *shards)
{
    return shards->files[0].layout.end_of_text;
}

/* Tokens of one file. */
struct span {
    const struct shard *shard;
    uint64_t offset; /* of the first token in the file */
    size_t n;
};

/* The part of [at, at + n) that begins with `at` and is in one file; positions wrap around. */
static struct span span_at(const ddl_shards *shards, uint64_t at, size_t n)
{
    assert(shards->tokens > 0);
    at %= shards->tokens;
    const struct shard *shard = &shards->files[file_of(shards, at)];
    uint64_t offset = at - shard->start, left = shard->layout.tokens - offset;
    return (struct span){ shard, offset, left < n ? (size_t)left : n };
}

static void copy_tokens(const struct span *span, int32_t *out)
{
    int width = span->shard->layout.width;
    const unsigned char *p = shard_tokens(span->shard) + span->offset * (uint64_t)width;
    if (width == 2) {
        for (size_t i = 0; i < span->n; i++)
            out[i] = (int32_t)token_at(p + 2 * i, 2);
    } else {
        for (size_t i = 0; i < span->n; i++)
            out[i] = (int32_t)token_at(p + 4 * i, 4);
    }
}

void ddl_shards_read(const ddl_shards *shards, uint64_t start, size_t n, int32_t *out)
{
    for (size_t done = 0; done < n;) {
        struct span span = span_at(shards, start + done, n - done);
        copy_tokens(&span, out + done);
        done += span.n;
    }
}

void ddl_shards_read_targets(const ddl_shards *shards, uint64_t start, size_t n, int32_t *out)
{
    for (size_t done = 0; done < n;) {
        struct span span = span_at(shards, start + done, n - done);
        const unsigned char *mask = span.shard->mask.data;
        copy_tokens(&span, out + done);
        for (size_t i = 0; mask && i < span.n; i++)
            out[done + i] = mask[span.offset + i] ? out[done + i] : -1;
        done += span.n;
    }
}

void ddl_shards_read_groups(const ddl_shards *shards, uint64_t start, size_t n, unsigned char *out)
{
    for (size_t done = 0; done < n;) {
        struct span span = span_at(shards, start + done, n - done);
        if (span.shard->mask.data)
            memcpy(out + done, span.shard->mask.data + span.offset, span.n);
        else
            memset(out + done, 1, span.n);
        done += span.n;
    }
}

size_t ddl_shards_n_masks(const ddl_shards *shards)
{
    size_t n = 0;
    for (size_t i = 0; i < shards->n; i++)
        n += shards->files[i].mask.data != NULL;
    return n;
}

/* Adds tokens [first, last) of the file to *stats. */
static void scan_part(const struct shard *shard, uint64_t first, uint64_t last, int32_t end_of_text,
                      struct ddl_shard_stats *stats)
{
    const unsigned char *p = shard_tokens(shard);
    for (uint64_t i = first; i < last; i++) {
        uint32_t token = token_at(p + i * (uint64_t)shard->layout.width, shard->layout.width);
        if (token > stats->largest) {
            stats->largest = token;
            stats->largest_at = i;
        }
        if (end_of_text >= 0 && token == (uint32_t)end_of_text)
            stats->documents++;
        stats->groups[shard->mask.data ? shard->mask.data[i] : 1]++;
    }
}

ddl_status ddl_shards_scan(const ddl_shards *shards, size_t file, int32_t end_of_text,
                           struct ddl_shard_stats *stats, ddl_progress_fn *progress, void *user,
                           struct ddl_error *err)
{
    const uint64_t part = 1 << 22; /* tokens between calls of progress: some milliseconds */
    const struct shard *shard = &shards->files[file];
    *stats = (struct ddl_shard_stats){ .tokens = shard->layout.tokens, .masked = shard->mask.data != NULL };
    for (uint64_t done = 0; done < shard->layout.tokens;) {
        uint64_t left = shard->layout.tokens - done, end = done + (left < part ? left : part);
        scan_part(shard, done, end, end_of_text, stats);
        done = end;
        unsigned long long position = shard->start + done, all = shards->tokens;
        if (progress && progress(user, position, all))
            return ddl_error_set(err, DDL_E_INTERRUPTED, "%s: interrupted after checking %llu of %llu tokens",
                                 shard->path, position, all);
    }
    return DDL_OK;
}

ddl_status ddl_shards_check(const ddl_shards *shards, size_t vocab_size, ddl_progress_fn *progress,
                            void *user, struct ddl_error *err)
{
    for (size_t file = 0; file < shards->n; file++) {
        struct ddl_shard_stats stats;
        ddl_status status = ddl_shards_scan(shards, file, -1, &stats, progress, user, err);
        if (status)
            return status;
        if (stats.tokens && stats.largest >= vocab_size)
            return ddl_error_set(err, DDL_E_FORMAT,
                                 "%s: token %lu at position %llu exceeds the vocabulary of %zu tokens",
                                 shards->files[file].path, (unsigned long)stats.largest,
                                 (unsigned long long)stats.largest_at, vocab_size);
    }
    return DDL_OK;
}
