/* What a finished run records in its final model. */
#ifndef DDL_TRAIN_RUN_MODEL_H
#define DDL_TRAIN_RUN_MODEL_H

/* Key in the __metadata__ of the final model's tensors: its step. */
#define DDL_STEP_KEY "ddl_step"

#include "ddl/status.h"

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* The final model of a run folder. */
struct ddl_run_final {
    bool exists;   /* with a step that is known and not superseded by a run that was resumed before it */
    uint64_t step; /* its step                                                                         */
    time_t time;   /* of the last change of its tensors                                                */
};

/* DDL_E_MEMORY, or an error of the folder; a model that cannot be read does not exist. */
ddl_status ddl_run_read_final(struct ddl_run_final *out, const char *folder, struct ddl_error *err);

#endif
