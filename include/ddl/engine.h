/* An engine: many requests to one model, decoded together, each as if it were alone. */
#ifndef DDL_ENGINE_H
#define DDL_ENGINE_H

#include "ddl/force.h"
#include "ddl/generation.h"
#include "ddl/model.h"
#include "ddl/session.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Active requests, and cached tokens of earlier ones. The tokens of a request depend on its prompt and
 * sampling alone: on no other request, on no earlier one, and not on when it was added. To be used by one
 * thread at a time; ddl_generation_cancel may be called by any. */
typedef struct ddl_engine ddl_engine;
/* One request of an engine. */
typedef struct ddl_generation ddl_generation;

/* Size of an engine. */
struct ddl_engine_options {
    size_t slots;  /* active requests at a time                                                   */
    size_t cached; /* further slots, which keep the tokens of requests that have ended; the least recently
                      used one is replaced                                                        */
    size_t tokens; /* capacity of each slot, prompt and new tokens: at most the model's context   */
    size_t rows;   /* tokens in one pass; more than ddl_session_exact_rows(model) is that. 0: 64 or fewer */
    enum ddl_cache_form form; /* of keys and values */
};
/* Creates an engine. All memory but that of single requests is allocated here. `model`, `tokenizer` and the
 * model's backend are borrowed and outlive the engine; the model's weights and precision must not change
 * meanwhile, since cached tokens depend on them, and no other thread may use the backend during a call.
 * `options` is copied. DDL_E_USAGE for sizes that ddl_session_create rejects, DDL_E_UNSUPPORTED where the
 * backend lacks an op of the model, DDL_E_FORMAT for a tokenizer with more tokens than the model,
 * DDL_E_MEMORY. *out is NULL after an error. */
DDL_API ddl_status ddl_engine_create(ddl_engine **out, ddl_model *model, const ddl_tokenizer *tokenizer,
                                     const struct ddl_engine_options *options, struct ddl_error *err);
DDL_API void ddl_engine_free(ddl_engine *engine); /* `engine` after its generations; NULL is allowed */
/* Bytes of memory that an engine allocates for a model of this config and precision with these options,
 * without creating it, for 64 rows where options->rows is 0; the backend's own scratch is not included.
 * SIZE_MAX: out of range. `backend` as for ddl_workspace_bytes. */
DDL_API size_t ddl_engine_bytes(const struct ddl_config *config, enum ddl_precision precision,
                                const struct ddl_engine_options *options, const ddl_backend *backend);
DDL_API size_t ddl_engine_running(const ddl_engine *engine); /* requests of `engine` that have not ended */

/* A token of a request, scored by the model itself: before temperature, penalties and biases. */
struct ddl_engine_token {
    int32_t id;     /* of the tokenizer                                                              */
    bool is_prompt; /* of the prompt; else new                                                       */
    size_t index;   /* in the prompt, or among the new tokens                                        */
    float logprob;  /* after the tokens before it; NAN for the first of the prompt                   */
    const struct ddl_scored_token *top; /* (n_top) the likeliest tokens in its place, the likeliest first, the
                                           lower id where logits are equal; valid during the call */
    size_t n_top;                       /* 0 for the first token of the prompt */
};
/* Receives each `token` of a request in order, a new one after its text; `sequence` as in ddl_text_fn. */
typedef void ddl_token_fn(void *user, size_t sequence, const struct ddl_engine_token *token);

/* Numbers of one sublayer for consecutive tokens of a request: a tensor of its residual rule
 * (docs/inspect.md), such as "beta", "readout" and "target" of delta, or "step", the size of the update
 * relative to the state. */
struct ddl_trace_rows {
    size_t layer;      /* from 0                                                                   */
    int sub;           /* enum ddl_sublayer                                                        */
    const char *name;  /* of the tensor                                                            */
    const char *about; /* its meaning                                                              */
    size_t first, n;   /* tokens: prompt and new ones are numbered from 0                          */
    bool by_token;     /* false: one row, the same for all tokens                                  */
    size_t steps;      /* of the sublayer, each with numbers of its own; 1 where they share them   */
    size_t width;      /* numbers of a token and step                                              */
    const float *x;    /* (n, steps, width), or (1, 1, width) if not by_token; valid during the call */
};
/* Receives `rows` while a pass computes them, every tensor of a sublayer before those of the next. `sequence`
 * as in ddl_text_fn. It may call no function of this header. After an error of ddl_engine_pass the pass's
 * rows are passed on again when it is repeated. */
typedef void ddl_trace_fn(void *user, size_t sequence, const struct ddl_trace_rows *rows);

