/* ddl generate: text that follows a prompt. */
#define _POSIX_C_SOURCE 200809L
#include "cli/cli.h"
#include "ddl/generate.h"
#include "ddl/json.h"
#include "cli/output/buffer.h"
#include "cli/output/escape.h"
#include "cli/model/folder.h"
#include "cli/model/input.h"
#include "cli/generate/line.h"
#include "cli/output/terminal.h"

#include <math.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_PROMPT = 64 << 20 };

struct flags {
    struct model_flags model;
    bool echo, json;
    char taken[1]; /* the field of the options in `texts`, never set */
};

#define AT(field) offsetof(struct flags, field)
static const struct ddl_other_name prompt_others[] = {
    { "start", "A prompt in a file is standard input, its last newline included: ddl generate DIR <FILE",
      DDL_OTHER_DIFFERS },
    { "-p", NULL, DDL_OTHER_DIFFERS },
    { "file", "a prompt in a file is standard input, its last newline included: ddl generate DIR <FILE",
      DDL_OTHER_NONE },
    { "-f", "a prompt in a file is standard input, its last newline included: ddl generate DIR <FILE",
      DDL_OTHER_NONE },
    { "interactive", "without --prompt, each line typed on a terminal is a prompt", DDL_OTHER_NONE },
    { "conversation", "without --prompt, each line typed on a terminal is a prompt", DDL_OTHER_NONE },
    { "model", "the model is an argument: ddl generate DIR", DDL_OTHER_NONE },
    { "-m", "the model is an argument: ddl generate DIR", DDL_OTHER_NONE },
    { "ckpt", "the model is an argument: ddl generate DIR", DDL_OTHER_NONE },
    { 0 },
};
static const struct ddl_other_name stop_others[] = {
    { "reverse_prompt", "The stop text itself is not printed", DDL_OTHER_DIFFERS },
    { "stop_strings", "It may be repeated", DDL_OTHER_DIFFERS },
    { 0 },
};
static const struct ddl_other_name stop_id_others[] = {
    { "eos_token_id", "It stops beside <|endoftext|>", DDL_OTHER_DIFFERS },
    { 0 },
};

/* These are here for the help and for suggestions: a field of a table cannot hold whether --prompt is given,
 * nor all values of the others (take_texts). */
enum { PROMPT, STOP, STOP_ID, LOGIT_BIAS, TEXTS };
static const struct ddl_option rows[] = {
    [PROMPT] = { .name = "prompt",
                 .type = DDL_OPTION_STRING,
                 .offset = AT(taken),
                 .size = 1,
                 .value = "TEXT",
                 .help = "prompt; empty: <|endoftext|> (without this option: standard input)",
                 .others = prompt_others },
    [STOP] = { .name = "stop",
               .type = DDL_OPTION_STRING,
               .offset = AT(taken),
               .size = 1,
               .value = "TEXT",
               .help = "stop at the first occurrence of TEXT, which is not printed; may be repeated",
               .others = stop_others },
    [STOP_ID] = { .name = "stop_id",
                  .type = DDL_OPTION_STRING,
                  .offset = AT(taken),
                  .size = 1,
                  .value = "ID",
                  .help = "stop at token ID, which is not printed; may be repeated",
                  .others = stop_id_others },
    [LOGIT_BIAS] = { .name = "logit_bias",
                     .type = DDL_OPTION_STRING,
                     .offset = AT(taken),
                     .size = 1,
                     .value = "ID=X",
                     .help = "add X to the logit of token ID (-inf: never choose it); may be repeated" },
    { "echo", DDL_OPTION_BOOL, AT(echo), 0, 0, 0, NULL, NULL,
      "without --json: print the prompt before each text [default: on if standard output is a terminal]" },
    MODEL_ROWS(struct flags),
    { "json", DDL_OPTION_BOOL, AT(json), 0, 0, 0, NULL, NULL, "print all texts as JSON at the end" },
    { 0 },
};

/* ---- output ---- */

/* One sequence is printed as it is generated; several are kept, so that they do not mix. */
struct output {
    bool stream, failed, begun;  /* begun: something was printed */
    const struct buffer *prompt; /* to print before a text; NULL once it is printed, or without --echo */
    struct buffer *texts;
};

/* Prints the prompt: marked on a terminal, unchanged elsewhere. */
static void echo(const struct buffer *prompt)
{
    if (prompt && isatty(STDOUT_FILENO) == 1)
        print_prompt(stdout, prompt->bytes, prompt->n);
    else if (prompt && prompt->n)
        print_generated(stdout, prompt->bytes, prompt->n);
}

