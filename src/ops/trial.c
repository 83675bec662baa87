/* Trials: operands are placed, and their numbers read back. */
#include "base/bf16.h"
#include "base/mem.h"
#include "ops/trial_internal.h"

#include <string.h>

enum {
    GUARD = 64,       /* bytes before and after an operand */
    PATTERN = 65521,  /* numbers after which contents repeat; a prime, so that rows differ */
    UNTOUCHED = 0xff, /* NaN in every format */
    AROUND = 0x7f     /* around what an op writes: another byte, so that a copied NaN is found there */
};

ddl_status trial_out_of_memory(const struct ddl_trial *t, struct ddl_error *err)
{
    return ddl_error_set(err, DDL_E_MEMORY, "op %s: out of memory for its operands", ddl_op_name(t->op));
}

/* ---- placing ---- */

/* Writes the operand's rows into a block that is `raw` (GUARD bytes, the operand, GUARD bytes). */
static void scatter(const struct ddl_operand *o, const unsigned char *numbers, size_t n, unsigned char *raw)
{
    size_t size = ddl_element_size(o->element), at = 0;
    for (size_t b = 0; b < o->batch; b++) {
        for (size_t r = 0; r < o->rows; r++) {
            unsigned char *row = raw + GUARD + (b * o->batch_stride + r * o->stride) * size;
            for (size_t i = 0; i < o->width;) {
                size_t run = o->width - i < n - at ? o->width - i : n - at;
                memcpy(row + i * size, numbers + at * size, run * size);
                i += run;
                at = (at + run) % n;
            }
        }
    }
}

static ddl_status fill_numbers(struct ddl_trial *t, const struct ddl_trial_plan *plan, size_t which,
                               struct ddl_error *err)
{
    const struct ddl_operand *o = &t->use.operand[which];
    size_t all = o->batch * o->rows * o->width, n = all < PATTERN || trial_is_integer(o) ? all : PATTERN;
    size_t bytes = ddl_operand_bytes(o, t->backend) + 2 * GUARD;
    unsigned char *raw = ddl_mem_alloc(bytes), *numbers = ddl_mem_alloc(n * ddl_element_size(o->element));
    ddl_status status = raw && numbers ? DDL_OK : trial_out_of_memory(t, err);
    if (!status) {
        memset(raw, o->access & DDL_WRITE ? AROUND : UNTOUCHED, bytes);
        memset(numbers, UNTOUCHED, n * ddl_element_size(o->element));
        if (o->access != DDL_WRITE)
            trial_draw(t, plan, which, numbers, n);
        if (n)
            scatter(o, numbers, n, raw);
        t->backend->ops->upload(t->backend->ctx, t->block[which], raw, bytes);
    }
    ddl_mem_free(raw);
    ddl_mem_free(numbers);
    return status;
}

/* An 8-bit matrix: zero, or normal numbers quantized. */
static ddl_status fill_q8(struct ddl_trial *t, size_t which, struct ddl_error *err)
{
    const struct ddl_operand *o = &t->use.operand[which];
    const struct ddl_backend *backend = t->backend;
    const struct ddl_operand numbers = { .name = o->name,
                                         .element = DDL_ELEMENT_F32,
                                         .access = DDL_READ,
                                         .batch = 1,
                                         .rows = 1,
                                         .width = o->rows * o->width };
    struct ddl_trial source = { .op = t->op, .backend = backend, .use.operand[0] = numbers };
    backend->ops->zero(backend->ctx, t->block[which], ddl_operand_bytes(o, backend) + 2 * GUARD);
    source.block[0] = backend->ops->alloc(backend->ctx, ddl_operand_bytes(&numbers, backend) + 2 * GUARD);
    if (!source.block[0])
        return trial_out_of_memory(t, err);
    ddl_status status = fill_numbers(&source, &(struct ddl_trial_plan){ .op = t->op }, 0, err);
    if (!status)
        backend->ops->quantize_q8(backend->ctx,
                                  &(struct quantize_q8_args){ .rows = o->rows,
                                                              .width = o->width,
                                                              .x = (const void *)(source.block[0] + GUARD),
                                                              .W = t->block[which] + GUARD });
    backend->ops->synchronize(backend->ctx);
    backend->ops->free(backend->ctx, source.block[0]);
    return status;
}

static bool same_shape(const struct ddl_operand *a, const struct ddl_operand *b)
{
    return a->element == b->element && a->batch == b->batch && a->rows == b->rows && a->width == b->width &&
           a->stride == b->stride && a->batch_stride == b->batch_stride;
}

