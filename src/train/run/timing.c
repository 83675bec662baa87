#include "train/run/timing.h"

#include "base/clock.h"

bool ddl_timing_due(uint64_t step, uint64_t every, uint64_t last)
{
    return every && (step % every == 0 || step == last);
}

void ddl_timing_start(struct ddl_timing *timing)
{
    timing->start = ddl_clock_seconds();
}

void ddl_timing_add_earlier(struct ddl_timing *timing, double seconds)
{
    timing->start -= seconds;
}

double ddl_timing_wall(const struct ddl_timing *timing)
{
    return ddl_clock_seconds() - timing->start;
}

/* The mean of all steps up to the 20th, then an exponential mean, which follows a changed load. */
void ddl_timing_add_step(struct ddl_timing *timing, double seconds)
{
    enum { WINDOW = 20 };
    timing->n++;
    timing->step += (seconds - timing->step) / (double)(timing->n < WINDOW ? timing->n : WINDOW);
}

void ddl_timing_add_part(struct ddl_timing *timing, enum ddl_run_part part, double seconds)
{
    timing->part[part].n++;
    timing->part[part].seconds += seconds;
}

void ddl_timing_set_saved(struct ddl_timing *timing, double start, double end)
{
    timing->saved = end;
    timing->save_seconds = end - start;
}

bool ddl_timing_save_due(const struct ddl_timing *timing, double interval, double now)
{
    static const double least = 50; /* durations of a write */
    double since = now - timing->saved;
    return interval > 0 && since >= interval && since >= least * timing->save_seconds;
}

/* How often a part is due in steps step + 1 to last. */
static uint64_t count_due(uint64_t step, uint64_t every, uint64_t last)
{
    if (!every || step >= last)
        return 0;
    return last / every - step / every + (last % every != 0);
}

double ddl_timing_left(const struct ddl_timing *timing, uint64_t step, uint64_t steps)
{
    double left = (double)(steps - step) * timing->step;
    for (int i = 0; i < DDL_RUN_PARTS; i++) {
        uint64_t n = timing->part[i].n;
        double each = n ? timing->part[i].seconds / (double)n : timing->part[i].guess * timing->step;
        left += (double)count_due(step, timing->part[i].every, steps) * each;
    }
    return left;
}
