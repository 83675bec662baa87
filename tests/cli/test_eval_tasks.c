/* ddl eval --tasks as a user meets it. */
#define _DEFAULT_SOURCE /* flock, mkfifo */
#include "support/files.h"
#include "support/models.h"
#include "support/program.h"
#include "support/pty.h"
#include "support/torch_writer.h"

#include "ddl/backend.h"
#include "ddl/tasks.h"

#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define MODEL "tests/golden/tasks/model"
#define COMMON "--tokenizer data/tokenizer --data data/tasks --limit 6 "

/* Writes the folder `name`: MODEL, whose first number of ln_f.weight is multiplied by `factor`, then plus
 * `more`. */
static void write_model(const char *name, float factor, float more)
{
    struct ddl_error err;
    ddl_model *model;
    ddl_backend *backend;
    assert_ok(ddl_backend_create(&backend, "cpu", 1, &err), err);
    assert_ok(ddl_model_load(&model, source_path(MODEL), backend, NULL, NULL, &err), err);
    change_param(model, param_row(model, "ln_f.weight"), 0, 1, factor, more);
    remove_scratch(name);
    assert_ok(ddl_file_make_dir(scratch_path(name), &err), err);
    assert_ok(ddl_model_save(model, scratch_path(name), &err), err);
    ddl_model_free(model);
    ddl_backend_free(backend);
}

/* Writes a task of two records, and a small tokenizer, small.json. */
static void write_own(void)
{
    static const char records[] = "{\"context\":\"The cat\",\"target\":\"sat\"}\n"
                                  "{\"context\":\"A dog\",\"target\":\"ran far\"}\n";
    write_file(scratch_path("own.jsonl"), records, sizeof records - 1);
    assert_int_equal(
        ddl("tokenizer train data/text/tinyshakespeare.txt --vocab-size 300 --overwrite --quiet --out '%s'",
            scratch_path("small.json")),
        0);
}

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
    assert_printed(MODEL ", 0 shots\npiqa                  6 of 1838 documents  acc ");
    assert_printed("\nwinogrande            6 of 1267 documents  acc ");
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

/* A task that the model cannot score is refused before another is scored. */
static void test_long_answers(void **state)
{
    (void)state;
    remove_scratch("narrow");
    assert_int_equal(
        ddl("train --size micro --hidden-size 16 --block-size 64 --seq 16 --batch 1 --steps 1 --warmup 0 "
            "--tokenizer data/tokenizer --train-data tests/golden/curve-baseline/tokens.bin --out %s",
            scratch_path("narrow")),
        0);
    assert_int_equal(ddl("eval %s --tasks winogrande,piqa --data data/tasks --items %s",
                         scratch_path("narrow"), scratch_path("narrow.jsonl")),
                     1);
    assert_printed("task piqa: document ");
    assert_printed("; leave this task out\n");
    assert_int_not_equal(access(scratch_path("narrow.jsonl"), F_OK), 0);
}

