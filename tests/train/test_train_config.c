/* train/config/train_config.c and train/config/recipe.c: names, keys and flags combined, and an error message
 * for each mistake. */
#include "support/runs.h"

#include "comm/comm.h"
#include "ddl/data.h"
#include "ddl/train.h"
#include "train/config/recipe.h"
#include "train/config/recipe_writer.h"
#include "train/config/train_config.h"

#include <math.h>
#include <sys/stat.h>

enum { MAX_ARGS = 16 };

/* Configures from recipe text (NULL: none) and words split by spaces. */
static ddl_status configure(struct ddl_train_config *t, const char *recipe, const char *words,
                            struct ddl_error *err)
{
    static char copy[1024];
    char *argv[MAX_ARGS + 1] = { copy };
    int argc = 0, n;
    snprintf(copy, sizeof copy, "train %s", words);
    for (char *word = strtok(copy, " "); word; word = strtok(NULL, " "))
        argv[argc++] = word;
    if (recipe)
        write_file(scratch_path("r.yaml"), recipe, strlen(recipe));
    ddl_status status =
        ddl_train_configure(t, recipe ? scratch_path("r.yaml") : NULL, argc, argv, NULL, NULL, &n, err);
    if (!status)
        assert_int_equal(n, 0);
    return status;
}

static void defaults(void **state)
{
    (void)state;
    struct ddl_train_config t;
    struct ddl_error err;
    assert_ok(configure(&t, NULL, "", &err), err);
    assert_int_equal(t.batch * t.accumulate, 8); /* what --batch says; the recipes of the paper say 480 */
    assert_int_equal(ddl_train_resolved(&t).seq, 1024);
    assert_true(t.steps == 100000 && t.lr == 1e-3 && t.lr_min_ratio == 0.1);
    assert_true(t.schedule == DDL_SCHEDULE_COSINE && t.decay_ratio == 0.2);
    assert_true(t.warmup == DDL_OPTION_AUTO && t.val_every == DDL_OPTION_AUTO);
    assert_true(t.beta1 == 0.9f && t.beta2 == 0.95f && t.eps == 1e-8f && t.weight_decay == 0.1f &&
                t.clip == 1);
    for (int g = 0; g < DDL_GROUPS; g++)
        assert_true(t.weight_decay_group[g] == -1);
    assert_int_equal(t.config.d_model, 768);
    assert_string_equal(ddl_config_preset_name(&t.config), "baseline");
}

/* The rules of ddl-recipe(5). */
static void automatic_values(void **state)
{
    (void)state;
    static const struct {
        const char *words;
        uint64_t warmup, log, val, tokens, checkpoint;
    } cases[] = {
        { "--steps 1", 0, 1, 1, 4096, 1 },
        { "--steps 50", 1, 1, 5, 10240, 5 },
        { "--steps 50 --batch 4 --accumulate 16", 1, 1, 5, 81920, 5 },
        { "--steps 3000 --seq 512", 60, 3, 300, 307200, 300 },
        { "--steps 100000", 2000, 10, 1000, 1048576, 1000 },
        { "--steps 1000000000", 2000, 10, 1000, 1048576, 1000 },
        { "--steps 3000 --val-every 40", 60, 3, 40, 81920, 320 },
        { "--steps 3000 --val-every 0", 60, 3, 0, 1048576, 300 },
        { "--steps 3000 --val-every 5000", 60, 3, 5000, 1048576, 5000 },
        { "--steps 50 --warmup 7 --log-every 9 --val-tokens 5 --checkpoint-every 0", 7, 9, 5, 5, 0 },
        { "--steps 50 --warmup 7 --warmup auto", 1, 1, 5, 10240, 5 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ddl_train_config t;
        struct ddl_error err;
        assert_ok(configure(&t, NULL, cases[i].words, &err), err);
        t = ddl_train_resolved(&t);
        if (t.warmup != cases[i].warmup || t.log_every != cases[i].log || t.val_every != cases[i].val ||
            t.val_tokens != cases[i].tokens || t.checkpoint_every != cases[i].checkpoint)
            fail_msg("%s: warmup %d, log_every %d, val_every %d, val_tokens %d, checkpoint_every %d",
                     cases[i].words, (int)t.warmup, (int)t.log_every, (int)t.val_every, (int)t.val_tokens,
                     (int)t.checkpoint_every);
        assert_int_equal(t.sample_every, 0);
    }
}

/* The recipes of the repository give the same run whatever the rules are. */
static void recipes_do_not_depend_on_them(void **state)
{
    (void)state;
    static const char *const recipes[] = { "paper-small", "paper-medium", "cpu", "demo" };
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++) {
        struct ddl_train_config t;
        struct ddl_error err;
        char path[64], program[] = "train", *argv[] = { program, NULL };
        int n;
        snprintf(path, sizeof path, "recipes/%s.yaml", recipes[i]);
        assert_ok(ddl_train_configure(&t, source_path(path), 1, argv, NULL, NULL, &n, &err), err);
        for (const struct ddl_option *row = ddl_train_options(); row->name; row++) {
            char value[8192];
            ddl_option_format(row, &t, value, sizeof value);
            if (row->automatic && strcmp(value, "auto") == 0)
                fail_msg("%s: %s is not set", path, row->name);
        }
        assert_int_equal(t.schedule, DDL_SCHEDULE_COSINE);
    }
}

