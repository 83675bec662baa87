/* ddl generate: text that follows a prompt. */
#define _POSIX_C_SOURCE 200809L
#include "cli.h"
#include "ddl/generate.h"
#include "ddl/json.h"
#include "folder.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PROMPT = 64 << 20 };

struct flags {
    char prompt[65536], tokenizer[4096], backend[32];
    bool ignore_extra;
    size_t threads;
    int dtype; /* enum ddl_precision */
    bool json;
};

#define AT(field) offsetof(struct flags, field)
static const struct ddl_option rows[] = {
    { "prompt", DDL_OPTION_STRING, AT(prompt), 65536, 0, 0, NULL, "TEXT",
      "prompt (without this option: standard input)" },
    { "tokenizer", DDL_OPTION_STRING, AT(tokenizer), 4096, 0, 0, NULL, "PATH",
      "tokenizer (empty: the one in the model folder)" },
    { "ignore_extra", DDL_OPTION_BOOL, AT(ignore_extra), 0, 0, 0, NULL, NULL,
      "ignore tensors that are not parameters" },
    { "backend", DDL_OPTION_STRING, AT(backend), 32, 0, 0, NULL, "NAME", DDL_BACKEND_HELP },
    { "threads", DDL_OPTION_SIZE, AT(threads), 0, 0, 4096, NULL, "N", "threads (0: one per core)" },
    { "dtype", DDL_OPTION_CHOICE, AT(dtype), 0, 0, 0, ddl_precision_names, "NAME", "format of the weights" },
    { "json", DDL_OPTION_BOOL, AT(json), 0, 0, 0, NULL, NULL, "print all texts as JSON at the end" },
    { 0 },
};

/* For the help only: --stop may be repeated, which a field of a table cannot hold (take_stops). */
static const struct ddl_option stop_rows[] = {
    { .name = "stop",
      .type = DDL_OPTION_STRING,
      .value = "TEXT",
      .help = "end the text before TEXT; may be repeated" },
    { 0 },
};

struct text {
    char *bytes;
    size_t n, capacity;
};

static bool append(struct text *t, const char *bytes, size_t n)
{
    if (n > t->capacity - t->n) {
        size_t capacity = 2 * (t->n + n);
        char *grown = realloc(t->bytes, capacity);
        if (!grown)
            return false;
        t->bytes = grown;
        t->capacity = capacity;
    }
    if (n)
        memcpy(t->bytes + t->n, bytes, n);
    t->n += n;
    return true;
}

static ddl_status read_input(struct text *prompt, struct ddl_error *err)
{
    char piece[65536];
    for (size_t n; (n = fread(piece, 1, sizeof piece, stdin)) > 0;) {
        if (prompt->n + n > MAX_PROMPT)
            return ddl_error_set(err, DDL_E_USAGE, "standard input: longer than %d bytes", MAX_PROMPT);
        if (!append(prompt, piece, n))
            return ddl_error_set(err, DDL_E_MEMORY, "standard input: out of memory");
    }
    if (ferror(stdin))
        return ddl_error_set(err, DDL_E_IO, "standard input: cannot be read");
    return DDL_OK;
}

/* ---- output ---- */

/* One sequence is printed as it is made; several are kept, so that they do not mix. */
struct output {
    bool stream, failed;
    struct text *texts;
};

static int on_text(void *user, size_t sequence, const char *text, size_t size)
{
    struct output *out = user;
    if (!out->stream) {
        out->failed = out->failed || !append(&out->texts[sequence], text, size);
        return out->failed;
    }
    fwrite(text, 1, size, stdout);
    return fflush(stdout) != 0; /* the reader has closed the pipe */
}

static void print_json(const struct text *texts, const struct ddl_generate_result *results, size_t n)
{
    fputs("[", stdout);
    for (size_t s = 0; s < n; s++) {
        struct ddl_json json = { stdout, false };
        fputs(s ? ",\n  " : "\n  ", stdout); /* a line for each text */
        ddl_json_open(&json, NULL, '{');
        ddl_json_text(&json, "text", texts[s].n ? texts[s].bytes : "", texts[s].n);
        ddl_json_count(&json, "prompt_tokens", results[s].prompt_tokens);
        ddl_json_count(&json, "tokens", results[s].tokens);
        ddl_json_string(&json, "finish", ddl_finish_name(results[s].finish));
        ddl_json_close(&json, '}');
    }
    fputs("\n]\n", stdout);
}

static void print_texts(const struct text *texts, size_t n)
{
    for (size_t s = 0; s < n; s++) {
        printf("--- %zu\n", s + 1);
        if (texts[s].n)
            fwrite(texts[s].bytes, 1, texts[s].n, stdout);
        printf("\n");
    }
}

