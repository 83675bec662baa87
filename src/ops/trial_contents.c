/* Contents of the operands of trials. */
#include "base/bf16.h"
#include "base/mem.h"
#include "base/rng.h"
#include "ops/trial_internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Nearly normal, in a tenth of the time of ddl_rng_normal: the sum of four uniform numbers, scaled to a
 * variance of 1. */
static float bell_shaped(uint64_t bits)
{
    const uint64_t sum = (bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48);
    return (float)(((double)sum / 65536 - 2) * 1.7320508075688772);
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

enum { RUN = 32 }; /* numbers of one kind in DDL_TRIAL_EXTREME and DDL_TRIAL_DIGITS */

static float extreme(float x, uint64_t i)
{
    static const float sizes[] = { 0, 1e-45f, 3.4e38f }, one[] = { 0, NAN, INFINITY };
    enum { SIZES = sizeof sizes / sizeof *sizes, ONE = sizeof one / sizeof *one, PLACE = 5 };
    uint64_t kind = i / RUN % (SIZES + ONE);
    if (kind < SIZES)
        return copysignf(sizes[kind], x);
    return kind > SIZES && i % RUN == PLACE ? copysignf(one[kind - SIZES], x) : x;
}

static float digits(float x, uint64_t i)
{
    static const float sizes[] = { 0x1.fffffep0f, 0x1.fefefep0f, 0x1.fefep0f, 0x1.feffp0f, 0x1.fdf3b6p0f, 1 };
    return copysignf(sizes[i / RUN % (sizeof sizes / sizeof *sizes)], x);
}

/* x with another lower half, so that its rounding to bfloat16 is a tie or is close to one. */
static float halfway(float x, uint64_t i)
{
    static const uint32_t lower[] = { 0, 1, 0x7fff, 0x8000, 0x8001, 0xffff };
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits & 0xffff0000u) | lower[i % (sizeof lower / sizeof *lower)];
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Number i of an operand that the plan changes. */
static float changed(enum ddl_trial_change change, float x, uint64_t i)
{
    static const float special[] = { 0, -0.0f, 1e-45f, -1e-40f, 1e-38f, 3.4e38f, INFINITY, -INFINITY, NAN };
    enum { SPECIAL = sizeof special / sizeof *special, ZEROS = 5, TIES = 4 };
    switch (change) {
    case DDL_TRIAL_LARGE:
        return 40 * x;
    case DDL_TRIAL_NEGATIVE:
        return -fabsf(40 * x);
    case DDL_TRIAL_TINY:
        return 1e-37f * x;
    case DDL_TRIAL_HUGE:
        return 1e33f * x;
    case DDL_TRIAL_EXTREME:
        return extreme(x, i);
    case DDL_TRIAL_HALFWAY:
        return halfway(x, i);
    case DDL_TRIAL_DIGITS:
        return digits(x, i);
    case DDL_TRIAL_ZEROS:
        return i % ZEROS == 0 ? 0 : x;
    case DDL_TRIAL_TIES:
        return rintf(x * TIES) / TIES;
    default: /* every other number is an ordinary one */
        return i % 2 ? x : special[i / 2 % SPECIAL];
    }
}

bool trial_lists(const char *list, const char *name)
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
const struct ddl_ragged *trial_ragged(const struct ddl_trial *t)
{
    const struct ddl_operand *sequence = ddl_operand_find(&t->use, "ragged.sequence");
    return sequence ? (const void *)((const char *)&t->args + sequence->offset -
                                     offsetof(struct ddl_ragged, sequence))
                    : NULL;
}

static int32_t random_index(const struct ddl_operand *o, uint64_t key, uint64_t i)
{
    enum { IGNORED = 3 }; /* one target in so many is */
    if (o->values != DDL_INDEX && i % IGNORED == 1)
        return -1;
    if (o->values != DDL_DISTINCT)
        return (int32_t)ddl_rng_below(key, i, o->below);
    size_t share = o->below / o->width; /* each place of a row has its own share of the numbers */
    return (int32_t)(i % o->width * share + ddl_rng_below(key, i, share));
}

bool trial_is_integer(const struct ddl_operand *o)
{
    return o->element == DDL_ELEMENT_I32 || o->element == DDL_ELEMENT_I64;
}

static uint64_t key_of(const struct ddl_operand *o)
{
    bool angles = o->values == DDL_COSINE || o->values == DDL_SINE;
    return ddl_rng_key(0, angles ? "angles" : o->name);
}

/* Operand `which` before the plan changes it, kept with the plan for the next call; NULL: it keeps none, or
 * there is no memory. */
static const float *kept_numbers(const struct ddl_trial_plan *plan, const struct ddl_operand *o, size_t which,
                                 size_t n)
{
    if (!plan->drawn || trial_is_integer(o))
        return NULL;
    if (plan->drawn[which])
        return plan->drawn[which];
    const uint64_t key = key_of(o);
    float *numbers = plan->drawn[which] = ddl_mem_alloc(n * sizeof *numbers);
    for (size_t i = 0; numbers && i < n; i++)
        numbers[i] = random_float(o->values, key, i);
    return numbers;
}

void trial_draw(const struct ddl_trial *t, const struct ddl_trial_plan *plan, size_t which, void *to,
                size_t n)
{
    const struct ddl_operand *o = &t->use.operand[which];
    const float *kept = kept_numbers(plan, o, which, n);
    bool moved = plan->nudge && plan->nudged == o->element, changes = trial_lists(plan->changed, o->name);
    const uint64_t key = key_of(o);
    for (size_t i = 0; i < n; i++) {
        float x = kept ? kept[i] : trial_is_integer(o) ? 0 : random_float(o->values, key, i);
        if (o->element == DDL_ELEMENT_I32)
            ((int32_t *)to)[i] = o->values >= DDL_INDEX && o->values <= DDL_DISTINCT
                                     ? random_index(o, key, i)
                                     : ragged_element(o->values, plan, trial_ragged(t), i);
        else if (o->element == DDL_ELEMENT_I64)
            ((int64_t *)to)[i] = part_element(o, i);
        else if (o->element == DDL_ELEMENT_F64)
            ((double *)to)[i] = (double)x;
        else {
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
