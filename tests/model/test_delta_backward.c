#include "support/delta_case.h"
#include "support/properties.h"

#include "base/mem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Backward from X' and p gives what backward from X gives, and leaves X behind. */
static void backward_through_the_inverse(ddl_backend *backend)
{
    for (size_t i = 0; i < N_DELTA_SHAPES * N_DELTA_VARIANTS; i++) {
        const size_t *shape = delta_shapes[i / N_DELTA_VARIANTS];
        struct delta_variant k = delta_variants[i % N_DELTA_VARIANTS];
        struct delta_case a = delta_case_make(shape[0], shape[1], shape[2], 800 + i);
        struct delta_case b = delta_case_make(shape[0], shape[1], shape[2], 800 + i);
        size_t n = a.N * a.d * a.c;
        delta_backward(backend, &a, k);
        delta_forward(backend, &b, k);
        struct ddl_error err = { 0 };
        struct ddl_delta_grad_args args = delta_grad_args(&b, k);
        args.X = NULL;
        args.X_next = b.X_out;
        args.readout = b.readout;
        args.dX = b.G; /* and in place */
        assert_ok(ddl_delta_backward(backend, &args, &err), err);
        assert_close(n, b.X_out, a.X, 5e-6);
        assert_close(n, b.G, a.dX, 1e-6);
        assert_close(a.N * a.c, b.dv, a.dv, k.update == DDL_UPDATE_ERASE ? 0 : 1e-6);
        assert_close(a.N, b.dbeta, a.dbeta, 1e-5);
        if (a.d > 1) /* for d = 1 dq vanishes but for eps: rounding is all there is */
            assert_close(a.N * a.d, b.dq, a.dq, 2e-5);
        delta_case_free(&a);
        delta_case_free(&b);
    }
}

static void in_place_is_the_same(ddl_backend *backend)
{
    for (size_t i = 0; i < N_DELTA_SHAPES * N_DELTA_VARIANTS; i++) {
        const size_t *shape = delta_shapes[i / N_DELTA_VARIANTS];
        struct delta_variant k = delta_variants[i % N_DELTA_VARIANTS];
        struct delta_case p = delta_case_make(shape[0], shape[1], shape[2], 1000 + i);
        size_t n = p.N * p.d * p.c;
        delta_forward(backend, &p, k);
        delta_backward(backend, &p, k);
        struct ddl_error err = { 0 };
        struct ddl_delta_grad_args g = delta_grad_args(&p, k);
        float *dX = p.dX;
        g.dX = p.G;
        assert_ok(ddl_delta_backward(backend, &g, &err), err);
        assert_memory_equal(p.G, dX, n * sizeof *dX);
        struct ddl_delta_args a = delta_args(&p, k);
        a.X_out = p.X;
        assert_ok(ddl_delta_forward(backend, &a, &err), err);
        assert_memory_equal(p.X, p.X_out, n * sizeof *p.X);
        delta_case_free(&p);
    }
}

struct probe {
    ddl_backend *backend;
    struct delta_case *p;
    struct delta_variant k;
};

static double delta_loss(void *user)
{
    const struct probe *probe = user;
    struct delta_case *p = probe->p;
    delta_forward(probe->backend, p, probe->k);
    return weighted_sum(p->N * p->d * p->c, p->G, p->X_out);
}

static void check_slopes(ddl_backend *backend, struct delta_case *p, int which)
{
    struct {
        const char *name;
        size_t n;
        float *x, *dx;
    } inputs[] = { { "dX", p->N * p->d * p->c, p->X, p->dX },
                   { "dq", p->N * p->d, p->q, p->dq },
                   { "dv", p->N * p->c, p->v, p->dv },
                   { "dbeta", p->N, p->beta, p->dbeta } };
    struct probe probe = { backend, p, delta_variants[which] };
    delta_backward(backend, p, delta_variants[which]);
    for (size_t i = 0; i < 4; i++) {
        float *u = random_floats(inputs[i].n, 5000 + i);
        double found = weighted_sum(inputs[i].n, inputs[i].dx, u);
        double expected = slope(delta_loss, &probe, inputs[i].n, inputs[i].x, u, 2e-2);
        double size =
            rms(inputs[i].n, inputs[i].dx) * sqrt((double)inputs[i].n) + rms(p->N * p->d * p->c, p->G);
        char what[64];
        snprintf(what, sizeof what, "%s of %s, N %zu d %zu c %zu", inputs[i].name, delta_variants[which].name,
                 p->N, p->d, p->c);
        close_enough(found, expected, 5e-4 * size, what);
        ddl_mem_free(u);
    }
}

