/* ddl train, eval, generate and info: exit statuses, messages, a stop by signal. */
#define _POSIX_C_SOURCE 200809L
#include "support/program.h"
#include "support/runs.h"

#include "base/lock.h"
#include "ddl/config.h"

#include <jansson.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

static const char tiny_flags[] =
    "--vocab-size 300 --num-hidden-layers 2 --num-attention-heads 2 --hidden-size 16 --head-dim 8 "
    "--block-size 16 --batch 2 --accumulate 2 --warmup 2 --steps 6 --backend ref --val-every 3 --val-tokens "
    "64";

static void mistakes(void **state)
{
    (void)state;
    static const struct refusal cases[] = {
        { "train --sped 1", 2, "unknown option '--sped', did you mean '--seed'?" },
        { "train --lr", 2, "--lr: missing argument: expected" },
        { "train --lr fast", 2, "--lr: 'fast'" },
        { "train --batch 0", 2, "--batch: 0 is out of range" },
        { "train /nowhere/r.yaml", 1, "/nowhere/r.yaml: cannot open" },
        { "train recipes/demo.yaml recipes/cpu.yaml", 2,
          "train: too many arguments: expected at most 1, found 2: 'recipes/cpu.yaml'" },
        { "train --init-from=scratch", 2,
          "init_from: expected the folder of a model or run, found 'scratch'; leave init_from out" },
        { "train --init-from resume", 2, "found 'resume'; ddl train --resume continues the run in out" },
        { "generate x -n 10", 2, "did you mean '--max-tokens'? In llama.cpp -n counts new tokens" },
        { "generate x -p a", 2, "unknown option '-p', did you mean '--prompt'?" },
        { "logprobs x --text a", 2,
          "unknown option '--text': the text is an argument or standard input: ddl logprobs DIR FILE" },
        { "train --out x", 2, "train: missing argument: expected --train-data PATH" },
        { "train --train-data /nowhere --out /nowhere/x", 1, "train_data: /nowhere" },
        { "train --dry-run --backend cpu --dtype tf32", 1,
          "dtype tf32: backend cpu does not have it: use f32 or bf16, or backend cuda" },
        { "train --model dl-cc", 2, "unknown model 'dl-cc', did you mean 'ddl-cc'?" },
        { "eval", 2, "eval: missing argument: expected a model folder (DIR)" },
        { "eval /nowhere", 2,
          "eval: missing argument: expected --val-data PATH, --text FILE or --tasks LIST" },
        { "eval /nowhere --text x --shard y", 2,
          "eval: expected one of --val-data, --text and --tasks, found several" },
        { "eval /nowhere --text LICENSE", 1, "/nowhere/config.json: cannot open" },
        { "eval html --text LICENSE", 1,
          "html is not a model folder: expected a run, a checkpoint or another folder with config.json" },
        { "eval /nowhere --text x --sequence 4", 2, "unknown option '--sequence'" },
        { "generate", 2, "generate: missing argument: expected a model folder (DIR)" },
        { "generate /nowhere --prompt a", 1, "/nowhere/config.json: cannot open" },
        { "generate /nowhere --top-p 2", 2, "--top-p: 2 is out of range" },
        { "generate /nowhere --stop", 2, "--stop: missing argument: expected TEXT" },
        { "generate /nowhere --stop ''", 2, "--stop: an empty text stops nothing" },
        { "info /nowhere", 1, "/nowhere/config.json: cannot open" },
        { "info --model baslin", 2, "unknown model 'baslin', did you mean 'baseline'?" },
        { "info a b", 2, "info: too many arguments: expected at most 1, found 2: 'b'" },
    };
    assert_refused(cases, sizeof cases / sizeof *cases);
}

/* The file in the folder contains the text. */
static void assert_file_says(const char *folder, const char *name, const char *text)
{
    char *content = read_file(file_in(folder, name), NULL);
    if (!strstr(content, text))
        print_error("%s:\n%s", name, content);
    assert_non_null(strstr(content, text));
    free(content);
}

static void help(void **state)
{
    (void)state;
    static const char *const names[] = { "train", "eval", "generate", "info" };
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(ddl("%s --help", names[i]), 0);
        assert_printed("usage: ddl");
    }
    assert_int_equal(ddl("info"), 0);
    assert_printed("ddl-cc-ec");
    assert_printed("medium");
}

/* ddl info without a model, as text and as JSON: the same names. */
static void names_are_listed(void **state)
{
    (void)state;
    static char text[sizeof printed];
    assert_int_equal(ddl("info"), 0);
    strcpy(text, printed);
    static const char *const spellings[] = { "info --json", "info --json true", "info --json=yes" };
    for (size_t i = 0; i < sizeof spellings / sizeof *spellings; i++) {
        assert_int_equal(ddl("%s", spellings[i]), 0);
        json_t *root = printed_json(), *entry;
        static const char *const lists[] = { "models", "sizes" };
        for (size_t k = 0; k < 2; k++) {
            size_t at;
            assert_true(json_array_size(json_object_get(root, lists[k])) > 4);
            json_array_foreach(json_object_get(root, lists[k]), at, entry)
            {
                char line[256];
                snprintf(line, sizeof line, "  %-12s %s\n", json_string_value(json_object_get(entry, "name")),
                         json_string_value(json_object_get(entry, "description")));
                assert_non_null(strstr(text, line));
            }
        }
        json_decref(root);
    }
    assert_int_equal(ddl("info --json=no"), 0);
    assert_string_equal(printed, text);
    assert_int_equal(ddl("info --hidden-size 256 --json"), 0); /* a configuration, not the names */
    assert_printed("\"parameters\"");
}

