/* Writes the shards, the masks and the tokenizer of a synthetic task. */
#define _POSIX_C_SOURCE 200809L
#include "data/synthetic.h"

#include "base/file.h"
#include "base/json.h"
#include "base/rng.h"
#include "base/sha256.h"
#include "data/publish.h"
#include "data/shard_set.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const ddl_synthetic_names[] = { "pointer", "mqar",    "permutation", "parity",
                                            "modular", "reverse", NULL };

#define FIELD(name) offsetof(struct ddl_synthetic_config, name)
#define TEXT(name) DDL_OPTION_STRING, FIELD(name), sizeof((struct ddl_synthetic_config *)0)->name, 0, 0, NULL
#define FLAG(name) #name, DDL_OPTION_BOOL, FIELD(name), 0, 0, 0, NULL, NULL
#define SIZE(name) #name, DDL_OPTION_SIZE, FIELD(name), 0, 0, DDL_SYNTHETIC_LENGTH, NULL, "N"

enum { FIRST_SIZE = 6 }; /* of the options: the first of the sizes that some tasks have */

const struct ddl_option *ddl_synthetic_options(void)
{
    static const struct ddl_option options[] = {
        { "out", TEXT(out), "DIR", "folder for the shards and tokenizer.json" },
        { "seed", DDL_OPTION_U64, FIELD(seed), 0, 0, 0, NULL, "N", "seed of the problems" },
        { "sequences", DDL_OPTION_U64, FIELD(sequences), 0, 1, 1e9, NULL, "N", "sequences for training" },
        { "val_sequences", DDL_OPTION_U64, FIELD(val_sequences), 0, 1, 1e9, NULL, "N",
          "sequences for validation" },
        { "val_fraction", DDL_OPTION_DOUBLE, FIELD(val_fraction), 0, 0, 1, NULL, "FRACTION",
          "share of all problems that occur in the validation sequences only" },
        { "overwrite", DDL_OPTION_BOOL, FIELD(overwrite), 0, 0, 0, NULL, NULL,
          "replace the shards of an earlier build in the folder" },
        { SIZE(length), "tokens of a sequence (0: 128, or the longest problem)" },
        { SIZE(pairs), "pointer, mqar: pairs (0: 16, or 8 with pair_tokens)" },
        { SIZE(queries), "pointer, mqar: queries (0: 8)" },
        { "hops", TEXT(hops), "LIST", "pointer: numbers of hops, 1 to 9 (empty: 1,2,4,8)" },
        { FLAG(cycle), "pointer: the permutation is one cycle through all symbols" },
        { FLAG(pair_tokens),
          "pointer, mqar: a pair is one token; in pointer, queries begin with their digit" },
        { FLAG(once), "all but mqar: do not count an answer that the sequence has given before" },
        { FLAG(states), "permutation, parity: the answer is the state after each symbol, not the last only" },
        { SIZE(symbols),
          "mqar: keys, and as many values (0: 64, or 8 with pair_tokens); reverse: symbols (0: 26)" },
        { SIZE(elements), "permutation: elements that are permuted, 2 to 5 (0: 5)" },
        { SIZE(steps), "permutation, parity, reverse: most symbols of a problem (0: 16, 32, 16)" },
        { SIZE(modulus), "modular: modulus (0: 97)" },
        { "operators", TEXT(operators), "LIST", "modular: some of + - * (empty: +)" },
        { 0 },
    };
    return options;
}

struct ddl_synthetic_config ddl_synthetic_defaults(void)
{
    return (struct ddl_synthetic_config){ .sequences = 10000, .val_sequences = 500, .val_fraction = 0.1 };
}

/* ---- checks ---- */

/* Whether an option of some tasks has another value than 0, false or an empty text. */
static bool is_given(const struct ddl_option *row, const struct ddl_synthetic_config *c)
{
    char value[64];
    ddl_option_format(row, c, value, sizeof value);
    return *value && strcmp(value, "0") != 0 && strcmp(value, "false") != 0;
}

/* DDL_E_USAGE for an option that was given and that the task does not have. */
static ddl_status check_given(const struct ddl_synthetic_config *c, struct ddl_error *err)
{
    const struct ddl_synthetic_task *task = &ddl_synthetic_tasks[c->task];
    for (const struct ddl_option *row = ddl_synthetic_options() + FIRST_SIZE; row->name; row++) {
        char name[32];
        snprintf(name, sizeof name, " %s ", row->name);
        if (is_given(row, c) && !strstr(task->options, name))
            return ddl_error_set(err, DDL_E_USAGE, "--%s: the task %s has no such option: expected one of%s",
                                 row->name, ddl_synthetic_names[c->task], task->options);
    }
    return DDL_OK;
}

