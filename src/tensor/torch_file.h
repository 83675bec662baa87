/* Files of PyTorch's torch.save: a zip file with a pickle and the bytes of each storage. Nothing is executed:
 * see pickle.h. */
#ifndef DDL_TENSOR_TORCH_FILE_H
#define DDL_TENSOR_TORCH_FILE_H

#include "base/file.h"
#include "tensor/tensor.h"

#include <jansson.h>

struct ddl_torch_file {
    struct ddl_tensor *tensors; /* n, in the order of the state dict; the names are malloc'ed */
    size_t n;
    json_t *settings; /* the numbers, booleans and strings of the dict model_args beside them, or NULL */
};

/* Reads the state dict of a mapped file: the dict that was saved, or the one under the key model, state_dict
 * or model_state_dict of a training script's checkpoint. The tensors point into the map; several may share
 * bytes. Other values of these dicts are skipped. DDL_E_FORMAT unless each tensor is contiguous and inside of
 * its storage; DDL_E_UNSUPPORTED for objects that are not tensors, and for the format before PyTorch 1.6.
 * `path` is for messages. Close after a success. */
ddl_status ddl_torch_file_read(struct ddl_torch_file *out, const struct ddl_file_map *map, const char *path,
                               struct ddl_error *err);
/* Frees the arrays and the settings, but not the names. */
void ddl_torch_file_close(struct ddl_torch_file *file);

/* Compares the bytes of all entries with their CRC-32, where there is one. DDL_E_FORMAT with the entry's
 * name. */
ddl_status ddl_torch_file_verify(const struct ddl_file_map *map, const char *path, struct ddl_error *err);

#endif
