/* The plan of a sweep: names, counts and configurations that can be checked by hand; mistakes in the file;
 * what runs of different models share. */
#include "support/runs.h"

#include "base/mem.h"
#include "ddl/data.h"
#include "ddl/sweep.h"
#include "train/config/recipe_writer.h"

#include <math.h>

static const char base[] =
    "base: {size: micro, vocab_size: 300, hidden_size: 16, seq: 16, steps: 20, warmup: 2, lr: 1e-3}\n";

/* Opens a sweep file of this text, behind `base` and an out. */
static ddl_status open_text(struct ddl_sweep *sweep, const char *text, struct ddl_error *err)
{
    char path[1024];
    size_t size = strlen(base) + strlen(text) + 2048;
    char *whole = malloc(size);
    assert_non_null(whole);
    snprintf(path, sizeof path, "%s", scratch_path("sweep.yaml"));
    snprintf(whole, size, "%sout: %s\n%s", base, scratch_path("out"), text);
    write_file(path, whole, strlen(whole));
    free(whole);
    return ddl_sweep_open(sweep, path, err);
}

static void open_ok(struct ddl_sweep *sweep, const char *text)
{
    struct ddl_error err;
    assert_ok(open_text(sweep, text, &err), err);
}

static void assert_names(const struct ddl_sweep *sweep, const char *const *names, size_t n)
{
    assert_int_equal(sweep->n_runs, n);
    for (size_t i = 0; i < n; i++)
        assert_string_equal(sweep->runs[i].name, names[i]);
}

static void models_and_seeds(void **state)
{
    (void)state;
    static const char *const names[] = { "baseline_seed=0", "wide_seed=0", "baseline_seed=3", "wide_seed=3" };
    struct ddl_sweep sweep;
    open_ok(&sweep,
            "models:\n  - baseline\n  - name: wide\n    model: ddl-1\n    head_dim: 8\nseeds: [0, 3]\n");
    assert_names(&sweep, names, 4);
    assert_int_equal(sweep.n_settings, 2);
    const struct ddl_sweep_run *run = &sweep.runs[3];
    assert_int_equal(run->config->seed, 3);
    assert_int_equal(run->config->config.head_dim, 8);
    assert_int_equal(run->config->steps, 20);
    assert_string_equal(run->config->model, "ddl-1");
    assert_string_equal(run->config->out, run->folder);
    assert_true(run->state == DDL_SWEEP_WAITING && !run->is_candidate);
    ddl_sweep_close(&sweep);
}

/* 2 x 2 values, of which an entry replaces one axis, and one entry has other seeds. */
static void count_note(void *user, const char *message)
{
    size_t *n = user;
    if (strstr(message, ": head_dim is 8, not "))
        ++*n;
    else
        *n += 100;
}

/* A width of heads that was computed is reported once for all runs that have it. */
static void the_width_of_heads_is_noted(void **state)
{
    (void)state;
    struct ddl_sweep sweep;
    size_t n = 0;
    open_ok(&sweep, "set: {num_attention_heads: 2}\n"
                    "models: [baseline, ddl-1]\nseeds: [0, 1]\n");
    assert_int_equal(sweep.n_runs, 4);
    ddl_sweep_note(&sweep, count_note, &n);
    assert_int_equal(n, 1);
    ddl_sweep_close(&sweep);
    n = 0;
    open_ok(&sweep, "set: {num_attention_heads: 2, head_dim: 4}\n"
                    "models: [baseline, ddl-1]\nseeds: [0, 1]\n");
    ddl_sweep_note(&sweep, count_note, &n);
    assert_int_equal(n, 0);
    ddl_sweep_close(&sweep);
}

static void grids(void **state)
{
    (void)state;
    static const char *const names[] = {
        "a_lr=1e-3_clip=1_seed=0",
        "a_lr=1e-3_clip=2_seed=0",
        "a_lr=2e-3_clip=1_seed=0",
        "a_lr=2e-3_clip=2_seed=0",
        "b_learning_rate=5e-3_clip=1_seed=7",
        "b_learning_rate=5e-3_clip=2_seed=7",
    };
    struct ddl_sweep sweep;
    open_ok(&sweep, "models:\n  - {name: a}\n  - name: b\n    grid: {learning_rate: 5e-3}\n    seeds: 7\n"
                    "grid:\n  lr: [1e-3, 2e-3]\n  clip: [1, 2]\nseeds: [0]\n");
    assert_names(&sweep, names, 6);
    assert_true(sweep.runs[5].config->lr == 5e-3 && sweep.runs[5].config->clip == 2);
    assert_true(sweep.runs[2].config->lr == 2e-3 && sweep.runs[2].config->clip == 1);
    assert_int_equal(sweep.runs[5].config->seed, 7);
    ddl_sweep_close(&sweep);
}

