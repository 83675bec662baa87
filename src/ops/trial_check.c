/* The comparison of a backend with "ref". */
#include "base/mem.h"
#include "ops/trial_internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { NUDGES = 4 /* moved copies of the operands that a limit is measured with */ };

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
    case DDL_OP_choose: /* restores the logits, copies them and draws ids */
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
        if (use->operand[i].access & DDL_WRITE && trial_count(&use->operand[i]))
            smallest = fmin(smallest, (double)trial_count(&use->operand[i]));
    }
    return 4 * sqrt(fmax(1, use->flops / smallest));
}

/* The same for the error of rounding operands to TF32, where the call allows it: half a unit of a 10-bit
 * mantissa is 2^12 units of float32, and the number of terms does not matter. */
static double tf32_growth(const struct ddl_trial *t)
{
    return t->op == DDL_OP_matmul && t->args.matmul.tf32 ? 4 * 0x1p12 : 0;
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

/* How much a number has changed from b to a. A change of one unit in the last place of bfloat16 may be a
 * rounding that went the other way, which a limit has in any case: it does not count as amplified. */
static double change(const struct ddl_operand *o, double a, double b)
{
    if (o->element != DDL_ELEMENT_BF16 || b == 0)
        return a - b;
    return fmax(0, fabs(a - b) - ldexp(1, ilogb(b) - 7));
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
        size_t n = trial_count(&moved->use.operand[i]);
        double *a = trial_numbers(moved, i), *b = trial_numbers(&c->expected, i);
        if (!c->spread[i])
            c->spread[i] = ddl_mem_zalloc(n * sizeof *c->spread[i]);
        if (!a || !b || !c->spread[i])
            status = trial_out_of_memory(moved, err);
        for (size_t j = 0; !status && j < n; j++) {
            if (!isfinite(b[j]))
                continue;
            const double moved_by = change(&moved->use.operand[i], a[j], b[j]);
            c->spread[i][j] += weight * moved_by * moved_by;
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

/* Of the finite numbers. */
static double rms(size_t n, const double *x)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += isfinite(x[i]) ? x[i] * x[i] : 0;
    return n ? sqrt(sum / (double)n) : 0;
}

/* What output i was computed from is rounded relative to its own size, or to that of larger terms that cancel
 * (ddl_operand.cancels). */
static ddl_status term_size(const struct ddl_trial_reference *c, size_t i, const double *y, double *size,
                            struct ddl_error *err)
{
    const struct ddl_trial *t = &c->expected;
    ddl_status status = DDL_OK;
    *size = rms(trial_count(&t->use.operand[i]), y);
    for (size_t j = 0; !status && t->use.operand[i].cancels && j < t->use.n; j++) {
        if (!is_output(t, j))
            continue;
        double *other = trial_numbers(t, j);
        if (!other)
            status = trial_out_of_memory(t, err);
        else
            *size = fmax(*size, growth(&t->use) * rms(trial_count(&t->use.operand[j]), other));
        ddl_mem_free(other);
    }
    return status;
}

/* How much rounding the result adds: only its own size counts for bfloat16, in which no term of it was. */
static double rounding(const struct ddl_operand *o, const double *y, double size)
{
    return 0x1p-23 * size + (o->element == DDL_ELEMENT_BF16 ? 0x1p-8 * rms(trial_count(o), y) : 0);
}

/* Root mean square error and limit of output i. */
static ddl_status rate(const struct ddl_trial_reference *c, size_t i, const double *x, const double *y,
                       double *error, double *limit, struct ddl_error *err)
{
    const struct ddl_operand *o = &c->expected.use.operand[i];
    double off = 0, spread = 0, size, n = (double)trial_count(o);
    ddl_status status = term_size(c, i, y, &size, err);
    for (size_t j = 0; j < trial_count(o); j++) {
        double e = x[j] == y[j] || (isnan(y[j]) && isnan(x[j])) ? 0 : x[j] - y[j];
        off += e * e;
        spread += c->spread[i] ? c->spread[i][j] : 0;
    }
    /* Moves of less than half a unit may be rounded to none: counted as if one had been as large. */
    spread += 0x1p-48 * size * size / NUDGES;
    *error = isnan(off) ? (double)INFINITY : sqrt(off / n);
    *limit = is_exact(c->plan.op) || trial_is_integer(o)
                 ? 0
                 : (growth(&c->expected.use) + tf32_growth(&c->expected)) * sqrt(spread / n) +
                       rounding(o, y, size);
    return status;
}

static ddl_status compare_output(struct compared *c, const struct ddl_trial *found, size_t i,
                                 struct ddl_error *err)
{
    const struct ddl_operand *o = &found->use.operand[i];
    double *x = trial_numbers(found, i), *y = trial_numbers(&c->reference->expected, i), error = 0, limit = 0;
    ddl_status status = x && y ? DDL_OK : trial_out_of_memory(found, err);
    if (!status && trial_count(o))
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
            status = trial_check_untouched(&c->found, &c->before, i, err);
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
        unsigned char *x = trial_fetch(a, i), *y = trial_fetch(b, i);
        size_t n = trial_count(o), per_item = one ? n / a->use.items : n, from = one ? item * per_item : 0;
        bool same = x && y;
        for (size_t j = from; same && j < from + per_item; j++)
            same = memcmp(trial_element(o, x, j), trial_element(o, y, j), ddl_element_size(o->element)) == 0;
        if (!x || !y)
            status = trial_out_of_memory(a, err);
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
        memcpy((char *)&alone.args + alone.use.items_offset, &one, sizeof one);
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
    if (use->items < 2 || use->items > most || trial_ragged(&c->found))
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
    reference->plan.drawn = reference->drawn;
    ddl_status status = ddl_trial_make(&reference->expected, ref, &reference->plan, err);
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
    for (size_t i = 0; i < DDL_MOST_OPERANDS; i++) {
        ddl_mem_free(reference->spread[i]);
        ddl_mem_free(reference->drawn[i]);
    }
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
        if (err)
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
