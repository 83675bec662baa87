#include "train/step/spike.h"

#include <math.h>
#include <string.h>

static const double least_deviation = 0.01; /* of the mean */

static struct ddl_spike_figures figures_of(const struct ddl_spike_state *state, double norm)
{
    struct ddl_spike_figures f = { 0 };
    double squares = 0;
    for (size_t i = 0; i < state->n; i++)
        f.mean += state->norms[i] / (double)state->n;
    for (size_t i = 0; i < state->n; i++)
        squares += (state->norms[i] - f.mean) * (state->norms[i] - f.mean) / (double)state->n;
    f.deviation = fmax(sqrt(squares), least_deviation * f.mean);
    f.z = f.deviation > 0 ? (norm - f.mean) / f.deviation : 0;
    return f;
}

static void enter(struct ddl_spike_state *state, size_t window, double norm)
{
    if (state->n >= window) { /* more if a resumed run has a shorter window */
        size_t kept = window - 1;
        memmove(state->norms, state->norms + (state->n - kept), kept * sizeof *state->norms);
        state->n = kept;
    }
    state->norms[state->n++] = norm;
    state->in_a_row = 0;
}

int ddl_spike_decide(const struct ddl_spike_config *config, struct ddl_spike_state *state, double norm,
                     struct ddl_spike_figures *figures)
{
    struct ddl_spike_figures f = { 0 };
    int decision = DDL_SPIKE_TAKE;
    if (config->z > 0 && state->n >= config->window)
        f = figures_of(state, norm);
    if (figures)
        *figures = f;
    if (config->z > 0 && f.z > config->z)
        decision = state->in_a_row < config->max_skip ? DDL_SPIKE_SKIP : DDL_SPIKE_SHIFT;
    if (decision == DDL_SPIKE_SKIP) {
        state->in_a_row++;
        state->skipped++;
        return decision;
    }
    if (decision == DDL_SPIKE_SHIFT)
        state->n = 0;
    if (config->z > 0)
        enter(state, config->window, norm);
    return decision;
}
