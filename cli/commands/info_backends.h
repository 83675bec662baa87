/* The list of ddl info --backends. */
#ifndef CLI_INFO_BACKENDS_H
#define CLI_INFO_BACKENDS_H

#include <stdbool.h>

/* Prints, as text or JSON, each backend and device with its description, or why it can't be used. CUDA's is
 * listed even where its plugin is not installed. */
void print_backends(bool as_json);

#endif