/* The progress counts the documents that are evaluated, task by task. */
static void test_progress(void **state)
{
    (void)state;
    static const char *const environment[] = { "TERM=xterm", NULL };
    static const struct {
        const char *tasks, *says, *lacks;
    } cases[] = { { "piqa", "piqa  0/6 documents", "task 1" },
                  { "piqa,winogrande", "piqa  0/6 documents", "/12 documents" } };
    for (size_t i = 0; i < 2; i++) {
        const char *const argv[] = { ddl_program(),
                                     "eval",
                                     MODEL,
                                     "--tasks",
                                     cases[i].tasks,
                                     "--tokenizer",
                                     "data/tokenizer",
                                     "--data",
                                     "data/tasks",
                                     "--limit",
                                     "6",
                                     NULL };
        pty_start(argv, environment);
        pty_expect(cases[i].says);
        if (i == 1)
            pty_expect("task 1 of 2");
        assert_int_equal(pty_finish(), 0);
        assert_null(strstr(pty_output(), cases[i].lacks));
    }
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

/* Lines of another tokenizer are not used. */
static void items_of_tokenizers(void **state)
{
    (void)state;
    char eval[8192];
    write_own();
    remove_scratch("items.jsonl");
    snprintf(eval, sizeof eval, "eval " MODEL " --json --tasks '%s'", scratch_path("own.jsonl"));
    assert_int_equal(ddl("%s --tokenizer '%s'", eval, scratch_path("small.json")), 0);
    char *expected = kept();
    assert_int_equal(ddl("%s --items '%s' --tokenizer data/tokenizer", eval, scratch_path("items.jsonl")), 0);
    assert_string_not_equal(printed, expected);
    assert_int_equal(ddl("%s --items '%s' --tokenizer '%s'", eval, scratch_path("items.jsonl"),
                         scratch_path("small.json")),
                     0);
    assert_string_equal(printed, expected);
    free(expected);
}

/* Writes the weights of a folder as a file of torch.save in the folder `to`. */
static void convert_to_torch(const char *folder, const char *to, const char *file)
{
    struct ddl_tensor tensors[128];
    struct zip_writer z = { 0 };
    char path[4096];
    ddl_safetensors *st = open_tensors(scratch_path(folder));
    size_t n = ddl_safetensors_count(st);
    assert_true(n <= 128);
    for (size_t i = 0; i < n; i++)
        tensors[i] = *ddl_safetensors_at(st, i);
    torch_file(&z, tensors, n, NULL);
    snprintf(path, sizeof path, "%s/%s", scratch_path(to), file);
    write_file(path, z.file.data, z.file.n);
    zip_free(&z);
    ddl_safetensors_close(st);
}

/* Lines of weights that have been replaced are not used, whatever the format of the file. */
static void items_of_replaced_weights(void **state)
{
    (void)state;
    static const char *const files[] = { "model.safetensors", "pytorch_model.bin", "ckpt.pt" };
    static const char *const weights[] = { "first", "second" };
    write_own();
    write_model("first", 1, 0);
    write_model("second", -8, 0);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char *found[2];
        remove_scratch("items.jsonl");
        for (size_t k = 0; k < 2; k++) {
            copy_scratch(weights[k], "model");
            if (i) {
                remove_scratch("model/checksums.json");
                remove_scratch("model/model.safetensors");
                convert_to_torch(weights[k], "model", files[i]);
            }
            assert_int_equal(ddl("eval '%s' --json --tasks '%s' --tokenizer '%s' --items '%s'",
                                 scratch_path("model"), scratch_path("own.jsonl"), scratch_path("small.json"),
                                 scratch_path("items.jsonl")),
                             0);
            found[k] = kept();
        }
        assert_string_not_equal(found[0], found[1]);
        free(found[0]);
        free(found[1]);
    }
}

/* A model is scored with its own tokenizer, also if it differs from that of the model before only in a
 * setting. */
static void test_tokenizers(void **state)
{
    (void)state;
    static const char *const folders[] = { "plain", "prefixed" };
    json_t *found[2];
    write_own();
    json_t *root = json_load_file(scratch_path("small.json"), 0, NULL);
    for (size_t i = 0; i < 2; i++) {
        char path[4096];
        write_model(folders[i], 1, 0);
        json_object_set_new(json_object_get(root, "pre_tokenizer"), "add_prefix_space", json_boolean(i));
        snprintf(path, sizeof path, "%s/tokenizer.json", scratch_path(folders[i]));
        assert_int_equal(json_dump_file(root, path, 0), 0);
        json_t *one =
            ddl_json("eval '%s' --json --tasks '%s'", scratch_path(folders[i]), scratch_path("own.jsonl"));
        found[i] = json_incref(json_object_get(json_array_get(json_object_get(one, "models"), 0), "tasks"));
        json_decref(one);
    }
    assert_false(json_equal(found[0], found[1]));
    json_t *both = ddl_json("eval '%s' '%s' --json --tasks '%s'", scratch_path(folders[0]),
                            scratch_path(folders[1]), scratch_path("own.jsonl"));
    for (size_t i = 0; i < 2; i++) {
        const json_t *model = json_array_get(json_object_get(both, "models"), i);
        assert_true(json_equal(json_object_get(model, "tasks"), found[i]));
        json_decref(found[i]);
    }
    json_decref(both);
    json_decref(root);
}

