/* Sets of tensors in files. Safetensors files: 8 bytes of header length, a JSON header, then the bytes of all
 * tensors without gaps. A model folder may have files of torch.save (torch_file.h) instead. */
#ifndef DDL_TENSOR_SAFETENSORS_H
#define DDL_TENSOR_SAFETENSORS_H

#include "base/file.h"
#include "tensor/tensor.h"

#include <jansson.h>

typedef struct ddl_safetensors ddl_safetensors;

/* Maps one file and validates its entire header: offsets, shapes, dtypes and names. */
ddl_status ddl_safetensors_open(ddl_safetensors **out, const char *path, struct ddl_error *err);
/* Opens the tensors of a folder as one set: the first that exists of model.safetensors,
 * model.safetensors.index.json with the files in it, pytorch_model.bin, pytorch_model.bin.index.json with the
 * files in it, and ckpt.pt. */
ddl_status ddl_safetensors_open_folder(ddl_safetensors **out, const char *folder, struct ddl_error *err);
void ddl_safetensors_close(ddl_safetensors *st); /* NULL is allowed; invalidates all borrowed pointers */
/* True if the folder has one of these files. */
bool ddl_safetensors_in_folder(const char *folder);

/* Changes a tensor's name in place to one that is not longer; may change the shape, not the count. */
typedef void ddl_tensor_rename_fn(struct ddl_tensor *tensor, char *name);
/* Renames all tensors. DDL_E_FORMAT if two then have the same name. */
ddl_status ddl_safetensors_rename(ddl_safetensors *st, ddl_tensor_rename_fn *rename, struct ddl_error *err);
/* Compares the bytes of files of torch.save with the checksums in them: reads them once. DDL_E_FORMAT with
 * the file's and the entry's name. */
ddl_status ddl_safetensors_verify(const ddl_safetensors *st, struct ddl_error *err);
/* The same for the files that ddl_safetensors_open_folder opens; other folders are not read. */
ddl_status ddl_safetensors_verify_folder(const char *folder, struct ddl_error *err);

/* Tensors in the order of their offsets (of torch.save: of the state dict), file by file; borrowed. */
size_t ddl_safetensors_count(const ddl_safetensors *st);
const struct ddl_tensor *ddl_safetensors_at(const ddl_safetensors *st, size_t i);
/* Returns NULL if there is no tensor of that name. */
const struct ddl_tensor *ddl_safetensors_find(const ddl_safetensors *st, const char *name);
/* Returns the string value of `key` in __metadata__ (if several files have it, the first file's), or NULL.
 * Borrowed. */
const char *ddl_safetensors_metadata(const ddl_safetensors *st, const char *key);
/* Returns the dict model_args of a training script's checkpoint, as far as JSON can hold it, or NULL.
 * Borrowed. */
const json_t *ddl_safetensors_settings(const ddl_safetensors *st);
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
/* What a file is to contain. */
struct ddl_safetensors_content {
    const struct ddl_safetensors_metadata *entries; /* (n_entries) */
    size_t n_entries;
    const struct ddl_tensor *tensors; /* (n) */
    size_t n;
    ddl_tensor_fill_fn *fill; /* may be NULL without tensors */
    void *user;               /* for fill */
};
ddl_status ddl_safetensors_write_with_metadata(const char *path,
                                               const struct ddl_safetensors_content *content,
                                               struct ddl_error *err);

/* A file that is complete under its temporary name: ddl_file_writer_publish or _discard must follow. */
struct ddl_safetensors_output {
    struct ddl_file_writer writer;
    uint64_t size;   /* of the file    */
    uint32_t crc32c; /* of its content */
};
/* The same as ddl_safetensors_write_with_metadata, without replacing the file. After an error *out needs no
 * discard. */
ddl_status ddl_safetensors_prepare(struct ddl_safetensors_output *out, const char *path,
                                   const struct ddl_safetensors_content *content, struct ddl_error *err);

#endif
