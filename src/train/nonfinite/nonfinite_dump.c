/* Dumps, written and read. */
#include "train/nonfinite/nonfinite.h"

#include "base/file.h"
#include "base/json.h"
#include "checkpoint/folder.h"
#include "train/config/recipe_writer.h"
#include "train/config/train_config.h"
#include "tensor/safetensors.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { PATH_SIZE = 1280, MAX_JSON = 1 << 20, VERSION = 1 };

static const char json_file[] = "trouble.json", batch_file[] = "batch.safetensors";
static const char *const what_names[] = { [DDL_NONFINITE_LOSS] = "loss",
                                          [DDL_NONFINITE_GRADIENT] = "gradient",
                                          [DDL_NONFINITE_VALIDATION] = "validation" };
#define COUNT(list) (sizeof(list) / sizeof *(list))

static ddl_status path_in(char *path, size_t size, const char *folder, const char *name,
                          struct ddl_error *err)
{
    return ddl_path_join(path, size, folder, name)
               ? DDL_OK
               : ddl_error_set(err, DDL_E_USAGE, "%.200s: the path is too long", folder);
}

/* ---- writing ---- */

/* JSON has no NaN. */
static json_t *number(double x)
{
    return isfinite(x) ? json_real(x) : json_string(isnan(x) ? "nan" : x > 0 ? "inf" : "-inf");
}

/* Adds the counts to an object, which it returns; NULL without memory. */
static json_t *with_values(json_t *object, const struct ddl_values *v)
{
    json_t *values =
        json_pack("{s:I, s:I, s:I, s:I, s:f}", "n", (json_int_t)v->n, "nan", (json_int_t)v->nan, "inf",
                  (json_int_t)v->inf, "first", (json_int_t)v->first, "largest", v->largest);
    if (!values || json_object_update(object, values)) {
        json_decref(object);
        object = NULL;
    }
    json_decref(values);
    return object;
}

static json_t *first_object(const struct ddl_finding *finding)
{
    const struct ddl_place *place = &finding->place;
    if (!finding->found)
        return json_null();
    json_t *layer = place->layer == DDL_NO_LAYER ? json_null() : json_integer((json_int_t)place->layer);
    json_t *object =
        json_pack("{s:b, s:o, s:s, s:s, s:I, s:I, s:I}", "backward", (int)place->backward, "layer", layer,
                  "part", place->part, "tensor", place->tensor, "first_row", (json_int_t)place->first_row,
                  "rows", (json_int_t)place->rows, "width", (json_int_t)place->width);
    return with_values(object, &finding->values);
}

static json_t *earlier_object(const struct ddl_nonfinite *t)
{
    if (!t->earlier)
        return json_null();
    return with_values(json_pack("{s:s, s:s}", "kind", t->earlier, "name", t->earlier_name),
                       &t->earlier_values);
}

static ddl_status write_json(const struct ddl_nonfinite *t, const struct ddl_train_config *config,
                             const ddl_model *model, const char *path, struct ddl_error *err)
{
    json_t *root = json_pack(
        "{s:s, s:i, s:I, s:s, s:I, s:I, s:I, s:I, s:f, s:o, s:o, s:s, s:s, s:s, s:o, s:o}", "kind", "trouble",
        "version", VERSION, "step", (json_int_t)t->step, "what", what_names[t->what], "micro_batch",
        (json_int_t)t->micro_batch, "micro_batches", (json_int_t)t->micro_batches, "rank",
        (json_int_t)t->rank, "ranks", (json_int_t)t->ranks, "scale", t->scale, "loss", number(t->loss),
        "grad_norm", number(t->grad_norm), "backend", ddl_backend_name(ddl_model_backend(model)), "dtype",
        ddl_precision_names[ddl_model_precision(model)], "recompute", ddl_recompute_names[config->recompute],
        "first", first_object(&t->finding), "parameter", earlier_object(t));
    bool whole = root && (!t->replay_error.status ||
                          json_object_set_new(root, "replay_error", json_string(t->replay_error.text)) == 0);
    ddl_status status = ddl_json_write(path, whole ? root : NULL, err);
    json_decref(root);
    return status;
}

