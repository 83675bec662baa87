/* The shards of a run: which files its train_data and val_data mean. */
#ifndef DDL_TRAIN_RUN_DATA_H
#define DDL_TRAIN_RUN_DATA_H

#include "ddl/train.h"

/* Opens train_data with DDL_SHARDS_TRAIN. */
ddl_status ddl_train_open_train(const struct ddl_train_config *config, ddl_shards **out,
                                struct ddl_error *err);
/* Opens val_data; with "auto", the validation shards that `train` has left out. *out is NULL if the run has
 * no validation data. */
ddl_status ddl_train_open_val(const struct ddl_train_config *config, const ddl_shards *train,
                              ddl_shards **out, struct ddl_error *err);

#endif
