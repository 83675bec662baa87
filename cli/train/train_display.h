/* What `ddl train` shows while it runs: a header, a line of progress, text samples, messages. */
#ifndef DDL_CLI_TRAIN_DISPLAY_H
#define DDL_CLI_TRAIN_DISPLAY_H

#include "ddl/train.h"
#include "cli/output/terminal.h"

#include <stdio.h>

struct train_display {
    char out[1024]; /* the run's folder, from the start of the run */
    struct progress_line line;
    FILE *samples; /* where text samples are printed; borrowed */
    bool quiet;
    bool timed;           /* the estimated time was printed                   */
    uint64_t first_step;  /* steps that were complete before                  */
    double train_seconds; /* of the run before its first step in this process */
};

/* Shows everything but text samples on standard error. */
struct train_display train_display_on_stderr(bool quiet, FILE *samples);
/* Callbacks of ddl_train_run that show it; `display` is borrowed. Only errors are left with `quiet`. */
struct ddl_train_callbacks train_display_callbacks(struct train_display *display);

/* False before the first step, and after one whose batch counted no target. */
bool train_has_loss(const struct ddl_train_progress *p);
/* The header: model, backend, data, memory, folder. */
void print_header(FILE *out, bool color, const struct ddl_train_summary *summary);
/* The estimated time of a dry run that returned `status`. */
void print_estimate(FILE *out, bool color, const struct ddl_train_preview *preview, ddl_status status);

#endif