/* head_dim is hidden_size / num_attention_heads unless it is set: the parameters say which. */
static void heads_have_a_width(void **state)
{
    (void)state;
    static const char model[] =
        "--vocab-size 4096 --num-hidden-layers 4 --num-attention-heads 4 --hidden-size 128";
    static const char note[] = "head_dim is 32, not 128: hidden_size 128 / num_attention_heads 4\n";
    assert_int_equal(ddl("train --dry-run %s", model), 0);
    assert_printed("1.31M parameters");
    assert_printed("shape     4 layers, width 128, 4 heads x 32, MLP width 341\n");
    assert_printed(note);
    assert_int_equal(ddl("info %s", model), 0);
    assert_printed("parameters   1311616 (1.3 M)");
    assert_printed(note);
    assert_int_equal(ddl("info --head-dim 32 %s", model), 0);
    assert_null(strstr(printed, "ddl: "));
    assert_int_equal(ddl("info --num-attention-heads 3 --hidden-size 128"), 2);
    assert_printed("head_dim: expected hidden_size / num_attention_heads to be a whole number");
    /* A folder's is stored. */
    char folder[2048];
    snprintf(folder, sizeof folder, "%s", tiny_folder("heads", "baseline"));
    assert_int_equal(ddl("info %s --num-attention-heads 1", folder), 0);
    assert_null(strstr(printed, "ddl: "));
}

/* A last step whose batch counts no target has no loss, in the result or in the list of checkpoints. */
static void a_step_without_targets(void **state)
{
    (void)state;
    static const char flags[] =
        "--vocab-size 300 --num-hidden-layers 1 --num-attention-heads 2 --hidden-size 16 --head-dim 8 "
        "--block-size 16 --batch 2 --accumulate 1 --seq 16 --backend ref --order sequential --val-every 0";
    unsigned char mask[3000] = { 0 };
    char run[1024], shard[1024];
    memset(mask, 1, 40); /* the batch of the first step */
    snprintf(run, sizeof run, "%s", scratch_path("untargeted"));
    snprintf(shard, sizeof shard, "%s", scratch_path("untargeted.bin"));
    write_random_shard(shard, 1, 260, sizeof mask);
    write_file(scratch_path("untargeted.mask"), mask, sizeof mask);
    remove_scratch("untargeted");
    assert_int_equal(ddl("train %s --steps 3 --train-data %s --out %s", flags, shard, run), 0);
    assert_printed("untargeted: 3 steps, 96 tokens in ");
    assert_int_equal(ddl("train %s/recipe.yaml --out %s --overwrite --quiet --json", run, run), 0);
    assert_printed("\"step\":3,\"loss\":null,");
    assert_int_equal(ddl("info %s", run), 0);
    assert_printed("  checkpoint-3         \n");
    assert_int_equal(ddl("train %s/recipe.yaml --steps 1 --out %s --overwrite", run, run), 0);
    assert_printed("untargeted: 1 steps, loss 5.");
}

/* The values that a run's recipe lists as computed follow another number of steps; those that were set do
 * not. */
static void computed_values_follow_the_steps(void **state)
{
    (void)state;
    static const char flags[] =
        "--vocab-size 300 --num-hidden-layers 1 --num-attention-heads 2 --hidden-size 16 --head-dim 8 "
        "--block-size 16 --batch 2 --backend ref --quiet";
    char run[1024], other[1024], shard[1024];
    snprintf(run, sizeof run, "%s", scratch_path("computed"));
    snprintf(other, sizeof other, "%s", scratch_path("computed2"));
    snprintf(shard, sizeof shard, "%s", scratch_path("computed.bin"));
    write_random_shard(shard, 1, 260, 3000);
    remove_scratch("computed");
    assert_int_equal(ddl("train %s --steps 200 --train-data %s --val-every 50 --out %s", flags, shard, run),
                     0);
    assert_file_says(run, "recipe.yaml", "computed: warmup,log_every,telemetry_every,val_tokens,");
    assert_file_says(run, "recipe.yaml", "\nwarmup: 4\n");
    assert_file_says(run, "recipe.yaml", "\nval_every: 50\n");
    assert_int_equal(ddl("train %s/recipe.yaml --resume --steps 3", run), 2);
    assert_null(strstr(printed, "warmup"));
    assert_printed("the run has done 200 of 3 steps already");
    /* Resumed for more steps, the run keeps its values, and its recipe lists them still. */
    assert_int_equal(ddl("train %s --resume --steps 250 --quiet", run), 0);
    assert_file_says(run, "recipe.yaml", "computed: warmup,log_every,telemetry_every,val_tokens,");
    assert_file_says(run, "recipe.yaml", "\nwarmup: 4\n");
    assert_file_says(run, "recipe.yaml", "\ncheckpoint_every: 50\n");
    /* A new run computes them, but what the recipe's run or the flags have set. */
    assert_int_equal(ddl("train %s/recipe.yaml --steps 100 --out %s --overwrite --quiet", run, other), 0);
    assert_file_says(other, "recipe.yaml", "\nwarmup: 2\n");
    assert_file_says(other, "recipe.yaml", "\nval_every: 50\n");
    assert_int_equal(
        ddl("train %s/recipe.yaml --steps 100 --warmup 5 --out %s --overwrite --quiet", run, other), 0);
    assert_file_says(other, "recipe.yaml", "\nwarmup: 5\n");
    assert_file_says(other, "recipe.yaml", "computed: log_every,telemetry_every,val_tokens,");
    assert_int_equal(ddl("train %s/recipe.yaml --out %s --overwrite --dry-run --warmup 400", run, other), 2);
    assert_printed("warmup is 400, more than steps 250");
}

