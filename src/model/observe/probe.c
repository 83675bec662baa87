#include "model/observe/probe.h"

#include "model/observe/probe_calls.h"
#include "model/params/gradients.h"
#include "model/pass/workspace.h"

#include <assert.h>
#include <stdio.h>

void ddl_workspace_set_probe(ddl_workspace *ws, struct ddl_probe *probe)
{
    ws->probe = probe;
}

void probe_enter(const struct pass *p, bool backward, size_t layer, const char *part)
{
    if (!p->probe)
        return;
    p->probe->place.backward = backward;
    p->probe->place.layer = layer;
    p->probe->place.part = part;
}

static void look(const struct pass *p, size_t first_row, size_t rows, size_t width, const float *x)
{
    struct ddl_place *place = &p->probe->place;
    place->first_row = first_row;
    place->rows = rows;
    place->width = width;
    p->probe->look(p->probe->user, place, x);
}

void probe_rows(const struct pass *p, const char *tensor, const float *x, size_t first_row, size_t rows,
                size_t width)
{
    if (!p->probe || !p->probe->look || !x)
        return;
    p->probe->place.parameter = false;
    snprintf(p->probe->place.tensor, sizeof p->probe->place.tensor, "%s", tensor);
    look(p, first_row, rows, width, x);
}

void probe_tensor(const struct pass *p, const char *tensor, const float *x, size_t width)
{
    probe_rows(p, tensor, x, 0, p->N, width);
}

/* Converted in the memory of logits: contiguous rows together. */
static void probe_bf16(const struct pass *p, const char *tensor, struct activation a, size_t rows,
                       size_t width)
{
    float *part = p->ws->logits;
    size_t most = p->ws->logit_numbers / width, n;
    const size_t stride = row_stride(a.stride, width);
    if (!p->probe || !p->probe->look || !a.bf16)
        return;
    assert(most > 0);
    for (size_t row = 0; row < rows; row += n) {
        n = rows - row < most ? rows - row : most;
        const size_t together = stride == width ? n : 1;
        for (size_t i = 0; i < n; i += together)
            p->ops->widen_bf16(p->ctx, &(struct widen_bf16_args){
                                           together * width, a.bf16 + (row + i) * stride, part + i * width });
        probe_rows(p, tensor, part, row, n, width);
    }
}

void probe_activation(const struct pass *p, const char *tensor, struct activation x, size_t rows,
                      size_t width)
{
    if (x.value)
        probe_rows(p, tensor, x.value, 0, rows, width);
    else
        probe_bf16(p, tensor, x, rows, width);
}

void probe_grad(const struct pass *p, int row)
{
    if (!p->probe || !p->probe->look || row < 0)
        return;
    const struct ddl_param *param = &p->m->params.row[row];
    p->probe->place.parameter = true;
    snprintf(p->probe->place.tensor, sizeof p->probe->place.tensor, "grad.%s", param->name);
    look(p, 0, param->shape[0], param->count / param->shape[0], param_grad(p, row));
}

bool probe_stopped(const struct pass *p)
{
    return p->probe && p->probe->stop;
}
