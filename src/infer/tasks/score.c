/* Log-likelihoods of requests. The requests of a document form a tree, whose branches begin where their
 * tokens differ: what requests have in common is computed once, and then forked. Each pass takes branches of
 * as many documents as fill it.
 *
 * Documents are divided into blocks of BLOCK, by length, which are scored one after the other, each by one
 * rank. The rounding of a score depends on what shares its passes: with blocks that do not depend on the
 * number of ranks, neither do the scores. */
#include "ddl/session.h"
#include "ddl/tasks.h"

#include "base/mem.h"
#include "comm/comm.h"
#include "infer/tasks/jobs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    SESSION_TOKENS = 4096, /* capacity of all slots together, unless one document needs more */
    PASS_ROWS = 512,       /* tokens of a pass, unless one branch has more */
    BLOCK = 64,            /* documents that one rank scores at a time */
};

/* Inputs [lo, hi) of a job, which begin alike. The slot holds the tokens before `at`; a pass adds those
 * before `end`. */
struct branch {
    struct job *job;
    size_t slot, lo, hi, at, end;
    size_t common;  /* tokens that all inputs begin with; end is less by 1 where the last is only predicted */
    size_t choices; /* of the pass, the branch's first */
};

/* A session scores jobs of similar length, and is replaced by one with more slots for shorter ones. */
struct scoring {
    const ddl_task *task;
    ddl_model *model;
    struct jobs jobs;
    size_t next_job, end, n_open; /* of the block: the next job to begin, one past the last, those not done */
    size_t next_report, n_done;   /* job that is reported next; those that were reported */
    ddl_session *session;
    size_t capacity, slots;     /* of the session */
    size_t n_inputs;            /* of the jobs begun and not done, each may need a slot: at most `slots` */
    size_t *free_slots, n_free; /* (slots) */
    struct branch *waiting, *taken; /* (slots) each: for later passes and for this one */
    size_t n_waiting, n_taken;
    struct ddl_session_input *inputs; /* (slots) of a pass */
    int32_t *targets, *ranks;         /* (slots, capacity) */
    float *losses;                    /* (slots, capacity) */
    int32_t *choices, *choice_ranks;  /* (slots): a branch has no more than inputs */
    float *choice_losses;             /* (slots) */
    struct ddl_task_score_options options;
    struct ddl_task_score *scores;
};

/* ---- the session ---- */

static void close_session(struct scoring *s)
{
    ddl_session_free(s->session);
    ddl_mem_free(s->free_slots);
    ddl_mem_free(s->waiting);
    ddl_mem_free(s->taken);
    ddl_mem_free(s->inputs);
    ddl_mem_free(s->targets);
    ddl_mem_free(s->ranks);
    ddl_mem_free(s->losses);
    ddl_mem_free(s->choices);
    ddl_mem_free(s->choice_ranks);
    ddl_mem_free(s->choice_losses);
    s->session = NULL;
    s->free_slots = NULL;
    s->waiting = s->taken = NULL;
    s->inputs = NULL;
    s->targets = s->ranks = s->choices = s->choice_ranks = NULL;
    s->losses = s->choice_losses = NULL;
}

/* A ddl_progress_fn of the session. */
static int poll(void *user, uint64_t done, uint64_t total)
{
    const struct scoring *s = user;
    (void)done;
    (void)total;
    return s->options.progress(s->options.user, s->n_done, s->jobs.n - s->jobs.n_known);
}

static struct ddl_session_options session_options(size_t slots, size_t capacity)
{
    return (struct ddl_session_options){ .slots = slots, .tokens = capacity, .form = DDL_CACHE_AUTO };
}

/* Short slots need the most memory: each has states that its convolutions read. Few documents are shorter
 * than SHORT. */
size_t ddl_task_score_bytes(const struct ddl_config *config, enum ddl_precision precision,
                            const ddl_backend *backend)
{
    enum { SHORT = 16 };
    size_t capacity = config->block_size < SHORT ? config->block_size : SHORT;
    const struct ddl_session_options options = session_options(SESSION_TOKENS / capacity, capacity);
    return ddl_session_bytes(config, precision, &options, backend);
}