static void backward_is_the_slope(ddl_backend *backend)
{
    for (size_t i = 0; i < N_DELTA_SHAPES; i++) {
        if (delta_shapes[i][1] * delta_shapes[i][2] > 600)
            continue; /* float32 rounding of L would hide the slope */
        for (int k = 0; k < N_DELTA_VARIANTS; k++) {
            struct delta_case p =
                delta_case_make(delta_shapes[i][0], delta_shapes[i][1], delta_shapes[i][2], 1100 + i);
            check_slopes(backend, &p, k);
            delta_case_free(&p);
        }
    }
}

/* Against `ref`, at sizes where differences cannot resolve a mistake, and at small |q|. */
static void backward_equals_ref(ddl_backend *backend)
{
    struct ddl_error err = { 0 };
    ddl_backend *ref;
    assert_ok(ddl_backend_create(&ref, "ref", 1, &err), err);
    static const float sizes[] = { 1, 1e-2f, 1e-5f };
    for (size_t i = 0; i < N_DELTA_SHAPES * N_DELTA_VARIANTS * 3; i++) {
        const size_t *shape = delta_shapes[i / 3 / N_DELTA_VARIANTS];
        struct delta_variant k = delta_variants[i / 3 % N_DELTA_VARIANTS];
        struct delta_case a = delta_case_make(shape[0], shape[1], shape[2], 1200 + i);
        for (size_t j = 0; j < a.N * a.d; j++)
            a.q[j] *= sizes[i % 3];
        a.beta[0] = i % 2 ? 0 : 2;
        delta_backward(ref, &a, k);
        float *expected[] = { a.dX, a.dq, a.dv, a.dbeta };
        size_t counts[] = { a.N * a.d * a.c, a.N * a.d, a.N * a.c, a.N };
        a.dX = poisoned_floats(counts[0]);
        a.dq = poisoned_floats(counts[1]);
        a.dv = poisoned_floats(counts[2]);
        a.dbeta = poisoned_floats(counts[3]);
        delta_backward(backend, &a, k);
        /* dX = G - beta k g is a difference: where it cancels (d = 1), rounding is that of G */
        for (size_t j = 0; j < counts[0]; j++)
            a.X_out[j] = a.dX[j] - expected[0][j];
        assert_true(rms(counts[0], a.X_out) <= 1e-6 * rms(counts[0], a.G));
        if (a.d > 1 || i % 3 == 2)
            assert_close(counts[1], a.dq, expected[1], 1e-5);
        assert_close(counts[2], a.dv, expected[2], 2e-6);
        assert_close(counts[3], a.dbeta, expected[3], 1e-5);
        for (size_t j = 0; j < 4; j++)
            ddl_mem_free(expected[j]);
        delta_case_free(&a);
    }
    ddl_backend_free(ref);
}

/* Step s of the rows of x (N, R, width), as one array. */
static float *part(const float *x, size_t N, size_t R, size_t s, size_t width)
{
    float *out = poisoned_floats(N * width);
    for (size_t n = 0; n < N; n++)
        memcpy(out + n * width, x + (n * R + s) * width, width * sizeof *out);
    return out;
}

static void assert_part(const float *x, size_t N, size_t R, size_t s, size_t width, const float *expected)
{
    float *found = part(x, N, R, s, width);
    assert_memory_equal(found, expected, N * width * sizeof *found);
    ddl_mem_free(found);
}

/* One of several steps, as a call of its own: its q, v and beta, and what it gives. */
struct single {
    float *q, *v, *beta, *readout, *dq, *dv, *dbeta;
};

static struct single single_of(const struct delta_case *p, size_t N, size_t R, size_t s)
{
    return (struct single){ .q = part(p->q, N, R, s, p->d),
                            .v = part(p->v, N, R, s, p->c),
                            .beta = part(p->beta, N, R, s, 1),
                            .readout = poisoned_floats(N * p->c),
                            .dq = poisoned_floats(N * p->d),
                            .dv = poisoned_floats(N * p->c),
                            .dbeta = poisoned_floats(N) };
}

static void single_free(struct single *one)
{
    float *all[] = { one->q, one->v, one->beta, one->readout, one->dq, one->dv, one->dbeta };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        ddl_mem_free(all[i]);
}

