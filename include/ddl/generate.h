/* Text generation after a prompt. */
#ifndef DDL_GENERATE_H
#define DDL_GENERATE_H

#include "ddl/model.h"
#include "ddl/option.h"
#include "ddl/session.h"
#include "ddl/status.h"
#include "ddl/tokenizer.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How text is sampled. */
struct ddl_generate_config {
    size_t max_tokens;       /* limit of new tokens in each sequence                                      */
    float temperature;       /* 0: greedy, the lowest id where logits are equal                           */
    size_t top_k;            /* sample from the k likeliest tokens only; 0: from all                      */
    float top_p;             /* sample from the fewest likeliest of these that reach probability p; 1: all */
    uint64_t seed;           /* token t of sequence s is a function of (seed, s, t) and the logits only   */
    size_t n;                /* sequences, decoded together                                               */
    int cache;               /* enum ddl_cache_form: format of keys and values                            */
    const char *const *stop; /* (n_stop) text that ends a sequence and is not passed on                   */
    size_t n_stop;           /* 0: none                                                                   */
};
/* 200 tokens of one sequence, temperature 1, all tokens, no stop. */
DDL_API struct ddl_generate_config ddl_generate_defaults(void);
/* The rows of struct ddl_generate_config: max_tokens, temperature, top_k, top_p, seed, n, cache. */
DDL_API const struct ddl_option *ddl_generate_options(void);

/* Why a sequence ended. */
enum ddl_finish {
    DDL_FINISH_LENGTH,    /* max_tokens                          */
    DDL_FINISH_END,       /* <|endoftext|> was sampled           */
    DDL_FINISH_STOP,      /* a stop string                       */
    DDL_FINISH_CONTEXT,   /* the model's context is full         */
    DDL_FINISH_CANCELLED, /* the callback returned non-zero      */
};
/* "length", "end", "stop", "context", "cancelled": the name of a `finish` of enum ddl_finish. */
DDL_API const char *ddl_finish_name(int finish);

/* Result of one sequence. */
struct ddl_generate_result {
    size_t prompt_tokens, tokens; /* of the prompt; new ones, without a final <|endoftext|> */
    int finish;                   /* enum ddl_finish                                        */
};

/* Receives the text of a sequence (a number below n) in pieces of `size` bytes: whole UTF-8 characters, and
 * no text that could still become a stop string. Returning non-zero ends the generation of all sequences. */
typedef int ddl_text_fn(void *user, size_t sequence, const char *text, size_t size);

/* What to generate. All pointers are borrowed for the call. */
struct ddl_generate_request {
    ddl_model *model;                         /* in any precision                         */
    const ddl_tokenizer *tokenizer;           /* with at most the model's vocabulary      */
    const struct ddl_generate_config *config; /* how to sample                            */
    const char *prompt;                       /* (size) bytes, any; shared by all sequences */
    size_t size;                              /* 0: <|endoftext|> is the prompt             */
    ddl_text_fn *text;                        /* receives the text; may be NULL             */
    void *user;                               /* for text                                   */
};
/* Generates text after the prompt of `request`, config->n sequences of it. The prompt is computed once.
 * results: (n) =, may be NULL. DDL_E_USAGE for a value out of range, a prompt that is longer than the
 * context, or an empty prompt if the tokenizer has no <|endoftext|>; DDL_E_FORMAT for a tokenizer with more
 * tokens than the model; DDL_E_NUMERIC where no logit is finite. */
DDL_API ddl_status ddl_generate(const struct ddl_generate_request *request,
                                struct ddl_generate_result *results, struct ddl_error *err);
/* Bytes that ddl_generate allocates with the settings `generate` for a prompt of `prompt` tokens (limited to
 * the context), with a model of this config and precision; text and the backend's scratch are not included.
 * SIZE_MAX: out of range. */
DDL_API size_t ddl_generate_bytes(const struct ddl_config *config, enum ddl_precision precision,
                                  const struct ddl_generate_config *generate, size_t prompt);

#ifdef __cplusplus
}
#endif
#endif
