#include "ddl/data.h"

#include "base/clock.h"
#include "base/file.h"
#include "data/build.h"
#include "data/part_file.h"
#include "data/publish.h"
#include "data/shard_format.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SHARDS = 10000 };

/* Detects whether the tokenizer prepends a space to a text: if so, "a" and " a" have the same ids. */
static ddl_status adds_space(const ddl_tokenizer *tokenizer, bool *adds, struct ddl_error *err)
{
    struct ddl_ids plain = { 0 }, spaced = { 0 };
    *adds = false;
    if (ddl_tokenizer_is_characters(tokenizer)) /* which may have neither */
        return DDL_OK;
    ddl_status status = ddl_tokenizer_encode(tokenizer, "a", 1, false, &plain, err);
    if (!status)
        status = ddl_tokenizer_encode(tokenizer, " a", 2, false, &spaced, err);
    *adds = !status && plain.n == spaced.n && memcmp(plain.ids, spaced.ids, plain.n * sizeof *plain.ids) == 0;
    ddl_ids_free(&plain);
    ddl_ids_free(&spaced);
    return status;
}

/* "2/4" */
static ddl_status parse_shard(struct ddl_build *b, struct ddl_error *err)
{
    const char *text = b->config->shard;
    char *end = NULL;
    b->shard = 0;
    b->n_shards = 1;
    if (text[0] == '\0')
        return DDL_OK;
    unsigned long long shard = isdigit((unsigned char)*text) ? strtoull(text, &end, 10) : 0, n = 0;
    if (end && *end == '/' && isdigit((unsigned char)end[1]))
        n = strtoull(end + 1, &end, 10);
    if (n == 0 || *end != '\0' || shard >= n || n > MAX_SHARDS)
        return ddl_error_set(err, DDL_E_USAGE,
                             "--shard: expected I/N with I from 0 to N - 1, such as 0/4, found %s", text);
    b->shard = (size_t)shard;
    b->n_shards = (size_t)n;
    return DDL_OK;
}

static ddl_status list_inputs(struct ddl_build *b, const char *const *inputs, size_t n_inputs,
                              struct ddl_error *err)
{
    ddl_status status = ddl_inputs_list(&b->inputs, inputs, n_inputs, b->config->input.stdin_format, err);
    b->resumable = true;
    for (size_t i = 0; i < b->inputs.n; i++)
        b->resumable = b->resumable && strcmp(b->inputs.items[i].path, "-") != 0;
    if (!status && !b->resumable && b->n_shards > 1)
        return ddl_error_set(err, DDL_E_USAGE, "--shard: standard input cannot be divided: expected files");
    return status;
}

static ddl_status load_tokenizer(struct ddl_build *b, struct ddl_error *err)
{
    const char *path = b->config->tokenizer;
    ddl_status status = ddl_tokenizer_load(&b->tokenizer, path, err);
    if (!status)
        status = ddl_tokenizer_identify(b->tokenizer, path, &b->identity, err);
    if (status)
        return status;
    b->end_of_text = ddl_tokenizer_end_of_text(b->tokenizer);
    if (b->end_of_text < 0)
        return ddl_error_set(err, DDL_E_FORMAT,
                             "%s: no token <|endoftext|>, which is required to separate documents", path);
    b->result.bytes_per_token = ddl_tokenizer_vocab_size(b->tokenizer) > 65536 ? 4 : 2;
    return adds_space(b->tokenizer, &b->cut_at_space, err);
}

static ddl_status prepare(struct ddl_build *b, const char *const *inputs, size_t n_inputs,
                          struct ddl_error *err)
{
    ddl_status status = ddl_build_check_config(b->config, err);
    if (!status)
        status = parse_shard(b, err);
    if (!status)
        status = list_inputs(b, inputs, n_inputs, err);
    if (!status)
        status = load_tokenizer(b, err);
    if (!status)
        status = ddl_build_identify(b, err);
    json_object_seed(0); /* before threads parse */
    return status;
}