/* Sets and checks all sizes of *c, which was given by the user. */
static ddl_status resolve(struct ddl_synthetic_config *c, struct ddl_error *err)
{
    ddl_status status = ddl_choice_check("task", ddl_synthetic_names, c->task, err);
    if (status)
        return status;
    const struct ddl_synthetic_task *task = &ddl_synthetic_tasks[c->task];
    if (c->out[0] == '\0')
        return ddl_option_missing("data synthetic", "--out DIR", err);
    if (c->sequences == 0 || c->val_sequences == 0)
        return ddl_error_set(err, DDL_E_USAGE, "--%ssequences: expected at least 1, found 0",
                             c->sequences ? "val_" : "");
    if (!(c->val_fraction > 0 && c->val_fraction < 1))
        return ddl_error_set(err, DDL_E_USAGE, "--val_fraction: expected a number between 0 and 1, found %g",
                             c->val_fraction);
    status = check_given(c, err);
    if (!status)
        status = task->sizes(c, err);
    if (!status && task->length)
        c->length = 1 + task->length(c);
    if (!status && c->length > DDL_SYNTHETIC_LENGTH)
        status = ddl_error_set(err, DDL_E_USAGE, "a sequence would have %zu tokens: expected at most %d",
                               c->length, DDL_SYNTHETIC_LENGTH);
    return status;
}

/* ---- tokens ---- */

struct writer {
    const struct ddl_synthetic_config *config;
    struct ddl_build_folder folder;
    struct ddl_shard_set set;
    ddl_tokenizer *tokenizer;
    struct ddl_tokenizer_identity identity;
    size_t symbols;
    int32_t ids[DDL_SYNTHETIC_SYMBOLS + DDL_SIGNS]; /* of the symbols, then of the signs */
    size_t bytes[DDL_SYNTHETIC_SYMBOLS + DDL_SIGNS];
    uint64_t text_bytes[DDL_SPLITS];
    struct ddl_synthetic_result result;
    ddl_progress_fn *progress;
    void *user;
};

/* Row of a token in the tables of the writer. */
static size_t row_of(const struct writer *w, int32_t token)
{
    return token >= 0 ? (size_t)token : w->symbols + (size_t)(-1 - token);
}

static void text_of_row(const struct writer *w, size_t row, char text[DDL_SYNTHETIC_TEXT])
{
    if (row < w->symbols)
        ddl_synthetic_symbol_text(text, row);
    else
        snprintf(text, DDL_SYNTHETIC_TEXT, "%c", ddl_synthetic_sign_texts[row - w->symbols]);
}

/* A tokenizer with a character for each symbol and sign, and their ids. */
static ddl_status make_tokenizer(struct writer *w, struct ddl_error *err)
{
    char path[DDL_BUILD_PATH], text[DDL_SYNTHETIC_TEXT];
    const size_t rows = w->symbols + DDL_SIGNS;
    struct ddl_tokenizer_train_config config = ddl_tokenizer_train_defaults();
    struct ddl_file_writer alphabet;
    config.characters = true;
    ddl_build_folder_file(&w->folder, "alphabet.txt", path);
    ddl_status status = ddl_file_writer_begin(&alphabet, path, err);
    if (status)
        return status;
    for (size_t i = 0; i < rows && !status; i++) {
        text_of_row(w, i, text);
        w->bytes[i] = strlen(text);
        status = ddl_file_writer_write(&alphabet, text, w->bytes[i], err);
    }
    if (status) {
        ddl_file_writer_discard(&alphabet);
        return status;
    }
    status = ddl_file_writer_commit(&alphabet, err);
    const char *inputs[] = { path };
    if (!status)
        status = ddl_tokenizer_train(&w->tokenizer, &config, inputs, 1, NULL, NULL, err);
    struct ddl_ids ids = { 0 };
    for (size_t i = 0; i < rows && !status; i++) {
        text_of_row(w, i, text);
        ids.n = 0;
        status = ddl_tokenizer_encode(w->tokenizer, text, w->bytes[i], false, &ids, err);
        w->ids[i] = status ? 0 : ids.ids[0];
    }
    ddl_ids_free(&ids);
    if (!status)
        status = ddl_tokenizer_identify(w->tokenizer, w->config->out, &w->identity, err);
    w->result.vocab_size = status ? 0 : ddl_tokenizer_vocab_size(w->tokenizer);
    return status;
}

