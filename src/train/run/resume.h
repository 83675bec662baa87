/* Whether a configuration continues a run, and from which checkpoint. */
#ifndef DDL_TRAIN_RESUME_H
#define DDL_TRAIN_RESUME_H

#include "train/run/run_state.h"

/* ddl_run_read_state, after all files have been compared with their checksums (DDL_E_FORMAT) and the
 * configuration with the checkpoint's: DDL_E_USAGE if the model or a key that must stay the same differs;
 * other differences are reported to `note`. Where *config has DDL_OPTION_AUTO it gets the checkpoint's value.
 */
ddl_status ddl_run_open(const char *path, struct ddl_train_config *config, struct ddl_run_state *state,
                        ddl_warn_fn *note, void *user, struct ddl_error *err);
/* DDL_E_USAGE unless the final model of config->out is that of the configuration. */
ddl_status ddl_run_compare_final(const struct ddl_train_config *config, struct ddl_error *err);
/* ddl_run_open of the newest checkpoint that is not corrupted. `path` (size bytes) gets its folder. */
ddl_status ddl_run_open_newest(struct ddl_train_config *config, struct ddl_run_state *state, char *path,
                               size_t size, ddl_warn_fn *note, void *user, struct ddl_error *err);

#endif
