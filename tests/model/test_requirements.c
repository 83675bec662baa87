/* model/pass/requirements.c: the ops that a model declares are those that it calls, and a missing one is
 * reported where the use of the model begins. */
#include "support/backends.h"
#include "support/models.h"

#include "ddl/session.h"
#include "model/pass/model.h"
#include "model/pass/requirements.h"
#include "ops/profile.h"
#include "train/step/optim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct ops {
    bool has[DDL_OP_COUNT];
};

static void record(void *user, int op, const void *args)
{
    (void)args;
    ((struct ops *)user)->has[op] = true;
}

static ddl_status add(void *user, const char *whose, const enum ddl_op *list, struct ddl_error *err)
{
    (void)whose, (void)err;
    for (; list && *list != DDL_OP_COUNT; list++)
        ((struct ops *)user)->has[*list] = true;
    return DDL_OK;
}

static const enum ddl_precision precisions[] = { DDL_PRECISION_F32, DDL_PRECISION_BF16, DDL_PRECISION_INT8 };

static struct ops declared(const struct ddl_config *config, enum ddl_precision precision)
{
    struct ops ops = { 0 };
    for (enum model_use use = 0; use < MODEL_USES; use++) {
        if ((use != USE_BF16 || precision == DDL_PRECISION_BF16) &&
            (use != USE_INT8 || precision == DDL_PRECISION_INT8))
            assert_int_equal(requirements_each(config, use, add, &ops, NULL), DDL_OK);
    }
    return ops;
}

static int32_t tokens[2 * SMALL_T];

/* Everything that training does with a model but the optimizer, and that a session does. The first status
 * that is not DDL_OK. */
static ddl_status train(ddl_model *model, struct ddl_error *err)
{
    const struct ddl_batch batch = { 1, SMALL_T, tokens, tokens + SMALL_T };
    const struct ddl_workspace_options options = { .batch = 1, .tokens = SMALL_T, .train = true };
    struct ddl_loss loss;
    ddl_workspace *ws = NULL;
    ddl_status status = ddl_model_enable_grad(model, err);
    if (!status)
        status = ddl_workspace_create(&ws, model, &options, err);
    if (!status)
        status = ddl_model_backward(model, ws, &batch, 1, &loss, err);
    ddl_workspace_free(ws);
    return status;
}

static ddl_status decode(ddl_model *model, struct ddl_error *err)
{
    const struct ddl_session_options options = { .slots = 1, .tokens = SMALL_T };
    float losses[4], entropies[4];
    int32_t ranks[4];
    struct ddl_scored_token top[4];
    struct ddl_session_pick pick = { .top_p = 1 };
    const struct ddl_session_input input = { .slot = 0,
                                             .n = 4,
                                             .tokens = tokens,
                                             .targets = tokens + SMALL_T,
                                             .losses = losses,
                                             .ranks = ranks,
                                             .entropies = entropies,
                                             .n_top = 1,
                                             .top = top };
    const size_t slot = 0;
    ddl_session *session = NULL;
    ddl_status status = ddl_session_create(&session, model, &options, err);
    if (!status)
        status = ddl_session_prefill(session, &input, 1, err);
    if (!status)
        status = ddl_session_choose(session, 1, &slot, tokens, &pick, err);
    ddl_session_free(session);
    return status;
}

/* What is done with a model for inference. */
static ddl_status infer(ddl_model *model, struct ddl_error *err)
{
    for (size_t i = 0; i < ddl_model_n_params(model); i++) {
        float *values = malloc(ddl_model_param(model, i)->count * sizeof *values);
        assert_non_null(values);
        ddl_model_read_param(model, i, values);
        free(values);
    }
    return decode(model, err);
}

/* A model with gradients, and one for inference. */
static ddl_status use_all(const struct ddl_config *config, ddl_backend *backend, enum ddl_precision precision,
                          struct ddl_error *err)
{
    ddl_status status = DDL_OK;
    for (int i = 0; i < 2 * SMALL_T; i++)
        tokens[i] = i % 7;
    for (int trains = precision != DDL_PRECISION_INT8; !status && trains >= 0; trains--) {
        ddl_model *model = NULL;
        status = trains ? ddl_model_create(&model, config, backend, err)
                        : ddl_model_create_for_inference(&model, config, precision, backend, err);
        if (!status)
            status = ddl_model_init(model, 1, err);
        if (!status && trains)
            status = ddl_model_set_precision(model, precision, err);
        if (!status)
            status = trains ? train(model, err) : infer(model, err);
        ddl_model_free(model);
    }
    return status;
}

