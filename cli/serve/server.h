/* The HTTP server: connections, limits, authorization, and the endpoints. */
#ifndef DDL_CLI_SERVE_SERVER_H
#define DDL_CLI_SERVE_SERVER_H

#include "cli/serve/served.h"

#include <stdbool.h>
#include <stddef.h>

enum { MAX_KEYS = 64, KEY_SIZE = 256 };

struct route;

struct server_options {
    const struct route *routes;    /* the paths, endpoints.h */
    char cors[256];                /* origin that browsers may call from; "": none         */
    size_t connections;            /* at a time                                            */
    size_t body;                   /* bytes of a request at most                           */
    size_t per_key;                /* requests of a key at a time; 0: any                  */
    double read_seconds;           /* for a request to arrive, and for an answer to be read */
    bool log, log_prompts;         /* a line for each request; with its body               */
    bool check_host;               /* only requests to this machine's own names            */
    char url[320];                 /* of the listening socket                              */
    bool passed;                   /* the socket is systemd's too                          */
    char keys[MAX_KEYS][KEY_SIZE]; /* (n_keys) */
    size_t n_keys;                 /* 0: no key is needed */
};

struct server;
/* Starts to answer connections on the listening socket, which it takes. `models` (n) are borrowed. */
ddl_status server_start(struct server **out, int socket, struct served *models, size_t n,
                        const struct server_options *options, struct ddl_error *err);
/* Closes connections that took too long, and cancels jobs whose client has disconnected; to be called a few
 * times a second. */
void server_check(struct server *server);
/* From now on no connection is accepted, and requests are answered with 503. */
void server_drain(struct server *server);
/* Requests that are being answered. */
size_t server_busy(struct server *server);
/* After the models were stopped (served_stop), so that no answer is awaited. */
void server_stop(struct server *server);

#endif
