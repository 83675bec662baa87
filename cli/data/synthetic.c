#define _POSIX_C_SOURCE 200809L
#include "cli/data/synthetic.h"
#include "cli/output/escape.h"
#include "cli/output/terminal.h"

#include "ddl/data.h"
#include "ddl/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Beside the library's options. */
struct synthetic_flags {
    struct ddl_synthetic_config config;
    bool json, quiet;
};

static const struct ddl_option flag_rows[] = {
    { "json", DDL_OPTION_BOOL, offsetof(struct synthetic_flags, json), 0, 0, 0, NULL, NULL,
      "print the result as JSON" },
    { "quiet", DDL_OPTION_BOOL, offsetof(struct synthetic_flags, quiet), 0, 0, 0, NULL, NULL,
      "print nothing but errors (and the result with --json)" },
    { 0 },
};

static const void *defaults(void)
{
    static struct synthetic_flags flags;
    flags = (struct synthetic_flags){ .config = ddl_synthetic_defaults() };
    return &flags;
}

static int show_progress(void *user, uint64_t done, uint64_t total)
{
    struct work_line *line = user;
    if (interrupted())
        return 1;
    line->done = done;
    line->total = total;
    work_line_show(line, "synthetic", NULL);
    return 0;
}

static void print_json(const struct ddl_synthetic_config *c, const struct ddl_synthetic_result *r)
{
    static const char *const names[2] = { "train", "val" };
    const uint64_t sequences[2] = { c->sequences, c->val_sequences };
    struct ddl_json json = { stdout, false };
    ddl_json_open(&json, NULL, '{');
    ddl_json_string(&json, "task", ddl_synthetic_names[c->task]);
    ddl_json_string(&json, "out", c->out);
    ddl_json_count(&json, "length", r->length);
    ddl_json_count(&json, "vocab_size", r->vocab_size);
    for (int i = 0; i < 2; i++) {
        ddl_json_open(&json, names[i], '{');
        ddl_json_count(&json, "sequences", sequences[i]);
        ddl_json_count(&json, "problems", r->problems[i]);
        ddl_json_count(&json, "counted", r->counted[i]);
        ddl_json_close(&json, '}');
    }
    ddl_json_close(&json, '}');
    putchar('\n');
}

/* Groups that only the other split has: short problems may all be in one of them. */
static void print_lacking(const char *split, const uint64_t own[256], const uint64_t other[256])
{
    int n = 0;
    for (int group = 1; group < 256; group++) {
        if (own[group] > 0 || other[group] == 0)
            continue;
        printf("%s%s%d", n ? "," : split, n ? " " : " has no answers of group ", group);
        n++;
    }
    if (n)
        putchar('\n');
}

static void print_text(const struct ddl_synthetic_config *c, const struct ddl_synthetic_result *r)
{
    const char *out = printable(c->out);
    printf("train  %10" PRIu64 " sequences  %10" PRIu64 " problems  %12" PRIu64 " tokens counted\n",
           c->sequences, r->problems[0], r->counted[0]);
    printf("val    %10" PRIu64 " sequences  %10" PRIu64 " problems  %12" PRIu64 " tokens counted\n",
           c->val_sequences, r->problems[1], r->counted[1]);
    for (int i = 0; i < 2; i++)
        print_lacking(i ? "val" : "train", r->groups[i], r->groups[!i]);
    printf("sequences of %zu tokens, %zu tokens in %s/tokenizer.json; train with\n", r->length, r->vocab_size,
           out);
    printf("  --train-data %s --tokenizer %s --order aligned --seq %zu --block-size %zu\n", out, out,
           r->length, r->length);
}

/* The task's name, which is the only argument. */
static ddl_status find_task(struct ddl_synthetic_config *c, int n, char **argv, struct ddl_error *err)
{
    ddl_status status = check_arguments("data synthetic", n, argv, 1, 1, "a task", err);
    if (status)
        return status;
    for (c->task = 0; c->task < DDL_SYNTHETIC_KINDS; c->task++) {
        if (strcmp(ddl_synthetic_names[c->task], argv[1]) == 0)
            return DDL_OK;
    }
    return ddl_error_set(err, DDL_E_USAGE,
                         "task: expected pointer, mqar, permutation, parity, modular or reverse, found %s",
                         argv[1]);
}

static int run(int argc, char **argv)
{
    struct synthetic_flags flags = *(const struct synthetic_flags *)defaults();
    struct ddl_synthetic_result result;
    struct ddl_error err;
    int n;
    catch_interrupts();
    ddl_status status =
        ddl_option_parse(ddl_synthetic_options(), &flags.config, flag_rows, &flags, argc, argv, &n, &err);
    if (!status)
        status = find_task(&flags.config, n, argv, &err);
    struct work_line line = work_line_on_stderr("sequences", flags.quiet || flags.json);
    if (!status)
        status = ddl_data_synthetic(&flags.config, show_progress, &line, &result, &err);
    progress_line_clear(&line.line);
    if (status)
        return report_error(&err);
    if (flags.json)
        print_json(&flags.config, &result);
    else if (!flags.quiet)
        print_text(&flags.config, &result);
    return EXIT_OK;
}

static const void *config_defaults(void)
{
    return &((const struct synthetic_flags *)defaults())->config;
}

const struct command data_synthetic_command = {
    .name = "data synthetic",
    .usage = "TASK --out DIR [--key value ...]",
    .about = "write shards of a synthetic task, with masks",
    .text =
        (const char *const[]){
            "TASK is one of pointer (follow a permutation for h hops), mqar (recall the values of keys),",
            "permutation (compose permutations), parity (of bits), modular (arithmetic), reverse (symbols).",
            "Masks count the answers, in groups by the number of hops or steps: ddl eval --groups prints the",
            "accuracy of each. No problem is in both the training and the validation sequences. docs/data.md",
            "describes the tasks and what they test.", NULL },
    .options = { { .table = ddl_synthetic_options, .defaults = config_defaults }, { .rows = flag_rows } },
    .examples =
        (const struct note[]){ { "ddl data synthetic parity --steps 64 --sequences 20000 --out parity/shards",
                                 "parities of up to 64 bits" },
                               { 0 } },
    .run = run,
};
