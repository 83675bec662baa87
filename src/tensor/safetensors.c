#define _POSIX_C_SOURCE 200809L
#include "tensor/safetensors.h"

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_HEADER = 100 * 1000 * 1000, MAX_INDEX = 100 * 1000 * 1000, MAX_FILES = 4096 };

struct file {
    char *path;
    struct ddl_file_map map;
};

/* Owns the names; by_name points into tensors. */
struct ddl_safetensors {
    struct file *files;
    size_t n_files;
    struct ddl_tensor *tensors;
    size_t *file_of; /* index of each tensor's file */
    size_t n;
    struct ddl_tensor **by_name;
    json_t *metadata; /* merged __metadata__ of all files; NULL if no file has any */
};

static ddl_status no_memory(const char *path, struct ddl_error *err)
{
    return ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory for its header", path);
}

static int by_offset(const void *a, const void *b)
{
    const struct ddl_tensor *x = a, *y = b;
    if (x->data != y->data)
        return x->data < y->data ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(struct ddl_tensor *const *)a)->name, (*(struct ddl_tensor *const *)b)->name);
}

/* Reads a JSON integer as a size; returns false for any other value. */
static bool as_size(const json_t *value, size_t *out)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return false;
    *out = (size_t)json_integer_value(value);
    return true;
}

static ddl_status truncated(const char *path, const char *at_least, size_t expected, size_t found,
                            struct ddl_error *err)
{
    return ddl_error_set(err, DDL_E_FORMAT, "%s: truncated: expected %s%zu bytes, found %zu", path, at_least,
                         expected, found);
}

static ddl_status read_shape(const char *path, const char *name, const json_t *shape, struct ddl_tensor *t,
                             struct ddl_error *err)
{
    if (!json_is_array(shape))
        return ddl_error_set(err, DDL_E_FORMAT, "%s: %.200s: no shape list in the header", path, name);
    if (json_array_size(shape) > DDL_MAX_DIMS)
        return ddl_error_set(err, DDL_E_FORMAT, "%s: %.200s: %zu dimensions exceed the limit of %d", path,
                             name, json_array_size(shape), DDL_MAX_DIMS);
    t->ndim = json_array_size(shape);
    for (size_t i = 0; i < t->ndim; i++) {
        if (!as_size(json_array_get(shape, i), &t->shape[i]))
            return ddl_error_set(err, DDL_E_FORMAT,
                                 "%s: %.200s: dimension %zu of the shape is not a nonnegative integer", path,
                                 name, i);
    }
    if (!ddl_tensor_measure(t))
        return ddl_error_set(err, DDL_E_FORMAT, "%s: %.200s: the shape is too large", path, name);
    return DDL_OK;
}

/* A file that ends before the data of its tensors. Entries without valid offsets are left to read_entry. */
static ddl_status check_length(const struct file *file, json_t *header, size_t header_size,
                               struct ddl_error *err)
{
    size_t begin = 8 + header_size, last = 0, end, expected;
    const char *name;
    json_t *entry;
    json_object_foreach(header, name, entry)
    {
        if (strcmp(name, "__metadata__") != 0 &&
            as_size(json_array_get(json_object_get(entry, "data_offsets"), 1), &end) && end > last)
            last = end;
    }
    if (!ddl_size_add(begin, last, &expected))
        expected = SIZE_MAX;
    return expected > file->map.size ? truncated(file->path, "", expected, file->map.size, err) : DDL_OK;
}

/* Reads one header entry; `data` points to the bytes that follow the header, which contain all tensors. */
static ddl_status read_entry(const char *path, const char *name, const json_t *entry,
                             const unsigned char *data, struct ddl_tensor *t, struct ddl_error *err)
{
    *t = (struct ddl_tensor){ 0 };
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    if (!dtype)
        return ddl_error_set(err, DDL_E_FORMAT, "%s: %.200s: no dtype in the header", path, name);
    if (!ddl_dtype_parse(dtype, &t->dtype))
        return ddl_error_set(err, DDL_E_FORMAT, "%s: %.200s: unknown dtype '%.40s'", path, name, dtype);
    ddl_status status = read_shape(path, name, json_object_get(entry, "shape"), t, err);
    if (status)
        return status;
    const json_t *offsets = json_object_get(entry, "data_offsets");
    size_t begin, end;
    if (json_array_size(offsets) != 2 || !as_size(json_array_get(offsets, 0), &begin) ||
        !as_size(json_array_get(offsets, 1), &end))
        return ddl_error_set(err, DDL_E_FORMAT, "%s: %.200s: data_offsets: expected two nonnegative integers",
                             path, name);
    if (begin > end)
        return ddl_error_set(err, DDL_E_FORMAT,
                             "%s: %.200s: data_offsets: the end is before the begin: %zu to %zu", path, name,
                             begin, end);
    if (end - begin != t->bytes) {
        char shape[128];
        ddl_tensor_shape_text(t, shape, sizeof shape);
        return ddl_error_set(err, DDL_E_FORMAT,
                             "%s: %.200s: expected %zu bytes (shape %s, dtype %s), found %zu", path, name,
                             t->bytes, shape, dtype, end - begin);
    }
    t->data = data + begin;
    if (!(t->name = ddl_mem_strdup(name)))
        return no_memory(path, err);
    return DDL_OK;
}

