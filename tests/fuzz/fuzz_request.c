/* Fuzzes bodies of requests to `ddl serve`: "C" before the body makes it that of a chat. A request that is
 * accepted has prompts of at least a token; an error has a status of the client's and is valid JSON. */
#include "fuzz.h"

#include "cli/serve/request.h"

#include <string.h>

static const struct ddl_config *model_config(void)
{
    static struct ddl_config config;
    if (!config.n_layers) {
        struct ddl_error err;
        config = ddl_config_defaults();
        config.n_layers = 2;
        config.vocab_size = ddl_tokenizer_vocab_size(fuzz_tokenizer());
        FUZZ_CHECK(ddl_config_check(&config, &err) == DDL_OK);
    }
    return &config;
}

static const struct chat_template *template(void)
{
    static struct chat_template plain;
    static bool loaded;
    struct ddl_error err;
    if (!loaded)
        FUZZ_CHECK(chat_template_load(&plain, fuzz_folder(), &err) == DDL_OK);
    loaded = true;
    return &plain;
}

static void check_error(const struct api_error *e)
{
    struct buffer text = { 0 };
    FUZZ_CHECK(e->status == 400 && *e->message);
    FUZZ_CHECK(api_error_write(e, &text));
    json_t *root = json_loadb(text.bytes, text.n, JSON_ALLOW_NUL, NULL);
    FUZZ_CHECK(json_is_object(json_object_get(root, "error")));
    json_decref(root);
    buffer_free(&text);
}

static void check_prepared(const struct request *r, const struct request_limits *limits)
{
    FUZZ_CHECK(r->n_prompts > 0 && r->n <= r->best_of && r->best_of * r->n_prompts <= MAX_CHOICES);
    FUZZ_CHECK(!r->force.n || r->forces);
    for (size_t i = 0; i < r->n_prompts; i++) {
        const struct ddl_ids *ids = &r->prompts[i].ids;
        FUZZ_CHECK(ids->n > 0 && ids->n <= limits->context);
        for (size_t t = 0; t < ids->n; t++)
            FUZZ_CHECK(ids->ids[t] >= 0 && (size_t)ids->ids[t] < ddl_tokenizer_vocab_size(limits->tokenizer));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct request request;
    struct api_error e = { 0 };
    const struct request_limits limits = {
        .config = model_config(), .tokenizer = fuzz_tokenizer(), .chat = template(), .context = 512
    };
    bool chat = size && *data == 'C';
    if (request_parse(&request, chat ? CHAT : COMPLETIONS, (const char *)data + chat, size - chat, &e) &&
        request_prepare(&request, &limits, &e))
        check_prepared(&request, &limits);
    else
        check_error(&e);
    request_free(&request);
    return 0;
}

FUZZ_MUTATE_NUMBERS
