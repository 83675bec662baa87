#define _POSIX_C_SOURCE 200809L
#include "run/checkpoint.h"

#include "base/file.h"
#include "base/mem.h"
#include "model/io.h"
#include "run/checkpoint_state.h"
#include "tensor/safetensors.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_SIZE = 1280, PIECE = 1 << 16 };

static const char finished_prefix[] = "checkpoint-", partial_prefix[] = ".checkpoint-";
static const char optimizer_file[] = "optimizer.safetensors";

/* ---- folders ---- */

/* The step in "checkpoint-<step>", or UINT64_MAX for any other name. */
static uint64_t step_of(const char *name)
{
    size_t prefix = sizeof finished_prefix - 1;
    if (strncmp(name, finished_prefix, prefix) != 0)
        return UINT64_MAX;
    const char *digits = name + prefix;
    size_t n = strspn(digits, "0123456789");
    return n > 0 && n < 20 && digits[n] == '\0' ? strtoull(digits, NULL, 10) : UINT64_MAX;
}

static bool is_partial(const char *name)
{
    return strncmp(name, partial_prefix, sizeof partial_prefix - 1) == 0;
}

/* Removes a folder of plain files. */
static ddl_status remove_folder(const char *path, struct ddl_error *err)
{
    DIR *dir = opendir(path);
    if (!dir)
        return ddl_error_set(err, DDL_E_IO, "%s: cannot open folder: %s", path, strerror(errno));
    for (struct dirent *entry; (entry = readdir(dir));) {
        char file[PATH_SIZE];
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
            ddl_path_join(file, sizeof file, path, entry->d_name))
            (void)unlink(file); /* what stays shows in rmdir */
    }
    closedir(dir);
    if (rmdir(path) != 0)
        return ddl_error_set(err, DDL_E_IO, "%s: cannot remove folder: %s", path, strerror(errno));
    return DDL_OK;
}

/* Removes the folders in `out` that `chosen` picks. */
static ddl_status remove_chosen(const char *out, bool (*chosen)(const char *name, uint64_t limit),
                                uint64_t limit, struct ddl_error *err)
{
    DIR *dir = opendir(out);
    if (!dir)
        return DDL_OK;
    ddl_status status = DDL_OK;
    for (struct dirent *entry; !status && (entry = readdir(dir));) {
        char path[PATH_SIZE];
        if (chosen(entry->d_name, limit) && ddl_path_join(path, sizeof path, out, entry->d_name))
            status = remove_folder(path, err);
    }
    closedir(dir);
    return status;
}

static bool choose_partial(const char *name, uint64_t limit)
{
    (void)limit;
    return is_partial(name);
}

static bool choose_all(const char *name, uint64_t limit)
{
    (void)limit;
    return is_partial(name) || step_of(name) != UINT64_MAX;
}

static bool choose_older(const char *name, uint64_t limit)
{
    return step_of(name) < limit;
}

ddl_status ddl_checkpoint_remove_partial(const char *out, struct ddl_error *err)
{
    return remove_chosen(out, choose_partial, 0, err);
}

ddl_status ddl_checkpoint_remove_all(const char *out, struct ddl_error *err)
{
    return remove_chosen(out, choose_all, 0, err);
}

/* The newest checkpoint's step below `limit`, or UINT64_MAX. */
static uint64_t newest_below(const char *out, uint64_t limit)
{
    uint64_t newest = UINT64_MAX;
    DIR *dir = opendir(out);
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        uint64_t step = step_of(entry->d_name);
        if (step < limit && (newest == UINT64_MAX || step > newest))
            newest = step;
    }
    if (dir)
        closedir(dir);
    return newest;
}

static bool folder_of(const char *out, const char *prefix, uint64_t step, char *path, size_t size)
{
    char name[64];
    snprintf(name, sizeof name, "%s%llu", prefix, (unsigned long long)step);
    return ddl_path_join(path, size, out, name);
}

