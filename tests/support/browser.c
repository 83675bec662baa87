#define _POSIX_C_SOURCE 200809L
#include "support/browser.h"

#include "support/files.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WAIT_S = 600, WINDOW_HEIGHT = 900, COMMAND_FD = 3, REPLY_FD = 4 };

static struct {
    pid_t program;
    int to, from;
    char *input; /* bytes that have been received and are no message yet */
    size_t n, size;
    json_int_t id;
    char session[128];
    bool loaded;
    char errors[8192];
} browser;

static bool is_program(const char *name)
{
    char command[4200], out[16];
    snprintf(command, sizeof command, "command -v '%s' >/dev/null", name);
    return *name && run_command(command, out, sizeof out) == 0;
}

static const char *find_program(void)
{
    const char *const names[] = { getenv("DDL_CHROMIUM"), "chromium", "chromium-browser", "google-chrome" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (names[i] && is_program(names[i]))
            return names[i];
    }
    return NULL;
}

/* In the child: its descriptors 3 and 4 are ends of the pipes. */
static void become(const char *program, int commands, int replies)
{
    char profile[4200];
    int in = fcntl(commands, F_DUPFD, 10), out = fcntl(replies, F_DUPFD, 10);
    int log = open(scratch_path("chromium.log"), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    dup2(log, STDOUT_FILENO);
    dup2(log, STDERR_FILENO);
    dup2(in, COMMAND_FD);
    dup2(out, REPLY_FD);
    for (int fd = REPLY_FD + 1; fd < 64; fd++)
        close(fd);
    snprintf(profile, sizeof profile, "--user-data-dir=%s", scratch_path("chromium"));
    execlp(program, program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
           "--disable-background-networking", "--no-first-run", "--hide-scrollbars",
           "--remote-debugging-pipe", profile, (char *)NULL);
    _exit(127);
}

/* ---- messages: JSON texts that end with a zero byte ---- */

/* The next message; fails after WAIT_S seconds without one. */
static json_t *receive(void)
{
    char *end;
    while (!(end = browser.n ? memchr(browser.input, '\0', browser.n) : NULL)) {
        struct pollfd ready = { .fd = browser.from, .events = POLLIN };
        if (browser.n == browser.size) {
            browser.size = browser.size ? 2 * browser.size : 1 << 16;
            browser.input = realloc(browser.input, browser.size);
            assert_non_null(browser.input);
        }
        if (poll(&ready, 1, WAIT_S * 1000) <= 0)
            fail_msg("chromium has not answered for %d seconds", WAIT_S);
        ssize_t n = read(browser.from, browser.input + browser.n, browser.size - browser.n);
        if (n <= 0)
            fail_msg("chromium has exited: see %s", scratch_path("chromium.log"));
        browser.n += (size_t)n;
    }
    json_t *message = json_loads(browser.input, 0, NULL);
    size_t used = (size_t)(end + 1 - browser.input);
    memmove(browser.input, end + 1, browser.n - used);
    browser.n -= used;
    assert_non_null(message);
    return message;
}

static void add_error(const char *text)
{
    size_t used = strlen(browser.errors);
    snprintf(browser.errors + used, sizeof browser.errors - used, "%s\n", text ? text : "?");
}

static const char *text_of(const json_t *object, const char *a, const char *b, const char *c)
{
    const json_t *value = json_object_get(json_object_get(object, a), b);
    return json_string_value(c ? json_object_get(value, c) : value);
}

/* Keeps what an event says of the page. */
static void note_event(const json_t *message)
{
    const char *method = json_string_value(json_object_get(message, "method"));
    const json_t *params = json_object_get(message, "params");
    if (!method)
        return;
    if (strcmp(method, "Page.loadEventFired") == 0)
        browser.loaded = true;
    if (strcmp(method, "Runtime.exceptionThrown") == 0) {
        const char *text = text_of(params, "exceptionDetails", "exception", "description");
        add_error(text ? text : text_of(params, "exceptionDetails", "text", NULL));
    }
    const char *level = text_of(params, "entry", "level", NULL);
    if (strcmp(method, "Log.entryAdded") == 0 && level && strcmp(level, "error") == 0)
        add_error(text_of(params, "entry", "text", NULL));
}

static void send_message(json_t *message)
{
    char *text = json_dumps(message, JSON_COMPACT);
    assert_non_null(text);
    size_t size = strlen(text) + 1;
    for (size_t sent = 0; sent < size;) {
        ssize_t n = write(browser.to, text + sent, size - sent);
        if (n <= 0)
            fail_msg("chromium does not read: see %s", scratch_path("chromium.log"));
        sent += (size_t)n;
    }
    free(text);
}

/* Calls a method with `params`, which is released; its result, to be released. */
static json_t *call(const char *method, json_t *params)
{
    json_t *message = json_pack("{sI ss so}", "id", (json_int_t)++browser.id, "method", method, "params",
                                params ? params : json_object());
    assert_non_null(message);
    if (*browser.session)
        json_object_set_new(message, "sessionId", json_string(browser.session));
    send_message(message);
    json_decref(message);
    for (;;) {
        json_t *reply = receive();
        const json_t *id = json_object_get(reply, "id");
        if (id && json_integer_value(id) == browser.id) {
            json_t *result = json_incref(json_object_get(reply, "result"));
            if (!result)
                fail_msg("%s: %s", method, text_of(reply, "error", "message", NULL));
            json_decref(reply);
            return result;
        }
        note_event(reply);
        json_decref(reply);
    }
}

static void do_call(const char *method, json_t *params)
{
    json_decref(call(method, params));
}

/* ---- start and stop ---- */

/* Opens a tab; all further calls are for it. */
static void open_tab(void)
{
    json_t *target = call("Target.createTarget", json_pack("{ss}", "url", "about:blank"));
    const char *id = json_string_value(json_object_get(target, "targetId"));
    json_t *attached =
        call("Target.attachToTarget", json_pack("{ss sb}", "targetId", id ? id : "", "flatten", 1));
    const char *session = json_string_value(json_object_get(attached, "sessionId"));
    assert_non_null(session);
    snprintf(browser.session, sizeof browser.session, "%s", session);
    json_decref(target);
    json_decref(attached);
    static const char *const domains[] = { "Page.enable", "Runtime.enable", "Log.enable" };
    for (size_t i = 0; i < sizeof domains / sizeof *domains; i++)
        do_call(domains[i], NULL);
}

bool browser_start(void)
{
    int commands[2], replies[2];
    const char *program = find_program();
    if (!program) {
        print_message("skipped: chromium is not installed\n");
        return false;
    }
    memset(&browser, 0, sizeof browser);
    signal(SIGPIPE, SIG_IGN);
    assert_true(pipe(commands) == 0 && pipe(replies) == 0);
    browser.program = fork();
    assert_true(browser.program >= 0);
    if (browser.program == 0)
        become(program, commands[0], replies[1]);
    close(commands[0]);
    close(replies[1]);
    browser.to = commands[1];
    browser.from = replies[0];
    open_tab();
    return true;
}

void browser_stop(void)
{
    if (browser.program <= 0)
        return;
    close(browser.to); /* ends it */
    close(browser.from);
    waitpid(browser.program, NULL, 0);
    free(browser.input);
    memset(&browser, 0, sizeof browser);
}

/* ---- pages ---- */

void browser_set_media(const struct browser_view *view)
{
    do_call("Emulation.setEmulatedMedia",
            json_pack("{ss s[{ss ss}]}", "media", view->print ? "print" : "", "features", "name",
                      "prefers-color-scheme", "value", view->dark ? "dark" : "light"));
}

void browser_open(const char *path, const struct browser_view *view)
{
    char url[4200];
    snprintf(url, sizeof url, "file://%s", path);
    browser_open_url(url, view);
}

void browser_open_url(const char *url, const struct browser_view *view)
{
    *browser.errors = '\0';
    browser.loaded = false;
    do_call("Emulation.setDeviceMetricsOverride",
            json_pack("{si si sf sb}", "width", view->width, "height", WINDOW_HEIGHT, "deviceScaleFactor",
                      1.0, "mobile", 0));
    browser_set_media(view);
    do_call("Page.navigate", json_pack("{ss}", "url", url));
    while (!browser.loaded) {
        json_t *message = receive();
        note_event(message);
        json_decref(message);
    }
}

json_t *browser_evaluate(const char *expression)
{
    json_t *reply = call("Runtime.evaluate", json_pack("{ss sb sb}", "expression", expression, "awaitPromise",
                                                       1, "returnByValue", 1));
    const json_t *failure = json_object_get(reply, "exceptionDetails");
    if (failure)
        fail_msg("%s: %s", expression, text_of(failure, "exception", "description", NULL));
    json_t *value = json_incref(json_object_get(json_object_get(reply, "result"), "value"));
    json_decref(reply);
    return value ? value : json_null();
}

const char *browser_errors(void)
{
    return browser.errors;
}

/* Writes a file from its text in base64, which the key `data` of the result has. */
static void write_base64(const char *path, const json_t *result)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *text = json_string_value(json_object_get(result, "data"));
    assert_non_null(text);
    unsigned char *bytes = malloc(strlen(text));
    assert_non_null(bytes);
    size_t n = 0;
    uint32_t bits = 0;
    int held = 0;
    for (; *text && *text != '='; text++) {
        bits = bits << 6 | (uint32_t)(strchr(digits, *text) - digits);
        held += 6;
        if (held < 8)
            continue;
        held -= 8;
        bytes[n++] = (unsigned char)(bits >> held);
    }
    write_file(path, bytes, n);
    free(bytes);
}

void browser_screenshot(const char *png)
{
    json_t *layout = call("Page.getLayoutMetrics", NULL);
    const json_t *size = json_object_get(layout, "cssContentSize");
    double width = json_number_value(json_object_get(size, "width"));
    double height = json_number_value(json_object_get(size, "height"));
    json_t *result =
        call("Page.captureScreenshot",
             json_pack("{ss sb s{sf sf sf sf sf}}", "format", "png", "captureBeyondViewport", 1, "clip", "x",
                       0.0, "y", 0.0, "width", width, "height", height, "scale", 1.0));
    write_base64(png, result);
    json_decref(result);
    json_decref(layout);
}

void browser_print(const char *pdf)
{
    json_t *result = call("Page.printToPDF", json_pack("{sb}", "printBackground", 0));
    write_base64(pdf, result);
    json_decref(result);
}
