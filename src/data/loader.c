#include "ddl/data.h"

#include "base/rng.h"

#include <assert.h>

__extension__ typedef unsigned __int128 uint128;

/* Returns the start of sequence n: n T modulo the number of tokens, or a random offset that is a function of
 * (seed, n). A random crop does not wrap around, unless the set has fewer than T + 1 tokens; an aligned one
 * has the token after the last as its last target. */
static uint64_t sequence_start(const struct ddl_loader *loader, uint64_t n)
{
    uint64_t count = ddl_shards_count(loader->shards), T = loader->T;
    if (loader->order == DDL_ORDER_SEQUENTIAL)
        return (uint64_t)((uint128)n * T % count);
    uint64_t key = ddl_rng_key(loader->seed, "data order");
    if (loader->order == DDL_ORDER_ALIGNED)
        return count > T ? ddl_rng_below(key, n, count / T) * T : 0;
    return ddl_rng_below(key, n, count > T ? count - T : count);
}

void ddl_loader_next(struct ddl_loader *loader, size_t B, int32_t *tokens, int32_t *targets)
{
    assert(loader->order >= DDL_ORDER_RANDOM && loader->order <= DDL_ORDER_ALIGNED);
    for (size_t b = 0; b < B; b++) {
        uint64_t start = sequence_start(loader, loader->position++);
        ddl_shards_read(loader->shards, start, loader->T, tokens + b * loader->T);
        ddl_shards_read_targets(loader->shards, start + 1, loader->T, targets + b * loader->T);
    }
}
