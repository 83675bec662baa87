/* Spike filter: a step whose gradient norm is an outlier among the last steps, by its z-score, is skipped. */
#ifndef DDL_TRAIN_SPIKE_H
#define DDL_TRAIN_SPIKE_H

#include "ddl/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DDL_SPIKE_WINDOW = 1024 }; /* the longest */

struct ddl_spike_config {
    double z; /* a norm more than z deviations above the mean is a spike; 0: nothing is skipped */
    size_t
        window; /* norms compared with, 2 .. DDL_SPIKE_WINDOW; nothing is skipped until there are so many */
    size_t max_skip; /* after so many skips in a row the level has shifted: the step is taken */
};
/* State, part of a checkpoint. */
struct ddl_spike_state {
    double norms[DDL_SPIKE_WINDOW]; /* of the last steps that were taken, oldest first */
    size_t n;
    size_t in_a_row;  /* skipped since the last one taken */
    uint64_t skipped; /* in all                           */
};
enum ddl_spike_decision { DDL_SPIKE_TAKE, DDL_SPIKE_SKIP, DDL_SPIKE_SHIFT };
struct ddl_spike_figures {
    double mean, deviation, z; /* 0 before the window is full */
};

/* Records a finite norm and decides on its step (enum ddl_spike_decision). z = (norm - mean) / deviation over
 * the window, the deviation that of the population and never less than a hundredth of the mean, so that small
 * variations of a steady norm are no spikes. A skipped norm does not enter the window: a burst would widen
 * it. Where max_skip steps in a row were skipped and this is another spike, the level has shifted: the step
 * is taken and the window starts again with it (DDL_SPIKE_SHIFT). `figures` may be NULL. */
int ddl_spike_decide(const struct ddl_spike_config *config, struct ddl_spike_state *state, double norm,
                     struct ddl_spike_figures *figures);

#endif
