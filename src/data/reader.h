/* The reading side of the builder: inputs split into documents, long documents into pieces. */
#ifndef DDL_DATA_READER_H
#define DDL_DATA_READER_H

#include "data/inputs.h"
#include "data/pipeline.h"

enum {
    DDL_BATCH_BYTES = 1 << 18,    /* text of a batch, about                                       */
    DDL_LONGEST_PIECE = 16 << 20, /* text without a place to cut                                  */
    DDL_LONGEST_LINE = 64 << 20,  /* of a .jsonl file                                             */
};

struct ddl_reader {
    /* given */
    const struct ddl_inputs *inputs;
    struct ddl_pipeline *pipeline;
    const char *separator; /* "" for none */
    bool cut_at_space;     /* see ddl_cut_find */
    double val_fraction;
    uint64_t seed;
    /* its own */
    struct ddl_text_batch *batch; /* being filled, or NULL                                             */
    uint64_t document;            /* documents begun so far                                            */
    uint64_t consumed;            /* bytes of the inputs before this one                               */
    struct ddl_source source;
    char *raw; /* bytes of the input that are not yet in a batch: raw[raw_at .. raw_size)         */
    size_t raw_at, raw_size;
    uint64_t offset;          /* unpacked bytes of this input before raw_at                       */
    struct ddl_segment piece; /* the open document's piece, or the open line                      */
    size_t next_cut;          /* size of the batch at which to look for a cut                     */
    char *carry;
    size_t carry_capacity;
};

/* Reads all inputs into the pipeline, and finishes it. A failure becomes the status of the last batch.
 * Returns after a stop too. */
void ddl_reader_run(struct ddl_reader *reader);

#endif
