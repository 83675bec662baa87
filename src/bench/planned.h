/* A backend that computes nothing and counts what its ops would read, write and compute. */
#ifndef DDL_BENCH_PLANNED_H
#define DDL_BENCH_PLANNED_H

#include "bench/bench.h"

struct bench_planned;
/* NULL: out of memory. `real` is borrowed. Memory of the backend is address space alone; downloads give
 * zeros. */
struct bench_planned *bench_planned_create(ddl_backend *real, const struct ddl_bench_device *device);
void bench_planned_free(struct bench_planned *planned); /* NULL is allowed */
ddl_backend *bench_planned_backend(struct bench_planned *planned);
void bench_planned_reset(struct bench_planned *planned);
/* Adds the ops since the last reset to the report's shares; returns their predicted seconds together. */
double bench_planned_report(const struct bench_planned *planned, struct ddl_bench_report *report);

#endif