static void declared_ops_are_those_called(void **state)
{
    (void)state;
    struct ops declared_by_any = { 0 }, called_by_any = { 0 };
    struct ddl_backend *backend;
    struct ddl_error err;
    assert_ok(ddl_backend_create(&backend, test_backend(0), 1, &err), err);
    for (size_t i = 0; i < SMALL_VARIANTS * 3; i++) {
        struct ddl_config config = variant_config(&small_variants[i / 3]);
        struct ops needed = declared(&config, precisions[i % 3]), called = { 0 };
        struct ddl_profile profile;
        ddl_profile_init(&profile, backend);
        profile.watch = record;
        profile.watch_user = &called;
        assert_ok(use_all(&config, &profile.backend, precisions[i % 3], &err), err);
        for (enum ddl_op op = 0; op < DDL_OP_COUNT; op++) {
            if (called.has[op] && !needed.has[op])
                fail_msg("%s: %s is called and not declared", small_variants[i / 3].name, ddl_op_name(op));
            declared_by_any.has[op] = declared_by_any.has[op] || needed.has[op];
            called_by_any.has[op] = called_by_any.has[op] || called.has[op];
        }
    }
    for (enum ddl_op op = 0; op < DDL_OP_COUNT; op++) {
        if (declared_by_any.has[op] && !called_by_any.has[op])
            fail_msg("%s is declared and never called", ddl_op_name(op));
    }
    ddl_backend_free(backend);
}

/* A backend without an op: no use of a model that declares it reaches a pass. */
static void a_missing_op_is_reported(void **state)
{
    (void)state;
    struct ddl_backend *backend;
    struct ddl_error err;
    assert_ok(ddl_backend_create(&backend, "ref", 1, &err), err);
    for (size_t i = 0; i < SMALL_VARIANTS * 3; i++) {
        struct ddl_config config = variant_config(&small_variants[i / 3]);
        struct ops needed = declared(&config, precisions[i % 3]);
        for (enum ddl_op op = 0; op < DDL_OP_COUNT; op++) {
            struct ddl_ops table = *backend->ops;
            struct ddl_backend lacking = *backend;
            char expected[128];
            bool trains = precisions[i % 3] != DDL_PRECISION_INT8;
            struct ops backward = { 0 };
            assert_int_equal(requirements_each(&config, USE_BACKWARD, add, &backward, NULL), DDL_OK);
            if (!needed.has[op] || (backward.has[op] && !trains) || !test_takes(i + op, 7))
                continue;
            lacking.ops = &table;
            remove_op(&table, op);
            assert_int_equal(use_all(&config, &lacking, precisions[i % 3], &err), DDL_E_UNSUPPORTED);
            snprintf(expected, sizeof expected, "backend ref: the op %s is missing, which ", ddl_op_name(op));
            if (strncmp(err.text, expected, strlen(expected)) != 0)
                fail_msg("%s without %s: %s", small_variants[i / 3].name, ddl_op_name(op), err.text);
        }
    }
    ddl_backend_free(backend);
}

static void the_optimizer_declares_its_ops(void **state)
{
    (void)state;
    const struct ddl_optim_config config = ddl_optim_defaults();
    struct ddl_config k = small_config("baseline");
    struct small_model f;
    struct ddl_optim *optim;
    struct ddl_error err;
    small_model_make(&f, "ref", &k, DDL_PRECISION_F32);
    struct ddl_ops table = *f.backend->ops;
    struct ddl_backend lacking = *f.backend;
    table.adamw = NULL;
    lacking.ops = &table;
    ddl_model_replace_backend(f.model, &lacking);
    assert_int_equal(ddl_optim_create(&optim, f.model, &config, &err), DDL_E_UNSUPPORTED);
    assert_null(optim);
    assert_string_equal(err.text, "backend ref: the op adamw is missing, which the optimizer needs");
    ddl_model_replace_backend(f.model, f.backend);
    small_model_free(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(declared_ops_are_those_called),
        cmocka_unit_test(a_missing_op_is_reported),
        cmocka_unit_test(the_optimizer_declares_its_ops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
