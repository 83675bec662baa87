/* ops/trial.c: what is wrong with an op is found, whatever it is; every case of every op passes on "ref", and
 * on "cpu" with every instruction set. */
#include "support/backends.h"

#include "base/bf16.h"
#include "ops/cases.h"
#include "support/files.h"

#include <string.h>

static const struct ddl_ops *real;

/* rmsnorm_fwd with one fault each. */
static void one_number_is_wrong(void *ctx, const struct rmsnorm_args *a)
{
    real->rmsnorm_fwd(ctx, a);
    if (a->N > 0 && a->d > 0)
        a->y[0] *= 1.001f;
}

static void one_number_is_not_written(void *ctx, const struct rmsnorm_args *a)
{
    struct rmsnorm_args fewer = *a;
    fewer.N = a->N ? a->N - 1 : 0;
    real->rmsnorm_fwd(ctx, &fewer);
}

static void the_number_behind_is_written(void *ctx, const struct rmsnorm_args *a)
{
    real->rmsnorm_fwd(ctx, a);
    a->y[a->N * a->d] = 0;
}

static void a_row_behind_is_normalized(void *ctx, const struct rmsnorm_args *a)
{
    struct rmsnorm_args more = *a;
    more.N = a->N + 1; /* of what lies behind the operands: NaN */
    real->rmsnorm_fwd(ctx, &more);
}

static void the_number_before_is_written(void *ctx, const struct rmsnorm_args *a)
{
    real->rmsnorm_fwd(ctx, a);
    a->rstd[-1] = 0;
}

static void an_input_is_written(void *ctx, const struct rmsnorm_args *a)
{
    real->rmsnorm_fwd(ctx, a);
    if (a->d)
        *(float *)(uintptr_t)a->w += 1;
}

static void calls_differ(void *ctx, const struct rmsnorm_args *a)
{
    static unsigned n;
    real->rmsnorm_fwd(ctx, a);
    if (n++ % 2 && a->N > 0 && a->d > 0) {
        uint32_t bits;
        memcpy(&bits, a->y, sizeof bits);
        bits ^= 1;
        memcpy(a->y, &bits, sizeof bits);
    }
}

static void rows_depend_on_their_number(void *ctx, const struct rmsnorm_args *a)
{
    real->rmsnorm_fwd(ctx, a);
    if (a->N > 1 && a->d) {
        uint32_t bits;
        memcpy(&bits, a->y, sizeof bits);
        bits ^= 1;
        memcpy(a->y, &bits, sizeof bits);
    }
}

static void memory_cannot_be_shared(void *ctx, const struct rmsnorm_args *a)
{
    if (a->N > 0 && a->d > 0)
        a->y[0] = 0; /* before x is read */
    real->rmsnorm_fwd(ctx, a);
}

static const struct fault {
    void (*op)(void *ctx, const struct rmsnorm_args *a);
    const char *gist;
} faults[] = {
    { one_number_is_wrong, "y: error" },
    { one_number_is_not_written, "y: error inf" },
    { the_number_behind_is_written, "y: byte" },
    { a_row_behind_is_normalized, "y: byte" },
    { the_number_before_is_written, "rstd: byte -4" },
    { an_input_is_written, "of an operand that is only read" },
    { calls_differ, "in a second call" },
    { rows_depend_on_their_number, "than without the other rows" },
    { memory_cannot_be_shared, "y: error" },
};

static void faults_are_found(void **state)
{
    (void)state;
    struct ddl_backend *ref;
    struct ddl_error err;
    struct ddl_trial_result found;
    const struct rmsnorm_args sizes = { .N = 5, .d = 7, .eps = 1e-5f };
    const struct ddl_trial_plan plan = { .op = DDL_OP_rmsnorm_fwd, .sizes = &sizes };
    assert_ok(ddl_backend_create(&ref, "ref", 1, &err), err);
    real = ref->ops;
    assert_ok(ddl_trial_check(&plan, ref, ref, &found, &err), err);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        struct ddl_ops ops = *ref->ops;
        struct ddl_backend faulty = *ref;
        ops.rmsnorm_fwd = faults[i].op;
        faulty.ops = &ops;
        assert_int_equal(ddl_trial_check(&plan, &faulty, ref, &found, &err), DDL_E_NUMERIC);
        assert_says(&err, "rmsnorm_fwd on ref");
        assert_says(&err, faults[i].gist);
    }
    ddl_backend_free(ref);
}