/* The operand whose memory this one may use, or its own number. */
static size_t partner(const struct ddl_trial *t, size_t i)
{
    const struct ddl_operand *o = &t->use.operand[i];
    const struct ddl_operand *other = o->may_be ? ddl_operand_find(&t->use, o->may_be) : NULL;
    return other && t->block[other - t->use.operand] && same_shape(o, other)
               ? (size_t)(other - t->use.operand)
               : i;
}

/* Allocates operand i, or lets it share another's memory. */
static ddl_status place(struct ddl_trial *t, const struct ddl_trial_plan *plan, size_t i,
                        struct ddl_error *err)
{
    const struct ddl_operand *o = &t->use.operand[i];
    t->shares[i] = plan->shared ? partner(t, i) : i;
    if (t->shares[i] == i)
        t->block[i] = t->backend->ops->alloc(t->backend->ctx, ddl_operand_bytes(o, t->backend) + 2 * GUARD);
    if (!t->block[t->shares[i]])
        return trial_out_of_memory(t, err);
    ddl_operand_set(o, &t->args, t->block[t->shares[i]] + GUARD);
    return DDL_OK;
}

/* Fills the operands that the op reads, or the others. */
static ddl_status fill(struct ddl_trial *t, const struct ddl_trial_plan *plan, bool read,
                       struct ddl_error *err)
{
    ddl_status status = DDL_OK;
    for (size_t i = 0; !status && i < t->use.n; i++) {
        const struct ddl_operand *o = &t->use.operand[i];
        if (t->block[i] && (o->access != DDL_WRITE) == read)
            status = o->element == DDL_ELEMENT_Q8 ? fill_q8(t, i, err) : fill_numbers(t, plan, i, err);
    }
    return status;
}

/* The backward pass of the delta rule expects the readout that the forward pass wrote, and with X_next its
 * result. */
static ddl_status run_delta_forward(struct ddl_trial *t, struct ddl_error *err)
{
    const struct ddl_backend *backend = t->backend;
    const struct ddl_delta_grad_args *a = (const void *)&t->args;
    if (!a->readout)
        return DDL_OK;
    float *X_out =
        a->X_next ? a->X_next : backend->ops->alloc(backend->ctx, a->N * a->d * a->c * sizeof *X_out);
    if (!X_out)
        return trial_out_of_memory(t, err);
    backend->ops->delta_fwd(backend->ctx,
                            &(struct ddl_delta_args){ .N = a->N,
                                                      .d = a->d,
                                                      .c = a->c,
                                                      .steps = a->steps,
                                                      .eps = a->eps,
                                                      .form = a->form,
                                                      .update = a->update,
                                                      .X = a->X_next ? a->X_next : a->X,
                                                      .q = a->q,
                                                      .v = a->v,
                                                      .beta = a->beta,
                                                      .X_out = X_out,
                                                      .readout = (float *)(uintptr_t)a->readout });
    if (!a->X_next) {
        backend->ops->synchronize(backend->ctx);
        backend->ops->free(backend->ctx, X_out);
    }
    return DDL_OK;
}

static bool is_there(const struct ddl_operand *o, const struct ddl_trial_plan *plan)
{
    return !o->optional || !trial_lists(plan->without, o->name);
}

/* Operations, and some operands, depend on which optional operands are there: the pointers of these are set
 * to a placeholder before the description is made. */
static void describe_as_planned(struct ddl_trial *t, const struct ddl_trial_plan *plan)
{
    static const char placeholder = 0;
    ddl_op_describe(plan->op, &t->args, &t->use);
    for (size_t i = 0; i < t->use.n; i++) {
        const struct ddl_operand *o = &t->use.operand[i];
        ddl_operand_set(o, &t->args, is_there(o, plan) ? &placeholder : NULL);
    }
    ddl_op_describe(plan->op, &t->args, &t->use);
    for (size_t i = 0; i < t->use.n; i++)
        ddl_operand_set(&t->use.operand[i], &t->args, NULL);
}

ddl_status ddl_trial_make(struct ddl_trial *t, const struct ddl_backend *backend,
                          const struct ddl_trial_plan *plan, struct ddl_error *err)
{
    size_t size = ddl_op_args_size(plan->op);
    ddl_status status = DDL_OK;
    *t = (struct ddl_trial){ .op = plan->op, .backend = backend };
    memcpy(&t->args, plan->sizes, size);
    describe_as_planned(t, plan);
    for (size_t i = 0; !status && i < t->use.n; i++) {
        if (is_there(&t->use.operand[i], plan))
            status = place(t, plan, i, err);
    }
    if (!status)
        status = fill(t, plan, true, err);
    if (!status && t->op == DDL_OP_delta_bwd)
        status = run_delta_forward(t, err);
    if (!status)
        status = fill(t, plan, false, err);
    return status;
}

void ddl_trial_free(struct ddl_trial *t)
{
    for (size_t i = 0; i < t->use.n; i++) {
        if (t->block[i])
            t->backend->ops->free(t->backend->ctx, t->block[i]);
    }
}