bool ddl_checkpoint_newest(const char *out, uint64_t before, uint64_t *step, char *path, size_t size)
{
    uint64_t newest = newest_below(out, before);
    if (step)
        *step = newest;
    return newest != UINT64_MAX && folder_of(out, finished_prefix, newest, path, size);
}

/* All up to `step_saved` but the newest keep_last. Later ones belong to a future that was passed over as
 * damaged: they neither count nor go. */
static ddl_status remove_old(const char *out, uint64_t step_saved, size_t keep_last, struct ddl_error *err)
{
    uint64_t oldest = step_saved + 1;
    for (size_t i = 0; i < keep_last; i++) {
        uint64_t step = newest_below(out, oldest);
        if (step == UINT64_MAX)
            return DDL_OK;
        oldest = step;
    }
    return keep_last ? remove_chosen(out, choose_older, oldest, err) : DDL_OK;
}

/* ---- moments ---- */

/* Tensor 2i holds the first moments of parameter i, 2i + 1 the second. */
static ddl_status fill_moments(void *user, size_t i, size_t offset, size_t bytes, void *to,
                               struct ddl_error *err)
{
    (void)err;
    const struct ddl_optim *optim = user;
    size_t start = offset / sizeof(float), n = bytes / sizeof(float);
    ddl_optim_read(optim, i / 2, start, n, i % 2 ? NULL : to, i % 2 ? to : NULL);
    return DDL_OK;
}

/* The tensors of the moments, malloc'ed together with their names. */
static struct ddl_tensor *moments_plan(const ddl_model *model)
{
    enum { NAME = 112 };
    size_t n = 2 * ddl_model_n_params(model);
    struct ddl_tensor *plan = calloc(n, sizeof *plan + NAME);
    if (!plan)
        return NULL;
    char *names = (char *)(plan + n);
    for (size_t i = 0; i < n; i++) {
        const struct ddl_param *param = ddl_model_param(model, i / 2);
        char *name = names + i * NAME;
        snprintf(name, NAME, "%s.%s", i % 2 ? "v" : "m", param->name);
        plan[i] = (struct ddl_tensor){ .name = name, .dtype = DDL_F32, .ndim = param->ndim };
        memcpy(plan[i].shape, param->shape, sizeof param->shape);
    }
    return plan;
}

static ddl_status write_moments(const char *folder, const ddl_model *model, const struct ddl_optim *optim,
                                struct ddl_error *err)
{
    char path[PATH_SIZE];
    struct ddl_tensor *plan = moments_plan(model);
    ddl_status status;
    if (!plan)
        status = ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory for its table of tensors", folder);
    else if (!ddl_path_join(path, sizeof path, folder, optimizer_file))
        status = ddl_error_set(err, DDL_E_USAGE, "%s: the path is too long", folder);
    else
        status = ddl_safetensors_write(path, plan, 2 * ddl_model_n_params(model), fill_moments,
                                       (void *)(uintptr_t)optim, err);
    free(plan);
    return status;
}

static ddl_status read_moment(const ddl_safetensors *st, const struct ddl_tensor *plan, size_t i,
                              const char *path, struct ddl_optim *optim, float *piece, struct ddl_error *err)
{
    const struct ddl_tensor *found = ddl_safetensors_find(st, plan->name);
    if (!found || !ddl_tensor_has_shape(found, plan->ndim, plan->shape)) {
        char shape[160];
        ddl_tensor_shape_text(found ? found : plan, shape, sizeof shape);
        return ddl_error_set(err, DDL_E_FORMAT,
                             found ? "%s: %s has shape %s, its parameter another"
                                   : "%s: there is no tensor %s of shape %s",
                             path, plan->name, shape);
    }
    ddl_status status = DDL_OK;
    for (size_t at = 0; at < found->count && !status; at += PIECE) {
        size_t n = found->count - at < PIECE ? found->count - at : PIECE;
        status = ddl_tensor_read_f32(found, at, n, piece, err);
        if (!status)
            ddl_optim_write(optim, i / 2, at, n, i % 2 ? NULL : piece, i % 2 ? piece : NULL);
    }
    return status ? ddl_error_prefix(err, status, path) : DDL_OK;
}