/* The step of a call in place of X. */
static void step_forward(ddl_backend *backend, struct ddl_delta_args a, const struct single *one, float *X)
{
    struct ddl_error err = { 0 };
    a.steps = 1;
    a.X = a.X_out = X;
    a.q = one->q;
    a.v = one->v;
    a.beta = one->beta;
    a.readout = one->readout;
    assert_ok(ddl_delta_forward(backend, &a, &err), err);
}

static void step_backward(ddl_backend *backend, struct ddl_delta_grad_args a, const struct single *one,
                          float *X, float *G)
{
    struct ddl_error err = { 0 };
    a.steps = 1;
    a.X_next = X;
    a.G = a.dX = G;
    a.q = one->q;
    a.v = one->v;
    a.beta = one->beta;
    a.readout = one->readout;
    a.dq = one->dq;
    a.dv = one->dv;
    a.dbeta = one->dbeta;
    assert_ok(ddl_delta_backward(backend, &a, &err), err);
}

/* `all` has N R rows, of which the states are the first N. */
static void check_steps(ddl_backend *backend, struct delta_case *all, struct delta_variant k, size_t N,
                        size_t R)
{
    enum { MOST = 3 };
    struct ddl_error err = { 0 };
    size_t d = all->d, c = all->c, n = N * d * c;
    struct single one[MOST];
    float *X = poisoned_floats(n), *G = poisoned_floats(n), *before = poisoned_floats(n);
    struct ddl_delta_args fwd = delta_args(all, k);
    struct ddl_delta_grad_args bwd = delta_grad_args(all, k);
    struct ddl_delta_inverse_args inverse = delta_inverse_args(all, k, before);
    fwd.N = bwd.N = inverse.N = N;
    fwd.steps = bwd.steps = inverse.steps = R;
    memcpy(X, all->X, n * sizeof *X);
    memcpy(G, all->G, n * sizeof *G);
    assert_ok(ddl_delta_forward(backend, &fwd, &err), err);
    for (size_t s = 0; s < R; s++) {
        one[s] = single_of(all, N, R, s);
        step_forward(backend, fwd, &one[s], X);
        assert_part(all->readout, N, R, s, c, one[s].readout);
    }
    assert_memory_equal(all->X_out, X, n * sizeof *X);
    assert_ok(ddl_delta_inverse(backend, &inverse, &err), err);
    bwd.X = NULL;
    bwd.readout = all->readout;
    if (R > 1)
        assert_int_equal(ddl_delta_backward(backend, &bwd, &err), DDL_E_USAGE);
    bwd.X_next = all->X_out;
    assert_ok(ddl_delta_backward(backend, &bwd, &err), err);
    for (size_t s = R; s-- > 0;) {
        step_backward(backend, bwd, &one[s], X, G);
        assert_part(all->dq, N, R, s, d, one[s].dq);
        assert_part(all->dv, N, R, s, c, one[s].dv);
        assert_part(all->dbeta, N, R, s, 1, one[s].dbeta);
        single_free(&one[s]);
    }
    assert_memory_equal(all->X_out, X, n * sizeof *X);
    assert_memory_equal(all->dX, G, n * sizeof *G);
    assert_close(n, before, all->X, 2e-5);
    assert_close(n, X, all->X, 2e-5);
    ddl_mem_free(X);
    ddl_mem_free(G);
    ddl_mem_free(before);
}

/* R steps in one call are R calls of one step each, bit for bit. */
static void several_steps_are_calls_in_turn(ddl_backend *backend)
{
    for (size_t i = 0; i < N_DELTA_SHAPES * N_DELTA_VARIANTS * 3; i++) {
        const size_t *shape = delta_shapes[i / 3 / N_DELTA_VARIANTS];
        size_t N = shape[0], R = i % 3 + 1;
        struct delta_case p = delta_case_make(N * R, shape[1], shape[2], 1300 + i);
        p.beta[N * R / 2] = 0;
        check_steps(backend, &p, delta_variants[i / 3 % N_DELTA_VARIANTS], N, R);
        delta_case_free(&p);
    }
}

PROPERTY(backward_through_the_inverse)
PROPERTY(several_steps_are_calls_in_turn)
PROPERTY(in_place_is_the_same)
PROPERTY(backward_is_the_slope)
PROPERTY(backward_equals_ref)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_backward_through_the_inverse),
        cmocka_unit_test(test_several_steps_are_calls_in_turn),
        cmocka_unit_test(test_in_place_is_the_same),
        cmocka_unit_test(test_backward_is_the_slope),
        cmocka_unit_test(test_backward_equals_ref),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