static int on_text(void *user, size_t sequence, const char *text, size_t size)
{
    struct output *out = user;
    if (!out->stream) {
        out->failed = out->failed || !buffer_add(&out->texts[sequence], text, size);
        return out->failed || interrupted();
    }
    echo(out->prompt);
    out->prompt = NULL;
    out->begun = true;
    print_generated(stdout, text, size);
    return fflush(stdout) != 0 || interrupted(); /* the reader has closed the pipe, or Ctrl-C */
}

static void print_json(const struct buffer *texts, const struct ddl_generate_result *results, size_t n,
                       const struct ddl_run_model *model)
{
    fputs("[", stdout);
    for (size_t s = 0; s < n; s++) {
        struct ddl_json json = { stdout, false };
        fputs(s ? ",\n  " : "\n  ", stdout); /* a line for each text */
        ddl_json_open(&json, NULL, '{');
        print_saved_model_json(&json, model);
        ddl_json_text(&json, "text", texts[s].n ? texts[s].bytes : "", texts[s].n);
        ddl_json_count(&json, "prompt_tokens", results[s].prompt_tokens);
        ddl_json_count(&json, "tokens", results[s].tokens);
        ddl_json_string(&json, "finish", ddl_finish_name(results[s].finish));
        ddl_json_close(&json, '}');
    }
    fputs("\n]\n", stdout);
}

static void print_texts(const struct buffer *prompt, const struct buffer *texts, size_t n)
{
    for (size_t s = 0; s < n; s++) {
        printf("--- %zu\n", s + 1);
        echo(prompt);
        if (texts[s].n)
            print_generated(stdout, texts[s].bytes, texts[s].n);
        printf("\n");
    }
}

/* Prints the texts after a prompt; `shown` is the prompt to print before them, or NULL. */
static int generate(const struct folder *f, const struct flags *flags,
                    const struct ddl_generate_config *config, const struct buffer *prompt,
                    const struct buffer *shown)
{
    struct ddl_error err = { 0 };
    struct output out = { .stream = !flags->json && config->n == 1, .prompt = shown };
    struct ddl_generate_result *results = calloc(config->n, sizeof *results);
    out.texts = calloc(config->n, sizeof *out.texts);
    ddl_status status = DDL_OK;
    if (!results || !out.texts)
        status = ddl_error_set(&err, DDL_E_MEMORY, "out of memory for %zu texts", config->n);
    else
        status = ddl_generate(&(struct ddl_generate_request){ .model = f->model,
                                                              .tokenizer = f->tokenizer,
                                                              .config = config,
                                                              .prompt = prompt->bytes,
                                                              .size = prompt->n,
                                                              .text = on_text,
                                                              .user = &out },
                              results, &err);
    if (!status && out.failed)
        status = ddl_error_set(&err, DDL_E_MEMORY, "out of memory for %zu texts", config->n);
    if (!status && flags->json)
        print_json(out.texts, results, config->n, &f->found);
    else if (!status && !out.stream)
        print_texts(shown, out.texts, config->n);
    else if (!status)
        echo(out.prompt);
    if (out.stream && (out.begun || !status))
        printf("\n");
    for (size_t s = 0; !status && s < config->n; s++) {
        if (results[s].finish == DDL_FINISH_CONTEXT)
            fprintf(stderr, "ddl: the model's context of %zu tokens is full\n",
                    ddl_model_config(f->model)->block_size);
    }
    for (size_t s = 0; out.texts && s < config->n; s++)
        buffer_free(&out.texts[s]);
    free(out.texts);
    free(results);
    return status ? report_error(&err) : EXIT_OK;
}

/* The values of an option that are texts: pointers into the arguments. */
struct texts {
    const struct ddl_option *option;
    const char **values; /* (argc) */
    size_t n;
};

/* Whether the argument, without its "--", begins with the option's name; '-' equals '_'. */
static bool has_name(const char *argument, const char *name)
{
    while (*name && (*argument == *name || (*argument == '-' && *name == '_'))) {
        argument++;
        name++;
    }
    return *name == '\0';
}

/* Sets *value to the value of the option if argument *i is it, and advances *i to it; else to NULL. */
static ddl_status take_text(const struct ddl_option *option, int argc, char **argv, int *i,
                            const char **value, struct ddl_error *err)
{
    size_t length = strlen(option->name);
    const char *name = argv[*i] + 2;
    *value = NULL;
    if (strncmp(argv[*i], "--", 2) != 0 || !has_name(name, option->name))
        return DDL_OK;
    if (name[length] == '=')
        *value = name + length + 1;
    if (name[length] != '\0')
        return DDL_OK;
    if (*i + 1 == argc || strncmp(argv[*i + 1], "--", 2) == 0)
        return ddl_option_missing(argv[*i], option->value, err);
    *value = argv[++*i];
    return DDL_OK;
}

