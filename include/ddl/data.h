/* Shards of tokens, the loader that reads batches from them, and the builder that makes them. */
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

/* A set of shards, mapped: one file, or a folder (its .bin files), or a pattern "dir/prefix_*.bin"; files in
 * name order make one sequence of tokens. A shard: 256 int32 (magic 20240520, version 1 = uint16 or 2 =
 * uint32, token count), tokens; all little-endian. A folder that holds train_* and val_* shards is opened
 * whole: name one of them by a pattern. Opening refuses a file whose size, magic, version or count is wrong,
 * and a set without tokens. Read-only after opening: any number of threads may read. */
typedef struct ddl_shards ddl_shards;
/* The shards that path names. DDL_E_FORMAT, with the file's name, where one is damaged. */
DDL_API ddl_status ddl_shards_open(ddl_shards **out, const char *path, struct ddl_error *err);
DDL_API void ddl_shards_close(ddl_shards *shards);           /* NULL is allowed */
DDL_API uint64_t ddl_shards_count(const ddl_shards *shards); /* tokens in all, at least 1 */
DDL_API size_t ddl_shards_n_files(const ddl_shards *shards); /* files, at least 1 */
/* The path of file i (lent), or NULL past the last; tokens and bytes_per_token (2 or 4) may be NULL. */
DDL_API const char *ddl_shards_file(const ddl_shards *shards, size_t i, uint64_t *tokens,
                                    int *bytes_per_token);
/* Copies n tokens from position `start` on; positions wrap around at the end. A uint32 token beyond the int32
 * range comes out negative: ddl_shards_check finds it. */
DDL_API void ddl_shards_read(const ddl_shards *shards, uint64_t start, size_t n, int32_t *out);
/* Every token is below vocab_size, or an error that names file, position, token. Reads everything once. */
DDL_API ddl_status ddl_shards_check(const ddl_shards *shards, size_t vocab_size, struct ddl_error *err);
/* What file i holds, read once: its largest token and where it first stands, and how many documents begin in
 * it (tokens equal to end_of_text; 0 where end_of_text is negative). */
struct ddl_shard_stats {
    uint64_t tokens, largest_at, documents; /* all; position of the largest; that begin here */
    uint32_t largest;                       /* token                                         */
};
/* Fills stats for file i; a negative end_of_text counts no documents. */
DDL_API void ddl_shards_scan(const ddl_shards *shards, size_t i, int32_t end_of_text,
                             struct ddl_shard_stats *stats);

/* Batches in an order that is a function of (seed, position) alone. The state is one number. */
enum ddl_order {
    DDL_ORDER_RANDOM,     /* crops at seeded random offsets, with replacement */
    DDL_ORDER_SEQUENTIAL, /* one after the other, from the beginning          */
};
/* Where a reader of batches stands; a value, to be filled by the caller. */
struct ddl_loader {
    const ddl_shards *shards; /* borrowed */
    int order;                /* enum ddl_order */
    uint64_t seed;            /* of the random order */
    size_t T;
    uint64_t position; /* sequences handed out so far: save it to resume */
};
/* The next B sequences of the loader: tokens and targets (B, T), host memory. Moves its position. */
DDL_API void ddl_loader_next(struct ddl_loader *loader, size_t B, int32_t *tokens, int32_t *targets);

/* `ddl data build`: text to shards. Every document is preceded by the tokenizer's <|endoftext|>. The shards
 * are a function of the inputs, the tokenizer, val_fraction, seed, shard_tokens and separator alone: any
 * number of threads writes the same bytes. */
struct ddl_build_config {
    char tokenizer[1024]; /* as ddl_tokenizer_load                                                     */
    char out[1024];       /* folder; gets train_000000.bin, ..., and val_000000.bin with a split        */
    char text_key[128];   /* the .jsonl key that holds the text                                         */
    double val_fraction;  /* share of documents held out, chosen by hash of (seed, document number)     */
    uint64_t seed;        /* of the choice of held-out documents */
    size_t shard_tokens;  /* tokens a shard at most                                                     */
    size_t threads;       /* that encode; 0: one for each core                                          */
    char separator[128];  /* text files: a line equal to this starts a new document; "" means one document a
                             file */
    bool overwrite;       /* replaces the shards of an earlier build in `out`                           */
    bool quiet;           /* for the caller's progress display                                          */
};
/* How far a build is. */
struct ddl_build_progress {
    uint64_t bytes_in, bytes_total; /* of the files as they are, packed or not; bytes_total 0 where unknown
                                       (standard input)                                                  */
    uint64_t documents, tokens;     /* made so far */
    double seconds;                 /* since the beginning */
};
/* What a build made. */
struct ddl_build_result {
    uint64_t documents[2], tokens[2], bytes[2]; /* train, val; tokens with the <|endoftext|>, bytes of text */
    size_t shards[2];                           /* files, train and val */
    uint64_t skipped;                           /* empty documents */
    int bytes_per_token;                        /* 2, or 4 where the vocabulary has more than 65536 tokens */
    double seconds;                             /* of the whole build */
};
/* Called about ten times a second, from the thread that called ddl_data_build. Returning non-zero stops the
 * build with DDL_E_INTERRUPTED and removes what was written. */
typedef int ddl_build_progress_fn(void *user, const struct ddl_build_progress *progress);
DDL_API struct ddl_build_config ddl_build_defaults(void); /* what stands where no flag says another */
DDL_API const struct ddl_option *ddl_build_options(void); /* rows of struct ddl_build_config */
/* inputs: files (.txt, .jsonl, each also .gz or .zst), folders (walked in name order for such files), or "-"
 * for standard input as text. Text is any bytes but zero. Refused: an input that is missing, damaged, binary,
 * or no JSON object with the key (file, line), inputs without a document, a folder that already has shards
 * (but see overwrite). Shards appear in `out` when all of them are complete; after an error nothing that was
 * not there before is left. Memory does not grow with the inputs. progress and result may be NULL. */
DDL_API ddl_status ddl_data_build(const struct ddl_build_config *config, const char *const *inputs,
                                  size_t n_inputs, ddl_build_progress_fn *progress, void *user,
                                  struct ddl_build_result *result, struct ddl_error *err);

#ifdef __cplusplus
}
#endif
#endif
