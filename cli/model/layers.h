/* Layers of a model in an option's value. */
#ifndef DDL_CLI_LAYERS_H
#define DDL_CLI_LAYERS_H

#include "ddl/status.h"

#include <stdbool.h>
#include <stddef.h>

/* Sets layer[l] (n_layers) for the layers of `text`: "3" or "3-7"; DDL_E_USAGE for others and for a layer
 * that does not exist. */
ddl_status select_layers(const char *text, size_t n_layers, bool *layer, struct ddl_error *err);
/* The same for a list with commas, "0,3-5", or "all". */
ddl_status select_layer_list(const char *list, size_t n_layers, bool *layer, struct ddl_error *err);
/* Writes the chosen layers as such a list; truncates to size. */
void describe_layers(const bool *layer, size_t n_layers, char *out, size_t size);

#endif
