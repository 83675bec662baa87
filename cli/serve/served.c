#define _POSIX_C_SOURCE 200809L
#include "cli/serve/served.h"

#include "cli/output/terminal.h"
#include "cli/serve/answers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Seconds after which a silent stream gets a comment. */
enum { SILENCE = 10 };

/* ---- creation ---- */

static ddl_status load(struct served *s, const struct folder_request *request, struct ddl_error *err)
{
    const struct served_options *options = &s->options;
    ddl_status status = folder_open(&s->folder, request, err);
    if (!status)
        status = chat_template_load(&s->chat, s->folder.found.path, err);
    if (status)
        return status;
    size_t context = ddl_model_config(s->folder.model)->block_size;
    if (options->context > context)
        return ddl_error_set(err, DDL_E_USAGE,
                             "--context: %s: expected at most the model's context, %zu, found %zu", s->name,
                             context, options->context);
    s->options.context = options->context ? options->context : context;
    s->engine_options = (struct ddl_engine_options){ .slots = options->slots,
                                                     .cached = options->cached,
                                                     .tokens = s->options.context,
                                                     .form = (enum ddl_cache_form)options->form };
    return ddl_engine_create(&s->engine, s->folder.model, s->folder.tokenizer, &s->engine_options, err);
}

struct loading {
    struct served *served;
    const struct folder_request *request;
    struct ddl_error *err;
    ddl_status status;
};

static void *load_in_thread(void *user)
{
    struct loading *l = user;
    l->status = load(l->served, l->request, l->err);
    return NULL;
}

/* Loads in a thread of its own, with which its OpenMP threads end. They would be idle, but libgomp counts
 * them: with those of the engine they are more than the cores, and then its threads sleep after each loop
 * instead of waiting for the next. */
ddl_status served_open(struct served *s, const char *name, const struct folder_request *request,
                       const struct served_options *options, struct ddl_error *err)
{
    struct loading loading = { .served = s, .request = request, .err = err };
    pthread_t thread;
    snprintf(s->name, sizeof s->name, "%s", name);
    s->options = *options;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    if (pthread_create(&thread, NULL, load_in_thread, &loading))
        return ddl_error_set(err, DDL_E_MEMORY, "%s: no thread to load the model", name);
    pthread_join(thread, NULL);
    return loading.status;
}

void served_close(struct served *s)
{
    if (!*s->name)
        return;
    ddl_engine_free(s->engine);
    chat_template_free(&s->chat);
    folder_close(&s->folder);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
}

size_t served_engine_bytes(const struct served *s)
{
    return ddl_engine_bytes(ddl_model_config(s->folder.model), ddl_model_precision(s->folder.model),
                            &s->engine_options, s->folder.backend);
}

size_t served_weight_bytes(const struct served *s)
{
    const ddl_model *model = s->folder.model;
    return ddl_config_weight_bytes(ddl_model_config(model), ddl_model_precision(model), s->folder.backend);
}

/* ---- the list of jobs; the lock is held ---- */

bool served_submit(struct served *s, struct job *job, struct api_error *e)
{
    bool ok = true;
    pthread_mutex_lock(&s->lock);
    if (*s->failed || s->stopping) {
        ok = api_fail(e, 503, NULL, NULL,
                      *s->failed ? "the engine has failed: %s" : "the server is stopping%s", s->failed);
    } else if (s->n_waiting >= s->options.queue + s->n_free) { /* n_free of them wait only for a pass */
        s->metrics.refused++;
        ok = api_fail(e, 429, "queue_full", NULL, "%zu requests wait already: try again later", s->n_waiting);
    } else {
        job->start = job->spoke = monotonic_seconds();
        job->deadline = s->options.seconds > 0 ? job->start + s->options.seconds : 0;
        *(s->last ? &s->last->after : &s->first) = job;
        s->last = job;
        s->n_jobs++;
        s->n_waiting++;
        s->metrics.requests++;
        pthread_cond_signal(&s->changed);
    }
    pthread_mutex_unlock(&s->lock);
    return ok;
}

static void unlink_job(struct served *s, struct job *job)
{
    struct job *before = NULL;
    for (struct job *at = s->first; at != job; at = at->after)
        before = at;
    *(before ? &before->after : &s->first) = job->after;
    s->last = s->last == job ? before : s->last;
    s->n_jobs--;
    s->n_waiting -= job->next == 0;
}

bool served_keep(struct served *s, struct job *job, bool has_left)
{
    static const char comment[] = ": waiting\n\n";
    pthread_mutex_lock(&s->lock);
    bool runs = !job->finished;
    if (runs && has_left && job->end == JOB_RUNS) {
        job->end = JOB_CANCELLED;
        pthread_cond_signal(&s->changed);
    } else if (runs && job->request.stream && monotonic_seconds() - job->spoke > SILENCE) {
        job->spoke = monotonic_seconds();
        if (buffer_add(&job->answer, comment, sizeof comment - 1))
            job->wake(job->user);
    }
    bool waits = runs && job->answer.n == 0;
    pthread_mutex_unlock(&s->lock);
    return waits;
}

