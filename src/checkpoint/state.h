/* state.json of a checkpoint: version, what the caller's object holds, files with their checksums, and the
 * checksum of the text itself. */
#ifndef DDL_CHECKPOINT_STATE_H
#define DDL_CHECKPOINT_STATE_H

#include "ddl/status.h"

#include <jansson.h>

/* Writes it after all other files of the folder. */
ddl_status ddl_state_write(const char *folder, const json_t *state, struct ddl_error *err);

/* { name: { size, crc32 } } of the files of the checkpoint in `folder`; a new reference. */
ddl_status ddl_state_take_sums(const char *folder, json_t **sums, struct ddl_error *err);

#endif
