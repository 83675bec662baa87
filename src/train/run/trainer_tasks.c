/* Evaluation on downstream tasks during a run. */
#include "train/run/trainer.h"

#include <stdlib.h>

ddl_status trainer_tasks_open(struct run *run, struct ddl_error *err)
{
    const struct ddl_train_config *t = &run->config;
    struct ddl_task_config config = ddl_task_defaults();
    snprintf(config.data, sizeof config.data, "%s", t->tasks_data);
    config.shots = t->tasks_shots;
    config.limit = t->tasks_limit;
    ddl_status status = ddl_task_list_load(&run->tasks, t->tasks, &config, run->tokenizer, err);
    if (!status && *run->tasks.skipped) {
        struct ddl_error message;
        ddl_error_set(&message, DDL_OK, "tasks left out:\n%.900s", run->tasks.skipped);
        trainer_note(run, message.text);
    }
    for (size_t i = 0; i < run->tasks.n && !status; i++)
        status = ddl_task_check(run->tasks.tasks[i], &t->config, err);
    if (status)
        return status;
    run->task_results = calloc(run->tasks.n, sizeof *run->task_results);
    return run->task_results ? DDL_OK : ddl_error_set(err, DDL_E_MEMORY, "tasks: out of memory");
}

void trainer_tasks_close(struct run *run)
{
    ddl_task_list_free(&run->tasks);
    free(run->task_results);
}

double trainer_tasks_tokens(const struct run *run)
{
    double n = 0;
    for (size_t i = 0; i < run->tasks.n; i++) {
        const ddl_task *task = run->tasks.tasks[i];
        for (size_t d = 0; d < ddl_task_n_documents(task); d++) {
            const struct ddl_task_document *document = ddl_task_document(task, d);
            for (size_t r = 0; r < document->n_requests; r++)
                n += (double)(document->requests[r].n_context + document->requests[r].n_tokens);
        }
    }
    return n;
}

/* Documents of all tasks. */
struct scoring {
    struct run *run;
    uint64_t before, total; /* of the tasks that are complete; of all */
};

static int show_progress(void *user, uint64_t done, uint64_t total)
{
    const struct scoring *s = user;
    const struct ddl_train_callbacks *c = s->run->callbacks;
    (void)total;
    ddl_comm_still_working(s->run->config.comm);
    return c->tasks ? c->tasks(c->user, &s->run->progress, s->before + done, s->total) : 0;
}

static ddl_status score(struct scoring *s, const ddl_task *task, struct ddl_task_result *out,
                        struct ddl_error *err)
{
    const struct ddl_task_score_options options = { .progress = show_progress, .user = s };
    struct ddl_task_score *scores = calloc(ddl_task_n_requests(task), sizeof *scores);
    if (!scores)
        return ddl_error_set(err, DDL_E_MEMORY, "task %s: out of memory", ddl_task_title(task));
    ddl_status status = ddl_task_score(task, s->run->model, NULL, &options, scores, err);
    if (!status)
        *out = ddl_task_summarize(task, scores);
    s->before += ddl_task_n_documents(task);
    free(scores);
    return status;
}

ddl_status trainer_tasks_score(struct run *run, struct ddl_error *err)
{
    const struct ddl_task_list *list = &run->tasks;
    struct scoring s = { .run = run };
    ddl_status status = DDL_OK;
    for (size_t i = 0; i < list->n; i++)
        s.total += ddl_task_n_documents(list->tasks[i]);
    for (size_t i = 0; i < list->n && !status; i++)
        status = score(&s, list->tasks[i], &run->task_results[i], err);
    if (status)
        return status;
    run->progress.n_tasks = list->n;
    run->progress.tasks = run->task_results;
    return DDL_OK;
}
