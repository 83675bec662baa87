/* Token shards, the loader that reads batches from them, and the builder that creates them. */
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

/* A memory-mapped set of shards: one file, the .bin files of a folder, a pattern "dir/prefix_*.bin", or
 * several of these separated by commas. The files, in name order, form one sequence of tokens. See
 * enum ddl_shards_format for the files. Opening fails if the size, magic, version or count of a file is
 * wrong, if a mask has another size, or if the set has no tokens or counts none. Immutable after opening: any
 * number of threads may read. */
typedef struct ddl_shards ddl_shards;
/* Which files of a set are opened. A file is a training shard if "train" is a word of its name, and a
 * validation shard if "val", "valid" or "validation" is one: train_000000.bin, val.bin,
 * fineweb_val_000000.bin. */
enum ddl_shards_split {
    DDL_SHARDS_ALL,   /* all files */
    DDL_SHARDS_TRAIN, /* the training shards if there are any, else all but the validation shards if there are
                         others, else all */
    DDL_SHARDS_VAL,   /* the validation shards if there are any, else all */
};
/* Format of the files, which are little-endian. */
enum ddl_shards_format {
    DDL_SHARDS_AUTO, /* by the header; a file train.bin or val.bin without one is nanoGPT's */
    DDL_SHARDS_LLMC, /* of this library and of llm.c: 256 int32 (magic, version, token count, zeros), then the
                        tokens: magic 20240520, version 1 = uint16 or 2 = uint32; magic 20240801, version 7 =
                        uint32 */
    DDL_SHARDS_NANOGPT, /* uint16 tokens without a header */
};
DDL_API extern const char *const ddl_shards_format_names[]; /* "auto", "llm.c", "nanogpt", NULL */
/* How a set is opened. Zero-initialized: all files, of any format. */
struct ddl_shards_options {
    int split;  /* enum ddl_shards_split */
    int format; /* enum ddl_shards_format */
};
/* Opens the shards at path. DDL_E_FORMAT, with the file's name, if one is corrupted or the set has no tokens;
 * DDL_E_UNSUPPORTED for an unknown version; DDL_E_IO if a file is missing or no file matches. *out is NULL
 * after an error. options may be NULL. */
DDL_API ddl_status ddl_shards_open_with(ddl_shards **out, const char *path,
                                        const struct ddl_shards_options *options, struct ddl_error *err);
/* Opens all files at path. */
DDL_API ddl_status ddl_shards_open(ddl_shards **out, const char *path, struct ddl_error *err);
DDL_API void ddl_shards_close(ddl_shards *shards);           /* NULL is allowed */
DDL_API uint64_t ddl_shards_count(const ddl_shards *shards); /* total tokens, at least 1 */
DDL_API size_t ddl_shards_n_files(const ddl_shards *shards); /* files, at least 1 */
/* Returns the path of the first file that has no header and was recognized as nanoGPT's by its name and size
 * only (borrowed); NULL if there is none. */
DDL_API const char *ddl_shards_assumed(const ddl_shards *shards);
/* Returns how many files of the path are not in the set because of `split`: validation shards, or others. */
DDL_API size_t ddl_shards_n_left_out(const ddl_shards *shards, bool validation);
/* Returns the path of file i (borrowed), or NULL past the last; tokens and bytes_per_token (2 or 4) may be
 * NULL. */
DDL_API const char *ddl_shards_file(const ddl_shards *shards, size_t i, uint64_t *tokens,
                                    int *bytes_per_token);
/* Copies n tokens starting at position `start` to out; positions wrap around at the end. A uint32 token above
 * the int32 range is returned as a negative value; ddl_shards_check detects it. */
DDL_API void ddl_shards_read(const ddl_shards *shards, uint64_t start, size_t n, int32_t *out);
/* Copies n tokens from position `start` to out as ddl_shards_read does, but -1 in place of those that the
 * mask of their shard ignores: a shard NAME.bin may have a mask NAME.mask in its folder, one byte per token.
 * 0: the token is not counted as a target; g >= 1: it is, and belongs to group g. Without a mask all tokens
 * are counted, in group 1. */
