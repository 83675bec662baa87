/* Finding cases: folders are walked; a folder or file is of the first kind that matches its content. */
#define _POSIX_C_SOURCE 200809L
#include "verify/internal.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "ddl/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BACKENDS = 8, MAX_DEPTH = 16, MAX_PATH = 2048 };

struct run {
    const struct ddl_verify_config *config;
    ddl_verify_fn *each;
    void *user;
    struct ddl_verify_totals *totals;
    ddl_backend *backends[MAX_BACKENDS];
    size_t n_backends;
    size_t found; /* cases and skipped things so far */
};

struct ddl_verify_config ddl_verify_defaults(void)
{
    return (struct ddl_verify_config){ .backend = "all" };
}

const struct ddl_option *ddl_verify_options(void)
{
    static const char *const dtypes[] = { "f32", "bf16", NULL };
    _Static_assert(DDL_PRECISION_F32 == 0 && DDL_PRECISION_BF16 == 1, "dtypes are in order");
#define FIELD(name) offsetof(struct ddl_verify_config, name), sizeof((struct ddl_verify_config *)0)->name
    static const struct ddl_option rows[] = {
        { "backend", DDL_OPTION_STRING, FIELD(backend), 0, 0, NULL, "NAME", "all, or " DDL_BACKEND_HELP,
          DDL_BACKEND_ALIASES },
        { "threads", DDL_OPTION_SIZE, FIELD(threads), 0, 4096, NULL, "N",
          "threads of the backend (0: one per core)", DDL_THREADS_ALIASES },
        { "dtype", DDL_OPTION_CHOICE, FIELD(dtype), 0, 0, dtypes, "NAME",
          "operand type of matrix products; bf16: models only, compared with ref in bf16" },
        { "recompute", DDL_OPTION_CHOICE, FIELD(recompute), 0, 0, ddl_recompute_names, "NAME",
          "what the backward pass recomputes, in models and curves" },
        { "tokenizer", DDL_OPTION_PATH, FIELD(tokenizer), 0, 0, NULL, "PATH",
          "tokenizer of the tokenizer and tasks cases" },
        { "data", DDL_OPTION_PATH, FIELD(data), 0, 0, NULL, "DIR",
          "folder with the texts named by a files.json and, in its subfolder tasks, the files of the tasks" },
        { 0 },
    };
#undef FIELD
    return rows;
}

/* --- one case ----------------------------------------------------------------------------------------- */

void verify_count(struct ddl_verify_totals *totals, const struct ddl_verify_case *result)
{
    size_t *const counts[] = { [DDL_VERIFY_PASS] = &totals->passed,
                               [DDL_VERIFY_FAIL] = &totals->failed,
                               [DDL_VERIFY_SKIP] = &totals->skipped };
    ++*counts[result->outcome];
}

bool verify_skips_backend(const struct ddl_verify_config *config, size_t i, ddl_status status)
{
    return status == DDL_E_UNSUPPORTED && i > 0 && strcmp(config->backend, "all") == 0;
}

static void report(struct run *run, const struct ddl_verify_case *result)
{
    verify_count(run->totals, result);
    run->found++;
    if (run->each)
        run->each(run->user, result);
}

static void skip(struct run *run, const char *path, const char *kind, const char *why)
{
    struct ddl_verify_case result = { .path = path, .kind = kind, .outcome = DDL_VERIFY_SKIP };
    snprintf(result.message, sizeof result.message, "%s", why);
    report(run, &result);
}

static void fail_case(struct run *run, const char *path, const char *kind, const struct ddl_error *err)
{
    struct ddl_verify_case result = { .path = path, .kind = kind, .outcome = DDL_VERIFY_FAIL };
    snprintf(result.message, sizeof result.message, "%s", err->text);
    report(run, &result);
}

static void run_on(struct run *run, const char *path, const struct kind *kind, ddl_backend *backend)
{
    struct ddl_error err = { 0 };
    struct ddl_verify_case result = { .path = path,
                                      .kind = kind->name,
                                      .backend = backend ? ddl_backend_name(backend) : NULL };
    struct context c = { .result = &result, .config = run->config, .path = path, .backend = backend };
    double start = ddl_clock_seconds();
    if (kind->check(&c, &err)) {
        result.outcome = DDL_VERIFY_FAIL;
        snprintf(result.message, sizeof result.message, "%s", err.text);
    }
    if (result.outcome == DDL_VERIFY_PASS && result.n_measures == 0 && kind->check != check_dump) {
        /* Its message says what was skipped, if anything. */
        result.outcome = *result.message ? DDL_VERIFY_SKIP : DDL_VERIFY_FAIL;
        if (!*result.message)
            snprintf(result.message, sizeof result.message, "%.1000s: nothing to compare", path);
    }
    result.seconds = ddl_clock_seconds() - start;
    pool_free(&c.pool);
    report(run, &result);
}

