/* What the files of a run share about its configuration. */
#ifndef DDL_RUN_TRAIN_CONFIG_H
#define DDL_RUN_TRAIN_CONFIG_H

#include "ddl/train.h"

/* A copy in which what 0 leaves open is filled in: seq. */
struct ddl_train_config ddl_train_resolved(const struct ddl_train_config *config);

/* What the run's workspace is to hold; of a resolved configuration. */
struct ddl_workspace_options ddl_train_room(const struct ddl_train_config *config);

/* The recipe that gives this configuration, as `path`. Keys that the model's names imply are left out. */
ddl_status ddl_train_save_recipe(const struct ddl_train_config *config, const char *path,
                                 struct ddl_error *err);

#endif
