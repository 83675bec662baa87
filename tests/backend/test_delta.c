/* The Delta operator: cpu against ref, and what must hold to the bit. */
#include "support/backends.h"

#include "base/mem.h"

#include <math.h>
#include <string.h>

DEFINE_CALL(delta_fwd, ddl_delta_args)
DEFINE_CALL(delta_bwd, ddl_delta_grad_args)
DEFINE_CALL(delta_inverse, ddl_delta_inverse_args)
DEFINE_CALL(elementwise_fwd, ddl_elementwise_args)
DEFINE_CALL(elementwise_bwd, ddl_elementwise_grad_args)

/* The last two are large enough for three threads; 65 and 130 channels take more than one tile. */
static const struct shape {
    size_t N, d, c;
} shapes[] = {
    { 0, 7, 4 },   { 1, 1, 1 },   { 3, 7, 2 },  { 2, 63, 3 },   { 5, 64, 1 },   { 3, 100, 5 },
    { 4, 100, 8 }, { 2, 33, 16 }, { 2, 7, 65 }, { 2, 19, 130 }, { 97, 100, 4 }, { 61, 768, 2 },
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

static const struct rule {
    int form, update;
} rules[] = {
    { DDL_FORM_UNIT, DDL_UPDATE_DELTA }, { DDL_FORM_UNIT, DDL_UPDATE_WRITE },
    { DDL_FORM_UNIT, DDL_UPDATE_ERASE }, { DDL_FORM_RATIO, DDL_UPDATE_DELTA },
    { DDL_FORM_L2, DDL_UPDATE_DELTA },
};
enum { N_RULES = sizeof rules / sizeof *rules };

/* The ratio form's step grows with |q|, which is 1 here in the mean, so that it stays of the size of the
 * others. */
static float q_size(int form, size_t d)
{
    return form == DDL_FORM_RATIO ? 1 / sqrtf((float)d) : 1;
}

static void check_delta(struct shape s, struct rule r, bool zero_gate)
{
    size_t NX = s.N * s.d * s.c, Nc = s.N * s.c, Nd = s.N * s.d;
    float *X = some_floats(NX), *v = some_floats(Nc), *q = floats_around(Nd, 0, q_size(r.form, s.d)),
          *beta = floats_around(s.N, 1, 0.3f), *G = some_floats(NX);
    for (size_t n = 0; zero_gate && n < s.N; n += 2)
        beta[n] = 0;
    struct ddl_delta_args f = { .N = s.N,
                                .d = s.d,
                                .c = s.c,
                                .eps = 1e-5f,
                                .form = r.form,
                                .update = r.update,
                                .X = X,
                                .q = q,
                                .v = v,
                                .beta = beta };
    struct output fwd[] = { { &f.X_out, NX, 2e-6, NULL, NULL }, { &f.readout, Nc, 2e-6, NULL, NULL } };
    COMPARE(delta_fwd, f, fwd);
    struct output in_place[] = { { &f.X_out, NX, 2e-6, X, &f.X } };
    f.readout = NULL;
    COMPARE(delta_fwd, f, in_place);

    float *X_next = some_floats(NX), *p = some_floats(Nc);
    struct ddl_backend *ref;
    assert_int_equal(ddl_backend_create(&ref, "ref", 1, NULL), DDL_OK);
    f.X = X, f.X_out = X_next, f.readout = p;
    call_delta_fwd(ref, &f);
    ddl_backend_free(ref);

    struct ddl_delta_inverse_args i = { .N = s.N,
                                        .d = s.d,
                                        .c = s.c,
                                        .eps = 1e-5f,
                                        .form = r.form,
                                        .update = r.update,
                                        .X_out = X_next,
                                        .q = q,
                                        .v = v,
                                        .beta = beta,
                                        .readout = p };
    struct output inverse[] = { { &i.X, NX, 2e-6, NULL, NULL } };
    COMPARE(delta_inverse, i, inverse);
    struct output inverse_in_place[] = { { &i.X, NX, 2e-6, X_next, &i.X_out } };
    COMPARE(delta_inverse, i, inverse_in_place);

    /* dbeta is one number a row, a sum of c products that cancel: two rows alone say little of it */
    struct ddl_delta_grad_args b = { .N = s.N,
                                     .d = s.d,
                                     .c = s.c,
                                     .eps = 1e-5f,
                                     .form = r.form,
                                     .update = r.update,
                                     .X = X,
                                     .q = q,
                                     .v = v,
                                     .beta = beta,
                                     .G = G };
    struct output bwd[] = { { &b.dX, NX, 2e-6, NULL, NULL },
                            { &b.dq, Nd, 5e-6, NULL, NULL },
                            { &b.dv, Nc, 5e-6, NULL, NULL },
                            { &b.dbeta, s.N, 1e-5, NULL, NULL } };
    if (s.d > 1) /* d = 1: dq is the rounding of a difference that is zero */
        COMPARE(delta_bwd, b, bwd);
    struct output rebuilt[] = { { &b.dX, NX, 2e-6, G, &b.G },
                                { &b.dq, Nd, 5e-6, NULL, NULL },
                                { &b.dv, Nc, 5e-6, NULL, NULL },
                                { &b.dbeta, s.N, 1e-5, NULL, NULL },
                                { &b.X_next, NX, 2e-6, X_next, NULL } };
    b.X = NULL, b.readout = p;
    if (s.d > 1)
        COMPARE(delta_bwd, b, rebuilt);
    release_all();
}

static void test_against_ref(void **state)
{
    (void)state;
    for (size_t s = 0; s < N_SHAPES; s++) {
        for (size_t r = 0; r < N_RULES; r++)
            check_delta(shapes[s], rules[r], false);
        check_delta(shapes[s], rules[0], true);
    }
}

/* beta = 0: the same bits, signed zeros included, whatever v holds; and gradients without NaN */
static void check_closed(struct ddl_backend *backend, struct shape s)
{
    size_t NX = s.N * s.d * s.c, Nc = s.N * s.c;
    float *X = some_floats(NX), *G = some_floats(NX), *q = some_floats(s.N * s.d), *v = some_floats(Nc);
    float *beta = floats_around(s.N, 0, 0), *X_out = some_floats(NX), *dX = some_floats(NX);
    float *dq = floats_around(s.N * s.d, NAN, 0), *dv = floats_around(Nc, NAN, 0), *dbeta = some_floats(s.N);
    for (size_t i = 0; i < NX; i += 3)
        X[i] = -0.0f, G[i] = -0.0f;
    for (size_t i = 0; i < Nc; i++)
        v[i] = i % 2 ? INFINITY : NAN;
    for (size_t r = 0; r < N_RULES; r++) {
        backend->ops->delta_fwd(backend->ctx, &(struct ddl_delta_args){ .N = s.N,
                                                                        .d = s.d,
                                                                        .c = s.c,
                                                                        .eps = 1e-5f,
                                                                        .form = rules[r].form,
                                                                        .update = rules[r].update,
                                                                        .X = X,
                                                                        .q = q,
                                                                        .v = v,
                                                                        .beta = beta,
                                                                        .X_out = X_out });
        assert_memory_equal(X_out, X, NX * sizeof *X);
        backend->ops->delta_bwd(backend->ctx, &(struct ddl_delta_grad_args){ .N = s.N,
                                                                             .d = s.d,
                                                                             .c = s.c,
                                                                             .eps = 1e-5f,
                                                                             .form = rules[r].form,
                                                                             .update = rules[r].update,
                                                                             .X = X,
                                                                             .q = q,
                                                                             .v = v,
                                                                             .beta = beta,
                                                                             .G = G,
                                                                             .dX = dX,
                                                                             .dq = dq,
                                                                             .dv = dv,
                                                                             .dbeta = dbeta });
        assert_memory_equal(dX, G, NX * sizeof *X);
        for (size_t i = 0; i < s.N * s.d; i++)
            assert_true(dq[i] == 0);
        for (size_t i = 0; i < Nc; i++)
            assert_true(dv[i] == 0);
    }
    release_all();
}

static void test_closed_gate_is_exact(void **state)
{
    (void)state;
    for (size_t i = 0; isa_name(i); i++) {
        struct ddl_backend *backend = cpu_backend(isa_name(i), 2);
        for (size_t s = 1; backend && s < N_SHAPES; s++)
            check_closed(backend, shapes[s]);
        ddl_backend_free(backend);
    }
}

/* q = 0: nothing happens in the unit and l2 forms, and gradients stay finite */
static void test_no_direction(void **state)
{
    (void)state;
    struct shape s = { 3, 21, 4 };
    size_t NX = s.N * s.d * s.c;
    for (size_t r = 0; r < N_RULES; r++) {
        float *q = floats_around(s.N * s.d, 0, 0);
        struct ddl_delta_grad_args b = { .N = s.N,
                                         .d = s.d,
                                         .c = s.c,
                                         .eps = 1e-5f,
                                         .form = rules[r].form,
                                         .update = rules[r].update,
                                         .X = some_floats(NX),
                                         .q = q,
                                         .v = some_floats(s.N * s.c),
                                         .beta = floats_around(s.N, 1, 0.3f),
                                         .G = some_floats(NX) };
        struct output bwd[] = { { &b.dX, NX, 0, NULL, NULL },
                                { &b.dq, s.N * s.d, 5e-6, NULL, NULL },
                                { &b.dv, s.N * s.c, 0, NULL, NULL },
                                { &b.dbeta, s.N, 0, NULL, NULL } };
        COMPARE(delta_bwd, b, bwd);
        release_all();
    }
}

static void test_elementwise(void **state)
{
    (void)state;
    for (size_t s = 0; s < N_SHAPES; s++) {
        /* rows of one number are many: x' of a single one may cancel, and its relative error say nothing */
        size_t d = shapes[s].d, N = d == 1 ? 64 : shapes[s].N * shapes[s].c, Nd = N * d;
        float *x = some_floats(Nd), *q = some_floats(Nd), *v = some_floats(Nd), *G = some_floats(Nd);
        float *beta = floats_around(N, 1, 0.3f);
        struct ddl_elementwise_args f = {
            .N = N, .d = d, .eps = 1e-5f, .x = x, .q = q, .v = v, .beta = beta
        };
        struct output fwd[] = { { &f.x_out, Nd, 2e-6, NULL, NULL } };
        COMPARE(elementwise_fwd, f, fwd);
        struct output in_place[] = { { &f.x_out, Nd, 2e-6, x, &f.x } };
        COMPARE(elementwise_fwd, f, in_place);
        struct ddl_elementwise_grad_args b = {
            .N = N, .d = d, .eps = 1e-5f, .x = x, .q = q, .v = v, .beta = beta, .G = G
        };
        struct output bwd[] = { { &b.dx, Nd, 2e-6, NULL, NULL },
                                { &b.dq, Nd, 5e-6, NULL, NULL },
                                { &b.dv, Nd, 2e-6, NULL, NULL },
                                { &b.dbeta, N, 1e-5, NULL, NULL } };
        struct output bwd_in_place[] = { { &b.dx, Nd, 2e-6, G, &b.G },
                                         { &b.dq, Nd, 5e-6, NULL, NULL },
                                         { &b.dv, Nd, 2e-6, NULL, NULL },
                                         { &b.dbeta, N, 1e-5, NULL, NULL } };
        if (d > 1) {
            COMPARE(elementwise_bwd, b, bwd);
            COMPARE(elementwise_bwd, b, bwd_in_place);
        }
        release_all();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_ref),
        cmocka_unit_test(test_closed_gate_is_exact),
        cmocka_unit_test(test_no_direction),
        cmocka_unit_test(test_elementwise),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
