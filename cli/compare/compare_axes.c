/* The axes of charts of ddl compare. */
#include "cli/compare/compare.h"

#include <math.h>

const char *const axis_names[] = { "steps", "tokens", "flops", "seconds", "train_seconds", NULL };

const char *const axis_labels[] = { "steps", "tokens", "FLOPs", "seconds of wall time",
                                    "seconds of training time" };

double axis_value(const struct ddl_run_point *point, int axis)
{
    const double of[] = { [AXIS_STEPS] = (double)point->step,
                          [AXIS_TOKENS] = point->tokens,
                          [AXIS_FLOPS] = point->flops,
                          [AXIS_SECONDS] = point->seconds,
                          [AXIS_TRAIN_SECONDS] = point->train_seconds };
    return of[axis];
}

double drawn_loss(const struct ddl_run_point *point, bool val, double highest)
{
    double loss = val ? point->val_loss : point->loss;
    return highest > 0 && loss > highest ? NAN : loss;
}
