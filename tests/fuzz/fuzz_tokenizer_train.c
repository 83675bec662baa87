/* Fuzzes tokenizer training: the trained tokenizer must reproduce its training text. */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ddl_error err = { 0 };
    struct ddl_tokenizer_train_config config = ddl_tokenizer_train_defaults();
    const char *files[] = { fuzz_file("text.txt", data, size) };
    ddl_tokenizer *tokenizer;
    config.vocab_size = 300;
    config.min_frequency = 1 + size % 3;
    config.max_words = 10000; /* the minimum */
    if (!fuzz_ok(ddl_tokenizer_train(&tokenizer, &config, files, 1, NULL, NULL, &err), &err))
        return 0;
    FUZZ_CHECK(ddl_tokenizer_vocab_size(tokenizer) == 257 + ddl_tokenizer_n_merges(tokenizer));
    fuzz_round_trip(tokenizer, (const char *)data, size < FUZZ_LONGEST_TEXT ? size : FUZZ_LONGEST_TEXT,
                    false);
    ddl_tokenizer_free(tokenizer);
    return 0;
}
