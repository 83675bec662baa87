/* `ddl tokenizer encode`, `decode`, `info` and `train`. */
#define _POSIX_C_SOURCE 200809L
#include "cli/cli.h"
#include "cli/output/escape.h"
#include "cli/model/input.h"
#include "cli/output/terminal.h"

#include "ddl/run.h"
#include "ddl/tokenizer.h"

#include <ctype.h>
#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct flags {
    char tokenizer[1024];
    char out[1024];
    bool special, json, count, quiet, overwrite;
};

#define PLACE(f) offsetof(struct flags, f)
#define TOKENIZER_ROW                                                                                        \
    {                                                                                                        \
        "tokenizer", DDL_OPTION_PATH, PLACE(tokenizer), sizeof((struct flags *)0)->tokenizer, 0, 0, NULL,    \
            "PATH",                                                                                          \
            "tokenizer.json, or a folder with it or with vocab.bpe (empty: " DDL_TOKENIZER_SHIPPED ")"       \
    }
#define FLAG_ROW(name, help)                                                                                 \
    {                                                                                                        \
#name, DDL_OPTION_BOOL, PLACE(name), 0, 0, 0, NULL, NULL, help                                       \
    }

static const struct ddl_option encode_flags[] = {
    TOKENIZER_ROW,
    FLAG_ROW(special, "convert the text of special tokens to their ids"),
    FLAG_ROW(json, "print the ids as a JSON list"),
    FLAG_ROW(count, "print only the number of ids"),
    { 0 },
};

static const struct ddl_option decode_flags[] = { TOKENIZER_ROW, { 0 } };

static const struct ddl_option info_flags[] = {
    TOKENIZER_ROW,
    FLAG_ROW(json, "print as JSON"),
    { 0 },
};

static const struct ddl_option train_flags[] = {
    { "out", DDL_OPTION_PATH, PLACE(out), sizeof((struct flags *)0)->out, 0, 0, NULL, "PATH",
      "folder for tokenizer.json, or the file itself (NAME.json)" },
    FLAG_ROW(overwrite, "replace an existing tokenizer"),
    FLAG_ROW(quiet, "print nothing but errors"),
    { 0 },
};

/* Reads the flags; at most one positional argument, which *input gets. */
static ddl_status parse(const struct ddl_option *table, struct flags *flags, int argc, char **argv,
                        const char **input, struct ddl_error *err)
{
    int n = 0;
    *flags = (struct flags){ 0 };
    ddl_status status = ddl_option_parse(table, flags, NULL, NULL, argc, argv, &n, err);
    if (status)
        return status;
    char command[64];
    snprintf(command, sizeof command, "tokenizer %s", argv[0]);
    status = check_arguments(command, n, argv, 0, 1, "a file", err);
    if (status)
        return status;
    *input = n ? argv[1] : NULL;
    return DDL_OK;
}

static ddl_status load(ddl_tokenizer **tokenizer, const char *path, struct ddl_error *err)
{
    const char *chosen = *path ? path : DDL_TOKENIZER_SHIPPED;
    ddl_status status = ddl_run_check_tokenizer(chosen, err);
    return status ? status : ddl_tokenizer_load(tokenizer, chosen, err);
}

/* Integers only, of which there may be millions: written without a JSON tree in memory. */
static void print_ids(const struct ddl_ids *ids, bool json)
{
    if (json)
        putchar('[');
    for (size_t i = 0; i < ids->n; i++)
        printf("%s%d", i ? json ? ", " : " " : "", ids->ids[i]);
    puts(json ? "]" : "");
}

static int encode(int argc, char **argv)
{
    struct flags flags;
    struct ddl_error err;
    ddl_tokenizer *tokenizer = NULL;
    const char *input = NULL;
    char *text = NULL;
    size_t size = 0;
    struct ddl_ids ids = { 0 };
    ddl_status status = parse(encode_flags, &flags, argc, argv, &input, &err);
    if (!status)
        status = load(&tokenizer, flags.tokenizer, &err);
    if (!status)
        status = read_input(input, SIZE_MAX, &text, &size, &err);
    if (!status)
        status = ddl_tokenizer_encode(tokenizer, text, size, flags.special, &ids, &err);
    if (!status && flags.count)
        printf("%zu\n", ids.n);
    else if (!status)
        print_ids(&ids, flags.json);
    ddl_ids_free(&ids);
    free(text);
    ddl_tokenizer_free(tokenizer);
    return status ? report_error(&err) : EXIT_OK;
}

