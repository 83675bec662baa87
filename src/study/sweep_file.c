/* Reads a sweep file: a YAML mapping whose sections are values, lists and mappings. */
#define _POSIX_C_SOURCE 200809L
#include "study/sweep_file.h"

#include "base/file.h"
#include "base/locale.h"
#include "base/mem.h"
#include "base/path.h"
#include "train/config/train_config.h"

#include <stdlib.h>
#include <string.h>
#include <yaml.h>

struct parser {
    yaml_document_t *document;
    struct ddl_sweep_file *file;
    struct ddl_error *err;
};

enum { MAX_ENTRIES = 1024, MAX_EXTEND = 16 };

const struct ddl_option *sweep_key_row(const char *key)
{
    const struct ddl_option *row = ddl_option_find(ddl_train_options(), key);
    return row ? row : ddl_option_find(ddl_config_options(), key);
}

bool sweep_same_key(const char *a, const char *b)
{
    const struct ddl_option *row = sweep_key_row(a);
    return row ? row == sweep_key_row(b) : strcmp(a, b) == 0;
}

const struct sweep_axis *sweep_find_axis(const struct sweep_grid *grid, const char *key)
{
    for (size_t i = 0; i < grid->n; i++) {
        if (sweep_same_key(grid->axes[i].key, key))
            return &grid->axes[i];
    }
    return NULL;
}

/* ---- nodes ---- */

static yaml_node_t *node_at(const struct parser *p, int index)
{
    return yaml_document_get_node(p->document, index);
}

static size_t line_of(const yaml_node_t *node)
{
    return node->start_mark.line + 1;
}

static const char *kind_of(const yaml_node_t *node)
{
    return node->type == YAML_MAPPING_NODE    ? "a mapping"
           : node->type == YAML_SEQUENCE_NODE ? "a list"
                                              : "a value";
}

static ddl_status wrong(const struct parser *p, const yaml_node_t *node, const char *what,
                        const char *expected, const char *found)
{
    return ddl_error_set(p->err, DDL_E_USAGE, "%s:%zu: %s: expected %s, found %s", p->file->path,
                         line_of(node), what, expected, found);
}

static ddl_status no_memory(const struct parser *p)
{
    return ddl_error_set(p->err, DDL_E_MEMORY, "%s: out of memory", p->file->path);
}

/* *out: the text of a node that must be a value; borrowed. */
static ddl_status take_text(const struct parser *p, const yaml_node_t *node, const char *what,
                            const char **out)
{
    *out = "";
    if (node->type != YAML_SCALAR_NODE)
        return wrong(p, node, what, "a value", kind_of(node));
    const char *text = (const char *)node->data.scalar.value;
    size_t n = node->data.scalar.length;
    bool plain = node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    if (plain && (n == 0 || strcmp(text, "~") == 0 || strcmp(text, "null") == 0))
        return wrong(p, node, what, "a value", "none");
    if (n >= DDL_RECIPE_VALUE || strlen(text) != n)
        return wrong(p, node, what, "a shorter text", "more than 8191 bytes, or binary");
    *out = text;
    return DDL_OK;
}

static ddl_status copy_text(const struct parser *p, const yaml_node_t *node, const char *what, char **out)
{
    const char *text;
    ddl_status status = take_text(p, node, what, &text);
    if (status)
        return status;
    *out = ddl_mem_strdup(text);
    return *out ? DDL_OK : no_memory(p);
}

/* Appends the values of a list, or the one value. */
static ddl_status read_values(const struct parser *p, const yaml_node_t *node, const char *key,
                              struct ddl_recipe *out)
{
    const char *text;
    ddl_status status = DDL_OK;
    if (node->type != YAML_SEQUENCE_NODE) {
        status = take_text(p, node, key, &text);
        return status ? status : ddl_recipe_append(out, key, text, line_of(node), p->err);
    }
    for (const yaml_node_item_t *item = node->data.sequence.items.start;
         !status && item < node->data.sequence.items.top; item++) {
        const yaml_node_t *value = node_at(p, *item);
        status = take_text(p, value, key, &text);
        if (!status)
            status = ddl_recipe_append(out, key, text, line_of(value), p->err);
    }
    return status || out->n ? status : wrong(p, node, key, "at least one value", "an empty list");
}

/* ---- mappings ---- */

