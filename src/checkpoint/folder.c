#define _POSIX_C_SOURCE 200809L
#include "checkpoint/folder.h"

#include "base/file.h"
#include "base/held.h"
#include "base/path.h"
#include "checkpoint/files.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_SIZE = 1280 };

static const char finished_prefix[] = DDL_CHECKPOINT_PREFIX, partial_prefix[] = ".checkpoint-",
                  dump_prefix[] = DDL_DUMP_PREFIX, partial_dump[] = "." DDL_DUMP_PREFIX,
                  removed_suffix[] = ".old", replaced_suffix[] = ".replaced";

/* ---- names ---- */

static bool only_digits(const char *text, size_t most)
{
    size_t n = strspn(text, "0123456789");
    return n > 0 && n <= most && text[n] == '\0';
}

static bool is_partial(void *user, const char *name)
{
    (void)user;
    return strncmp(name, partial_prefix, sizeof partial_prefix - 1) == 0 ||
           strncmp(name, partial_dump, sizeof partial_dump - 1) == 0;
}

static bool is_dump(const char *name)
{
    size_t prefix = sizeof dump_prefix - 1;
    return strncmp(name, dump_prefix, prefix) == 0 && only_digits(name + prefix, 20);
}

static bool is_of_a_run(void *user, const char *name)
{
    return is_partial(user, name) || is_dump(name) || ddl_checkpoint_step(name) != UINT64_MAX;
}

/* A file of a run's folder that is not complete. */
static bool is_temporary(void *user, const char *name)
{
    (void)user;
    for (enum ddl_run_file i = 0; i < DDL_RUN_FILES; i++) {
        if (ddl_run_file_is(i, DDL_IN_RUN) && ddl_file_is_temporary(name, ddl_run_file_name(i)))
            return true;
    }
    return false;
}

bool ddl_checkpoint_path(const char *out, uint64_t step, bool partial, char *path, size_t size)
{
    char name[64];
    snprintf(name, sizeof name, "%s%llu", partial ? partial_prefix : finished_prefix,
             (unsigned long long)step);
    return ddl_path_join(path, size, out, name);
}

/* ---- removal ---- */

/* Removes a folder and its files. Listing it takes memory; without memory the files of a checkpoint are
 * removed by name. */
static ddl_status remove_folder(const char *path, struct ddl_error *err)
{
    ddl_status status = ddl_file_remove_dir(path, err);
    for (enum ddl_run_file i = 0; status == DDL_E_MEMORY && i < DDL_RUN_FILES; i++) {
        char file[PATH_SIZE];
        if (ddl_run_file_is(i, DDL_IN_CHECKPOINT) &&
            ddl_path_join(file, sizeof file, path, ddl_run_file_name(i)))
            (void)ddl_held_unlink(file);
    }
    return status == DDL_E_MEMORY && ddl_held_rmdir(path) == 0 ? DDL_OK : status;
}

/* OUT/.<the name of the checkpoint><suffix>, a name that makes it none. */
static ddl_status hidden_name(const char *path, const char *suffix, char hidden[PATH_SIZE],
                              struct ddl_error *err)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    int n = snprintf(hidden, PATH_SIZE, "%.*s.%s%s", (int)(name - path), path, name, suffix);
    return n >= 0 && n < PATH_SIZE ? DDL_OK
                                   : ddl_error_set(err, DDL_E_USAGE, "%.200s: the path is too long", path);
}

static ddl_status hide(const char *path, const char *hidden, struct ddl_error *err)
{
    return ddl_held_rename(path, hidden) == 0 ? DDL_OK : ddl_file_error(err, path, "rename for removal");
}

/* Writes a name that nothing has, `name` and a suffix: one may be taken by what cannot be removed. */
static ddl_status removed_name(const char *name, char path[PATH_SIZE], struct ddl_error *err)
{
    enum { MOST = 1000 };
    for (int i = 0; i < MOST; i++) {
        int n = snprintf(path, PATH_SIZE, i ? "%s%s%d" : "%s%s", name, removed_suffix, i);
        if (n >= 0 && n < PATH_SIZE && !ddl_file_exists(path))
            return DDL_OK;
    }
    return ddl_error_set(err, DDL_E_IO, "%.600s%s: no name is free", name, removed_suffix);
}

