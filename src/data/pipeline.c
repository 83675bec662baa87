#define _POSIX_C_SOURCE 200809L
#include "data/pipeline.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

/* Limit on the text in flight (plus one batch): relevant for large documents. */
enum { TEXT_BUDGET = 64 << 20 };

ddl_status ddl_pipeline_init(struct ddl_pipeline *p, size_t n_slots, struct ddl_error *err)
{
    *p = (struct ddl_pipeline){ 0 };
    p->slots = calloc(n_slots, sizeof *p->slots);
    p->encoded = calloc(n_slots, sizeof *p->encoded);
    pthread_condattr_t attributes;
    if (!p->slots || !p->encoded || pthread_condattr_init(&attributes) != 0) {
        free(p->slots);
        free(p->encoded);
        *p = (struct ddl_pipeline){ 0 };
        return ddl_error_set(err, DDL_E_MEMORY, "out of memory for %zu batches of text", n_slots);
    }
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->can_fill, NULL);
    pthread_cond_init(&p->can_take, NULL);
    pthread_cond_init(&p->can_write, &attributes);
    pthread_condattr_destroy(&attributes);
    p->n_slots = n_slots;
    return DDL_OK;
}

void ddl_pipeline_free(struct ddl_pipeline *p)
{
    if (!p->slots)
        return;
    for (size_t i = 0; i < p->n_slots; i++)
        ddl_text_batch_free(&p->slots[i]);
    free(p->slots);
    free(p->encoded);
    pthread_cond_destroy(&p->can_fill);
    pthread_cond_destroy(&p->can_take);
    pthread_cond_destroy(&p->can_write);
    pthread_mutex_destroy(&p->lock);
    p->slots = NULL;
}

struct ddl_text_batch *ddl_pipeline_acquire(struct ddl_pipeline *p)
{
    pthread_mutex_lock(&p->lock);
    while (!p->stopped && p->filled > p->written &&
           (p->filled - p->written >= p->n_slots || p->text_bytes > TEXT_BUDGET))
        pthread_cond_wait(&p->can_fill, &p->lock);
    struct ddl_text_batch *batch = p->stopped ? NULL : &p->slots[p->filled % p->n_slots];
    pthread_mutex_unlock(&p->lock);
    return batch;
}

void ddl_pipeline_push(struct ddl_pipeline *p)
{
    pthread_mutex_lock(&p->lock);
    p->text_bytes += p->slots[p->filled % p->n_slots].size;
    p->filled++;
    pthread_cond_signal(&p->can_take);
    pthread_mutex_unlock(&p->lock);
}

void ddl_pipeline_finish(struct ddl_pipeline *p)
{
    pthread_mutex_lock(&p->lock);
    p->finished = true;
    pthread_cond_broadcast(&p->can_take);
    pthread_cond_signal(&p->can_write);
    pthread_mutex_unlock(&p->lock);
}

struct ddl_text_batch *ddl_pipeline_take(struct ddl_pipeline *p)
{
    pthread_mutex_lock(&p->lock);
    while (!p->stopped && !p->finished && p->taken == p->filled)
        pthread_cond_wait(&p->can_take, &p->lock);
    struct ddl_text_batch *batch = NULL;
    if (!p->stopped && p->taken < p->filled)
        batch = &p->slots[p->taken++ % p->n_slots];
    pthread_mutex_unlock(&p->lock);
    return batch;
}

void ddl_pipeline_done(struct ddl_pipeline *p, struct ddl_text_batch *batch)
{
    pthread_mutex_lock(&p->lock);
    p->encoded[batch - p->slots] = true;
    if (batch == &p->slots[p->written % p->n_slots])
        pthread_cond_signal(&p->can_write);
    pthread_mutex_unlock(&p->lock);
}

static struct timespec after(int milliseconds)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_nsec += (long)milliseconds * 1000000;
    t.tv_sec += t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    return t;
}

struct ddl_text_batch *ddl_pipeline_next(struct ddl_pipeline *p, int milliseconds, bool *end)
{
    struct timespec until = after(milliseconds);
    struct ddl_text_batch *batch = NULL;
    *end = false;
    pthread_mutex_lock(&p->lock);
    for (int result = 0;;) {
        size_t slot = (size_t)(p->written % p->n_slots);
        if (p->written < p->filled && p->encoded[slot])
            batch = &p->slots[slot];
        *end = p->finished && p->written == p->filled;
        if (batch || *end || result == ETIMEDOUT)
            break;
        result = pthread_cond_timedwait(&p->can_write, &p->lock, &until);
    }
    pthread_mutex_unlock(&p->lock);
    return batch;
}

void ddl_pipeline_release(struct ddl_pipeline *p)
{
    size_t slot = (size_t)(p->written % p->n_slots);
    struct ddl_text_batch *batch = &p->slots[slot];
    size_t size = batch->size;
    ddl_text_batch_reset(batch);
    pthread_mutex_lock(&p->lock);
    p->text_bytes -= size;
    p->encoded[slot] = false;
    p->written++;
    pthread_cond_signal(&p->can_fill);
    pthread_mutex_unlock(&p->lock);
}

void ddl_pipeline_stop(struct ddl_pipeline *p)
{
    pthread_mutex_lock(&p->lock);
    p->stopped = true;
    pthread_cond_broadcast(&p->can_fill);
    pthread_cond_broadcast(&p->can_take);
    pthread_mutex_unlock(&p->lock);
}

ddl_status ddl_pipeline_run(struct ddl_pipeline *p, size_t n_workers, const struct ddl_pipeline_roles *roles,
                            struct ddl_error *err)
{
    size_t wanted = n_workers + 1, started = 0;
    ddl_status status = ddl_pipeline_init(p, 4 * wanted, err);
    pthread_t *threads = status ? NULL : calloc(wanted, sizeof *threads);
    if (!status && !threads)
        status = ddl_error_set(err, DDL_E_MEMORY, "out of memory for %zu threads", wanted);
    while (!status && started < wanted) {
        if (pthread_create(&threads[started], NULL, started == 0 ? roles->read : roles->work, roles->user) !=
            0)
            status = ddl_error_set(err, DDL_E_MEMORY, "cannot start thread %zu of %zu", started + 1, wanted);
        else
            started++;
    }
    if (!status)
        status = roles->write(roles->user, err);
    if (started > 0)
        ddl_pipeline_stop(p);
    for (size_t i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    free(threads);
    ddl_pipeline_free(p);
    return status;
}