void served_release(struct served *s, struct job *job)
{
    pthread_mutex_lock(&s->lock);
    bool listed = !job->finished;
    job->released = true;
    if (listed && job->end == JOB_RUNS) {
        job->end = JOB_CANCELLED;
        pthread_cond_signal(&s->changed);
    }
    pthread_mutex_unlock(&s->lock);
    if (!listed)
        job_free(job);
}

/* ---- the engine's thread; only it uses the engine and the choices ---- */

/* Writes the answer of a job, which may be long, without the lock. Only this thread removes jobs. */
static bool write_answer(struct served *s, struct job *job)
{
    struct buffer answer = { 0 };
    pthread_mutex_unlock(&s->lock);
    bool ok = answer_write(job, &answer);
    pthread_mutex_lock(&s->lock);
    job->answer = answer;
    return ok;
}

/* Ends a job: its answer is completed, and its connection is woken. The lock is held. */
static void end_job(struct served *s, struct job *job)
{
    bool ok = true;
    if (job->end == JOB_RUNS)
        job->end = JOB_COMPLETE;
    s->metrics.cancelled += job->end == JOB_CANCELLED;
    s->metrics.timed_out += job->end == JOB_TIMED_OUT;
    if (job->end == JOB_TIMED_OUT)
        api_fail(&job->error, 504, "timeout", NULL,
                 "the request took longer than the time limit of %g seconds", s->options.seconds);
    else if (job->end == JOB_CANCELLED)
        api_fail(&job->error, 503, "cancelled", NULL, "the request was cancelled");
    if (job->request.stream)
        ok = answer_stream_end(job, &job->answer);
    else if (!job->error.status)
        ok = write_answer(s, job);
    if (!ok && !job->error.status)
        api_fail(&job->error, 503, NULL, NULL, "out of memory for the answer");
    if (job->end != JOB_CANCELLED)
        s->metrics.failed += job->error.status == 500 || job->error.status == 503;
    for (size_t i = 0; i < job->n_choices; i++) {
        ddl_generation_free(job->choices[i].generation);
        job->choices[i].generation = NULL;
    }
    unlink_job(s, job);
    job->finished = true;
    if (job->released)
        job_free(job);
    else
        job->wake(job->user);
}

static void count_free(struct served *s)
{
    s->n_free = s->options.slots - ddl_engine_running(s->engine);
}

/* Adds the next choices of the jobs to the engine, in the order of arrival. The lock is held; taking a slot
 * copies at most the keys and values of one. */
static void begin_choices(struct served *s)
{
    for (struct job *job = s->first; job; job = job->after) {
        while (job->end == JOB_RUNS && job->next < job->n_choices) {
            struct choice *c = &job->choices[job->next];
            struct ddl_engine_request request;
            struct ddl_sampling sampling;
            struct ddl_generation_state state;
            struct ddl_error err = { 0 };
            if (ddl_engine_running(s->engine) == s->options.slots)
                return;
            s->n_waiting -= job->next == 0;
            job->next++;
            job_begin_choice(c, &request, &sampling);
            if (ddl_engine_add(s->engine, &request, &c->generation, &err)) {
                job->end = JOB_FAILED;
                api_fail_with(&job->error, NULL, &err);
                break;
            }
            ddl_generation_get(c->generation, &state);
            c->reused = state.reused;
            s->metrics.reused_tokens += state.reused;
        }
    }
}

/* Records the end of a choice. */
static void end_choice(struct served *s, struct choice *c, const struct ddl_generation_state *state)
{
    struct job *job = c->job;
    const struct ddl_error *err = ddl_generation_error(c->generation);
    size_t chosen, bytes;
    c->ended = true;
    c->finish = state->finish;
    job->ended++;
    ddl_generation_ids(c->generation, &chosen);
    size_t kept = c->n_tokens;
    if (kept && chosen > state->tokens) /* <|endoftext|> or a stop id is no part of the text */
        kept--;
    else if (c->finish == DDL_FINISH_STOP) /* nor is a stop text */
        kept = job_begun_tokens(c, &bytes);
    while (c->n_tokens > kept)
        free(c->tokens[--c->n_tokens].top);
    if (c->first_token > 0)
        histogram_add(&s->metrics.first_token, c->first_token - job->start);
    if (c->new_tokens > 1)
        histogram_add(&s->metrics.per_token, (c->last_token - c->first_token) / (double)(c->new_tokens - 1));
    if (err) {
        job->end = JOB_FAILED;
        api_fail_with(&job->error, NULL, err);
    }
    if (c->no_memory && job->end == JOB_RUNS) {
        job->end = JOB_FAILED;
        api_fail(&job->error, 503, NULL, NULL, "out of memory for the answer");
    }
    ddl_generation_free(c->generation);
    c->generation = NULL;
}

