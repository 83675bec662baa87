/* Named sizes of models, and lists of names. */
#ifndef DDL_MODEL_CONFIG_SIZE_H
#define DDL_MODEL_CONFIG_SIZE_H

#include <stddef.h>

/* The names of a list such as ddl_config_size_list with commas between them; returns the bytes written. */
size_t ddl_config_list_names(const char *(*list)(size_t, const char **), char *out, size_t size);

#endif
