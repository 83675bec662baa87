/* A batch of text in the builder's pipeline. The reader adds pieces of text, a worker encodes them, the
 * writer takes the ids. */
#ifndef DDL_DATA_TEXT_BATCH_H
#define DDL_DATA_TEXT_BATCH_H

#include "ddl/tokenizer.h"

#include <stdbool.h>
#include <stdint.h>

struct ddl_segment {
    size_t offset, size; /* in the batch's text */
    size_t n_ids;        /* set by encode; with <|endoftext|> */
    size_t prompt;       /* set by decode: bytes of the prompt, with which the text begins */
    size_t n_prompt_ids; /* set by encode: of the prompt */
    const char *path;    /* borrowed, for error messages */
    uint64_t line;       /* of a .jsonl file: from 1, counted from the byte line_base of the file */
    uint64_t line_base;
    bool json;   /* a JSON object that contains the document's text; else plain text */
    bool starts; /* first piece of its document; an empty document is one empty segment */
};

/* Zero-initialize. Buffers are reused. */
struct ddl_text_batch {
    char *text;
    size_t size, capacity;
    struct ddl_segment *segments;
    size_t n_segments, segment_capacity;
    uint64_t consumed;  /* bytes of the inputs read when the batch was closed */
    struct ddl_ids ids; /* of all segments */

    ddl_status status; /* of the reader or the worker; reported when the batch is written */
    struct ddl_error err;
};

/* Append to the text; to the segments. */
ddl_status ddl_text_batch_append(struct ddl_text_batch *batch, const char *text, size_t size,
                                 struct ddl_error *err);
ddl_status ddl_text_batch_add_segment(struct ddl_text_batch *batch, const struct ddl_segment *segment,
                                      struct ddl_error *err);
/* Replaces the JSON objects of the segments by their texts, in place; with prompts and responses, by both, or
 * by nothing if the response is empty. Sets status. */
void ddl_text_batch_decode(struct ddl_text_batch *batch, const struct ddl_text_input *input);
/* Encodes all segments, which are plain text; end_of_text precedes each document, except empty ones, which
 * have no ids. Sets status. */
void ddl_text_batch_encode(struct ddl_text_batch *batch, const ddl_tokenizer *tokenizer, int32_t end_of_text);
/* Empties the batch for reuse; frees unusually large buffers. */
void ddl_text_batch_reset(struct ddl_text_batch *batch);
void ddl_text_batch_free(struct ddl_text_batch *batch);
/* Returns the segment's line in its file. Reads the part of the file before line_base: for error messages. */
uint64_t ddl_segment_line(const struct ddl_segment *segment);

#endif
