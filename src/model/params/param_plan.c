#include "model/params/param_plan.h"

#include "base/mem.h"

#include <math.h>
#include <stdio.h>

/* Appends row i to the chain of the fused matrix that begins with row `first`. */
static void fuse(struct params *out, size_t first, size_t i)
{
    while (out->fused_next[first] != DDL_NO_ROW)
        first = out->fused_next[first];
    out->fused_next[first] = i;
    out->row_offset[i] = out->row_offset[first] + out->row[first].shape[0];
}

void param_plan_add(struct param_plan *plan, const struct param_row *row, int *index)
{
    struct params *out = plan->out;
    size_t i = out->n++;
    *index = (int)i;
    if (!out->row)
        return;
    struct ddl_param *param = &out->row[i];
    *param = (struct ddl_param){
        .name = plan->names[i], .count = 1, .lr_scale = 1, .group = row->group, .layer = plan->layer
    };
    snprintf(plan->names[i], DDL_PARAM_NAME, "%s%s", plan->prefix, row->name);
    for (; param->ndim < 3 && row->shape[param->ndim]; param->ndim++) {
        param->shape[param->ndim] = row->shape[param->ndim];
        plan->overflow |= !ddl_size_mul(param->count, param->shape[param->ndim], &param->count);
    }
    if (plan->config->mup && row->flags & PARAM_MUP)
        param->lr_scale = (float)((double)plan->config->d_base / (double)plan->config->d_model);
    param->active = !(row->flags & PARAM_INACTIVE);
    out->size += param->count;
    out->init[i] = row->init;
    out->in_products[i] = row->flags & PARAM_PRODUCT;
    out->row_offset[i] = 0;
    out->fused_next[i] = DDL_NO_ROW;
    if (row->fused_with)
        fuse(out, (size_t)*row->fused_with, i);
}

/* Places row `first` and those fused with it at the end of the buffer, on a cache line. */
static void place(struct param_plan *plan, size_t first)
{
    const size_t line = DDL_ALIGN / sizeof(float);
    struct params *out = plan->out;
    out->total = (out->total + line - 1) / line * line;
    for (size_t i = first; i != DDL_NO_ROW; i = out->fused_next[i]) {
        out->offset[i] = out->total;
        plan->overflow |=
            !ddl_size_add(out->total, out->row[i].count, &out->total) || out->total > SIZE_MAX / 64;
    }
}

/* In the order in which a pass uses the parameters, so that the gradients from some offset on are final while
 * the backward pass runs. That is the order of the rows, except for the convolution of the embedding. */
void param_plan_place(struct param_plan *plan)
{
    struct params *out = plan->out;
    int conv = out->model.embed_conv;
    out->total = 0;
    if (conv >= 0)
        place(plan, (size_t)conv);
    for (size_t i = 0; i < out->n; i++) {
        if (!out->row_offset[i] && (conv < 0 || i != (size_t)conv))
            place(plan, i);
    }
}

struct param_init param_init_matrix(const struct ddl_config *config)
{
    double std = (double)config->hidden_init_std_factor / sqrt((double)config->d_model);
    return (struct param_init){ INIT_NORMAL, std };
}

struct param_init param_init_constant(double value)
{
    return (struct param_init){ INIT_CONSTANT, value };
}