/* What to generate. */
struct ddl_engine_request {
    const int32_t *prompt;               /* (n_prompt) of the model's vocabulary, copied           */
    size_t n_prompt;                     /* at least 1, at most the capacity of a slot             */
    const struct ddl_sampling *sampling; /* copied; its arrays are borrowed until the request has a finish
                                            or is freed                                            */
    ddl_text_fn *text;   /* receives the text during passes, with sampling->sequence, on the thread of
                            ddl_engine_pass; returning non-zero ends this request. Of this header it may call
                            ddl_generation_get, _ids and _cancel only. May be NULL */
    void *user;          /* for text, token and trace */
    ddl_token_fn *token; /* receives each new token, as `text` does; may be NULL: no token is scored */
    size_t n_top;      /* likeliest tokens passed to it with each, at most DDL_MOST_TOP and the vocabulary */
    bool score_prompt; /* token receives the tokens of the prompt too, which are then all computed: no
                          cached prefix is reused                                        */
    bool prompt_only;  /* ends with finish length when the prompt is computed: no token is chosen */
    ddl_trace_fn *trace; /* receives the numbers of every sublayer, for all tokens but the last new one, which
                            is not computed: no cached prefix is reused. NULL: none */
    const struct ddl_force *force; /* (n_layers, DDL_SUBLAYERS) what is forced in each sublayer of the model
                                      for this request alone, in place of what ddl_model_force has set;
                                      copied. The request has passes of its own and shares no cached tokens.
                                      NULL: nothing */
};
/* Adds a request, which the next passes compute, and sets *out, which the caller frees before `engine`. The
 * request takes the slot that has the longest common prefix, or a copy of it. DDL_E_USAGE where
 * ddl_engine_running is the number of slots, for a prompt or sampling out of range, and for a forced update
 * that ddl_model_force rejects; DDL_E_MEMORY, also for the first request with a trace. *out is
 * NULL after an error. */
DDL_API ddl_status ddl_engine_add(ddl_engine *engine, const struct ddl_engine_request *request,
                                  ddl_generation **out, struct ddl_error *err);

/* What a pass has computed. */
struct ddl_engine_progress {
    size_t prompt_tokens; /* tokens of prompts                     */
    size_t new_tokens;    /* tokens chosen                         */
    size_t running;       /* requests that have not ended after it */
};
/* Computes at most `rows` tokens of the requests of `engine` together: the next token of the decoding
 * requests, then chunks of prompts, the oldest first, for which a quarter of the rows is reserved. (With
 * causal convolutions one more part for each prompt that crosses a multiple of 64 tokens.) Then as many of
 * each request with forced updates, by itself. Without requests
 * it does nothing. Requests that were cancelled end first. A request of which no logit is finite, after
 * penalties and biases, ends alone (ddl_generation_error). After DDL_E_MEMORY every request that was not
 * computed is as it was, and the pass can be repeated. After DDL_E_DEVICE keys and values are lost: free the
 * generations and the engine. progress may be NULL. */
DDL_API ddl_status ddl_engine_pass(ddl_engine *engine, struct ddl_engine_progress *progress,
                                   struct ddl_error *err);

/* Progress of a request. */
struct ddl_generation_state {
    size_t prompt_tokens; /* of the prompt                                                                */
    size_t prompt_done;   /* of them, those that are computed or reused                                   */
    size_t reused;        /* of them, those whose keys and values an earlier request left                 */
    size_t tokens;        /* new tokens, without a final <|endoftext|> or stop id                         */
    int finish;           /* enum ddl_finish, or -1 before the end                                        */
};
/* The state of `generation` into *out. */
DDL_API void ddl_generation_get(const ddl_generation *generation, struct ddl_generation_state *out);
/* The tokens of `generation` chosen so far, *n of them, a final <|endoftext|> or stop id included; borrowed,
 * valid until the next pass or ddl_generation_free. */
DDL_API const int32_t *ddl_generation_ids(const ddl_generation *generation, size_t *n);
/* Why the request of `generation` failed (its finish is then DDL_FINISH_FAILED), or NULL; valid until
 * ddl_generation_free. */
DDL_API const struct ddl_error *ddl_generation_error(const ddl_generation *generation);
/* Cancels the request of `generation`: it ends at the start of the next pass, and text that is held back is
 * dropped. Without effect after its end. Any thread may call it, before ddl_generation_free is called; the
 * caller orders the two. */
DDL_API void ddl_generation_cancel(ddl_generation *generation);
/* Frees `generation`, and its slot where it has not ended. NULL is allowed. */
DDL_API void ddl_generation_free(ddl_generation *generation);

#ifdef __cplusplus
}
#endif
#endif