static void without_models_or_seeds(void **state)
{
    (void)state;
    static const char *const names[] = { "run_sample_prompt=a-b-c", "run_sample_prompt=d" };
    struct ddl_sweep sweep;
    open_ok(&sweep, "grid: {sample_prompt: [a/b c, d]}\nset: {seed: 5}\n");
    assert_names(&sweep, names, 2);
    assert_int_equal(sweep.runs[0].config->seed, 5);
    assert_string_equal(sweep.runs[0].config->sample_prompt, "a/b c");
    ddl_sweep_close(&sweep);
    open_ok(&sweep, "");
    assert_int_equal(sweep.n_runs, 1);
    assert_string_equal(sweep.runs[0].name, "run");
    ddl_sweep_close(&sweep);
}

/* Candidates come first; an entry may have its own values, or set the key itself. */
static void candidates(void **state)
{
    (void)state;
    static const char *const names[] = { "choose/a_lr=1e-3", "choose/a_lr=2e-3", "choose/b_lr=4e-3",
                                         "a_seed=0",         "b_seed=0",         "c_seed=0",
                                         "a_seed=1",         "b_seed=1",         "c_seed=1" };
    struct ddl_sweep sweep;
    struct ddl_error err;
    open_ok(&sweep,
            "models:\n  - name: a\n  - {name: b, choose: [4e-3]}\n  - {name: c, lr: 9e-3}\n"
            "seeds: [0, 1]\nchoose: {key: lr, values: [1e-3, 2e-3], steps: 6, seed: 9, set: {warmup: 1}}\n");
    assert_names(&sweep, names, 9);
    const struct ddl_sweep_run *candidate = &sweep.runs[1];
    assert_true(candidate->is_candidate && candidate->config->lr == 2e-3);
    assert_int_equal(candidate->config->steps, 6);
    assert_int_equal(candidate->config->warmup, 1);
    assert_int_equal(candidate->config->seed, 9);
    assert_int_equal(sweep.runs[3].config->steps, 20);
    assert_true(sweep.runs[5].config->lr == 9e-3);
    assert_string_equal(sweep.settings[0].key, "lr");
    assert_int_equal(sweep.settings[2].n_values, 0);
    assert_int_equal(sweep.settings[1].n_values, 1);
    assert_ok(ddl_sweep_read(&sweep, false, &err), err);
    assert_int_equal(ddl_sweep_count(&sweep, DDL_SWEEP_WAITING), 9);
    assert_false(sweep.settings[0].is_chosen);
    ddl_sweep_close(&sweep);
}

/* Several keys are chosen together; an entry may have own values of one, or set it. */
static void candidates_of_two_keys(void **state)
{
    (void)state;
    static const char *const names[] = { "choose/a_lr=1e-3_clip=1",
                                         "choose/a_lr=1e-3_clip=2",
                                         "choose/a_lr=2e-3_clip=1",
                                         "choose/a_lr=2e-3_clip=2",
                                         "choose/b_learning_rate=3e-3_clip=1",
                                         "choose/b_learning_rate=3e-3_clip=2",
                                         "choose/c_clip=1",
                                         "choose/c_clip=2",
                                         "a",
                                         "b",
                                         "c",
                                         "d" };
    struct ddl_sweep sweep;
    struct ddl_error err;
    open_ok(&sweep, "models:\n  - name: a\n  - {name: b, choose: {learning_rate: [3e-3]}}\n"
                    "  - {name: c, lr: 9e-3}\n  - {name: d, lr: 9e-3, clip: 4}\n"
                    "choose: {grid: {lr: [1e-3, 2e-3], clip: [1, 2]}, steps: 6}\n");
    assert_names(&sweep, names, 12);
    assert_true(sweep.runs[3].config->lr == 2e-3 && sweep.runs[3].config->clip == 2);
    assert_true(sweep.runs[5].config->lr == 3e-3 && sweep.runs[5].config->clip == 2);
    assert_true(sweep.runs[7].config->lr == 9e-3 && sweep.runs[7].config->clip == 2);
    assert_true(sweep.runs[11].config->clip == 4 && sweep.settings[3].n_values == 0);
    assert_string_equal(sweep.settings[0].key, "lr/clip");
    assert_string_equal(sweep.settings[0].values[2].text, "2e-3/1");
    assert_string_equal(sweep.settings[2].key, "clip");
    assert_ok(ddl_sweep_read(&sweep, false, &err), err);
    assert_int_equal(ddl_sweep_count(&sweep, DDL_SWEEP_WAITING), 12);
    ddl_sweep_close(&sweep);
}

