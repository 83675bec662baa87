/* ops/defaults.c: a backend that leaves ops out passes their cases with the compositions. */
#include "support/backends.h"
#include "support/support.h"

#include "ops/cases.h"
#include "ops/defaults.h"

static const enum ddl_op composed[] = { DDL_OP_copy_bf16, DDL_OP_weighted_sum, DDL_OP_weighted_sum_bwd,
                                        DDL_OP_gated_fwd };
enum { COMPOSED = sizeof composed / sizeof *composed };

static void compositions_pass_the_cases(void **state)
{
    (void)state;
    struct ddl_backend *ref, *real;
    struct ddl_error err;
    struct ddl_trial_result found;
    size_t n, checked = 0;
    const struct ddl_op_case *cases = ddl_op_cases(&n);
    assert_ok(ddl_backend_create(&ref, "ref", 1, &err), err);
    assert_ok(ddl_backend_create(&real, "ref", 1, &err), err);
    struct ddl_ops table = *real->ops;
    struct ddl_context context = { &table };
    struct ddl_backend backend = *real;
    for (size_t i = 0; i < COMPOSED; i++)
        remove_op(&table, composed[i]);
    assert_false(ddl_ops_are_complete(&table));
    ddl_ops_complete(&table);
    assert_true(ddl_ops_are_complete(&table));
    backend.ops = &table;
    backend.ctx = &context; /* the ops of "ref" have no state */
    for (size_t i = 0; i < COMPOSED * n; i++) {
        const struct ddl_op_case *k = &cases[i / COMPOSED];
        for (size_t s = 0; k->op == composed[i % COMPOSED] && ddl_op_awkward_sizes(s); s++) {
            union ddl_op_args args;
            struct ddl_trial_plan plan;
            ddl_op_case_plan(k, ddl_op_awkward_sizes(s), &args, &plan);
            assert_ok(ddl_trial_check(&plan, &backend, ref, &found, &err), err);
            checked++;
        }
    }
    assert_true(checked >= 5 * COMPOSED);
    ddl_backend_free(real);
    ddl_backend_free(ref);
}

/* Nothing to compose it of: it remains NULL. */
static void others_remain_missing(void **state)
{
    (void)state;
    struct ddl_backend *ref;
    struct ddl_error err;
    assert_ok(ddl_backend_create(&ref, "ref", 1, &err), err);
    struct ddl_ops table = *ref->ops;
    struct ddl_backend lacking = *ref;
    lacking.ops = &table;
    table.matmul = NULL;
    table.weighted_sum = NULL;
    table.gated_fwd = NULL;
    ddl_ops_complete(&table);
    assert_null(table.matmul);
    assert_null(table.weighted_sum);
    assert_null(table.gated_fwd);
    assert_ok(ddl_ops_require(&lacking, DDL_OP_LIST(DDL_OP_copy), "a test", &err), err);
    assert_ok(ddl_ops_require(&lacking, NULL, "a test", &err), err);
    assert_int_equal(ddl_ops_require(&lacking, DDL_OP_LIST(DDL_OP_copy, DDL_OP_matmul), "a test", &err),
                     DDL_E_UNSUPPORTED);
    assert_string_equal(err.text, "backend ref: the op matmul is missing, which a test needs");
    ddl_backend_free(ref);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(compositions_pass_the_cases),
        cmocka_unit_test(others_remain_missing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
