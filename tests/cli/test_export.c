/* ddl export and --ignore-extra, as a user meets them. */
#define _DEFAULT_SOURCE /* symlink */
#include "support/program.h"
#include "support/runs.h"

#include "base/file.h"
#include "base/json.h"
#include "tensor/safetensors.h"

#include <jansson.h>
#include <unistd.h>

static void messages(void **state)
{
    (void)state;
    static const struct refusal cases[] = {
        { "export", 2, "export: missing argument: expected a model folder (DIR)" },
        { "export a b --out c", 2, "export: too many arguments: expected at most 1, found 2: 'b'" },
        { "export a", 2, "export: missing argument: expected --out DIR" },
        { "export a --out b --dtype f8", 2, "--dtype: 'f8' is none of f32, bf16, f16" },
        { "export a --out b --max-shard-size much", 2,
          "--max-shard-size: 'much' is not a size such as 500MB, 2GB or 1GiB" },
        { "export a --out b --max-shard-size -1GB", 2, "is not a size" },
        { "export a --out b --max-shard-size 2 GB", 2, "found 2" },
        { "export a --out b --license mit", 2, "--license: requires --hf" },
        { "export a --out b --hf --license MIT/X", 2,
          "--license: expected an identifier such as apache-2.0, found 'MIT/X'" },
        { "export /nowhere --out b", 1, "/nowhere/config.json: cannot open" },
    };
    assert_refused(cases, sizeof cases / sizeof *cases);
    assert_int_equal(ddl("export %s --out /", tiny_folder("named", "ddl-1")), 2);
    assert_printed("/: exists already; name a new folder");
}

static void sizes_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *size;
        int files;
    } cases[] = { { "9000", 4 }, { "9KB", 4 }, { "0.009MB", 4 }, { "8.7890625KiB", 4 },
                  { "1GB", 1 },  { "2TB", 1 }, { "1TiB", 1 } };
    char from[4096], command[8192], counted[64], wanted[32];
    snprintf(from, sizeof from, "%s", tiny_folder("from", "ddl-1"));
    int first = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        remove_scratch("to");
        assert_int_equal(
            ddl("export %s --out %s --max-shard-size %s", from, scratch_path("to"), cases[i].size), 0);
        snprintf(command, sizeof command, "ls %s | grep -c 'safetensors$'", scratch_path("to"));
        assert_int_equal(run_command(command, counted, sizeof counted), 0);
        int n = atoi(counted);
        snprintf(wanted, sizeof wanted, "in %d file", n);
        assert_printed(wanted);
        if (cases[i].files == 1)
            assert_int_equal(n, 1);
        else
            assert_int_equal(n, first = first ? first : n);
    }
    assert_true(first > 3);
}

