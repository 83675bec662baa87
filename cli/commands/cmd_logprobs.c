/* ddl logprobs: the log-probability, rank and entropy of each token of a text. */
#define _POSIX_C_SOURCE 200809L
#include "cli/cli.h"
#include "ddl/json.h"
#include "cli/output/escape.h"
#include "cli/model/folder.h"
#include "cli/model/input.h"
#include "cli/output/terminal.h"
#include "cli/model/windows.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct flags {
    struct model_flags model;
    struct ddl_eval_config windows;
    bool json, quiet;
};

static const struct ddl_other_name text_others[] = {
    { "text", "the text is an argument or standard input: ddl logprobs DIR FILE", DDL_OTHER_NONE },
    { "file", "the text is an argument or standard input: ddl logprobs DIR FILE", DDL_OTHER_NONE },
    { "prompt", "the text is an argument or standard input: ddl logprobs DIR FILE", DDL_OTHER_NONE },
    { "val_data", "the text is an argument or standard input; ddl eval DIR --val-data PATH reads shards",
      DDL_OTHER_NONE },
    { 0 },
};

#define AT(field) offsetof(struct flags, field)
static const struct ddl_option rows[] = {
    MODEL_ROWS(struct flags),
    WINDOW_ROWS(struct flags),
    { "json", DDL_OPTION_BOOL, AT(json), 0, 0, 0, NULL, NULL, "print JSON lines", .others = text_others },
    { "quiet", DDL_OPTION_BOOL, AT(quiet), 0, 0, 0, NULL, NULL, "print nothing but errors and the result" },
    { 0 },
};

static const struct flags initial = { .model = MODEL_DEFAULTS };
static const void *defaults(void)
{
    return &initial;
}

/* The text being scored. */
struct scoring {
    const char *folder;
    const ddl_tokenizer *tokenizer;
    bool json, begun; /* begun: a line was printed */
    struct work_line work;
};

/* ---- lines ---- */

static void print_tsv(const struct ddl_token_score *score, const char *bytes, size_t size)
{
    printf("%llu\t%ld\t", (unsigned long long)score->position, (long)score->id);
    print_field_text(bytes, size);
    printf("\t%.9g\t%ld\t%.9g\n", score->logprob, (long)score->rank, score->entropy);
}

static void print_json(const struct ddl_token_score *score, const char *bytes, size_t size)
{
    struct ddl_json json = { stdout, false };
    ddl_json_open(&json, NULL, '{');
    ddl_json_count(&json, "position", score->position);
    ddl_json_count(&json, "id", (uint64_t)score->id);
    ddl_json_text(&json, "text", bytes, size);
    if (!is_utf8(bytes, size)) {
        ddl_json_open(&json, "bytes", '[');
        for (size_t i = 0; i < size; i++)
            ddl_json_count(&json, NULL, (unsigned char)bytes[i]);
        ddl_json_close(&json, ']');
    }
    ddl_json_number(&json, "logprob", score->logprob, 9);
    ddl_json_count(&json, "rank", (uint64_t)score->rank);
    ddl_json_number(&json, "entropy", score->entropy, 9);
    ddl_json_close(&json, '}');
    putchar('\n');
}

/* From the first line on, an interruption ends the program after a whole line. */
static int print_token(void *user, const struct ddl_token_score *score)
{
    struct scoring *s = user;
    size_t size = 0;
    const char *bytes = ddl_tokenizer_bytes(s->tokenizer, score->id, &size);
    if (!s->begun)
        exit_on_interrupt(false);
    if (!s->begun && !s->json)
        printf("position\tid\ttext\tlogprob\trank\tentropy\n");
    s->begun = true;
    (s->json ? print_json : print_tsv)(score, bytes, size);
    return ferror(stdout) || interrupted();
}

/* Lines are written when their batch is complete. */
static int show_progress(void *user, uint64_t done, uint64_t total)
{
    struct scoring *s = user;
    s->work.done = done;
    s->work.total = total;
    work_line_show(&s->work, s->folder, NULL);
    return fflush(stdout) != 0 || interrupted();
}

/* ---- the command ---- */

static ddl_status score(const struct flags *flags, const struct folder *folder, const char *dir,
                        const char *path, struct ddl_error *err)
{
    /* Lines on a terminal show the progress themselves. */
    struct scoring s = { .folder = dir,
                         .tokenizer = folder->tokenizer,
                         .json = flags->json,
                         .work = work_line_on_stderr("tokens", flags->quiet || isatty(STDOUT_FILENO) == 1) };
    struct ddl_eval_config config = flags->windows;
    struct ddl_eval_result result;
    char *text = NULL;
    size_t size = 0;
    config.each = print_token;
    config.progress = show_progress;
    config.user = &s;
    ddl_status status = read_input(path, SIZE_MAX, &text, &size, err);
    if (!status)
        status = ddl_eval_text(folder->model, folder->tokenizer, text, size, &config, &result, err);
    if (status == DDL_E_FORMAT)
        status = ddl_error_prefix(err, status, input_name(path));
    progress_line_clear(&s.work.line);
    free(text);
    return status;
}

static int cmd_logprobs(int argc, char **argv)
{
    struct ddl_error err = { 0 };
    struct flags flags = initial;
    struct folder folder = { 0 };
    int n;
    ddl_status status = ddl_option_parse(rows, &flags, NULL, NULL, argc, argv, &n, &err);
    if (!status)
        status = check_arguments("logprobs", n, argv, 1, 2, "a model folder (DIR)", &err);
    if (status)
        return report_error(&err);
    catch_interrupts();
    exit_on_interrupt(true);
    const struct folder_request request = { .dir = argv[1],
                                            .model = &flags.model,
                                            .needs_tokenizer = true,
                                            .quiet = flags.quiet,
                                            .silent = flags.quiet };
    status = folder_open(&folder, &request, &err);
    if (!status)
        status = score(&flags, &folder, argv[1], n > 1 ? argv[2] : NULL, &err);
    folder_close(&folder);
    if (status && ferror(stdout))
        return EXIT_FAILED; /* main reports it */
    return status ? report_error(&err) : EXIT_OK;
}

const struct command logprobs_command = {
    .name = "logprobs",
    .usage = "DIR [FILE] [--which last|best|final|STEP] [--stride N] [--json]",
    .about = "print log-probability, rank and entropy of a text's tokens",
    .text =
        (const char *const[]){
            "The text is read from FILE, or from standard input without FILE or with -. A line is printed",
            "for each token: its position, id and text, the natural logarithm of its probability, its rank",
            "among all tokens by probability (0: the most likely), and the entropy of the prediction in",
            "nats. Lines are tab-separated (TSV) after a header, with the escapes \\t, \\n, \\r, \\\\, \\xHH",
            "and \\u{H...} in texts; with --json they are JSON objects. The first token is predicted from",
            "<|endoftext|>. Texts longer than the model's context are divided into windows as by 'ddl eval",
            "--text': the sum of the log-probabilities is the negative of its loss times the number of",
            "tokens.", NULL },
    .options = { { .rows = rows, .defaults = defaults } },
    .examples =
        (const struct note[]){
            { "ddl logprobs my/run book.txt --stride 256 >book.tsv",
              "as TSV; after the first window, at least (context - 256) tokens precede each token" },
            { "printf 'Once upon a time' | ddl logprobs my/run --json",
              "scores of standard input, as JSON lines" },
            { 0 } },
    .run = cmd_logprobs,
};
