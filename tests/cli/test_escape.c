/* Escape sequences in names of folders and files and in their content do not reach the terminal: not on
 * standard output, nor in messages. JSON stays valid. */
#include "support/files.h"
#include "support/program.h"
#include "support/runs.h"

#include <string.h>
#include <unistd.h>

/* A control character, one of the two-byte controls, a change of direction, and a byte that is not UTF-8. */
#define HOSTILE                                                                                              \
    "\033]0;x\007\xc2\x9b"                                                                                   \
    "31m\xe2\x80\xae\xff"

static void assert_escaped(const char *what)
{
    static const char *const bad[] = { "\033", "\007", "\xc2\x9b", "\xe2\x80\xae", "\xff" };
    if (!strstr(printed, "\\x1b") && !strstr(printed, "\\u001b") && !strstr(printed, "\\u001B"))
        fail_msg("%s: ESC is not in: %s", what, printed);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (strstr(printed, bad[i]))
            fail_msg("%s: prints the control '%s' in: %s", what, i == 0 ? "ESC" : "(other)", printed);
    }
}

/* A quoted path of the scratch folder; one of a few rotating buffers. */
static const char *in_scratch(const char *name)
{
    static char paths[8][2048];
    static unsigned next;
    char *out = paths[next++ % 8];
    snprintf(out, sizeof paths[0], "'%s'", scratch_path(name));
    return out;
}

static void write_text(const char *name, const char *text)
{
    write_file(scratch_path(name), text, strlen(text));
}

static void make_run(const char *name, unsigned seed)
{
    char metrics[512];
    snprintf(metrics, sizeof metrics, "%s/metrics.jsonl", name);
    remove_scratch(name);
    assert_int_equal(
        ddl("train --vocab-size 300 --num-hidden-layers 1 --num-attention-heads 1 --hidden-size 16 "
            "--head-dim 16 --block-size 16 --batch 1 --steps 4 --warmup 1 --threads 1 --seed %u "
            "--log-every 1 --quiet --train-data %s --val-data none --out %s",
            seed, in_scratch("train.bin"), in_scratch(name)),
        0);
}

static void names_and_contents(void **state)
{
    (void)state;
    struct ddl_error err;
    const char *folder = HOSTILE "run";
    write_random_shard(scratch_path("train.bin"), 1, 300, 4000);
    write_random_shard(scratch_path(HOSTILE ".bin"), 1, 300, 4000);
    make_run(folder, 1);
    make_run("other", 2);
    assert_ok(ddl_file_make_dir(scratch_path(HOSTILE "empty"), &err), err);
    assert_ok(ddl_file_make_dir(scratch_path("model"), &err), err);
    write_text("tokenizer.json",
               "{\"added_tokens\":[{\"id\":256,\"content\":\"\\u001b]0;x\\u0007\\u009b31m\\u202e\","
               "\"special\":true}],\"model\":{\"type\":\"BPE\",\"vocab\":{},\"merges\":[]}}");
    write_text("type.json", "{\"model\":{\"type\":\"BP\\u001bE\",\"vocab\":{},\"merges\":[]}}");
    write_text("model/config.json",
               "{\"vocab_size\":300,\"num_hidden_layers\":1,\"num_attention_heads\":1,\"hidden_size\":16,"
               "\"head_dim\":16,\"block_size\":16,\"n\\u001blayer\":\"\\u009b\"}");
    write_text("recipe.yaml", "\"a\\e[31m\": 1\n");
    write_text("sweep.yaml", "\"a\\e[31m\": [\"\\e\"]\n");
    write_text("lines.jsonl", "{\"text\":\"a\"}\n");
    static const struct {
        const char *command, *path, *more, *second; /* second: another path, behind `more`; or NULL */
    } cases[] = {
        { "info", HOSTILE "run", "" },
        { "info", HOSTILE "empty", "" },
        { "info", HOSTILE "empty", "--json" },
        { "info", "model", "" },
        { "report", HOSTILE "run", "" },
        { "report", HOSTILE "run", "--json" },
        { "report", HOSTILE "empty", "" },
        { "compare", HOSTILE "run", "", "other" },
        { "compare", HOSTILE "run", "--markdown", "other" },
        { "compare", HOSTILE "run", "--csv", "other" },
        { "compare", HOSTILE "run", "--json", "other" },
        { "compare", HOSTILE "run", "--html", HOSTILE ".html" },
        { "compare", HOSTILE "run", "--baseline '" HOSTILE "'" },
        { "data info", HOSTILE ".bin", "" },
        { "data info", HOSTILE ".bin", "--json" },
        { "data info", HOSTILE "none", "" },
        { "data build", HOSTILE "none", "--out", "none" },
        { "data build", "lines.jsonl", "--overwrite --out", HOSTILE "shards" },
        { "tokenizer info", "tokenizer.json", "" },
        { "tokenizer info", "type.json", "" },
        { "tokenizer info", HOSTILE "none", "" },
        { "train", "recipe.yaml", "" },
        { "train --resume", HOSTILE "empty", "--out", "x" },
        { "train --train-data", HOSTILE "none", "" },
        { "sweep", "sweep.yaml", "" },
        { "sweep", HOSTILE "none", "" },
        { "verify", HOSTILE "empty", "" },
        { "verify", HOSTILE ".bin", "--json" },
        { "export", HOSTILE "run", "--out", HOSTILE },
        { "eval", HOSTILE "run", "--tasks '" HOSTILE "'" },
        { "eval", HOSTILE "empty", "--tasks arc_easy" },
        { "generate", HOSTILE "run", "--prompt a" },
        { "inspect", HOSTILE "run", "--val-data train.bin" },
        { "logprobs", HOSTILE "empty", "x" },
        { "graft", HOSTILE "empty", "--rule add --layers 0 --out", "none" },
        { HOSTILE, "x", "" },
        { "info --" HOSTILE, "x", "" },
        { "bench op --compare", HOSTILE "none", "" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char command[128];
        snprintf(command, sizeof command, "%s%s%s", cases[i].command[0] == '\033' ? "'" : "",
                 cases[i].command, cases[i].command[0] == '\033' ? "'" : "");
        if (strncmp(cases[i].command, "info --", 7) == 0)
            snprintf(command, sizeof command, "info '%s'", cases[i].command + 5);
        ddl("%s %s %s %s", command, in_scratch(cases[i].path), cases[i].more,
            cases[i].second ? in_scratch(cases[i].second) : "");
        assert_escaped(cases[i].command);
    }
}

/* A path that is not UTF-8 in JSON is a text with escapes. */
static void paths_in_json(void **state)
{
    (void)state;
    write_random_shard(scratch_path("a\xff.bin"), 1, 300, 4000);
    json_t *root = ddl_json("data info --json %s", in_scratch("a\xff.bin"));
    const char *path = json_string_value(json_object_get(root, "path"));
    assert_non_null(path);
    assert_non_null(strstr(path, "a\\xff.bin"));
    assert_int_equal(number_of(root, "tokens"), 4000);
    json_decref(root);
}

/* Markdown of names that have its syntax and HTML. */
static void markdown(void **state)
{
    (void)state;
    write_random_shard(scratch_path("train.bin"), 1, 300, 4000);
    make_run("<b>a|`b", 1);
    make_run("other", 2);
    assert_int_equal(ddl("compare --markdown %s %s", in_scratch("<b>a|`b"), in_scratch("other")), 0);
    assert_printed("&lt;b&gt;a\\|\\`b");
    assert_null(strstr(printed, "<b>"));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(names_and_contents), cmocka_unit_test(paths_in_json),
                                        cmocka_unit_test(markdown) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
