#define _POSIX_C_SOURCE 200809L
#include "model/files/folder_writer.h"

#include "base/file.h"
#include "base/json.h"
#include "base/path.h"
#include "model/files/config_metadata.h"
#include "model/pass/pass.h"
#include "model/files/sums.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_SIZE = 1280, FILE_NAME = 48, MAX_COPIED = 256 << 20 };

static const char index_file[] = "model.safetensors.index.json";

/* One folder under way: the file of each tensor. */
struct job {
    const struct ddl_folder_content *content;
    struct ddl_config_metadata notes;
    size_t *file_of, n_files; /* (content->n) */
};

/* Fills files in order; a tensor larger than the limit has one of its own. */
static void plan_files(struct job *job, uint64_t limit)
{
    uint64_t used = 0;
    for (size_t i = 0; i < job->content->n; i++) {
        if (limit && used && job->content->tensors[i].bytes > limit - (used < limit ? used : limit)) {
            job->n_files++;
            used = 0;
        }
        job->file_of[i] = job->n_files;
        used += job->content->tensors[i].bytes;
    }
    job->n_files++;
}

static void file_name(const struct job *job, size_t file, char *out)
{
    if (job->n_files == 1)
        snprintf(out, FILE_NAME, "model.safetensors");
    else
        snprintf(out, FILE_NAME, "model-%05zu-of-%05zu.safetensors", file + 1, job->n_files);
}

/* ---- writing ---- */

struct slice {
    const struct ddl_folder_content *content;
    size_t first; /* tensor 0 of the file */
};

static ddl_status fill(void *user, size_t i, size_t offset, size_t bytes, void *to, struct ddl_error *err)
{
    const struct slice *slice = user;
    return slice->content->fill(slice->content->user, slice->first + i, offset, bytes, to, err);
}

static bool path_of(char *path, const char *folder, const char *name, struct ddl_error *err)
{
    if (ddl_path_join(path, PATH_SIZE, folder, name))
        return true;
    ddl_error_set(err, DDL_E_USAGE, "%.200s: the folder's path is too long", folder);
    return false;
}

static ddl_status write_tensors(const struct job *job, const char *folder, struct ddl_error *err)
{
    ddl_status status = DDL_OK;
    for (size_t first = 0, last; first < job->content->n && !status; first = last) {
        char name[FILE_NAME], path[PATH_SIZE];
        struct slice slice = { job->content, first };
        for (last = first; last < job->content->n && job->file_of[last] == job->file_of[first];)
            last++;
        file_name(job, job->file_of[first], name);
        if (!path_of(path, folder, name, err))
            return DDL_E_USAGE;
        const struct ddl_safetensors_content content = {
            job->notes.list, job->notes.n, job->content->tensors + first, last - first, fill, &slice
        };
        status = ddl_safetensors_write_with_metadata(path, &content, err);
    }
    return status;
}

static uint64_t total_bytes(const struct job *job)
{
    uint64_t total = 0;
    for (size_t i = 0; i < job->content->n; i++)
        total += job->content->tensors[i].bytes;
    return total;
}

/* The index of several files, as Hugging Face's library writes it. */
static ddl_status write_index(const struct job *job, const char *folder, struct ddl_error *err)
{
    char path[PATH_SIZE];
    if (!path_of(path, folder, index_file, err))
        return DDL_E_USAGE;
    json_t *map = json_object();
    for (size_t i = 0; map && i < job->content->n; i++) {
        char name[FILE_NAME];
        file_name(job, job->file_of[i], name);
        if (json_object_set_new(map, job->content->tensors[i].name, json_string(name)) != 0) {
            json_decref(map);
            map = NULL;
        }
    }
    json_t *root = json_pack("{s:{s:I}, s:o}", "metadata", "total_size", (json_int_t)total_bytes(job),
                             "weight_map", map);
    ddl_status status = ddl_json_write(path, root, err);
    json_decref(root);
    return status;
}

static ddl_status copy_companions(const char *from, const char *folder, struct ddl_error *err)
{
    for (size_t i = 0; ddl_companion_files[i]; i++) {
        char source[PATH_SIZE], copy[PATH_SIZE], *bytes;
        size_t size;
        if (!path_of(source, from, ddl_companion_files[i], err) ||
            !path_of(copy, folder, ddl_companion_files[i], err))
            return DDL_E_USAGE;
        if (!ddl_file_exists(source))
            continue;
        ddl_status status = ddl_file_read(source, MAX_COPIED, &bytes, &size, err);
        if (status)
            return status;
        status = ddl_file_replace(copy, bytes, size, err);
        free(bytes);
        if (status)
            return status;
    }
    return DDL_OK;
}

