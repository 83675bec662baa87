/* The paths of a run's configuration, as the program uses them and as files of the run store them. */
#include "base/path.h"
#include "train/config/train_config.h"

#include "base/file.h"

#include <stdio.h>
#include <string.h>

/* A value and what to make of it. */
struct mapping {
    enum ddl_path_use use;
    const char *folder;
    bool always; /* absolute paths too are stored relative to the folder */
    bool tasks;  /* names of tasks are not paths */
};

static bool copy(const char *text, char *out, size_t size)
{
    int n = snprintf(out, size, "%s", text);
    return n >= 0 && (size_t)n < size;
}

/* A path of a file in `folder`. The folder itself stays as it was typed. */
static bool load_one(const char *folder, const char *path, char *out, size_t size)
{
    char joined[DDL_PATHS_SIZE];
    if (!ddl_path_is_relative(path))
        return copy(path, out, size);
    if (strcmp(path, ".") == 0)
        return copy(folder, out, size);
    return ddl_path_join(joined, sizeof joined, folder, path) && ddl_path_relative_to(".", joined, out, size);
}

static bool map_one(const struct mapping *m, const char *path, char *out, size_t size)
{
    switch (m->use) {
    case DDL_PATHS_STORE:
        return m->always || ddl_path_is_relative(path) ? ddl_path_relative_to(m->folder, path, out, size)
                                                       : copy(path, out, size);
    case DDL_PATHS_LOAD:
        return load_one(m->folder, path, out, size);
    default:
        return ddl_path_canonical(path, out, size);
    }
}

/* Whether a value of paths is a single one. Where it is stored, its folder is not the working directory. */
static bool is_single(const struct mapping *m, const char *value)
{
    char one[DDL_PATHS_SIZE];
    if (!strchr(value, ','))
        return true;
    if (m->use != DDL_PATHS_LOAD)
        return ddl_file_exists(value);
    return map_one(m, value, one, sizeof one) && ddl_file_exists(one);
}

static bool is_word(const struct ddl_option *row, const char *value)
{
    for (size_t i = 0; row->choices && row->choices[i]; i++) {
        if (strcmp(row->choices[i], value) == 0)
            return true;
    }
    return *value == '\0';
}

static bool is_task(const char *part)
{
    bool found = strcmp(part, "all") == 0 || strcmp(part, "available") == 0;
    for (size_t i = 0; !found && ddl_task_name(i); i++)
        found = strcmp(ddl_task_name(i), part) == 0;
    return found;
}

static bool map_value(const struct mapping *m, const struct ddl_option *row, const char *value, char *out,
                      size_t size)
{
    char part[DDL_PATHS_SIZE];
    bool single = row->type == DDL_OPTION_PATH || is_single(m, value), fits = true;
    if (is_word(row, value) || strlen(value) >= sizeof part)
        return copy(value, out, size);
    for (size_t n; fits; value += n + 1) {
        n = single ? strlen(value) : strcspn(value, ",");
        snprintf(part, sizeof part, "%.*s", (int)n, value);
        fits = m->tasks && is_task(part) ? copy(part, out, size) : map_one(m, part, out, size);
        if (fits && single && *out && is_word(row, out)) { /* a file whose name is one of the words */
            snprintf(part, sizeof part, "./%s", out);
            fits = copy(part, out, size);
        }
        if (!fits || value[n] == '\0')
            return fits;
        size_t used = strlen(out);
        fits = copy(",", out + used, size - used);
        out += used + 1;
        size -= used + 1;
    }
    return fits;
}

bool ddl_train_map_paths(const struct ddl_option *row, enum ddl_path_use use, const char *folder,
                         const char *value, char *out, size_t size)
{
    const struct mapping m = { .use = use,
                               .folder = folder,
                               .always = strcmp(row->name, "out") == 0,
                               .tasks = strcmp(row->name, "tasks") == 0 };
    return map_value(&m, row, value, out, size);
}

ddl_status ddl_train_store_paths(const struct ddl_option *rows, struct ddl_train_config *config,
                                 const char *folder, struct ddl_error *err)
{
    for (const struct ddl_option *row = rows; row->name; row++) {
        char value[DDL_PATHS_SIZE], stored[DDL_PATHS_SIZE];
        if (!ddl_option_is_path(row))
            continue;
        ddl_option_format(row, config, value, sizeof value);
        if (!ddl_train_map_paths(row, DDL_PATHS_STORE, folder, value, stored, sizeof stored))
            return ddl_error_set(err, DDL_E_USAGE, "%s: the path relative to %.200s is too long: '%.200s'",
                                 row->name, folder, value);
        ddl_status status = ddl_option_set(row, config, stored, row->name, err);
        if (status)
            return status;
    }
    return DDL_OK;
}
