#define _GNU_SOURCE /* POLLRDHUP */
#include "cli/serve/exchange.h"

#include "cli/output/terminal.h"

#include "ddl/text.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MAX_REQUESTED = 1024 }; /* bytes of a list of headers */

static void set_phase(struct exchange *x, enum connection_phase phase)
{
    struct connection *c = x->connection;
    pthread_mutex_lock(&x->server->lock);
    c->phase = phase;
    c->since = monotonic_seconds();
    c->exchange = phase == PHASE_COMPUTE ? x : NULL;
    pthread_mutex_unlock(&x->server->lock);
}

/* ---- answers ---- */

/* The headers that pages may send: those that a browser announces before a request (OpenAI's client sends
 * X-Stainless-*), if they are names of headers. */
static const char *allowed_headers(const struct exchange *x)
{
    static const char characters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_, ";
    const char *requested =
        MHD_lookup_connection_value(x->handle, MHD_HEADER_KIND, "Access-Control-Request-Headers");
    size_t n = requested ? strspn(requested, characters) : 0;
    return n && n <= MAX_REQUESTED && !requested[n] ? requested : "Authorization, Content-Type";
}

static void add_headers(const struct exchange *x, struct MHD_Response *response, const char *type)
{
    const char *cors = x->server->options.cors;
    MHD_add_response_header(response, "Content-Type", type);
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    MHD_add_response_header(response, "Cache-Control", "no-store");
    MHD_add_response_header(response, "Content-Security-Policy",
                            "default-src 'none'; connect-src 'self'; script-src 'self'; style-src 'self'; "
                            "frame-ancestors 'none'; base-uri 'none'; form-action 'none'");
    MHD_add_response_header(response, "Referrer-Policy", "no-referrer");
    if (*cors) {
        MHD_add_response_header(response, "Access-Control-Allow-Origin", cors);
        MHD_add_response_header(response, "Access-Control-Allow-Headers", allowed_headers(x));
        MHD_add_response_header(response, "Access-Control-Allow-Methods", "GET, POST, OPTIONS");
        MHD_add_response_header(response, "Vary", "Origin");
    }
    if (x->status == 429 || x->status == 503)
        MHD_add_response_header(response, "Retry-After", "1");
    if (x->status == 401)
        MHD_add_response_header(response, "WWW-Authenticate", "Bearer");
    if (x->status == 405 && x->route)
        MHD_add_response_header(response, "Allow", x->route->method);
}

static enum MHD_Result queue(struct exchange *x, int status, struct MHD_Response *response)
{
    set_phase(x, PHASE_WRITE);
    enum MHD_Result result = MHD_queue_response(x->handle, (unsigned)status, response);
    MHD_destroy_response(response);
    return result;
}

enum MHD_Result exchange_send(struct exchange *x, int status, const char *type, const char *bytes,
                              size_t size)
{
    struct MHD_Response *response =
        MHD_create_response_from_buffer(size, (void *)bytes, MHD_RESPMEM_MUST_COPY);
    if (!response)
        return MHD_NO;
    x->status = status;
    add_headers(x, response, type);
    return queue(x, status, response);
}

enum MHD_Result exchange_send_error(struct exchange *x, const struct api_error *e)
{
    struct buffer text = { 0 };
    enum MHD_Result result = MHD_NO;
    if (api_error_write(e, &text))
        result = exchange_send(x, e->status, "application/json", text.bytes, text.n);
    buffer_free(&text);
    return result;
}

/* ---- jobs ---- */

/* The job has something to send, or has ended; the served model's lock is held. */
static void wake(void *user)
{
    struct exchange *x = user;
    if (x->suspended && (x->job->request.stream || x->job->finished)) {
        x->suspended = false;
        MHD_resume_connection(x->handle);
    }
}

/* Removes the bytes that were streamed, once they are half of the answer: its memory is at most twice what
 * waits. */
