/* From scores to what is reported. */
#include "ddl/tasks.h"

#include "infer/tasks/task.h"

#include <math.h>

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

size_t ddl_task_values(const ddl_task *task, const struct ddl_task_score *scores,
                       struct ddl_task_value *values)
{
    size_t n = 0;
    switch (task_metrics_of(task)) {
    case TASK_LAST_WORDS:
        values[n++] = mean_of(task, scores, "acc", greedy);
        values[n++] = mean_of(task, scores, "loss", loss);
        values[n] = values[n - 1];
        values[n].name = "perplexity";
        values[n].value = exp(values[n].value);
        values[n].error *= values[n].value; /* of the exponential, to first order */
        n++;
        break;
    case TASK_ACC_NORM:
        values[n++] = mean_of(task, scores, "acc", chosen);
        values[n++] = mean_of(task, scores, "acc_norm", chosen_by_character);
        break;
    case TASK_ACC:
        values[n++] = mean_of(task, scores, "acc", chosen);
        break;
    }
    return n;
}
