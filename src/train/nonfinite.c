#include "train/nonfinite.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The state that the step began from: a parameter that was bad already is the cause, whatever it spoils. */
static void look_at_state(struct ddl_trouble *out, const struct ddl_step *step)
{
    size_t row;
    out->spoiled = ddl_optim_spoiled(step->optim, &row, &out->spoiled_values);
    if (out->spoiled)
        snprintf(out->spoiled_name, sizeof out->spoiled_name, "%s", ddl_model_param(step->model, row)->name);
}

/* Micro-batches [first, first + n) of the step; what is found becomes the trouble's. */
static ddl_status replay(struct ddl_trouble *out, const struct ddl_step *step, size_t first, size_t n,
                         struct ddl_error *err)
{
    size_t rows = step->batch * step->seq;
    const struct ddl_replay replay = { .model = step->model,
                                       .ws = step->ws,
                                       .backward = out->what != DDL_TROUBLE_VALIDATION,
                                       .n = n,
                                       .batch = step->batch,
                                       .seq = step->seq,
                                       .tokens = step->tokens + first * rows,
                                       .targets = step->targets + first * rows,
                                       .scale = out->scale };
    ddl_status status = ddl_replay_run(&replay, &out->finding, err);
    out->micro_batch = first + out->finding.micro_batch + 1;
    out->held = out->finding.micro_batch + 1;
    out->tokens = replay.tokens;
    out->targets = replay.targets;
    return status;
}

static struct ddl_trouble begin(const struct ddl_step *step, int what)
{
    return (struct ddl_trouble){
        .what = what, .micro_batches = step->accumulate, .batch = step->batch, .seq = step->seq
    };
}

ddl_status ddl_trouble_of_step(struct ddl_trouble *out, const struct ddl_step *step,
                               const struct ddl_step_result *result, struct ddl_error *err)
{
    bool loss = result->failed < step->accumulate;
    *out = begin(step, loss ? DDL_TROUBLE_LOSS : DDL_TROUBLE_GRADIENT);
    out->loss = result->loss;
    out->grad_norm = result->grad_norm;
    out->scale = ddl_step_scale(step);
    look_at_state(out, step);
    if (loss)
        return replay(out, step, result->failed, 1, err);
    ddl_status status = DDL_OK;
    for (size_t k = 0; k < step->accumulate && !status && !out->finding.found; k++)
        status = replay(out, step, k, 1, err);
    if (!status && !out->finding.found) /* each is finite, and their sum is not */
        status = replay(out, step, 0, step->accumulate, err);
    return status;
}

ddl_status ddl_trouble_of_validation(struct ddl_trouble *out, const struct ddl_step *step,
                                     struct ddl_error *err)
{
    *out = begin(step, DDL_TROUBLE_VALIDATION);
    out->micro_batches = 1;
    look_at_state(out, step);
    ddl_status status = replay(out, step, 0, 1, err);
    out->loss = out->finding.loss;
    return status;
}

static void token_text(const struct ddl_trouble *t, char *out, size_t size)
{
    const struct ddl_place *place = &t->finding.place;
    size_t row = place->first_row + t->finding.values.first / place->width;
    snprintf(out, size, ", sequence %zu, token %zu", row / t->seq, row % t->seq);
}

void ddl_trouble_text(const struct ddl_trouble *t, char *out, size_t size)
{
    char place[192], values[128], token[64] = "", state[400] = "";
    if (t->spoiled) {
        ddl_values_text(&t->spoiled_values, values, sizeof values);
        snprintf(state, sizeof state, "; %s %s was bad before the step (%s)", t->spoiled, t->spoiled_name,
                 values);
    }
    if (!t->finding.found) {
        snprintf(out, size, "replayed, it does not happen again: the machine is not to be trusted%s", state);
        return;
    }
    ddl_place_text(&t->finding.place, place, sizeof place);
    ddl_values_text(&t->finding.values, values, sizeof values);
    if (!t->finding.place.parameter && t->seq)
        token_text(t, token, sizeof token);
    snprintf(out, size, "first in %s%s (%s)%s", place, token, values, state);
}