static void drop_sent(struct exchange *x)
{
    struct buffer *answer = &x->job->answer;
    if (2 * x->sent < answer->n)
        return;
    memmove(answer->bytes, answer->bytes + x->sent, answer->n - x->sent);
    answer->n -= x->sent;
    x->sent = 0;
}

/* The next bytes of a stream. */
static ssize_t read_stream(void *user, uint64_t position, char *out, size_t size)
{
    struct exchange *x = user;
    struct job *job = x->job;
    (void)position;
    pthread_mutex_lock(&x->served->lock);
    size_t left = job->answer.n - x->sent, n = left < size ? left : size;
    bool ended = job->finished && !left;
    if (n) {
        memcpy(out, job->answer.bytes + x->sent, n);
        x->sent += n;
        drop_sent(x);
    } else if (!ended) {
        x->suspended = true;
        MHD_suspend_connection(x->handle);
    }
    pthread_mutex_unlock(&x->served->lock);
    if (n)
        set_phase(x, PHASE_COMPUTE);
    return n ? (ssize_t)n : ended ? MHD_CONTENT_READER_END_OF_STREAM : 0;
}

static enum MHD_Result send_stream(struct exchange *x)
{
    struct MHD_Response *response =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 16384, read_stream, x, NULL);
    if (!response)
        return MHD_NO;
    x->status = 200;
    add_headers(x, response, "text/event-stream; charset=utf-8");
    enum MHD_Result result = MHD_queue_response(x->handle, 200, response);
    MHD_destroy_response(response);
    return result;
}

/* Of a job that has ended. */
static enum MHD_Result send_answer(struct exchange *x)
{
    const struct job *job = x->job;
    return job->error.status ? exchange_send_error(x, &job->error)
                             : exchange_send(x, 200, "application/json", job->answer.bytes, job->answer.n);
}

/* Waits for the end of the job: false where it has ended already. */
static bool suspend(struct exchange *x)
{
    pthread_mutex_lock(&x->served->lock);
    bool waits = !x->job->finished;
    x->suspended = waits;
    if (waits)
        MHD_suspend_connection(x->handle);
    pthread_mutex_unlock(&x->served->lock);
    return waits;
}

enum MHD_Result exchange_submit(struct exchange *x, struct served *served, struct job *job)
{
    struct api_error e = { 0 };
    bool stream = job->request.stream;
    job->wake = wake;
    job->user = x;
    x->served = served;
    x->job = job;
    if (!served_submit(served, job, &e)) {
        x->job = NULL;
        job_free(job);
        return exchange_send_error(x, &e);
    }
    set_phase(x, PHASE_COMPUTE);
    if (stream)
        return send_stream(x);
    return suspend(x) ? MHD_YES : send_answer(x);
}

/* ---- checks before an endpoint sees a request ---- */

/* Compares all of both texts, whatever differs. */
static bool same_key(const char *given, size_t n, const char *key)
{
    size_t length = strlen(key);
    unsigned differs = n != length;
    for (size_t i = 0; i < KEY_SIZE; i++)
        differs |= (unsigned char)(i < n ? given[i] : 0) ^ (unsigned char)(i < length ? key[i] : 0);
    return !differs;
}

static bool find_key(struct exchange *x)
{
    const struct server_options *o = &x->server->options;
    const char *given = MHD_lookup_connection_value(x->handle, MHD_HEADER_KIND, "Authorization");
    bool found = false;
    x->key = MAX_KEYS;
    if (o->n_keys == 0)
        return true;
    given = given && strncasecmp(given, "Bearer ", 7) == 0 ? given + 7 : "";
    for (size_t i = 0; i < o->n_keys; i++) {
        if (same_key(given, strnlen(given, KEY_SIZE), o->keys[i])) {
            x->key = i;
            found = true;
        }
    }
    return found;
}

/* Whether a Host header names this machine, or is the address at `url`: a web page elsewhere can have its own
 * name resolve to a loopback address. */
