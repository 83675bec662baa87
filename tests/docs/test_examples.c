/* Feeds the examples of docs/formats.md that are complete files to the code that reads such files.
 * (test_json.c checks the keys of the JSON examples.) */
#define _POSIX_C_SOURCE 200809L
#include "support/files.h"
#include "support/markdown.h"

#include "ddl/backend.h"
#include "ddl/compare.h"
#include "ddl/data.h"
#include "ddl/model.h"
#include "ddl/sweep.h"
#include "ddl/tokenizer.h"
#include "ddl/train.h"
#include "ddl/verify.h"
#include "tensor/safetensors.h"
#include "text/alphabet.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

/* Writes the example to a file in the scratch folder; returns its path. */
static const char *example_file(const char *info, const char *relative)
{
    char *text = markdown_block(formats, info);
    const char *path = scratch_path(relative);
    struct ddl_error err;
    assert_ok(ddl_file_make_parent(path, &err), err);
    write_file(path, text, strlen(text));
    free(text);
    return path;
}

static void recipe_configures_a_run(void **state)
{
    (void)state;
    struct ddl_error err;
    struct ddl_train_config t;
    char program[] = "train";
    char *argv[] = { program, NULL };
    int n;
    const char *path = example_file("yaml recipe", "recipe.yaml");
    assert_ok(ddl_train_configure(&t, path, 1, argv, NULL, NULL, &n, &err), err);
    assert_int_equal(t.steps, 300);
    assert_int_equal(t.config.channels, 4);
    assert_int_equal(t.config.vocab_size, 2048);
    assert_string_equal(t.sample_prompt, "The");
}

static void sweep_plans_runs(void **state)
{
    (void)state;
    struct ddl_error err;
    struct ddl_sweep sweep;
    char path[1024];
    snprintf(path, sizeof path, "%s", example_file("yaml sweep", "sweep.yaml"));
    assert_ok(ddl_sweep_open(&sweep, path, &err), err);
    assert_int_equal(sweep.n_settings, 4);         /* two models, two values */
    assert_int_equal(sweep.n_runs, 4 * 2 + 4 * 3); /* two learning rates, three seeds */
    assert_string_equal(sweep.runs[19].name, "wide_weight_decay=0.1_seed=2");
    ddl_sweep_close(&sweep);
}

static void count_warning(void *user, const char *message)
{
    print_message("%s\n", message);
    ++*(size_t *)user;
}

/* Creates a model folder with the example as its config.json and the tensors of `config`. */
static void load_model_with(const char *info, const struct ddl_config *config, struct ddl_config *found)
{
    struct ddl_error err;
    ddl_backend *backend;
    ddl_model *model;
    size_t warnings = 0;
    const char *folder = scratch_path("model");
    assert_ok(ddl_file_make_dir(folder, &err), err);
    assert_ok(ddl_backend_create(&backend, "ref", 0, &err), err);
    assert_ok(ddl_model_create(&model, config, backend, &err), err);
    assert_ok(ddl_model_save(model, folder, &err), err);
    ddl_model_free(model);
    example_file(info, "model/config.json");
    assert_int_equal(remove(scratch_path("model/checksums.json")), 0);
    assert_ok(ddl_model_load(&model, folder, backend, count_warning, &warnings, &err), err);
    assert_int_equal(warnings, 0);
    *found = *ddl_model_config(model);
    ddl_model_free(model);
    ddl_backend_free(backend);
}

static struct ddl_config micro(const char *preset)
{
    struct ddl_error err;
    struct ddl_config k = ddl_config_defaults();
    assert_ok(ddl_config_set_size(&k, "micro", &err), err);
    assert_ok(ddl_config_set_preset(&k, preset, &err), err);
    k.n_layers = 2;
    return k;
}

static void the_configuration_loads(void **state)
{
    (void)state;
    struct ddl_error err;
    struct ddl_config k = micro("ddl-1"), found;
    assert_ok(ddl_config_set_by_layer(&k, "add,delta", "test", &err), err);
    load_model_with("json config.json", &k, &found);
    assert_true(found.by_layer);
}

static void released_configuration_loads(void **state)
{
    (void)state;
    struct ddl_config k = micro("ddl-cc-ec"), found;
    load_model_with("json config.json of the release", &k, &found);
    assert_string_equal(ddl_config_preset_name(&found), "ddl-cc-ec");
}

/* Writes a safetensors file with this header and the number of bytes in `data`. */
static void write_safetensors(const char *path, const char *header, size_t data)
{
    size_t n = strlen(header);
    char *bytes = calloc(1, 8 + n + data);
    for (size_t i = 0; i < 8; i++)
        bytes[i] = (char)(unsigned char)((uint64_t)n >> 8 * i);
    memcpy(bytes + 8, header, n);
    write_file(path, bytes, 8 + n + data);
    free(bytes);
}

