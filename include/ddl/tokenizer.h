/* Byte-level BPE (GPT-2): text to ids and back. */
#ifndef DDL_TOKENIZER_H
#define DDL_TOKENIZER_H

#include "ddl/option.h"
#include "ddl/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ddl_tokenizer ddl_tokenizer; /* a vocabulary, its merges and its special tokens */

/* `path`: a tokenizer.json of Hugging Face, or a folder that holds tokenizer.json, or vocab.bpe +
 * encoder.json. A tokenizer.json that asks for something this library does not do exactly (a normalizer,
 * another pre-tokenizer than GPT-2's ByteLevel, dropout, ...) is refused. A tokenizer is read-only after
 * loading: any number of threads may encode and decode with it at once. */
DDL_API ddl_status ddl_tokenizer_load(ddl_tokenizer **out, const char *path, struct ddl_error *err);
DDL_API void ddl_tokenizer_free(ddl_tokenizer *tokenizer); /* NULL is allowed */

/* Writes a tokenizer.json, which Hugging Face's `tokenizers` reads with the same result. `path`: the file, or
 * a folder that gets one (it exists, or its name does not end in .json). Folders that are missing are made;
 * the file appears whole or not at all. */
DDL_API ddl_status ddl_tokenizer_save(const ddl_tokenizer *tokenizer, const char *path,
                                      struct ddl_error *err);

DDL_API size_t ddl_tokenizer_vocab_size(const ddl_tokenizer *tokenizer); /* largest id + 1 */
DDL_API size_t ddl_tokenizer_n_merges(const ddl_tokenizer *tokenizer);   /* 0 where bytes stay bytes */
/* Special token number i: its text (not NUL-terminated, *size bytes; lent) and its *id; NULL past the last.
 */
DDL_API const char *ddl_tokenizer_special(const ddl_tokenizer *tokenizer, size_t i, int32_t *id,
                                          size_t *size);
/* The id of the special token "<|endoftext|>", or -1. */
DDL_API int32_t ddl_tokenizer_end_of_text(const ddl_tokenizer *tokenizer);

/* Ids that grow on demand; zero-initialise, free ids with ddl_ids_free. */
struct ddl_ids {
    int32_t *ids;
    size_t n, capacity; /* in use; that fit */
};
DDL_API void ddl_ids_free(struct ddl_ids *ids); /* the list in ids, which becomes empty */

/* Appends the ids of `text` (any bytes; size in bytes) to out. With `special`, texts of special tokens become
 * their ids; without, they are ordinary text. Fails only for want of memory. */
DDL_API ddl_status ddl_tokenizer_encode(const ddl_tokenizer *tokenizer, const char *text, size_t size,
                                        bool special, struct ddl_ids *out, struct ddl_error *err);

/* The *size bytes of one id (not NUL-terminated; lent); NULL for an id that has none. */
DDL_API const char *ddl_tokenizer_bytes(const ddl_tokenizer *tokenizer, int32_t id, size_t *size);

/* Decoding as a stream: holds back an incomplete UTF-8 sequence (n_held bytes) until it is complete.
 * Zero-initialise. */
struct ddl_decode_stream {
    unsigned char held[4]; /* its first n_held bytes count */
    size_t n_held;
};
/* The number of bytes that the token `id` adds to the stream's text, and at most size of them in out: what
 * does not fit is lost, so size should be 4 + the token's bytes. */
DDL_API size_t ddl_decode_push(struct ddl_decode_stream *stream, const ddl_tokenizer *tokenizer, int32_t id,
                               char *out, size_t size);
/* What the stream still holds, complete or not: the number of bytes, and at most size of them in out. */
DDL_API size_t ddl_decode_flush(struct ddl_decode_stream *stream, char *out, size_t size);

/* `ddl tokenizer train`: learns the merges of a byte-level BPE. Pieces as GPT-2 cuts them are counted, then
 * the most frequent pair is merged again and again, the pair of the lower ids first where counts are equal:
 * the same vocabulary as the BpeTrainer of `tokenizers` with the byte-level alphabet. */
struct ddl_tokenizer_train_config {
    size_t vocab_size;         /* tokens in all: special tokens, 256 bytes, merges                    */
    uint64_t min_frequency;    /* a pair that occurs less often is not merged                         */
    char special_tokens[1024]; /* texts split by commas; they take the first ids                      */
    size_t max_words;          /* distinct pieces kept while counting; beyond, the rarest are dropped */
};
/* How far learning is. */
struct ddl_tokenizer_train_progress {
    uint64_t bytes_in, bytes_total; /* of text counted                                            */
    size_t words;                   /* distinct pieces                                            */
    size_t vocab, vocab_size;       /* tokens so far, wanted; vocab is 0 while pieces are counted */
    double seconds;                 /* since the beginning                                        */
};
/* Called a few times a second at most. Returning non-zero stops with DDL_E_INTERRUPTED. */
typedef int ddl_tokenizer_train_progress_fn(void *user, const struct ddl_tokenizer_train_progress *progress);
DDL_API struct ddl_tokenizer_train_config ddl_tokenizer_train_defaults(void); /* where no flag says another */
DDL_API const struct ddl_option *ddl_tokenizer_train_options(void);           /* rows of the struct above */
/* `files`: each is one text. The result may have fewer than vocab_size tokens, where no pair is left that
 * occurs min_frequency times. A piece of more than 65536 bytes is left out. progress may be NULL. */
DDL_API ddl_status ddl_tokenizer_train(ddl_tokenizer **out, const struct ddl_tokenizer_train_config *config,
                                       const char *const *files, size_t n_files,
                                       ddl_tokenizer_train_progress_fn *progress, void *user,
                                       struct ddl_error *err);

#ifdef __cplusplus
}
#endif
#endif
