/* ddl serve: the answers of its endpoints, its errors, and clients that behave badly. */
#define _POSIX_C_SOURCE 200809L
#include "support/browser.h"
#include "support/files.h"
#include "support/http.h"
#include "support/program.h"
#include "support/runs.h"

#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { CONTEXT = 4000 };

static char folder[2048], short_folder[2048];

/* A tiny model whose texts can be long. */
static int write_models(void **state)
{
    struct ddl_error err;
    ddl_backend *backend;
    ddl_model *model;
    ddl_tokenizer *tokenizer = tiny_tokenizer();
    struct ddl_config config = tiny_config("ddl-cc-ec", TINY_VOCAB);
    (void)state;
    config.block_size = CONTEXT;
    snprintf(folder, sizeof folder, "%s", scratch_path("long"));
    assert_ok(ddl_backend_create(&backend, "ref", 0, &err), err);
    assert_ok(ddl_model_create(&model, &config, backend, &err), err);
    assert_ok(ddl_model_init(model, 7, &err), err);
    assert_ok(ddl_file_make_dir(folder, &err), err);
    assert_ok(ddl_model_save(model, folder, &err), err);
    assert_ok(ddl_tokenizer_save(tokenizer, folder, &err), err);
    ddl_model_free(model);
    ddl_backend_free(backend);
    ddl_tokenizer_free(tokenizer);
    snprintf(short_folder, sizeof short_folder, "%s", tiny_folder("short", "baseline"));
    return 0;
}

/* ---- values of answers ---- */

static const char *string_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    if (!text)
        fail_msg("no text '%s'", key);
    return text;
}

/* Choice i of an answer. */
static const json_t *choice_of(const json_t *root, size_t i)
{
    const json_t *choice = json_array_get(json_object_get(root, "choices"), i);
    assert_non_null(choice);
    return choice;
}

static double usage_of(const json_t *root, const char *key)
{
    return number_of(json_object_get(root, "usage"), key);
}

/* The joined texts of a stream's events for choice `index`; *n events with text. Its end must be complete. */
static void join_stream(const char *body, size_t index, char *out, size_t size, size_t *n)
{
    const char *end = "data: [DONE]\n\n";
    size_t length = strlen(body);
    out[0] = '\0';
    *n = 0;
    assert_true(length > strlen(end) && strcmp(body + length - strlen(end), end) == 0);
    for (const char *at = body; strncmp(at, end, strlen(end)) != 0;) {
        const char *line = at;
        at = strstr(line, "\n\n") + 2;
        if (*line == ':')
            continue;
        json_t *event = json_loadb(line + 6, (size_t)(at - 2 - line - 6), JSON_ALLOW_NUL, NULL);
        assert_non_null(event);
        const json_t *choice = json_array_get(json_object_get(event, "choices"), 0);
        if (choice && number_of(choice, "index") == (double)index) {
            const json_t *delta = json_object_get(choice, "delta");
            const char *text = string_of(delta ? delta : choice, delta ? "content" : "text");
            size_t used = strlen(out);
            snprintf(out + used, size - used, "%s", text);
            *n += *text != '\0';
        }
        json_decref(event);
    }
}

/* ---- answers ---- */

static void texts_are_those_of_generate(void **state)
{
    static const char *const prompts[] = { "Permission is", "The Software", "copyright notice" };
    struct http_server server;
    (void)state;
    http_start(&server, NULL, "m='%s'", folder);
    for (size_t i = 0; i < 3; i++) {
        char body[512];
        snprintf(body, sizeof body, "{\"prompt\":\"%s\",\"max_tokens\":40,\"seed\":%zu,\"temperature\":0.9}",
                 prompts[i], i);
        json_t *generated =
            ddl_json("generate '%s' --prompt '%s' --max-tokens 40 --seed %zu --temperature 0.9 --json",
                     folder, prompts[i], i);
        json_t *served = http_json(&server, "/v1/completions", body, 200);
        const json_t *text = json_array_get(generated, 0);
        assert_string_equal(string_of(choice_of(served, 0), "text"), string_of(text, "text"));
        assert_string_equal(string_of(served, "object"), "text_completion");
        json_decref(generated);
        json_decref(served);
    }
    http_stop(&server);
}

/* The scores of a prompt are those that ddl logprobs prints. */
static void prompts_are_scored(void **state)
{
    struct http_server server;
    (void)state;
    http_start(&server, NULL, "m='%s'", folder);
    write_file(scratch_path("words.txt"), "Permission is hereby", 20);
    assert_int_equal(
        ddl_stream(STANDARD_OUTPUT, "logprobs '%s' '%s' --json", folder, scratch_path("words.txt")), 0);
    json_t *served = http_json(
        &server, "/v1/completions",
        "{\"prompt\":\"<|endoftext|>Permission is hereby\",\"max_tokens\":0,\"echo\":true,\"logprobs\":2}",
        200);
    const json_t *choice = choice_of(served, 0), *logprobs = json_object_get(choice, "logprobs");
    const json_t *values = json_object_get(logprobs, "token_logprobs");
    assert_string_equal(string_of(choice, "text"), "<|endoftext|>Permission is hereby");
    assert_true(json_is_null(json_array_get(values, 0)));
    assert_true(json_is_null(json_array_get(json_object_get(logprobs, "top_logprobs"), 0)));
    size_t t = 1;
    char *save = NULL;
    for (char *line = strtok_r(printed, "\n", &save); line; line = strtok_r(NULL, "\n", &save), t++) {
        json_t *score = json_loads(line, 0, NULL);
        const json_t *top = json_array_get(json_object_get(logprobs, "top_logprobs"), t);
        assert_non_null(score);
        assert_float_equal(json_number_value(json_array_get(values, t)), number_of(score, "logprob"), 2e-5);
        assert_in_range(json_object_size(top), 2, 3);
        assert_true(number_of(top, string_of(score, "text")) == json_number_value(json_array_get(values, t)));
        json_decref(score);
    }
    assert_int_equal(json_array_size(values), t);
    assert_int_equal((int)usage_of(served, "completion_tokens"), 0);
    assert_int_equal((int)usage_of(served, "prompt_tokens"), t);
    json_decref(served);
    http_stop(&server);
}

/* A request for two prompts with two texts each, streamed and not. */
static void streams_have_the_same_texts(void **state)
{
    static const char *const format =
        "{\"prompt\":[\"Permission\",\"The\"],\"max_tokens\":20,\"seed\":3,\"n\":2,"
        "\"logprobs\":1,\"stream\":%s%s}";
    struct http_server server;
    struct http_answer answer;
    char body[512], joined[4096];
    size_t n;
    (void)state;
    http_start(&server, NULL, "m='%s'", folder);
    snprintf(body, sizeof body, format, "false", "");
    json_t *whole = http_json(&server, "/v1/completions", body, 200);
    snprintf(body, sizeof body, format, "true", ",\"stream_options\":{\"include_usage\":true}");
    http_call(&server, "POST", "/v1/completions", NULL, body, &answer);
    assert_int_equal(answer.status, 200);
    assert_non_null(strstr(answer.headers, "text/event-stream"));
    assert_non_null(strstr(answer.body, "\"completion_tokens\""));
    for (size_t i = 0; i < 4; i++) {
        join_stream(answer.body, i, joined, sizeof joined, &n);
        assert_string_equal(joined, string_of(choice_of(whole, i), "text"));
        assert_true(n > 5);
    }
    http_free(&answer);
    json_decref(whole);
    http_stop(&server);
}

