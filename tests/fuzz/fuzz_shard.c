/* Fuzzes a shard, or an archive of a folder of shards. */
#include "fuzz.h"

#include "ddl/data.h"

#include <stdlib.h>

enum { TOKENS = 64 };

static void read_shards(ddl_shards *shards)
{
    struct ddl_error err = { 0 };
    int32_t tokens[TOKENS], targets[TOKENS];
    uint64_t sum = 0, count = ddl_shards_count(shards);
    FUZZ_CHECK(count > 0);
    bool small = ddl_shards_check(shards, 1000, NULL, NULL, &err) == DDL_OK;
    for (size_t i = 0; i < ddl_shards_n_files(shards); i++) {
        uint64_t n;
        int width;
        struct ddl_shard_stats stats;
        FUZZ_CHECK(ddl_shards_file(shards, i, &n, &width) && (width == 2 || width == 4));
        (void)ddl_shards_scan(shards, i, 256, &stats, NULL, NULL, &err);
        FUZZ_CHECK(stats.tokens == n && stats.documents <= n && (n == 0 || stats.largest_at < n));
        FUZZ_CHECK(!small || stats.largest < 1000);
        sum += n;
    }
    FUZZ_CHECK(sum == count);
    ddl_shards_read(shards, count - 1, TOKENS, tokens);
    for (int order = DDL_ORDER_RANDOM; order <= DDL_ORDER_ALIGNED; order++) {
        struct ddl_loader loader = {
            .shards = shards, .order = order, .seed = 3, .T = 7, .position = 1u << 20
        };
        ddl_loader_next(&loader, 3, tokens, targets);
    }
    for (size_t i = 0; i < TOKENS && small; i++)
        FUZZ_CHECK(tokens[i] >= 0 && tokens[i] < 1000);
    ddl_shards_close(shards);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ddl_error err = { 0 };
    ddl_shards *shards;
    const char *path = fuzz_folder();
    if (fuzz_is_archive(data, size))
        fuzz_unpack(data, size);
    else
        path = fuzz_file("train.bin", data, size);
    if (fuzz_ok(ddl_shards_open(&shards, path, &err), &err))
        read_shards(shards);
    return 0;
}
