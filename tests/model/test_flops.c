/* model/pass/flops.c: counted by hand for small configurations, and by the rows of the ops that run. */
#include "support/models.h"
#include "support/runs.h"

#include "ops/profile.h"

#include <math.h>

/* d 21, m 56, H h 18, V 31, three layers, T 9: five tokens seen on average. */
static const double matrices = 3.0 * (4 * 18 * 21 + 3 * 56 * 21), head = 31 * 21, scores = 3 * 2 * 18 * 5.0;

static void by_hand(void **state)
{
    (void)state;
    struct ddl_config k = tiny_config("baseline", 31);
    double base = 2 * (matrices + head + scores);
    assert_true(ddl_config_flops_per_token(&k, 9, false) == base);
    assert_true(ddl_config_flops_per_token(&k, 9, true) == 3 * base);
    /* Six sublayers: gate and target of width 1, the rank-one update. */
    k = tiny_config("ddl-1", 31);
    double expected = base + 6 * (2 * 2 * 21 + 4 * 21 + 4 * 21);
    assert_true(ddl_config_flops_per_token(&k, 9, false) == expected);
    /* Four channels; seven compressions with four taps; the embedding's. */
    k = tiny_config("ddl-tc-ec", 31);
    expected = base + 6 * (2 * 5 * 21 + 4 * 84 + 4 * 21) + 7 * 2 * 4 * 84 + 2 * 4 * 84;
    assert_true(ddl_config_flops_per_token(&k, 9, false) == expected);
    k = tiny_config("ddl-cc", 31);
    expected = base + 6 * (2 * 5 * 21 + 4 * 84 + 4 * 21) + 7 * 2 * 84;
    assert_true(ddl_config_flops_per_token(&k, 9, false) == expected);
    /* A product of rank 4 each way, m_0 f + m_1 x; two layers with mixed values. */
    k = tiny_config("laurel", 31);
    k.laurel_rank = 4;
    k.value_residual = true;
    expected = base + 6 * (2 * 2 * 4 * 21 + 3 * 21) + 2 * 3 * 18;
    assert_true(ddl_config_flops_per_token(&k, 9, false) == expected);
    k.n_heads = 0;
    assert_true(isnan(ddl_config_flops_per_token(&k, 9, false)));
}

/* FLOPs per token of the ops of a forward pass, by their rows in ops.h. */
static double of_ops(const struct ddl_config *config)
{
    struct ddl_profile profile;
    struct ddl_error err;
    ddl_model *model;
    ddl_workspace *ws;
    struct ddl_loss loss;
    const int32_t zeros[SMALL_B * SMALL_T] = { 0 };
    const struct ddl_batch batch = { SMALL_B, SMALL_T, zeros, zeros };
    ddl_backend *backend = open_test_backend(1);
    ddl_profile_init(&profile, backend);
    assert_ok(ddl_model_create(&model, config, &profile.backend, &err), err);
    assert_ok(ddl_model_init(model, 7, &err), err);
    assert_ok(ddl_workspace_create(
                  &ws, model, &(struct ddl_workspace_options){ .batch = SMALL_B, .tokens = SMALL_T }, &err),
              err);
    ddl_profile_reset(&profile);
    assert_ok(ddl_model_loss(model, ws, &batch, &loss, NULL, &err), err);
    double flops = 0;
    for (const struct ddl_profile_row *row = profile.rows; row->name; row++)
        flops += row->flops;
    ddl_workspace_free(ws);
    ddl_model_free(model);
    ddl_backend_free(backend);
    return flops / (SMALL_B * SMALL_T);
}

/* What a model adds to the baseline, where that is more than half a percent of it. flops.c leaves out norms
 * and functions of a gate, and counts a delta update of one channel as one of several. */
static void ops_add_what_is_counted(void **state)
{
    (void)state;
    struct ddl_config k = small_config("baseline");
    const double base_ops = of_ops(&k), base = ddl_config_flops_per_token(&k, SMALL_T, false);
    for (size_t i = 0; i < SMALL_VARIANTS; i++) {
        k = variant_config(&small_variants[i]);
        double counted = ddl_config_flops_per_token(&k, SMALL_T, false) - base;
        if (fabs(counted) < 0.005 * base ||
            counted < -0.5 * base) /* the latter: f has no effect, F is not counted */
            continue;
        double ratio = (of_ops(&k) - base_ops) / counted;
        if (ratio < 0.9 || ratio > 1.6)
            fail_msg("%s: the ops add %.2f times what flops.c counts", small_variants[i].name, ratio);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(by_hand),
                                        cmocka_unit_test(ops_add_what_is_counted) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