static void aliases(void **state)
{
    (void)state;
    struct ddl_train_config t;
    struct ddl_error err;
    assert_ok(configure(&t, "learning_rate: 2e-3\nmax-steps: 70\ndevice: ref\n",
                        "--batch-size 3 --grad-clip 0.5 --max_iters=60 --lr 3e-3", &err),
              err);
    assert_true(t.batch == 3 && t.clip == 0.5f && t.steps == 60 && t.lr == 3e-3);
    assert_string_equal(t.backend, "ref");
    /* Two names in one place may not disagree; an option overrides the recipe under any name. */
    assert_ok(configure(&t, "lr: 1e-3\nlearning_rate: 0.001\n", "", &err), err);
    assert_int_equal(configure(&t, "lr: 1e-3\nbatch: 2\nlearning_rate: 2e-3\n", "", &err), DDL_E_USAGE);
    assert_says(&err,
                "r.yaml:3: 'learning_rate' is the same key as 'lr' at line 1: expected 1e-3, found 2e-3");
    assert_int_equal(configure(&t, NULL, "--batch 2 --batch-size 4", &err), DDL_E_USAGE);
    assert_says(&err, "--batch-size 4: the same option as --batch 2: expected one value");
    assert_ok(configure(&t, "batch: 2\n", "--batch-size 4", &err), err);
    assert_int_equal(t.batch, 4);
    assert_int_equal(configure(&t, "learning_rat: 2\n", "", &err), DDL_E_USAGE);
    assert_says(&err, "r.yaml:1: unknown key 'learning_rat', did you mean 'lr'?");
    assert_int_equal(configure(&t, "batch_size: 0\n", "", &err), DDL_E_USAGE);
    assert_says(&err, "r.yaml:1: batch: 0 is out of range");
}

/* Names and aliases of run and model. */
static void no_name_is_used_twice(void **state)
{
    (void)state;
    const struct ddl_option *const tables[] = { ddl_train_options(), ddl_config_options() };
    for (size_t a = 0; a < 2; a++) {
        for (const struct ddl_option *row = tables[a]; row->name; row++) {
            char name[128];
            for (size_t i = 0; ddl_option_name(row, i, name, sizeof name); i++) {
                assert_ptr_equal(ddl_option_find(tables[a], name), row);
                assert_null(ddl_option_find(tables[!a], name));
            }
        }
    }
}

