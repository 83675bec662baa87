/* Sessions: decoding of several sequences, each in a slot of its own with its own length. */
#ifndef DDL_SESSION_H
#define DDL_SESSION_H

#include "ddl/model.h"
#include "ddl/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Number format of cached keys and values. */
enum ddl_cache_form {
    DDL_CACHE_AUTO, /* the default: f32 for a model whose products are in float32, bf16 for others */
    DDL_CACHE_F32,
    DDL_CACHE_BF16, /* rounded when written: half the memory, and half the bytes that a step reads */
    DDL_CACHE_FORMS /* number of formats */
};
/* "auto", "f32", "bf16", NULL: choices for a struct ddl_option. */
DDL_API extern const char *const ddl_cache_form_names[];

/* Slots of a model's sequences: keys, values and the states that its convolutions read, for every past token.
 * A session owns the cache and the workspace of its passes. It borrows the model, which must outlive it and
 * keep the precision that it had when the session was created. Not safe for use by several threads at once.
 *
 * A call that fails leaves every length unchanged, and can be repeated.
 *
 * Logits of a step are the same to the bit for every subset of slots that is stepped together, whatever the
 * other slots hold. In a session with `exact` this holds for prefills too, and they have the bits of steps.
 * Otherwise a prefill's logits depend on its own slot's tokens and, in their rounding, on how they are
 * divided into passes and on how many tokens of other slots share these. */
typedef struct ddl_session ddl_session;

/* Size of a session. */
struct ddl_session_options {
    size_t slots;             /* sequences at a time                                             */
    size_t tokens;            /* capacity of each slot: at most the model's context              */
    size_t rows;              /* tokens in one pass; longer prefills take several. 0: up to 512 */
    bool exact;               /* a token has the same bits in whatever parts its slot's tokens are appended,
                                 and whatever slots share its passes: these have at most
                                 ddl_session_exact_rows tokens, and attention reads the keys and values of
                                 a slot once for each token                                      */
    size_t mark_every;        /* a slot can be cut at multiples of so many tokens, where the states that
                                 convolutions read are kept; 0: at its end only. Models without causal
                                 convolutions can be cut anywhere                                */
    size_t ids;               /* picks choose ids below it; 0: the model's vocabulary            */
    enum ddl_cache_form form; /* of keys and values                                              */
    bool filled;              /* all memory is written when it is allocated, so that no pass waits for the
                                 system to provide it                                            */
    /* Called during prefills, several times in each pass, with the number of tokens in earlier passes of the
     * call and in all of them. A nonzero return value ends the call with DDL_E_INTERRUPTED. NULL: none. */
    ddl_progress_fn *progress;
    void *user; /* for progress */
};

/* Creates a session as large as `options` say, whose slots are empty. All memory is allocated here.
 * DDL_E_USAGE for no slots, or for a capacity of 0 or above the model's context; DDL_E_MEMORY. *out is NULL
 * after an error. */
DDL_API ddl_status ddl_session_create(ddl_session **out, ddl_model *model,
                                      const struct ddl_session_options *options, struct ddl_error *err);
DDL_API void ddl_session_free(ddl_session *session); /* NULL is allowed */
/* Bytes of backend memory that a session allocates for a model of this config and precision with these
 * options, without creating it; the backend's own scratch is not included. SIZE_MAX for sizes that
 * ddl_session_create rejects. `backend` as for ddl_workspace_bytes. */
DDL_API size_t ddl_session_bytes(const struct ddl_config *config, enum ddl_precision precision,
                                 const struct ddl_session_options *options, const ddl_backend *backend);

DDL_API size_t ddl_session_slots(const ddl_session *session);    /* as created */
DDL_API size_t ddl_session_capacity(const ddl_session *session); /* of each slot, in tokens */
/* Tokens in a slot; 0 for an empty one, and for a slot that does not exist. */
DDL_API size_t ddl_session_length(const ddl_session *session, size_t slot);

/* A token and the natural logarithm of its probability. */
struct ddl_scored_token {
    int32_t id;    /* of the vocabulary            */
    float logprob; /* after the tokens before it */
};
enum { DDL_MOST_TOP = 128 }; /* likeliest tokens of one prediction at most */

/* A change of a token's logit before one is chosen: z = (z > 0 ? z / repeat : z repeat) + shift. */
struct ddl_logit_change {
    int32_t token;
    float repeat, shift;
};
/* How a next token is chosen, and which one is: of the top_k likeliest tokens, of these the fewest whose
 * probabilities, scaled to sum to 1, reach top_p, and of these those with at least min_p times the largest
 * probability, the one at share u of their sum in the order of ids. The lowest ids come first among equals.
 */
struct ddl_session_pick {
    float temperature; /* 0: the likeliest token */
    size_t top_k;      /* 0: all                 */
    float top_p;       /* 1: all                 */
    float min_p;       /* 0: all                 */
    double u;          /* in [0, 1), the only source of randomness: the same u gives the same token */
    const struct ddl_logit_change *changes; /* (n_changes) of different tokens */
    size_t n_changes;
    bool scored; /* loss is wanted */
    int32_t id;  /* = the token, below the session's `ids`; -1 where no logit is finite */
    float loss;  /* = -log p of it for the model itself, without temperature and changes, in nats; 0 where it
                    is not wanted */
};

