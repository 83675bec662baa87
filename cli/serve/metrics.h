/* Counters of a served model, in the text format of Prometheus. */
#ifndef DDL_CLI_SERVE_METRICS_H
#define DDL_CLI_SERVE_METRICS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { BUCKETS = 14 };

/* Times, by upper bounds from 1 ms to 60 s. */
struct histogram {
    uint64_t counts[BUCKETS + 1]; /* the last one: above all bounds */
    double sum;
};

struct metrics {
    uint64_t prompt_tokens, reused_tokens, new_tokens, passes, busy_slots; /* sums */
    double prompt_seconds, decode_seconds; /* of passes, by what they mainly do */
    uint64_t requests, failed, cancelled, timed_out, refused;
    struct histogram first_token, per_token;
};

void histogram_add(struct histogram *h, double seconds);
/* What is counted at one moment. */
struct metrics_of {
    const char *model;
    struct metrics values;
    size_t running, waiting;
};
/* Writes the metrics of n models. */
void metrics_write(FILE *out, const struct metrics_of *models, size_t n);

#endif
