/* The learning rate: docs/equations.md, 10. */
#ifndef DDL_TRAIN_SCHEDULE_H
#define DDL_TRAIN_SCHEDULE_H

#include "ddl/train.h"

/* The names of enum ddl_schedule, ended by NULL. */
extern const char *const ddl_schedule_names[];

/* The learning rate of step s, counted from 0, of a resolved configuration: linear warmup from lr / warmup to
 * lr over the first `warmup` steps, then the schedule of `config`. From s = steps on, its final value. */
double ddl_schedule_lr(const struct ddl_train_config *config, uint64_t s);

#endif
