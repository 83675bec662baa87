#define _POSIX_C_SOURCE 200809L
#include "data/publish.h"

#include "base/file.h"
#include "data/shard_format.h"

#include <stdio.h>
#include <unistd.h>

static bool is_shard(void *user, const char *name)
{
    (void)user;
    return ddl_shard_name_fits(name);
}

static bool is_built_shard(void *user, const char *name)
{
    (void)user;
    return ddl_shard_is_built(name);
}

ddl_status ddl_publish_check(const char *out, bool overwrite, struct ddl_error *err)
{
    struct ddl_file_names list;
    ddl_status status = ddl_file_list(&list, out, is_shard, NULL, err);
    for (size_t i = 0; !status && i < list.n; i++) {
        const char *name = list.names[i];
        if (!ddl_shard_is_built(name))
            status =
                ddl_error_set(err, DDL_E_USAGE,
                              "%s: contains %s, which is not from a build: choose another folder", out, name);
        else if (!overwrite)
            status = ddl_error_set(err, DDL_E_USAGE,
                                   "%s: already has shards (%s): choose another folder or use --overwrite",
                                   out, name);
    }
    ddl_file_names_free(&list);
    return status;
}

static bool is_built_mask(void *user, const char *name)
{
    (void)user;
    return ddl_mask_is_built(name);
}

/* Calls `act` with the path of each file of the kind in the folder `from` and its path in `to`, until there
 * is none. */
static ddl_status
for_all_files(bool (*is_kind)(void *user, const char *name), const char *from, const char *to,
              ddl_status (*act)(const char *path, const char *target, struct ddl_error *err),
              struct ddl_error *err)
{
    ddl_status status = DDL_OK;
    for (size_t found = 1; found > 0 && !status;) { /* another process may add some meanwhile */
        struct ddl_file_names list;
        status = ddl_file_list(&list, from, is_kind, NULL, err);
        for (size_t i = 0; !status && i < list.n; i++) {
            char path[2048], target[2048];
            ddl_path_join(path, sizeof path, from, list.names[i]);
            ddl_path_join(target, sizeof target, to, list.names[i]);
            status = act(path, target, err);
        }
        found = list.n;
        ddl_file_names_free(&list);
    }
    return status;
}

static ddl_status remove_shard(const char *path, const char *target, struct ddl_error *err)
{
    (void)target;
    return unlink(path) == 0 ? DDL_OK : ddl_file_error(err, path, "remove");
}

static ddl_status move(const char *path, const char *target, struct ddl_error *err)
{
    return rename(path, target) == 0 ? DDL_OK : ddl_file_error(err, target, "move into place");
}

/* Removes the shards of an earlier build, their record first and their masks last: an interruption leaves
 * fewer shards, never a mixture of two builds. */
static ddl_status remove_old(const char *out, struct ddl_error *err)
{
    char record[2048];
    ddl_path_join(record, sizeof record, out, DDL_SHARD_RECORD);
    if (unlink(record) != 0 && ddl_file_exists(record))
        return ddl_file_error(err, record, "remove");
    ddl_status status = for_all_files(is_built_shard, out, out, remove_shard, err);
    if (!status)
        status = for_all_files(is_built_mask, out, out, remove_shard, err);
    return status ? status : ddl_file_sync_dir(out, err);
}

ddl_status ddl_publish_begin(const struct ddl_build_folder *f, bool overwrite, struct ddl_error *err)
{
    char shards[DDL_BUILD_PATH], ready[DDL_BUILD_PATH];
    ddl_build_folder_file(f, DDL_BUILD_SHARDS, shards);
    ddl_build_folder_file(f, DDL_BUILD_READY, ready);
    /* Another program may have created shards in the meantime. */
    ddl_status status = ddl_publish_check(f->out, overwrite, err);
    if (!status)
        status = remove_old(f->out, err);
    if (!status)
        status = move(shards, ready, err);
    return status ? status : ddl_file_sync_dir(f->path, err);
}

bool ddl_publish_pending(const struct ddl_build_folder *f)
{
    return ddl_build_folder_has(f, DDL_BUILD_READY);
}

ddl_status ddl_publish_finish(const struct ddl_build_folder *f, struct ddl_error *err)
{
    char ready[DDL_BUILD_PATH], from[2048], to[2048];
    ddl_build_folder_file(f, DDL_BUILD_READY, ready);
    ddl_path_join(from, sizeof from, ready, DDL_SHARD_RECORD);
    ddl_path_join(to, sizeof to, f->out, DDL_SHARD_RECORD);
    ddl_status status = ddl_file_check_no_link(ready, err);
    if (!status) /* first: a shard is never without its mask */
        status = for_all_files(is_built_mask, ready, f->out, move, err);
    if (!status)
        status = for_all_files(is_built_shard, ready, f->out, move, err);
    if (!status)
        status = ddl_file_sync_dir(f->out, err);
    if (!status)
        status = ddl_build_folder_clear(f, err);
    if (!status && ddl_file_exists(from))
        status = move(from, to, err);
    if (!status)
        status = ddl_file_sync_dir(f->out, err);
    return status ? status : ddl_file_remove_dir(ready, err);
}
