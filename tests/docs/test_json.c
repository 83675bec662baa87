/* Compares the lists of JSON keys in docs/formats.md with their examples and with the program's output, both
 * ways: fails for an undocumented key, a documented key that does not occur, or a value of another type. */
#define _POSIX_C_SOURCE 200809L
#include "support/files.h"
#include "support/markdown.h"

#include "ddl/config.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

/* ---- a list of keys ---- */

struct keys {
    const char *name;
    struct markdown_table table, common; /* common: keys that may be at the end of any path */
    bool seen[128], seen_common[32];
};

static const char *key_of(const struct keys *k, size_t i)
{
    return k->table.row[i].cell[0];
}

/* Returns the row for `path`, such as "`a.b[].c`", or NULL. */
static struct markdown_row *find_key(struct keys *k, const char *path)
{
    size_t n = strlen(path);
    for (size_t i = 0; i < k->table.n; i++) {
        if (strncmp(key_of(k, i) + 1, path, n) == 0 && strcmp(key_of(k, i) + 1 + n, "`") == 0) {
            k->seen[i] = true;
            return &k->table.row[i];
        }
    }
    for (size_t i = 0; i < k->common.n; i++) {
        const char *common = k->common.row[i].cell[0] + 1;
        size_t length = strlen(common) - 1;
        if (n >= length && strncmp(path + n - length, common, length) == 0 &&
            (n == length || path[n - length - 1] == '.')) {
            k->seen_common[i] = true;
            return &k->common.row[i];
        }
    }
    return NULL;
}

/* True if a row begins with `path`. */
static bool has_prefix(const struct keys *k, const char *path)
{
    for (size_t i = 0; i < k->table.n; i++) {
        if (strncmp(key_of(k, i) + 1, path, strlen(path)) == 0)
            return true;
    }
    return false;
}

static bool is_of_type(const json_t *value, const char *types)
{
    static const struct {
        const char *word;
        json_type types[2];
    } rows[] = { { "integer", { JSON_INTEGER, JSON_INTEGER } },
                 { "string", { JSON_STRING, JSON_STRING } },
                 { "boolean", { JSON_TRUE, JSON_FALSE } },
                 { "null", { JSON_NULL, JSON_NULL } },
                 { "number", { JSON_INTEGER, JSON_REAL } } };
    if (strstr(types, "any"))
        return true;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (strstr(types, rows[i].word) &&
            (json_typeof(value) == rows[i].types[0] || json_typeof(value) == rows[i].types[1]))
            return true;
    }
    return false;
}

static void check_value(struct keys *k, const json_t *value, const char *path, const char *where)
{
    const struct markdown_row *row = find_key(k, path);
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    if (!row)
        fail_msg("list %s of docs/formats.md lacks %s, which %s has (%s)", k->name, path, where, text);
    if (!is_of_type(value, row->cell[1]))
        fail_msg("list %s: %s is %s; in %s it is %s", k->name, path, row->cell[1], where, text);
    free(text);
}

static void walk(struct keys *k, const json_t *value, const char *path, const char *where)
{
    char below[512], map[512];
    const char *name;
    size_t i;
    json_t *child;
    const char *dot = *path ? "." : "";
    snprintf(map, sizeof map, "%s%s*", path, dot);
    json_object_foreach((json_t *)(uintptr_t)value, name, child)
    {
        snprintf(below, sizeof below, "%s%s%s", path, dot, name);
        bool is_name = !has_prefix(k, below) && has_prefix(k, map); /* a map: its keys are names */
        walk(k, child, is_name ? map : below, where);
    }
    json_array_foreach(value, i, child)
    {
        snprintf(below, sizeof below, "%s[]", path);
        walk(k, child, below, where);
    }
    if (!json_is_object(value) && !json_is_array(value))
        check_value(k, value, path, where);
}

