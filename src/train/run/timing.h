/* Time of a run: what it has taken, and an estimate of what is left. */
#ifndef DDL_TRAIN_TIMING_H
#define DDL_TRAIN_TIMING_H

#include <stdbool.h>
#include <stdint.h>

/* Parts of a run beside its steps. */
enum ddl_run_part {
    DDL_PART_VALIDATION,
    DDL_PART_TASKS,
    DDL_PART_CHECKPOINT,
    DDL_PART_SAMPLE,
    DDL_RUN_PARTS
};

struct ddl_timing {
    double start; /* of the clock: now - start is the wall time of the run, earlier processes included */
    double step;  /* seconds per step, mean of the last ones; 0 before the first */
    uint64_t n;   /* steps of this process */
    double saved; /* of the clock: when the last checkpoint was complete, or the steps began */
    double save_seconds; /* that writing it took; 0 before the first checkpoint */
    struct {
        uint64_t every; /* steps between two; 0: never                     */
        double guess;   /* duration in steps, used before the first        */
        uint64_t n;     /* of this process                                 */
        double seconds; /* of all n                                        */
    } part[DDL_RUN_PARTS];
};

/* Whether a part that follows every `every` steps (0: none), and the last, follows this step. */
bool ddl_timing_due(uint64_t step, uint64_t every, uint64_t last);

/* Starts the clock. */
void ddl_timing_start(struct ddl_timing *timing);
/* Adds the seconds that the run took in earlier processes. */
void ddl_timing_add_earlier(struct ddl_timing *timing, double seconds);
/* Seconds since the start, earlier ones included. */
double ddl_timing_wall(const struct ddl_timing *timing);

/* Records the duration of a step, of a part. */
void ddl_timing_add_step(struct ddl_timing *timing, double seconds);
void ddl_timing_add_part(struct ddl_timing *timing, enum ddl_run_part part, double seconds);

/* Records a checkpoint that was written from one time of the clock to the other. Before the first step: both
 * that time. */
void ddl_timing_set_saved(struct ddl_timing *timing, double start, double end);
/* Whether a checkpoint is due at the time `now` of the clock, `interval` seconds after the last one (0:
 * never). The interval is longer where writing would take more than a fiftieth of the time. */
bool ddl_timing_save_due(const struct ddl_timing *timing, double interval, double now);

/* Estimated seconds of steps step + 1 to `steps` with the parts that follow them, from the durations recorded
 * so far; 0 before the first step. */
double ddl_timing_left(const struct ddl_timing *timing, uint64_t step, uint64_t steps);

#endif
