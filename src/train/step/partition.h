/* The division of a flat buffer (model/params/flat.h) among the ranks of a run: which rank owns, that is,
 * updates which parameters. The buffer is cut into buckets of equal size, and each bucket into one piece per
 * rank (ddl_comm_cut), so that every bucket can be reduced as soon as its gradients are final. One rank owns
 * the whole buffer in one piece. */
#ifndef DDL_TRAIN_PARTITION_H
#define DDL_TRAIN_PARTITION_H

#include <stddef.h>

struct ddl_partition {
    size_t total;  /* floats of the flat buffer */
    size_t bucket; /* floats of a bucket; the last one may have fewer */
    size_t ranks;
};
/* Floats [begin, end) of the buffer. */
struct ddl_range {
    size_t begin, end;
};

/* Buckets of about so many bytes, at least one cache line per rank. */
struct ddl_partition ddl_partition_of(size_t total, size_t bucket_bytes, size_t ranks);
size_t ddl_partition_n_buckets(const struct ddl_partition *partition);
struct ddl_range ddl_partition_bucket(const struct ddl_partition *partition, size_t bucket);
/* The first part of `within` that the rank owns; begin == end if it owns nothing there. */
struct ddl_range ddl_partition_next(const struct ddl_partition *partition, size_t rank,
                                    struct ddl_range within);
/* Floats of the buffer that the rank owns. */
size_t ddl_partition_share(const struct ddl_partition *partition, size_t rank);

#endif