/* Reads the value of `key`, which is at `line`, into `user`. */
typedef ddl_status pair_fn(const struct parser *p, const char *key, size_t line, const yaml_node_t *value,
                           void *user);

/* Reads each pair of a mapping whose keys are all different. */
static ddl_status read_mapping(const struct parser *p, const yaml_node_t *node, const char *what,
                               pair_fn *read, void *user)
{
    struct ddl_recipe seen = { 0 };
    ddl_status status = DDL_OK;
    if (node->type != YAML_MAPPING_NODE)
        return wrong(p, node, what, "a mapping", kind_of(node));
    for (const yaml_node_pair_t *pair = node->data.mapping.pairs.start;
         !status && pair < node->data.mapping.pairs.top; pair++) {
        const yaml_node_t *name = node_at(p, pair->key);
        const char *key;
        status = take_text(p, name, "a key", &key);
        const struct ddl_recipe_entry *earlier = status ? NULL : ddl_recipe_find(&seen, key);
        if (earlier)
            status =
                ddl_error_set(p->err, DDL_E_USAGE, "%s:%zu: duplicate key '%.80s': first defined at line %zu",
                              p->file->path, line_of(name), key, earlier->line);
        if (!status)
            status = ddl_recipe_append(&seen, key, "", line_of(name), p->err);
        if (!status)
            status = read(p, key, line_of(name), node_at(p, pair->value), user);
    }
    ddl_recipe_free(&seen);
    return status;
}

/* A key of a recipe, into a struct ddl_recipe. The sweep sets the folder and the seed. */
static ddl_status read_recipe_key(const struct parser *p, const char *key, size_t line,
                                  const yaml_node_t *value, void *user)
{
    const char *text;
    ddl_status status = take_text(p, value, key, &text);
    if (!status && sweep_same_key(key, "out"))
        return ddl_error_set(p->err, DDL_E_USAGE,
                             "%s:%zu: %s: expected no run folder: each run has one below the sweep's out",
                             p->file->path, line, key);
    return status ? status : ddl_recipe_append(user, key, text, line, p->err);
}

/* ---- axes ---- */

/* Appends an axis without values; NULL: out of memory. */
static struct sweep_axis *add_axis(struct sweep_grid *grid, const char *key, size_t line)
{
    struct sweep_axis *grown = realloc(grid->axes, (grid->n + 1) * sizeof *grown);
    if (!grown)
        return NULL;
    grid->axes = grown;
    struct sweep_axis *axis = &grown[grid->n++];
    *axis = (struct sweep_axis){ .key = ddl_mem_strdup(key), .line = line };
    return axis->key ? axis : NULL;
}

static ddl_status read_axis(const struct parser *p, const char *key, size_t line, const yaml_node_t *value,
                            void *user)
{
    struct sweep_grid *grid = user;
    struct sweep_axis *axis = add_axis(grid, key, line);
    if (!axis)
        return no_memory(p);
    const char *instead = sweep_same_key(key, "seed") ? "seeds" : sweep_same_key(key, "out") ? "out" : NULL;
    if (instead)
        return ddl_error_set(p->err, DDL_E_USAGE,
                             "%s:%zu: grid: expected another key than %s: set %s of the sweep", p->file->path,
                             line, key, instead);
    for (size_t i = 0; i + 1 < grid->n; i++) {
        if (sweep_same_key(grid->axes[i].key, key))
            return ddl_error_set(p->err, DDL_E_USAGE,
                                 "%s:%zu: grid: '%.80s' is the same key as '%.80s' at line %zu",
                                 p->file->path, line, key, grid->axes[i].key, grid->axes[i].line);
    }
    return read_values(p, value, key, &axis->values);
}

static ddl_status read_grid(const struct parser *p, const yaml_node_t *node, struct sweep_grid *out)
{
    return read_mapping(p, node, "grid", read_axis, out);
}

/* ---- models ---- */

/* Values of an entry to choose from: a list for the one key that is chosen, which check_sections names, or a
 * mapping of keys. */
static ddl_status read_entry_choose(const struct parser *p, size_t line, const yaml_node_t *node,
                                    struct sweep_grid *out)
{
    if (node->type == YAML_MAPPING_NODE)
        return read_mapping(p, node, "choose", read_axis, out);
    struct sweep_axis *axis = add_axis(out, "", line);
    return axis ? read_values(p, node, "choose", &axis->values) : no_memory(p);
}