/* Sorts the tensors of one file by offset. They must cover the data exactly, without gaps or overlaps. */
static ddl_status check_offsets(const char *path, struct ddl_tensor *tensors, size_t n,
                                const unsigned char *data, size_t data_size, struct ddl_error *err)
{
    if (n)
        qsort(tensors, n, sizeof *tensors, by_offset);
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        size_t begin = (size_t)(tensors[i].data - data);
        if (begin < at)
            return ddl_error_set(err, DDL_E_FORMAT, "%s: %.200s overlaps %.200s", path, tensors[i].name,
                                 tensors[i - 1].name);
        if (begin > at)
            return ddl_error_set(err, DDL_E_FORMAT, "%s: %zu bytes before %.200s belong to no tensor", path,
                                 begin - at, tensors[i].name);
        at = begin + tensors[i].bytes;
    }
    if (at != data_size)
        return ddl_error_set(err, DDL_E_FORMAT, "%s: %zu bytes after the last tensor belong to no tensor",
                             path, data_size - at);
    return DDL_OK;
}

/* Adds a file's __metadata__; on a duplicate key the first file's value is kept. */
static ddl_status merge_metadata(ddl_safetensors *st, const char *path, json_t *metadata,
                                 struct ddl_error *err)
{
    if (!json_is_object(metadata))
        return DDL_OK;
    if (!st->metadata)
        st->metadata = json_object();
    return st->metadata && json_object_update_missing(st->metadata, metadata) == 0 ? DDL_OK
                                                                                   : no_memory(path, err);
}

/* Reserves capacity for n more tensors. */
static ddl_status grow(ddl_safetensors *st, size_t n, const char *path, struct ddl_error *err)
{
    struct ddl_tensor *tensors = realloc(st->tensors, (st->n + n + 1) * sizeof *tensors);
    if (tensors)
        st->tensors = tensors;
    size_t *file_of = realloc(st->file_of, (st->n + n + 1) * sizeof *file_of);
    if (file_of)
        st->file_of = file_of;
    return tensors && file_of ? DDL_OK : no_memory(path, err);
}

static ddl_status read_entries(ddl_safetensors *st, const struct file *file, json_t *header,
                               size_t header_size, struct ddl_error *err)
{
    const unsigned char *data = file->map.data + 8 + header_size;
    size_t data_size = file->map.size - 8 - header_size, first = st->n;
    ddl_status status = check_length(file, header, header_size, err);
    if (!status)
        status = grow(st, json_object_size(header), file->path, err);
    if (status)
        return status;
    const char *name;
    json_t *entry;
    json_object_foreach(header, name, entry)
    {
        if (strcmp(name, "__metadata__") == 0) {
            status = merge_metadata(st, file->path, entry, err);
            if (status)
                return status;
            continue;
        }
        status = read_entry(file->path, name, entry, data, &st->tensors[st->n], err);
        if (status)
            return status;
        st->file_of[st->n++] = (size_t)(file - st->files);
    }
    return check_offsets(file->path, st->tensors + first, st->n - first, data, data_size, err);
}

