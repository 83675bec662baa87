#include "infer/session_check.h"

#include <float.h>

static ddl_status check_ids(size_t V, const char *what, size_t slot, const int32_t *ids, size_t n,
                            int32_t lowest, struct ddl_error *err)
{
    for (size_t i = 0; i < n; i++) {
        if (ids[i] < lowest || (ids[i] >= 0 && (size_t)ids[i] >= V))
            return ddl_error_set(err, DDL_E_USAGE,
                                 "session: %s %zu for slot %zu: expected %d to %zu, found %d", what, i, slot,
                                 (int)lowest, V - 1, (int)ids[i]);
    }
    return DDL_OK;
}

static ddl_status check_changes(const struct session_sizes *s, size_t slot,
                                const struct ddl_session_pick *pick, struct ddl_error *err)
{
    if (pick->n_changes > s->V)
        return ddl_error_set(err, DDL_E_USAGE,
                             "session: %zu changes of logits for slot %zu: expected at most %zu",
                             pick->n_changes, slot, s->V);
    for (size_t i = 0; i < pick->n_changes; i++) {
        if (pick->changes[i].token < 0 || (size_t)pick->changes[i].token >= s->V)
            return ddl_error_set(err, DDL_E_USAGE,
                                 "session: changed token %zu for slot %zu: expected 0 to %zu, found %d", i,
                                 slot, s->V - 1, (int)pick->changes[i].token);
    }
    return DDL_OK;
}

static ddl_status check_pick(const struct session_sizes *s, size_t slot, const struct ddl_session_pick *pick,
                             struct ddl_error *err)
{
    const struct {
        const char *what;
        double value, most;
    } numbers[] = { { "temperature", (double)pick->temperature, FLT_MAX },
                    { "top_p", (double)pick->top_p, 1 },
                    { "min_p", (double)pick->min_p, 1 },
                    { "u", pick->u, 1 - DBL_EPSILON / 2 } };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        if (!(numbers[i].value >= 0 && numbers[i].value <= numbers[i].most))
            return ddl_error_set(err, DDL_E_USAGE,
                                 "session: %s of a pick for slot %zu: expected 0 to %g, found %g",
                                 numbers[i].what, slot, numbers[i].most, numbers[i].value);
    }
    return check_changes(s, slot, pick, err);
}

static ddl_status check_picks(const struct session_sizes *s, const struct ddl_session_input *in,
                              struct ddl_error *err)
{
    size_t most = s->V < DDL_MOST_TOP ? s->V : DDL_MOST_TOP;
    ddl_status status = DDL_OK;
    if (in->n_top > most)
        return ddl_error_set(err, DDL_E_USAGE, "session: n_top of slot %zu: expected at most %zu, found %zu",
                             in->slot, most, in->n_top);
    if ((in->n_picks && !in->picks) || (in->n_top && !in->top))
        return ddl_error_set(err, DDL_E_USAGE, "session: no array for the %s of slot %zu",
                             in->n_picks && !in->picks ? "picks" : "likeliest tokens", in->slot);
    if (in->n_picks && in->n_choices)
        return ddl_error_set(err, DDL_E_USAGE, "session: slot %zu has both choices and picks", in->slot);
    for (size_t i = 0; !status && i < in->n_picks; i++)
        status = check_pick(s, in->slot, &in->picks[i], err);
    return status;
}

ddl_status session_check_input(const struct session_sizes *s, const struct ddl_session_input *in,
                               struct ddl_error *err)
{
    if (in->n == 0)
        return ddl_error_set(err, DDL_E_USAGE, "session: no tokens for slot %zu", in->slot);
    if (in->n > s->tokens - s->length)
        return ddl_error_set(err, DDL_E_USAGE,
                             "session: slot %zu holds %zu of %zu tokens: no space for %zu more", in->slot,
                             s->length, s->tokens, in->n);
    if (in->n_logits > in->n)
        return ddl_error_set(err, DDL_E_USAGE, "session: logits of %zu tokens requested of %zu for slot %zu",
                             in->n_logits, in->n, in->slot);
    if ((in->n_logits && !in->logits) || (in->targets && !in->losses))
        return ddl_error_set(err, DDL_E_USAGE, "session: no array for the %s of slot %zu",
                             in->n_logits && !in->logits ? "logits" : "losses", in->slot);
    if (!in->targets && (in->ranks || in->entropies))
        return ddl_error_set(err, DDL_E_USAGE, "session: %s of slot %zu requested without targets",
                             in->ranks ? "ranks" : "entropies", in->slot);
    if (in->n_choices && (!in->choices || !in->choice_losses))
        return ddl_error_set(err, DDL_E_USAGE, "session: no array for the %s of slot %zu",
                             in->choices ? "losses of choices" : "choices", in->slot);
    if ((in->n_choices || in->n_picks) && in->targets && in->targets[in->n - 1] >= 0)
        return ddl_error_set(err, DDL_E_USAGE,
                             "session: the last token of slot %zu has %s: expected target -1, found %d",
                             in->slot, in->n_choices ? "choices" : "picks", (int)in->targets[in->n - 1]);
    ddl_status status = check_picks(s, in, err);
    if (!status)
        status = check_ids(s->V, "token", in->slot, in->tokens, in->n, 0, err);
    if (!status && in->targets)
        status = check_ids(s->V, "target", in->slot, in->targets, in->n, -1, err);
    if (!status && in->n_choices)
        status = check_ids(s->V, "choice", in->slot, in->choices, in->n_choices, 0, err);
    return status;
}