static ddl_status read_entry_key(const struct parser *p, const char *key, size_t line,
                                 const yaml_node_t *value, void *user)
{
    struct sweep_entry *entry = user;
    if (strcmp(key, "name") == 0)
        return copy_text(p, value, "name", &entry->name);
    if (strcmp(key, "grid") == 0)
        return read_grid(p, value, &entry->grid);
    if (strcmp(key, "seeds") == 0)
        return read_values(p, value, "seed", &entry->seeds);
    if (strcmp(key, "choose") == 0)
        return read_entry_choose(p, line, value, &entry->choose);
    if (sweep_same_key(key, "seed"))
        return ddl_error_set(p->err, DDL_E_USAGE, "%s:%zu: seed: expected seeds, a list", p->file->path,
                             line);
    return read_recipe_key(p, key, line, value, &entry->keys);
}

static bool is_name(const char *text)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+-";
    size_t n = strlen(text);
    return n > 0 && n <= 80 && text[strspn(text, allowed)] == '\0' && text[0] != '.' && text[0] != '-';
}

/* A mapping, or the name of a model alone. */
static ddl_status read_entry(const struct parser *p, const yaml_node_t *node, struct sweep_entry *entry)
{
    ddl_status status;
    entry->line = line_of(node);
    if (node->type == YAML_SCALAR_NODE) {
        status = copy_text(p, node, "models", &entry->name);
        if (!status)
            status = ddl_recipe_append(&entry->keys, "model", entry->name, entry->line, p->err);
    } else {
        status = read_mapping(p, node, "models", read_entry_key, entry);
    }
    if (!status && !entry->name)
        status = wrong(p, node, "models", "a name", "none");
    if (!status && (!is_name(entry->name) || strcmp(entry->name, "choose") == 0))
        status = wrong(p, node, "name",
                       "up to 80 letters, digits and ._+-, not beginning with . or -, and not 'choose'",
                       entry->name);
    return status;
}

static ddl_status read_models(const struct parser *p, const yaml_node_t *node)
{
    struct ddl_sweep_file *file = p->file;
    if (node->type != YAML_SEQUENCE_NODE)
        return wrong(p, node, "models", "a list", kind_of(node));
    size_t n = (size_t)(node->data.sequence.items.top - node->data.sequence.items.start);
    if (n == 0 || n > MAX_ENTRIES)
        return wrong(p, node, "models", "1 to 1024 entries", n ? "more" : "an empty list");
    file->entries = calloc(n, sizeof *file->entries);
    if (!file->entries)
        return no_memory(p);
    ddl_status status = DDL_OK;
    for (size_t i = 0; !status && i < n; i++) {
        const yaml_node_t *item = node_at(p, node->data.sequence.items.start[i]);
        file->n_entries++;
        status = read_entry(p, item, &file->entries[i]);
        for (size_t k = 0; !status && k < i; k++) {
            if (strcmp(file->entries[k].name, file->entries[i].name) == 0)
                status = ddl_error_set(
                    p->err, DDL_E_USAGE, "%s:%zu: models: duplicate name '%s': first defined at line %zu",
                    file->path, line_of(item), file->entries[i].name, file->entries[k].line);
        }
    }
    return status;
}

/* ---- the choice ---- */

static ddl_status read_loss(const struct parser *p, const yaml_node_t *value, int *out)
{
    static const char *const names[] = { [SWEEP_LOSS_VAL] = "val", [SWEEP_LOSS_TRAIN] = "train" };
    const char *text;
    ddl_status status = take_text(p, value, "loss", &text);
    for (int i = SWEEP_LOSS_VAL; !status && i <= SWEEP_LOSS_TRAIN; i++) {
        if (strcmp(text, names[i]) == 0) {
            *out = i;
            return DDL_OK;
        }
    }
    return status ? status : wrong(p, value, "loss", "val or train", text);
}

static ddl_status read_count(const struct parser *p, const yaml_node_t *node, const char *what, size_t most,
                             size_t *out)
{
    const char *text;
    char expected[64];
    ddl_status status = take_text(p, node, what, &text);
    if (status)
        return status;
    const unsigned long long value = strtoull(text, NULL, 10);
    *out = (size_t)value;
    snprintf(expected, sizeof expected, "a number from 0 to %zu", most);
    return text[strspn(text, "0123456789")] || value > most ? wrong(p, node, what, expected, text) : DDL_OK;
}

