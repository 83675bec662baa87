/* A model in a folder: config.json and model.safetensors (spec 5). */
#include "model/io.h"

#include "base/file.h"
#include "model/internal.h"
#include "tensor/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 1 << 16 }; /* floats on their way between a file and the backend */

static const char head_name[] = "lm_head.weight";

static struct ddl_tensor tensor_of(const struct ddl_param *param)
{
    struct ddl_tensor t = { .name = param->name, .dtype = DDL_F32, .ndim = param->ndim };
    memcpy(t.shape, param->shape, sizeof param->shape);
    return t;
}

static ddl_status check_shape(const ddl_safetensors *st, const ddl_model *model, size_t i,
                              const struct ddl_tensor *found, struct ddl_error *err)
{
    const struct ddl_param *param = &model->params.row[i];
    if (ddl_tensor_has_shape(found, param->ndim, param->shape))
        return DDL_OK;
    const char *path = ddl_safetensors_path(st, found);
    if ((int)i == model->params.slots.wte && found->ndim == 2 && found->shape[1] == param->shape[1])
        return ddl_error_set(err, DDL_E_FORMAT, "%s: %s has %zu rows, config.json says vocab_size %zu", path,
                             param->name, found->shape[0], param->shape[0]);
    char has[160], wanted[160];
    const struct ddl_tensor plan = tensor_of(param);
    ddl_tensor_shape_text(found, has, sizeof has);
    ddl_tensor_shape_text(&plan, wanted, sizeof wanted);
    return ddl_error_set(err, DDL_E_FORMAT, "%s: %s has shape %s, config.json asks for %s", path, param->name,
                         has, wanted);
}

static ddl_status read_one(const ddl_safetensors *st, ddl_model *model, size_t i, const char *folder,
                           float *piece, struct ddl_error *err)
{
    const struct ddl_param *param = &model->params.row[i];
    const struct ddl_tensor *found = ddl_safetensors_find(st, param->name);
    if (!found)
        return ddl_error_set(err, DDL_E_FORMAT, "%s: there is no tensor %s, which config.json asks for",
                             folder, param->name);
    ddl_status status = check_shape(st, model, i, found, err);
    for (size_t at = 0; at < param->count && !status; at += PIECE) {
        size_t n = param->count - at < PIECE ? param->count - at : PIECE;
        status = ddl_tensor_read_f32(found, at, n, piece, err);
        if (status)
            return ddl_error_prefix(err, status, ddl_safetensors_path(st, found));
        model->backend->ops->upload(model->backend->ctx, model->value + model->params.offset[i] + at, piece,
                                    n * sizeof *piece);
    }
    return status;
}

/* NaN equals itself here, and -0 is not 0. */
static bool same_bits(float a, float b)
{
    uint32_t x, y;
    memcpy(&x, &a, sizeof x);
    memcpy(&y, &b, sizeof y);
    return x == y;
}

/* lm_head.weight is the embedding once more, or the file is of a model that is none of ours. */
static ddl_status check_head(const ddl_safetensors *st, const struct ddl_tensor *head,
                             const struct ddl_param *wte, float *piece, struct ddl_error *err)
{
    const struct ddl_tensor *embedding = ddl_safetensors_find(st, wte->name);
    const char *path = ddl_safetensors_path(st, head);
    if (!ddl_tensor_has_shape(head, wte->ndim, wte->shape)) {
        char shape[160];
        ddl_tensor_shape_text(head, shape, sizeof shape);
        return ddl_error_set(err, DDL_E_FORMAT, "%s: %s has shape %s, the embedding it is tied to (%zu, %zu)",
                             path, head_name, shape, wte->shape[0], wte->shape[1]);
    }
    for (size_t at = 0; at < wte->count; at += PIECE / 2) {
        size_t n = wte->count - at < PIECE / 2 ? wte->count - at : PIECE / 2;
        ddl_status status = ddl_tensor_read_f32(head, at, n, piece, err);
        if (!status)
            status = ddl_tensor_read_f32(embedding, at, n, piece + PIECE / 2, err);
        if (status)
            return ddl_error_prefix(err, status, path);
        for (size_t j = 0; j < n; j++) {
            if (!same_bits(piece[j], piece[PIECE / 2 + j]))
                return ddl_error_set(err, DDL_E_FORMAT, "%s: %s differs from %s in row %zu; they are tied",
                                     path, head_name, wte->name, (at + j) / wte->shape[1]);
        }
    }
    return DDL_OK;
}

