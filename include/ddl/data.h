/* Shards of tokens (spec 6), the loader that reads batches from them, and the builder that makes them. */
#ifndef DDL_DATA_H
#define DDL_DATA_H

#include "ddl/option.h"
#include "ddl/status.h"
#include "ddl/tokenizer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A set of shards, mapped: one file, or a folder, or a pattern "dir/prefix_*.bin"; files in name order make
 * one sequence of tokens. A shard: 256 int32 (magic 20240520, version 1 = uint16 or 2 = uint32, token count),
 * tokens. */
typedef struct ddl_shards ddl_shards;
DDL_API ddl_status ddl_shards_open(ddl_shards **out, const char *path, struct ddl_error *err);
DDL_API void ddl_shards_close(ddl_shards *shards);
DDL_API uint64_t ddl_shards_count(const ddl_shards *shards); /* tokens in all */
DDL_API size_t ddl_shards_n_files(const ddl_shards *shards);
DDL_API const char *ddl_shards_file(const ddl_shards *shards, size_t i, uint64_t *tokens,
                                    int *bytes_per_token);
/* Copies n tokens from position `start` on; positions wrap around at the end. */
DDL_API void ddl_shards_read(const ddl_shards *shards, uint64_t start, size_t n, int32_t *out);
/* Every token is below vocab_size, or an error that names file, position, token. Reads everything once. */
DDL_API ddl_status ddl_shards_check(const ddl_shards *shards, size_t vocab_size, struct ddl_error *err);

/* Batches in an order that is a function of (seed, position) alone: spec 6. The state is one number. */
enum ddl_order { DDL_ORDER_RANDOM, DDL_ORDER_SEQUENTIAL };
struct ddl_loader {
    const ddl_shards *shards; /* borrowed */
    int order;                /* enum ddl_order */
    uint64_t seed;
    size_t T;
    uint64_t position; /* sequences handed out so far: save it to resume */
};
/* The next B sequences: tokens and targets (B, T). */
DDL_API void ddl_loader_next(struct ddl_loader *loader, size_t B, int32_t *tokens, int32_t *targets);

/* `ddl data build`. */
struct ddl_build_config {
    char tokenizer[1024]; /* as ddl_tokenizer_load                                                     */
    char out[1024];       /* folder; gets train_000000.bin, ..., and val_000000.bin with a split        */
    char text_key[128];   /* the .jsonl key that holds the text                                         */
    double val_fraction;  /* share of documents held out, chosen by hash of (seed, document number)     */
    uint64_t seed;
    size_t shard_tokens; /* tokens a shard at most                                                     */
    size_t threads;      /* 0: all cores                                                               */
    char separator[128]; /* text files: a line equal to this starts a new document; "" means one document a
                            file */
    bool quiet;
};
struct ddl_build_progress {
    uint64_t bytes_in, bytes_total; /* bytes_total 0 where unknown (standard input)                      */
    uint64_t documents, tokens;
    double seconds;
};
struct ddl_build_result {
    uint64_t documents[2], tokens[2], bytes[2]; /* train, val; bytes of text */
    size_t shards[2];
};
/* Returning non-zero stops the build with DDL_E_INTERRUPTED and removes what was written. */
typedef int ddl_build_progress_fn(void *user, const struct ddl_build_progress *progress);
DDL_API struct ddl_build_config ddl_build_defaults(void);
DDL_API const struct ddl_option *ddl_build_options(void);
/* inputs: files (.txt, .jsonl, each also .gz or .zst), folders (walked), or "-" for standard input as text.
 */
DDL_API ddl_status ddl_data_build(const struct ddl_build_config *config, const char *const *inputs,
                                  size_t n_inputs, ddl_build_progress_fn *progress, void *user,
                                  struct ddl_build_result *result, struct ddl_error *err);

#ifdef __cplusplus
}
#endif
#endif
