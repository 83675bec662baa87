/* `ddl data build` and `ddl data info`. */
#define _POSIX_C_SOURCE 200809L
#include "cli/data/build_ranks.h"
#include "cli/data/synthetic.h"
#include "cli/cli.h"
#include "cli/output/escape.h"
#include "cli/model/shards.h"
#include "cli/output/terminal.h"

#include "ddl/data.h"
#include "ddl/run.h"

#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* What the subcommands have beside the library's options. */
struct data_flags {
    bool json;
    size_t vocab;         /* info; 0: not given */
    char tokenizer[1024]; /* info               */
    int format;           /* info; enum ddl_shards_format */
};

static const struct ddl_option build_flags[] = {
    { "json", DDL_OPTION_BOOL, offsetof(struct data_flags, json), 0, 0, 0, NULL, NULL,
      "print the result as JSON" },
    { 0 },
};

static const struct ddl_option info_flags[] = {
    { "json", DDL_OPTION_BOOL, offsetof(struct data_flags, json), 0, 0, 0, NULL, NULL,
      "print the result as JSON" },
    { "vocab", DDL_OPTION_SIZE, offsetof(struct data_flags, vocab), 0, 1, 2147483647, NULL, "N",
      "vocabulary size: report token ids of N or more" },
    FORMAT_ROW(struct data_flags),
    { "tokenizer", DDL_OPTION_PATH, offsetof(struct data_flags, tokenizer),
      sizeof((struct data_flags *)0)->tokenizer, 0, 0, NULL, "PATH",
      "tokenizer that defines the vocabulary and the token that begins a document, a file, a folder "
      "or " DDL_TOKENIZER_SHIPPED " (empty: the shards' own, if recorded)" },
    { 0 },
};

struct display {
    struct progress_line line;
    double bytes_shown, seconds_shown; /* when the line was last written */
    double rate;                       /* bytes per second, lately */
    bool merging;                      /* the bytes are those of tokens */
};

static void update_rate(struct display *d, const struct ddl_build_progress *p)
{
    if (p->merging != d->merging) { /* other bytes */
        d->merging = p->merging;
        d->bytes_shown = d->rate = 0;
    }
    double rate = ((double)p->bytes_in - d->bytes_shown) / (p->seconds - d->seconds_shown);
    d->rate = d->rate > 0 ? 0.8 * d->rate + 0.2 * rate : rate;
    d->bytes_shown = (double)p->bytes_in;
    d->seconds_shown = p->seconds;
}

static int show_progress(void *user, const struct ddl_build_progress *p)
{
    struct display *d = user;
    if (interrupted())
        return 1;
    if (!progress_line_due(&d->line))
        return 0;
    update_rate(d, p);
    struct line_fields fields = { 0 };
    if (p->bytes_total > 0)
        add_field(&fields, 0, "%s%3.0f%% of %.1f MB", p->merging ? "shards: " : "",
                  100 * (double)p->bytes_in / (double)p->bytes_total, 1e-6 * (double)p->bytes_total);
    else
        add_field(&fields, 0, "%.1f MB", 1e-6 * (double)p->bytes_in);
    add_field(&fields, 2, "%.1f MB/s", 1e-6 * d->rate);
    add_field(&fields, 3, "%" PRIu64 " documents", p->documents);
    add_field(&fields, 4, "%.2f M tokens", 1e-6 * (double)p->tokens);
    if (p->bytes_total > 0 && d->rate > 0) {
        char left[32];
        format_seconds(((double)p->bytes_total - (double)p->bytes_in) / d->rate, left, sizeof left);
        add_field(&fields, 1, "%s left", left);
    }
    progress_line_show(&d->line, &fields);
    return 0;
}

static const char *const split_names[2] = { "train", "val" };

/* A path that is not UTF-8 is written with escapes. */
static json_t *path_json(const char *path)
{
    json_t *text = json_string(path);
    return text ? text : json_string(printable(path));
}

static void print_build_json(const struct ddl_build_config *c, const struct ddl_build_result *r)
{
    json_t *root =
        json_pack("{s:o, s:b, s:I, s:I, s:I, s:I, s:i, s:I, s:s?, s:f}", "out", path_json(c->out), "complete",
                  r->complete, "parts", (json_int_t)r->parts, "parts_encoded", (json_int_t)r->parts_encoded,
                  "parts_kept", (json_int_t)r->parts_kept, "parts_finished", (json_int_t)r->parts_finished,
                  "bytes_per_token", r->bytes_per_token, "skipped", (json_int_t)r->skipped, "end_held_out",
                  r->end_held_out, "seconds", r->seconds);
    for (int i = 0; i < 2; i++)
        json_object_set_new(root, split_names[i],
                            json_pack("{s:I, s:I, s:I, s:I}", "documents", (json_int_t)r->documents[i],
                                      "bytes", (json_int_t)r->bytes[i], "tokens", (json_int_t)r->tokens[i],
                                      "shards", (json_int_t)r->shards[i]));
    json_dumpf(root, stdout, JSON_INDENT(2) | JSON_ENSURE_ASCII);
    putchar('\n');
    json_decref(root);
}

