/* ddl eval --tasks as a user meets it. */
#include "support/files.h"
#include "support/program.h"

#include <jansson.h>
#include <string.h>

#define MODEL "tests/golden/tasks/model"
#define COMMON "--tokenizer data/tokenizer --data data/tasks --limit 6 "

/* The bytes of `printed`. */
static char *kept(void)
{
    char *copy = malloc(strlen(printed) + 1);
    assert_non_null(copy);
    return strcpy(copy, printed);
}

static void test_outputs(void **state)
{
    (void)state;
    assert_int_equal(ddl_stream(STANDARD_OUTPUT, "eval " MODEL " --tasks piqa,winogrande " COMMON), 0);
    assert_printed(MODEL ", 0 shots\npiqa ");
    assert_printed("acc_norm 0.");
    assert_printed("\naverage ");
    assert_int_equal(
        ddl_stream(STANDARD_OUTPUT, "eval " MODEL " " MODEL " --tasks piqa,winogrande --markdown " COMMON),
        0);
    assert_printed("| model | piqa acc_norm | winogrande acc | average |\n|---|---|---|---|\n| " MODEL " | ");
    assert_int_equal(ddl_stream(STANDARD_OUTPUT, "eval " MODEL " --tasks piqa --csv --shots 1 " COMMON), 0);
    assert_printed("model,saved_model,task,shots,documents,metric,value,stderr\n" MODEL ",,piqa,1,6,acc,");
    json_t *root = ddl_json("eval " MODEL " --tasks piqa --json --dtype bf16 " COMMON);
    const json_t *model = json_array_get(json_object_get(root, "models"), 0);
    const json_t *task = json_object_get(json_object_get(model, "tasks"), "piqa");
    assert_string_equal(json_string_value(json_object_get(root, "dtype")), "bf16");
    assert_int_equal(json_integer_value(json_object_get(task, "documents")), 6);
    assert_true(json_is_real(json_object_get(task, "acc_stderr")));
    json_decref(root);
    assert_int_equal(ddl_stream(STANDARD_ERROR, "eval " MODEL " --tasks piqa --quiet " COMMON), 0);
    assert_string_equal(printed, "");
}

/* During training: a line of scores, and the last ones by compare. */
static void test_training(void **state)
{
    (void)state;
    const char *run = scratch_path("run"),
               *keys = "--tasks piqa,winogrande --tasks-data data/tasks --tasks-limit 3";
    remove_scratch("run");
    assert_int_equal(
        ddl_stream(STANDARD_ERROR,
                   "train --size micro --hidden-size 16 --seq 16 --batch 1 --steps 4 --warmup 0 --tokenizer "
                   "data/tokenizer --train-data tests/golden/curve-baseline/tokens.bin --out %s %s "
                   "--tasks-every 2",
                   run, keys),
        0);
    assert_printed("step 0/4: piqa acc_norm ");
    assert_printed("step 2/4: piqa acc_norm ");
    assert_printed("step 4/4: piqa acc_norm ");
    assert_printed(", winogrande acc ");
    assert_int_equal(ddl_stream(STANDARD_OUTPUT, "compare %s", run), 0);
    assert_printed(
        "\ntask                 run                  metric        value    stderr    step\npiqa ");
    json_t *root = ddl_json("compare %s --json", run);
    const json_t *tasks = json_object_get(json_array_get(json_object_get(root, "runs"), 0), "tasks");
    const json_t *piqa = json_object_get(tasks, "piqa");
    assert_int_equal(json_integer_value(json_object_get(piqa, "step")), 4);
    assert_true(json_is_number(json_object_get(piqa, "acc_norm")));
    assert_true(json_is_number(json_object_get(json_object_get(tasks, "winogrande"), "acc_stderr")));
    json_decref(root);
}

/* Lines of a file; *size = its bytes. */
static size_t count_lines(const char *path, size_t *size)
{
    char *text = read_file(path, size);
    size_t n = 0;
    for (size_t i = 0; i < *size; i++)
        n += text[i] == '\n';
    free(text);
    return n;
}