DDL_API void ddl_shards_read_targets(const ddl_shards *shards, uint64_t start, size_t n, int32_t *out);
/* Copies the bytes of the masks for n tokens from position `start` to out; 1 where there is no mask. */
DDL_API void ddl_shards_read_groups(const ddl_shards *shards, uint64_t start, size_t n, unsigned char *out);
DDL_API size_t ddl_shards_n_masks(const ddl_shards *shards); /* files with a mask */
/* Checks that every token is below vocab_size; the error states file, position and token. Reads all files
 * once. progress, in tokens, may be NULL. */
DDL_API ddl_status ddl_shards_check(const ddl_shards *shards, size_t vocab_size, ddl_progress_fn *progress,
                                    void *user, struct ddl_error *err);
enum { DDL_MASK_GROUPS = 256 /* values of a byte of a mask */ };
/* Statistics of one file, computed in one pass. A document begins at each token equal to end_of_text. */
struct ddl_shard_stats {
    uint64_t tokens, largest_at, documents; /* total; index of the largest; that begin here */
    uint32_t largest;                       /* token */
    bool masked;                            /* it has a mask */
    uint64_t groups[DDL_MASK_GROUPS];       /* tokens by the byte of the mask: group 0 is ignored */
};
/* Computes stats of file i; no documents are counted if end_of_text is negative. progress, in tokens of the
 * whole set, may be NULL; the result is DDL_OK or DDL_E_INTERRUPTED. */
DDL_API ddl_status ddl_shards_scan(const ddl_shards *shards, size_t i, int32_t end_of_text,
                                   struct ddl_shard_stats *stats, ddl_progress_fn *progress, void *user,
                                   struct ddl_error *err);

/* The token that begins a document by the convention of the first file's format: 50256, <|endoftext|> of
 * GPT-2, or 128000, <|begin_of_text|> of Llama 3. ddl_shards_identity says it of shards with a record. */
DDL_API int32_t ddl_shards_usual_end_of_text(const ddl_shards *shards);
/* Writes to *out which tokenizer built the shards, from the records (shards.json) in their folders that list
 * them; out->sha256 is empty if there are none. DDL_E_FORMAT if two files were built with different
 * tokenizers, or if a record is corrupted. */
DDL_API ddl_status ddl_shards_identity(const ddl_shards *shards, struct ddl_tokenizer_identity *out,
                                       struct ddl_error *err);
/* Rows of the embedding for a tokenizer of n tokens: the next multiple of 64. */
DDL_API size_t ddl_vocab_size_padded(size_t n);
/* What must fit together. All pointers may be NULL, but tokenizer_path only without a tokenizer; all are
 * borrowed. */
struct ddl_vocabulary {
    size_t vocab_size;              /* of the model */
    const ddl_tokenizer *tokenizer; /* of the model or the run */
    const char *tokenizer_path;     /* of the tokenizer, for messages */
    const ddl_shards *train;        /* training shards */
    const ddl_shards *val;          /* validation shards */
};
/* DDL_E_FORMAT, with both in the message, if shards of `vocabulary` were built with another tokenizer than
 * its tokenizer or than each other, or if the tokenizer has more than vocab_size tokens. A vocab_size above
 * the padded size is reported to `warn`. *out gets the tokenizer's identity, with an empty sha256 if neither
 * a tokenizer nor a record says it; out and warn may be NULL. */
DDL_API ddl_status ddl_vocabulary_check(const struct ddl_vocabulary *vocabulary,
                                        struct ddl_tokenizer_identity *out, ddl_warn_fn *warn, void *user,
                                        struct ddl_error *err);

/* Order of batches: a function of (seed, position) only, so that the state is one integer. */
enum ddl_order {
    DDL_ORDER_RANDOM,     /* crops at seeded random offsets, with replacement */
    DDL_ORDER_SEQUENTIAL, /* consecutive, from the beginning */
    DDL_ORDER_ALIGNED,    /* seeded random ones of those that begin at a multiple of T, with replacement */
};
/* State of a batch reader, initialized by the caller. */
struct ddl_loader {
    const ddl_shards *shards; /* borrowed */
    int order;                /* enum ddl_order */
    uint64_t seed;            /* of the random order */
    size_t T;                 /* tokens of a sequence */
    uint64_t position;        /* sequences returned so far: save it to resume */
};
/* Reads the next B sequences into tokens and targets (B, T), host memory; a target that a mask ignores is -1.
 * Advances the position of loader. */