/* Removes a finished checkpoint. It is renamed first, so that a half-removed one is never taken for one. */
static ddl_status remove_finished(const char *path, struct ddl_error *err)
{
    char name[PATH_SIZE], hidden[PATH_SIZE];
    ddl_status status = hidden_name(path, "", name, err);
    if (!status)
        status = removed_name(name, hidden, err);
    if (!status)
        status = hide(path, hidden, err);
    return status ? status : remove_folder(hidden, err);
}

/* Removes a file, or a folder and its files. */
static ddl_status remove_entry(const char *path, struct ddl_error *err)
{
    if (ddl_file_is_dir(path))
        return remove_folder(path, err);
    return ddl_held_unlink(path) == 0 ? DDL_OK : ddl_file_error(err, path, "remove");
}

void ddl_checkpoint_discard(const char *path)
{
    (void)remove_entry(path, NULL);
}

/* Removes the chosen entries of `out`: folders of files, and files. *kept: why the first one that stays
 * cannot be removed. */
static ddl_status remove_chosen(const char *out, ddl_file_name_fn *chosen, struct ddl_error *kept,
                                struct ddl_error *err)
{
    struct ddl_file_names list;
    struct ddl_error why;
    ddl_status status = ddl_file_list(&list, out, chosen, NULL, err);
    if (list.missing)
        return DDL_OK;
    for (size_t i = 0; i < list.n; i++) {
        char path[PATH_SIZE];
        if (ddl_path_join(path, sizeof path, out, list.names[i]) && remove_entry(path, &why) && !kept->status)
            *kept = why;
    }
    ddl_file_names_free(&list);
    return status;
}

static bool is_replaced(void *user, const char *name)
{
    const size_t n = strlen(name), suffix = sizeof replaced_suffix - 1;
    return is_partial(user, name) && n > suffix && strcmp(name + n - suffix, replaced_suffix) == 0;
}

ddl_status ddl_checkpoint_restore(const char *out, struct ddl_error *err)
{
    struct ddl_file_names list;
    ddl_status status = ddl_file_list(&list, out, is_replaced, NULL, err);
    if (list.missing)
        return DDL_OK;
    for (size_t i = 0; !status && i < list.n; i++) {
        char hidden[PATH_SIZE], path[PATH_SIZE];
        if (!ddl_path_join(hidden, sizeof hidden, out, list.names[i]) ||
            !ddl_path_join(path, sizeof path, out, list.names[i] + 1))
            continue;
        path[strlen(path) - (sizeof replaced_suffix - 1)] = '\0';
        if (!ddl_file_exists(path) && ddl_held_rename(hidden, path) != 0)
            status = ddl_file_error(err, hidden, "restore");
    }
    ddl_file_names_free(&list);
    return status;
}

ddl_status ddl_checkpoint_remove_partial(const char *out, struct ddl_error *kept, struct ddl_error *err)
{
    *kept = (struct ddl_error){ 0 };
    ddl_status status = ddl_checkpoint_restore(out, err);
    if (!status)
        status = remove_chosen(out, is_partial, kept, err);
    return status ? status : remove_chosen(out, is_temporary, kept, err);
}

ddl_status ddl_checkpoint_clear(const char *out, const char *partial, struct ddl_error *err)
{
    struct ddl_error kept; /* what stays takes space */
    char aside[PATH_SIZE];
    ddl_status status = ddl_checkpoint_remove_partial(out, &kept, err);
    if (status || !ddl_file_exists(partial))
        return status;
    status = removed_name(partial, aside, err);
    return status ? status : hide(partial, aside, err);
}

