/* CPython's random.Random(seed).sample(range(m), k): few-shot examples are drawn as lm-evaluation-harness
 * draws them. */
#ifndef DDL_INFER_TASKS_RANDOM_H
#define DDL_INFER_TASKS_RANDOM_H

#include "ddl/status.h"

#include <stddef.h>
#include <stdint.h>

/* Mersenne Twister MT19937. */
struct task_random {
    uint32_t state[624];
    size_t next; /* word of the state to return */
};

/* As random.Random(seed). */
void task_random_seed(struct task_random *random, uint64_t seed);
/* k different indices below m, k <= m <= UINT32_MAX, in the order drawn. DDL_E_MEMORY. */
ddl_status task_random_sample(struct task_random *random, size_t m, size_t k, size_t *out,
                              struct ddl_error *err);

#endif
