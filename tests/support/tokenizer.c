#include "support/tokenizer.h"

#include "support/files.h"
#include <stdio.h>
#include <string.h>

ddl_tokenizer *tokenizer;
char tokenizer_path[1024];

int load_tokenizer(void **state)
{
    (void)state;
    struct ddl_error err;
    snprintf(tokenizer_path, sizeof tokenizer_path, "%s", source_path("data/tokenizer"));
    assert_ok(ddl_tokenizer_load(&tokenizer, tokenizer_path, &err), err);
    return 0;
}

int learn_tokenizer(void **state)
{
    (void)state;
    struct ddl_error err;
    struct ddl_tokenizer_train_config config = ddl_tokenizer_train_defaults();
    config.vocab_size = 400;
    static const char line[] = "one two three four five six seven eight nine ten\nsome text\na b\nword\n";
    char text[2 * sizeof line];
    snprintf(text, sizeof text, "%s%s", line, line); /* a pair must occur twice */
    const char *path = scratch_path("words.txt");
    write_file(path, text, strlen(text));
    snprintf(tokenizer_path, sizeof tokenizer_path, "%s", scratch_path("tokenizer"));
    assert_ok(ddl_tokenizer_train(&tokenizer, &config, &path, 1, NULL, NULL, &err), err);
    assert_ok(ddl_tokenizer_save(tokenizer, tokenizer_path, &err), err);
    assert_int_equal(ddl_tokenizer_end_of_text(tokenizer), 0);
    return 0;
}

int unload_tokenizer(void **state)
{
    (void)state;
    ddl_tokenizer_free(tokenizer);
    tokenizer = NULL;
    return 0;
}