static void chats_are_answered(void **state)
{
    static const char *const template =
        "{\"begin\":\"<|endoftext|>\",\"stop\":\"#\",\"system\":{\"before\":\"S:\",\"after\":\"|\"},"
        "\"user\":{\"before\":\"U:\",\"after\":\"|\"},\"assistant\":{\"before\":\"A:\",\"after\":\"|\"}}";
    static const char *const body =
        "{\"messages\":[{\"role\":\"system\",\"content\":\"be brief\"},"
        "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"hi <|endoftext|>\"}]}],"
        "\"max_completion_tokens\":12,\"seed\":1,\"logprobs\":true,\"top_logprobs\":2}";
    static const char *const empty =
        "{\"system\":{\"before\":\"\",\"after\":\"of\"},\"user\":{\"before\":\"\",\"after\":\"\"},"
        "\"assistant\":{\"before\":\"A:\",\"after\":\"\"}}";
    static const char *const parts[] = {
        "{\"messages\":[{\"role\":\"user\",\"content\":\"<|endof\"},"
        "{\"role\":\"user\",\"content\":\"text|>\"}],\"max_tokens\":1}",
        "{\"messages\":[{\"role\":\"system\",\"content\":\"<|end\"},"
        "{\"role\":\"user\",\"content\":\"text|>\"}],\"max_tokens\":1}",
    };
    struct http_server server;
    char path[2100];
    (void)state;
    http_start(&server, NULL, "m='%s'", folder);
    json_t *plain = http_json(&server, "/v1/chat/completions", body, 200);
    http_stop(&server);
    const json_t *choice = choice_of(plain, 0), *message = json_object_get(choice, "message");
    assert_string_equal(string_of(plain, "object"), "chat.completion");
    assert_string_equal(string_of(message, "role"), "assistant");
    const json_t *tokens = json_object_get(json_object_get(choice, "logprobs"), "content");
    assert_in_range(json_array_size(tokens), 1, 12);
    assert_int_equal(json_array_size(json_object_get(json_array_get(tokens, 0), "top_logprobs")), 2);
    snprintf(path, sizeof path, "%s/chat_template.json", folder);
    write_file(path, template, strlen(template));
    http_start(&server, NULL, "m='%s'", folder);
    json_t *own = http_json(&server, "/v1/chat/completions", body, 200);
    json_t *same =
        http_json(&server, "/v1/completions",
                  "{\"prompt\":\"<|endoftext|>S:be brief|U:hi \",\"max_tokens\":0,\"echo\":true}", 200);
    /* What the user wrote is no special token: it takes several tokens. */
    assert_true(usage_of(own, "prompt_tokens") > usage_of(same, "prompt_tokens") + 4);
    json_decref(same);
    json_decref(own);
    json_decref(plain);
    http_stop(&server);
    /* Parts of its text in two messages are none either, nor with a part in the template. */
    write_file(path, empty, strlen(empty));
    http_start(&server, NULL, "m='%s'", folder);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        json_t *joined = http_json(&server, "/v1/chat/completions", parts[i], 200);
        assert_true(usage_of(joined, "prompt_tokens") > 5);
        json_decref(joined);
    }
    http_stop(&server);
    write_file(path, "{\"user\":1}", 10);
    assert_int_equal(ddl("serve '%s'", folder), 1);
    assert_printed("chat_template.json: expected an object with system, user and assistant");
    assert_int_equal(remove(path), 0);
}

/* A history has the tokens of its answers: the space of an answer is that of the template. */
static void answers_of_a_history_keep_their_tokens(void **state)
{
    static const char *const answers[] = { " of the", "of the" };
    struct http_server server;
    (void)state;
    http_start(&server, NULL, "m='%s'", folder);
    json_t *text = http_json(&server, "/v1/completions",
                             "{\"prompt\":\"User: hi\\n\\nAssistant: of the\\n\\nUser: go\\n\\nAssistant:\","
                             "\"max_tokens\":9,\"seed\":1}",
                             200);
    for (size_t i = 0; i < 2; i++) {
        char body[512];
        snprintf(body, sizeof body,
                 "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"},"
                 "{\"role\":\"assistant\",\"content\":\"%s\"},{\"role\":\"user\",\"content\":\"go\"}],"
                 "\"max_tokens\":9,\"seed\":1}",
                 answers[i]);
        json_t *chat = http_json(&server, "/v1/chat/completions", body, 200);
        const json_t *message = json_object_get(choice_of(chat, 0), "message");
        assert_int_equal((int)usage_of(chat, "prompt_tokens"), (int)usage_of(text, "prompt_tokens"));
        assert_string_equal(string_of(message, "content"), string_of(choice_of(text, 0), "text"));
        json_decref(chat);
    }
    json_decref(text);
    http_stop(&server);
}

/* The joined tokens of a choice's logprobs; their number. */
static size_t join_tokens(const json_t *choice, char *out, size_t size)
{
    const json_t *logprobs = json_object_get(choice, "logprobs");
    const json_t *content = json_object_get(logprobs, "content");
    const json_t *tokens = content ? content : json_object_get(logprobs, "tokens");
    out[0] = '\0';
    for (size_t i = 0; i < json_array_size(tokens); i++) {
        const json_t *token = json_array_get(tokens, i);
        size_t used = strlen(out);
        snprintf(out + used, size - used, "%s",
                 content ? string_of(token, "token") : json_string_value(token));
    }
    return json_array_size(tokens);
}

/* Of texts of "a" (65): tokens of a stop text are not reported, and those that may become one not before
 * their text. */
static void stop_texts_have_no_tokens(void **state)
{
    static const struct {
        const char *path, *fields;
        size_t n;
    } cases[] = {
        { "/v1/completions", "\"prompt\":\"x\",\"logprobs\":0,\"stop\":\"aa\"", 0 },
        { "/v1/completions", "\"prompt\":\"x\",\"logprobs\":0,\"stop\":\"xaa\",\"echo\":true", 7 },
        { "/v1/completions", "\"prompt\":\"x\",\"logprobs\":0,\"stop\":\"aa\",\"echo\":true", 1 },
        { "/v1/completions", "\"prompt\":\"x\",\"logprobs\":0,\"stop\":\"aab\"", 6 },
        { "/v1/completions", "\"prompt\":\"x\",\"logprobs\":0,\"stop_token_ids\":[65]", 0 },
        { "/v1/chat/completions",
          "\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"logprobs\":true,\"stop\":\"aa\"", 0 },
    };
    struct http_server server;
    struct http_answer answer;
    char body[512], tokens[256];
    (void)state;
    http_start(&server, NULL, "m='%s'", folder);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bool is_chat = strstr(cases[i].path, "chat") != NULL;
        size_t n = 0;
        snprintf(body, sizeof body, "{%s,\"max_tokens\":6,\"logit_bias\":{\"65\":100}}", cases[i].fields);
        json_t *whole = http_json(&server, cases[i].path, body, 200);
        const json_t *choice = choice_of(whole, 0), *message = json_object_get(choice, "message");
        assert_int_equal(join_tokens(choice, tokens, sizeof tokens), cases[i].n);
        assert_string_equal(tokens, is_chat ? string_of(message, "content") : string_of(choice, "text"));
        json_decref(whole);
        snprintf(body, sizeof body, "{%s,\"max_tokens\":6,\"logit_bias\":{\"65\":100},\"stream\":true}",
                 cases[i].fields);
        http_call(&server, "POST", cases[i].path, NULL, body, &answer);
        assert_int_equal(answer.status, 200);
        for (const char *at = answer.body; strncmp(at, "data: [", 7) != 0; at = strstr(at, "\n\n") + 2) {
            json_t *event = json_loads(at + 6, JSON_DISABLE_EOF_CHECK, NULL);
            const json_t *part = choice_of(event, 0), *delta = json_object_get(part, "delta");
            n += join_tokens(part, tokens, sizeof tokens);
            assert_string_equal(tokens, string_of(delta ? delta : part, delta ? "content" : "text"));
            json_decref(event);
        }
        assert_int_equal(n, cases[i].n);
        http_free(&answer);
    }
    http_stop(&server);
}

/* The <|endoftext|> of an empty prompt is a token, but not in the text. */
static void offsets_are_those_of_the_text(void **state)
{
    static const char *const prompts[] = { "", "ab", "<|endoftext|>" };
    struct http_server server;
    (void)state;
    http_start(&server, NULL, "m='%s'", folder);
    for (size_t i = 0; i < 3; i++) {
        char body[256];
        snprintf(body, sizeof body,
                 "{\"prompt\":\"%s\",\"echo\":true,\"logprobs\":0,\"max_tokens\":3,"
                 "\"logit_bias\":{\"65\":100}}",
                 prompts[i]);
        json_t *root = http_json(&server, "/v1/completions", body, 200);
        const json_t *offsets =
            json_object_get(json_object_get(choice_of(root, 0), "logprobs"), "text_offset");
        size_t n = (size_t)usage_of(root, "prompt_tokens");
        for (size_t t = 0; t < 3; t++)
            assert_int_equal(json_integer_value(json_array_get(offsets, n + t)), strlen(prompts[i]) + t);
        json_decref(root);
    }
    http_stop(&server);
}

/* The numbers of every token and sublayer, whole and streamed, and updates that are forced for one request.
 */