DDL_API void ddl_loader_next(struct ddl_loader *loader, size_t B, int32_t *tokens, int32_t *targets);

/* `ddl data build`: converts text to shards. The tokenizer's <|endoftext|> precedes every document. The
 * shards are a function of the inputs, the tokenizer, val_fraction, seed, shard_tokens and input: the output
 * does not depend on the number of threads and processes, nor on part_bytes.
 *
 * The inputs are divided into parts, which are encoded one after the other and kept in the folder .build in
 * `out` until the shards are complete. So several processes can each encode some of the parts (`shard`), and
 * a build that was killed continues after the parts that are finished. The process that ends last
 * writes the shards. */
struct ddl_build_config {
    char tokenizer[1024]; /* as in ddl_tokenizer_load */
    char out[1024];       /* folder for train_000000.bin, ..., and with a validation set val_000000.bin */
    double
        val_fraction;    /* share held out: of the documents, selected by a hash of (seed, document index); if
                            that leaves the training or the validation set empty, of the tokens, from the end */
    uint64_t seed;       /* of the selection of held-out documents */
    size_t shard_tokens; /* maximum tokens per shard */
    size_t part_bytes;   /* bytes of input per part, at least 1: an uncompressed file is divided between
                            documents (lines of JSON, or separator lines); a compressed file is in one part */
    char shard[32];      /* "i/n": encode the parts of process i of n, from 0; empty: all parts */
    size_t threads;      /* encoder threads; 0: one per core */
    struct ddl_text_input input; /* how the inputs are read */
    bool overwrite;              /* replace the shards of an earlier build in `out` */
    bool quiet;                  /* no progress, no result (used by the caller) */
};
/* Progress of a build: of the parts that this process encodes, then of the writing of shards. */
struct ddl_build_progress {
    uint64_t bytes_in, bytes_total; /* bytes of the input files, before decompression; bytes_total is 0 if
                                       unknown (standard input). If `merging`, bytes of tokens. */
    uint64_t documents, tokens;     /* encoded so far by this process */
    double seconds;                 /* since the start */
    bool merging;                   /* the parts are being copied into shards */
};
/* Result of a build. If it is not complete, only the parts, bytes_per_token and seconds are set. */
struct ddl_build_result {
    bool complete; /* the shards are in `out`; else other processes finish the build */
    size_t parts;  /* of the build; 0 if the shards were complete, or only had to be moved into place */
    size_t parts_encoded;                       /* by this process */
    size_t parts_kept;                          /* of this process, finished by an earlier one */
    size_t parts_finished;                      /* of all processes */
    uint64_t documents[2], tokens[2], bytes[2]; /* train, val; tokens include <|endoftext|>; bytes of text. A
                                                   document that end_held_out divides counts in both. */
    size_t shards[2];                           /* number of files, train and val */
    uint64_t skipped;                           /* empty documents */
    const char *end_held_out; /* NULL: documents were selected. Otherwise the end of the text is held out, and
                                 this is what it begins with: "document", "line", "word" or "character" */
    int bytes_per_token;      /* 2, or 4 if the vocabulary has more than 65536 tokens */
    double seconds;           /* total time */
};
/* Called about ten times a second, on the thread that called ddl_data_build. A nonzero return value stops the
 * build with DDL_E_INTERRUPTED. */
typedef int ddl_build_progress_fn(void *user, const struct ddl_build_progress *progress);
DDL_API struct ddl_build_config ddl_build_defaults(void); /* defaults of the options */
DDL_API const struct ddl_option *ddl_build_options(void); /* option rows of struct ddl_build_config */
/* Builds shards. inputs: files (.txt, .jsonl, each also .gz or .zst), folders (walked in name order for such
 * files), or "-" for standard input. A text file may contain any bytes except NUL, a JSON string any
 * characters. Fails for an input that is missing, corrupted or binary, a .jsonl line that is not a JSON
 * object with the key (the error states file and line), inputs without any document, and a folder that
 * already has shards (unless overwrite is set). Shards appear in `out` after all of them are complete. After
 * an error or a kill, the finished parts are kept: the same call continues. DDL_E_USAGE if the tokenizer, an
 * option or the list of inputs differs from those of the finished parts, DDL_E_FORMAT if an input has changed
 * since. DDL_E_IO if another process works on the same shard. If no part is finished, or standard input is
 * among the inputs, an error leaves no new files behind. Memory use does not grow with the sizes of the
 * inputs. progress and result may be NULL. */