/* The text that is no positive number, or NULL. */
static const char *find_unextendable(const struct ddl_recipe *values)
{
    for (size_t i = 0; i < values->n; i++) {
        char *end;
        const char *text = values->entries[i].value;
        if (!(ddl_parse_double(text, &end) > 0) || *end)
            return text;
    }
    return NULL;
}

/* One of the lists can be continued: it has at least two values, all positive numbers. */
static ddl_status check_extension(const struct parser *p, const yaml_node_t *node,
                                  const struct sweep_grid *axes)
{
    const char *text = NULL;
    for (size_t i = 0; i < axes->n; i++) {
        const char *found = find_unextendable(&axes->axes[i].values);
        if (!found && axes->axes[i].values.n > 1)
            return DDL_OK;
        text = text ? text : found;
    }
    return text ? wrong(p, node, "choose: extend", "values that are positive numbers", text)
                : wrong(p, node, "choose: extend", "at least two values to continue", "one");
}

/* The section `choose` while it is read: `key` and `values` are a grid of one axis. */
struct choose_reader {
    struct sweep_choose *choose;
    char *key;
    struct ddl_recipe values;
};

static ddl_status read_choose_key(const struct parser *p, const char *key, size_t line,
                                  const yaml_node_t *value, void *user)
{
    static const struct ddl_option names[] = { { .name = "key" },   { .name = "values" }, { .name = "grid" },
                                               { .name = "steps" }, { .name = "seed" },   { .name = "loss" },
                                               { .name = "set" },   { .name = "extend" }, { 0 } };
    struct choose_reader *reader = user;
    struct sweep_choose *choose = reader->choose;
    char where[1200];
    if (strcmp(key, "key") == 0)
        return copy_text(p, value, "key", &reader->key);
    if (strcmp(key, "values") == 0)
        return read_values(p, value, "choose", &reader->values);
    if (strcmp(key, "grid") == 0)
        return read_grid(p, value, &choose->axes);
    if (strcmp(key, "seed") == 0)
        return read_recipe_key(p, "seed", line, value, &choose->seed);
    if (strcmp(key, "steps") == 0)
        return read_recipe_key(p, "steps", line, value, &choose->keys);
    if (strcmp(key, "loss") == 0)
        return read_loss(p, value, &choose->loss);
    if (strcmp(key, "set") == 0)
        return read_mapping(p, value, "set", read_recipe_key, &choose->keys);
    if (strcmp(key, "extend") == 0)
        return read_count(p, value, "extend", MAX_EXTEND, &choose->extend);
    snprintf(where, sizeof where, "%.1024s:%zu: choose", p->file->path, line);
    return ddl_option_unknown(names, where, "key", key, p->err);
}

/* Makes an axis of `key` and `values`, if the section has no grid. */
static ddl_status complete_axes(const struct parser *p, const yaml_node_t *node, size_t line,
                                struct choose_reader *reader)
{
    struct sweep_grid *axes = &reader->choose->axes;
    if (axes->n && (reader->key || reader->values.n))
        return wrong(p, node, "choose", "key and values, or grid", "both");
    if (axes->n)
        return DDL_OK;
    if (!reader->key || !reader->values.n)
        return wrong(p, node, "choose", "key and values, or grid", reader->key ? "no values" : "no key");
    struct sweep_axis *axis = add_axis(axes, reader->key, line);
    if (!axis)
        return no_memory(p);
    axis->values = reader->values;
    reader->values = (struct ddl_recipe){ 0 };
    return DDL_OK;
}

static ddl_status check_chosen_key(const struct parser *p, const yaml_node_t *node,
                                   const struct sweep_choose *choose, const char *chosen)
{
    if (sweep_same_key(chosen, "seed") || sweep_same_key(chosen, "out") || sweep_same_key(chosen, "steps"))
        return wrong(p, node, "choose: key", "another key than seed, out and steps", chosen);
    for (size_t i = 0; i < choose->keys.n; i++) {
        const char *key = choose->keys.entries[i].key;
        if (sweep_same_key(key, chosen) || sweep_same_key(key, "seed"))
            return wrong(p, node, "choose: set", "another key than the chosen one and seed", key);
    }
    return DDL_OK;
}