/* Lines are counted from `base` and `out` on: the first of the text is line 3. */
static void mistakes(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } cases[] = {
        { "modles: [a]\n", "sweep.yaml:3: unknown key 'modles', did you mean 'models'?" },
        { "models: 3\n", "sweep.yaml:3: models: expected a list, found a value" },
        { "models: []\n", "sweep.yaml:3: models: expected 1 to 1024 entries, found an empty list" },
        { "models:\n  - {lr: 1e-3}\n", "sweep.yaml:4: models: expected a name, found none" },
        { "models:\n  - {name: a/b}\n", "sweep.yaml:4: name: expected up to 80 letters" },
        { "models:\n  - baseline\n  - baseline\n",
          "sweep.yaml:5: models: duplicate name 'baseline': first defined at line 4" },
        { "models:\n  - dl-cc\n", "sweep.yaml:4: dl-cc: unknown model 'dl-cc', did you mean 'ddl-cc'?" },
        { "models:\n  - name: a\n    sped: 1\n", "sweep.yaml:5: unknown key 'sped', did you mean 'seed'?" },
        { "models:\n  - name: a\n    lr: fast\n", "sweep.yaml:5: lr: 'fast' is not a number" },
        { "models:\n  - name: a\n    lr: [1, 2]\n", "sweep.yaml:5: lr: expected a value, found a list" },
        { "models:\n  - name: a\n    out: x\n", "sweep.yaml:5: out: expected no run folder" },
        { "models:\n  - name: a\n    seed: 1\n", "sweep.yaml:5: seed: expected seeds, a list" },
        { "models:\n  - name: a\n    warmup: 100\n", "sweep.yaml:4: a: warmup is 100, more than steps 20" },
        { "models:\n  - name: a\n    lr: 1\n    lr: 2\n",
          "sweep.yaml:6: duplicate key 'lr': first defined at line 5" },
        { "models:\n  - {name: a, lr: 1}\ngrid:\n  lr: [1, 2]\n",
          "sweep.yaml:4: lr: the key is an axis of the grid (line 6)" },
        { "grid:\n  lr: [1, 2, 1.0]\n", "sweep.yaml:4: lr: duplicate value 1.0: first at line 4" },
        { "grid:\n  lr: []\n", "sweep.yaml:4: lr: expected at least one value, found an empty list" },
        { "grid:\n  lr: [1]\n  learning_rate: [2]\n",
          "sweep.yaml:5: grid: 'learning_rate' is the same key as 'lr' at line 4" },
        { "grid:\n  seed: [1]\n",
          "sweep.yaml:4: grid: expected another key than seed: set seeds of the sweep" },
        { "grid:\n  sample_prompt: [a b, a/b]\n", "two runs have the name 'run_sample_prompt=a-b'" },
        { "seeds: [0, 1, 0]\n", "sweep.yaml:3: seed: duplicate value 0" },
        { "seeds: [0, many]\n", "sweep.yaml:3: seed: 'many'" },
        { "choose: {values: [1]}\n", "choose: expected key and values, or grid, found no key" },
        { "choose: {key: lr}\n", "choose: expected key and values, or grid, found no values" },
        { "choose: {steps: 4}\n", "choose: expected key and values, or grid, found no key" },
        { "choose: {grid: {}}\n", "choose: expected key and values, or grid, found no key" },
        { "choose: {key: lr, grid: {clip: [1]}}\n", "choose: expected key and values, or grid, found both" },
        { "choose: {grid: {clip: [1], steps: [2]}}\n",
          "choose: key: expected another key than seed, out and steps, found steps" },
        { "choose: {grid: {lr: [1], learning_rate: [2]}}\n",
          "grid: 'learning_rate' is the same key as 'lr'" },
        { "choose: {grid: {lr: [1], clip: [1, 2, 1.0]}}\n", "clip: duplicate value 1.0" },
        { "choose: {grid: {lr: [1], clip: [1]}, set: {clip: 2}}\n",
          "choose: set: expected another key than the chosen one and seed, found clip" },
        { "choose: {grid: {lr: [1], dtype: [f32, bf16]}, extend: 2}\n",
          "choose: extend: expected values that are positive numbers, found f32" },
        { "choose: {grid: {lr: [1], clip: [1]}}\ngrid: {clip: [1]}\n",
          "clip: expected a grid or a choice of this key, found both" },
        { "choose: {grid: {lr: [1], clip: [1]}}\nmodels:\n  - {name: a, choose: [1]}\n",
          "sweep.yaml:5: choose: several keys are chosen: expected a mapping of keys to values, found a "
          "list" },
        { "choose: {key: lr, values: [1]}\nmodels:\n  - {name: a, choose: {clip: [1]}}\n",
          "sweep.yaml:5: choose: expected a key of the section choose, found clip" },
        { "choose: {key: lr, values: [1], loss: best}\n", "loss: expected val or train, found best" },
        { "choose: {key: steps, values: [1]}\n",
          "choose: key: expected another key than seed, out and steps" },
        { "choose: {key: lr, values: [1, 2], extend: 17}\n",
          "extend: expected a number from 0 to 16, found 17" },
        { "choose: {key: lr, values: [1, 2], extend: -1}\n",
          "extend: expected a number from 0 to 16, found -1" },
        { "choose: {key: lr, values: [1], extend: 2}\n",
          "choose: extend: expected at least two values to continue, found one" },
        { "choose: {key: dtype, values: [f32, bf16], extend: 2}\n",
          "choose: extend: expected values that are positive numbers, found f32" },
        { "choose: {key: lr, values: [1], stepps: 3}\n",
          "choose: unknown key 'stepps', did you mean 'steps'?" },
        { "choose: {key: lr, values: [1, 2], steps: 1}\n", "warmup is 2, more than steps 1" },
        { "choose: {key: lr, values: [1]}\ngrid: {lr: [1]}\n",
          "lr: expected a grid or a choice of this key, found both" },
        { "choose: {key: lr, values: [1], set: {lr: 2}}\n",
          "choose: set: expected another key than the chosen one and seed, found lr" },
        { "choose: {key: lr, values: [1], set: {seed: 2}}\n",
          "choose: set: expected another key than the chosen one and seed, found seed" },
        { "choose: {key: lr, values: [1], set: {weight_decay: 2}}\ngrid: {weight_decay: [0, 1]}\n",
          "weight_decay: the key is an axis of the grid (line 4): expected another in choose" },
        { "models:\n  - {name: a, choose: [1]}\n", "sweep.yaml:4: choose: expected a section choose" },
        { "models: [a\n", "not valid YAML" },
        { "---\nout: x\n", "expected one document, found a second" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ddl_sweep sweep;
        struct ddl_error err;
        if (open_text(&sweep, cases[i].text, &err) != DDL_E_USAGE)
            fail_msg("%s: not refused", cases[i].text);
        assert_says(&err, cases[i].says);
    }
}