static void what_the_release_has_is_reported(void **state)
{
    (void)state;
    static const struct {
        const char *golden, *says;
    } cases[] = {
        { "add",
          "loads in the authors' release as gpt_base, whose class GPTBase is abstract: derive a class" },
        { "ddl-1", "as DDL-vdim1 (model/DDL-vdim1-gpt-mha-rope-TC.py)," },
        { "ddl-tc", "as DDL (model/DDL-gpt-mha-rope-TC.py)," },
        { "ddl-tc-ec", "as DDL-EC (model/DDL-gpt-mha-rope-TC-EC.py)," },
        { "ddl-cc", "as DDL-CC (model/DDL-gpt-mha-rope-CC.py)," },
        { "ddl-cc-ec-mup", "as DDL-CC-EC (model/DDL-gpt-mha-rope-CC-EC.py)," },
        { "ddl-cc-ec-write", "the authors' release has no such model (ddl_update write)" },
        { "ddl-cc-c3-k2", "no such model (ddl_state_shortconv_kernel_size other than ddl_value_channels" },
        { "ddl-cc-ec-c5-k4", "no such model (ddl_state_shortconv_kernel_size other than ddl_value_channels" },
        { "ddl-1-mixed", "(a residual rule that changes from layer to layer)" },
        { "ddl-1-vmap", "(ddl_map v)" },
        { "ddl-1-v-context", "(ddl_v_input context)" },
        { "ddl-mix-ec", "(ddl_v_input context)" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char from[256];
        snprintf(from, sizeof from, "tests/golden/%s", cases[i].golden);
        remove_scratch("to");
        assert_int_equal(ddl("export %s --out %s --dtype bf16", source_path(from), scratch_path("to")), 0);
        if (!strstr(printed, cases[i].says))
            fail_msg("%s: '%s', wanted '%s'", cases[i].golden, printed, cases[i].says);
    }
}

struct extra {
    const ddl_safetensors *st;
    size_t n;
};

static ddl_status fill(void *user, size_t i, size_t offset, size_t bytes, void *to, struct ddl_error *err)
{
    (void)err;
    const struct extra *x = user;
    if (i < x->n)
        memcpy(to, ddl_safetensors_at(x->st, i)->data + offset, bytes);
    else
        memset(to, 0, bytes);
    return DDL_OK;
}

/* The folder "from" with one tensor more. */
static void add_a_tensor(const char *folder)
{
    struct ddl_error err;
    struct extra x;
    ddl_safetensors *st;
    struct ddl_tensor plan[128];
    char path[4200];
    assert_ok(ddl_safetensors_open_folder(&st, folder, &err), err);
    x = (struct extra){ st, ddl_safetensors_count(st) };
    assert_true(x.n < 128);
    for (size_t i = 0; i < x.n; i++)
        plan[i] = *ddl_safetensors_at(st, i);
    plan[x.n] = (struct ddl_tensor){ .name = "rotary.inv_freq", .dtype = DDL_F32, .ndim = 1, .shape = { 3 } };
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    assert_ok(ddl_safetensors_write(path, plan, x.n + 1, fill, &x, &err), err);
    ddl_safetensors_close(st);
    snprintf(path, sizeof path, "%s/checksums.json", folder);
    assert_int_equal(remove(path), 0);
}

static void extra_tensors_need_the_flag(void **state)
{
    (void)state;
    char from[4096], rest[8192];
    snprintf(from, sizeof from, "%s", tiny_folder("from", "ddl-cc"));
    add_a_tensor(from);
    write_random_shard(scratch_path("val_000.bin"), 1, 300, 2000);
    const char *const commands[] = {
        "eval %s --shard %s%.0s",
        "generate %s --prompt a --max-tokens 2 %.0s%.0s",
        "train --init-from %s --train-data %s --steps 1 --seq 8 --batch 1 --warmup 0 --out '%s'",
    };
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        for (int flag = 0; flag < 2; flag++) {
            remove_scratch("run");
            snprintf(rest, sizeof rest, commands[i], from, scratch_path("val_000.bin"), scratch_path("run"));
            int status = ddl("%s %s", rest, flag ? "--ignore-extra" : "");
            if (status != !flag ||
                !strstr(printed, "from: rotary.inv_freq is not a parameter of this model (1 in all"))
                fail_msg("%s: status %d: %s", rest, status, printed);
        }
    }
    for (int flag = 0; flag < 2; flag++) {
        remove_scratch("to");
        assert_int_equal(ddl("export %s --out %s %s", from, scratch_path("to"), flag ? "--ignore-extra" : ""),
                         !flag);
        assert_printed("rotary.inv_freq is not a parameter");
        assert_int_equal(ddl_file_exists(scratch_path("to")), flag);
    }
}

/* ---- --hf ---- */

static json_t *json_of(const char *folder, const char *name)
{
    char path[4200];
    json_t *root;
    struct ddl_error err;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_ok(ddl_json_read(&root, path, 1 << 20, &err), err);
    return root;
}