static void traces_and_forces_are_of_one_request(void **state)
{
    static const char *const format =
        "{\"prompt\":\"<|endoftext|>Permission is\",\"max_tokens\":3,\"temperature\":0,"
        "\"ddl\":true,\"stream\":%s%s}";
    struct http_server server;
    struct http_answer answer;
    char body[512];
    (void)state;
    http_start(&server, NULL, "m='%s'", folder);
    snprintf(body, sizeof body, format, "false", "");
    json_t *served = http_json(&server, "/v1/completions", body, 200);
    const json_t *trace = json_object_get(choice_of(served, 0), "ddl");
    const json_t *sublayers = json_object_get(trace, "sublayers"), *first = json_array_get(sublayers, 0);
    size_t tokens = (size_t)usage_of(served, "prompt_tokens") + 2; /* the last new one is not computed */
    assert_int_equal(json_array_size(sublayers), 6);               /* of three layers */
    assert_string_equal(string_of(first, "sublayer"), "attn");
    assert_int_equal(json_array_size(json_object_get(first, "beta")), tokens);
    assert_int_equal(json_array_size(json_object_get(first, "step")), tokens);
    assert_non_null(json_object_get(first, "readout"));
    assert_non_null(json_object_get(first, "target"));
    for (size_t t = 0; t < tokens; t++)
        assert_in_range((int)(1e6 * json_number_value(json_array_get(json_object_get(first, "beta"), t))), 1,
                        1999999);
    snprintf(body, sizeof body, format, "true", "");
    http_call(&server, "POST", "/v1/completions", NULL, body, &answer);
    assert_non_null(
        strstr(answer.body, "\"ddl\":{\"first\":0,\"sublayers\":[{\"layer\":0,\"sublayer\":\"attn\","));
    http_free(&answer);
    snprintf(body, sizeof body, format, "false",
             ",\"ddl_force\":[\"layers=all,beta=0\",\"layers=0,sub=mlp,beta=1\"]");
    json_t *forced = http_json(&server, "/v1/completions", body, 200);
    sublayers = json_object_get(json_object_get(choice_of(forced, 0), "ddl"), "sublayers");
    for (size_t s = 0; s < 6; s++) {
        const json_t *beta = json_object_get(json_array_get(sublayers, s), "beta");
        assert_true(json_number_value(json_array_get(beta, 1)) == (s == 1 ? 1 : 0));
    }
    json_t *again =
        http_json(&server, "/v1/completions",
                  "{\"prompt\":\"<|endoftext|>Permission is\",\"max_tokens\":3,\"temperature\":0}", 200);
    assert_string_equal(string_of(choice_of(again, 0), "text"), string_of(choice_of(served, 0), "text"));
    json_decref(again);
    json_decref(forced);
    json_decref(served);
    http_stop(&server);
}

/* Without a seed no text of a request repeats another; with one, equal prompts have equal texts. */
static void texts_of_equal_prompts(void **state)
{
    static const char *const bodies[] = { "{\"prompt\":[\"x\",\"x\"],\"max_tokens\":12}",
                                          "{\"prompt\":[\"x\",\"x\"],\"max_tokens\":12,\"seed\":1}" };
    struct http_server server;
    (void)state;
    http_start(&server, NULL, "m='%s'", folder);
    for (int seeded = 0; seeded < 2; seeded++) {
        json_t *served = http_json(&server, "/v1/completions", bodies[seeded], 200);
        const bool same =
            strcmp(string_of(choice_of(served, 0), "text"), string_of(choice_of(served, 1), "text")) == 0;
        assert_true(same == (seeded == 1));
        json_decref(served);
    }
    http_stop(&server);
}

static void the_best_texts_are_chosen(void **state)
{
    static const char *const body =
        "{\"prompt\":\"Permission\",\"max_tokens\":8,\"seed\":5,\"n\":%d,\"best_of\":8,"
        "\"logprobs\":0}";
    struct http_server server;
    char text[256];
    double mean[8];
    (void)state;
    http_start(&server, NULL, "m='%s'", folder);
    for (int n = 2; n <= 8; n += 6) {
        snprintf(text, sizeof text, body, n);
        json_t *served = http_json(&server, "/v1/completions", text, 200);
        assert_int_equal(json_array_size(json_object_get(served, "choices")), n);
        for (int i = 0; i < n; i++) {
            const json_t *values =
                json_object_get(json_object_get(choice_of(served, (size_t)i), "logprobs"), "token_logprobs");
            double sum = 0;
            for (size_t t = 0; t < json_array_size(values); t++)
                sum += json_number_value(json_array_get(values, t));
            if (n == 2) {
                mean[i] = sum / (double)json_array_size(values);
            } else { /* none of all is better than the first of two */
                assert_true(sum / (double)json_array_size(values) <= mean[0] + 1e-6);
            }
        }
        json_decref(served);
    }
    assert_true(mean[0] >= mean[1]);
    http_stop(&server);
}

/* Sums the last n log-probabilities of a choice. */
static double sum_of(const json_t *root, size_t choice, size_t n)
{
    const json_t *values =
        json_object_get(json_object_get(choice_of(root, choice), "logprobs"), "token_logprobs");
    double sum = 0;
    for (size_t i = json_array_size(values) - n; i < json_array_size(values); i++)
        sum += json_number_value(json_array_get(values, i));
    return sum;
}

/* Texts of "a" (65) that end with <|endoftext|> (0) or after two tokens; that token counts in the mean.
 */
static void the_end_of_a_text_is_scored(void **state)
{
    struct http_server server;
    (void)state;
    http_start(&server, NULL, "m='%s' --slots 1", folder);
    json_t *scored = http_json(&server, "/v1/completions",
                               "{\"prompt\":[[88,0],[88,65,0],[88,65,65]],\"max_tokens\":0,\"echo\":true,"
                               "\"logprobs\":0}",
                               200);
    double means[] = { sum_of(scored, 0, 1), sum_of(scored, 1, 2) / 2, sum_of(scored, 2, 2) / 2 };
    size_t best = means[1] > means[0];
    best = means[2] > means[best] ? 2 : best;
    json_t *served = http_json(&server, "/v1/completions",
                               "{\"prompt\":[88],\"max_tokens\":2,\"best_of\":16,\"seed\":1,"
                               "\"logit_bias\":{\"65\":100,\"0\":100}}",
                               200);
    assert_string_equal(string_of(choice_of(served, 0), "text"), best == 0 ? "" : best == 1 ? "a" : "aa");
    json_decref(scored);
    json_decref(served);
    http_stop(&server);
}

/* Of the texts of a prompt, the one that began first says what was cached before, not the best one. */
static void cached_tokens_are_those_before_a_request(void **state)
{
    struct http_server server;
    (void)state;
    http_start(&server, NULL, "m='%s' --slots 1", short_folder);
    for (int i = 0; i < 2; i++) {
        json_t *root = http_json(
            &server, "/v1/completions",
            "{\"prompt\":\"Permission is hereby\",\"max_tokens\":2,\"best_of\":16,\"seed\":1}", 200);
        const json_t *details = json_object_get(json_object_get(root, "usage"), "prompt_tokens_details");
        assert_int_equal((int)number_of(details, "cached_tokens"),
                         i == 0 ? 0 : (int)usage_of(root, "prompt_tokens") - 1);
        json_decref(root);
    }
    http_stop(&server);
}

static void other_endpoints_answer(void **state)
{
    struct http_server server;
    struct http_answer answer;
    (void)state;
    http_start(&server, NULL, "one='%s' two='%s'", folder, short_folder);
    json_t *root = http_json(&server, "/v1/models", NULL, 200);
    assert_string_equal(string_of(json_array_get(json_object_get(root, "data"), 1), "id"), "two");
    json_decref(root);
    root = http_json(&server, "/v1/models/two", NULL, 200);
    assert_string_equal(string_of(root, "id"), "two");
    json_decref(root);
    json_decref(http_json(&server, "/v1/models/three", NULL, 404));
    json_decref(http_json(&server, "/v1/models/", NULL, 404));
    root = http_json(&server, "/tokenize", "{\"model\":\"one\",\"prompt\":\"Permission<|endoftext|>\"}", 200);
    json_t *tokens = json_object();
    json_object_set_new(tokens, "model", json_string("two"));
    json_object_set(tokens, "tokens", json_object_get(root, "tokens"));
    char *body = json_dumps(tokens, 0);
    json_t *text = http_json(&server, "/detokenize", body, 200);
    assert_string_equal(string_of(text, "prompt"), "Permission<|endoftext|>");
    free(body);
    json_decref(text);
    json_decref(tokens);
    json_decref(root);
    root = http_json(&server, "/tokenizer_info", NULL, 200);
    assert_string_equal(string_of(root, "eos_token"), "<|endoftext|>");
    json_decref(root);
    root = http_json(&server, "/health", NULL, 200);
    assert_string_equal(string_of(root, "status"), "ok");
    json_decref(root);
    root = http_json(&server, "/openapi.json", NULL, 200);
    assert_string_equal(string_of(root, "openapi"), "3.1.0");
    assert_non_null(json_object_get(json_object_get(root, "paths"), "/v1/completions"));
    json_decref(root);
    root =
        http_json(&server, "/v1/completions", "{\"model\":\"two\",\"prompt\":\"The\",\"max_tokens\":3}", 200);
    json_decref(root);
    http_call(&server, "GET", "/metrics", NULL, NULL, &answer);
    assert_non_null(strstr(answer.body, "\nllamacpp:tokens_predicted_total{model=\"two\"} 3\n"));
    assert_non_null(strstr(answer.body, "\nddl:time_to_first_token_seconds_count{model=\"two\"} 1\n"));
    http_free(&answer);
    http_stop(&server);
}

/* ---- errors ---- */

/* A body of about `size` bytes whose values take a hundred times its memory. */
static char *wide_body(size_t size)
{
    static const char begin[] = "{\"prompt\":[";
    char *body = malloc(size + 32);
    assert_non_null(body);
    size_t n = sizeof begin - 1;
    memcpy(body, begin, n);
    for (; n < size; n += 3)
        memcpy(body + n, "{},", 3);
    memcpy(body + n, "0]}", 4);
    return body;
}