static ddl_status read_choose(const struct parser *p, const yaml_node_t *node, size_t line)
{
    struct sweep_choose *choose = &p->file->choose;
    struct choose_reader reader = { .choose = choose };
    choose->line = line;
    ddl_status status = read_mapping(p, node, "choose", read_choose_key, &reader);
    if (!status)
        status = complete_axes(p, node, line, &reader);
    for (size_t i = 0; !status && i < choose->axes.n; i++)
        status = check_chosen_key(p, node, choose, choose->axes.axes[i].key);
    if (!status && choose->extend)
        status = check_extension(p, node, &choose->axes);
    free(reader.key);
    ddl_recipe_free(&reader.values);
    return status;
}

static ddl_status read_number(const struct parser *p, const yaml_node_t *node, const char *what, double most,
                              double *out)
{
    const char *text;
    char *end;
    ddl_status status = take_text(p, node, what, &text);
    if (status)
        return status;
    *out = ddl_parse_double(text, &end);
    return *end || !(*out > 0 && *out < most) ? wrong(p, node, what, "a positive number in its range", text)
                                              : DDL_OK;
}

static ddl_status read_secondary(const struct parser *p, const yaml_node_t *node, char *out, size_t size)
{
    struct ddl_recipe values = { 0 };
    ddl_status status = read_values(p, node, "secondary", &values);
    for (size_t i = 0; !status && i < values.n; i++) {
        const size_t used = strlen(out);
        const int n = snprintf(out + used, size - used, "%s%s", i ? "\n" : "", values.entries[i].value);
        if ((size_t)n >= size - used)
            status = wrong(p, node, "secondary", "shorter contrasts", "too many bytes");
    }
    ddl_recipe_free(&values);
    return status;
}

static ddl_status read_protocol_key(const struct parser *p, const char *key, size_t line,
                                    const yaml_node_t *value, void *user)
{
    static const struct ddl_option names[] = { { .name = "question" },  { .name = "primary" },
                                               { .name = "secondary" }, { .name = "margin" },
                                               { .name = "power" },     { .name = "level" },
                                               { .name = "stopping" },  { 0 } };
    struct ddl_sweep_protocol *protocol = user;
    const struct {
        const char *key;
        char *out;
        size_t size;
    } texts[] = { { "question", protocol->question, sizeof protocol->question },
                  { "primary", protocol->primary, sizeof protocol->primary },
                  { "stopping", protocol->stopping, sizeof protocol->stopping } };
    char where[1200];
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const char *text;
        if (strcmp(key, texts[i].key) != 0)
            continue;
        ddl_status status = take_text(p, value, key, &text);
        if (!status && strlen(text) >= texts[i].size)
            status = wrong(p, value, key, "a shorter text", "too many bytes");
        if (!status)
            snprintf(texts[i].out, texts[i].size, "%s", text);
        return status;
    }
    if (strcmp(key, "secondary") == 0)
        return read_secondary(p, value, protocol->secondary, sizeof protocol->secondary);
    if (strcmp(key, "margin") == 0)
        return read_number(p, value, key, 1e6, &protocol->margin);
    if (strcmp(key, "power") == 0)
        return read_number(p, value, key, 1, &protocol->power);
    if (strcmp(key, "level") == 0)
        return read_number(p, value, key, 0.4, &protocol->level);
    snprintf(where, sizeof where, "%.1024s:%zu: protocol", p->file->path, line);
    return ddl_option_unknown(names, where, "key", key, p->err);
}

static ddl_status read_protocol(const struct parser *p, const yaml_node_t *node)
{
    struct ddl_sweep_protocol *protocol = &p->file->protocol;
    protocol->power = 0.8;
    protocol->level = 0.05;
    ddl_status status = read_mapping(p, node, "protocol", read_protocol_key, protocol);
    if (!status && !*protocol->primary)
        status = wrong(p, node, "protocol", "primary", "no primary");
    return status;
}

/* ---- the file ---- */