static bool allocate_arrays(struct scoring *s)
{
    size_t slots = s->slots, n = slots * s->capacity;
    s->free_slots = ddl_mem_alloc(slots * sizeof *s->free_slots);
    s->waiting = ddl_mem_alloc(slots * sizeof *s->waiting);
    s->taken = ddl_mem_alloc(slots * sizeof *s->taken);
    s->inputs = ddl_mem_alloc(slots * sizeof *s->inputs);
    s->targets = ddl_mem_alloc(n * sizeof *s->targets);
    s->ranks = ddl_mem_alloc(n * sizeof *s->ranks);
    s->losses = ddl_mem_alloc(n * sizeof *s->losses);
    s->choices = ddl_mem_alloc(slots * sizeof *s->choices);
    s->choice_ranks = ddl_mem_alloc(slots * sizeof *s->choice_ranks);
    s->choice_losses = ddl_mem_alloc(slots * sizeof *s->choice_losses);
    return s->free_slots && s->waiting && s->taken && s->inputs && s->targets && s->ranks && s->losses &&
           s->choices && s->choice_ranks && s->choice_losses;
}

/* Whether the job leaves most of a slot unused, so that a session with more slots is worth its creation. */
static bool is_short(const struct scoring *s, const struct job *job)
{
    return job->longest <= s->capacity / 4;
}

/* A session for the next job of the block and all shorter ones. */
static ddl_status open_session(struct scoring *s, struct ddl_error *err)
{
    close_session(s);
    s->capacity = s->jobs.jobs[s->next_job].longest;
    s->slots = SESSION_TOKENS / s->capacity;
    for (size_t i = s->next_job; i < s->end; i++)
        s->slots = s->jobs.jobs[i].n_inputs > s->slots ? s->jobs.jobs[i].n_inputs : s->slots;
    struct ddl_session_options options = session_options(s->slots, s->capacity);
    options.progress = s->options.progress ? poll : NULL;
    options.user = s;
    if (!allocate_arrays(s))
        return ddl_error_set(err, DDL_E_MEMORY, "task %s: out of memory for %zu sequences",
                             ddl_task_title(s->task), s->slots);
    for (s->n_free = 0; s->n_free < s->slots; s->n_free++)
        s->free_slots[s->n_free] = s->n_free;
    return ddl_session_create(&s->session, s->model, &options, err);
}

/* ---- branches ---- */

/* Inputs [lo, hi) of a branch's job after tokens [0, at). */
static struct branch make_branch(struct job *job, size_t slot, size_t lo, size_t hi, size_t at)
{
    size_t longest = 0;
    for (size_t i = lo; i < hi; i++)
        longest = job->inputs[i].n > longest ? job->inputs[i].n : longest;
    size_t common = job_common_tokens(job, lo, hi);
    return (struct branch){ .job = job,
                            .slot = slot,
                            .lo = lo,
                            .hi = hi,
                            .at = at,
                            .end = common < longest ? common : longest,
                            .common = common };
}

/* The inputs after `lo` that continue as it does: one past the last. */
static size_t branch_end(const struct branch *b, size_t lo)
{
    size_t hi = lo + 1;
    while (hi < b->hi && b->job->inputs[hi].tokens[b->common] == b->job->inputs[lo].tokens[b->common])
        hi++;
    return hi;
}

/* The first input that goes on after what all have in common: shorter ones are sorted before it. */
static size_t first_longer(const struct branch *b)
{
    size_t lo = b->lo;
    while (lo < b->hi && b->job->inputs[lo].n < b->common)
        lo++;
    return lo;
}

/* Whether row t is scored for one of the inputs [lo, hi). */
static bool is_scored(const struct branch *b, size_t lo, size_t t)
{
    for (size_t i = lo; i < b->hi; i++) {
        if (t >= b->job->inputs[i].first)
            return true;
    }
    return false;
}

