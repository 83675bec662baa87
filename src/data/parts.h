/* The parts of a build: ranges of its inputs that are encoded independently of each other, by any process. A
 * range begins at any byte; it has the documents that begin in it. So a file is divided between documents,
 * wherever its format allows finding the next one from any position. */
#ifndef DDL_DATA_PARTS_H
#define DDL_DATA_PARTS_H

#include "data/inputs.h"

enum { DDL_MAX_PARTS = 1000000 }; /* with six digits, name order is part order */

/* A range of an input, in bytes of the file. */
struct ddl_range {
    size_t input;
    uint64_t from, to; /* UINT64_MAX: the end of the file */
};

struct ddl_parts {
    struct ddl_range *ranges; /* in input order */
    size_t *first;            /* part i has the ranges first[i] to first[i + 1] - 1 */
    size_t n;
};

/* Divides the inputs into parts of about part_bytes; 0: one part. A part has several small files, one larger
 * file, or a range of an uncompressed file whose documents are lines of JSON or begin at lines equal to the
 * separator (may be ""). Depends on the sizes in `inputs` only. Free with ddl_parts_free, also after an
 * error. */
ddl_status ddl_parts_divide(struct ddl_parts *parts, const struct ddl_inputs *inputs, const char *separator,
                            size_t part_bytes, struct ddl_error *err);
void ddl_parts_free(struct ddl_parts *parts);

/* Returns the bytes of the files in part i, as far as the sizes are known. */
uint64_t ddl_parts_bytes(const struct ddl_parts *parts, const struct ddl_inputs *inputs, size_t i);
/* Assigns each part to one of n processes: the largest parts first, each to the process with the fewest bytes
 * so far. owner: (parts->n). */
ddl_status ddl_parts_assign(const struct ddl_parts *parts, const struct ddl_inputs *inputs, size_t n,
                            size_t *owner, struct ddl_error *err);

#endif
