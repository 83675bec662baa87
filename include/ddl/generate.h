/* Text generation after a prompt. */
#ifndef DDL_GENERATE_H
#define DDL_GENERATE_H

#include "ddl/generation.h"
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

/* How text is generated. */
struct ddl_generate_config {
    struct ddl_sampling sampling; /* of every sequence: sequence s has number sampling.sequence + s */
    size_t n;                     /* sequences, decoded together                                    */
    int cache;                    /* enum ddl_cache_form: format of keys and values                 */
};
/* One sequence with ddl_sampling_defaults. */
DDL_API struct ddl_generate_config ddl_generate_defaults(void);
/* The rows of struct ddl_generate_config: those of ddl_sampling_options, n, cache. */
DDL_API const struct ddl_option *ddl_generate_options(void);

/* Result of one sequence. */
struct ddl_generate_result {
    size_t prompt_tokens, tokens; /* of the prompt; new ones, without a final <|endoftext|> or stop id */
    int finish;                   /* enum ddl_finish                                        */
};

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
 * SIZE_MAX: out of range. `backend` as for ddl_workspace_bytes. */
DDL_API size_t ddl_generate_bytes(const struct ddl_config *config, enum ddl_precision precision,
                                  const struct ddl_generate_config *generate, size_t prompt,
                                  const ddl_backend *backend);

#ifdef __cplusplus
}
#endif
#endif
