/* diverged.json in a run's folder: the last process that trained there ended because of a non-finite value.
 * This distinguishes a run that diverged, and would do so again, from one whose process failed or was killed.
 * ddl_run_diverged (ddl/run.h) reads it. */
#ifndef DDL_TRAIN_DIVERGENCE_H
#define DDL_TRAIN_DIVERGENCE_H

#include "ddl/status.h"

#include <stdint.h>

/* Replaces the file in `folder`: `step` is the last one that the run has done, `message` the reason. */
ddl_status ddl_divergence_write(const char *folder, uint64_t step, const char *message,
                                struct ddl_error *err);
/* Removes it; one that does not exist is no error. */
ddl_status ddl_divergence_remove(const char *folder, struct ddl_error *err);

#endif