static ddl_status fill_ids(void *user, size_t i, size_t offset, size_t bytes, void *to, struct ddl_error *err)
{
    (void)err;
    const struct ddl_nonfinite *t = user;
    const int32_t *from = (i ? t->targets : t->tokens) + offset / sizeof(int64_t);
    for (size_t j = 0; j < bytes / sizeof(int64_t); j++) {
        int64_t id = from[j];
        memcpy((unsigned char *)to + j * sizeof id, &id, sizeof id);
    }
    return DDL_OK;
}

static ddl_status write_folder(const struct ddl_nonfinite *t, const struct ddl_train_config *config,
                               const ddl_model *model, const char *folder, struct ddl_error *err)
{
    char batch[PATH_SIZE], recipe[PATH_SIZE], json[PATH_SIZE];
    struct ddl_tensor plan[2] = { { .name = "tokens" }, { .name = "targets" } };
    for (size_t i = 0; i < 2; i++) {
        plan[i].dtype = DDL_I64;
        plan[i].ndim = 3;
        plan[i].shape[0] = t->held;
        plan[i].shape[1] = t->batch;
        plan[i].shape[2] = t->seq;
    }
    ddl_status status = path_in(batch, sizeof batch, folder, batch_file, err);
    if (!status)
        status = path_in(recipe, sizeof recipe, folder, "recipe.yaml", err);
    if (!status)
        status = path_in(json, sizeof json, folder, json_file, err);
    if (!status)
        status = ddl_file_make_only_dir(folder, err);
    if (!status)
        status = ddl_model_save(model, folder, err);
    if (!status)
        status = ddl_safetensors_write(batch, plan, 2, fill_ids, (void *)(uintptr_t)t, err);
    if (!status)
        status = ddl_train_save_recipe(config, recipe, err);
    if (!status)
        status = write_json(t, config, model, json, err);
    return status ? status : ddl_file_sync_dir(folder, err);
}

ddl_status ddl_nonfinite_save(const struct ddl_nonfinite *t, const struct ddl_train_config *config,
                              const ddl_model *model, char *path, size_t size, struct ddl_error *err)
{
    char name[64], partial[PATH_SIZE] = "";
    snprintf(name, sizeof name, "." DDL_DUMP_PREFIX "%llu", (unsigned long long)t->step);
    ddl_status status = path_in(partial, sizeof partial, config->out, name, err);
    if (!status)
        status = path_in(path, size, config->out, name + 1, err);
    if (!status)
        status = ddl_checkpoint_clear(config->out, partial, err);
    if (!status)
        status = write_folder(t, config, model, partial, err);
    if (!status)
        status = ddl_checkpoint_publish(config->out, partial, path, err);
    if (status && *partial)
        ddl_checkpoint_discard(partial);
    return status;
}

/* ---- reading ---- */

struct reader {
    const char *path;
    struct ddl_error *err;
};

static ddl_status missing(const struct reader *r, const char *key, const char *wanted)
{
    return ddl_error_set(r->err, DDL_E_FORMAT, "%s: %s is missing or not a %s", r->path, key, wanted);
}

static ddl_status read_size(const struct reader *r, const json_t *object, const char *key, size_t *out)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return missing(r, key, "whole number");
    *out = (size_t)json_integer_value(value);
    return DDL_OK;
}

static ddl_status read_number(const struct reader *r, const json_t *object, const char *key, double *out)
{
    static const struct {
        const char *name;
        float value;
    } words[] = { { "nan", NAN }, { "inf", INFINITY }, { "-inf", -INFINITY } };
    const json_t *value = json_object_get(object, key);
    for (size_t i = 0; json_is_string(value) && i < COUNT(words); i++) {
        if (strcmp(json_string_value(value), words[i].name) == 0) {
            *out = (double)words[i].value;
            return DDL_OK;
        }
    }
    *out = json_number_value(value);
    return json_is_number(value) ? DDL_OK : missing(r, key, "number");
}

