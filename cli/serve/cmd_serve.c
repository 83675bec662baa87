/* ddl serve: models over HTTP, with the paths of OpenAI's API. */
#define _POSIX_C_SOURCE 200809L
#include "cli/cli.h"
#include "cli/model/folder.h"
#include "cli/model/input.h"
#include "cli/output/escape.h"
#include "cli/output/terminal.h"
#include "cli/serve/endpoints.h"
#include "cli/serve/listen.h"
#include "cli/serve/server.h"

#include "ddl/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_MODELS = 16, MAX_KEY_FILE = 1 << 16, SPARE_FILES = 64 };

struct flags {
    struct model_flags model;
    char host[256], key_file[4096], cors[256], user[64];
    size_t port, slots, cached, context, queue, connections, max_body, per_key;
    double timeout, read_timeout, grace;
    int cache;
    bool auth, log, log_prompts;
};

#define AT(field) offsetof(struct flags, field)
#define COUNT(name, field, min, max, value, help)                                                            \
    {                                                                                                        \
        name, DDL_OPTION_SIZE, AT(field), 0, min, max, NULL, value, help                                     \
    }
#define TEXT(name, field, value, help)                                                                       \
    {                                                                                                        \
        name, DDL_OPTION_STRING, AT(field), sizeof(((struct flags *)0)->field), 0, 0, NULL, value, help      \
    }
#define SECONDS(name, field, min, help)                                                                      \
    {                                                                                                        \
        name, DDL_OPTION_DOUBLE, AT(field), 0, min, 1e6, NULL, "SECONDS", help                               \
    }
static const struct ddl_other_name host_others[] = {
    { "model", "the model is an argument: ddl serve DIR", DDL_OTHER_NONE },
    { "-m", "the model is an argument: ddl serve DIR", DDL_OTHER_NONE },
    { 0 },
};
static const struct ddl_other_name context_others[] = {
    { "ctx_size", NULL, DDL_OTHER_DIFFERS },
    { "max_model_len", NULL, DDL_OTHER_DIFFERS },
    { "-c", NULL, DDL_OTHER_DIFFERS },
    { 0 },
};
static const struct ddl_other_name slots_others[] = {
    { "parallel", NULL, DDL_OTHER_DIFFERS },
    { "max_num_seqs", NULL, DDL_OTHER_DIFFERS },
    { "-np", NULL, DDL_OTHER_DIFFERS },
    { 0 },
};
static const struct ddl_other_name key_others[] = {
    { "api_key", "keys are in a file, or in the variable DDL_API_KEY, where no other user sees them",
      DDL_OTHER_DIFFERS },
    { "api_key_file", NULL, DDL_OTHER_DIFFERS },
    { 0 },
};
static const struct ddl_option option_rows[] = {
    { "host", DDL_OPTION_STRING, AT(host), sizeof(((struct flags *)0)->host), 0, 0, NULL, "ADDRESS",
      "address to listen at", .others = host_others },
    COUNT("port", port, 0, 65535, "N", "port to listen at (0: any that is free)"),
    { "slots", DDL_OPTION_SIZE, AT(slots), 0, 1, 4096, NULL, "N", "texts that are generated at a time",
      .others = slots_others },
    COUNT("cached", cached, 0, 4096, "N", "further slots, which keep earlier prompts for reuse"),
    { "context", DDL_OPTION_SIZE, AT(context), 0, 0, 2147483647, NULL, "N",
      "tokens of a prompt and its continuation (0: the model's context)", .others = context_others },
    { "cache", DDL_OPTION_CHOICE, AT(cache), 0, 0, 0, ddl_cache_form_names, "NAME",
      "format of keys and values" },
    COUNT("queue", queue, 1, 1000000, "N", "requests that wait for a slot; more are refused (429)"),
    SECONDS("timeout", timeout, 0, "limit of a request's computation (0: none)"),
    SECONDS("read_timeout", read_timeout, 1, "limit for a request to arrive and for an answer to be read"),
    SECONDS("grace", grace, 0, "time for running requests after SIGTERM"),
    COUNT("connections", connections, 1, 100000, "N", "connections at a time"),
    COUNT("max_body", max_body, 1024, 1073741824, "BYTES", "length of a request's body"),
    COUNT("per_key", per_key, 0, 1000000, "N", "requests of one key at a time (0: any number)"),
    { "key_file", DDL_OPTION_PATH, AT(key_file), sizeof(((struct flags *)0)->key_file), 0, 0, NULL, "FILE",
      "keys of clients, one a line; the variable DDL_API_KEY has one, too", .others = key_others },
    { "auth", DDL_OPTION_BOOL, AT(auth), 0, 0, 0, NULL, NULL,
      "other addresses than loopback need a key; --no-auth: they do not" },
    TEXT("cors", cors, "ORIGIN", "origin whose pages may send requests (*: any)"),
    TEXT("user", user, "NAME", "user to become if started by root"),
    { "log", DDL_OPTION_BOOL, AT(log), 0, 0, 0, NULL, NULL, "print a line for each request" },
    { "log_prompts", DDL_OPTION_BOOL, AT(log_prompts), 0, 0, 0, NULL, NULL, "print the bodies of requests" },
    { 0 },
};
static const struct ddl_option model_rows[] = { MODEL_ROWS(struct flags), { 0 } };