/* Weights that are not finite give an error, and no line of items. */
static void test_nonfinite(void **state)
{
    (void)state;
    size_t size;
    write_own();
    write_model("nan", 0, NAN);
    remove_scratch("items.jsonl");
    assert_int_equal(ddl("eval '%s' --tasks '%s' --tokenizer '%s' --items '%s'", scratch_path("nan"),
                         scratch_path("own.jsonl"), scratch_path("small.json"), scratch_path("items.jsonl")),
                     1);
    assert_printed("task own: document ");
    assert_printed("not finite");
    assert_int_equal(count_lines(scratch_path("items.jsonl"), &size), 0);
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
        { "eval " MODEL " --tasks piqa,piqa " COMMON, 2, "piqa: there is a task named 'piqa' already" },
        { "eval " MODEL " --tasks sciq " COMMON, 1, "sciq/test.json: no such file" },
        { "eval " MODEL " --tasks piqa --shots 4096 --fewshot-seed -1", 2, "fewshot" },
    };
    assert_refused(list, sizeof list / sizeof *list);
}

/* A file that is not one of items is refused, and keeps its bytes; so is a file of items by a refused
 * command. */
static void foreign_items(void **state)
{
    (void)state;
    static const char *const contents[] = {
        "precious notes",
        "precious\nnotes",
        "\n",
        "{\"model\":\"precious\"}",
        "{\"model\":\"precious\"}\n",
        "{\"a\":1}\n",
        "{",
        "{\"model\":\"a\",\"saved_model\":\"\"}\nnotes",
        "\x08\0\0\0\0\0\0\0{}",
    };
    char path[1024], command[4096];
    snprintf(path, sizeof path, "%s", scratch_path("foreign.jsonl"));
    for (size_t i = 0; i < sizeof contents / sizeof *contents; i++) {
        size_t n = i == 8 ? 10 : strlen(contents[i]), after;
        bool own = strcmp(contents[i], "{") == 0; /* the beginning of a line */
        write_file(path, contents[i], n);
        for (int known = own ? 0 : 1; known >= 0; known--) {
            assert_int_equal(
                ddl("eval " MODEL " --tasks %s --items '%s' " COMMON, known ? "piqa" : "nosuch", path),
                own ? 2 : 1);
            assert_printed(own ? "nosuch" : "expected a line of an earlier evaluation with --items");
            char *left = read_file(path, &after);
            assert_int_equal(after, n);
            assert_memory_equal(left, contents[i], n);
            free(left);
        }
    }
    /* what is no regular file */
    remove_scratch("pipe");
    remove_scratch("link");
    assert_int_equal(mkfifo(scratch_path("pipe"), 0600), 0);
    assert_int_equal(symlink("foreign.jsonl", scratch_path("link")), 0);
    char pipe_path[1024], link_path[1024];
    snprintf(pipe_path, sizeof pipe_path, "%s", scratch_path("pipe"));
    snprintf(link_path, sizeof link_path, "%s", scratch_path("link"));
    const char *const others[][2] = { { "/dev/zero", "not a regular file" },
                                      { pipe_path, "not a regular file" },
                                      { scratch_path("."), "not a regular file" },
                                      { link_path, "is a symbolic link" } };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        assert_int_equal(ddl("eval " MODEL " --tasks piqa --items '%s' " COMMON, others[i][0]), 1);
        assert_printed(others[i][1]);
    }
    /* a large file without a line break, of which nothing is read after the first byte; one long line */
    write_file(path, "x", 1);
    assert_int_equal(truncate(path, (off_t)1 << 40), 0);
    assert_int_equal(ddl("eval " MODEL " --tasks piqa --items '%s' " COMMON, path), 1);
    assert_printed("foreign.jsonl:1: expected a line of an earlier evaluation");
    write_file(path, "{", 1);
    assert_int_equal(truncate(path, (off_t)1 << 40), 0);
    assert_int_equal(ddl("eval " MODEL " --tasks piqa --items '%s' " COMMON, path), 1);
    assert_printed("foreign.jsonl:1: line exceeds the limit of 16 MiB");
    /* a refused command makes no file; another evaluation has the file */
    remove_scratch("foreign.jsonl");
    assert_int_equal(ddl("eval " MODEL " --tasks nosuch --items '%s' " COMMON, path), 2);
    assert_false(ddl_file_exists(path));
    write_file(path, "", 0);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    assert_int_equal(ddl("eval " MODEL " --tasks piqa --items '%s' " COMMON, path), 1);
    assert_printed("foreign.jsonl: in use by another evaluation");
    close(fd);
    /* a model whose path is not UTF-8: the second evaluation adds no line */
    size_t once, twice, n;
    remove_scratch("foreign.jsonl");
    snprintf(command, sizeof command, "cp -r '%s' '%s'", source_path(MODEL), scratch_path("m\xff"));
    assert_int_equal(run_command(command, printed, sizeof printed), 0);
    assert_int_equal(ddl("eval '%s' --tasks piqa --items '%s' " COMMON, scratch_path("m\xff"), path), 0);
    once = count_lines(path, &n);
    assert_int_equal(ddl("eval '%s' --tasks piqa --items '%s' " COMMON, scratch_path("m\xff"), path), 0);
    twice = count_lines(path, &n);
    assert_int_equal(once, twice);
    char *lines = read_file(path, &n);
    assert_non_null(strstr(lines, "m\\\\xff\""));
    free(lines);
}

