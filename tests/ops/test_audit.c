/* ops/audit.h: correct backends are within the bounds on every instruction set; each fault is found. */
#include "support/backends.h"
#include "support/faulty_backend.h"
#include "support/models.h"

#include "ops/audit.h"
#include "train/step/optim.h"

#include <math.h>
#include <string.h>

/* A training step of a small model in bfloat16 and the forward pass after it. */
static void run_model(const char *preset, ddl_backend *backend)
{
    struct ddl_config k = small_config(preset);
    const struct ddl_optim_config optim_config = ddl_optim_defaults();
    int32_t tokens[2 * 8];
    struct ddl_batch batch = { 1, 8, tokens, tokens + 8 };
    struct ddl_optim *optim;
    struct ddl_loss loss;
    struct ddl_error err;
    ddl_model *model;
    ddl_workspace *ws;
    for (int i = 0; i < 16; i++)
        tokens[i] = i * 7 % 31;
    assert_ok(ddl_model_create(&model, &k, backend, &err), err);
    assert_ok(ddl_model_init(model, 3, &err), err);
    assert_ok(ddl_model_enable_grad(model, &err), err);
    assert_ok(ddl_model_set_precision(model, DDL_PRECISION_BF16, &err), err);
    assert_ok(ddl_workspace_create(&ws, model,
                                   &(struct ddl_workspace_options){ .batch = 1, .tokens = 8, .train = true },
                                   &err),
              err);
    assert_ok(ddl_model_backward(model, ws, &batch, 1, &loss, &err), err);
    assert_ok(ddl_optim_create(&optim, model, &optim_config, &err), err);
    ddl_optim_step(optim, 0.01);
    assert_ok(ddl_model_loss(model, ws, &batch, &loss, NULL, &err), err);
    ddl_optim_free(optim);
    ddl_workspace_free(ws);
    ddl_model_free(model);
}

static void correct_backends_pass(void **state)
{
    (void)state;
    static const char *const presets[] = { "baseline", "ddl-tc", "ddl-cc-ec" };
    for (size_t isa = 0; isa == 0 || isa_name(isa - 1); isa++) {
        struct ddl_error err;
        ddl_backend *backend = NULL;
        if (isa == 0)
            assert_ok(ddl_backend_create(&backend, "ref", 1, &err), err);
        else if (!(backend = cpu_backend(isa_name(isa - 1), 2)))
            continue;
        for (size_t i = 0; i < 3; i++) {
            struct ddl_audit audit;
            ddl_audit_init(&audit, backend);
            run_model(presets[i], &audit.profile.backend);
            assert_ok(ddl_audit_check(&audit, &err), err);
            assert_true(audit.calls > 50 && audit.worst > 0);
        }
        ddl_backend_free(backend);
    }
}

static void faults_are_found(void **state)
{
    (void)state;
    static const char *const faults[][2] = { { "matmul_bf16", "matmul_bf16" },
                                             { "matmul_bf16 term", "matmul_bf16" },
                                             { "matmul_bf16 rounded", "matmul_bf16" },
                                             { "truncate", "copy_bf16" },
                                             { "adamw stale", "adamw" } };
    for (size_t isa = 0; isa_name(isa); isa++) {
        ddl_backend *backend = cpu_backend(isa_name(isa), 1);
        for (size_t i = 0; backend && i < sizeof faults / sizeof *faults; i++) {
            struct faulty_backend faulty;
            struct ddl_audit audit;
            struct ddl_error err;
            faulty_backend_make(&faulty, backend, faults[i][0]);
            ddl_audit_init(&audit, &faulty.backend);
            run_model("ddl-tc", &audit.profile.backend);
            assert_int_equal(ddl_audit_check(&audit, &err), DDL_E_NUMERIC);
            if (!strstr(audit.op, faults[i][1]) && !strstr(audit.op, "cast_bf16"))
                fail_msg("%s: found in %s", faults[i][0], audit.op);
        }
        ddl_backend_free(backend);
    }
}

/* The smallest faults that a product can have. */
static void bounds_of_a_product(void **state)
{
    (void)state;
    enum { M = 3, N = 4, K = 50 };
    struct ddl_backend *ref;
    struct ddl_error err;
    double exact[M * N], bound[M * N];
    assert_ok(ddl_backend_create(&ref, "ref", 1, &err), err);
    float *C = some_floats(M * N), *before = some_floats(M * N);
    memcpy(C, before, M * N * sizeof *C);
    struct matmul_bf16_args a = { .M = M,
                                  .N = N,
                                  .K = K,
                                  .alpha = 2,
                                  .A = some_halves(M * K),
                                  .lda = K,
                                  .B = some_halves(N * K),
                                  .ldb = N,
                                  .beta = -0.5f,
                                  .C = C,
                                  .ldc = N };
    ref->ops->matmul_bf16(ref->ctx, &a);
    assert_true(ddl_audit_matmul_bf16(&a, before, exact, bound));
    assert_true(ddl_audit_share(M, N, C, N, exact, bound) < 0.1);
    C[5] += 1e-3f; /* a product of two numbers below 0.05 */
    assert_true(ddl_audit_share(M, N, C, N, exact, bound) > 1);
    C[5] = NAN;
    assert_true(isinf(ddl_audit_share(M, N, C, N, exact, bound)));
    ddl_backend_free(ref);
    release_all();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(correct_backends_pass),
        cmocka_unit_test(faults_are_found),
        cmocka_unit_test(bounds_of_a_product),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
