/* A text to learn a tokenizer from: it gives that text back, and learning again gives the same. */
#include "fuzz.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ddl_error err = { 0 };
    struct ddl_tokenizer_train_config config = ddl_tokenizer_train_defaults();
    const char *files[] = { fuzz_file("text", data, size) };
    ddl_tokenizer *tokenizer, *again;
    config.vocab_size = 300;
    config.max_words = 10000; /* the least: the table is made for as many */
    config.min_frequency = 1 + size % 3;
    if (!fuzz_ok(ddl_tokenizer_train(&tokenizer, &config, files, 1, NULL, NULL, &err), &err))
        return 0;
    FUZZ_LAW(ddl_tokenizer_train(&again, &config, files, 1, NULL, NULL, &err) == DDL_OK);
    FUZZ_LAW(config.max_words == 1024 ||
             ddl_tokenizer_vocab_size(again) == ddl_tokenizer_vocab_size(tokenizer));
    fuzz_round_trip(again, (const char *)data, size < FUZZ_LONGEST_TEXT ? size : FUZZ_LONGEST_TEXT, false);
    ddl_tokenizer_free(again);
    fuzz_use_tokenizer(tokenizer);
    return 0;
}
