/* Settings that the tensors of a folder show. */
#ifndef DDL_MODEL_CONFIG_RELEASE_H
#define DDL_MODEL_CONFIG_RELEASE_H

#include "ddl/config.h"
#include "tensor/safetensors.h"

#include <jansson.h>

/* Fills what config.json (`root`) lacks with what the tensors' names and shapes say. */
ddl_status ddl_config_from_tensors(struct ddl_config *config, const json_t *root, const ddl_safetensors *st,
                                   struct ddl_error *err);

#endif
