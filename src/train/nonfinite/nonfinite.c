#include "train/nonfinite/nonfinite.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const char *const ddl_nonfinite_parts[] = { "embed", "attn", "mlp", "average", "head", NULL };
const char *const ddl_nonfinite_kinds[] = { "parameter", "first moment", "second moment", NULL };

/* The state before the step: if a parameter was not finite already, it is the cause. */
static void check_state(struct ddl_nonfinite *out, const struct ddl_step *step)
{
    struct ddl_corrupted bad;
    if (ddl_optim_find_corrupted(step->optim, &bad, &out->replay_error) || !bad.kind)
        return;
    out->earlier = bad.kind;
    out->earlier_values = bad.values;
    snprintf(out->earlier_name, sizeof out->earlier_name, "%s", ddl_model_param(step->model, bad.row)->name);
}

/* Sets the data to micro-batches [first, first + n) of the step. Several are of equal size: the last one is
 * filled up with sequences without targets. */
static void hold(struct ddl_nonfinite *out, const struct ddl_step *step, size_t first, size_t n)
{
    size_t rows = step->batch * step->seq;
    out->micro_batch = first + n;
    out->held = n;
    out->batch = n == 1 ? ddl_step_sequences(step, first) : step->batch;
    out->tokens = step->tokens + first * rows;
    out->targets = step->targets + first * rows;
}

/* Replays micro-batches [first, first + n) of the step, up to the first that is not finite. False if that
 * failed. */
static bool replay(struct ddl_nonfinite *out, const struct ddl_step *step, size_t first, size_t n)
{
    hold(out, step, first, n);
    const struct ddl_replay replay = { .model = step->model,
                                       .ws = step->ws,
                                       .backward = out->what != DDL_NONFINITE_VALIDATION,
                                       .n = n,
                                       .batch = out->batch,
                                       .seq = step->seq,
                                       .tokens = out->tokens,
                                       .targets = out->targets,
                                       .scale = out->scale };
    if (ddl_replay_run(&replay, &out->finding, &out->replay_error))
        return false;
    hold(out, step, first, out->finding.micro_batch + 1);
    return true;
}

static struct ddl_nonfinite begin(const struct ddl_step *step, int what)
{
    return (struct ddl_nonfinite){
        .what = what, .micro_batches = step->accumulate, .batch = step->batch, .seq = step->seq, .ranks = 1
    };
}

void ddl_nonfinite_of_step(struct ddl_nonfinite *out, const struct ddl_step *step,
                           const struct ddl_step_result *result)
{
    bool loss = result->failed < step->accumulate;
    *out = begin(step, loss ? DDL_NONFINITE_LOSS : DDL_NONFINITE_GRADIENT);
    out->loss = result->loss;
    out->grad_norm = result->grad_norm;
    out->scale = result->scale;
    check_state(out, step);
    if (loss) {
        (void)replay(out, step, result->failed, 1);
        return;
    }
    bool replayed = true;
    for (size_t k = 0; k < step->accumulate && replayed && !out->finding.found; k++)
        replayed = replay(out, step, k, 1);
    if (replayed && !out->finding.found) /* each is finite, and their sum is not */
        replayed = replay(out, step, 0, step->accumulate);
    if (!replayed)
        hold(out, step, 0, step->accumulate);
}

void ddl_nonfinite_of_validation(struct ddl_nonfinite *out, const struct ddl_step *step)
{
    *out = begin(step, DDL_NONFINITE_VALIDATION);
    out->micro_batches = 1;
    check_state(out, step);
    (void)replay(out, step, 0, 1);
    out->loss = out->finding.loss;
}

void ddl_nonfinite_of_other(struct ddl_nonfinite *out, const struct ddl_step *step)
{
    *out = begin(step, DDL_NONFINITE_LOSS);
    check_state(out, step);
}

void ddl_nonfinite_text(const struct ddl_nonfinite *t, char *out, size_t size)
{
    char place[192], values[128], token[64] = "", state[400] = "";
    if (t->earlier) {
        ddl_values_text(&t->earlier_values, values, sizeof values);
        snprintf(state, sizeof state, "; %s %s was not finite before the step (%s)", t->earlier,
                 t->earlier_name, values);
    }
    if (t->replay_error.status) {
        snprintf(out, size, "it could not be replayed: %.200s%s", t->replay_error.text, state);
        return;
    }
    if (!t->finding.found) {
        snprintf(out, size, "the replay is finite: not reproducible, suspect the hardware%s", state);
        return;
    }
    ddl_place_text(&t->finding.place, place, sizeof place);
    ddl_values_text(&t->finding.values, values, sizeof values);
    if (!t->finding.place.parameter && t->seq) {
        size_t row = t->finding.place.first_row + t->finding.values.first / t->finding.place.width;
        snprintf(token, sizeof token, ", sequence %zu, token %zu", row / t->seq, row % t->seq);
    }
    snprintf(out, size, "first in %s%s (%s)%s", place, token, values, state);
}
