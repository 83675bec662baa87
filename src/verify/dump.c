/* Dumps of training runs that ended with a number that is not finite (train/nonfinite/nonfinite.h): is there
 * one again on this backend, and in which tensor first? */
#include "train/nonfinite/nonfinite.h"

#include "base/file.h"
#include "verify/internal.h"

#include <stdio.h>
#include <string.h>

struct work {
    struct context *c;
    ddl_safetensors *file;
    struct ddl_nonfinite_record record;
    struct ddl_nonfinite *was; /* the record's */
    ddl_model *model;
    ddl_workspace *ws;
    struct ddl_replay replay;
};

static ddl_status read_batch(struct work *w, struct ddl_error *err)
{
    char path[2048];
    const struct ddl_tensor *t;
    int32_t *tokens, *targets;
    if (!ddl_path_join(path, sizeof path, w->c->path, "batch.safetensors"))
        return ddl_error_set(err, DDL_E_USAGE, "%s: the path is too long", w->c->path);
    ddl_status status = ddl_safetensors_open(&w->file, path, err);
    if (!status)
        status = find_tensor(w->file, w->c->path, "tokens", 3, &t, err);
    if (status)
        return status;
    size_t A = t->shape[0], B = t->shape[1], T = t->shape[2];
    if (A == 0 || B == 0 || T == 0)
        return ddl_error_set(err, DDL_E_FORMAT,
                             "%s: tokens has shape (%zu, %zu, %zu), there is nothing to run", w->c->path, A,
                             B, T);
    status = read_ids(w->c, w->file, (struct want){ "tokens", 3, { A, B, T } }, &tokens, err);
    if (!status)
        status = read_ids(w->c, w->file, (struct want){ "targets", 3, { A, B, T } }, &targets, err);
    if (status)
        return status;
    w->replay.n = A;
    w->replay.batch = B;
    w->was->seq = w->replay.seq = T;
    w->replay.tokens = tokens;
    w->replay.targets = targets;
    return DDL_OK;
}

static ddl_status prepare(struct work *w, struct ddl_error *err)
{
    ddl_status status = ddl_nonfinite_read(&w->record, w->c->path, err);
    if (!status)
        status = read_batch(w, err);
    const struct ddl_workspace_options options = {
        .batch = w->replay.batch, .tokens = w->replay.seq, .train = true, .recompute = w->record.recompute
    };
    if (!status)
        status = ddl_model_load(&w->model, w->c->path, w->c->backend, NULL, NULL, err);
    if (!status)
        status = ddl_model_enable_grad(w->model, err);
    if (!status)
        status = ddl_model_set_precision(w->model, w->record.precision, err);
    if (!status)
        status = ddl_workspace_create(&w->ws, w->model, &options, err);
    w->replay.model = w->model;
    w->replay.ws = w->ws;
    w->replay.backward = w->was->what != DDL_NONFINITE_VALIDATION;
    w->replay.scale = w->was->scale;
    return status;
}

static bool same_place(const struct ddl_finding *a, const struct ddl_finding *b)
{
    return a->found && b->found && a->place.backward == b->place.backward &&
           a->place.layer == b->place.layer && strcmp(a->place.part, b->place.part) == 0 &&
           strcmp(a->place.tensor, b->place.tensor) == 0;
}

static bool same_counts(const struct ddl_values *a, const struct ddl_values *b)
{
    return a->nan == b->nan && a->inf == b->inf && a->first == b->first;
}

/* The message has the present value and, if it differs, that of the run. Passed: it
 * happens again, and on the backend of the run in the same tensor. (Another backend sums in another order,
 * and may overflow a tensor earlier or later.) */
static void judge(struct work *w, const struct ddl_finding *now)
{
    struct ddl_verify_case *result = w->c->result;
    const struct ddl_finding *was = &w->was->finding;
    struct ddl_nonfinite here = *w->was;
    char recorded[480], found[480] = "everything is finite here";
    bool own = strcmp(w->record.backend, ddl_backend_name(w->c->backend)) == 0;
    here.finding = *now;
    here.earlier = NULL;
    here.replay_error.status = DDL_OK;
    ddl_nonfinite_text(w->was, recorded, sizeof recorded);
    if (now->found)
        ddl_nonfinite_text(&here, found, sizeof found);
    if (same_place(now, was) && same_counts(&now->values, &was->values))
        snprintf(result->message, sizeof result->message, "step %llu: %s; as in the run",
                 (unsigned long long)w->was->step, recorded);
    else
        snprintf(result->message, sizeof result->message, "step %llu: %s; the run, on %s: %s",
                 (unsigned long long)w->was->step, found, w->record.backend, recorded);
    if (!now->found || (own && !w->was->replay_error.status && !same_place(now, was)))
        result->outcome = DDL_VERIFY_FAIL;
}

ddl_status check_dump(struct context *c, struct ddl_error *err)
{
    struct work w = { .c = c };
    struct ddl_finding now;
    w.was = &w.record.nonfinite;
    ddl_status status = prepare(&w, err);
    if (!status)
        status = ddl_replay_run(&w.replay, &now, err);
    if (!status)
        judge(&w, &now);
    ddl_workspace_free(w.ws);
    ddl_model_free(w.model);
    ddl_safetensors_close(w.file);
    return status;
}