/* Parses ids separated by spaces, commas and brackets from `text`; ids[] holds (size + 1) / 2. */
static ddl_status parse_ids(const ddl_tokenizer *tokenizer, const char *name, const char *text, size_t size,
                            int32_t *ids, size_t *n_ids, struct ddl_error *err)
{
    size_t n = 0;
    for (size_t at = 0; at < size;) {
        if (isspace((unsigned char)text[at]) || (text[at] && strchr(",[]", text[at]))) {
            at++;
            continue;
        }
        char *end;
        errno = 0;
        long id = strtol(text + at, &end, 10);
        size_t length = (size_t)(end - (text + at)), n_bytes;
        if (length == 0 || (*end && !isspace((unsigned char)*end) && !strchr(",]", *end)))
            return ddl_error_set(err, DDL_E_FORMAT, "%s: byte %zu: '%.*s' is not a token id", name, at, 20,
                                 text + at);
        if (errno || id < 0 || id > INT32_MAX || !ddl_tokenizer_bytes(tokenizer, (int32_t)id, &n_bytes))
            return ddl_error_set(err, DDL_E_FORMAT,
                                 "%s: id number %zu is %.*s, not one of the vocabulary's, which ends at %zu",
                                 name, n + 1, (int)(length < 24 ? length : 24), text + at,
                                 ddl_tokenizer_vocab_size(tokenizer) - 1);
        ids[n++] = (int32_t)id;
        at += length;
    }
    *n_ids = n;
    return DDL_OK;
}

static int decode(int argc, char **argv)
{
    struct flags flags;
    struct ddl_error err;
    ddl_tokenizer *tokenizer = NULL;
    const char *input = NULL;
    char *text = NULL;
    int32_t *ids = NULL;
    size_t size = 0, n = 0;
    ddl_status status = parse(decode_flags, &flags, argc, argv, &input, &err);
    if (!status)
        status = load(&tokenizer, flags.tokenizer, &err);
    if (!status)
        status = read_input(input, SIZE_MAX, &text, &size, &err);
    if (!status) {
        ids = malloc((size / 2 + 1) * sizeof *ids);
        const char *name = input ? input : "standard input";
        status = ids ? parse_ids(tokenizer, name, text, size, ids, &n, &err)
                     : ddl_error_set(&err, DDL_E_MEMORY, "%s: out of memory for its ids", name);
    }
    for (size_t i = 0; !status && i < n; i++) {
        size_t n_bytes;
        const char *bytes = ddl_tokenizer_bytes(tokenizer, ids[i], &n_bytes);
        print_generated(stdout, bytes, n_bytes);
    }
    free(ids);
    free(text);
    ddl_tokenizer_free(tokenizer);
    return status ? report_error(&err) : EXIT_OK;
}

static void print_info_json(const ddl_tokenizer *tokenizer)
{
    json_t *specials = json_object();
    int32_t id;
    size_t size;
    const char *text;
    for (size_t i = 0; (text = ddl_tokenizer_special(tokenizer, i, &id, &size)); i++) {
        json_t *key = json_stringn(text, size);
        json_object_set_new(specials, key ? json_string_value(key) : printable_bytes(text, size),
                            json_integer(id));
        json_decref(key);
    }
    json_t *root =
        json_pack("{s:I, s:b, s:I, s:o}", "vocab_size", (json_int_t)ddl_tokenizer_vocab_size(tokenizer),
                  "characters", (int)ddl_tokenizer_is_characters(tokenizer), "merges",
                  (json_int_t)ddl_tokenizer_n_merges(tokenizer), "special_tokens", specials);
    json_dumpf(root, stdout, JSON_INDENT(2) | JSON_ENSURE_ASCII);
    putchar('\n');
    json_decref(root);
}