/* Weights that end early, at any place: the file, its length and the expected one. */
static void truncated_weights_are_reported(void **state)
{
    (void)state;
    char folder[2048], weights[2100], shard[2048];
    snprintf(folder, sizeof folder, "%s", tiny_folder("cut", "baseline"));
    remove_scratch("cut/checksums.json"); /* the loader reports the error */
    snprintf(weights, sizeof weights, "%s/model.safetensors", folder);
    snprintf(shard, sizeof shard, "%s", scratch_path("s.bin"));
    write_random_shard(shard, 1, 260, 300);
    size_t size;
    char *content = read_file(weights, &size), expected[128];
    const struct {
        size_t size;
        const char *at_least;
        size_t wanted;
    } cases[] = {
        { size - 1, "", size }, { size / 2, "", size }, { 20, "at least ", 0 }, { 5, "at least ", 8 }
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t header;
        memcpy(&header, content, 8);
        write_file(weights, content, cases[i].size);
        snprintf(expected, sizeof expected, "model.safetensors: truncated: expected %s%zu bytes, found %zu\n",
                 cases[i].at_least, cases[i].wanted ? cases[i].wanted : 8 + (size_t)header, cases[i].size);
        assert_int_equal(ddl("eval %s --shard %s", folder, shard), 1);
        assert_printed(expected);
        assert_int_equal(ddl("export %s --out %s", folder, scratch_path("cut-export")), 1);
        assert_printed(expected);
    }
    free(content);
}

static void every_recipe_with_every_model(void **state)
{
    (void)state;
    static const char *const recipes[] = { "paper-small", "paper-medium", "cpu", "demo" };
    const char *preset;
    for (size_t i = 0; i < 4; i++) {
        for (size_t j = 0; (preset = ddl_config_preset_list(j, NULL)); j++) {
            assert_int_equal(
                ddl("train recipes/%s.yaml --model %s --train-data '' --tokenizer '' --sample-every 0 "
                    "--dry-run --json",
                    recipes[i], preset),
                0);
            json_t *root = printed_json();
            assert_true(json_number_value(json_object_get(root, "flops_per_token")) > 0);
            json_decref(root);
        }
    }
}

static void parameter_counts_of_the_paper(void **state)
{
    (void)state;
    static const struct {
        const char *size;
        json_int_t count;
    } cases[] = { { "small", 123590400 }, { "medium", 353508352 } };
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(ddl("info --model baseline --size %s --json --tensors", cases[i].size), 0);
        json_t *root = printed_json(), *parameters = json_object_get(root, "parameters");
        assert_string_equal(json_string_value(json_object_get(root, "preset")), "baseline");
        assert_int_equal(json_integer_value(json_object_get(parameters, "total")), cases[i].count);
        json_int_t sum = 0;
        size_t at;
        json_t *tensor;
        json_array_foreach(json_object_get(root, "tensors"), at, tensor)
        {
            json_int_t count = 1;
            for (size_t k = 0; k < json_array_size(json_object_get(tensor, "shape")); k++)
                count *= json_integer_value(json_array_get(json_object_get(tensor, "shape"), k));
            sum += count;
        }
        assert_int_equal(sum, cases[i].count);
        json_decref(root);
    }
    assert_int_equal(ddl("info --model baseline --size small"), 0);
    assert_printed("123590400 (123.6 M)");
}

/* Text samples are not mixed with the result. */
static void json_is_alone(void **state)
{
    (void)state;
    char shard[1024], tokenizer[1024];
    snprintf(shard, sizeof shard, "%s", scratch_path("alone.bin"));
    snprintf(tokenizer, sizeof tokenizer, "%s", tiny_folder("tok", "baseline"));
    write_random_shard(shard, 1, 260, 3000);
    json_t *root = ddl_json("train %s --train-data %s --tokenizer %s --out %s --overwrite --json "
                            "--sample-every 6 --sample-tokens 4",
                            tiny_flags, shard, tokenizer, scratch_path("alone"));
    assert_int_equal(json_integer_value(json_object_get(root, "step")), 6);
    json_decref(root);
}

/* A baseline with as many parameters as a delta model: the width in the header, the dry run and info, and a
 * resumed run. */
static void matched_baselines(void **state)
{
    (void)state;
    char run[2048], shard[2048];
    remove_scratch("matched");
    snprintf(run, sizeof run, "%s", scratch_path("matched"));
    snprintf(shard, sizeof shard, "%s", scratch_path("matched.bin"));
    write_random_shard(shard, 1, 260, 3000);
    const char *match = "--model baseline --match-parameters ddl-1";
    assert_int_equal(ddl("train %s %s --dry-run --json", tiny_flags, match), 0);
    json_t *root = printed_json(), *at = json_object_get(root, "match");
    const json_int_t width = json_integer_value(json_object_get(at, "mlp_size"));
    assert_string_equal(json_string_value(json_object_get(at, "model")), "ddl-1");
    assert_int_equal(json_integer_value(json_object_get(at, "cost")),
                     json_integer_value(json_object_get(json_object_get(root, "parameters"), "total")));
    json_decref(root);
    char line[64];
    snprintf(line, sizeof line, "MLP width %lld: ", (long long)width);
    assert_int_equal(ddl("train %s %s --dry-run", tiny_flags, match), 0);
    assert_printed(line);
    assert_int_equal(
        ddl("train %s %s --train-data %s --out %s --checkpoint-every 3", tiny_flags, match, shard, run), 0);
    assert_printed(line);
    assert_int_equal(ddl("info %s", run), 0);
    snprintf(line, sizeof line, "  mlp_size                             %lld\n", (long long)width);
    assert_printed(line);
    assert_printed("model        baseline\n");
    /* From the key, and from the recipe, which has the width too. */
    assert_int_equal(
        ddl("train %s %s --train-data %s --out %s --steps 8 --resume", tiny_flags, match, shard, run), 0);
    assert_int_equal(ddl("train %s/recipe.yaml --steps 9 --resume", run), 0);
    assert_int_equal(ddl("train %s --train-data %s --out %s --steps 9 --resume", tiny_flags, shard, run), 2);
    assert_printed("the run has mlp_size ");
    assert_int_equal(ddl("info --size micro --match-flops ddl-1 --seq 32"), 0);
    assert_printed("match        MLP width 345: ");
    assert_printed(", ddl-1 has ");
    assert_printed("(+0.000 %)");
    assert_int_equal(ddl("info %s --match-flops ddl-1", run), 2);
    assert_printed("expected --model and --size, found a folder");
}

