/* What makes damage show: the size and CRC-32 of each file of a checkpoint, in its state.json, and the CRC-32
 * of state.json itself, in its last line. A changed byte is always found, whatever file it is in. */
#ifndef DDL_RUN_CHECKPOINT_SUMS_H
#define DDL_RUN_CHECKPOINT_SUMS_H

#include "ddl/status.h"

#include <jansson.h>
#include <stddef.h>

/* { name: { size, crc32 } } of the files of a checkpoint that stand in `folder`; a new reference. */
ddl_status ddl_sums_take(const char *folder, json_t **sums, struct ddl_error *err);
/* Holds the files in `folder` to such an object. */
ddl_status ddl_sums_check(const char *folder, const json_t *sums, struct ddl_error *err);

/* The object as text, closed by a line with the checksum of all bytes before it; malloc'ed. NULL without
 * memory.
 */
char *ddl_sums_seal(const json_t *object);
/* Holds a text to its last line. `path` names it in the sentence. */
ddl_status ddl_sums_check_seal(const char *path, const char *text, size_t size, struct ddl_error *err);

#endif
