/* The memory and the operations that a run needs. */
#include "train/run/plan.h"

#include "base/mem.h"
#include "ddl/data.h"
#include "ddl/tokenizer.h"
#include "model/pass/measure.h"
#include "ops/ops.h"
#include "train/step/collectives.h"
#include "train/step/exchange.h"
#include "train/step/optim.h"
#include "train/config/run_data.h"
#include "train/log/telemetry.h"
#include "train/config/train_config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Resident before the first tensor: the program and its libraries, except what the backend's memory_estimate
 * counts (measured); and what an MPI library adds. */
enum { BYTES_PROGRAM = 10 << 20, BYTES_MPI = 16 << 20, BYTES_TOKENIZER_ENTRY = 160 };

/* The number of parameters, of numbers in each group, and of all. */
static ddl_status count_params(const struct ddl_config *config, size_t *n, struct ddl_train_plan *out,
                               struct ddl_error *err)
{
    struct ddl_param *rows;
    ddl_status status = ddl_params_plan(config, &rows, n, err);
    if (status)
        return status;
    for (size_t i = 0; i < *n; i++) {
        out->params[rows[i].group] += rows[i].count;
        out->params_total += rows[i].count;
    }
    free(rows);
    return DDL_OK;
}

/* Pages of mapped shards that the run will have touched: crops fall anywhere, so the share of pages that stay
 * untouched falls off exponentially. */
static double shard_pages(const ddl_shards *shards, double sequences, double seq)
{
    double bytes = 0, touched;
    int width = 2;
    for (size_t i = 0; i < ddl_shards_n_files(shards); i++) {
        uint64_t tokens;
        (void)ddl_shards_file(shards, i, &tokens, &width);
        bytes += (double)tokens * width;
    }
    touched = sequences * (seq * width + 4096);
    return bytes * (1 - exp(-touched / bytes));
}

/* Pages of the shards that a run of so many tokens touches. Shards that cannot be opened count as none; the
 * run reports them. */
static double data_bytes(const struct ddl_train_config *t, double tokens)
{
    const double seq = (double)t->seq;
    ddl_shards *train, *val = NULL;
    if (!*t->train_data || ddl_train_open_train(t, &train, NULL))
        return 0;
    double bytes = shard_pages(train, tokens / seq, seq);
    if (t->val_every && !ddl_train_open_val(t, train, &val, NULL) && val)
        bytes += shard_pages(val, (double)t->val_tokens / seq, seq);
    ddl_shards_close(val);
    ddl_shards_close(train);
    return bytes;
}

ddl_status ddl_train_open_backend(const struct ddl_train_config *config, ddl_backend **backend,
                                  struct ddl_error *err)
{
    size_t threads = ddl_comm_threads(config->comm, config->threads);
    if (*backend)
        return DDL_OK;
    return config->device_memory ? ddl_backend_plan(backend, config->backend, config->device_memory, err)
                                 : ddl_backend_create(backend, config->backend, threads, err);
}

/* Memory that the backend will use besides that of the model and its n_params parameters, and memory that it
 * has. */
static ddl_status backend_bytes(const struct ddl_train_config *t, const ddl_backend *backend, size_t n_params,
                                size_t *bytes, size_t *capacity, struct ddl_error *err)
{
    const struct ddl_workspace_options options = ddl_train_workspace(t);
    struct ddl_limits limits = ddl_workspace_limits(&t->config, &options);
    limits.parts = n_params;
    limits.bf16 = t->precision == DDL_PRECISION_BF16;
    *bytes = backend->ops->memory_estimate(backend->ctx, &limits);
    *capacity = backend->ops->memory_capacity(backend->ctx);
    return *bytes < SIZE_MAX ? DDL_OK
                             : ddl_error_set(err, DDL_E_USAGE,
                                             "sequences of %zu tokens do not fit the address space", t->seq);
}

/* Memory of a text sample. A prompt has at most as many tokens as bytes. */
static double sample_bytes(const struct ddl_train_config *t, const ddl_backend *backend)
{
    const struct ddl_generate_config generate = ddl_train_sample(t, 0);
    return t->sample_every ? (double)ddl_generate_bytes(&t->config, (enum ddl_precision)t->precision,
                                                        &generate, strlen(t->sample_prompt), backend)
                           : 0;
}

/* Memory of an evaluation on tasks, without their texts. */
static double tasks_bytes(const struct ddl_train_config *t, const ddl_backend *backend)
{
    return *t->tasks && t->tasks_every
               ? (double)ddl_task_score_bytes(&t->config, (enum ddl_precision)t->precision, backend)
               : 0;
}

