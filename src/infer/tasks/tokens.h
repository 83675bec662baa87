/* Tokens of a request. */
#ifndef DDL_INFER_TASKS_TOKENS_H
#define DDL_INFER_TASKS_TOKENS_H

#include "ddl/tasks.h"
#include "infer/tasks/text.h"

/* Sets tokens, n_context and n_tokens of a request whose texts are set. White space at the end of the context
 * moves to the continuation; the continuation's tokens are those of both texts together after as many as the
 * context has; an empty context is <|endoftext|>. DDL_E_FORMAT where either has no token, or the tokenizer
 * has no <|endoftext|> and it is needed. */
ddl_status task_tokenize(const ddl_tokenizer *tokenizer, struct task_pool *pool,
                         struct ddl_task_request *request, struct ddl_error *err);

#endif
