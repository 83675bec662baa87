#define _POSIX_C_SOURCE 200809L
#include "data/build_folder.h"

#include "base/file.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LOCK_TRIES = 3000, LOCK_MS = 20, OPEN_TRIES = 100 };

static const char merge_name[] = "merge", lock_name[] = ".lock";

void ddl_build_folder_file(const struct ddl_build_folder *f, const char *name, char path[DDL_BUILD_PATH])
{
    ddl_path_join(path, DDL_BUILD_PATH, f->path, name);
}

bool ddl_build_folder_has(const struct ddl_build_folder *f, const char *name)
{
    char path[DDL_BUILD_PATH];
    ddl_build_folder_file(f, name, path);
    return ddl_file_exists(path);
}

static size_t existing_prefix(const char *path)
{
    char part[1024];
    size_t n = strlen(path);
    memcpy(part, path, n + 1);
    while (n > 0 && !ddl_file_exists(part)) {
        while (n > 0 && part[n - 1] != '/')
            n--;
        while (n > 0 && part[n - 1] == '/')
            n--;
        part[n] = '\0';
    }
    return n;
}

/* Removes the folders created by open, innermost first, if they are empty. */
static void remove_created(const struct ddl_build_folder *f)
{
    char out[1024];
    strcpy(out, f->out);
    for (size_t n = strlen(out); n > f->out_kept; n--) {
        if (out[n] != '\0' && out[n] != '/')
            continue;
        out[n] = '\0';
        if (out[n - 1] != '/' && rmdir(out) != 0)
            break;
    }
}

ddl_status ddl_build_folder_lock(struct ddl_build_folder *f, struct ddl_error *err)
{
    if (f->lock.held)
        return DDL_OK;
    for (int i = 0;; i++) {
        ddl_status status = ddl_lock_take(&f->lock, f->path, err);
        if (!f->lock.busy || i == LOCK_TRIES)
            return status;
        nanosleep(&(struct timespec){ .tv_nsec = LOCK_MS * 1000000L }, NULL);
    }
}

void ddl_build_folder_unlock(struct ddl_build_folder *f)
{
    ddl_lock_release(&f->lock);
}

/* DDL_E_IO, with *busy, if the process of the shard runs; otherwise removes the folder of its lock. */
static ddl_status check_shard(const struct ddl_build_folder *f, const char *name, bool *busy,
                              struct ddl_error *err)
{
    char path[DDL_BUILD_PATH];
    struct ddl_lock lock;
    ddl_build_folder_file(f, name, path);
    ddl_status status = ddl_lock_take(&lock, path, err);
    ddl_lock_release(&lock);
    *busy = lock.busy;
    if (lock.missing) /* the process has just ended */
        return DDL_OK;
    if (!status)
        rmdir(path);
    return status;
}

/* Checks the processes of other shards: all, or those with another number of shards. */
static ddl_status check_others(const struct ddl_build_folder *f, bool all, bool *busy, struct ddl_error *err)
{
    struct ddl_file_names list;
    ddl_status status = ddl_file_list(&list, f->path, NULL, NULL, err);
    for (size_t i = 0; !status && i < list.n; i++) {
        size_t shard, n;
        if (sscanf(list.names[i], "shard-%zu-of-%zu", &shard, &n) == 2 &&
            strcmp(list.names[i], f->mine) != 0 && (all || n != f->n_shards))
            status = check_shard(f, list.names[i], busy, err);
    }
    ddl_file_names_free(&list);
    return status;
}

ddl_status ddl_build_folder_alone(const struct ddl_build_folder *f, bool *busy, struct ddl_error *err)
{
    *busy = false;
    return check_others(f, true, busy, err);
}

static ddl_status make_and_lock(const struct ddl_build_folder *f, const char *name, struct ddl_lock *lock,
                                struct ddl_error *err)
{
    char path[DDL_BUILD_PATH];
    ddl_status status = DDL_OK;
    ddl_build_folder_file(f, name, path);
    for (int i = 0; i < OPEN_TRIES; i++) {
        status = ddl_file_check_no_link(path, err);
        if (!status)
            status = ddl_file_make_dir(path, err);
        if (status)
            return status;
        status = ddl_lock_take(lock, path, err);
        if (!lock->missing)
            return status;
        /* The process that held it has removed the folder of the lock. */
    }
    return status;
}

/* Makes the folder and locks it. */
static ddl_status make_folder(struct ddl_build_folder *f, struct ddl_error *err)
{
    ddl_status status = DDL_OK;
    for (int i = 0; i < OPEN_TRIES; i++) {
        status = ddl_file_make_dir(f->out, err);
        if (!status)
            status = ddl_file_check_no_link(f->path, err);
        if (!status)
            status = ddl_file_make_dir(f->path, err);
        if (status)
            return status;
        status = ddl_build_folder_lock(f, err);
        if (!f->lock.missing)
            return status;
        /* Another process has removed the folder: it has ended the build, or found it complete. */
    }
    return status;
}