static void the_header_opens(void **state)
{
    (void)state;
    struct ddl_error err;
    ddl_safetensors *st;
    char *header = markdown_block(formats, "json safetensors");
    write_safetensors(scratch_path("one.safetensors"), header, 28);
    free(header);
    assert_ok(ddl_safetensors_open(&st, scratch_path("one.safetensors"), &err), err);
    assert_int_equal(ddl_safetensors_count(st), 2);
    ddl_safetensors_close(st);
}

static void the_index_finds_its_tensors(void **state)
{
    (void)state;
    struct ddl_error err;
    ddl_safetensors *st;
    const char *index = example_file("json model.safetensors.index.json", "set/model.safetensors.index.json");
    char folder[1024];
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(index, '/') - index), index);
    json_t *root = json_load_file(index, 0, NULL), *file;
    const char *name;
    json_object_foreach(json_object_get(root, "weight_map"), name, file)
    {
        char header[256], path[2048];
        snprintf(header, sizeof header, "{\"%s\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}",
                 name);
        snprintf(path, sizeof path, "%s/%s", folder, json_string_value(file));
        write_safetensors(path, header, 16);
    }
    assert_ok(ddl_safetensors_open_folder(&st, folder, &err), err);
    assert_int_equal(ddl_safetensors_count(st), json_object_size(json_object_get(root, "weight_map")));
    ddl_safetensors_close(st);
    json_decref(root);
}

/* The examples leave out most bytes of the vocabulary; they are added here with the following ids. */
static void add_bytes(json_t *vocab)
{
    const struct ddl_alphabet alphabet = ddl_alphabet_make();
    for (int byte = 0; byte < 256; byte++) {
        char c = (char)byte, text[8];
        text[ddl_alphabet_encode(&alphabet, &c, 1, text)] = '\0';
        if (!json_object_get(vocab, text))
            json_object_set_new(vocab, text, json_integer((json_int_t)json_object_size(vocab)));
    }
}

/* `key`: path of the vocabulary, or NULL: the whole file is one. */
static const char *complete_tokenizer(const char *path, const char *key)
{
    json_t *root = json_load_file(path, 0, NULL);
    assert_non_null(root);
    add_bytes(key ? json_object_get(json_object_get(root, key), "vocab") : root);
    assert_int_equal(json_dump_file(root, path, 0), 0);
    json_decref(root);
    return path;
}

static void check_abc(const char *path)
{
    struct ddl_error err;
    ddl_tokenizer *tokenizer;
    struct ddl_ids ids = { 0 };
    assert_ok(ddl_tokenizer_load(&tokenizer, path, &err), err);
    assert_ok(ddl_tokenizer_encode(tokenizer, "abcab", 5, false, &ids, &err), err);
    assert_int_equal(ids.n, 2);
    assert_int_equal(ddl_tokenizer_n_merges(tokenizer), 2);
    assert_true(ddl_tokenizer_end_of_text(tokenizer) >= 0);
    ddl_ids_free(&ids);
    ddl_tokenizer_free(tokenizer);
}

static void the_tokenizers_load(void **state)
{
    (void)state;
    check_abc(complete_tokenizer(example_file("json tokenizer.json", "tokenizer.json"), "model"));
    complete_tokenizer(example_file("json encoder.json", "gpt2/encoder.json"), NULL);
    example_file("text vocab.bpe", "gpt2/vocab.bpe");
    check_abc(scratch_path("gpt2"));
}

static void the_documents_build(void **state)
{
    (void)state;
    struct ddl_error err;
    struct ddl_build_result result;
    struct ddl_build_config config = ddl_build_defaults();
    const char *inputs[] = { example_file("json documents.jsonl", "documents.jsonl") };
    snprintf(config.tokenizer, sizeof config.tokenizer, "%s", source_path("data/tokenizer"));
    snprintf(config.out, sizeof config.out, "%s", scratch_path("built"));
    config.overwrite = true;
    assert_ok(ddl_data_build(&config, inputs, 1, NULL, NULL, &result, &err), err);
    assert_int_equal(result.documents[0], 2);
}

/* Parses the output of od: lines of an offset and numbers; "*" repeats the previous line up to the next
 * offset. */
static size_t bytes_of_dump(const char *dump, unsigned char *out, size_t size)
{
    size_t n = 0, row = 0;
    bool repeat = false;
    for (const char *at = dump; at && *at; at = strchr(at, '\n') ? strchr(at, '\n') + 1 : NULL) {
        if (*at == '*') {
            repeat = true;
            continue;
        }
        char *next;
        size_t offset = strtoul(at, &next, 10);
        for (; repeat && n < offset && n < size; n++)
            out[n] = out[n - 16];
        repeat = false;
        assert_int_equal(n, offset);
        for (row = 0; row < 16 && *next == ' ' && n < size; row++)
            out[n++] = (unsigned char)strtoul(next, &next, 16);
    }
    return n;
}

