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

/* What tells shards from others without reading all of them. */
struct ddl_data_identity {
    uint64_t tokens; /* 0: unknown, or no shards */
    uint32_t sample; /* CRC-32C of tokens that are counted at evenly spaced places */
};
struct ddl_data_identity ddl_train_data_identity(const ddl_shards *shards); /* NULL: no shards */

#endif
