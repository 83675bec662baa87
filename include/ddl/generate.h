/* Generation: text that follows a prompt. */
#ifndef DDL_GENERATE_H
#define DDL_GENERATE_H

#include "ddl/model.h"
#include "ddl/option.h"
#include "ddl/status.h"
#include "ddl/tokenizer.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How text is drawn. */
struct ddl_generate_config {
    size_t max_tokens;       /* new tokens at most                                                        */
    float temperature;       /* 0: greedy, the lowest id where logits are equal                           */
    size_t top_k;            /* only the k likeliest; 0: all                                              */
    float top_p;             /* only the likeliest that together reach p, after top_k; 1: all             */
    uint64_t seed;           /* token t of sequence s is a function of (seed, s, t) and the logits alone  */
    size_t n;                /* sequences, generated side by side                                         */
    int cache;               /* enum ddl_cache_form: what keys and values are kept in                     */
    const char *const *stop; /* text that ends a sequence and is not given out; n_stop of them      */
    size_t n_stop;           /* 0: none                                                         */
};
/* 200 tokens of one sequence, temperature 1, all tokens, no stop. */
DDL_API struct ddl_generate_config ddl_generate_defaults(void);
/* The rows of struct ddl_generate_config: max_tokens, temperature, top_k, top_p, seed, n, cache. */
DDL_API const struct ddl_option *ddl_generate_options(void);

/* Why a sequence ended. */
enum ddl_finish {
    DDL_FINISH_LENGTH,    /* max_tokens                          */
    DDL_FINISH_END,       /* the model said <|endoftext|>        */
    DDL_FINISH_STOP,      /* a stop string                       */
    DDL_FINISH_CONTEXT,   /* the model's context is full         */
    DDL_FINISH_CANCELLED, /* the callback asked to end it all    */
};
/* "length", "end", ...: the name of a finish of enum ddl_finish. */
DDL_API const char *ddl_finish_name(int finish);

/* What became of one sequence. */
struct ddl_generate_result {
    size_t prompt_tokens, tokens; /* of one sequence; new ones, the last <|endoftext|> aside */
    int finish;                   /* enum ddl_finish                                         */
};

/* Pieces of the text of a sequence (a number below n) as they are made, `size` bytes each: whole UTF-8
 * characters, and nothing that could still become a stop string. Returning non-zero ends the generation of
 * all sequences. */
typedef int ddl_text_fn(void *user, size_t sequence, const char *text, size_t size);

/* Goes on after the prompt (size in bytes; an empty one stands for <|endoftext|>) and hands the text out.
 * results: n of them, may be NULL. DDL_E_USAGE where the prompt is longer than the context; DDL_E_FORMAT
 * where the tokenizer has more tokens than the model; DDL_E_NUMERIC where no logit is finite. */
DDL_API ddl_status ddl_generate(ddl_model *model, const ddl_tokenizer *tokenizer,
                                const struct ddl_generate_config *config, const char *prompt, size_t size,
                                ddl_text_fn *text, void *user, struct ddl_generate_result *results,
                                struct ddl_error *err);

#ifdef __cplusplus
}
#endif
#endif