/* An evaluation continues from a file whose last line is incomplete, and gives the same result. The last
 * digits of log-likelihoods depend on the documents that share a pass. */
static void test_items(void **state)
{
    (void)state;
    char path[1024];
    size_t size, resumed, after;
    snprintf(path, sizeof path, "%s", scratch_path("items.jsonl"));
    remove_scratch("items.jsonl");
    assert_int_equal(
        ddl_stream(STANDARD_OUTPUT, "eval " MODEL " --tasks piqa --json --items '%s' " COMMON, path), 0);
    char *whole = kept(), *lines = read_file(path, &size);
    json_t *line = json_loads(lines, JSON_DISABLE_EOF_CHECK, NULL);
    assert_string_equal(json_string_value(json_object_get(line, "task")), "piqa");
    assert_int_equal(json_array_size(json_object_get(line, "requests")), 2);
    json_decref(line);
    size_t n_lines = count_lines(path, &size);
    write_file(path, lines, size / 2);
    assert_int_equal(
        ddl_stream(STANDARD_OUTPUT, "eval " MODEL " --tasks piqa --json --items '%s' " COMMON, path), 0);
    assert_string_equal(printed, whole);
    assert_int_equal(count_lines(path, &resumed), n_lines);
    /* complete: nothing is added; another number of shots: its own lines */
    assert_int_equal(
        ddl_stream(STANDARD_OUTPUT, "eval " MODEL " --tasks piqa --json --items '%s' " COMMON, path), 0);
    assert_int_equal(count_lines(path, &after), n_lines);
    assert_int_equal(after, resumed);
    assert_int_equal(ddl("eval " MODEL " --tasks piqa --shots 1 --items '%s' " COMMON, path), 0);
    assert_true(count_lines(path, &after) > n_lines);
    /* a file that cannot grow: the error names it */
    char command[4096];
    snprintf(command, sizeof command,
             "cd '%s' && trap '' XFSZ && ulimit -f 1 && '%s' eval " MODEL
             " --tasks winogrande --items '%s' " COMMON " 2>&1",
             source_path("."), ddl_program(), scratch_path("limited.jsonl"));
    remove_scratch("limited.jsonl");
    assert_int_equal(run_command(command, printed, sizeof printed), 1);
    assert_printed("limited.jsonl: cannot write: ");
    write_file(path, "nonsense\n", 9);
    assert_int_equal(ddl("eval " MODEL " --tasks piqa --items '%s' " COMMON, path), 1);
    assert_printed("items.jsonl:1: expected a line of an earlier evaluation");
    free(whole);
    free(lines);
}

static void test_refusals(void **state)
{
    (void)state;
    static const struct refusal list[] = {
        { "eval " MODEL, 2, "--val-data PATH, --text FILE or --tasks LIST" },
        { "eval " MODEL " --tasks piqa --text x", 2, "--tasks, found several" },
        { "eval --tasks piqa", 2, "a model folder (DIR)" },
        { "eval " MODEL " --tasks piqa --csv --markdown", 2, "expected one of --json, --csv and --markdown" },
        { "eval " MODEL " --tasks piqa --stride 4", 2,
          "--stride: expected with --val-data or --text, found with --tasks" },
        { "eval " MODEL " --tasks piqa --format=auto", 2,
          "--format: expected with --val-data, found with --tasks" },
        { "eval " MODEL " --tasks piqa --max_tokens 4", 2,
          "--val-tokens: expected with --val-data or --text, found with --tasks; --limit limits documents" },
        { "eval " MODEL " --tasks , --tokenizer data/tokenizer", 2, "tasks: expected at least one task" },
        { "eval " MODEL " --tasks pica --tokenizer data/tokenizer", 2, "found 'pica'" },
        { "eval " MODEL " --tasks sciq " COMMON, 1, "sciq/test.json: no such file" },
        { "eval " MODEL " --tasks piqa --shots 4096 --fewshot-seed -1", 2, "fewshot" },
    };
    assert_refused(list, sizeof list / sizeof *list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_training),
        cmocka_unit_test(test_outputs),
        cmocka_unit_test(test_items),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