static void print_build(const struct ddl_build_config *c, const struct ddl_build_result *r)
{
    uint64_t tokens = r->tokens[0] + r->tokens[1], bytes = r->bytes[0] + r->bytes[1];
    uint64_t documents = r->documents[0] + r->documents[1];
    if (r->parts_kept > 0)
        printf("%zu of %zu parts were finished by an earlier process\n", r->parts_kept, r->parts);
    if (!r->complete) {
        printf("%zu of %zu parts are finished; the process that ends last writes the shards\n",
               r->parts_finished, r->parts);
        return;
    }
    for (int i = 0; i < 2; i++) {
        if (r->shards[i] > 0)
            printf("%-5s  %10" PRIu64 " documents  %14" PRIu64 " bytes  %13" PRIu64
                   " tokens  %zu shard%s: %s/%s_*.bin\n",
                   split_names[i], r->documents[i], r->bytes[i], r->tokens[i], r->shards[i],
                   r->shards[i] == 1 ? "" : "s", printable(c->out), split_names[i]);
    }
    printf("%.3f bytes a token, uint%d; %.1f s", (double)bytes / (double)(tokens - documents),
           8 * r->bytes_per_token, r->seconds);
    if (r->parts_encoded == r->parts)
        printf(", %.1f MB of text a second", 1e-6 * (double)bytes / r->seconds);
    putchar('\n');
    if (r->skipped > 0)
        printf("%" PRIu64 " empty document%s skipped\n", r->skipped, r->skipped == 1 ? "" : "s");
    if (r->end_held_out)
        fprintf(stderr,
                "ddl: too few documents to hold out %g of them: validation is the end of the text, %.2g %% "
                "of its "
                "tokens, from the start of a %s\n",
                c->val_fraction, 100 * (double)r->tokens[1] / (double)tokens, r->end_held_out);
}

static const void *build_defaults(void)
{
    static struct ddl_build_config defaults;
    defaults = ddl_build_defaults();
    return &defaults;
}

static ddl_status parse_build(struct ddl_build_config *config, struct data_flags *flags, int argc,
                              char **argv, int *n, struct ddl_error *err)
{
    ddl_status status = ddl_option_parse(ddl_build_options(), config, build_flags, flags, argc, argv, n, err);
    return status || !*config->tokenizer ? status : ddl_run_check_tokenizer(config->tokenizer, err);
}

/* The ranks have one result; rank 0 shows it, and its own progress. */
static int build_rank(ddl_comm *comm, int argc, char **argv)
{
    struct ddl_build_config config = ddl_build_defaults();
    struct data_flags flags = { 0 };
    struct ddl_build_result result;
    struct ddl_error err = { 0 };
    int n = 0;
    bool shows = ddl_comm_rank(comm) == 0;
    ddl_status status = ddl_comm_agree(comm, parse_build(&config, &flags, argc, argv, &n, &err), &err);
    if (!status) {
        struct display display = { .line = progress_line_on_stderr(config.quiet || !shows) };
        status = build_by_ranks(comm, &config, (const char *const *)(argv + 1), (size_t)n, show_progress,
                                &display, &result, &err);
        progress_line_clear(&display.line);
    }
    if (status)
        return report_agreed(comm, &err);
    if (!shows)
        return EXIT_OK;
    if (flags.json)
        print_build_json(&config, &result);
    else if (!config.quiet)
        print_build(&config, &result);
    return EXIT_OK;
}

static int build(int argc, char **argv)
{
    catch_interrupts();
    return on_ranks(build_rank, argc, argv);
}

/* Tokens of a document without its <|endoftext|>; NaN where there is none. */
static double mean_length(const struct ddl_shard_stats *stats)
{
    return stats->documents ? (double)(stats->tokens - stats->documents) / (double)stats->documents
                            : (double)NAN;
}

static json_t *groups_json(const struct ddl_shard_stats *stats)
{
    json_t *groups = json_object();
    for (int g = 1; g < DDL_MASK_GROUPS; g++) {
        char name[12];
        snprintf(name, sizeof name, "%d", g);
        if (stats->groups[g])
            json_object_set_new(groups, name, json_integer((json_int_t)stats->groups[g]));
    }
    return groups;
}