static bool is_param(const ddl_model *model, const char *name)
{
    for (size_t i = 0; i < model->params.n; i++) {
        if (strcmp(model->params.row[i].name, name) == 0)
            return true;
    }
    return false;
}

/* What stands in the file beyond the parameters. */
static ddl_status check_others(const ddl_safetensors *st, const ddl_model *model, float *piece,
                               ddl_warn_fn *warn, void *user, struct ddl_error *err)
{
    for (size_t i = 0; i < ddl_safetensors_count(st); i++) {
        const struct ddl_tensor *t = ddl_safetensors_at(st, i);
        if (strcmp(t->name, head_name) == 0) {
            ddl_status status = check_head(st, t, &model->params.row[model->params.slots.wte], piece, err);
            if (status)
                return status;
        } else if (warn && !is_param(model, t->name)) {
            struct ddl_error sentence;
            ddl_error_set(&sentence, DDL_OK, "%s: %.200s is no parameter of this model; it is ignored",
                          ddl_safetensors_path(st, t), t->name);
            warn(user, sentence.text);
        }
    }
    return DDL_OK;
}

ddl_status ddl_model_read_weights(ddl_model *model, const char *folder, ddl_warn_fn *warn, void *user,
                                  struct ddl_error *err)
{
    ddl_safetensors *st;
    ddl_status status = ddl_safetensors_open_folder(&st, folder, err);
    if (status)
        return status;
    float *piece = ddl_mem_alloc(PIECE * sizeof *piece);
    if (!piece)
        status = ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory to read its tensors", folder);
    for (size_t i = 0; i < model->params.n && !status; i++)
        status = read_one(st, model, i, folder, piece, err);
    if (!status)
        status = check_others(st, model, piece, warn, user, err);
    ddl_mem_free(piece);
    ddl_safetensors_close(st);
    return status;
}

ddl_status ddl_model_load(ddl_model **out, const char *folder, ddl_backend *backend, ddl_warn_fn *warn,
                          void *user, struct ddl_error *err)
{
    *out = NULL;
    struct ddl_config config;
    ddl_model *model = NULL;
    ddl_status status = ddl_config_load(&config, folder, warn, user, err);
    if (!status)
        status = ddl_model_create(&model, &config, backend, err);
    if (!status)
        status = ddl_model_read_weights(model, folder, warn, user, err);
    if (status) {
        ddl_model_free(model);
        return status;
    }
    *out = model;
    return DDL_OK;
}

/* ---- writing ---- */

static ddl_status fill_from_model(void *user, size_t i, size_t offset, size_t bytes, void *to,
                                  struct ddl_error *err)
{
    (void)err;
    const ddl_model *model = user;
    model->backend->ops->download(model->backend->ctx, to,
                                  model->value + model->params.offset[i] + offset / sizeof(float), bytes);
    return DDL_OK;
}

ddl_status ddl_model_save(const ddl_model *model, const char *folder, struct ddl_error *err)
{
    char config[1024], weights[1024];
    if (!ddl_path_join(config, sizeof config, folder, "config.json") ||
        !ddl_path_join(weights, sizeof weights, folder, "model.safetensors"))
        return ddl_error_set(err, DDL_E_USAGE, "%.200s: the folder's path is too long", folder);
    struct ddl_tensor *plan = malloc(model->params.n * sizeof *plan);
    if (!plan)
        return ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory for its table of tensors", weights);
    for (size_t i = 0; i < model->params.n; i++)
        plan[i] = tensor_of(&model->params.row[i]);
    ddl_status status =
        ddl_safetensors_write(weights, plan, model->params.n, fill_from_model, (void *)(uintptr_t)model, err);
    free(plan);
    return status ? status : ddl_config_save(&model->config, config, err);
}