/* What a pass computes of the branch. */
static struct ddl_session_input input_of(const struct scoring *s, const struct branch *b)
{
    size_t at = b->slot * s->capacity, lo = first_longer(b);
    const struct input *in = &b->job->inputs[b->hi - 1]; /* has all tokens before end */
    struct ddl_session_input out = { .slot = b->slot,
                                     .n = b->end - b->at,
                                     .tokens = in->tokens + b->at,
                                     .targets = s->targets + at,
                                     .losses = s->losses + at,
                                     .ranks = s->ranks + at,
                                     .choices = s->choices + b->choices,
                                     .choice_losses = s->choice_losses + b->choices,
                                     .choice_ranks = s->choice_ranks + b->choices };
    for (size_t t = b->at; t < b->end; t++)
        s->targets[at + t - b->at] = t + 1 < b->common && is_scored(b, b->lo, t) ? in->tokens[t + 1] : -1;
    if (b->end < b->common || !is_scored(b, lo, b->end - 1))
        return out;
    for (; lo < b->hi; lo = branch_end(b, lo))
        s->choices[b->choices + out.n_choices++] = b->job->inputs[lo].tokens[b->common];
    return out;
}

static void add_score(struct ddl_task_score *score, float loss, int32_t rank)
{
    score->loglikelihood -= (double)loss;
    score->is_greedy = score->is_greedy && rank == 0;
}

/* Adds the losses of the branch's rows to the scores of its inputs. */
static void take_scores(struct scoring *s, const struct branch *b)
{
    size_t at = b->slot * s->capacity, choice = b->choices;
    size_t lo = first_longer(b), hi = lo < b->hi ? branch_end(b, lo) : lo;
    struct ddl_task_score *scores = s->scores + ddl_task_first_request(s->task, b->job->document);
    for (size_t i = b->lo; i < b->hi; i++) {
        const struct input *in = &b->job->inputs[i];
        struct ddl_task_score *score = &scores[in->request];
        size_t t = in->first > b->at ? in->first : b->at;
        for (; t < b->end && t + 1 < b->common; t++)
            add_score(score, s->losses[at + t - b->at], s->ranks[at + t - b->at]);
        if (i == hi) {
            hi = branch_end(b, i);
            choice++;
        }
        if (i >= lo && t < b->end)
            add_score(score, s->choice_losses[choice], s->choice_ranks[choice]);
    }
}

/* The branches that go on after this one wait for a pass. The first of them continues in its slot. */
static ddl_status split(struct scoring *s, const struct branch *b, struct ddl_error *err)
{
    ddl_status status = DDL_OK;
    bool kept = false;
    b->job->n_branches--;
    for (size_t lo = first_longer(b), hi; lo < b->hi && !status; lo = hi) {
        hi = branch_end(b, lo);
        struct branch next = make_branch(b->job, b->slot, lo, hi, b->end);
        if (next.end == next.at)
            continue;
        if (kept) {
            next.slot = s->free_slots[--s->n_free];
            status = ddl_session_fork(s->session, b->slot, next.slot, err);
        }
        kept = true;
        s->waiting[s->n_waiting++] = next;
        b->job->n_branches++;
    }
    if (kept || status)
        return status;
    s->free_slots[s->n_free++] = b->slot;
    return ddl_session_reset(s->session, b->slot, err);
}

/* ---- passes ---- */

static void skip_known(struct scoring *s)
{
    while (s->next_job < s->end && s->jobs.jobs[s->next_job].is_known)
        s->next_job++;
}

/* Begins jobs until a pass is full or the session is. */
static void begin_jobs(struct scoring *s)
{
    size_t rows = 0;
    for (size_t i = 0; i < s->n_waiting; i++)
        rows += s->waiting[i].end - s->waiting[i].at;
    for (; s->next_job < s->end && rows < PASS_ROWS; s->next_job++, skip_known(s)) {
        struct job *job = &s->jobs.jobs[s->next_job];
        struct ddl_task_score *scores = s->scores + ddl_task_first_request(s->task, job->document);
        if (s->n_inputs + job->n_inputs > s->slots || (s->n_waiting && is_short(s, job)))
            break;
        for (size_t r = 0; r < job->n_inputs; r++)
            scores[r] = (struct ddl_task_score){ .is_greedy = true };
        struct branch root = make_branch(job, s->free_slots[--s->n_free], 0, job->n_inputs, 0);
        s->waiting[s->n_waiting++] = root;
        job->n_branches = 1;
        s->n_inputs += job->n_inputs;
        rows += root.end;
    }
}