static json_t *stats_json(const char *path, int width, const struct ddl_shard_stats *stats)
{
    json_t *row =
        json_pack("{s:o, s:I, s:I, s:I}", "path", path_json(path), "tokens", (json_int_t)stats->tokens,
                  "largest_token", (json_int_t)stats->largest, "documents", (json_int_t)stats->documents);
    if (width)
        json_object_set_new(row, "bytes_per_token", json_integer(width));
    json_object_set_new(row, "mean_document_tokens",
                        stats->documents ? json_real(mean_length(stats)) : json_null());
    if (stats->masked)
        json_object_set_new(row, "groups", groups_json(stats));
    return row;
}

static void print_stats(const char *path, int width, const struct ddl_shard_stats *stats)
{
    char kind[16] = "";
    if (width)
        snprintf(kind, sizeof kind, "uint%d", 8 * width);
    printf("%13" PRIu64 " tokens  %-6s  largest %7" PRIu32 "  %9" PRIu64 " documents", stats->tokens, kind,
           stats->largest, stats->documents);
    if (stats->documents)
        printf("  mean length %8.1f", mean_length(stats));
    else
        printf("  %20s", "");
    printf("  %s\n", printable(path));
    if (!stats->masked)
        return;
    printf("%13" PRIu64 " tokens counted by the mask, by group:", stats->tokens - stats->groups[0]);
    for (int g = 1; g < DDL_MASK_GROUPS; g++) {
        if (stats->groups[g])
            printf(" %d: %" PRIu64, g, stats->groups[g]);
    }
    putchar('\n');
}

/* Progress of a scan of shards. */
static int show_scan(void *user, uint64_t done, uint64_t total)
{
    struct progress_line *line = user;
    if (progress_line_due(line)) {
        struct line_fields fields = { 0 };
        add_field(&fields, 0, "%3.0f%% of %" PRIu64 " tokens read", 100 * (double)done / (double)total,
                  total);
        progress_line_show(line, &fields);
    }
    return 0;
}

static void print_file(const ddl_shards *shards, size_t i, const struct ddl_shard_stats *stats, json_t *files)
{
    int width;
    const char *path = ddl_shards_file(shards, i, NULL, &width);
    if (files)
        json_array_append_new(files, stats_json(path, width, stats));
    else
        print_stats(path, width, stats);
}

/* Into *all, printed file by file or collected in `files`. */
static void scan_files(const ddl_shards *shards, int32_t end_of_text, struct ddl_shard_stats *all,
                       json_t *files)
{
    struct progress_line line = progress_line_on_stderr(isatty(STDERR_FILENO) != 1);
    for (size_t i = 0; i < ddl_shards_n_files(shards); i++) {
        struct ddl_shard_stats stats;
        (void)ddl_shards_scan(shards, i, end_of_text, &stats, show_scan, &line, NULL); /* never stopped */
        progress_line_clear(&line);
        all->tokens += stats.tokens;
        all->documents += stats.documents;
        all->masked = all->masked || stats.masked;
        for (int g = 0; g < DDL_MASK_GROUPS; g++)
            all->groups[g] += stats.groups[g];
        if (stats.largest > all->largest)
            all->largest = stats.largest;
        print_file(shards, i, &stats, files);
    }
}

/* `id`: of the tokenizer, with an empty sha256 if it is not known. */
static void print_info(const ddl_shards *shards, const char *name, const struct ddl_tokenizer_identity *id,
                       bool as_json)
{
    struct ddl_shard_stats all = { 0 };
    json_t *files = as_json ? json_array() : NULL;
    scan_files(shards, id->end_of_text, &all, files);
    if (as_json) {
        json_t *root = stats_json(name, 0, &all);
        json_object_set_new(root, "end_of_text", json_integer(id->end_of_text));
        if (*id->sha256)
            json_object_set_new(root, "tokenizer_sha256", json_string(id->sha256));
        json_object_set(root, "files", files);
        json_dumpf(root, stdout, JSON_INDENT(2) | JSON_ENSURE_ASCII);
        putchar('\n');
        json_decref(root);
    } else {
        if (ddl_shards_n_files(shards) > 1)
            print_stats(name, 0, &all);
        if (*id->sha256)
            printf("tokenizer %s: %zu tokens, SHA-256 %.12s\n", printable(id->name), id->vocab_size,
                   id->sha256);
        if (*id->sha256 || (int64_t)all.largest >= id->end_of_text)
            printf("documents are counted by token %" PRId32 "\n", id->end_of_text);
        else
            printf("documents are not counted: token %" PRId32
                   " does not occur, and there is no record of the "
                   "tokenizer\n",
                   id->end_of_text);
    }
    json_decref(files);
}

