/* Safetensors files: 8 bytes of header length, a JSON header, then the bytes of all tensors without gaps. */
#ifndef DDL_TENSOR_SAFETENSORS_H
#define DDL_TENSOR_SAFETENSORS_H

#include "base/file.h"
#include "tensor/tensor.h"

typedef struct ddl_safetensors ddl_safetensors;

/* Maps one file and validates its entire header: offsets, shapes, dtypes and names. */
ddl_status ddl_safetensors_open(ddl_safetensors **out, const char *path, struct ddl_error *err);
/* Opens a folder's model.safetensors, or else the files in its model.safetensors.index.json, as one set of
 * tensors. */
ddl_status ddl_safetensors_open_folder(ddl_safetensors **out, const char *folder, struct ddl_error *err);
void ddl_safetensors_close(ddl_safetensors *st); /* NULL is allowed; invalidates all borrowed pointers */
/* True if the folder has one of the two files. */
bool ddl_safetensors_in_folder(const char *folder);

/* Tensors in the order of their offsets, file by file; borrowed. */
size_t ddl_safetensors_count(const ddl_safetensors *st);
const struct ddl_tensor *ddl_safetensors_at(const ddl_safetensors *st, size_t i);
/* Returns NULL if there is no tensor of that name. */
const struct ddl_tensor *ddl_safetensors_find(const ddl_safetensors *st, const char *name);
/* Returns the string value of `key` in __metadata__ (if several files have it, the first file's), or NULL.
 * Borrowed. */
const char *ddl_safetensors_metadata(const ddl_safetensors *st, const char *key);
/* Releases the pages of elements [start, start + n) of a tensor after they have been read. Reading them again
 * is allowed and reads the file again. */
void ddl_safetensors_release(const ddl_safetensors *st, const struct ddl_tensor *tensor, size_t start,
                             size_t n);
/* Returns the path of the file that contains the tensor, for error messages; borrowed. */
const char *ddl_safetensors_path(const ddl_safetensors *st, const struct ddl_tensor *tensor);

/* Copies bytes [offset, offset + bytes) of tensor i to `to`; offset is a multiple of 64. */
typedef ddl_status ddl_tensor_fill_fn(void *user, size_t i, size_t offset, size_t bytes, void *to,
                                      struct ddl_error *err);
/* Writes a file atomically. Uses name, dtype and shape of each tensor; `fill` provides the bytes, in order,
 * in blocks of bounded size. Tensors are stored in the given order; the data starts at a multiple of 8. */
ddl_status ddl_safetensors_write(const char *path, const struct ddl_tensor *tensors, size_t n,
                                 ddl_tensor_fill_fn *fill, void *user, struct ddl_error *err);

/* Additional entries of __metadata__, beside "format": "pt". */
struct ddl_safetensors_metadata {
    const char *key, *value;
};
ddl_status ddl_safetensors_write_with_metadata(const char *path,
                                               const struct ddl_safetensors_metadata *entries,
                                               size_t n_entries, const struct ddl_tensor *tensors, size_t n,
                                               ddl_tensor_fill_fn *fill, void *user, struct ddl_error *err);

/* A file that is complete under its temporary name: ddl_file_writer_publish or _discard must follow. */
struct ddl_safetensors_output {
    struct ddl_file_writer writer;
    uint64_t size;   /* of the file    */
    uint32_t crc32c; /* of its content */
};
/* The same as ddl_safetensors_write_with_metadata, without replacing the file. After an error *out needs no
 * discard. */
ddl_status ddl_safetensors_prepare(struct ddl_safetensors_output *out, const char *path,
                                   const struct ddl_safetensors_metadata *entries, size_t n_entries,
                                   const struct ddl_tensor *tensors, size_t n, ddl_tensor_fill_fn *fill,
                                   void *user, struct ddl_error *err);

#endif
