/* ddl train: runs a recipe. */
#include "cli/cli.h"
#include "ddl/comm.h"
#include "ddl/json.h"
#include "ddl/train.h"
#include "cli/output/escape.h"
#include "cli/output/match_print.h"
#include "cli/train/train_display.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Flags that are not keys of a recipe. */
struct flags {
    bool resume, overwrite, dry_run, json, quiet;
    uint64_t skip;
    size_t ranks;
    double device_memory;
};

#define FLAG(field, ...)                                                                                     \
    {                                                                                                        \
#field, DDL_OPTION_BOOL, offsetof(struct flags, field), 0, 0, 0, NULL, NULL, __VA_ARGS__             \
    }
static const struct ddl_other_name resume_others[] = {
    { "resume_from_checkpoint", "It takes no value: the newest checkpoint in --out is used",
      DDL_OTHER_DIFFERS },
    { "eval_only", "ddl eval evaluates a model", DDL_OTHER_NONE },
    { "config", "the recipe is an argument: ddl train RECIPE.yaml", DDL_OTHER_NONE },
    { "config_file", "the recipe is an argument: ddl train RECIPE.yaml", DDL_OTHER_NONE },
    { "recipe", "the recipe is an argument: ddl train RECIPE.yaml", DDL_OTHER_NONE },
    { 0 },
};
static const struct ddl_option flag_rows[] = {
    FLAG(resume, "resume from the newest checkpoint in --out", .others = resume_others),
    { "skip", DDL_OPTION_U64, offsetof(struct flags, skip), 0, 0, 9007199254740992.0, NULL, "N",
      "with --resume: skip the data of N steps" },
    FLAG(overwrite, "delete an existing run in --out first", "overwrite_output_dir"),
    FLAG(dry_run, "check data and tokenizer; predict memory and time; write nothing"),
    { "ranks", DDL_OPTION_SIZE, offsetof(struct flags, ranks), 0, 0, 1048576, NULL, "N",
      "with --dry-run: plan for N ranks (0: those that were started)" },
    { "device_memory", DDL_OPTION_DOUBLE, offsetof(struct flags, device_memory), 0, 0, 1048576, NULL, "GIB",
      "with --dry-run: plan for a device of --backend that has so much memory, without it" },
    FLAG(json, "print the result as JSON"),
    FLAG(quiet, "print nothing but errors (and the result with --json)"),
    { 0 },
};

/* ---- results ---- */

/* The memory of a plan by purpose, its total last. */
struct memory {
    const char *name;
    size_t bytes;
};
enum { MEMORY_ROWS = 7 };

static void memory_of(const struct ddl_train_plan *p, struct memory out[MEMORY_ROWS])
{
    const struct memory rows[MEMORY_ROWS] = {
        { "parameters", p->bytes_params }, { "gradients", p->bytes_grads },
        { "moments", p->bytes_moments },   { "workspace", p->bytes_workspace },
        { "exchange", p->bytes_exchange }, { "other", p->bytes_other },
        { "total", p->bytes_total }
    };
    memcpy(out, rows, sizeof rows);
}

