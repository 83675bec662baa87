/* Fuzzes chat_template.json of a model folder. A template that is accepted turns messages into tokens whose
 * texts are those of the template and of the messages, in this order. */
#include "fuzz.h"

#include "cli/serve/chat.h"

#include <stdlib.h>
#include <string.h>

enum { MESSAGES = 3 };

static void add_text(struct buffer *out, const char *text)
{
    if (text)
        FUZZ_CHECK(buffer_add(out, text, strlen(text)));
}

/* The text that the tokens of the chat have. */
static void whole_text(const struct chat_template *t, const struct message *messages, struct buffer *out)
{
    add_text(out, t->begin);
    for (size_t i = 0; i < MESSAGES; i++) {
        add_text(out, t->before[messages[i].role]);
        add_text(out, messages[i].content);
        add_text(out, t->after[messages[i].role]);
    }
    add_text(out, t->before[ROLE_ASSISTANT]);
    if (out->n && out->bytes[out->n - 1] == ' ' && *t->before[ROLE_ASSISTANT])
        out->n--;
}

static void check_tokens(const struct ddl_ids *ids, const struct buffer *expected)
{
    const ddl_tokenizer *tokenizer = fuzz_tokenizer();
    size_t at = 0;
    for (size_t i = 0; i < ids->n; i++) {
        size_t size;
        const char *bytes = ddl_tokenizer_bytes(tokenizer, ids->ids[i], &size);
        FUZZ_CHECK(bytes && at + size <= expected->n && memcmp(bytes, expected->bytes + at, size) == 0);
        at += size;
    }
    FUZZ_CHECK(at == expected->n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char system[] = "Be <|endoftext|> brief.", question[] = "Who?", answer[] = "";
    const struct message messages[MESSAGES] = { { ROLE_SYSTEM, system, sizeof system - 1 },
                                                { ROLE_USER, question, sizeof question - 1 },
                                                { ROLE_ASSISTANT, answer, 0 } };
    struct chat_template t;
    struct ddl_error err = { 0 };
    fuzz_file("chat_template.json", data, size);
    if (fuzz_ok(chat_template_load(&t, fuzz_folder(), &err), &err)) {
        struct ddl_ids ids = { 0 };
        struct buffer expected = { 0 };
        FUZZ_CHECK(!t.stop || *t.stop);
        FUZZ_CHECK(chat_encode(&t, fuzz_tokenizer(), messages, MESSAGES, &ids, &err) == DDL_OK);
        whole_text(&t, messages, &expected);
        check_tokens(&ids, &expected);
        ddl_ids_free(&ids);
        buffer_free(&expected);
    }
    chat_template_free(&t);
    return 0;
}
