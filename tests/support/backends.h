/* Ops of "cpu" compared with "ref": every instruction set that this machine has, one to three threads.
 * Outputs start as NaN, and a second call gives the same bits. */
#ifndef DDL_TEST_BACKENDS_H
#define DDL_TEST_BACKENDS_H

#include "ops/operands.h"
#include "support/support.h"

typedef void op_call(const struct ddl_backend *backend, const void *args);

/* An output of an op: the address of its pointer in the args. */
struct output {
    float **slot;
    size_t n;
    double limit;         /* of relative_error                                                       */
    const float *initial; /* content before the op; NULL: NaN                                        */
};

/* Runs the op on "ref", then on "cpu" in every way, and compares all outputs. */
void compare_outputs(op_call *call, const void *args, size_t n_outputs, struct output *outputs);
/* The same where the backend has scratch for no more than `limits`. */
void compare_within(const struct ddl_limits *limits, op_call *call, const void *args, size_t n_outputs,
                    struct output *outputs);
#define COMPARE(op, args, outputs)                                                                           \
    compare_outputs(call_##op, &(args), sizeof(outputs) / sizeof *(outputs), outputs)

/* op_call for COMPARE: DEFINE_CALL(rmsnorm_fwd, rmsnorm_args) */
#define DEFINE_CALL(op, args_type)                                                                           \
    static void call_##op(const struct ddl_backend *backend, const void *args)                               \
    {                                                                                                        \
        const struct args_type *a = args;                                                                    \
        backend->ops->op(backend->ctx, a);                                                                   \
    }

/* A "cpu" backend with an instruction set (NULL: the best) and thread count, and enough scratch for these
 * tests; NULL if the machine lacks the set. */
struct ddl_backend *cpu_backend(const char *isa, size_t threads);
struct ddl_backend *cpu_backend_within(const struct ddl_limits *limits, const char *isa, size_t threads);
/* Instruction set i as in DDL_ISA; NULL past the last. */
const char *isa_name(size_t i);
/* Whether a set has all instructions of another. */
bool isa_includes(const char *set, const char *other);

/* Calls fn with every backend of test_backend, "cpu" with each instruction set that this machine has and two
 * threads, and enough scratch. */
typedef void on_backend_fn(ddl_backend *backend);
void on_every_set(on_backend_fn *fn);
/* Leaves an op out of a table. */
void remove_op(struct ddl_ops *ops, enum ddl_op op);

/* Arrays that live until release_all. some_floats: standard normal, another stream for each call. */
float *some_floats(size_t n);
float *floats_around(size_t n, float center, float spread); /* center + spread * some_floats */
uint16_t *some_halves(size_t n);                            /* some_floats rounded to bfloat16 */
uint16_t *halves_around(size_t n, float center, float spread);
void release_all(void);

#endif
