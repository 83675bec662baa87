#define _POSIX_C_SOURCE 200809L
#include "ddl/export.h"
#include "ddl/option.h"
#include "ddl/train.h"

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "model/config_json.h"
#include "model/weights.h"

#include <dirent.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_SIZE = 1280, FILE_NAME = 48, MAX_COPIED = 256 << 20 };

static const enum ddl_dtype dtypes[] = {
    [DDL_EXPORT_F32] = DDL_F32,
    [DDL_EXPORT_BF16] = DDL_BF16,
    [DDL_EXPORT_F16] = DDL_F16,
};

const char *const ddl_export_dtype_names[] = {
    [DDL_EXPORT_F32] = "f32", [DDL_EXPORT_BF16] = "bf16", [DDL_EXPORT_F16] = "f16", NULL
};

/* Files of a model folder that are copied unchanged. */
static const char *const companions[] = {
    "tokenizer.json",
    "vocab.bpe",
    "encoder.json",
    "merges.txt",
    "vocab.json",
    "tokenizer_config.json",
    "added_tokens.json",
    "special_tokens_map.json",
    "generation_config.json",
};

/* One export under way. Tensor i of the plan has the numbers of source[i]. */
struct job {
    struct ddl_weights w;
    struct ddl_tensor *plan;
    const struct ddl_tensor **source;
    size_t n, *file_of, n_files;
    struct ddl_config_notes notes;
};

/* ---- planning ---- */

static ddl_status plan_tensors(struct job *job, const struct ddl_export_config *config, const char *to,
                               struct ddl_error *err)
{
    size_t n = job->w.n + (config->no_lm_head ? 0 : 1), embedding = ddl_weights_embedding(&job->w);
    job->plan = calloc(n, sizeof *job->plan);
    job->source = calloc(n, sizeof *job->source);
    job->file_of = calloc(n, sizeof *job->file_of);
    if (!job->plan || !job->source || !job->file_of)
        return ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory for its table of tensors", to);
    for (size_t i = 0; i < n; i++) {
        bool head = i == job->w.n;
        const struct ddl_param *param = &job->w.row[head ? embedding : i];
        job->plan[i] = (struct ddl_tensor){ .name = head ? ddl_head_name : param->name,
                                            .dtype = dtypes[config->dtype],
                                            .ndim = param->ndim };
        memcpy(job->plan[i].shape, param->shape, sizeof param->shape);
        (void)ddl_tensor_measure(&job->plan[i]); /* fits: the source's own shape did, at a byte a number */
        job->source[i] = job->w.tensor[head ? embedding : i];
    }
    job->n = n;
    return DDL_OK;
}

