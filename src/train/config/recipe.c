#define _POSIX_C_SOURCE 200809L
#include "train/config/recipe.h"

#include "base/file.h"
#include "base/mem.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

struct reader {
    yaml_parser_t parser;
    yaml_event_t event; /* the current one; owned */
    const char *path;
    struct ddl_error *err;
};

static size_t line_of(const struct reader *r)
{
    return r->event.start_mark.line + 1;
}

static ddl_status no_memory(const struct reader *r)
{
    return ddl_error_set(r->err, DDL_E_MEMORY, "%s: out of memory", r->path);
}

/* Advances to the next event. */
static ddl_status next(struct reader *r)
{
    yaml_event_delete(&r->event);
    if (yaml_parser_parse(&r->parser, &r->event))
        return DDL_OK;
    memset(&r->event, 0, sizeof r->event);
    if (r->parser.error == YAML_MEMORY_ERROR)
        return no_memory(r);
    size_t line = r->parser.problem_mark.line + 1;
    return ddl_error_set(r->err, DDL_E_USAGE, "%s:%zu: not valid YAML: %s", r->path, line,
                         r->parser.problem ? r->parser.problem : "cannot be read");
}

/* The current event must be a scalar; *out gets a copy. */
static ddl_status take_scalar(struct reader *r, const char *what, char **out)
{
    const char *wanted = "expected a flat list of 'key: value'";
    if (r->event.type != YAML_SCALAR_EVENT)
        return ddl_error_set(r->err, DDL_E_USAGE, "%s:%zu: %s is %s; %s", r->path, line_of(r), what,
                             r->event.type == YAML_ALIAS_EVENT ? "an alias" : "nested", wanted);
    const char *text = (const char *)r->event.data.scalar.value;
    size_t length = r->event.data.scalar.length;
    if (length >= DDL_RECIPE_VALUE || strlen(text) != length)
        return ddl_error_set(r->err, DDL_E_USAGE, "%s:%zu: %s is longer than %d bytes, or binary", r->path,
                             line_of(r), what, DDL_RECIPE_VALUE - 1);
    *out = ddl_mem_strdup(text);
    return *out ? DDL_OK : no_memory(r);
}

/* `key:` and `key: ~`: YAML's null, which no key accepts. */
static bool is_null(const yaml_event_t *event)
{
    const char *text = (const char *)event->data.scalar.value;
    return event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
           (*text == '\0' || strcmp(text, "~") == 0 || strcmp(text, "null") == 0);
}

static bool same_key(const char *a, const char *b)
{
    for (; *a && (*a == '-' ? '_' : *a) == (*b == '-' ? '_' : *b); a++, b++)
        continue;
    return *a == '\0' && *b == '\0';
}

const struct ddl_recipe_entry *ddl_recipe_find(const struct ddl_recipe *recipe, const char *key)
{
    for (size_t i = 0; i < recipe->n; i++) {
        if (same_key(recipe->entries[i].key, key))
            return &recipe->entries[i];
    }
    return NULL;
}

ddl_status ddl_recipe_append(struct ddl_recipe *recipe, const char *key, const char *value, size_t line,
                             struct ddl_error *err)
{
    if (recipe->n == recipe->capacity) {
        size_t capacity = recipe->capacity ? 2 * recipe->capacity : 32;
        void *grown = realloc(recipe->entries, capacity * sizeof *recipe->entries);
        if (!grown)
            return ddl_error_set(err, DDL_E_MEMORY, "out of memory for %zu keys", capacity);
        recipe->entries = grown;
        recipe->capacity = capacity;
    }
    struct ddl_recipe_entry entry = { ddl_mem_strdup(key), ddl_mem_strdup(value), line };
    if (!entry.key || !entry.value) {
        free(entry.key);
        free(entry.value);
        return ddl_error_set(err, DDL_E_MEMORY, "out of memory for the key '%.80s'", key);
    }
    recipe->entries[recipe->n++] = entry;
    return DDL_OK;
}

static ddl_status add_entry(struct ddl_recipe *recipe, struct reader *r, const char *key, const char *value,
                            size_t line)
{
    const struct ddl_recipe_entry *earlier = ddl_recipe_find(recipe, key);
    if (earlier)
        return ddl_error_set(r->err, DDL_E_USAGE, "%s:%zu: duplicate key '%.80s': first defined at line %zu",
                             r->path, line, key, earlier->line);
    if (recipe->n == DDL_RECIPE_KEYS)
        return ddl_error_set(r->err, DDL_E_USAGE, "%s:%zu: more than %d keys", r->path, line,
                             DDL_RECIPE_KEYS);
    ddl_status status = ddl_recipe_append(recipe, key, value, line, r->err);
    return status ? ddl_error_prefix(r->err, status, r->path) : DDL_OK;
}

