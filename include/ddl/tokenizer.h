/* Converts text to token ids and back: byte-level BPE (GPT-2), or one token per character. */
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

#define DDL_TOKENIZER_SHIPPED "gpt2" /* GPT-2's tokenizer, which comes with ddl */

/* Loads a tokenizer. `path`: a Hugging Face tokenizer.json; a folder with tokenizer.json, or with vocab.bpe
 * and encoder.json; or DDL_TOKENIZER_SHIPPED. A tokenizer.json that requires a feature this library does not
 * implement exactly (a normalizer, a pre-tokenizer other than GPT-2's ByteLevel, dropout, ...) is rejected
 * with DDL_E_UNSUPPORTED; a malformed file is DDL_E_FORMAT, a missing one DDL_E_IO. *out is NULL after an
 * error. A tokenizer is immutable after loading: any number of threads may use it concurrently. */
DDL_API ddl_status ddl_tokenizer_load(ddl_tokenizer **out, const char *path, struct ddl_error *err);
DDL_API void ddl_tokenizer_free(ddl_tokenizer *tokenizer); /* NULL is allowed */

/* Writes a tokenizer.json that Hugging Face's `tokenizers` loads with identical results. `path`: a file, or a
 * folder in which to create one (an existing folder, or a name that does not end in .json). Creates missing
 * folders. The write is atomic; DDL_E_IO if it fails. */
DDL_API ddl_status ddl_tokenizer_save(const ddl_tokenizer *tokenizer, const char *path,
                                      struct ddl_error *err);

/* The file that ddl_tokenizer_save writes for `path`, into out. DDL_E_USAGE if it does not fit in `size`
 * bytes. */
DDL_API ddl_status ddl_tokenizer_file(char *out, size_t size, const char *path, struct ddl_error *err);

/* Which tokenizer it is. Two tokenizers with the same SHA-256 give the same ids. */
struct ddl_tokenizer_identity {
    char name[256];      /* for messages: the path that it was loaded from */
    size_t vocab_size;   /* largest id + 1                                  */
    int32_t end_of_text; /* id of <|endoftext|>, or -1 */
    char sha256[65]; /* in hexadecimal, of the tokenizer.json that ddl_tokenizer_save writes; "": unknown */
};
/* The identity of tokenizer into *out; `path` is its name, truncated. The only possible error is
 * DDL_E_MEMORY. */
DDL_API ddl_status ddl_tokenizer_identify(const ddl_tokenizer *tokenizer, const char *path,
                                          struct ddl_tokenizer_identity *out, struct ddl_error *err);

DDL_API size_t ddl_tokenizer_vocab_size(const ddl_tokenizer *tokenizer); /* largest id + 1 */
DDL_API size_t ddl_tokenizer_n_merges(const ddl_tokenizer *tokenizer);   /* 0 if there are none */
/* True if every token but the special ones of `tokenizer` is one Unicode character. */
DDL_API bool ddl_tokenizer_is_characters(const ddl_tokenizer *tokenizer);
/* Returns the text of special token i (borrowed, *size bytes, not NUL-terminated) and its *id; NULL past the
 * last. */
DDL_API const char *ddl_tokenizer_special(const ddl_tokenizer *tokenizer, size_t i, int32_t *id,
                                          size_t *size);
/* Begins every document. */
#define DDL_END_OF_TEXT "<|endoftext|>"
/* Returns the id of the special token DDL_END_OF_TEXT, or -1. */
DDL_API int32_t ddl_tokenizer_end_of_text(const ddl_tokenizer *tokenizer);

/* A growable list of ids. Zero-initialize; free with ddl_ids_free. */
struct ddl_ids {
    int32_t *ids;
    size_t n, capacity; /* ids in use; allocated */
};
DDL_API void ddl_ids_free(struct ddl_ids *ids); /* frees the list in ids and empties it */

/* Appends the ids of `text` (any bytes; size in bytes) to out. If `special`, texts of special tokens are
 * encoded as their ids; otherwise as ordinary text. DDL_E_MEMORY; DDL_E_FORMAT, with its position, for a
 * character that a tokenizer of characters does not have. */
DDL_API ddl_status ddl_tokenizer_encode(const ddl_tokenizer *tokenizer, const char *text, size_t size,
                                        bool special, struct ddl_ids *out, struct ddl_error *err);

/* Returns the *size bytes of one id (borrowed, not NUL-terminated); NULL if no token has this id. */
DDL_API const char *ddl_tokenizer_bytes(const ddl_tokenizer *tokenizer, int32_t id, size_t *size);

