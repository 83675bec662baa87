#define _POSIX_C_SOURCE 200809L
#include "ddl/data.h"
#include "ddl/option.h"

#include "base/clock.h"
#include "data/hold_out.h"
#include "data/reader.h"
#include "data/shard_set.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_THREADS = 1024, PROGRESS_MS = 100 };

#define FIELD(name) offsetof(struct ddl_build_config, name)
#define TEXT(name) DDL_OPTION_STRING, FIELD(name), sizeof((struct ddl_build_config *)0)->name, 0, 0, NULL

const struct ddl_option *ddl_build_options(void)
{
    static const struct ddl_option options[] = {
        { "out", TEXT(out), "DIR", "folder for the shards" },
        { "tokenizer", TEXT(tokenizer), "PATH", "tokenizer.json, or its folder" },
        DDL_INPUT_ROWS(struct ddl_build_config),
        { "val_fraction", DDL_OPTION_DOUBLE, FIELD(val_fraction), 0, 0, 1, NULL, "FRACTION",
          "fraction of the documents to hold out in val_*.bin (with too few documents: of the tokens, "
          "from the end of the text)" },
        { "seed", DDL_OPTION_U64, FIELD(seed), 0, 0, 0, NULL, "N",
          "seed of the selection of held-out documents" },
        { "shard_tokens", DDL_OPTION_SIZE, FIELD(shard_tokens), 0, 1, 2147483647, NULL, "N",
          "maximum tokens per shard" },
        { "threads", DDL_OPTION_SIZE, FIELD(threads), 0, 0, MAX_THREADS, NULL, "N",
          "encoder threads (0: one per core)", DDL_THREADS_ALIASES },
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
        .tokenizer = "data/tokenizer",
        .shard_tokens = 100000000,
        .input = ddl_text_input_defaults(),
    };
}

struct build {
    const struct ddl_build_config *config;
    struct ddl_inputs inputs;
    ddl_tokenizer *tokenizer;
    int32_t end_of_text;
    struct ddl_pipeline pipeline;
    struct ddl_reader reader;
    struct ddl_shard_set set;
    struct ddl_build_result result;
    /* progress */
    ddl_build_progress_fn *progress;
    void *user;
    uint64_t bytes_in;
    double start, reported;
};

static ddl_status check_config(const struct ddl_build_config *c, struct ddl_error *err)
{
    if (c->out[0] == '\0')
        return ddl_option_missing("data build", "--out DIR", err);
    if (!(c->val_fraction >= 0 && c->val_fraction <= 1))
        return ddl_error_set(err, DDL_E_USAGE, "--val_fraction: expected 0 to 1, found %g", c->val_fraction);
    if (c->shard_tokens == 0 || c->shard_tokens > INT32_MAX)
        return ddl_error_set(err, DDL_E_USAGE, "--shard_tokens: expected 1 to %ld, found %zu",
                             (long)INT32_MAX, c->shard_tokens);
    if (c->threads > MAX_THREADS)
        return ddl_error_set(err, DDL_E_USAGE, "--threads: expected at most %d, found %zu", MAX_THREADS,
                             c->threads);
    return ddl_text_input_check(&c->input, err);
}

static ddl_status show_progress(struct build *b, bool always, struct ddl_error *err)
{
    double t = ddl_clock_seconds();
    if (!b->progress || (!always && t - b->reported < 1e-3 * PROGRESS_MS))
        return DDL_OK;
    b->reported = t;
    struct ddl_build_progress p = {
        .bytes_in = b->bytes_in,
        .bytes_total = b->inputs.bytes,
        .documents = b->result.documents[0] + b->result.documents[1],
        .tokens = b->result.tokens[0] + b->result.tokens[1],
        .seconds = t - b->start,
    };
    if (b->progress(b->user, &p) != 0)
        return ddl_error_set(err, DDL_E_INTERRUPTED, "interrupted; nothing was written to %s",
                             b->config->out);
    return DDL_OK;
}

static ddl_status write_batch(struct build *b, const struct ddl_text_batch *batch, struct ddl_error *err)
{
    if (batch->status) {
        if (err)
            *err = batch->err;
        return batch->status;
    }
    for (int split = 0; split < DDL_SPLITS; split++) {
        const struct ddl_ids *ids = &batch->ids[split];
        ddl_status status = ddl_shard_set_append(&b->set, split, ids->ids, ids->n, err);
        if (status)
            return status;
        b->result.documents[split] += batch->documents[split];
        b->result.bytes[split] += batch->bytes[split];
        b->result.tokens[split] += ids->n;
    }
    b->result.skipped += batch->skipped;
    b->bytes_in = batch->consumed;
    return DDL_OK;
}

