/* ops/profile.c: timing changes no number, and a watcher sees every op. */
#include "support/support.h"

#include "ddl/model.h"
#include "ops/profile.h"

#include <stdlib.h>
#include <string.h>

static struct ddl_config small(void)
{
    struct ddl_config k = ddl_config_defaults();
    struct ddl_error err;
    assert_ok(ddl_config_set_preset(&k, "ddl-cc-ec", &err), err);
    assert_ok(ddl_config_set_size(&k, "micro", &err), err);
    k.n_layers = 2;
    k.vocab_size = 61;
    k.block_size = 16;
    return k;
}

/* The first parameter's gradient of a fixed batch. */
static float *gradient(ddl_backend *backend)
{
    struct ddl_config k = small();
    struct ddl_error err;
    struct ddl_loss loss;
    ddl_model *model;
    ddl_workspace *ws;
    int32_t tokens[16], targets[16];
    for (int i = 0; i < 16; i++) {
        tokens[i] = i * 7 % 61;
        targets[i] = i * 5 % 61;
    }
    assert_ok(ddl_model_create(&model, &k, backend, &err), err);
    assert_ok(ddl_model_init(model, 1, &err), err);
    assert_ok(ddl_model_enable_grad(model, &err), err);
    assert_ok(ddl_workspace_create(&ws, model,
                                   &(struct ddl_workspace_options){ .batch = 1, .tokens = 16, .train = true },
                                   &err),
              err);
    assert_ok(ddl_model_backward(model, ws, &(struct ddl_batch){ 1, 16, tokens, targets }, 1, &loss, &err),
              err);
    float *out = malloc(ddl_model_param(model, 0)->count * sizeof *out);
    ddl_model_read_grad(model, 0, out);
    ddl_workspace_free(ws);
    ddl_model_free(model);
    return out;
}

static void profiling_changes_nothing(void **state)
{
    (void)state;
    struct ddl_profile profile;
    ddl_backend *backend = open_test_backend(2);
    ddl_profile_init(&profile, backend);
    float *plain = gradient(backend), *timed = gradient(&profile.backend);
    assert_memory_equal(plain, timed, 61 * 128 * sizeof *plain);
    size_t calls = 0;
    for (const struct ddl_profile_row *row = profile.rows; row->name; row++) {
        assert_true(row->seconds >= 0);
        calls += strcmp(row->name, "delta_bwd") == 0 ? row->calls : 0;
    }
    assert_int_equal(calls, 4);
    free(plain);
    free(timed);
    ddl_backend_free(backend);
}

static void count_products(void *user, int op, const void *args)
{
    if (op == DDL_OP_matmul) {
        assert_true(((const struct matmul_args *)args)->M > 0);
        ++*(size_t *)user;
    }
}

static void a_watcher_sees_every_op(void **state)
{
    (void)state;
    struct ddl_profile profile;
    size_t seen = 0;
    ddl_backend *backend = open_test_backend(1);
    ddl_profile_init(&profile, backend);
    profile.watch = count_products;
    profile.watch_user = &seen;
    free(gradient(&profile.backend));
    assert_true(seen > 0);
    assert_int_equal(seen, profile.rows[DDL_OP_matmul].calls);
    assert_string_equal(profile.rows[DDL_OP_matmul].name, "matmul");
    ddl_backend_free(backend);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(profiling_changes_nothing),
        cmocka_unit_test(a_watcher_sees_every_op),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
