#include "train/step/partition.h"

#include "base/mem.h"
#include "comm/comm.h"

struct ddl_partition ddl_partition_of(size_t total, size_t bucket_bytes, size_t ranks)
{
    const size_t line = DDL_ALIGN / sizeof(float);
    size_t bucket = bucket_bytes / DDL_ALIGN * line;
    if (ranks == 1)
        return (struct ddl_partition){ total, total, 1 };
    return (struct ddl_partition){ total, bucket > ranks * line ? bucket : ranks * line, ranks };
}

size_t ddl_partition_n_buckets(const struct ddl_partition *partition)
{
    return partition->total / partition->bucket + (partition->total % partition->bucket != 0);
}

struct ddl_range ddl_partition_bucket(const struct ddl_partition *partition, size_t bucket)
{
    size_t begin = bucket * partition->bucket, left = partition->total - begin;
    return (struct ddl_range){ begin, begin + (left < partition->bucket ? left : partition->bucket) };
}

static struct ddl_range piece_of(const struct ddl_partition *partition, size_t bucket, size_t rank)
{
    struct ddl_range whole = ddl_partition_bucket(partition, bucket);
    size_t n = whole.end - whole.begin;
    return (struct ddl_range){ whole.begin + ddl_comm_cut(n, partition->ranks, rank),
                               whole.begin + ddl_comm_cut(n, partition->ranks, rank + 1) };
}

struct ddl_range ddl_partition_next(const struct ddl_partition *partition, size_t rank,
                                    struct ddl_range within)
{
    for (size_t b = within.begin / partition->bucket; b * partition->bucket < within.end; b++) {
        struct ddl_range own = piece_of(partition, b, rank);
        own.begin = own.begin > within.begin ? own.begin : within.begin;
        own.end = own.end < within.end ? own.end : within.end;
        if (own.begin < own.end)
            return own;
    }
    return (struct ddl_range){ within.end, within.end };
}

size_t ddl_partition_share(const struct ddl_partition *partition, size_t rank)
{
    size_t share = 0;
    for (size_t b = 0; b < ddl_partition_n_buckets(partition); b++) {
        struct ddl_range own = piece_of(partition, b, rank);
        share += own.end - own.begin;
    }
    return share;
}
