#include "data/shard_format.h"

#include <stdio.h>

static const char *const split_names[DDL_SPLITS] = { "train", "val" };

void ddl_shard_name(char name[DDL_SHARD_NAME], int split, size_t i)
{
    snprintf(name, DDL_SHARD_NAME, "%s_%06zu.bin", split_names[split], i);
}

static bool is_built(const char *name, const char *ending)
{
    for (int split = 0; split < DDL_SPLITS; split++) {
        size_t n = strlen(split_names[split]);
        if (strncmp(name, split_names[split], n) == 0 && name[n] == '_' &&
            strspn(name + n + 1, "0123456789") == 6 && strcmp(name + n + 7, ending) == 0)
            return true;
    }
    return false;
}

bool ddl_shard_is_built(const char *name)
{
    return is_built(name, ".bin");
}

bool ddl_mask_is_built(const char *name)
{
    return is_built(name, ".mask");
}

bool ddl_shard_mask_path(char *path, size_t size, const char *shard)
{
    size_t length = strlen(shard);
    if (length >= 4 && strcmp(shard + length - 4, ".bin") == 0)
        length -= 4;
    int n = snprintf(path, size, "%.*s.mask", (int)length, shard);
    return n > 0 && (size_t)n < size;
}

void ddl_tokens_pack(unsigned char *bytes, const int32_t *ids, size_t n, int width)
{
    for (size_t i = 0; i < n; i++) {
        for (int b = 0; b < width; b++)
            *bytes++ = (unsigned char)((uint32_t)ids[i] >> 8 * b);
    }
}

void ddl_tokens_unpack(int32_t *ids, const unsigned char *bytes, size_t n, int width)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t id = 0;
        for (int b = 0; b < width; b++)
            id |= (uint32_t)*bytes++ << 8 * b;
        ids[i] = (int32_t)id;
    }
}
