/* What the ranks of a run have in common. Rank 0 alone has the run folder: it looks for an earlier run and
 * writes all files. The others get from it what follows from that, and all compare what they have themselves.
 */
#define _POSIX_C_SOURCE 200809L
#include "train/run/trainer.h"

#include "base/crc32c.h"
#include "base/file.h"
#include "base/plugin.h"
#include "ddl/version.h"
#include "model/params/flat.h"
#include "ops/ops.h"
#include "train/config/train_config.h"
#include "train/run/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool trainer_is_root(const struct run *run)
{
    return ddl_comm_rank(run->config.comm) == 0;
}

ddl_status trainer_agree(const struct run *run, ddl_status status, struct ddl_error *err)
{
    return ddl_comm_agree(run->config.comm, status, err);
}

bool trainer_any(const struct run *run, bool yes)
{
    uint64_t any = yes;
    ddl_comm_max_u64(run->config.comm, 1, &any);
    return any != 0;
}

/* ---- comparing ---- */

/* The checksum of the file with this code. 0 if it cannot be read. */
static uint32_t code_checksum(void)
{
    char path[DDL_PLUGIN_PATH_SIZE];
    struct ddl_file_map map;
    uint32_t checksum = 0;
    if (ddl_plugin_own_file(path) && !ddl_file_map_open(&map, path, NULL)) {
        checksum = ddl_crc32c(map.data, map.size);
        ddl_file_map_close(&map);
    }
    return checksum;
}

/* The backend without the number of its device: "cuda (NVIDIA H100, 9.0, 79.1 GiB)". */
static void describe_backend(const struct ddl_backend *backend, char *out, size_t size)
{
    const char *about = strchr(ddl_backend_description(backend), ' ');
    snprintf(out, size, "%s%s", ddl_backend_name(backend), about ? about : "");
}

/* Differences that change no more than rounding are reported. */
static ddl_status note_hosts(struct run *run, struct ddl_error *err)
{
    struct ddl_error message;
    char backend[192] = "unknown";
    size_t threads = ddl_comm_threads(run->config.comm, run->config.threads);
    if (!ddl_train_open_backend(&run->config, &run->backend, NULL))
        describe_backend(run->backend, backend, sizeof backend);
    ddl_comm_list *list = ddl_comm_list_create();
    ddl_comm_list_add(list, "threads: %zu", threads);
    ddl_comm_list_add(list, "backend: %s", backend);
    ddl_status status = ddl_comm_list_compare(run->config.comm, list, err);
    if (status != DDL_E_USAGE)
        return status;
    ddl_error_set(&message, DDL_OK, "%.900s", err->text);
    trainer_note(run, message.text);
    return DDL_OK;
}

ddl_status trainer_compare_ranks(struct run *run, struct ddl_error *err)
{
    const struct ddl_train_config *t = &run->config;
    if (!t->comm)
        return DDL_OK;
    ddl_comm_list *list = ddl_comm_list_create();
    ddl_comm_list_add(list, "program: %s of %s, checksum %08lx", ddl_version(), DDL_VERSION_DATE,
                      (unsigned long)code_checksum());
    ddl_comm_list_add(list, "resume: %d", t->resume);
    ddl_comm_list_add(list, "overwrite: %d", t->overwrite);
    ddl_comm_list_add(list, "skip: %llu", (unsigned long long)t->skip);
    ddl_comm_list_add_options(list, ddl_train_options(), t);
    ddl_comm_list_add_options(list, ddl_config_options(), &t->config);
    ddl_status status = ddl_comm_list_compare(t->comm, list, err);
    return status ? status : note_hosts(run, err);
}

static void add_shards(ddl_comm_list *list, const char *key, const ddl_shards *shards)
{
    const struct ddl_data_identity id = ddl_train_data_identity(shards);
    if (shards)
        ddl_comm_list_add(list, "%s: %zu files with %llu tokens, checksum of a sample %08lx", key,
                          ddl_shards_n_files(shards), (unsigned long long)id.tokens,
                          (unsigned long)id.sample);
}

ddl_status trainer_compare_data(const struct run *run, struct ddl_error *err)
{
    if (!run->config.comm)
        return DDL_OK;
    ddl_comm_list *list = ddl_comm_list_create();
    add_shards(list, "train_data", run->train);
    add_shards(list, "val_data", run->val);
    ddl_comm_list_add(list, "tokenizer: %zu tokens, SHA-256 %s", run->identity.vocab_size,
                      run->identity.sha256);
    return ddl_comm_list_compare(run->config.comm, list, err);
}

ddl_status trainer_compare_model(const struct run *run, struct ddl_error *err)
{
    enum { PIECE = 1 << 14 };
    float host[PIECE];
    if (!run->config.comm)
        return DDL_OK;
    const ddl_backend *backend = ddl_model_backend(run->model);
    ddl_comm_list *list = ddl_comm_list_create();
    for (size_t i = 0; i < ddl_model_n_params(run->model); i++) {
        const struct ddl_param *param = ddl_model_param(run->model, i);
        const float *values = ddl_model_flat_param(run->model, i).value;
        uint32_t checksums[2] = { 0 };
        for (size_t at = 0, n; at < param->count; at += n) {
            n = param->count - at < PIECE ? param->count - at : PIECE;
            backend->ops->download(backend->ctx, host, values + at, n * sizeof *host);
            checksums[1] = ddl_crc32c(host, n * sizeof *host);
            checksums[0] = ddl_crc32c(checksums, sizeof checksums);
        }
        ddl_comm_list_add(list, "parameter %s: checksum %08lx", param->name, (unsigned long)checksums[0]);
    }
    ddl_status status = trainer_agree(run, backend->ops->check_error(backend->ctx, err), err);
    struct ddl_error later;
    ddl_status same = ddl_comm_list_compare(run->config.comm, list, status ? &later : err);
    return status ? status : same;
}

/* ---- what follows from the run folder ---- */

/* Processes of one program and one configuration: values are copied as they are in memory. */
struct start {
    struct ddl_train_config config;
    struct ddl_run_state state;
    uint64_t saved_step;
    char checkpoint[RUN_PATH_SIZE];
};

ddl_status trainer_share_start(struct run *run, struct ddl_error *err)
{
    const struct ddl_train_config own = run->config;
    struct start *start = calloc(1, sizeof *start);
    ddl_status status = start ? DDL_OK : ddl_error_set(err, DDL_E_MEMORY, "out of memory to start the ranks");
    status = trainer_agree(run, status, err);
    if (!status) {
        start->config = run->config;
        start->state = run->state;
        start->saved_step = run->saved_step;
        memcpy(start->checkpoint, run->checkpoint, sizeof start->checkpoint);
        ddl_comm_broadcast(own.comm, 0, sizeof *start, start);
        run->config = start->config;
        run->config.comm = own.comm;
        run->config.threads = own.threads;
        run->state = start->state;
        run->saved_step = start->saved_step;
        memcpy(run->checkpoint, start->checkpoint, sizeof run->checkpoint);
    }
    free(start);
    return status;
}
