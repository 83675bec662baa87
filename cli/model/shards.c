#include "cli/model/shards.h"
#include "cli/output/escape.h"

#include <stdio.h>

void report_assumed(const ddl_shards *shards)
{
    const char *path = ddl_shards_assumed(shards);
    if (path)
        fprintf(stderr, "ddl: %s: no shard header: reading uint16 tokens in nanoGPT's format\n",
                printable(path));
}
