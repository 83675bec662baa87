/* ddl eval --force and ddl ablate: what is forced, the losses, and what is refused. */
#include "support/files.h"
#include "support/program.h"
#include "support/runs.h"

#include "ddl/backend.h"
#include "ddl/model.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char delta[2048], add[2048], dense[2048], depth[2048], wide[2048], text[2048];

static int write_inputs(void **state)
{
    (void)state;
    snprintf(delta, sizeof delta, "%s", tiny_folder("delta", "ddl-cc-ec"));
    snprintf(add, sizeof add, "%s", tiny_folder("add", "baseline"));
    snprintf(dense, sizeof dense, "%s", tiny_folder("dense", "denseformer"));
    snprintf(depth, sizeof depth, "%s", tiny_folder("depth", "attnres"));
    snprintf(wide, sizeof wide, "%s", tiny_folder("wide", "ddl-cc-ec"));
    snprintf(text, sizeof text, "%s", tiny_text("text.txt", 400));
    return 0;
}

/* The JSON that a command printed. */
static json_t *json_of(const char *command, const char *folder, const char *options)
{
    return ddl_json("%s '%s' --text '%s' --backend ref --json %s", command, folder, text, options);
}

static double loss_of(const char *folder, const char *options)
{
    json_t *root = json_of("eval", folder, options);
    double loss = number_of(json_array_get(json_object_get(root, "models"), 0), "loss");
    json_decref(root);
    return loss;
}

/* ---- eval --force ---- */

static void own_values_leave_the_loss(void **state)
{
    (void)state;
    double free_loss = loss_of(delta, "");
    assert_true(loss_of(delta, "--force scale=1") == free_loss);
    assert_true(loss_of(delta, "--force layers=0,2,sub=mlp,update=delta,scale=1") == free_loss);
    assert_true(loss_of(add, "--force f_scale=1") == loss_of(add, ""));
}

/* Of the initial queries, which are 0, the mean of the sources is the model's own mixture. */
static void sources_are_mixed_as_forced(void **state)
{
    (void)state;
    double free_loss = loss_of(depth, "");
    assert_true(loss_of(depth, "--force mix=mean") == free_loss);
    assert_true(loss_of(depth, "--force mix=last") != free_loss);
    assert_true(loss_of(depth, "--force layers=0,sub=attn,mix=last") == free_loss); /* it has one source */
}

static void fix_to_wide(struct ddl_config *config, float most)
{
    config->beta_max = most;
}

static void fix_to_gate(struct ddl_config *config, float beta)
{
    config->beta_constant = true;
    config->beta_constant_value = beta;
}

/* Changes the configuration of the model in a folder, not its weights. */
static void change_model(const char *folder, void (*change)(struct ddl_config *config, float number),
                         float number)
{
    struct ddl_error err;
    ddl_backend *backend;
    ddl_model *model, *fixed;
    assert_ok(ddl_backend_create(&backend, "ref", 0, &err), err);
    assert_ok(ddl_model_load(&model, folder, backend, NULL, NULL, &err), err);
    struct ddl_config config = *ddl_model_config(model);
    change(&config, number);
    assert_ok(ddl_model_create(&fixed, &config, backend, &err), err);
    for (size_t i = 0; i < ddl_model_n_params(model); i++) {
        float *x = malloc(ddl_model_param(model, i)->count * sizeof *x);
        ddl_model_read_param(model, i, x);
        ddl_model_write_param(fixed, i, x);
        free(x);
    }
    assert_ok(ddl_model_save(fixed, folder, &err), err);
    ddl_model_free(fixed);
    ddl_model_free(model);
    ddl_backend_free(backend);
}

/* A model with ddl_beta_constant is the model with that gate forced. */
static void fixed_gates_are_forced_gates(void **state)
{
    (void)state;
    static const char *const dtypes[] = { "", "--dtype bf16", "--dtype int8" };
    char fixed[2048];
    copy_scratch("delta", "fixed");
    snprintf(fixed, sizeof fixed, "%s", scratch_path("fixed"));
    change_model(fixed, fix_to_gate, 0.6f);
    for (size_t i = 0; i < 3; i++) {
        char forced[64];
        snprintf(forced, sizeof forced, "--force beta=0.6 %s", dtypes[i]);
        double loss = loss_of(fixed, dtypes[i]);
        assert_true(loss == loss_of(delta, forced));
        assert_true(loss != loss_of(delta, dtypes[i]));
    }
    assert_true(loss_of(fixed, "--force beta=1") == loss_of(delta, "--force beta=1"));
}

/* A gate can be forced to what ddl_beta_max allows. */
static void gates_are_forced_above_2(void **state)
{
    (void)state;
    change_model(wide, fix_to_wide, 3);
    double at_2 = loss_of(wide, "--force beta=2");
    assert_true(at_2 == loss_of(delta, "--force beta=2"));
    assert_true(isfinite(loss_of(wide, "--force beta=2.7")) && loss_of(wide, "--force beta=2.7") != at_2);
    assert_true(loss_of(wide, "--force scale=1") != loss_of(delta, "--force scale=1"));
}

