/* What a client wants generated: the body of /v1/completions and /v1/chat/completions. */
#ifndef DDL_CLI_SERVE_REQUEST_H
#define DDL_CLI_SERVE_REQUEST_H

#include "cli/serve/api_error.h"
#include "cli/serve/chat.h"

#include "ddl/config.h"
#include "ddl/force.h"
#include "ddl/generation.h"
#include "ddl/json.h"
#include "ddl/tokenizer.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The endpoints, as bits of struct field. */
enum endpoint { COMPLETIONS = 1, CHAT = 2 };
enum {
    MAX_CHOICES = 1024, /* texts of one request            */
    MAX_TOP = 100,      /* candidates reported for a token */
    MAX_STOPS = 16,
    MAX_BIASES = 1024,
    MAX_NUMBERS = 1 << 21 /* log-probabilities of an answer that is not streamed; and of its "ddl" */
};

/* A text to be continued. */
struct prompt {
    struct ddl_ids ids;
    char *text; /* (size) as given, or decoded from ids */
    size_t size;
};

/* Free with request_free, after a failure too. */
struct request {
    enum endpoint endpoint;
    char *model;              /* the name of a model; NULL: not given */
    struct message *messages; /* (n_messages) of a chat, until they have become a prompt */
    size_t n_messages;
    struct prompt *prompts;
    size_t n_prompts, n, best_of;
    bool echo, stream, include_usage, has_max_tokens, has_seed;
    bool prompt_only;             /* max_tokens is 0: the prompt is scored */
    bool has_logprobs;            /* tokens are reported with log-probabilities */
    size_t top;                   /* candidates for each of them                */
    bool traced;                  /* the numbers of every sublayer are reported */
    struct buffer force;          /* specs of --force, one a line               */
    struct ddl_force *forces;     /* (n_layers, DDL_SUBLAYERS), or NULL         */
    struct ddl_sampling sampling; /* its arrays belong to the request */
    char *stops[MAX_STOPS];
    size_t n_stops, n_own_stops; /* own: of them, given by the client */
    int32_t stop_ids[MAX_STOPS];
    struct ddl_logit_bias biases[MAX_BIASES];
};

/* What a request is checked against. */
struct request_limits {
    const struct ddl_config *config;
    const ddl_tokenizer *tokenizer;
    const struct chat_template *chat;
    size_t context; /* tokens of a prompt and its continuation */
};

/* The object of a body; NULL, with an error, where it is none. The caller's reference. */
json_t *request_body(const char *body, size_t size, struct api_error *e);
/* Parses the JSON of a body; every field that is not supported is an error that names it. */
bool request_parse(struct request *r, enum endpoint endpoint, const char *body, size_t size,
                   struct api_error *e);
/* The second step, when the model is known: tokenizes prompts and messages and checks sizes. */
bool request_prepare(struct request *r, const struct request_limits *limits, struct api_error *e);
void request_free(struct request *r);

/* Writes the JSON schema of an endpoint's body: fields, types, ranges. */
void request_write_schema(struct ddl_json *json, const char *key, enum endpoint endpoint);

#endif
