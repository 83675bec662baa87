/* The tensors of a model folder under the names of docs/formats.md, also where its writer used others. */
#ifndef DDL_MODEL_TENSOR_NAMES_H
#define DDL_MODEL_TENSOR_NAMES_H

#include "tensor/safetensors.h"

/* Opens a folder's tensors (ddl_safetensors_open_folder) and renames those of wrapped models and of folders
 * that the release wrote before February 2026. */
ddl_status ddl_model_tensors_open(ddl_safetensors **out, const char *folder, struct ddl_error *err);

#endif