/* Files that are refused at once: lists of many values, and nested lists, for which libyaml takes time in
 * proportion to the square of their number. */
static void large_files(void **state)
{
    (void)state;
    enum { SIZE = 1000000 };
    char *text = malloc(SIZE + 64), *at;
    struct ddl_sweep sweep;
    struct ddl_error err;
    assert_non_null(text);
    at = text + sprintf(text, "seeds: [0");
    for (int i = 1; i < 10000; i++)
        at += sprintf(at, ", %d", i);
    strcpy(at, "]\n");
    assert_int_equal(open_text(&sweep, text, &err), DDL_E_USAGE);
    assert_says(&err, "seed: expected at most 4096 values, found 10000");
    static const char *const units[] = { "[", "{", "[\n", "- ", "? ", "{a: " };
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        at = text + sprintf(text, "grid:\n  ");
        while (at < text + SIZE)
            at += sprintf(at, "%s", units[i]);
        assert_int_equal(open_text(&sweep, text, &err), DDL_E_USAGE);
        assert_says(&err, "lists or mappings nested more than 32 deep");
    }
    free(text);
}

/* Paths: a base file, and a sweep file whose paths are relative to its folder. */
static void paths(void **state)
{
    (void)state;
    char folder[1024], text[2048], path[2048];
    struct ddl_sweep sweep;
    struct ddl_error err;
    snprintf(folder, sizeof folder, "%s", scratch_path("paths"));
    assert_ok(ddl_file_make_dir(folder, &err), err);
    static const char recipe[] = "model: ddl-1\nsize: micro\nvocab_size: 300\nsteps: 9\nout: elsewhere\n"
                                 "train_data: here\n";
    snprintf(path, sizeof path, "%s/base.yaml", folder);
    write_file(path, recipe, sizeof recipe - 1);
    snprintf(text, sizeof text, "relative_to: recipe\nbase: base.yaml\nout: runs\nset: {val_data: there}\n");
    snprintf(path, sizeof path, "%s/s.yaml", folder);
    write_file(path, text, strlen(text));
    assert_ok(ddl_sweep_open(&sweep, path, &err), err);
    snprintf(text, sizeof text, "%s/runs", folder);
    assert_string_equal(sweep.out, text);
    assert_int_equal(sweep.runs[0].config->steps, 9);
    assert_string_equal(sweep.runs[0].config->train_data, "here");
    assert_non_null(strstr(sweep.runs[0].config->val_data, "paths/there"));
    ddl_sweep_close(&sweep);
    assert_int_equal(ddl_sweep_open(&sweep, "/nowhere/s.yaml", &err), DDL_E_IO);
    assert_says(&err, "/nowhere/s.yaml: cannot open");
}

