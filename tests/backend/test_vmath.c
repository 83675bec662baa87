/* exp, sigmoid and tanh of the kernels over the floats: every one of them in steps, and the special ones. */
#include "backend/cpu/kernels/vmath.h"

#include "backend/cpu/cpu.h"
#include "support/backends.h"

#include <float.h>

/* |found - exact| in units of the last place of the result */
static double ulps(float found, double exact)
{
    float rounded = fabsf((float)exact);
    if (isinf(rounded) || isinf(found))
        return (double)found == exact || found == (float)exact ? 0 : (double)INFINITY;
    double unit = (double)nextafterf(rounded, INFINITY) - (double)rounded;
    return fabs((double)found - exact) / unit;
}

static double exact_sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

struct function {
    const char *name;
    float (*found)(float);
    double (*exact)(double);
    double limit;    /* ulp */
    double absolute; /* an error that is always allowed: where results are below the smallest normal number */
};

static const struct function functions[] = {
    { "exp", vexp, exp, 1.5, 0 },
    { "sigmoid", vsigmoid, exact_sigmoid, 3, 2e-38 },
    { "tanh", vtanh, tanh, 3, 0 },
};

static void check_range(const struct function *f, uint32_t step)
{
    double worst = 0;
    float at = 0;
    for (uint64_t bits = 0; bits <= UINT32_MAX; bits += step) {
        float x = float_of((uint32_t)bits);
        if (isnan(x)) {
            assert_true(isnan(f->found(x)));
            continue;
        }
        double exact = f->exact((double)x), error = ulps(f->found(x), exact);
        if (error > worst && !(fabs((double)f->found(x) - exact) <= f->absolute))
            worst = error, at = x;
    }
    print_message("%s: worst error %.2f ulp, at %.9g\n", f->name, worst, (double)at);
    assert_true(worst <= f->limit);
}

static void test_errors(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        check_range(&functions[i], 997); /* a prime: 4.3 million floats of all sizes */
}

/* The same through ops of every instruction set, where multiply-adds are fused and loops vectorised. */
static void check_ops(struct ddl_backend *backend, const float *x, size_t n, float *y)
{
    static const float one = 1, zero = 0;
    const struct project_args sigmoid = {
        .N = n, .d = 1, .c = 1, .sigmoid = true, .scale = 1, .x = x, .W = &one, .b = &zero, .y = y
    };
    backend->ops->project_fwd(backend->ctx, &sigmoid);
    for (size_t i = 0; i < n; i++) {
        double exact = exact_sigmoid((double)x[i]);
        assert_true(isnan(x[i]) ? isnan(y[i])
                                : ulps(y[i], exact) <= 3 || fabs((double)y[i] - exact) <= 2e-38);
    }
    backend->ops->tanh_fwd(backend->ctx, &(struct tanh_args){ n, x, y });
    for (size_t i = 0; i < n; i++)
        assert_true(isnan(x[i]) ? isnan(y[i]) : ulps(y[i], tanh((double)x[i])) <= 3);
}

/* exp of vectors and of what is left of a row, in the gradient of softmax: P = exp(S - lse), lse = 0. */
static void check_softmax(const struct ddl_kernels *kernels, const float *x, size_t n)
{
    enum { LONGEST = 37 };
    static const float one = 1, zero = 0;
    float S[LONGEST], dP[LONGEST] = { 0 };
    for (size_t i = 0, length = 1; i < n; i += length, length = length % LONGEST + 1) {
        length = length < n - i ? length : n - i;
        memcpy(S, x + i, length * sizeof *S);
        const struct softmax_grad_args args = { .first = length, /* not the first query */
                                                .span = length,
                                                .h = 1,
                                                .scale = 1,
                                                .score_scale = 1,
                                                .S = S,
                                                .dP = dP,
                                                .v = &one,
                                                .y = &one,
                                                .dy = &one,
                                                .lse = &zero };
        kernels->softmax_bwd(&args, 0, 1, NULL);
        for (size_t j = 0; j < length; j++)
            assert_true(isnan(x[i + j]) ? isnan(S[j]) : ulps(S[j], exp((double)x[i + j])) <= 1.5);
        memset(dP, 0, sizeof dP);
    }
}

static void test_instruction_sets(void **state)
{
    (void)state;
    enum { STEP = 19937, COUNT = 215428 }; /* floats of all sizes, NaNs among them */
    float *x = some_floats(COUNT), *y = some_floats(COUNT);
    for (size_t i = 0; i < COUNT; i++)
        x[i] = float_of((uint32_t)i * STEP);
    x[0] = INFINITY, x[1] = -INFINITY, x[2] = NAN, x[3] = -0.0f;
    for (size_t i = 0; isa_name(i); i++) {
        struct ddl_backend *backend = cpu_backend(isa_name(i), 1);
        if (backend) {
            check_ops(backend, x, COUNT, y);
            check_softmax(((const struct cpu *)backend->ctx)->k, x, COUNT);
        }
        ddl_backend_free(backend);
    }
    release_all();
}

static void test_special(void **state)
{
    (void)state;
    assert_true(vexp(0) == 1 && vexp(-0.0f) == 1);
    assert_true(vexp(INFINITY) == INFINITY && vexp(-INFINITY) == 0);
    assert_true(vexp(FLT_MAX) == INFINITY && vexp(-FLT_MAX) == 0);
    assert_true(vexp(FLT_MIN / 4) == 1);
    assert_true(vexp(88.72283f) < INFINITY && vexp(88.72284f) == INFINITY);
    assert_true(vexp(-103.9f) > 0); /* the smallest denormal numbers */
    assert_true(vsigmoid(INFINITY) == 1 && vsigmoid(-INFINITY) == 0 && vsigmoid(0) == 0.5f);
    assert_true(vtanh(INFINITY) == 1 && vtanh(-INFINITY) == -1 && signbit(vtanh(-0.0f)));
    assert_true(vtanh(FLT_MIN / 4) == FLT_MIN / 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_errors),
                                        cmocka_unit_test(test_instruction_sets),
                                        cmocka_unit_test(test_special) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
