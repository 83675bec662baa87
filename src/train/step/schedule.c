#include "train/step/schedule.h"

#include <math.h>

static const double pi = 3.14159265358979323846;

/* Half a cosine from lr at s = W to lr_min at s = S. */
static double cosine(const struct ddl_train_config *t, uint64_t s)
{
    double lr_min = t->lr * t->lr_min_ratio;
    if (s >= t->steps)
        return lr_min;
    double done = (double)(s - t->warmup) / (double)(t->steps - t->warmup);
    return lr_min + (t->lr - lr_min) * (1 + cos(pi * done)) / 2;
}

static double constant(const struct ddl_train_config *t, uint64_t s)
{
    (void)s;
    return t->lr;
}

/* lr until the last decay_ratio S steps, then linear to lr_min at s = S. */
static double wsd(const struct ddl_train_config *t, uint64_t s)
{
    double lr_min = t->lr * t->lr_min_ratio, steps = (double)t->steps;
    double start = fmax((double)t->warmup, steps - t->decay_ratio * steps);
    if (t->decay_ratio == 0)
        return t->lr;
    if (s >= t->steps)
        return lr_min;
    if ((double)s <= start)
        return t->lr;
    return t->lr + (lr_min - t->lr) * ((double)s - start) / (steps - start);
}

const char *const ddl_schedule_names[] = { [DDL_SCHEDULE_COSINE] = "cosine",
                                           [DDL_SCHEDULE_CONSTANT] = "constant",
                                           [DDL_SCHEDULE_WSD] = "wsd",
                                           [DDL_SCHEDULES] = NULL };

/* The rate of step s >= warmup. */
static double (*const schedules[DDL_SCHEDULES])(const struct ddl_train_config *t, uint64_t s) = {
    [DDL_SCHEDULE_COSINE] = cosine,
    [DDL_SCHEDULE_CONSTANT] = constant,
    [DDL_SCHEDULE_WSD] = wsd,
};

double ddl_schedule_lr(const struct ddl_train_config *t, uint64_t s)
{
    if (s < t->warmup)
        return t->lr * (double)(s + 1) / (double)t->warmup;
    return schedules[t->schedule](t, s);
}
