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

/* steps is in 1 .. DDL_BENCH_REPETITIONS. */
ddl_status bench_check_steps(size_t steps, struct ddl_error *err);

/* roofline.c */
ddl_status bench_roofline(struct ddl_bench_roofline *out, ddl_backend *backend, struct ddl_error *err);

/* check.c: rms(found - expected) / rms(expected); infinity where something is not finite. */
double bench_difference(size_t n, const float *found, const float *expected);
/* Loss and gradients, and with them the logits decoded in pieces, of a small model of the same kind against
 * "ref" and against the whole pass. DDL_E_NUMERIC if they do not agree. */
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

/* cases.c: the ops at a model's sizes. */
union bench_args {
#define BENCH_MEMBER(name, args) struct args name; /* NOLINT(bugprone-macro-parentheses) */
    DDL_OPS(BENCH_MEMBER)
#undef BENCH_MEMBER
};
enum bench_fill {
    BENCH_NORMAL, /* standard normal */
    BENCH_WEIGHT, /* around 1, always positive */
    BENCH_GATE,   /* uniform in (0, 2) */
    BENCH_COS,
    BENCH_SIN, /* of the same angles */
    BENCH_TOKENS,
    BENCH_ZEROS,   /* integers 0, 0, ... */
    BENCH_COUNT,   /* integers 0, 1, ... */
    BENCH_BF16,    /* normal, in bfloat16 */
    BENCH_DOUBLES, /* around the vocabulary's size */
    BENCH_Q8,      /* an 8-bit matrix of rows of `width` numbers */
};
enum bench_use {
    BENCH_IN = 1,
    BENCH_OUT = 2,
    BENCH_INOUT = 3,
    BENCH_GATHER = 4, /* read in places only: its bytes do not count */
};
struct bench_buffer {
    size_t slot; /* offset of the pointer in the args */
    size_t n;
    enum bench_fill fill;
    enum bench_use use;
    int alias;    /* a buffer of the case that is this place too, or -1 */
    size_t width; /* BENCH_Q8: numbers of a row; n counts the numbers of the matrix */
};
enum { BENCH_BUFFERS = 24 };
struct bench_case {
    union bench_args args;
    struct bench_buffer buffer[BENCH_BUFFERS];
    size_t n_buffers;
    /* Makes of the buffers what the op expects of them, once they are filled; or NULL. */
    void (*prepare)(const ddl_backend *backend, const union bench_args *args);
    double flops, bytes; /* bytes: besides the buffers' own */
};
/* Sizes that the cases are made from. */
struct bench_sizes {
    size_t B, T, N, d, c, n, taps, K, K_embed, H, h, R, m, V;
    size_t rows, tile; /* of the head: rows of logits at a time; in bfloat16 columns */
    size_t iterations; /* of Sinkhorn's algorithm; n: streams */
    int kind;          /* enum ddl_compress */
};
struct bench_op {
    const char *name;
    void (*call)(ddl_backend *backend, const union bench_args *args);
    void (*make)(struct bench_case *k, const struct bench_sizes *s);
    double limit;     /* of bench_difference from "ref" */
    bool host_arrays; /* takes host arrays: run only where backend memory is host memory */
};
const struct bench_op *bench_ops(void); /* ended by a row without a name */
struct bench_sizes bench_sizes(const struct ddl_bench_config *config);
/* Few enough rows, heads and hidden features that "ref" takes little time; the width d stays. */
struct bench_sizes bench_small(struct bench_sizes sizes);

#endif
