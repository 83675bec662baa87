#include "support/device_stub.h"
#include "support/properties.h"

#include "base/mem.h"
#include "ddl/block.h"
#include "ddl/delta.h"
#include "ops/ops.h"
#include "tensor/safetensors.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { N_PARAMS = 9, MAX_N = 6 };

/* A block, its parameters and a batch. */
struct problem {
    struct ddl_block_config config;
    size_t N;
    float *param[N_PARAMS], *grad[N_PARAMS]; /* in the order of struct ddl_block_params */
    size_t count[N_PARAMS];
    float *X, *v, *G, *X_out, *dX, *dv;
};

static struct ddl_block_params params_of(float *const *at)
{
    return (struct ddl_block_params){ at[0], at[1], at[2], at[3], at[4], at[5], at[6], at[7], at[8] };
}

static void measure(struct problem *p)
{
    const struct ddl_block_config *k = &p->config;
    size_t Z = k->pool == DDL_POOL_MEAN ? k->d : k->d * k->c;
    bool mlp = k->direction == DDL_DIRECTION_MLP;
    size_t counts[N_PARAMS] = { k->gate_hidden * Z,      k->gate_hidden,      1,
                                mlp ? k->hidden * Z : 0, mlp ? k->hidden : 0, mlp ? k->d * k->hidden : 0,
                                mlp ? k->d : 0,          mlp ? 0 : k->d,      mlp ? 0 : k->d * k->d };
    memcpy(p->count, counts, sizeof counts);
}

static struct problem problem_make(struct ddl_block_config config, size_t N, uint64_t stream)
{
    struct problem p = { .config = config, .N = N };
    size_t Ndc = N * config.d * config.c;
    measure(&p);
    for (size_t i = 0; i < N_PARAMS; i++) {
        p.param[i] = p.count[i] ? random_floats(p.count[i], stream + i) : NULL;
        p.grad[i] = p.count[i] ? ddl_mem_zalloc(p.count[i] * sizeof(float)) : NULL;
        for (size_t j = 0; j < p.count[i]; j++)
            p.param[i][j] *= 0.4f;
    }
    p.X = random_floats(Ndc, stream + 20);
    p.v = random_floats(N * config.c, stream + 21);
    p.G = random_floats(Ndc, stream + 22);
    p.X_out = poisoned_floats(Ndc);
    p.dX = poisoned_floats(Ndc);
    p.dv = poisoned_floats(N * config.c);
    return p;
}

static void problem_free(struct problem *p)
{
    for (size_t i = 0; i < N_PARAMS; i++) {
        ddl_mem_free(p->param[i]);
        ddl_mem_free(p->grad[i]);
    }
    float *all[] = { p->X, p->v, p->G, p->X_out, p->dX, p->dv };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        ddl_mem_free(all[i]);
}

static void forward(ddl_block *block, struct problem *p, float *beta, float *q)
{
    struct ddl_error err = { 0 };
    struct ddl_block_params params = params_of(p->param);
    assert_ok(ddl_block_forward(block, &params,
                                &(struct ddl_block_args){ p->N, p->X, p->v, p->X_out, beta, q }, &err),
              err);
}

static void backward(ddl_block *block, struct problem *p)
{
    struct ddl_error err = { 0 };
    struct ddl_block_params params = params_of(p->param), grads = params_of(p->grad);
    assert_ok(ddl_block_backward(block, &params,
                                 &(struct ddl_block_grad_args){ p->N, p->X, p->v, p->G, p->dX, p->dv },
                                 &grads, &err),
              err);
}

static const struct ddl_block_config configs[] = {
    { 7, 3, DDL_DIRECTION_MLP, DDL_POOL_MEAN, 5, 4, 1e-5f },
    { 7, 3, DDL_DIRECTION_MLP, DDL_POOL_FLATTEN, 5, 4, 1e-5f },
    { 7, 3, DDL_DIRECTION_ATTENTION, DDL_POOL_MEAN, 0, 4, 1e-5f },
    { 7, 3, DDL_DIRECTION_ATTENTION, DDL_POOL_FLATTEN, 0, 4, 1e-5f },
    { 1, 1, DDL_DIRECTION_MLP, DDL_POOL_MEAN, 1, 1, 1e-5f },
    { 3, 1, DDL_DIRECTION_ATTENTION, DDL_POOL_MEAN, 0, 2, 1e-5f },
    { 2, 17, DDL_DIRECTION_MLP, DDL_POOL_FLATTEN, 9, 1, 1e-5f },
    { 33, 5, DDL_DIRECTION_ATTENTION, DDL_POOL_MEAN, 0, 7, 1e-5f },
};
enum { N_CONFIGS = sizeof configs / sizeof *configs };

