#define _POSIX_C_SOURCE 200809L
#include "train/nonfinite/divergence.h"

#include "base/file.h"
#include "base/held.h"
#include "base/json.h"
#include "checkpoint/files.h"
#include "ddl/run.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

enum { PATH_SIZE = 2048, LIMIT = 1 << 16 };

static ddl_status path_of(char path[PATH_SIZE], const char *folder, struct ddl_error *err)
{
    return ddl_path_join(path, PATH_SIZE, folder, ddl_run_file_name(DDL_FILE_DIVERGED))
               ? DDL_OK
               : ddl_error_set(err, DDL_E_USAGE, "%.200s: the path is too long", folder);
}

ddl_status ddl_divergence_write(const char *folder, uint64_t step, const char *message, struct ddl_error *err)
{
    char path[PATH_SIZE];
    ddl_status status = path_of(path, folder, err);
    if (status)
        return status;
    json_t *text = json_string(message); /* NULL where a path in it is not UTF-8 */
    json_t *root = json_pack("{s:I, s:o}", "step", (json_int_t)step, "message",
                             text ? text : json_string("a value is not finite"));
    status = ddl_json_write(path, root, err);
    json_decref(root);
    return status;
}

ddl_status ddl_divergence_remove(const char *folder, struct ddl_error *err)
{
    char path[PATH_SIZE];
    ddl_status status = path_of(path, folder, err);
    if (!status && ddl_held_unlink(path) != 0 && errno != ENOENT)
        status = ddl_file_error(err, path, "remove");
    return status;
}

ddl_status ddl_run_diverged(bool *found, const char *folder, char *out, size_t size, struct ddl_error *err)
{
    char path[PATH_SIZE];
    json_t *root;
    *found = false;
    ddl_status status = path_of(path, folder, err);
    if (status || !ddl_file_exists(path))
        return status;
    status = ddl_json_read(&root, path, LIMIT, err);
    if (status)
        return status;
    const char *message = json_string_value(json_object_get(root, "message"));
    *found = message != NULL;
    snprintf(out, size, "%s", message ? message : "");
    json_decref(root);
    return *found ? DDL_OK
                  : ddl_error_set(err, DDL_E_FORMAT, "%s: message: expected a text, found none", path);
}
