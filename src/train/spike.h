/* Steps whose gradient is far out of the ordinary are skipped: a z-score of its norm over the last steps. */
#ifndef DDL_RUN_SPIKE_H
#define DDL_RUN_SPIKE_H

#include "ddl/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DDL_SPIKE_WINDOW = 1024 }; /* the longest */

struct ddl_spike_config {
    double z;        /* a norm more than z deviations above the mean is a spike; 0: nothing is skipped */
    size_t window;   /* norms that are looked back on, 2 .. DDL_SPIKE_WINDOW; before that many nothing is
                        skipped */
    size_t max_skip; /* after so many skips in a row the level has shifted, and is taken */
};
/* What a checkpoint keeps of it. */
struct ddl_spike_state {
    double norms[DDL_SPIKE_WINDOW]; /* of the last steps that were taken, oldest first */
    size_t n;
    size_t in_a_row;  /* skipped since the last one taken */
    uint64_t skipped; /* in all                           */
};
enum ddl_spike_verdict { DDL_SPIKE_TAKE, DDL_SPIKE_SKIP, DDL_SPIKE_SHIFT };
struct ddl_spike_figures {
    double mean, deviation, z; /* 0 before the window is full */
};

/* Takes note of a finite norm and says what becomes of its step. z = (norm - mean) / deviation over the
 * window, the deviation that of the population and never less than a hundredth of the mean, so that the
 * jitter of a steady norm is no spike. A skipped norm does not enter the window, or a burst would widen it.
 * Where max_skip steps in a row were skipped and this is another spike, the level has shifted: the step is
 * taken and the window begins anew from it (DDL_SPIKE_SHIFT). `figures` may be NULL. */
int ddl_spike_judge(const struct ddl_spike_config *config, struct ddl_spike_state *state, double norm,
                    struct ddl_spike_figures *figures);

#endif