/* Adds the tensors of a file, which takes the next free slot of st->files. */
static ddl_status add_file(ddl_safetensors *st, const char *path, struct ddl_error *err)
{
    struct file *file = &st->files[st->n_files];
    *file = (struct file){ 0 };
    if (!(file->path = ddl_mem_strdup(path)))
        return no_memory(path, err);
    st->n_files++;
    ddl_status status = ddl_file_map_open(&file->map, path, err);
    if (status)
        return status;
    uint64_t size = 0;
    if (file->map.size < 8)
        return truncated(path, "at least ", 8, file->map.size, err);
    memcpy(&size, file->map.data, 8);
    if (size > MAX_HEADER)
        return ddl_error_set(err, DDL_E_FORMAT,
                             "%s: header of %llu bytes exceeds the limit of %d: not a safetensors file?",
                             path, (unsigned long long)size, MAX_HEADER);
    if (size > file->map.size - 8)
        return truncated(path, "at least ", 8 + (size_t)size, file->map.size, err);
    json_error_t why;
    json_t *header;
    status =
        ddl_json_parse(&header, (const char *)file->map.data + 8, (size_t)size, JSON_REJECT_DUPLICATES, &why);
    if (status)
        return ddl_error_set(err, status, "%s: header is not valid JSON: %s", path, why.text);
    if (!json_is_object(header))
        status = ddl_error_set(err, DDL_E_FORMAT, "%s: header is not a JSON object", path);
    else
        status = read_entries(st, file, header, (size_t)size, err);
    json_decref(header);
    return status;
}

/* Fills by_name and rejects duplicate names across files (within one header the JSON parser rejects them). */
static ddl_status index_names(ddl_safetensors *st, const char *path, struct ddl_error *err)
{
    st->by_name = malloc((st->n + 1) * sizeof *st->by_name);
    if (!st->by_name)
        return no_memory(path, err);
    for (size_t i = 0; i < st->n; i++)
        st->by_name[i] = &st->tensors[i];
    qsort(st->by_name, st->n, sizeof *st->by_name, by_name);
    for (size_t i = 1; i < st->n; i++) {
        const struct ddl_tensor *a = st->by_name[i - 1], *b = st->by_name[i];
        if (strcmp(a->name, b->name) == 0)
            return ddl_error_set(err, DDL_E_FORMAT, "%s: duplicate tensor %.200s: also in %s",
                                 ddl_safetensors_path(st, b), b->name, ddl_safetensors_path(st, a));
    }
    return DDL_OK;
}

static ddl_safetensors *new_set(size_t n_files)
{
    ddl_safetensors *st = calloc(1, sizeof *st);
    if (st && !(st->files = calloc(n_files, sizeof *st->files))) {
        free(st);
        return NULL;
    }
    return st;
}

ddl_status ddl_safetensors_open(ddl_safetensors **out, const char *path, struct ddl_error *err)
{
    *out = NULL;
    ddl_safetensors *st = new_set(1);
    if (!st)
        return no_memory(path, err);
    ddl_status status = add_file(st, path, err);
    if (!status)
        status = index_names(st, path, err);
    if (status)
        ddl_safetensors_close(st);
    else
        *out = st;
    return status;
}

/* A file name in an index must be a plain name: the file is in the same folder. */
static bool is_plain_name(const char *name)
{
    return *name && !strchr(name, '/') && !strchr(name, '\\') && strcmp(name, ".") != 0 &&
           strcmp(name, "..") != 0;
}

static bool has_file(const ddl_safetensors *st, const char *path)
{
    for (size_t i = 0; i < st->n_files; i++) {
        if (strcmp(st->files[i].path, path) == 0)
            return true;
    }
    return false;
}

static ddl_status add_indexed_files(ddl_safetensors *st, const char *folder, const char *index, json_t *map,
                                    struct ddl_error *err)
{
    const char *name;
    json_t *value;
    json_object_foreach(map, name, value)
    {
        const char *file = json_string_value(value);
        char path[1024];
        if (!file || !is_plain_name(file))
            return ddl_error_set(err, DDL_E_FORMAT,
                                 "%s: %.200s: '%.200s' is not the name of a file in the same folder", index,
                                 name, file ? file : "");
        if (!ddl_path_join(path, sizeof path, folder, file))
            return ddl_error_set(err, DDL_E_USAGE, "%.200s: the folder's path is too long", folder);
        if (has_file(st, path))
            continue;
        if (st->n_files == MAX_FILES)
            return ddl_error_set(err, DDL_E_FORMAT, "%s: lists more than %d files", index, MAX_FILES);
        ddl_status status = add_file(st, path, err);
        if (status)
            return status;
    }
    return DDL_OK;
}

