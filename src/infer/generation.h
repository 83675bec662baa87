/* One sequence that is generated: how its next token is chosen, its text and its end. */
#ifndef DDL_INFER_GENERATION_H
#define DDL_INFER_GENERATION_H

#include "ddl/session.h"
#include "infer/detokenizer.h"

#include <stdbool.h>

struct generation {
    struct ddl_sampling sampling; /* its arrays are borrowed */
    struct ddl_detokenizer detokenizer;
    uint64_t key;    /* of the random numbers                                              */
    size_t V;        /* tokens of the tokenizer                                            */
    size_t space;    /* new tokens that fit the context                                    */
    size_t n;        /* tokens chosen                                                      */
    size_t tokens;   /* of them, those that belong to the text                             */
    int32_t last;    /* the last token chosen                                              */
    int32_t *chosen; /* where tokens are written as they are chosen, or NULL              */
    int finish;      /* enum ddl_finish; -1: not ended                                     */
    uint32_t *seen;  /* (V) 0 for tokens that are not in the text, else 1 + occurrences in the new text; NULL
                        without penalties                                                  */
    int32_t *ids;    /* (n_ids of V) tokens of the text, each once                         */
    size_t n_ids;
    struct ddl_logit_change *biases;  /* (n_biases) by token, each once             */
    struct ddl_logit_change *changes; /* (V with penalties, else n_biases) scratch  */
    size_t n_biases;
};

/* What a generation starts from. Pointers are borrowed as long as the generation exists, but for `prompt`. */
struct generation_start {
    const ddl_tokenizer *tokenizer;
    const struct ddl_sampling *sampling; /* checked; the struct itself is copied */
    const int32_t *prompt;               /* (n_prompt) */
    size_t n_prompt, space;
    ddl_text_fn *text; /* may be NULL */
    void *user;
};
/* DDL_E_MEMORY. Free *g after an error too. */
ddl_status generation_init(struct generation *g, const struct generation_start *start, struct ddl_error *err);
void generation_free(struct generation *g); /* a zeroed struct is allowed */
/* Bytes that a generation with these settings allocates for a tokenizer of V tokens, without its text. */
size_t generation_bytes(const struct ddl_sampling *sampling, size_t V);

/* How the next token is to be chosen; its changes are valid until the next call. */
struct ddl_session_pick generation_pick(struct generation *g);
/* Takes the chosen token and passes on its text. DDL_E_NUMERIC for -1: no logit was finite. */
ddl_status generation_take(struct generation *g, int32_t id, struct ddl_error *err);
/* Ends the generation as cancelled, if it has not ended; text that is held back is dropped. */
void generation_cancel(struct generation *g);

#endif