/* Moves the values of n options from the arguments to `texts`. */
static ddl_status take_texts(struct texts *texts, size_t n, int *argc, char **argv, struct ddl_error *err)
{
    int kept = 1;
    bool ended = false;
    for (int i = 1; i < *argc; i++) {
        const char *value = NULL;
        char *argument = argv[i];
        ended = ended || strcmp(argument, "--") == 0;
        for (size_t k = 0; !ended && !value && k < n; k++) {
            ddl_status status = take_text(texts[k].option, *argc, argv, &i, &value, err);
            if (status)
                return status;
            if (value)
                texts[k].values[texts[k].n++] = value;
        }
        if (!value)
            argv[kept++] = argument;
    }
    *argc = kept;
    return DDL_OK;
}

static ddl_status check_stops(const struct texts *stops, struct ddl_error *err)
{
    for (size_t i = 0; i < stops->n; i++) {
        if (*stops->values[i] == '\0')
            return ddl_error_set(err, DDL_E_USAGE, "--stop: an empty text stops nothing");
    }
    return DDL_OK;
}

static ddl_status parse_id(const char *text, const char *where, int32_t *id, struct ddl_error *err)
{
    static const struct ddl_option number = { "id", DDL_OPTION_SIZE, 0, 0, 0, INT32_MAX, NULL, "ID", "" };
    size_t value = 0;
    ddl_status status = ddl_option_set(&number, &value, text, where, err);
    *id = (int32_t)value;
    return status;
}

/* A token and its bias: "ID=X". */
static ddl_status parse_bias(const char *text, struct ddl_logit_bias *bias, struct ddl_error *err)
{
    static const struct ddl_option number = { "logit_bias", DDL_OPTION_FLOAT, 0, 0, 0, 0, NULL, "X", "" };
    char id[16];
    const char *equals = strchr(text, '=');
    size_t length = equals ? (size_t)(equals - text) : sizeof id;
    if (length >= sizeof id)
        return ddl_error_set(err, DDL_E_USAGE, "--logit-bias: expected ID=X, found '%s'", text);
    memcpy(id, text, length);
    id[length] = '\0';
    ddl_status status = parse_id(id, "--logit-bias", &bias->token, err);
    if (status || strcmp(equals + 1, "-inf") != 0)
        return status ? status : ddl_option_set(&number, &bias->bias, equals + 1, "--logit-bias", err);
    bias->bias = -INFINITY;
    return DDL_OK;
}

/* What the texts of --stop, --stop-id and --logit-bias are in `sampling`; ids (argc), biases (argc) = . */
static ddl_status parse_texts(const struct texts *texts, struct ddl_sampling *sampling, int32_t *ids,
                              struct ddl_logit_bias *biases, struct ddl_error *err)
{
    ddl_status status = check_stops(&texts[STOP], err);
    for (size_t i = 0; !status && i < texts[STOP_ID].n; i++)
        status = parse_id(texts[STOP_ID].values[i], "--stop-id", &ids[i], err);
    for (size_t i = 0; !status && i < texts[LOGIT_BIAS].n; i++)
        status = parse_bias(texts[LOGIT_BIAS].values[i], &biases[i], err);
    sampling->stop = texts[STOP].values;
    sampling->n_stop = texts[STOP].n;
    sampling->stop_ids = ids;
    sampling->n_stop_ids = texts[STOP_ID].n;
    sampling->bias = biases;
    sampling->n_bias = texts[LOGIT_BIAS].n;
    return status;
}

/* Generates after each line that is typed. Line i samples with seed + i, so that a repeated prompt gives
 * another text. */
static int prompt_loop(const struct folder *f, const struct flags *flags, struct ddl_generate_config config)
{
    struct line_reader *reader = line_reader_open("> ");
    struct buffer prompt = { 0 };
    int code = EXIT_OK;
    if (!reader) {
        fprintf(stderr, "ddl: out of memory\n");
        return EXIT_FAILED;
    }
    fprintf(stderr, "Each line is a prompt. Ctrl-C stops a text, Ctrl-D ends.\n");
    for (;; clear_interrupt()) {
        const char *line;
        enum line_status status = interrupted() ? LINE_CANCELLED : line_read(reader, &line, &prompt.n);
        if (interrupted() && interrupt_signal() != SIGINT)
            code = EXIT_INTERRUPTED;
        if (status == LINE_END || code == EXIT_INTERRUPTED || ferror(stdout))
            break;
        if (status == LINE_CANCELLED)
            continue;
        prompt.bytes = (char *)line;
        generate(f, flags, &config, &prompt, NULL); /* the line is the echo */
        config.sampling.seed++;
    }
    line_reader_close(reader);
    return code;
}

