/* metrics.jsonl: one JSON object a logged step, in order, each step once; and before the line of its step, if
 * there is one, a telemetry record, an object with the member "kind". */
#ifndef DDL_TRAIN_METRICS_H
#define DDL_TRAIN_METRICS_H

#include "ddl/train.h"
#include "train/log/telemetry.h"

#include <stdio.h>

/* The process that writes the lines. */
struct ddl_metrics_start {
    uint64_t step; /* steps that the run had completed when it began */
    char time[32]; /* UTC, "2026-11-22T20:54:09Z"                    */
    char processor[128], backend[128];
};

struct ddl_metrics {
    FILE *stream;
    char path[1100];
    bool starts; /* the next line has the key "start" */
    struct ddl_metrics_start start;
};

/* What ddl_metrics_open has kept of a file. */
struct ddl_metrics_kept {
    uint64_t logged;      /* step of the last line, 0: none                                            */
    size_t removed;       /* lines that were removed because they are not JSON objects with a step     */
    size_t first_removed; /* the number of the first of them, from 1                                   */
};

/* Opens for appending. Of what an earlier process wrote, the lines of steps before `end` and the records of
 * steps before `records_end`, which is end or end + 1, are kept (0: none). Lines that are not JSON objects
 * with a step are removed, and a last line that is not whole. `kept` may be NULL. */
ddl_status ddl_metrics_open(struct ddl_metrics *metrics, const char *path, uint64_t end, uint64_t records_end,
                            struct ddl_metrics_kept *kept, struct ddl_error *err);
/* The next line gets the key "start": the process, which begins after `step` steps with this backend, by its
 * description. */
void ddl_metrics_begin(struct ddl_metrics *metrics, uint64_t step, const char *backend);
/* Writes and flushes one line; what depends on the run alone comes first, then time and memory. */
ddl_status ddl_metrics_write(struct ddl_metrics *metrics, const struct ddl_train_progress *p,
                             struct ddl_error *err);
/* Writes and flushes the telemetry record of a step, `tokens` of the run so far. */
ddl_status ddl_metrics_write_telemetry(struct ddl_metrics *metrics, uint64_t step, uint64_t tokens,
                                       const struct ddl_telemetry *telemetry, struct ddl_error *err);
/* Writes and flushes a line of samples.jsonl, which is opened as metrics.jsonl: the text of `size` bytes
 * after the prompt. */
ddl_status ddl_metrics_write_sample(struct ddl_metrics *samples, uint64_t step, const char *prompt,
                                    const char *text, size_t size, struct ddl_error *err);
/* fsync; no effect on zeroed or closed metrics. */
ddl_status ddl_metrics_sync(const struct ddl_metrics *metrics, struct ddl_error *err);
/* The losses, sums and times of the last whole line of a log; all 0 if it is not a line of a step. */
ddl_status ddl_metrics_last(const char *path, struct ddl_train_progress *last, struct ddl_error *err);
/* The step of the last whole line or record of a log; 0 if there is none. */
ddl_status ddl_metrics_last_step(const char *path, uint64_t *step, struct ddl_error *err);
void ddl_metrics_close(struct ddl_metrics *metrics); /* zeroed or closed is allowed */

#endif
