#include "train/schedule.h"

#include <math.h>

static const double pi = 3.14159265358979323846;

double ddl_schedule(double lr, double lr_min, uint64_t warmup, uint64_t steps, uint64_t s)
{
    if (s < warmup)
        return lr * (double)(s + 1) / (double)warmup;
    if (s >= steps)
        return lr_min;
    double done = (double)(s - warmup) / (double)(steps - warmup);
    return lr_min + (lr - lr_min) * (1 + cos(pi * done)) / 2;
}
