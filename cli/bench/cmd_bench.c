/* ddl bench op, step, decode, tokenizer, comm: speed, after a check of the results. */
#include "cli/bench/bench_print.h"
#include "cli/cli.h"

#include "ddl/bench.h"
#include "ddl/file.h"
#include "ddl/run.h"
#include "ddl/tokenizer.h"
#include "ddl/train.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct flags {
    char model[64], size[64], match_parameters[64], backend[32], filter[64];
    char tokenizer[1024], text[1024], device_model[64];
    size_t batch, seq, warmup, steps, threads, vocab_size, bytes;
    double seconds;
    int dtype;     /* enum ddl_precision */
    int recompute; /* enum ddl_recompute */
    int cache;     /* enum ddl_cache_form */
    ddl_comm *comm;
    bool ops, gemm, roofline, json;
    char compare[1024], save[1024];
};

#define AT(field) offsetof(struct flags, field)
#define TEXT_ROW(name, field, value, ...)                                                                    \
    {                                                                                                        \
        name, DDL_OPTION_STRING, AT(field), sizeof((struct flags *)0)->field, 0, 0, NULL, value, __VA_ARGS__ \
    }
#define BOOL_ROW(name, field, help)                                                                          \
    {                                                                                                        \
        name, DDL_OPTION_BOOL, AT(field), 0, 0, 0, NULL, NULL, help                                          \
    }
#define SIZE_ROW(name, field, least, most, ...)                                                              \
    {                                                                                                        \
        name, DDL_OPTION_SIZE, AT(field), 0, least, most, NULL, "N", __VA_ARGS__                             \
    }
#define MODEL_ROWS                                                                                           \
    TEXT_ROW("model", model, "NAME", "named model"), TEXT_ROW("size", size, "NAME", "named size"),           \
        TEXT_ROW("match_parameters", match_parameters, "NAME",                                               \
                 "choose mlp_size so that the model has as many parameters as this named model"),            \
        SIZE_ROW("threads", threads, 0, 4096, "threads (0: one per core)", DDL_THREADS_ALIASES),             \
        TEXT_ROW("backend", backend, "NAME", DDL_BACKEND_HELP, DDL_BACKEND_ALIASES)
#define DTYPE_ROW(names, help)                                                                               \
    {                                                                                                        \
        "dtype", DDL_OPTION_CHOICE, AT(dtype), 0, 0, 0, names, "NAME", help                                  \
    }
#define BATCH_ROW(help) SIZE_ROW("batch", batch, 1, 65536, help, DDL_BATCH_ALIASES)
#define SEQ_ROW(help) SIZE_ROW("seq", seq, 1, 1048576, help, DDL_SEQ_ALIASES)
#define STEPS_ROW(help) SIZE_ROW("steps", steps, 1, DDL_BENCH_REPETITIONS, help, .others = steps_others)
#define WARMUP_ROW SIZE_ROW("warmup", warmup, 0, 1000, "untimed repetitions before the timed ones")
#define OPS_ROW(when) BOOL_ROW("ops", ops, "also time every op, in " when)
#define ROOFLINE_ROW BOOL_ROW("roofline", roofline, "also measure the peak rates of the machine")

static const struct ddl_other_name steps_others[] = {
    { "iters", NULL, DDL_OTHER_DIFFERS },
    { "iterations", NULL, DDL_OTHER_DIFFERS },
    { "repetitions", NULL, DDL_OTHER_DIFFERS },
    { 0 },
};

