/* Downstream tasks, scored as lm-evaluation-harness does: documents become requests, a model gives each
 * request a log-likelihood, and these give accuracies. Rules and sources of the data: docs/evaluation.md. */
#ifndef DDL_TASKS_H
#define DDL_TASKS_H

#include "ddl/comm.h"
#include "ddl/json.h"
#include "ddl/model.h"
#include "ddl/status.h"
#include "ddl/tokenizer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Name of task i in the order of the paper's table; NULL past the last. */
DDL_API const char *ddl_task_name(size_t i);
/* What the task is, in a few words; NULL past the last. */
DDL_API const char *ddl_task_about(size_t i);

/* How documents become requests. */
struct ddl_task_config {
    char data[1024];   /* folder with the tasks' files, laid out as docs/evaluation.md says             */
    size_t shots;      /* examples before each document                                                 */
    uint64_t seed;     /* of the draw of examples                                                       */
    uint64_t limit;    /* documents, the first ones; 0: all                                             */
    bool any_revision; /* accept files whose SHA-256 is not the known one                               */
};
DDL_API struct ddl_task_config ddl_task_defaults(void); /* no shots, seed 1234, all documents, known files */

/* UTF-8 text; may hold NUL. */
struct ddl_task_text {
    const char *data; /* not NUL-terminated */
    size_t size;      /* bytes              */
};

/* A request: how likely is the continuation after the context? */
struct ddl_task_request {
    struct ddl_task_text context, continuation; /* borrowed from the task */
    const int32_t *tokens;      /* (n_context + n_tokens): the context's, then the continuation's */
    size_t n_context, n_tokens; /* before a context that is too long for a model is cut; at least 1 */
    size_t characters;          /* of the answer: the continuation without its delimiter       */
};
/* One document. */
struct ddl_task_document {
    size_t gold;                             /* index of the correct request                            */
    size_t n_requests;                       /* at least 1 */
    const struct ddl_task_request *requests; /* borrowed from the task                                  */
    size_t n_examples;                       /* the task's shots                                        */
    const size_t *examples;                  /* their records in the file of examples, from 0, in order */
};

/* A task's documents with their requests as texts and tokens. They do not depend on a model:
 * several models may be scored on the same task. Immutable. */
typedef struct ddl_task ddl_task;

/* Loads a task. `name`: one of ddl_task_name, or the path of a .jsonl file of one's own, whose records have
 * `context`, `choices` and `gold` (multiple choice); `text`, a pair of which the first is the better one; or
 * `context` and `target` (last words). The tokenizer is used during the call only. DDL_E_USAGE for an unknown
 * name and for more shots than there are examples; DDL_E_IO for a missing file; DDL_E_FORMAT, with file and
 * line, for a record that is not as expected, a file of another revision, and a request without tokens. */
DDL_API ddl_status ddl_task_load(ddl_task **out, const char *name, const struct ddl_task_config *config,
                                 const ddl_tokenizer *tokenizer, struct ddl_error *err);
/* A task named `title` of one's own requests: document i is the pair of contexts[i] and continuations[i], n
 * of each, UTF-8, copied. Nothing is put between them. DDL_E_FORMAT for a request without tokens. */
DDL_API ddl_status ddl_task_from_texts(ddl_task **out, const char *title, size_t n,
                                       const struct ddl_task_text *contexts,
                                       const struct ddl_task_text *continuations,
                                       const ddl_tokenizer *tokenizer, struct ddl_error *err);
DDL_API void ddl_task_free(ddl_task *task); /* NULL is allowed */

/* Several tasks. */
struct ddl_task_list {
    ddl_task **tasks; /* (n), owned */
    size_t n;
    char skipped[2048]; /* of "available": the tasks left out, "NAME: the missing file", a line each; or "" */
};
/* Loads the tasks of a comma-separated list, whose entries are names as ddl_task_load takes them, "all",
 * every task of ddl_task_name, and "available", those of them whose files exist. Free *out with
 * ddl_task_list_free; it is empty after an error. Errors are those of ddl_task_load; DDL_E_IO, with every
 * missing file, if "all" lacks some; DDL_E_USAGE for a list without an entry, and without the folder of the
 * files. */
DDL_API ddl_status ddl_task_list_load(struct ddl_task_list *out, const char *names,
                                      const struct ddl_task_config *config, const ddl_tokenizer *tokenizer,
                                      struct ddl_error *err);
DDL_API void ddl_task_list_free(struct ddl_task_list *list); /* frees the tasks of `list`; it becomes empty */

