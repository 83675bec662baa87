/* What becomes of a run whose numbers end: it says where, leaves a dump, and keeps the state it had before.
 */
#include "train/trainer.h"

#include "train/nonfinite.h"

#include <stdio.h>

/* "OUT/trouble-12 holds it: ddl verify replays it", or why not. A dump that cannot be written is no reason
 * not to keep the state. */
static void dump(const struct run *run, const struct ddl_trouble *t, char *out, size_t size)
{
    char path[RUN_PATH_SIZE];
    struct ddl_error why = { 0 };
    if (ddl_trouble_save(t, &run->config, run->model, path, sizeof path, &why))
        snprintf(out, size, "no dump of it: %.200s", why.text);
    else
        snprintf(out, size, "%.240s holds it, 'ddl verify' replays it", path);
}

/* The parameters and moments are those from before: nothing changes them until loss and gradient are known.
 * So the same data would end the run there again, whatever the rate: that is for a checkpoint from further
 * back. */
static void keep(struct run *run, const struct ddl_trouble *t, char *out, size_t size)
{
    struct ddl_error why = { 0 };
    if (!t->spoiled && trainer_save(run, true, &why))
        snprintf(out, size, "the state before it could not be kept: %.200s", why.text);
    else if (!run->checkpoint[0])
        snprintf(out, size, "there is no checkpoint yet");
    else if (t->spoiled)
        snprintf(out, size, "the newest checkpoint is %.240s", run->checkpoint);
    else
        snprintf(
            out, size,
            "the newest checkpoint is %.240s, the state before it: --resume --skip 1 passes over its data, a "
            "lower lr needs a checkpoint from further back",
            run->checkpoint);
}

static ddl_status finish(struct run *run, struct ddl_trouble *t, const struct ddl_error *what,
                         struct ddl_error *err)
{
    char where[480], dumped[320], kept[400];
    ddl_trouble_text(t, where, sizeof where);
    dump(run, t, dumped, sizeof dumped);
    keep(run, t, kept, sizeof kept);
    return ddl_error_set(err, DDL_E_NUMERIC, "step %llu: %.100s: %s; %s; %s", (unsigned long long)t->step,
                         what->text, where, dumped, kept);
}

ddl_status trainer_trouble_step(struct run *run, const struct ddl_step_result *result, struct ddl_error *err)
{
    const struct ddl_error what = *err;
    struct ddl_trouble t;
    ddl_status status = ddl_trouble_of_step(&t, &run->step, result, err);
    t.step = run->state.step + 1;
    return status ? status : finish(run, &t, &what, err);
}

ddl_status trainer_trouble_validation(struct run *run, size_t failed, struct ddl_error *err)
{
    const struct ddl_error what = *err;
    struct ddl_step batch = run->step; /* the buffers hold the batch that failed */
    struct ddl_trouble t;
    batch.batch = failed;
    batch.accumulate = 1;
    ddl_status status = ddl_trouble_of_validation(&t, &batch, err);
    t.step = run->state.step;
    return status ? status : finish(run, &t, &what, err);
}
