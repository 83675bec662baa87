/* What a sublayer behaves as: the first row whose condition holds. docs/inspect.md lists the thresholds. */
#include "ddl/inspect.h"

#include <stdio.h>

static const double constant_width = 0.05, half_step = 0.1, small_step = 0.01;

static const char *within(const struct ddl_inspect_sublayer *s)
{
    for (const struct ddl_behavior *row = s->behaviors; row->text; row++) {
        if (s->low >= row->low && s->high <= row->high)
            return row->text;
    }
    return s->high - s->low < constant_width ? "behaves as a constant" : NULL;
}

/* One half of the update outweighs the other. */
static const char *half_of(const struct ddl_inspect_sublayer *s, double erase, double write)
{
    if (!s->is_delta || s->update != DDL_UPDATE_DELTA)
        return NULL;
    if (erase < half_step * write)
        return "behaves as write-only";
    return write < half_step * erase ? "behaves as erase-only" : NULL;
}

void ddl_inspect_behavior(const struct ddl_inspect_sublayer *s, char *out, size_t size)
{
    double erase = ddl_inspect_figure(&s->figures, "erase"), write = ddl_inspect_figure(&s->figures, "write");
    double step = ddl_inspect_figure(&s->figures, "step");
    const char *text = s->behaviors ? within(s) : NULL, *half = half_of(s, erase, write);
    if (text)
        snprintf(out, size, "%s within %.2f–%.2f: %s", s->symbol, s->low, s->high, text);
    else if (half)
        snprintf(out, size, "erase %.3f, write %.3f: %s", erase, write, half);
    else if (step < small_step)
        snprintf(out, size, "step %.4f: leaves the stream nearly unchanged", step);
    else
        snprintf(out, size, "%s", "");
}