/* The row of a list that a key names. */
static ddl_status read_word(const struct reader *r, const json_t *object, const char *key,
                            const char *const *list, size_t n, size_t *out)
{
    const char *word = json_string_value(json_object_get(object, key));
    word = word ? ddl_train_current_value(key, word) : NULL;
    for (*out = 0; word && *out < n; ++*out) {
        if (strcmp(word, list[*out]) == 0)
            return DDL_OK;
    }
    return missing(r, key, "known word");
}

static ddl_status read_text(const struct reader *r, const json_t *object, const char *key, char *out,
                            size_t size)
{
    const char *text = json_string_value(json_object_get(object, key));
    if (!text || strlen(text) >= size)
        return missing(r, key, "short text");
    memcpy(out, text, strlen(text) + 1);
    return DDL_OK;
}

static ddl_status read_values(const struct reader *r, const json_t *object, struct ddl_values *out)
{
    ddl_status status = read_size(r, object, "n", &out->n);
    if (!status)
        status = read_size(r, object, "nan", &out->nan);
    if (!status)
        status = read_size(r, object, "inf", &out->inf);
    if (!status)
        status = read_size(r, object, "first", &out->first);
    return status ? status : read_number(r, object, "largest", &out->largest);
}

/* A member of an object and where its value goes. */
struct field {
    const char *key;
    enum { FIELD_SIZE, FIELD_NUMBER, FIELD_TEXT, FIELD_WORD } kind;
    void *out;                /* size_t, or the index of a word; double; char[size] */
    const char *const *words; /* (size) */
    size_t size;
    bool is_skipped; /* *out keeps its value */
};

static ddl_status read_fields(const struct reader *r, const json_t *object, const struct field *field,
                              size_t n)
{
    ddl_status status = DDL_OK;
    for (; !status && n > 0; field++, n--) {
        if (field->is_skipped)
            continue;
        switch (field->kind) {
        case FIELD_SIZE:
            status = read_size(r, object, field->key, field->out);
            break;
        case FIELD_NUMBER:
            status = read_number(r, object, field->key, field->out);
            break;
        case FIELD_TEXT:
            status = read_text(r, object, field->key, field->out, field->size);
            break;
        case FIELD_WORD:
            status = read_word(r, object, field->key, field->words, field->size, field->out);
            break;
        }
    }
    return status;
}

static ddl_status read_first(const struct reader *r, const json_t *object, struct ddl_finding *out)
{
    struct ddl_place *place = &out->place;
    size_t part = 0;
    if (json_is_null(object))
        return DDL_OK;
    if (!json_is_boolean(json_object_get(object, "backward")))
        return missing(r, "first", "place of a tensor");
    out->found = true;
    place->backward = json_is_true(json_object_get(object, "backward"));
    place->layer = DDL_NO_LAYER;
    const struct field fields[] = {
        { "part", FIELD_WORD, &part, ddl_nonfinite_parts, DDL_NONFINITE_PARTS },
        { "layer", FIELD_SIZE, &place->layer, .is_skipped = json_is_null(json_object_get(object, "layer")) },
        { "tensor", FIELD_TEXT, place->tensor, NULL, sizeof place->tensor },
        { "first_row", FIELD_SIZE, &place->first_row },
        { "rows", FIELD_SIZE, &place->rows },
        { "width", FIELD_SIZE, &place->width },
    };
    ddl_status status = read_fields(r, object, fields, COUNT(fields));
    place->part = ddl_nonfinite_parts[part % DDL_NONFINITE_PARTS];
    if (!status && (place->rows == 0 || place->width == 0))
        status = missing(r, "width", "size of a tensor");
    return status ? status : read_values(r, object, &out->values);
}

