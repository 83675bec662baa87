/* Synthetic tasks: what `ddl data synthetic` writes, one sequence at a time. */
#ifndef DDL_DATA_SYNTHETIC_H
#define DDL_DATA_SYNTHETIC_H

#include "ddl/data.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    DDL_SYNTHETIC_SYMBOLS = 256,  /* most symbols of a task */
    DDL_SYNTHETIC_STEPS = 255,    /* most steps of a problem: groups are bytes */
    DDL_SYNTHETIC_LENGTH = 65536, /* most tokens of a sequence */
    DDL_SYNTHETIC_TRIES = 10000,  /* problems that are drawn until one belongs to the split */
    DDL_SYNTHETIC_TEXT = 8        /* bytes of a symbol's text, with NUL */
};

/* Tokens while a sequence is made: symbols of the task, then signs. */
enum ddl_synthetic_sign {
    DDL_SIGN_EQUALS,
    DDL_SIGN_BAR,
    DDL_SIGN_PAD,
    DDL_SIGN_PLUS,
    DDL_SIGN_MINUS,
    DDL_SIGN_TIMES,
    DDL_SIGN_DIGIT, /* the digits 1 to 9 */
    DDL_SIGNS = DDL_SIGN_DIGIT + 9
};

/* A sequence in the making, after its first token, <|endoftext|>. */
struct ddl_synthetic {
    const struct ddl_synthetic_config *config; /* with all sizes set */
    uint64_t key, drawn;                       /* random numbers: of this split, so far */
    uint64_t split_key;                        /* of the hash that divides problems between the splits */
    bool val;                                  /* the split */
    int32_t *tokens;                           /* (length): symbols, or -1 - enum ddl_synthetic_sign */
    unsigned char *groups;                     /* (length) */
    size_t n, length;
    uint64_t *seen;                    /* (n_seen) hashes of the problems of this sequence; 0: none */
    size_t n_seen;                     /* a power of two, at least twice the length */
    bool lacks[256];                   /* numbers of symbols of which no problem was found in the split */
    int32_t kept[DDL_SYNTHETIC_STEPS]; /* (n_kept) symbols of the problem that did not fit, which begins the
                                          next */
    size_t n_kept;                     /* sequence, so that long problems are as frequent as short ones */
};

struct ddl_synthetic_task {
    const char *options; /* sizes that it has: " pairs queries hops " */
    /* Sets the sizes that are 0, and checks all. */
    ddl_status (*sizes)(struct ddl_synthetic_config *config, struct ddl_error *err);
    /* Tokens of a sequence after <|endoftext|>; NULL: config->length. */
    size_t (*length)(const struct ddl_synthetic_config *config);
    size_t (*symbols)(const struct ddl_synthetic_config *config);
    /* Adds a problem of the split, or sets *full if it does not fit; false if none is found within
     * DDL_SYNTHETIC_TRIES. */
    bool (*problem)(struct ddl_synthetic *s, bool *full);
};
/* In the order of enum ddl_synthetic_kind. */
extern const struct ddl_synthetic_task ddl_synthetic_tasks[DDL_SYNTHETIC_KINDS];

/* Removes the problems of the last sequence. */
void ddl_synthetic_begin(struct ddl_synthetic *s);
/* Text of a symbol: one character, the same for all tasks. */
void ddl_synthetic_symbol_text(char text[DDL_SYNTHETIC_TEXT], size_t symbol);
extern const char ddl_synthetic_sign_texts[DDL_SIGNS];

#endif