/* A process that starts, or is started again, after the others have completed the build. */
static ddl_status find_completed(struct ddl_build *b, bool *done, struct ddl_error *err)
{
    char record[2048];
    ddl_path_join(record, sizeof record, b->folder.out, DDL_SHARD_RECORD);
    if (b->n_shards == 1 || b->config->overwrite || !ddl_file_exists(record))
        return DDL_OK;
    return ddl_build_read_result(b, done, err);
}

/* Removes what killed processes have left, if no process is at work; everything if the build is done. */
static ddl_status tidy(struct ddl_build *b, bool done, struct ddl_error *err)
{
    bool busy;
    ddl_status status = ddl_build_folder_alone(&b->folder, &busy, err);
    if (!status)
        status = done ? ddl_build_folder_clear(&b->folder, err) : ddl_build_folder_tidy(&b->folder, err);
    return busy ? DDL_OK : status;
}

/* Opens the folder of the build and compares its plan. *done: the shards are complete already; *merging:
 * another process writes them, because all parts are finished. */
static ddl_status begin(struct ddl_build *b, bool *done, bool *merging, struct ddl_error *err)
{
    const struct ddl_build_config *c = b->config;
    *done = *merging = false;
    ddl_status status = ddl_build_folder_open(&b->folder, c->out, b->shard, b->n_shards, err);
    if (!status && ddl_publish_pending(&b->folder)) {
        /* in the locked folder: completes a publication that was interrupted, perhaps that of this build */
        status = ddl_publish_finish(&b->folder, err);
        if (!status)
            status = ddl_build_read_result(b, done, err);
        ddl_build_folder_unlock(&b->folder);
        if (status || *done)
            return status;
        ddl_build_folder_close(&b->folder);
        status = ddl_build_folder_open(&b->folder, c->out, b->shard, b->n_shards, err);
    }
    if (!status)
        status = find_completed(b, done, err);
    if (!status && !*done)
        status = ddl_publish_check(c->out, c->overwrite, err);
    if (!status && !*done)
        status = ddl_build_plan(b, err);
    if (!status)
        status = tidy(b, *done, err);
    if (!status)
        *merging = ddl_build_folder_merging(&b->folder);
    ddl_build_folder_unlock(&b->folder);
    if (!status && !*done)
        status = ddl_parts_divide(&b->parts, &b->inputs, c->input.separator, c->part_bytes, err);
    b->result.parts = b->parts.n;
    return status;
}

/* Encodes the parts of this process that are not finished; checks the others, for which *mine is set. */
static ddl_status encode_parts(struct ddl_build *b, const size_t *owner, struct ddl_error *err)
{
    ddl_status status = DDL_OK;
    for (size_t i = 0; i < b->parts.n && !status; i++) {
        if (owner[i] != b->shard)
            continue;
        if (ddl_part_finished(&b->folder, i)) {
            b->result.parts_kept++;
            status = ddl_build_check_part(b, i, err);
        } else {
            b->shown.bytes_total += ddl_parts_bytes(&b->parts, &b->inputs, i);
        }
    }
    if (!b->resumable)
        b->shown.bytes_total = 0; /* unknown */
    for (size_t i = 0; i < b->parts.n && !status; i++) {
        if (owner[i] != b->shard || ddl_part_finished(&b->folder, i))
            continue;
        status = ddl_build_part(b, i, err);
        b->result.parts_encoded++;
    }
    return status ? status : ddl_build_show(b, true, err);
}

/* Ends the work of this process on parts. *last: all parts are finished and no other process works, so that
 * this one writes the shards. */
