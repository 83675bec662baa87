/* The writing side of the builder: tokens into shards, in a folder beside their last place until all of them
 * are complete. */
#ifndef DDL_DATA_SHARD_SET_H
#define DDL_DATA_SHARD_SET_H

#include "base/file.h"
#include "data/text_batch.h"

struct ddl_shard_set {
    char out[1024], work[1088]; /* the folder asked for; the hidden one in it that is written to  */
    size_t out_kept;            /* length of the part of `out` that was there before              */
    bool overwrite;
    int width; /* bytes a token */
    size_t shard_tokens;
    struct ddl_shard_sequence {
        struct ddl_file_writer writer;
        bool open;
        uint64_t in_shard, tokens; /* in the open shard; in all */
        size_t shards;             /* begun                     */
    } split[DDL_SPLITS];
};

/* Refuses a folder with shards, unless `overwrite`; other .bin files than a build's are refused always. After
 * begin exactly one of publish and discard must be called. */
ddl_status ddl_shard_set_begin(struct ddl_shard_set *set, const char *out, bool overwrite, int width,
                               size_t shard_tokens, struct ddl_error *err);
ddl_status ddl_shard_set_append(struct ddl_shard_set *set, int split, const int32_t *ids, size_t n,
                                struct ddl_error *err);
/* Closes the last shards and moves all into place; discards them where that fails. */
ddl_status ddl_shard_set_publish(struct ddl_shard_set *set, struct ddl_error *err);
void ddl_shard_set_discard(struct ddl_shard_set *set);

#endif