/* Checks one JSON value, or (lines) one per line. */
static void walk_text(struct keys *k, const char *text, bool lines, const char *where)
{
    json_error_t error;
    for (const char *at = text; *at;) {
        const char *end = lines ? strchr(at, '\n') : NULL;
        size_t n = end ? (size_t)(end - at) : strlen(at);
        json_t *value = json_loadb(at, n, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
        if (!value)
            fail_msg("%s of %s is not valid JSON: %s, in %.200s", where, k->name, error.text, at);
        walk(k, value, "", where);
        json_decref(value);
        at += n + (end != NULL);
    }
}

static void walk_all(struct keys *k, const char *text, bool lines, const char *where)
{
    memset(k->seen, 0, sizeof k->seen);
    memset(k->seen_common, 0, sizeof k->seen_common);
    walk_text(k, text, lines, where);
    for (size_t i = 0; i < k->table.n; i++) {
        if (!k->seen[i] && !strstr(k->table.row[i].cell[1], "optional"))
            fail_msg("list %s has %s, which %s does not have", k->name, key_of(k, i), where);
    }
}

/* Checks that the output has those of the common keys that the example has, which are in `expected`. */
static void check_common(const struct keys *k, const bool *expected)
{
    for (size_t i = 0; i < k->common.n; i++) {
        const struct markdown_row *row = &k->common.row[i];
        if (k->seen_common[i] != expected[i] && !strstr(row->cell[1], "optional"))
            fail_msg("%s: %s is in the example or in the output, but not in both", k->name, row->cell[0]);
    }
}

/* Checks the document's list and example of `name`, and the program's output `real` unless it is NULL; each
 * is one JSON value, or one per line. */
static void check_pair(const char *name, bool example_lines, const char *real, bool real_lines)
{
    char info[128];
    struct keys k = { .name = name, .table = markdown_keys(formats, name) };
    if (strncmp(name, "ddl ", 4) == 0)
        k.common = markdown_keys(formats, strcmp(name, "ddl train") == 0 ? "metrics.jsonl" : "common keys");
    assert_true(k.table.n <= sizeof k.seen / sizeof *k.seen);
    assert_true(k.common.n <= sizeof k.seen_common / sizeof *k.seen_common);
    for (size_t i = 0; i < k.table.n; i++) {
        if (strchr(k.table.row[i].cell[1], ';'))
            fail_msg("list %s: the item of %s has neither one type nor one for each key", name,
                     key_of(&k, i));
    }
    snprintf(info, sizeof info, "json %s", name);
    char *example = markdown_block(formats, info);
    walk_all(&k, example, example_lines, "the example");
    if (real) {
        bool in_example[sizeof k.seen_common];
        memcpy(in_example, k.seen_common, sizeof in_example);
        walk_all(&k, real, real_lines, "what the program writes");
        check_common(&k, in_example);
    }
    free(example);
    markdown_table_free(&k.table);
    markdown_table_free(&k.common);
}

static void check_named(const char *name, bool lines, const char *real)
{
    check_pair(name, lines, real, lines);
}

/* ---- the program's output: one small run ---- */

#define SMALL                                                                                                \
    "--size micro --num-hidden-layers 1 --hidden-size 16 --num-attention-heads 1 --head-dim 16 "             \
    "--vocab-size 300 --block-size 32 --batch 2 --warmup 0 --backend ref "

/* In order: commands depend on the files of earlier ones. */
static const struct command {
    const char *name; /* of the list; NULL: preparation only */
    const char *line; /* arguments of ddl */
    int status;       /* expected exit status */
    bool lines;       /* one JSON value per line */
} commands[] = {
    { NULL, "tokenizer train --quiet --overwrite --vocab-size 300 --out tok text.txt", 0 },
    { "ddl tokenizer info", "tokenizer info tok --json", 0 },
    { "ddl data build",
      "data build --quiet --json --overwrite --tokenizer tok --val-fraction 0 --out shards text.txt", 0 },
    { "ddl data info", "data info shards --tokenizer tok --json", 0 },
    { "ddl train --dry-run", "train " SMALL "--steps 4 --dry-run --json", 0 },
    { "ddl train",
      "train " SMALL "--model ddl-cc-ec --steps 4 --val-every 2 --val-tokens 64 --checkpoint-every 4 "
      "--train-data shards --val-data shards --tokenizer tok --out run --overwrite --quiet --json",
      0 },
    { "ddl info", "info run --tensors --json", 0 },
    { "ddl info without a model", "info --json", 0 },
    { "ddl info --backends", "info --backends --json", 0 },
    { "ddl data synthetic",
      "data synthetic mqar --symbols 8 --pairs 4 --sequences 4 --val-sequences 2 --json --out syn", 0 },
    { "ddl eval", "eval run --text text.txt --val-tokens 64 --backend ref --json", 0 },
    { NULL, "eval run --text text.txt --val-tokens 64 --backend ref --json --force beta=mean", 0 },
    { "ddl inspect", "inspect run --prompt 'Permission is hereby granted' --backend ref --json", 0 },
    { "ddl ablate", "ablate run --text text.txt --val-tokens 64 --backend ref --json", 0 },
    { NULL,
      "train " SMALL
      "--model baseline --steps 2 --val-every 0 --train-data shards --out add --overwrite --quiet",
      0 },
    { "ddl graft", "graft add --layers 0 --out grafted --val-data shards --backend ref --json", 0 },
    { "ddl graft --sweep",
      "graft add --sweep --steps 1 --batch 1 --warmup 0 --train-data shards --val-tokens 64 --out sweep "
      "--backend "
      "ref --json --quiet",
      0 },
    { "ddl logprobs", "logprobs run short.txt --backend ref --json", 0, true },
    { "ddl generate", "generate run --prompt a --max-tokens 2 --backend ref --json", 0 },
    { "ddl compare", "compare run --json", 0 },
    { "ddl sweep --dry-run", "sweep sweep.yaml --dry-run --json", 0 },
    { "ddl sweep", "sweep sweep.yaml --quiet --json", 0 },
    { "ddl bench",
      "bench step --model ddl-1 --size micro --seq 8 --batch 1 --steps 1 --warmup 0 --ops --no-roofline "
      "--json",
      0 },
    { "ddl verify", "verify golden/operator/d1-c1.safetensors --backend ref --json", 0 },
    { NULL, "export run --out export --max-shard-size 20KB", 0 },
    { NULL,
      "train " SMALL
      "--model ddl-1 --steps 1 --val-every 0 --train-data shards --out one --overwrite --quiet",
      0 },
    { NULL,
      "train " SMALL "--model ddl-1 --steps 30 --val-every 0 --lr 1000 --clip 0 --weight-decay 10 "
      "--train-data shards --out diverged --overwrite --quiet",
      1 },
};
enum { N_COMMANDS = sizeof commands / sizeof *commands, OUTPUT = 1 << 16 };

static void run_in_scratch(const char *line, int status, char *out)
{
    char command[4096];
    snprintf(command, sizeof command, "cd '%s' && '%s' %s 2>errors", scratch_path(""), ddl_program(), line);
    if (run_command(command, out, OUTPUT) != status) {
        char *errors = read_file(scratch_path("errors"), NULL);
        fail_msg("ddl %s: %s", line, errors);
    }
}

static const char sweep[] =
    "base: {size: micro, num_hidden_layers: 1, hidden_size: 16, num_attention_heads: 1, head_dim: 16, "
    "vocab_size: 300, block_size: 32, batch: 2, steps: 4, warmup: 0, backend: ref, train_data: shards, "
    "val_data: shards, val_tokens: 64}\n"
    "out: study\nmodels: [ddl-1]\nseeds: [0]\nchoose: {key: lr, values: [1e-3, 1e-2], steps: 3}\n";

static char *outputs[N_COMMANDS];

static int prepare(void **state)
{
    open_formats(state);
    char *text = read_file(source_path("LICENSE"), NULL), out[OUTPUT], link[1200];
    write_file(scratch_path("text.txt"), text, strlen(text));
    write_file(scratch_path("short.txt"), text, 40);
    free(text);
    write_file(scratch_path("sweep.yaml"), sweep, sizeof sweep - 1);
    snprintf(link, sizeof link, "ln -sfn '%s' '%s'", source_path("tests/golden"), scratch_path("golden"));
    assert_int_equal(run_command(link, out, sizeof out), 0);
    remove_scratch("export");
    remove_scratch("grafted");
    remove_scratch("sweep");
    remove_scratch("study");
    remove_scratch("syn");
    for (size_t i = 0; i < N_COMMANDS; i++) {
        run_in_scratch(commands[i].line, commands[i].status, out);
        outputs[i] = strdup(out);
    }
    return 0;
}

static int tidy(void **state)
{
    for (size_t i = 0; i < N_COMMANDS; i++)
        free(outputs[i]);
    return close_formats(state);
}

static void command_output(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_COMMANDS; i++) {
        if (commands[i].name)
            check_named(commands[i].name, commands[i].lines, outputs[i]);
    }
}

