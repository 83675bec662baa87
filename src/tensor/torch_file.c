#include "tensor/torch_file.h"

#include "base/mem.h"
#include "tensor/pickle.h"
#include "tensor/zip.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SETTINGS = 1000, MAX_SETTING = 256 };

/* ---- the names that a pickle of tensors uses ---- */

enum {
    IS_DICT,
    REBUILD_TENSOR,
    REBUILD_TENSOR_V2,
    REBUILD_TENSOR_V3,
    REBUILD_PARAMETER,
    REBUILD_PARAMETER_WITH_STATE,
    SIZE,
    DEVICE,
    UNTYPED,
    N_FUNCTIONS
};

/* A dtype, and the storage of it that has one. */
#define DTYPES(X)                                                                                            \
    X(DDL_F64, "float64", "DoubleStorage")                                                                   \
    X(DDL_F32, "float32", "FloatStorage")                                                                    \
    X(DDL_F16, "float16", "HalfStorage")                                                                     \
    X(DDL_BF16, "bfloat16", "BFloat16Storage")                                                               \
    X(DDL_I64, "int64", "LongStorage")                                                                       \
    X(DDL_I32, "int32", "IntStorage")                                                                        \
    X(DDL_I16, "int16", "ShortStorage")                                                                      \
    X(DDL_I8, "int8", "CharStorage")                                                                         \
    X(DDL_U8, "uint8", "ByteStorage")                                                                        \
    X(DDL_BOOL, "bool", "BoolStorage")

/* Dtypes without a storage of their own. */
#define MORE_DTYPES(X)                                                                                       \
    X(DDL_F8_E5M2, "float8_e5m2")                                                                            \
    X(DDL_F8_E4M3, "float8_e4m3fn")                                                                          \
    X(DDL_U64, "uint64")                                                                                     \
    X(DDL_U32, "uint32")                                                                                     \
    X(DDL_U16, "uint16")

#define BOTH_GLOBALS(dtype, name, storage) { "torch", storage, false }, { "torch", name, false },
#define ONE_GLOBAL(dtype, name) { "torch", name, false },

/* After the functions, the rows of dtypes[] below. */
static const struct ddl_pickle_global globals[] = {
    [IS_DICT] = { "collections", "OrderedDict", true },
    [REBUILD_TENSOR] = { "torch._utils", "_rebuild_tensor", false },
    [REBUILD_TENSOR_V2] = { "torch._utils", "_rebuild_tensor_v2", false },
    [REBUILD_TENSOR_V3] = { "torch._utils", "_rebuild_tensor_v3", false },
    [REBUILD_PARAMETER] = { "torch._utils", "_rebuild_parameter", false },
    [REBUILD_PARAMETER_WITH_STATE] = { "torch._utils", "_rebuild_parameter_with_state", false },
    [SIZE] = { "torch", "Size", false },
    [DEVICE] = { "torch", "device", false },
    [UNTYPED] = { "torch.storage", "UntypedStorage", false },
    DTYPES(BOTH_GLOBALS) MORE_DTYPES(ONE_GLOBAL)
};
enum { N_GLOBALS = sizeof globals / sizeof *globals };

#define BOTH_DTYPES(dtype, name, storage) { dtype, true }, { dtype, false },
#define ONE_DTYPE(dtype, name) { dtype, false },
static const struct {
    enum ddl_dtype dtype;
    bool is_storage;
} dtypes[] = { DTYPES(BOTH_DTYPES) MORE_DTYPES(ONE_DTYPE) };
_Static_assert(sizeof dtypes / sizeof *dtypes == N_GLOBALS - N_FUNCTIONS, "a row for each dtype's global");

/* ---- reading ---- */

struct reader {
    const char *path;
    struct ddl_zip zip;
    struct ddl_pickle pickle;
    const char *prefix; /* of all entries, with its slash */
    size_t prefix_size;
    size_t names_left; /* bytes that all names may have */
    struct ddl_torch_file out;
    struct ddl_error *err;
};

static ddl_status no_memory(const struct reader *r)
{
    return ddl_error_set(r->err, DDL_E_MEMORY, "%s: out of memory for its table of tensors", r->path);
}