static void block_size_is_the_length_of_sequences(void **state)
{
    (void)state;
    static const struct {
        const char *recipe, *words;
        size_t block, seq;
    } cases[] = {
        { NULL, "--block-size 256", 256, 256 },
        { "size: tiny\nseq: 512\n", "--block-size 256", 256, 256 },
        { "size: tiny\nseq: 512\n", "--block-size 2048", 2048, 2048 },
        { "size: tiny\nseq: 256\n", "--block-size 512 --seq 128", 512, 128 },
        { "size: tiny\nseq: 256\n", "--block-size 512 --seq-len 128", 512, 128 },
        { "block_size: 2048\nseq: 256\n", "", 2048, 256 },
        { "block_size: 2048\nseq: 256\n", "--seq 512", 2048, 512 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ddl_train_config t;
        struct ddl_error err;
        assert_ok(configure(&t, cases[i].recipe, cases[i].words, &err), err);
        assert_int_equal(t.config.block_size, cases[i].block);
        assert_int_equal(ddl_train_resolved(&t).seq, cases[i].seq);
    }
}

static void keys_beat_names_and_flags_beat_the_recipe(void **state)
{
    (void)state;
    struct ddl_train_config t;
    struct ddl_error err;
    static const char recipe[] = "# a comment\n"
                                 "hidden_size: 96\n"
                                 "model: ddl-cc-ec\n"
                                 "size: micro      # after a key that it sets too\n"
                                 "lr: 3e-3\n"
                                 "weight_decay_norm: 0\n"
                                 "sample_prompt: \"a: \\\"b\\\"\\n\"\n"
                                 "order: sequential\n";
    assert_ok(
        configure(&t, recipe, "--lr 1e-2 --model ddl-tc --steps=9 --warmup 2 --num-hidden-layers 2", &err),
        err);
    assert_true(t.config.d_model == 96 && t.config.vocab_size == 4096 && t.config.n_layers == 2);
    assert_string_equal(ddl_config_preset_name(&t.config), "ddl-tc");
    assert_true(t.lr == 1e-2 && t.steps == 9 && t.weight_decay_group[DDL_GROUP_NORM] == 0);
    assert_int_equal(t.order, DDL_ORDER_SEQUENTIAL);
    assert_string_equal(t.sample_prompt, "a: \"b\"\n");
    /* What is written reads back as the same. */
    assert_ok(ddl_train_save_recipe(&t, scratch_path("saved.yaml"), &err), err);
    char *text = read_file(scratch_path("saved.yaml"), NULL);
    struct ddl_train_config again;
    assert_ok(configure(&again, text, "", &err), err);
    assert_memory_equal(&t.config, &again.config, sizeof t.config);
    assert_ok(ddl_train_save_recipe(&again, scratch_path("saved2.yaml"), &err), err);
    assert_same_file(scratch_path("saved.yaml"), scratch_path("saved2.yaml"));
    free(text);
}

/* What YAML allows only as escapes, and what it cannot say at all. */
static void any_text_is_written(void **state)
{
    (void)state;
    static const char text[] =
        "\x01\t\n\"\\\x7f\xc2\x80\xc2\x85\xc2\x9e\xc2\xa0\xc3\xa9\xe2\x80\xa8\xe2\x80\xa9\xef\xbb\xbf"
        "\xef\xbf\xbe\xef\xbf\xbf\xf0\x9f\x90\xb6 ";
    struct ddl_train_config t = ddl_train_defaults(), again;
    struct ddl_error err;
    memcpy(t.sample_prompt, text, sizeof text);
    strcpy(t.out, "caf\xe9");
    assert_ok(ddl_train_save_recipe(&t, scratch_path("any.yaml"), &err), err);
    char *saved = read_file(scratch_path("any.yaml"), NULL);
    assert_ok(configure(&again, saved, "", &err), err);
    assert_string_equal(again.sample_prompt, text);
    assert_string_equal(again.out, "");
    assert_non_null(strstr(saved, "# out is not valid UTF-8: left out\n"));
    free(saved);
}

static void rules_by_layer(void **state)
{
    (void)state;
    struct ddl_train_config t;
    struct ddl_error err;
    assert_ok(
        configure(&t, "model: ddl-1\nsize: micro\nddl_residual_by_layer: add,delta,add,add\n", "", &err),
        err);
    assert_true(t.config.by_layer && ddl_config_residual(&t.config, 1) == DDL_RESIDUAL_DELTA);
    assert_int_equal(configure(&t, "size: micro\nddl_residual_by_layer: add,delta\n", "", &err), DDL_E_USAGE);
    assert_says(&err, "2 rules, num_hidden_layers is 4");
}

/* micro: d 128, four layers, m 341, V 4096. A unit of width is 1536 parameters; ddl-1 has 8 * 2 * 129 more
 * than the baseline: 1.34 units. In FLOPs of the forward pass a unit is 3072; ddl-1 costs 8 * 12 * 128
 * more: 4. */
static void matched_widths(void **state)
{
    (void)state;
    static const char parameters[] = "size: micro\nmatch_parameters: ddl-1\n",
                      flops[] = "size: micro\nseq: 32\nmatch_flops: ddl-1\n";
    struct ddl_train_config t, again;
    struct ddl_match match;
    struct ddl_error err;
    assert_ok(configure(&t, parameters, "", &err), err);
    assert_int_equal(t.config.mlp_size, 342);
    assert_ok(configure(&t, flops, "", &err), err);
    assert_int_equal(t.config.mlp_size, 345);
    assert_ok(ddl_train_match(&t, &match, &err), err); /* again: the same */
    assert_true(match.mlp_size == 345 && match.cost == match.target);
    /* The recipe of the run has the key and the width. */
    assert_ok(ddl_train_save_recipe(&t, scratch_path("matched.yaml"), &err), err);
    char *text = read_file(scratch_path("matched.yaml"), NULL);
    assert_non_null(strstr(text, "\nmatch_flops: \"ddl-1\"\n"));
    assert_non_null(strstr(text, "\nmlp_size: 345\n"));
    assert_ok(configure(&again, text, "", &err), err);
    assert_memory_equal(&t.config, &again.config, sizeof t.config);
    assert_int_equal(configure(&again, text, "--hidden-size 64", &err), DDL_E_USAGE);
    assert_says(&err, "mlp_size: expected 17");
    assert_ok(configure(&t, text, "--match-flops= --mlp-size 300", &err), err);
    assert_int_equal(t.config.mlp_size, 300);
    free(text);
    /* The seq of the recipe, and what may not be combined. */
    assert_ok(configure(&t, flops, "--model ddl-1", &err), err);
    assert_int_equal(t.config.mlp_size, 0);
    assert_int_equal(configure(&t, flops, "--match-parameters ddl-cc", &err), DDL_E_USAGE);
    assert_says(&err, "match_parameters, match_flops: expected one of them, found ddl-cc and ddl-1");
    assert_int_equal(configure(&t, parameters, "--match-parameters ddl-3", &err), DDL_E_USAGE);
    assert_says(&err, "match_parameters: unknown model 'ddl-3', did you mean 'ddl-1'?");
    char init[1200];
    snprintf(init, sizeof init, "--init-from %.1000s", source_path("tests/golden/add"));
    assert_int_equal(configure(&t, "match_flops: ddl-1\n", init, &err), DDL_E_USAGE);
    assert_says(&err, "match_flops: expected a new model, found init_from ");
}

static void widths_of_heads(void **state)
{
    (void)state;
    static const struct {
        const char *recipe, *words;
        size_t head_dim;
        const char *says; /* the note, or "" */
    } cases[] = {
        { "", "--num-attention-heads 4 --hidden-size 128", 32,
          "head_dim is 32, not 128: hidden_size 128 / num_attention_heads 4" },
        { "", "--num-attention-heads=12", 64,
          "head_dim is 64, not 128: hidden_size 768 / num_attention_heads 12" },
        { "size: micro\n", "--hidden-size 256", 64,
          "head_dim is 64, not 32: hidden_size 256 / num_attention_heads 4" },
        { "size: micro\nhidden_size: 20\n", "", 5,
          "head_dim is 5, not 32: hidden_size 20 / num_attention_heads 4; it is odd, so one dimension of "
          "each head is not rotated" },
        { "hidden-size: 256\n", "--size micro --num_attention_heads 8", 32, "" },
        { "", "--hidden-size 256", 128,
          "head_dim remains 128: hidden_size 256 / num_attention_heads 6 is not a possible width; set "
          "num_attention_heads, or head_dim to keep it" },
        { "head_dim: 128\n", "--hidden-size 256 --num-attention-heads 7", 128, NULL },
        { "hidden_size: 256\n", "--head-dim 128 --num-attention-heads 7", 128, NULL },
        { "size: micro\n", "", 32, NULL },
        /* of a run of an earlier version */
        { "size: \"small\"\ninit_from: \"\"\nhidden_size: 128\nnum_attention_heads: 5\n", "", 128, NULL },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ddl_train_config t, again;
        struct ddl_error err;
        char note[300];
        assert_ok(configure(&t, cases[i].recipe, cases[i].words, &err), err);
        assert_int_equal(t.config.head_dim, cases[i].head_dim);
        assert_int_equal(t.head_dim_automatic, cases[i].says != NULL);
        if (cases[i].says) {
            bool has = ddl_config_head_dim_note(&t.config, t.named_head_dim, note, sizeof note);
            assert_string_equal(note, cases[i].says);
            assert_int_equal(has, *note != '\0');
        }
        /* The stored recipe has the same model. */
        assert_ok(ddl_train_save_recipe(&t, scratch_path("heads.yaml"), &err), err);
        char *text = read_file(scratch_path("heads.yaml"), NULL);
        assert_ok(configure(&again, text, "", &err), err);
        assert_memory_equal(&t.config, &again.config, sizeof t.config);
        free(text);
    }
    static const char *const bad[] = { "--hidden-size 130 --num-attention-heads 4",
                                       "--hidden-size 4 --num-attention-heads 8",
                                       "--hidden-size 8192 --num-attention-heads 1" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct ddl_train_config t;
        struct ddl_error err;
        assert_int_equal(configure(&t, NULL, bad[i], &err), DDL_E_USAGE);
        assert_says(&err, "head_dim: expected hidden_size / num_attention_heads to be a whole number, 1 to "
                          "4096, found ");
    }
}

/* The matched width is that of the model with the computed head_dim. */
static void widths_are_matched_after_the_heads(void **state)
{
    (void)state;
    struct ddl_train_config t, wanted;
    struct ddl_error err;
    static const char keys[] = "size: micro\nnum_attention_heads: 2\nmatch_flops: ddl-1\nseq: 32\n";
    assert_ok(configure(&t, keys, "", &err), err);
    assert_ok(configure(&wanted, keys, "--head-dim 64", &err), err);
    assert_int_equal(t.config.head_dim, 64);
    assert_memory_equal(&t.config, &wanted.config, sizeof t.config);
}

/* A run's folder stands for its recipe, and gpt2 for a tokenizer wherever the recipe is. */
static void a_run_stands_for_its_recipe(void **state)
{
    (void)state;
    struct ddl_error err;
    struct ddl_train_config t;
    static const char recipe[] = "relative_to: recipe\ntokenizer: gpt2\ntrain_data: ../shards\nlr: 0.1\n";
    char folder[1024], program[] = "train";
    char *argv[] = { program, NULL };
    int n;
    snprintf(folder, sizeof folder, "%s", scratch_path("earlier"));
    remove_scratch("earlier");
    assert_int_equal(mkdir(folder, 0777), 0);
    assert_int_equal(ddl_train_configure(&t, folder, 1, argv, NULL, NULL, &n, &err), DDL_E_USAGE);
    assert_non_null(
        strstr(err.text, "expected a recipe or the folder of a run, found a folder without recipe.yaml"));
    write_file(scratch_path("earlier/recipe.yaml"), recipe, sizeof recipe - 1);
    assert_ok(ddl_train_configure(&t, folder, 1, argv, NULL, NULL, &n, &err), err);
    assert_true(t.lr == 0.1);
    assert_string_equal(t.tokenizer, "gpt2");
    assert_non_null(strstr(t.train_data, "/shards"));
}

static void the_recipe_may_be_an_argument(void **state)
{
    (void)state;
    struct ddl_error err;
    struct ddl_train_config t;
    char program[] = "train", flag[] = "--lr", value[] = "0.5", path[4096], other[] = "second";
    char *argv[] = { program, flag, value, path, other, NULL };
    int n;
    snprintf(path, sizeof path, "%s", scratch_path("arg.yaml"));
    write_file(path, "lr: 0.1\nclip: 2\n", 16);
    assert_ok(ddl_train_configure(&t, NULL, 5, argv, NULL, NULL, &n, &err), err);
    assert_true(t.lr == 0.5 && t.clip == 2 && n == 2);
    assert_string_equal(argv[2], "second");
}

static void mistakes_have_a_line(void **state)
{
    (void)state;
    static const struct {
        const char *recipe, *says;
    } cases[] = {
        { "min_lr: 1e-5\n", "r.yaml:1: unknown key 'min_lr', did you mean 'lr_min_ratio'? It is relative to "
                            "the peak: min_lr / lr" },
        { "frobnicate: 7\n", "r.yaml:1: unknown key 'frobnicate'; 'ddl help train' lists the keys" },
        { "lr: 1e-3\nwarmpu: 7\n", "r.yaml:2: unknown key 'warmpu', did you mean 'warmup'?" },
        { "lr: 1e-3\nbatch: 2\nlr: 2\n", "r.yaml:3: duplicate key 'lr': first defined at line 1" },
        { "lr_min_ratio: 0.1\nlr-min-ratio: 0.1\n",
          "r.yaml:2: duplicate key 'lr-min-ratio': first defined at line 1" },
        { "lr: fast\n", "r.yaml:1: lr: 'fast'" },
        { "batch: 0\n", "r.yaml:1: batch: 0 is out of range" },
        { "order: shuffled\n", "r.yaml:1: order: 'shuffled' is none of random, sequential" },
        { "steps: 10\nlr:\n", "r.yaml:2: key 'lr' has no value" },
        { "lr: ~\n", "r.yaml:1: key 'lr' has no value" },
        { "lr: [1, 2]\n", "r.yaml:1: the value of 'lr' is nested" },
        { "a: {b: {c: {d: 1}}}\n", "r.yaml:1: the value of 'a' is nested" },
        { "[lr]: 1\n", "r.yaml:1: a key is nested" },
        { "lr: &x 1\nclip: *x\n", "r.yaml:2: the value of 'clip' is an alias" },
        { "- lr\n- 1\n", "r.yaml:1: not a list of 'key: value'" },
        { "just text\n", "r.yaml:1: not a list of 'key: value'" },
        { "lr: 1\n---\nlr: 2\n", "r.yaml:2: expected one document, found a second" },
        { "lr: \"1\n", "not valid YAML" },
        { "\x01\x02\xff", "not valid YAML" },
        { "model: dl-cc\n", "unknown model 'dl-cc'" },
        { "size: hugh\n", "unknown size 'hugh'" },
        { "init_from: x\nmodel: ddl-1\n", "init_from determines the whole model: leave out model 'ddl-1'" },
        { "warmup: 11\nsteps: 10\n", "warmup is 11, more than steps 10" },
        { "seq: 2000\n", "seq is 2000, the model's context (block_size) 1024" },
        { "batch: 1048576\naccumulate: 1048576\n", "are too many" },
    };
    struct ddl_train_config t;
    struct ddl_error err;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (configure(&t, cases[i].recipe, "", &err) != DDL_E_USAGE)
            fail_msg("accepted: %s", cases[i].recipe);
        assert_says(&err, cases[i].says);
    }
    assert_ok(configure(&t, "", "", &err), err); /* an empty recipe is the paper's */
    assert_ok(configure(&t, "# nothing\n---\n", "", &err), err);
}

