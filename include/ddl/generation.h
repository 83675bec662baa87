/* Generation of one sequence: how its tokens are chosen, what ends it, and the text that it has so far. */
#ifndef DDL_GENERATION_H
#define DDL_GENERATION_H

#include "ddl/option.h"
#include "ddl/status.h"
#include "ddl/tokenizer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A number that is added to the logit of a token. */
struct ddl_logit_bias {
    int32_t token; /* of the tokenizer                                       */
    float bias;    /* -1e6 to 1e6, or -INFINITY: the token is never chosen   */
};

/* How the tokens of a sequence are chosen, and what ends it. All arrays are borrowed.
 *
 * In this order: penalties and biases change logits; top_k, then top_p, then min_p leave tokens out, top_p
 * and min_p by the probabilities at `temperature`; one of the remaining tokens is drawn. Token t of the
 * sequence depends on (seed, sequence, t) and on the logits only. */
struct ddl_sampling {
    size_t max_tokens;      /* limit of new tokens                                                          */
    float temperature;      /* 0: greedy, the lowest id where logits are equal                              */
    size_t top_k;           /* the k likeliest tokens only; 0: all                                          */
    float top_p;            /* the fewest likeliest of these that reach probability p; 1: all               */
    float min_p;            /* tokens of at least min_p times the largest probability; 0: all               */
    float repeat_penalty;   /* divides positive logits of tokens in the prompt or the new text, multiplies
                               negative ones; 1: none                                                       */
    float presence_penalty; /* subtracted from the logits of tokens in the new text; 0: none                */
    float frequency_penalty; /* the same, times their occurrences */
    uint64_t seed;     /* of the random numbers                                                        */
    uint64_t sequence; /* below 2^32: sequences with one seed and different numbers are independent    */
    bool ignore_end;   /* <|endoftext|> is never chosen                                                */
    const char *const *stop; /* (n_stop) text that ends the sequence and is not passed on */
    size_t n_stop; /* 0: none                                                                      */
    const int32_t *stop_ids; /* (n_stop_ids) tokens that end the sequence and are not passed on */
    size_t n_stop_ids; /* 0: none                                                                      */
    const struct ddl_logit_bias *bias; /* (n_bias) those of one token are added */
    size_t n_bias; /* 0: none                                                            */
};
/* 200 tokens, temperature 1, all tokens, no penalties, seed and sequence 0, no stop. */
DDL_API struct ddl_sampling ddl_sampling_defaults(void);
/* The rows of struct ddl_sampling: every member but the arrays and `sequence`. */
DDL_API const struct ddl_option *ddl_sampling_options(void);
/* Checks every member of `sampling` for a tokenizer of n_tokens tokens. DDL_E_USAGE, with the member's name,
 * for a value out of range, an empty stop string, or a stop id or biased token that does not exist. */
DDL_API ddl_status ddl_sampling_check(const struct ddl_sampling *sampling, size_t n_tokens,
                                      struct ddl_error *err);

/* Why a sequence ended. */
enum ddl_finish {
    DDL_FINISH_LENGTH,    /* max_tokens                                            */
    DDL_FINISH_END,       /* <|endoftext|> was sampled                             */
    DDL_FINISH_STOP,      /* a stop string or a stop id                            */
    DDL_FINISH_CONTEXT,   /* the model's context is full                           */
    DDL_FINISH_CANCELLED, /* the callback returned non-zero, or it was cancelled   */
    DDL_FINISH_FAILED,    /* its logits are not finite (ddl/engine.h)              */
};
/* "length", "end", "stop", "context", "cancelled", "failed": the name of a `finish` of enum ddl_finish. */
DDL_API const char *ddl_finish_name(int finish);

/* Receives the text of a sequence in pieces of `size` bytes: whole UTF-8 characters, and no text that could
 * still become a stop string. `sequence` is a number below n in ddl_generate, sampling->sequence in an
 * engine. Returning non-zero ends the generation: of all sequences in ddl_generate, of the request in an
 * engine. */
typedef int ddl_text_fn(void *user, size_t sequence, const char *text, size_t size);

#ifdef __cplusplus
}
#endif
#endif