static ddl_status tensor_error(const struct reader *r, const struct ddl_tensor *t, const char *what)
{
    return ddl_error_set(r->err, DDL_E_FORMAT, "%s: %.200s: %s", r->path, t->name, what);
}

static bool is_function(const struct ddl_pickle_value *value, int64_t function)
{
    return value->kind == DDL_PICKLE_GLOBAL && value->as.number == function;
}

/* The dtype that a global stands for, as a storage's type or as a dtype. */
static bool as_dtype(const struct ddl_pickle_value *value, bool is_storage, enum ddl_dtype *out)
{
    if (value->kind != DDL_PICKLE_GLOBAL || value->as.number < N_FUNCTIONS ||
        dtypes[value->as.number - N_FUNCTIONS].is_storage != is_storage)
        return false;
    *out = dtypes[value->as.number - N_FUNCTIONS].dtype;
    return true;
}

static bool as_size(const struct ddl_pickle_value *value, size_t *out)
{
    if (value->kind != DDL_PICKLE_INT || value->as.number < 0)
        return false;
    *out = (size_t)value->as.number;
    return true;
}

/* A call's function and tuple of arguments. */
static const struct ddl_pickle_value *function_of(const struct reader *r, const struct ddl_pickle_value *call,
                                                  ddl_pickle_ref *arguments)
{
    const struct ddl_pickle_item *first = &r->pickle.items[call->as.items.first];
    *arguments = r->pickle.items[first->next].value;
    return &r->pickle.values[first->value];
}

static bool is_tensor(const struct reader *r, ddl_pickle_ref ref)
{
    ddl_pickle_ref arguments;
    const struct ddl_pickle_value *value = &r->pickle.values[ref];
    if (value->kind != DDL_PICKLE_CALL)
        return false;
    int64_t function = function_of(r, value, &arguments)->as.number;
    return function >= REBUILD_TENSOR && function <= REBUILD_PARAMETER_WITH_STATE;
}

/* ---- storages ---- */

/* The entry with a storage's bytes. An untyped storage has the tensor's dtype. */
static ddl_status find_storage(const struct reader *r, const struct ddl_pickle_value *storage, bool untyped,
                               struct ddl_tensor *t, const struct ddl_zip_entry **entry, size_t *numel)
{
    const struct ddl_pickle_value *id[5];
    char name[512];
    if (storage->kind != DDL_PICKLE_PERSISTENT ||
        !ddl_pickle_tuple(&r->pickle, r->pickle.items[storage->as.items.first].value, 5, id) ||
        !ddl_pickle_is_text(id[0], "storage") || id[2]->kind != DDL_PICKLE_TEXT || !as_size(id[4], numel))
        return tensor_error(r, t, "expected a storage: its type, its number and its size");
    if (untyped ? !is_function(id[1], UNTYPED) : !as_dtype(id[1], true, &t->dtype))
        return tensor_error(r, t, "the storage has no known dtype");
    size_t size = ddl_dtype_size(t->dtype);
    int n = snprintf(name, sizeof name, "%.*sdata/%.*s", (int)r->prefix_size, r->prefix,
                     (int)(id[2]->n < 64 ? id[2]->n : 64), (const char *)id[2]->as.text);
    *entry = id[2]->n < 64 ? ddl_zip_find(&r->zip, name, (size_t)n) : NULL;
    if (!*entry)
        return ddl_error_set(r->err, DDL_E_FORMAT, "%s: %.200s: there is no entry '%s' with its bytes",
                             r->path, t->name, name);
    size_t expected;
    if (untyped && *numel % size)
        return tensor_error(r, t, "the size of the storage is not a multiple of its dtype's");
    *numel /= untyped ? size : 1;
    if (!ddl_size_mul(*numel, size, &expected) || expected != (*entry)->size)
        return ddl_error_set(r->err, DDL_E_FORMAT,
                             "%s: %.200s: entry '%s' has the wrong size: expected %zu elements of %zu bytes, "
                             "found %zu bytes",
                             r->path, t->name, name, *numel, size, (*entry)->size);
    return DDL_OK;
}