static int generate(const struct folder *f, const struct flags *flags,
                    const struct ddl_generate_config *config, const struct text *prompt)
{
    struct ddl_error err = { 0 };
    struct output out = { .stream = !flags->json && config->n == 1 };
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
        print_json(out.texts, results, config->n);
    else if (!status && !out.stream)
        print_texts(out.texts, config->n);
    else if (out.stream)
        printf("\n");
    for (size_t s = 0; !status && s < config->n; s++) {
        if (results[s].finish == DDL_FINISH_CONTEXT)
            fprintf(stderr, "ddl: the model's context of %zu tokens is full\n",
                    ddl_model_config(f->model)->block_size);
    }
    for (size_t s = 0; out.texts && s < config->n; s++)
        free(out.texts[s].bytes);
    free(out.texts);
    free(results);
    return status ? report_error(&err) : EXIT_OK;
}

/* Takes every --stop from the arguments. */
static ddl_status take_stops(int *argc, char **argv, const char **stops, size_t *n, struct ddl_error *err)
{
    int kept = 1;
    bool ended = false;
    for (int i = 1; i < *argc; i++) {
        ended = ended || strcmp(argv[i], "--") == 0;
        if (!ended && strcmp(argv[i], "--stop") == 0) {
            if (i + 1 == *argc)
                return ddl_error_set(err, DDL_E_USAGE, "--stop: needs a value (TEXT)");
            stops[(*n)++] = argv[++i];
        } else if (!ended && strncmp(argv[i], "--stop=", 7) == 0) {
            stops[(*n)++] = argv[i] + 7;
        } else {
            argv[kept++] = argv[i];
        }
    }
    for (size_t i = 0; i < *n; i++) {
        if (*stops[i] == '\0')
            return ddl_error_set(err, DDL_E_USAGE, "--stop: an empty text stops nothing");
    }
    *argc = kept;
    return DDL_OK;
}

static int run(int argc, char **argv, const char **stops, struct flags *flags)
{
    struct ddl_error err = { 0 };
    struct ddl_generate_config config = ddl_generate_defaults();
    int n = 0;
    ddl_status status = take_stops(&argc, argv, stops, &config.n_stop, &err);
    config.stop = stops;
    if (!status)
        status = ddl_option_parse(ddl_generate_options(), &config, rows, flags, argc, argv, &n, &err);
    if (!status && n != 1)
        status = ddl_error_set(&err, DDL_E_USAGE, "generate: one model folder is needed, found %d", n);
    if (status)
        return report_error(&err);
    struct folder folder;
    struct text prompt = { 0 };
    int code;
    status = folder_open(&folder,
                         &(struct folder_request){ argv[1], flags->tokenizer, true, flags->ignore_extra,
                                                   flags->backend, flags->threads, flags->dtype },
                         &err);
    if (!status && *flags->prompt && !append(&prompt, flags->prompt, strlen(flags->prompt)))
        status = ddl_error_set(&err, DDL_E_MEMORY, "--prompt: out of memory");
    else if (!status && !*flags->prompt)
        status = read_input(&prompt, &err);
    code = status ? report_error(&err) : generate(&folder, flags, &config, &prompt);
    free(prompt.bytes);
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
    static const struct flags initial = { .backend = "cpu" };
    return &initial;
}

static int cmd_generate(int argc, char **argv)
{
    struct flags *flags = calloc(1, sizeof *flags);
    const char **stops = calloc((size_t)argc, sizeof *stops);
    int code = EXIT_FAILED;
    if (flags && stops) {
        memcpy(flags, defaults(), sizeof *flags);
        code = run(argc, argv, stops, flags);
    } else {
        fprintf(stderr, "ddl: out of memory\n");
    }
    free(stops);
    free(flags);
    return code;
}

const struct command generate_command = {
    .name = "generate",
    .usage = "DIR [--prompt TEXT] [--max-tokens N] [--temperature X] [--stop TEXT]...",
    .about = "generate text after a prompt",
    .text =
        (const char *const[]){
            "Without --prompt the prompt is standard input; an empty one stands for <|endoftext|>.",
            "A single text is printed while it is generated, several (--n) at the end. The same seed gives "
            "the same text.",
            NULL },
    .options = { { .table = ddl_generate_options, .defaults = sampling_defaults },
                 { .rows = stop_rows },
                 { .rows = rows, .defaults = defaults } },
    .examples =
        (const struct note[]){
            { "ddl generate my/run --prompt Once --temperature 0.8 --top-p 0.95", "a text after a prompt" },
            { "ddl generate my/run --n 4 --json <prompt.txt", "four texts as JSON" },
            { 0 } },
    .run = cmd_generate,
};