/* The rules by layer of the model in init_from, in the recipe that a run stores. */
static void rules_of_init_from(void **state)
{
    (void)state;
    struct ddl_error err;
    struct ddl_train_config t, again;
    char words[1200], mixed[1000];
    snprintf(mixed, sizeof mixed, "%s", source_path("tests/golden/ddl-1-mixed"));
    snprintf(words, sizeof words, "--init-from %s", mixed);
    assert_ok(configure(&t, NULL, words, &err), err);
    assert_true(t.config.by_layer);
    assert_string_equal(ddl_train_resolved(&t).ddl_residual_by_layer, "add,delta,add");
    const struct ddl_train_config stored = ddl_train_resolved(&t);
    assert_ok(ddl_train_save_recipe(&stored, scratch_path("stored.yaml"), &err), err);
    char *text = read_file(scratch_path("stored.yaml"), NULL);
    assert_non_null(strstr(text, "\nddl_residual_by_layer: \"add,delta,add\"\n"));
    assert_ok(configure(&again, text, "", &err), err);
    free(text);
    assert_memory_equal(&again.config, &t.config, sizeof t.config);
    /* As earlier versions stored it. */
    char recipe[1500];
    snprintf(recipe, sizeof recipe,
             "model: ''\nsize: ''\ninit_from: %s\nddl_residual: delta\nddl_residual_by_layer: ''\n", mixed);
    assert_ok(configure(&again, recipe, "", &err), err);
    assert_memory_equal(&again.config, &t.config, sizeof t.config);
    snprintf(words, sizeof words, "--init-from %s --ddl-residual scale", mixed);
    assert_int_equal(configure(&t, NULL, words, &err), DDL_E_USAGE);
    assert_says(&err, "ddl_residual: each layer has a rule of its own");
    snprintf(recipe, sizeof recipe, "init_from: %s\nddl_residual: add\n", mixed);
    assert_int_equal(configure(&t, recipe, "", &err), DDL_E_USAGE);
    assert_ok(configure(&t, recipe, "--ddl-residual-by-layer add,add,delta", &err), err);
    assert_int_equal(ddl_config_residual(&t.config, 1), DDL_RESIDUAL_ADD);
    snprintf(recipe, sizeof recipe,
             "init_from: %s\nddl_residual: add\nddl_residual_by_layer: add,add,delta\n", mixed);
    assert_ok(configure(&t, recipe, "", &err), err);
    assert_int_equal(configure(&t, recipe, "--ddl-residual scale", &err), DDL_E_USAGE);
    assert_says(&err, "ddl_residual: each layer has a rule of its own");
}