/* Of the host, besides what a backend with host memory has. */
static double host_bytes(const struct ddl_train_config *t, size_t n_params)
{
    const struct ddl_share share = ddl_train_share(t, ddl_train_ranks(t) - 1); /* the largest */
    const double buffers = (double)(share.most * share.batch) * (double)t->seq;
    double bytes = BYTES_PROGRAM + (ddl_train_ranks(t) > 1 ? BYTES_MPI : 0) + 4 * 4 * buffers;
    if (t->telemetry_every)
        bytes += (double)ddl_telemetry_bytes(&t->config, share.batch * t->seq, n_params);
    if (*t->tokenizer)
        bytes += BYTES_TOKENIZER_ENTRY * (double)t->config.vocab_size;
    return bytes + data_bytes(t, (double)t->steps * (double)share.n * (double)t->seq);
}

/* What is on the backend besides a step's memory: rotary tables, the optimizer's lists, losses, samples,
 * tasks. If that is the host's memory, the rest of the program too. */
static double other_bytes(const struct ddl_train_config *t, const ddl_backend *backend, size_t n_params)
{
    const struct ddl_share share = ddl_train_share(t, ddl_train_ranks(t) - 1);
    double bytes = 4 * (double)t->seq * (double)ddl_config_rope_dims(&t->config);
    bytes += (double)ddl_optim_list_bytes(n_params) + (double)((1 + share.most) * sizeof(double));
    bytes += fmax(sample_bytes(t, backend), tasks_bytes(t, backend));
    return backend->ops->host_memory ? bytes + host_bytes(t, n_params) : bytes;
}

/* What depends on the number of ranks: moments, and the exchange between them. Without the padding of the
 * flat buffers, which is small. */
static ddl_status plan_ranks(const struct ddl_train_config *t, const ddl_backend *backend,
                             struct ddl_train_plan *out, struct ddl_error *err)
{
    const struct ddl_partition partition =
        ddl_partition_of(out->params_total, t->comm_bucket, ddl_train_ranks(t));
    const enum ddl_comm_dtype dtype = (enum ddl_comm_dtype)t->comm_dtype;
    struct ddl_param *rows;
    size_t n;
    ddl_status status = ddl_params_plan(&t->config, &rows, &n, err);
    if (status)
        return status;
    out->ranks = partition.ranks;
    out->bytes_moments = 8 * ddl_partition_share(&partition, partition.ranks - 1);
    out->bytes_exchange = ddl_exchange_bytes(&partition, dtype, ddl_exchange_in_flight(rows, n, &partition),
                                             backend->ops->host_memory) +
                          ddl_collectives_device_bytes(backend, partition.ranks, dtype);
    out->bytes_sent = (double)ddl_exchange_traffic(&partition, dtype);
    free(rows);
    return DDL_OK;
}

ddl_status ddl_train_plan_on(const struct ddl_train_config *config, ddl_backend **backend,
                             struct ddl_train_plan *out, struct ddl_error *err)
{
    ddl_status status = ddl_train_check(config, err);
    if (status)
        return status;
    const struct ddl_train_config t = ddl_train_resolved(config);
    *out = (struct ddl_train_plan){ 0 };
    size_t n_params, of_backend;
    status = count_params(&t.config, &n_params, out, err);
    if (status)
        return status;
    out->flops_per_token = ddl_config_flops_per_token(&t.config, t.seq, true);
    out->tokens_per_step = (double)t.global_batch * (double)t.seq;
    out->tokens = out->tokens_per_step * (double)t.steps;
    out->flops = out->tokens * out->flops_per_token;
    out->bytes_params = out->bytes_grads = 4 * out->params_total;
    const struct ddl_workspace_options options = ddl_train_workspace(&t);
    status = ddl_train_open_backend(&t, backend, err);
    if (!status)
        status = ddl_workspace_measure(&t.config, (enum ddl_precision)t.precision, &options, *backend,
                                       &out->bytes_workspace, err);
    if (!status)
        status = backend_bytes(&t, *backend, n_params, &of_backend, &out->bytes_capacity, err);
    if (!status)
        status = plan_ranks(&t, *backend, out, err);
    if (status) {
        *out = (struct ddl_train_plan){ 0 };
        return status;
    }
    out->peak_rate = (double)out->ranks * ddl_precision_peak_rate((enum ddl_precision)t.precision, *backend);
    out->bytes_other = (size_t)(other_bytes(&t, *backend, n_params) + (double)of_backend);
    if (t.precision == DDL_PRECISION_BF16)
        out->bytes_params +=
            4 * out->params_total - ddl_config_weight_bytes(&t.config, DDL_PRECISION_BF16, NULL);
    size_t fixed =
        out->bytes_params + out->bytes_grads + out->bytes_moments + out->bytes_exchange + out->bytes_other;
    if (ddl_size_add(fixed, out->bytes_workspace, &out->bytes_total))
        return DDL_OK;
    *out = (struct ddl_train_plan){ 0 };
    return ddl_error_set(err, DDL_E_USAGE, "%zu sequences of %zu tokens do not fit the address space",
                         t.batch, t.seq);
}

ddl_status ddl_train_plan(const struct ddl_train_config *config, struct ddl_train_plan *out,
                          struct ddl_error *err)
{
    ddl_backend *backend = NULL;
    ddl_status status = ddl_train_plan_on(config, &backend, out, err);
    ddl_backend_free(backend);
    return status;
}
