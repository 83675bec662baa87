/* Layout of a shard, shared by reader and writer: DDL_SHARD_HEADER bytes with 256 little-endian int32 (magic,
 * version, token count, zeros), then the tokens as little-endian uint16 (version 1) or uint32 (version 2). */
#ifndef DDL_DATA_SHARD_FORMAT_H
#define DDL_DATA_SHARD_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* What a build has written into a folder, and with which tokenizer: beside the shards. */
#define DDL_SHARD_RECORD "shards.json"
enum { DDL_SHARD_RECORD_MAX = 64 << 20 }; /* bytes */

enum { DDL_SHARD_MAGIC = 20240520, DDL_SHARD_HEADER = 1024 };

/* Splits of a build. */
enum { DDL_SPLIT_TRAIN, DDL_SPLIT_VAL, DDL_SPLITS };

/* File name of shard i of a split. */
enum { DDL_SHARD_NAME = 32 };
void ddl_shard_name(char name[DDL_SHARD_NAME], int split, size_t i);
/* True if a build writes shards of this name; masks of this name. */
bool ddl_shard_is_built(const char *name);
bool ddl_mask_is_built(const char *name);

/* Path of the mask of a shard: its name with .mask in place of .bin. False if it does not fit. */
bool ddl_shard_mask_path(char *path, size_t size, const char *shard);

/* Converts n tokens to little-endian integers of `width` bytes, and back. */
void ddl_tokens_pack(unsigned char *bytes, const int32_t *ids, size_t n, int width);
void ddl_tokens_unpack(int32_t *ids, const unsigned char *bytes, size_t n, int width);

/* True if a folder's set of shards includes files of this name: "*.bin", not hidden. */
static inline bool ddl_shard_name_fits(const char *name)
{
    size_t length = strlen(name);
    return name[0] != '.' && length > 4 && strcmp(name + length - 4, ".bin") == 0;
}

#endif
