/* ddl_workspace_read_trace: delta steps only, in order, and an error past the last. */
#include "support/models.h"

#include <math.h>

static void read_all(const char *preset, size_t expected)
{
    struct ddl_config config = small_config(preset);
    struct small_model f;
    struct ddl_loss loss;
    struct ddl_error err;
    float beta[SMALL_B * SMALL_T];
    small_model_make(&f, "cpu", &config, DDL_PRECISION_F32);
    assert_ok(ddl_model_backward(f.model, f.ws, &f.batch, 1, &loss, &err), err);
    assert_int_equal(ddl_workspace_n_delta(f.ws), expected);
    for (size_t s = 0; s < expected; s++) {
        assert_ok(ddl_workspace_read_trace(f.ws, s, beta, NULL, NULL, &err), err);
        for (size_t n = 0; n < SMALL_B * SMALL_T; n++)
            assert_true(beta[n] > 0 && beta[n] < 2);
    }
    const size_t beyond[] = { expected, expected + 1, SIZE_MAX };
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(ddl_workspace_read_trace(f.ws, beyond[i], beta, NULL, NULL, &err), DDL_E_USAGE);
    small_model_free(&f);
}

static void sublayers_in_order(void **state)
{
    (void)state;
    read_all("ddl-1", 2 * small_config("ddl-1").n_layers);
    read_all("ddl-cc-ec", 2 * small_config("ddl-cc-ec").n_layers);
    read_all("ddl-2step", 4 * small_config("ddl-2step").n_layers);
}

static void a_baseline_has_none(void **state)
{
    (void)state;
    read_all("baseline", 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(sublayers_in_order),
                                        cmocka_unit_test(a_baseline_has_none) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
