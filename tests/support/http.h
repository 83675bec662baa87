/* `ddl serve` as a process of its own, and a client of HTTP/1.1. Every failure fails the test. */
#ifndef DDL_TEST_HTTP_H
#define DDL_TEST_HTTP_H

#include "support/support.h"

#include <jansson.h>
#include <netinet/in.h>
#include <sys/types.h>

struct http_server {
    pid_t pid;
    struct in_addr address;
    int port, log; /* log: the read end of its standard error */
    char printed[8192];
};
/* Starts "ddl serve <arguments> --port 0" and waits until it listens. The variable DDL_API_KEY is `key`, or
 * unset for NULL. */
void http_start(struct http_server *server, const char *key, const char *arguments, ...) DDL_PRINTF(3, 4);
/* Sends SIGTERM. */
void http_terminate(struct http_server *server);
/* Waits until it has printed the text. */
void http_wait_for(struct http_server *server, const char *text);
/* Waits for its end: the exit status. What it printed is in `printed`. */
int http_wait(struct http_server *server);
/* Both; the exit status must be 0. */
void http_stop(struct http_server *server);

/* A connection. Reading gives up, and fails, after a minute without a byte. */
int http_connect(const struct http_server *server);
void http_write(int fd, const char *text);
/* An answer: the text of its headers, and its body, of which chunks were joined. */
struct http_answer {
    int status;
    char headers[4096];
    char *body; /* (size), then a NUL */
    size_t size;
    bool closed; /* the connection ended without an answer */
};
/* Reads one answer. Free with http_free. */
void http_read(int fd, struct http_answer *answer);
void http_free(struct http_answer *answer);
/* One request on a connection of its own. `headers` are further lines, each with its \r\n, or NULL; a body is
 * sent as application/json; NULL: none. */
void http_call(const struct http_server *server, const char *method, const char *path, const char *headers,
               const char *body, struct http_answer *answer);
/* The JSON that a POST (with a body) or GET answers with; its status must be `status`. The caller's
 * reference. */
json_t *http_json(const struct http_server *server, const char *path, const char *body, int status);

#endif
