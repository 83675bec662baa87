#include "ops/trial.h"

#include "base/bf16.h"
#include "base/mem.h"
#include "base/rng.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    GUARD = 64,      /* bytes before and after an operand */
    PATTERN = 65521, /* numbers after which contents repeat; a prime, so that rows differ */
    NUDGES = 4,      /* moved copies of the operands that a limit is measured with */
    UNTOUCHED = 0xff
};

static ddl_status out_of_memory(const struct ddl_trial *t, struct ddl_error *err)
{
    return ddl_error_set(err, DDL_E_MEMORY, "op %s: out of memory for its operands", ddl_op_name(t->op));
}

/* ---- contents ---- */

/* Nearly normal, in a tenth of the time of ddl_rng_normal: the sum of four uniform numbers, scaled to a
 * variance of 1. */
static float bell_shaped(uint64_t bits)
{
    double sum = 0;
    for (unsigned i = 0; i < 4; i++, bits >>= 16)
        sum += (double)(bits & 0xffff) / 65536;
    return (float)((sum - 2) * 1.7320508075688772);
}

static float random_float(enum ddl_contents values, uint64_t key, uint64_t i)
{
    static const double turn = 6.283185307179586;
    switch (values) {
    case DDL_POSITIVE:
        return (float)(0.75 + 0.5 * ddl_rng_uniform(key, i));
    case DDL_GATE:
        return (float)(2 * ddl_rng_uniform(key, i));
    case DDL_SHARE:
        return (float)ddl_rng_uniform(key, i);
    case DDL_COSINE:
        return (float)cos(turn * ddl_rng_uniform(key, i));
    case DDL_SINE:
        return (float)sin(turn * ddl_rng_uniform(key, i));
    case DDL_TOTAL:
        return (float)(100 + 100 * ddl_rng_uniform(key, i));
    default:
        return bell_shaped(ddl_rng_u64(key, i));
    }
}

/* Number i of an operand that the plan changes. */
static float changed(enum ddl_trial_change change, float x, uint64_t i)
{
    static const float special[] = { 0, -0.0f, 1e-45f, -1e-40f, 1e-38f, 3.4e38f, INFINITY, -INFINITY, NAN };
    enum { SPECIAL = sizeof special / sizeof *special, ZEROS = 5, TIES = 4, RUN = 32, KINDS = 4 };
    static const float extreme[KINDS] = { 0, 1e-45f, 3.4e38f };
    switch (change) {
    case DDL_TRIAL_LARGE:
        return 40 * x;
    case DDL_TRIAL_NEGATIVE:
        return -fabsf(40 * x);
    case DDL_TRIAL_TINY:
        return 1e-30f * x;
    case DDL_TRIAL_HUGE:
        return 1e30f * x;
    case DDL_TRIAL_EXTREME:
        return i / RUN % KINDS == KINDS - 1 ? x : copysignf(extreme[i / RUN % KINDS], x);
    case DDL_TRIAL_ZEROS:
        return i % ZEROS == 0 ? 0 : x;
    case DDL_TRIAL_TIES:
        return rintf(x * TIES) / TIES;
    default: /* every other number is an ordinary one */
        return i % 2 ? x : special[i / 2 % SPECIAL];
    }
}

static bool is_listed(const char *list, const char *name)
{
    char word[40];
    snprintf(word, sizeof word, ",%s,", name);
    return list && strstr(list, word);
}

/* x moved by one unit in its last place, up or down, but 0 not; the same for the bits of a number in
 * bfloat16. */
static float nudged(float x, unsigned nudge, uint64_t i)
{
    return x == 0 ? x : nextafterf(x, ddl_rng_u64(nudge, i) & 1 ? INFINITY : -INFINITY);
}

static uint16_t nudged_bf16(uint16_t x, unsigned nudge, uint64_t i)
{
    return (uint16_t)(!(x & 0x7fff) ? x : ddl_rng_u64(nudge, i) & 1 ? x + 1 : x - 1);
}

size_t ddl_trial_part_size(size_t n, size_t total, size_t i)
{
    size_t whole = (i + 1) * total / n - i * total / n;
    return whole && i % 2 ? whole - 1 : whole;
}

/* Element i of an array of struct ddl_parts. */
static int64_t part_element(const struct ddl_operand *o, size_t i)
{
    enum { COPIED = 3 }; /* one part in so many has no copy */
    if (o->values == DDL_PART_SIZE)
        return (int64_t)ddl_trial_part_size(o->width, o->below, i);
    return o->values == DDL_PART_COPY && i % COPIED == 1 ? -1 : (int64_t)(i * o->below / o->width);
}