/* Of every benchmark. */
static const struct ddl_option report_rows[] = {
    BOOL_ROW("json", json, "one JSON object on one line"),
    TEXT_ROW("save", save, "FILE", "append that line to FILE"),
    TEXT_ROW("compare", compare, "FILE", "print the changes from the report in FILE that exceed the noise"),
    { 0 },
};
static const struct ddl_option op_rows[] = {
    MODEL_ROWS,
    BATCH_ROW("sequences in a batch"),
    SEQ_ROW("tokens of a sequence"),
    TEXT_ROW("filter", filter, "TEXT", "only ops whose names contain TEXT"),
    STEPS_ROW("minimum number of repetitions"),
    { "seconds", DDL_OPTION_DOUBLE, AT(seconds), 0, 0, 3600, NULL, "S", "minimum time per op" },
    WARMUP_ROW,
    ROOFLINE_ROW,
    { 0 },
};
static const struct ddl_option step_rows[] = {
    MODEL_ROWS,
    DTYPE_ROW(ddl_training_precision_names, "operand type of matrix products (tf32: only with backend cuda)"),
    { "recompute", DDL_OPTION_CHOICE, AT(recompute), 0, 0, 0, ddl_recompute_names, "NAME",
      "what the backward pass recomputes" },
    BATCH_ROW("sequences per step"),
    SEQ_ROW("tokens of a sequence"),
    STEPS_ROW("timed steps"),
    WARMUP_ROW,
    OPS_ROW("additional steps"),
    BOOL_ROW("gemm", gemm, "also time the matrix products of a step alone"),
    TEXT_ROW("device-model", device_model, "RATES",
             "count ops instead of computing, predict the time at '3.0TB/s 790TFLOP/s' or, with a "
             "time per call, '3.0TB/s 790TFLOP/s 1.5us'"),
    ROOFLINE_ROW,
    { 0 },
};
static const struct ddl_option decode_rows[] = {
    MODEL_ROWS,
    DTYPE_ROW(ddl_precision_names, "format of the weights in products (tf32: only with backend cuda)"),
    { "cache", DDL_OPTION_CHOICE, AT(cache), 0, 0, 0, ddl_cache_form_names, "NAME",
      "format of keys and values (auto: f32 with f32 weights, else bf16)" },
    BATCH_ROW("sequences decoded together (one sequence is timed first)"),
    SEQ_ROW("tokens of the prompt"),
    STEPS_ROW("tokens to decode"),
    WARMUP_ROW,
    OPS_ROW("additional steps, one per token to decode"),
    ROOFLINE_ROW,
    { 0 },
};
static const struct ddl_option tokenizer_rows[] = {
    TEXT_ROW("tokenizer", tokenizer, "PATH",
             "tokenizer.json or its folder (empty: " DDL_TOKENIZER_SHIPPED ")"),
    TEXT_ROW("text", text, "FILE", "plain text (empty: the sample in data/text)"),
    SIZE_ROW("vocab-size", vocab_size, 0, 1000000,
             "vocabulary size of the tokenizer to train on the text (0: no training)"),
    STEPS_ROW("repetitions"),
    WARMUP_ROW,
    { 0 },
};

static const struct ddl_option comm_rows[] = {
    DTYPE_ROW(ddl_comm_dtype_names, "format in which a reduce-scatter sends its summands"),
    SIZE_ROW("bytes", bytes, 4096, (size_t)1 << 32, "size of the largest array"),
    STEPS_ROW("repetitions"),
    WARMUP_ROW,
    { 0 },
};

static const struct flags model_defaults = { .model = "baseline",
                                             .size = "mini",
                                             .backend = "cpu",
                                             .batch = 2,
                                             .seq = 512,
                                             .warmup = 2,
                                             .roofline = true };

static ddl_status configure(const struct flags *f, struct ddl_bench_config *out, struct ddl_error *err)
{
    *out = (struct ddl_bench_config){ .model = ddl_config_defaults(),
                                      .precision = (enum ddl_precision)f->dtype,
                                      .recompute = (enum ddl_recompute)f->recompute,
                                      .cache = (enum ddl_cache_form)f->cache,
                                      .batch = f->batch,
                                      .seq = f->seq,
                                      .warmup = f->warmup,
                                      .steps = f->steps,
                                      .roofline = f->roofline };
    ddl_status status = ddl_config_set_preset(&out->model, f->model, err);
    if (!status)
        status = ddl_config_set_size(&out->model, f->size, err);
    out->model.block_size = f->seq;
    if (!status && *f->match_parameters) {
        struct ddl_match match;
        status =
            ddl_config_match(&out->model, f->match_parameters, DDL_MATCH_PARAMETERS, f->seq, &match, err);
    }
    return status;
}