static const struct flags initial = { .model = MODEL_DEFAULTS,
                                      .host = "127.0.0.1",
                                      .user = "nobody",
                                      .port = 8080,
                                      .slots = 8,
                                      .cached = 8,
                                      .queue = 64,
                                      .connections = 256,
                                      .max_body = 1 << 20,
                                      .timeout = 600,
                                      .read_timeout = 60,
                                      .grace = 30,
                                      .auth = true };
static const void *defaults(void)
{
    return &initial;
}

/* ---- keys ---- */

/* Adds the key `text` (n bytes) without the white space around it, unless it is empty. */
static ddl_status add_key(struct server_options *o, const char *text, size_t n, const char *where,
                          struct ddl_error *err)
{
    static const char space[] = " \t\r\n";
    for (; n > 0 && memchr(space, *text, sizeof space - 1); n--)
        text++;
    while (n > 0 && memchr(space, text[n - 1], sizeof space - 1))
        n--;
    if (n == 0)
        return DDL_OK;
    if (n >= KEY_SIZE || o->n_keys == MAX_KEYS)
        return ddl_error_set(err, DDL_E_USAGE, "%s: expected at most %d keys of at most %d bytes", where,
                             MAX_KEYS, KEY_SIZE - 1);
    memcpy(o->keys[o->n_keys], text, n);
    o->keys[o->n_keys++][n] = '\0';
    return DDL_OK;
}

static ddl_status read_keys(struct server_options *o, const struct flags *flags, struct ddl_error *err)
{
    const char *own = getenv("DDL_API_KEY");
    char *text = NULL;
    size_t size = 0;
    ddl_status status = own ? add_key(o, own, strlen(own), "DDL_API_KEY", err) : DDL_OK;
    if (!status && *flags->key_file)
        status = read_input(flags->key_file, MAX_KEY_FILE, &text, &size, err);
    for (char *line = text; !status && line && *line;) {
        size_t n = strcspn(line, "\r\n");
        status = add_key(o, line, n, flags->key_file, err);
        line += n + strspn(line + n, "\r\n");
    }
    free(text);
    if (!status && *flags->key_file && o->n_keys == 0)
        status = ddl_error_set(err, DDL_E_USAGE, "%s: has no keys", flags->key_file);
    return status;
}

/* ---- models ---- */

/* "NAME=DIR", or DIR, whose last part is the name; what exists is a DIR. */
static ddl_status split_argument(const char *argument, char *name, size_t size, const char **dir,
                                 struct ddl_error *err)
{
    const char *equals = strchr(argument, '='), *slash = strrchr(argument, '/');
    bool named = equals && (!slash || equals < strchr(argument, '/')) && !ddl_file_exists(argument);
    const char *begin = named ? argument : slash ? slash + 1 : argument;
    size_t n = named ? (size_t)(equals - argument) : strlen(begin);
    *dir = named ? equals + 1 : argument;
    if (n == 0 || n >= size)
        return ddl_error_set(err, DDL_E_USAGE, "%s: expected a name of 1 to %zu bytes", argument, size - 1);
    for (size_t i = 0; i < n; i++) {
        if ((unsigned char)begin[i] < ' ' || begin[i] == '"' || begin[i] == '\\' || begin[i] == 127)
            return ddl_error_set(err, DDL_E_USAGE,
                                 "%s: a name has no quotes, backslashes or control characters", argument);
    }
    memcpy(name, begin, n);
    name[n] = '\0';
    return DDL_OK;
}

static void print_model(const struct served *s)
{
    fprintf(stderr,
            "ddl: %s: %zu slots of %zu tokens; %.0f MB of weights, %.0f MB of keys, values and logits\n",
            printable(s->name), s->options.slots, s->options.context, 1e-6 * (double)served_weight_bytes(s),
            1e-6 * (double)served_engine_bytes(s));
}

static ddl_status open_models(struct served *models, size_t n, char **arguments, const struct flags *flags,
                              struct ddl_error *err)
{
    const struct served_options options = { flags->slots,   flags->cached,  flags->queue,
                                            flags->context, flags->timeout, flags->cache };
    for (size_t i = 0; i < n; i++) {
        char name[sizeof models->name];
        struct folder_request request = { .model = &flags->model, .needs_tokenizer = true };
        trim_slashes(arguments[i]);
        ddl_status status = split_argument(arguments[i], name, sizeof name, &request.dir, err);
        for (size_t k = 0; !status && k < i; k++) {
            if (strcmp(models[k].name, name) == 0)
                status =
                    ddl_error_set(err, DDL_E_USAGE, "%s: two models have this name: expected NAME=DIR", name);
        }
        if (!status)
            status = served_open(&models[i], name, &request, &options, err);
        if (status)
            return status;
        print_model(&models[i]);
    }
    return DDL_OK;
}