static int info(int argc, char **argv)
{
    struct flags flags;
    struct ddl_error err;
    ddl_tokenizer *tokenizer = NULL;
    const char *input = NULL;
    ddl_status status = parse(info_flags, &flags, argc, argv, &input, &err);
    if (!status)
        status = load(&tokenizer, input ? input : flags.tokenizer, &err);
    if (status)
        return report_error(&err);
    if (flags.json) {
        print_info_json(tokenizer);
    } else {
        int32_t id;
        size_t size;
        const char *text;
        printf("vocabulary      %zu\n", ddl_tokenizer_vocab_size(tokenizer));
        if (ddl_tokenizer_is_characters(tokenizer))
            printf("kind            characters\n");
        printf("merges          %zu\n", ddl_tokenizer_n_merges(tokenizer));
        for (size_t i = 0; (text = ddl_tokenizer_special(tokenizer, i, &id, &size)); i++)
            printf("special token   %d  %s\n", id, printable_bytes(text, size));
    }
    ddl_tokenizer_free(tokenizer);
    return EXIT_OK;
}

static void add_counting(struct line_fields *fields, const struct ddl_tokenizer_train_progress *p)
{
    char total[32] = "";
    if (p->bytes_total)
        snprintf(total, sizeof total, " of %.1f", 1e-6 * (double)p->bytes_total);
    add_field(fields, 0, "counting  %.1f%s MB", 1e-6 * (double)p->bytes_in, total);
    add_field(fields, 1, "%.1f MB/s", 1e-6 * (double)p->bytes_in / p->seconds);
    add_field(fields, 2, "%zu distinct pieces", p->words);
}

static int show_progress(void *user, const struct ddl_tokenizer_train_progress *p)
{
    struct progress_line *line = user;
    if (interrupted())
        return 1;
    if (!progress_line_due(line))
        return 0;
    struct line_fields fields = { 0 };
    if (p->vocab)
        add_field(&fields, 0, "learning  %zu of %zu tokens", p->vocab, p->vocab_size);
    else
        add_counting(&fields, p);
    progress_line_show(line, &fields);
    return 0;
}

/* Checked before minutes of training: the nearest existing folder above `path` must be writable. */
static ddl_status check_writable(const char *path, struct ddl_error *err)
{
    char folder[1024];
    snprintf(folder, sizeof folder, "%s", path);
    struct stat is;
    while (stat(folder, &is) != 0 || !S_ISDIR(is.st_mode)) {
        char *slash = strrchr(folder, '/');
        if (!slash)
            strcpy(folder, ".");
        else if (slash == folder)
            strcpy(folder, "/");
        else
            *slash = '\0';
    }
    if (access(folder, W_OK) == 0)
        return DDL_OK;
    return ddl_error_set(err, DDL_E_IO, "%s: cannot write in %s: %s", path, folder, strerror(errno));
}

/* Checked before the training, too. */
static ddl_status check_new(const struct flags *flags, char *const *inputs, int n, struct ddl_error *err)
{
    char file[1024];
    struct stat is, input;
    ddl_status status = ddl_tokenizer_file(file, sizeof file, flags->out, err);
    const bool exists = !status && stat(file, &is) == 0;
    for (int i = 0; i < n && exists; i++) {
        if (stat(inputs[i], &input) == 0 && input.st_dev == is.st_dev && input.st_ino == is.st_ino)
            return ddl_error_set(err, DDL_E_USAGE, "%s: is an input: choose another path", file);
    }
    if (status || flags->overwrite || (access(file, F_OK) != 0 && (errno == ENOENT || errno == ENOTDIR)))
        return status;
    return ddl_error_set(err, DDL_E_USAGE, "%s: exists already: choose another path or use --overwrite",
                         file);
}

static const void *train_defaults(void)
{
    static struct ddl_tokenizer_train_config defaults;
    defaults = ddl_tokenizer_train_defaults();
    return &defaults;
}

