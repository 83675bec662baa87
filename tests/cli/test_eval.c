/* ddl eval --text and --val-data: their forms, several models, and options that do not apply. */
#include "support/files.h"
#include "support/program.h"
#include "support/runs.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char words[] = "Permission is hereby granted, free of charge, to any person.\n";
static char first[1024], second[1024], text[1024], shard[1024];

static int write_inputs(void **state)
{
    (void)state;
    snprintf(first, sizeof first, "%s", tiny_folder("first", "ddl-cc-ec"));
    snprintf(second, sizeof second, "%s", tiny_folder("second|one", "baseline"));
    snprintf(text, sizeof text, "%s", scratch_path("text.txt"));
    snprintf(shard, sizeof shard, "%s", scratch_path("s.bin"));
    write_file(text, words, strlen(words));
    write_random_shard(shard, 1, 250, 90);
    return 0;
}

/* `ddl eval first second --text text` and more. */
static void evaluate(const char *arguments)
{
    assert_int_equal(
        ddl_stream(STANDARD_OUTPUT, "eval '%s' '%s' --text '%s' --seq 8 %s", first, second, text, arguments),
        0);
}

struct values {
    double loss, perplexity, bits, bytes, tokens;
};

static struct values values_of_json(size_t i)
{
    json_t *root = printed_json();
    const json_t *models = json_object_get(root, "models"), *model = json_array_get(models, i);
    const char *const folders[] = { first, second };
    assert_int_equal(json_array_size(models), 2);
    assert_string_equal(json_string_value(json_object_get(model, "model")), folders[i]);
    struct values v = { json_number_value(json_object_get(model, "loss")),
                        json_number_value(json_object_get(model, "perplexity")),
                        json_number_value(json_object_get(model, "bits_per_byte")),
                        json_number_value(json_object_get(model, "bytes")),
                        json_number_value(json_object_get(model, "tokens")) };
    json_decref(root);
    return v;
}

static void forms_agree(void **state)
{
    (void)state;
    struct values v[2];
    char expected[4096];
    evaluate("--json");
    for (size_t i = 0; i < 2; i++) {
        v[i] = values_of_json(i);
        assert_true(v[i].bytes == (double)strlen(words));
        assert_true(fabs(v[i].bits - v[i].loss / log(2) * v[i].tokens / v[i].bytes) < 1e-6);
    }
    assert_true(v[0].loss != v[1].loss && v[0].tokens == v[1].tokens);
    evaluate("--csv");
    assert_printed("model,saved_model,loss,perplexity,bits_per_byte,bytes,tokens,seconds\n");
    for (size_t i = 0; i < 2; i++) {
        snprintf(expected, sizeof expected, "%s,,%.9g,%.9g,%.9g,%.0f,%.0f,", i ? second : first, v[i].loss,
                 v[i].perplexity, v[i].bits, v[i].bytes, v[i].tokens);
        assert_printed(expected);
    }
    evaluate("--markdown");
    snprintf(expected, sizeof expected,
             "| model | loss | perplexity | bits per byte | tokens |\n|---|---|---|---|---|\n"
             "| %s | %.4f | %.2f | %.4f | %.0f |\n| ",
             first, v[0].loss, v[0].perplexity, v[0].bits, v[0].tokens);
    assert_printed(expected);
    assert_printed("second\\|one | ");
    evaluate("");
    snprintf(expected, sizeof expected, "%s\nloss           %.6f nats/token\nperplexity     %.4f\n", first,
             v[0].loss, v[0].perplexity);
    assert_memory_equal(printed, expected, strlen(expected));
    snprintf(expected, sizeof expected, "\n\n%s\nloss           %.6f nats/token\n", second, v[1].loss);
    assert_printed(expected);
}

/* Standard input, which is read once, gives what the file gives. */
static void standard_input(void **state)
{
    (void)state;
    evaluate("--json");
    struct values v = values_of_json(1);
    assert_int_equal(
        ddl_stream(STANDARD_OUTPUT, "eval '%s' '%s' --text - --seq 8 --json <'%s'", first, second, text), 0);
    assert_true(values_of_json(1).loss == v.loss);
}

/* Without a tokenizer, bits per byte are not known. */
static void shards_without_a_tokenizer(void **state)
{
    (void)state;
    struct ddl_error err;
    ddl_backend *backend;
    assert_ok(ddl_backend_create(&backend, "ref", 0, &err), err);
    ddl_model *model = tiny_model("baseline", TINY_VOCAB, 1, backend);
    assert_ok(ddl_file_make_dir(scratch_path("bare"), &err), err);
    assert_ok(ddl_model_save(model, scratch_path("bare"), &err), err);
    ddl_model_free(model);
    ddl_backend_free(backend);
    assert_int_equal(ddl_stream(STANDARD_OUTPUT, "eval '%s' '%s' --val-data '%s' --csv", scratch_path("bare"),
                                first, shard),
                     0);
    assert_printed(",,,89,"); /* neither bits per byte nor bytes */
    assert_int_equal(
        ddl_stream(STANDARD_OUTPUT, "eval '%s' --val-data '%s' --markdown", scratch_path("bare"), shard), 0);
    assert_printed(" | | 89 |\n");
}