static bool is_own_host(const char *host, const char *url)
{
    static const char *const names[] = { "localhost", "127.0.0.1", "[::1]" };
    size_t length = host[0] == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":");
    const char *bound = strncmp(url, "http://", 7) == 0 ? url + 7 : "";
    if (length && strncasecmp(bound, host, length) == 0 && bound[length] == ':')
        return true;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strlen(names[i]) == length && strncasecmp(host, names[i], length) == 0)
            return true;
    }
    return false;
}

/* What the path has in the place of the route's {model}, or "" if it has none; NULL: another path. */
static const char *match_path(const char *route, const char *path)
{
    size_t fixed = strcspn(route, "{");
    if (strncmp(route, path, fixed) != 0 || (route[fixed] == '\0') != (path[fixed] == '\0'))
        return NULL;
    return path + fixed;
}

/* The route; where only other methods have the path, one of these with `other`. */
static const struct route *find_route(const struct route *routes, const char *method, const char *path,
                                      bool *other)
{
    const struct route *found = NULL;
    *other = false;
    for (const struct route *r = routes; r->path; r++) {
        if (!match_path(r->path, path))
            continue;
        found = r;
        *other =
            strcmp(method, r->method) != 0 && !(strcmp(method, "HEAD") == 0 && strcmp(r->method, "GET") == 0);
        if (!*other)
            break;
    }
    return found;
}

/* Everything that can be said without the body. */
static bool check_headers(struct exchange *x, const char *method, const char *url)
{
    struct server *server = x->server;
    struct api_error *e = &x->error;
    const char *host = MHD_lookup_connection_value(x->handle, MHD_HEADER_KIND, "Host");
    const char *type = MHD_lookup_connection_value(x->handle, MHD_HEADER_KIND, "Content-Type");
    const char *length = MHD_lookup_connection_value(x->handle, MHD_HEADER_KIND, "Content-Length");
    bool other;
    x->route = find_route(server->options.routes, method, url, &other);
    if (x->route)
        snprintf(x->parameter, sizeof x->parameter, "%s", match_path(x->route->path, url));
    if (server->options.check_host && host && !is_own_host(host, server->options.url))
        return api_fail(e, 403, NULL, NULL, "Host: expected this machine's own name");
    if (!find_key(x) && !(x->route && x->route->open))
        return api_fail(e, 401, "invalid_api_key", NULL,
                        "Authorization: expected 'Bearer KEY' with a valid key");
    if (!x->route)
        return api_fail(e, 404, "not_found", NULL, "no such path");
    if (other)
        return api_fail(e, 405, NULL, NULL, "%s: expected the method %s", x->route->path, x->route->method);
    if (x->route->schema || x->route->endpoint) {
        if (!type || strncasecmp(type, "application/json", 16) != 0)
            return api_fail(e, 415, NULL, NULL, "Content-Type: expected application/json");
    }
    if (length && strtoull(length, NULL, 10) > server->options.body)
        return api_fail(e, 413, NULL, NULL, "the body is longer than the limit of %zu bytes",
                        server->options.body);
    return true;
}

/* Counts the exchange among those of its key. */
static bool count(struct exchange *x)
{
    struct server *server = x->server;
    size_t limit = server->options.per_key;
    bool ok = true;
    pthread_mutex_lock(&server->lock);
    if (server->draining && !x->route->open)
        ok = api_fail(&x->error, 503, NULL, NULL, "the server is stopping");
    else if (limit && x->route->endpoint && server->running[x->key] >= limit)
        ok = api_fail(&x->error, 429, "too_many_requests", NULL,
                      "%zu requests of this key are being answered", limit);
    x->counted = ok && x->route->endpoint;
    server->running[x->key] += x->counted;
    pthread_mutex_unlock(&server->lock);
    return ok;
}

/* ---- callbacks of libmicrohttpd, all on its one thread ---- */