static ddl_status read_section(const struct parser *p, const char *key, size_t line, const yaml_node_t *value,
                               void *user)
{
    static const struct ddl_option names[] = { { .name = "base" },        { .name = "set" },
                                               { .name = "out" },         { .name = "models" },
                                               { .name = "seeds" },       { .name = "grid" },
                                               { .name = "choose" },      { .name = "protocol" },
                                               { .name = "relative_to" }, { 0 } };
    struct ddl_sweep_file *file = p->file;
    char where[1200];
    (void)user;
    if (strcmp(key, "base") == 0)
        return value->type == YAML_SCALAR_NODE ? copy_text(p, value, "base", &file->base_path)
                                               : read_mapping(p, value, "base", read_recipe_key, &file->base);
    if (strcmp(key, "set") == 0)
        return read_mapping(p, value, "set", read_recipe_key, &file->set);
    if (strcmp(key, "out") == 0)
        return copy_text(p, value, "out", &file->out);
    if (strcmp(key, "models") == 0)
        return read_models(p, value);
    if (strcmp(key, "seeds") == 0)
        return read_values(p, value, "seed", &file->seeds);
    if (strcmp(key, "grid") == 0)
        return read_grid(p, value, &file->grid);
    if (strcmp(key, "choose") == 0)
        return read_choose(p, value, line);
    if (strcmp(key, "protocol") == 0)
        return read_protocol(p, value);
    if (strcmp(key, ddl_relative_to_key) == 0) {
        const char *text;
        ddl_status status = take_text(p, value, key, &text);
        file->relative = !status && strcmp(text, ddl_relative_to_names[DDL_RELATIVE_TO_RECIPE]) == 0;
        if (!status && !file->relative &&
            strcmp(text, ddl_relative_to_names[DDL_RELATIVE_TO_WORKING_DIRECTORY]) != 0)
            status = wrong(p, value, key, "working_directory or recipe", text);
        return status;
    }
    snprintf(where, sizeof where, "%.1024s:%zu", file->path, line);
    return ddl_option_unknown(names, where, "key", key, p->err);
}

/* The axes of an entry's own values are keys that are chosen; a list is that of the only one. */
static ddl_status check_entry_choose(const struct parser *p, struct sweep_grid *own)
{
    const struct sweep_grid *chosen = &p->file->choose.axes;
    for (size_t i = 0; i < own->n; i++) {
        struct sweep_axis *axis = &own->axes[i];
        if (*axis->key == '\0' && chosen->n > 1)
            return ddl_error_set(p->err, DDL_E_USAGE,
                                 "%s:%zu: choose: several keys are chosen: expected a mapping of keys to "
                                 "values, found a list",
                                 p->file->path, axis->line);
        if (*axis->key == '\0' && chosen->n == 1) {
            free(axis->key);
            axis->key = ddl_mem_strdup(chosen->axes[0].key);
            if (!axis->key)
                return no_memory(p);
        }
        if (!chosen->n)
            return ddl_error_set(p->err, DDL_E_USAGE,
                                 "%s:%zu: choose: expected a section choose with the key of these values",
                                 p->file->path, axis->line);
        if (!sweep_find_axis(chosen, axis->key))
            return ddl_error_set(p->err, DDL_E_USAGE,
                                 "%s:%zu: choose: expected a key of the section choose, found %s",
                                 p->file->path, axis->line, axis->key);
    }
    return DDL_OK;
}

/* Checks that involve several sections. */
static ddl_status check_sections(const struct parser *p)
{
    struct ddl_sweep_file *file = p->file;
    ddl_status status = DDL_OK;
    if (!file->out)
        return ddl_option_missing(file->path, "out: DIR, the folder of the runs", p->err);
    for (size_t i = 0; !status && i < file->n_entries; i++)
        status = check_entry_choose(p, &file->entries[i].choose);
    return status;
}

/* A sweep without models has one entry, which sets nothing. */
static ddl_status add_default_entry(const struct parser *p)
{
    struct ddl_sweep_file *file = p->file;
    if (file->n_entries)
        return DDL_OK;
    file->entries = calloc(1, sizeof *file->entries);
    if (!file->entries)
        return no_memory(p);
    file->n_entries = 1;
    file->entries[0].line = 1;
    file->entries[0].name = ddl_mem_strdup("run");
    return file->entries[0].name ? DDL_OK : no_memory(p);
}

/* Makes a path of the file one that depends on the working directory. */
static ddl_status map_path(const struct parser *p, char **path)
{
    char folder[DDL_PATHS_SIZE], joined[DDL_PATHS_SIZE];
    if (!p->file->relative || !*path || !ddl_path_is_relative(*path))
        return DDL_OK;
    if (!ddl_path_folder(p->file->path, folder, sizeof folder) ||
        !ddl_path_join(joined, sizeof joined, folder, *path))
        return ddl_error_set(p->err, DDL_E_USAGE, "%s: the path is too long: '%.200s'", p->file->path, *path);
    free(*path);
    *path = ddl_mem_strdup(joined);
    return *path ? DDL_OK : no_memory(p);
}