static ddl_block *block_make(ddl_backend *backend, const struct ddl_block_config *config)
{
    struct ddl_error err = { 0 };
    ddl_block *block;
    assert_ok(ddl_block_create(&block, config, MAX_N, backend, &err), err);
    return block;
}

/* --- golden vectors ----------------------------------------------------------------------------------- */

static const char *const param_names[N_PARAMS] = { "gate_in", "gate_out", "gate_bias", "w1", "b1",
                                                   "w2",      "b2",       "w_a",       "w" };

static void golden_read(const ddl_safetensors *file, const char *name, size_t count, float *out)
{
    const struct ddl_tensor *t = ddl_safetensors_find(file, name);
    assert_non_null(t);
    assert_int_equal(t->count, count);
    struct ddl_error err = { 0 };
    assert_ok(ddl_tensor_read_f32(t, 0, count, out, &err), err);
}

static void golden_check(const ddl_safetensors *file, const char *name, size_t count, const float *found)
{
    float *expected = poisoned_floats(count);
    golden_read(file, name, count, expected);
    assert_close_at(count, found, expected, 1e-5, name, __FILE__, __LINE__);
    ddl_mem_free(expected);
}

static void check_golden(ddl_backend *backend, const char *name, struct ddl_block_config config)
{
    char path[128];
    snprintf(path, sizeof path, "tests/golden/block/%s.safetensors", name);
    struct ddl_error err = { 0 };
    ddl_safetensors *file;
    assert_ok(ddl_safetensors_open(&file, source_path(path), &err), err);
    struct problem p = problem_make(config, 5, 1);
    size_t Ndc = p.N * config.d * config.c;
    golden_read(file, "X", Ndc, p.X);
    golden_read(file, "v", p.N * config.c, p.v);
    golden_read(file, "G", Ndc, p.G);
    for (size_t i = 0; i < N_PARAMS; i++) {
        if (p.count[i])
            golden_read(file, param_names[i], p.count[i], p.param[i]);
    }
    ddl_block *block = block_make(backend, &config);
    forward(block, &p, NULL, NULL);
    backward(block, &p);
    golden_check(file, "Xp", Ndc, p.X_out);
    golden_check(file, "dX", Ndc, p.dX);
    golden_check(file, "dv", p.N * config.c, p.dv);
    for (size_t i = 0; i < N_PARAMS; i++) {
        char gradient[64];
        snprintf(gradient, sizeof gradient, "d%s", param_names[i]);
        if (p.count[i])
            golden_check(file, gradient, p.count[i], p.grad[i]);
    }
    ddl_block_free(block);
    problem_free(&p);
    ddl_safetensors_close(file);
}

static void golden_block(ddl_backend *backend)
{
    struct ddl_block_config k = { 14, 4, DDL_DIRECTION_MLP, DDL_POOL_MEAN, 9, 9, 1e-5f };
    check_golden(backend, "mlp-mean", k);
    k.pool = DDL_POOL_FLATTEN;
    check_golden(backend, "mlp-flatten", k);
    k.pool = DDL_POOL_MEAN;
    k.direction = DDL_DIRECTION_ATTENTION;
    check_golden(backend, "attention-mean", k);
}