static void the_shard_opens(void **state)
{
    (void)state;
    struct ddl_error err;
    ddl_shards *shards;
    unsigned char bytes[2048];
    char *dump = markdown_block(formats, "text shard");
    size_t n = bytes_of_dump(dump, bytes, sizeof bytes);
    free(dump);
    write_file(scratch_path("shard.bin"), bytes, n);
    assert_ok(ddl_shards_open(&shards, scratch_path("shard.bin"), &err), err);
    assert_int_equal(ddl_shards_count(shards), 5);
    int32_t tokens[5];
    ddl_shards_read(shards, 0, 5, tokens);
    assert_int_equal(tokens[0], 50256);
    assert_int_equal(tokens[1], 15);
    assert_ok(ddl_shards_check(shards, 50257, NULL, NULL, &err), err);
    ddl_shards_close(shards);
}

static void the_points_are_read(void **state)
{
    (void)state;
    struct ddl_error err;
    struct ddl_run_log log;
    example_file("json metrics.jsonl", "log/metrics.jsonl");
    assert_ok(ddl_run_log_read(&log, scratch_path("log"), &err), err);
    assert_int_equal(log.n, 3);
    assert_true(ddl_run_log_final_val(&log) > 5);
    ddl_run_log_free(&log);
}

static void the_cases_verify(void **state)
{
    (void)state;
    struct ddl_error err;
    struct ddl_verify_config config = ddl_verify_defaults();
    struct ddl_verify_totals totals;
    snprintf(config.tokenizer, sizeof config.tokenizer, "%s", source_path("data/tokenizer"));
    snprintf(config.data, sizeof config.data, "%s", source_path("data"));
    snprintf(config.backend, sizeof config.backend, "ref");
    example_file("json cases.jsonl", "cases/cases.jsonl");
    example_file("json files.json", "cases/files.json");
    const char *paths[] = { scratch_path("cases") };
    assert_ok(ddl_verify_run(&config, paths, 1, NULL, NULL, &totals, &err), err);
    assert_int_equal(totals.passed, 1);
    assert_int_equal(totals.failed + totals.skipped, 0);
}

static void the_curves_recipe_is_one_of_a_case(void **state)
{
    (void)state;
    json_t *found = json_load_file(example_file("json recipe.json", "recipe.json"), 0, NULL);
    json_t *real = json_load_file(source_path("tests/golden/curve-baseline/recipe.json"), 0, NULL);
    assert_non_null(found);
    assert_true(json_equal(found, real));
    json_decref(found);
    json_decref(real);
}

/* Each command of the table must exit with the documented status. RECIPE.yaml is replaced by a recipe whose
 * run can be interrupted. */
static void exit_statuses(void **state)
{
    (void)state;
    struct markdown_table table = markdown_table(formats, "exit statuses");
    char recipe[2048];
    write_shard(scratch_path("tokens.bin"), 2, 0, 4000);
    int n = snprintf(recipe, sizeof recipe,
                     "size: micro\nhidden_size: 8\nvocab_size: 4000\nblock_size: 16\nbatch: 1\nwarmup: 0\n"
                     "val_every: 0\ncheckpoint_every: 0\ntrain_data: %s\nout: %s\nbackend: ref\n",
                     scratch_path("tokens.bin"), scratch_path("stopped"));
    write_file(scratch_path("stopped.yaml"), recipe, (size_t)n);
    remove_scratch("stopped");
    for (size_t i = 0; i < table.n; i++) {
        char line[MARKDOWN_CELL], command[4096], out[4096];
        snprintf(line, sizeof line, "%s", table.row[i].cell[2] + 1);
        line[strcspn(line, "`")] = '\0';
        char folder[1024];
        snprintf(folder, sizeof folder, "%s", ddl_program());
        *strrchr(folder, '/') = '\0';
        snprintf(
            command, sizeof command,
            "PATH='%s':$PATH RECIPE='%s'; set -- $(echo '%s' | sed \"s|RECIPE.yaml|$RECIPE|\"); \"$@\" 2>&1",
            folder, scratch_path("stopped.yaml"), line);
        int status = run_command(command, out, sizeof out);
        if (status != (int)strtol(table.row[i].cell[0] + 1, NULL, 10))
            fail_msg("%s: exit status %d, expected %s: %s", line, status, table.row[i].cell[0], out);
    }
    markdown_table_free(&table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recipe_configures_a_run), cmocka_unit_test(sweep_plans_runs),
        cmocka_unit_test(the_configuration_loads), cmocka_unit_test(released_configuration_loads),
        cmocka_unit_test(the_header_opens),        cmocka_unit_test(the_index_finds_its_tensors),
        cmocka_unit_test(the_tokenizers_load),     cmocka_unit_test(the_documents_build),
        cmocka_unit_test(the_shard_opens),         cmocka_unit_test(the_points_are_read),
        cmocka_unit_test(the_cases_verify),        cmocka_unit_test(the_curves_recipe_is_one_of_a_case),
        cmocka_unit_test(exit_statuses),
    };
    return cmocka_run_group_tests(tests, open_formats, close_formats);
}