/* A model whose vocabulary are five characters and <|endoftext|>. */
static const char *characters_folder(void)
{
    struct ddl_error err;
    ddl_backend *backend;
    const char *path = scratch_path("characters"), *text = scratch_path("zebra.txt");
    remove_scratch("characters");
    write_file(text, "zebra", 5);
    assert_int_equal(ddl("tokenizer train '%s' --characters --out '%s'", text, path), 0);
    assert_ok(ddl_backend_create(&backend, "ref", 0, &err), err);
    ddl_model *model = tiny_model("baseline", 6, 7, backend);
    assert_ok(ddl_model_save(model, path, &err), err);
    ddl_model_free(model);
    ddl_backend_free(backend);
    return path;
}

static void bad_requests_name_the_field(void **state)
{
    static const struct {
        const char *path, *body;
        int status;
        const char *param; /* NULL: none */
    } cases[] = {
        { "/v1/completions", "", 400, NULL },
        { "/v1/completions", "[1]", 400, NULL },
        { "/v1/completions", "{\"prompt\":\"x\"", 400, NULL },
        { "/v1/completions", "{\"prompt\":\"x\",\"prompt\":\"y\"}", 400, NULL },
        { "/v1/completions", "{}", 400, "prompt" },
        { "/v1/completions", "{\"prompt\":null}", 400, "prompt" },
        { "/v1/completions", "{\"prompt\":[]}", 400, "prompt" },
        { "/v1/completions", "{\"prompt\":[[]]}", 400, "prompt" },
        { "/v1/completions", "{\"prompt\":[1,\"x\"]}", 400, "prompt" },
        { "/v1/completions", "{\"prompt\":[-1]}", 400, "prompt" },
        { "/v1/completions", "{\"prompt\":[1,100000]}", 400, "prompt" },
        { "/v1/completions", "{\"prompt\":{}}", 400, "prompt" },
        { "/v1/completions", "{\"prompt\":\"x\",\"model\":\"none\"}", 404, "model" },
        { "/v1/completions", "{\"prompt\":\"x\",\"model\":1}", 400, "model" },
        { "/v1/completions", "{\"prompt\":\"x\",\"suffix\":\"y\"}", 400, "suffix" },
        { "/v1/completions", "{\"prompt\":\"x\",\"temperature\":\"hot\"}", 400, "temperature" },
        { "/v1/completions", "{\"prompt\":\"x\",\"temperature\":-1}", 400, "temperature" },
        { "/v1/completions", "{\"prompt\":\"x\",\"top_p\":1.5}", 400, "top_p" },
        { "/v1/completions", "{\"prompt\":\"x\",\"max_tokens\":1.5}", 400, "max_tokens" },
        { "/v1/completions", "{\"prompt\":\"x\",\"max_tokens\":-1}", 400, "max_tokens" },
        { "/v1/completions", "{\"prompt\":\"x\",\"n\":0}", 400, "n" },
        { "/v1/completions", "{\"prompt\":\"x\",\"n\":3,\"best_of\":2}", 400, "best_of" },
        { "/v1/completions", "{\"prompt\":\"x\",\"best_of\":2,\"stream\":true}", 400, "best_of" },
        { "/v1/completions", "{\"prompt\":[\"x\",\"y\"],\"n\":1000}", 400, "n" },
        { "/v1/completions", "{\"prompt\":\"x\",\"logprobs\":101}", 400, "logprobs" },
        { "/v1/completions", "{\"prompt\":\"x\",\"logprobs\":true}", 400, "logprobs" },
        { "/v1/completions", "{\"prompt\":\"x\",\"stop\":\"\"}", 400, "stop" },
        { "/v1/completions", "{\"prompt\":\"x\",\"stop\":\"a\\u0000b\"}", 400, "stop" },
        { "/v1/completions", "{\"prompt\":\"x\",\"stop\":[1]}", 400, "stop" },
        { "/v1/completions", "{\"prompt\":\"x\",\"stop_token_ids\":[99999]}", 400, "stop_token_ids" },
        { "/v1/completions", "{\"prompt\":\"x\",\"logit_bias\":{\"99999\":1}}", 400, "logit_bias" },
        { "/v1/completions", "{\"prompt\":\"x\",\"suffix\":\"y\"}", 400, "suffix" },
        { "/v1/completions",
          "{\"prompt\":\"x\",\"max_tokens\":1,\"suffix\":\"\",\"metadata\":{},\"service_tier\":\"auto\","
          "\"stream_options\":{\"include_usage\":null,\"include_obfuscation\":false}}",
          200, NULL },
        { "/v1/chat/completions",
          "{\"messages\":[{\"role\":\"user\",\"content\":\"x\",\"annotations\":[]}],\"max_tokens\":1,"
          "\"tools\":[],\"tool_choice\":\"none\",\"parallel_tool_calls\":true,\"modalities\":[\"text\"],"
          "\"store\":false,\"response_format\":{\"type\":\"text\"}}",
          200, NULL },
        { "/v1/completions", "{\"prompt\":\"x\",\"logit_bias\":{\"a\":1}}", 400, "logit_bias" },
        { "/v1/completions", "{\"prompt\":\"x\",\"logit_bias\":{\"1\":101}}", 400, "logit_bias" },
        { "/v1/completions", "{\"prompt\":\"x\",\"stream_options\":{\"x\":1}}", 400, "stream_options" },
        { "/v1/completions", "{\"prompt\":\"x\",\"seed\":0.5}", 400, "seed" },
        { "/v1/completions", "{\"prompt\":\"x\",\"messages\":[]}", 400, "messages" },
        { "/v1/completions", "{\"prompt\":\"x\",\"ddl\":1}", 400, "ddl" },
        { "/v1/completions", "{\"prompt\":\"x\",\"ddl_force\":1}", 400, "ddl_force" },
        { "/v1/completions", "{\"prompt\":\"x\",\"ddl_force\":\"layers=9,beta=0\"}", 400, "ddl_force" },
        { "/v1/completions", "{\"prompt\":\"x\",\"ddl_force\":\"beta=mean\"}", 400, "ddl_force" },
        { "/v1/chat/completions", "{\"messages\":[]}", 400, "messages" },
        { "/v1/chat/completions", "{\"messages\":[{\"role\":\"judge\",\"content\":\"x\"}]}", 400,
          "messages" },
        { "/v1/chat/completions", "{\"messages\":[{\"role\":\"user\"}]}", 400, "messages" },
        { "/v1/chat/completions",
          "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]}", 400, "messages" },
        { "/v1/chat/completions", "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"max_tokens\":0}",
          400, "max_tokens" },
        { "/v1/chat/completions", "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"tools\":[{}]}",
          400, "tools" },
        { "/v1/chat/completions", "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"tools\":false}",
          400, "tools" },
        { "/v1/completions", "{\"prompt\":\"x\",\"n\":8,\"logprobs\":100,\"max_tokens\":3000}", 400,
          "logprobs" },
        { "/v1/completions", "{\"prompt\":\"x\",\"best_of\":600,\"logprobs\":0,\"max_tokens\":100000}", 400,
          "logprobs" },
        { "/v1/chat/completions",
          "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"n\":8,\"top_logprobs\":100}", 400,
          "top_logprobs" },
        { "/v1/completions", "{\"prompt\":[1.0],\"max_tokens\":2.0}", 200, NULL },
        { "/v1/completions", "{\"prompt\":\"x\",\"max_completion_tokens\":2}", 200, NULL },
        { "/v1/completions", "{\"prompt\":[1.5]}", 400, "prompt" },
        { "/tokenize", "{}", 400, "prompt" },
        { "/tokenize", "{\"prompt\":\"x\",\"content\":\"y\"}", 400, "prompt" },
        { "/tokenize", "{\"prompt\":\"x\",\"other\":1}", 400, "other" },
        { "/detokenize", "{\"tokens\":[1,100000]}", 400, "tokens" },
        { "/detokenize", "{\"tokens\":\"1\"}", 400, "tokens" },
    };
    struct http_server server;
    (void)state;
    http_start(&server, NULL, "m='%s'", folder);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *root = http_json(&server, cases[i].path, cases[i].body, cases[i].status);
        const json_t *error = json_object_get(root, "error");
        if (cases[i].status == 200) {
            json_decref(root);
            continue;
        }
        const char *param = json_string_value(json_object_get(error, "param"));
        if (!cases[i].param ? param != NULL : !param || strcmp(param, cases[i].param) != 0)
            fail_msg("%s: the field is '%s'", cases[i].body, param ? param : "");
        assert_true(*string_of(error, "message") != '\0');
        json_decref(root);
    }
    char *deep = malloc(20001);
    assert_non_null(deep);
    memset(deep, '[', 10000);
    memset(deep + 10000, ']', 10000);
    deep[20000] = '\0';
    json_decref(http_json(&server, "/v1/completions", deep, 400));
    free(deep);
    /* A spec of 4,097 bytes, whose last layer the model does not have. */
    char *spec = malloc(5000);
    assert_non_null(spec);
    size_t n = (size_t)sprintf(spec, "{\"prompt\":\"x\",\"ddl_force\":\"beta=0,layers=");
    for (size_t i = 0; i < 2041; i++)
        n += (size_t)sprintf(spec + n, "0,");
    sprintf(spec + n, "9\"}");
    json_t *root = http_json(&server, "/v1/completions", spec, 400);
    assert_string_equal(string_of(json_object_get(root, "error"), "param"), "ddl_force");
    json_decref(root);
    free(spec);
    char *wide = wide_body(1000000);
    root = http_json(&server, "/v1/completions", wide, 400);
    assert_non_null(
        strstr(string_of(json_object_get(root, "error"), "message"), "need more than the limit of"));
    json_decref(root);
    free(wide);
    http_stop(&server);
}

