#include "data/reader.h"

#include "data/cut.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

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

/* Bytes read of the current range. What was read beyond its end belongs to the next one. */
static uint64_t consumed_of_range(const struct ddl_reader *r)
{
    uint64_t at = r->source.consumed;
    if (!r->range || at <= r->range->from)
        return 0;
    return (at < r->range->to ? at : r->range->to) - r->range->from;
}

static void push_batch(struct ddl_reader *r)
{
    if (!r->batch)
        return;
    r->batch->consumed = r->consumed + consumed_of_range(r);
    ddl_pipeline_push(r->pipeline);
    r->batch = NULL;
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
            return ddl_error_set(err, DDL_E_FORMAT, "%s: %d MiB before byte %llu without a space%s: not text",
                                 r->piece.path, DDL_LONGEST_PIECE >> 20, (unsigned long long)r->offset,
                                 r->cut_at_space ? ", at which alone this tokenizer's pieces can be divided"
                                                 : ", a line break or a change between letters, digits and "
                                                   "signs");
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

/* A cut always leaves a nonempty rest: only a whole document can be empty. */
static ddl_status end_document(struct ddl_reader *r, struct ddl_error *err)
{
    r->piece.size = r->batch->size - r->piece.offset;
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
        return status ? status : begin_piece(r, err);
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
                             (unsigned long long)ddl_segment_line(&r->piece), DDL_LONGEST_LINE >> 20);
    if (!f->ends)
        return DDL_OK;
    if (is_blank(r->batch->text + r->piece.offset, r->piece.size)) {
        r->batch->size = r->piece.offset;
        return DDL_OK;
    }
    return ddl_text_batch_add_segment(r->batch, &r->piece, err);
}

/* Before the first document of the range: the rest of the line in which the range begins, and then, in a text
 * file, all lines up to a separator. */
static ddl_status outer_fragment(struct ddl_reader *r, bool json, const struct fragment *f,
                                 struct ddl_error *err)
{
    if (!r->aligned) {
        r->aligned = f->ends;
        r->outside = !json || !f->ends;
        r->piece.line_base = r->offset + f->size;
        return DDL_OK;
    }
    if (!is_separator(r, f))
        return DDL_OK;
    r->outside = false;
    return begin_piece(r, err);
}

/* True if the documents that begin in the range end before the fragment. */
static bool range_ends(const struct ddl_reader *r, bool json, const struct fragment *f)
{
    return r->offset >= r->range->to && (r->outside || (f->starts && (json || is_separator(r, f))));
}

static ddl_status process_fragment(struct ddl_reader *r, bool json, const struct fragment *f,
                                   struct ddl_error *err)
{
    if (r->outside)
        return outer_fragment(r, json, f, err);
    return json ? json_fragment(r, f, err) : text_fragment(r, f, err);
}

/* Adds the fragment to the checksum, except the byte before the range, at which reading begins. */
static void add_to_text(struct ddl_reader *r, const struct fragment *f)
{
    size_t before = r->offset < r->range->from ? 1 : 0;
    r->text.crc =
        (uint32_t)crc32(r->text.crc, (const unsigned char *)f->text + before, (uInt)(f->size - before));
    r->text.end = r->offset + f->size;
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
        if (range_ends(r, json, &f))
            return DDL_OK;
        status = process_fragment(r, json, &f, err);
        add_to_text(r, &f);
        f.starts = f.ends;
        r->raw_at += f.size;
        r->offset += f.size;
    }
    if (!status && !f.starts) { /* the last line is longer than raw and filled it exactly */
        f.size = 0;
        f.ends = true;
        status = process_fragment(r, json, &f, err);
    }
    return status;
}

/* Opens the input at the beginning of the range: at the byte before it, which tells whether a line begins
 * there. */
static ddl_status open_range(struct ddl_reader *r, const struct ddl_input *input, struct ddl_error *err)
{
    const uint64_t from = r->range->from;
    r->raw_at = r->raw_size = 0;
    r->offset = from > 0 ? from - 1 : 0;
    r->text = (struct ddl_range_text){ .end = from };
    r->aligned = from == 0;
    r->outside = from > 0;
    r->piece = (struct ddl_segment){ .path = strcmp(input->path, "-") ? input->path : "standard input",
                                     .json = input->json };
    ddl_status status = ddl_source_open(&r->source, input->path, input->packing, &r->pipeline->stopped, err);
    if (!status && from > 0) {
        status = ddl_source_seek(&r->source, r->offset, err);
        if (status)
            ddl_source_close(&r->source);
    }
    return status;
}

static ddl_status read_range(struct ddl_reader *r, const struct ddl_range *range, struct ddl_error *err)
{
    const struct ddl_input *input = &r->inputs->items[range->input];
    r->range = range;
    ddl_status status = open_range(r, input, err);
    if (status)
        return status;
    if (!input->json && !r->outside)
        status = begin_piece(r, err);
    if (!status)
        status = read_lines(r, input->json, err);
    if (!status && !input->json && !r->outside)
        status = end_document(r, err);
    r->consumed += consumed_of_range(r);
    r->range = NULL;
    ddl_source_close(&r->source);
    return status;
}

static ddl_status read_all(struct ddl_reader *r, struct ddl_error *err)
{
    r->raw = malloc(RAW_BYTES);
    if (!r->raw)
        return ddl_error_set(err, DDL_E_MEMORY, "out of memory for %d bytes", RAW_BYTES);
    ddl_status status = DDL_OK;
    for (size_t i = 0; !status && i < r->n_ranges; i++) {
        status = read_range(r, &r->ranges[i], err);
        if (r->texts)
            r->texts[i] = r->text;
    }
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