/* ---- the command ---- */

static void sleep_briefly(void)
{
    nanosleep(&(struct timespec){ .tv_nsec = 100000000 }, NULL);
}

/* Until a signal; then until running requests have ended, or `grace` seconds. */
static void wait_for_end(struct server *server, double grace)
{
    while (!interrupted()) {
        server_check(server);
        sleep_briefly();
    }
    server_drain(server);
    fprintf(stderr, "ddl: stopping; %zu requests are running\n", server_busy(server));
    for (double waited = 0; waited < grace && server_busy(server); waited += 0.1) {
        server_check(server);
        sleep_briefly();
    }
}

static ddl_status serve(struct served *models, size_t n, const struct flags *flags, struct ddl_error *err)
{
    struct server_options options = { .routes = routes,
                                      .connections = flags->connections,
                                      .body = flags->max_body,
                                      .per_key = flags->per_key,
                                      .read_seconds = flags->read_timeout,
                                      .log = flags->log,
                                      .log_prompts = flags->log_prompts };
    int socket = -1;
    bool is_loopback = false;
    struct server *server = NULL;
    snprintf(options.cors, sizeof options.cors, "%s", flags->cors);
    ddl_status status = read_keys(&options, flags, err);
    if (!status)
        status = listen_open(&socket, flags->host, flags->port, options.url, sizeof options.url, &is_loopback,
                             err);
    if (!status && !is_loopback && options.n_keys == 0 && flags->auth)
        status = ddl_error_set(
            err, DDL_E_USAGE,
            "%s: other machines can reach this address: expected --key-file FILE or the variable "
            "DDL_API_KEY, or --no-auth",
            flags->host);
    if (!status)
        status = drop_privileges(flags->user, err);
    size_t files = raise_file_limit();
    if (!status && options.connections + SPARE_FILES > files)
        options.connections = files > 2 * SPARE_FILES ? files - SPARE_FILES : files / 2;
    options.check_host = is_loopback && options.n_keys == 0;
    options.passed = listen_is_passed();
    for (size_t i = 0; !status && i < n; i++)
        status = served_start(&models[i], err);
    if (!status)
        status = server_start(&server, socket, models, n, &options, err);
    if (!status) {
        fprintf(stderr, "ddl: listening at %s\n", options.url);
        wait_for_end(server, flags->grace);
    }
    for (size_t i = 0; i < n; i++)
        served_stop(&models[i]);
    server_stop(server);
    return status;
}

static int cmd_serve(int argc, char **argv)
{
    struct ddl_error err = { 0 };
    struct flags flags = initial;
    int n;
    ddl_status status = ddl_option_parse(option_rows, &flags, model_rows, &flags, argc, argv, &n, &err);
    if (!status)
        status = check_arguments("serve", n, argv, 1, MAX_MODELS, "a model folder (DIR or NAME=DIR)", &err);
    if (status)
        return report_error(&err);
    catch_interrupts();
    exit_on_interrupt(true);
    struct served *models = calloc((size_t)n, sizeof *models);
    if (!models)
        return report_error(&(struct ddl_error){ .status = DDL_E_MEMORY, .text = "out of memory" });
    status = open_models(models, (size_t)n, argv + 1, &flags, &err);
    exit_on_interrupt(false);
    if (!status)
        status = serve(models, (size_t)n, &flags, &err);
    for (int i = 0; i < n; i++)
        served_close(&models[i]);
    free(models);
    return status ? report_error(&err) : EXIT_OK;
}

const struct command serve_command = {
    .name = "serve",
    .usage = "DIR|NAME=DIR... [--host ADDRESS] [--port N] [--slots N] [--key-file FILE]",
    .about = "serve models over HTTP, for clients of OpenAI's API",
    .text =
        (const char *const[]){
            "Clients find a model by its name, the last part of DIR unless NAME is given. Several requests",
            "are computed together, and each has the text that it has alone. Prompts that begin as earlier",
            "ones do are computed from there on. SIGTERM lets running requests end. docs/serve.md describes",
            "paths, fields and errors; GET /openapi.json is their description for programs.", NULL },
    .options = { { .rows = option_rows, .defaults = defaults },
                 { .title = "how models are read", .rows = model_rows, .defaults = defaults } },
    .examples = (const struct note[]){ { "ddl serve my/run", "at http://127.0.0.1:8080" },
                                       { "ddl serve small=my/run large=other/run --port 9000 --dtype int8",
                                         "two models in int8" },
                                       { 0 } },
    .run = cmd_serve,
};
