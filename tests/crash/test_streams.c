/* Standard streams that are closed or full: what a command prints never goes to a file that it has opened,
 * and output that could not be printed is an error. */
#define _POSIX_C_SOURCE 200809L
#include "support/crash_harness.h"
#include "support/program.h"

static const struct small_run run = {
    "streams", "--model ddl-1 --backend ref --steps 2 --checkpoint-every 2 --val-every 1 --threads 1 "
               "--sample-every 1 --sample-tokens 2 --sample-prompt a"
};

static char command[1 << 15], said[SAID];

static int run_shell(const char *arguments, const char *redirections)
{
    snprintf(command, sizeof command, "'%s' %s %s", ddl_program(), arguments, redirections);
    return run_command(command, said, sizeof said);
}

/* Each line of the file is JSON. */
static void assert_json_lines(const char *path)
{
    char *text = read_file(path, NULL);
    for (char *line = text, *end; *line; line = end + 1) {
        end = strchr(line, '\n');
        assert_non_null(end);
        json_t *object = json_loadb(line, (size_t)(end - line), 0, NULL);
        if (!json_is_object(object))
            fail_msg("%s: %.*s", path, (int)(end - line), line);
        json_decref(object);
    }
    assert_true(*text != '\0');
    free(text);
}

/* The files that get the numbers 0 to 2 without a reservation are metrics.jsonl and samples.jsonl. */
static void closed_streams_of_a_run(void **state)
{
    (void)state;
    static const struct {
        const char *redirections;
        int status;
    } cases[] = { { "<&- >&- 2>&-", 1 }, { ">&- 2>&-", 1 }, { "<&- 2>&-", 0 }, { "<&-", 0 }, { ">&-", 1 } };
    char *arguments = strdup(train_arguments(&run)), *quiet = strstr(arguments, "--quiet");
    assert_non_null(quiet);
    memset(quiet, ' ', strlen("--quiet"));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        remove_scratch("run");
        shell("mkdir '%s'", run_folder());
        int status = run_shell(arguments, cases[i].redirections);
        if (status != cases[i].status)
            fail_msg("%s: status %d: %s", cases[i].redirections, status, said);
        assert_json_lines(file_in(run_folder(), "r/metrics.jsonl"));
        assert_json_lines(file_in(run_folder(), "r/samples.jsonl"));
        assert_checkpoints_whole();
        assert_true(ddl_file_exists(file_in(run_folder(), "r/model.safetensors")));
    }
    free(arguments);
}

static void closed_streams_of_an_evaluation(void **state)
{
    (void)state;
    static const char task[] = "{\"context\": \"a\", \"choices\": [\"b\", \"c\"], \"gold\": 0}\n";
    char arguments[3 * 4096];
    write_file(scratch_path("task.jsonl"), task, sizeof task - 1);
    remove_scratch("items.jsonl");
    snprintf(arguments, sizeof arguments, "eval '%s/r' --backend ref --tasks '%s' --items '%s'", run_folder(),
             scratch_path("task.jsonl"), scratch_path("items.jsonl"));
    assert_int_equal(run_shell(arguments, "<&- >&- 2>&-"), 1);
    assert_json_lines(scratch_path("items.jsonl"));
}

static void closed_input(void **state)
{
    (void)state;
    char arguments[3 * 4096];
    snprintf(arguments, sizeof arguments, "tokenizer train - --out '%s' --quiet", scratch_path("none.json"));
    assert_int_equal(run_shell(arguments, "<&- 2>&1"), 1);
    assert_non_null(strstr(said, "cannot read at byte 0: Bad file descriptor"));
    assert_false(ddl_file_exists(scratch_path("none.json")));
}

