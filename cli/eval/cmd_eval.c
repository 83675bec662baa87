/* ddl eval: the loss of models on shards or a text, and their accuracy on downstream tasks. */
#define _POSIX_C_SOURCE 200809L
#include "cli/cli.h"
#include "cli/eval/eval.h"
#include "cli/model/shards.h"
#include "cli/output/terminal.h"
#include "cli/model/windows.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AT(field) offsetof(struct eval_flags, field)
#define SIZED(field) AT(field), sizeof(((struct eval_flags *)0)->field)
static const struct ddl_other_name task_others[] = {
    { "model", "the model is an argument: ddl eval DIR", DDL_OTHER_NONE },
    { "model_args", "the model is an argument: ddl eval DIR; other settings are options", DDL_OTHER_NONE },
    { "pretrained", "the model is an argument: ddl eval DIR", DDL_OTHER_NONE },
    { "eval_iters", "--val-tokens limits tokens: eval_iters x batch x seq", DDL_OTHER_NONE },
    { 0 },
};
static const struct ddl_other_name shots_others[] = {
    { "few_shot", NULL, DDL_OTHER_DIFFERS },
    { "fewshot", NULL, DDL_OTHER_DIFFERS },
    { 0 },
};
static const struct ddl_other_name seed_others[] = {
    { "seed", "Nothing but the choice of examples is random", DDL_OTHER_DIFFERS },
    { 0 },
};
static const struct ddl_other_name items_others[] = {
    { "log_samples", "It takes a file", DDL_OTHER_DIFFERS },
    { "output_path", "the result is printed, with --json as JSON; --items FILE keeps the documents' scores",
      DDL_OTHER_NONE },
    { 0 },
};
static const struct ddl_option rows[] = {
    { "val_data", DDL_OPTION_PATHS, SIZED(tokens.val_data), 0, 0, NULL, "PATH",
      "shards to evaluate on: files, a folder, or a pattern; from a folder, its validation shards, if any",
      "shard" },
    { "text", DDL_OPTION_PATH, SIZED(tokens.text), 0, 0, NULL, "FILE",
      "text to evaluate on (-: standard input)" },
    { "tasks", DDL_OPTION_STRING, SIZED(tasks), 0, 0, NULL, "LIST",
      "comma-separated names of tasks and .jsonl files of your own, all, or available (those with files)",
      .others = task_others },
    FORCE_ROW(struct eval_flags,
              "change the update of some sublayers, such as layers=7-9,sub=mlp,beta=0; may be repeated"),
    MODEL_ROWS(struct eval_flags),
    { "json", DDL_OPTION_BOOL, AT(json), 0, 0, 0, NULL, NULL, "print JSON" },
    { "csv", DDL_OPTION_BOOL, AT(csv), 0, 0, 0, NULL, NULL,
      "print CSV: a row per model, or per model and value of a task" },
    { "markdown", DDL_OPTION_BOOL, AT(markdown), 0, 0, 0, NULL, NULL,
      "print a Markdown table: a row per model, a column per task" },
    { "quiet", DDL_OPTION_BOOL, AT(quiet), 0, 0, 0, NULL, NULL, "print nothing but errors and the result" },
    { 0 },
};
static const struct ddl_option shard_rows[] = {
    FORMAT_ROW_OF(struct eval_flags, tokens.format),
    { "groups", DDL_OPTION_BOOL, AT(groups), 0, 0, 0, NULL, NULL,
      "also print the loss and the exact-match accuracy of each group of the masks" },
    { 0 },
};
static const struct ddl_option window_rows[] = {
    WINDOW_ROWS(struct eval_flags),
    { "val_tokens", DDL_OPTION_U64, AT(windows.max_tokens), 0, 0, 9e15, NULL, "N",
      "number of tokens to evaluate, rounded up to whole windows (0: all)", "max_tokens" },
    { 0 },
};
static const struct ddl_option task_rows[] = {
    { "shots", DDL_OPTION_SIZE, AT(task.shots), 0, 0, 4096, NULL, "K", "examples before each document",
      "num_fewshot", .others = shots_others },
    { "data", DDL_OPTION_STRING, SIZED(task.data), 0, 0, NULL, "DIR", "folder with the files of the tasks" },
    { "limit", DDL_OPTION_U64, AT(task.limit), 0, 0, 9e15, NULL, "N",
      "first N documents of each task (0: all)" },
    { "fewshot_seed", DDL_OPTION_U64, AT(task.seed), 0, 0, 9e15, NULL, "N",
      "seed of the random choice of examples", .others = seed_others },
    { "any_revision", DDL_OPTION_BOOL, AT(task.any_revision), 0, 0, 0, NULL, NULL,
      "accept task files whose SHA-256 is not the known one" },
    { "items", DDL_OPTION_STRING, SIZED(items), 0, 0, NULL, "FILE",
      "append each document's requests and scores to FILE as JSON lines; skip documents already in it",
      .others = items_others },
    { 0 },
};

