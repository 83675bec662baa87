#include "cli/data/build_ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A rank's part of the job. The ranks start together: none writes the shards before all have opened the
 * build, because a rank that opened it later would begin another one. A build is open when progress is called
 * for the first time. */
struct job {
    ddl_comm *comm;
    ddl_build_progress_fn *progress;
    void *user;
    bool started;           /* the ranks have exchanged the following */
    ddl_status status;      /* of all ranks */
    bool complete;          /* one of the ranks found the shards complete */
    struct ddl_error err;   /* of `status` */
    struct result *results; /* (ranks) */
};

/* A result, as it is sent. */
struct result {
    struct ddl_build_result values;
    size_t end_held_out; /* index in end_names; their number: NULL */
};
static const char *const end_names[] = { "document", "line", "word", "character" };
enum { END_NAMES = sizeof end_names / sizeof *end_names };

/* Called once by each rank. complete: it found the shards complete. */
static void start(struct job *job, bool complete, ddl_status status)
{
    struct result own = { .values.complete = complete };
    job->started = true;
    job->status = ddl_comm_agree(job->comm, status, &job->err);
    if (job->status)
        return;
    ddl_comm_gather(job->comm, sizeof own, &own, job->results);
    for (size_t rank = 0; rank < ddl_comm_size(job->comm); rank++)
        job->complete = job->complete || job->results[rank].values.complete;
    ddl_comm_set_time_limit(job->comm, 0);
}

static int show_progress(void *user, const struct ddl_build_progress *p)
{
    struct job *job = user;
    if (!job->started)
        start(job, false, DDL_OK);
    return job->status || job->complete ? 1 : job->progress(job->user, p);
}

/* Combines the results of all ranks: the counts are known to the rank that wrote the shards. */
static void combine(const struct job *job, struct ddl_build_result *result)
{
    struct result own = { .values = *result, .end_held_out = 0 };
    while (result->end_held_out && own.end_held_out < END_NAMES &&
           strcmp(result->end_held_out, end_names[own.end_held_out]) != 0)
        own.end_held_out++;
    if (!result->end_held_out)
        own.end_held_out = END_NAMES;
    ddl_comm_gather(job->comm, sizeof own, &own, job->results);
    size_t last = 0, size = ddl_comm_size(job->comm), encoded = 0, kept = 0;
    double seconds = 0;
    for (size_t rank = 0; rank < size; rank++) {
        const struct ddl_build_result *r = &job->results[rank].values;
        last = !job->results[last].values.complete && r->complete ? rank : last;
        encoded += r->parts_encoded;
        kept += r->parts_kept;
        seconds = r->seconds > seconds ? r->seconds : seconds;
    }
    const struct result *whole = &job->results[last];
    *result = whole->values;
    result->end_held_out = whole->end_held_out < END_NAMES ? end_names[whole->end_held_out] : NULL;
    result->parts_encoded = encoded;
    result->parts_kept = kept;
    result->seconds = seconds;
}

/* Sets the share of this rank. */
static ddl_status prepare(struct job *job, struct ddl_build_config *config, struct ddl_error *err)
{
    size_t size = ddl_comm_size(job->comm);
    if (*config->shard)
        return ddl_error_set(err, DDL_E_USAGE,
                             "--shard: the %zu ranks divide the parts themselves: expected no --shard, found "
                             "%s; or set DDL_COMM=none if the processes are independent",
                             size, config->shard);
    job->results = calloc(size, sizeof *job->results);
    if (!job->results)
        return ddl_error_set(err, DDL_E_MEMORY, "data build: out of memory for %zu ranks", size);
    snprintf(config->shard, sizeof config->shard, "%zu/%zu", ddl_comm_rank(job->comm), size);
    config->threads = ddl_comm_threads(job->comm, config->threads);
    return DDL_OK;
}

ddl_status build_by_ranks(ddl_comm *comm, const struct ddl_build_config *config, const char *const *inputs,
                          size_t n_inputs, ddl_build_progress_fn *progress, void *user,
                          struct ddl_build_result *result, struct ddl_error *err)
{
    if (!comm)
        return ddl_data_build(config, inputs, n_inputs, progress, user, result, err);
    struct job job = { .comm = comm, .progress = progress, .user = user };
    struct ddl_build_config own = *config;
    ddl_status status = prepare(&job, &own, err);
    if (!status)
        status = ddl_data_build(&own, inputs, n_inputs, show_progress, &job, result, err);
    if (!job.started) {
        if (status)
            job.err = *err;
        start(&job, !status && result->complete, status);
    }
    if (job.status) {
        *err = job.err;
    } else {
        if (job.complete && status == DDL_E_INTERRUPTED) /* by show_progress: nothing is left to do */
            status = DDL_OK;
        job.status = ddl_comm_agree(comm, status, err);
        if (!job.status)
            combine(&job, result);
    }
    free(job.results);
    return job.status;
}
