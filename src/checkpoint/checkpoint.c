#define _POSIX_C_SOURCE 200809L
#include "checkpoint/checkpoint.h"

#include "base/file.h"
#include "base/mem.h"
#include "checkpoint/files.h"
#include "checkpoint/folder.h"
#include "checkpoint/state.h"
#include "model/files/model_io.h"

#include <stdlib.h>
#include <string.h>

enum { PATH_SIZE = 1280, PIECE = 1 << 16 };

/* ---- tensors beside the model's ---- */

static ddl_status tensors_path(char *path, size_t size, const char *folder, struct ddl_error *err)
{
    if (ddl_path_join(path, size, folder, ddl_run_file_name(DDL_FILE_OPTIMIZER)))
        return DDL_OK;
    return ddl_error_set(err, DDL_E_USAGE, "%s: the path is too long", folder);
}

static ddl_status write_tensors(const char *folder, const struct ddl_checkpoint_tensors *t,
                                struct ddl_error *err)
{
    char path[PATH_SIZE];
    ddl_status status = tensors_path(path, sizeof path, folder, err);
    return status ? status : ddl_safetensors_write(path, t->tensor, t->n, t->fill, t->user, err);
}

static ddl_status read_tensor(const ddl_safetensors *st, const struct ddl_checkpoint_tensors *t, size_t i,
                              const char *path, float *piece, struct ddl_error *err)
{
    const struct ddl_tensor *expected = &t->tensor[i], *found = ddl_safetensors_find(st, expected->name);
    if (!found || !ddl_tensor_has_shape(found, expected->ndim, expected->shape)) {
        char shape[160], other[160] = "no such tensor";
        ddl_tensor_shape_text(expected, shape, sizeof shape);
        if (found)
            ddl_tensor_shape_text(found, other, sizeof other);
        return ddl_error_set(err, DDL_E_FORMAT, "%s: tensor %s: expected shape %s, found %s", path,
                             expected->name, shape, other);
    }
    ddl_status status = DDL_OK;
    for (size_t at = 0; at < found->count && !status; at += PIECE) {
        size_t n = found->count - at < PIECE ? found->count - at : PIECE;
        status = ddl_tensor_read_f32(found, at, n, piece, err);
        if (!status)
            t->take(t->user, i, at, n, piece);
    }
    return status ? ddl_error_prefix(err, status, path) : DDL_OK;
}

static ddl_status read_tensors(const char *folder, const struct ddl_checkpoint_tensors *t,
                               struct ddl_error *err)
{
    char path[PATH_SIZE];
    ddl_safetensors *st = NULL;
    float *piece = ddl_mem_alloc(PIECE * sizeof *piece);
    ddl_status status =
        piece ? tensors_path(path, sizeof path, folder, err)
              : ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory to read the moments", folder);
    if (!status)
        status = ddl_safetensors_open(&st, path, err);
    for (size_t i = 0; !status && i < t->n; i++)
        status = read_tensor(st, t, i, path, piece, err);
    ddl_safetensors_close(st);
    ddl_mem_free(piece);
    return status;
}

/* ---- the whole ---- */

static ddl_status write_folder(const char *folder, const struct ddl_checkpoint_content *content,
                               struct ddl_error *err)
{
    ddl_status status = ddl_file_make_only_dir(folder, err);
    if (!status)
        status = ddl_model_save_files(content->model, folder, err);
    if (!status && content->tokenizer)
        status = ddl_tokenizer_save(content->tokenizer, folder, err);
    if (!status)
        status = write_tensors(folder, content->tensors, err);
    if (!status)
        status = ddl_state_write(folder, content->state, err);
    return status ? status : ddl_file_sync_dir(folder, err);
}

ddl_status ddl_checkpoint_save(const char *out, uint64_t step, const struct ddl_checkpoint_content *content,
                               char *path, size_t size, struct ddl_error *err)
{
    char partial[PATH_SIZE];
    if (!ddl_checkpoint_path(out, step, true, partial, sizeof partial) ||
        !ddl_checkpoint_path(out, step, false, path, size))
        return ddl_error_set(err, DDL_E_USAGE, "%.200s: the path is too long", out);
    ddl_status status = ddl_checkpoint_clear(out, partial, err);
    if (!status)
        status = write_folder(partial, content, err);
    if (!status)
        status = ddl_checkpoint_publish(out, partial, path, err);
    if (status)
        ddl_checkpoint_discard(partial); /* frees the space on a full disk */
    return status;
}

ddl_status ddl_checkpoint_take_newest(const char *out, ddl_checkpoint_fn *take, void *user, ddl_warn_fn *note,
                                      void *note_user, char *path, size_t size, struct ddl_error *err)
{
    struct ddl_error newest = { 0 }, why = { 0 }, message;
    struct ddl_checkpoint *list;
    size_t n;
    ddl_status status = ddl_checkpoint_list(out, &list, &n, err);
    if (status)
        return status;
    if (n == 0)
        return ddl_error_set(err, DDL_E_IO, "%.600s: no checkpoint to resume from", out);
    for (size_t i = n; i-- > 0;) {
        why = (struct ddl_error){ 0 };
        status = ddl_checkpoint_path(out, list[i].step, false, path, size)
                     ? take(user, path, &why)
                     : ddl_error_set(&why, DDL_E_USAGE, "%.200s: the path is too long", out);
        if (!newest.status)
            newest = why;
        if (status != DDL_E_FORMAT && status != DDL_E_IO)
            break;
        why = newest;
    }
    free(list);
    if (status && err)
        *err = why;
    if (!status && newest.status && note) {
        ddl_error_set(&message, DDL_OK, "%.600s; continuing from %s", newest.text, path);
        note(note_user, message.text);
    }
    return status ? why.status : DDL_OK;
}

ddl_status ddl_checkpoint_read_weights(const char *path, ddl_model *model,
                                       const struct ddl_checkpoint_tensors *tensors, struct ddl_error *err)
{
    ddl_status status = ddl_model_read_weights(model, path, NULL, NULL, err);
    return status ? status : read_tensors(path, tensors, err);
}