static int generate_once(const struct folder *f, const struct flags *flags,
                         const struct ddl_generate_config *config, const struct texts *prompts)
{
    struct ddl_error err = { 0 };
    struct buffer prompt = { 0 };
    const char *given = prompts->n ? prompts->values[prompts->n - 1] : NULL;
    ddl_status status = DDL_OK;
    if (!given)
        status = read_input(NULL, MAX_PROMPT, &prompt.bytes, &prompt.n, &err);
    else if (!buffer_add(&prompt, given, strlen(given)))
        status = ddl_error_set(&err, DDL_E_MEMORY, "--prompt: out of memory");
    int code =
        status ? report_error(&err) : generate(f, flags, config, &prompt, flags->echo ? &prompt : NULL);
    buffer_free(&prompt);
    return code;
}

/* ids, biases: (argc) for --stop-id and --logit-bias. */
static int run(int argc, char **argv, struct texts *texts, struct flags *flags, int32_t *ids,
               struct ddl_logit_bias *biases)
{
    struct ddl_error err = { 0 };
    struct ddl_generate_config config = ddl_generate_defaults();
    int n = 0;
    ddl_status status = take_texts(texts, TEXTS, &argc, argv, &err);
    if (!status)
        status = parse_texts(texts, &config.sampling, ids, biases, &err);
    if (!status)
        status = ddl_option_parse(ddl_generate_options(), &config, rows, flags, argc, argv, &n, &err);
    if (!status)
        status = check_arguments("generate", n, argv, 1, 1, "a model folder (DIR)", &err);
    if (status)
        return report_error(&err);
    bool loop = !texts[PROMPT].n && !flags->json && isatty(STDIN_FILENO) == 1;
    if (loop)
        catch_interrupts();
    struct folder folder;
    const struct folder_request request = {
        .dir = argv[1], .model = &flags->model, .needs_tokenizer = true, .quiet = flags->json
    };
    status = folder_open(&folder, &request, &err);
    int code = status ? report_error(&err)
               : loop ? prompt_loop(&folder, flags, config)
                      : generate_once(&folder, flags, &config, &texts[PROMPT]);
    folder_close(&folder);
    return code;
}

static const void *sampling_defaults(void)
{
    static struct ddl_generate_config defaults;
    defaults = ddl_generate_defaults();
    return &defaults;
}

static const void *defaults(void)
{
    static const struct flags initial = { .model = MODEL_DEFAULTS };
    return &initial;
}

static int cmd_generate(int argc, char **argv)
{
    struct flags flags = *(const struct flags *)defaults();
    const char **values = calloc((size_t)argc, TEXTS * sizeof *values);
    int32_t *ids = calloc((size_t)argc, sizeof *ids);
    struct ddl_logit_bias *biases = calloc((size_t)argc, sizeof *biases);
    int code = EXIT_FAILED;
    flags.echo = isatty(STDOUT_FILENO) == 1;
    if (values && ids && biases) {
        struct texts texts[TEXTS];
        for (int i = 0; i < TEXTS; i++)
            texts[i] = (struct texts){ &rows[i], values + i * argc, 0 };
        code = run(argc, argv, texts, &flags, ids, biases);
    } else {
        fprintf(stderr, "ddl: out of memory\n");
    }
    free(values);
    free(ids);
    free(biases);
    return code;
}

const struct command generate_command = {
    .name = "generate",
    .usage = "DIR [--which last|best|final|STEP] [--prompt TEXT] [--max-tokens N] [--temperature X] [--stop "
             "TEXT]...",
    .about = "generate text after a prompt",
    .text =
        (const char *const[]){
            "Without --prompt, the prompt is read from standard input. An empty prompt is <|endoftext|>,",
            "with which every document begins in training. If standard input is a terminal, each line typed",
            "is a prompt: Ctrl-C stops the current text, Ctrl-D exits; the seed of a line is --seed plus the",
            "number of lines before it. A single text is printed while it is generated; several texts (--n)",
            "are printed at the end. The same seed gives the same text.", NULL },
    .options = { { .table = ddl_generate_options, .defaults = sampling_defaults },
                 { .rows = rows, .defaults = defaults } },
    .examples =
        (const struct note[]){
            { "ddl generate my/run --prompt Once --temperature 0.8 --top-p 0.95", "a text after a prompt" },
            { "ddl generate my/run", "a text after each line typed" },
            { "ddl generate my/run --n 4 --json <prompt.txt", "four texts as JSON" },
            { 0 } },
    .run = cmd_generate,
};