/* As a program in C may set them. */
static void choices_are_held_to_their_names(void **state)
{
    (void)state;
    struct ddl_error err;
    struct ddl_train_config t = ddl_train_defaults();
    t.recompute = DDL_RECOMPUTES;
    assert_int_equal(ddl_train_check(&t, &err), DDL_E_USAGE);
    assert_says(&err, "recompute: 3 is out of range (0 to 2)");
    t = ddl_train_defaults();
    t.order = -1;
    assert_int_equal(ddl_train_check(&t, &err), DDL_E_USAGE);
    assert_says(&err, "order: -1 is out of range (0 to 2)");
    t = ddl_train_defaults();
    t.precision = DDL_PRECISION_INT8;
    assert_int_equal(ddl_train_check(&t, &err), DDL_E_USAGE);
    assert_says(&err, "dtype: 3 is out of range (0 to 2)");
    t = ddl_train_defaults();
    t.config.by_layer = true;
    t.config.residual_by_layer[11] = 200;
    assert_int_equal(ddl_train_check(&t, &err), DDL_E_USAGE);
    assert_says(&err, "rule 200 of layer 11 is out of range");
}

static void sizes_are_bounded(void **state)
{
    (void)state;
    enum { BIG = DDL_RECIPE_BYTES + 10 };
    struct ddl_error err;
    struct ddl_recipe recipe = { 0 };
    const char *path = scratch_path("big.yaml");
    char *text = malloc(BIG);
    assert_non_null(text);
    memset(text, '#', BIG);
    write_file(path, text, BIG);
    assert_int_equal(ddl_recipe_read(&recipe, path, &err), DDL_E_FORMAT);
    assert_says(&err, "at most 1048576 are read");
    size_t n = 0;
    for (int i = 0; i < DDL_RECIPE_KEYS + 1; i++)
        n += (size_t)snprintf(text + n, BIG - n, "k%d: 1\n", i);
    write_file(path, text, n);
    assert_int_equal(ddl_recipe_read(&recipe, path, &err), DDL_E_USAGE);
    assert_says(&err, "big.yaml:1025: more than 1024 keys");
    ddl_recipe_free(&recipe);
    memset(text, 'x', 9000);
    memcpy(text, "lr: ", 4);
    write_file(path, text, 9000);
    assert_int_equal(ddl_recipe_read(&recipe, path, &err), DDL_E_USAGE);
    assert_says(&err, "the value of 'lr' is longer than 8191 bytes");
    ddl_recipe_free(&recipe);
    /* Ten thousand levels. */
    memset(text, '[', 10000);
    write_file(path, text, 10000);
    assert_int_equal(ddl_recipe_read(&recipe, path, &err), DDL_E_USAGE);
    ddl_recipe_free(&recipe);
    assert_int_equal(ddl_recipe_read(&recipe, scratch_path("absent.yaml"), &err), DDL_E_IO);
    assert_says(&err, "absent.yaml: cannot open");
    free(text);
}