static void run_case(struct run *run, const char *path, const struct kind *kind)
{
    if (run->config->dtype != DDL_PRECISION_F32 && kind->check != check_model) {
        skip(run, path, kind->name, "only models are run in bf16");
        return;
    }
    for (size_t i = 0; i < run->n_backends && kind->computes; i++)
        run_on(run, path, kind, run->backends[i]);
    if (!kind->computes)
        run_on(run, path, kind, NULL);
}

/* --- the walk ----------------------------------------------------------------------------------------- */

static bool is_visible(void *user, const char *name)
{
    (void)user;
    return name[0] != '.';
}

static bool has(const struct ddl_file_names *names, const char *name)
{
    for (size_t i = 0; i < names->n; i++) {
        if (strcmp(names->names[i], name) == 0)
            return true;
    }
    return false;
}

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);
    return n >= m && strcmp(name + n - m, end) == 0;
}

static bool has_ending(const struct ddl_file_names *names, const char *end)
{
    for (size_t i = 0; i < names->n; i++) {
        if (ends_with(names->names[i], end))
            return true;
    }
    return false;
}

/* Kinds of a folder by what is in it. */
struct folder_kind {
    const char *marks[3]; /* any of these files makes it one */
    const char *ending;   /* or a file whose name ends so    */
    struct kind kind;
};
static const struct folder_kind folder_kinds[] = {
    { { "expect.safetensors" }, NULL, { "model", true, check_model } },
    { { "trouble.json" }, NULL, { "trouble", true, check_dump } },
    { { "recipe.json", "loss.json" }, NULL, { "curve", true, check_curve } },
    { { "cases.jsonl", "files.json" }, NULL, { "tokenizer", false, check_tokenizer } },
    { { "edges.jsonl" }, "shot.jsonl", { "tasks", true, check_tasks } },
};

static const struct kind *kind_of_folder(const struct ddl_file_names *names)
{
    for (size_t i = 0; i < sizeof folder_kinds / sizeof *folder_kinds; i++) {
        const struct folder_kind *row = &folder_kinds[i];
        for (size_t j = 0; j < 3 && row->marks[j]; j++) {
            if (has(names, row->marks[j]))
                return &row->kind;
        }
        if (row->ending && has_ending(names, row->ending))
            return &row->kind;
    }
    return NULL;
}

static const struct kind inspect_kind = { "inspect", true, check_inspect };

/* A .json file with the figures of a model's sublayers. */
static bool is_inspection(const char *path)
{
    enum { LIMIT = 16 << 20 };
    char *text;
    size_t size;
    if (!ends_with(path, ".json") || ddl_file_read(path, LIMIT, &text, &size, NULL))
        return false;
    bool found = strstr(text, "\"case\"") && strstr(text, "\"sublayers\"");
    free(text);
    return found;
}

/* A file on its own: an operator, its element-wise form, a block, or an inspection. */
static void run_file(struct run *run, const char *path)
{
    struct ddl_error err = { 0 };
    ddl_safetensors *file;
    if (is_inspection(path)) {
        run_case(run, path, &inspect_kind);
        return;
    }
    if (ddl_safetensors_open(&file, path, &err)) {
        fail_case(run, path, "unknown", &err);
        return;
    }
    const struct kind *kind = kind_of_file(file);
    ddl_safetensors_close(file);
    if (kind)
        run_case(run, path, kind);
    else
        skip(run, path, "unknown", "a safetensors file of a kind that is not known yet");
}

/* A folder without a case: skipped below a given folder, an error if it was given itself. */
static ddl_status nothing(struct run *run, const char *path, size_t depth, const char *why,
                          struct ddl_error *err)
{
    if (depth == 0)
        return ddl_error_set(err, DDL_E_FORMAT, "%s: %s", path, why);
    skip(run, path, "unknown", why);
    return DDL_OK;
}

static ddl_status walk(struct run *run, const char *path, size_t depth, struct ddl_error *err);

