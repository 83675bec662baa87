/* Whether a folder has all shards of its build. */
#ifndef DDL_DATA_SHARD_LIST_H
#define DDL_DATA_SHARD_LIST_H

#include "ddl/file.h"
#include "ddl/status.h"

/* DDL_E_FORMAT if the record of the folder lists a shard that is not among the names. */
ddl_status ddl_shards_check_listed(const char *folder, const struct ddl_file_names *names,
                                   struct ddl_error *err);

#endif
