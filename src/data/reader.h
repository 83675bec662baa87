/* The reader thread of the builder: splits ranges of inputs into documents, and long documents into
 * pieces. */
#ifndef DDL_DATA_READER_H
#define DDL_DATA_READER_H

#include "data/parts.h"
#include "data/pipeline.h"

enum {
    DDL_BATCH_BYTES = 1 << 18,    /* approximate text bytes per batch */
    DDL_LONGEST_PIECE = 16 << 20, /* longest text without a cut position */
    DDL_LONGEST_LINE = 64 << 20,  /* of a .jsonl file */
};

/* The text that was read of a range: from its first byte to `end`, in decompressed bytes of the file. */
struct ddl_range_text {
    uint64_t end;
    uint32_t crc; /* CRC-32 */
};

struct ddl_reader {
    /* set by the caller */
    const struct ddl_inputs *inputs;
    const struct ddl_range *ranges; /* (n_ranges) */
    size_t n_ranges;
    struct ddl_range_text *texts; /* result: (n_ranges), or NULL */
    struct ddl_pipeline *pipeline;
    const char *separator; /* "" for none */
    bool cut_at_space;     /* see ddl_cut_find */
    /* internal */
    const struct ddl_range *range; /* being read */
    struct ddl_range_text text;    /* of it */
    bool aligned;                  /* past the line in which the range begins */
    bool outside;                  /* before the first document that begins in the range */
    struct ddl_text_batch *batch;  /* being filled, or NULL */
    uint64_t consumed;             /* bytes of the ranges before this one */
    struct ddl_source source;
    char *raw; /* bytes of the input not yet in a batch: raw[raw_at .. raw_size) */
    size_t raw_at, raw_size;
    uint64_t offset;          /* decompressed bytes of this input before raw_at */
    struct ddl_segment piece; /* piece of the open document, or the open line */
    size_t next_cut;          /* batch size at which to look for the next cut */
    char *carry;
    size_t carry_capacity;
};

/* Reads all ranges into the pipeline and finishes it. An error becomes the status of the last batch. Also
 * returns after the pipeline was stopped. */
void ddl_reader_run(struct ddl_reader *reader);

#endif
