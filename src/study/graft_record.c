#include "study/graft_record.h"

#include "base/file.h"
#include "base/json.h"
#include "train/config/train_config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_SIZE = 1280, LIMIT = 1 << 20, VALUE_SIZE = DDL_PATHS_SIZE };

const char *const ddl_graft_train_names[] = {
    [DDL_GRAFT_TRAIN_ALL] = "all", [DDL_GRAFT_TRAIN_NEW] = "new", NULL
};

static ddl_status path_of(char path[PATH_SIZE], const char *out, const char *name, struct ddl_error *err)
{
    return (size_t)snprintf(path, PATH_SIZE, "%s/%s.json", out, name) < PATH_SIZE
               ? DDL_OK
               : ddl_error_set(err, DDL_E_USAGE, "%.200s: the folder's path is too long", out);
}

/* ---- settings ---- */

/* Keys of a run that the sweep sets itself, or that have no effect on its results. */
static bool is_ignored(const struct ddl_option *row)
{
    static const char *const names[] = { "train_only", "freeze", "val_every", "backend", "threads" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(row->name, names[i]) == 0)
            return true;
    }
    return ddl_train_on_resume(row) == DDL_RESUME_ANY;
}

static int set_option(json_t *root, const struct ddl_option *row, const void *object)
{
    char value[VALUE_SIZE];
    ddl_option_format(row, object, value, sizeof value);
    return json_object_set_new(root, row->name, json_string(value));
}

/* The settings as an object of strings; NULL: out of memory. */
static json_t *settings_of(const struct ddl_graft_sweep *sweep)
{
    const struct ddl_train_config run = ddl_train_resolved(&sweep->run);
    const char *rule = ddl_option_find(ddl_config_options(), "ddl_residual")->choices[sweep->graft.rule];
    json_t *root = json_pack("{s:s, s:s, s:s}", "source", sweep->source, "rule", rule, "train",
                             ddl_graft_train_names[sweep->train]);
    bool failed = !root;
    for (const struct ddl_option *row = ddl_config_options(); row->name && !failed; row++)
        failed = ddl_graft_may_set(row) && set_option(root, row, &sweep->graft.keys) != 0;
    for (const struct ddl_option *row = ddl_train_options(); row->name && !failed; row++)
        failed = !is_ignored(row) && set_option(root, row, &run) != 0;
    if (failed)
        json_decref(root);
    return failed ? NULL : root;
}

static ddl_status compare_settings(const char *path, const json_t *now, struct ddl_error *err)
{
    json_t *was;
    const char *key;
    json_t *value;
    ddl_status status = ddl_json_read(&was, path, LIMIT, err);
    if (status)
        return status;
    json_object_foreach((json_t *)(uintptr_t)now, key, value)
    {
        const json_t *other = json_object_get(was, key);
        if (json_equal(value, other))
            continue;
        const char *a = json_is_string(other) ? json_string_value(other) : "nothing";
        const char *b = json_string_value(value);
        status =
            ddl_error_set(err, DDL_E_USAGE,
                          "%s: the sweep has another %.40s: expected %.200s, found %.200s; finish it with "
                          "the same options, or choose another --out",
                          path, key, a, b);
        break;
    }
    json_decref(was);
    return status;
}

ddl_status graft_record_settings(const struct ddl_graft_sweep *sweep, struct ddl_error *err)
{
    char path[PATH_SIZE];
    ddl_status status = path_of(path, sweep->out, "graft", err);
    if (status)
        return status;
    json_t *now = settings_of(sweep);
    if (!now)
        return ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory for the settings", path);
    if (ddl_file_exists(path))
        status = compare_settings(path, now, err);
    else if (!(status = ddl_file_make_dir(sweep->out, err)))
        status = ddl_json_write(path, now, err);
    json_decref(now);
    return status;
}

/* ---- results ---- */

/* JSON has no NaN: null. */
static json_t *number_of(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static bool read_number(const json_t *root, const char *key, double *out)
{
    const json_t *value = json_object_get(root, key);
    *out = json_is_number(value) ? json_number_value(value) : (double)NAN;
    return json_is_number(value) || json_is_null(value);
}

static ddl_status read_result(json_t **root, const char *out, const char *name, char path[PATH_SIZE],
                              bool *found, struct ddl_error *err)
{
    *root = NULL;
    ddl_status status = path_of(path, out, name, err);
    *found = !status && ddl_file_exists(path);
    return *found ? ddl_json_read(root, path, LIMIT, err) : status;
}

static ddl_status no_result(const char *path, struct ddl_error *err)
{
    return ddl_error_set(err, DDL_E_FORMAT, "%s: expected the result of a sweep, found other keys", path);
}

static ddl_status write_result(const char *out, const char *name, json_t *root, struct ddl_error *err)
{
    char path[PATH_SIZE];
    ddl_status status = path_of(path, out, name, err);
    if (!status)
        status = ddl_json_write(path, root, err);
    json_decref(root);
    return status;
}

static const char source_name[] = "source-loss";

ddl_status graft_record_read_source(const char *out, struct graft_source *source, bool *found,
                                    struct ddl_error *err)
{
    char path[PATH_SIZE];
    json_t *root;
    ddl_status status = read_result(&root, out, source_name, path, found, err);
    if (status || !*found)
        return status;
    json_int_t tokens = json_integer_value(json_object_get(root, "tokens"));
    if (!read_number(root, "loss", &source->loss) || tokens <= 0)
        status = no_result(path, err);
    source->tokens = tokens > 0 ? (uint64_t)tokens : 0;
    json_decref(root);
    return status;
}

ddl_status graft_record_write_source(const char *out, const struct graft_source *source,
                                     struct ddl_error *err)
{
    return write_result(
        out, source_name,
        json_pack("{s:o, s:I}", "loss", number_of(source->loss), "tokens", (json_int_t)source->tokens), err);
}

ddl_status graft_record_read_row(const char *out, const char *name, struct ddl_graft_row *row, bool *found,
                                 struct ddl_error *err)
{
    char path[PATH_SIZE];
    json_t *root;
    ddl_status status = read_result(&root, out, name, path, found, err);
    if (status || !*found)
        return status;
    if (!read_number(root, "loss", &row->loss) || !read_number(root, "tuned_loss", &row->tuned_loss) ||
        !read_number(root, "seconds", &row->seconds))
        status = no_result(path, err);
    json_decref(root);
    return status;
}

ddl_status graft_record_write_row(const char *out, const char *name, const struct ddl_graft_row *row,
                                  struct ddl_error *err)
{
    return write_result(out, name,
                        json_pack("{s:o, s:o, s:o}", "loss", number_of(row->loss), "tuned_loss",
                                  number_of(row->tuned_loss), "seconds", number_of(row->seconds)),
                        err);
}
