#define _POSIX_C_SOURCE 200809L
#include "tensor/safetensors.h"

#include "base/file.h"
#include "base/json.h"
#include "base/json_scan.h"
#include "base/mem.h"
#include "tensor/torch_file.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* The format's limit of the header; limits of an entry of it without its name, of a name, of __metadata__,
 * and of the tensors of a set: published models of 10^12 parameters have up to 150,000. */
enum {
    MAX_HEADER = 100 * 1000 * 1000,
    MAX_ENTRY = 4096,
    MAX_NAME = 4096,
    MAX_METADATA = 4 << 20,
    MAX_TENSORS = 1 << 18,
    MAX_INDEX = 32 << 20,
    MAX_FILES = 4096
};

enum format { SAFETENSORS, TORCH };

struct file {
    char *path;
    enum format format;
    struct ddl_file_map map;
    char *notes; /* decoded keys and values of its __metadata__ */
};

/* An entry of __metadata__; the texts are in the file's notes. */
struct note {
    const char *key, *value; /* value: NULL unless it is a string */
    size_t file;
};

/* Owns the names; by_name points into tensors. */
struct ddl_safetensors {
    struct file *files;
    size_t n_files;
    struct ddl_tensor *tensors;
    size_t *file_of; /* index of each tensor's file */
    size_t n, capacity;
    struct ddl_tensor **by_name;
    struct note *notes; /* sorted by key, then file, when the set is complete */
    size_t n_notes, note_capacity;
    json_t *settings; /* of the first file of torch.save that has any, or NULL */
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

static ddl_status truncated(const char *path, const char *at_least, size_t expected, size_t found,
                            struct ddl_error *err)
{
    return ddl_error_set(err, DDL_E_FORMAT, "%s: truncated: expected %s%zu bytes, found %zu", path, at_least,
                         expected, found);
}

/* ---- the header ---- */

/* The text of the header, and where the data begins. */
struct header {
    ddl_safetensors *st;
    struct file *file;
    size_t size;
    struct ddl_json_scan scan;
    struct ddl_error *err;
};

/* One entry as the header has it. */
struct entry {
    char name[MAX_NAME + 1];
    char dtype[48];               /* truncated; "" if there is none */
    bool has_shape;               /* a list                         */
    size_t ndim, bad;             /* bad: the first dimension that is not a size; SIZE_MAX: none */
    size_t shape[DDL_MAX_DIMS];   /* the first ones of ndim */
    size_t n_offsets, offsets[2]; /* n_offsets: 2 if both are sizes */
};

static void start(struct header *h)
{
    const char *text = (const char *)h->file->map.data + 8;
    h->scan = (struct ddl_json_scan){ .text = text, .at = text, .end = text + h->size, .longest = MAX_NAME };
}

static ddl_status not_json(const struct header *h)
{
    return ddl_error_set(h->err, DDL_E_FORMAT, "%s: header is not valid JSON: %s near byte %zu",
                         h->file->path, h->scan.why, 8 + (size_t)(h->scan.at - h->scan.text));
}

/* Reads the list of sizes whose bracket is the current token: at most n into out, *count gets the number of
 * elements and *bad the index of the first that is not a size. False after an error. */
static bool read_sizes(struct ddl_json_scan *scan, size_t *out, size_t n, size_t *count, size_t *bad)
{
    enum ddl_json_token token;
    *bad = SIZE_MAX;
    for (*count = 0; (token = ddl_json_scan_next(scan)) != DDL_JSON_ARRAY_END; ++*count) {
        size_t value = 0;
        bool valid = token == DDL_JSON_NUMBER && ddl_json_scan_size(scan, &value);
        if (!ddl_json_scan_skip(scan, token))
            return false;
        if (!valid && *bad == SIZE_MAX)
            *bad = *count;
        if (*count < n)
            out[*count] = value;
    }
    return true;
}

/* Reads the value of the key at which the scan is. */
static bool read_field(struct header *h, struct entry *e, unsigned *seen)
{
    static const char *const keys[] = { "dtype", "shape", "data_offsets" };
    struct ddl_json_scan *scan = &h->scan;
    size_t key = 0, bad;
    while (key < 3 && !ddl_json_scan_is(scan, keys[key]))
        key++;
    if (key < 3 && *seen & 1u << key) {
        scan->why = "duplicate object key";
        return false;
    }
    *seen |= 1u << key;
    enum ddl_json_token token = ddl_json_scan_next(scan);
    if (key == 0 && token == DDL_JSON_STRING && scan->size < sizeof e->dtype)
        e->dtype[ddl_json_scan_decode(scan, e->dtype)] = '\0';
    else if (key == 0 && token == DDL_JSON_STRING)
        memcpy(e->dtype, "a longer text", 14);
    else if (key == 1 && token == DDL_JSON_ARRAY)
        return (e->has_shape = true) && read_sizes(scan, e->shape, DDL_MAX_DIMS, &e->ndim, &e->bad);
    else if (key == 2 && token == DDL_JSON_ARRAY) {
        bool valid = read_sizes(scan, e->offsets, 2, &e->n_offsets, &bad);
        e->n_offsets = bad == SIZE_MAX ? e->n_offsets : 0;
        return valid;
    }
    return ddl_json_scan_skip(scan, token);
}

/* Reads the entry of a tensor; the scan is at its key. The values are checked later. */
static ddl_status scan_entry(struct header *h, struct entry *e)
{
    struct ddl_json_scan *scan = &h->scan;
    const char *limit = NULL;
    unsigned seen = 0;
    *e->dtype = '\0';
    e->has_shape = false;
    e->n_offsets = 0;
    e->name[ddl_json_scan_decode(scan, e->name)] = '\0';
    const char *begin = scan->at;
    /* The rest of the header is cut off meanwhile: an entry needs no more, and nothing of it is kept. */
    const char *end = scan->end;
    if ((size_t)(end - begin) > MAX_ENTRY)
        limit = scan->end = begin + MAX_ENTRY;
    enum ddl_json_token token = ddl_json_scan_next(scan);
    bool valid = token == DDL_JSON_OBJECT || ddl_json_scan_skip(scan, token);
    while (valid && token == DDL_JSON_OBJECT && (token = ddl_json_scan_next(scan)) == DDL_JSON_KEY) {
        valid = read_field(h, e, &seen);
        token = DDL_JSON_OBJECT;
    }
    valid = valid && token != DDL_JSON_ERROR;
    scan->end = end;
    if (!valid && limit && limit - scan->at < 16)
        return ddl_error_set(h->err, DDL_E_FORMAT,
                             "%s: %.200s: the entry in the header exceeds the limit of %d bytes",
                             h->file->path, e->name, MAX_ENTRY);
    return valid ? DDL_OK : not_json(h);
}

static ddl_status read_shape(const char *path, const struct entry *e, struct ddl_tensor *t,
                             struct ddl_error *err)
{
    if (!e->has_shape)
        return ddl_error_set(err, DDL_E_FORMAT, "%s: %.200s: no shape list in the header", path, e->name);
    if (e->ndim > DDL_MAX_DIMS)
        return ddl_error_set(err, DDL_E_FORMAT, "%s: %.200s: %zu dimensions exceed the limit of %d", path,
                             e->name, e->ndim, DDL_MAX_DIMS);
    if (e->bad != SIZE_MAX)
        return ddl_error_set(err, DDL_E_FORMAT,
                             "%s: %.200s: dimension %zu of the shape is not a nonnegative integer", path,
                             e->name, e->bad);
    t->ndim = e->ndim;
    memcpy(t->shape, e->shape, sizeof t->shape);
    if (!ddl_tensor_measure(t))
        return ddl_error_set(err, DDL_E_FORMAT, "%s: %.200s: the shape is too large", path, e->name);
    return DDL_OK;
}

/* Checks an entry; `data` points to the bytes that follow the header, which contain all tensors. */
static ddl_status check_entry(const char *path, const struct entry *e, const unsigned char *data,
                              struct ddl_tensor *t, struct ddl_error *err)
{
    *t = (struct ddl_tensor){ 0 };
    if (!*e->dtype)
        return ddl_error_set(err, DDL_E_FORMAT, "%s: %.200s: no dtype in the header", path, e->name);
    if (!ddl_dtype_parse(e->dtype, &t->dtype))
        return ddl_error_set(err, DDL_E_FORMAT, "%s: %.200s: unknown dtype '%.40s'", path, e->name, e->dtype);
    ddl_status status = read_shape(path, e, t, err);
    if (status)
        return status;
    if (e->n_offsets != 2)
        return ddl_error_set(err, DDL_E_FORMAT, "%s: %.200s: data_offsets: expected two nonnegative integers",
                             path, e->name);
    size_t begin = e->offsets[0], end = e->offsets[1];
    if (begin > end)
        return ddl_error_set(err, DDL_E_FORMAT,
                             "%s: %.200s: data_offsets: the end is before the begin: %zu to %zu", path,
                             e->name, begin, end);
    if (end - begin != t->bytes) {
        char shape[128];
        ddl_tensor_shape_text(t, shape, sizeof shape);
        return ddl_error_set(err, DDL_E_FORMAT,
                             "%s: %.200s: expected %zu bytes (shape %s, dtype %s), found %zu", path, e->name,
                             t->bytes, shape, e->dtype, end - begin);
    }
    t->data = data + begin;
    if (!(t->name = ddl_mem_strdup(e->name)))
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

/* Reserves capacity for one more tensor. */
static ddl_status grow(ddl_safetensors *st, const char *path, struct ddl_error *err)
{
    if (st->n == MAX_TENSORS)
        return ddl_error_set(err, DDL_E_FORMAT, "%s: more than %d tensors", path, MAX_TENSORS);
    if (st->n < st->capacity)
        return DDL_OK;
    size_t capacity = st->capacity ? 2 * st->capacity : 64;
    struct ddl_tensor *tensors = realloc(st->tensors, capacity * sizeof *tensors);
    if (tensors)
        st->tensors = tensors;
    size_t *file_of = realloc(st->file_of, capacity * sizeof *file_of);
    if (file_of)
        st->file_of = file_of;
    if (!tensors || !file_of)
        return no_memory(path, err);
    st->capacity = capacity;
    return DDL_OK;
}

static ddl_status add_note(struct header *h, const char *key, const char *value)
{
    ddl_safetensors *st = h->st;
    if (st->n_notes == st->note_capacity) {
        size_t capacity = st->note_capacity ? 2 * st->note_capacity : 16;
        struct note *notes = realloc(st->notes, capacity * sizeof *notes);
        if (!notes)
            return no_memory(h->file->path, h->err);
        st->notes = notes;
        st->note_capacity = capacity;
    }
    st->notes[st->n_notes++] = (struct note){ key, value, (size_t)(h->file - st->files) };
    return DDL_OK;
}

/* Decodes the current key or string to *at, with a NUL; moves *at behind it. */
static const char *take_note(const struct ddl_json_scan *scan, char **at)
{
    char *text = *at;
    size_t n = ddl_json_scan_decode(scan, text);
    text[n] = '\0';
    *at += n + 1;
    return text;
}

/* Reads __metadata__, at whose key the scan is: the notes of the file. Values that are not strings, or have
 * NUL bytes, count as absent. */
static ddl_status read_metadata(struct header *h)
{
    struct ddl_json_scan *scan = &h->scan;
    struct file *file = h->file;
    const char *end = scan->end, *begin = scan->at;
    if (file->notes)
        return ddl_error_set(h->err, DDL_E_FORMAT, "%s: duplicate object key \"__metadata__\"", file->path);
    bool cut = (size_t)(end - begin) > MAX_METADATA;
    scan->end = cut ? begin + MAX_METADATA : end;
    scan->longest = MAX_METADATA;
    struct ddl_json_scan size = *scan; /* a first pass, which measures the text */
    bool valid = ddl_json_scan_skip(&size, ddl_json_scan_next(&size));
    if (!valid) {
        bool too_long = cut && scan->end - size.at < 16;
        *scan = size;
        return too_long ? ddl_error_set(h->err, DDL_E_FORMAT, "%s: __metadata__ exceeds the limit of %d MiB",
                                        file->path, MAX_METADATA >> 20)
                        : not_json(h);
    }
    /* A text is decoded with a NUL, for which its quotes leave space. */
    char *at = file->notes = malloc((size_t)(size.at - begin) + 1);
    if (!at)
        return no_memory(file->path, h->err);
    enum ddl_json_token token = ddl_json_scan_next(scan);
    if (token != DDL_JSON_OBJECT)
        (void)ddl_json_scan_skip(scan, token);
    ddl_status status = DDL_OK;
    while (!status && token == DDL_JSON_OBJECT && ddl_json_scan_next(scan) == DDL_JSON_KEY) {
        const char *key = take_note(scan, &at), *value = NULL;
        enum ddl_json_token first = ddl_json_scan_next(scan);
        if (first == DDL_JSON_STRING) {
            const char *before = at;
            value = take_note(scan, &at);
            value = strlen(value) + 1 == (size_t)(at - before) ? value : NULL;
        }
        (void)ddl_json_scan_skip(scan, first);
        status = add_note(h, key, value);
    }
    scan->end = end;
    scan->longest = MAX_NAME;
    return status;
}

/* Reads the header for the first time: checks the JSON, and that the file does not end before the data of its
 * tensors. Entries without valid offsets are left to the second time. */
static ddl_status check_length(struct header *h, struct entry *e)
{
    struct ddl_json_scan *scan = &h->scan;
    size_t last = 0, expected;
    start(h);
    enum ddl_json_token token = ddl_json_scan_next(scan);
    if (token != DDL_JSON_OBJECT && token != DDL_JSON_ERROR)
        return ddl_error_set(h->err, DDL_E_FORMAT, "%s: header is not a JSON object", h->file->path);
    while (token != DDL_JSON_ERROR && (token = ddl_json_scan_next(scan)) == DDL_JSON_KEY) {
        bool metadata = ddl_json_scan_is(scan, "__metadata__");
        ddl_status status = metadata ? read_metadata(h) : scan_entry(h, e);
        if (status)
            return status;
        if (!metadata && e->n_offsets == 2 && e->offsets[1] > last)
            last = e->offsets[1];
    }
    scan->longest = SIZE_MAX; /* the header may end in any amount of white space */
    if (token == DDL_JSON_ERROR || ddl_json_scan_next(scan) != DDL_JSON_END)
        return not_json(h);
    if (!ddl_size_add(8 + h->size, last, &expected))
        expected = SIZE_MAX;
    return expected > h->file->map.size ? truncated(h->file->path, "", expected, h->file->map.size, h->err)
                                        : DDL_OK;
}

static ddl_status read_entries(struct header *h)
{
    struct entry e;
    ddl_safetensors *st = h->st;
    const struct file *file = h->file;
    const unsigned char *data = file->map.data + 8 + h->size;
    size_t data_size = file->map.size - 8 - h->size, first = st->n;
    ddl_status status = check_length(h, &e);
    if (status)
        return status;
    start(h);
    (void)ddl_json_scan_next(&h->scan);
    while (ddl_json_scan_next(&h->scan) == DDL_JSON_KEY) {
        if (ddl_json_scan_is(&h->scan, "__metadata__")) {
            h->scan.longest = MAX_METADATA;
            (void)ddl_json_scan_skip(&h->scan, ddl_json_scan_next(&h->scan));
            h->scan.longest = MAX_NAME;
            continue;
        }
        status = scan_entry(h, &e);
        if (!status)
            status = grow(st, file->path, h->err);
        if (!status)
            status = check_entry(file->path, &e, data, &st->tensors[st->n], h->err);
        if (status)
            return status;
        st->file_of[st->n++] = (size_t)(file - st->files);
    }
    struct ddl_tensor *tensors = st->n > first ? st->tensors + first : NULL;
    return check_offsets(file->path, tensors, st->n - first, data, data_size, h->err);
}

/* Reads the tensors of a mapped safetensors file. */
static ddl_status read_safetensors(ddl_safetensors *st, struct file *file, struct ddl_error *err)
{
    const char *path = file->path;
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
    struct header h = { .st = st, .file = file, .size = (size_t)size, .err = err };
    return read_entries(&h);
}

static int by_key(const void *a, const void *b)
{
    const struct note *x = a, *y = b;
    int order = strcmp(x->key, y->key);
    return order ? order : (x->file > y->file) - (x->file < y->file);
}

/* Sorts the notes and rejects duplicate keys within a file. */
static ddl_status index_notes(ddl_safetensors *st, struct ddl_error *err)
{
    if (st->n_notes)
        qsort(st->notes, st->n_notes, sizeof *st->notes, by_key);
    for (size_t i = 1; i < st->n_notes; i++) {
        if (by_key(&st->notes[i - 1], &st->notes[i]) == 0)
            return ddl_error_set(err, DDL_E_FORMAT, "%s: __metadata__: duplicate object key \"%.200s\"",
                                 st->files[st->notes[i].file].path, st->notes[i].key);
    }
    return DDL_OK;
}

/* Reads the tensors of a mapped file of torch.save. */
static ddl_status read_torch(ddl_safetensors *st, const struct file *file, struct ddl_error *err)
{
    struct ddl_torch_file read;
    ddl_status status = ddl_torch_file_read(&read, &file->map, file->path, err);
    if (status)
        return status;
    for (size_t i = 0; i < read.n; i++) {
        if (!status)
            status = grow(st, file->path, err);
        if (status) {
            free((char *)(uintptr_t)read.tensors[i].name);
            continue;
        }
        st->tensors[st->n] = read.tensors[i];
        st->file_of[st->n++] = (size_t)(file - st->files);
    }
    if (!st->settings)
        st->settings = json_incref(read.settings);
    ddl_torch_file_close(&read);
    return status;
}

/* Adds the tensors of a file, which takes the next free slot of st->files. */
static ddl_status add_file(ddl_safetensors *st, const char *path, enum format format, struct ddl_error *err)
{
    struct file *file = &st->files[st->n_files];
    *file = (struct file){ .format = format };
    if (!(file->path = ddl_mem_strdup(path)))
        return no_memory(path, err);
    st->n_files++;
    ddl_status status = ddl_file_map_open(&file->map, path, err);
    if (status)
        return status;
    return format == TORCH ? read_torch(st, file, err) : read_safetensors(st, file, err);
}

/* Sorts by_name and rejects duplicate names, in one file or in two. */
static ddl_status sort_names(ddl_safetensors *st, struct ddl_error *err)
{
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

static ddl_status index_names(ddl_safetensors *st, const char *path, struct ddl_error *err)
{
    st->by_name = malloc((st->n + 1) * sizeof *st->by_name);
    ddl_status status = st->by_name ? sort_names(st, err) : no_memory(path, err);
    return status ? status : index_notes(st, err);
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

static ddl_status open_file(ddl_safetensors **out, const char *path, enum format format,
                            struct ddl_error *err)
{
    *out = NULL;
    ddl_safetensors *st = new_set(1);
    if (!st)
        return no_memory(path, err);
    ddl_status status = add_file(st, path, format, err);
    if (!status)
        status = index_names(st, path, err);
    if (status)
        ddl_safetensors_close(st);
    else
        *out = st;
    return status;
}

ddl_status ddl_safetensors_open(ddl_safetensors **out, const char *path, struct ddl_error *err)
{
    return open_file(out, path, SAFETENSORS, err);
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
                                    enum format format, struct ddl_error *err)
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
        ddl_status status = add_file(st, path, format, err);
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
                               enum format format, struct ddl_error *err)
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
        status = add_indexed_files(st, folder, index, map, format, err);
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

/* The files of a folder that may hold its tensors; the first that exists is read. */
static const struct {
    const char *name;
    enum format format;
    bool is_index;
} candidates[] = {
    { "model.safetensors", SAFETENSORS, false },
    { "model.safetensors.index.json", SAFETENSORS, true },
    { "pytorch_model.bin", TORCH, false },
    { "pytorch_model.bin.index.json", TORCH, true },
    { "ckpt.pt", TORCH, false },
};
enum { N_CANDIDATES = sizeof candidates / sizeof *candidates };

/* The first candidate that exists, or N_CANDIDATES. */
static size_t find_candidate(const char *folder, char *path, size_t size)
{
    size_t i = 0;
    while (i < N_CANDIDATES &&
           !(ddl_path_join(path, size, folder, candidates[i].name) && ddl_file_exists(path)))
        i++;
    return i;
}

bool ddl_safetensors_in_folder(const char *folder)
{
    char path[1024];
    return find_candidate(folder, path, sizeof path) < N_CANDIDATES;
}

ddl_status ddl_safetensors_open_folder(ddl_safetensors **out, const char *folder, struct ddl_error *err)
{
    char path[1024], longest[1024];
    *out = NULL;
    if (!ddl_path_join(longest, sizeof longest, folder, "pytorch_model.bin.index.json"))
        return ddl_error_set(err, DDL_E_USAGE, "%.200s: the folder's path is too long", folder);
    size_t i = find_candidate(folder, path, sizeof path);
    if (i == N_CANDIDATES) {
        i = 0; /* its error message names the file that is usual */
        (void)ddl_path_join(path, sizeof path, folder, candidates[0].name);
    }
    return candidates[i].is_index ? open_indexed(out, folder, path, candidates[i].format, err)
                                  : open_file(out, path, candidates[i].format, err);
}

ddl_status ddl_safetensors_rename(ddl_safetensors *st, ddl_tensor_rename_fn *rename, struct ddl_error *err)
{
    for (size_t i = 0; i < st->n; i++)
        rename(&st->tensors[i], (char *)(uintptr_t)st->tensors[i].name);
    return sort_names(st, err);
}

ddl_status ddl_safetensors_verify(const ddl_safetensors *st, struct ddl_error *err)
{
    ddl_status status = DDL_OK;
    for (size_t i = 0; i < st->n_files && !status; i++) {
        if (st->files[i].format == TORCH)
            status = ddl_torch_file_verify(&st->files[i].map, st->files[i].path, err);
    }
    return status;
}

ddl_status ddl_safetensors_verify_folder(const char *folder, struct ddl_error *err)
{
    char path[1024];
    ddl_safetensors *st;
    size_t i = find_candidate(folder, path, sizeof path);
    if (i == N_CANDIDATES || candidates[i].format != TORCH)
        return DDL_OK;
    ddl_status status = ddl_safetensors_open_folder(&st, folder, err);
    if (!status)
        status = ddl_safetensors_verify(st, err);
    ddl_safetensors_close(st);
    return status;
}

void ddl_safetensors_close(ddl_safetensors *st)
{
    if (!st)
        return;
    for (size_t i = 0; i < st->n_files; i++) {
        free(st->files[i].path);
        free(st->files[i].notes);
        ddl_file_map_close(&st->files[i].map);
    }
    for (size_t i = 0; i < st->n; i++)
        free((char *)(uintptr_t)st->tensors[i].name);
    free(st->files);
    free(st->tensors);
    free(st->file_of);
    free(st->by_name);
    free(st->notes);
    json_decref(st->settings);
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
    size_t low = 0, high = st->n_notes;
    while (low < high) { /* the first file's, if several have it */
        size_t middle = (low + high) / 2;
        if (strcmp(st->notes[middle].key, key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low < st->n_notes && strcmp(st->notes[low].key, key) == 0 ? st->notes[low].value : NULL;
}

const json_t *ddl_safetensors_settings(const ddl_safetensors *st)
{
    return st->settings;
}

void ddl_safetensors_release(const ddl_safetensors *st, const struct ddl_tensor *tensor, size_t start,
                             size_t n)
{
    size_t size = ddl_dtype_size(tensor->dtype);
    ddl_file_map_release(&st->files[st->file_of[tensor - st->tensors]].map, tensor->data + start * size,
                         n * size);
}

const char *ddl_safetensors_path(const ddl_safetensors *st, const struct ddl_tensor *tensor)
{
    return st->files[st->file_of[tensor - st->tensors]].path;
}