/* Later specs change what earlier ones set; several specs add up to one. */
static void specs_combine(void **state)
{
    (void)state;
    double both = loss_of(delta, "--force layers=0-1,beta=0");
    assert_true(both != loss_of(delta, "--force layers=0,beta=0"));
    assert_true(both == loss_of(delta, "--force layers=0,beta=0 --force layers=1,beta=0"));
    assert_true(both == loss_of(delta, "--force layers=0,sub=attn,beta=0 --force=layers=1,0,sub=mlp,beta=0 "
                                       "--force layers=1,sub=attn,beta=0"));
    assert_true(loss_of(delta, "") == loss_of(delta, "--force beta=0 --force scale=1"));
    assert_true(loss_of(delta, "--force beta=0.5 --force update=write") ==
                loss_of(delta, "--force beta=0.5,update=write"));
    json_t *root = json_of("eval", delta, "--force beta=0 --force layers=1,scale=2");
    const json_t *list = json_object_get(root, "force");
    assert_int_equal(json_array_size(list), 2);
    assert_string_equal(json_string_value(json_array_get(list, 1)), "layers=1,scale=2");
    json_decref(root);
}

/* Of the initial weights a sum is the state itself, which is what is left without it. */
static void sums_are_left_out(void **state)
{
    (void)state;
    double loss = loss_of(dense, "");
    assert_true(loss_of(dense, "--force average=none") == loss);
    assert_true(loss_of(dense, "--force layers=1,average=none,f_scale=0") ==
                loss_of(dense, "--force layers=1,f_scale=0"));
}

/* The mean of a gate lies between its lowest and its highest value, and so does the effect here: the loss is
 * neither that of the free gate nor that of 0. */
static void means_are_measured_first(void **state)
{
    (void)state;
    double mean = loss_of(delta, "--force beta=mean"), free_loss = loss_of(delta, "");
    assert_true(mean != free_loss && mean != loss_of(delta, "--force beta=0"));
    assert_true(fabs(mean - free_loss) < 0.5);
    assert_true(loss_of(delta, "--force beta=mean --force scale=1") == free_loss);
    assert_true(loss_of(delta, "--force beta=mean,beta=0.5") == loss_of(delta, "--force beta=0.5"));
}