static struct exchange *begin(struct server *server, struct MHD_Connection *handle)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(handle, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct exchange *x = calloc(1, sizeof *x);
    if (!x || !info || !info->socket_context) {
        free(x);
        return NULL;
    }
    x->server = server;
    x->handle = handle;
    x->connection = info->socket_context;
    x->start = monotonic_seconds();
    set_phase(x, PHASE_READ);
    return x;
}

static void take_body(struct exchange *x, const char *bytes, size_t size)
{
    if (x->error.status)
        return;
    if (x->body.n + size > x->server->options.body)
        api_fail(&x->error, 413, NULL, NULL, "the body is longer than the limit of %zu bytes",
                 x->server->options.body);
    else if (!buffer_add(&x->body, bytes, size))
        api_fail(&x->error, 503, NULL, NULL, "out of memory for the body");
}

/* Prints the request in one line, with escapes for what a terminal would interpret. */
static void log_prompt(const struct exchange *x, const char *url)
{
    const char *body = x->body.bytes ? x->body.bytes : "";
    size_t n = ddl_text_escape(NULL, 0, url, strlen(url)), size = n + 2;
    size += ddl_text_escape(NULL, 0, body, x->body.n);
    char *text = malloc(size);
    if (!text)
        return;
    ddl_text_escape(text, size, url, strlen(url));
    text[n] = ' ';
    ddl_text_escape(text + n + 1, size - n - 1, body, x->body.n);
    fprintf(stderr, "ddl: %s\n", text);
    free(text);
}

/* Whether the client waits for an answer to its headers before it sends the body. */
static bool expects_continue(const struct exchange *x)
{
    const char *expect = MHD_lookup_connection_value(x->handle, MHD_HEADER_KIND, "Expect");
    return expect && strcasecmp(expect, "100-continue") == 0;
}

static enum MHD_Result handle(void *user, struct MHD_Connection *connection, const char *url,
                              const char *method, const char *version, const char *upload,
                              size_t *upload_size, void **state)
{
    struct exchange *x = *state;
    (void)version;
    if (!x) {
        *state = x = begin(user, connection);
        if (!x)
            return MHD_NO;
        if (strcmp(method, "OPTIONS") == 0 && *x->server->options.cors)
            return exchange_send(x, 204, "text/plain", "", 0);
        bool ok = check_headers(x, method, url) && count(x);
        /* An error is sent after the body, which is discarded: the connection of a client that is still
         * sending would be reset, and the answer lost. */
        return ok || !expects_continue(x) ? MHD_YES : exchange_send_error(x, &x->error);
    }
    if (*upload_size) {
        take_body(x, upload, *upload_size);
        *upload_size = 0;
        return MHD_YES;
    }
    if (x->job)
        return send_answer(x);
    if (x->error.status)
        return exchange_send_error(x, &x->error);
    if (x->server->options.log_prompts)
        log_prompt(x, url);
    return x->route->answer(x);
}

static void complete(void *user, struct MHD_Connection *connection, void **state,
                     enum MHD_RequestTerminationCode code)
{
    struct server *server = user;
    struct exchange *x = *state;
    (void)connection;
    (void)code;
    if (!x)
        return;
    set_phase(x, PHASE_READ);
    pthread_mutex_lock(&server->lock);
    server->running[x->key] -= x->counted;
    pthread_mutex_unlock(&server->lock);
    if (server->options.log)
        fprintf(stderr, "ddl: %s %s %d %.0f ms\n", x->route ? x->route->method : "-",
                x->route ? x->route->path : "-", x->status, 1e3 * (monotonic_seconds() - x->start));
    if (x->job)
        served_release(x->served, x->job);
    buffer_free(&x->body);
    free(x);
    *state = NULL;
}

