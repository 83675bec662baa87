/* ddl inspect: what each sublayer of a model does to the residual stream. */
#define _POSIX_C_SOURCE 200809L
#include "cli/cli.h"
#include "cli/inspect/inspect.h"
#include "cli/output/page.h"
#include "cli/output/terminal.h"
#include "cli/model/force.h"
#include "cli/model/token_data.h"
#include "cli/model/windows.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct flags {
    struct token_flags tokens;
    char prompt[16384];
    struct model_flags model;
    struct ddl_inspect_config inspect;
    bool json, quiet;
    char html[PAGE_PATH];
    char force[FORCE_SIZE];
    char save_states[1024], save_sublayers[4096];
    uint64_t save_every;
};

#define AT(field) offsetof(struct flags, field)
static const struct ddl_option rows[] = {
    TOKEN_ROWS(struct flags),
    { "prompt", DDL_OPTION_STRING, AT(prompt), sizeof((struct flags *)0)->prompt, 0, 0, NULL, "TEXT",
      "show one prompt token by token instead" },
    { "tokens", DDL_OPTION_U64, AT(inspect.max_tokens), 0, 0, 9e15, NULL, "N",
      "number of tokens to read, rounded up to whole windows (0: all)", "val_tokens max_tokens" },
    { "spectrum_tokens", DDL_OPTION_U64, AT(inspect.spectrum_tokens), 0, 0, 9e15, NULL, "N",
      "singular values over depth: use at least this many tokens, evenly spaced (0: none)" },
    MODEL_ROWS(struct flags),
    SEQ_ROW_OF(struct flags, inspect.seq),
    FORCE_ROW(struct flags, "inspect with a changed update, see below; may be repeated"),
    { "save_states", DDL_OPTION_PATH, AT(save_states), sizeof((struct flags *)0)->save_states, 0, 0, NULL,
      "FILE", "write the states after sublayers to this safetensors file" },
    { "save_sublayers", DDL_OPTION_STRING, AT(save_sublayers), sizeof((struct flags *)0)->save_sublayers, 0,
      0, NULL, "LIST", "sublayers of --save-states, such as 0.attn,3.mlp (empty: all)" },
    { "save_every", DDL_OPTION_U64, AT(save_every), 0, 1, 9e15, NULL, "N",
      "tokens of --save-states: one of every N" },
    { "save_counted", DDL_OPTION_BOOL, AT(inspect.states_counted), 0, 0, 0, NULL, NULL,
      "tokens of --save-states: only those before a token that the mask counts" },
    { "json", DDL_OPTION_BOOL, AT(json), 0, 0, 0, NULL, NULL, "print JSON with every figure" },
    HTML_ROW(struct flags),
    { "quiet", DDL_OPTION_BOOL, AT(quiet), 0, 0, 0, NULL, NULL, "print nothing but errors and the result" },
    { 0 },
};

static struct flags initial(void)
{
    return (struct flags){ .model = MODEL_DEFAULTS, .inspect = ddl_inspect_defaults(), .save_every = 1 };
}

static const void *defaults(void)
{
    static struct flags flags;
    flags = initial();
    return &flags;
}

static int show_progress(void *user, uint64_t done, uint64_t total)
{
    struct work_line *work = user;
    work->done = done;
    work->total = total;
    work_line_show(work, "inspect", NULL);
    return 0;
}

static ddl_status inspect_tokens(const struct flags *flags, const struct folder *folder, ddl_inspection **out,
                                 struct ddl_error *err)
{
    struct work_line work = work_line_on_stderr("tokens", flags->quiet);
    struct ddl_inspect_config config = flags->inspect;
    config.progress = show_progress;
    config.user = &work;
    struct token_data data;
    const struct ddl_eval_config windows = { .seq = config.seq, .max_tokens = config.max_tokens };
    ddl_status status = token_data_open(&data, &flags->tokens, flags->quiet, err);
    if (!status)
        status = token_data_force(flags->force, &data, folder, &flags->model, &windows, err);
    if (!status)
        status = token_data_inspect(&data, folder, &flags->model, &config, out, err);
    progress_line_clear(&work.line);
    token_data_close(&data);
    return status;
}

/* The prompt after an <|endoftext|>, in one sequence. */
static ddl_status inspect_prompt(const struct flags *flags, const struct folder *folder, ddl_inspection **out,
                                 struct ddl_error *err)
{
    const struct ddl_inspect_config config = { .spectrum_tokens = flags->inspect.spectrum_tokens,
                                               .states_every = flags->inspect.states_every,
                                               .states_counted = flags->inspect.states_counted,
                                               .states_of = flags->inspect.states_of };
    size_t context = ddl_model_config(folder->model)->block_size;
    *out = NULL;
    ddl_status status = token_data_force(flags->force, NULL, folder, &flags->model, NULL, err);
    if (!status)
        status = ddl_inspect_text(out, folder->model, folder->tokenizer, flags->prompt, strlen(flags->prompt),
                                  &config, err);
    if (!status && ddl_inspect_tokens(*out) > context)
        status = ddl_error_set(err, DDL_E_USAGE,
                               "--prompt: expected at most %zu tokens (the model's context), found %llu",
                               context, (unsigned long long)ddl_inspect_tokens(*out));
    return status;
}

