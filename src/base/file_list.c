/* Lists of the names in a folder. */
#define _POSIX_C_SOURCE 200809L
#include "base/file.h"

#include "base/held.h"
#include "base/mem.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static ddl_status add_name(struct ddl_file_names *list, size_t *capacity, const char *name)
{
    if (list->n == *capacity) {
        size_t larger = *capacity ? 2 * *capacity : 32;
        char **names = realloc(list->names, larger * sizeof *names);
        if (!names)
            return DDL_E_MEMORY;
        list->names = names;
        *capacity = larger;
    }
    char *copy = ddl_mem_strdup(name);
    if (!copy)
        return DDL_E_MEMORY;
    list->names[list->n++] = copy;
    return DDL_OK;
}

/* The next entry; NULL at the end, where errno is 0, or after an error. */
static const struct dirent *next_entry(DIR *dir)
{
    const struct dirent *entry;
    do {
        errno = 0; /* the only sign of an error is errno */
        entry = readdir(dir);
    } while (!entry && errno == EINTR);
    return entry;
}

static bool is_dots(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

ddl_status ddl_file_list(struct ddl_file_names *out, const char *folder, ddl_file_name_fn *wanted, void *user,
                         struct ddl_error *err)
{
    *out = (struct ddl_file_names){ 0 };
    DIR *dir = ddl_held_opendir(folder);
    if (!dir) {
        out->missing = errno == ENOENT;
        return ddl_file_error(err, folder, "open folder");
    }
    size_t capacity = 0;
    ddl_status status = DDL_OK;
    const struct dirent *entry;
    while (!status && (entry = next_entry(dir))) {
        if (!is_dots(entry->d_name) && (!wanted || wanted(user, entry->d_name)))
            status = add_name(out, &capacity, entry->d_name);
    }
    if (status)
        ddl_error_set(err, status, "%s: out of memory for its names", folder);
    else if (errno)
        status = ddl_file_error(err, folder, "list");
    closedir(dir);
    if (status)
        ddl_file_names_free(out);
    else if (out->n)
        qsort(out->names, out->n, sizeof *out->names, by_bytes);
    return status;
}

void ddl_file_names_free(struct ddl_file_names *list)
{
    for (size_t i = 0; i < list->n; i++)
        free(list->names[i]);
    free(list->names);
    *list = (struct ddl_file_names){ 0 };
}

ddl_status ddl_file_remove_dir(const char *path, struct ddl_error *err)
{
    struct stat st;
    struct ddl_file_names list;
    if (ddl_held_lstat(path, &st) == 0 && S_ISLNK(st.st_mode)) /* what it points at is not ours */
        return ddl_held_unlink(path) == 0 ? DDL_OK : ddl_file_error(err, path, "remove");
    ddl_status status = ddl_file_list(&list, path, NULL, NULL, err);
    if (status)
        return status;
    for (size_t i = 0; i < list.n; i++) {
        char file[2048];
        if (ddl_path_join(file, sizeof file, path, list.names[i]))
            (void)ddl_held_unlink(file); /* what stays shows in rmdir */
    }
    ddl_file_names_free(&list);
    return ddl_held_rmdir(path) == 0 ? DDL_OK : ddl_file_error(err, path, "remove folder");
}
