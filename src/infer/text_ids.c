#include "infer/text_ids.h"

#include <string.h>

static ddl_status check_text(const char *text, size_t size, struct ddl_error *err)
{
    const char *zero = size ? memchr(text, 0, size) : NULL;
    if (size == 0)
        return ddl_error_set(err, DDL_E_FORMAT, "expected text, found nothing");
    if (zero)
        return ddl_error_set(err, DDL_E_FORMAT, "expected text, found a zero byte at %zu",
                             (size_t)(zero - text));
    return DDL_OK;
}

ddl_status ddl_text_ids(const ddl_tokenizer *tokenizer, const char *text, size_t size, struct ddl_ids *ids,
                        size_t *prefix, struct ddl_error *err)
{
    static const char end[] = DDL_END_OF_TEXT;
    ddl_status status = check_text(text, size, err);
    if (!status && ddl_tokenizer_end_of_text(tokenizer) >= 0)
        status = ddl_tokenizer_encode(tokenizer, end, strlen(end), true, ids, err);
    *prefix = ids->n;
    return status ? status : ddl_tokenizer_encode(tokenizer, text, size, false, ids, err);
}
