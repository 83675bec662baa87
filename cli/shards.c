#include "shards.h"

#include <stdio.h>

void report_assumed(const ddl_shards *shards)
{
    if (ddl_shards_n_assumed(shards) > 0)
        fprintf(stderr, "ddl: %s: no shard header: reading uint16 tokens, as of nanoGPT\n",
                ddl_shards_file(shards, 0, NULL, NULL));
}