/* --characters determines the vocabulary. */
static ddl_status check_effects(const struct ddl_tokenizer_train_config *config, const bool *given,
                                struct ddl_error *err)
{
    static const char *const of_merges[] = { "vocab_size", "min_frequency", NULL };
    return config->characters
               ? check_needs(ddl_tokenizer_train_options(), given, of_merges, "--no-characters", err)
               : DDL_OK;
}

static int train(int argc, char **argv)
{
    struct flags flags = { .out = "" };
    struct ddl_tokenizer_train_config config = ddl_tokenizer_train_defaults();
    struct ddl_error err;
    ddl_tokenizer *tokenizer = NULL;
    bool given[32]; /* more than there are rows */
    int n = 0;
    ddl_option_find_given(ddl_tokenizer_train_options(), train_flags, argc, argv, given);
    ddl_status status =
        ddl_option_parse(ddl_tokenizer_train_options(), &config, train_flags, &flags, argc, argv, &n, &err);
    if (!status && !*flags.out)
        status = ddl_option_missing("tokenizer train", "--out PATH", &err);
    if (!status)
        status = check_arguments("tokenizer train", n, argv, 1, INT_MAX,
                                 "files, folders, or - for standard input", &err);
    if (!status)
        status = check_effects(&config, given, &err);
    if (!status)
        status = check_new(&flags, argv + 1, n, &err);
    if (!status)
        status = check_writable(flags.out, &err);
    if (status)
        return report_error(&err);
    struct progress_line line = progress_line_on_stderr(flags.quiet);
    catch_interrupts();
    status = ddl_tokenizer_train(&tokenizer, &config, (const char *const *)argv + 1, (size_t)n, show_progress,
                                 &line, &err);
    progress_line_clear(&line);
    if (!status)
        status = ddl_tokenizer_save(tokenizer, flags.out, &err);
    if (!status && !flags.quiet) {
        size_t vocab = ddl_tokenizer_vocab_size(tokenizer);
        if (vocab < config.vocab_size && !config.characters)
            fprintf(stderr, "ddl: %zu of %zu tokens: no pair is left that occurs often enough\n", vocab,
                    config.vocab_size);
        printf("%s: vocabulary %zu, merges %zu\n", printable(flags.out), vocab,
               ddl_tokenizer_n_merges(tokenizer));
    }
    ddl_tokenizer_free(tokenizer);
    return status ? report_error(&err) : EXIT_OK;
}

static const struct command encode_command = {
    .name = "tokenizer encode",
    .usage = "[FILE]",
    .about = "convert text (standard input without FILE) to ids on one line",
    .options = { { .rows = encode_flags } },
    .run = encode,
};

static const struct command decode_command = {
    .name = "tokenizer decode",
    .usage = "[FILE]",
    .about = "convert ids, separated by spaces or commas, to text",
    .options = { { .rows = decode_flags } },
    .run = decode,
};

static const struct command tokenizer_info_command = {
    .name = "tokenizer info",
    .usage = "[PATH]",
    .about = "print the vocabulary size, merges and special tokens of a tokenizer",
    .options = { { .rows = info_flags } },
    .run = info,
};

static const struct command tokenizer_train_command = {
    .name = "tokenizer train",
    .usage = "--out PATH INPUT ...",
    .about = "train a byte-level BPE tokenizer on text or JSON lines, or collect its characters",
    .text = (const char *const[]){ INPUT_TEXT, NULL },
    .options = { { .table = ddl_tokenizer_train_options, .defaults = train_defaults },
                 { .rows = train_flags } },
    .run = train,
};

const struct command tokenizer_command = {
    .name = "tokenizer",
    .usage = "encode | decode | info | train ...",
    .about = "convert text to ids and back; train a tokenizer",
    .text =
        (const char *const[]){ "The default tokenizer is GPT-2's, which is part of the distribution.", NULL },
    .actions = (const struct command *const[]){ &encode_command, &decode_command, &tokenizer_info_command,
                                                &tokenizer_train_command, NULL },
    .examples =
        (const struct note[]){ { "ddl tokenizer train corpus.txt --vocab-size 8192 --out my/tokenizer.json",
                                 "train a tokenizer" },
                               { "ddl tokenizer encode corpus.txt --count", "count the tokens of a text" },
                               { 0 } },
};
