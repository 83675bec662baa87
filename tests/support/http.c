#define _GNU_SOURCE /* strcasestr */
#include "support/http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PATIENCE = 60000 };

/* ---- the server ---- */

/* Appends what the server prints; false at its end. */
static bool read_log(struct http_server *server)
{
    size_t n = strlen(server->printed);
    struct pollfd poll_fd = { .fd = server->log, .events = POLLIN };
    assert_true(poll(&poll_fd, 1, PATIENCE) > 0);
    ssize_t got = read(server->log, server->printed + n, sizeof server->printed - 1 - n);
    if (got <= 0)
        return false;
    server->printed[n + (size_t)got] = '\0';
    return true;
}

void http_start(struct http_server *server, const char *key, const char *arguments, ...)
{
    static const char listening[] = "listening at http://";
    char line[4096], command[8192], address[64];
    int ends[2];
    va_list values;
    va_start(values, arguments);
    vsnprintf(line, sizeof line, arguments, values);
    va_end(values);
    snprintf(command, sizeof command, "exec '%s' serve --port 0 --user root --threads 1 %s", ddl_program(),
             line);
    *server = (struct http_server){ 0 };
    assert_int_equal(pipe(ends), 0);
    server->pid = fork();
    assert_true(server->pid >= 0);
    if (server->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves no server behind */
        dup2(ends[1], STDERR_FILENO);
        dup2(ends[1], STDOUT_FILENO);
        for (int fd = STDERR_FILENO + 1; fd < 256; fd++)
            close(fd); /* the pipes of a browser end with the test */
        if (key)
            setenv("DDL_API_KEY", key, 1);
        else
            unsetenv("DDL_API_KEY");
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    server->log = ends[0];
    const char *at = NULL;
    while ((at = strstr(server->printed, listening)) == NULL || !strchr(at, '\n')) {
        if (!read_log(server))
            fail_msg("ddl serve ended: %s", server->printed);
    }
    assert_int_equal(sscanf(at + sizeof listening - 1, "%63[0-9.]:%d", address, &server->port), 2);
    assert_int_equal(inet_aton(address, &server->address), 1);
}

void http_terminate(struct http_server *server)
{
    assert_int_equal(kill(server->pid, SIGTERM), 0);
}

void http_wait_for(struct http_server *server, const char *text)
{
    while (!strstr(server->printed, text)) {
        if (!read_log(server))
            fail_msg("ddl serve ended: %s", server->printed);
    }
}

int http_wait(struct http_server *server)
{
    int status;
    while (strlen(server->printed) < sizeof server->printed - 1 && read_log(server))
        continue;
    assert_int_equal(waitpid(server->pid, &status, 0), server->pid);
    close(server->log);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void http_stop(struct http_server *server)
{
    http_terminate(server);
    int status = http_wait(server);
    if (status)
        fail_msg("ddl serve: exit status %d: %s", status, server->printed);
}

/* ---- the client ---- */

int http_connect(const struct http_server *server)
{
    const struct sockaddr_in address = { .sin_family = AF_INET,
                                         .sin_port = htons((uint16_t)server->port),
                                         .sin_addr = server->address };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

void http_write(int fd, const char *text)
{
    for (size_t n = strlen(text); n > 0;) {
        ssize_t sent = send(fd, text, n, MSG_NOSIGNAL);
        if (sent <= 0) /* the answer may be on its way already */
            return;
        text += sent;
        n -= (size_t)sent;
    }
}

/* One byte; -1 at the end. */
static int read_byte(int fd)
{
    struct pollfd poll_fd = { .fd = fd, .events = POLLIN };
    unsigned char byte;
    if (poll(&poll_fd, 1, PATIENCE) <= 0)
        fail_msg("the server is silent");
    return read(fd, &byte, 1) == 1 ? byte : -1;
}

/* A line without its end; false at the end of the connection. */
static bool read_line(int fd, char *out, size_t size)
{
    size_t n = 0;
    for (int byte; (byte = read_byte(fd)) != '\n';) {
        if (byte < 0 || n == size - 1)
            return false;
        out[n++] = (char)byte;
    }
    out[n - (n > 0 && out[n - 1] == '\r')] = '\0';
    return true;
}

/* Appends n bytes of body. */
static void read_body(int fd, struct http_answer *answer, size_t n)
{
    answer->body = realloc(answer->body, answer->size + n + 1);
    assert_non_null(answer->body);
    for (size_t i = 0; i < n; i++) {
        int byte = read_byte(fd);
        if (byte < 0) {
            answer->closed = true;
            return;
        }
        answer->body[answer->size++] = (char)byte;
    }
    answer->body[answer->size] = '\0';
}

static void read_chunks(int fd, struct http_answer *answer)
{
    char line[64];
    size_t n = 1;
    while (n > 0 && !answer->closed && read_line(fd, line, sizeof line)) {
        n = strtoul(line, NULL, 16);
        read_body(fd, answer, n);
        answer->closed = answer->closed || !read_line(fd, line, sizeof line);
    }
    answer->closed = answer->closed || n > 0;
}

void http_read(int fd, struct http_answer *answer)
{
    char line[1024];
    *answer = (struct http_answer){ 0 };
    answer->closed = !read_line(fd, line, sizeof line);
    if (answer->closed)
        return;
    answer->status = atoi(line + strcspn(line, " "));
    while (read_line(fd, line, sizeof line) && *line) {
        size_t n = strlen(answer->headers);
        snprintf(answer->headers + n, sizeof answer->headers - n, "%s\n", line);
    }
    const char *length = strcasestr(answer->headers, "Content-Length: ");
    if (strcasestr(answer->headers, "Transfer-Encoding: chunked"))
        read_chunks(fd, answer);
    else
        read_body(fd, answer, length ? strtoul(length + 16, NULL, 10) : 0);
}

void http_free(struct http_answer *answer)
{
    free(answer->body);
    answer->body = NULL;
}

void http_call(const struct http_server *server, const char *method, const char *path, const char *headers,
               const char *body, struct http_answer *answer)
{
    char head[4096];
    int fd = http_connect(server);
    snprintf(head, sizeof head, "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%s", method, path,
             headers ? headers : "");
    http_write(fd, head);
    if (body) {
        snprintf(head, sizeof head, "Content-Type: application/json\r\nContent-Length: %zu\r\n",
                 strlen(body));
        http_write(fd, head);
    }
    http_write(fd, "\r\n");
    http_write(fd, body ? body : "");
    http_read(fd, answer);
    close(fd);
}

json_t *http_json(const struct http_server *server, const char *path, const char *body, int status)
{
    struct http_answer answer;
    json_error_t why;
    http_call(server, body ? "POST" : "GET", path, NULL, body, &answer);
    if (answer.status != status)
        fail_msg("%s %s: status %d: %s", path, body ? body : "", answer.status, answer.body);
    json_t *root = json_loadb(answer.body, answer.size, JSON_ALLOW_NUL, &why);
    if (!root)
        fail_msg("%s: not JSON: %s: %s", path, why.text, answer.body);
    http_free(&answer);
    return root;
}