/* That each option of rows has an effect. */
static ddl_status check_effects(const struct flags *flags, const bool *given, struct ddl_error *err)
{
    static const char *const of_shards[] = { "format", NULL };
    static const char *const of_windows[] = { "tokens", "seq", NULL };
    static const char *const of_states[] = { "save_sublayers", "save_every", "save_counted", NULL };
    ddl_status status = DDL_OK;
    if (!*flags->tokens.val_data)
        status = check_needs(rows, given, of_shards, "--val-data", err);
    if (!status && *flags->prompt)
        status = check_needs(rows, given, of_windows, "--val-data or --text", err);
    if (!status && !*flags->save_states)
        status = check_needs(rows, given, of_states, "--save-states", err);
    return status;
}

static ddl_status check_flags(const struct flags *flags, int n, char **argv, struct ddl_error *err)
{
    ddl_status status = check_arguments("inspect", n, argv, 1, 1, "a model folder (DIR)", err);
    int given = (*flags->tokens.val_data != '\0') + (*flags->tokens.text != '\0') + (*flags->prompt != '\0');
    if (!status && given == 0)
        status = ddl_option_missing("inspect", "--val-data PATH, --text FILE or --prompt TEXT", err);
    if (!status && given > 1)
        status = ddl_error_set(err, DDL_E_USAGE,
                               "inspect: expected one of --val-data, --text and --prompt, found several");
    return status ? status : page_check(flags->html, err);
}

static int cmd_inspect(int argc, char **argv)
{
    struct ddl_error err = { 0 };
    struct flags flags = initial();
    struct folder folder = { 0 };
    ddl_inspection *inspection = NULL;
    int n;
    bool given[sizeof rows / sizeof *rows];
    ddl_option_find_given(rows, NULL, argc, argv, given); /* the parser reorders the arguments */
    ddl_status status = ddl_option_parse(rows, &flags, NULL, NULL, argc, argv, &n, &err);
    if (!status)
        status = check_flags(&flags, n, argv, &err);
    if (!status)
        status = check_effects(&flags, given, &err);
    if (status)
        return report_error(&err);
    if (*flags.save_states) {
        flags.inspect.states_every = flags.save_every;
        flags.inspect.states_of = flags.save_sublayers;
    }
    catch_interrupts();
    exit_on_interrupt(true); /* nothing is written before the end */
    bool prompt = *flags.prompt != '\0';
    const struct folder_request request = { .dir = argv[1],
                                            .model = &flags.model,
                                            .needs_tokenizer = prompt || *flags.tokens.text,
                                            .quiet = flags.json || flags.quiet,
                                            .silent = flags.quiet };
    status = folder_open(&folder, &request, &err);
    if (!status)
        status = prompt ? inspect_prompt(&flags, &folder, &inspection, &err)
                        : inspect_tokens(&flags, &folder, &inspection, &err);
    const struct inspected inspected = {
        .dir = argv[1], .folder = &folder, .inspection = inspection, .force = flags.force, .prompt = prompt
    };
    if (!status)
        (flags.json ? print_inspection_json : print_inspection)(&inspected);
    if (!status && *flags.html)
        status = write_inspection_html(&inspected, flags.html, &err);
    if (!status && *flags.save_states)
        status = ddl_inspect_save_states(inspection, flags.save_states, &err);
    ddl_inspect_free(inspection);
    folder_close(&folder);
    return status ? report_error(&err) : EXIT_OK;
}

const struct command inspect_command = {
    .name = "inspect",
    .usage = "DIR (--val-data PATH | --text FILE | --prompt TEXT) [--tokens N] [--json]",
    .about = "print gates, updates and spectra of the sublayers of a model",
    .text =
        (const char *const[]){
            "Runs the model on tokens and prints a line per sublayer: mean, 5 % and 95 % quantile of the "
            "gate,",
            "the shares skip, match, over and reflect, the root mean square of k^T X - v before and after "
            "the",
            "step, the sizes of erase, write and step relative to the state, and the overlaps of k with the",
            "stream and with the next k. Below: value channels and read vectors, the behavior of each",
            "sublayer, gate by position, singular values over depth, and the tokens with the most extreme "
            "gates",
            "in context. --prompt prints the gate of every sublayer for each token of one prompt, or where",
            "there is no gate, the size of the step. --force SPEC changes the updates of some sublayers, as "
            "in",
            "ddl eval. docs/inspect.md has the definitions.", NULL },
    .options = { { .rows = rows, .defaults = defaults } },
    .keys_title = "keys of --force",
    .keys = force_notes,
    .examples =
        (const struct note[]){
            { "ddl inspect my/run --val-data my/shards", "on validation shards" },
            { "ddl inspect my/run --prompt 'The cat sat on the mat'", "one prompt token by token" },
            { "ddl inspect my/run --val-data my/shards --html gates.html", "charts on a page for a browser" },
            { "ddl inspect my/run --text book.txt --tokens 100000 --json", "every figure as JSON" },
            { 0 } },
    .run = cmd_inspect,
};
