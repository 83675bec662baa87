#include "infer/tasks/tokens.h"

#include <string.h>

/* ids: the request's tokens, of which the first n_context are the context's; copied into the pool. */
static ddl_status keep(struct task_pool *pool, const int32_t *ids, size_t n, size_t n_context,
                       struct ddl_task_request *request, struct ddl_error *err)
{
    if (n_context == 0)
        return ddl_error_set(err, DDL_E_FORMAT, "no context token: the context is white space only");
    if (n <= n_context)
        return ddl_error_set(err, DDL_E_FORMAT,
                             "no continuation token: it is part of the context's last token");
    int32_t *tokens = task_pool_take(pool, n, sizeof *tokens);
    if (!tokens)
        return ddl_error_set(err, DDL_E_MEMORY, "out of memory for the tokens of a request");
    memcpy(tokens, ids, n * sizeof *tokens);
    request->tokens = tokens;
    request->n_context = n_context;
    request->n_tokens = n - n_context;
    return DDL_OK;
}

/* After an empty context: the continuation, with <|endoftext|> before it unless it begins with one. */
static ddl_status tokenize_alone(const ddl_tokenizer *tokenizer, struct task_pool *pool,
                                 struct ddl_task_request *request, struct ddl_ids *ids, struct ddl_error *err)
{
    int32_t end = ddl_tokenizer_end_of_text(tokenizer);
    if (end < 0)
        return ddl_error_set(err, DDL_E_FORMAT,
                             "the context is empty: expected a tokenizer with <|endoftext|>, found none");
    ddl_status status =
        ddl_tokenizer_encode(tokenizer, DDL_END_OF_TEXT, strlen(DDL_END_OF_TEXT), true, ids, err);
    if (!status)
        status = ddl_tokenizer_encode(tokenizer, request->continuation.data, request->continuation.size, true,
                                      ids, err);
    if (status)
        return status;
    bool begins_with_end = ids->n > 1 && ids->ids[1] == end;
    return keep(pool, ids->ids + begins_with_end, ids->n - begins_with_end, 1, request, err);
}

static ddl_status tokenize_pair(const ddl_tokenizer *tokenizer, struct task_pool *pool,
                                struct ddl_task_request *request, struct ddl_ids *ids, struct ddl_error *err)
{
    struct ddl_task_text stripped = task_rstrip(request->context);
    struct ddl_task_text whole = TASK_JOIN(pool, request->context, request->continuation);
    ddl_status status = ddl_tokenizer_encode(tokenizer, stripped.data, stripped.size, true, ids, err);
    size_t head = ids->n;
    if (!status)
        status = ddl_tokenizer_encode(tokenizer, whole.data, whole.size, true, ids, err);
    if (status)
        return status;
    /* the context's own tokens, then the whole's after as many */
    size_t tail = ids->n - head > head ? ids->n - 2 * head : 0;
    memmove(ids->ids + head, ids->ids + 2 * head, tail * sizeof *ids->ids);
    return keep(pool, ids->ids, head + tail, head, request, err);
}

ddl_status task_tokenize(const ddl_tokenizer *tokenizer, struct task_pool *pool,
                         struct ddl_task_request *request, struct ddl_error *err)
{
    struct ddl_ids ids = { 0 };
    ddl_status status = request->context.size ? tokenize_pair(tokenizer, pool, request, &ids, err)
                                              : tokenize_alone(tokenizer, pool, request, &ids, err);
    ddl_ids_free(&ids);
    return status;
}