/* Takes waiting branches for a pass: at least one, then as many as fit. */
static void take_branches(struct scoring *s)
{
    size_t rows = 0, n = 0, choices = 0;
    s->n_taken = 0;
    for (size_t i = 0; i < s->n_waiting; i++) {
        struct branch b = s->waiting[i];
        size_t more = b.end - b.at;
        if (rows == 0 || rows + more <= PASS_ROWS) {
            b.choices = choices;
            choices += b.hi - b.lo;
            rows += more;
            s->taken[s->n_taken++] = b;
        } else {
            s->waiting[n++] = b;
        }
    }
    s->n_waiting = n;
}

/* Reports the jobs that are done, up to the first that is not. */
static ddl_status report(struct scoring *s, struct ddl_error *err)
{
    bool stop = false;
    for (; !stop && s->next_report < s->jobs.n && s->jobs.jobs[s->next_report].is_done; s->next_report++) {
        const struct job *job = &s->jobs.jobs[s->next_report];
        if (job->is_known)
            continue;
        s->n_done++;
        stop = s->options.each && ddl_comm_rank(s->options.comm) == 0 &&
               s->options.each(s->options.user, job->document,
                               s->scores + ddl_task_first_request(s->task, job->document));
    }
    if (stop || (s->options.progress && poll(s, 0, 0)))
        return ddl_error_set(err, DDL_E_INTERRUPTED, "interrupted");
    return DDL_OK;
}

/* A NaN is never the highest log-likelihood, and its token can have rank 0: accuracies of such scores would
 * look valid. */
static ddl_status check_finite(const struct scoring *s, const struct job *job, struct ddl_error *err)
{
    const struct ddl_task_score *scores = s->scores + ddl_task_first_request(s->task, job->document);
    for (size_t r = 0; r < job->n_inputs; r++) {
        if (!isfinite(scores[r].loglikelihood))
            return ddl_error_set(err, DDL_E_NUMERIC,
                                 "task %s: document %zu: a log-likelihood is not finite: the model's numbers "
                                 "are corrupted",
                                 ddl_task_title(s->task), job->document);
    }
    return DDL_OK;
}

/* The job is done if no branch of it is left. */
static ddl_status end_branch(struct scoring *s, struct job *job, struct ddl_error *err)
{
    if (job->n_branches > 0)
        return DDL_OK;
    ddl_status status = check_finite(s, job, err);
    if (status)
        return status;
    s->n_inputs -= job->n_inputs;
    s->n_open--;
    job->is_done = true;
    return report(s, err);
}

static ddl_status run_pass(struct scoring *s, struct ddl_error *err)
{
    size_t n = 0;
    ddl_status status = DDL_OK;
    take_branches(s);
    for (size_t i = 0; i < s->n_taken; i++) {
        if (s->taken[i].end > s->taken[i].at)
            s->inputs[n++] = input_of(s, &s->taken[i]);
    }
    if (n)
        status = ddl_session_prefill(s->session, s->inputs, n, err);
    for (size_t i = 0; i < s->n_taken && !status; i++) {
        take_scores(s, &s->taken[i]);
        status = split(s, &s->taken[i], err);
        if (!status)
            status = end_branch(s, s->taken[i].job, err);
    }
    return status;
}

static size_t block_end(const struct scoring *s, size_t first)
{
    size_t left = first < s->jobs.n ? s->jobs.n - first : 0;
    return first + (left < BLOCK ? left : BLOCK);
}