static ddl_status end_parts(struct ddl_build *b, bool *last, struct ddl_error *err)
{
    bool busy = false;
    *last = false;
    ddl_status status = ddl_build_folder_in_place(&b->folder, err);
    if (status)
        return status;
    status = ddl_build_folder_lock(&b->folder, err);
    if (!status)
        status = ddl_build_folder_alone(&b->folder, &busy, err);
    if (status && !busy) {
        ddl_build_folder_unlock(&b->folder);
        return status;
    }
    for (size_t i = 0; i < b->parts.n; i++)
        b->result.parts_finished += ddl_part_finished(&b->folder, i);
    if (busy) {
        ddl_build_folder_leave(&b->folder); /* so that the last one finds that it is */
        status = DDL_OK;
    } else if (b->result.parts_finished == b->parts.n) {
        status = ddl_build_folder_lock_merge(&b->folder, err);
        *last = !status;
    } else if (b->result.parts_finished == 0) {
        status = ddl_build_folder_clear(&b->folder, err); /* nothing to keep */
    }
    ddl_build_folder_unlock(&b->folder);
    return status;
}

static ddl_status run(struct ddl_build *b, struct ddl_error *err)
{
    bool last = false;
    size_t *owner = calloc(b->parts.n, sizeof *owner);
    ddl_status status = owner ? ddl_parts_assign(&b->parts, &b->inputs, b->n_shards, owner, err)
                              : ddl_error_set(err, DDL_E_MEMORY, "out of memory for %zu parts", b->parts.n);
    if (!status)
        status = encode_parts(b, owner, err);
    if (!status)
        status = end_parts(b, &last, err);
    free(owner);
    for (size_t i = 0; i < b->parts.n && !status && last; i++)
        status = ddl_build_check_part(b, i, err); /* an input may have changed since */
    if (!status && last)
        status = ddl_build_finish(b, err);
    b->result.complete = !status && last;
    return status;
}

/* After an error: keeps the finished parts, if there are any, and reports it in `err`; otherwise removes the
 * folder of the build. */
static void give_up(struct ddl_build *b, ddl_status why, struct ddl_error *err)
{
    struct ddl_build_folder *f = &b->folder;
    size_t finished = 0;
    char text[sizeof err->text];
    if (!f->shard.held) /* another process works on it */
        return;
    if (b->resumable && !b->worthless && ddl_build_folder_count(f, &finished, NULL) != DDL_OK)
        return; /* there may be some */
    if (!ddl_publish_pending(f) && finished == 0) {
        bool busy;
        if (!ddl_build_folder_lock(f, NULL) && !ddl_build_folder_alone(f, &busy, NULL))
            (void)ddl_build_folder_clear(f, NULL);
        ddl_build_folder_unlock(f);
    }
    if (!err)
        return;
    memcpy(text, err->text, sizeof text);
    if (finished > 0)
        ddl_error_set(err, why, "%.800s; %zu of %zu parts are finished: run this again to continue", text,
                      finished, b->parts.n);
    else if (why == DDL_E_INTERRUPTED)
        ddl_error_set(err, why, "%s; nothing was written to %s", text, b->config->out);
}

ddl_status ddl_data_build(const struct ddl_build_config *config, const char *const *inputs, size_t n_inputs,
                          ddl_build_progress_fn *progress, void *user, struct ddl_build_result *result,
                          struct ddl_error *err)
{
    struct ddl_build b = {
        .config = config, .progress = progress, .user = user, .start = ddl_clock_seconds()
    };
    bool done = false, merging = false;
    ddl_status status = prepare(&b, inputs, n_inputs, err);
    if (!status) {
        status = begin(&b, &done, &merging, err);
        const bool begun = !status && !done;
        if (begun && merging)
            b.result.parts_finished = b.parts.n;
        else if (begun)
            status = run(&b, err);
        if (status)
            give_up(&b, status, begun ? err : NULL);
    }
    ddl_build_folder_close(&b.folder);
    b.result.complete = b.result.complete || done;
    b.result.seconds = ddl_clock_seconds() - b.start;
    if (result)
        *result = status ? (struct ddl_build_result){ 0 } : b.result;
    ddl_parts_free(&b.parts);
    ddl_tokenizer_free(b.tokenizer);
    ddl_inputs_free(&b.inputs);
    return status;
}