static void golden_elementwise(ddl_backend *backend)
{
    enum { N = 5, d = 14 };
    struct ddl_error err = { 0 };
    ddl_safetensors *file;
    assert_ok(ddl_safetensors_open(&file, source_path("tests/golden/block/elementwise.safetensors"), &err),
              err);
    float x[N * d], q[N * d], v[N * d], beta[N], G[N * d], x_out[N * d], dx[N * d], dq[N * d], dv[N * d],
        dbeta[N];
    golden_read(file, "x", N * d, x);
    golden_read(file, "q", N * d, q);
    golden_read(file, "v", N * d, v);
    golden_read(file, "beta", N, beta);
    golden_read(file, "G", N * d, G);
    struct ddl_elementwise_args a = { N, d, 1e-5f, x, q, v, beta, x_out };
    struct ddl_elementwise_grad_args g = { N, d, 1e-5f, x, q, v, beta, G, dx, dq, dv, dbeta };
    assert_ok(ddl_elementwise_forward(backend, &a, &err), err);
    assert_ok(ddl_elementwise_backward(backend, &g, &err), err);
    golden_check(file, "Xp", N * d, x_out);
    golden_check(file, "dx", N * d, dx);
    golden_check(file, "dq", N * d, dq);
    golden_check(file, "dv", N * d, dv);
    golden_check(file, "dbeta", N, dbeta);
    ddl_safetensors_close(file);
}

/* --- laws --------------------------------------------------------------------------------------------- */

struct probe {
    ddl_block *block;
    struct problem *p;
};

static double loss(void *user)
{
    const struct probe *probe = user;
    struct problem *p = probe->p;
    forward(probe->block, p, NULL, NULL);
    return weighted_sum(p->N * p->config.d * p->config.c, p->G, p->X_out);
}

static void check_slope(ddl_block *block, struct problem *p, const char *what, size_t n, float *x,
                        const float *dx)
{
    struct probe probe = { block, p };
    float *u = random_floats(n, 99);
    double size = sqrt(weighted_sum(n, u, u)); /* one step of length 1 */
    for (size_t i = 0; i < n; i++)
        u[i] = (float)((double)u[i] / size);
    double found = weighted_sum(n, dx, u), expected = slope(loss, &probe, n, x, u, 1e-2);
    double G = sqrt(weighted_sum(p->N * p->config.d * p->config.c, p->G, p->G));
    if (!(fabs(found - expected) <= 3e-4 * G)) {
        print_error("%s: found %.9g, expected %.9g\n", what, found, expected);
        fail();
    }
    ddl_mem_free(u);
}

static void backward_is_the_slope(ddl_backend *backend)
{
    for (size_t i = 0; i < N_CONFIGS; i++) {
        struct problem p = problem_make(configs[i], 4, 100 * i);
        ddl_block *block = block_make(backend, &configs[i]);
        backward(block, &p);
        check_slope(block, &p, "X", p.N * p.config.d * p.config.c, p.X, p.dX);
        check_slope(block, &p, "v", p.N * p.config.c, p.v, p.dv);
        for (size_t j = 0; j < N_PARAMS; j++) {
            if (p.count[j])
                check_slope(block, &p, param_names[j], p.count[j], p.param[j], p.grad[j]);
        }
        ddl_block_free(block);
        problem_free(&p);
    }
}

/* The block is the operator at its own q and beta; q and beta are what it reports. */
static void block_is_the_operator(ddl_backend *backend)
{
    for (size_t i = 0; i < N_CONFIGS; i++) {
        struct problem p = problem_make(configs[i], MAX_N, 100 * i);
        size_t d = p.config.d, c = p.config.c, n = p.N * d * c;
        float *beta = poisoned_floats(p.N), *q = poisoned_floats(p.N * d), *X_out = poisoned_floats(n);
        ddl_block *block = block_make(backend, &configs[i]);
        forward(block, &p, beta, q);
        struct ddl_error err = { 0 };
        struct ddl_delta_args a = {
            .N = p.N, .d = d, .c = c, .eps = 1e-5f, .X = p.X, .q = q, .v = p.v, .beta = beta, .X_out = X_out
        };
        assert_ok(ddl_delta_forward(backend, &a, &err), err);
        assert_memory_equal(X_out, p.X_out, n * sizeof *X_out);
        for (size_t j = 0; j < p.N; j++)
            assert_true(beta[j] > 0 && beta[j] < 2);
        ddl_mem_free(beta);
        ddl_mem_free(q);
        ddl_mem_free(X_out);
        ddl_block_free(block);
        problem_free(&p);
    }
}