static void refusals(void **state)
{
    (void)state;
    const struct {
        const char *folder, *options, *message;
    } rows[] = {
        { delta, "--force layers=9,beta=0",
          "--force 'layers=9,beta=0': layers: expected layers 0 to 2, found 9" },
        { delta, "--force layers=2-1,beta=0", "layers: expected all, a layer or a range A-B, found '2-1'" },
        { delta, "--force beta=2.5", "--force 'beta=2.5': beta: 2.5 is out of range (0 to 2)" },
        { delta, "--force beat=0", "unknown key 'beat', did you mean 'beta'?" },
        { delta, "--force sub=all",
          "expected one of beta, scale, update, f_scale, mix, values and average, found none" },
        { delta, "--force beta", "expected KEY=VALUE, found 'beta'" },
        { delta, "--force beta=0,scale=1", "expected one of beta and scale, found both" },
        { delta, "--force update=none", "update: 'none' is none of delta, write, erase" },
        { delta, "--force f_scale=0",
          "f_scale: expected layers with a rule other than delta, the model has none" },
        { add, "--force beta=0",
          "beta, scale and update: expected layers with the rule delta, the model has none" },
        { add, "--force average=none",
          "average: expected layers with a sum of dense_average after it, sub=mlp, the model has none" },
        { dense, "--force layers=1,sub=attn,average=none", "average: expected sub=mlp, found sub=attn" },
        { dense, "--force average=all", "average: 'all' is none of none" },
        { add, "--force layers=1,beta=0", "expected a layer with the rule delta, layer 1 has the rule add" },
        { delta, "--force layers=1,beta=0,f_scale=0",
          "f_scale: expected a layer with a rule other than delta, layer 1 has the rule delta" },
        { delta, "--force layers=1,beta=0,mix=identity",
          "mix: expected a layer with the rule hyper, mhc, laurel or attnres, layer 1 has the rule delta" },
        { depth, "--force mix=identity",
          "force: mix: expected last or mean in layer 0, whose residual rule is attnres, found identity" },
        { wide, "--force beta=3.5", "--force 'beta=3.5': beta: 3.5 is out of range (0 to 3)" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(ddl("eval '%s' --text '%s' %s", rows[i].folder, text, rows[i].options), 2);
        assert_printed(rows[i].message);
    }
    assert_int_equal(ddl("eval '%s' --tasks piqa --data data/tasks --limit 1 --force beta=mean", delta), 2);
    assert_printed("--force: beta=mean: expected with --val-data or --text");
    assert_int_equal(ddl("eval '%s' --tasks piqa --data data/tasks --items x --force beta=0", delta), 2);
    assert_printed("--items: expected without --force");
}

/* ---- ablate ---- */

/* A model with the rule scale, whose factors of the last sublayer are just below overflow. */
static const char *steep_folder(void)
{
    struct ddl_error err;
    ddl_backend *backend;
    ddl_model *model;
    const char *path = tiny_folder("steep", "scale");
    assert_ok(ddl_backend_create(&backend, "ref", 0, &err), err);
    assert_ok(ddl_model_load(&model, path, backend, NULL, NULL, &err), err);
    for (size_t i = 0; i < ddl_model_n_params(model); i++) {
        const struct ddl_param *param = ddl_model_param(model, i);
        if (!strstr(param->name, ".h.2.") || !strstr(param->name, "mlp.scale"))
            continue;
        float *values = malloc(param->count * sizeof *values);
        assert_non_null(values);
        for (size_t j = 0; j < param->count; j++)
            values[j] = 1e37f;
        ddl_model_write_param(model, i, values);
        free(values);
    }
    assert_ok(ddl_model_save(model, path, &err), err);
    ddl_model_free(model);
    ddl_backend_free(backend);
    return path;
}

/* A change that leaves no finite loss is a row of the table, the first. */
static void ablation_without_a_loss(void **state)
{
    (void)state;
    json_t *root = json_of("ablate", steep_folder(), "--force sub=mlp,f_scale=1e6");
    const json_t *list = json_object_get(root, "sublayers");
    assert_int_equal(json_array_size(list), 3);
    assert_true(json_is_null(json_object_get(json_array_get(list, 0), "loss")));
    assert_true(json_is_number(json_object_get(json_array_get(list, 1), "loss")));
    assert_true(json_is_true(json_object_get(root, "complete")));
    json_decref(root);
}

/* Every sublayer once, sorted by the increase; each loss is that of eval with the same force. */
static void check_ablation(const char *folder, const char *options, const char *force, size_t expected)
{
    json_t *root = json_of("ablate", folder, options);
    const json_t *list = json_object_get(root, "sublayers");
    double base = number_of(root, "loss"), last = INFINITY;
    bool seen[6] = { false };
    assert_true(base == loss_of(folder, "--val-tokens 16384"));
    assert_true(json_is_true(json_object_get(root, "complete")));
    assert_int_equal(json_array_size(list), expected);
    for (size_t i = 0; i < expected; i++) {
        const json_t *row = json_array_get(list, i);
        const char *sub = json_string_value(json_object_get(row, "sub"));
        size_t layer = (size_t)number_of(row, "layer"), s = 2 * layer + (strcmp(sub, "mlp") == 0);
        char spec[128];
        assert_true(s < 6 && !seen[s]);
        seen[s] = true;
        assert_string_equal(json_string_value(json_object_get(row, "force")), force);
        snprintf(spec, sizeof spec, "--force layers=%zu,sub=%s,%s", layer, sub, force);
        assert_true(number_of(row, "loss") == loss_of(folder, spec));
        assert_true(fabs(number_of(row, "increase") - (number_of(row, "loss") - base)) < 1e-6);
        assert_true(number_of(row, "increase") <= last);
        last = number_of(row, "increase");
    }
    json_decref(root);
}

static void ablations(void **state)
{
    (void)state;
    check_ablation(delta, "", "beta=0", 6);
    check_ablation(add, "", "f_scale=0", 6);
    check_ablation(delta, "--force sub=mlp,update=write", "update=write", 3);
    check_ablation(delta, "--force layers=1,beta=mean", "beta=mean", 2);
}

static void ablation_table(void **state)
{
    (void)state;
    assert_int_equal(ddl_stream(STANDARD_OUTPUT, "ablate '%s' --text '%s'", add, text), 0);
    assert_printed("rank  layer  sub   rule     force               loss    increase\n   1  ");
    assert_printed("  add      f_scale=0  ");
    const struct refusal list[] = {
        { "ablate", 2, "a model folder (DIR)" },
        { "ablate x", 2, "--val-data PATH or --text FILE" },
        { "ablate x --text a --val-data b", 2, "expected one of --val-data and --text, found both" },
    };
    assert_refused(list, sizeof list / sizeof *list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(own_values_leave_the_loss),
        cmocka_unit_test(fixed_gates_are_forced_gates),
        cmocka_unit_test(sources_are_mixed_as_forced),
        cmocka_unit_test(gates_are_forced_above_2),
        cmocka_unit_test(specs_combine),
        cmocka_unit_test(sums_are_left_out),
        cmocka_unit_test(means_are_measured_first),
        cmocka_unit_test(refusals),
        cmocka_unit_test(ablations),
        cmocka_unit_test(ablation_without_a_loss),
        cmocka_unit_test(ablation_table),
    };
    return cmocka_run_group_tests(tests, write_inputs, NULL);
}
