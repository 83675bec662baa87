/* Fuzzes tokenizer.json: a tokenizer that loads must encode, decode, save and load again. */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ddl_error err = { 0 };
    ddl_tokenizer *tokenizer, *again;
    if (!fuzz_ok(ddl_tokenizer_load(&tokenizer, fuzz_file("tokenizer.json", data, size), &err), &err))
        return 0;
    const char *path = fuzz_path("written.json");
    FUZZ_CHECK(ddl_tokenizer_save(tokenizer, path, &err) == DDL_OK);
    FUZZ_CHECK(ddl_tokenizer_load(&again, path, &err) == DDL_OK);
    FUZZ_CHECK(ddl_tokenizer_n_merges(again) == ddl_tokenizer_n_merges(tokenizer));
    ddl_tokenizer_free(again);
    fuzz_use_tokenizer(tokenizer);
    return 0;
}

FUZZ_MUTATE_NUMBERS
