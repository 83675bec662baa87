/* Byte-level BPE (GPT-2): text to ids and back. */
#ifndef DDL_TOKENIZER_H
#define DDL_TOKENIZER_H

#include "ddl/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ddl_tokenizer ddl_tokenizer;

/* `path`: a tokenizer.json of Hugging Face, or a folder that holds tokenizer.json, or vocab.bpe +
 * encoder.json. A tokenizer is read-only after loading: any number of threads may encode and decode with it
 * at once. */
DDL_API ddl_status ddl_tokenizer_load(ddl_tokenizer **out, const char *path, struct ddl_error *err);
DDL_API void ddl_tokenizer_free(ddl_tokenizer *tokenizer);

DDL_API size_t ddl_tokenizer_vocab_size(const ddl_tokenizer *tokenizer); /* largest id + 1 */
/* The id of "<|endoftext|>", or -1. */
DDL_API int32_t ddl_tokenizer_end_of_text(const ddl_tokenizer *tokenizer);

/* Ids that grow on demand; zero-initialise, free ids with ddl_ids_free. */
struct ddl_ids {
    int32_t *ids;
    size_t n, capacity;
};
DDL_API void ddl_ids_free(struct ddl_ids *ids);

/* Appends the ids of `text` (any bytes; size in bytes). With `special`, texts of special tokens become their
 * ids; without, they are ordinary text. Fails only for want of memory. */
DDL_API ddl_status ddl_tokenizer_encode(const ddl_tokenizer *tokenizer, const char *text, size_t size,
                                        bool special, struct ddl_ids *out, struct ddl_error *err);

/* The bytes of one id (not NUL-terminated; lent); NULL for an id that has none. */
DDL_API const char *ddl_tokenizer_bytes(const ddl_tokenizer *tokenizer, int32_t id, size_t *size);

/* Decoding as a stream: holds back an incomplete UTF-8 sequence until it is complete. Zero-initialise. push
 * writes at most size bytes and returns how many it would have written (so size >= 4 + the token's bytes
 * suffices); flush gives what is held, complete or not. */
struct ddl_decode_stream {
    unsigned char held[4];
    size_t n_held;
};
DDL_API size_t ddl_decode_push(struct ddl_decode_stream *stream, const ddl_tokenizer *tokenizer, int32_t id,
                               char *out, size_t size);
DDL_API size_t ddl_decode_flush(struct ddl_decode_stream *stream, char *out, size_t size);

#ifdef __cplusplus
}
#endif
#endif
