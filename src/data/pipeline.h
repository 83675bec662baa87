/* A ring of batches between one reader, any number of workers, and one writer that takes them in the
 * reader's order. All waiting stands here. */
#ifndef DDL_DATA_PIPELINE_H
#define DDL_DATA_PIPELINE_H

#include "data/text_batch.h"

#include <pthread.h>
#include <stdatomic.h>

struct ddl_pipeline {
    pthread_mutex_t lock;
    pthread_cond_t can_fill, can_take, can_write;
    struct ddl_text_batch *slots; /* batch number i lives in slot i % n_slots                      */
    bool *encoded;
    size_t n_slots;
    uint64_t filled, taken, written; /* batches so far: written <= taken <= filled            */
    size_t text_bytes;               /* of text between push and release                      */
    bool finished;                   /* the reader pushes no more                             */
    atomic_bool stopped;
};

ddl_status ddl_pipeline_init(struct ddl_pipeline *p, size_t n_slots, struct ddl_error *err);
void ddl_pipeline_free(struct ddl_pipeline *p); /* zeroed is allowed; no thread may be in it */

/* Reader: the next empty batch, once there is room for it (NULL after a stop); hand it on; say it was the
 * last. */
struct ddl_text_batch *ddl_pipeline_acquire(struct ddl_pipeline *p);
void ddl_pipeline_push(struct ddl_pipeline *p);
void ddl_pipeline_finish(struct ddl_pipeline *p);

/* Worker: a batch to encode (NULL when there will be none); hand it on. */
struct ddl_text_batch *ddl_pipeline_take(struct ddl_pipeline *p);
void ddl_pipeline_done(struct ddl_pipeline *p, struct ddl_text_batch *batch);

/* Writer: the next batch in order, or NULL with *end at the end and without it after `milliseconds`; give it
 * back. */
struct ddl_text_batch *ddl_pipeline_next(struct ddl_pipeline *p, int milliseconds, bool *end);
void ddl_pipeline_release(struct ddl_pipeline *p);

/* Everyone's waiting ends. */
void ddl_pipeline_stop(struct ddl_pipeline *p);

#endif
