/* What a finished run records in its final model. */
#ifndef DDL_TRAIN_RUN_MODEL_H
#define DDL_TRAIN_RUN_MODEL_H

/* Key in the __metadata__ of the final model's tensors: its step. */
#define DDL_STEP_KEY "ddl_step"

#endif
