/* A table of calls of every op: the sizes that go into its arguments, and which optional operands are there.
 */
#ifndef DDL_OPS_CASES_H
#define DDL_OPS_CASES_H

#include "ops/trial.h"

/* Sizes that the cases are made from, with the letters of ops/args.h. */
struct ddl_op_sizes {
    size_t B, T, d, c, n, H, h, R, m, V;
    size_t K, K_embed;  /* kernels of the compressor and of the embedding             */
    size_t rows, tile;  /* of logits: rows at a time; columns at a time               */
    size_t iterations;  /* of Sinkhorn's algorithm                                    */
    size_t steps;       /* of the delta rule                                          */
    size_t rank;        /* of laurel                                                  */
    size_t states;      /* of a weighted sum                                          */
    size_t pad;         /* numbers between rows, where an op has strides              */
    int kind;           /* enum ddl_compress                                          */
    size_t n_sequences; /* of the ragged batches                                      */
    const struct ddl_trial_sequence *sequences;
};

/* A case. */
struct ddl_op_case {
    enum ddl_op op;
    const char *label; /* what distinguishes it from other cases of the op: "qkv.fwd"; or NULL    */
    void (*sizes)(void *args, const struct ddl_op_sizes *s, int option);
    int option;          /* passed on                                                                */
    const char *without; /* operands that are left out, as in struct ddl_trial_plan                  */
    bool check_only;     /* not timed: a training step or session does not spend time in it          */
    const char *changed; /* operands with other contents (checks only), and which                    */
    enum ddl_trial_change change;
    bool in_place; /* timed with operands that share memory, as the model calls it             */
};
const struct ddl_op_case *ddl_op_cases(size_t *n);
/* "matmul.qkv.fwd" */
void ddl_op_case_name(const struct ddl_op_case *k, char *text, size_t size);
/* Fills the arguments, and the plan that refers to them. */
void ddl_op_case_plan(const struct ddl_op_case *k, const struct ddl_op_sizes *s, union ddl_op_args *args,
                      struct ddl_trial_plan *plan);

/* Awkward sizes: ones, primes, whole vectors and more, rows apart, an empty batch; i from 0, NULL past the
 * last. */
const struct ddl_op_sizes *ddl_op_awkward_sizes(size_t i);
/* What the backend must reserve for them. */
struct ddl_limits ddl_op_limits(const struct ddl_op_sizes *s);

#endif