/* The tasks of the table that have files, the missing files in one message, and no folder at all. */
static void test_available(void **state)
{
    (void)state;
    assert_int_equal(
        ddl("eval " MODEL " --tasks available --tokenizer data/tokenizer --data data/tasks --limit 2"), 0);
    assert_printed("ddl: tasks left out:\n");
    assert_printed("sciq: no file data/tasks/");
    assert_printed("piqa");
    json_t *root = ddl_json(
        "eval " MODEL " --tasks available --tokenizer data/tokenizer --data data/tasks --limit 2 --json");
    assert_non_null(strstr(json_string_value(json_object_get(json_object_get(root, "skipped_tasks"), "sciq")),
                           "no file data/tasks/"));
    json_decref(root);
    assert_int_equal(ddl("eval " MODEL " --tasks all --tokenizer data/tokenizer --data tests/golden"), 1);
    for (size_t i = 0; ddl_task_name(i); i++) {
        char gist[256];
        snprintf(gist, sizeof gist, "%s: no file tests/golden/", ddl_task_name(i));
        assert_printed(gist);
    }
    assert_printed("docs/evaluation.md says where they come from; 'available' leaves these tasks out");
    assert_int_equal(ddl("eval " MODEL " --tasks available --tokenizer data/tokenizer --data tests/golden"),
                     1);
    assert_printed("tests/golden has the files of no task");
    static const char *const names[] = { "all", "available", "piqa" };
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(ddl("eval " MODEL " --tasks %s --tokenizer data/tokenizer", names[i]), 2);
        assert_printed(
            "expected --data DIR (tasks_data), the folder with the files of the tasks, found none");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_training),       cmocka_unit_test(test_outputs),
        cmocka_unit_test(test_long_answers),   cmocka_unit_test(test_progress),
        cmocka_unit_test(test_items),          cmocka_unit_test(foreign_items),
        cmocka_unit_test(test_refusals),       cmocka_unit_test(test_available),
        cmocka_unit_test(items_of_tokenizers), cmocka_unit_test(items_of_replaced_weights),
        cmocka_unit_test(test_tokenizers),     cmocka_unit_test(test_nonfinite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
