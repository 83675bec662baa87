#include "data/reader.h"

#include "base/rng.h"
#include "data/cut.h"

#include <stdlib.h>
#include <string.h>

enum { RAW_BYTES = 1 << 18, MAX_SEGMENTS = 4096 };

/* A whole line including its line break, or a part of a line longer than RAW_BYTES. */
struct fragment {
    const char *text;
    size_t size;
    bool starts, ends; /* of a line */
};

static ddl_status stopped(struct ddl_error *err)
{
    return ddl_error_set(err, DDL_E_INTERRUPTED, "interrupted");
}

static ddl_status need_batch(struct ddl_reader *r, struct ddl_error *err)
{
    if (!r->batch && !(r->batch = ddl_pipeline_acquire(r->pipeline)))
        return stopped(err);
    return DDL_OK;
}

static void push_batch(struct ddl_reader *r)
{
    if (!r->batch)
        return;
    r->batch->consumed = r->consumed + r->source.consumed;
    ddl_pipeline_push(r->pipeline);
    r->batch = NULL;
}

/* Selects the split of the next document by a hash of (seed, document index), independently of all other
 * documents. */
static unsigned char next_split(struct ddl_reader *r)
{
    double u = ddl_rng_uniform(ddl_rng_key(r->seed, "held-out split"), r->document++);
    return u < r->val_fraction ? DDL_SPLIT_VAL : DDL_SPLIT_TRAIN;
}

/* Pushes the batch without its bytes from `keep` on, which start the next batch. */
static ddl_status carry_over(struct ddl_reader *r, size_t keep, struct ddl_error *err)
{
    size_t size = r->batch->size - keep;
    if (size > r->carry_capacity) {
        char *grown = realloc(r->carry, size);
        if (!grown)
            return ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory for %zu bytes", r->piece.path, size);
        r->carry = grown;
        r->carry_capacity = size;
    }
    if (size)
        memcpy(r->carry, r->batch->text + keep, size);
    r->batch->size = keep;
    push_batch(r);
    ddl_status status = need_batch(r, err);
    if (!status)
        status = ddl_text_batch_append(r->batch, r->carry, size, err);
    r->piece.offset = 0;
    r->next_cut = DDL_BATCH_BYTES;
    return status;
}

/* Called when the batch is full and a document is open. Cuts the piece at a safe position; if there is none,
 * moves the whole piece to the next batch or, if it is alone in the batch, lets the batch grow. */
static ddl_status cut_piece(struct ddl_reader *r, struct ddl_error *err)
{
    struct ddl_text_batch *batch = r->batch;
    size_t size = batch->size - r->piece.offset;
    size_t cut = ddl_cut_find(batch->text + r->piece.offset, size, r->cut_at_space);
    if (cut == 0 && batch->n_segments == 0) {
        if (size >= DDL_LONGEST_PIECE)
            return ddl_error_set(err, DDL_E_FORMAT,
                                 "%s: %d MiB before byte %llu without a space, a line break or a change "
                                 "between letters, digits and signs: not text",
                                 r->piece.path, DDL_LONGEST_PIECE >> 20, (unsigned long long)r->offset);
        r->next_cut = 2 * batch->size;
        return DDL_OK;
    }
    if (cut > 0) {
        struct ddl_segment piece = r->piece;
        piece.size = cut;
        ddl_status status = ddl_text_batch_add_segment(batch, &piece, err);
        if (status)
            return status;
        r->piece.starts = false;
    }
    return carry_over(r, r->piece.offset + cut, err);
}

static ddl_status begin_piece(struct ddl_reader *r, struct ddl_error *err)
{
    ddl_status status = need_batch(r, err);
    if (status)
        return status;
    if (r->batch->size >= DDL_BATCH_BYTES || r->batch->n_segments >= MAX_SEGMENTS) {
        push_batch(r);
        status = need_batch(r, err);
    }
    if (!status)
        r->piece.offset = r->batch->size;
    r->piece.starts = true;
    r->next_cut = DDL_BATCH_BYTES;
    return status;
}

static ddl_status begin_document(struct ddl_reader *r, struct ddl_error *err)
{
    r->piece.split = next_split(r);
    return begin_piece(r, err);
}

static ddl_status end_document(struct ddl_reader *r, struct ddl_error *err)
{
    r->piece.size = r->batch->size - r->piece.offset;
    if (r->piece.size == 0) { /* a cut always leaves a nonempty rest: only a whole document can be empty */
        r->batch->skipped++;
        return DDL_OK;
    }
    return ddl_text_batch_add_segment(r->batch, &r->piece, err);
}

static bool is_separator(const struct ddl_reader *r, const struct fragment *f)
{
    size_t size = f->size;
    if (!f->starts || !f->ends || r->separator[0] == '\0')
        return false;
    if (size > 0 && f->text[size - 1] == '\n')
        size--;
    if (size > 0 && f->text[size - 1] == '\r')
        size--;
    return size == strlen(r->separator) && memcmp(f->text, r->separator, size) == 0;
}