/* Train, look at, evaluate, sample: on a folder that the program made. */
static void from_shards_to_text(void **state)
{
    (void)state;
    char run[2048], shard[2048], tokenizer[2048];
    remove_scratch("run");
    snprintf(run, sizeof run, "%s", scratch_path("run"));
    snprintf(shard, sizeof shard, "%s", scratch_path("s.bin"));
    snprintf(tokenizer, sizeof tokenizer, "%s", tiny_folder("tok", "baseline"));
    write_random_shard(shard, 1, 260, 3000);
    assert_int_equal(
        ddl("train %s --model ddl-cc-ec --train-data %s --val-data %s --tokenizer %s --out %s --json "
            "--sample-every 6 --sample-prompt The --sample-tokens 4",
            tiny_flags, shard, shard, tokenizer, run),
        0);
    assert_printed("step 6/6  loss ");
    assert_printed("--- step 6\n[The]");
    assert_printed("\"val_loss\":");
    assert_int_equal(ddl("info %s", run), 0);
    assert_printed("ddl-cc-ec");
    assert_int_equal(ddl("eval %s --shard %s --backend ref --json", run, shard), 0);
    json_t *root = printed_json();
    const json_t *model = json_array_get(json_object_get(root, "models"), 0);
    assert_int_equal(json_integer_value(json_object_get(model, "tokens")), 2999);
    assert_null(json_object_get(model, "bits_per_byte")); /* no record of the shard's tokenizer */
    json_decref(root);
    assert_int_equal(ddl("eval %s --text %s --backend ref", run, source_path("LICENSE")), 0);
    assert_printed("bits per byte");
    assert_int_equal(ddl("generate %s --prompt free --max-tokens 6 --n 2 --seed 3 --json --backend ref", run),
                     0);
    root = printed_json();
    assert_int_equal(json_array_size(root), 2);
    json_decref(root);
    /* Greedy is the same twice, from a flag and from standard input. */
    static char first[sizeof printed];
    assert_int_equal(ddl("generate %s --prompt free --max-tokens 6 --temperature 0 --backend ref", run), 0);
    snprintf(first, sizeof first, "%s", printed);
    assert_int_equal(ddl("generate %s --max-tokens 6 --temperature 0 --backend ref <<EOF\nfree\nEOF", run),
                     0);
    assert_int_equal(ddl("generate %s --prompt free --max-tokens 6 --temperature 0 --backend ref", run), 0);
    assert_string_equal(first, printed);
    assert_int_equal(ddl("generate %s --prompt 'this is much too long for it, is it not' --backend ref", run),
                     2);
    assert_printed("the model's context 16");
}

/* The validation losses in what a run has printed; NAN without one. */
static double printed_val_loss(void)
{
    json_t *root = printed_json(), *value = json_object_get(root, "val_loss");
    double loss = value ? json_number_value(value) : (double)NAN;
    json_decref(root);
    return loss;
}

/* A folder with training and validation shards: what a run trains and validates on, however the shards are
 * named on the command line, and after --resume. */
static void held_out_shards(void **state)
{
    (void)state;
    char base[4096], folder[1024], reference[1024], run[1024];
    static const struct {
        const char *data; /* %s: the folder */
        bool validates;
    } cases[] = {
        { "--train-data %s", true },
        { "--train-data '%s/*.bin'", true },
        { "--train-data %s/*.bin", true },
        { "--train-data %s/train_*.bin --val-data %s/val_*.bin", true },
        { "--train-data %s --val-data %s", true },
        { "--train-data %s/train_*.bin", false },
        { "--train-data %s --val-data none", false },
        { "--train-data %s --val-data ''", false },
    };
    remove_scratch("held");
    snprintf(folder, sizeof folder, "%s", scratch_path("held"));
    snprintf(reference, sizeof reference, "%s", scratch_path("reference"));
    snprintf(run, sizeof run, "%s", scratch_path("held_run"));
    for (int i = 0; i < 4; i++) {
        char shard[2048];
        struct ddl_error err;
        assert_ok(ddl_file_make_dir(folder, &err), err);
        snprintf(shard, sizeof shard, "%s/%s_%06d.bin", folder, i < 3 ? "train" : "val", i % 3);
        write_random_shard(shard, (uint64_t)i, 260, 700);
    }
    snprintf(base, sizeof base, "train %s --model baseline --json --quiet", tiny_flags);
    assert_int_equal(
        ddl_stream(STANDARD_OUTPUT,
                   "%s --train-data '%s/train_*.bin' --val-data '%s/val_*.bin' --out %s --overwrite", base,
                   folder, folder, reference),
        0);
    double val_loss = printed_val_loss();
    assert_true(val_loss > 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char data[4096];
        snprintf(data, sizeof data, cases[i].data, folder, folder);
        assert_int_equal(ddl_stream(STANDARD_OUTPUT, "%s %s --out %s --overwrite", base, data, run), 0);
        double found = printed_val_loss();
        assert_true(cases[i].validates ? found == val_loss : isnan(found));
        assert_same_file(file_in(run, "model.safetensors"), file_in(reference, "model.safetensors"));
    }
    /* The stored recipe means the same files. */
    assert_int_equal(
        ddl("%s --train-data %s/*.bin --out %s --overwrite --steps 3 --no-quiet", base, folder, run), 0);
    assert_printed("training on 3 files, validating on 1");
    assert_int_equal(ddl("train %s/recipe.yaml --steps 6 --resume --json --no-quiet", run), 0);
    assert_printed("training on 3 files, validating on 1");
    assert_int_equal(
        ddl_stream(STANDARD_OUTPUT, "train %s/recipe.yaml --steps 9 --resume --json --quiet", run), 0);
    assert_true(printed_val_loss() > 0);
    /* Those of the folder are counted where others are validated on. */
    assert_int_equal(ddl("%s --train-data %s --val-data %s/val_000000.bin --out %s --overwrite --no-quiet",
                         base, folder, folder, reference),
                     0);
    assert_printed("training on 3 files; validation shards (val_*) there, not used: 1");
    /* Evaluation takes the validation shards of a folder, data info lists everything. */
    assert_int_equal(ddl("eval %s --shard %s --json --backend ref", run, folder), 0);
    assert_printed("evaluating the 1 validation shard of 4 files");
    assert_printed("\"tokens\":699,");
    assert_int_equal(ddl("eval %s --shard %s/train_*.bin --json --backend ref", run, folder), 0);
    assert_printed("\"tokens\":2099,");
    assert_int_equal(ddl("data info %s", folder), 0);
    assert_printed("2800 tokens");
    assert_int_equal(ddl("data info %s/*.bin", folder), 0);
    assert_printed("2800 tokens");
    assert_int_equal(
        ddl("train recipes/demo.yaml recipes/cpu.yaml --train-data %s/*.bin --out %s", folder, run), 2);
    assert_printed("train: too many arguments: expected at most 1, found 2");
}