/* ---- tensors ---- */

/* Sets the shape; the strides must be those of a contiguous tensor. */
static ddl_status read_shape(const struct reader *r, ddl_pickle_ref sizes, ddl_pickle_ref strides,
                             struct ddl_tensor *t)
{
    const struct ddl_pickle_value *size[DDL_MAX_DIMS], *stride[DDL_MAX_DIMS];
    const struct ddl_pickle_value *shape = &r->pickle.values[sizes], *steps = &r->pickle.values[strides];
    if (shape->kind != DDL_PICKLE_TUPLE || steps->kind != DDL_PICKLE_TUPLE || shape->n != steps->n)
        return tensor_error(r, t, "expected a shape and as many strides");
    if (shape->n > DDL_MAX_DIMS)
        return ddl_error_set(r->err, DDL_E_FORMAT, "%s: %.200s: %u dimensions exceed the limit of %d",
                             r->path, t->name, shape->n, DDL_MAX_DIMS);
    t->ndim = shape->n;
    (void)ddl_pickle_tuple(&r->pickle, sizes, t->ndim, size);
    (void)ddl_pickle_tuple(&r->pickle, strides, t->ndim, stride);
    for (size_t i = 0; i < t->ndim; i++) {
        if (!as_size(size[i], &t->shape[i]))
            return tensor_error(r, t, "a dimension of the shape is not a nonnegative integer");
        if (stride[i]->kind != DDL_PICKLE_INT)
            return tensor_error(r, t, "a stride is not an integer");
    }
    if (!ddl_tensor_measure(t))
        return tensor_error(r, t, "the shape is too large");
    size_t expected = 1, found;
    for (size_t i = t->ndim; i-- > 0 && t->count;) {
        if (t->shape[i] > 1 && (!as_size(stride[i], &found) || found != expected))
            return ddl_error_set(r->err, DDL_E_FORMAT,
                                 "%s: %.200s is not contiguous: expected stride %zu in dimension %zu, found "
                                 "%lld; save its .contiguous()",
                                 r->path, t->name, expected, i, (long long)stride[i]->as.number);
        expected *= t->shape[i];
    }
    return DDL_OK;
}

/* The call that gives the tensor itself, and not the parameter that it is the value of. */
static const struct ddl_pickle_value *
without_parameter(const struct reader *r, const struct ddl_pickle_value *call, ddl_pickle_ref *arguments)
{
    const struct ddl_pickle_value *data, *function = function_of(r, call, arguments);
    if ((is_function(function, REBUILD_PARAMETER) || is_function(function, REBUILD_PARAMETER_WITH_STATE)) &&
        ddl_pickle_tuple(&r->pickle, *arguments, 1, &data) && data->kind == DDL_PICKLE_CALL)
        function = function_of(r, data, arguments);
    return function;
}

static ddl_pickle_ref ref_of(const struct reader *r, const struct ddl_pickle_value *value)
{
    return (ddl_pickle_ref)(value - r->pickle.values);
}

/* Reads the tensor that a call of torch._utils makes; its name is set. */
static ddl_status read_tensor(const struct reader *r, const struct ddl_pickle_value *call,
                              struct ddl_tensor *t)
{
    const struct ddl_pickle_value *argument[7];
    ddl_pickle_ref arguments;
    const struct ddl_pickle_value *function = without_parameter(r, call, &arguments);
    bool untyped = is_function(function, REBUILD_TENSOR_V3);
    if (!(untyped || is_function(function, REBUILD_TENSOR_V2) || is_function(function, REBUILD_TENSOR)) ||
        !ddl_pickle_tuple(&r->pickle, arguments, untyped ? 7 : 4, argument))
        return tensor_error(r, t, "expected a tensor: a storage, an offset, a shape and strides");
    if (untyped && !as_dtype(argument[6], false, &t->dtype))
        return tensor_error(r, t, "the tensor has no known dtype");
    const struct ddl_zip_entry *entry = NULL;
    size_t numel = 0, offset, end;
    ddl_status status = find_storage(r, argument[0], untyped, t, &entry, &numel);
    if (!status)
        status = read_shape(r, ref_of(r, argument[2]), ref_of(r, argument[3]), t);
    if (status)
        return status;
    if (!as_size(argument[1], &offset))
        return tensor_error(r, t, "the offset in its storage is not a nonnegative integer");
    if (!ddl_size_add(offset, t->count, &end) || end > numel)
        return ddl_error_set(r->err, DDL_E_FORMAT,
                             "%s: %.200s is outside of its storage: expected at most %zu elements, found %zu "
                             "from element %zu on",
                             r->path, t->name, numel, t->count, offset);
    t->data = entry->data + offset * ddl_dtype_size(t->dtype);
    return DDL_OK;
}

