/* Cases of downstream tasks: results.json and <task>-<K>shot.jsonl, the requests of lm-evaluation-harness
 * with their log-likelihoods; edges.jsonl, single requests; draws.jsonl, draws of examples. The model is in
 * the folder `model` beside or above, the tasks' files in the folder `data` beside or in `tasks` below
 * --data. */
#include "verify/internal.h"

#include "base/file.h"
#include "base/json.h"
#include "ddl/tasks.h"
#include "ddl/tokenizer.h"
#include "infer/tasks/random.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIMIT_LOGLIKELIHOOD 1e-4 /* absolute, against float64 */
#define LIMIT_PER_TOKEN 1e-6     /* and by token, for long continuations */
#define LIMIT_VALUES 1e-12       /* relative: the order of summation */

enum { FILE_LIMIT = 256 << 20, MAX_PATH = 2048, MAX_DRAWN = 4096 };

struct tasks_case {
    struct context *c;
    ddl_tokenizer *tokenizer;
    ddl_model *model;
    char data[MAX_PATH];
};

/* ---- lines ---- */

typedef ddl_status line_fn(struct tasks_case *t, const json_t *line, size_t i, const char *where, void *user,
                           struct ddl_error *err);

/* Calls fn for every line of the file `name` of the case, an object each. */
static ddl_status each_line(struct tasks_case *t, const char *name, line_fn *fn, void *user,
                            struct ddl_error *err)
{
    char path[MAX_PATH], where[128], *text;
    size_t size, i = 0;
    if (!ddl_path_join(path, sizeof path, t->c->path, name))
        return ddl_error_set(err, DDL_E_USAGE, "%s: path is too long", t->c->path);
    ddl_status status = ddl_file_read(path, FILE_LIMIT, &text, &size, err);
    if (status)
        return status;
    for (size_t at = 0, n; at < size && !status; at += n + 1, i++) {
        const char *feed = memchr(text + at, '\n', size - at);
        json_error_t why;
        json_t *line = NULL;
        n = feed ? (size_t)(feed - text) - at : size - at;
        status = ddl_json_parse(&line, text + at, n, JSON_ALLOW_NUL, &why);
        if (status)
            ddl_error_set(err, status, "%s:%zu: %s", path, i + 1, why.text);
        snprintf(where, sizeof where, "%.64s:%zu", name, i + 1);
        if (!status)
            status = fn(t, line, i, where, user, err);
        json_decref(line);
    }
    free(text);
    return status;
}

static size_t count(const json_t *object, const char *key)
{
    return (size_t)json_integer_value(json_object_get(object, key));
}

