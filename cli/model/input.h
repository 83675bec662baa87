/* Whole files as input. */
#ifndef DDL_CLI_INPUT_H
#define DDL_CLI_INPUT_H

#include "ddl/status.h"

#include <stddef.h>

/* Reads a file, or standard input for NULL and "-", into *out (*size bytes, then a NUL; free with free).
 * DDL_E_USAGE if it is longer than `limit` bytes. *out is NULL after an error. */
ddl_status read_input(const char *path, size_t limit, char **out, size_t *size, struct ddl_error *err);
/* The name of such an input for messages. */
const char *input_name(const char *path);

#endif