/* Every command that prints a result. The words in capitals stand for paths. */
static const char *const printing[] = {
    "help",
    "help train",
    "--version",
    "completion bash",
    "info RUN",
    "info RUN --json",
    "info --backends",
    "data build TEXT --tokenizer RUN --val-fraction 0 --out OUT",
    "data info SHARD",
    "data info SHARD --json",
    "data synthetic parity --sequences 8 --val-sequences 8 --out OUT",
    "tokenizer encode TEXT --tokenizer RUN",
    "tokenizer decode IDS --tokenizer RUN",
    "tokenizer info RUN",
    "tokenizer train TEXT --vocab-size 260 --out OUT",
    "eval RUN --val-data SHARD --val-tokens 16 --backend ref",
    "eval RUN --val-data SHARD --val-tokens 16 --backend ref --json",
    "generate RUN --prompt a --max-tokens 2 --backend ref",
    "logprobs RUN TEXT --backend ref",
    "inspect RUN --val-data SHARD --tokens 16 --backend ref",
    "ablate RUN --val-data SHARD --val-tokens 16 --backend ref",
    "export RUN --out OUT",
    "graft RUN --layers 0 --rule add --out OUT",
    "compare RUN",
    "compare RUN --json",
    "report RUN --html OUT",
    "report RUN --json",
    "sweep SWEEP --dry-run",
    "train --model ddl-1 --size micro --train-data SHARD --vocab-size 300 --dry-run",
    "verify GOLDEN --backend ref",
    "bench op --size micro --seq 8 --steps 1 --seconds 0 --warmup 0 --no-roofline --threads 1 --filter tanh",
    "bench step --size micro --batch 1 --seq 8 --steps 1 --warmup 0 --no-roofline --threads 1",
    "bench decode --size micro --batch 1 --seq 8 --steps 1 --warmup 0 --no-roofline --threads 1",
    "bench tokenizer --text TEXT --steps 1 --warmup 0",
};

static void replace(char *text, size_t size, const char *word, const char *path)
{
    char *at = strstr(text, word), rest[4096];
    if (!at)
        return;
    snprintf(rest, sizeof rest, "%s", at + strlen(word));
    snprintf(at, size - (size_t)(at - text), "'%s'%s", path, rest);
}

static void full_output(void **state)
{
    (void)state;
    char runs[4096];
    snprintf(runs, sizeof runs, "%s/r", run_folder());
    static const char sweep[] = "models: [ddl-1]\nset: {size: micro, steps: 1, vocab_size: 300}\nout: none\n";
    static const char *const without[] = { "serve", "bench comm", NULL };
    assert_commands_listed(printing, sizeof printing / sizeof *printing, without);
    write_file(scratch_path("short.txt"), "a b c\n", 6);
    write_file(scratch_path("ids.txt"), "1 2 3\n", 6);
    write_file(scratch_path("sweep.yaml"), sweep, sizeof sweep - 1);
    for (size_t i = 0; i < sizeof printing / sizeof *printing; i++) {
        static const char *const outputs[] = { ">/dev/full", ">&-" };
        char arguments[3 * 4096];
        snprintf(arguments, sizeof arguments, "%s", printing[i]);
        replace(arguments, sizeof arguments, "RUN", runs);
        replace(arguments, sizeof arguments, "SHARD", scratch_path("inputs/train.bin"));
        replace(arguments, sizeof arguments, "GOLDEN", source_path("tests/golden/block"));
        replace(arguments, sizeof arguments, "TEXT", scratch_path("short.txt"));
        replace(arguments, sizeof arguments, "IDS", scratch_path("ids.txt"));
        replace(arguments, sizeof arguments, "SWEEP", scratch_path("sweep.yaml"));
        replace(arguments, sizeof arguments, "OUT", scratch_path("out"));
        remove_scratch("out");
        if (run_shell(arguments, ">/dev/null 2>&1") != 0) {
            assert_int_not_equal(run_shell(arguments, "2>&1"), 0);
            fail_msg("%s: %s", printing[i], said);
        }
        for (size_t k = 0; k < 2; k++) {
            char redirections[64];
            snprintf(redirections, sizeof redirections, "2>&1 %s", outputs[k]);
            remove_scratch("out");
            int status = run_shell(arguments, redirections);
            if (status != 1 || !strstr(said, "cannot write standard output"))
                fail_msg("%s %s: status %d: %s", printing[i], outputs[k], status, said);
        }
    }
}

static int prepare(void **state)
{
    (void)state;
    make_inputs();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(closed_streams_of_a_run),
        cmocka_unit_test(closed_streams_of_an_evaluation),
        cmocka_unit_test(closed_input),
        cmocka_unit_test(full_output),
    };
    return cmocka_run_group_tests(tests, prepare, NULL);
}