/* When the first and the last token came. */
static void note_tokens(struct choice *c, size_t tokens)
{
    if (tokens > c->new_tokens) {
        c->last_token = monotonic_seconds();
        c->first_token = c->new_tokens ? c->first_token : c->last_token;
    }
    c->new_tokens = tokens;
}

/* What a pass has added to a job. */
static void collect(struct served *s, struct job *job)
{
    size_t before = job->answer.n;
    for (size_t i = 0; i < job->next; i++) {
        struct choice *c = &job->choices[i];
        struct ddl_generation_state state;
        if (!c->generation || c->ended)
            continue;
        ddl_generation_get(c->generation, &state);
        note_tokens(c, state.tokens);
        if (state.finish >= 0)
            end_choice(s, c, &state);
        if (job->request.stream && job->end == JOB_RUNS && !answer_stream_choice(c, &job->answer)) {
            job->end = JOB_FAILED;
            api_fail(&job->error, 503, NULL, NULL, "out of memory for the answer");
        }
    }
    /* How many numbers a token has is known only when a sublayer was computed. */
    if (!job->request.stream && job->n_traced > MAX_NUMBERS && job->end == JOB_RUNS) {
        job->end = JOB_FAILED;
        api_fail(&job->error, 400, NULL, "ddl",
                 "ddl: expected at most %d numbers in an answer: stream it, or lower max_tokens",
                 MAX_NUMBERS);
    }
    if (job->answer.n > before && !job->released) {
        job->spoke = monotonic_seconds();
        job->wake(job->user);
    }
}

/* Ends jobs that are complete, cancelled or late. */
static void end_jobs(struct served *s)
{
    double time = monotonic_seconds();
    for (struct job *job = s->first, *after; job; job = after) {
        after = job->after;
        if (job->end == JOB_RUNS && job->deadline > 0 && time > job->deadline)
            job->end = JOB_TIMED_OUT;
        if (job->end != JOB_RUNS || job->ended == job->n_choices)
            end_job(s, job);
    }
}

static void count_pass(struct served *s, const struct ddl_engine_progress *progress, double seconds,
                       size_t busy)
{
    s->metrics.passes++;
    s->metrics.busy_slots += busy;
    s->metrics.prompt_tokens += progress->prompt_tokens;
    s->metrics.new_tokens += progress->new_tokens;
    *(progress->prompt_tokens ? &s->metrics.prompt_seconds : &s->metrics.decode_seconds) += seconds;
}

/* One pass, without the lock. */
static void pass(struct served *s)
{
    struct ddl_engine_progress progress = { 0 };
    struct ddl_error err = { 0 };
    size_t busy = ddl_engine_running(s->engine);
    pthread_mutex_unlock(&s->lock);
    double start = monotonic_seconds();
    ddl_status status = ddl_engine_pass(s->engine, &progress, &err);
    double seconds = monotonic_seconds() - start;
    pthread_mutex_lock(&s->lock);
    count_free(s);
    count_pass(s, &progress, seconds, busy);
    for (struct job *job = s->first; job; job = job->after)
        collect(s, job);
    if (!status)
        return;
    if (status != DDL_E_MEMORY) /* keys and values are lost */
        snprintf(s->failed, sizeof s->failed, "%s", err.text);
    for (struct job *job = s->first; job; job = job->after) {
        if (job->end == JOB_RUNS) {
            job->end = JOB_FAILED;
            api_fail_with(&job->error, NULL, &err);
        }
    }
}

static void *run(void *user)
{
    struct served *s = user;
    pthread_mutex_lock(&s->lock);
    while (!s->stopping || s->first) {
        for (struct job *job = s->first; s->stopping && job; job = job->after)
            job->end = job->end == JOB_RUNS ? JOB_CANCELLED : job->end;
        end_jobs(s);
        begin_choices(s);
        count_free(s);
        if (ddl_engine_running(s->engine))
            pass(s);
        else if (!s->first && !s->stopping)
            pthread_cond_wait(&s->changed, &s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

ddl_status served_start(struct served *s, struct ddl_error *err)
{
    count_free(s);
    if (pthread_create(&s->thread, NULL, run, s))
        return ddl_error_set(err, DDL_E_MEMORY, "%s: no thread for the engine", s->name);
    s->has_thread = true;
    return DDL_OK;
}

void served_stop(struct served *s)
{
    if (!s->has_thread)
        return;
    pthread_mutex_lock(&s->lock);
    s->stopping = true;
    pthread_cond_signal(&s->changed);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    s->has_thread = false;
}
