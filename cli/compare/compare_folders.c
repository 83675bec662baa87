/* The run folders that ddl compare is given, by themselves or in a folder. */
#define _POSIX_C_SOURCE 200809L
#include "cli/cli.h"
#include "cli/compare/compare.h"
#include "cli/output/escape.h"
#include "ddl/file.h"
#include "ddl/sweep.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void print_compare_note(void *user, const char *text)
{
    (void)user;
    fprintf(stderr, "ddl: note: %s\n", printable(text));
}

static bool is_run(const char *folder)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/metrics.jsonl", folder);
    return ddl_file_exists(path);
}

/* Appends a path that is owned by the list from here on. */
static ddl_status add_folder(struct folders *out, char *path, struct ddl_error *err)
{
    char **grown = path ? realloc(out->paths, (out->n + 1) * sizeof *grown) : NULL;
    if (!grown) {
        free(path);
        return ddl_error_set(err, DDL_E_MEMORY, "out of memory for %zu runs", out->n + 1);
    }
    out->paths = grown;
    grown[out->n++] = path;
    return DDL_OK;
}

/* A stale run that is named is compared, with a note. */
static void note_stale(const char *folder)
{
    char why[512];
    struct ddl_error message;
    if (!ddl_sweep_run_is_stale(folder, why, sizeof why))
        return;
    ddl_error_set(&message, DDL_OK, "%.400s: a stale run of a sweep: %s", folder, why);
    print_compare_note(NULL, message.text);
}

ddl_status add_runs(struct folders *out, const char *folder, struct ddl_error *err)
{
    char **runs = NULL;
    size_t n = 0;
    ddl_status status = DDL_OK;
    if (is_run(folder))
        note_stale(folder);
    else if (ddl_file_exists(folder))
        status = ddl_sweep_list(folder, &runs, &n, print_compare_note, NULL, err);
    if (!status && n == 0)
        status = add_folder(out, strdup(folder), err); /* an error follows if there is no run in it */
    for (size_t i = 0; i < n; i++) {
        if (status)
            free(runs[i]);
        else
            status = add_folder(out, runs[i], err);
    }
    free(runs);
    return status;
}

void free_folders(struct folders *folders)
{
    for (size_t i = 0; i < folders->n; i++)
        free(folders->paths[i]);
    free(folders->paths);
}
