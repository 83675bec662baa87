/* Checksums of a checkpoint: the size and CRC-32 of each file, in state.json, and the CRC-32 of state.json
 * itself, in its last line. A changed byte in any file is always detected. */
#ifndef DDL_CHECKPOINT_SUMS_H
#define DDL_CHECKPOINT_SUMS_H

#include "ddl/status.h"

#include <jansson.h>
#include <stddef.h>

/* { name: { size, crc32 } } of the files of the checkpoint in `folder`; a new reference. */
ddl_status ddl_sums_take(const char *folder, json_t **sums, struct ddl_error *err);
/* Compares the files in `folder` with such an object. */
ddl_status ddl_sums_check(const char *folder, const json_t *sums, struct ddl_error *err);

/* The object as text, closed by a line with the checksum of all bytes before it; malloc'ed. NULL without
 * memory.
 */
char *ddl_sums_seal(const json_t *object);
/* Compares a text with the checksum in its last line. `path` is for the error message. */
ddl_status ddl_sums_check_seal(const char *path, const char *text, size_t size, struct ddl_error *err);

#endif