/* The current event is a key. */
static ddl_status read_entry(struct ddl_recipe *recipe, struct reader *r)
{
    const size_t line = line_of(r);
    char *key = NULL, *value = NULL;
    ddl_status status = take_scalar(r, "a key", &key);
    if (!status)
        status = next(r);
    if (!status && r->event.type == YAML_SCALAR_EVENT && is_null(&r->event))
        status = ddl_error_set(r->err, DDL_E_USAGE, "%s:%zu: key '%.80s' has no value", r->path, line, key);
    if (!status) {
        char what[128];
        snprintf(what, sizeof what, "the value of '%.80s'", key);
        status = take_scalar(r, what, &value);
    }
    if (!status)
        status = add_entry(recipe, r, key, value, line);
    free(key);
    free(value);
    return status;
}

static ddl_status read_document(struct ddl_recipe *recipe, struct reader *r)
{
    ddl_status status = next(r); /* the document's start, or the stream's end: an empty recipe */
    if (status || r->event.type == YAML_STREAM_END_EVENT)
        return status;
    status = next(r);
    if (!status && r->event.type == YAML_SCALAR_EVENT && is_null(&r->event))
        return next(r);
    if (!status && r->event.type != YAML_MAPPING_START_EVENT)
        return ddl_error_set(r->err, DDL_E_USAGE, "%s:%zu: not a list of 'key: value'", r->path, line_of(r));
    while (!status && !(status = next(r)) && r->event.type != YAML_MAPPING_END_EVENT)
        status = read_entry(recipe, r);
    return status ? status : next(r);
}

static ddl_status read_stream(struct ddl_recipe *recipe, struct reader *r)
{
    ddl_status status = next(r); /* the stream's start */
    if (!status)
        status = read_document(recipe, r);
    if (!status && r->event.type == YAML_DOCUMENT_END_EVENT)
        status = next(r);
    if (!status && r->event.type != YAML_STREAM_END_EVENT)
        status = ddl_error_set(r->err, DDL_E_USAGE, "%s:%zu: expected one document, found a second", r->path,
                               line_of(r));
    return status;
}

ddl_status ddl_recipe_check_depth(const char *path, const char *text, size_t size, struct ddl_error *err)
{
    enum { DEEPEST = 32 };
    yaml_parser_t parser;
    yaml_event_t event;
    ddl_status status = DDL_OK;
    if (!yaml_parser_initialize(&parser))
        return ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory", path);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, size);
    int depth = 0;
    for (bool end = false; !end && !status && yaml_parser_parse(&parser, &event);) {
        end = event.type == YAML_STREAM_END_EVENT;
        depth += event.type == YAML_SEQUENCE_START_EVENT || event.type == YAML_MAPPING_START_EVENT;
        depth -= event.type == YAML_SEQUENCE_END_EVENT || event.type == YAML_MAPPING_END_EVENT;
        if (depth > DEEPEST)
            status = ddl_error_set(err, DDL_E_USAGE, "%s:%zu: lists or mappings nested more than %d deep",
                                   path, event.start_mark.line + 1, DEEPEST);
        yaml_event_delete(&event);
    }
    yaml_parser_delete(&parser);
    return status;
}

ddl_status ddl_recipe_read(struct ddl_recipe *recipe, const char *path, struct ddl_error *err)
{
    char *text;
    size_t size;
    ddl_status status = ddl_file_read(path, DDL_RECIPE_BYTES, &text, &size, err);
    if (status)
        return status;
    struct reader r = { .path = path, .err = err };
    if (yaml_parser_initialize(&r.parser)) {
        yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, size);
        status = read_stream(recipe, &r);
        yaml_event_delete(&r.event);
        yaml_parser_delete(&r.parser);
    } else {
        status = no_memory(&r);
    }
    free(text);
    return status;
}

void ddl_recipe_free(struct ddl_recipe *recipe)
{
    for (size_t i = 0; i < recipe->n; i++) {
        free(recipe->entries[i].key);
        free(recipe->entries[i].value);
    }
    free(recipe->entries);
    *recipe = (struct ddl_recipe){ 0 };
}