/* Every tensor in the index must be in the file that the index states. */
static ddl_status check_index(const ddl_safetensors *st, const char *index, json_t *map,
                              struct ddl_error *err)
{
    const char *name;
    json_t *value;
    json_object_foreach(map, name, value)
    {
        const struct ddl_tensor *t = ddl_safetensors_find(st, name);
        const char *path = t ? ddl_safetensors_path(st, t) : "";
        const char *slash = strrchr(path, '/');
        if (!t || strcmp(slash ? slash + 1 : path, json_string_value(value)) != 0)
            return ddl_error_set(err, DDL_E_FORMAT, "%s: %.200s is not in %.200s", index, name,
                                 json_string_value(value));
    }
    return DDL_OK;
}

static ddl_status open_indexed(ddl_safetensors **out, const char *folder, const char *index,
                               struct ddl_error *err)
{
    json_t *root;
    ddl_status status = ddl_json_read(&root, index, MAX_INDEX, err);
    if (status)
        return status;
    json_t *map = json_object_get(root, "weight_map");
    ddl_safetensors *st = NULL;
    if (!json_is_object(map))
        status = ddl_error_set(err, DDL_E_FORMAT, "%s: no weight_map", index);
    else if (!(st = new_set(MAX_FILES)))
        status = no_memory(index, err);
    if (!status)
        status = add_indexed_files(st, folder, index, map, err);
    if (!status)
        status = index_names(st, index, err);
    if (!status)
        status = check_index(st, index, map, err);
    json_decref(root);
    if (status)
        ddl_safetensors_close(st);
    else
        *out = st;
    return status;
}

static const char single_name[] = "model.safetensors", index_name[] = "model.safetensors.index.json",
                  pickle_name[] = "pytorch_model.bin";

bool ddl_safetensors_in_folder(const char *folder)
{
    char path[1024];
    return (ddl_path_join(path, sizeof path, folder, single_name) && ddl_file_exists(path)) ||
           (ddl_path_join(path, sizeof path, folder, index_name) && ddl_file_exists(path));
}

ddl_status ddl_safetensors_open_folder(ddl_safetensors **out, const char *folder, struct ddl_error *err)
{
    *out = NULL;
    char single[1024], index[1024];
    if (!ddl_path_join(single, sizeof single, folder, single_name) ||
        !ddl_path_join(index, sizeof index, folder, index_name))
        return ddl_error_set(err, DDL_E_USAGE, "%.200s: the folder's path is too long", folder);
    if (!ddl_file_exists(single) && ddl_file_exists(index))
        return open_indexed(out, folder, index, err);
    char pickle[1024];
    if (!ddl_file_exists(single) && ddl_path_join(pickle, sizeof pickle, folder, pickle_name) &&
        ddl_file_exists(pickle))
        return ddl_error_set(err, DDL_E_UNSUPPORTED,
                             "%s: Python pickle files are not supported; convert the model with "
                             "'python3 python/ddl_torch.py convert DIR OUT'",
                             pickle);
    return ddl_safetensors_open(out, single, err);
}

void ddl_safetensors_close(ddl_safetensors *st)
{
    if (!st)
        return;
    for (size_t i = 0; i < st->n_files; i++) {
        free(st->files[i].path);
        ddl_file_map_close(&st->files[i].map);
    }
    for (size_t i = 0; i < st->n; i++)
        free((char *)(uintptr_t)st->tensors[i].name);
    free(st->files);
    free(st->tensors);
    free(st->file_of);
    free(st->by_name);
    json_decref(st->metadata);
    free(st);
}

size_t ddl_safetensors_count(const ddl_safetensors *st)
{
    return st->n;
}

const struct ddl_tensor *ddl_safetensors_at(const ddl_safetensors *st, size_t i)
{
    return &st->tensors[i];
}

const struct ddl_tensor *ddl_safetensors_find(const ddl_safetensors *st, const char *name)
{
    const struct ddl_tensor key = { .name = name }, *p = &key;
    struct ddl_tensor **found = bsearch(&p, st->by_name, st->n, sizeof *st->by_name, by_name);
    return found ? *found : NULL;
}

const char *ddl_safetensors_metadata(const ddl_safetensors *st, const char *key)
{
    return json_string_value(json_object_get(st->metadata, key));
}

void ddl_safetensors_release(const ddl_safetensors *st, const struct ddl_tensor *tensor, size_t start,
                             size_t n)
{
    size_t size = ddl_dtype_size(tensor->dtype);
    ddl_file_map_let_go(&st->files[st->file_of[tensor - st->tensors]].map, tensor->data + start * size,
                        n * size);
}

const char *ddl_safetensors_path(const ddl_safetensors *st, const struct ddl_tensor *tensor)
{
    return st->files[st->file_of[tensor - st->tensors]].path;
}
