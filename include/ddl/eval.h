/* Evaluation: the loss of a model on tokens or text, and of each token. */
#ifndef DDL_EVAL_H
#define DDL_EVAL_H

#include "ddl/comm.h"
#include "ddl/data.h"
#include "ddl/model.h"
#include "ddl/status.h"
#include "ddl/tokenizer.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A scored token: how the model predicted it from the tokens before it in its window. */
struct ddl_token_score {
    uint64_t position; /* in the shards; in the text, from 0 after the <|endoftext|> */
    int32_t id;        /* of the token */
    int32_t rank;      /* vocabulary entries with a higher logit, or an equal one and a lower id: 0 if greedy
                          decoding would choose the token */
    double logprob;    /* natural logarithm of its probability, computed in float32 */
    double entropy;    /* of the prediction, in nats, computed in float32 */
};
/* Called with the `score` of each token in order, once its batch of windows is computed. A nonzero return
 * value ends the evaluation with DDL_E_INTERRUPTED. */
typedef int ddl_token_scored_fn(void *user, const struct ddl_token_score *score);

/* The counted tokens of one group of the shards' masks. An answer is a run of consecutive counted tokens of
 * the group; it is exact if greedy decoding chooses each of its tokens after the right ones before it. */
struct ddl_eval_group {
    uint64_t tokens, correct; /* counted; of these, chosen by greedy decoding */
    uint64_t answers, exact;  /* runs of tokens; of these, exact */
    double nats;              /* sum of -log p over the tokens */
};

/* Windows of `seq` tokens, each `stride` after the one before; a token that an earlier window has scored is
 * context only. With a stride below seq, at least seq - stride tokens precede every token that a window after
 * the first one scores. */
struct ddl_eval_config {
    size_t seq;                    /* 0: the model's context                        */
    size_t batch;                  /* windows at a time; 0: 8                       */
    size_t stride;                 /* at most seq; 0: seq                           */
    uint64_t max_tokens;           /* tokens, rounded up to windows; 0: all         */
    ddl_token_scored_fn *each;     /* NULL: none                                    */
    ddl_progress_fn *progress;     /* in tokens; it can end the call; NULL: none    */
    void *user;                    /* for each and progress                         */
    struct ddl_eval_group *groups; /* result by group (DDL_MASK_GROUPS), on all ranks; NULL: none */
    /* Ranks divide the batches of windows: all call the function with the same model, tokens and
     * configuration, without `each`, and have the same status, error and result but for the seconds. The
     * result has the same bits for every number of ranks that have as many threads. NULL: one rank. */
    ddl_comm *comm;
};
/* The loss of a model. */
struct ddl_eval_result {
    double nats;             /* sum of -log p over the scored tokens                                   */
    uint64_t tokens;         /* scored: those that a mask ignores are not                              */
    uint64_t positions;      /* tokens that were predicted, scored or ignored                          */
    uint64_t bytes;          /* of text that they stand for; 0 without a tokenizer                     */
    double loss, perplexity; /* nats / tokens, its exponential                                 */
    double bits_per_byte;    /* NAN without bytes                                              */
    double seconds;          /* that it took */
};

/* Every token of the shards but the first is scored, unless a mask ignores it. Bytes come from the tokenizer,
 * if it is not NULL;
 * <|endoftext|> counts none. DDL_E_FORMAT for a token outside the vocabulary, fewer than two tokens, or if
 * masks count none of them; DDL_E_USAGE if seq exceeds the model's context, stride exceeds seq, or batch is
 * out of range; DDL_E_NUMERIC if the loss is not finite; DDL_E_INTERRUPTED if progress stops it. */
DDL_API ddl_status ddl_eval_shards(ddl_model *model, const ddl_tokenizer *tokenizer, const ddl_shards *shards,
                                   const struct ddl_eval_config *config, struct ddl_eval_result *out,
                                   struct ddl_error *err);
/* The text (any bytes but zero; size in bytes, at least 1) after an <|endoftext|>, where the tokenizer has
 * one, so that its first token is scored too. DDL_E_FORMAT for an empty text and for a zero byte. */
DDL_API ddl_status ddl_eval_text(ddl_model *model, const ddl_tokenizer *tokenizer, const char *text,
                                 size_t size, const struct ddl_eval_config *config,
                                 struct ddl_eval_result *out, struct ddl_error *err);
/* The bytes of the file at path as text. */
DDL_API ddl_status ddl_eval_file(ddl_model *model, const ddl_tokenizer *tokenizer, const char *path,
                                 const struct ddl_eval_config *config, struct ddl_eval_result *out,
                                 struct ddl_error *err);

#ifdef __cplusplus
}
#endif
#endif