/* Returns the length of the UTF-8 character that `text` (size bytes) begins with, 1 to 4, or 0 if it does not
 * begin with a complete valid character. */
DDL_API size_t ddl_utf8_length(const char *text, size_t size);

/* Streaming detokenizer: holds back an incomplete UTF-8 sequence (n_held bytes) until it is complete.
 * Zero-initialize. */
struct ddl_decode_stream {
    unsigned char held[4]; /* the first n_held bytes are valid */
    size_t n_held;
};
/* Appends the token `id` to stream. Writes the text that is now complete to out, at most size bytes (the rest
 * is lost: size should be at least 4 + the token's bytes). Returns the untruncated number of bytes. */
DDL_API size_t ddl_decode_push(struct ddl_decode_stream *stream, const ddl_tokenizer *tokenizer, int32_t id,
                               char *out, size_t size);
/* Writes the bytes that stream holds, complete or not, to out, at most size bytes. Returns the untruncated
 * number of bytes. */
DDL_API size_t ddl_decode_flush(struct ddl_decode_stream *stream, char *out, size_t size);

/* Format of a text input. */
enum ddl_text_format {
    DDL_TEXT_PLAIN, /* the bytes are the text */
    DDL_TEXT_JSONL, /* one JSON object per line */
};
/* How text inputs are read. */
struct ddl_text_input {
    char text_key[128];  /* the .jsonl key of the text */
    char separator[128]; /* text files: a line equal to this starts a new document; "" for one document per
                            file */
    int stdin_format;    /* enum ddl_text_format: of standard input */
    char prompt_key[128], response_key[128]; /* both or neither: a document is a prompt and a response, under
                                                these .jsonl keys, and text_key has no effect */
};

/* `ddl tokenizer train`: collects the characters of the inputs, or learns the merges of a byte-level BPE.
 * Counts the pieces of GPT-2's pre-tokenization, then repeatedly merges the most frequent pair; ties go to
 * the pair of lower ids. The result equals that of the BpeTrainer of `tokenizers` with the byte-level
 * alphabet. */
struct ddl_tokenizer_train_config {
    bool characters;           /* every distinct character of the inputs is a token; vocab_size, min_frequency
                                  and max_words have no effect, and the special tokens get the last ids */
    size_t vocab_size;         /* total: special tokens, 256 bytes, merges */
    uint64_t min_frequency;    /* pairs that occur less often are not merged */
    char special_tokens[1024]; /* comma-separated; they get the first ids */
    size_t max_words; /* limit on distinct pieces kept while counting; beyond it, the rarest are dropped */
    struct ddl_text_input input; /* how the inputs are read */
};
/* Progress of training. */
struct ddl_tokenizer_train_progress {
    uint64_t bytes_in, bytes_total; /* bytes of the inputs, before decompression; bytes_total is 0 if unknown
                                       (standard input) */
    size_t words;                   /* distinct pieces */
    size_t vocab, vocab_size;       /* tokens so far, and requested; vocab is 0 while pieces are counted */
    double seconds;                 /* since the start */
};
/* Called at most five times a second, on the thread that called ddl_tokenizer_train. A nonzero return value
 * stops training with DDL_E_INTERRUPTED. */
typedef int ddl_tokenizer_train_progress_fn(void *user, const struct ddl_tokenizer_train_progress *progress);
DDL_API struct ddl_tokenizer_train_config ddl_tokenizer_train_defaults(void); /* defaults of the options */
DDL_API const struct ddl_option *
ddl_tokenizer_train_options(void); /* option rows of struct ddl_tokenizer_train_config */
/* Trains a tokenizer on the documents of the inputs, which are those of ddl_data_build, read in the same way.
 * The result has fewer than vocab_size tokens if no remaining pair occurs min_frequency times. Pieces longer
 * than 65536 bytes are ignored. Memory use does not grow with the inputs. DDL_E_USAGE for a value out of
 * range, an empty list of inputs, or a special token that is empty, not UTF-8, the byte-level spelling of
 * another text, or with `characters` a character of the inputs; DDL_E_FORMAT for inputs without text.
 * progress may be NULL. */
DDL_API ddl_status ddl_tokenizer_train(ddl_tokenizer **out, const struct ddl_tokenizer_train_config *config,
                                       const char *const *inputs, size_t n_inputs,
                                       ddl_tokenizer_train_progress_fn *progress, void *user,
                                       struct ddl_error *err);

#ifdef __cplusplus
}
#endif
#endif