/* Every parameter of the same name has the same initial value in all models of a seed, and another one for
 * another seed. */
static void shared_parameters_are_equal(void **state)
{
    (void)state;
    static const char *const others[] = { "ddl-1", "ddl-cc-ec", "ddl-tc-ec", "scale", "gated", "highway" };
    struct ddl_error err;
    ddl_backend *backend;
    assert_ok(ddl_backend_create(&backend, "ref", 0, &err), err);
    ddl_model *baseline = tiny_model("baseline", TINY_VOCAB, 3, backend);
    ddl_model *reseeded = tiny_model("baseline", TINY_VOCAB, 4, backend);
    size_t n = ddl_model_n_params(baseline);
    for (size_t m = 0; m < sizeof others / sizeof *others; m++) {
        ddl_model *other = tiny_model(others[m], TINY_VOCAB, 3, backend);
        size_t shared = 0, different = 0;
        for (size_t i = 0; i < n; i++) {
            const struct ddl_param *p = ddl_model_param(baseline, i);
            float *a = random_floats(p->count, 1), *b = random_floats(p->count, 2),
                  *c = random_floats(p->count, 3);
            ddl_model_read_param(baseline, i, a);
            ddl_model_read_param(reseeded, i, c);
            for (size_t k = 0; k < ddl_model_n_params(other); k++) {
                const struct ddl_param *q = ddl_model_param(other, k);
                if (strcmp(p->name, q->name) != 0 || p->count != q->count)
                    continue;
                ddl_model_read_param(other, k, b);
                assert_memory_equal(a, b, p->count * sizeof *a);
                shared++;
            }
            different += memcmp(a, c, p->count * sizeof *a) != 0;
            ddl_mem_free(a);
            ddl_mem_free(b);
            ddl_mem_free(c);
        }
        assert_int_equal(shared, n); /* the other model has all parameters of the baseline */
        assert_true(different > 10);
        ddl_model_free(other);
    }
    ddl_model_free(baseline);
    ddl_model_free(reseeded);
    ddl_backend_free(backend);
}

/* The batches of two models of a sweep: the loader's fields are those of make_step in
 * src/train/run/trainer_open.c. */
static void batches_are_equal(void **state)
{
    (void)state;
    enum { B = 4, T = 16, STEPS = 8 };
    int32_t tokens[2][B * T], targets[2][B * T];
    struct ddl_sweep sweep;
    struct ddl_error err;
    ddl_shards *shards;
    write_random_shard(scratch_path("batches.bin"), 1, 260, 3000);
    assert_ok(ddl_shards_open(&shards, scratch_path("batches.bin"), &err), err);
    open_ok(&sweep, "models: [baseline, ddl-cc-ec]\nseeds: [0, 1]\n");
    struct ddl_loader loaders[4];
    for (size_t i = 0; i < 4; i++) {
        const struct ddl_train_config *t = sweep.runs[i].config;
        loaders[i] = (struct ddl_loader){ shards, t->order, t->seed, t->seq, 0 };
    }
    for (int step = 0; step < STEPS; step++) {
        ddl_loader_next(&loaders[0], B, tokens[0], targets[0]);
        ddl_loader_next(&loaders[1], B, tokens[1], targets[1]);
        assert_memory_equal(tokens[0], tokens[1], sizeof tokens[0]);
        assert_memory_equal(targets[0], targets[1], sizeof targets[0]);
    }
    ddl_loader_next(&loaders[2], B, tokens[1], targets[1]);
    assert_memory_not_equal(tokens[0], tokens[1], sizeof tokens[0]);
    ddl_sweep_close(&sweep);
    ddl_shards_close(shards);
}

/* Parameters and FLOPs of the plan are those of the configurations; disk by hand: checkpoints of 12 bytes a
 * parameter, a model of 4. */