static void check_file(const char *name, bool lines, const char *path)
{
    char *real = read_file(path, NULL);
    check_named(name, lines, real);
    free(real);
}

/* metrics.jsonl has lines of steps and telemetry records, each with a list. */
static void check_metrics(void)
{
    char *real = read_file(scratch_path("run/metrics.jsonl"), NULL);
    char *lines = calloc(strlen(real) + 1, 1), *records = calloc(strlen(real) + 1, 1);
    for (const char *at = real, *end; (end = strchr(at, '\n')); at = end + 1) {
        const char *kind = strstr(at, "\"kind\":");
        strncat(kind && kind < end ? records : lines, at, (size_t)(end + 1 - at));
    }
    check_pair("metrics.jsonl", true, lines, true);
    check_pair("telemetry record", false, records, true);
    free(lines);
    free(records);
    free(real);
}

static void files_of_a_run(void **state)
{
    (void)state;
    check_metrics();
    check_file("state.json", false, scratch_path("run/checkpoint-4/state.json"));
    check_file("checksums.json", false, scratch_path("run/checksums.json"));
    check_file("tokenizer.json", false, scratch_path("tok/tokenizer.json"));
    check_file("shards.json", false, scratch_path("shards/shards.json"));
}

/* Compares the files in a folder with its list; those with "?" may be missing. */
static void check_folder(const char *name, const char *path)
{
    struct markdown_table table = markdown_keys(formats, name);
    char out[OUTPUT], command[1200];
    bool there[64] = { false };
    snprintf(command, sizeof command, "ls -1Ap '%s' | sed 's/[0-9][0-9]*/<step>/; s/.*/`&`/'", path);
    assert_int_equal(run_command(command, out, sizeof out), 0);
    for (char *line = strtok(out, "\n"); line; line = strtok(NULL, "\n")) {
        size_t row = 0;
        while (row < table.n && strcmp(table.row[row].cell[0], line) != 0)
            row++;
        if (row == table.n)
            fail_msg("list %s lacks %s", name, line);
        there[row] = true;
    }
    for (size_t i = 0; i < table.n; i++) {
        if (!there[i] && !strstr(table.row[i].cell[1], "optional"))
            fail_msg("list %s has %s, which %s does not have", name, table.row[i].cell[0], path);
    }
    markdown_table_free(&table);
}

