/* Writes tokens into shards, in a folder for incomplete output. publish.h moves them into place. */
#ifndef DDL_DATA_SHARD_SET_H
#define DDL_DATA_SHARD_SET_H

#include "base/file.h"
#include "data/shard_format.h"
#include "ddl/tokenizer.h"

#include <jansson.h>

struct ddl_shard_set {
    char work[1088]; /* folder of the shards */
    int width;       /* bytes per token */
    size_t shard_tokens;
    struct ddl_shard_sequence {
        struct ddl_file_writer writer;
        bool open;
        uint64_t in_shard, tokens; /* in the current file; total */
        size_t shards;             /* created so far */
    } split[DDL_SPLITS], mask[DDL_SPLITS];
};

/* Creates the folder `work`, empty. After a successful begin, either publish the shards or call discard. */
ddl_status ddl_shard_set_begin(struct ddl_shard_set *set, const char *work, int width, size_t shard_tokens,
                               struct ddl_error *err);
ddl_status ddl_shard_set_append(struct ddl_shard_set *set, int split, const int32_t *ids, size_t n,
                                struct ddl_error *err);
/* The same for tokens of set->width bytes each, as in a shard. */
ddl_status ddl_shard_set_append_packed(struct ddl_shard_set *set, int split, const unsigned char *bytes,
                                       size_t n, struct ddl_error *err);
/* Appends n bytes `group` to the masks of the split, which are divided as its shards are: in the end they
 * have as many bytes as those have tokens, or there are none. */
ddl_status ddl_shard_set_append_mask(struct ddl_shard_set *set, int split, unsigned char group, uint64_t n,
                                     struct ddl_error *err);
/* Closes the last shard and mask of each split; a later append begins another one. */
ddl_status ddl_shard_set_close(struct ddl_shard_set *set, struct ddl_error *err);
/* The following three need a closed split. Reads n tokens from position `start`; start + n is at most the
 * number of tokens. */
ddl_status ddl_shard_set_read(const struct ddl_shard_set *set, int split, uint64_t start, size_t n,
                              int32_t *ids, struct ddl_error *err);
/* Makes the validation shards training shards; there must be no training shards. This and the next function
 * are not for sets with masks. */
ddl_status ddl_shard_set_make_train(struct ddl_shard_set *set, struct ddl_error *err);
/* Removes all but the first `tokens` tokens, at least 1. */
ddl_status ddl_shard_set_truncate(struct ddl_shard_set *set, int split, uint64_t tokens,
                                  struct ddl_error *err);
/* What the record of a build states, besides its files and tokens. */
struct ddl_shard_record {
    const struct ddl_tokenizer_identity *tokenizer;
    uint64_t documents[DDL_SPLITS], bytes[DDL_SPLITS]; /* bytes of text */
    uint64_t skipped;                                  /* empty documents */
    const char *build;                                 /* identity of the build */
};
/* Of a closed set: writes the record, with `options` (owned; NULL without memory) and the size of each shard
 * and mask. A folder with a record is complete. */
ddl_status ddl_shard_set_record(struct ddl_shard_set *set, const struct ddl_shard_record *record,
                                json_t *options, struct ddl_error *err);
/* Removes the folder and all shards in it. */
void ddl_shard_set_discard(struct ddl_shard_set *set);

#endif
