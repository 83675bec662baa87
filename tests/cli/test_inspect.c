/* ddl inspect: its summary, its JSON, a prompt token by token, and what it refuses. */
#include "support/files.h"
#include "support/program.h"
#include "support/runs.h"

#include "ddl/inspect.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char delta[2048], add[2048], text[2048];

static int write_inputs(void **state)
{
    (void)state;
    snprintf(delta, sizeof delta, "%s", tiny_folder("delta", "ddl-cc-ec"));
    snprintf(add, sizeof add, "%s", tiny_folder("add", "baseline"));
    snprintf(text, sizeof text, "%s", tiny_text("text.txt", 600));
    return 0;
}

static json_t *inspect(const char *folder, const char *options)
{
    return ddl_json("inspect '%s' --backend ref --json %s", folder, options);
}

/* ---- JSON ---- */

/* A sublayer with two steps has two entries; the weights of sums of states are listed. */
static void steps_and_sums(void **state)
{
    (void)state;
    char options[2200];
    snprintf(options, sizeof options, "--text '%s' --tokens 64", text);
    json_t *root = inspect(tiny_folder("steps", "ddl-2step"), options);
    const json_t *list = json_object_get(root, "sublayers");
    assert_int_equal(json_array_size(list), 12);
    for (size_t s = 0; s < 12; s++) {
        const json_t *row = json_array_get(list, s);
        assert_true(number_of(row, "layer") == (double)(s / 4) &&
                    number_of(row, "step_index") == (double)(s % 2));
        assert_string_equal(json_string_value(json_object_get(row, "sub")), s / 2 % 2 ? "mlp" : "attn");
    }
    json_decref(root);
    assert_int_equal(ddl("inspect '%s' --backend ref %s", scratch_path("steps"), options), 0);
    assert_printed("    0  attn.1  delta");
    root = inspect(tiny_folder("dense", "denseformer"), options);
    list = json_object_get(root, "averages");
    assert_int_equal(json_array_size(list), 3);
    for (size_t l = 0; l < 3; l++) {
        const json_t *weights = json_object_get(json_array_get(list, l), "weights");
        assert_int_equal(json_array_size(weights), l + 2);
        assert_true(json_number_value(json_array_get(weights, l + 1)) == 1);
    }
    json_decref(root);
    assert_int_equal(ddl("inspect '%s' --backend ref %s", scratch_path("dense"), options), 0);
    assert_printed("    1   1.000   0.000   0.000\n");
}

/* Quantiles are in order, shares and histogram agree with the number of tokens, and the loss is that of eval.
 */
static void figures_agree(void **state)
{
    (void)state;
    char options[2200];
    snprintf(options, sizeof options, "--text '%s' --tokens 0", text);
    json_t *root = inspect(delta, options);
    const json_t *list = json_object_get(root, "sublayers");
    double tokens = number_of(root, "tokens");
    assert_int_equal(json_array_size(list), 6);
    for (size_t s = 0; s < 6; s++) {
        const json_t *row = json_array_get(list, s), *bins = json_object_get(row, "histogram");
        static const char *const order[] = { "beta_min", "beta_q05", "beta_q25", "beta_q50",
                                             "beta_q75", "beta_q95", "beta_max" };
        double count = 0;
        for (size_t i = 1; i < 7; i++)
            assert_true(number_of(row, order[i]) >= number_of(row, order[i - 1]));
        for (size_t i = 0; i < json_array_size(bins); i++)
            count += json_number_value(json_array_get(bins, i));
        assert_int_equal(json_array_size(bins), DDL_INSPECT_BINS);
        assert_true(count == tokens && json_is_true(json_object_get(row, "exact")));
        assert_int_equal(json_array_size(json_object_get(row, "by_position")), 16);
        assert_int_equal(json_array_size(json_object_get(row, "channel_rms")), 4);
        const json_t *highest = json_array_get(json_object_get(row, "highest"), 0);
        assert_true(fabs(number_of(highest, "gate") - number_of(row, "beta_max")) < 1e-7);
        assert_true(json_is_string(json_object_get(highest, "text")));
        assert_true(json_is_null(json_object_get(row, "tau_mean")));
        assert_true(json_is_null(json_object_get(row, "overlap_next")) == (s == 5));
    }
    assert_true(number_of(json_object_get(root, "depth"), "sigma_max") >=
                number_of(json_object_get(root, "depth"), "sigma_min"));
    assert_int_equal(json_array_size(json_object_get(root, "read")), 4);
    double loss = number_of(root, "loss");
    json_decref(root);
    root = ddl_json("eval '%s' --text '%s' --backend ref --json", delta, text);
    /* The same sequences: those of eval have a context of 16 tokens too, and do not overlap. */
    assert_true(fabs(number_of(json_array_get(json_object_get(root, "models"), 0), "loss") - loss) < 1e-6);
    json_decref(root);
}