/* ---- sequences ---- */

/* Fills a sequence with problems of its split, then with pads. */
static ddl_status make_sequence(struct writer *w, struct ddl_synthetic *s, struct ddl_error *err)
{
    const struct ddl_synthetic_task *task = &ddl_synthetic_tasks[w->config->task];
    ddl_synthetic_begin(s);
    for (bool full = false; !full;) {
        size_t before = s->n;
        if (!task->problem(s, &full))
            return ddl_error_set(err, DDL_E_USAGE,
                                 "val_fraction: none of %d problems is for %s: expected another fraction, or "
                                 "sizes that allow more problems",
                                 DDL_SYNTHETIC_TRIES, s->val ? "validation" : "training");
        w->result.problems[s->val] += s->n > before;
    }
    while (s->n < s->length) {
        s->tokens[s->n] = -1 - DDL_SIGN_PAD;
        s->groups[s->n++] = 0;
    }
    return DDL_OK;
}

/* Replaces symbols and signs by ids, and appends the sequence to the shards. */
static ddl_status append(struct writer *w, struct ddl_synthetic *s, struct ddl_error *err)
{
    const int split = s->val ? DDL_SPLIT_VAL : DDL_SPLIT_TRAIN;
    ddl_status status = ddl_shard_set_append(&w->set, split, &w->identity.end_of_text, 1, err);
    if (!status)
        status = ddl_shard_set_append_mask(&w->set, split, 0, 1, err);
    for (size_t i = 0; i < s->n; i++) {
        size_t row = row_of(w, s->tokens[i]);
        s->tokens[i] = w->ids[row];
        w->text_bytes[split] += w->bytes[row];
        w->result.counted[split] += s->groups[i] > 0;
        w->result.groups[split][s->groups[i]] += s->groups[i] > 0;
    }
    if (!status)
        status = ddl_shard_set_append(&w->set, split, s->tokens, s->n, err);
    for (size_t i = 0, end; i < s->n && !status; i = end) {
        for (end = i + 1; end < s->n && s->groups[end] == s->groups[i];)
            end++;
        status = ddl_shard_set_append_mask(&w->set, split, s->groups[i], end - i, err);
    }
    return status;
}

static ddl_status write_split(struct writer *w, bool val, struct ddl_synthetic *s, struct ddl_error *err)
{
    const struct ddl_synthetic_config *c = w->config;
    const uint64_t n = val ? c->val_sequences : c->sequences, before = val ? c->sequences : 0;
    ddl_status status = DDL_OK;
    s->val = val;
    s->drawn = 0;
    s->n_kept = 0;
    memset(s->lacks, 0, sizeof s->lacks);
    s->key = ddl_rng_key(c->seed, val ? "synthetic validation" : "synthetic training");
    s->split_key = ddl_rng_key(c->seed, "synthetic split");
    for (uint64_t i = 0; i < n && !status; i++) {
        status = make_sequence(w, s, err);
        if (!status)
            status = append(w, s, err);
        const unsigned long long done = before + i, all = c->sequences + c->val_sequences;
        if (!status && w->progress && i % 256 == 0 && w->progress(w->user, done, all))
            status = ddl_error_set(err, DDL_E_INTERRUPTED, "stopped after %llu of %llu sequences", done, all);
    }
    return status;
}

static ddl_status write_sequences(struct writer *w, struct ddl_error *err)
{
    const size_t length = w->config->length;
    struct ddl_synthetic s = { .config = w->config, .length = length - 1 };
    s.tokens = malloc(length * sizeof *s.tokens);
    s.groups = malloc(length);
    for (s.n_seen = 64; s.n_seen < 2 * length;)
        s.n_seen *= 2;
    s.seen = malloc(s.n_seen * sizeof *s.seen);
    ddl_status status = s.tokens && s.groups && s.seen
                            ? DDL_OK
                            : ddl_error_set(err, DDL_E_MEMORY, "out of memory for %zu tokens", length);
    for (int val = 0; val < 2 && !status; val++)
        status = write_split(w, val, &s, err);
    free(s.tokens);
    free(s.groups);
    free(s.seen);
    return status;
}

/* ---- the folder ---- */

