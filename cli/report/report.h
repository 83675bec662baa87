/* What the files of ddl report share: a run folder as it is at the moment. */
#ifndef DDL_CLI_REPORT_H
#define DDL_CLI_REPORT_H

#include "ddl/compare.h"
#include "ddl/json.h"
#include "ddl/train.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Lines of a file. */
struct report_lines {
    char **text; /* (n) JSON objects, malloc'ed */
    size_t n;
    size_t total; /* in the file; the others are left out */
};

struct report {
    const char *folder;
    const char *status; /* "running", "finished" or "stopped" */
    struct ddl_run_log log;
    struct report_lines steps, telemetry; /* of metrics.jsonl                           */
    struct report_lines samples;          /* of samples.jsonl                           */
    struct report_lines dumps;            /* the trouble.json files of the run, by step */
    struct ddl_checkpoint *checkpoints;   /* (n_checkpoints) */
    size_t n_checkpoints;
    uint64_t n_skipped; /* steps whose update was skipped */
};

/* Reads a run folder, which may be that of a run that is training. Free after an error too. */
ddl_status report_read(struct report *r, const char *folder, struct ddl_error *err);
void report_free(struct report *r);

/* Step of the last logged line. */
uint64_t report_step(const struct report *r);
/* The logged point of lowest validation loss; NULL if there is none. */
const struct ddl_run_point *report_best(const struct report *r);

/* Writes the results as an object. */
void write_report_json(struct ddl_json *json, const char *key, const struct report *r);

#endif