/* --groups: what each form prints of the groups of a mask. */
static void groups(void **state)
{
    (void)state;
    unsigned char mask[90];
    for (size_t i = 0; i < sizeof mask; i++)
        mask[i] = i % 3 ? 0 : i % 2 ? 7 : 2;
    write_random_shard(scratch_path("g.bin"), 1, 250, sizeof mask);
    write_file(scratch_path("g.mask"), mask, sizeof mask);
    const char *command = "eval '%s' --val-data '%s' --seq 8 --groups %s";
    assert_int_equal(ddl_stream(STANDARD_OUTPUT, command, first, scratch_path("g.bin"), "--json"), 0);
    json_t *root = printed_json();
    const json_t *model = json_array_get(json_object_get(root, "models"), 0),
                 *rows = json_object_get(model, "groups");
    double nats = 0;
    for (size_t i = 0; i < 2; i++) {
        const json_t *row = json_array_get(rows, i);
        json_int_t tokens = json_integer_value(json_object_get(row, "tokens"));
        assert_int_equal(json_integer_value(json_object_get(row, "group")), i ? 7 : 2);
        assert_int_equal(tokens, i ? 15 : 14);
        assert_int_equal(json_integer_value(json_object_get(row, "answers")), tokens);
        nats += (double)tokens * json_number_value(json_object_get(row, "loss"));
    }
    assert_int_equal(json_array_size(rows), 2);
    assert_int_equal(json_integer_value(json_object_get(model, "tokens")), 29);
    assert_true(fabs(nats / 29 - json_number_value(json_object_get(model, "loss"))) < 1e-5);
    json_decref(root);
    assert_int_equal(ddl_stream(STANDARD_OUTPUT, command, first, scratch_path("g.bin"), ""), 0);
    assert_printed("tokens         29\n");
    assert_printed("group       loss   accuracy      tokens  exact match     answers\n    2  ");
    assert_int_equal(ddl_stream(STANDARD_OUTPUT, command, first, scratch_path("g.bin"), "--csv"), 0);
    assert_printed("model,saved_model,group,loss,accuracy,tokens,exact_match,answers\n");
    assert_printed(",,7,");
    assert_int_equal(ddl_stream(STANDARD_OUTPUT, command, first, scratch_path("g.bin"), "--markdown"), 0);
    assert_printed(" | 2 | ");
    assert_int_equal(ddl_stream(STANDARD_ERROR, "eval '%s' --text '%s' --groups", first, text), 2);
    assert_printed("--groups: expected with --val-data, found with --text");
}

/* Nothing but the result, although there is something to warn of. */
static void quiet(void **state)
{
    (void)state;
    assert_int_equal(ddl("eval '%s' --text '%s' --quiet --csv", first, text), 0);
    assert_memory_equal(printed, "model,", 6);
    copy_scratch("first", "warned");
    char *config = read_file(scratch_path("warned/config.json"), NULL), changed[8192];
    snprintf(changed, sizeof changed, "{\"unknown_key\": 1, %s", strchr(config, '{') + 1);
    free(config);
    write_file(scratch_path("warned/config.json"), changed, strlen(changed));
    remove_scratch("warned/checksums.json");
    assert_int_equal(ddl_stream(STANDARD_ERROR, "eval '%s' --text '%s'", scratch_path("warned"), text), 0);
    assert_printed("ddl: warning: ");
    assert_int_equal(
        ddl_stream(STANDARD_ERROR, "eval '%s' --text '%s' --quiet", scratch_path("warned"), text), 0);
    assert_string_equal(printed, "");
}

static void refusals(void **state)
{
    (void)state;
    static const struct refusal list[] = {
        { "eval x --text y --shots 0", 2, "--shots: expected with --tasks, found with --text" },
        { "eval x --shard y --any-revision", 2,
          "--any-revision: expected with --tasks, found with --val-data" },
        { "eval x --text y --no-any-revision", 2, "--any-revision: expected with --tasks" },
        { "eval x --text y --limit=3", 2,
          "--limit: expected with --tasks, found with --text; --val-tokens limits tokens" },
        { "eval x --text y --items z", 2, "--items: expected with --tasks" },
        { "eval x --text y --format auto", 2, "--format: expected with --val-data, found with --text" },
        { "eval x --text y --json --csv", 2, "expected one of --json, --csv and --markdown" },
        { "eval x --text y --val-data z", 2, "found several" },
        { "eval x --shots 1", 2, "expected --val-data PATH, --text FILE or --tasks LIST" },
        { "eval --text y", 2, "expected a model folder (DIR)" },
        { "eval x --text y --strid 3", 2, "did you mean '--stride'?" },
        { "eval x --text /nowhere/y", 1, "/nowhere/y: cannot open: " },
    };
    assert_refused(list, sizeof list / sizeof *list);
    assert_int_equal(ddl("eval '%s' /nowhere/second --text '%s'", first, text), 1);
    assert_printed("/nowhere/second");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forms_agree),
        cmocka_unit_test(standard_input),
        cmocka_unit_test(shards_without_a_tokenizer),
        cmocka_unit_test(groups),
        cmocka_unit_test(quiet),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, write_inputs, NULL);
}