/* The task and its sizes, as text; NULL without memory. */
static json_t *options_object(const struct ddl_synthetic_config *c)
{
    json_t *options = json_pack("{s:s}", "task", ddl_synthetic_names[c->task]);
    bool failed = !options;
    for (const struct ddl_option *row = ddl_synthetic_options() + 1; row->name; row++) {
        char value[64];
        ddl_option_format(row, c, value, sizeof value);
        bool is_used = row < ddl_synthetic_options() + FIRST_SIZE - 1 ||
                       (row >= ddl_synthetic_options() + FIRST_SIZE && is_given(row, c));
        if (is_used)
            failed |= json_object_set_new(options, row->name, json_string(value)) != 0;
    }
    if (!failed)
        return options;
    json_decref(options);
    return NULL;
}

/* Writes shards.json. */
static ddl_status write_record(struct writer *w, struct ddl_error *err)
{
    json_t *options = options_object(w->config);
    char *text = options ? ddl_json_dumps(options, JSON_COMPACT | JSON_SORT_KEYS) : NULL, build[65];
    struct ddl_sha256 sum;
    ddl_sha256_begin(&sum);
    ddl_sha256_add(&sum, text ? text : "", text ? strlen(text) : 0);
    ddl_sha256_end_hex(&sum, build);
    free(text);
    const struct ddl_shard_record record = { .tokenizer = &w->identity,
                                             .documents = { w->config->sequences, w->config->val_sequences },
                                             .bytes = { w->text_bytes[0], w->text_bytes[1] },
                                             .build = build };
    return ddl_shard_set_record(&w->set, &record, options, err);
}

static ddl_status check_tokenizer(const char *out, bool overwrite, struct ddl_error *err)
{
    char path[2048];
    ddl_status status = ddl_tokenizer_file(path, sizeof path, out, err);
    if (!status && !overwrite && ddl_file_exists(path))
        status = ddl_error_set(err, DDL_E_USAGE,
                               "%s: exists already: choose another folder or use --overwrite", path);
    return status;
}

/* Completes the publication of a process that was killed; refuses shards, builds and a tokenizer that are not
 * to be replaced. */
static ddl_status check_folder(const struct ddl_build_folder *f, bool overwrite, struct ddl_error *err)
{
    if (ddl_build_folder_has(f, DDL_BUILD_PLAN))
        return ddl_error_set(err, DDL_E_USAGE, "%s: contains an unfinished build: choose another folder",
                             f->out);
    ddl_status status = ddl_publish_pending(f) ? ddl_publish_finish(f, err) : DDL_OK;
    if (!status)
        status = ddl_publish_check(f->out, overwrite, err);
    return status ? status : check_tokenizer(f->out, overwrite, err);
}

/* In the locked folder. */
static ddl_status write_all(struct writer *w, struct ddl_error *err)
{
    char work[DDL_BUILD_PATH];
    const size_t most = 100000000;
    ddl_build_folder_file(&w->folder, DDL_BUILD_SHARDS, work);
    ddl_status status = make_tokenizer(w, err);
    if (!status)
        status = ddl_shard_set_begin(&w->set, work, 2, most - most % w->config->length, err);
    if (status)
        return status;
    status = write_sequences(w, err);
    if (!status)
        status = ddl_shard_set_close(&w->set, err);
    if (!status)
        status = write_record(w, err);
    if (!status)
        status = ddl_publish_begin(&w->folder, w->config->overwrite, err);
    if (status) {
        ddl_shard_set_discard(&w->set);
        return status;
    }
    status = ddl_tokenizer_save(w->tokenizer, w->config->out, err);
    return status ? status : ddl_publish_finish(&w->folder, err);
}

ddl_status ddl_data_synthetic(const struct ddl_synthetic_config *config, ddl_progress_fn *progress,
                              void *user, struct ddl_synthetic_result *result, struct ddl_error *err)
{
    struct ddl_synthetic_config c = *config;
    struct writer w = { .config = &c, .progress = progress, .user = user };
    struct ddl_error unused;
    err = err ? err : &unused;
    ddl_status status = resolve(&c, err);
    if (status)
        return status;
    w.symbols = ddl_synthetic_tasks[c.task].symbols(&c);
    w.result.length = c.length;
    status = ddl_build_folder_open(&w.folder, c.out, 0, 1, err);
    if (!status) {
        status = check_folder(&w.folder, c.overwrite, err);
        const bool is_own = !status;
        if (!status)
            status = write_all(&w, err);
        if (is_own && status)
            (void)ddl_build_folder_clear(&w.folder, &unused);
    }
    ddl_build_folder_close(&w.folder);
    ddl_tokenizer_free(w.tokenizer);
    if (!status && result)
        *result = w.result;
    return status;
}