/* Numbers of an answer that is not streamed: of a prompt that is scored, and of sublayers. */
static void answers_are_bounded(void **state)
{
    static const char *const fields[] = { "\"logprobs\":100,\"echo\":true", "\"ddl\":true" };
    static const char *const params[] = { "logprobs", "ddl" };
    struct http_server server;
    enum { TOKENS = 3000 };
    char *body = malloc(3 * TOKENS + 256);
    (void)state;
    assert_non_null(body);
    http_start(&server, NULL, "m='%s'", folder);
    for (size_t i = 0; i < 2; i++) {
        size_t n = (size_t)sprintf(body, "{\"prompt\":[65");
        for (size_t t = 1; t < TOKENS; t++)
            n += (size_t)sprintf(body + n, ",65");
        sprintf(body + n, "],\"max_tokens\":0,\"n\":%d,%s}", i ? 32 : 8, fields[i]);
        json_t *root = http_json(&server, "/v1/completions", body, 400);
        assert_string_equal(string_of(json_object_get(root, "error"), "param"), params[i]);
        json_decref(root);
    }
    free(body);
    http_stop(&server);
}

/* The smaller of the two counts, in any order. */
static void both_limits_of_tokens_count(void **state)
{
    static const char *const fields[] = { "\"max_tokens\":0,\"max_completion_tokens\":5",
                                          "\"max_completion_tokens\":0,\"max_tokens\":5",
                                          "\"max_tokens\":7,\"max_completion_tokens\":2" };
    struct http_server server;
    (void)state;
    http_start(&server, NULL, "m='%s'", folder);
    for (int i = 0; i < 3; i++) {
        char body[256];
        snprintf(body, sizeof body, "{\"prompt\":\"x\",\"ignore_eos\":true,%s}", fields[i]);
        json_t *root = http_json(&server, "/v1/completions", body, 200);
        assert_int_equal((int)usage_of(root, "completion_tokens"), i == 2 ? 2 : 0);
        json_decref(root);
    }
    http_stop(&server);
}

/* More candidates than the vocabulary has. */
static void candidates_are_tokens(void **state)
{
    struct http_server server;
    (void)state;
    http_start(&server, NULL, "m='%s'", characters_folder());
    json_decref(http_json(&server, "/v1/completions", "{\"prompt\":\"z\",\"logprobs\":6}", 200));
    json_t *root =
        http_json(&server, "/v1/completions", "{\"prompt\":\"z\",\"logprobs\":7,\"stream\":true}", 400);
    assert_string_equal(string_of(json_object_get(root, "error"), "param"), "logprobs");
    json_decref(root);
    root = http_json(&server, "/v1/chat/completions",
                     "{\"messages\":[{\"role\":\"user\",\"content\":\"z\"}],\"top_logprobs\":7}", 400);
    assert_string_equal(string_of(json_object_get(root, "error"), "param"), "top_logprobs");
    json_decref(root);
    http_stop(&server);
}

static void requests_are_limited(void **state)
{
    struct http_server server;
    struct http_answer answer;
    static const struct {
        const char *method, *path, *headers;
        int status;
    } cases[] = {
        { "GET", "/none", NULL, 404 },
        { "GET", "/../etc/passwd", NULL, 404 },
        { "GET", "/v1/completions", NULL, 405 },
        { "DELETE", "/v1/models", NULL, 405 },
        { "DELETE", "/v1/models/m", NULL, 405 },
        { "POST", "/v1/completions", "Content-Type: text/plain\r\nContent-Length: 0\r\n", 415 },
        { "POST", "/v1/completions",
          "Content-Type: application/json\r\nContent-Length: 99999999\r\nExpect: 100-continue\r\n", 413 },
        { "GET", "/health", "Host: evil.example\r\n", 0 }, /* two hosts: any status */
    };
    (void)state;
    http_start(&server, NULL, "m='%s' --max-body 2000", folder);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        http_call(&server, cases[i].method, cases[i].path, cases[i].headers, NULL, &answer);
        if (cases[i].status && answer.status != cases[i].status)
            fail_msg("%s %s: status %d", cases[i].method, cases[i].path, answer.status);
        http_free(&answer);
    }
    /* A page elsewhere whose name resolves to this machine. */
    int fd = http_connect(&server);
    http_write(fd, "GET /v1/models HTTP/1.1\r\nHost: evil.example\r\n\r\n");
    http_read(fd, &answer);
    assert_int_equal(answer.status, 403);
    http_free(&answer);
    close(fd);
    char body[3001];
    memset(body, ' ', sizeof body - 1);
    body[3000] = '\0';
    http_call(&server, "POST", "/v1/completions", NULL, body, &answer);
    assert_int_equal(answer.status, 413);
    http_free(&answer);
    http_stop(&server);
}

/* An error that the headers show is sent to a client that writes its whole body before it reads: none of its
 * writes fails. */
static void long_bodies_have_an_answer(void **state)
{
    static const struct {
        const char *key, *headers;
        int status;
    } cases[] = { { NULL, "", 413 }, { "key", "", 401 }, { "key", "Authorization: Bearer key\r\n", 413 } };
    enum { SIZE = 20000000 };
    struct http_server server;
    struct http_answer answer;
    char head[512], *body = malloc(SIZE);
    (void)state;
    assert_non_null(body);
    memset(body, ' ', SIZE);
    for (size_t i = 0; i < 3; i++) {
        http_start(&server, cases[i].key, "m='%s'", folder);
        int fd = http_connect(&server);
        snprintf(head, sizeof head,
                 "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                 "Content-Length: %d\r\n%s\r\n",
                 SIZE, cases[i].headers);
        http_write(fd, head);
        for (ssize_t sent = 0, n; sent < SIZE; sent += n) {
            n = send(fd, body + sent, (size_t)(SIZE - sent), MSG_NOSIGNAL);
            assert_true(n > 0);
        }
        http_read(fd, &answer);
        assert_false(answer.closed);
        assert_int_equal(answer.status, cases[i].status);
        http_free(&answer);
        close(fd);
        http_stop(&server);
    }
    free(body);
}