/* The jobs of the block that begins with job `first`. */
static ddl_status run_block(struct scoring *s, size_t first, struct ddl_error *err)
{
    ddl_status status = DDL_OK;
    s->next_job = first;
    s->end = block_end(s, first);
    s->n_open = 0;
    for (size_t i = first; i < s->end; i++)
        s->n_open += !s->jobs.jobs[i].is_known;
    skip_known(s);
    while (s->n_open > 0 && !status) {
        if (!s->session || (s->n_waiting == 0 && is_short(s, &s->jobs.jobs[s->next_job])))
            status = open_session(s, err);
        if (status)
            break;
        begin_jobs(s);
        status = run_pass(s, err);
    }
    close_session(s);
    return status;
}

/* ---- ranks ---- */

/* The scores of the blocks of all ranks, the first of which begins with job `first`. */
static ddl_status share_blocks(struct scoring *s, size_t first, struct ddl_error *err)
{
    ddl_comm *comm = s->options.comm;
    for (size_t r = 0; r < ddl_comm_size(comm); r++, first += BLOCK) {
        for (size_t i = first; i < block_end(s, first); i++) {
            struct job *job = &s->jobs.jobs[i];
            if (job->is_known)
                continue;
            ddl_comm_broadcast(comm, r, job->n_inputs * sizeof *s->scores,
                               s->scores + ddl_task_first_request(s->task, job->document));
            job->is_done = true;
        }
    }
    return report(s, err);
}

/* Rounds of one block for each rank. */
static ddl_status run_rounds(struct scoring *s, struct ddl_error *err)
{
    ddl_comm *comm = s->options.comm;
    size_t ranks = ddl_comm_size(comm);
    ddl_status status = DDL_OK;
    ddl_comm_describe(comm, "the scores of task %s", ddl_task_title(s->task));
    for (size_t first = 0; first < s->jobs.n && !status; first += ranks * BLOCK) {
        size_t own = first + ddl_comm_rank(comm) * BLOCK;
        if (own < s->jobs.n)
            status = run_block(s, own, err);
        status = ddl_comm_agree(comm, status, err);
        if (!status && comm)
            status = ddl_comm_agree(comm, share_blocks(s, first, err), err);
    }
    return status;
}

/* The jobs of the task; with several ranks what is done is that of rank 0, with its scores. */
static ddl_status prepare(struct scoring *s, const bool *done, struct ddl_error *err)
{
    const ddl_task *task = s->task;
    ddl_comm *comm = s->options.comm;
    size_t n = ddl_task_n_documents(task);
    bool *shared = comm ? calloc(n, sizeof *shared) : NULL;
    ddl_status status = DDL_OK;
    if (comm && !shared)
        status = ddl_error_set(err, DDL_E_MEMORY, "task %s: out of memory", ddl_task_title(task));
    status = ddl_comm_agree(comm, status, err);
    if (!status && comm) {
        if (done && ddl_comm_rank(comm) == 0)
            memcpy(shared, done, n * sizeof *shared);
        ddl_comm_broadcast(comm, 0, n * sizeof *shared, shared);
        ddl_comm_broadcast(comm, 0, ddl_task_n_requests(task) * sizeof *s->scores, s->scores);
    }
    if (!status) {
        status = jobs_init(&s->jobs, task, ddl_model_config(s->model), comm ? shared : done, err);
        status = ddl_comm_agree(comm, status, err);
    }
    free(shared);
    return status;
}

ddl_status ddl_task_score(const ddl_task *task, ddl_model *model, const bool *done,
                          const struct ddl_task_score_options *options, struct ddl_task_score *scores,
                          struct ddl_error *err)
{
    struct scoring s = { .task = task, .model = model, .scores = scores };
    struct ddl_error unused;
    err = err ? err : &unused;
    if (options)
        s.options = *options;
    ddl_status status = prepare(&s, done, err);
    if (!status)
        status = run_rounds(&s, err);
    if (status == DDL_E_INTERRUPTED)
        ddl_error_set(err, status, "task %s: interrupted after %zu of %zu documents", ddl_task_title(task),
                      s.n_done, s.jobs.n - s.jobs.n_known);
    jobs_free(&s.jobs);
    return status;
}