/* Of all files of the new folder, as they are read back. */
static ddl_status write_sums(const struct job *job, const char *folder, struct ddl_error *err)
{
    struct ddl_model_sums sums;
    ddl_status status = ddl_model_sums_begin(&sums, folder, err);
    if (!status)
        status = ddl_model_sums_take(&sums, folder, "config.json", err);
    if (!status && job->n_files > 1)
        status = ddl_model_sums_take(&sums, folder, index_file, err);
    for (size_t file = 0; file < job->n_files && !status; file++) {
        char name[FILE_NAME];
        file_name(job, file, name);
        status = ddl_model_sums_take(&sums, folder, name, err);
    }
    if (!status)
        status = ddl_model_sums_write(&sums, folder, false, err);
    ddl_model_sums_end(&sums);
    return status;
}

static ddl_status write_all(const struct job *job, const char *folder, struct ddl_error *err)
{
    char path[PATH_SIZE];
    if (!path_of(path, folder, "config.json", err))
        return DDL_E_USAGE;
    ddl_status status = write_tensors(job, folder, err);
    if (!status && job->n_files > 1)
        status = write_index(job, folder, err);
    if (!status)
        status = ddl_config_save(job->content->config, path, err);
    if (!status)
        status = copy_companions(job->content->from, folder, err);
    if (!status && job->content->extra)
        status = job->content->extra(job->content->extra_user, folder, err);
    if (!status)
        status = write_sums(job, folder, err);
    return status ? status : ddl_file_sync_dir(folder, err);
}

/* ---- the whole ---- */

ddl_status ddl_folder_check_free(const char *to, struct ddl_error *err)
{
    struct ddl_file_names list;
    ddl_status status = ddl_file_list(&list, to, NULL, NULL, err);
    bool is_free = status ? !ddl_file_exists(to) : list.n == 0;
    ddl_file_names_free(&list);
    if (is_free)
        return DDL_OK;
    if (status && ddl_file_is_dir(to))
        return status;
    return ddl_error_set(err, DDL_E_USAGE, "%s: exists already; name a new folder", to);
}

static ddl_status write_whole(const struct job *job, const char *to, struct ddl_error *err)
{
    char target[PATH_SIZE], partial[PATH_SIZE];
    size_t length = strlen(to);
    while (length > 1 && to[length - 1] == '/')
        length--;
    /* An empty folder by its own name: "." and symbolic links cannot be replaced. */
    bool fits = ddl_file_exists(to) ? ddl_path_canonical(to, target, sizeof target)
                                    : snprintf(target, sizeof target, "%.*s", (int)length, to) < PATH_SIZE;
    if (!fits || !ddl_file_temporary_name(partial, sizeof partial, target))
        return ddl_error_set(err, DDL_E_USAGE, "%.200s: the folder's path is too long", to);
    ddl_status status = ddl_file_make_parent(partial, err);
    if (!status)
        status = ddl_file_make_only_dir(partial, err);
    if (status)
        return status;
    status = write_all(job, partial, err);
    if (!status && rename(partial, target) != 0)
        status = ddl_file_error(err, to, "rename into place");
    if (!status)
        return ddl_file_sync_parent(partial, err);
    (void)ddl_file_remove_dir(partial, NULL);
    return status;
}

ddl_status ddl_folder_write(const struct ddl_folder_content *content, const char *to, size_t *n_files,
                            struct ddl_error *err)
{
    struct job *job = calloc(1, sizeof *job);
    size_t *file_of = calloc(content->n, sizeof *file_of);
    ddl_status status = DDL_OK;
    if (!job || !file_of) {
        status = ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory for its table of tensors", to);
    } else {
        job->content = content;
        job->file_of = file_of;
        plan_files(job, content->max_file_size);
        ddl_config_metadata(content->config, &job->notes);
        status = write_whole(job, to, err);
        *n_files = job->n_files;
    }
    free(file_of);
    free(job);
    return status;
}
