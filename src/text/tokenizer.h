/* Internals of a tokenizer, for the code that builds one (loading, training) and the code that writes one. */
#ifndef DDL_TEXT_TOKENIZER_H
#define DDL_TEXT_TOKENIZER_H

#include "ddl/tokenizer.h"

#include "text/alphabet.h"
#include "text/bpe.h"
#include "text/bytes_table.h"
#include "text/limits.h"
#include "text/split.h"

enum ddl_token_flag {
    /* Its text is not in the byte alphabet, or represents itself: never produced by merges. */
    DDL_TOKEN_LITERAL = 1,
    /* Only in added_tokens, not in the model's vocabulary. */
    DDL_TOKEN_ADDED = 2,
};

struct ddl_token {
    size_t offset; /* in the pool */
    uint32_t size; /* 0: no token has this id */
    unsigned char flags;
};

/* A text that is encoded as one id when special tokens are enabled. Its bytes are those of the token. */
struct ddl_special {
    int32_t id;
    bool normalized; /* as in `tokenizers`: matched after those that are not normalized */
    bool special;    /* preserved for writing */
};

struct ddl_tokenizer {
    struct ddl_alphabet alphabet;
    struct ddl_token *tokens; /* [n_tokens] by id */
    size_t n_tokens;
    char *pool; /* the tokens' bytes */
    size_t pool_size, pool_capacity;
    struct ddl_merge *merges; /* [n_merges] by rank */
    size_t n_merges, merges_capacity;
    struct ddl_special *specials; /* [n_specials] */
    size_t n_specials;
    bool add_prefix_space; /* prepend a space to a text, or part between special tokens, without one */
    bool ignore_merges;    /* a piece that is a token is encoded as that token regardless of merges */
    bool characters;       /* every token but the special ones is a character; `bpe` is not used */
    /* built by ddl_tokenizer_finish */
    struct ddl_bpe bpe;
    struct ddl_bytes_table pieces; /* pieces that are one token */
    struct ddl_char_classes classes;
    unsigned char special_first[256]; /* true if a special token starts with this byte */
};

/* Creates an empty tokenizer for ids below n_tokens; NULL if out of memory. */
struct ddl_tokenizer *ddl_tokenizer_new(size_t n_tokens);

/* Sets the bytes of `id` (copied, size > 0). The id must be below n_tokens. Returns false if out
 * of memory. */
bool ddl_tokenizer_set(struct ddl_tokenizer *t, int32_t id, const char *bytes, size_t size, unsigned flags);

/* Append a merge or a special token. Return false if out of memory. */
bool ddl_tokenizer_add_merge(struct ddl_tokenizer *t, struct ddl_merge merge);
bool ddl_tokenizer_add_special(struct ddl_tokenizer *t, struct ddl_special special);
/* The id of the special token with this text, or -1. */
int32_t ddl_tokenizer_find_special(const struct ddl_tokenizer *t, const char *text, size_t size);

/* Returns the bytes of an existing token: the key callback of ddl_bytes_table. `tokenizer` is a
 * ddl_tokenizer. */
const char *ddl_tokenizer_key(const void *tokenizer, int32_t id);

/* Checks that every byte has a token (of characters: that every token is one) and builds the tables. Error
 * messages start with `where`. */
ddl_status ddl_tokenizer_finish(struct ddl_tokenizer *t, const char *where, struct ddl_error *err);

#endif