ddl_status ddl_build_folder_open(struct ddl_build_folder *f, const char *out, size_t shard, size_t n_shards,
                                 struct ddl_error *err)
{
    *f = (struct ddl_build_folder){ .n_shards = n_shards };
    if (strlen(out) + 64 > sizeof f->out)
        return ddl_error_set(err, DDL_E_USAGE, "%.200s...: folder name too long", out);
    strcpy(f->out, out);
    ddl_path_join(f->path, sizeof f->path, out, ".build");
    snprintf(f->mine, sizeof f->mine, "shard-%zu-of-%zu", shard, n_shards);
    f->out_kept = existing_prefix(out);
    bool busy;
    ddl_status status = make_folder(f, err);
    if (!status)
        status = check_others(f, false, &busy, err);
    if (!status)
        status = make_and_lock(f, f->mine, &f->shard, err);
    if (status)
        ddl_build_folder_unlock(f);
    return status;
}

ddl_status ddl_build_folder_lock_merge(struct ddl_build_folder *f, struct ddl_error *err)
{
    return make_and_lock(f, merge_name, &f->merge, err);
}

bool ddl_build_folder_merging(const struct ddl_build_folder *f)
{
    char path[DDL_BUILD_PATH];
    ddl_build_folder_file(f, merge_name, path);
    return ddl_lock_is_held(path);
}

static void release(const struct ddl_build_folder *f, const char *name, struct ddl_lock *lock)
{
    char path[DDL_BUILD_PATH];
    if (!lock->held)
        return;
    ddl_lock_release(lock);
    ddl_build_folder_file(f, name, path);
    rmdir(path);
}

ddl_status ddl_build_folder_in_place(const struct ddl_build_folder *f, struct ddl_error *err)
{
    ddl_status status = ddl_lock_check_in_place(&f->shard, err);
    return status ? status : ddl_lock_check_in_place(&f->merge, err);
}

void ddl_build_folder_leave(struct ddl_build_folder *f)
{
    release(f, f->mine, &f->shard);
}

void ddl_build_folder_close(struct ddl_build_folder *f)
{
    if (!f->path[0])
        return;
    release(f, merge_name, &f->merge);
    ddl_build_folder_leave(f);
    ddl_lock_release(&f->lock); /* removes its file */
    if (!ddl_build_folder_has(f, DDL_BUILD_PLAN)) {
        rmdir(f->path); /* fails if another process has locked the folder for its build */
        remove_created(f);
    }
    f->path[0] = '\0';
}

static bool is_manifest(void *user, const char *name)
{
    (void)user;
    const char *ending = strrchr(name, '.');
    return strncmp(name, "part-", 5) == 0 && ending && strcmp(ending, ".json") == 0;
}

ddl_status ddl_build_folder_count(const struct ddl_build_folder *f, size_t *n, struct ddl_error *err)
{
    struct ddl_file_names list;
    ddl_status status = ddl_file_list(&list, f->path, is_manifest, NULL, err);
    *n = list.n;
    ddl_file_names_free(&list);
    return status;
}

static bool is_unfinished(void *user, const char *name)
{
    (void)user;
    return strncmp(name, "part-", 5) == 0 && strstr(name, ".tmp-");
}

ddl_status ddl_build_folder_tidy(const struct ddl_build_folder *f, struct ddl_error *err)
{
    struct ddl_file_names list;
    ddl_status status = ddl_file_list(&list, f->path, is_unfinished, NULL, err);
    for (size_t i = 0; i < list.n; i++) {
        char path[DDL_BUILD_PATH];
        ddl_build_folder_file(f, list.names[i], path);
        unlink(path);
    }
    ddl_file_names_free(&list);
    return status;
}

/* Whether ddl_build_folder_clear removes the entry. */
static bool is_cleared(void *user, const char *name)
{
    const struct ddl_build_folder *f = user;
    const char *const kept[] = { lock_name, f->mine, DDL_BUILD_READY, f->merge.held ? merge_name : "" };
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        if (strcmp(name, kept[i]) == 0)
            return false;
    }
    return true;
}

ddl_status ddl_build_folder_clear(const struct ddl_build_folder *f, struct ddl_error *err)
{
    struct ddl_file_names list;
    ddl_status status = ddl_file_list(&list, f->path, is_cleared, (void *)(uintptr_t)f, err);
    for (size_t i = 0; i < list.n; i++) {
        char path[DDL_BUILD_PATH];
        ddl_build_folder_file(f, list.names[i], path);
        if (!ddl_file_is_dir(path) || ddl_file_remove_dir(path, NULL) != DDL_OK)
            unlink(path);
    }
    ddl_file_names_free(&list);
    return status;
}
