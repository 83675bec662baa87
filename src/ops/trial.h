/* Calls of one op with random operands: what `ddl verify --ops`, `ddl bench op` and the op tests run. */
#ifndef DDL_OPS_TRIAL_H
#define DDL_OPS_TRIAL_H

#include "ops/operands.h"

/* A sequence of a ragged batch: tokens of its slot before it, and its rows. */
struct ddl_trial_sequence {
    size_t past, rows;
};

/* Contents that random numbers do not have. */
enum ddl_trial_change {
    DDL_TRIAL_LARGE,    /* 40 times as large, so that exponentials saturate                   */
    DDL_TRIAL_NEGATIVE, /* the same, and negative                                             */
    DDL_TRIAL_TINY,     /* 1e-37 times as large, some of them subnormal                       */
    DDL_TRIAL_HUGE,     /* 1e33 times as large                                                */
    DDL_TRIAL_ZEROS,    /* every fifth number 0                                               */
    DDL_TRIAL_TIES,     /* quarters, many of them equal                                       */
    DDL_TRIAL_SPECIAL,  /* zeros of both signs, subnormal numbers, the largest, infinities, NaN */
    DDL_TRIAL_EXTREME,  /* 32 each of zeros, subnormal numbers, the largest, ordinary ones, and such with
                         * one NaN or one infinity                                            */
    DDL_TRIAL_HALFWAY,  /* near the middle between two numbers in bfloat16, or exactly there  */
    DDL_TRIAL_DIGITS    /* 32 each of sizes near the largest that three signed bytes hold     */
};

/* What is called. */
struct ddl_trial_plan {
    enum ddl_op op;
    const void *sizes;                          /* argument struct; its pointers do not matter             */
    const char *without;                        /* optional operands left NULL: ",k16,v16,"; or NULL       */
    const char *changed;                        /* operands whose contents are changed, likewise           */
    enum ddl_trial_change change;               /* in this way                                             */
    const struct ddl_trial_sequence *sequences; /* as many as the ragged batch has                          */
    bool shared;                                /* operands that may share memory do                        */
    /* Not 0: operands of the element type `nudged` (float32 or bfloat16) are moved by one unit in the last
     * place, in directions that depend on this number. */
    unsigned nudge;
    enum ddl_element nudged;
    /* NULL, or as many as there are operands: random numbers that a trial drew, for the next one with the
     * same plan but for `nudge` and `shared`. Begin as NULL; the caller frees them (ddl_mem_free). */
    float **drawn;
};

/* Size of part i of n in the lists of parts (struct ddl_parts) of trials. */
size_t ddl_trial_part_size(size_t n, size_t total, size_t i);

/* Placed operands. Around and between the rows of each is memory that no op may write; outputs begin as NaN.
 * Contents depend on the plan alone, so they are the same on every backend. */
struct ddl_trial {
    enum ddl_op op;
    const struct ddl_backend *backend;
    struct ddl_op_use use;
    union ddl_op_args args;
    unsigned char *block[DDL_MOST_OPERANDS]; /* of the backend, guards included; NULL: none of its own */
    size_t shares[DDL_MOST_OPERANDS];        /* operand whose memory it is, or its own number          */
};

/* Places the operands; the caller frees them after an error too. DDL_E_MEMORY. */
ddl_status ddl_trial_make(struct ddl_trial *trial, const struct ddl_backend *backend,
                          const struct ddl_trial_plan *plan, struct ddl_error *err);
void ddl_trial_free(struct ddl_trial *trial);
void ddl_trial_call(const struct ddl_trial *trial);

/* What a check found: the operand with the largest error relative to its limit. */
struct ddl_trial_result {
    double error, limit; /* root mean square over the operand; infinite for a NaN */
    char operand[32];
};

/* Compares the op on `backend` with `ref`: every number that it writes; nothing else may change; a second
 * call and operands that share memory give the same; items that do not depend on others have the same bits
 * alone.
 *
 * The limit of an error: moving every float32 operand by a unit in its last place (and every bfloat16
 * operand by as little; zeros stay) changes the result of `ref` by some amount, which says how much the
 * quantity amplifies roundings. A move that the result of `ref` is too coarse to show counts as half a unit
 * in its last place; a change by one unit of bfloat16 does not count, it may be a rounding to the other
 * side. A float32 sum of K terms is off by sqrt(K) times as much, with a factor of 4 for the spread of
 * errors; and the result is rounded once. A product whose operands may be rounded to TF32 may be off by 4
 * times what moving them by half a unit of TF32 changes. A result in bfloat16 may be off by a unit in its
 * last place. What only moves or converts numbers must have the exact bits. DDL_E_NUMERIC with a message,
 * also where a result of `ref` is finite only without the move; DDL_E_MEMORY, DDL_E_DEVICE. */
ddl_status ddl_trial_check(const struct ddl_trial_plan *plan, const struct ddl_backend *backend,
                           const struct ddl_backend *ref, struct ddl_trial_result *result,
                           struct ddl_error *err);

/* The same in two steps, for several backends: what `ref` computes, and how much its results move. */
struct ddl_trial_reference {
    struct ddl_trial_plan plan;
    struct ddl_trial expected;
    double *spread[DDL_MOST_OPERANDS]; /* mean squares of what moved operands changed, a number; or NULL */
    float *drawn[DDL_MOST_OPERANDS];   /* those of the plan */
};
/* The caller frees it after an error too. */
ddl_status ddl_trial_expect(struct ddl_trial_reference *reference, const struct ddl_backend *ref,
                            const struct ddl_trial_plan *plan, struct ddl_error *err);
void ddl_trial_reference_free(struct ddl_trial_reference *reference);
ddl_status ddl_trial_compare(const struct ddl_trial_reference *reference, const struct ddl_backend *backend,
                             struct ddl_trial_result *result, struct ddl_error *err);

#endif
