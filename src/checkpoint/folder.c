#define _POSIX_C_SOURCE 200809L
#include "checkpoint/folder.h"

#include "base/file.h"
#include "checkpoint/state.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_SIZE = 1280 };

static const char finished_prefix[] = "checkpoint-", partial_prefix[] = ".checkpoint-",
                  trouble_prefix[] = DDL_TROUBLE_PREFIX, partial_trouble[] = "." DDL_TROUBLE_PREFIX,
                  going_suffix[] = ".old";

/* ---- names ---- */

static bool only_digits(const char *text, size_t most)
{
    size_t n = strspn(text, "0123456789");
    return n > 0 && n <= most && text[n] == '\0';
}

/* The step in "checkpoint-<step>", or UINT64_MAX for any other name. */
static uint64_t step_of(const char *name)
{
    size_t prefix = sizeof finished_prefix - 1;
    bool ours = strncmp(name, finished_prefix, prefix) == 0 && only_digits(name + prefix, 19);
    return ours ? strtoull(name + prefix, NULL, 10) : UINT64_MAX;
}

static bool is_partial(const char *name)
{
    return strncmp(name, partial_prefix, sizeof partial_prefix - 1) == 0 ||
           strncmp(name, partial_trouble, sizeof partial_trouble - 1) == 0;
}

static bool is_trouble(const char *name)
{
    size_t prefix = sizeof trouble_prefix - 1;
    return strncmp(name, trouble_prefix, prefix) == 0 && only_digits(name + prefix, 20);
}

static bool is_of_a_run(const char *name)
{
    return is_partial(name) || is_trouble(name) || step_of(name) != UINT64_MAX;
}

/* What ddl_file_writer calls a file of a run's folder before it is whole. */
static bool is_temporary(const char *name)
{
    static const char *const files[] = { "recipe.yaml", "metrics.jsonl", "model.safetensors", "config.json",
                                         "tokenizer.json" };
    static const char mark[] = ".tmp-";
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        size_t n = strlen(files[i]);
        if (strncmp(name, files[i], n) == 0 && strncmp(name + n, mark, sizeof mark - 1) == 0 &&
            only_digits(name + n + sizeof mark - 1, 19))
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

/* A folder and its files. To list it takes memory; where there is none, what a checkpoint holds goes by name.
 */
static ddl_status remove_folder(const char *path, struct ddl_error *err)
{
    static const char *const names[] = { "model.safetensors", "config.json", "optimizer.safetensors",
                                         "tokenizer.json", "state.json" };
    ddl_status status = ddl_file_remove_dir(path, err);
    for (size_t i = 0; status == DDL_E_MEMORY && i < sizeof names / sizeof *names; i++) {
        char file[PATH_SIZE];
        if (ddl_path_join(file, sizeof file, path, names[i]))
            (void)unlink(file);
    }
    return status == DDL_E_MEMORY && rmdir(path) == 0 ? DDL_OK : status;
}

void ddl_checkpoint_discard(const char *path)
{
    (void)remove_folder(path, NULL);
}

ddl_status ddl_checkpoint_remove(const char *path, struct ddl_error *err)
{
    char going[PATH_SIZE];
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    int n = snprintf(going, sizeof going, "%.*s.%s%s", (int)(name - path), path, name, going_suffix);
    if (n < 0 || (size_t)n >= sizeof going)
        return ddl_error_set(err, DDL_E_USAGE, "%.200s: the path is too long", path);
    if (rename(path, going) != 0)
        return ddl_file_error(err, path, "rename for removal");
    return remove_folder(going, err);
}

/* Removes what of `out` is chosen: folders of files, and files. */
static ddl_status remove_chosen(const char *out, bool (*chosen)(const char *name), struct ddl_error *err)
{
    DIR *dir = opendir(out);
    if (!dir)
        return errno == ENOENT ? DDL_OK : ddl_file_error(err, out, "open folder");
    ddl_status status = DDL_OK;
    for (struct dirent *entry; !status && (entry = readdir(dir));) {
        char path[PATH_SIZE];
        if (!chosen(entry->d_name) || !ddl_path_join(path, sizeof path, out, entry->d_name))
            continue;
        if (ddl_file_is_dir(path))
            status = remove_folder(path, err);
        else if (unlink(path) != 0)
            status = ddl_file_error(err, path, "remove");
    }
    closedir(dir);
    return status;
}

ddl_status ddl_checkpoint_remove_partial(const char *out, struct ddl_error *err)
{
    ddl_status status = remove_chosen(out, is_partial, err);
    return status ? status : remove_chosen(out, is_temporary, err);
}

ddl_status ddl_checkpoint_remove_all(const char *out, struct ddl_error *err)
{
    ddl_status status = remove_chosen(out, is_of_a_run, err);
    return status ? status : remove_chosen(out, is_temporary, err);
}

ddl_status ddl_checkpoint_publish(const char *out, const char *partial, const char *path,
                                  struct ddl_error *err)
{
    ddl_status status = ddl_file_exists(path) ? ddl_checkpoint_remove(path, err) : DDL_OK;
    if (!status && rename(partial, path) != 0)
        status = ddl_file_error(err, path, "rename into place");
    return status ? status : ddl_file_sync_dir(out, err);
}

/* ---- which there are ---- */

bool ddl_checkpoint_newest(const char *out, uint64_t before, uint64_t *step, char *path, size_t size)
{
    uint64_t newest = UINT64_MAX;
    DIR *dir = opendir(out);
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        uint64_t found = step_of(entry->d_name);
        if (found < before && (newest == UINT64_MAX || found > newest))
            newest = found;
    }
    if (dir)
        closedir(dir);
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
    struct ddl_run_state state = { 0 };
    c->readable = ddl_checkpoint_path(out, c->step, false, path, sizeof path) &&
                  ddl_state_read(path, &state, NULL) == DDL_OK;
    c->loss = c->readable ? state.loss : 0;
    c->has_val = c->readable && state.has_val;
    c->val_loss = c->has_val ? state.val_loss : 0;
}