static void in_place_is_the_same(ddl_backend *backend)
{
    for (size_t i = 0; i < N_CONFIGS; i++) {
        struct problem p = problem_make(configs[i], 3, 7 + 100 * i);
        size_t n = p.N * p.config.d * p.config.c;
        ddl_block *block = block_make(backend, &configs[i]);
        forward(block, &p, NULL, NULL);
        backward(block, &p);
        struct ddl_error err = { 0 };
        struct ddl_block_params params = params_of(p.param), grads = params_of(p.grad);
        assert_ok(ddl_block_backward(block, &params,
                                     &(struct ddl_block_grad_args){ p.N, p.X, p.v, p.G, p.G, p.dv }, &grads,
                                     &err),
                  err);
        assert_memory_equal(p.G, p.dX, n * sizeof *p.G);
        assert_ok(ddl_block_forward(block, &params,
                                    &(struct ddl_block_args){ p.N, p.X, p.v, p.X, NULL, NULL }, &err),
                  err);
        assert_memory_equal(p.X, p.X_out, n * sizeof *p.X);
        ddl_block_free(block);
        problem_free(&p);
    }
}

/* Parameter gradients are added, row by row: two halves make the whole. */
static void gradients_accumulate(ddl_backend *backend)
{
    for (size_t i = 0; i < N_CONFIGS; i++) {
        struct problem whole = problem_make(configs[i], 4, 100 * i),
                       halves = problem_make(configs[i], 4, 100 * i);
        size_t d = configs[i].d, c = configs[i].c;
        ddl_block *block = block_make(backend, &configs[i]);
        backward(block, &whole);
        struct ddl_error err = { 0 };
        struct ddl_block_params params = params_of(halves.param), grads = params_of(halves.grad);
        for (size_t at = 0; at < 4; at += 2)
            assert_ok(ddl_block_backward(
                          block, &params,
                          &(struct ddl_block_grad_args){ 2, halves.X + at * d * c, halves.v + at * c,
                                                         halves.G + at * d * c, halves.dX + at * d * c,
                                                         halves.dv + at * c },
                          &grads, &err),
                      err);
        assert_close(4 * d * c, halves.dX, whole.dX, 1e-6);
        for (size_t j = 0; j < N_PARAMS; j++) {
            if (whole.count[j])
                assert_close_at(whole.count[j], halves.grad[j], whole.grad[j], 5e-6, param_names[j], __FILE__,
                                __LINE__);
        }
        ddl_block_free(block);
        problem_free(&whole);
        problem_free(&halves);
    }
}

/* --- edges --------------------------------------------------------------------------------------------- */

static void bad_arguments(ddl_backend *backend)
{
    struct {
        struct ddl_block_config config;
        size_t rows;
        const char *gist;
    } cases[] = { { configs[0], 1, "d is 0" },        { configs[0], 1, "c 0" },
                  { configs[0], 1, "gate_hidden 0" }, { configs[0], 1, "hidden is 0" },
                  { configs[0], 1, "direction 2" },   { configs[0], 1, "pool -1" },
                  { configs[0], 1, "eps is" },        { configs[0], SIZE_MAX / 8, "do not fit" } };
    cases[0].config.d = 0;
    cases[1].config.c = 0;
    cases[2].config.gate_hidden = 0;
    cases[3].config.hidden = 0;
    cases[4].config.direction = 2;
    cases[5].config.pool = -1;
    cases[6].config.eps = -1;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ddl_error err = { 0 };
        ddl_block *block = NULL;
        assert_int_equal(ddl_block_create(&block, &cases[i].config, cases[i].rows, backend, &err),
                         DDL_E_USAGE);
        assert_null(block);
        if (!strstr(err.text, cases[i].gist))
            fail_msg("'%s' does not say '%s'", err.text, cases[i].gist);
    }
    ddl_block_free(NULL);
}

