/* Reads a file as a byte stream, decompressing it if necessary. */
#ifndef DDL_DATA_SOURCE_H
#define DDL_DATA_SOURCE_H

#include "ddl/status.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ddl_packing { DDL_PACKING_NONE, DDL_PACKING_GZIP, DDL_PACKING_ZSTD };

struct ddl_source {
    const char *path; /* borrowed; "-" is standard input */
    enum ddl_packing packing;
    const atomic_bool *stop; /* borrowed: when set, blocked reads of standard input return */
    int fd;
    bool eof;    /* end of file reached */
    bool inside; /* inside a gzip member or zstd frame */
    bool after;  /* a gzip member has ended */
    unsigned char *packed;
    size_t packed_at, packed_size; /* compressed data not yet consumed: packed[packed_at .. packed_size) */
    uint64_t consumed;             /* bytes of the file read so far, or before the position */
    void *decoder;
    struct {
        bool started;
        uint64_t expected, produced; /* frame size in its header (UINT64_MAX: unknown), and bytes so far */
    } frame;                         /* zstd frame */
};

/* After a failed open, close is not needed. */
ddl_status ddl_source_open(struct ddl_source *source, const char *path, enum ddl_packing packing,
                           const atomic_bool *stop, struct ddl_error *err);
/* Moves to a byte of the file, which is not compressed; before the first read. */
ddl_status ddl_source_seek(struct ddl_source *source, uint64_t byte, struct ddl_error *err);
/* Reads between 1 and `capacity` bytes into out; *n = 0 only at the end. Errors for corrupted or truncated
 * data state the offset in the compressed file. DDL_E_INTERRUPTED after *stop. */
ddl_status ddl_source_read(struct ddl_source *source, void *out, size_t capacity, size_t *n,
                           struct ddl_error *err);
void ddl_source_close(struct ddl_source *source); /* a zeroed or closed source is allowed */

#endif