/* The one of lowest validation loss that is not marked yet, the earliest of equals; n if there is none. */
static size_t lowest(const struct ddl_checkpoint *list, size_t n, const bool *marked)
{
    size_t best = n;
    for (size_t i = 0; i < n; i++) {
        if (list[i].has_val && !marked[i] && (best == n || list[i].val_loss < list[best].val_loss))
            best = i;
    }
    return best;
}

/* Those up to `last`, oldest first. */
static ddl_status list_up_to(const char *out, uint64_t last, struct ddl_checkpoint **list, size_t *n,
                             struct ddl_error *err)
{
    size_t capacity = 0;
    DIR *dir = opendir(out);
    *list = NULL;
    *n = 0;
    if (!dir)
        return errno == ENOENT ? DDL_OK : ddl_file_error(err, out, "open folder");
    ddl_status status = DDL_OK;
    for (struct dirent *entry; !status && (entry = readdir(dir));) {
        uint64_t step = step_of(entry->d_name);
        if (step == UINT64_MAX || step > last)
            continue;
        if (*n == capacity) {
            capacity = 2 * capacity + 16;
            struct ddl_checkpoint *grown = realloc(*list, capacity * sizeof *grown);
            if (!grown) {
                status =
                    ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory for its list of checkpoints", out);
                break;
            }
            *list = grown;
        }
        (*list)[(*n)++] = (struct ddl_checkpoint){ .step = step };
    }
    closedir(dir);
    if (status || *n == 0) {
        free(*list);
        *list = NULL;
        *n = 0;
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

/* ---- which stay ---- */

/* One that cannot be read stays, and does not count: a device that failed once must not cost the best. */
static void choose(const struct ddl_checkpoint *list, size_t n, size_t keep_last, size_t keep_best,
                   bool *kept)
{
    size_t best, last = 0;
    for (size_t i = 0; i < keep_best && (best = lowest(list, n, kept)) < n; i++)
        kept[best] = true;
    for (size_t i = n; i-- > 0;) {
        last += list[i].readable;
        kept[i] = kept[i] || !list[i].readable || keep_last == 0 || last <= keep_last;
    }
}

ddl_status ddl_checkpoint_prune(const struct ddl_train_config *config, uint64_t step, bool *best,
                                struct ddl_error *err)
{
    struct ddl_checkpoint *list;
    size_t n;
    *best = false;
    ddl_status status = list_up_to(config->out, step, &list, &n, err);
    if (status || n == 0)
        return status;
    bool *kept = calloc(n, sizeof *kept);
    if (!kept) {
        free(list);
        return ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory for its list of checkpoints", config->out);
    }
    *best = lowest(list, n, kept) == n - 1 && list[n - 1].step == step;
    choose(list, n, config->keep_last, config->keep_best, kept);
    for (size_t i = 0; i < n && !status; i++) {
        char path[PATH_SIZE];
        if (!kept[i] && ddl_checkpoint_path(config->out, list[i].step, false, path, sizeof path))
            status = ddl_checkpoint_remove(path, err);
    }
    free(kept);
    free(list);
    return status;
}