/* Asserts that ddl prints the same losses for a shard with both folders' models. */
static void assert_same_losses(const char *from, const char *to, const char *shard)
{
    char first[256];
    assert_int_equal(ddl("eval %s --shard %s", from, shard), 0);
    snprintf(first, sizeof first, "%.*s", (int)strcspn(strstr(printed, "loss "), "\n"),
             strstr(printed, "loss "));
    assert_int_equal(ddl("eval %s --shard %s", to, shard), 0);
    assert_printed(first);
    assert_null(strstr(printed, "unknown key"));
}

/* Every key of the configuration, for every named model and for rules by layer: config.json alone describes
 * the model, which ddl reads as the one it was. */
static void hf_folders_of_all_models(void **state)
{
    (void)state;
    const char *preset, *to;
    write_random_shard(scratch_path("val_000.bin"), 1, 300, 200);
    for (size_t i = 0; (preset = ddl_config_preset_list(i, NULL)); i++) {
        char from[4096], target[4096];
        remove_scratch("from");
        remove_scratch("to");
        snprintf(from, sizeof from, "%s", tiny_folder("from", preset));
        to = scratch_path("to");
        snprintf(target, sizeof target, "%s", to);
        assert_int_equal(ddl("export %s --hf --out %s", from, target), 0);
        assert_printed("loads in transformers after 'import deep_delta.hf'");
        json_t *root = json_of(target, "config.json");
        assert_string_equal(json_string_value(json_object_get(root, "model_type")), "deep_delta");
        for (const struct ddl_option *row = ddl_config_options(); row->name; row++) {
            const json_t *value = json_object_get(root, row->name);
            if (!value || json_is_null(value) || (row->type == DDL_OPTION_FLOAT && !json_is_real(value)))
                fail_msg("%s: %s", preset, row->name);
        }
        json_decref(root);
        assert_same_losses(from, target, scratch_path("val_000.bin"));
    }
}

static void hf_folder_of_rules_by_layer(void **state)
{
    (void)state;
    remove_scratch("to");
    assert_int_equal(ddl("export %s --hf --dtype bf16 --out %s", source_path("tests/golden/ddl-1-mixed"),
                         scratch_path("to")),
                     0);
    assert_printed("there is no tokenizer in it");
    json_t *root = json_of(scratch_path("to"), "config.json");
    assert_true(json_array_size(json_object_get(root, "ddl_residual_by_layer")) > 1);
    assert_string_equal(json_string_value(json_object_get(root, "dtype")), "bfloat16");
    assert_null(json_object_get(root, "eos_token_id"));
    json_decref(root);
    assert_false(ddl_file_exists(file_in(scratch_path("to"), "tokenizer_config.json")));
    assert_false(ddl_file_exists(file_in(scratch_path("to"), "generation_config.json")));
    assert_int_equal(ddl("info %s", scratch_path("to")), 0);
}

/* The tokenizer's files, and checksums of all that readers of models use. */
static void hf_folder_has_the_tokenizer(void **state)
{
    (void)state;
    char from[4096], command[8192], text[64];
    snprintf(from, sizeof from, "%s", tiny_folder("from", "ddl-cc"));
    remove_scratch("to");
    assert_int_equal(ddl("export %s --hf --out %s", from, scratch_path("to")), 0);
    json_t *root = json_of(scratch_path("to"), "tokenizer_config.json");
    json_t *generation = json_of(scratch_path("to"), "generation_config.json");
    json_t *sums = json_of(scratch_path("to"), "checksums.json");
    assert_string_equal(json_string_value(json_object_get(root, "tokenizer_class")),
                        "PreTrainedTokenizerFast");
    assert_int_equal(json_integer_value(json_object_get(root, "model_max_length")), 16);
    assert_string_equal(json_string_value(json_object_get(root, "eos_token")), "<|endoftext|>");
    assert_true(json_is_integer(json_object_get(generation, "eos_token_id")));
    static const char *const listed[] = { "tokenizer.json", "tokenizer_config.json", "generation_config.json",
                                          "config.json", "model.safetensors" };
    for (size_t i = 0; i < sizeof listed / sizeof *listed; i++)
        assert_non_null(json_object_get(json_object_get(sums, "files"), listed[i]));
    json_decref(root);
    json_decref(generation);
    json_decref(sums);
    snprintf(command, sizeof command, "cmp %s/tokenizer.json %s/tokenizer.json", from, scratch_path("to"));
    assert_int_equal(run_command(command, text, sizeof text), 0);
}