/* A newcomer's line: the usual names, few steps, no folder. */
static void defaults_fit_a_short_run(void **state)
{
    (void)state;
    char shard[2048], command[8192];
    snprintf(shard, sizeof shard, "%s", scratch_path("s.bin"));
    write_random_shard(shard, 1, 260, 3000);
    remove_scratch("newcomer");
    assert_int_equal(mkdir(scratch_path("newcomer"), 0777), 0);
    for (int n = 1; n <= 2; n++) {
        snprintf(command, sizeof command,
                 "cd '%s' && '%s' train --model ddl-cc --size micro --hidden-size 16 --vocab-size 300 "
                 "--block-size 16 --batch-size 2 --learning-rate 1e-3 --max-steps 50 --device ref "
                 "--schedule wsd --train-data '%s' --val-data '%s' --val-tokens 64 --json 2>&1",
                 scratch_path("newcomer"), ddl_program(), shard, shard);
        assert_int_equal(run_command(command, printed, sizeof printed), 0);
        snprintf(command, sizeof command, "ddl: run folder: runs/ddl-cc-micro-%d\n", n);
        assert_printed(command);
        snprintf(command, sizeof command, "{\"out\":\"runs/ddl-cc-micro-%d\",\"step\":50,", n);
        assert_printed(command);
        assert_printed("step 0/50  loss ");
        assert_printed("step 50/50  loss ");
    }
    assert_int_equal(ddl("compare %s", scratch_path("newcomer/runs/ddl-cc-micro-1")), 0);
    assert_printed("          0 "); /* the chart begins at 0 tokens */
    /* More runs than the chart has marks: the mean of their group. */
    snprintf(command, sizeof command,
             "cd '%s' && mkdir many && for i in $(seq 33); do cp -r runs/ddl-cc-micro-1 "
             "many/a_rather_long_name_seed=$i; done",
             scratch_path("newcomer"));
    assert_int_equal(run_command(command, printed, sizeof printed), 0);
    assert_int_equal(ddl("compare %s", scratch_path("newcomer/many")), 0);
    assert_printed("\ntraining loss, means of groups\n");
    assert_printed("          o  a_rather_long_name\n\n");
    assert_printed("\na_rather_long_name_seed=1  ddl-cc  ");
    assert_int_equal(ddl("train --train-data %s --resume", shard), 2);
    assert_printed("train --resume: missing argument: expected --out DIR");
    assert_int_equal(ddl("train --batch 2 --batch-size 3"), 2);
    assert_printed("--batch-size 3: the same option as --batch 2: expected one value");
    assert_int_equal(ddl("help train"), 0);
    assert_printed("sequences per micro-batch (also --batch-size, --micro-batch-size) [default: 8]");
    assert_printed("[default: auto: steps/50, at most 2000]");
    assert_int_equal(ddl("completion bash"), 0);
    assert_printed(" --batch --batch-size --micro-batch-size ");
    assert_printed("--backend|--device)");
}

/* A folder with nanoGPT's train.bin and val.bin gives the run of the same tokens in shards. */
static void nanogpt_files(void **state)
{
    (void)state;
    static const char *const names[] = { "train", "val" };
    char folder[1024], shards[1024], run[1024], reference[1024];
    struct ddl_error err;
    snprintf(folder, sizeof folder, "%s", scratch_path("nanogpt"));
    snprintf(shards, sizeof shards, "%s", scratch_path("nanogpt_shards"));
    snprintf(run, sizeof run, "%s", scratch_path("nanogpt_run"));
    snprintf(reference, sizeof reference, "%s", scratch_path("nanogpt_reference"));
    assert_ok(ddl_file_make_dir(folder, &err), err);
    assert_ok(ddl_file_make_dir(shards, &err), err);
    for (uint64_t i = 0; i < 2; i++) {
        char path[2048];
        size_t size;
        snprintf(path, sizeof path, "%s/%s_000000.bin", shards, names[i]);
        write_random_shard(path, i, 260, 2000);
        char *data = read_file(path, &size);
        snprintf(path, sizeof path, "%s/%s.bin", folder, names[i]);
        write_file(path, data + 1024, size - 1024);
        free(data);
    }
    assert_int_equal(
        ddl("train %s --model baseline --train-data %s --out %s --overwrite", tiny_flags, shards, reference),
        0);
    assert_int_equal(
        ddl("train %s --model baseline --train-data %s --out %s --overwrite", tiny_flags, folder, run), 0);
    assert_printed("train_data: ");
    assert_printed("nanogpt/train.bin: no shard header: reading uint16 tokens in nanoGPT's format");
    assert_printed("nanogpt/val.bin: no shard header");
    assert_printed("training on 1 file, validating on 1");
    assert_same_metrics(run, reference);
    assert_int_equal(ddl("data info %s", folder), 0);
    assert_printed("4000 tokens");
    assert_printed("documents are not counted: token 50256 does not occur, and there is no record of the "
                   "tokenizer\n");
    assert_printed("no shard header");
    assert_int_equal(ddl("eval %s --shard %s/val.bin --format nanogpt --json", run, folder), 0);
    assert_printed("\"tokens\":1999,");
    assert_int_equal(ddl("eval %s --shard %s/val.bin --format llm.c --json", run, folder), 1);
    assert_printed("not a shard: expected magic number");
}

