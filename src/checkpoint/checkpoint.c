#define _POSIX_C_SOURCE 200809L
#include "checkpoint/checkpoint.h"

#include "base/file.h"
#include "base/mem.h"
#include "model/load.h"
#include "checkpoint/folder.h"
#include "checkpoint/state.h"
#include "tensor/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_SIZE = 1280, PIECE = 1 << 16 };

static const char optimizer_file[] = "optimizer.safetensors";

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

ddl_status ddl_checkpoint_save(const struct ddl_train_config *config, const ddl_model *model,
                               const struct ddl_optim *optim, const ddl_tokenizer *tokenizer,
                               const struct ddl_run_state *state, char *path, size_t size,
                               struct ddl_error *err)
{
    char partial[PATH_SIZE];
    if (!ddl_checkpoint_path(config->out, state->step, true, partial, sizeof partial) ||
        !ddl_checkpoint_path(config->out, state->step, false, path, size))
        return ddl_error_set(err, DDL_E_USAGE, "%.200s: the path is too long", config->out);
    ddl_status status = ddl_checkpoint_remove_partial(config->out, err);
    if (!status)
        status = write_folder(partial, config, model, optim, tokenizer, state, err);
    if (!status)
        status = ddl_checkpoint_publish(config->out, partial, path, err);
    if (status)
        ddl_checkpoint_discard(partial); /* the space is worth more than what is in it */
    return status;
}

ddl_status ddl_checkpoint_read_newest(const struct ddl_train_config *config, struct ddl_run_state *state,
                                      char *path, size_t size, ddl_warn_fn *note, void *user,
                                      struct ddl_error *err)
{
    struct ddl_error first = { 0 }, why = { 0 }, sentence;
    struct ddl_checkpoint *list;
    size_t n;
    ddl_status status = ddl_checkpoint_list(config->out, &list, &n, err);
    if (!status && n == 0)
        status = ddl_error_set(err, DDL_E_IO, "%.600s: no checkpoint to resume from", config->out);
    for (size_t i = n; i-- > 0;) {
        why = (struct ddl_error){ 0 };
        if (ddl_checkpoint_path(config->out, list[i].step, false, path, size))
            status = ddl_checkpoint_read_state(path, config, state, note, user, &why);
        else
            status = ddl_error_set(&why, DDL_E_USAGE, "%.200s: the path is too long", config->out);
        if (!first.status)
            first = why;
        if (status != DDL_E_FORMAT && status != DDL_E_IO)
            break;
        if (i == 0)
            why = first; /* none is whole: the newest is the one to tell of */
    }
    free(list);
    if (n && status)
        *err = why;
    if (!status && first.status && note) {
        ddl_error_set(&sentence, DDL_OK, "%.600s; going on from %s", first.text, path);
        note(user, sentence.text);
    }
    return n && status ? why.status : status;
}

ddl_status ddl_checkpoint_read_weights(const char *path, ddl_model *model, struct ddl_optim *optim,
                                       const struct ddl_run_state *state, struct ddl_error *err)
{
    ddl_status status = ddl_model_read_weights(model, path, NULL, NULL, err);
    if (!status)
        status = read_moments(path, model, optim, err);
    if (!status)
        ddl_optim_set_steps(optim, state->step - state->spike.skipped);
    return status;
}