/* What the shards are checked with: the number of tokens, and the token that begins a document. Of
 * --tokenizer, else of the record that a build has left beside the shards, else by their format. */
static ddl_status find_vocabulary(const struct data_flags *flags, const ddl_shards *shards,
                                  struct ddl_tokenizer_identity *id, struct ddl_error *err)
{
    ddl_tokenizer *tokenizer = NULL;
    ddl_status status = DDL_OK;
    if (*flags->tokenizer) {
        status = ddl_run_check_tokenizer(flags->tokenizer, err);
        if (!status)
            status = ddl_tokenizer_load(&tokenizer, flags->tokenizer, err);
        if (!status)
            status = ddl_tokenizer_identify(tokenizer, flags->tokenizer, id, err);
        ddl_tokenizer_free(tokenizer);
    } else {
        status = ddl_shards_identity(shards, id, err);
    }
    if (status)
        return status;
    if (!*id->sha256) {
        id->vocab_size = (size_t)INT32_MAX + 1; /* what a token can be */
        id->end_of_text = ddl_shards_usual_end_of_text(shards);
    }
    return DDL_OK;
}

static int info(int argc, char **argv)
{
    struct data_flags flags = { 0 };
    struct ddl_error err;
    ddl_shards *shards = NULL;
    struct ddl_tokenizer_identity id;
    int n;
    char path[4096];
    ddl_status status = ddl_option_parse(info_flags, &flags, NULL, NULL, argc, argv, &n, &err);
    if (!status)
        status = check_arguments("data info", n, argv, 1, INT_MAX, "shards, a folder or a pattern", &err);
    if (!status)
        status = ddl_option_join_paths((const char *const *)(argv + 1), (size_t)n, "data info", path,
                                       sizeof path, &err);
    catch_interrupts();
    exit_on_interrupt(true); /* nothing is written */
    if (!status)
        status =
            ddl_shards_open_with(&shards, path, &(struct ddl_shards_options){ .format = flags.format }, &err);
    if (!status)
        status = find_vocabulary(&flags, shards, &id, &err);
    if (!status) {
        report_assumed(shards);
        print_info(shards, path, &id, flags.json);
        status = ddl_shards_check(shards, flags.vocab ? flags.vocab : id.vocab_size, NULL, NULL, &err);
    }
    ddl_shards_close(shards);
    return status ? report_error(&err) : EXIT_OK;
}

static const struct command data_build_command = {
    .name = "data build",
    .usage = "INPUT... --out DIR [--key value ...]",
    .about = "convert text to shards of tokens",
    .text =
        (const char *const[]){
            INPUT_TEXT,
            "The shards appear when all of them are complete. Finished parts of a build that was interrupted",
            "are kept in DIR/.build, except those of standard input: the same command continues.",
            "Several processes can share the work: start the command N times, with --shard 0/N, 1/N and so",
            "on. The process that ends last writes the shards. Processes that mpirun or srun starts together",
            "need no --shard: they divide the parts among them.", NULL },
    .options = { { .table = ddl_build_options, .defaults = build_defaults }, { .rows = build_flags } },
    .processes = ALL_PROCESSES,
    .run = build,
};

static const struct command data_info_command = {
    .name = "data info",
    .usage = "PATH ... [--vocab N | --tokenizer PATH] [--format NAME] [--json]",
    .about = "describe and check shards",
    .text = (const char *const[]){ "PATH is a shard, a folder, or a pattern. All shards of a folder are "
                                   "listed, for training and for "
                                   "validation.",
                                   "The exit status is 1 if a shard is corrupted.", NULL },
    .options = { { .rows = info_flags } },
    .run = info,
};

const struct command data_command = {
    .name = "data",
    .usage = "build | info | synthetic ...",
    .about = "make shards of tokens from text or of synthetic tasks; inspect them",
    .actions = (const struct command *const[]){ &data_build_command, &data_info_command,
                                                &data_synthetic_command, NULL },
    .examples =
        (const struct note[]){ { "ddl data build corpus.jsonl.zst --tokenizer my/tokenizer.json "
                                 "--val-fraction 0.01 --out my/shards",
                                 "training shards, and validation shards with 1 % of the documents" },
                               { "ddl data build corpus --shard 2/8 --out my/shards",
                                 "the third of eight processes, which may run on different machines" },
                               { "mpirun -n 8 ddl data build corpus --out my/shards", "all eight of them" },
                               { "ddl data synthetic pointer --pairs 8 --out pointer/shards",
                                 "sequences in which pointers are followed" },
                               { "ddl data info my/shards", "their contents, and a check for corruption" },
                               { 0 } },
};