/* One option has one name in all commands, and the same other names. */
static void options_are_named_alike(void **state)
{
    (void)state;
    static const struct {
        const char *command, *also;
    } cases[] = {
        { "train", "--val-data PATH" },
        { "eval", "--val-data PATH" },
        { "eval", "(also --shard)" },
        { "train", "--val-tokens N" },
        { "eval", "--val-tokens N" },
        { "eval", "(also --max-tokens)" },
        { "train", "(also --batch-size, --micro-batch-size)" },
        { "eval", "(also --batch-size, --micro-batch-size)" },
        { "bench step", "(also --batch-size, --micro-batch-size)" },
        { "train", "(also --seq-len, --sequence-length)" },
        { "eval", "(also --seq-len, --sequence-length)" },
        { "bench step", "(also --seq-len, --sequence-length)" },
        { "info", "(also --seq-len, --sequence-length)" },
        { "train", "(also --device)" },
        { "eval", "(also --device)" },
        { "generate", "(also --device)" },
        { "bench step", "(also --device)" },
        { "verify", "(also --device)" },
        { "train", "(also --num-threads)" },
        { "eval", "(also --num-threads)" },
        { "generate", "(also --num-threads)" },
        { "bench step", "(also --num-threads)" },
        { "verify", "(also --num-threads)" },
        { "data build", "(also --num-threads)" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(ddl("help %s", cases[i].command), 0);
        assert_printed(cases[i].also);
    }
    char folder[2048], shard[2048], *first = NULL;
    snprintf(folder, sizeof folder, "%s", tiny_folder("alike", "baseline"));
    snprintf(shard, sizeof shard, "%s", scratch_path("s.bin"));
    write_random_shard(shard, 1, 260, 300);
    static const char *const spellings[] = {
        "--val-data %s --val-tokens 64 --batch 2 --seq 8 --backend ref --threads 1",
        "--shard %s --max-tokens 64 --batch-size 2 --seq-len 8 --device ref "
        "--num-threads 1"
    };
    for (size_t i = 0; i < 2; i++) {
        char arguments[4096];
        snprintf(arguments, sizeof arguments, spellings[i], shard);
        assert_int_equal(ddl_stream(STANDARD_OUTPUT, "eval %s %s", folder, arguments), 0);
        char *clock = strstr(printed, "seconds");
        assert_non_null(clock);
        *clock = '\0';
        if (first)
            assert_string_equal(first, printed);
        else
            first = strdup(printed);
    }
    free(first);
}

/* The tokenizer of data, run and model: vocab_size follows it, and another tokenizer is refused. */
static void tokenizers_must_match(void **state)
{
    (void)state;
    static const char model[] =
        "--size micro --hidden-size 16 --block-size 16 --batch 2 --backend ref --steps 2";
    char a[1024], b[1024], data[1024], other[1024], run[1024], text[1024];
    size_t size;
    char *license = read_file(source_path("LICENSE"), &size);
    write_file(scratch_path("license.txt"), license, size);
    free(license);
    snprintf(text, sizeof text, "%s", scratch_path("license.txt"));
    snprintf(a, sizeof a, "%s", scratch_path("tok_a.json"));
    snprintf(b, sizeof b, "%s", scratch_path("tok_b.json"));
    snprintf(data, sizeof data, "%s", scratch_path("data_a"));
    snprintf(other, sizeof other, "%s", scratch_path("data_b"));
    snprintf(run, sizeof run, "%s", scratch_path("tok_run"));
    remove_scratch("tok_run");
    assert_int_equal(ddl("tokenizer train --overwrite --vocab-size 300 --out %s %s", a, text), 0);
    assert_int_equal(ddl("tokenizer train --overwrite --vocab-size 500 --out %s %s", b,
                         source_path("data/text/tinyshakespeare.txt")),
                     0);
    assert_int_equal(
        ddl("data build --overwrite --tokenizer %s --val-fraction 0.2 --out %s %s", a, data, text), 0);
    assert_int_equal(
        ddl("data build --overwrite --tokenizer %s --val-fraction 0.2 --out %s %s", b, other, text), 0);
    /* From the tokenizer, and from the record of the shards. */
    assert_int_equal(ddl("train %s --tokenizer %s --train-data %s --out %s", model, a, data, run), 0);
    assert_printed("vocab_size is 320: the 300 tokens of the tokenizer ");
    assert_int_equal(ddl("train %s --train-data %s --out %s --overwrite", model, other, run), 0);
    assert_printed("vocab_size is 512: the 500 tokens of the tokenizer ");
    assert_int_equal(ddl("train %s --tokenizer %s --train-data %s --out %s --vocab-size 300 --overwrite",
                         model, a, data, run),
                     0);
    assert_int_equal(ddl("train %s --tokenizer %s --train-data %s --out %s --vocab-size 4096 --overwrite",
                         model, a, data, run),
                     0);
    assert_printed("vocab_size is 4096: the tokenizer ");
    assert_int_equal(ddl("train %s --tokenizer %s --train-data %s --out %s --vocab-size 256 --overwrite",
                         model, a, data, run),
                     1);
    assert_printed("vocab_size is 256: expected at least the 300 tokens of the tokenizer ");
    assert_int_equal(ddl("train %s --tokenizer %s --train-data %s --out %s --overwrite", model, b, data, run),
                     1);
    assert_printed("data_a/train_000000.bin: built with another tokenizer: expected ");
    assert_int_equal(
        ddl("train %s --train-data %s --val-data %s --out %s --overwrite", model, data, other, run), 1);
    assert_printed("data_b/val_000000.bin: built with another tokenizer: expected ");
    /* A resumed run keeps its vocab_size and its tokenizer. */
    assert_int_equal(ddl("train %s --tokenizer %s --train-data %s --out %s --vocab-size 640 --overwrite",
                         model, a, data, run),
                     0);
    assert_int_equal(
        ddl("train %s --tokenizer %s --train-data %s --out %s --steps 3 --resume", model, a, data, run), 0);
    assert_null(strstr(printed, "has changed since"));
    /* Data that has changed is noted. */
    assert_int_equal(
        ddl("data build --overwrite --tokenizer %s --val-fraction 0.3 --out %s %s", a, data, text), 0);
    assert_int_equal(
        ddl("train %s --tokenizer %s --train-data %s --out %s --steps 4 --resume", model, a, data, run), 0);
    assert_printed("train_data has changed since ");
    assert_printed("val_data has changed since ");
    assert_int_equal(
        ddl("train %s --tokenizer %s --train-data %s --out %s --steps 5 --resume", model, a, data, run), 0);
    assert_null(strstr(printed, "has changed since"));
    assert_int_equal(
        ddl("train %s/recipe.yaml --tokenizer %s --train-data %s --val-data none --steps 6 --resume", run, b,
            other),
        1);
    assert_printed("the run has another tokenizer: expected ");
    /* Evaluation. */
    assert_int_equal(ddl("eval %s --val-data %s --backend ref", run, data), 0);
    assert_int_equal(ddl("eval %s --val-data %s --backend ref", run, other), 1);
    assert_printed("data_b/val_000000.bin: built with another tokenizer: expected ");
}

/* --dtype: a run in bfloat16, and its model read in every form; the losses are near each other. */
static void dtypes(void **state)
{
    (void)state;
    static const char *const names[] = { "f32", "bf16", "int8" };
    char run[2048], shard[2048];
    double loss[3];
    remove_scratch("bf16");
    snprintf(run, sizeof run, "%s", scratch_path("bf16"));
    snprintf(shard, sizeof shard, "%s", scratch_path("s.bin"));
    write_random_shard(shard, 1, 260, 3000);
    /* a rate so high that the model leaves the uniform one: its loss then shows how weights are rounded */
    assert_int_equal(ddl("train %s --dtype bf16 --lr 0.1 --model ddl-tc --train-data %s --val-data %s "
                         "--tokenizer %s --out %s "
                         "--quiet",
                         tiny_flags, shard, shard, tiny_folder("tok", "baseline"), run),
                     0);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(ddl("eval %s --shard %s --dtype %s --json", run, shard, names[i]), 0);
        json_t *root = printed_json();
        const json_t *model = json_array_get(json_object_get(root, "models"), 0);
        loss[i] = json_number_value(json_object_get(model, "loss"));
        json_decref(root);
        assert_true(fabs(loss[i] - loss[0]) < 0.01 * loss[0]);
        assert_int_equal(ddl("generate %s --prompt free --max-tokens 4 --n 3 --dtype %s", run, names[i]), 0);
    }
    assert_true(loss[1] != loss[0] && loss[2] != loss[0]);
    assert_int_equal(ddl("eval %s --shard %s --dtype f16", run, shard), 2);
    assert_printed("f32");
    assert_int_equal(ddl("eval %s --shard %s --dtype tf32 --backend cpu", run, shard), 1);
    assert_printed("dtype tf32: backend cpu does not have it: use f32 or bf16, or backend cuda");
    assert_int_equal(ddl("train %s --dtype tf32 --model ddl-tc --train-data %s --out %s --overwrite",
                         tiny_flags, shard, run),
                     1);
    assert_printed("dtype tf32: backend ref does not have it: use f32 or bf16, or backend cuda");
    assert_int_equal(ddl("train %s --dtype int8 --model ddl-tc --train-data %s --out %s --overwrite",
                         tiny_flags, shard, run),
                     2);
}

