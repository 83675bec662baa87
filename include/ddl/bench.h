/* Benchmarks of ops, training steps, decoding, the tokenizer and the exchange between ranks, relative to the
 * peak rates of the machine.
 *
 * Every benchmark first checks the operations that it times, on a small case, and returns DDL_E_NUMERIC if a
 * result is wrong. All of them fill the same report, which can be written as JSON, read back and compared.
 * Times are seconds per repetition. An operation whose data fits in a cache may exceed the measured rate of
 * a copy. */
#ifndef DDL_BENCH_H
#define DDL_BENCH_H

#include "ddl/backend.h"
#include "ddl/comm.h"
#include "ddl/config.h"
#include "ddl/session.h"
#include "ddl/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    DDL_BENCH_ROWS = 160,         /* most rows of a report                 */
    DDL_BENCH_SHARES = 96,        /* most shares                           */
    DDL_BENCH_SETTINGS = 16,      /* most settings                         */
    DDL_BENCH_FIGURES = 24,       /* most figures                          */
    DDL_BENCH_NAME = 64,          /* bytes of a name, with the final zero  */
    DDL_BENCH_TEXT = 256,         /* bytes of a text, with the final zero  */
    DDL_BENCH_REPETITIONS = 1000, /* most repetitions of one row           */
};

/* One thing, timed `repetitions` times after a warm-up. */
struct ddl_bench_row {
    char name[DDL_BENCH_NAME];          /* "matmul.qkv.fwd", "step", "decode 1", ...         */
    size_t repetitions;                 /* that were timed                                   */
    double median, q1, q3, best, worst; /* seconds of one repetition; q1, q3: its quartiles  */
    double flops, bytes;                /* of one repetition; 0: not counted                 */
    double units;                       /* of one repetition: tokens, MB of text; or 0       */
    char unit[16];                      /* what they are; "" for none                        */
};

/* Where the time of a training step goes, or of a token that is decoded. */
struct ddl_bench_share {
    char op[32];           /* as in src/ops/ops.h                                                    */
    double seconds, calls; /* of one step or token                                                   */
    double flops, bytes;   /* likewise: operations; numbers read and written, each operand of a call once */
};

/* Settings: reports are comparable if all of these agree. */
struct ddl_bench_setting {
    char name[32];              /* "model", "batch", "dtype", ... */
    char value[DDL_BENCH_NAME]; /* "ddl-cc-ec", "2", "bf16", ...  */
};
/* A result in one number. */
struct ddl_bench_figure {
    char name[32]; /* "tokens_per_s", "peak_gib", "step_over_products", ... */
    double value;  /* in the unit that the name says */
};

/* What this machine does at best, measured in the same run; 0: not measured. */
struct ddl_bench_roofline {
    double gemm_f32, gemm_bf16; /* operations a second of the fastest of a few large products */
    double copy, read;          /* bytes a second: read and written; read                     */
};

/* What a benchmark found. */
struct ddl_bench_report {
    char kind[16];                                        /* "op", "step", "decode", "tokenizer", "comm" */
    char machine[128];                                    /* the processor's name */
    char backend[160];                                    /* the backend's description */
    char check[DDL_BENCH_TEXT];                           /* what was checked before anything was timed */
    struct ddl_bench_roofline roofline;                   /* what the machine can do */
    struct ddl_bench_setting setting[DDL_BENCH_SETTINGS]; /* as requested */
    struct ddl_bench_figure figure[DDL_BENCH_FIGURES];    /* results in one number each */
    struct ddl_bench_row row[DDL_BENCH_ROWS];             /* what was timed */
    struct ddl_bench_share share[DDL_BENCH_SHARES];       /* longest first; with `profiled` */
    size_t n_settings, n_figures, n_rows, n_shares;       /* how many of each are set */
};
/* The figure of that `name` in the `report`, or NAN. */
DDL_API double ddl_bench_figure(const struct ddl_bench_report *report, const char *name);
/* The row of that `name` in the `report`, or NULL; owned by the report. */
DDL_API const struct ddl_bench_row *ddl_bench_find(const struct ddl_bench_report *report, const char *name);

/* The model and the batch that ops, steps and decoding are timed at. */
struct ddl_bench_config {
    struct ddl_config model;      /* whose sizes and rules they are    */
    enum ddl_precision precision; /* of matrix products                */
    enum ddl_recompute recompute; /* of a step's backward              */
    enum ddl_cache_form cache;    /* of decoding                       */
    size_t batch, seq;            /* sequences, and tokens of each     */
    size_t warmup, steps;         /* repetitions: untimed, timed (1 to DDL_BENCH_REPETITIONS) */
    size_t profiled;              /* additional steps or tokens with every op timed, for the shares; or 0 */
    bool roofline;                /* measure it too: some seconds, and up to half a GiB       */
};

/* Every op at the sizes that a training step gives it, forward and backward, beside "copy" and products in
 * both precisions. Checked: each op against the backend "ref" on fewer rows. A row is repeated until `steps`
 * repetitions and `seconds` are both reached, at most DDL_BENCH_REPETITIONS times. */
struct ddl_bench_op_config {
    struct ddl_bench_config at; /* precision is not used: both are timed */
    const char *filter;         /* only rows whose name contains it; "" or NULL: all */
    double seconds;             /* least time for a row, unless DDL_BENCH_REPETITIONS are reached first */
};
/* Fills *out. DDL_E_USAGE for a size that is 0 or out of range, and for a filter that matches no row. */
DDL_API ddl_status ddl_bench_op(const struct ddl_bench_op_config *config, ddl_backend *backend,
                                struct ddl_bench_report *out, struct ddl_error *err);