static ddl_status read_moments(const char *folder, const ddl_model *model, struct ddl_optim *optim,
                               struct ddl_error *err)
{
    char path[PATH_SIZE];
    ddl_safetensors *st = NULL;
    struct ddl_tensor *plan = moments_plan(model);
    float *piece = ddl_mem_alloc(PIECE * sizeof *piece);
    ddl_status status = DDL_OK;
    if (!plan || !piece)
        status = ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory to read the moments", folder);
    else if (!ddl_path_join(path, sizeof path, folder, optimizer_file))
        status = ddl_error_set(err, DDL_E_USAGE, "%s: the path is too long", folder);
    else
        status = ddl_safetensors_open(&st, path, err);
    for (size_t i = 0; !status && i < 2 * ddl_model_n_params(model); i++)
        status = read_moment(st, &plan[i], i, path, optim, piece, err);
    ddl_safetensors_close(st);
    ddl_mem_free(piece);
    free(plan);
    return status;
}

/* ---- the whole ---- */

static ddl_status write_folder(const char *folder, const struct ddl_train_config *config,
                               const ddl_model *model, const struct ddl_optim *optim,
                               const ddl_tokenizer *tokenizer, const struct ddl_run_state *state,
                               struct ddl_error *err)
{
    ddl_status status = ddl_file_make_dir(folder, err);
    if (!status)
        status = ddl_model_save(model, folder, err);
    if (!status && tokenizer)
        status = ddl_tokenizer_save(tokenizer, folder, err);
    if (!status)
        status = write_moments(folder, model, optim, err);
    if (!status)
        status = ddl_state_write(folder, config, state, err);
    return status ? status : ddl_file_sync_dir(folder, err);
}

/* The finished folder takes its name; one of an abandoned run that bears it makes room. */
static ddl_status publish(const char *out, const char *partial, const char *path, struct ddl_error *err)
{
    ddl_status status = ddl_file_exists(path) ? remove_folder(path, err) : DDL_OK;
    if (!status && rename(partial, path) != 0)
        status = ddl_error_set(err, DDL_E_IO, "%s: cannot rename into place: %s", path, strerror(errno));
    return status ? status : ddl_file_sync_dir(out, err);
}

ddl_status ddl_checkpoint_save(const struct ddl_train_config *config, const ddl_model *model,
                               const struct ddl_optim *optim, const ddl_tokenizer *tokenizer,
                               const struct ddl_run_state *state, char *path, size_t size,
                               struct ddl_error *err)
{
    char partial[PATH_SIZE];
    if (!folder_of(config->out, partial_prefix, state->step, partial, sizeof partial) ||
        !folder_of(config->out, finished_prefix, state->step, path, size))
        return ddl_error_set(err, DDL_E_USAGE, "%.200s: the path is too long", config->out);
    ddl_status status = ddl_checkpoint_remove_partial(config->out, err);
    if (status)
        return status;
    status = write_folder(partial, config, model, optim, tokenizer, state, err);
    if (!status)
        status = publish(config->out, partial, path, err);
    if (status) {
        if (ddl_file_is_dir(partial))
            (void)remove_folder(partial, NULL);
        return status;
    }
    return remove_old(config->out, state->step, config->keep_last, err);
}

ddl_status ddl_checkpoint_read_weights(const char *path, ddl_model *model, struct ddl_optim *optim,
                                       const struct ddl_run_state *state, struct ddl_error *err)
{
    ddl_status status = ddl_model_read_weights(model, path, NULL, NULL, err);
    if (!status)
        status = read_moments(path, model, optim, err);
    if (!status)
        ddl_optim_set_steps(optim, state->step);
    return status;
}