static ddl_status check_progress(void *user, struct ddl_error *err)
{
    return show_progress(user, false, err);
}

/* If the selection of documents has left one of the sets empty, holds out the end of the text. */
static ddl_status hold_out_end(struct build *b, struct ddl_error *err)
{
    struct ddl_build_result *r = &b->result;
    const double share = b->config->val_fraction;
    struct ddl_hold_out h = { .set = &b->set,
                              .tokenizer = b->tokenizer,
                              .end_of_text = b->end_of_text,
                              .share = share,
                              .check = check_progress,
                              .user = b };
    if (share == 0 || share == 1 || (r->documents[0] > 0 && r->documents[1] > 0))
        return DDL_OK;
    ddl_status status = ddl_hold_out_end(&h, err);
    if (status)
        return status;
    r->end_held_out = h.at;
    r->documents[DDL_SPLIT_TRAIN] += r->documents[DDL_SPLIT_VAL] + h.divided - h.documents;
    r->documents[DDL_SPLIT_VAL] = h.documents;
    r->bytes[DDL_SPLIT_TRAIN] += r->bytes[DDL_SPLIT_VAL] - h.bytes;
    r->bytes[DDL_SPLIT_VAL] = h.bytes;
    for (int split = 0; split < DDL_SPLITS; split++)
        r->tokens[split] = b->set.split[split].tokens;
    return DDL_OK;
}

static ddl_status write_all(void *user, struct ddl_error *err)
{
    struct build *b = user;
    for (;;) {
        bool end;
        struct ddl_text_batch *batch = ddl_pipeline_next(&b->pipeline, PROGRESS_MS, &end);
        if (end)
            break;
        ddl_status status = batch ? write_batch(b, batch, err) : DDL_OK;
        if (batch)
            ddl_pipeline_release(&b->pipeline);
        if (!status)
            status = show_progress(b, false, err);
        if (status)
            return status;
    }
    if (b->result.documents[0] + b->result.documents[1] == 0)
        return ddl_error_set(err, DDL_E_FORMAT, "no text: %zu file%s, %llu empty document%s", b->inputs.n,
                             b->inputs.n == 1 ? "" : "s", (unsigned long long)b->result.skipped,
                             b->result.skipped == 1 ? "" : "s");
    ddl_status status = hold_out_end(b, err);
    return status ? status : show_progress(b, true, err);
}

static void *read_thread(void *arg)
{
    ddl_reader_run(&((struct build *)arg)->reader);
    return NULL;
}

static void *encode_thread(void *arg)
{
    struct build *b = arg;
    for (struct ddl_text_batch *batch; (batch = ddl_pipeline_take(&b->pipeline));) {
        ddl_text_batch_decode(batch, b->config->input.text_key);
        ddl_text_batch_encode(batch, b->tokenizer, b->end_of_text);
        ddl_pipeline_done(&b->pipeline, batch);
    }
    return NULL;
}

static size_t thread_count(const struct ddl_build_config *config)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    if (config->threads > 0)
        return config->threads;
    return cores < 1 ? 1 : cores > MAX_THREADS ? MAX_THREADS : (size_t)cores;
}

/* Detects whether the tokenizer prepends a space to a text: if so, "a" and " a" have the same ids. */
static ddl_status adds_space(const ddl_tokenizer *tokenizer, bool *adds, struct ddl_error *err)
{
    struct ddl_ids plain = { 0 }, spaced = { 0 };
    ddl_status status = ddl_tokenizer_encode(tokenizer, "a", 1, false, &plain, err);
    if (!status)
        status = ddl_tokenizer_encode(tokenizer, " a", 2, false, &spaced, err);
    *adds = !status && plain.n == spaced.n && memcmp(plain.ids, spaced.ids, plain.n * sizeof *plain.ids) == 0;
    ddl_ids_free(&plain);
    ddl_ids_free(&spaced);
    return status;
}

