/* A ring buffer of batches between one reader, any number of workers, and one writer that receives them in
 * the reader's order. All blocking happens here. */
#ifndef DDL_DATA_PIPELINE_H
#define DDL_DATA_PIPELINE_H

#include "data/text_batch.h"

#include <pthread.h>
#include <stdatomic.h>

struct ddl_pipeline {
    pthread_mutex_t lock;
    pthread_cond_t can_fill, can_take, can_write;
    struct ddl_text_batch *slots; /* batch i is in slot i % n_slots */
    bool *encoded;
    size_t n_slots;
    uint64_t filled, taken, written; /* batches so far: written <= taken <= filled */
    size_t text_bytes;               /* of text between push and release */
    bool finished;                   /* the reader has pushed its last batch */
    atomic_bool stopped;
};

ddl_status ddl_pipeline_init(struct ddl_pipeline *p, size_t n_slots, struct ddl_error *err);
void ddl_pipeline_free(struct ddl_pipeline *p); /* zeroed is allowed; no thread may be using it */

/* Reader: acquire blocks for the next empty batch (NULL after stop); push submits it; finish marks the
 * end. */
struct ddl_text_batch *ddl_pipeline_acquire(struct ddl_pipeline *p);
void ddl_pipeline_push(struct ddl_pipeline *p);
void ddl_pipeline_finish(struct ddl_pipeline *p);

/* Worker: take blocks for a batch to encode (NULL at the end or after stop); done submits it. */
struct ddl_text_batch *ddl_pipeline_take(struct ddl_pipeline *p);
void ddl_pipeline_done(struct ddl_pipeline *p, struct ddl_text_batch *batch);

/* Writer: next returns the next batch in order, or NULL: with *end set at the end, without it after
 * `milliseconds`. release recycles the batch. */
struct ddl_text_batch *ddl_pipeline_next(struct ddl_pipeline *p, int milliseconds, bool *end);
void ddl_pipeline_release(struct ddl_pipeline *p);

/* Unblocks all threads. */
void ddl_pipeline_stop(struct ddl_pipeline *p);

/* What the threads of a pipeline do; each function gets `user`. */
struct ddl_pipeline_roles {
    void *user;
    void *(*read)(void *user);                              /* acquire, push; finish at the end */
    void *(*work)(void *user);                              /* take, done, until take returns NULL */
    ddl_status (*write)(void *user, struct ddl_error *err); /* next, release, until the end or an error */
};
/* Initializes the pipeline, runs `read` on one thread, `work` on n_workers threads and `write` on the calling
 * one, then stops and frees it. */
ddl_status ddl_pipeline_run(struct ddl_pipeline *p, size_t n_workers, const struct ddl_pipeline_roles *roles,
                            struct ddl_error *err);

#endif
