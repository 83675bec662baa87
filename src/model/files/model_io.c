/* A model in a folder: config.json and model.safetensors (docs/formats.md). Settings that the
 * release's keys cannot express are in the __metadata__ of the latter. */
#include "model/files/model_io.h"

#include "base/crc32c.h"
#include "base/file.h"
#include "base/mem.h"
#include "model/files/config_json.h"
#include "model/files/config_metadata.h"
#include "model/pass/pass.h"
#include "model/params/precision.h"
#include "model/files/sums.h"
#include "model/files/weights.h"

#include <stdlib.h>
#include <string.h>

static const char config_file[] = "config.json", weights_file[] = "model.safetensors";

static ddl_status read_one(const struct ddl_weights *w, ddl_model *model, size_t i, float *piece,
                           struct ddl_error *err)
{
    const struct ddl_tensor *found = w->tensor[i];
    size_t most = precision_piece(model, i);
    for (size_t at = 0; at < found->count; at += most) {
        size_t n = found->count - at < most ? found->count - at : most;
        ddl_status status = ddl_tensor_read_f32(found, at, n, piece, err);
        if (status)
            return ddl_error_prefix(err, status, ddl_safetensors_path(w->st, found));
        precision_write(model, i, at, n, piece);
        ddl_safetensors_release(w->st, found, at, n);
    }
    return DDL_OK;
}

static ddl_status read_all(const struct ddl_weights *w, ddl_model *model, const char *folder,
                           struct ddl_error *err)
{
    float *piece = ddl_mem_alloc(precision_largest_piece(model) * sizeof *piece);
    ddl_status status =
        piece ? DDL_OK : ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory to read its tensors", folder);
    for (size_t i = 0; i < w->n && !status; i++)
        status = read_one(w, model, i, piece, err);
    ddl_mem_free(piece);
    return status;
}

static ddl_status verify(const char *folder, const struct ddl_load_options *options, struct ddl_error *err)
{
    return options && options->no_verify ? DDL_OK : ddl_model_sums_check(folder, err);
}

ddl_status ddl_model_read_weights_with(ddl_model *model, const char *folder,
                                       const struct ddl_load_options *options, struct ddl_error *err)
{
    struct ddl_weights w = { 0 };
    ddl_status status = verify(folder, options, err);
    if (!status)
        status = ddl_weights_open(&w, folder, &model->config, options, err);
    if (!status)
        status = read_all(&w, model, folder, err);
    ddl_weights_close(&w);
    return status;
}

ddl_status ddl_model_read_weights(ddl_model *model, const char *folder, ddl_warn_fn *warn, void *user,
                                  struct ddl_error *err)
{
    const struct ddl_load_options options = { .warn = warn, .user = user };
    return ddl_model_read_weights_with(model, folder, &options, err);
}

ddl_status ddl_model_check_weights(const struct ddl_config *config, const char *folder,
                                   const struct ddl_load_options *options, struct ddl_error *err)
{
    struct ddl_weights w = { 0 };
    ddl_status status = ddl_weights_open(&w, folder, config, options, err);
    ddl_weights_close(&w);
    return status;
}

ddl_status ddl_model_load_with(ddl_model **out, const char *folder, ddl_backend *backend,
                               const struct ddl_load_options *options, struct ddl_error *err)
{
    *out = NULL;
    struct ddl_config config;
    struct ddl_weights w = { 0 };
    ddl_model *model = NULL;
    ddl_status status = verify(folder, options, err);
    if (!status)
        status = ddl_config_load(&config, folder, options ? options->warn : NULL,
                                 options ? options->user : NULL, err);
    /* First the tensors: config.json alone must not make the model claim memory. */
    if (!status)
        status = ddl_weights_open(&w, folder, &config, options, err);
    if (!status)
        status = ddl_model_create_for_inference(
            &model, &config, options ? options->precision : DDL_PRECISION_F32, backend, err);
    if (!status)
        status = read_all(&w, model, folder, err);
    ddl_weights_close(&w);
    if (status) {
        ddl_model_free(model);
        return status;
    }
    *out = model;
    return DDL_OK;
}

ddl_status ddl_model_load(ddl_model **out, const char *folder, ddl_backend *backend, ddl_warn_fn *warn,
                          void *user, struct ddl_error *err)
{
    const struct ddl_load_options options = { .warn = warn, .user = user };
    return ddl_model_load_with(out, folder, backend, &options, err);
}

/* ---- writing ---- */

/* Row n is the head: the embedding, which is row `wte`, once more. */
static size_t row_of(const ddl_model *model, size_t i)
{
    return i < model->params.n ? i : (size_t)model->params.model.wte;
}

static ddl_status fill_from_model(void *user, size_t i, size_t offset, size_t bytes, void *to,
                                  struct ddl_error *err)
{
    const ddl_model *model = user;
    const float *value = model->value + model->params.offset[row_of(model, i)];
    return ddl_download(model->backend, to, value + offset / sizeof(float), bytes, err);
}

