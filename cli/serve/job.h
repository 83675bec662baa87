/* A request that is computed: its texts, and the answer that a connection sends. */
#ifndef DDL_CLI_SERVE_JOB_H
#define DDL_CLI_SERVE_JOB_H

#include "cli/serve/request.h"

#include "ddl/engine.h"

#include <stdbool.h>
#include <stdint.h>

/* Why a job ended. */
enum job_end { JOB_RUNS, JOB_COMPLETE, JOB_CANCELLED, JOB_TIMED_OUT, JOB_FAILED };

/* A token that is reported, with the candidates in its place. */
struct token_record {
    int32_t id;
    bool is_prompt;
    float logprob;
    struct ddl_scored_token *top; /* (n_top) */
    size_t n_top;
};

/* A tensor of a sublayer for the tokens of a text, without the first `sent`, which were reported. */
struct trace_tensor {
    size_t layer;
    int sub;          /* enum ddl_sublayer */
    const char *name; /* of the rule's table */
    bool by_token;
    size_t size;              /* numbers of a token */
    size_t n, sent, capacity; /* tokens */
    float *x;                 /* (n - sent, size) */
};

/* One text of a job. Only the engine's thread uses it. */
struct choice {
    struct job *job;
    size_t index, prompt; /* among the job's choices and prompts */
    ddl_generation *generation;
    bool begun, ended, no_memory;
    int finish;         /* enum ddl_finish, once ended          */
    struct buffer text; /* of the continuation; of a stream, what was not sent, as are the tokens */
    struct token_record *tokens;
    size_t n_tokens, capacity;
    size_t received, reported;   /* bytes of the text so far; of the new tokens before `tokens` */
    struct trace_tensor *traces; /* sublayer by sublayer */
    size_t n_traces;
    size_t new_tokens, reused;
    double logprob_sum; /* of the n_scored new tokens, with the one that ended the text */
    size_t n_scored;
    bool sent;                      /* a part was streamed */
    size_t offset;                  /* characters before what was not streamed */
    double first_token, last_token; /* times, 0: none yet */
};

struct job {
    struct request request;
    const char *model; /* name; of the served model */
    const ddl_tokenizer *tokenizer;
    char id[40];
    long created;
    double start, deadline;        /* seconds; deadline 0: none */
    double spoke;                  /* when the answer grew      */
    struct choice *choices;        /* (n_choices) */
    size_t n_choices, next, ended; /* next: the first that has not begun */
    uint64_t seed;
    size_t n_traced;   /* numbers of all traces so far */
    struct job *after; /* in the list of the served model */
    /* Guarded by the served model's lock. */
    enum job_end end;
    bool finished;            /* `answer` is complete, or `error` is set */
    bool released;            /* no connection waits for it */
    struct buffer answer;     /* the body, or the part of a stream that is to be sent */
    struct api_error error;   /* where it failed */
    void (*wake)(void *user); /* called with the lock held when `answer` grows or the job ends */
    void *user;
};

/* Creates a job from *request, which it takes. NULL without memory; the request is the caller's then. */
struct job *job_new(struct request *request, const char *model, const ddl_tokenizer *tokenizer);
void job_free(struct job *job);

/* The first of c->tokens whose text has begun: that of the others may become a stop text. Their number, and
 * the bytes of the new ones in *bytes. */
size_t job_begun_tokens(const struct choice *c, size_t *bytes);
/* Sets up the engine's request for a choice. */
void job_begin_choice(struct choice *choice, struct ddl_engine_request *out, struct ddl_sampling *sampling);

#endif