static struct eval_flags initial(void)
{
    return (struct eval_flags){ .model = MODEL_DEFAULTS, .task = ddl_task_defaults() };
}

static const void *defaults(void)
{
    static struct eval_flags flags;
    flags = initial();
    return &flags;
}

/* ---- options ---- */

/* What is evaluated, and what the options of each table apply to. */
enum { SHARDS = 1, TEXT = 2, TASKS = 4 };
static const struct {
    const struct ddl_option *rows;
    int modes;
    const char *expected;
} groups[] = {
    { rows, SHARDS | TEXT | TASKS, "" },
    { shard_rows, SHARDS, "--val-data" },
    { window_rows, SHARDS | TEXT, "--val-data or --text" },
    { task_rows, TASKS, "--tasks" },
};
enum { GROUPS = sizeof groups / sizeof *groups, MOST_ROWS = 64 };

/* The rows of all groups. */
static const struct ddl_option *all_rows(void)
{
    static struct ddl_option all[MOST_ROWS];
    size_t used = 0;
    for (size_t g = 0; g < GROUPS; g++) {
        for (const struct ddl_option *row = groups[g].rows; row->name && used < MOST_ROWS - 1; row++)
            all[used++] = *row;
    }
    all[used] = (struct ddl_option){ 0 };
    return all;
}

/* The first option of each group among the arguments, or NULL. */
static void find_given(const struct ddl_option *given[GROUPS], int argc, char **argv)
{
    for (size_t g = 0; g < GROUPS; g++) {
        bool of_rows[MOST_ROWS];
        const struct ddl_option *row = groups[g].rows;
        ddl_option_find_given(row, all_rows(), argc, argv, of_rows);
        while (row->name && !of_rows[row - groups[g].rows])
            row++;
        given[g] = row->name ? row : NULL;
    }
}

static ddl_status does_not_apply(const struct ddl_option *row, const char *expected, int mode,
                                 struct ddl_error *err)
{
    const char *found = mode == TASKS ? "--tasks" : mode == TEXT ? "--text" : "--val-data", *hint = "";
    char name[64];
    flag_name(row->name, name, sizeof name);
    if (strcmp(name, "limit") == 0)
        hint = "; --val-tokens limits tokens";
    if (strcmp(name, "val-tokens") == 0)
        hint = "; --limit limits documents";
    return ddl_error_set(err, DDL_E_USAGE, "--%s: expected with %s, found with %s%s", name, expected, found,
                         hint);
}

static ddl_status check_flags(const struct eval_flags *flags, const struct ddl_option *const given[GROUPS],
                              int n, char **argv, struct ddl_error *err)
{
    int mode = (*flags->tokens.val_data ? SHARDS : 0) | (*flags->tokens.text ? TEXT : 0) |
               (*flags->tasks ? TASKS : 0);
    ddl_status status = check_arguments("eval", n, argv, 1, INT_MAX, "a model folder (DIR)", err);
    if (status)
        return status;
    if (mode == 0)
        return ddl_option_missing("eval", "--val-data PATH, --text FILE or --tasks LIST", err);
    if (mode != SHARDS && mode != TEXT && mode != TASKS)
        return ddl_error_set(err, DDL_E_USAGE,
                             "eval: expected one of --val-data, --text and --tasks, found several");
    if (flags->json + flags->csv + flags->markdown > 1)
        return ddl_error_set(err, DDL_E_USAGE,
                             "eval: expected one of --json, --csv and --markdown, found several");
    if (*flags->force && *flags->items)
        return ddl_error_set(err, DDL_E_USAGE, "--items: expected without --force");
    for (size_t g = 0; g < GROUPS; g++) {
        if (given[g] && !(groups[g].modes & mode))
            return does_not_apply(given[g], groups[g].expected, mode, err);
    }
    return DDL_OK;
}

/* ---- ranks ---- */

/* A block of documents may take this long: seconds. */
enum { TIME_LIMIT = 3600 };

/* All ranks have the same arguments; threads change no more than rounding. */
static ddl_status compare_arguments(const struct eval_flags *flags, size_t n, char **folders,
                                    struct ddl_error *err)
{
    ddl_comm_list *list = ddl_comm_list_create();
    for (size_t i = 0; i < n; i++)
        ddl_comm_list_add(list, "model %zu: %s", i + 1, folders[i]);
    for (size_t g = 0; g < GROUPS; g++)
        ddl_comm_list_add_options(list, groups[g].rows, flags);
    return ddl_comm_list_compare(flags->comm, list, err);
}

