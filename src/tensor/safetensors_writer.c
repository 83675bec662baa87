#define _POSIX_C_SOURCE 200809L
#include "base/crc32c.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "tensor/safetensors.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 1 << 20 }; /* bytes per call of `fill` */

static json_t *shape_list(const struct ddl_tensor *t)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < t->ndim; i++) {
        if (json_array_append_new(list, json_integer((json_int_t)t->shape[i])) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

/* Hugging Face's loader requires the format "pt". */
static json_t *metadata_of(const struct ddl_safetensors_metadata *entries, size_t n)
{
    json_t *metadata = json_pack("{s:s}", "format", "pt");
    for (size_t i = 0; metadata && i < n; i++) {
        if (json_object_set_new(metadata, entries[i].key, json_string(entries[i].value)) != 0) {
            json_decref(metadata);
            return NULL;
        }
    }
    return metadata;
}

/* Adds the tensors to the header in order. On failure releases the header, sets err and returns NULL. */
static json_t *header_of(const char *path, json_t *header, const struct ddl_tensor *tensors, size_t n,
                         struct ddl_error *err)
{
    size_t at = 0;
    for (size_t i = 0; header && i < n; i++) {
        struct ddl_tensor t = tensors[i];
        size_t end;
        if (json_object_get(header, t.name)) {
            ddl_error_set(err, DDL_E_USAGE, "%s: duplicate tensor %.200s", path, t.name);
            json_decref(header);
            return NULL;
        }
        if (!ddl_tensor_measure(&t) || !ddl_size_add(at, t.bytes, &end) || end > INT64_MAX) {
            ddl_error_set(err, DDL_E_USAGE, "%s: %.200s: the shape is too large", path, t.name);
            json_decref(header);
            return NULL;
        }
        json_t *entry = json_pack("{s:s, s:o, s:[I, I]}", "dtype", ddl_dtype_name(t.dtype), "shape",
                                  shape_list(&t), "data_offsets", (json_int_t)at, (json_int_t)end);
        at = end;
        if (json_object_set_new(header, t.name, entry) != 0) {
            json_decref(header);
            header = NULL;
        }
    }
    if (!header)
        ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory for its header (or a name is not UTF-8)", path);
    return header;
}

static ddl_status append(struct ddl_safetensors_output *out, const void *data, size_t size,
                         struct ddl_error *err)
{
    out->size += size;
    out->crc32c = ddl_crc32c_add(out->crc32c, data, size);
    return ddl_file_writer_write(&out->writer, data, size, err);
}

static ddl_status write_header(struct ddl_safetensors_output *out, const char *text, struct ddl_error *err)
{
    size_t length = strlen(text), padding = (8 - length % 8) % 8;
    uint64_t size = length + padding;
    ddl_status status = append(out, &size, sizeof size, err);
    if (!status)
        status = append(out, text, length, err);
    return status ? status : append(out, "       ", padding, err);
}

static ddl_status write_tensor(struct ddl_safetensors_output *out, struct ddl_tensor t, size_t i, void *piece,
                               ddl_tensor_fill_fn *fill, void *user, struct ddl_error *err)
{
    (void)ddl_tensor_measure(&t); /* succeeded for the header */
    for (size_t offset = 0; offset < t.bytes; offset += PIECE) {
        size_t bytes = t.bytes - offset < PIECE ? t.bytes - offset : PIECE;
        ddl_status status = fill(user, i, offset, bytes, piece, err);
        if (!status)
            status = append(out, piece, bytes, err);
        if (status)
            return status;
    }
    return DDL_OK;
}

ddl_status ddl_safetensors_prepare(struct ddl_safetensors_output *out, const char *path,
                                   const struct ddl_safetensors_content *content, struct ddl_error *err)
{
    *out = (struct ddl_safetensors_output){ 0 };
    struct ddl_error why = { 0 };
    json_t *header = json_pack("{s:o}", "__metadata__", metadata_of(content->entries, content->n_entries));
    header = header_of(path, header, content->tensors, content->n, &why);
    if (!header)
        return ddl_error_set(err, why.status, "%s", why.text);
    char *text = ddl_json_dumps(header, JSON_COMPACT);
    json_decref(header);
    void *piece = ddl_mem_alloc(PIECE);
    ddl_status status = text && piece
                            ? ddl_file_writer_begin(&out->writer, path, err)
                            : ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory for its header", path);
    if (!status)
        status = write_header(out, text, err);
    for (size_t i = 0; i < content->n && !status; i++)
        status = write_tensor(out, content->tensors[i], i, piece, content->fill, content->user, err);
    if (!status)
        status = ddl_file_writer_finish(&out->writer, err);
    if (status)
        ddl_file_writer_discard(&out->writer);
    ddl_mem_free(piece);
    free(text);
    return status;
}

ddl_status ddl_safetensors_write_with_metadata(const char *path,
                                               const struct ddl_safetensors_content *content,
                                               struct ddl_error *err)
{
    struct ddl_safetensors_output out;
    ddl_status status = ddl_safetensors_prepare(&out, path, content, err);
    return status ? status : ddl_file_writer_publish(&out.writer, err);
}

ddl_status ddl_safetensors_write(const char *path, const struct ddl_tensor *tensors, size_t n,
                                 ddl_tensor_fill_fn *fill, void *user, struct ddl_error *err)
{
    const struct ddl_safetensors_content content = { .tensors = tensors, .n = n, .fill = fill, .user = user };
    return ddl_safetensors_write_with_metadata(path, &content, err);
}