ddl_status ddl_checkpoint_remove_all(const char *out, struct ddl_error *err)
{
    struct ddl_error kept = { 0 };
    ddl_status status = remove_chosen(out, is_of_a_run, &kept, err);
    if (!status)
        status = remove_chosen(out, is_temporary, &kept, err);
    return status || !kept.status ? status : ddl_error_set(err, kept.status, "%s", kept.text);
}

bool ddl_checkpoint_is_lost(const char *out, const char *path)
{
    char outer[PATH_SIZE], inner[PATH_SIZE];
    if (!ddl_path_canonical(out, outer, sizeof outer) || !ddl_path_canonical(path, inner, sizeof inner))
        return false;
    size_t n = strlen(outer);
    if (strncmp(inner, outer, n) != 0 || (inner[n] != '/' && inner[n] != '\0'))
        return false;
    char *name = inner + n + (inner[n] == '/');
    name[strcspn(name, "/")] = '\0';
    return *name == '\0' || is_of_a_run(NULL, name);
}

ddl_status ddl_checkpoint_publish(const char *out, const char *partial, const char *path,
                                  struct ddl_error *err)
{
    if (ddl_file_exists(path) && ddl_held_exchange(partial, path) == 0) {
        /* A complete checkpoint was under its name at any moment. Some file systems cannot exchange names. */
        ddl_status status = ddl_file_sync_dir(out, err);
        if (!status)
            ddl_checkpoint_discard(partial);
        return status;
    }
    char hidden[PATH_SIZE], removed[PATH_SIZE];
    const bool replaces = ddl_file_exists(path);
    ddl_status status = replaces ? hidden_name(path, replaced_suffix, hidden, err) : DDL_OK;
    if (!status && replaces)
        status = hide(path, hidden, err);
    if (status)
        return status;
    if (ddl_held_rename(partial, path) != 0) {
        status = ddl_file_error(err, path, "rename into place");
        if (replaces)
            (void)ddl_held_rename(hidden, path);
        return status;
    }
    status = ddl_file_sync_dir(out, err);
    if (status || !replaces)
        return status;
    /* Under a name that ddl_checkpoint_restore does not know: what cannot be removed never comes back. */
    if (!removed_name(partial, removed, NULL) && !hide(hidden, removed, NULL))
        ddl_checkpoint_discard(removed);
    return DDL_OK;
}

/* ---- list ---- */

static bool is_finished(void *user, const char *name)
{
    (void)user;
    return ddl_checkpoint_step(name) != UINT64_MAX;
}

bool ddl_checkpoint_newest(const char *out, uint64_t before, uint64_t *step, char *path, size_t size)
{
    uint64_t newest = UINT64_MAX;
    struct ddl_file_names list;
    (void)ddl_file_list(&list, out, is_finished, NULL, NULL);
    for (size_t i = 0; i < list.n; i++) {
        uint64_t found = ddl_checkpoint_step(list.names[i]);
        if (found < before && (newest == UINT64_MAX || found > newest))
            newest = found;
    }
    ddl_file_names_free(&list);
    if (step)
        *step = newest;
    return newest != UINT64_MAX && ddl_checkpoint_path(out, newest, false, path, size);
}

static int by_step(const void *a, const void *b)
{
    const struct ddl_checkpoint *x = a, *y = b;
    return (x->step > y->step) - (x->step < y->step);
}

static void read_losses(const char *out, struct ddl_checkpoint *c)
{
    char path[PATH_SIZE];
    json_t *state = NULL;
    bool read = ddl_checkpoint_path(out, c->step, false, path, sizeof path) &&
                ddl_checkpoint_read_state(path, &state, NULL) == DDL_OK;
    const json_t *step = json_object_get(state, "step"), *loss = json_object_get(state, "loss"),
                 *val_loss = json_object_get(state, "val_loss");
    c->readable = read && json_is_integer(step) && json_is_number(loss) &&
                  (json_is_number(val_loss) || json_is_null(val_loss));
    c->loss = c->readable ? json_number_value(loss) : 0;
    c->has_val = c->readable && json_is_number(val_loss);
    c->val_loss = c->has_val ? json_number_value(val_loss) : 0;
    c->by_time = c->readable && json_is_true(json_object_get(state, "by_time"));
    json_decref(state);
}