/* ---- the state dict ---- */

/* The value of a key of a dict; the last one, as in Python. */
static bool find_key(const struct reader *r, ddl_pickle_ref dict, const char *key, ddl_pickle_ref *out)
{
    const struct ddl_pickle_value *d = &r->pickle.values[dict];
    bool found = false;
    uint32_t at = d->as.items.first;
    for (uint32_t i = 0; i < d->n; i++) {
        const struct ddl_pickle_item *item = &r->pickle.items[at];
        if (ddl_pickle_is_text(&r->pickle.values[item->key], key)) {
            *out = item->value;
            found = true;
        }
        at = item->next;
    }
    return found;
}

/* Names that differ are different texts of the pickle: together they are no longer than it. */
static ddl_status copy_name(struct reader *r, const struct ddl_pickle_value *key, char **out)
{
    r->names_left -= key->n < r->names_left ? key->n : r->names_left;
    if (!r->names_left)
        return ddl_error_set(r->err, DDL_E_FORMAT, "%s: duplicate tensor %.*s", r->path,
                             (int)(key->n < 200 ? key->n : 200), (const char *)key->as.text);
    if (memchr(key->as.text, '\0', key->n))
        return ddl_error_set(r->err, DDL_E_FORMAT, "%s: %.*s: the name contains a NUL", r->path, 200,
                             (const char *)key->as.text);
    char *name = malloc((size_t)key->n + 1);
    if (!name)
        return no_memory(r);
    memcpy(name, key->as.text, key->n);
    name[key->n] = '\0';
    *out = name;
    return DDL_OK;
}

static bool is_entry(const struct reader *r, const struct ddl_pickle_item *item)
{
    return r->pickle.values[item->key].kind == DDL_PICKLE_TEXT && is_tensor(r, item->value);
}

static size_t count_tensors(const struct reader *r, const struct ddl_pickle_value *dict)
{
    size_t n = 0;
    uint32_t at = dict->as.items.first;
    for (uint32_t i = 0; i < dict->n; i++) {
        n += is_entry(r, &r->pickle.items[at]);
        at = r->pickle.items[at].next;
    }
    return n;
}

static ddl_status read_state_dict(struct reader *r, ddl_pickle_ref dict)
{
    const struct ddl_pickle_value *d = &r->pickle.values[dict];
    if (!(r->out.tensors = calloc(count_tensors(r, d) + 1, sizeof *r->out.tensors)))
        return no_memory(r);
    uint32_t at = d->as.items.first;
    for (uint32_t i = 0; i < d->n; i++) {
        const struct ddl_pickle_item item = r->pickle.items[at];
        const struct ddl_pickle_value *key = &r->pickle.values[item.key];
        at = item.next;
        if (!is_entry(r, &item))
            continue;
        struct ddl_tensor *t = &r->out.tensors[r->out.n];
        char *name = NULL;
        ddl_status status = copy_name(r, key, &name);
        if (status)
            return status;
        t->name = name;
        r->out.n++;
        status = read_tensor(r, &r->pickle.values[item.value], t);
        if (status)
            return status;
    }
    return DDL_OK;
}

/* Whether JSON can hold the value: a number, a boolean, None or a short string. */
static bool is_setting(const struct ddl_pickle_value *value)
{
    switch (value->kind) {
    case DDL_PICKLE_INT:
    case DDL_PICKLE_BOOL:
    case DDL_PICKLE_NONE:
        return true;
    case DDL_PICKLE_FLOAT:
        return isfinite(value->as.real);
    case DDL_PICKLE_TEXT:
        return value->n < MAX_SETTING;
    default:
        return false;
    }
}