/* Element i of an array of struct ddl_ragged. Histories: 2 slot + 1 is read, 2 slot written; slots are given
 * out from the last. */
static int32_t ragged_element(enum ddl_contents values, const struct ddl_trial_plan *plan,
                              const struct ddl_ragged *r, size_t i)
{
    size_t b = 0, first = 0, by_row = values == DDL_SEQUENCE || values == DDL_POSITION;
    while (by_row ? first + plan->sequences[b].rows <= i : b < i)
        first += plan->sequences[b++].rows;
    size_t slot = r->slots - 1 - b;
    switch (values) {
    case DDL_SEQUENCE:
        return (int32_t)b;
    case DDL_POSITION:
        return (int32_t)(plan->sequences[b].past + i - first);
    case DDL_FIRST:
        return (int32_t)first;
    case DDL_PAST:
        return (int32_t)plan->sequences[b].past;
    case DDL_SLOT:
        return (int32_t)slot;
    case DDL_FROM:
        return (int32_t)(2 * slot + 1);
    default:
        return (int32_t)(2 * slot);
    }
}

/* The ragged batch among the arguments: its first array is at a known place. */
static const struct ddl_ragged *ragged_of(const struct ddl_trial *t)
{
    const struct ddl_operand *sequence = ddl_operand_find(&t->use, "ragged.sequence");
    return sequence ? (const void *)((const char *)&t->args + sequence->slot -
                                     offsetof(struct ddl_ragged, sequence))
                    : NULL;
}

static int32_t random_index(const struct ddl_operand *o, uint64_t key, uint64_t i)
{
    enum { IGNORED = 3 }; /* one target in so many is */
    return o->values == DDL_TARGET && i % IGNORED == 1 ? -1 : (int32_t)ddl_rng_below(key, i, o->below);
}

/* n random numbers of an operand, contiguous. */
static void draw(const struct ddl_trial *t, const struct ddl_trial_plan *plan, const struct ddl_operand *o,
                 void *to, size_t n)
{
    bool moved = plan->nudge && plan->nudged == o->element, changes = is_listed(plan->changed, o->name);
    bool angles = o->values == DDL_COSINE || o->values == DDL_SINE;
    uint64_t key = ddl_rng_key(0, angles ? "angles" : o->name);
    for (size_t i = 0; i < n; i++) {
        if (o->element == DDL_ELEMENT_I32)
            ((int32_t *)to)[i] = o->values == DDL_INDEX || o->values == DDL_TARGET
                                     ? random_index(o, key, i)
                                     : ragged_element(o->values, plan, ragged_of(t), i);
        else if (o->element == DDL_ELEMENT_I64)
            ((int64_t *)to)[i] = part_element(o, i);
        else if (o->element == DDL_ELEMENT_F64)
            ((double *)to)[i] = (double)random_float(o->values, key, i);
        else {
            float x = random_float(o->values, key, i);
            x = changes ? changed(plan->change, x, i) : x;
            if (o->element == DDL_ELEMENT_F32)
                ((float *)to)[i] = x;
            else
                ((uint16_t *)to)[i] = ddl_bf16_round(x);
        }
        if (moved && o->element == DDL_ELEMENT_F32)
            ((float *)to)[i] = nudged(((float *)to)[i], plan->nudge, i);
        else if (moved)
            ((uint16_t *)to)[i] = nudged_bf16(((uint16_t *)to)[i], plan->nudge, i);
    }
}

/* ---- placing ---- */