/* Results in bfloat16 of which the float32 terms cancel, a tenth too large. */
static uint16_t tenth_more(uint16_t x)
{
    return ddl_bf16_round(ddl_bf16_widen(x) * 1.1f);
}

static void scaled_rope_bwd(void *ctx, const struct rope_grad_args *a)
{
    real->rope_bwd(ctx, a);
    for (size_t i = 0; a->dx16 && i < a->B * a->T * a->H * a->h; i++) {
        uint16_t *x = &a->dx16[i / (a->H * a->h) * a->dx_stride + i % (a->H * a->h)];
        *x = tenth_more(*x);
    }
}

static void scaled_rmsnorm_bwd(void *ctx, const struct rmsnorm_grad_args *a)
{
    real->rmsnorm_bwd(ctx, a);
    for (size_t i = 0; a->dx16 && i < a->N * a->d; i++)
        a->dx16[i] = tenth_more(a->dx16[i]);
}

/* Logits are not restored, infinite ones among them. */
static void choose_without_logits(void *ctx, const struct choose_args *a)
{
    real->choose(ctx, a);
    for (size_t i = 0; i < a->N * a->V; i++)
        a->z[i] = 12345;
}

static void faults_of_cases_are_found(void **state)
{
    (void)state;
    static const char *const names[] = { "rope_bwd.bf16", "rope_bwd.zeros.bf16", "rmsnorm_bwd.bf16",
                                         "rmsnorm_bwd.accumulate.bf16", "choose.special" };
    struct ddl_backend *ref;
    struct ddl_error err;
    size_t n, n_found = 0;
    const struct ddl_op_case *cases = ddl_op_cases(&n);
    assert_ok(ddl_backend_create(&ref, "ref", 1, &err), err);
    real = ref->ops;
    struct ddl_ops ops = *ref->ops;
    struct ddl_backend faulty = *ref;
    ops.rope_bwd = scaled_rope_bwd;
    ops.rmsnorm_bwd = scaled_rmsnorm_bwd;
    ops.choose = choose_without_logits;
    faulty.ops = &ops;
    for (size_t i = 0; i < n * sizeof names / sizeof *names; i++) {
        const struct ddl_op_case *k = &cases[i / (sizeof names / sizeof *names)];
        char name[64];
        ddl_op_case_name(k, name, sizeof name);
        for (size_t size = 2; size < 5 && strcmp(name, names[i % (sizeof names / sizeof *names)]) == 0;
             size++) {
            struct ddl_trial_plan plan;
            struct ddl_trial_result found;
            union ddl_op_args args;
            ddl_op_case_plan(k, ddl_op_awkward_sizes(size), &args, &plan);
            assert_ok(ddl_trial_check(&plan, ref, ref, &found, &err), err);
            assert_int_equal(ddl_trial_check(&plan, &faulty, ref, &found, &err), DDL_E_NUMERIC);
            n_found++;
        }
    }
    assert_int_equal(n_found, 3 * sizeof names / sizeof *names);
    ddl_backend_free(ref);
}

static unsigned mantissa; /* bits that rounded_product keeps of its operands */

static void round_all(const float *x, size_t n, float *y)
{
    const uint32_t unit = 1u << (23 - mantissa);
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        bits = (bits + unit / 2) & ~(unit - 1);
        memcpy(&y[i], &bits, sizeof bits);
    }
}

enum { ROWS = 5, COLUMNS = 7, TERMS = 300 };

static void rounded_product(void *ctx, const struct matmul_args *a)
{
    static float A[ROWS * TERMS], B[COLUMNS * TERMS];
    struct matmul_args rounded = *a;
    round_all(a->A, a->M * a->K, A);
    round_all(a->B, a->N * a->K, B);
    rounded.A = A;
    rounded.B = B;
    real->matmul(ctx, &rounded);
}

/* Operands may be rounded to TF32 if the call allows it, and not more than that. */
static void tf32_products_have_a_limit(void **state)
{
    (void)state;
    static const struct {
        bool tf32;
        unsigned mantissa;
        ddl_status status;
    } rows[] = {
        { true, 10, DDL_OK }, { true, 7, DDL_E_NUMERIC }, { false, 10, DDL_E_NUMERIC }, { false, 22, DDL_OK }
    };
    struct ddl_backend *ref;
    struct ddl_error err;
    assert_ok(ddl_backend_create(&ref, "ref", 1, &err), err);
    real = ref->ops;
    struct ddl_ops ops = *ref->ops;
    struct ddl_backend rounding = *ref;
    ops.matmul = rounded_product;
    rounding.ops = &ops;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct matmul_args sizes = { .trans_b = true,
                                           .tf32 = rows[i].tf32,
                                           .M = ROWS,
                                           .N = COLUMNS,
                                           .K = TERMS,
                                           .alpha = 1,
                                           .lda = TERMS,
                                           .ldb = TERMS,
                                           .ldc = COLUMNS };
        const struct ddl_trial_plan plan = { .op = DDL_OP_matmul, .sizes = &sizes };
        struct ddl_trial_result found;
        mantissa = rows[i].mantissa;
        assert_int_equal(ddl_trial_check(&plan, &rounding, ref, &found, &err), rows[i].status);
    }
    ddl_backend_free(ref);
}

