/* From scores to what is reported. */
#include "ddl/tasks.h"

#include "infer/tasks/task.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

size_t ddl_task_choice(const struct ddl_task_document *document, const struct ddl_task_score *scores,
                       bool normalized)
{
    size_t best = 0;
    double highest = -INFINITY;
    for (size_t i = 0; i < document->n_requests; i++) {
        double value = scores[i].loglikelihood;
        if (normalized)
            value /= (double)document->requests[i].characters;
        if (value > highest) {
            highest = value;
            best = i;
        }
    }
    return best;
}

/* One document's share of a value. */
typedef double measure_fn(const struct ddl_task_document *document, const struct ddl_task_score *scores);

static double chosen(const struct ddl_task_document *document, const struct ddl_task_score *scores)
{
    return ddl_task_choice(document, scores, false) == document->gold;
}

static double chosen_by_character(const struct ddl_task_document *document,
                                  const struct ddl_task_score *scores)
{
    return ddl_task_choice(document, scores, true) == document->gold;
}

static double greedy(const struct ddl_task_document *document, const struct ddl_task_score *scores)
{
    (void)document;
    return scores->is_greedy;
}

static double loss(const struct ddl_task_document *document, const struct ddl_task_score *scores)
{
    (void)document;
    return -scores->loglikelihood;
}

/* The mean over documents, and its standard error sqrt(sum (x - mean)^2 / (n - 1)) / sqrt(n). */
static struct ddl_task_value mean_of(const ddl_task *task, const struct ddl_task_score *scores,
                                     const char *name, measure_fn *measure)
{
    size_t n = ddl_task_n_documents(task);
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n; i++)
        sum += measure(ddl_task_document(task, i), scores + ddl_task_first_request(task, i));
    double mean = sum / (double)n;
    for (size_t i = 0; i < n; i++) {
        double x = measure(ddl_task_document(task, i), scores + ddl_task_first_request(task, i)) - mean;
        squares += x * x;
    }
    double error = n > 1 ? sqrt(squares / (double)(n - 1)) / sqrt((double)n) : NAN;
    return (struct ddl_task_value){ name, mean, error };
}

struct ddl_task_result ddl_task_summarize(const ddl_task *task, const struct ddl_task_score *scores)
{
    struct ddl_task_result out = { .n_documents = ddl_task_n_documents(task),
                                   .n_available = ddl_task_n_available(task) };
    struct ddl_task_value *values = out.values;
    snprintf(out.task, sizeof out.task, "%s", ddl_task_title(task));
    switch (task_metrics_of(task)) {
    case TASK_LAST_WORDS:
        values[0] = mean_of(task, scores, "acc", greedy);
        values[1] = mean_of(task, scores, "loss", loss);
        values[2] = values[1];
        values[2].name = "perplexity";
        values[2].value = exp(values[1].value);
        values[2].error *= values[2].value; /* of the exponential, to first order */
        out.n_values = 3;
        break;
    case TASK_ACC_NORM:
        values[0] = mean_of(task, scores, "acc", chosen);
        values[1] = mean_of(task, scores, "acc_norm", chosen_by_character);
        out.n_values = 2;
        break;
    case TASK_ACC:
        values[0] = mean_of(task, scores, "acc", chosen);
        out.n_values = 1;
        break;
    }
    return out;
}

const struct ddl_task_value *ddl_task_main_value(const struct ddl_task_result *result)
{
    for (size_t i = 0; i < result->n_values; i++) {
        if (strcmp(result->values[i].name, "acc_norm") == 0)
            return &result->values[i];
    }
    return &result->values[0];
}

void ddl_task_write_json(struct ddl_json *json, const struct ddl_task_result *result, int digits)
{
    ddl_json_open(json, result->task, '{');
    ddl_json_count(json, "documents", result->n_documents);
    for (size_t i = 0; i < result->n_values; i++) {
        const struct ddl_task_value *value = &result->values[i];
        char key[32];
        snprintf(key, sizeof key, "%s_stderr", value->name);
        ddl_json_number(json, value->name, value->value, digits);
        ddl_json_number(json, key, value->error, digits);
    }
    ddl_json_close(json, '}');
}
