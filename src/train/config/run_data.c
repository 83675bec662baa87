#include "train/config/run_data.h"

#include "base/crc32c.h"

#include <string.h>

static ddl_status open_shards(const char *key, const char *path, int split, int format, ddl_shards **out,
                              struct ddl_error *err)
{
    const struct ddl_shards_options options = { .split = split, .format = format };
    ddl_status status = ddl_shards_open_with(out, path, &options, err);
    return status ? ddl_error_prefix(err, status, key) : DDL_OK;
}

ddl_status ddl_train_open_train(const struct ddl_train_config *config, ddl_shards **out,
                                struct ddl_error *err)
{
    return open_shards("train_data", config->train_data, DDL_SHARDS_TRAIN, config->format, out, err);
}

ddl_status ddl_train_open_val(const struct ddl_train_config *config, const ddl_shards *train,
                              ddl_shards **out, struct ddl_error *err)
{
    bool automatic = strcmp(config->val_data, "auto") == 0;
    *out = NULL;
    if (*config->val_data == '\0' || strcmp(config->val_data, "none") == 0 ||
        (automatic && ddl_shards_n_left_out(train, true) == 0))
        return DDL_OK;
    return open_shards("val_data", automatic ? config->train_data : config->val_data, DDL_SHARDS_VAL,
                       config->format, out, err);
}

struct ddl_data_identity ddl_train_data_identity(const ddl_shards *shards)
{
    enum { PLACES = 64, TOKENS = 64 };
    uint32_t checksums[PLACES];
    if (!shards)
        return (struct ddl_data_identity){ 0 };
    uint64_t count = ddl_shards_count(shards);
    for (uint64_t i = 0; i < PLACES; i++) {
        int32_t tokens[TOKENS];
        ddl_shards_read_targets(shards, count / PLACES * i, TOKENS, tokens);
        checksums[i] = ddl_crc32c(tokens, sizeof tokens);
    }
    return (struct ddl_data_identity){ count, ddl_crc32c(checksums, sizeof checksums) };
}