static bool is_integer(const struct ddl_operand *o)
{
    return o->element == DDL_ELEMENT_I32 || o->element == DDL_ELEMENT_I64;
}

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
    size_t all = o->batch * o->rows * o->width, n = all < PATTERN || is_integer(o) ? all : PATTERN;
    size_t bytes = ddl_operand_bytes(o, t->backend) + 2 * GUARD;
    unsigned char *raw = ddl_mem_alloc(bytes), *numbers = ddl_mem_alloc(n * ddl_element_size(o->element));
    ddl_status status = raw && numbers ? DDL_OK : out_of_memory(t, err);
    if (!status) {
        memset(raw, UNTOUCHED, bytes);
        if (o->access != DDL_WRITE && n) {
            draw(t, plan, o, numbers, n);
            scatter(o, numbers, n, raw);
        }
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
        return out_of_memory(t, err);
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
        return out_of_memory(t, err);
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
        return out_of_memory(t, err);
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
    return !o->optional || !is_listed(plan->without, o->name);
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

/* The block of operand i on the host, guards included; NULL: no memory. Free with ddl_mem_free. */
static unsigned char *fetch(const struct ddl_trial *t, size_t i)
{
    size_t bytes = ddl_operand_bytes(&t->use.operand[i], t->backend) + 2 * GUARD;
    unsigned char *raw = ddl_mem_alloc(bytes);
    if (raw)
        t->backend->ops->download(t->backend->ctx, raw, t->block[t->shares[i]], bytes);
    return raw;
}

static const unsigned char *element_at(const struct ddl_operand *o, const unsigned char *raw, size_t i)
{
    size_t column = i % o->width, row = i / o->width % o->rows, matrix = i / o->width / o->rows;
    return raw + GUARD + (matrix * o->batch_stride + row * o->stride + column) * ddl_element_size(o->element);
}

static double number_at(const struct ddl_operand *o, const unsigned char *raw, size_t i)
{
    const void *at = element_at(o, raw, i);
    return o->element == DDL_ELEMENT_BF16  ? (double)ddl_bf16_widen(*(const uint16_t *)at)
           : o->element == DDL_ELEMENT_F64 ? *(const double *)at
           : o->element == DDL_ELEMENT_I32 ? (double)*(const int32_t *)at
           : o->element == DDL_ELEMENT_I64 ? (double)*(const int64_t *)at
                                           : (double)*(const float *)at;
}

static size_t count(const struct ddl_operand *o)
{
    return o->batch * o->rows * o->width;
}

/* Operand i as doubles; an 8-bit matrix dequantized. NULL: no memory. */
static double *numbers_of(const struct ddl_trial *t, size_t i)
{
    struct ddl_operand o = t->use.operand[i];
    double *out = ddl_mem_alloc(count(&o) * sizeof *out);
    unsigned char *raw = NULL;
    if (out && o.element == DDL_ELEMENT_Q8) {
        const struct ddl_backend *backend = t->backend;
        size_t bytes = count(&o) * sizeof(float);
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
        raw = fetch(t, i);
    }
    for (size_t j = 0; raw && j < count(&o); j++)
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

/* Whether the op left what it may not write: all of an operand that is only read, what lies around and
 * between the rows of another. `before` is the same operand of a trial that was not called. */
static ddl_status check_untouched(const struct ddl_trial *t, const struct ddl_trial *before, size_t i,
                                  struct ddl_error *err)
{
    const struct ddl_operand *o = &t->use.operand[i];
    size_t bytes = ddl_operand_bytes(o, t->backend) + 2 * GUARD, at = 0;
    bool writes = o->access & DDL_WRITE;
    if (o->element == DDL_ELEMENT_Q8)
        return DDL_OK; /* its format is the backend's */
    unsigned char *found = fetch(t, i), *expected = fetch(before, i), *map = ddl_mem_zalloc(bytes);
    ddl_status status = found && expected && map ? DDL_OK : out_of_memory(t, err);
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

/* ---- the check ---- */

/* What only moves or converts numbers. */
static bool is_exact(enum ddl_op op)
{
    switch (op) {
    case DDL_OP_copy:
    case DDL_OP_copy_bf16:
    case DDL_OP_cache_append:
    case DDL_OP_history_push:
    case DDL_OP_cast_bf16:
    case DDL_OP_widen_bf16:
    case DDL_OP_quantize_q8:
    case DDL_OP_dequantize_q8:
    case DDL_OP_gather_q8:
    case DDL_OP_gather:
    case DDL_OP_gather_bf16:
    case DDL_OP_fill:
        return true;
    default:
        return false;
    }
}

/* How many times as large the error of a float32 sum may be as that of rounding its terms: the square root of
 * their number, which is at most the operations of the call for each number of its smallest output; times 4,
 * the spread of errors. */
static double growth(const struct ddl_op_use *use)
{
    double smallest = INFINITY;
    for (size_t i = 0; i < use->n; i++) {
        if (use->operand[i].access & DDL_WRITE && count(&use->operand[i]))
            smallest = fmin(smallest, (double)count(&use->operand[i]));
    }
    return 4 * sqrt(fmax(1, use->flops / smallest));
}

/* Results of the calls that a check compares. */
struct compared {
    const struct ddl_trial_reference *reference;
    const struct ddl_backend *backend;
    struct ddl_trial found, before;
    struct ddl_trial_result *result;
};

static bool is_output(const struct ddl_trial *t, size_t i)
{
    return ddl_operand_get(&t->use.operand[i], &t->args) && t->use.operand[i].access & DDL_WRITE;
}

/* Adds the squares of what moved operands changed in every output, times `weight`. A number that is finite
 * only without the move has no limit: DDL_E_NUMERIC. */
static ddl_status add_spread(struct ddl_trial_reference *c, const struct ddl_trial *moved, double weight,
                             struct ddl_error *err)
{
    ddl_status status = DDL_OK;
    for (size_t i = 0; !status && i < moved->use.n; i++) {
        if (!is_output(moved, i))
            continue;
        size_t n = count(&moved->use.operand[i]);
        double *a = numbers_of(moved, i), *b = numbers_of(&c->expected, i);
        if (!c->spread[i])
            c->spread[i] = ddl_mem_zalloc(n * sizeof *c->spread[i]);
        if (!a || !b || !c->spread[i])
            status = out_of_memory(moved, err);
        for (size_t j = 0; !status && j < n; j++) {
            if (!isfinite(b[j]))
                continue;
            c->spread[i][j] += weight * (a[j] - b[j]) * (a[j] - b[j]);
            if (!isfinite(a[j]))
                status = ddl_error_set(err, DDL_E_NUMERIC, "%s: %s: number %zu is %g for moved operands",
                                       ddl_op_name(moved->op), moved->use.operand[i].name, j, a[j]);
        }
        ddl_mem_free(a);
        ddl_mem_free(b);
    }
    return status;
}

static bool reads(const struct ddl_trial *t, enum ddl_element element)
{
    for (size_t i = 0; i < t->use.n; i++) {
        const struct ddl_operand *o = &t->use.operand[i];
        if (o->element == element && o->access & DDL_READ && ddl_operand_get(o, &t->args))
            return true;
    }
    return false;
}

/* A unit in the last place of bfloat16 is 2^16 units of float32, and what small moves change is proportional
 * to them. */
static ddl_status measure_spread(struct ddl_trial_reference *c, enum ddl_element moved_element,
                                 struct ddl_error *err)
{
    double unit = moved_element == DDL_ELEMENT_BF16 ? 0x1p-16 : 1;
    ddl_status status = DDL_OK;
    for (unsigned nudge = 1; !status && nudge <= NUDGES && reads(&c->expected, moved_element); nudge++) {
        struct ddl_trial_plan plan = c->plan;
        struct ddl_trial moved;
        plan.nudge = nudge;
        plan.nudged = moved_element;
        status = ddl_trial_make(&moved, c->expected.backend, &plan, err);
        if (!status) {
            ddl_trial_call(&moved);
            status = add_spread(c, &moved, unit * unit / NUDGES, err);
        }
        ddl_trial_free(&moved);
    }
    return status;
}

static double rms(size_t n, const double *x)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += isnan(x[i]) ? 0 : x[i] * x[i];
    return n ? sqrt(sum / (double)n) : 0;
}

/* What output i was computed from is rounded relative to its own size, or to that of larger terms that cancel
 * (ddl_operand.cancels). */
static ddl_status term_size(const struct ddl_trial_reference *c, size_t i, const double *y, double *size,
                            struct ddl_error *err)
{
    const struct ddl_trial *t = &c->expected;
    ddl_status status = DDL_OK;
    *size = rms(count(&t->use.operand[i]), y);
    for (size_t j = 0; !status && t->use.operand[i].cancels && j < t->use.n; j++) {
        if (!is_output(t, j))
            continue;
        double *other = numbers_of(t, j);
        if (!other)
            status = out_of_memory(t, err);
        else
            *size = fmax(*size, growth(&t->use) * rms(count(&t->use.operand[j]), other));
        ddl_mem_free(other);
    }
    return status;
}

static double rounding_of(const struct ddl_operand *o)
{
    return o->element == DDL_ELEMENT_BF16 ? 0x1p-8 : 0x1p-23;
}

/* Root mean square error and limit of output i. */
static ddl_status rate(const struct ddl_trial_reference *c, size_t i, const double *x, const double *y,
                       double *error, double *limit, struct ddl_error *err)
{
    const struct ddl_operand *o = &c->expected.use.operand[i];
    double off = 0, spread = 0, size, n = (double)count(o);
    ddl_status status = term_size(c, i, y, &size, err);
    for (size_t j = 0; j < count(o); j++) {
        double e = x[j] == y[j] || (isnan(y[j]) && isnan(x[j])) ? 0 : x[j] - y[j];
        off += e * e;
        spread += c->spread[i] ? c->spread[i][j] : 0;
    }
    /* Moves of less than half a unit may be rounded to none: counted as if one had been as large. */
    spread += 0x1p-48 * size * size / NUDGES;
    *error = isnan(off) ? (double)INFINITY : sqrt(off / n);
    *limit = is_exact(c->plan.op) || is_integer(o)
                 ? 0
                 : growth(&c->expected.use) * sqrt(spread / n) + rounding_of(o) * size;
    return status;
}

static ddl_status compare_output(struct compared *c, const struct ddl_trial *found, size_t i,
                                 struct ddl_error *err)
{
    const struct ddl_operand *o = &found->use.operand[i];
    double *x = numbers_of(found, i), *y = numbers_of(&c->reference->expected, i), error = 0, limit = 0;
    ddl_status status = x && y ? DDL_OK : out_of_memory(found, err);
    if (!status && count(o))
        status = rate(c->reference, i, x, y, &error, &limit, err);
    ddl_mem_free(x);
    ddl_mem_free(y);
    if (!status && !(error <= limit))
        status = ddl_error_set(err, DDL_E_NUMERIC, "%s on %s: %s: error %.3g, limit %.3g",
                               ddl_op_name(found->op), found->backend->description, o->name, error, limit);
    if (error > 0 && error * c->result->limit >= c->result->error * limit) {
        *c->result = (struct ddl_trial_result){ .error = error, .limit = limit };
        snprintf(c->result->operand, sizeof c->result->operand, "%s", o->name);
    }
    return status;
}

static ddl_status compare_outputs(struct compared *c, const struct ddl_trial *found, struct ddl_error *err)
{
    ddl_status status = DDL_OK;
    for (size_t i = 0; !status && i < found->use.n; i++) {
        if (is_output(found, i))
            status = compare_output(c, found, i, err);
    }
    return status;
}

static ddl_status check_all_untouched(const struct compared *c, struct ddl_error *err)
{
    ddl_status status = DDL_OK;
    for (size_t i = 0; !status && i < c->found.use.n; i++) {
        if (ddl_operand_get(&c->found.use.operand[i], &c->found.args))
            status = check_untouched(&c->found, &c->before, i, err);
    }
    return status;
}

/* Bits of an output of two calls on the backend; of one item where `item` is below the number of items. */
static ddl_status compare_bits(const struct ddl_trial *a, const struct ddl_trial *b, size_t item,
                               const char *what, struct ddl_error *err)
{
    ddl_status status = DDL_OK;
    for (size_t i = 0; !status && i < a->use.n; i++) {
        const struct ddl_operand *o = &a->use.operand[i];
        bool one = item < a->use.items;
        if (!is_output(a, i) || o->element == DDL_ELEMENT_Q8 || (one && !o->item_stride))
            continue;
        unsigned char *x = fetch(a, i), *y = fetch(b, i);
        size_t n = count(o), per_item = one ? n / a->use.items : n, from = one ? item * per_item : 0;
        bool same = x && y;
        for (size_t j = from; same && j < from + per_item; j++)
            same = memcmp(element_at(o, x, j), element_at(o, y, j), ddl_element_size(o->element)) == 0;
        if (!x || !y)
            status = out_of_memory(a, err);
        else if (!same)
            status = ddl_error_set(err, DDL_E_NUMERIC, "%s on %s: %s: other bits %s", ddl_op_name(a->op),
                                   a->backend->description, o->name, what);
        ddl_mem_free(x);
        ddl_mem_free(y);
    }
    return status;
}

/* Calls the op again: with the same operands, or with operands that share memory where they may. */
static ddl_status check_again(struct compared *c, bool shared, struct ddl_error *err)
{
    struct ddl_trial_plan plan = c->reference->plan;
    struct ddl_trial again;
    plan.shared = shared;
    ddl_status status = ddl_trial_make(&again, c->backend, &plan, err);
    if (!status) {
        ddl_trial_call(&again);
        status = shared ? compare_outputs(c, &again, err)
                        : compare_bits(&c->found, &again, SIZE_MAX, "in a second call", err);
    }
    ddl_trial_free(&again);
    return status;
}

/* Calls the op for one item alone: the operands of all are placed, and the arguments name the one. */
static ddl_status check_item(const struct compared *c, size_t item, struct ddl_error *err)
{
    struct ddl_trial alone;
    const size_t one = 1;
    ddl_status status = ddl_trial_make(&alone, c->backend, &c->reference->plan, err);
    if (!status) {
        for (size_t i = 0; i < alone.use.n; i++) {
            const struct ddl_operand *o = &alone.use.operand[i];
            unsigned char *at = ddl_operand_get(o, &alone.args);
            if (at && o->item_stride)
                ddl_operand_set(o, &alone.args, at + item * o->item_stride * ddl_element_size(o->element));
        }
        memcpy((char *)&alone.args + alone.use.item_slot, &one, sizeof one);
        ddl_trial_call(&alone);
        status = compare_bits(&c->found, &alone, item, "than without the other rows", err);
    }
    ddl_trial_free(&alone);
    return status;
}

static ddl_status check_items(const struct compared *c, struct ddl_error *err)
{
    const struct ddl_op_use *use = &c->found.use;
    size_t most = use->contract == DDL_ALONE          ? SIZE_MAX
                  : use->contract == DDL_ALONE_IF_FEW ? c->backend->ops->step_rows
                                                      : 0;
    ddl_status status = DDL_OK;
    if (use->items < 2 || use->items > most || ragged_of(&c->found))
        return DDL_OK;
    const size_t items[] = { 0, use->items / 2, use->items - 1 };
    for (size_t i = 0; !status && i < 3; i++)
        status = check_item(c, items[i], err);
    return status;
}

ddl_status ddl_trial_expect(struct ddl_trial_reference *reference, const struct ddl_backend *ref,
                            const struct ddl_trial_plan *plan, struct ddl_error *err)
{
    *reference = (struct ddl_trial_reference){ .plan = *plan };
    ddl_status status = ddl_trial_make(&reference->expected, ref, plan, err);
    if (status)
        return status;
    ddl_trial_call(&reference->expected);
    if (!is_exact(plan->op))
        status = measure_spread(reference, DDL_ELEMENT_F32, err);
    if (!status && !is_exact(plan->op))
        status = measure_spread(reference, DDL_ELEMENT_BF16, err);
    return status;
}

void ddl_trial_reference_free(struct ddl_trial_reference *reference)
{
    ddl_trial_free(&reference->expected);
    for (size_t i = 0; i < DDL_MOST_OPERANDS; i++)
        ddl_mem_free(reference->spread[i]);
}

static ddl_status check(struct compared *c, struct ddl_error *err)
{
    ddl_status status = ddl_trial_make(&c->before, c->backend, &c->reference->plan, err);
    if (!status)
        status = ddl_trial_make(&c->found, c->backend, &c->reference->plan, err);
    if (status)
        return status;
    ddl_trial_call(&c->found);
    status = compare_outputs(c, &c->found, err);
    if (!status)
        status = check_all_untouched(c, err);
    if (!status)
        status = check_again(c, false, err);
    if (!status)
        status = check_again(c, true, err);
    return status ? status : check_items(c, err);
}

ddl_status ddl_trial_compare(const struct ddl_trial_reference *reference, const struct ddl_backend *backend,
                             struct ddl_trial_result *result, struct ddl_error *err)
{
    struct compared c = { .reference = reference, .backend = backend, .result = result };
    *result = (struct ddl_trial_result){ 0 };
    struct ddl_error failure;
    ddl_status status = check(&c, err), failed = backend->ops->check_error(backend->ctx, &failure);
    if (failed) { /* explains whatever was found */
        status = failed;
        *err = failure;
    }
    ddl_trial_free(&c.found);
    ddl_trial_free(&c.before);
    return status;
}

ddl_status ddl_trial_check(const struct ddl_trial_plan *plan, const struct ddl_backend *backend,
                           const struct ddl_backend *ref, struct ddl_trial_result *result,
                           struct ddl_error *err)
{
    struct ddl_trial_reference reference;
    *result = (struct ddl_trial_result){ 0 };
    ddl_status status = ddl_trial_expect(&reference, ref, plan, err);
    if (!status)
        status = ddl_trial_compare(&reference, backend, result, err);
    ddl_trial_reference_free(&reference);
    return status;
}