/* Returns NULL if out of memory. */
static json_t *json_of(const struct ddl_pickle_value *value)
{
    switch (value->kind) {
    case DDL_PICKLE_INT:
        return json_integer(value->as.number);
    case DDL_PICKLE_FLOAT:
        return json_real(value->as.real);
    case DDL_PICKLE_BOOL:
        return json_boolean(value->as.number);
    case DDL_PICKLE_TEXT:
        return json_stringn_nocheck((const char *)value->as.text, value->n);
    default:
        return json_null();
    }
}

/* The values of a dict that JSON can hold. */
static ddl_status read_settings(struct reader *r, ddl_pickle_ref dict)
{
    const struct ddl_pickle_value *d = &r->pickle.values[dict];
    if (!(r->out.settings = json_object()))
        return no_memory(r);
    uint32_t at = d->as.items.first;
    for (uint32_t i = 0; i < d->n && i < MAX_SETTINGS; i++) {
        const struct ddl_pickle_item *item = &r->pickle.items[at];
        const struct ddl_pickle_value *key = &r->pickle.values[item->key];
        char name[MAX_SETTING];
        at = item->next;
        if (key->kind != DDL_PICKLE_TEXT || key->n >= MAX_SETTING ||
            !is_setting(&r->pickle.values[item->value]))
            continue;
        memcpy(name, key->as.text, key->n);
        name[key->n] = '\0';
        if (json_object_set_new_nocheck(r->out.settings, name, json_of(&r->pickle.values[item->value])) != 0)
            return no_memory(r);
    }
    return DDL_OK;
}

static ddl_status find_tensors(struct reader *r)
{
    static const char *const keys[] = { "model", "state_dict", "model_state_dict" };
    ddl_pickle_ref dict = r->pickle.root, inner;
    if (r->pickle.values[dict].kind != DDL_PICKLE_DICT)
        return ddl_error_set(r->err, DDL_E_FORMAT, "%s: expected a dict of tensors, found %s", r->path,
                             ddl_pickle_kind_name(r->pickle.values[dict].kind));
    for (size_t i = 0; i < sizeof keys / sizeof *keys && dict == r->pickle.root; i++) {
        if (find_key(r, dict, keys[i], &inner) && r->pickle.values[inner].kind == DDL_PICKLE_DICT)
            dict = inner;
    }
    ddl_status status = read_state_dict(r, dict);
    if (!status && !r->out.n)
        return ddl_error_set(r->err, DDL_E_FORMAT,
                             "%s: expected a dict of tensors, or one under the key model, state_dict or "
                             "model_state_dict, found no tensor",
                             r->path);
    if (!status && find_key(r, r->pickle.root, "model_args", &inner) &&
        r->pickle.values[inner].kind == DDL_PICKLE_DICT)
        status = read_settings(r, inner);
    return status;
}

/* ---- the file ---- */

/* All entries of a file are in one folder, whose name is that of the file when it was saved. */
static ddl_status find_pickle(struct reader *r, const struct ddl_zip_entry **pickle)
{
    static const char ending[] = "/data.pkl";
    size_t size = sizeof ending - 1, n = 0;
    for (size_t i = 0; i < r->zip.n; i++) {
        const struct ddl_zip_entry *e = &r->zip.entries[i];
        if (e->name_size < size || memcmp(e->name + e->name_size - size, ending, size) != 0)
            continue;
        *pickle = e;
        n++;
        r->prefix = e->name;
        r->prefix_size = e->name_size - size + 1;
    }
    if (n != 1 || r->prefix_size > 400)
        return ddl_error_set(r->err, DDL_E_FORMAT,
                             "%s: expected a zip file of torch.save with one entry NAME/data.pkl, found %zu",
                             r->path, n);
    return DDL_OK;
}

