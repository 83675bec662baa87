/* Initial values: standard deviations, computed from the values. */
#include "support/runs.h"

#include "base/mem.h"

#include <math.h>

/* The model with this factor; two layers of the tiny size. */
static ddl_model *model_with(float factor, ddl_backend *backend)
{
    struct ddl_error err;
    struct ddl_config config = tiny_config("ddl-1", TINY_VOCAB);
    ddl_model *model;
    config.hidden_init_std_factor = 0.5f;
    config.output_init_std_factor = factor;
    assert_ok(ddl_model_create(&model, &config, backend, &err), err);
    assert_ok(ddl_model_init(model, 3, &err), err);
    return model;
}

static double deviation(const float *values, size_t n)
{
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n; i++) {
        sum += (double)values[i];
        squares += (double)values[i] * (double)values[i];
    }
    return sqrt((squares - sum * sum / (double)n) / (double)(n - 1));
}

/* The factor multiplies the output projections, and nothing else. */
static void output_projections(void **state)
{
    (void)state;
    static const float factors[] = { 0, 0.25f, 4 };
    struct ddl_error err;
    ddl_backend *backend;
    assert_ok(ddl_backend_create(&backend, "ref", 0, &err), err);
    ddl_model *usual = model_with(1, backend);
    const struct ddl_config config = tiny_config("ddl-1", TINY_VOCAB);
    const double expected = 0.5 / sqrt((double)config.d_model) / sqrt((double)config.n_layers);
    for (size_t f = 0; f < sizeof factors / sizeof *factors; f++) {
        ddl_model *model = model_with(factors[f], backend);
        size_t projections = 0;
        for (size_t i = 0; i < ddl_model_n_params(model); i++) {
            const struct ddl_param *p = ddl_model_param(model, i);
            float *a = random_floats(p->count, 1), *b = random_floats(p->count, 2);
            const bool is_output = strstr(p->name, ".c_proj.weight") != NULL;
            ddl_model_read_param(usual, i, a);
            ddl_model_read_param(model, i, b);
            for (size_t j = 0; j < p->count; j++)
                assert_true(b[j] == (is_output ? factors[f] * a[j] : a[j])); /* powers of two are exact */
            if (is_output) { /* within five standard errors of a deviation, sd/sqrt(2n) */
                const double target = expected * (double)factors[f];
                projections++;
                assert_true(fabs(deviation(b, p->count) - target) <=
                            5 * target / sqrt(2.0 * (double)p->count));
            }
            ddl_mem_free(a);
            ddl_mem_free(b);
        }
        assert_int_equal(projections, 2 * config.n_layers);
        ddl_model_free(model);
    }
    ddl_model_free(usual);
    ddl_backend_free(backend);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(output_projections) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
