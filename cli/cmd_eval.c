/* ddl eval: the loss of a model on a shard or a text, and its accuracy on downstream tasks. */
#define _POSIX_C_SOURCE 200809L
#include "cli.h"
#include "ddl/eval.h"
#include "ddl/json.h"
#include "eval_tasks.h"
#include "folder.h"
#include "shards.h"
#include "terminal.h"
#include "windows.h"

#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>

struct flags {
    char val_data[4096], text[4096];
    struct model_flags model;
    struct ddl_eval_config windows;
    int format; /* enum ddl_shards_format */
    bool json;
};

#define AT(field) offsetof(struct flags, field)
static const struct ddl_option rows[] = {
    { "val_data", DDL_OPTION_PATHS, AT(val_data), 4096, 0, 0, NULL, "PATH",
      "shards to evaluate on: files, a folder, or a pattern; of a folder its validation shards, if any",
      "shard" },
    FORMAT_ROW(struct flags),
    { "text", DDL_OPTION_PATH, AT(text), 4096, 0, 0, NULL, "FILE", "text file to evaluate on" },
    MODEL_ROWS(struct flags),
    WINDOW_ROWS(struct flags),
    { "val_tokens", DDL_OPTION_U64, AT(windows.max_tokens), 0, 0, 9e15, NULL, "N",
      "maximum number of tokens to evaluate (0: all)", "max_tokens" },
    { "json", DDL_OPTION_BOOL, AT(json), 0, 0, 0, NULL, NULL, "print the result as JSON" },
    { 0 },
};

static const struct flags initial = { .model = MODEL_DEFAULTS };
static const void *defaults(void)
{
    return &initial;
}

static int show_progress(void *user, uint64_t done, uint64_t total)
{
    struct progress_line *line = user;
    if (progress_line_due(line)) {
        struct line_fields fields = { 0 };
        add_field(&fields, 0, "%3.0f%% of %llu tokens", 100 * (double)done / (double)total,
                  (unsigned long long)total);
        progress_line_show(line, &fields);
    }
    return 0;
}

/* bits_per_byte is NaN where the text's bytes are not known. */
static void print_json(const struct ddl_eval_result *r, const struct ddl_run_model *model)
{
    struct ddl_json json = { stdout, false };
    ddl_json_open(&json, NULL, '{');
    print_saved_model_json(&json, model);
    ddl_json_number(&json, "loss", r->loss, 9);
    ddl_json_number(&json, "perplexity", r->perplexity, 9);
    if (!isnan(r->bits_per_byte)) {
        ddl_json_number(&json, "bits_per_byte", r->bits_per_byte, 9);
        ddl_json_count(&json, "bytes", r->bytes);
    }
    ddl_json_count(&json, "tokens", r->tokens);
    ddl_json_fixed(&json, "seconds", r->seconds, 6);
    ddl_json_close(&json, '}');
    putchar('\n');
}

static void print_result(const struct ddl_eval_result *r)
{
    printf("loss           %.6f nats/token\nperplexity     %.4f\n", r->loss, r->perplexity);
    if (!isnan(r->bits_per_byte))
        printf("bits per byte  %.6f\n", r->bits_per_byte);
    printf("tokens         %llu\nseconds        %.2f\n", (unsigned long long)r->tokens, r->seconds);
}

static ddl_status evaluate_shards(const struct folder *f, const struct flags *flags,
                                  struct progress_line *line, struct ddl_eval_result *out,
                                  struct ddl_error *err)
{
    const struct ddl_shards_options options = { .split = DDL_SHARDS_VAL, .format = flags->format };
    ddl_shards *shards;
    ddl_status status = ddl_shards_open_with(&shards, flags->val_data, &options, err);
    if (status)
        return status;
    report_assumed(shards);
    size_t n = ddl_shards_n_files(shards), left_out = ddl_shards_n_left_out(shards, false);
    if (left_out > 0)
        fprintf(stderr, "ddl: %s: evaluating the %zu validation shard%s of %zu files\n", flags->val_data, n,
                n == 1 ? "" : "s", n + left_out);
    const struct ddl_vocabulary vocabulary = { .vocab_size = ddl_model_config(f->model)->vocab_size,
                                               .tokenizer = f->tokenizer,
                                               .tokenizer_path = *flags->model.tokenizer
                                                                     ? flags->model.tokenizer
                                                                     : f->found.path,
                                               .val = shards };
    status = ddl_vocabulary_check(&vocabulary, NULL, NULL, NULL, err);
    if (status) {
        ddl_shards_close(shards);
        return status;
    }
    status = ddl_eval_shards(f->model, f->tokenizer, shards, &flags->windows, show_progress, line, out, err);
    if (status == DDL_E_FORMAT)
        status = ddl_error_prefix(err, status, flags->val_data);
    ddl_shards_close(shards);
    return status;
}