static ddl_status text_fragment(struct ddl_reader *r, const struct fragment *f, struct ddl_error *err)
{
    const char *zero = memchr(f->text, '\0', f->size);
    if (zero) {
        unsigned long long at = r->offset;
        at += (size_t)(zero - f->text);
        return ddl_error_set(err, DDL_E_FORMAT, "%s: NUL byte at byte %llu: expected text, found binary data",
                             r->piece.path, at);
    }
    ddl_status status;
    if (is_separator(r, f)) {
        status = end_document(r, err);
        return status ? status : begin_document(r, err);
    }
    status = ddl_text_batch_append(r->batch, f->text, f->size, err);
    if (!status && r->batch->size >= r->next_cut)
        status = cut_piece(r, err);
    return status;
}

static bool is_blank(const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        if (!strchr(" \t\r\n", text[i]) || text[i] == '\0')
            return false;
    }
    return true;
}

/* Processes a fragment of a .jsonl file: each line is a document, the current line is the open piece. */
static ddl_status json_fragment(struct ddl_reader *r, const struct fragment *f, struct ddl_error *err)
{
    ddl_status status = DDL_OK;
    if (f->starts) {
        r->piece.line++;
        status = begin_piece(r, err);
    }
    if (!status)
        status = ddl_text_batch_append(r->batch, f->text, f->size, err);
    if (status)
        return status;
    r->piece.size = r->batch->size - r->piece.offset;
    if (r->piece.size > DDL_LONGEST_LINE)
        return ddl_error_set(err, DDL_E_FORMAT, "%s:%llu: line exceeds the limit of %d MiB", r->piece.path,
                             (unsigned long long)r->piece.line, DDL_LONGEST_LINE >> 20);
    if (!f->ends)
        return DDL_OK;
    if (is_blank(r->batch->text + r->piece.offset, r->piece.size)) {
        r->batch->size = r->piece.offset;
        return DDL_OK;
    }
    r->piece.split = next_split(r);
    return ddl_text_batch_add_segment(r->batch, &r->piece, err);
}

/* Appends more bytes to raw; sets *end at the end of the input. */
static ddl_status fill_raw(struct ddl_reader *r, bool *end, struct ddl_error *err)
{
    memmove(r->raw, r->raw + r->raw_at, r->raw_size - r->raw_at);
    r->raw_size -= r->raw_at;
    r->raw_at = 0;
    size_t n;
    ddl_status status = ddl_source_read(&r->source, r->raw + r->raw_size, RAW_BYTES - r->raw_size, &n, err);
    *end = !status && n == 0;
    if (!status)
        r->raw_size += n;
    return status;
}

static ddl_status read_lines(struct ddl_reader *r, bool json, struct ddl_error *err)
{
    struct fragment f = { .starts = true };
    ddl_status status = DDL_OK;
    for (bool end = false; !status;) {
        size_t left = r->raw_size - r->raw_at;
        const char *text = r->raw + r->raw_at, *newline = left ? memchr(text, '\n', left) : NULL;
        if (!newline && !end && left < RAW_BYTES) {
            status = fill_raw(r, &end, err);
            continue;
        }
        if (left == 0)
            break;
        f.text = text;
        f.size = newline ? (size_t)(newline - text) + 1 : left;
        f.ends = newline || end;
        status = (json ? json_fragment : text_fragment)(r, &f, err);
        f.starts = f.ends;
        r->raw_at += f.size;
        r->offset += f.size;
    }
    if (!status && !f.starts) { /* the last line is longer than raw and filled it exactly */
        f.size = 0;
        f.ends = true;
        status = (json ? json_fragment : text_fragment)(r, &f, err);
    }
    return status;
}

static ddl_status read_input(struct ddl_reader *r, const struct ddl_input *input, struct ddl_error *err)
{
    r->raw_at = r->raw_size = 0;
    r->offset = 0;
    r->piece = (struct ddl_segment){ .path = strcmp(input->path, "-") ? input->path : "standard input",
                                     .json = input->json };
    ddl_status status = ddl_source_open(&r->source, input->path, input->packing, &r->pipeline->stopped, err);
    if (status)
        return status;
    if (!input->json)
        status = begin_document(r, err);
    if (!status)
        status = read_lines(r, input->json, err);
    if (!status && !input->json)
        status = end_document(r, err);
    r->consumed += r->source.consumed;
    ddl_source_close(&r->source);
    return status;
}

static ddl_status read_all(struct ddl_reader *r, struct ddl_error *err)
{
    r->raw = malloc(RAW_BYTES);
    if (!r->raw)
        return ddl_error_set(err, DDL_E_MEMORY, "out of memory for %d bytes", RAW_BYTES);
    ddl_status status = DDL_OK;
    for (size_t i = 0; !status && i < r->inputs->n; i++)
        status = read_input(r, &r->inputs->items[i], err);
    return status;
}

void ddl_reader_run(struct ddl_reader *r)
{
    struct ddl_error err = { 0 };
    ddl_status status = read_all(r, &err);
    push_batch(r); /* its documents precede the failure and may contain an earlier error */
    if (status && !need_batch(r, NULL)) {
        r->batch->status = status;
        r->batch->err = err;
        push_batch(r);
    }
    ddl_pipeline_finish(r->pipeline);
    free(r->raw);
    free(r->carry);
    r->raw = r->carry = NULL;
}
