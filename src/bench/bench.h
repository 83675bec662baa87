/* What the benchmarks share: filling a report, timing repetitions, the machine's limits, and the small models
 * that results are checked on. */
#ifndef DDL_BENCH_BENCH_H
#define DDL_BENCH_BENCH_H

#include "ddl/bench.h"
#include "ddl/tokenizer.h"
#include "ops/ops.h"
#include "ops/profile.h"

/* report.c: fills. Names and texts are truncated to their buffers; too many rows or figures assert. */
void bench_begin(struct ddl_bench_report *report, const char *kind, const ddl_backend *backend);
void bench_set(struct ddl_bench_report *report, const char *name, const char *format, ...) DDL_PRINTF(3, 4);
void bench_set_model(struct ddl_bench_report *report, const struct ddl_bench_config *config);
void bench_figure(struct ddl_bench_report *report, const char *name, double value);
/* The most memory used, and what the device is slower without. */
void bench_device(struct ddl_bench_report *report, const ddl_backend *backend);

/* A row from the seconds of its repetitions, which are sorted in place. */
struct ddl_bench_row *bench_row(struct ddl_bench_report *report, const char *name, double *seconds, size_t n);
/* Repeats fn until `least` times and `budget` seconds are reached, at most DDL_BENCH_REPETITIONS times. A fn
 * that takes less than a millisecond runs several times a repetition. A repetition ends when the backend is
 * done (NULL: nothing to wait for). */
typedef void bench_fn(void *user);
struct ddl_bench_row *bench_time(struct ddl_bench_report *report, const char *name,
                                 const ddl_backend *backend, bench_fn *fn, void *user, size_t warmup,
                                 size_t least, double budget);

/* The shares of each op in `n` repetitions that took `seconds` together. */
void bench_shares(struct ddl_bench_report *report, const struct ddl_profile *profile, size_t n,
                  double seconds);

void bench_sort_shares(struct ddl_bench_report *report); /* longest first */

/* steps is in 1 .. DDL_BENCH_REPETITIONS. */
ddl_status bench_check_steps(size_t steps, struct ddl_error *err);

double bench_median(double *x, size_t n); /* sorts x */

/* read.c: sum_squares as the op that reads memory. The n numbers of x are divided, because a GPU reads one
 * part with few blocks; part (2 BENCH_READ_PARTS) and sum are backend memory. */
enum { BENCH_READ_PARTS = 16 };
struct sum_squares_args bench_read_args(ddl_backend *backend, size_t n, const float *x, int64_t *part,
                                        double *sum);
/* Reads `bytes` bytes of its own again and again. */
struct bench_reader {
    ddl_backend *backend;
    struct sum_squares_args read;
    float *numbers; /* (bytes / 4) */
    int64_t *part;  /* begins and sizes of the parts */
    double *sum;
};
ddl_status bench_reader_open(struct bench_reader *r, ddl_backend *backend, size_t bytes,
                             struct ddl_error *err);
double bench_read(const struct bench_reader *r); /* seconds */
void bench_reader_close(struct bench_reader *r);

/* roofline.c */
ddl_status bench_roofline(struct ddl_bench_roofline *out, ddl_backend *backend, struct ddl_error *err);

/* check.c: loss and gradients, and with them the logits decoded in pieces, of a small model of the same kind
 * against "ref" and against the whole pass. DDL_E_NUMERIC if they do not agree. */
ddl_status bench_check_gradients(const struct ddl_bench_config *config, ddl_backend *backend, char *text,
                                 size_t size, struct ddl_error *err);
ddl_status bench_check_decoding(const struct ddl_bench_config *config, ddl_backend *backend, char *text,
                                size_t size, struct ddl_error *err);
/* Checks that `decoder` restores the text from the ids of `encoder` (the same one, except in tests); `name`
 * is for the error message. */
ddl_status bench_check_text(const ddl_tokenizer *encoder, const ddl_tokenizer *decoder, const char *text,
                            size_t size, const char *name, struct ddl_error *err);
/* n random tokens below V, from a stream of their own. */
void bench_tokens(int32_t *tokens, size_t n, size_t V);

/* products.c: the matrix products of a step, recorded and repeated. */
struct bench_products;
ddl_status bench_products_create(struct bench_products **out, ddl_backend *backend, struct ddl_error *err);
void bench_products_free(struct bench_products *products);
/* The profile's watcher: notes products and attention. */
void bench_products_note(void *user, int op, const void *args);
/* False if memory ran out while noting. */
bool bench_products_complete(const struct bench_products *products);
void bench_products_run(void *products);
double bench_products_flops(const struct bench_products *products);

#endif