/* One line for each request, without what a terminal would interpret. */
static void logged_requests_are_escaped(void **state)
{
    struct http_server server;
    struct http_answer answer;
    (void)state;
    http_start(&server, NULL, "m='%s' --log-prompts", folder);
    http_call(&server, "GET", "/v1/models/%1b%5b31mRED%0addl:%20forged", NULL, NULL, &answer);
    assert_int_equal(answer.status, 404);
    http_free(&answer);
    json_decref(http_json(&server, "/tokenize", "{\"prompt\":\n\"x\033[0m\x7f\"}", 400));
    int fd = http_connect(&server);
    http_write(fd, "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                   "Content-Length: 9\r\n\r\n{");
    assert_int_equal(send(fd, "\0after {", 8, MSG_NOSIGNAL), 8);
    http_read(fd, &answer);
    assert_int_equal(answer.status, 400);
    http_free(&answer);
    close(fd);
    http_stop(&server);
    assert_non_null(strstr(server.printed, "\nddl: /v1/models/\\x1b[31mRED\\x0addl: forged \n"));
    assert_non_null(strstr(server.printed, "\nddl: /tokenize {\"prompt\":\\x0a\"x\\x1b[0m\\x7f\"}\n"));
    assert_non_null(strstr(server.printed, "\nddl: /tokenize {\\x00after {\n"));
    assert_null(strchr(server.printed, '\033'));
}

/* The bound address is a name of this machine, whatever loopback address it is. */
static void the_bound_address_is_a_host(void **state)
{
    static const char *const hosts[] = { "127.0.0.2", "127.0.0.3", "127.0.0.22" };
    struct http_server server;
    struct http_answer answer;
    (void)state;
    http_start(&server, NULL, "m='%s' --host 127.0.0.2", folder);
    for (size_t i = 0; i < 3; i++) {
        char request[128];
        int fd = http_connect(&server);
        snprintf(request, sizeof request, "GET /v1/models HTTP/1.1\r\nHost: %s:%d\r\n\r\n", hosts[i],
                 server.port);
        http_write(fd, request);
        http_read(fd, &answer);
        assert_int_equal(answer.status, i == 0 ? 200 : 403);
        http_free(&answer);
        close(fd);
    }
    http_stop(&server);
}

/* A browser's question before a request of another origin's page. */
static void pages_may_send_their_headers(void **state)
{
    static const struct {
        const char *requested, *allowed;
    } cases[] = {
        { "", "\nAccess-Control-Allow-Headers: Authorization, Content-Type\n" },
        { "Access-Control-Request-Headers: authorization,x-stainless-lang\r\n",
          "\nAccess-Control-Allow-Headers: authorization,x-stainless-lang\n" },
        { "Access-Control-Request-Headers: a;b\r\n",
          "\nAccess-Control-Allow-Headers: Authorization, Content-Type\n" },
    };
    struct http_server server;
    struct http_answer answer;
    (void)state;
    http_start(&server, NULL, "m='%s' --cors 'https://page.example'", folder);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        http_call(&server, "OPTIONS", "/v1/completions", cases[i].requested, NULL, &answer);
        assert_int_equal(answer.status, 204);
        assert_non_null(strstr(answer.headers, "\nAccess-Control-Allow-Origin: https://page.example\n"));
        assert_non_null(strstr(answer.headers, cases[i].allowed));
        http_free(&answer);
    }
    http_stop(&server);
}

static void keys_are_required(void **state)
{
    struct http_server server;
    struct http_answer answer;
    (void)state;
    assert_int_equal(ddl("serve '%s' --host 0.0.0.0 --port 0", folder), 2);
    assert_printed("expected --key-file FILE or the variable DDL_API_KEY, or --no-auth");
    write_file(scratch_path("keys"), "first-key\n second-key \r\n", 24);
    http_start(&server, "third-key\n", "m='%s' --key-file '%s' --slots 1", folder, scratch_path("keys"));
    static const char *const good[] = { "first-key", "second-key", "third-key" };
    static const char *const bad[] = { "", "first", "first-keyy", "fourth-key", "first-key second-key" };
    char header[128];
    for (size_t i = 0; i < 3; i++) {
        snprintf(header, sizeof header, "Authorization: Bearer %s\r\n", good[i]);
        http_call(&server, "GET", "/v1/models", header, NULL, &answer);
        assert_int_equal(answer.status, 200);
        http_free(&answer);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(header, sizeof header, "Authorization: Bearer %s\r\n", bad[i]);
        http_call(&server, "GET", "/v1/models", header, NULL, &answer);
        assert_int_equal(answer.status, 401);
        http_free(&answer);
    }
    json_decref(http_json(&server, "/v1/models", NULL, 401));
    json_decref(http_json(&server, "/health", NULL, 200));
    http_stop(&server);
}

/* ---- load ---- */

/* Sends a request for completions with further headers; its connection. */
static int send_with(const struct http_server *server, const char *headers, const char *body)
{
    char head[512];
    int fd = http_connect(server);
    snprintf(head, sizeof head,
             "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
             "%sContent-Length: %zu\r\n\r\n%s",
             headers, strlen(body), body);
    http_write(fd, head);
    return fd;
}

static int send_request(const struct http_server *server, const char *body)
{
    return send_with(server, "", body);
}

/* A stream of so many texts that take as long as the context allows; it has begun. */
static int begin_stream_with(const struct http_server *server, const char *headers, size_t texts)
{
    char body[256], byte;
    snprintf(body, sizeof body,
             "{\"prompt\":\"x\",\"max_tokens\":100000,\"stream\":true,\"ignore_eos\":true,\"n\":%zu}", texts);
    int fd = send_with(server, headers, body);
    assert_int_equal(recv(fd, &byte, 1, 0), 1);
    return fd;
}

static int begin_stream(const struct http_server *server, size_t texts)
{
    return begin_stream_with(server, "", texts);
}

/* A key whose stream is not at its end gets no second answer, other keys do. */
static void requests_of_a_key_are_limited(void **state)
{
    static const char first[] = "Authorization: Bearer first-key\r\n",
                      second[] = "Authorization: Bearer second-key\r\n",
                      body[] = "{\"prompt\":\"x\",\"max_tokens\":2}";
    struct http_server server;
    struct http_answer answer;
    (void)state;
    write_file(scratch_path("keys"), "first-key\nsecond-key\n", 21);
    http_start(&server, NULL, "m='%s' --key-file '%s' --per-key 1 --slots 64", folder, scratch_path("keys"));
    int stream = begin_stream_with(&server, first, 40);
    http_call(&server, "POST", "/v1/completions", first, body, &answer);
    assert_int_equal(answer.status, 429);
    assert_non_null(strstr(answer.body, "1 requests of this key are being answered"));
    http_free(&answer);
    http_call(&server, "POST", "/v1/completions", second, body, &answer);
    assert_int_equal(answer.status, 200);
    http_free(&answer);
    close(stream);
    for (int i = 0, status = 429; status != 200; i++) {
        http_call(&server, "POST", "/v1/completions", first, body, &answer);
        status = answer.status;
        http_free(&answer);
        assert_true(i < 600 && (status == 200 || status == 429));
        nanosleep(&(struct timespec){ .tv_nsec = 100000000 }, NULL);
    }
    http_stop(&server);
}

/* Waits until a counter of /metrics has the value. */
static void wait_for_metric(const struct http_server *server, const char *line)
{
    for (int i = 0; i < 600; i++) {
        struct http_answer answer;
        http_call(server, "GET", "/metrics", NULL, NULL, &answer);
        bool found = strstr(answer.body, line) != NULL;
        http_free(&answer);
        if (found)
            return;
        nanosleep(&(struct timespec){ .tv_nsec = 100000000 }, NULL);
    }
    fail_msg("never: %s", line);
}

static void the_queue_is_bounded(void **state)
{
    struct http_server server;
    struct http_answer answer;
    int streams[3];
    (void)state;
    http_start(&server, NULL, "m='%s' --slots 1 --queue 2", folder);
    for (size_t i = 0; i < 3; i++) {
        streams[i] = begin_stream(&server, 64);
        if (i == 0)
            wait_for_metric(&server, "\nllamacpp:requests_processing{model=\"m\"} 1\n");
    }
    wait_for_metric(&server, "\nllamacpp:requests_deferred{model=\"m\"} 2\n");
    http_call(&server, "POST", "/v1/completions", NULL, "{\"prompt\":\"x\"}", &answer);
    assert_int_equal(answer.status, 429);
    assert_non_null(strstr(answer.headers, "Retry-After: "));
    http_free(&answer);
    for (size_t i = 0; i < 3; i++)
        close(streams[i]); /* clients that go away end their requests */
    wait_for_metric(&server, "\nddl:requests_cancelled_total{model=\"m\"} 3\n");
    wait_for_metric(&server, "\nddl:requests_failed_total{model=\"m\"} 0\n");
    json_decref(http_json(&server, "/v1/completions", "{\"prompt\":\"x\",\"max_tokens\":3}", 200));
    http_stop(&server);
}

/* Requests that a slot is free for are not those of the queue, even if they come during one pass. */
static void free_slots_are_no_queue(void **state)
{
    enum { REQUESTS = 16 };
    struct http_server server;
    struct http_answer answer;
    int fds[REQUESTS];
    (void)state;
    http_start(&server, NULL, "m='%s' --slots 64 --queue 1", folder);
    int stream = begin_stream(&server, 40);
    for (int i = 0; i < REQUESTS; i++)
        fds[i] = send_request(&server, "{\"prompt\":\"x\",\"max_tokens\":4}");
    for (int i = 0; i < REQUESTS; i++) {
        http_read(fds[i], &answer);
        assert_int_equal(answer.status, 200);
        http_free(&answer);
        close(fds[i]);
    }
    close(stream);
    http_stop(&server);
}

static void requests_end_in_time(void **state)
{
    struct http_server server;
    struct http_answer answer;
    (void)state;
    http_start(&server, NULL, "m='%s' --timeout 0.2 --slots 2", folder);
    json_t *root = http_json(&server, "/v1/completions",
                             "{\"prompt\":\"x\",\"n\":500,\"max_tokens\":3000,\"ignore_eos\":true}", 504);
    assert_string_equal(string_of(json_object_get(root, "error"), "code"), "timeout");
    json_decref(root);
    http_call(&server, "POST", "/v1/completions", NULL,
              "{\"prompt\":\"x\",\"n\":500,\"max_tokens\":3000,\"ignore_eos\":true,\"stream\":true}",
              &answer);
    assert_int_equal(answer.status, 200);
    assert_non_null(strstr(answer.body, "{\"error\":{"));
    assert_null(strstr(answer.body, "[DONE]"));
    http_free(&answer);
    http_stop(&server);
}

/* The limit for reading an answer begins when it is computed. The server's thread is kept busy, so that
 * answers wait to be sent. */
static void long_computations_are_answered(void **state)
{
    struct http_server server;
    struct pollfd fds[3];
    char body[256], *wide = wide_body(500000);
    struct http_answer answer;
    size_t ready = 0;
    (void)state;
    http_start(&server, NULL, "m='%s' --read-timeout 1", folder);
    for (int i = 0; i < 3; i++) {
        snprintf(body, sizeof body, "{\"prompt\":\"x\",\"n\":2,\"max_tokens\":%d,\"ignore_eos\":true}",
                 2000 + 200 * i);
        fds[i] = (struct pollfd){ .fd = send_request(&server, body), .events = POLLIN };
    }
    while (ready < 3) {
        http_call(&server, "POST", "/tokenize", NULL, wide, &answer);
        http_free(&answer);
        ready = (size_t)poll(fds, 3, 0);
    }
    for (int i = 0; i < 3; i++) {
        http_read(fds[i].fd, &answer);
        assert_int_equal(answer.status, 200);
        http_free(&answer);
        close(fds[i].fd);
    }
    free(wide);
    http_stop(&server);
}

/* SIGTERM: what runs ends as if nothing had happened, up to the limit; nothing new begins. */
static void stops_are_orderly(void **state)
{
    struct http_server server;
    struct http_answer answer;
    char joined[1 << 15];
    size_t n;
    (void)state;
    http_start(&server, NULL, "m='%s' --grace 60", folder);
    int fd = send_request(
        &server, "{\"prompt\":\"x\",\"max_tokens\":2000,\"stream\":true,\"seed\":1,\"ignore_eos\":true}");
    wait_for_metric(&server, "\nddl:requests_total{model=\"m\"} 1\n");
    int stream = begin_stream(&server, 8); /* so that the server runs until it is closed */
    int other = http_connect(&server), refused = socket(AF_INET, SOCK_STREAM, 0);
    const struct sockaddr_in address = { .sin_family = AF_INET,
                                         .sin_port = htons((uint16_t)server.port),
                                         .sin_addr = server.address };
    http_write(other, "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
    http_read(other, &answer);
    assert_int_equal(answer.status, 200);
    http_free(&answer);
    http_terminate(&server);
    http_wait_for(&server, "requests are running");
    http_write(other, "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
    http_read(other, &answer);
    assert_int_equal(answer.status, 503);
    http_free(&answer);
    close(other);
    assert_int_equal(connect(refused, (const struct sockaddr *)&address, sizeof address), -1);
    assert_int_equal(errno, ECONNREFUSED);
    close(refused);
    close(stream);
    http_read(fd, &answer);
    assert_false(answer.closed);
    join_stream(answer.body, 0, joined, sizeof joined, &n);
    http_free(&answer);
    close(fd);
    assert_int_equal(http_wait(&server), 0);
    http_start(&server, NULL, "m='%s' --grace 0", folder);
    fd = begin_stream(&server, 1000);
    http_stop(&server);
    close(fd);
}

/* ---- clients that behave badly ---- */

static void broken_clients_change_nothing(void **state)
{
    static const char *const broken[] = {
        "\r\n\r\n\r\n",
        "GET\r\n\r\n",
        "GET / HTTP/9.9\r\n\r\n",
        "POST /v1/completions HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
        "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{",
        "GET /health HTTP/1.1\r\nHost: localhost\r\nX: \x01\xff\xfe\r\n\r\n",
        "\xff\xfe\xfd",
        "{\"prompt\":\"x\"}\n",
    };
    struct http_server server;
    struct http_answer answer;
    (void)state;
    http_start(&server, NULL, "m='%s' --read-timeout 1 --connections 40", folder);
    json_t *before = http_json(&server, "/v1/completions",
                               "{\"prompt\":\"Permission\",\"seed\":2,\"max_tokens\":30}", 200);
    int stream = begin_stream(&server, 8);
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        int fd = http_connect(&server);
        http_write(fd, broken[i]);
        if (i % 2)
            shutdown(fd, SHUT_WR);
        http_read(fd, &answer); /* an error, or the end after the limit */
        assert_true(answer.closed || answer.status >= 200);
        http_free(&answer);
        close(fd);
    }
    /* A long header; invalid UTF-8; two requests at once on one connection. */
    int fd = http_connect(&server);
    http_write(fd, "GET /health HTTP/1.1\r\nHost: localhost\r\nX: ");
    for (int i = 0; i < 100; i++)
        http_write(fd, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
                       "aaaaaaaaaaaaaaa"
                       "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
                       "aaaaaaaaaaaaaaa"
                       "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
                       "aaaaaaaaaaaaaaa"
                       "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
                       "aaaaaaaaaaaaaaa");
    http_read(fd, &answer);
    assert_true(answer.closed || answer.status == 431 || answer.status == 413);
    http_free(&answer);
    close(fd);
    json_decref(http_json(&server, "/v1/completions", "{\"prompt\":\"\xff\xfe\"}", 400));
    fd = http_connect(&server);
    http_write(
        fd,
        "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\nGET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n");
    for (int i = 0; i < 2; i++) {
        http_read(fd, &answer);
        assert_int_equal(answer.status, 200);
        http_free(&answer);
    }
    close(fd);
    close(stream);
    /* Its prompt is computed again, or taken from the cache: the same text. */
    json_t *after = http_json(&server, "/v1/completions",
                              "{\"prompt\":\"Permission\",\"seed\":2,\"max_tokens\":30}", 200);
    assert_string_equal(string_of(choice_of(before, 0), "text"), string_of(choice_of(after, 0), "text"));
    json_decref(before);
    json_decref(after);
    http_stop(&server);
}

/* Clients that leave in the middle of a request do not keep their connections. */
static void clients_that_leave(void **state)
{
    struct http_server server;
    struct timespec start, end;
    (void)state;
    http_start(&server, NULL, "m='%s' --connections 4", folder);
    for (int i = 0; i < 4; i++) {
        int fd = http_connect(&server);
        http_write(fd, "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900\r\n\r\n{\"content");
        close(fd);
    }
    clock_gettime(CLOCK_MONOTONIC, &start);
    json_decref(http_json(&server, "/health", NULL, 200));
    clock_gettime(CLOCK_MONOTONIC, &end);
    assert_true(end.tv_sec - start.tv_sec < 30); /* half of --read-timeout */
    http_stop(&server);
}

/* A request that arrives a byte at a time, and never whole, is closed after the limit; so are a body without
 * an end, which is discarded because of an error, and an answer. */
static void slow_clients_are_closed(void **state)
{
    static const char request[] =
        "GET /health HTTP/1.1\r\nHost: localhost\r\nX-Long: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    struct http_server server;
    struct timespec start, end;
    (void)state;
    http_start(&server, NULL, "m='%s' --read-timeout 1", folder);
    int fd = http_connect(&server);
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (size_t i = 0; request[i]; i++) {
        if (send(fd, &request[i], 1, MSG_NOSIGNAL) != 1)
            break;
        nanosleep(&(struct timespec){ .tv_nsec = 100000000 }, NULL);
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    assert_true(end.tv_sec - start.tv_sec < 6);
    close(fd);
    fd = http_connect(&server);
    http_write(fd, "POST /none HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n");
    clock_gettime(CLOCK_MONOTONIC, &start);
    while (send(fd, "4\r\nbody\r\n", 9, MSG_NOSIGNAL) > 0) {
        clock_gettime(CLOCK_MONOTONIC, &end);
        assert_true(end.tv_sec - start.tv_sec < 6);
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    }
    close(fd);
    /* A stream that is not read. */
    fd = send_request(&server,
                      "{\"prompt\":\"x\",\"max_tokens\":100000,\"n\":64,\"logprobs\":100,\"stream\":true,"
                      "\"ignore_eos\":true}");
    wait_for_metric(&server, "\nddl:requests_cancelled_total{model=\"m\"} 1\n");
    close(fd);
    http_stop(&server);
}

/* ---- the page ---- */

/* A number that the page computes. */
static double page_number(const char *expression)
{
    json_t *value = browser_evaluate(expression);
    double number = json_number_value(value);
    json_decref(value);
    return number;
}

static void wait_until(const char *expression)
{
    for (int i = 0; i < 600; i++) {
        json_t *value = browser_evaluate(expression);
        bool is_true = json_is_true(value);
        json_decref(value);
        if (is_true)
            return;
        nanosleep(&(struct timespec){ .tv_nsec = 100000000 }, NULL);
    }
    fail_msg("never true: %s", expression);
}

static void picture(const char *name)
{
    char path[2200];
    snprintf(path, sizeof path, "%s", scratch_path(name));
    browser_screenshot(path);
    assert_true(page_number("document.documentElement.scrollWidth - innerWidth") <= 0);
    assert_string_equal(browser_errors(), "");
}

#define FINISHED "document.getElementById('status').textContent === 'done'"

/* Two models and forced gates on one prompt; candidates and gates by mouse and keyboard; a chat; errors. The
 * scratch folder has a picture of each state. */
static void the_page_shows_texts_and_gates(void **state)
{
    struct http_server server;
    char url[64];
    (void)state;
    if (!browser_start())
        skip();
    http_start(&server, NULL, "one='%s' two='%s'", folder, short_folder);
    snprintf(url, sizeof url, "http://127.0.0.1:%d/", server.port);
    browser_open_url(url, &(struct browser_view){ .width = 1200 });
    wait_until("document.querySelectorAll('#model option').length === 2");
    picture("page-begin.png");
    json_decref(browser_evaluate("prompt = document.getElementById('prompt'), prompt.value = 'Permission',"
                                 "document.getElementById('max_tokens').value = 6,"
                                 "document.getElementById('other').value = 'two',"
                                 "document.getElementById('force').checked = true,"
                                 "document.getElementById('run').click(), 0"));
    wait_until(FINISHED);
    assert_int_equal((int)page_number("document.querySelectorAll('.output').length"), 3);
    assert_true(page_number("document.querySelectorAll('.output .token').length") > 3 * 7);
    assert_int_equal((int)page_number("document.querySelector('.output canvas').height"), 6 * 12);
    picture("page-compared.png");
    json_decref(browser_evaluate("document.querySelectorAll('.output .token')[3].click(), 0"));
    assert_true(page_number("document.querySelectorAll('.output .detail td').length") >= 10);
    json_decref(browser_evaluate(
        "document.querySelector('.output canvas').dispatchEvent(new KeyboardEvent('keydown', "
        "{ key: 'ArrowDown', bubbles: true })), 0"));
    wait_until("document.querySelector('.output .detail').textContent.includes('sublayer 0.mlp: ')");
    wait_until("/beta \\d.*readout.*target/.test(document.querySelector('.output .detail').textContent)");
    picture("page-token.png");
    json_decref(browser_evaluate("document.getElementById('mode').value = 'chat',"
                                 "document.getElementById('other').value = '',"
                                 "document.getElementById('force').checked = false,"
                                 "document.getElementById('run').click(), 0"));
    wait_until("document.querySelectorAll('.output').length === 1 && " FINISHED);
    browser_set_media(&(struct browser_view){ .width = 1200, .dark = true });
    picture("page-chat-dark.png");
    json_decref(
        browser_evaluate("document.getElementById('operator-beta').value = 2,"
                         "document.getElementById('operator-beta').dispatchEvent(new Event('input')), 0"));
    wait_until("document.getElementById('operator-text').textContent.includes('a reflection')");
    browser_open_url(url, &(struct browser_view){ .width = 380 });
    wait_until("document.querySelectorAll('#model option').length === 2");
    json_decref(browser_evaluate(
        "document.getElementById('top_p').value = 7, document.getElementById('form').noValidate = true,"
        "document.getElementById('run').click(), 0"));
    wait_until("document.querySelector('.output .error')?.textContent.startsWith('top_p: expected')");
    assert_non_null(strstr(browser_errors(), "status of 400")); /* the browser's own message */
    browser_screenshot(scratch_path("page-error-phone.png"));
    assert_true(page_number("document.documentElement.scrollWidth - innerWidth") <= 0);
    browser_stop();
    http_stop(&server);
}

/* Replaces fetch: of three new tokens the first event has one, and the numbers of all that were computed. The
 * usage comes if it is requested. */
static const char held_tokens[] =
    "fetch = async (path, options) => {"
    "  const event = (content, ddl) => `data: ${JSON.stringify({ choices: [{ index: 0, ddl, logprobs: "
    "{ content: content.map((bytes) => ({ token: '\\ufffd', bytes, logprob: -1, top_logprobs: [] })) } }] })}"
    "\\n\\n`;"
    "  const ddl = { first: 0, sublayers: [{ layer: 0, sublayer: 'attn', beta: [1, 1, 1, 1] }] };"
    "  const usage = JSON.parse(options.body).stream_options?.include_usage"
    "    ? 'data: {\"choices\":[],\"usage\":{\"prompt_tokens\":2}}\\n\\n' : '';"
    "  return new Response(event([[0xe4, 0xb8]], ddl) + event([[0xad], [0x2e]]) + usage + 'data: "
    "[DONE]\\n\\n');"
    "}, 0";

/* Characters of several tokens, and the columns of a chat's tokens. */
static void the_page_joins_and_places_tokens(void **state)
{
    struct http_server server;
    char url[64];
    (void)state;
    if (!browser_start())
        skip();
    http_start(&server, NULL, "m='%s'", folder);
    snprintf(url, sizeof url, "http://127.0.0.1:%d/", server.port);
    browser_open_url(url, &(struct browser_view){ .width = 800 });
    wait_until("document.querySelectorAll('#model option').length === 1");
    json_decref(browser_evaluate("document.getElementById('prompt').value = 'h\u00e9\u00e9 \u4e2d.',"
                                 "document.getElementById('max_tokens').value = 1,"
                                 "document.getElementById('run').click(), 0"));
    wait_until(FINISHED);
    wait_until("document.querySelector('.text').textContent.startsWith('h\u00e9\u00e9 \u4e2d.')");
    json_decref(browser_evaluate(held_tokens));
    json_decref(browser_evaluate("document.getElementById('mode').value = 'chat',"
                                 "document.getElementById('run').click(), 0"));
    wait_until(FINISHED " && document.querySelector('.text').textContent === '\u4e2d.'");
    json_decref(browser_evaluate("document.querySelectorAll('.token')[1].click(), 0"));
    wait_until("document.querySelector('.detail').textContent.startsWith('token 3: \"\u4e2d\"')");
    json_decref(browser_evaluate("document.querySelectorAll('.token')[2].click(), 0"));
    wait_until("document.querySelector('.detail').textContent.startsWith('token 4: ')");
    assert_string_equal(browser_errors(), "");
    browser_stop();
    http_stop(&server);
}

static void refusals(void **state)
{
    const struct refusal cases[] = {
        { "serve", 2, "a model folder (DIR or NAME=DIR)" },
        { "serve data", 1, "data is not a model folder" },
        { "serve a b --port 70000", 2, "--port" },
    };
    (void)state;
    assert_refused(cases, sizeof cases / sizeof *cases);
    assert_int_equal(ddl("serve m='%s' m='%s'", folder, folder), 2);
    assert_printed("m: two models have this name: expected NAME=DIR");
    assert_int_equal(ddl("serve '%s' --context 5000", folder), 2);
    assert_printed("--context: long: expected at most the model's context, 4000, found 5000");
    assert_int_equal(ddl("serve '%s' --host 203.0.113.1 --no-auth", folder), 1);
    assert_printed("cannot listen at 203.0.113.1, port 8080");
    /* A folder that is named like a run of a sweep: its = separates no name. */
    char command[8192];
    snprintf(command, sizeof command, "cd '%s' && mkdir -p ddl-1_seed=0 && '%s' serve ddl-1_seed=0 2>&1",
             scratch_path("."), ddl_program());
    assert_int_equal(run_command(command, printed, sizeof printed), 1);
    assert_printed("ddl-1_seed=0 is not a model folder");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_are_those_of_generate),
        cmocka_unit_test(prompts_are_scored),
        cmocka_unit_test(streams_have_the_same_texts),
        cmocka_unit_test(chats_are_answered),
        cmocka_unit_test(answers_of_a_history_keep_their_tokens),
        cmocka_unit_test(stop_texts_have_no_tokens),
        cmocka_unit_test(offsets_are_those_of_the_text),
        cmocka_unit_test(traces_and_forces_are_of_one_request),
        cmocka_unit_test(texts_of_equal_prompts),
        cmocka_unit_test(the_best_texts_are_chosen),
        cmocka_unit_test(the_end_of_a_text_is_scored),
        cmocka_unit_test(cached_tokens_are_those_before_a_request),
        cmocka_unit_test(other_endpoints_answer),
        cmocka_unit_test(bad_requests_name_the_field),
        cmocka_unit_test(answers_are_bounded),
        cmocka_unit_test(both_limits_of_tokens_count),
        cmocka_unit_test(candidates_are_tokens),
        cmocka_unit_test(requests_are_limited),
        cmocka_unit_test(long_bodies_have_an_answer),
        cmocka_unit_test(logged_requests_are_escaped),
        cmocka_unit_test(the_bound_address_is_a_host),
        cmocka_unit_test(pages_may_send_their_headers),
        cmocka_unit_test(keys_are_required),
        cmocka_unit_test(requests_of_a_key_are_limited),
        cmocka_unit_test(the_queue_is_bounded),
        cmocka_unit_test(free_slots_are_no_queue),
        cmocka_unit_test(requests_end_in_time),
        cmocka_unit_test(long_computations_are_answered),
        cmocka_unit_test(stops_are_orderly),
        cmocka_unit_test(broken_clients_change_nothing),
        cmocka_unit_test(clients_that_leave),
        cmocka_unit_test(slow_clients_are_closed),
        cmocka_unit_test(the_page_shows_texts_and_gates),
        cmocka_unit_test(the_page_joins_and_places_tokens),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, write_models, NULL);
}