static void a_plan_adds_up(void **state)
{
    (void)state;
    struct ddl_train_config t;
    struct ddl_train_plan plan;
    struct ddl_error err;
    assert_ok(configure(&t, NULL, "--model baseline --size small --accumulate 60", &err), err);
    assert_ok(ddl_train_plan(&t, &plan, &err), err);
    assert_int_equal(plan.params_total, 123590400); /* 123.6 M */
    size_t sum = 0;
    for (int g = 0; g < DDL_GROUPS; g++)
        sum += plan.params[g];
    assert_int_equal(sum, plan.params_total);
    assert_true(plan.tokens == 100000.0 * 480 * 1024);
    assert_int_equal(plan.bytes_total, plan.bytes_params + plan.bytes_grads + plan.bytes_moments +
                                           plan.bytes_workspace + plan.bytes_other);
    assert_int_equal(plan.bytes_moments, 8 * plan.params_total);
    assert_int_equal(plan.bytes_workspace,
                     ddl_workspace_bytes(
                         &t.config, DDL_PRECISION_F32,
                         &(struct ddl_workspace_options){ .batch = 8, .tokens = 1024, .train = true }, NULL));
    assert_ok(configure(&t, NULL, "--model baseline --size medium", &err), err);
    assert_ok(ddl_train_plan(&t, &plan, &err), err);
    assert_int_equal(plan.params_total, 353508352); /* 353.5 M */
}