static void print_preview_json(const struct ddl_train_config *t, const struct ddl_train_preview *preview)
{
    const struct ddl_train_summary *s = &preview->summary;
    const struct ddl_train_plan *p = &s->plan;
    struct memory memory[MEMORY_ROWS];
    struct ddl_json json = { stdout, false };
    memory_of(p, memory);
    ddl_json_open(&json, NULL, '{');
    ddl_json_string(&json, "model", s->model);
    if (s->match.mlp_size)
        print_match_json(&json, &s->match);
    ddl_json_open(&json, "parameters", '{');
    for (int group = 0; group < DDL_GROUPS; group++)
        ddl_json_count(&json, ddl_param_group_name(group), p->params[group]);
    ddl_json_count(&json, "total", p->params_total);
    ddl_json_close(&json, '}');
    ddl_json_string(&json, "backend", s->backend);
    ddl_json_number(&json, "flops_per_token", p->flops_per_token, 9);
    ddl_json_fixed(&json, "tokens_per_step", p->tokens_per_step, 0);
    ddl_json_fixed(&json, "tokens", p->tokens, 0);
    ddl_json_number(&json, "flops", p->flops, 9);
    ddl_json_count(&json, "train_tokens", s->train_tokens);
    ddl_json_count(&json, "val_tokens", s->val_tokens);
    ddl_json_number(&json, "epochs", s->train_tokens ? s->epochs : (double)NAN, 6);
    ddl_json_count(&json, "ranks", p->ranks);
    ddl_json_open(&json, "memory", '{');
    for (size_t i = 0; i < MEMORY_ROWS; i++)
        ddl_json_count(&json, memory[i].name, memory[i].bytes);
    ddl_json_close(&json, '}');
    ddl_json_fixed(&json, "bytes_sent", p->bytes_sent, 0);
    ddl_json_number(&json, "peak_rate", p->peak_rate > 0 ? p->peak_rate : (double)NAN, 6);
    ddl_json_number(&json, "seconds", preview->seconds, 6);
    ddl_json_count(&json, "measured_tokens", preview->measured_tokens);
    ddl_json_count(&json, "measured_layers", preview->measured_layers);
    ddl_json_string(&json, "out", t->out);
    ddl_json_close(&json, '}');
    putchar('\n');
}

static void print_plan(const struct ddl_train_plan *p)
{
    struct memory memory[MEMORY_ROWS];
    memory_of(p, memory);
    printf("parameters\n");
    for (int group = 0; group < DDL_GROUPS; group++)
        printf("  %-12s %15zu\n", ddl_param_group_name(group), p->params[group]);
    printf("  %-12s %15zu\n", "total", p->params_total);
    printf("work\n  %-12s %15.4g forward and backward\n  %-12s %15.0f\n  %-12s %15.0f\n  %-12s %15.4g\n",
           "FLOPs/token", p->flops_per_token, "tokens/step", p->tokens_per_step, "tokens", p->tokens, "FLOPs",
           p->flops);
    printf(p->ranks > 1 ? "memory of each of %zu ranks, MiB\n" : "memory, MiB\n", p->ranks);
    for (size_t i = 0; i < MEMORY_ROWS; i++)
        printf("  %-12s %15.1f\n", memory[i].name, (double)memory[i].bytes / 1048576);
    if (p->ranks > 1)
        printf("sent by a rank, MiB\n  %-12s %15.1f\n", "each step", p->bytes_sent / 1048576);
}

static void print_result_json(const char *out, const struct ddl_train_progress *p)
{
    struct ddl_json json = { stdout, false };
    ddl_json_open(&json, NULL, '{');
    ddl_json_string(&json, "out", out);
    ddl_json_count(&json, "step", p->step);
    ddl_json_number(&json, "loss", train_has_loss(p) ? p->loss : (double)NAN, 9);
    if (p->has_val)
        ddl_json_number(&json, "val_loss", p->val_loss, 9);
    ddl_json_count(&json, "tokens", p->tokens);
    ddl_json_number(&json, "flops", p->flops, 9);
    ddl_json_fixed(&json, "seconds", p->seconds, 6);
    ddl_json_fixed(&json, "train_seconds", p->train_seconds, 6);
    ddl_json_count(&json, "peak_memory", p->peak_memory);
    ddl_json_close(&json, '}');
    putchar('\n');
}

static void print_result(const char *out, const struct ddl_train_progress *p)
{
    printf("%s: %llu steps", printable(out), (unsigned long long)p->step);
    if (train_has_loss(p))
        printf(", loss %.4f", p->loss);
    if (p->has_val)
        printf(", validation loss %.4f", p->val_loss);
    printf(", %llu tokens in %.1f s (training %.1f s)\n", (unsigned long long)p->tokens, p->seconds,
           p->train_seconds);
}

