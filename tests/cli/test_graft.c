/* ddl graft: options, output and errors, as a user meets them. */
#include "support/files.h"
#include "support/program.h"
#include "support/runs.h"

#include <jansson.h>
#include <math.h>

static char add[2048], data[2048], out[2048];

static int write_inputs(void **state)
{
    (void)state;
    snprintf(add, sizeof add, "%s", tiny_folder("add", "baseline"));
    snprintf(data, sizeof data, "%s", scratch_path("train.bin"));
    snprintf(out, sizeof out, "%s", scratch_path("out"));
    write_random_shard(data, 3, TINY_VOCAB, 3000);
    return 0;
}

static json_t *json_of(const char *arguments)
{
    return ddl_json("graft '%s' --out '%s' --backend ref %s --json", add, out, arguments);
}

static double eval_loss(const char *folder, const char *force)
{
    json_t *root =
        ddl_json("eval '%s' --val-data '%s' --val-tokens 160 --backend ref --json %s", folder, data, force);
    double loss = number_of(json_array_get(json_object_get(root, "models"), 0), "loss");
    json_decref(root);
    return loss;
}

/* The losses are those of ddl eval; a gate forced to 0 skips the layers. */
static void one_graft(void **state)
{
    (void)state;
    char arguments[4096];
    remove_scratch("out");
    snprintf(arguments, sizeof arguments, "--layers 0,2 --beta-init 0.25 --val-data '%s' --val-tokens 160",
             data);
    json_t *root = json_of(arguments);
    assert_string_equal(json_string_value(json_object_get(root, "rule")), "delta");
    assert_string_equal(json_string_value(json_object_get(root, "train_only")), "transformer.h.*.ddl_*");
    assert_int_equal(json_array_size(json_object_get(root, "layers")), 2);
    assert_true(fabs(number_of(root, "loss_before") - eval_loss(add, "")) < 1e-7);
    assert_true(fabs(number_of(root, "loss") - eval_loss(out, "")) < 1e-7);
    json_decref(root);
    assert_true(eval_loss(out, "--force layers=0,2,beta=0") ==
                eval_loss(add, "--force layers=0,2,f_scale=0"));
    remove_scratch("out");
    assert_int_equal(ddl("graft '%s' --layers 1 --rule highway --train new --out '%s'", add, out), 0);
    assert_printed("out: rule highway in layers 1\n");
    assert_printed("--train-only 'transformer.h.*.res_*' --train-data PATH");
    /* The rule has no parameters, but the option has. */
    const char *highway = scratch_path("highway");
    remove_scratch("highway");
    remove_scratch("out");
    assert_int_equal(ddl("graft '%s' --layers 1 --rule highway --out '%s'", add, highway), 0);
    assert_int_equal(
        ddl("graft '%s' --layers 1 --rule add --value-residual true --train new --out '%s'", highway, out),
        0);
    assert_printed("v_mix");
}

/* A run that starts from it with the printed option leaves the other tensors as they are. */
static void the_printed_command_trains_it(void **state)
{
    (void)state;
    remove_scratch("out");
    remove_scratch("tuned");
    assert_int_equal(ddl("graft '%s' --layers all --rule scale --out '%s'", add, out), 0);
    assert_int_equal(
        ddl("train --quiet --init-from '%s' --train-only 'transformer.h.*.res_*' --train-data '%s' "
            "--steps 2 --batch 1 --val-every 0 --out '%s'",
            out, data, scratch_path("tuned")),
        0);
    remove_scratch("back");
    assert_int_equal(
        ddl("graft '%s' --layers all --rule add --out '%s'", scratch_path("tuned"), scratch_path("back")), 0);
    assert_true(eval_loss(scratch_path("back"), "") == eval_loss(add, ""));
}

#define SWEEP "--sweep --steps 2 --batch 1 --global-batch 2 --warmup 0 --val-tokens 160 --quiet "

