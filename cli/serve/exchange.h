/* A request of HTTP and its answer; shared by the server and its endpoints. */
#ifndef DDL_CLI_SERVE_EXCHANGE_H
#define DDL_CLI_SERVE_EXCHANGE_H

#include "cli/serve/server.h"

#include <microhttpd.h>
#include <pthread.h>

struct connection;

struct server {
    struct MHD_Daemon *daemon;
    struct served *models;
    size_t n_models;
    struct server_options options;
    int socket;
    /* Guarded by lock. */
    pthread_mutex_t lock;
    struct connection *connections;
    size_t running[MAX_KEYS + 1]; /* exchanges by key; the last: without */
    bool draining;
    double looked; /* when server_check last looked for clients that have left */
};

/* What a connection is doing, since `since`; for server_check. */
enum connection_phase { PHASE_READ, PHASE_COMPUTE, PHASE_WRITE };
struct connection {
    struct connection *next, *before;
    int socket;
    enum connection_phase phase;
    double since;
    bool left;                 /* in PHASE_READ: the client had left when server_check looked */
    struct exchange *exchange; /* in PHASE_COMPUTE */
};

struct exchange {
    struct server *server;
    struct MHD_Connection *handle;
    struct connection *connection;
    const struct route *route;
    char parameter[256]; /* what the path has in the place of {model}, cut off */
    struct buffer body;
    struct api_error error; /* found before the body was complete */
    size_t key;             /* index of running */
    bool counted;
    int status; /* of the answer; 0: none yet */
    double start;
    /* Of an exchange with a job. */
    struct served *served;
    struct job *job;
    bool suspended; /* guarded by the served model's lock */
    size_t sent;    /* bytes of the job's answer that were streamed */
};

/* A path, which may end with "{model}", for any text that is not empty; a list ends with a row without one.
 * `answer` is called when the body is complete; it answers, or submits a job. */
struct route {
    const char *method, *path;
    const char *about; /* for /openapi.json; NULL: a part of the page */
    bool open;         /* without a key, and while the server stops */
    enum MHD_Result (*answer)(struct exchange *x);
    enum endpoint endpoint; /* whose fields the body has; 0: none */
    const char *schema;     /* of the body of another endpoint; NULL: no body */
};
/* Answers with `size` bytes, copied. */
enum MHD_Result exchange_send(struct exchange *x, int status, const char *type, const char *bytes,
                              size_t size);
enum MHD_Result exchange_send_error(struct exchange *x, const struct api_error *e);
/* Computes the job and answers with its result; takes the job. */
enum MHD_Result exchange_submit(struct exchange *x, struct served *served, struct job *job);

#endif