static int train(const struct ddl_train_config *t, const struct flags *flags)
{
    struct ddl_error err = { 0 };
    struct ddl_train_progress last;
    bool quiet = flags->quiet || ddl_comm_rank(t->comm) > 0;
    struct train_display display = train_display_on_stderr(quiet, flags->json ? stderr : stdout);
    const struct ddl_train_callbacks callbacks = train_display_callbacks(&display);
    ddl_status status = ddl_train_run(t, &callbacks, &last, &err);
    progress_line_keep(&display.line);
    if (status)
        return report_agreed(t->comm, &err);
    const char *out = *display.out ? display.out : t->out; /* a finished run does not begin */
    if (flags->json && ddl_comm_rank(t->comm) == 0)
        print_result_json(out, &last);
    else if (!quiet)
        print_result(out, &last);
    return EXIT_OK;
}

/* The plan is printed whether or not data and tokenizer are in order. */
static int dry_run(const struct ddl_train_config *t, const struct flags *flags)
{
    struct ddl_error err = { 0 };
    struct ddl_train_preview preview;
    struct train_display display = train_display_on_stderr(flags->quiet, flags->json ? stderr : stdout);
    const struct ddl_train_callbacks callbacks = train_display_callbacks(&display);
    ddl_status status = ddl_train_dry_run(t, &callbacks, &preview, &err);
    progress_line_clear(&display.line);
    if (preview.summary.plan.params_total && flags->json) {
        print_preview_json(t, &preview);
    } else if (preview.summary.plan.params_total && !flags->quiet) {
        print_header(stdout, terminal_has_color(stdout), &preview.summary);
        print_estimate(stdout, terminal_has_color(stdout), &preview, status);
        print_plan(&preview.summary.plan);
    }
    return status ? report_error(&err) : EXIT_OK;
}

static ddl_status configure(struct ddl_train_config *t, struct flags *flags, int argc, char **argv,
                            struct ddl_error *err)
{
    int n;
    ddl_status status = ddl_train_configure(t, NULL, argc, argv, flag_rows, flags, &n, err);
    if (!status)
        status = check_arguments("train", n, argv, 0, 1, "a recipe (RECIPE.yaml) or a run (DIR)", err);
    t->resume = flags->resume;
    t->skip = flags->skip;
    t->overwrite = flags->overwrite;
    t->device_memory = (size_t)(flags->device_memory * 0x1p30);
    if (!status && t->device_memory && !flags->dry_run)
        return ddl_error_set(err, DDL_E_USAGE, "train: --device-memory: expected --dry-run too");
    if (!status && flags->ranks && !flags->dry_run)
        return ddl_error_set(err, DDL_E_USAGE,
                             "train: --ranks: expected --dry-run too; mpirun -n %zu starts as many ranks",
                             flags->ranks);
    return status;
}

/* The other options are compared by the run. */
static ddl_status compare_dry_run(ddl_comm *comm, bool dry_run, struct ddl_error *err)
{
    if (!comm)
        return DDL_OK;
    ddl_comm_list *list = ddl_comm_list_create();
    ddl_comm_list_add(list, "--dry-run: %d", dry_run);
    return ddl_comm_list_compare(comm, list, err);
}

/* The ranks have one result; rank 0 reports it. A dry run is done by rank 0 alone. */
static int run_rank(ddl_comm *comm, int argc, char **argv)
{
    struct ddl_error err = { 0 };
    struct ddl_train_config t = { 0 };
    struct flags flags = { 0 };
    bool first = ddl_comm_rank(comm) == 0;
    ddl_status status = ddl_comm_agree(comm, configure(&t, &flags, argc, argv, &err), &err);
    if (!status)
        status = compare_dry_run(comm, flags.dry_run, &err);
    if (status)
        return report_agreed(comm, &err);
    if (flags.dry_run) {
        t.ranks = flags.ranks ? flags.ranks : ddl_comm_size(comm);
        return first ? dry_run(&t, &flags) : EXIT_OK;
    }
    t.comm = comm;
    return train(&t, &flags);
}