static void a_signal_leaves_a_checkpoint(void **state)
{
    (void)state;
    /* Twice at once is once; and so is the SIGUSR1 of a job script that gets the SIGTERM too. */
    static const char *const signals[][2] = {
        { "INT", "INT" }, { "TERM", "TERM" }, { "USR1", "USR1" }, { "TERM", "USR1" }, { "USR1", "TERM" }
    };
    char run[2048], shard[2048], command[8192];
    snprintf(run, sizeof run, "%s", scratch_path("stopped"));
    snprintf(shard, sizeof shard, "%s", scratch_path("s.bin"));
    write_random_shard(shard, 1, 260, 3000);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        snprintf(
            command, sizeof command,
            "'%s' train %s --steps 100000000 --train-data %s --out %s --quiet --checkpoint-every 0 2>&1 & "
            "pid=$!; tries=0; while [ \"$(cat %s/metrics.jsonl 2>/dev/null | wc -l)\" -lt 3 ] && [ $tries "
            "-lt 6000 ]; do sleep 0.1; "
            "tries=$((tries + 1)); done; kill -%s $pid; kill -%s $pid; wait $pid",
            ddl_program(), tiny_flags, shard, run, run, signals[i][0], signals[i][1]);
        /* On a busy machine the second may come too late to be ignored: that of another attempt will not. */
        int status = -1;
        for (int attempt = 0; status != 3 && attempt < 100; attempt++) {
            remove_scratch("stopped");
            status = run_command(command, printed, sizeof printed);
            assert_true(status == 3 || status > 128);
        }
        assert_int_equal(status, 3);
        assert_printed("stopped after step");
        assert_printed("--resume continues");
        /* The checkpoint is a model, and the run goes on from it. */
        snprintf(command, sizeof command, "'%s' info %s/checkpoint-*", ddl_program(), run);
        assert_int_equal(run_command(command, printed, sizeof printed), 0);
        assert_printed("baseline");
        assert_int_equal(ddl("train %s --steps 1 --train-data %s --out %s --resume", tiny_flags, shard, run),
                         2);
        assert_printed("warmup is 2, more than steps 1");
        assert_int_equal(
            ddl("train %s --steps 2 --train-data %s --out %s --resume --quiet", tiny_flags, shard, run), 2);
        assert_printed("of 2 steps already");
    }
}