void ddl_trial_call(const struct ddl_trial *t)
{
    ddl_op_call(t->op, t->backend, &t->args);
}

/* ---- results ---- */

unsigned char *trial_fetch(const struct ddl_trial *t, size_t i)
{
    size_t bytes = ddl_operand_bytes(&t->use.operand[i], t->backend) + 2 * GUARD;
    unsigned char *raw = ddl_mem_alloc(bytes);
    if (raw)
        t->backend->ops->download(t->backend->ctx, raw, t->block[t->shares[i]], bytes);
    return raw;
}

const unsigned char *trial_element(const struct ddl_operand *o, const unsigned char *raw, size_t i)
{
    size_t column = i % o->width, row = i / o->width % o->rows, matrix = i / o->width / o->rows;
    return raw + GUARD + (matrix * o->batch_stride + row * o->stride + column) * ddl_element_size(o->element);
}

static double number_at(const struct ddl_operand *o, const unsigned char *raw, size_t i)
{
    const void *at = trial_element(o, raw, i);
    return o->element == DDL_ELEMENT_BF16  ? (double)ddl_bf16_widen(*(const uint16_t *)at)
           : o->element == DDL_ELEMENT_F64 ? *(const double *)at
           : o->element == DDL_ELEMENT_I32 ? (double)*(const int32_t *)at
           : o->element == DDL_ELEMENT_I64 ? (double)*(const int64_t *)at
                                           : (double)*(const float *)at;
}

size_t trial_count(const struct ddl_operand *o)
{
    return o->batch * o->rows * o->width;
}

double *trial_numbers(const struct ddl_trial *t, size_t i)
{
    struct ddl_operand o = t->use.operand[i];
    double *out = ddl_mem_alloc(trial_count(&o) * sizeof *out);
    unsigned char *raw = NULL;
    if (out && o.element == DDL_ELEMENT_Q8) {
        const struct ddl_backend *backend = t->backend;
        size_t bytes = trial_count(&o) * sizeof(float);
        float *x = backend->ops->alloc(backend->ctx, bytes);
        raw = x ? ddl_mem_alloc(bytes + GUARD) : NULL;
        if (raw) {
            backend->ops->dequantize_q8(
                backend->ctx,
                &(struct dequantize_q8_args){
                    .rows = o.rows, .width = o.width, .W = t->block[t->shares[i]] + GUARD, .x = x });
            backend->ops->download(backend->ctx, raw + GUARD, x, bytes);
        }
        if (x)
            backend->ops->free(backend->ctx, x);
        o.element = DDL_ELEMENT_F32, o.stride = o.width;
    } else if (out) {
        raw = trial_fetch(t, i);
    }
    for (size_t j = 0; raw && j < trial_count(&o); j++)
        out[j] = number_at(&o, raw, j);
    if (!raw) {
        ddl_mem_free(out);
        out = NULL;
    }
    ddl_mem_free(raw);
    return out;
}

/* Marks the bytes of the operand's numbers in a map of its block. */
static void mark_numbers(const struct ddl_operand *o, unsigned char *map)
{
    size_t size = ddl_element_size(o->element);
    for (size_t b = 0; b < o->batch; b++) {
        for (size_t r = 0; r < o->rows; r++)
            memset(map + GUARD + (b * o->batch_stride + r * o->stride) * size, 1, o->width * size);
    }
}

ddl_status trial_check_untouched(const struct ddl_trial *t, const struct ddl_trial *before, size_t i,
                                 struct ddl_error *err)
{
    const struct ddl_operand *o = &t->use.operand[i];
    size_t bytes = ddl_operand_bytes(o, t->backend) + 2 * GUARD, at = 0;
    bool writes = o->access & DDL_WRITE;
    if (o->element == DDL_ELEMENT_Q8)
        return DDL_OK; /* its format is the backend's */
    unsigned char *found = trial_fetch(t, i), *expected = trial_fetch(before, i),
                  *map = ddl_mem_zalloc(bytes);
    ddl_status status = found && expected && map ? DDL_OK : trial_out_of_memory(t, err);
    if (!status && writes)
        mark_numbers(o, map);
    while (!status && at < bytes && (map[at] || found[at] == expected[at]))
        at++;
    if (!status && at < bytes)
        status = ddl_error_set(err, DDL_E_NUMERIC, "%s on %s: %s: byte %td was changed: it is %s",
                               ddl_op_name(t->op), t->backend->description, o->name, (ptrdiff_t)at - GUARD,
                               writes ? "outside of the operand's rows" : "of an operand that is only read");
    ddl_mem_free(found);
    ddl_mem_free(expected);
    ddl_mem_free(map);
    return status;
}