static double number(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

static struct ddl_task_text text_of(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    const char *data = json_string_value(value);
    return (struct ddl_task_text){ data ? data : "", json_string_length(value) };
}

static bool equal(struct ddl_task_text a, struct ddl_task_text b)
{
    return a.size == b.size && memcmp(a.data, b.data, a.size) == 0;
}

static void check_score(struct tasks_case *t, const char *where, const json_t *expected, size_t n_tokens,
                        const struct ddl_task_score *found)
{
    double limit = LIMIT_LOGLIKELIHOOD + LIMIT_PER_TOKEN * (double)n_tokens;
    double error = fabs(found->loglikelihood - number(expected, "loglikelihood_f64"));
    measure(t->c, "loglikelihood", 1, where, error / limit);
    bool greedy = json_is_true(json_object_get(expected, "is_greedy"));
    measure(t->c, "greedy", 0, where, greedy == found->is_greedy ? 0 : 1);
}

/* ---- documents of a task ---- */

struct task_run {
    const ddl_task *task;
    struct ddl_task_score *scores;
    size_t lines; /* read so far */
};

/* null, one index, or a list. */
static bool same_examples(const json_t *expected, const struct ddl_task_document *document)
{
    size_t n = json_is_array(expected) ? json_array_size(expected) : json_is_integer(expected);
    for (size_t i = 0; i < n && n == document->n_examples; i++) {
        const json_t *index = json_is_array(expected) ? json_array_get(expected, i) : expected;
        if ((size_t)json_integer_value(index) != document->examples[i])
            return false;
    }
    return n == document->n_examples;
}

static void check_choice(struct tasks_case *t, const char *where, const json_t *line, const char *key,
                         const struct ddl_task_document *document, const struct ddl_task_score *scores,
                         bool normalized)
{
    if (!json_object_get(line, key))
        return;
    double found = ddl_task_choice(document, scores, normalized) == document->gold;
    measure(t->c, key, 0, where, fabs(found - number(line, key)));
}

static ddl_status check_document(struct tasks_case *t, const json_t *line, size_t i, const char *where,
                                 void *user, struct ddl_error *err)
{
    struct task_run *run = user;
    const json_t *requests = json_object_get(line, "requests");
    if (i >= ddl_task_n_documents(run->task))
        return ddl_error_set(err, DDL_E_FORMAT, "%s: expected %zu documents, found more", where,
                             ddl_task_n_documents(run->task));
    const struct ddl_task_document *document = ddl_task_document(run->task, i);
    run->lines = i + 1;
    const struct ddl_task_score *scores = run->scores + ddl_task_first_request(run->task, i);
    bool same = count(line, "gold") == document->gold && json_array_size(requests) == document->n_requests &&
                same_examples(json_object_get(line, "fewshot_source"), document);
    measure(t->c, "documents", 0, where, same ? 0 : 1);
    for (size_t r = 0; r < document->n_requests && same; r++) {
        const struct ddl_task_request *found = &document->requests[r];
        const json_t *expected = json_array_get(requests, r);
        bool texts = equal(text_of(expected, "context"), found->context) &&
                     equal(text_of(expected, "continuation"), found->continuation);
        bool tokens = count(expected, "n_context_tokens") == found->n_context &&
                      count(expected, "n_tokens") == found->n_tokens;
        measure(t->c, "texts", 0, where, texts ? 0 : 1);
        measure(t->c, "tokens", 0, where, tokens ? 0 : 1);
        check_score(t, where, expected, found->n_tokens, &scores[r]);
    }
    check_choice(t, where, line, "acc", document, scores, false);
    check_choice(t, where, line, "acc_norm", document, scores, true);
    return DDL_OK;
}

/* acc, acc_stderr, acc_norm, acc_norm_stderr of the run. */
static void check_values(struct tasks_case *t, const json_t *run, const char *file,
                         const struct task_run *found)
{
    const struct ddl_task_result result = ddl_task_summarize(found->task, found->scores);
    const struct ddl_task_value *values = result.values;
    for (size_t i = 0; i < result.n_values; i++) {
        char key[32];
        snprintf(key, sizeof key, "%s_stderr", values[i].name);
        double expected = number(run, values[i].name), error = number(run, key);
        measure(t->c, "values", LIMIT_VALUES, file,
                fabs(values[i].value - expected) / fmax(fabs(expected), 1));
        measure(t->c, "values", LIMIT_VALUES, file, fabs(values[i].error - error) / fmax(fabs(error), 1));
    }
}

static ddl_status check_run(struct tasks_case *t, const char *name, const json_t *run, struct ddl_error *err)
{
    struct ddl_task_config config = ddl_task_defaults();
    const char *file = json_string_value(json_object_get(run, "file"));
    const json_t *seed = json_object_get(run, "fewshot_seed");
    struct task_run found = { 0 };
    ddl_task *task;
    if (!file)
        return ddl_error_set(err, DDL_E_FORMAT, "%s/results.json: %s: a run without file", t->c->path, name);
    snprintf(config.data, sizeof config.data, "%.1000s", t->data);
    config.shots = count(run, "num_fewshot");
    config.limit = count(run, "documents");
    config.any_revision = true;
    if (json_is_integer(seed))
        config.seed = (uint64_t)json_integer_value(seed);
    ddl_status status = ddl_task_load(&task, name, &config, t->tokenizer, err);
    if (status)
        return status;
    found.task = task;
    found.scores = pool_take(&t->c->pool, ddl_task_n_requests(task), sizeof *found.scores);
    if (!found.scores)
        status = ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory", t->c->path);
    if (!status)
        status = ddl_task_score(task, t->model, NULL, NULL, found.scores, err);
    if (!status)
        status = each_line(t, file, check_document, &found, err);
    if (!status && found.lines < ddl_task_n_documents(task))
        status = ddl_error_set(err, DDL_E_FORMAT, "%s/%s: expected %zu documents, found %zu", t->c->path,
                               file, ddl_task_n_documents(task), found.lines);
    if (!status)
        check_values(t, run, file, &found);
    ddl_task_free(task);
    return status;
}

static ddl_status check_results(struct tasks_case *t, struct ddl_error *err)
{
    char path[MAX_PATH];
    json_t *results, *task;
    const char *name;
    if (!ddl_path_join(path, sizeof path, t->c->path, "results.json"))
        return ddl_error_set(err, DDL_E_USAGE, "%s: path is too long", t->c->path);
    ddl_status status = ddl_json_read(&results, path, FILE_LIMIT, err);
    if (status)
        return status;
    if (!json_is_object(json_object_get(results, "tasks")))
        status = ddl_error_set(err, DDL_E_FORMAT, "%s: tasks is missing or not an object", path);
    json_object_foreach(json_object_get(results, "tasks"), name, task)
    {
        const json_t *runs = json_object_get(task, "runs");
        for (size_t i = 0; i < json_array_size(runs) && !status; i++)
            status = check_run(t, name, json_array_get(runs, i), err);
    }
    json_decref(results);
    return status;
}

/* ---- single requests ---- */

static bool same_ids(const json_t *expected, const int32_t *found, size_t n)
{
    for (size_t i = 0; i < n && json_array_size(expected) == n; i++) {
        if (json_integer_value(json_array_get(expected, i)) != found[i])
            return false;
    }
    return json_array_size(expected) == n;
}

static void check_request(struct tasks_case *t, const json_t *line, const char *where, const ddl_task *task,
                          const struct ddl_task_score *score)
{
    const struct ddl_task_request *found = ddl_task_document(task, 0)->requests;
    size_t n = found->n_context + found->n_tokens, most = ddl_model_config(t->model)->block_size + 1;
    size_t cut = n > most ? n - most : 0; /* the case has the tokens that fit */
    bool context =
        same_ids(json_object_get(line, "context_tokens"), found->tokens + cut, found->n_context - cut);
    bool continuation = same_ids(json_object_get(line, "continuation_tokens"),
                                 found->tokens + found->n_context, found->n_tokens);
    measure(t->c, "tokens", 0, where, context && continuation ? 0 : 1);
    check_score(t, where, line, found->n_tokens, score);
}

/* A request that the harness refuses must end with DDL_E_FORMAT, and no other request may. */
static ddl_status check_edge(struct tasks_case *t, const json_t *line, size_t i, const char *where,
                             void *user, struct ddl_error *err)
{
    struct ddl_task_text context = text_of(line, "context"), continuation = text_of(line, "continuation");
    struct ddl_task_score score = { 0 };
    ddl_task *task = NULL;
    (void)i;
    (void)user;
    ddl_status status = ddl_task_from_texts(&task, where, 1, &context, &continuation, t->tokenizer, err);
    if (!status)
        status = ddl_task_score(task, t->model, NULL, NULL, &score, err);
    if (json_object_get(line, "error")) {
        measure(t->c, "refused", 0, where, status == DDL_E_FORMAT ? 0 : 1);
        status = status == DDL_E_FORMAT ? DDL_OK : status;
    } else if (!status) {
        check_request(t, line, where, task, &score);
    }
    ddl_task_free(task);
    return status;
}

/* ---- draws ---- */

static ddl_status check_draws(struct tasks_case *t, const json_t *line, size_t i, const char *where,
                              void *user, struct ddl_error *err)
{
    size_t k = count(line, "k"), pool = count(line, "pool_size"), drawn[MAX_DRAWN];
    const json_t *draws = json_object_get(line, "draws");
    struct task_random random;
    (void)i;
    (void)user;
    if (k > MAX_DRAWN || k > pool)
        return ddl_error_set(err, DDL_E_FORMAT, "%s: k: expected at most %d and pool_size, found %zu", where,
                             MAX_DRAWN, k);
    task_random_seed(&random, (uint64_t)json_integer_value(json_object_get(line, "seed")));
    for (size_t d = 0; d < json_array_size(draws); d++) {
        const json_t *expected = json_array_get(draws, d);
        ddl_status status = task_random_sample(&random, pool, k, drawn, err);
        if (status)
            return status;
        bool same = json_array_size(expected) == k;
        for (size_t j = 0; j < k && same; j++)
            same = (size_t)json_integer_value(json_array_get(expected, j)) == drawn[j];
        measure(t->c, "draws", 0, where, same ? 0 : 1);
    }
    return DDL_OK;
}

/* ---- a folder ---- */

static bool exists(const char *folder, const char *name, char *out)
{
    return ddl_path_join(out, MAX_PATH, folder, name) && ddl_file_exists(out);
}

/* Whether model, data and tokenizer are there; else the case is skipped with what is missing. */
static bool find_parts(struct tasks_case *t, char *model)
{
    const struct context *c = t->c;
    const char *missing = NULL;
    char path[MAX_PATH];
    if (!exists(c->path, "model", model) && !exists(c->path, "../model", model))
        missing = "skipped: no folder model in its folder or one level above";
    else if (!exists(c->path, "data", t->data) &&
             !(*c->config->data && exists(c->config->data, "tasks", t->data)))
        missing = "skipped: the tasks' files are neither in its folder data nor in tasks below --data";
    else if (!*c->config->tokenizer)
        missing = "skipped: no tokenizer";
    else if (!exists(c->path, "results.json", path))
        missing = "skipped: no results.json";
    if (!missing)
        return true;
    c->result->outcome = DDL_VERIFY_SKIP;
    snprintf(c->result->message, sizeof c->result->message, "%s", missing);
    return false;
}

ddl_status check_tasks(struct context *c, struct ddl_error *err)
{
    struct tasks_case t = { .c = c };
    char path[MAX_PATH];
    if (!find_parts(&t, path))
        return DDL_OK;
    ddl_status status = ddl_tokenizer_load(&t.tokenizer, c->config->tokenizer, err);
    if (!status)
        status = ddl_model_load(&t.model, path, c->backend, NULL, NULL, err);
    if (!status)
        status = check_results(&t, err);
    if (!status && exists(c->path, "edges.jsonl", path))
        status = each_line(&t, "edges.jsonl", check_edge, NULL, err);
    if (!status && exists(c->path, "draws.jsonl", path))
        status = each_line(&t, "draws.jsonl", check_draws, NULL, err);
    ddl_model_free(t.model);
    ddl_tokenizer_free(t.tokenizer);
    return status;
}
