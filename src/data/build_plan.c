#include "base/file.h"
#include "base/json.h"
#include "base/sha256.h"
#include "data/build.h"

#include <stdlib.h>
#include <string.h>

enum { PLAN_VERSION = 1, MAX_PLAN = 256 << 20 };

/* A path that is not UTF-8 is read as Latin-1, for JSON. NULL without memory. */
static json_t *path_text(const char *path)
{
    json_t *text = json_string(path);
    char *latin = text ? NULL : malloc(2 * strlen(path) + 1), *at = latin;
    for (const unsigned char *p = (const unsigned char *)path; at && *p; p++) {
        if (*p >= 0x80)
            *at++ = (char)(0xc0 | *p >> 6);
        *at++ = (char)(*p < 0x80 ? *p : 0x80 | (*p & 0x3f));
    }
    if (at) {
        *at = '\0';
        text = json_string(latin);
    }
    free(latin);
    return text;
}

static json_t *inputs_array(const struct ddl_inputs *inputs)
{
    json_t *array = json_array();
    for (size_t i = 0; i < inputs->n; i++) {
        const struct ddl_input *input = &inputs->items[i];
        json_t *row =
            json_pack("{s:o, s:I}", "path", path_text(input->path), "size", (json_int_t)input->size);
        if (json_array_append_new(array, row) != 0) {
            json_decref(array);
            return NULL;
        }
    }
    return array;
}

ddl_status ddl_build_identify(struct ddl_build *b, struct ddl_error *err)
{
    json_t *about =
        json_pack("{s:s, s:o, s:o}", "tokenizer", b->identity.sha256, "options",
                  ddl_build_recorded_options(b->config, false), "inputs", inputs_array(&b->inputs));
    char *text = about ? ddl_json_dumps(about, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    struct ddl_sha256 sum;
    ddl_sha256_begin(&sum);
    ddl_sha256_add(&sum, text ? text : "", text ? strlen(text) : 0);
    ddl_sha256_end_hex(&sum, b->name);
    json_decref(about);
    free(text);
    return text ? DDL_OK : ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory", b->config->out);
}

static json_t *make_plan(const struct ddl_build *b)
{
    return json_pack("{s:i, s:s, s:o, s:o}", "version", PLAN_VERSION, "tokenizer", b->identity.sha256,
                     "options", ddl_build_recorded_options(b->config, true), "inputs",
                     inputs_array(&b->inputs));
}

static const char *input_path(const json_t *plan, size_t i)
{
    const char *path =
        json_string_value(json_object_get(json_array_get(json_object_get(plan, "inputs"), i), "path"));
    return path ? path : "";
}

/* The first difference between two plans: what it is in, and both values. */
struct difference {
    char what[64], expected[512], found[512];
};

static bool differ(struct difference *d, const char *what, const char *expected, const char *found)
{
    snprintf(d->what, sizeof d->what, "%.60s", what);
    snprintf(d->expected, sizeof d->expected, "%.500s", expected);
    snprintf(d->found, sizeof d->found, "%.500s", found);
    return true;
}

static bool inputs_differ(const json_t *expected, const json_t *found, struct difference *d)
{
    const size_t n = json_array_size(json_object_get(expected, "inputs")),
                 m = json_array_size(json_object_get(found, "inputs"));
    for (size_t i = 0; i < n || i < m; i++) {
        const char *before = i < n ? input_path(expected, i) : "none",
                   *now = i < m ? input_path(found, i) : "none";
        char what[64];
        snprintf(what, sizeof what, "input %zu", i + 1);
        if (strcmp(before, now) != 0)
            return differ(d, what, before, now);
    }
    return false;
}

static bool plans_differ(const json_t *expected, const json_t *found, struct difference *d)
{
    const char *before = json_string_value(json_object_get(expected, "tokenizer")),
               *now = json_string_value(json_object_get(found, "tokenizer"));
    json_t *options = json_object_get(expected, "options"), *rows = json_object_get(found, "options"), *value;
    const char *name;
    if (!before || json_integer_value(json_object_get(expected, "version")) != PLAN_VERSION)
        return differ(d, "plan version", "another", "1");
    if (strcmp(before, now) != 0)
        return differ(d, "tokenizer (SHA-256)", before, now);
    json_object_foreach(rows, name, value)
    {
        const char *other = json_string_value(json_object_get(options, name));
        char option[64];
        snprintf(option, sizeof option, "--%.60s", name);
        if (!other || strcmp(other, json_string_value(value)) != 0)
            return differ(d, option, other ? other : "", json_string_value(value));
    }
    json_object_foreach(options, name, value)
    {
        char option[64];
        snprintf(option, sizeof option, "--%.60s", name);
        if (!json_object_get(rows, name))
            return differ(d, option, json_string_value(value) ? json_string_value(value) : "", "");
    }
    return inputs_differ(expected, found, d);
}

/* The parts are divided by the sizes that the first process has found. */
static void use_sizes(struct ddl_build *b, const json_t *plan)
{
    const json_t *inputs = json_object_get(plan, "inputs");
    for (size_t i = 0; i < b->inputs.n; i++)
        b->inputs.items[i].size =
            (uint64_t)json_integer_value(json_object_get(json_array_get(inputs, i), "size"));
}

static bool has_standard_input(const json_t *plan)
{
    const size_t n = json_array_size(json_object_get(plan, "inputs"));
    for (size_t i = 0; i < n; i++) {
        if (strcmp(input_path(plan, i), "-") == 0)
            return true;
    }
    return false;
}

/* Compares the plan with `old` of an earlier process. *fresh: nothing is kept of the earlier build. */
static ddl_status compare(struct ddl_build *b, const json_t *old, const json_t *plan, bool *fresh,
                          struct ddl_error *err)
{
    struct difference d;
    bool busy;
    size_t finished;
    const bool differs = plans_differ(old, plan, &d);
    ddl_status status = ddl_build_folder_count(&b->folder, &finished, err);
    if (status)
        return status;
    *fresh = has_standard_input(old) || (differs && finished == 0);
    if (*fresh)
        return ddl_build_folder_alone(&b->folder, &busy, err);
    if (!differs)
        return DDL_OK;
    return ddl_error_set(
        err, DDL_E_USAGE,
        "%.300s: has an unfinished build with another %s: expected %.200s, found %.200s; run "
        "that build again, or remove the folder to start again",
        b->folder.path, d.what, d.expected, d.found);
}

ddl_status ddl_build_plan(struct ddl_build *b, struct ddl_error *err)
{
    char path[DDL_BUILD_PATH];
    json_t *old = NULL, *plan = make_plan(b);
    bool fresh = !ddl_build_folder_has(&b->folder, DDL_BUILD_PLAN);
    ddl_build_folder_file(&b->folder, DDL_BUILD_PLAN, path);
    ddl_status status = plan ? DDL_OK : ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory", path);
    if (!status && !fresh)
        status = ddl_json_read(&old, path, MAX_PLAN, err);
    if (!status && !fresh)
        status = compare(b, old, plan, &fresh, err);
    if (!status && fresh) {
        status = ddl_build_folder_clear(&b->folder, err);
        if (!status)
            status = ddl_json_write(path, plan, err);
    } else if (!status) {
        use_sizes(b, old);
    }
    json_decref(old);
    json_decref(plan);
    return status;
}
