/* The machine that the process runs on. */
#ifndef DDL_BASE_MACHINE_H
#define DDL_BASE_MACHINE_H

#include <stddef.h>

/* Writes the processor's name to out, truncated to size; "unknown" where the system does not say. */
void ddl_machine_processor(char *out, size_t size);

#endif