/* The shares of the ranks are the sequences of a step, in order, in micro-batches of at most `batch`. */
static void shares_cover_a_step(void **state)
{
    (void)state;
    for (uint64_t all = 1; all <= 40; all++) {
        for (size_t ranks = 1; ranks <= all; ranks++) {
            struct ddl_train_config t = { .batch = 3, .global_batch = all, .ranks = ranks };
            size_t next = 0, most = 0;
            for (size_t rank = 0; rank < ranks; rank++) {
                struct ddl_share share = ddl_train_share(&t, rank);
                assert_int_equal(share.first, next);
                assert_true(share.n == all / ranks || share.n == all / ranks + 1);
                assert_true(share.batch <= 3 && share.last >= 1 && share.last <= share.batch);
                assert_int_equal((share.micro_batches - 1) * share.batch + share.last, share.n);
                assert_int_equal(share.batch, ddl_train_share(&t, 0).batch);
                assert_true(share.micro_batches <= share.most);
                most = share.micro_batches > most ? share.micro_batches : most;
                next += share.n;
            }
            assert_int_equal(next, all);
            assert_int_equal(most, ddl_train_share(&t, 0).most);
        }
    }
}

static void the_size_of_a_step(void **state)
{
    (void)state;
    static const struct {
        const char *recipe, *flags;
        size_t ranks;
        uint64_t global_batch;
    } cases[] = {
        { "batch: 4\n", "", 1, 4 },
        { "batch: 4\naccumulate: 3\n", "", 2, 24 },
        { "batch: 4\nglobal_batch: 480\n", "", 3, 480 },
        { "batch: 4\nglobal_batch: 480\n", "--batch 16", 3, 480 },
        { "batch: 4\nglobal_batch: 480\n", "--accumulate 2", 3, 24 },
        { "batch: 4\nglobal_batch: 480\n", "--accumulate 2 --global-batch 7", 3, 7 },
        { "batch: 4\naccumulate: 9\nglobal_batch: 480\n", "", 1, 480 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ddl_train_config t;
        struct ddl_error err;
        assert_ok(configure(&t, cases[i].recipe, cases[i].flags, &err), err);
        t.ranks = cases[i].ranks;
        assert_int_equal(ddl_train_resolved(&t).global_batch, cases[i].global_batch);
    }
}

/* Of 4 ranks: a quarter of the moments, and each sends 3/4 of the gradients and of the parameters. */
static void a_plan_of_ranks(void **state)
{
    (void)state;
    struct ddl_train_config t;
    struct ddl_train_plan one, four, half;
    struct ddl_error err;
    assert_ok(configure(&t, NULL, "--model baseline --size small --batch 2 --global-batch 480", &err), err);
    assert_ok(ddl_train_plan(&t, &one, &err), err);
    t.ranks = 4;
    assert_ok(ddl_train_plan(&t, &four, &err), err);
    t.comm_dtype = DDL_COMM_BF16;
    assert_ok(ddl_train_plan(&t, &half, &err), err);
    double params = (double)one.params_total;
    assert_true(one.ranks == 1 && one.bytes_sent == 0 && one.bytes_exchange == 0);
    assert_true(four.ranks == 4 && four.bytes_exchange > 0 && four.tokens == one.tokens);
    assert_true(fabs((double)four.bytes_moments - 2 * params) < 0.01 * params);
    assert_true(fabs(four.bytes_sent - 6 * params) < 0.01 * params);
    assert_true(fabs(half.bytes_sent - 4.5 * params) < 0.01 * params);
    assert_int_equal(four.bytes_total, four.bytes_params + four.bytes_grads + four.bytes_moments +
                                           four.bytes_workspace + four.bytes_exchange + four.bytes_other);
    t.ranks = 481;
    assert_int_equal(ddl_train_plan(&t, &four, &err), DDL_E_USAGE);
    assert_says(&err, "global_batch: expected at least one sequence for each of 481 ranks, found 480");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults),
        cmocka_unit_test(automatic_values),
        cmocka_unit_test(recipes_do_not_depend_on_them),
        cmocka_unit_test(aliases),
        cmocka_unit_test(no_name_is_used_twice),
        cmocka_unit_test(block_size_is_the_length_of_sequences),
        cmocka_unit_test(keys_beat_names_and_flags_beat_the_recipe),
        cmocka_unit_test(any_text_is_written),
        cmocka_unit_test(rules_by_layer),
        cmocka_unit_test(matched_widths),
        cmocka_unit_test(widths_of_heads),
        cmocka_unit_test(widths_are_matched_after_the_heads),
        cmocka_unit_test(a_run_stands_for_its_recipe),
        cmocka_unit_test(the_recipe_may_be_an_argument),
        cmocka_unit_test(mistakes_have_a_line),
        cmocka_unit_test(choices_are_held_to_their_names),
        cmocka_unit_test(rules_of_init_from),
        cmocka_unit_test(sizes_are_bounded),
        cmocka_unit_test(a_plan_adds_up),
        cmocka_unit_test(shares_cover_a_step),
        cmocka_unit_test(the_size_of_a_step),
        cmocka_unit_test(a_plan_of_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
