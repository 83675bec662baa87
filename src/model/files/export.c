#include "ddl/export.h"
#include "ddl/option.h"
#include "ddl/train.h"

#include "model/files/folder_writer.h"
#include "model/files/weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const enum ddl_dtype dtypes[] = {
    [DDL_EXPORT_F32] = DDL_F32,
    [DDL_EXPORT_BF16] = DDL_BF16,
    [DDL_EXPORT_F16] = DDL_F16,
};

const char *const ddl_export_dtype_names[] = {
    [DDL_EXPORT_F32] = "f32", [DDL_EXPORT_BF16] = "bf16", [DDL_EXPORT_F16] = "f16", NULL
};

/* One export under way. Tensor i of the plan has the numbers of source[i]. */
struct job {
    struct ddl_weights w;
    struct ddl_tensor *plan;
    const struct ddl_tensor **source;
    size_t n;
};

/* ---- planning ---- */

static ddl_status plan_tensors(struct job *job, const struct ddl_export_config *config, const char *to,
                               struct ddl_error *err)
{
    size_t n = job->w.n + (config->no_lm_head ? 0 : 1), embedding = ddl_weights_embedding(&job->w);
    job->plan = calloc(n, sizeof *job->plan);
    job->source = calloc(n, sizeof *job->source);
    if (!job->plan || !job->source)
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

/* ---- writing ---- */

static ddl_status fill(void *user, size_t i, size_t offset, size_t bytes, void *to, struct ddl_error *err)
{
    const struct job *job = user;
    const struct ddl_tensor *source = job->source[i];
    enum ddl_dtype dtype = job->plan[i].dtype;
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

static uint64_t total_bytes(const struct job *job)
{
    uint64_t total = 0;
    for (size_t i = 0; i < job->n; i++)
        total += job->plan[i].bytes;
    return total;
}

/* ---- the whole ---- */

ddl_status ddl_export(const char *from, const char *to, const struct ddl_export_config *config,
                      ddl_warn_fn *warn, void *user, struct ddl_export_result *result, struct ddl_error *err)
{
    const struct ddl_load_options options = { .ignore_extra = config->ignore_extra,
                                              .warn = warn,
                                              .user = user };
    struct ddl_config model;
    struct job job = { 0 };
    size_t n_files = 0;
    *result = (struct ddl_export_result){ 0 };
    ddl_status status = ddl_choice_check("dtype", ddl_export_dtype_names, config->dtype, err);
    if (!status)
        status = ddl_folder_check_free(to, err);
    if (!status && !config->no_verify)
        status = ddl_checkpoint_check_model(from, err);
    if (!status)
        status = ddl_config_load(&model, from, warn, user, err);
    if (status)
        return status;
    status = ddl_weights_open(&job.w, from, &model, &options, err);
    if (!status)
        status = plan_tensors(&job, config, to, err);
    if (!status) {
        const struct ddl_folder_content content = { .config = &model,
                                                    .tensors = job.plan,
                                                    .n = job.n,
                                                    .fill = fill,
                                                    .user = &job,
                                                    .max_file_size = config->max_shard_size,
                                                    .from = from,
                                                    .extra = config->extra,
                                                    .extra_user = config->extra_user };
        status = ddl_folder_write(&content, to, &n_files, err);
    }
    if (!status)
        *result = (struct ddl_export_result){ job.n, n_files, total_bytes(&job), model };
    free(job.plan);
    free(job.source);
    ddl_weights_close(&job.w);
    return status;
}