static void forecast(void **state)
{
    (void)state;
    struct ddl_sweep sweep;
    struct ddl_error err;
    struct ddl_sweep_forecast f[2];
    const struct ddl_sweep_options options = { .jobs = 1 };
    open_ok(&sweep,
            "models: [baseline, ddl-cc-ec]\nset: {checkpoint_every: 5, keep_last: 1, keep_best: 0}\n");
    assert_ok(ddl_sweep_predict(&sweep, &options, NULL, f, &err), err);
    for (size_t i = 0; i < 2; i++) {
        struct ddl_train_plan plan;
        assert_ok(ddl_train_plan(sweep.runs[i].config, &plan, &err), err);
        assert_int_equal(f[i].plan.params_total, plan.params_total);
        assert_true(f[i].plan.flops_per_token == plan.flops_per_token);
        assert_true(f[i].disk == (double)plan.params_total * (4 + 12 * 2)); /* one kept, one being written */
        assert_true(isnan(f[i].seconds));                                   /* there is no data */
    }
    assert_true(f[1].plan.params_total > f[0].plan.params_total);
    ddl_sweep_close(&sweep);
}

/* ---- lists of values that are extended ---- */

/* The folder of a run that has ended with this loss. */
static void write_result(const struct ddl_sweep_run *run, double loss)
{
    char path[2048], line[256];
    struct ddl_error err;
    assert_ok(ddl_file_make_dir(run->folder, &err), err);
    snprintf(path, sizeof path, "%s/recipe.yaml", run->folder);
    assert_ok(ddl_train_save_recipe(run->config, path, &err), err);
    snprintf(path, sizeof path, "%s/metrics.jsonl", run->folder);
    snprintf(line, sizeof line,
             "{\"step\":20,\"loss\":%g,\"val_loss\":%g,\"tokens\":10,\"flops\":10,\"seconds\":1,"
             "\"train_seconds\":1,\"tokens_per_s\":10,\"peak_memory\":1}\n",
             loss, loss);
    write_file(path, line, strlen(line));
}

/* Reads the sweep until a value is chosen; after each reading, the candidates that wait end with losses that
 * rise with the distance of the rate's logarithm from that of `best`. */
static void choose_rate(struct ddl_sweep *sweep, double best)
{
    struct ddl_error err;
    for (int turn = 0; turn < 20 && !sweep->settings[0].is_chosen; turn++) {
        for (size_t i = 0; i < sweep->n_runs; i++) {
            const struct ddl_sweep_run *run = &sweep->runs[i];
            if (run->is_candidate && run->state == DDL_SWEEP_WAITING)
                write_result(run, 3 + fabs(log(run->config->lr / best)));
        }
        assert_ok(ddl_sweep_read(sweep, false, &err), err);
    }
    assert_true(sweep->settings[0].is_chosen);
}

/* As choose_rate, with a distance of clip, too. */
static void choose_both(struct ddl_sweep *sweep, double lr, double clip)
{
    struct ddl_error err;
    for (int turn = 0; turn < 20 && !sweep->settings[0].is_chosen; turn++) {
        for (size_t i = 0; i < sweep->n_runs; i++) {
            const struct ddl_sweep_run *run = &sweep->runs[i];
            if (run->is_candidate && run->state == DDL_SWEEP_WAITING)
                write_result(run, 3 + fabs(log(run->config->lr / lr)) + fabs(log(run->config->clip / clip)));
        }
        assert_ok(ddl_sweep_read(sweep, false, &err), err);
    }
    assert_true(sweep->settings[0].is_chosen);
}

/* Opens a sweep with 2 values of lr and 1 seed, in an empty folder, and lets its candidates end. */
static void choose_from(struct ddl_sweep *sweep, const char *values, int extend, double best)
{
    char text[256];
    remove_scratch("out");
    snprintf(text, sizeof text, "choose: {key: lr, values: [%s], extend: %d}\n", values, extend);
    open_ok(sweep, text);
    assert_int_equal(sweep->settings[0].max_added, extend);
    choose_rate(sweep, best);
}

static void a_winning_edge_is_extended(void **state)
{
    (void)state;
    static const char *const names[] = {
        "choose/run_lr=1e-3",  "choose/run_lr=2e-3",  "run",
        "choose/run_lr=0.004", "choose/run_lr=0.008", "choose/run_lr=0.016"
    };
    struct ddl_sweep sweep;
    struct ddl_error err;
    choose_from(&sweep, "1e-3, 2e-3", 5, 7e-3);
    const struct ddl_sweep_setting *s = &sweep.settings[0];
    assert_names(&sweep, names, 6);
    assert_int_equal(s->n_added, 3);
    assert_string_equal(s->values[s->chosen].text, "0.008");
    assert_false(s->at_edge);
    assert_true(sweep.runs[2].config->lr == 0.008);
    assert_true(sweep.runs[5].is_candidate && sweep.runs[5].config->lr == 0.016);
    ddl_sweep_close(&sweep);
    /* The same runs follow from the folders alone, in one reading. */
    open_ok(&sweep, "choose: {key: lr, values: [1e-3, 2e-3], extend: 5}\n");
    assert_int_equal(sweep.n_runs, 3);
    assert_ok(ddl_sweep_read(&sweep, false, &err), err);
    assert_names(&sweep, names, 6);
    assert_string_equal(sweep.settings[0].values[sweep.settings[0].chosen].text, "0.008");
    assert_int_equal(ddl_sweep_count(&sweep, DDL_SWEEP_WAITING), 1);
    ddl_sweep_close(&sweep);
}