static ddl_status run_op(const struct flags *f, ddl_backend *backend, struct ddl_bench_report *out,
                         struct ddl_error *err)
{
    struct ddl_bench_op_config config = { .filter = f->filter, .seconds = f->seconds };
    ddl_status status = configure(f, &config.at, err);
    return status ? status : ddl_bench_op(&config, backend, out, err);
}

static ddl_status run_step(const struct flags *f, ddl_backend *backend, struct ddl_bench_report *out,
                           struct ddl_error *err)
{
    struct ddl_bench_step_config config = { .products = f->gemm };
    ddl_status status = configure(f, &config.at, err);
    config.at.profiled = f->ops ? 3 : 0;
    if (!status && *f->device_model)
        status = ddl_bench_device_parse(f->device_model, &config.device, err);
    return status ? status : ddl_bench_step(&config, backend, out, err);
}

static ddl_status run_decode(const struct flags *f, ddl_backend *backend, struct ddl_bench_report *out,
                             struct ddl_error *err)
{
    struct ddl_bench_config config;
    ddl_status status = configure(f, &config, err);
    config.profiled = f->ops ? f->steps : 0;
    return status ? status : ddl_bench_decode(&config, backend, out, err);
}

static ddl_status run_tokenizer(const struct flags *f, ddl_backend *backend, struct ddl_bench_report *out,
                                struct ddl_error *err)
{
    struct flags paths = *f;
    (void)backend;
    if (!*paths.tokenizer)
        strcpy(paths.tokenizer, DDL_TOKENIZER_SHIPPED);
    ddl_status status = ddl_run_check_tokenizer(paths.tokenizer, err);
    if (!status && !*paths.text &&
        !ddl_file_find_shipped("text/fineweb_edu_sample.txt", paths.text, sizeof paths.text))
        status = ddl_option_missing("bench", "--text PATH, or the project's data/text/fineweb_edu_sample.txt",
                                    err);
    struct ddl_bench_tokenizer_config config = { .tokenizer = paths.tokenizer,
                                                 .text = paths.text,
                                                 .vocab_size = f->vocab_size,
                                                 .warmup = f->warmup,
                                                 .steps = f->steps };
    return status ? status : ddl_bench_tokenizer(&config, out, err);
}

static ddl_status run_comm(const struct flags *f, ddl_backend *backend, struct ddl_bench_report *out,
                           struct ddl_error *err)
{
    const struct ddl_bench_comm_config config = { .comm = f->comm,
                                                  .bf16 = f->dtype == DDL_PRECISION_BF16,
                                                  .bytes = f->bytes,
                                                  .warmup = f->warmup,
                                                  .steps = f->steps };
    (void)backend;
    return ddl_bench_comm(&config, out, err);
}

enum { OP, STEP, DECODE, TOKENIZER, COMM, BENCHMARKS };
static const struct benchmark {
    const char *name, *model;
    const struct ddl_option *rows;
    size_t steps, batch, seq; /* defaults; 0: as model_defaults */
    ddl_status (*run)(const struct flags *f, ddl_backend *backend, struct ddl_bench_report *out,
                      struct ddl_error *err);
} benchmarks[] = {
    [OP] = { "op", "ddl-cc-ec", op_rows, 7, 0, 0, run_op },
    [STEP] = { "step", "baseline", step_rows, 8, 0, 0, run_step },
    [DECODE] = { "decode", "baseline", decode_rows, 32, 8, 256, run_decode },
    [TOKENIZER] = { "tokenizer", "", tokenizer_rows, 7, 0, 0, run_tokenizer },
    [COMM] = { "comm", "", comm_rows, 20, 0, 0, run_comm },
};
static struct flags defaults_of(const struct benchmark *b)
{
    struct flags f = model_defaults;
    snprintf(f.model, sizeof f.model, "%s", b->model);
    f.steps = b->steps;
    f.batch = b->batch ? b->batch : f.batch;
    f.seq = b->seq ? b->seq : f.seq;
    f.seconds = 0.1;
    f.vocab_size = 8192;
    f.bytes = (size_t)16 << 20;
    return f;
}