static ddl_status read_document(const struct parser *p)
{
    const yaml_node_t *root = yaml_document_get_root_node(p->document);
    if (!root)
        return ddl_option_missing(p->file->path, "out, models, ...: the file is empty", p->err);
    ddl_status status = read_mapping(p, root, "a sweep", read_section, NULL);
    if (!status)
        status = check_sections(p);
    if (!status)
        status = add_default_entry(p);
    if (!status)
        status = map_path(p, &p->file->out);
    if (!status)
        status = map_path(p, &p->file->base_path);
    if (!status && p->file->base_path)
        status = ddl_recipe_read(&p->file->base, p->file->base_path, p->err);
    return status;
}

static ddl_status not_yaml(const yaml_parser_t *yaml, const char *path, struct ddl_error *err)
{
    if (yaml->error == YAML_MEMORY_ERROR)
        return ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory", path);
    return ddl_error_set(err, DDL_E_USAGE, "%s:%zu: not valid YAML: %s", path, yaml->problem_mark.line + 1,
                         yaml->problem ? yaml->problem : "cannot be read");
}

static ddl_status parse(struct ddl_sweep_file *file, const char *text, size_t size, struct ddl_error *err)
{
    yaml_parser_t yaml;
    yaml_document_t first, second;
    if (!yaml_parser_initialize(&yaml))
        return ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory", file->path);
    yaml_parser_set_input_string(&yaml, (const unsigned char *)text, size);
    ddl_status status = DDL_OK;
    if (!yaml_parser_load(&yaml, &first)) {
        status = not_yaml(&yaml, file->path, err);
    } else {
        const struct parser p = { &first, file, err };
        status = read_document(&p);
        if (!status && yaml_document_get_root_node(&first)) {
            if (!yaml_parser_load(&yaml, &second)) {
                status = not_yaml(&yaml, file->path, err);
            } else {
                if (yaml_document_get_root_node(&second))
                    status = ddl_error_set(err, DDL_E_USAGE, "%s: expected one document, found a second",
                                           file->path);
                yaml_document_delete(&second);
            }
        }
        yaml_document_delete(&first);
    }
    yaml_parser_delete(&yaml);
    return status;
}

ddl_status sweep_file_read(struct ddl_sweep_file **out, const char *path, struct ddl_error *err)
{
    char *text;
    size_t size;
    *out = calloc(1, sizeof **out);
    if (!*out)
        return ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory", path);
    (*out)->path = path;
    ddl_status status = ddl_file_read(path, DDL_RECIPE_BYTES, &text, &size, err);
    if (status)
        return status;
    status = ddl_recipe_check_depth(path, text, size, err);
    if (!status)
        status = parse(*out, text, size, err);
    free(text);
    return status;
}

static void free_grid(struct sweep_grid *grid)
{
    for (size_t i = 0; i < grid->n; i++) {
        free(grid->axes[i].key);
        ddl_recipe_free(&grid->axes[i].values);
    }
    free(grid->axes);
}

void sweep_file_free(struct ddl_sweep_file *file)
{
    if (!file)
        return;
    for (size_t i = 0; i < file->n_entries; i++) {
        struct sweep_entry *entry = &file->entries[i];
        free(entry->name);
        ddl_recipe_free(&entry->keys);
        free_grid(&entry->grid);
        ddl_recipe_free(&entry->seeds);
        free_grid(&entry->choose);
    }
    free(file->entries);
    free_grid(&file->grid);
    for (size_t i = 0; i < file->n_picks; i++) {
        struct sweep_pick *pick = &file->picks[i];
        ddl_recipe_free(&pick->values);
        for (size_t c = 0; c < pick->n_candidates; c++)
            ddl_recipe_free(&pick->candidates[c]);
        free(pick->candidates);
    }
    free(file->picks);
    free_grid(&file->choose.axes);
    struct ddl_recipe *const lists[] = { &file->base, &file->set, &file->seeds, &file->choose.seed,
                                         &file->choose.keys };
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        ddl_recipe_free(lists[i]);
    free(file->out);
    free(file->base_path);
    free(file);
}