static void sweeps(void **state)
{
    (void)state;
    char arguments[4096];
    remove_scratch("out");
    snprintf(arguments, sizeof arguments, SWEEP "--train-data '%s'", data);
    json_t *root = json_of(arguments);
    const json_t *rows = json_object_get(root, "rows");
    assert_int_equal(json_array_size(rows), 4);
    assert_true(json_is_true(json_object_get(root, "complete")));
    for (size_t i = 0; i < 4; i++) {
        const json_t *row = json_array_get(rows, i);
        assert_true(fabs(number_of(row, "increase") -
                         (number_of(row, "loss") - number_of(root, "source_loss"))) < 1e-6);
        if (i)
            assert_true(number_of(row, "tuned_loss") >= number_of(json_array_get(rows, i - 1), "tuned_loss"));
    }
    json_decref(root);
    assert_int_equal(ddl("graft '%s' --out '%s' --backend ref %s --csv", add, out, arguments), 0);
    assert_printed("layer,rule_was,rule,loss,increase,tuned_loss,tuned_increase,seconds\n");
    assert_printed("\n2,add,delta,");
    assert_printed("none,,,");
    assert_int_equal(ddl("graft '%s' --out '%s' --backend ref %s", add, out, arguments), 0);
    assert_printed("tuned: 2 steps of all parameters");
    assert_int_equal(ddl("graft '%s' --out '%s' --backend ref %s --markdown", add, out, arguments), 0);
    assert_printed("| layer | was |");
    assert_int_equal(ddl("graft '%s' --out '%s' --backend ref %s --rule gated", add, out, arguments), 2);
    assert_printed("graft.json: the sweep has another rule: expected delta, found gated");
}

static void refusals(void **state)
{
    (void)state;
    char wide[2048], large[2048];
    struct {
        const char *folder, *arguments, *message;
        int status;
    } rows[] = {
        { add, "--layers 3", "layers: expected layers 0 to 2, found 3", 2 },
        { add, "--layers 1-", "layers: expected all, a layer or a range A-B, found '1-'", 2 },
        { add, "--layers none", "layers: expected all, a layer or a range A-B, found 'none'", 2 },
        { add, "--sweep --dense-average true --train-data x",
          "dense_average: expected false, as in the source: a sweep changes rules only", 2 },
        { add, "--layers 0 --rule delta --ddl-map v --ddl-steps 2",
          "ddl_steps is 2, but ddl_map is v: several steps need ddl_map k", 2 },
        { add, "--layers 0 --rule add", "layers: layer 0 has the rule add already", 2 },
        { add, "--layers 0 --rule deltas", "--rule: 'deltas' is none of add, delta, scale, gated, highway",
          2 },
        { add, "--layers 0 --rule gated --ddl-map v", "ddl_map: expected a key of the rule gated", 2 },
        { add, "--layers 0 --beta-init 3", "ddl_beta_init: 3 is out of range (0 to 2)", 2 },
        { add, "--rule delta", "graft: missing argument: expected --layers LIST, --sweep or", 2 },
        { add, "--layers 0 --csv", "--csv, --markdown: expected with --sweep", 2 },
        { add, "--layers 0 --lr 1e-3", "--lr: expected with --sweep", 2 },
        { add, "--layers 0 --keep-models", "--keep-models: expected with --sweep", 2 },
        { add, "--sweep --json --csv", "expected one of --json, --csv and --markdown, found several", 2 },
        { add, "--sweep", "graft: missing argument: expected --train-data PATH", 2 },
        { add, "--sweep --rule hyper --train-data x",
          "graft of layer 0 alone: layers: expected all 3 layers, which share the state of the rule hyper",
          2 },
        { wide, "--layers 0 --rule add", "ddl_value_channels: expected 1, found 4", 2 },
        { add, large, "token ", 1 },
    };
    snprintf(wide, sizeof wide, "%s", tiny_folder("wide", "ddl-cc-ec"));
    snprintf(large, sizeof large, "--layers 0 --val-data '%s'", scratch_path("large.bin"));
    write_random_shard(scratch_path("large.bin"), 3, 2 * TINY_VOCAB, 3000);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        remove_scratch("out");
        if (ddl("graft '%s' %s --out '%s'", rows[i].folder, rows[i].arguments, out) != rows[i].status)
            fail_msg("ddl graft %s: %s", rows[i].arguments, printed);
        assert_printed(rows[i].message);
        assert_false(ddl_file_exists(out));
    }
    static const struct refusal usage[] = {
        { "graft --out a", 2, "graft: missing argument: expected a model folder (DIR)" },
        { "graft a --layers 0", 2, "graft: missing argument: expected --out DIR" },
        { "graft /nowhere --layers 0 --out b", 1, "/nowhere" },
    };
    assert_refused(usage, sizeof usage / sizeof *usage);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_graft),
        cmocka_unit_test(the_printed_command_trains_it),
        cmocka_unit_test(sweeps),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, write_inputs, NULL);
}
