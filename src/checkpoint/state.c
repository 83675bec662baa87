#define _POSIX_C_SOURCE 200809L
#include "checkpoint/state.h"

#include "base/file.h"
#include "base/json.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/files.h"
#include "model/files/sums.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_STATE = 1 << 20, VERSION = 2, PATH_SIZE = 1280 };

static const char sums_key[] = "files";

static ddl_status path_of(char *path, size_t size, const char *folder, struct ddl_error *err)
{
    if (ddl_path_join(path, size, folder, ddl_run_file_name(DDL_FILE_STATE)))
        return DDL_OK;
    return ddl_error_set(err, DDL_E_USAGE, "%.200s: the path is too long", folder);
}

ddl_status ddl_state_take_sums(const char *folder, json_t **sums, struct ddl_error *err)
{
    *sums = json_object();
    ddl_status status =
        *sums ? DDL_OK : ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory for its checksums", folder);
    for (enum ddl_run_file i = 0; i < DDL_RUN_FILES && !status; i++) {
        if (ddl_run_file_is(i, DDL_IS_SUMMED)) /* a run may have no tokenizer */
            status = ddl_sums_take(*sums, folder, ddl_run_file_name(i), DDL_SUM_CRC32, err);
    }
    if (status) {
        json_decref(*sums);
        *sums = NULL;
    }
    return status;
}

ddl_status ddl_state_write(const char *folder, const json_t *state, struct ddl_error *err)
{
    char path[PATH_SIZE];
    json_t *sums;
    ddl_status status = path_of(path, sizeof path, folder, err);
    if (!status)
        status = ddl_state_take_sums(folder, &sums, err);
    if (status)
        return status;
    json_t *root = json_pack("{s:i}", "version", VERSION);
    bool whole = root && json_object_update(root, (json_t *)(uintptr_t)state) == 0 &&
                 json_object_set(root, sums_key, sums) == 0;
    char *text = whole ? ddl_sums_seal(root) : NULL;
    status = text ? ddl_file_replace(path, text, strlen(text), err)
                  : ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory", path);
    free(text);
    json_decref(sums);
    json_decref(root);
    return status;
}

/* A folder with the name of a checkpoint has the state of that step. */
static ddl_status check_name(const char *folder, const json_t *state, struct ddl_error *err)
{
    const json_t *step = json_object_get(state, "step");
    uint64_t named = ddl_checkpoint_step(folder);
    if (named == UINT64_MAX || (json_is_integer(step) && (uint64_t)json_integer_value(step) == named))
        return DDL_OK;
    return ddl_error_set(err, DDL_E_FORMAT,
                         "%s: renamed or corrupted: expected the state of step %llu, found that of step %lld",
                         folder, (unsigned long long)named, (long long)json_integer_value(step));
}

ddl_status ddl_checkpoint_read_state(const char *folder, json_t **state, struct ddl_error *err)
{
    char path[PATH_SIZE], *text = NULL;
    size_t size;
    *state = NULL;
    ddl_status status = path_of(path, sizeof path, folder, err);
    if (!status)
        status = ddl_file_read(path, MAX_STATE, &text, &size, err);
    if (status)
        return status;
    status = ddl_sums_check_seal(path, text, size, err);
    if (!status)
        status = ddl_json_parse_file(state, path, text, size, MAX_STATE, err);
    free(text);
    const json_t *version = json_object_get(*state, "version");
    if (!status && !json_is_integer(version))
        status = ddl_error_set(err, DDL_E_FORMAT, "%s: version is missing or not a whole number", path);
    else if (!status && json_integer_value(version) != VERSION)
        status = ddl_error_set(err, DDL_E_UNSUPPORTED, "%s: version %lld, this program reads %d", path,
                               (long long)json_integer_value(version), VERSION);
    if (!status)
        status = check_name(folder, *state, err);
    if (status) {
        json_decref(*state);
        *state = NULL;
    }
    return status;
}

/* With every file but `except` (may be NULL) compared with its checksum. */
static ddl_status open_checked(const char *folder, const char *except, json_t **state, struct ddl_error *err)
{
    ddl_status status = ddl_checkpoint_read_state(folder, state, err);
    if (status)
        return status;
    json_t *sums = json_object_get(*state, sums_key);
    if (except)
        (void)json_object_del(sums, except);
    status = ddl_sums_check(folder, ddl_run_file_name(DDL_FILE_STATE), sums, NULL, err);
    if (status) {
        json_decref(*state);
        *state = NULL;
    }
    return status;
}

ddl_status ddl_checkpoint_open(const char *path, json_t **state, struct ddl_error *err)
{
    return open_checked(path, NULL, state, err);
}

ddl_status ddl_checkpoint_check(const char *folder, struct ddl_error *err)
{
    json_t *state;
    ddl_status status = open_checked(folder, NULL, &state, err);
    json_decref(state);
    return status;
}

ddl_status ddl_checkpoint_check_model(const char *folder, struct ddl_error *err)
{
    char path[PATH_SIZE];
    json_t *state;
    if (path_of(path, sizeof path, folder, NULL) || !ddl_file_exists(path))
        return ddl_model_sums_check(folder, err); /* not a checkpoint */
    ddl_status status = open_checked(folder, ddl_run_file_name(DDL_FILE_OPTIMIZER), &state, err);
    json_decref(state);
    return status;
}

ddl_status ddl_checkpoint_check_file(const char *folder, const char *name, struct ddl_error *err)
{
    char path[PATH_SIZE];
    json_t *state;
    if (path_of(path, sizeof path, folder, NULL) || !ddl_file_exists(path))
        return ddl_model_sums_check_file(folder, name, err); /* not a checkpoint */
    ddl_status status = ddl_checkpoint_read_state(folder, &state, err);
    if (!status)
        status = ddl_sums_check(folder, ddl_run_file_name(DDL_FILE_STATE), json_object_get(state, sums_key),
                                name, err);
    json_decref(state);
    return status;
}