static void notify(void *user, struct MHD_Connection *handle, void **context,
                   enum MHD_ConnectionNotificationCode code)
{
    struct server *server = user;
    struct connection *c = *context;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *info =
            MHD_get_connection_info(handle, MHD_CONNECTION_INFO_CONNECTION_FD);
        *context = c = calloc(1, sizeof *c);
        if (!c)
            return;
        c->socket = info ? info->connect_fd : -1;
        c->since = monotonic_seconds();
        pthread_mutex_lock(&server->lock);
        c->next = server->connections;
        if (c->next)
            c->next->before = c;
        server->connections = c;
        pthread_mutex_unlock(&server->lock);
    } else if (c) {
        pthread_mutex_lock(&server->lock);
        *(c->before ? &c->before->next : &server->connections) = c->next;
        if (c->next)
            c->next->before = c->before;
        pthread_mutex_unlock(&server->lock);
        free(c);
    }
}

/* ---- life ---- */

ddl_status server_start(struct server **out, int socket, struct served *models, size_t n,
                        const struct server_options *options, struct ddl_error *err)
{
    struct server *server = calloc(1, sizeof *server);
    if (!server)
        return ddl_error_set(err, DDL_E_MEMORY, "out of memory for the server");
    server->models = models;
    server->n_models = n;
    server->options = *options;
    server->socket = socket;
    pthread_mutex_init(&server->lock, NULL);
    server->daemon = MHD_start_daemon(
        MHD_USE_AUTO | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_SUSPEND_RESUME | MHD_USE_ITC, 0, NULL, NULL,
        handle, server, MHD_OPTION_LISTEN_SOCKET, socket, MHD_OPTION_NOTIFY_COMPLETED, complete, server,
        MHD_OPTION_NOTIFY_CONNECTION, notify, server, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)options->connections, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)32768,
        MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_END);
    *out = server;
    return server->daemon ? DDL_OK
                          : ddl_error_set(err, DDL_E_IO, "the HTTP server cannot start: %s", strerror(errno));
}

/* Whether the client of a connection has closed it. */
static bool has_left(const struct connection *c)
{
    struct pollfd poll_fd = { .fd = c->socket, .events = POLLRDHUP };
    return poll(&poll_fd, 1, 0) > 0 && (poll_fd.revents & (POLLRDHUP | POLLHUP | POLLERR));
}

void server_check(struct server *server)
{
    double time = monotonic_seconds();
    pthread_mutex_lock(&server->lock);
    /* Each second: there may be thousands, and what they sent before they left is to be read. */
    const bool looks = time - server->looked >= 1;
    server->looked = looks ? time : server->looked;
    for (struct connection *c = server->connections; c; c = c->next) {
        bool waits =
            c->phase == PHASE_COMPUTE && served_keep(c->exchange->served, c->exchange->job, has_left(c));
        const bool left = looks && c->phase == PHASE_READ && has_left(c), stays_away = left && c->left;
        c->left = looks ? left : c->left;
        if (waits)
            c->since = time; /* the limit is for reading the answer, not for its computation */
        else if (stays_away || time - c->since > server->options.read_seconds)
            shutdown(c->socket, SHUT_RDWR);
    }
    pthread_mutex_unlock(&server->lock);
}

void server_drain(struct server *server)
{
    pthread_mutex_lock(&server->lock);
    server->draining = true;
    pthread_mutex_unlock(&server->lock);
    MHD_quiesce_daemon(server->daemon);
    if (!server->options.passed)
        shutdown(server->socket, SHUT_RD); /* clients are refused instead of waiting */
}

size_t server_busy(struct server *server)
{
    size_t n = 0;
    pthread_mutex_lock(&server->lock);
    for (const struct connection *c = server->connections; c; c = c->next)
        n += c->phase != PHASE_READ;
    pthread_mutex_unlock(&server->lock);
    return n;
}

void server_stop(struct server *server)
{
    if (!server)
        return;
    if (server->daemon && !server->draining)
        server_drain(server);
    if (server->daemon)
        MHD_stop_daemon(server->daemon);
    close(server->socket);
    pthread_mutex_destroy(&server->lock);
    free(server);
}