DDL_API const char *ddl_task_title(const ddl_task *task);  /* name, or file name without .jsonl */
DDL_API size_t ddl_task_n_documents(const ddl_task *task); /* at least 1 */
/* Documents of the task's files, of which `limit` may have left some out. */
DDL_API size_t ddl_task_n_available(const ddl_task *task);
DDL_API size_t ddl_task_n_requests(const ddl_task *task); /* of all documents */
/* Document i of the task, below ddl_task_n_documents; borrowed. */
DDL_API const struct ddl_task_document *ddl_task_document(const ddl_task *task, size_t i);
/* Number of the first request of document i among all of the task. */
DDL_API size_t ddl_task_first_request(const ddl_task *task, size_t i);

/* A request's result. */
struct ddl_task_score {
    double loglikelihood; /* of the continuation, nats: sum over its tokens */
    bool is_greedy;       /* whether greedy decoding would produce it       */
};

/* Called when document i has its scores (n_requests of the document; valid during the call), with the longest
 * document first. A nonzero return value stops scoring with DDL_E_INTERRUPTED. */
typedef int ddl_task_scored_fn(void *user, size_t i, const struct ddl_task_score *scores);
/* What ddl_task_score uses; each member may be NULL. */
struct ddl_task_score_options {
    ddl_task_scored_fn *each;  /* on rank 0 only */
    ddl_progress_fn *progress; /* in documents, also several times in each pass of the model */
    void *user;                /* for both */
    /* Ranks divide the documents: all call the function with the same task and model, and have the same
     * status, error and scores. `done`, and the scores of the documents that it marks, are those of rank 0.
     * Scores and the order of `each` are the same to the bit for every number of ranks that have as many
     * threads. NULL: one rank. */
    ddl_comm *comm;
};

/* Scores documents: scores (ddl_task_n_requests) =, host memory. Documents for which done[i] is set are left
 * out, and their scores are not touched; done may be NULL. Contexts too long for the model's context are cut
 * from the left. Requests of a document that have the same tokens get the same score to the bit. Memory
 * beside the model's: a session of at most 4096 tokens or the longest document's requests. DDL_E_FORMAT for a
 * token outside the model's vocabulary and for a continuation longer than the model's context; DDL_E_NUMERIC
 * if a log-likelihood is not finite. options may be NULL. */
DDL_API ddl_status ddl_task_score(const ddl_task *task, ddl_model *model, const bool *done,
                                  const struct ddl_task_score_options *options, struct ddl_task_score *scores,
                                  struct ddl_error *err);
/* Whether ddl_task_score can score every document with a model of this config: DDL_E_FORMAT as there. */
DDL_API ddl_status ddl_task_check(const ddl_task *task, const struct ddl_config *config,
                                  struct ddl_error *err);
/* Bytes of backend memory that ddl_task_score uses for a model of this config and precision, where no
 * document's requests need more than 4096 tokens; SIZE_MAX for configs that cannot be used. `backend`
 * as for ddl_workspace_bytes. */
DDL_API size_t ddl_task_score_bytes(const struct ddl_config *config, enum ddl_precision precision,
                                    const ddl_backend *backend);

/* A value with its standard error. */
struct ddl_task_value {
    const char *name; /* "acc", "acc_norm", "loss", "perplexity" */
    double value;
    double error; /* standard error of the mean over documents; NAN where there is none */
};
enum { DDL_TASK_VALUES = 3 };
/* What is reported of a task. */
struct ddl_task_result {
    char task[128];                                /* its title */
    size_t n_documents;                            /* scored, */
    size_t n_available;                            /* of these in the task's files */
    size_t n_values;                               /* of the values */
    struct ddl_task_value values[DDL_TASK_VALUES]; /* (n_values) */
};
/* Computes the result of the task from its `scores`, as ddl_task_score sets them. */
DDL_API struct ddl_task_result ddl_task_summarize(const ddl_task *task, const struct ddl_task_score *scores);
/* The value of `result` that tables of the field show: acc_norm where there is one, else the first. */
DDL_API const struct ddl_task_value *ddl_task_main_value(const struct ddl_task_result *result);
/* Writes `result` as a member of the open object of `json`: "TASK": {"documents": N, "VALUE": X,
 * "VALUE_stderr": X, ...}, values with `digits` significant digits. */
DDL_API void ddl_task_write_json(struct ddl_json *json, const struct ddl_task_result *result, int digits);
/* The choice of a document by the `scores` of its requests: the first request with the highest
 * log-likelihood, by character with `normalized`. */
DDL_API size_t ddl_task_choice(const struct ddl_task_document *document, const struct ddl_task_score *scores,
                               bool normalized);

#ifdef __cplusplus
}
#endif
#endif