static ddl_status check_crc(const char *path, const struct ddl_zip_entry *e, struct ddl_error *err)
{
    uint32_t crc = e->crc ? ddl_zip_crc(0, e->data, e->size) : 0;
    if (crc == e->crc)
        return DDL_OK;
    return ddl_error_set(
        err, DDL_E_FORMAT, "%s: entry '%.*s' is corrupted: expected CRC-32 %08lx, found %08lx", path,
        (int)(e->name_size < 200 ? e->name_size : 200), e->name, (unsigned long)e->crc, (unsigned long)crc);
}

static ddl_status check_byte_order(const struct reader *r)
{
    char name[512];
    int n = snprintf(name, sizeof name, "%.*sbyteorder", (int)r->prefix_size, r->prefix);
    const struct ddl_zip_entry *e = ddl_zip_find(&r->zip, name, (size_t)n);
    if (!e || (e->size == 6 && memcmp(e->data, "little", 6) == 0))
        return DDL_OK;
    return ddl_error_set(r->err, DDL_E_UNSUPPORTED, "%s: expected byte order little, found '%.*s'", r->path,
                         (int)(e->size < 20 ? e->size : 20), (const char *)e->data);
}

static ddl_status read_pickle(struct reader *r)
{
    const struct ddl_zip_entry *pickle = NULL;
    ddl_status status = find_pickle(r, &pickle);
    if (!status)
        status = check_byte_order(r);
    if (!status)
        status = check_crc(r->path, pickle, r->err);
    if (!status)
        status = ddl_pickle_read(&r->pickle, pickle->data, pickle->size, globals, N_GLOBALS, r->path, r->err);
    if (status)
        return status;
    r->names_left = pickle->size;
    status = find_tensors(r);
    ddl_pickle_close(&r->pickle);
    return status;
}

/* A file that is not a zip file. */
static ddl_status not_zip(const struct ddl_file_map *map, const char *path, struct ddl_error *err)
{
    /* Protocol 2 and the number with which files of earlier versions begin. */
    static const unsigned char magic[] = { 0x80, 2,    0x8a, 10,   0x6c, 0xfc, 0x9c,
                                           0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19 };
    if (map->size >= sizeof magic && memcmp(map->data, magic, sizeof magic) == 0)
        return ddl_error_set(
            err, DDL_E_UNSUPPORTED,
            "%s: expected the zip format that torch.save writes since PyTorch 1.6, found the "
            "older format; convert the file: python3 -c \"import sys, torch; f = sys.argv[1]; "
            "torch.save(torch.load(f, map_location='cpu', weights_only=True), f)\" %s",
            path, path);
    return ddl_error_set(err, DDL_E_FORMAT, "%s: expected a zip file as torch.save writes it, found %s", path,
                         map->size ? "other bytes" : "an empty file");
}

ddl_status ddl_torch_file_read(struct ddl_torch_file *out, const struct ddl_file_map *map, const char *path,
                               struct ddl_error *err)
{
    struct reader r = { .path = path, .err = err };
    *out = (struct ddl_torch_file){ 0 };
    if (!ddl_zip_begins(map->data, map->size))
        return not_zip(map, path, err);
    ddl_status status = ddl_zip_open(&r.zip, map->data, map->size, path, err);
    if (status)
        return status;
    status = read_pickle(&r);
    ddl_zip_close(&r.zip);
    if (!status) {
        *out = r.out;
        return DDL_OK;
    }
    for (size_t i = 0; i < r.out.n; i++)
        free((char *)(uintptr_t)r.out.tensors[i].name);
    ddl_torch_file_close(&r.out);
    return status;
}

void ddl_torch_file_close(struct ddl_torch_file *file)
{
    free(file->tensors);
    json_decref(file->settings);
    *file = (struct ddl_torch_file){ 0 };
}

ddl_status ddl_torch_file_verify(const struct ddl_file_map *map, const char *path, struct ddl_error *err)
{
    struct ddl_zip zip;
    ddl_status status = ddl_zip_open(&zip, map->data, map->size, path, err);
    for (size_t i = 0; i < zip.n && !status; i++) {
        status = check_crc(path, &zip.entries[i], err);
        ddl_file_map_release(map, zip.entries[i].data, zip.entries[i].size);
    }
    ddl_zip_close(&zip);
    return status;
}
