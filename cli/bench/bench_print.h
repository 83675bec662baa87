/* Reports of ddl bench as tables for people. */
#ifndef DDL_CLI_BENCH_PRINT_H
#define DDL_CLI_BENCH_PRINT_H

#include "ddl/bench.h"

#include <stdio.h>

void print_bench(FILE *out, const struct ddl_bench_report *report);
/* What changed since `old`; NULL: nothing to compare with in the file `path`. */
void print_bench_changes(FILE *out, const struct ddl_bench_report *old, const struct ddl_bench_report *now,
                         const char *path);

#endif
