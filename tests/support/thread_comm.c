#define _POSIX_C_SOURCE 200809L
#include "support/thread_comm.h"

#include "support/support.h"

#include "comm/internal.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A message: posted by its sender, its receiver, or both. All of a job are freed at its end. */
struct message {
    size_t from, to, bytes;
    size_t received; /* of a receive: size of the message */
    int tag;
    bool is_send, is_matched;
    const void *source;
    void *target;
    struct message *next;
};

struct world {
    pthread_mutex_t lock;
    pthread_barrier_t start;
    struct message *first, **last; /* in the order in which they were posted */
    struct thread_comm_end end;
};

/* One rank: the ctx of its transport, and the argument of its thread. */
struct rank {
    struct world *world;
    size_t rank, size;
    thread_comm_body *body;
    void *user;
};

/* Locks the world; ends the thread if the job was aborted. */
static struct world *enter(void *ctx)
{
    struct world *world = ((struct rank *)ctx)->world;
    pthread_mutex_lock(&world->lock);
    if (world->end.is_aborted) {
        pthread_mutex_unlock(&world->lock);
        pthread_exit(NULL);
    }
    return world;
}

/* The first unmatched message of the other kind. */
static struct message *find(struct world *world, size_t from, size_t to, int tag, bool is_send)
{
    struct message *m = world->first;
    while (m && (m->is_matched || m->is_send != is_send || m->from != from || m->to != to || m->tag != tag))
        m = m->next;
    return m;
}

static void remove_message(struct world *world, struct message *m)
{
    struct message **link = &world->first;
    while (*link != m)
        link = &(*link)->next;
    *link = m->next;
    if (world->last == &m->next)
        world->last = link;
    free(m);
}

static void post(void *ctx, struct ddl_comm_request *request, struct message message)
{
    struct world *world = enter(ctx);
    struct message *other = find(world, message.from, message.to, message.tag, !message.is_send);
    struct message *m = malloc(sizeof *m);
    assert_non_null(m);
    *m = message;
    if (other) {
        struct message *sent = m->is_send ? m : other, *received = m->is_send ? other : m;
        memcpy(received->target, sent->source, sent->bytes < received->bytes ? sent->bytes : received->bytes);
        received->received = sent->bytes;
        m->is_matched = other->is_matched = true;
    }
    *world->last = m;
    world->last = &m->next;
    request->value = (uintptr_t)m;
    pthread_mutex_unlock(&world->lock);
}

static void thread_send(void *ctx, struct ddl_comm_request *request, size_t to, int tag, const void *data,
                        size_t bytes)
{
    post(ctx, request,
         (struct message){ .from = ((struct rank *)ctx)->rank,
                           .to = to,
                           .bytes = bytes,
                           .tag = tag,
                           .is_send = true,
                           .source = data });
}

static void thread_receive(void *ctx, struct ddl_comm_request *request, size_t from, int tag, void *data,
                           size_t bytes)
{
    post(ctx, request,
         (struct message){
             .from = from, .to = ((struct rank *)ctx)->rank, .bytes = bytes, .tag = tag, .target = data });
}

static bool thread_test(void *ctx, struct ddl_comm_request *request, size_t *bytes)
{
    struct world *world = enter(ctx);
    struct message *m = (struct message *)request->value;
    bool is_complete = m->is_matched;
    *bytes = m->received;
    if (is_complete)
        remove_message(world, m);
    pthread_mutex_unlock(&world->lock);
    return is_complete;
}

static bool thread_poll(void *ctx, size_t *from, int tag, void *data, size_t bytes)
{
    struct world *world = enter(ctx);
    struct rank *rank = ctx;
    struct message *m = NULL;
    for (size_t r = 0; r < rank->size && !m; r++)
        m = find(world, r, rank->rank, tag, true);
    if (m) {
        assert_int_equal(bytes, m->bytes);
        memcpy(data, m->source, bytes);
        *from = m->from;
        m->is_matched = true;
    }
    pthread_mutex_unlock(&world->lock);
    return m != NULL;
}

static void thread_abort(void *ctx, const char *message)
{
    struct world *world = enter(ctx);
    world->end.is_aborted = true;
    snprintf(world->end.message, sizeof world->end.message, "%s", message);
    pthread_mutex_unlock(&world->lock);
    pthread_exit(NULL);
}

static void thread_close(void *ctx)
{
    (void)ctx;
}

static const struct ddl_comm_transport_ops ops = {
    .send = thread_send,
    .receive = thread_receive,
    .test = thread_test,
    .poll = thread_poll,
    .abort = thread_abort,
    .close = thread_close,
};

static void free_comm(void *comm)
{
    ddl_comm_free(comm);
}

static void *run_rank(void *argument)
{
    struct rank *rank = argument;
    struct ddl_comm_transport transport = {
        .ops = &ops, .ctx = rank, .rank = rank->rank, .size = rank->size
    };
    snprintf(transport.host, sizeof transport.host, "host%zu", rank->rank);
    ddl_comm *comm = ddl_comm_create(&transport, -1);
    pthread_barrier_wait(&rank->world->start); /* no rank aborts while another is in the line above */
    pthread_cleanup_push(free_comm, comm);
    rank->body(comm, rank->user);
    ddl_comm_describe(comm, "the end of the job");
    ddl_comm_end(comm);
    pthread_cleanup_pop(1);
    return NULL;
}

struct thread_comm_end thread_comm_try(size_t size, thread_comm_body *body, void *user)
{
    struct world world = { 0 };
    pthread_t *threads = calloc(size, sizeof *threads);
    struct rank *ranks = calloc(size, sizeof *ranks);
    assert_true(threads && ranks);
    /* An assertion outside of the thread that cmocka runs ends the program; this makes it print its message.
     */
    setenv("CMOCKA_TEST_ABORT", "1", 1);
    world.last = &world.first;
    pthread_mutex_init(&world.lock, NULL);
    pthread_barrier_init(&world.start, NULL, (unsigned)size);
    for (size_t r = 0; r < size; r++) {
        ranks[r] = (struct rank){ &world, r, size, body, user };
        assert_int_equal(pthread_create(&threads[r], NULL, run_rank, &ranks[r]), 0);
    }
    for (size_t r = 0; r < size; r++)
        assert_int_equal(pthread_join(threads[r], NULL), 0);
    unsetenv("CMOCKA_TEST_ABORT");
    /* After an abort messages remain; otherwise each was received. */
    assert_true(world.end.is_aborted || !world.first);
    while (world.first)
        remove_message(&world, world.first);
    pthread_barrier_destroy(&world.start);
    pthread_mutex_destroy(&world.lock);
    free(ranks);
    free(threads);
    return world.end;
}

void thread_comm_run(size_t size, thread_comm_body *body, void *user)
{
    struct thread_comm_end end = thread_comm_try(size, body, user);
    if (end.is_aborted)
        fail_msg("the job was aborted: %s", end.message);
}

void thread_comm_hang(ddl_comm *comm)
{
    for (;;) {
        pthread_mutex_unlock(&enter(comm->transport.ctx)->lock);
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    }
}
