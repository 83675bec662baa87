/* A model that is served: its engine, the thread that runs it, and the jobs that wait for it. */
#ifndef DDL_CLI_SERVE_SERVED_H
#define DDL_CLI_SERVE_SERVED_H

#include "cli/model/folder.h"
#include "cli/serve/job.h"
#include "cli/serve/metrics.h"

#include "ddl/engine.h"

#include <pthread.h>
#include <stdbool.h>

struct served_options {
    size_t slots, cached, queue, context;
    double seconds; /* limit of a request; 0: none */
    int form;       /* enum ddl_cache_form */
};

struct served {
    char name[128];
    struct folder folder;
    struct chat_template chat;
    struct ddl_engine_options engine_options;
    struct served_options options;
    ddl_engine *engine;
    pthread_t thread;
    bool has_thread;
    /* Guarded by lock. */
    pthread_mutex_t lock;
    pthread_cond_t changed;   /* jobs were added or cancelled, or stopping was set */
    struct job *first, *last; /* jobs that have not ended, in the order of their arrival */
    size_t n_jobs, n_waiting; /* waiting: jobs of which no choice has begun              */
    size_t n_free;            /* slots without a text, when the last pass began or ended  */
    bool stopping;            /* the thread ends                                         */
    char failed[1024];        /* why the engine can compute no more; "": it can           */
    struct metrics metrics;
};

/* Loads a model and creates its engine. `s` is zeroed before. Close after a failure too. */
ddl_status served_open(struct served *s, const char *name, const struct folder_request *request,
                       const struct served_options *options, struct ddl_error *err);
/* Starts the thread. */
ddl_status served_start(struct served *s, struct ddl_error *err);
/* Stops the thread: jobs that have not ended are cancelled. */
void served_stop(struct served *s);
void served_close(struct served *s);
/* Bytes of the model's weights, and of the engine. */
size_t served_weight_bytes(const struct served *s);
size_t served_engine_bytes(const struct served *s);

/* Hands a job over: 429 where the queue is full, 503 where the engine has failed. */
bool served_submit(struct served *s, struct job *job, struct api_error *e);
/* Cancels a job whose client has disconnected; else adds a comment to a stream that was silent for a while,
 * so that the connection is kept. False where the job has ended, or has an answer that was not sent yet. */
bool served_keep(struct served *s, struct job *job, bool has_left);
/* The connection needs the job no longer: it is freed when it has ended. */
void served_release(struct served *s, struct job *job);

#endif
