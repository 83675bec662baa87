/* Jobs: requests cut to the model's context, documents sorted by length. */
#include "infer/tasks/jobs.h"

#include <stdio.h>
#include <stdlib.h>

/* Keeps the last tokens that fit: max of them as input, and one more as the last target. */
static ddl_status make_input(const struct ddl_task_request *r, size_t max, size_t vocab, struct input *out,
                             struct ddl_error *err)
{
    size_t n = r->n_context + r->n_tokens, cut = n > max + 1 ? n - max - 1 : 0;
    if (r->n_tokens > max)
        return ddl_error_set(
            err, DDL_E_FORMAT,
            "continuation too long: expected at most %zu tokens, the model's context, found %zu; leave this "
            "task out",
            max, r->n_tokens);
    for (size_t i = 0; i < n; i++) {
        if (r->tokens[i] < 0 || (size_t)r->tokens[i] >= vocab)
            return ddl_error_set(err, DDL_E_FORMAT,
                                 "token %d: expected less than %zu, the model's vocabulary",
                                 (int)r->tokens[i], vocab);
    }
    *out = (struct input){ .tokens = r->tokens + cut, .n = n - cut - 1, .first = r->n_context - cut - 1 };
    return DDL_OK;
}

/* Input r of document i. */
static ddl_status make_document_input(const ddl_task *task, size_t i, size_t r,
                                      const struct ddl_config *config, struct input *out,
                                      struct ddl_error *err)
{
    char where[256];
    ddl_status status = make_input(&ddl_task_document(task, i)->requests[r], config->block_size,
                                   config->vocab_size, out, err);
    out->request = r;
    if (!status)
        return DDL_OK;
    snprintf(where, sizeof where, "task %s: document %zu", ddl_task_title(task), i);
    return ddl_error_prefix(err, status, where);
}

ddl_status ddl_task_check(const ddl_task *task, const struct ddl_config *config, struct ddl_error *err)
{
    struct input input;
    ddl_status status = DDL_OK;
    for (size_t i = 0; i < ddl_task_n_documents(task) && !status; i++) {
        for (size_t r = 0; r < ddl_task_document(task, i)->n_requests && !status; r++)
            status = make_document_input(task, i, r, config, &input, err);
    }
    return status;
}

static size_t common_tokens(const struct input *a, const struct input *b)
{
    size_t n = 0, limit = (a->n < b->n ? a->n : b->n) + 1;
    while (n < limit && a->tokens[n] == b->tokens[n])
        n++;
    return n;
}

size_t job_common_tokens(const struct job *job, size_t lo, size_t hi)
{
    return common_tokens(&job->inputs[lo], &job->inputs[hi - 1]);
}

/* Lexicographic, a beginning of other tokens before them. */
static int by_tokens(const void *left, const void *right)
{
    const struct input *a = left, *b = right;
    size_t n = common_tokens(a, b);
    if (n <= a->n && n <= b->n)
        return a->tokens[n] < b->tokens[n] ? -1 : 1;
    if (a->n != b->n)
        return a->n < b->n ? -1 : 1;
    return a->request < b->request ? -1 : 1;
}

static ddl_status make_job(const ddl_task *task, size_t i, const struct ddl_config *config,
                           struct input *inputs, struct job *out, struct ddl_error *err)
{
    *out =
        (struct job){ .document = i, .inputs = inputs, .n_inputs = ddl_task_document(task, i)->n_requests };
    for (size_t r = 0; r < out->n_inputs; r++) {
        ddl_status status = make_document_input(task, i, r, config, &inputs[r], err);
        if (status)
            return status;
        out->longest = inputs[r].n > out->longest ? inputs[r].n : out->longest;
    }
    qsort(inputs, out->n_inputs, sizeof *inputs, by_tokens);
    return DDL_OK;
}

static int longer_first(const void *left, const void *right)
{
    const struct job *a = left, *b = right;
    if (a->longest != b->longest)
        return a->longest > b->longest ? -1 : 1;
    return a->document < b->document ? -1 : 1;
}

ddl_status jobs_init(struct jobs *out, const ddl_task *task, const struct ddl_config *config,
                     const bool *done, struct ddl_error *err)
{
    size_t n = ddl_task_n_documents(task), at = 0;
    ddl_status status = DDL_OK;
    *out = (struct jobs){ .jobs = calloc(n, sizeof *out->jobs),
                          .inputs = calloc(ddl_task_n_requests(task), sizeof *out->inputs) };
    if (!out->jobs || !out->inputs)
        return ddl_error_set(err, DDL_E_MEMORY, "task %s: out of memory", ddl_task_title(task));
    for (size_t i = 0; i < n && !status; i++) {
        struct job *job = &out->jobs[out->n++];
        status = make_job(task, i, config, out->inputs + at, job, err);
        at += job->n_inputs;
        job->is_known = job->is_done = done && done[i];
        out->n_known += job->is_known;
    }
    if (!status)
        qsort(out->jobs, out->n, sizeof *out->jobs, longer_first);
    return status;
}

void jobs_free(struct jobs *jobs)
{
    free(jobs->jobs);
    free(jobs->inputs);
}
