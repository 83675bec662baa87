/* The options of a build. */
#include "data/build.h"

#include <string.h>

#define FIELD(name) offsetof(struct ddl_build_config, name)
#define TEXT(name) DDL_OPTION_STRING, FIELD(name), sizeof((struct ddl_build_config *)0)->name, 0, 0, NULL

const struct ddl_option *ddl_build_options(void)
{
    static const struct ddl_other_name held_out[] = {
        { "test_size", "It is a fraction of the documents, 0 to 1", DDL_OTHER_DIFFERS },
        { "val_size", "It is a fraction of the documents, 0 to 1", DDL_OTHER_DIFFERS },
        { "validation_split_percentage", "It is a fraction: percent / 100", DDL_OTHER_DIFFERS },
        { 0 },
    };
    static const struct ddl_other_name workers[] = {
        { "num_proc", NULL, DDL_OTHER_SAME },
        { "num_workers", NULL, DDL_OTHER_SAME },
        { "workers", NULL, DDL_OTHER_DIFFERS },
        { 0 },
    };
    static const struct ddl_option options[] = {
        { "out", TEXT(out), "DIR", "folder for the shards" },
        { "tokenizer", TEXT(tokenizer), "PATH", "tokenizer.json, its folder, or " DDL_TOKENIZER_SHIPPED },
        DDL_INPUT_ROWS(struct ddl_build_config),
        { "val_fraction", DDL_OPTION_DOUBLE, FIELD(val_fraction), 0, 0, 1, NULL, "FRACTION",
          "fraction of the documents to hold out in val_*.bin (with too few documents: of the tokens, "
          "from the end of the text)",
          "val_ratio val_split", .others = held_out },
        { "seed", DDL_OPTION_U64, FIELD(seed), 0, 0, 0, NULL, "N",
          "seed of the selection of held-out documents" },
        { "shard_tokens", DDL_OPTION_SIZE, FIELD(shard_tokens), 0, 1, 2147483647, NULL, "N",
          "maximum tokens per shard", "shard_size" },
        { "shard", TEXT(shard), "I/N", "encode the parts of process I of N, 0 to N - 1 (empty: all parts)" },
        { "part_bytes", DDL_OPTION_SIZE, FIELD(part_bytes), 0, 1, 1e15, NULL, "N",
          "bytes of input per part, the unit of --shard and of resuming" },
        { "threads", DDL_OPTION_SIZE, FIELD(threads), 0, 0, DDL_BUILD_MAX_THREADS, NULL, "N",
          "encoder threads (0: one per core)", DDL_THREADS_ALIASES, .others = workers },
        { "overwrite", DDL_OPTION_BOOL, FIELD(overwrite), 0, 0, 0, NULL, NULL,
          "replace the shards of an earlier build in the folder" },
        { "quiet", DDL_OPTION_BOOL, FIELD(quiet), 0, 0, 0, NULL, NULL,
          "print nothing but errors (and the result with --json)" },
        { 0 },
    };
    return options;
}

struct ddl_build_config ddl_build_defaults(void)
{
    return (struct ddl_build_config){
        .tokenizer = DDL_TOKENIZER_SHIPPED,
        .shard_tokens = 100000000,
        .part_bytes = (size_t)256 << 20,
        .input = ddl_text_input_defaults(),
    };
}

ddl_status ddl_build_check_config(const struct ddl_build_config *c, struct ddl_error *err)
{
    if (c->out[0] == '\0')
        return ddl_option_missing("data build", "--out DIR", err);
    if (!(c->val_fraction >= 0 && c->val_fraction <= 1))
        return ddl_error_set(err, DDL_E_USAGE, "--val_fraction: expected 0 to 1, found %g", c->val_fraction);
    if (c->shard_tokens == 0 || c->shard_tokens > INT32_MAX)
        return ddl_error_set(err, DDL_E_USAGE, "--shard_tokens: expected 1 to %ld, found %zu",
                             (long)INT32_MAX, c->shard_tokens);
    if (c->threads > DDL_BUILD_MAX_THREADS)
        return ddl_error_set(err, DDL_E_USAGE, "--threads: expected at most %d, found %zu",
                             DDL_BUILD_MAX_THREADS, c->threads);
    if (c->part_bytes == 0)
        return ddl_error_set(err, DDL_E_USAGE, "--part_bytes: expected at least 1, found 0");
    return ddl_text_input_check(&c->input, err);
}

json_t *ddl_build_recorded_options(const struct ddl_build_config *config, bool parts)
{
    static const char *const recorded[] = { "text_key",     "separator", "prompt_key",   "response_key",
                                            "val_fraction", "seed",      "shard_tokens", "part_bytes" };
    const size_t n = sizeof recorded / sizeof *recorded - (parts ? 0 : 1);
    json_t *options = json_object();
    for (size_t i = 0; i < n; i++) {
        const struct ddl_option *row = ddl_option_find(ddl_build_options(), recorded[i]);
        char value[512];
        ddl_option_format(row, config, value, sizeof value);
        if (!*value && strcmp(row->name, "separator") != 0)
            continue; /* no prompts: as in the records of builds before there were any */
        if (json_object_set_new(options, row->name, json_string(value)) != 0) {
            json_decref(options);
            return NULL;
        }
    }
    return options;
}
