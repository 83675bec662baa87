#include "support/tokenizer.h"

ddl_tokenizer *tokenizer;

int load_tokenizer(void **state)
{
    (void)state;
    struct ddl_error err;
    assert_ok(ddl_tokenizer_load(&tokenizer, source_path("data/tokenizer"), &err), err);
    return 0;
}

int unload_tokenizer(void **state)
{
    (void)state;
    ddl_tokenizer_free(tokenizer);
    tokenizer = NULL;
    return 0;
}