/* `saved`: to add the report to; may be NULL. */
static ddl_status show(const struct flags *f, const struct ddl_bench_report *report,
                       const struct ddl_bench_report *old, size_t n_old, FILE *saved, struct ddl_error *err)
{
    char *line = NULL;
    ddl_status status = ddl_bench_report_json(report, &line, err);
    if (status)
        return status;
    if (f->json)
        fputs(line, stdout);
    else
        print_bench(stdout, report);
    if (*f->compare) /* with --json, standard output has the JSON only */
        print_bench_changes(f->json ? stderr : stdout, ddl_bench_match(report, old, n_old), report,
                            f->compare);
    if (saved && (fputs(line, saved) < 0 || fflush(saved) != 0))
        status = ddl_error_set(err, DDL_E_IO, "%s: cannot write: %s", f->save, strerror(errno));
    free(line);
    return status;
}

/* Opens the file of --save for appending: a new or empty one, or one of earlier reports. */
static ddl_status open_saved(FILE **out, const char *path, struct ddl_error *err)
{
    struct ddl_bench_report *earlier = NULL;
    size_t n;
    ddl_status status = ddl_file_append(out, path, err);
    if (!status && fseek(*out, 0, SEEK_END) == 0 && ftell(*out) > 0) {
        status = ddl_bench_reports_read(&earlier, &n, path, err);
        free(earlier);
        if (status)
            (void)ddl_error_prefix(err, status, "--save: expected a new file or one of earlier reports");
    }
    if (status && *out) {
        fclose(*out);
        *out = NULL;
    }
    return status;
}

/* Measures, and shows the report on rank 0. */
static ddl_status measure(const struct benchmark *b, const struct flags *f, struct ddl_error *err)
{
    struct ddl_bench_report *old = NULL, *report = malloc(sizeof *report);
    ddl_backend *backend = NULL;
    FILE *saved = NULL;
    size_t n_old = 0;
    bool shows = ddl_comm_rank(f->comm) == 0;
    ddl_status status = DDL_OK;
    if (shows && *f->compare) /* before minutes of measuring */
        status = ddl_bench_reports_read(&old, &n_old, f->compare, err);
    if (!status && shows && *f->save)
        status = open_saved(&saved, f->save, err);
    if (!status && !report)
        status = ddl_error_set(err, DDL_E_MEMORY, "bench: out of memory for a report");
    if (!status)
        status = ddl_backend_create(&backend, f->backend, f->threads, err);
    status = ddl_comm_agree(f->comm, status, err);
    if (!status)
        status = b->run(f, backend, report, err);
    if (!status && shows)
        status = show(f, report, old, n_old, saved, err);
    if (saved)
        fclose(saved);
    ddl_backend_free(backend);
    free(report);
    free(old);
    return ddl_comm_agree(f->comm, status, err);
}

/* argv[0] is the benchmark's name. */
static ddl_status run_benchmark(ddl_comm *comm, int argc, char **argv, struct ddl_error *err)
{
    const struct benchmark *b = benchmarks;
    while (strcmp(b->name, argv[0]) != 0)
        b++;
    struct flags f = defaults_of(b);
    int n = 0;
    ddl_status status = ddl_option_parse(b->rows, &f, report_rows, &f, argc, argv, &n, err);
    if (!status && n > 0)
        status = ddl_error_set(err, DDL_E_USAGE, "bench %s takes options only, found '%s'%s", b->name,
                               argv[1], strcmp(b->name, "op") == 0 ? " (--filter selects ops)" : "");
    f.comm = comm;
    return status ? status : measure(b, &f, err);
}