static void files_of_folders(void **state)
{
    (void)state;
    check_folder("run folder", scratch_path("run"));
    check_folder("checkpoint folder", scratch_path("run/checkpoint-4"));
}

/* Returns the path of the only file or folder in the scratch folder that matches the pattern. */
static const char *only_one(const char *pattern)
{
    char out[1200], command[1200];
    snprintf(command, sizeof command, "cd '%s' && ls -d %s", scratch_path(""), pattern);
    assert_int_equal(run_command(command, out, sizeof out), 0);
    out[strcspn(out, "\n")] = '\0';
    return scratch_path(out);
}

static void divergence_dump(void **state)
{
    (void)state;
    check_folder("divergence dump folder", only_one("diverged/trouble-*"));
    check_file("trouble.json", false, only_one("diverged/trouble-*/trouble.json"));
}

static json_t *load_json(const char *path)
{
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, NULL);
    if (!root)
        fail_msg("%s is not valid JSON", path);
    return root;
}

/* Every key must be one of the model's options or of the list of config.json. */
static void check_config_keys(const json_t *root, const struct markdown_table *own, const char *where)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)root, name, value)
    {
        bool known = ddl_option_find(ddl_config_options(), name) != NULL;
        char row[128];
        snprintf(row, sizeof row, "`%s`", name);
        for (size_t i = 0; i < own->n; i++)
            known = known || strcmp(own->row[i].cell[0], row) == 0;
        if (!known)
            fail_msg("%s has %s, which no list of docs/formats.md has", where, name);
    }
}

