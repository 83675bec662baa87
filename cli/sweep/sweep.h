/* What the files of ddl sweep share. */
#ifndef DDL_CLI_SWEEP_H
#define DDL_CLI_SWEEP_H

#include "ddl/sweep.h"
#include "cli/output/terminal.h"

#include <stdbool.h>

/* Progress of a sweep on standard error. */
struct sweep_display {
    struct progress_block block;
    bool quiet;
};
struct sweep_display sweep_display_on_stderr(bool quiet);
struct ddl_sweep_callbacks sweep_display_callbacks(struct sweep_display *display);
/* Erases what is redrawn. */
void sweep_display_end(struct sweep_display *display);

/* "lr 0.002 chosen by val_loss: 0.001 3.2, 0.002 3.1, ..." */
void print_choice(FILE *out, const struct ddl_sweep_setting *setting);

/* On standard output: the states of the runs; what they will need. */
void print_states(const struct ddl_sweep *sweep);
void print_forecast(const struct ddl_sweep *sweep, const struct ddl_sweep_forecast *forecast, size_t jobs);
void print_forecast_json(const struct ddl_sweep *sweep, const struct ddl_sweep_forecast *forecast,
                         size_t jobs);

#endif
