/* The folder of a run whose recipe names none. */
#ifndef DDL_TRAIN_RUN_FOLDER_H
#define DDL_TRAIN_RUN_FOLDER_H

#include "ddl/train.h"

/* Creates runs/MODEL-SIZE-N with the first free number N and stores its path in config->out. Runs that start
 * at the same time get different folders. A model or size without a name is "custom". */
ddl_status ddl_run_folder_create(struct ddl_train_config *config, struct ddl_error *err);

#endif