static void check_same_keys(const json_t *a, const json_t *b)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)a, name, value)
    {
        if (!json_object_get(b, name))
            fail_msg("of the example of config.json and a file, only one has %s", name);
    }
}

/* The example must have the keys written for a model of one channel. */
static void configuration(void **state)
{
    (void)state;
    struct markdown_table own = markdown_keys(formats, "config.json");
    char *example = markdown_block(formats, "json config.json");
    json_t *found = json_loads(example, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(found);
    json_t *one = load_json(scratch_path("one/config.json"));
    json_t *four = load_json(scratch_path("run/config.json"));
    check_config_keys(found, &own, "the example of config.json");
    check_config_keys(four, &own, "run/config.json");
    check_same_keys(found, one);
    check_same_keys(one, found);
    json_decref(one);
    json_decref(four);
    json_decref(found);
    free(example);
    markdown_table_free(&own);
}

/* Returns the __metadata__ of a safetensors file as text. */
static char *metadata_of(const char *path)
{
    size_t size, header = 0;
    char *bytes = read_file(path, &size);
    assert_true(size > 8);
    for (size_t i = 0; i < 8; i++)
        header |= (size_t)(unsigned char)bytes[i] << 8 * i;
    assert_true(header <= size - 8);
    json_t *root = json_loadb(bytes + 8, header, JSON_REJECT_DUPLICATES, NULL);
    char *text = json_dumps(json_object_get(root, "__metadata__"), JSON_COMPACT);
    assert_non_null(text);
    json_decref(root);
    free(bytes);
    return text;
}

static void safetensors_metadata(void **state)
{
    (void)state;
    char *real = metadata_of(scratch_path("run/model.safetensors"));
    check_named("metadata", false, real);
    free(real);
}

static void files_of_other_programs(void **state)
{
    (void)state;
    check_named("safetensors", false, NULL);
    check_file("model.safetensors.index.json", false, scratch_path("export/model.safetensors.index.json"));
    check_file("recipe.json", false, source_path("tests/golden/curve-baseline/recipe.json"));
    check_file("loss.json", false, source_path("tests/golden/curve-baseline/loss.json"));
    check_file("cases.jsonl", true, source_path("tests/golden/tokenizer/cases.jsonl"));
    check_file("files.json", false, source_path("tests/golden/tokenizer/files.json"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(command_output),          cmocka_unit_test(files_of_a_run),
        cmocka_unit_test(files_of_folders),        cmocka_unit_test(divergence_dump),
        cmocka_unit_test(configuration),           cmocka_unit_test(safetensors_metadata),
        cmocka_unit_test(files_of_other_programs),
    };
    return cmocka_run_group_tests(tests, prepare, tidy);
}