/* A device that a step is predicted for. */
struct ddl_bench_device {
    double bytes_per_s, flops_per_s; /* of its memory and its matrix products; 0: none */
    double seconds_per_call;         /* that every call of an op takes besides         */
};
/* Reads *out from a text such as "3.0TB/s 790TFLOP/s 1.5us": the rate of memory, then that of products, with
 * the prefixes G, T or P, and optionally the time per call. DDL_E_USAGE for any other. */
DDL_API ddl_status ddl_bench_device_parse(const char *text, struct ddl_bench_device *out,
                                          struct ddl_error *err);

/* A step: forward, backward, clipping, AdamW, on random tokens. Checked: loss and every gradient of a small
 * model of the same kind against the backend "ref". */
struct ddl_bench_step_config {
    struct ddl_bench_config at; /* the model and the batch; not DDL_PRECISION_INT8 */
    /* With both rates set nothing is computed: the ops of a step are counted, and each call is predicted to
     * take as long as its operations or its traffic at these rates, whichever is longer, and its time per
     * call. */
    struct ddl_bench_device device;
    /* After each timed step also time its matrix products alone: the calls of a step are recorded and made
     * again, back to back, same operands in place. Attention's products count, with the packing of
     * their operands, its softmax does not. */
    bool products;
};
/* Fills *out: row "step", with `products` row "products" and the figure "step_over_products". With a device:
 * the figures "predicted_step_s", "predicted_tokens_per_s" and "predicted_flops_share" (the share of its rate
 * that the step's operations reach), and the shares. */
DDL_API ddl_status ddl_bench_step(const struct ddl_bench_step_config *config, ddl_backend *backend,
                                  struct ddl_bench_report *out, struct ddl_error *err);

/* Decoding after a prompt: `seq` tokens of prompt at once, then `steps` single tokens, of one sequence and of
 * `batch` side by side. Checked: logits token by token equal those of the whole pass, and those of "ref".
 * Fills *out: rows "prefill", "decode 1" and, if batch is above 1, "decode N". */
DDL_API ddl_status ddl_bench_decode(const struct ddl_bench_config *config, ddl_backend *backend,
                                    struct ddl_bench_report *out, struct ddl_error *err);

/* Encoding and decoding a text, and learning a vocabulary from it, on one thread. Checked: what was encoded
 * decodes to the text, with the given tokenizer and with the learned one. */
struct ddl_bench_tokenizer_config {
    const char *tokenizer, *text; /* paths: as ddl_tokenizer_load takes it; a file of plain text */
    size_t vocab_size;            /* to learn; 0: learning is not timed                           */
    size_t warmup, steps;         /* repetitions: untimed, timed                                  */
};
/* Fills *out: rows "encode", "decode", "train", and their figures in MB a second. */
DDL_API ddl_status ddl_bench_tokenizer(const struct ddl_bench_tokenizer_config *config,
                                       struct ddl_bench_report *out, struct ddl_error *err);

/* The exchanges of a training step between ranks: a sum of one number, reduce-scatter and all-gather of 1
 * KiB, 4 KiB, 16 KiB and so on. Checked: the sums of all ranks. */
struct ddl_bench_comm_config {
    ddl_comm *comm;       /* of several ranks, all of which make the call */
    bool bf16;            /* the summands are sent in bfloat16            */
    size_t bytes;         /* largest array, at least 4096                 */
    size_t warmup, steps; /* repetitions: untimed, timed                  */
};
/* Fills *out, on every rank alike: rows "sum", "reduce_scatter 1 KiB", ..., "all_gather 1 KiB", ...: the time
 * of the slowest rank; bytes: those that a rank sends. For both collectives the figures "*_latency_us" (per
 * message; a rank sends one to each other) and "*_mb_per_s" of the line seconds = latency messages + bytes /
 * rate with the least relative errors, and "*_fit_error", the root mean square of these. DDL_E_USAGE for a
 * single rank. */
DDL_API ddl_status ddl_bench_comm(const struct ddl_bench_comm_config *config, struct ddl_bench_report *out,
                                  struct ddl_error *err);

/* The `report` as one line of JSON, ended by a newline, in *out; free with free. docs/formats.md has the
 * keys. */
DDL_API ddl_status ddl_bench_report_json(const struct ddl_bench_report *report, char **out,
                                         struct ddl_error *err);
/* Reads the file at `path`, such objects one after the other, into *out, `n` of them. Free with free. */
DDL_API ddl_status ddl_bench_reports_read(struct ddl_bench_report **out, size_t *n, const char *path,
                                          struct ddl_error *err);

/* What changed from `old` to `now`, row by row: a row changed if its median moved by more than the
 * interquartile ranges of both, added in quadrature, and by more than 2 %; anything less is noise. */
enum ddl_bench_outcome {
    DDL_BENCH_SAME,   /* within noise          */
    DDL_BENCH_FASTER, /* less time             */
    DDL_BENCH_SLOWER, /* more                  */
    DDL_BENCH_NEW,    /* not in the old report */
    DDL_BENCH_GONE,   /* only there            */
};
/* One row of a comparison. */
struct ddl_bench_change {
    const char *name;   /* owned by the reports */
    int outcome;        /* enum ddl_bench_outcome */
    double before, now; /* medians; NAN where there is none */
    double noise;       /* as a share of `before` */
};
/* The report among the `n` of `old` that has the kind and the settings of `now` (the last such), or NULL. */
DDL_API const struct ddl_bench_report *ddl_bench_match(const struct ddl_bench_report *now,
                                                       const struct ddl_bench_report *old, size_t n);
/* Writes the changes from `old` to `now` to `out` (2 DDL_BENCH_ROWS); returns their number. */
DDL_API size_t ddl_bench_compare(const struct ddl_bench_report *old, const struct ddl_bench_report *now,
                                 struct ddl_bench_change *out);

#ifdef __cplusplus
}
#endif
#endif