static const void *task_defaults(void)
{
    static struct task_flags task_initial;
    task_initial = task_flags_defaults();
    return &task_initial;
}

static ddl_status check_flags(const struct flags *flags, const struct task_flags *tasks, int n, char **argv,
                              struct ddl_error *err)
{
    int given = (*flags->val_data != '\0') + (*flags->text != '\0') + (*tasks->tasks != '\0');
    ddl_status status =
        check_arguments("eval", n, argv, 1, *tasks->tasks ? INT_MAX : 1, "a model folder (DIR)", err);
    if (!status && given == 0)
        status = ddl_option_missing("eval", "--val-data PATH, --text PATH or --tasks LIST", err);
    if (!status && given > 1)
        status = ddl_error_set(err, DDL_E_USAGE,
                               "eval: expected one of --val-data, --text and --tasks, found several");
    if (!status && flags->json + tasks->csv + tasks->markdown > 1)
        status = ddl_error_set(err, DDL_E_USAGE,
                               "eval: expected one of --json, --csv and --markdown, found several");
    return status;
}

static ddl_status evaluate(const struct folder *f, const struct flags *flags, struct ddl_eval_result *out,
                           struct ddl_error *err)
{
    struct progress_line line = progress_line_on_stderr(isatty(STDERR_FILENO) != 1);
    ddl_status status = *flags->text ? ddl_eval_file(f->model, f->tokenizer, flags->text, &flags->windows,
                                                     show_progress, &line, out, err)
                                     : evaluate_shards(f, flags, &line, out, err);
    progress_line_clear(&line);
    return status;
}

static int eval_loss(const struct flags *flags, const struct folder_request *request)
{
    struct ddl_error err = { 0 };
    struct folder folder;
    struct ddl_eval_result result;
    catch_interrupts();
    exit_on_interrupt(true); /* nothing is written */
    ddl_status status = folder_open(&folder, request, &err);
    if (!status)
        status = evaluate(&folder, flags, &result, &err);
    folder_close(&folder);
    if (status)
        return report_error(&err);
    if (flags->json)
        print_json(&result, &folder.found);
    else
        print_result(&result);
    return EXIT_OK;
}

static int cmd_eval(int argc, char **argv)
{
    struct ddl_error err = { 0 };
    struct flags flags = initial;
    struct task_flags tasks = task_flags_defaults();
    int n;
    ddl_status status = ddl_option_parse(rows, &flags, task_rows, &tasks, argc, argv, &n, &err);
    if (!status)
        status = check_flags(&flags, &tasks, n, argv, &err);
    if (status)
        return report_error(&err);
    const struct folder_request request = { .dir = argv[1],
                                            .model = &flags.model,
                                            .needs_tokenizer = *flags.text != '\0',
                                            .quiet =
                                                flags.json || tasks.csv || tasks.markdown || tasks.quiet };
    if (*tasks.tasks)
        return eval_tasks(&tasks, request, (size_t)n, (const char *const *)argv + 1, flags.json);
    return eval_loss(&flags, &request);
}

const struct command eval_command = {
    .name = "eval",
    .usage = "DIR... (--val-data PATH | --text FILE | --tasks LIST) [--which last|best|final|STEP] [--json]",
    .about = "evaluate a model: loss, perplexity, accuracy on downstream tasks",
    .text =
        (const char *const[]){
            "DIR is a run, one of its checkpoints, or any model folder. --which selects a model of a run.",
            "--tasks accepts several folders. Tasks are scored as lm-evaluation-harness does: each choice's",
            "log-likelihood after its context, with acc by the sum and acc_norm by the mean per character.",
            "docs/evaluation.md has the rules and the sources of the tasks' files.", NULL },
    .options = { { .rows = rows, .defaults = defaults },
                 { .title = "options of --tasks", .rows = task_rows, .defaults = task_defaults } },
    .examples =
        (const struct note[]){ { "ddl eval my/run --val-data 'my/shards/val_*.bin'", "on shards" },
                               { "ddl eval my/run --which best --val-data 'my/shards/val_*.bin'",
                                 "the checkpoint of lowest validation loss" },
                               { "ddl eval my/run --text book.txt --stride 256",
                                 "on a text; all but 256 tokens of the context precede each token" },
                               { "ddl eval my/run --tasks arc_easy,piqa --data data/tasks --limit 100",
                                 "on the first 100 documents of two tasks" },
                               { 0 } },
    .run = cmd_eval,
};
