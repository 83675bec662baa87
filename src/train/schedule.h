/* The learning rate: docs/equations.md, 10. */
#ifndef DDL_TRAIN_SCHEDULE_H
#define DDL_TRAIN_SCHEDULE_H

#include <stdint.h>

/* lr (s+1) / W for s < W = warmup; then the cosine from lr to lr_min over the steps up to S = steps. s counts
 * from 0; from S on the rate stays at lr_min. */
double ddl_schedule(double lr, double lr_min, uint64_t warmup, uint64_t steps, uint64_t s);

#endif