/* All ranks have the same result; rank 0 reports it. */
static int run_rank(ddl_comm *comm, int argc, char **argv)
{
    struct ddl_error err = { 0 };
    return run_benchmark(comm, argc, argv, &err) ? report_agreed(comm, &err) : EXIT_OK;
}

static int run(int argc, char **argv)
{
    return run_rank(NULL, argc, argv);
}

static int run_ranks(int argc, char **argv)
{
    return on_ranks(run_rank, argc, argv);
}

#define DEFAULTS(name, number)                                                                               \
    static const void *name(void)                                                                            \
    {                                                                                                        \
        static struct flags defaults;                                                                        \
        defaults = defaults_of(&benchmarks[number]);                                                         \
        return &defaults;                                                                                    \
    }
DEFAULTS(op_defaults, OP)
DEFAULTS(step_defaults, STEP)
DEFAULTS(decode_defaults, DECODE)
DEFAULTS(tokenizer_defaults, TOKENIZER)
DEFAULTS(comm_defaults, COMM)

#define REPORT_OPTIONS                                                                                       \
    {                                                                                                        \
        .title = "options of every benchmark", .rows = report_rows                                           \
    }

static const struct command op_command = {
    .name = "bench op",
    .usage = "[--option value ...]",
    .about = "time every op at the sizes of a model, forward and backward",
    .options = { { .rows = op_rows, .defaults = op_defaults }, REPORT_OPTIONS },
    .run = run,
};

static const struct command step_command = {
    .name = "bench step",
    .usage = "[--option value ...]",
    .about = "time a training step (forward, backward, clipping, AdamW) on random tokens",
    .options = { { .rows = step_rows, .defaults = step_defaults }, REPORT_OPTIONS },
    .run = run,
};

static const struct command decode_command = {
    .name = "bench decode",
    .usage = "[--option value ...]",
    .about = "time prefill, and decoding of one sequence and of several",
    .options = { { .rows = decode_rows, .defaults = decode_defaults }, REPORT_OPTIONS },
    .run = run,
};

static const struct command tokenizer_command_of_bench = {
    .name = "bench tokenizer",
    .usage = "[--option value ...]",
    .about = "time encoding, decoding and training of a tokenizer on one thread",
    .options = { { .rows = tokenizer_rows, .defaults = tokenizer_defaults }, REPORT_OPTIONS },
    .run = run,
};

static const struct command comm_command = {
    .name = "bench comm",
    .usage = "[--option value ...]",
    .about = "time the exchanges between ranks, under mpirun",
    .text =
        (const char *const[]){
            "seconds = latency x messages + bytes / rate is fitted to the times of each collective.", NULL },
    .options = { { .rows = comm_rows, .defaults = comm_defaults }, REPORT_OPTIONS },
    .processes = ALL_PROCESSES,
    .run = run_ranks,
    .examples = (const struct note[]){ { "mpirun -n 4 ddl bench comm", "four ranks" }, { 0 } },
};

const struct command bench_command = {
    .name = "bench",
    .usage = "op | step | decode | tokenizer | comm ...",
    .about = "measure speed; every operation is checked before it is timed",
    .text =
        (const char *const[]){
            "Each benchmark first checks the results of what it times, and fails if one is wrong.",
            "Rates are shown relative to the peak rates of the machine, measured in the same run.", NULL },
    .actions = (const struct command *const[]){ &op_command, &step_command, &decode_command,
                                                &tokenizer_command_of_bench, &comm_command, NULL },
    .examples = (const struct note[]){ { "ddl bench step --model ddl-cc-ec --ops --gemm",
                                         "a step of a named model by op, and its matrix products alone" },
                                       { "ddl bench step --size small --batch 32 --seq 1024 --dtype bf16 "
                                         "--device-model '3.0TB/s 790TFLOP/s'",
                                         "what each op of a step needs, and its predicted time on a device" },
                                       { "ddl bench op --filter delta --compare old.json",
                                         "changes since the report in old.json" },
                                       { 0 } },
};