/* The files of a model, complete under temporary names. */
struct prepared {
    struct ddl_safetensors_output weights;
    struct ddl_file_writer config;
    struct ddl_config_text config_text;
};

static ddl_status prepare_weights(struct prepared *p, const ddl_model *model, const char *path,
                                  const struct ddl_safetensors_metadata *entry, struct ddl_error *err)
{
    size_t n = model->params.n + 1;
    struct ddl_tensor *plan = malloc(n * sizeof *plan);
    if (!plan)
        return ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory for its table of tensors", path);
    for (size_t i = 0; i < n; i++) {
        const struct ddl_param *param = &model->params.row[row_of(model, i)];
        plan[i] = (struct ddl_tensor){ .name = param->name, .dtype = DDL_F32, .ndim = param->ndim };
        memcpy(plan[i].shape, param->shape, sizeof param->shape);
    }
    plan[n - 1].name = ddl_head_name;
    struct ddl_config_metadata notes;
    ddl_config_metadata(&model->config, &notes);
    if (entry)
        notes.list[notes.n++] = *entry;
    const struct ddl_safetensors_content content = { notes.list, notes.n,         plan,
                                                     n,          fill_from_model, (void *)(uintptr_t)model };
    ddl_status status = ddl_safetensors_prepare(&p->weights, path, &content, err);
    free(plan);
    return status;
}

static ddl_status prepare_config(struct prepared *p, const ddl_model *model, const char *path,
                                 struct ddl_error *err)
{
    ddl_status status = ddl_config_text(&p->config_text, &model->config, path, err);
    if (!status)
        status = ddl_file_writer_begin(&p->config, path, err);
    if (status)
        return status;
    status = ddl_file_writer_write(&p->config, p->config_text.bytes, p->config_text.used, err);
    return status ? status : ddl_file_writer_finish(&p->config, err);
}

static ddl_status prepare(struct prepared *p, const ddl_model *model, const char *folder,
                          const struct ddl_safetensors_metadata *entry, struct ddl_error *err)
{
    char config[1024], weights[1024];
    *p = (struct prepared){ 0 };
    ddl_status status = precision_check_values(model, "to save, load", err);
    if (status)
        return status;
    if (!ddl_path_join(config, sizeof config, folder, config_file) ||
        !ddl_path_join(weights, sizeof weights, folder, weights_file))
        return ddl_error_set(err, DDL_E_USAGE, "%.200s: the folder's path is too long", folder);
    status = prepare_weights(p, model, weights, entry, err);
    return status ? status : prepare_config(p, model, config, err);
}

static ddl_status publish(struct prepared *p, struct ddl_error *err)
{
    ddl_status status = ddl_file_writer_publish(&p->weights.writer, err);
    return status ? status : ddl_file_writer_publish(&p->config, err);
}

static void discard(struct prepared *p)
{
    ddl_file_writer_discard(&p->weights.writer);
    ddl_file_writer_discard(&p->config);
}

ddl_status ddl_model_save_files(const ddl_model *model, const char *folder, struct ddl_error *err)
{
    struct prepared p;
    ddl_status status = prepare(&p, model, folder, NULL, err);
    if (!status)
        status = publish(&p, err);
    discard(&p);
    return status;
}

/* An earlier model in the folder stays valid until the new one has replaced it: while its files are replaced,
 * checksums.json has the checksums of both. Without one the checksums come before config.json, which
 * completes a model, so that no model is complete without them. */
ddl_status ddl_model_save_with(const ddl_model *model, const char *folder,
                               const struct ddl_safetensors_metadata *entry, struct ddl_error *err)
{
    struct prepared p;
    struct ddl_model_sums sums = { 0 };
    ddl_status status = prepare(&p, model, folder, entry, err);
    if (!status)
        status = ddl_model_sums_begin(&sums, folder, err);
    if (!status)
        status = ddl_model_sums_put(&sums, config_file, p.config_text.used,
                                    ddl_crc32c(p.config_text.bytes, p.config_text.used), err);
    if (!status)
        status = ddl_model_sums_put(&sums, weights_file, p.weights.size, p.weights.crc32c, err);
    const bool is_first = !status && !sums.previous && !ddl_file_exists(p.config.path);
    if (!status && (sums.previous || is_first))
        status = ddl_model_sums_write(&sums, folder, true, err);
    if (!status)
        status = publish(&p, err);
    if (!status && !is_first)
        status = ddl_model_sums_write(&sums, folder, false, err);
    discard(&p);
    ddl_model_sums_end(&sums);
    return status;
}

ddl_status ddl_model_save(const ddl_model *model, const char *folder, struct ddl_error *err)
{
    return ddl_model_save_with(model, folder, NULL, err);
}