enum { MOST_BACKENDS = 64, THREADS = 3 };

/* Every backend; "cpu" with every instruction set that this machine has, and with one to three threads. */
static size_t open_all(struct ddl_backend **backends)
{
    struct ddl_error err;
    size_t n = 0;
    for (size_t b = 0; test_backend(b); b++) {
        bool is_cpu = strcmp(test_backend(b), "cpu") == 0;
        for (size_t i = 0; is_cpu && isa_name(i); i++) {
            backends[n] = test_takes(i, 5) ? cpu_backend(isa_name(i), 1 + i % THREADS) : NULL;
            n += backends[n] != NULL;
        }
        for (size_t i = 0; is_cpu && i < THREADS; i++) {
            if (test_takes(i + 1, THREADS))
                backends[n++] = cpu_backend(NULL, 1 + i);
        }
        if (!is_cpu)
            assert_ok(ddl_backend_create(&backends[n++], test_backend(b), 2, &err), err);
    }
    return n;
}

static void every_case_passes(void **state)
{
    (void)state;
    struct ddl_backend *ref, *backends[MOST_BACKENDS];
    struct ddl_error err;
    size_t n_cases, n = open_all(backends);
    const struct ddl_op_case *cases = ddl_op_cases(&n_cases);
    assert_ok(ddl_backend_create(&ref, "ref", 1, &err), err);
    for (size_t i = 0; ddl_op_awkward_sizes(i / n_cases); i++) {
        const struct ddl_op_sizes *s = ddl_op_awkward_sizes(i / n_cases);
        struct ddl_limits limits = ddl_op_limits(s);
        struct ddl_trial_reference reference;
        struct ddl_trial_result found;
        struct ddl_trial_plan plan;
        union ddl_op_args args;
        for (size_t b = 0; b < n && i % n_cases == 0; b++)
            assert_ok(backends[b]->ops->reserve(backends[b]->ctx, &limits, &err), err);
        if (!test_takes(i + i / n_cases, 4)) /* each case at every fourth size */
            continue;
        ddl_op_case_plan(&cases[i % n_cases], s, &args, &plan);
        assert_ok(ddl_trial_expect(&reference, ref, &plan, &err), err);
        for (size_t b = 0; b < n; b++)
            assert_ok(ddl_trial_compare(&reference, backends[b], &found, &err), err);
        ddl_trial_reference_free(&reference);
    }
    for (size_t b = 0; b < n; b++)
        ddl_backend_free(backends[b]);
    ddl_backend_free(ref);
}

/* Operands lie within the argument struct, and their names are those of its members. */
static void descriptions_are_sound(void **state)
{
    (void)state;
    size_t n;
    const struct ddl_op_case *cases = ddl_op_cases(&n);
    for (size_t i = 0; i < n; i++) {
        union ddl_op_args args;
        struct ddl_trial_plan plan;
        struct ddl_op_use use;
        ddl_op_case_plan(&cases[i], ddl_op_awkward_sizes(1), &args, &plan);
        ddl_op_describe(plan.op, &args, &use);
        bool writes = false;
        for (size_t j = 0; j < use.n; j++) {
            const struct ddl_operand *o = &use.operand[j];
            writes = writes || o->access & DDL_WRITE;
            assert_true(o->offset + sizeof(void *) <= ddl_op_args_size(plan.op));
            assert_true(o->stride >= o->width || o->rows <= 1);
            assert_true(!o->may_be || ddl_operand_find(&use, o->may_be));
            assert_true(ddl_operand_find(&use, o->name) == o);
        }
        assert_true(writes && use.flops >= 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(faults_are_found),           cmocka_unit_test(faults_of_cases_are_found),
        cmocka_unit_test(tf32_products_have_a_limit), cmocka_unit_test(every_case_passes),
        cmocka_unit_test(descriptions_are_sound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
