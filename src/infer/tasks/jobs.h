/* The documents of a task as jobs for a model: what it is given of each request. */
#ifndef DDL_INFER_TASKS_JOBS_H
#define DDL_INFER_TASKS_JOBS_H

#include "ddl/tasks.h"

/* Tokens [0, n] of a request, the last of which is only predicted. Row t is the prediction of token t + 1;
 * rows [first, n) are scored. */
struct input {
    const int32_t *tokens; /* (n + 1) */
    size_t n, first;
    size_t request; /* of the document */
};

/* A document to be scored. */
struct job {
    size_t document, longest; /* index; largest n of its inputs */
    struct input *inputs;     /* (n_inputs), one for each request, in lexicographic order of their tokens */
    size_t n_inputs;
    bool is_known;     /* its scores were known before */
    bool is_done;      /* it has its scores: known, or (score.c) computed; */
    size_t n_branches; /* not yet computed */
};

struct jobs {
    struct job *jobs;     /* (n), longest first */
    size_t n, n_known;    /* all documents; of them, */
    struct input *inputs; /* of all jobs */
};

/* Jobs of all documents, for a model of this config; `done` (n_documents, or NULL) marks those whose scores
 * are known. DDL_E_FORMAT for a token outside the vocabulary or a continuation longer than the context,
 * DDL_E_MEMORY. The caller calls jobs_free, also after an error. */
ddl_status jobs_init(struct jobs *out, const ddl_task *task, const struct ddl_config *config,
                     const bool *done, struct ddl_error *err);
void jobs_free(struct jobs *jobs);

/* Leading tokens that inputs [lo, hi) of a job have in common, the predicted last ones included. */
size_t job_common_tokens(const struct job *job, size_t lo, size_t hi);

#endif
