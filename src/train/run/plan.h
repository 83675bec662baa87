/* The plan of a run, with a backend that the caller goes on using. */
#ifndef DDL_TRAIN_PLAN_H
#define DDL_TRAIN_PLAN_H

#include "ddl/train.h"

/* Opens the backend of the configuration unless *backend is one. */
ddl_status ddl_train_open_backend(const struct ddl_train_config *config, ddl_backend **backend,
                                  struct ddl_error *err);
/* ddl_train_plan; the backend is opened as above, and stays open. */
ddl_status ddl_train_plan_on(const struct ddl_train_config *config, ddl_backend **backend,
                             struct ddl_train_plan *out, struct ddl_error *err);

#endif
