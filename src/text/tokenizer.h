/* What a tokenizer is made of, for those who build one (from files, or by training) and write one. */
#ifndef DDL_TEXT_TOKENIZER_H
#define DDL_TEXT_TOKENIZER_H

#include "ddl/tokenizer.h"

#include "text/alphabet.h"
#include "text/bpe.h"
#include "text/bytes_table.h"
#include "text/split.h"

/* Ids stay below this, so that a damaged file cannot ask for any amount of memory. */
enum { DDL_MAX_VOCAB = 1 << 22 };

enum ddl_token_flag {
    DDL_TOKEN_LITERAL =
        1, /* its text is not in the byte alphabet, or stands for itself: never made by merges */
    DDL_TOKEN_ADDED = 2, /* stands among added_tokens only, not in the model's vocabulary                */
};

struct ddl_token {
    size_t offset; /* in the pool */
    uint32_t size; /* 0: no token has this id */
    unsigned char flags;
};

/* Texts that become one id when special tokens are asked for. The bytes are the token's. */
struct ddl_special {
    int32_t id;
    bool normalized; /* as `tokenizers` does: these are looked for after the others  */
    bool special;    /* kept for writing                                             */
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
    bool add_prefix_space; /* a text (or part of one beside a special token) without one gets a leading space
                            */
    bool ignore_merges;    /* a piece that is a token is that token, whatever the merges make of it         */
    /* made by ddl_tokenizer_finish */
    struct ddl_bpe bpe;
    struct ddl_bytes_table pieces; /* pieces that are one token */
    struct ddl_char_classes classes;
    unsigned char special_first[256]; /* a special token starts with this byte */
};

/* An empty one with room for ids below n_tokens; NULL for want of memory. */
struct ddl_tokenizer *ddl_tokenizer_new(size_t n_tokens);

/* Gives `id` its bytes (copied, size > 0). The id must be below n_tokens and free. False for want of memory.
 */
bool ddl_tokenizer_set(struct ddl_tokenizer *t, int32_t id, const char *bytes, size_t size, unsigned flags);

/* Append a merge or a special token. False for want of memory. */
bool ddl_tokenizer_add_merge(struct ddl_tokenizer *t, struct ddl_merge merge);
bool ddl_tokenizer_add_special(struct ddl_tokenizer *t, struct ddl_special special);

/* The bytes of a token that is there, as a ddl_bytes_table asks for them; `tokenizer` is a ddl_tokenizer. */
const char *ddl_tokenizer_key(const void *tokenizer, int32_t id);

/* Checks that every byte has a token, and makes the tables. `where` starts an error's sentence. */
ddl_status ddl_tokenizer_finish(struct ddl_tokenizer *t, const char *where, struct ddl_error *err);

#endif
