/* Moves the shards of a build into place. It can be killed at any moment: the shards of an earlier build are
 * removed first, and the new ones are complete in DDL_BUILD_READY before the first of them is moved. The
 * folder of the build is locked meanwhile: a process that opens it finds all shards or none. */
#ifndef DDL_DATA_PUBLISH_H
#define DDL_DATA_PUBLISH_H

#include "data/build_folder.h"

/* DDL_E_USAGE if the output folder has shards, unless `overwrite`, or .bin files that no build wrote. */
ddl_status ddl_publish_check(const char *out, bool overwrite, struct ddl_error *err);
/* Removes the shards of an earlier build, after the check, and makes those in DDL_BUILD_SHARDS ready. */
ddl_status ddl_publish_begin(const struct ddl_build_folder *f, bool overwrite, struct ddl_error *err);
/* True if shards are ready. */
bool ddl_publish_pending(const struct ddl_build_folder *f);
/* Moves them into place, their record last, and clears the folder of the build. Can be repeated. */
ddl_status ddl_publish_finish(const struct ddl_build_folder *f, struct ddl_error *err);

#endif