/* Fills files in order; a tensor larger than the limit has one of its own. */
static void plan_files(struct job *job, uint64_t limit)
{
    uint64_t used = 0;
    for (size_t i = 0; i < job->n; i++) {
        if (limit && used && job->plan[i].bytes > limit - (used < limit ? used : limit)) {
            job->n_files++;
            used = 0;
        }
        job->file_of[i] = job->n_files;
        used += job->plan[i].bytes;
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
    const struct job *job;
    size_t first; /* tensor 0 of the file */
};

static ddl_status fill(void *user, size_t i, size_t offset, size_t bytes, void *to, struct ddl_error *err)
{
    const struct slice *slice = user;
    const struct job *job = slice->job;
    const struct ddl_tensor *source = job->source[slice->first + i];
    enum ddl_dtype dtype = job->plan[slice->first + i].dtype;
    size_t size = ddl_dtype_size(dtype);
    ddl_status status = ddl_tensor_convert(source, offset / size, bytes / size, dtype, to, err);
    ddl_safetensors_release(job->w.st, source, offset / size, bytes / size);
    if (status == DDL_E_NUMERIC && err) {
        size_t used = strlen(err->text);
        snprintf(err->text + used, sizeof err->text - used, ": export with --dtype %s",
                 dtype == DDL_F16 ? "bf16 or f32" : "f32");
    }
    return status ? ddl_error_prefix(err, status, ddl_safetensors_path(job->w.st, source)) : DDL_OK;
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
    for (size_t first = 0, last; first < job->n && !status; first = last) {
        char name[FILE_NAME], path[PATH_SIZE];
        struct slice slice = { job, first };
        for (last = first; last < job->n && job->file_of[last] == job->file_of[first];)
            last++;
        file_name(job, job->file_of[first], name);
        if (!path_of(path, folder, name, err))
            return DDL_E_USAGE;
        status = ddl_safetensors_write_with_metadata(path, job->notes.list, job->notes.n, job->plan + first,
                                                     last - first, fill, &slice, err);
    }
    return status;
}

static uint64_t total_bytes(const struct job *job)
{
    uint64_t total = 0;
    for (size_t i = 0; i < job->n; i++)
        total += job->plan[i].bytes;
    return total;
}

/* The index of several files, as Hugging Face's library writes it. */
static ddl_status write_index(const struct job *job, const char *folder, struct ddl_error *err)
{
    char path[PATH_SIZE];
    if (!path_of(path, folder, "model.safetensors.index.json", err))
        return DDL_E_USAGE;
    json_t *map = json_object();
    for (size_t i = 0; map && i < job->n; i++) {
        char name[FILE_NAME];
        file_name(job, job->file_of[i], name);
        if (json_object_set_new(map, job->plan[i].name, json_string(name)) != 0) {
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
    for (size_t i = 0; i < sizeof companions / sizeof *companions; i++) {
        char source[PATH_SIZE], copy[PATH_SIZE], *bytes;
        size_t size;
        if (!path_of(source, from, companions[i], err) || !path_of(copy, folder, companions[i], err))
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

static ddl_status write_folder(const struct job *job, const struct ddl_config *config, const char *from,
                               const char *folder, struct ddl_error *err)
{
    char path[PATH_SIZE];
    if (!path_of(path, folder, "config.json", err))
        return DDL_E_USAGE;
    ddl_status status = ddl_file_make_dir(folder, err);
    if (!status)
        status = write_tensors(job, folder, err);
    if (!status && job->n_files > 1)
        status = write_index(job, folder, err);
    if (!status)
        status = ddl_config_save(config, path, err);
    if (!status)
        status = copy_companions(from, folder, err);
    return status ? status : ddl_file_sync_dir(folder, err);
}

/* ---- the whole ---- */

static bool is_free(const char *path)
{
    DIR *dir = opendir(path);
    size_t n = 0;
    if (!dir)
        return !ddl_file_exists(path);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n == 2; /* . and .. */
}

/* Written beside its place under another name, then renamed. */
static ddl_status write_whole(const struct job *job, const struct ddl_config *config, const char *from,
                              const char *to, struct ddl_error *err)
{
    char partial[PATH_SIZE];
    size_t length = strlen(to);
    while (length > 1 && to[length - 1] == '/')
        length--;
    if ((size_t)snprintf(partial, sizeof partial, "%.*s.partial-%ld", (int)length, to, (long)getpid()) >=
        1000)
        return ddl_error_set(err, DDL_E_USAGE, "%.200s: the folder's path is too long", to);
    ddl_status status = write_folder(job, config, from, partial, err);
    if (!status && rename(partial, to) != 0)
        status = ddl_file_error(err, to, "rename into place");
    if (!status)
        return ddl_file_sync_parent(partial, err);
    if (ddl_file_is_dir(partial))
        (void)ddl_file_remove_dir(partial, NULL);
    return status;
}

static void close_job(struct job *job)
{
    free(job->plan);
    free(job->source);
    free(job->file_of);
    ddl_weights_close(&job->w);
    free(job);
}

ddl_status ddl_export(const char *from, const char *to, const struct ddl_export_config *config,
                      ddl_warn_fn *warn, void *user, struct ddl_export_result *result, struct ddl_error *err)
{
    const struct ddl_load_options options = { .ignore_extra = config->ignore_extra,
                                              .warn = warn,
                                              .user = user };
    struct ddl_config model;
    *result = (struct ddl_export_result){ 0 };
    ddl_status status = ddl_choice_check("dtype", ddl_export_dtype_names, config->dtype, err);
    if (status)
        return status;
    if (!is_free(to))
        return ddl_error_set(err, DDL_E_USAGE, "%s: exists already; name a new folder", to);
    status = ddl_checkpoint_check_model(from, err);
    if (!status)
        status = ddl_config_load(&model, from, warn, user, err);
    if (status)
        return status;
    struct job *job = calloc(1, sizeof *job);
    if (!job)
        return ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory", to);
    status = ddl_weights_open(&job->w, from, &model, &options, err);
    if (!status)
        status = plan_tensors(job, config, to, err);
    if (!status) {
        plan_files(job, config->max_shard_size);
        ddl_config_notes(&model, &job->notes);
        status = write_whole(job, &model, from, to, err);
    }
    if (!status)
        *result = (struct ddl_export_result){ job->n, job->n_files, total_bytes(job), model };
    close_job(job);
    return status;
}
