/* Safetensors files: 8 bytes of header length, a JSON header, then the bytes of all tensors without a gap. */
#ifndef DDL_TENSOR_SAFETENSORS_H
#define DDL_TENSOR_SAFETENSORS_H

#include "tensor/tensor.h"

typedef struct ddl_safetensors ddl_safetensors;

/* Maps one file and checks its header whole: no offset, shape, dtype or name is taken on trust. */
ddl_status ddl_safetensors_open(ddl_safetensors **out, const char *path, struct ddl_error *err);
/* A folder's model.safetensors, or else the files of its model.safetensors.index.json, as one set of tensors.
 */
ddl_status ddl_safetensors_open_folder(ddl_safetensors **out, const char *folder, struct ddl_error *err);
void ddl_safetensors_close(ddl_safetensors *st); /* NULL is allowed; ends what was lent */
/* True if the folder holds one of the two. */
bool ddl_safetensors_in_folder(const char *folder);

/* Tensors in the order of their bytes, file by file; lent. */
size_t ddl_safetensors_count(const ddl_safetensors *st);
const struct ddl_tensor *ddl_safetensors_at(const ddl_safetensors *st, size_t i);
/* NULL if there is none of that name. */
const struct ddl_tensor *ddl_safetensors_find(const ddl_safetensors *st, const char *name);
/* What the files' __metadata__ has under `key` (of several files the first that has it); NULL if nothing.
 * Lent. */
const char *ddl_safetensors_note(const ddl_safetensors *st, const char *key);
/* Numbers [start, start + n) of a tensor have been read: their pages need not stay in memory. Reading them
 * again is allowed, and reads the file again. */
void ddl_safetensors_let_go(const ddl_safetensors *st, const struct ddl_tensor *tensor, size_t start,
                            size_t n);
/* The path of the file that holds the tensor, for error sentences; lent. */
const char *ddl_safetensors_path(const ddl_safetensors *st, const struct ddl_tensor *tensor);

/* Puts bytes [offset, offset + bytes) of tensor number i into `to`; offset is a multiple of 64. */
typedef ddl_status ddl_tensor_fill_fn(void *user, size_t i, size_t offset, size_t bytes, void *to,
                                      struct ddl_error *err);
/* Writes a file that appears whole or not at all. Of each tensor name, dtype and shape are used; the bytes
 * come from `fill`, a bounded piece at a time, in order. Tensors stand in the given order, the data starts at
 * a multiple of 8. */
ddl_status ddl_safetensors_write(const char *path, const struct ddl_tensor *tensors, size_t n,
                                 ddl_tensor_fill_fn *fill, void *user, struct ddl_error *err);

/* The same with entries of __metadata__ beside its "format": "pt". */
struct ddl_safetensors_note {
    const char *key, *value;
};
ddl_status ddl_safetensors_write_noted(const char *path, const struct ddl_safetensors_note *notes,
                                       size_t n_notes, const struct ddl_tensor *tensors, size_t n,
                                       ddl_tensor_fill_fn *fill, void *user, struct ddl_error *err);

#endif