/* Tokens to append to one slot, and what is computed from them. All arrays are host memory of the caller. */
struct ddl_session_input {
    size_t slot;
    size_t n;               /* tokens, at least 1 */
    const int32_t *tokens;  /* (n) */
    size_t n_logits;        /* rows of logits: those of the last n_logits tokens; 0: none */
    float *logits;          /* (n_logits, V) =, NULL where n_logits is 0 */
    const int32_t *targets; /* (n) the token expected after each, -1 to skip it; NULL: no losses */
    float *losses;          /* (n) = -log p(target) in nats, 0 where skipped; NULL where targets is */
    int32_t *ranks;         /* (n) = vocabulary entries with a higher logit than the target's, or an equal
                               one and a lower id: 0 if greedy decoding would choose the target; -1 where
                               skipped; or NULL */
    float *entropies;       /* (n) = entropy of the prediction in nats, 0 where skipped; or NULL */
    size_t n_choices;       /* tokens that may follow the last one, each scored; 0: none. targets[n - 1] is
                               -1 if there are any */
    const int32_t *choices; /* (n_choices) */
    float *choice_losses;   /* (n_choices) = as losses; NULL where n_choices is 0 */
    int32_t *choice_ranks;  /* (n_choices) = as ranks; or NULL */
    size_t n_picks; /* next tokens chosen after the last one, each by itself; 0: none. targets[n - 1] is
                       -1 if there are any, and n_choices is 0 */
    struct ddl_session_pick *picks; /* (n_picks) */
    size_t n_top;                   /* likeliest tokens after each token that has a target, and after the last
                                       one with picks; at most DDL_MOST_TOP and the vocabulary */
    struct ddl_scored_token *top;   /* (n, n_top) = the likeliest first; other rows are unchanged; NULL where
                                       n_top is 0 */
};
/* Appends to several slots at once (a ragged batch): `inputs` has n elements, for different slots, with any
 * number of tokens each, in passes of at most `rows` tokens. Rows without logits or loss skip the head.
 * DDL_E_USAGE for an input without tokens, a slot that does not exist, occurs twice or has too little
 * capacity left, a token, target or choice outside the vocabulary, choices or picks beside a last target,
 * both of them, a pick out of range, or n_logits > n, or ranks or entropies without targets. Outputs may be
 * partly written after an error.
 *
 * To score continuations of one context: prefill the context with the first token of each continuation as a
 * choice. Then fork the slot for each continuation of more than one token, and prefill the fork: its tokens
 * are the continuation without the last token, its targets the continuation without the first token. */
DDL_API ddl_status ddl_session_prefill(ddl_session *session, const struct ddl_session_input *inputs, size_t n,
                                       struct ddl_error *err);
/* Appends one token to each of n different slots: slots (n), tokens (n), logits (n, V) = of the token after,
 * or NULL. Errors as for ddl_session_prefill. */
DDL_API ddl_status ddl_session_step(ddl_session *session, size_t n, const size_t *slots,
                                    const int32_t *tokens, float *logits, struct ddl_error *err);

/* Appends one token to each of n different slots, slots (n) and tokens (n), and chooses the one after it:
 * picks (n). Errors as for ddl_session_prefill. */
DDL_API ddl_status ddl_session_choose(ddl_session *session, size_t n, const size_t *slots,
                                      const int32_t *tokens, struct ddl_session_pick *picks,
                                      struct ddl_error *err);

/* Copies slot `from` to slot `to`, whose content is replaced. Both are independent afterwards. DDL_E_USAGE
 * for a slot that does not exist. */
DDL_API ddl_status ddl_session_fork(ddl_session *session, size_t from, size_t to, struct ddl_error *err);
/* The longest prefix, of at most n tokens, at which a slot can be cut: n for a model without causal
 * convolutions, else the slot's length or a multiple of mark_every. 0 for a slot that does not exist. */
DDL_API size_t ddl_session_prefix(const ddl_session *session, size_t slot, size_t n);
/* Copies the first n tokens of slot `from` to slot `to`, whose content is replaced; from = to truncates the
 * slot. Later tokens have the same bits as if slot `to` had been given these n tokens. DDL_E_USAGE for a slot
 * that does not exist, or where ddl_session_prefix(session, from, n) is not n. */
DDL_API ddl_status ddl_session_fork_prefix(ddl_session *session, size_t from, size_t to, size_t n,
                                           struct ddl_error *err);
/* Tokens of a pass at most in a session of `model` with `exact`. */
DDL_API size_t ddl_session_exact_rows(const ddl_model *model);
/* Empties a slot; an empty one stays empty. DDL_E_USAGE for a slot that does not exist. */
DDL_API ddl_status ddl_session_reset(ddl_session *session, size_t slot, struct ddl_error *err);

#ifdef __cplusplus
}
#endif
#endif
