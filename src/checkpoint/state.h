/* state.json of a checkpoint. */
#ifndef DDL_RUN_CHECKPOINT_STATE_H
#define DDL_RUN_CHECKPOINT_STATE_H

#include "checkpoint/checkpoint.h"

ddl_status ddl_state_write(const char *folder, const struct ddl_train_config *config,
                           const struct ddl_run_state *state, struct ddl_error *err);
/* Reads it and looks at no other file. */
ddl_status ddl_state_read(const char *folder, struct ddl_run_state *state, struct ddl_error *err);

#endif
