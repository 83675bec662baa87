/* A step or validation that is not finite ends the run: with the first bad tensor in the error message, a
 * dump, and a checkpoint of the state before the step, or that was validated. */
#include "train/run/trainer.h"

#include "train/nonfinite/nonfinite.h"

#include <stdio.h>

/* "dumped as OUT/trouble-12 ...", or why there is no dump. The state is saved in either case. */
static void dump(const struct run *run, const struct ddl_nonfinite *t, char *out, size_t size)
{
    char path[RUN_PATH_SIZE];
    struct ddl_error why = { 0 };
    if (ddl_nonfinite_save(t, &run->config, run->model, path, sizeof path, &why))
        snprintf(out, size, "no dump: %.200s", why.text);
    else
        snprintf(out, size, "dumped as %.240s, 'ddl verify' replays it", path);
}

/* Parameters and moments are still those from before the step: they change only after loss and gradient are
 * known to be finite. Resuming there with the same data ends in the same way at any learning rate; a lower
 * rate needs an earlier checkpoint. */
static void save(struct run *run, const struct ddl_nonfinite *t, char *out, size_t size)
{
    struct ddl_error why = { 0 };
    if (!t->earlier && trainer_save(run, SAVE_AND_KEEP_ALL, &why))
        snprintf(out, size, "the state before it could not be saved: %.200s", why.text);
    else if (!run->checkpoint[0])
        snprintf(out, size, "there is no checkpoint yet");
    else if (t->earlier)
        snprintf(out, size, "the newest checkpoint is %.240s", run->checkpoint);
    else if (t->what == DDL_NONFINITE_VALIDATION)
        snprintf(out, size, "the newest checkpoint is %.240s, the state that was validated", run->checkpoint);
    else
        snprintf(out, size,
                 "the newest checkpoint is %.240s, the state before it: --resume --skip 1 skips its data, a "
                 "lower lr needs an earlier checkpoint",
                 run->checkpoint);
}

/* `from`: the rank that has the bad micro-batch, or the number of ranks. Rank 0 has the run folder: it writes
 * the dump, and composes the message for all. */
static ddl_status finish(struct run *run, struct ddl_nonfinite *t, size_t from, const struct ddl_error *what,
                         struct ddl_error *err)
{
    char where[480], dumped[320] = "", saved[400], rank[64] = "";
    ddl_comm *comm = run->config.comm;
    ddl_comm_describe(comm, "the diagnosis of step %llu", (unsigned long long)t->step);
    ddl_nonfinite_share(t, comm, from, run->tokens, run->targets);
    if (comm && t->finding.found)
        snprintf(rank, sizeof rank, "on rank %zu, ", t->rank);
    ddl_nonfinite_text(t, where, sizeof where);
    run->is_irreproducible = !t->finding.found && !t->earlier;
    if (trainer_is_root(run))
        dump(run, t, dumped, sizeof dumped);
    save(run, t, saved, sizeof saved);
    ddl_error_set(err, DDL_E_NUMERIC, "step %llu: %.150s: %s%s; %s; %s", (unsigned long long)t->step,
                  what->text, rank, where, dumped, saved);
    ddl_comm_broadcast(comm, 0, sizeof *err, err);
    return DDL_E_NUMERIC;
}

ddl_status trainer_nonfinite_step(struct run *run, const struct ddl_step_result *result,
                                  struct ddl_error *err)
{
    const struct ddl_error what = *err;
    size_t ranks = ddl_comm_size(run->config.comm);
    struct ddl_nonfinite t;
    if (result->rank == ranks || result->rank == ddl_comm_rank(run->config.comm))
        ddl_nonfinite_of_step(&t, &run->step, result);
    else
        ddl_nonfinite_of_other(&t, &run->step);
    t.step = run->state.step + 1;
    return finish(run, &t, result->rank, &what, err);
}

ddl_status trainer_nonfinite_validation(struct run *run, const struct ddl_validation_result *result,
                                        struct ddl_error *err)
{
    const struct ddl_error what = *err;
    struct ddl_step batch = run->step; /* the buffers hold the batch that failed */
    struct ddl_nonfinite t;
    batch.batch = result->failed;
    batch.accumulate = 1;
    batch.last = 0;
    if (result->rank == ddl_comm_rank(run->config.comm))
        ddl_nonfinite_of_validation(&t, &batch);
    else
        ddl_nonfinite_of_other(&t, &batch);
    t.step = run->state.step;
    if (t.step > 0) /* a run that is resumed from its checkpoint validates again */
        trainer_postpone_validation(run);
    return finish(run, &t, result->rank, &what, err);
}
