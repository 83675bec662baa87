/* What a sublayer behaves as: the first row whose condition holds. docs/inspect.md lists the thresholds. */
#include "ddl/inspect.h"

#include <math.h>
#include <stdio.h>

/* A range of the gate from its 5 % to its 95 % quantile. */
struct range {
    double low, high;
};

struct behavior_row {
    double low, high; /* the range lies within them */
    const char *text;
};

static const struct behavior_row gates[] = {
    { 0, 0.1, "behaves as skip" },
    { 0.9, 1.1, "behaves as overwrite" },
    { 1.9, 2, "behaves as reflection" },
};
/* Of beta in the rule gated, of lambda, and of tau. */
static const struct behavior_row factors[] = {
    { 0, 0.1, "behaves as skip" },
    { 0.9, 1.1, "behaves as addition" },
};
static const struct behavior_row shares[] = {
    { 0, 0.1, "behaves as carry" },
    { 0.9, 1, "behaves as replacement" },
};

static const double constant_width = 0.05, half_step = 0.1, small_step = 0.01;

#define ROWS(table) (table), sizeof(table) / sizeof *(table)

static const char *within(const struct behavior_row *rows, size_t n, struct range range)
{
    for (size_t i = 0; i < n; i++) {
        if (range.low >= rows[i].low && range.high <= rows[i].high)
            return rows[i].text;
    }
    return range.high - range.low < constant_width ? "behaves as a constant" : NULL;
}

/* One half of the update outweighs the other. */
static const char *half_of(const struct ddl_inspect_sublayer *s)
{
    const struct ddl_inspect_figures *f = &s->figures;
    if (!s->is_delta || s->update != DDL_UPDATE_DELTA)
        return NULL;
    if (f->erase < half_step * f->write)
        return "behaves as write-only";
    return f->write < half_step * f->erase ? "behaves as erase-only" : NULL;
}

void ddl_inspect_behavior(const struct ddl_inspect_sublayer *s, char *out, size_t size)
{
    const struct ddl_inspect_figures *f = &s->figures;
    const char *name = "gate", *text = NULL;
    struct range range = { f->beta_q05, f->beta_q95 };
    if (s->is_delta) {
        text = within(ROWS(gates), range);
    } else if (!isnan(f->lambda_mean)) {
        name = "λ";
        range = (struct range){ f->lambda_min, f->lambda_max };
        text = within(ROWS(factors), range);
    } else if (!isnan(f->tau_mean)) {
        name = "τ";
        range = (struct range){ f->tau_q05, f->tau_q95 };
        text = within(ROWS(shares), range);
    } else if (!isnan(f->beta_mean)) {
        text = within(ROWS(factors), range);
    }
    const char *half = half_of(s);
    if (text)
        snprintf(out, size, "%s within %.2f–%.2f: %s", name, range.low, range.high, text);
    else if (half)
        snprintf(out, size, "erase %.3f, write %.3f: %s", f->erase, f->write, half);
    else if (f->step < small_step)
        snprintf(out, size, "step %.4f: leaves the stream nearly unchanged", f->step);
    else
        snprintf(out, size, "%s", "");
}