/* A rate that is far too high: the error message has the tensor, ddl verify replays the dump on both
 * backends, and the checkpoint of the state before is a model. */
static void where_numbers_end(void **state)
{
    (void)state;
    char run[2048], shard[2048];
    unsigned long long step = 0;
    remove_scratch("ended");
    snprintf(run, sizeof run, "%s", scratch_path("ended"));
    snprintf(shard, sizeof shard, "%s", scratch_path("s.bin"));
    write_random_shard(shard, 1, 260, 3000);
    assert_int_equal(
        ddl("train %s --steps 20 --warmup 0 --lr 1000 --weight-decay 10 --train-data %s --out %s --quiet",
            tiny_flags, shard, run),
        1);
    const char *at = strstr(printed, "step ");
    assert_true(at && sscanf(at, "step %llu: the ", &step) == 1 && step > 1);
    assert_printed("is not finite: first in ");
    assert_printed("'ddl verify' replays it; the newest checkpoint is ");
    assert_int_equal(ddl("info %s/checkpoint-%llu", run, step - 1), 0);
    assert_int_equal(ddl("verify %s/trouble-%llu --backend ref", run, step), 0);
    assert_printed("1 passed, 0 failed, 0 skipped");
    assert_printed("; as in the run");
    assert_int_equal(ddl("train %s --steps 20 --train-data %s --out %s --skip 1", tiny_flags, shard, run), 2);
    assert_printed("skip: only a resumed run skips data");
    assert_int_equal(
        ddl("train %s --steps 20 --train-data %s --out %s --overwrite --spike-z 0.1 --spike-window 2 "
            "--spike-max-skip 2",
            tiny_flags, shard, run),
        0);
    assert_printed("deviations above the mean");
    assert_int_equal(ddl("info %s/trouble-%llu", run, step), 1); /* --overwrite takes dumps too */
}

/* Another program empties the shard that is being trained on. */
static void a_file_cut_short_is_explained(void **state)
{
    (void)state;
    char run[2048], shard[2048], command[16384];
    snprintf(run, sizeof run, "%s", scratch_path("cut"));
    snprintf(shard, sizeof shard, "%s", scratch_path("cut.bin"));
    remove_scratch("cut");
    write_random_shard(shard, 1, 260, 3000);
    snprintf(
        command, sizeof command,
        "timeout -s KILL 600 '%s' train %s --steps 100000000 --train-data %s --out %s --quiet 2>&1 & "
        "tries=0; while [ \"$(cat %s/metrics.jsonl 2>/dev/null | wc -l)\" -lt 3 ] && [ $tries -lt 6000 ]; "
        "do sleep 0.1; tries=$((tries + 1)); done; : >%s; wait $!",
        ddl_program(), tiny_flags, shard, run, run, shard);
    assert_int_equal(run_command(command, printed, sizeof printed), 1);
    assert_printed("ddl: a file became shorter while it was being read, or its device failed");
}

/* Here it is this test that holds the folder. */
static void a_folder_in_use_is_refused(void **state)
{
    (void)state;
    char run[2048], shard[2048], who[64];
    struct ddl_lock lock;
    struct ddl_error err;
    remove_scratch("used");
    snprintf(run, sizeof run, "%s", scratch_path("used"));
    snprintf(shard, sizeof shard, "%s", scratch_path("s.bin"));
    snprintf(who, sizeof who, "used: in use by process %ld on ", (long)getpid());
    write_random_shard(shard, 1, 260, 3000);
    assert_ok(ddl_file_make_dir(run, &err), err);
    assert_ok(ddl_lock_take(&lock, run, &err), err);
    assert_int_equal(ddl("train %s --train-data %s --out %s --quiet", tiny_flags, shard, run), 1);
    assert_printed(who);
    assert_printed("; wait for it, stop it, or choose another folder\n");
    ddl_lock_release(&lock);
    assert_int_equal(rmdir(run), 0); /* nothing was written */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_listed),
        cmocka_unit_test(options_are_named_alike),
        cmocka_unit_test(heads_have_a_width),
        cmocka_unit_test(a_step_without_targets),
        cmocka_unit_test(computed_values_follow_the_steps),
        cmocka_unit_test(truncated_weights_are_reported),
        cmocka_unit_test(mistakes),
        cmocka_unit_test(json_is_alone),
        cmocka_unit_test(json_is_alone),
        cmocka_unit_test(help),
        cmocka_unit_test(every_recipe_with_every_model),
        cmocka_unit_test(parameter_counts_of_the_paper),
        cmocka_unit_test(matched_baselines),
        cmocka_unit_test(from_shards_to_text),
        cmocka_unit_test(held_out_shards),
        cmocka_unit_test(defaults_fit_a_short_run),
        cmocka_unit_test(nanogpt_files),
        cmocka_unit_test(tokenizers_must_match),
        cmocka_unit_test(dtypes),
        cmocka_unit_test(a_signal_leaves_a_checkpoint),
        cmocka_unit_test(where_numbers_end),
        cmocka_unit_test(a_file_cut_short_is_explained),
        cmocka_unit_test(a_folder_in_use_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