static void tokens_are_limited(void **state)
{
    (void)state;
    char options[2200];
    snprintf(options, sizeof options, "--text '%s' --tokens 20 --seq 8 --spectrum-tokens 0", text);
    json_t *root = inspect(delta, options);
    assert_true(number_of(root, "tokens") == 24); /* whole sequences */
    assert_true(number_of(root, "seq") == 8);
    assert_true(json_is_null(json_object_get(json_object_get(root, "depth"), "sigma_max")));
    json_decref(root);
    root = inspect(add, options);
    assert_null(json_object_get(root, "depth"));
    assert_null(json_object_get(root, "read"));
    assert_true(number_of(json_array_get(json_object_get(root, "sublayers"), 0), "step") > 0);
    json_decref(root);
}

static void a_prompt_by_token(void **state)
{
    (void)state;
    json_t *root = inspect(delta, "--prompt 'Permission is'");
    const json_t *rows = json_object_get(root, "prompt"), *first = json_array_get(rows, 0);
    assert_true(json_array_size(rows) == (size_t)number_of(root, "tokens") && json_array_size(rows) > 2);
    assert_string_equal(json_string_value(json_object_get(first, "text")), "<|endoftext|>");
    for (size_t s = 0; s < 6; s++) {
        const json_t *sublayer = json_array_get(json_object_get(root, "sublayers"), s);
        double mean = 0;
        for (size_t n = 0; n < json_array_size(rows); n++)
            mean += json_number_value(json_array_get(json_object_get(json_array_get(rows, n), "gates"), s));
        assert_true(fabs(mean / (double)json_array_size(rows) - number_of(sublayer, "beta_mean")) < 1e-6);
    }
    json_decref(root);
    assert_int_equal(ddl_stream(STANDARD_OUTPUT, "inspect '%s' --prompt 'Permission is'", add), 0);
    assert_printed("the size of the step |X' - X| / |X| of each sublayer");
    assert_printed("    0a    0m    1a    1m    2a    2m  token\n");
    assert_printed("  <|endoftext|>\n");
}

