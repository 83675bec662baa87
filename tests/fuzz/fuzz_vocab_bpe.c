/* Fuzzes an archive of GPT-2's two files, vocab.bpe and encoder.json. If the latter is missing, one with the
 * bytes and the merges "t h", "th e", ... is provided, and the entire input is the vocab.bpe. */
#include "fuzz.h"

#include "text/alphabet.h"
#include "base/utf8.h"

#include <stdio.h>
#include <string.h>

/* Writes {"!": 0, ...}: the alphabet in code point order, then the results of the seeds' merges. */
static void write_encoder(void)
{
    static const char *const made[] = { "th", "the", "\xc4\xa0the", "in", "ing", "er", "<|endoftext|>" };
    static char text[1 << 14];
    struct ddl_alphabet alphabet = ddl_alphabet_make();
    size_t used = 0, id = 0;
    for (; id < 256; id++) {
        char name[5] = "";
        ddl_utf8_encode(alphabet.code[alphabet.order[id]], name);
        used += (size_t)snprintf(text + used, sizeof text - used, "%s\"%s%s\": %zu", id ? ", " : "{",
                                 strchr("\"\\", name[0]) ? "\\" : "", name, id);
    }
    for (size_t i = 0; i < sizeof made / sizeof *made; i++, id++)
        used += (size_t)snprintf(text + used, sizeof text - used, ", \"%s\": %zu", made[i], id);
    used += (size_t)snprintf(text + used, sizeof text - used, "}");
    fuzz_file("encoder.json", text, used);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ddl_error err = { 0 };
    ddl_tokenizer *tokenizer;
    if (fuzz_is_archive(data, size)) {
        fuzz_unpack(data, size);
    } else {
        fuzz_unpack((const uint8_t *)"", 0);
        write_encoder();
        fuzz_file("vocab.bpe", data, size);
    }
    if (fuzz_ok(ddl_tokenizer_load(&tokenizer, fuzz_folder(), &err), &err))
        fuzz_use_tokenizer(tokenizer);
    return 0;
}
