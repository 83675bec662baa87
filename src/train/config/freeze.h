/* Which parameters a run trains: the keys train_only and freeze. */
#ifndef DDL_TRAIN_FREEZE_H
#define DDL_TRAIN_FREEZE_H

#include "ddl/train.h"

#include <stdbool.h>

/* DDL_E_USAGE, with the key's name, for a pattern that no parameter matches, and if no parameter is left to
 * train. The model's configuration is checked. */
ddl_status ddl_freeze_check(const struct ddl_train_config *config, struct ddl_error *err);
/* Whether the run leaves the parameter of this name untouched. */
bool ddl_freeze_has(const struct ddl_train_config *config, const char *name);

#endif