/* The recipe without paths, the metrics up to the saved model's step, and the license. */
static void hf_card_describes_the_run(void **state)
{
    (void)state;
    struct ddl_error err;
    char *text;
    size_t size;
    write_random_shard(scratch_path("train.bin"), 1, 300, 3000);
    struct ddl_train_config t = tiny_run("ddl-cc", 300, test_backend(0), scratch_path("run"));
    t.checkpoint_every = 8;
    t.log_every = 1;
    assert_ok(ddl_train_run(&t, NULL, NULL, &err), err);
    static const char *const which[] = { "last", "8" };
    static const char *const has[][3] = {
        { "| steps | 20 |", "license: apache-2.0", "\nsteps: 20\n" },
        { "| steps | 8 |", "## License\n\nNot stated.", "| model | ddl-cc |" },
    };
    for (size_t i = 0; i < 2; i++) {
        remove_scratch("to");
        assert_int_equal(ddl("export %s --which %s --hf %s --out %s/", t.out, which[i],
                             i ? "" : "--license apache-2.0", scratch_path("to")),
                         0);
        assert_ok(ddl_file_read(file_in(scratch_path("to"), "README.md"), 1 << 20, &text, &size, &err), err);
        for (size_t k = 0; k < 3; k++) {
            if (!strstr(text, has[i][k]))
                fail_msg("expected '%s': %s", has[i][k], text);
        }
        assert_null(strstr(text, "train_data"));
        assert_null(strstr(text, scratch_path("")));
        assert_non_null(strstr(text, "\n# to\n"));
        free(text);
    }
    /* A model between two logged steps has no figures of its own. */
    t.log_every = 6;
    t.overwrite = true;
    assert_ok(ddl_train_run(&t, NULL, NULL, &err), err);
    remove_scratch("to");
    assert_int_equal(ddl("export %s --which 8 --hf --out %s", t.out, scratch_path("to")), 0);
    assert_ok(ddl_file_read(file_in(scratch_path("to"), "README.md"), 1 << 20, &text, &size, &err), err);
    assert_non_null(strstr(text, "| steps | 8 |"));
    assert_null(strstr(text, "| tokens |"));
    assert_null(strstr(text, "| training loss"));
    free(text);
}

/* An empty folder by any name. */
static void empty_folders_are_taken(void **state)
{
    (void)state;
    struct ddl_error err;
    char from[4096], link[4096];
    snprintf(from, sizeof from, "%s", tiny_folder("from", "ddl-1"));
    snprintf(link, sizeof link, "%s", scratch_path("link"));
    for (size_t i = 0; i < 2; i++) {
        remove_scratch("empty");
        assert_ok(ddl_file_make_dir(scratch_path("empty"), &err), err);
        unlink(link);
        assert_int_equal(symlink("empty", link), 0);
        assert_int_equal(
            ddl(i ? "export %s --out %s" : "export %s --out %s/.", from, i ? link : scratch_path("empty")),
            0);
        assert_true(ddl_file_exists(file_in(scratch_path("empty"), "config.json")));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages),
        cmocka_unit_test(sizes_are_read),
        cmocka_unit_test(what_the_release_has_is_reported),
        cmocka_unit_test(extra_tensors_need_the_flag),
        cmocka_unit_test(hf_folders_of_all_models),
        cmocka_unit_test(hf_folder_of_rules_by_layer),
        cmocka_unit_test(hf_folder_has_the_tokenizer),
        cmocka_unit_test(hf_card_describes_the_run),
        cmocka_unit_test(empty_folders_are_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
