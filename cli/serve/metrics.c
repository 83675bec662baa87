#include "cli/serve/metrics.h"

#include <stdbool.h>
#include <stddef.h>

static const double bounds[BUCKETS] = { .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 60 };

void histogram_add(struct histogram *h, double seconds)
{
    size_t i = 0;
    while (i < BUCKETS && seconds > bounds[i])
        i++;
    h->counts[i]++;
    h->sum += seconds;
}

/* A number of struct metrics_of. llama-server's names, where it has the same. */
struct row {
    const char *name, *type, *help;
    double (*value)(const struct metrics_of *m);
};

static double ratio(double a, double b)
{
    return b > 0 ? a / b : 0;
}

#define VALUE(name, expression)                                                                              \
    static double name(const struct metrics_of *m)                                                           \
    {                                                                                                        \
        return (double)(expression);                                                                         \
    }
VALUE(prompt_tokens, m->values.prompt_tokens)
VALUE(prompt_seconds, m->values.prompt_seconds)
VALUE(new_tokens, m->values.new_tokens)
VALUE(decode_seconds, m->values.decode_seconds)
VALUE(prompt_rate, ratio((double)m->values.prompt_tokens, m->values.prompt_seconds))
VALUE(decode_rate, ratio((double)m->values.new_tokens, m->values.decode_seconds))
VALUE(running, m->running)
VALUE(waiting, m->waiting)
VALUE(passes, m->values.passes)
VALUE(busy, ratio((double)m->values.busy_slots, (double)m->values.passes))
VALUE(reused_tokens, m->values.reused_tokens)
VALUE(requests, m->values.requests)
VALUE(failed, m->values.failed)
VALUE(cancelled, m->values.cancelled)
VALUE(timed_out, m->values.timed_out)
VALUE(refused, m->values.refused)

static const struct row rows[] = {
    { "llamacpp:prompt_tokens_total", "counter", "Prompt tokens computed", prompt_tokens },
    { "llamacpp:prompt_seconds_total", "counter", "Time of passes with prompt tokens", prompt_seconds },
    { "llamacpp:tokens_predicted_total", "counter", "Tokens generated", new_tokens },
    { "llamacpp:tokens_predicted_seconds_total", "counter", "Time of passes without prompt tokens",
      decode_seconds },
    { "llamacpp:prompt_tokens_seconds", "gauge", "Prompt tokens per second", prompt_rate },
    { "llamacpp:predicted_tokens_seconds", "gauge", "Generated tokens per second", decode_rate },
    { "llamacpp:requests_processing", "gauge", "Requests that are computed", running },
    { "llamacpp:requests_deferred", "gauge", "Requests that wait", waiting },
    { "llamacpp:n_decode_total", "counter", "Passes of the engine", passes },
    { "llamacpp:n_busy_slots_per_decode", "gauge", "Texts in a pass, on average", busy },
    { "ddl:prompt_tokens_reused_total", "counter", "Prompt tokens taken from the cache", reused_tokens },
    { "ddl:requests_total", "counter", "Requests accepted", requests },
    { "ddl:requests_failed_total", "counter", "Requests that failed", failed },
    { "ddl:requests_cancelled_total", "counter", "Requests whose client disconnected", cancelled },
    { "ddl:requests_timed_out_total", "counter", "Requests that exceeded the time limit", timed_out },
    { "ddl:requests_refused_total", "counter", "Requests refused because the queue was full", refused },
};

static void write_histogram(FILE *out, const char *name, const char *help, const struct metrics_of *models,
                            size_t n, size_t offset)
{
    fprintf(out, "# HELP %s %s\n# TYPE %s histogram\n", name, help, name);
    for (size_t m = 0; m < n; m++) {
        const struct histogram *h = (const void *)((const char *)&models[m].values + offset);
        uint64_t sum = 0;
        for (size_t i = 0; i < BUCKETS; i++) {
            sum += h->counts[i];
            fprintf(out, "%s_bucket{model=\"%s\",le=\"%g\"} %llu\n", name, models[m].model, bounds[i],
                    (unsigned long long)sum);
        }
        sum += h->counts[BUCKETS];
        fprintf(out, "%s_bucket{model=\"%s\",le=\"+Inf\"} %llu\n", name, models[m].model,
                (unsigned long long)sum);
        fprintf(out, "%s_sum{model=\"%s\"} %.9g\n%s_count{model=\"%s\"} %llu\n", name, models[m].model,
                h->sum, name, models[m].model, (unsigned long long)sum);
    }
}

void metrics_write(FILE *out, const struct metrics_of *models, size_t n)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", rows[i].name, rows[i].help, rows[i].name, rows[i].type);
        for (size_t m = 0; m < n; m++)
            fprintf(out, "%s{model=\"%s\"} %.15g\n", rows[i].name, models[m].model,
                    rows[i].value(&models[m]));
    }
    write_histogram(out, "ddl:time_to_first_token_seconds",
                    "From the arrival of a request to its first token", models, n,
                    offsetof(struct metrics, first_token));
    write_histogram(out, "ddl:time_per_token_seconds", "Between the tokens of a text, on average over it",
                    models, n, offsetof(struct metrics, per_token));
}
