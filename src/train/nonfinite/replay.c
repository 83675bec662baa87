#include "train/nonfinite/replay.h"

#include <stdio.h>

struct looking {
    ddl_backend *backend;
    struct ddl_finding *finding;
};

static void look(void *user, const struct ddl_place *place, const float *x)
{
    const struct looking *l = user;
    if (l->finding->found)
        return;
    struct ddl_values values = ddl_values_of(l->backend, x, place->rows * place->width);
    if (ddl_values_finite(&values))
        return;
    l->finding->found = true;
    l->finding->place = *place;
    l->finding->values = values;
}

ddl_status ddl_replay_run(const struct ddl_replay *r, struct ddl_finding *out, struct ddl_error *err)
{
    size_t rows = r->batch * r->seq;
    struct looking looking = { ddl_model_backend(r->model), out };
    struct ddl_probe probe = { .look = look, .user = &looking };
    ddl_status status = DDL_OK;
    *out = (struct ddl_finding){ 0 };
    if (r->backward)
        ddl_model_zero_grad(r->model);
    ddl_workspace_set_probe(r->ws, &probe);
    for (size_t i = 0; i < r->n && !status && !out->found; i++) {
        struct ddl_loss loss = { 0 };
        struct ddl_batch batch = { r->batch, r->seq, r->tokens + i * rows, r->targets + i * rows };
        status = r->backward ? ddl_model_backward(r->model, r->ws, &batch, r->scale, &loss, err)
                             : ddl_model_loss(r->model, r->ws, &batch, &loss, NULL, err);
        out->micro_batch = i;
        out->loss += loss.sum;
    }
    ddl_workspace_set_probe(r->ws, NULL);
    if (status)
        out->found = false;
    return status;
}

void ddl_place_text(const struct ddl_place *place, char *out, size_t size)
{
    char layer[40] = "";
    if (place->layer != DDL_NO_LAYER)
        snprintf(layer, sizeof layer, "layer %zu, ", place->layer);
    snprintf(out, size, "%s%s%s: %s", layer, place->part, place->backward ? ", backward" : "", place->tensor);
}