static void extensions_end(void **state)
{
    (void)state;
    struct ddl_sweep sweep;
    struct ddl_error err;
    /* Downwards by the same factor, until the limit. */
    choose_from(&sweep, "1e-3, 3e-3, 2e-3", 2, 1e-6);
    assert_string_equal(sweep.settings[0].values[3].text, "0.0005");
    assert_string_equal(sweep.settings[0].values[4].text, "0.00025");
    assert_int_equal(sweep.settings[0].chosen, 4);
    assert_true(sweep.settings[0].at_edge);
    ddl_sweep_close(&sweep);
    /* Not without `extend`, and not where the lowest loss is inside. */
    choose_from(&sweep, "1e-3, 2e-3", 0, 1);
    assert_true(sweep.n_runs == 3 && sweep.settings[0].at_edge);
    ddl_sweep_close(&sweep);
    choose_from(&sweep, "1e-3, 2e-3, 4e-3", 4, 2e-3);
    assert_true(sweep.n_runs == 4 && !sweep.settings[0].at_edge);
    ddl_sweep_close(&sweep);
    /* A neighbor that diverged ends the list, too. */
    choose_from(&sweep, "1e-3, 2e-3", 1, 1);
    ddl_sweep_close(&sweep);
    open_ok(&sweep, "choose: {key: lr, values: [1e-3, 2e-3], extend: 5}\n");
    assert_ok(ddl_file_make_dir(scratch_path("out/choose/run_lr=0.008"), &err), err);
    assert_ok(ddl_sweep_read(&sweep, false, &err), err);
    assert_int_equal(sweep.settings[0].n_added, 2);
    write_result(&sweep.runs[4], 9);
    char metrics[] = "{\"step\":4,\"loss\":9}\n", diverged[] = "{\"step\": 4, \"message\": \"too large\"}\n";
    write_file(scratch_path("out/choose/run_lr=0.008/metrics.jsonl"), metrics, strlen(metrics));
    write_file(scratch_path("out/choose/run_lr=0.008/diverged.json"), diverged, strlen(diverged));
    assert_ok(ddl_sweep_read(&sweep, false, &err), err);
    assert_true(sweep.settings[0].is_chosen && !sweep.settings[0].at_edge);
    assert_string_equal(sweep.settings[0].values[sweep.settings[0].chosen].text, "0.004");
    assert_int_equal(sweep.settings[0].n_added, 2);
    ddl_sweep_close(&sweep);
}

/* The list of each key is extended, with the values of the others that won. */
static void edges_of_two_keys(void **state)
{
    (void)state;
    static const char *const names[] = { "choose/run_lr=1e-3_clip=1",
                                         "choose/run_lr=1e-3_clip=2",
                                         "choose/run_lr=2e-3_clip=1",
                                         "choose/run_lr=2e-3_clip=2",
                                         "run",
                                         "choose/run_lr=0.004_clip=1",
                                         "choose/run_lr=0.008_clip=1",
                                         "choose/run_lr=0.004_clip=0.5",
                                         "choose/run_lr=0.004_clip=0.25" };
    static const char text[] = "choose: {grid: {lr: [1e-3, 2e-3], clip: [1, 2]}, extend: 5}\n";
    struct ddl_sweep sweep;
    struct ddl_error err;
    remove_scratch("out");
    open_ok(&sweep, text);
    choose_both(&sweep, 4e-3, 0.5);
    assert_names(&sweep, names, 9);
    const struct ddl_sweep_setting *s = &sweep.settings[0];
    assert_string_equal(s->values[s->chosen].text, "0.004/0.5");
    assert_true(s->n_added == 4 && !s->at_edge);
    assert_true(sweep.runs[4].config->lr == 0.004 && sweep.runs[4].config->clip == 0.5);
    write_result(&sweep.runs[4], 2);
    ddl_sweep_close(&sweep);
    open_ok(&sweep, text);
    assert_ok(ddl_sweep_read(&sweep, false, &err), err);
    assert_names(&sweep, names, 9);
    assert_int_equal(ddl_sweep_count(&sweep, DDL_SWEEP_FINISHED), 9);
    ddl_sweep_close(&sweep);
    /* Without `extend` the value that the run has is none of the lists. */
    open_ok(&sweep, "choose: {grid: {lr: [1e-3, 2e-3], clip: [1, 2]}}\n");
    assert_ok(ddl_sweep_read(&sweep, false, &err), err);
    assert_true(sweep.settings[0].is_chosen && sweep.settings[0].at_edge);
    assert_true(sweep.runs[4].state == DDL_SWEEP_STALE);
    assert_string_equal(sweep.runs[4].message, "trained with lr/clip 0.004/0.5, but 2e-3/1 is chosen");
    ddl_sweep_close(&sweep);
    /* A key of texts, or with one value, has no edge. */
    remove_scratch("out");
    open_ok(&sweep, "choose: {grid: {dtype: [f32, bf16], lr: [1e-3, 2e-3], clip: [1]}, extend: 1}\n");
    choose_both(&sweep, 1, 1);
    assert_int_equal(sweep.n_runs, 6);
    assert_string_equal(sweep.runs[5].name, "choose/run_dtype=f32_lr=0.004_clip=1");
    ddl_sweep_close(&sweep);
}