static int cmd_train(int argc, char **argv)
{
    catch_interrupts();      /* the first signal requests a checkpoint, */
    exit_on_interrupt(true); /* but there is nothing to save before the first step */
    return on_ranks(run_rank, argc, argv);
}

static const void *run_defaults(void)
{
    static struct ddl_train_config defaults;
    defaults = ddl_train_defaults();
    return &defaults;
}

static const void *model_defaults(void)
{
    static struct ddl_config defaults;
    defaults = ddl_config_defaults();
    return &defaults;
}

const struct command train_command = {
    .name = "train",
    .usage = "[RECIPE.yaml | DIR] [--key value ...] [--resume] [--dry-run]",
    .about = "train a model",
    .text =
        (const char *const[]){
            "RECIPE.yaml is a flat list of 'key: value' lines. Each key below is also an option, and options",
            "override the recipe. model and size set defaults of the model's keys, which explicit keys "
            "override. DIR, the folder of a run, stands for its recipe.yaml.",
            "If a loss or gradient is not finite, the run ends: trouble-STEP in --out is a dump for ddl "
            "verify,",
            "the state before the step is saved as a checkpoint, and --resume --skip 1 skips the data of the "
            "step.",
            "SIGINT, SIGTERM, SIGHUP (unless nohup ignores it) or SIGUSR1 finishes the step, writes a",
            "checkpoint and exits with status 3; a second signal exits at once. Slurm sends SIGUSR1 before",
            "the time limit of a job that has",
            "--signal=USR1@120. During a validation or an evaluation on tasks the checkpoint is written at "
            "once, "
            "and",
            "--resume repeats the evaluation.",
            "--dry-run opens and checks the data and the tokenizer, and estimates the time by training a "
            "temporary model",
            "for a few seconds. Without train_data it predicts only the memory.",
            "Processes that mpirun or srun starts together are ranks of one run: they divide each step's "
            "sequences",
            "(global_batch), and rank 0 writes the run folder. A signal to any rank stops all of them after "
            "a "
            "step.",
            "Progress is shown on standard error: on a terminal one line that is overwritten; "
            "otherwise, or",
            "with TERM=dumb, a line every ten seconds. NO_COLOR turns colors off. tok/s is tokens divided by "
            "training "
            "time,",
            "without validations, tasks, checkpoints and samples; the time left includes them.", NULL },
    .options = { { .title = "options that are not keys", .rows = flag_rows },
                 { .title = "keys of the run", .table = ddl_train_options, .defaults = run_defaults },
                 { .title = "keys of the model", .table = ddl_config_options, .defaults = model_defaults } },
    .examples =
        (const struct note[]){
            { "ddl train recipes/cpu.yaml --model ddl-cc-ec --out runs/one",
              "a recipe with two keys overridden" },
            { "ddl train runs/one --resume", "resume a killed run; the results are bit-identical" },
            { "mpirun -n 4 ddl train recipes/paper-small.yaml --threads 8", "four ranks of eight threads" },
            { 0 } },
    .files =
        (const struct note[]){
            { "OUT/recipe.yaml", "every key with its value; paths relative to OUT" },
            { "OUT/metrics.jsonl", "one JSON object per logged step, and telemetry records" },
            { "OUT/samples.jsonl", "one JSON object per text sample" },
            { "OUT/tensorboard/", "event files for TensorBoard, with --tensorboard" },
            { "OUT/checkpoint-STEP/", "a model folder with the optimizer state" },
            { "OUT/trouble-STEP/", "divergence dump for ddl verify" },
            { "OUT/diverged.json", "the run has diverged" },
            { "OUT/config.json, OUT/model.safetensors, OUT/tokenizer.json", "the final model" },
            { 0 } },
    .processes = ALL_PROCESSES,
    .run = cmd_train,
};