/* The model is inspected as ddl eval --force evaluates it. */
static void forced_updates(void **state)
{
    (void)state;
    char options[2400];
    snprintf(options, sizeof options,
             "--text '%s' --force layers=1,sub=mlp,beta=0.5 --force layers=2,update=write", text);
    json_t *root = inspect(delta, options);
    json_t *eval = ddl_json("eval '%s' --backend ref --json %s", delta, options);
    assert_true(fabs(number_of(json_array_get(json_object_get(eval, "models"), 0), "loss") -
                     number_of(root, "loss")) < 1e-6);
    const json_t *sublayers = json_object_get(root, "sublayers");
    assert_true(number_of(json_array_get(sublayers, 3), "beta_min") == 0.5 &&
                number_of(json_array_get(sublayers, 3), "beta_max") == 0.5);
    assert_true(number_of(json_array_get(sublayers, 2), "beta_min") != 0.5);
    assert_string_equal(json_string_value(json_array_get(json_object_get(root, "force"), 1)),
                        "layers=2,update=write");
    json_decref(eval);
    json_decref(root);
    assert_int_equal(ddl_stream(STANDARD_OUTPUT, "inspect '%s' --backend ref %s", delta, options), 0);
    assert_printed("\nforced: layers=1,sub=mlp,beta=0.5\nforced: layers=2,update=write\n");
    snprintf(options, sizeof options, "--text '%s' --force beta=mean", text);
    root = inspect(delta, options);
    const json_t *first = json_array_get(json_object_get(root, "sublayers"), 0);
    assert_true(number_of(first, "beta_min") == number_of(first, "beta_max"));
    json_decref(root);
    root = inspect(add, "--prompt 'Permission is' --force f_scale=0");
    assert_true(number_of(json_array_get(json_object_get(root, "sublayers"), 0), "step") == 0);
    json_decref(root);
}

/* ---- text ---- */

static void summary(void **state)
{
    (void)state;
    assert_int_equal(ddl_stream(STANDARD_OUTPUT, "inspect '%s' --text '%s'", delta, text), 0);
    assert_printed("layer  sub   rule        β    5%   95%  skip match  over  refl  e_pre e_post");
    assert_printed("value channels: root mean square, and the read vectors\n");
    assert_printed("gate by position\nlayer  sub   rule       0+    1+    2+    4+    8+\n");
    assert_printed("over depth: log |det| ");
    assert_printed("tokens with the highest and the lowest gate, in context\n");
    assert_int_equal(ddl_stream(STANDARD_OUTPUT, "inspect '%s' --text '%s'", add, text), 0);
    assert_printed("layer  sub   rule      step stream\n    0  attn  add    ");
    assert_null(strstr(printed, "gate by position"));
}

/* A shard with tokens that the model does not have. */
static void refusals(void **state)
{
    (void)state;
    char shard[2048];
    snprintf(shard, sizeof shard, "%s", scratch_path("wide.bin"));
    write_random_shard(shard, 1, 5000, 400);
    assert_int_equal(ddl("inspect '%s' --val-data '%s' --quiet", delta, shard), 1);
    assert_printed("vocab");
    assert_int_equal(ddl("inspect '%s' --text '%s' --seq 17 --quiet", delta, text), 2);
    assert_printed("inspect: seq: expected at most 16 (the model's context), found 17");
    assert_int_equal(
        ddl("inspect '%s' --quiet --prompt 'a prompt that has more tokens than the context holds'", delta),
        2);
    assert_printed("--prompt: expected at most 16 tokens (the model's context), found ");
    assert_int_equal(ddl("inspect '%s' --prompt x --tokens 8", delta), 2);
    assert_printed("--tokens: expected with --val-data or --text");
    assert_int_equal(ddl("inspect '%s' --prompt x --force beta=mean", delta), 2);
    assert_printed("--force: beta=mean: expected with --val-data or --text");
    const struct refusal list[] = {
        { "inspect x --text a --format auto", 2, "--format: expected with --val-data" },
        { "inspect x --text a --save-every 2", 2, "--save-every: expected with --save-states" },
        { "inspect", 2, "a model folder (DIR)" },
        { "inspect x", 2, "--val-data PATH, --text FILE or --prompt TEXT" },
        { "inspect x --text a --prompt b", 2,
          "expected one of --val-data, --text and --prompt, found several" },
    };
    assert_refused(list, sizeof list / sizeof *list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_and_sums),     cmocka_unit_test(figures_agree),
        cmocka_unit_test(tokens_are_limited), cmocka_unit_test(a_prompt_by_token),
        cmocka_unit_test(forced_updates),     cmocka_unit_test(summary),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, write_inputs, NULL);
}
