#define _POSIX_C_SOURCE 200809L
#include "support/backends.h"
#include "support/stress.h"

#include "base/bf16.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_BLOCKS = 4096, MOST_OUTPUTS = 9, MOST_THREADS = 3 };

static float *blocks[MOST_BLOCKS];
static size_t n_blocks;

static float *keep(float *x)
{
    assert_non_null(x);
    assert_true(n_blocks < MOST_BLOCKS);
    return blocks[n_blocks++] = x;
}

float *some_floats(size_t n)
{
    static uint64_t stream;
    return keep(random_floats(n, stream++));
}

float *floats_around(size_t n, float center, float spread)
{
    float *x = some_floats(n);
    for (size_t i = 0; i < n; i++)
        x[i] = center + spread * x[i];
    return x;
}

uint16_t *halves_around(size_t n, float center, float spread)
{
    float *x = floats_around(n, center, spread);
    uint16_t *y = (uint16_t *)(void *)x; /* in place: y[i] is written after x[i / 2] was read */
    for (size_t i = 0; i < n; i++)
        y[i] = ddl_bf16_round(x[i]);
    return y;
}

void release_all(void)
{
    while (n_blocks)
        ddl_mem_free(blocks[--n_blocks]);
}

uint16_t *some_halves(size_t n)
{
    return halves_around(n, 0, 1);
}

const char *isa_name(size_t i)
{
    static const char *const names[] = { "baseline", "avx2", "avx512", "avx512vnni", "avx512bf16", "amx" };
    return i < sizeof names / sizeof *names ? names[i] : NULL;
}

bool isa_includes(const char *set, const char *other)
{
    for (size_t i = 0; isa_name(i) && strcmp(isa_name(i), set) != 0; i++) {
        if (strcmp(isa_name(i), other) == 0)
            return true;
    }
    return strcmp(set, other) == 0;
}

/* Enough for all of these tests. */
static const struct ddl_limits enough = { .summed = 1 << 16, .T = 2048, .h = 256, .K = 4096 };

struct ddl_backend *cpu_backend_within(const struct ddl_limits *limits, const char *isa, size_t threads)
{
    struct ddl_backend *backend;
    struct ddl_error err;
    if (isa)
        setenv("DDL_ISA", isa, 1);
    else
        unsetenv("DDL_ISA");
    ddl_status status = ddl_backend_create(&backend, "cpu", threads, &err);
    unsetenv("DDL_ISA");
    if (status && isa && strcmp(isa, "baseline") != 0)
        return NULL;
    assert_ok(status, err);
    assert_ok(backend->ops->reserve(backend->ctx, limits, &err), err);
    return backend;
}

struct ddl_backend *cpu_backend(const char *isa, size_t threads)
{
    return cpu_backend_within(&enough, isa, threads);
}

void remove_op(struct ddl_ops *ops, enum ddl_op op)
{
#define REMOVE(name, args)                                                                                   \
    if (op == DDL_OP_##name)                                                                                 \
        ops->name = NULL;
    DDL_OPS(REMOVE)
#undef REMOVE
}

void on_every_set(on_backend_fn *fn)
{
    for (size_t b = 0; test_backend(b); b++) {
        bool is_cpu = strcmp(test_backend(b), "cpu") == 0;
        for (size_t i = 0; is_cpu ? isa_name(i) != NULL : i < 1; i++) {
            struct ddl_backend *backend = NULL;
            struct ddl_error err;
            if (is_cpu)
                backend = cpu_backend(isa_name(i), 2);
            else
                assert_ok(ddl_backend_create(&backend, test_backend(b), 2, &err), err);
            if (!backend) /* the machine lacks the set */
                continue;
            if (!is_cpu) /* cpu_backend has reserved it */
                assert_ok(backend->ops->reserve(backend->ctx, &enough, &err), err);
            fn(backend);
            ddl_backend_free(backend);
        }
    }
}

static float *filled(const struct output *o)
{
    float *x = poisoned_floats(o->n);
    assert_non_null(x);
    if (o->initial && o->n)
        memcpy(x, o->initial, o->n * sizeof *x);
    return x;
}

static void run(op_call *call, const struct ddl_backend *backend, const void *args, size_t n,
                struct output *outputs, float **results)
{
    for (size_t i = 0; i < n; i++)
        *outputs[i].slot = results[i] = filled(&outputs[i]);
    call(backend, args);
}

static void compare_with(const struct ddl_backend *backend, op_call *call, const void *args, size_t n,
                         struct output *outputs, float **expected)
{
    float *found[MOST_OUTPUTS], *again[MOST_OUTPUTS];
    run(call, backend, args, n, outputs, found);
    stress_begin();
    run(call, backend, args, n, outputs, again);
    stress_end();
    for (size_t i = 0; i < n; i++) {
        double error = relative_error(outputs[i].n, found[i], expected[i]);
        if (!(error <= outputs[i].limit))
            fail_msg("%s: output %zu (%zu numbers): error %.3g, limit %.3g", backend->description, i,
                     outputs[i].n, error, outputs[i].limit);
        if (outputs[i].n)
            assert_memory_equal(found[i], again[i], outputs[i].n * sizeof **found);
        ddl_mem_free(found[i]);
        ddl_mem_free(again[i]);
    }
}

void compare_within(const struct ddl_limits *limits, op_call *call, const void *args, size_t n,
                    struct output *outputs)
{
    float *expected[MOST_OUTPUTS];
    struct ddl_backend *ref;
    struct ddl_error err;
    assert_true(n <= MOST_OUTPUTS);
    assert_ok(ddl_backend_create(&ref, "ref", 1, &err), err);
    run(call, ref, args, n, outputs, expected);
    ddl_backend_free(ref);
    for (size_t i = 0; isa_name(i); i++) {
        for (size_t threads = 1; threads <= MOST_THREADS; threads++) {
            struct ddl_backend *backend = cpu_backend_within(limits, isa_name(i), threads);
            if (!backend)
                continue;
            compare_with(backend, call, args, n, outputs, expected);
            ddl_backend_free(backend);
        }
    }
    for (size_t i = 0; i < n; i++)
        ddl_mem_free(expected[i]);
}

void compare_outputs(op_call *call, const void *args, size_t n, struct output *outputs)
{
    compare_within(&enough, call, args, n, outputs);
}