/* The loss of a run whose last step counted no target is that of an earlier one; its step is the last. */
static void a_skipped_step_has_no_loss(void **state)
{
    (void)state;
    struct ddl_sweep sweep;
    struct ddl_error err;
    remove_scratch("out");
    open_ok(&sweep, "seeds: [0]\n");
    write_result(&sweep.runs[0], 3);
    char path[2048], metrics[] = "{\"step\":0,\"loss\":0,\"val_loss\":5,\"seconds\":1}\n"
                                 "{\"step\":10,\"loss\":4,\"seconds\":2}\n"
                                 "{\"step\":20,\"loss\":0,\"skipped\":true,\"seconds\":3}\n";
    snprintf(path, sizeof path, "%s/metrics.jsonl", sweep.runs[0].folder);
    write_file(path, metrics, strlen(metrics));
    assert_ok(ddl_sweep_read(&sweep, false, &err), err);
    assert_int_equal(sweep.runs[0].step, 20);
    assert_true(sweep.runs[0].loss == 4 && sweep.runs[0].seconds == 3 && sweep.runs[0].val_loss == 5);
    strchr(metrics, '\n')[1] = '\0'; /* step 0 only */
    write_file(path, metrics, strlen(metrics));
    assert_ok(ddl_sweep_read(&sweep, false, &err), err);
    assert_true(sweep.runs[0].step == 0 && isnan(sweep.runs[0].loss));
    ddl_sweep_close(&sweep);
}

/* A value that the key does not allow is not tried. */
static void extensions_are_in_the_range(void **state)
{
    (void)state;
    struct ddl_sweep sweep;
    struct ddl_error err;
    remove_scratch("out");
    open_ok(&sweep, "choose: {key: lr_min_ratio, values: [0.25, 0.5], extend: 5}\n");
    assert_ok(ddl_sweep_read(&sweep, false, &err), err);
    write_result(&sweep.runs[0], 3);
    write_result(&sweep.runs[1], 2);
    assert_ok(ddl_sweep_read(&sweep, false, &err), err);
    assert_int_equal(sweep.n_runs, 4);
    assert_string_equal(sweep.runs[3].name, "choose/run_lr_min_ratio=1");
    write_result(&sweep.runs[3], 1);
    assert_ok(ddl_sweep_read(&sweep, false, &err), err);
    assert_int_equal(sweep.n_runs, 4);
    assert_true(sweep.settings[0].is_chosen && sweep.settings[0].at_edge);
    assert_int_equal(sweep.settings[0].n_values, 3);
    ddl_sweep_close(&sweep);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_and_seeds),
        cmocka_unit_test(the_width_of_heads_is_noted),
        cmocka_unit_test(grids),
        cmocka_unit_test(without_models_or_seeds),
        cmocka_unit_test(candidates),
        cmocka_unit_test(candidates_of_two_keys),
        cmocka_unit_test(mistakes),
        cmocka_unit_test(large_files),
        cmocka_unit_test(paths),
        cmocka_unit_test(shared_parameters_are_equal),
        cmocka_unit_test(batches_are_equal),
        cmocka_unit_test(forecast),
        cmocka_unit_test(a_winning_edge_is_extended),
        cmocka_unit_test(extensions_end),
        cmocka_unit_test(edges_of_two_keys),
        cmocka_unit_test(a_skipped_step_has_no_loss),
        cmocka_unit_test(extensions_are_in_the_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