size_t ddl_checkpoint_lowest(const struct ddl_checkpoint *list, size_t n, const bool *marked)
{
    size_t best = n;
    for (size_t i = 0; i < n; i++) {
        if (list[i].has_val && !list[i].by_time && !(marked && marked[i]) &&
            (best == n || list[i].val_loss < list[best].val_loss))
            best = i;
    }
    return best;
}

size_t ddl_checkpoint_best(const struct ddl_checkpoint *list, size_t n)
{
    return ddl_checkpoint_lowest(list, n, NULL);
}

/* Those up to `last`, oldest first. */
static ddl_status list_up_to(const char *out, uint64_t last, struct ddl_checkpoint **list, size_t *n,
                             struct ddl_error *err)
{
    struct ddl_file_names found;
    *list = NULL;
    *n = 0;
    ddl_status status = ddl_file_list(&found, out, is_finished, NULL, err);
    if (found.missing)
        return DDL_OK;
    if (!status && found.n > 0 && !(*list = calloc(found.n, sizeof **list)))
        status = ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory for its list of checkpoints", out);
    for (size_t i = 0; !status && i < found.n; i++) {
        uint64_t step = ddl_checkpoint_step(found.names[i]);
        if (step <= last)
            (*list)[(*n)++] = (struct ddl_checkpoint){ .step = step };
    }
    ddl_file_names_free(&found);
    if (*n == 0) {
        free(*list);
        *list = NULL;
        return status;
    }
    qsort(*list, *n, sizeof **list, by_step);
    for (size_t i = 0; i < *n; i++)
        read_losses(out, &(*list)[i]);
    return DDL_OK;
}

ddl_status ddl_checkpoint_list(const char *out, struct ddl_checkpoint **list, size_t *n,
                               struct ddl_error *err)
{
    return list_up_to(out, UINT64_MAX - 1, list, n, err);
}

/* ---- prune ---- */

/* One that cannot be read is kept and not counted: a read error must not cost the best checkpoint. */
static void choose(const struct ddl_checkpoint *list, size_t n, uint64_t step,
                   const struct ddl_checkpoint_keep *keep, bool *kept)
{
    size_t best, last = 0;
    for (size_t i = 0; i < keep->best && (best = ddl_checkpoint_lowest(list, n, kept)) < n; i++)
        kept[best] = true;
    for (size_t i = n; i-- > 0;) {
        if (list[i].by_time) {
            kept[i] = keep->by_time && list[i].step == step;
            continue;
        }
        last += list[i].readable;
        kept[i] = kept[i] || !list[i].readable || keep->last == 0 || last <= keep->last;
    }
}

ddl_status ddl_checkpoint_prune(const char *out, uint64_t step, const struct ddl_checkpoint_keep *keep,
                                bool *best, struct ddl_error *kept, struct ddl_error *err)
{
    struct ddl_checkpoint *list;
    size_t n;
    *best = false;
    *kept = (struct ddl_error){ 0 };
    ddl_status status = list_up_to(out, step, &list, &n, err);
    if (status || n == 0)
        return status;
    bool *chosen = calloc(n, sizeof *chosen);
    if (!chosen) {
        free(list);
        return ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory for its list of checkpoints", out);
    }
    *best = ddl_checkpoint_lowest(list, n, chosen) == n - 1 && list[n - 1].step == step;
    choose(list, n, step, keep, chosen);
    for (size_t i = 0; i < n; i++) {
        char path[PATH_SIZE];
        struct ddl_error why;
        if (!chosen[i] && ddl_checkpoint_path(out, list[i].step, false, path, sizeof path) &&
            remove_finished(path, &why) && !kept->status)
            *kept = why;
    }
    free(chosen);
    free(list);
    return DDL_OK;
}