static ddl_status prepare(struct build *b, const char *const *inputs, size_t n_inputs, struct ddl_error *err)
{
    const struct ddl_build_config *config = b->config;
    ddl_status status = check_config(config, err);
    if (!status)
        status = ddl_inputs_list(&b->inputs, inputs, n_inputs, config->input.stdin_format, err);
    if (!status)
        status = ddl_tokenizer_load(&b->tokenizer, config->tokenizer, err);
    if (status)
        return status;
    b->end_of_text = ddl_tokenizer_end_of_text(b->tokenizer);
    if (b->end_of_text < 0)
        return ddl_error_set(err, DDL_E_FORMAT,
                             "%s: no token <|endoftext|>, which is required to separate documents",
                             config->tokenizer);
    b->result.bytes_per_token = ddl_tokenizer_vocab_size(b->tokenizer) > 65536 ? 4 : 2;
    b->reader = (struct ddl_reader){ .inputs = &b->inputs,
                                     .pipeline = &b->pipeline,
                                     .separator = config->input.separator,
                                     .val_fraction = config->val_fraction,
                                     .seed = config->seed };
    json_object_seed(0); /* before threads parse */
    return adds_space(b->tokenizer, &b->reader.cut_at_space, err);
}

static json_t *split_object(const struct ddl_build_result *r, int split)
{
    return json_pack("{s:I, s:I, s:I}", "documents", (json_int_t)r->documents[split], "tokens",
                     (json_int_t)r->tokens[split], "bytes", (json_int_t)r->bytes[split]);
}

/* Options that determine the shards, as text; NULL without memory. */
static json_t *options_object(const struct ddl_build_config *config)
{
    static const char *const recorded[] = { "text_key", "separator", "val_fraction", "seed", "shard_tokens" };
    json_t *options = json_object();
    for (size_t i = 0; i < sizeof recorded / sizeof *recorded; i++) {
        const struct ddl_option *row = ddl_option_find(ddl_build_options(), recorded[i]);
        char value[512];
        ddl_option_format(row, config, value, sizeof value);
        if (json_object_set_new(options, row->name, json_string(value)) != 0) {
            json_decref(options);
            return NULL;
        }
    }
    return options;
}

/* Writes shards.json. */
static ddl_status write_record(struct build *b, struct ddl_error *err)
{
    const struct ddl_build_config *c = b->config;
    const struct ddl_build_result *r = &b->result;
    struct ddl_tokenizer_identity id;
    ddl_status status = ddl_shard_set_close(&b->set, err);
    if (!status)
        status = ddl_tokenizer_identify(b->tokenizer, c->tokenizer, &id, err);
    if (status)
        return status;
    /* A path that is not UTF-8 has no text in JSON: then the name is empty. */
    json_t *name = json_string(id.name), *tokenizer;
    tokenizer = json_pack("{s:o, s:I, s:i, s:s}", "name", name ? name : json_string(""), "vocab_size",
                          (json_int_t)id.vocab_size, "end_of_text", (int)id.end_of_text, "sha256", id.sha256);
    json_t *about = json_pack("{s:i, s:o, s:o, s:o, s:I, s:o}", "version", 1, "tokenizer", tokenizer, "train",
                              split_object(r, DDL_SPLIT_TRAIN), "val", split_object(r, DDL_SPLIT_VAL),
                              "skipped", (json_int_t)r->skipped, "options", options_object(c));
    status = ddl_shard_set_record(&b->set, about, err);
    json_decref(about);
    return status;
}

ddl_status ddl_data_build(const struct ddl_build_config *config, const char *const *inputs, size_t n_inputs,
                          ddl_build_progress_fn *progress, void *user, struct ddl_build_result *result,
                          struct ddl_error *err)
{
    struct build b = { .config = config, .progress = progress, .user = user, .start = ddl_clock_seconds() };
    ddl_status status = prepare(&b, inputs, n_inputs, err);
    if (!status)
        status = ddl_shard_set_begin(&b.set, config->out, config->overwrite, b.result.bytes_per_token,
                                     config->shard_tokens, err);
    if (!status) {
        const struct ddl_pipeline_roles roles = { &b, read_thread, encode_thread, write_all };
        status = ddl_pipeline_run(&b.pipeline, thread_count(config), &roles, err);
        if (!status)
            status = write_record(&b, err);
        if (status)
            ddl_shard_set_discard(&b.set);
        else
            status = ddl_shard_set_publish(&b.set, err);
    }
    for (int split = 0; split < DDL_SPLITS; split++)
        b.result.shards[split] = b.set.split[split].shards;
    b.result.seconds = ddl_clock_seconds() - b.start;
    if (result)
        *result = status ? (struct ddl_build_result){ 0 } : b.result;
    ddl_tokenizer_free(b.tokenizer);
    ddl_inputs_free(&b.inputs);
    return status;
}
