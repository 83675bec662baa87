/* A batch: some text on its way through the builder. The reader fills in pieces of text, a worker turns them
 * into ids, the writer takes the ids. */
#ifndef DDL_DATA_TEXT_BATCH_H
#define DDL_DATA_TEXT_BATCH_H

#include "ddl/tokenizer.h"

#include <stdbool.h>
#include <stdint.h>

enum { DDL_SPLIT_TRAIN, DDL_SPLIT_VAL, DDL_SPLITS };

struct ddl_segment {
    size_t offset, size; /* in the batch's text                                                        */
    const char *path;    /* borrowed: for error sentences                                              */
    uint64_t line;       /* of a .jsonl file, from 1                                                   */
    bool json;           /* one JSON object, whose text is the document; else text as it is            */
    bool starts;         /* the first piece of its document                                            */
    unsigned char split; /* DDL_SPLIT_...                                                              */
};

/* Zero-initialised; buffers are kept from one use to the next. */
struct ddl_text_batch {
    char *text;
    size_t size, capacity;
    struct ddl_segment *segments;
    size_t n_segments, segment_capacity;
    uint64_t consumed; /* bytes of the inputs read when the batch was closed */
    uint64_t skipped;  /* empty documents; the reader and the worker add to it */

    struct ddl_ids ids[DDL_SPLITS];
    uint64_t documents[DDL_SPLITS], bytes[DDL_SPLITS];

    ddl_status status; /* of the reader or the worker: counts when its turn comes to be written */
    struct ddl_error err;
};

/* Appends to the text; to the segments. */
ddl_status ddl_text_batch_append(struct ddl_text_batch *batch, const char *text, size_t size,
                                 struct ddl_error *err);
ddl_status ddl_text_batch_add_segment(struct ddl_text_batch *batch, const struct ddl_segment *segment,
                                      struct ddl_error *err);
/* Ids of all segments, each document preceded by end_of_text; empty documents are skipped. Fills status. */
void ddl_text_batch_encode(struct ddl_text_batch *batch, const ddl_tokenizer *tokenizer, int32_t end_of_text,
                           const char *text_key);
/* Empties it for the next use; gives back what an unusually large use has taken. */
void ddl_text_batch_reset(struct ddl_text_batch *batch);
void ddl_text_batch_free(struct ddl_text_batch *batch);

#endif
