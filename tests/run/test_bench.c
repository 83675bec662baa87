/* run/profile.c and run/bench.c: timing changes no number, and the rows add up. */
#include "support/support.h"

#include "ddl/bench.h"
#include "ddl/model.h"
#include "run/profile.h"

#include <stdio.h>
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
    assert_ok(ddl_workspace_create(&ws, model, 1, 16, true, &err), err);
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
    struct ddl_error err;
    ddl_backend *backend;
    struct ddl_profile profile;
    assert_ok(ddl_backend_create(&backend, "cpu", 2, &err), err);
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

static void a_step_is_timed(void **state)
{
    (void)state;
    struct ddl_error err;
    ddl_backend *backend;
    struct ddl_bench_result r;
    struct ddl_bench_config config = {
        .model = small(), .batch = 1, .seq = 16, .warmup = 1, .steps = 3, .profiled = 2
    };
    assert_ok(ddl_backend_create(&backend, "cpu", 1, &err), err);
    assert_ok(ddl_bench_step(&config, backend, &r, &err), err);
    double sum = 0;
    for (size_t i = 0; i < r.n_ops; i++) {
        sum += r.op[i].seconds;
        assert_true(i == 0 || r.op[i].seconds <= r.op[i - 1].seconds);
    }
    assert_true(r.best <= r.median && r.median <= r.worst && r.best > 0);
    assert_true(sum > 0 && sum <= r.profiled);
    config.steps = 0;
    assert_int_equal(ddl_bench_step(&config, backend, &r, &err), DDL_E_USAGE);
    ddl_backend_free(backend);
}

static void the_program(void **state)
{
    (void)state;
    char command[4096], out[8192];
    snprintf(command, sizeof command,
             "%s bench step --model ddl-tc --size micro --batch 1 --seq 16 --steps 2 --ops", ddl_program());
    assert_int_equal(run_command(command, out, sizeof out), 0);
    assert_non_null(strstr(out, "tokens/s"));
    assert_non_null(strstr(out, "delta_bwd"));
    snprintf(command, sizeof command, "%s bench stop 2>&1", ddl_program());
    assert_int_equal(run_command(command, out, sizeof out), 2);
    assert_non_null(strstr(out, "bench takes 'step', found 'stop'"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(profiling_changes_nothing),
        cmocka_unit_test(a_step_is_timed),
        cmocka_unit_test(the_program),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