static ddl_status read_earlier(const struct reader *r, const json_t *object, struct ddl_nonfinite *out)
{
    size_t kind = 0;
    if (json_is_null(object))
        return DDL_OK;
    ddl_status status = read_word(r, object, "kind", ddl_nonfinite_kinds, DDL_NONFINITE_KINDS, &kind);
    if (!status)
        status = read_text(r, object, "name", out->earlier_name, sizeof out->earlier_name);
    if (!status)
        out->earlier = ddl_nonfinite_kinds[kind];
    return status ? status : read_values(r, object, &out->earlier_values);
}

static ddl_status read_all(const struct reader *r, const json_t *root, struct ddl_nonfinite_record *out)
{
    struct ddl_nonfinite *t = &out->nonfinite;
    size_t version = 0, step = 0, what = 0, precision = 0, recompute = 0;
    const struct field batch[] = { { "step", FIELD_SIZE, &step },
                                   { "what", FIELD_WORD, &what, what_names, COUNT(what_names) },
                                   { "micro_batch", FIELD_SIZE, &t->micro_batch },
                                   { "micro_batches", FIELD_SIZE, &t->micro_batches } },
                       ranks[] = { { "ranks", FIELD_SIZE, &t->ranks }, { "rank", FIELD_SIZE, &t->rank } },
                       others[] = { { "scale", FIELD_NUMBER, &t->scale },
                                    { "loss", FIELD_NUMBER, &t->loss },
                                    { "grad_norm", FIELD_NUMBER, &t->grad_norm },
                                    { "backend", FIELD_TEXT, out->backend, NULL, sizeof out->backend },
                                    { "dtype", FIELD_WORD, &precision, ddl_training_precision_names,
                                      DDL_PRECISION_INT8 },
                                    { "recompute", FIELD_WORD, &recompute, ddl_recompute_names,
                                      DDL_RECOMPUTES,
                                      /* dumps of earlier versions have none: they are of the default */
                                      .is_skipped = !json_object_get(root, "recompute") } };
    ddl_status status = read_size(r, root, "version", &version);
    if (!status && version != VERSION)
        return ddl_error_set(r->err, DDL_E_UNSUPPORTED, "%s: version %zu, this program reads %d", r->path,
                             version, VERSION);
    if (!status)
        status = read_fields(r, root, batch, COUNT(batch));
    t->ranks = 1;
    if (!status && json_object_get(root, "ranks")) { /* dumps of earlier versions have none */
        status = read_fields(r, root, ranks, COUNT(ranks));
        if (!status && t->rank >= t->ranks)
            status = missing(r, "rank", "number below ranks");
    }
    if (!status)
        status = read_fields(r, root, others, COUNT(others));
    if (!status)
        status = read_first(r, json_object_get(root, "first"), &t->finding);
    if (!status)
        status = read_earlier(r, json_object_get(root, "parameter"), t);
    if (!status && json_object_get(root, "replay_error")) {
        status = read_text(r, root, "replay_error", t->replay_error.text, sizeof t->replay_error.text);
        t->replay_error.status = DDL_E_USAGE;
    }
    t->step = step;
    t->what = (int)what;
    out->precision = (enum ddl_precision)precision;
    out->recompute = (enum ddl_recompute)recompute;
    return status;
}

ddl_status ddl_nonfinite_read(struct ddl_nonfinite_record *out, const char *folder, struct ddl_error *err)
{
    char path[PATH_SIZE];
    json_t *root;
    *out = (struct ddl_nonfinite_record){ 0 };
    ddl_status status = path_in(path, sizeof path, folder, json_file, err);
    if (!status)
        status = ddl_json_read(&root, path, MAX_JSON, err);
    if (status)
        return status;
    status = read_all(&(struct reader){ path, err }, root, out);
    json_decref(root);
    return status;
}