static void bad_passes(ddl_backend *backend)
{
    struct problem p = problem_make(configs[0], 2, 1);
    ddl_block *block = block_make(backend, &configs[0]);
    struct ddl_block_params params = params_of(p.param), grads = params_of(p.grad), hole = params;
    struct ddl_error err = { 0 };
    assert_int_equal(ddl_block_forward(block, &params,
                                       &(struct ddl_block_args){ MAX_N + 1, p.X, p.v, p.X_out, NULL, NULL },
                                       &err),
                     DDL_E_USAGE);
    assert_non_null(strstr(err.text, "at most 6"));
    hole.w2 = NULL;
    assert_int_equal(
        ddl_block_forward(block, &hole, &(struct ddl_block_args){ 2, p.X, p.v, p.X_out, NULL, NULL }, &err),
        DDL_E_USAGE);
    assert_non_null(strstr(err.text, "parameter w2 is NULL"));
    assert_int_equal(ddl_block_forward(block, &params,
                                       &(struct ddl_block_args){ 2, p.X, NULL, p.X_out, NULL, NULL }, &err),
                     DDL_E_USAGE);
    assert_non_null(strstr(err.text, "array v is NULL"));
    hole = grads;
    hole.gate_bias = NULL;
    assert_int_equal(ddl_block_backward(block, &params,
                                        &(struct ddl_block_grad_args){ 2, p.X, p.v, p.G, p.dX, p.dv }, &hole,
                                        &err),
                     DDL_E_USAGE);
    assert_non_null(strstr(err.text, "gradient gate_bias is NULL"));
    assert_ok(
        ddl_block_forward(block, &params, &(struct ddl_block_args){ 0, NULL, NULL, NULL, NULL, NULL }, &err),
        err);
    assert_ok(ddl_block_backward(block, &params,
                                 &(struct ddl_block_grad_args){ 0, NULL, NULL, NULL, NULL, NULL }, &grads,
                                 &err),
              err);
    ddl_block_free(block);
    problem_free(&p);
}

static void device_memory(void **state)
{
    (void)state;
    skip_if_simulated();
    struct ddl_error err = { 0 };
    ddl_backend *ref;
    assert_ok(ddl_backend_create(&ref, "ref", 1, &err), err);
    struct device_stub stub;
    device_stub_init(&stub, ref);
    device_stub_allow(0);
    ddl_block *near = block_make(ref, &configs[1]), *block;
    assert_int_equal(ddl_block_create(&block, &configs[1], MAX_N, &stub.backend, &err), DDL_E_MEMORY);
    device_stub_allow(1000);
    block = block_make(&stub.backend, &configs[1]);
    struct problem a = problem_make(configs[1], 3, 5), b = problem_make(configs[1], 3, 5);
    forward(near, &a, NULL, NULL);
    backward(near, &a);
    forward(block, &b, NULL, NULL);
    backward(block, &b);
    assert_memory_equal(a.X_out, b.X_out, 63 * sizeof(float));
    assert_memory_equal(a.dX, b.dX, 63 * sizeof(float));
    for (size_t i = 0; i < N_PARAMS; i++)
        assert_memory_equal(a.grad[i] ? a.grad[i] : a.X, b.grad[i] ? b.grad[i] : b.X,
                            a.count[i] * sizeof(float));
    struct ddl_block_params params = params_of(b.param), grads = params_of(b.grad);
    for (size_t allowed = 0; allowed < 19; allowed++) {
        device_stub_allow(allowed);
        assert_int_equal(ddl_block_backward(block, &params,
                                            &(struct ddl_block_grad_args){ 3, b.X, b.v, b.G, b.dX, b.dv },
                                            &grads, &err),
                         DDL_E_MEMORY);
        assert_int_equal(device_stub_blocks(), 1); /* the workspace of the block */
    }
    ddl_block_free(block);
    assert_int_equal(device_stub_blocks(), 0);
    ddl_block_free(near);
    problem_free(&a);
    problem_free(&b);
    ddl_backend_free(ref);
}

PROPERTY(golden_block)
PROPERTY(golden_elementwise)
PROPERTY(backward_is_the_slope)
PROPERTY(block_is_the_operator)
PROPERTY(in_place_is_the_same)
PROPERTY(gradients_accumulate)
PROPERTY(bad_arguments)
PROPERTY(bad_passes)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden_block),
        cmocka_unit_test(test_golden_elementwise),
        cmocka_unit_test(test_backward_is_the_slope),
        cmocka_unit_test(test_block_is_the_operator),
        cmocka_unit_test(test_in_place_is_the_same),
        cmocka_unit_test(test_gradients_accumulate),
        cmocka_unit_test(test_bad_arguments),
        cmocka_unit_test(test_bad_passes),
        cmocka_unit_test(device_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