/* ---- the command ---- */

static int run_rank(ddl_comm *comm, int argc, char **argv)
{
    struct ddl_error err = { 0 };
    struct eval_flags flags = initial();
    const struct ddl_option *given[GROUPS];
    int n;
    find_given(given, argc, argv); /* the parser reorders the arguments */
    ddl_status status = ddl_option_parse(all_rows(), &flags, NULL, NULL, argc, argv, &n, &err);
    if (!status)
        status = check_flags(&flags, given, n, argv, &err);
    if (!status && comm && strcmp(flags.tokens.text, "-") == 0)
        status = ddl_error_set(&err, DDL_E_USAGE,
                               "--text: several processes cannot share standard input: expected a file");
    status = ddl_comm_agree(comm, status, &err);
    flags.comm = flags.windows.comm = comm;
    ddl_comm_set_time_limit(comm, TIME_LIMIT);
    if (!status && comm)
        status = compare_arguments(&flags, (size_t)n, argv + 1, &err);
    if (status)
        return report_agreed(comm, &err);
    flags.quiet = flags.quiet || ddl_comm_rank(comm) > 0;
    flags.model.threads = ddl_comm_threads(comm, flags.model.threads);
    return (*flags.tasks ? eval_tasks : eval_loss)(&flags, (size_t)n, (const char *const *)argv + 1);
}

static int cmd_eval(int argc, char **argv)
{
    catch_interrupts();
    exit_on_interrupt(true); /* nothing is written */
    return on_ranks(run_rank, argc, argv);
}

const struct command eval_command = {
    .name = "eval",
    .usage = "DIR... (--val-data PATH | --text FILE | --tasks LIST) [--which last|best|final|STEP] [--json]",
    .about = "evaluate models: loss, perplexity, accuracy on downstream tasks",
    .text =
        (const char *const[]){
            "DIR is a run, one of its checkpoints, or any model folder. --which selects a model of a run.",
            "--val-data and --text print the loss in nats per token, the perplexity and the bits per byte of",
            "text. A mask (docs/formats.md) says which tokens count; --groups prints the loss of each of its",
            "groups, the share of tokens that greedy decoding chooses, and the share of answers (runs of",
            "counted tokens) of which it chooses every token. Tasks are scored as by",
            "lm-evaluation-harness: each choice's log-likelihood after its context (acc), or that per",
            "character of the choice (acc_norm). docs/evaluation.md has the rules and the sources of the",
            "tasks' files.",
            "--force SPEC changes the updates of some sublayers. SPEC has comma-separated KEY=VALUE pairs:",
            "layers (all, or a list such as 1,4-6), sub (all, attn, mlp), and what is forced (see below).",
            "With ddl_steps the changes apply to every step. docs/inspect.md describes the keys.",
            "Processes that mpirun or srun starts together divide the windows or documents between them, and",
            "the first one prints the result, which does not depend on their number.", NULL },
    .options = { { .rows = rows, .defaults = defaults },
                 { .title = "options of --val-data", .rows = shard_rows, .defaults = defaults },
                 { .title = "options of --val-data and --text", .rows = window_rows, .defaults = defaults },
                 { .title = "options of --tasks", .rows = task_rows, .defaults = defaults } },
    .keys_title = "keys of --force",
    .keys = force_notes,
    .examples =
        (const struct note[]){
            { "ddl eval my/run --val-data 'my/shards/val_*.bin'", "on shards" },
            { "ddl eval my/run --which best --val-data 'my/shards/val_*.bin'",
              "the checkpoint with the lowest validation loss" },
            { "ddl eval my/run --val-data my/shards --groups", "by the groups of the shards' masks" },
            { "ddl eval my/run --text book.txt --stride 256",
              "on a text; after the first window, at least (context - 256) tokens precede each token" },
            { "ddl eval my/run other/run --text book.txt --markdown", "two models on a text, as a table" },
            { "ddl eval my/run --val-data my/shards --force layers=7-9,sub=mlp,beta=0",
              "with the gates of three MLP sublayers closed" },
            { "ddl eval my/run --tasks arc_easy,piqa --data data/tasks --limit 100",
              "on the first 100 documents of two tasks" },
            { "mpirun -n 4 ddl eval my/run --tasks arc_easy,piqa --data data/tasks", "by four processes" },
            { 0 } },
    .processes = ALL_PROCESSES,
    .run = cmd_eval,
};
