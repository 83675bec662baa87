#include "model/pass/poll.h"

#include "model/observe/probe.h"

struct polling {
    const struct ddl_poll *poll;
    struct ddl_probe probe;
};

static void poll_progress(void *user, const struct ddl_place *place, const float *x)
{
    (void)place, (void)x;
    struct polling *polling = user;
    const struct ddl_poll *poll = polling->poll;
    if (!polling->probe.stop)
        polling->probe.stop = poll->progress(poll->user, poll->done, poll->total) != 0;
}

/* Passes in the workspace call poll->progress until end(). */
static void begin(struct polling *polling, const struct ddl_poll *poll, ddl_workspace *ws)
{
    *polling = (struct polling){ poll, { .look = poll_progress, .user = polling } };
    if (poll->progress)
        ddl_workspace_set_probe(ws, &polling->probe);
}

static void end(const struct ddl_poll *poll, ddl_workspace *ws)
{
    if (poll->progress)
        ddl_workspace_set_probe(ws, NULL);
}

ddl_status ddl_model_loss_polled(ddl_model *model, ddl_workspace *ws, const struct ddl_batch *batch,
                                 const struct ddl_poll *poll, struct ddl_loss *loss,
                                 const struct ddl_row_scores *rows, struct ddl_error *err)
{
    static const struct ddl_row_scores none = { 0 };
    struct polling polling;
    begin(&polling, poll, ws);
    ddl_status status = ddl_model_scores(model, ws, batch, loss, rows ? rows : &none, err);
    end(poll, ws);
    return status;
}

ddl_status ddl_model_decode_polled(ddl_model *model, ddl_workspace *ws, ddl_cache *cache,
                                   const struct ddl_decode_batch *batch, const struct ddl_poll *poll,
                                   struct ddl_error *err)
{
    struct polling polling;
    begin(&polling, poll, ws);
    ddl_status status = ddl_model_decode(model, ws, cache, batch, err);
    end(poll, ws);
    return status;
}