static ddl_status walk_names(struct run *run, const char *path, const struct ddl_file_names *names,
                             size_t depth, struct ddl_error *err)
{
    size_t before = run->found;
    bool checkpoint = has(names, "model.safetensors") && has(names, "config.json");
    ddl_status status = DDL_OK;
    if (checkpoint)
        status = nothing(run, path, depth, "a model without expect.safetensors", err);
    for (size_t i = 0; i < names->n && !status; i++) {
        char below[MAX_PATH];
        bool is_dir;
        if (!ddl_path_join(below, sizeof below, path, names->names[i]))
            return ddl_error_set(err, DDL_E_USAGE, "%s/%s: the path is too long", path, names->names[i]);
        status = ddl_file_find_dir(below, &is_dir, err);
        if (!status && is_dir)
            status = walk(run, below, depth + 1, err);
        else if (!status && !checkpoint && (ends_with(below, ".safetensors") || is_inspection(below)))
            run_file(run, below);
    }
    if (!status && run->found == before)
        status = nothing(run, path, depth, names->n ? "holds no case of a known kind" : "the folder is empty",
                         err);
    return status;
}

/* Cases below a folder of tasks, besides its own model and data. */
static ddl_status walk_tasks(struct run *run, const char *path, const struct ddl_file_names *names,
                             size_t depth, struct ddl_error *err)
{
    ddl_status status = DDL_OK;
    for (size_t i = 0; i < names->n && !status; i++) {
        char below[MAX_PATH];
        bool is_dir = false;
        if (strcmp(names->names[i], "model") == 0 || strcmp(names->names[i], "data") == 0)
            continue;
        if (ddl_path_join(below, sizeof below, path, names->names[i]))
            status = ddl_file_find_dir(below, &is_dir, err);
        if (!status && is_dir)
            status = walk(run, below, depth + 1, err);
    }
    return status;
}

static ddl_status walk(struct run *run, const char *path, size_t depth, struct ddl_error *err)
{
    if (!ddl_file_is_dir(path)) {
        if (!ddl_file_exists(path))
            return ddl_error_set(err, DDL_E_IO, "%s: there is no such file or folder", path);
        run_file(run, path);
        return DDL_OK;
    }
    if (depth > MAX_DEPTH)
        return ddl_error_set(err, DDL_E_USAGE, "%s: more than %d folders deep", path, MAX_DEPTH);
    struct ddl_file_names names;
    ddl_status status = ddl_file_list(&names, path, is_visible, NULL, err);
    const struct kind *kind = status ? NULL : kind_of_folder(&names);
    if (kind)
        run_case(run, path, kind);
    if (kind && kind->check == check_tasks)
        status = walk_tasks(run, path, &names, depth, err);
    else if (!kind && !status)
        status = walk_names(run, path, &names, depth, err);
    ddl_file_names_free(&names);
    return status;
}

/* --- the run ------------------------------------------------------------------------------------------ */

/* Of all backends, plugins that cannot be opened on this machine are skipped. */
static ddl_status open_backends(struct run *run, struct ddl_error *err)
{
    bool all = strcmp(run->config->backend, "all") == 0;
    char name[DDL_BACKEND_NAME_SIZE];
    for (size_t i = 0; all ? ddl_backend_list(i, name) != NULL : i < 1; i++) {
        struct ddl_error why;
        if (run->n_backends == MAX_BACKENDS)
            return ddl_error_set(err, DDL_E_UNSUPPORTED, "more than %d backends", MAX_BACKENDS);
        ddl_status status = ddl_backend_create(&run->backends[run->n_backends],
                                               all ? name : run->config->backend, run->config->threads, &why);
        if (verify_skips_backend(run->config, i, status))
            skip(run, name, "backend", why.text);
        else if (status)
            return ddl_error_set(err, status, "%s", why.text);
        else
            run->n_backends++;
    }
    return DDL_OK;
}

ddl_status ddl_verify_run(const struct ddl_verify_config *config, const char *const *paths, size_t n_paths,
                          ddl_verify_fn *each, void *user, struct ddl_verify_totals *totals,
                          struct ddl_error *err)
{
    *totals = (struct ddl_verify_totals){ 0 };
    struct run run = { .config = config, .each = each, .user = user, .totals = totals };
    ddl_status status =
        config->dtype == DDL_PRECISION_F32 || config->dtype == DDL_PRECISION_BF16
            ? open_backends(&run, err)
            : ddl_error_set(err, DDL_E_USAGE, "dtype: expected f32 or bf16, found number %d", config->dtype);
    for (size_t i = 0; i < n_paths && !status; i++)
        status = walk(&run, paths[i], 0, err);
    for (size_t i = 0; i < run.n_backends; i++)
        ddl_backend_free(run.backends[i]);
    return status;
}