DDL_API ddl_status ddl_data_build(const struct ddl_build_config *config, const char *const *inputs,
                                  size_t n_inputs, ddl_build_progress_fn *progress, void *user,
                                  struct ddl_build_result *result, struct ddl_error *err);

/* `ddl data synthetic`: shards of sequences of a task, with masks that count the answers and a tokenizer of
 * characters for reading them. Every sequence has the same number of tokens: `order` aligned and a `seq` of
 * this length give each of them whole. A problem belongs to the training or the validation shards by a hash
 * of its tokens and the seed, so that none is in both. */
enum ddl_synthetic_kind {
    DDL_SYNTHETIC_POINTER, /* shuffled pairs (s, p(s)) of a permutation p; queries s, h; answer p^h(s); group
                              h */
    DDL_SYNTHETIC_MQAR,    /* multi-query associative recall: pairs of key and value; a query is a key */
    DDL_SYNTHETIC_PERMUTATION, /* product of m permutations; group m; with `states` those of the first 1 to m
                                */
    DDL_SYNTHETIC_PARITY,      /* parity of m bits; group m; likewise */
    DDL_SYNTHETIC_MODULAR,     /* a + b, a - b or a * b modulo a number; groups 1, 2 and 3 */
    DDL_SYNTHETIC_REVERSE,     /* m symbols in reverse; group m */
    DDL_SYNTHETIC_KINDS
};
/* Options of a synthetic task. A size of 0 has the default of the task; one that the task does not have must
 * be 0. */
struct ddl_synthetic_config {
    int task;               /* enum ddl_synthetic_kind */
    char out[1024];         /* folder for the shards and tokenizer.json */
    uint64_t seed;          /* of all problems */
    uint64_t sequences;     /* of the training shards */
    uint64_t val_sequences; /* of the validation shards */
    double val_fraction;    /* share of all problems that are for validation, in (0, 1) */
    size_t length;          /* tokens of a sequence; pointer and mqar compute it */
    size_t pairs, queries;  /* pointer, mqar */
    char hops[32];          /* pointer: comma-separated, 1 to 9 */
    bool cycle;             /* pointer: the permutation is one cycle through all symbols */
    bool pair_tokens;       /* pointer, mqar: a pair is one token; a query of pointer is h, s */
    bool once;              /* all but mqar: do not count an answer that the sequence has given before */
    bool states;            /* permutation, parity: the answer is the state after each symbol */
    size_t symbols;         /* mqar: keys, and as many values; reverse */
    size_t elements;        /* permutation: that are permuted, 2 to 5 */
    size_t steps;           /* permutation, parity, reverse: most of a problem */
    size_t modulus;         /* modular */
    char operators[8];      /* modular: of "+-*" */
    bool overwrite;         /* replace the shards of an earlier build in `out` */
};
/* What was written. */
struct ddl_synthetic_result {
    size_t length;                    /* tokens of a sequence */
    size_t vocab_size;                /* tokens of the tokenizer */
    uint64_t problems[2], counted[2]; /* train, val: problems, and counted tokens */
    uint64_t groups[2][256];          /* train, val: counted tokens of each group of the masks */
};
DDL_API extern const char *const ddl_synthetic_names[];           /* "pointer", ..., NULL */
DDL_API struct ddl_synthetic_config ddl_synthetic_defaults(void); /* defaults of the options */
DDL_API const struct ddl_option *ddl_synthetic_options(void);     /* option rows but for the task */
/* Writes the shards. DDL_E_USAGE for a size out of range or one that the task does not have, and if the sizes
 * allow too few problems for a split. progress, in sequences, may be NULL. */
DDL_API ddl_status ddl_data_synthetic(const struct ddl_synthetic_config *config, ddl_progress_fn *progress,
                                      void *user, struct ddl_synthetic_result *result, struct ddl_error *err);

#ifdef __cplusplus
}
#endif
#endif
