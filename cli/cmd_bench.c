/* ddl bench step: how long a training step of a named model takes here, and which ops take it. */
#include "cli.h"

#include "ddl/bench.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

struct flags {
    char model[64], size[64], backend[32];
    size_t batch, seq, warmup, steps, threads;
    int dtype; /* enum ddl_precision */
    bool ops, json;
};

static const char *const dtypes[] = { "f32", "bf16", NULL }; /* as enum ddl_precision */

#define AT(field) offsetof(struct flags, field)
static const struct ddl_option rows[] = {
    { "model", DDL_OPTION_STRING, AT(model), 64, 0, 0, NULL, "NAME", "named model (default baseline)" },
    { "size", DDL_OPTION_STRING, AT(size), 64, 0, 0, NULL, "NAME", "its size (default mini)" },
    { "batch", DDL_OPTION_SIZE, AT(batch), 0, 1, 65536, NULL, "N", "sequences of a step (default 2)" },
    { "seq", DDL_OPTION_SIZE, AT(seq), 0, 1, 1048576, NULL, "N", "tokens of a sequence (default 512)" },
    { "dtype", DDL_OPTION_CHOICE, AT(dtype), 0, 0, 0, dtypes, "NAME",
      "what products work on: f32 (default) or bf16" },
    { "steps", DDL_OPTION_SIZE, AT(steps), 0, 1, DDL_BENCH_STEPS, NULL, "N", "timed steps (default 8)" },
    { "warmup", DDL_OPTION_SIZE, AT(warmup), 0, 0, 1000, NULL, "N", "untimed steps before (default 2)" },
    { "threads", DDL_OPTION_SIZE, AT(threads), 0, 0, 4096, NULL, "N", "threads (0: one for each core)" },
    { "backend", DDL_OPTION_STRING, AT(backend), 32, 0, 0, NULL, "NAME", "cpu or ref" },
    { "ops", DDL_OPTION_BOOL, AT(ops), 0, 0, 0, NULL, NULL, "time every op too, in further steps" },
    { "json", DDL_OPTION_BOOL, AT(json), 0, 0, 0, NULL, NULL, "one JSON object" },
    { 0 },
};

static ddl_status configure(const struct flags *f, struct ddl_bench_config *out, struct ddl_error *err)
{
    *out = (struct ddl_bench_config){ .model = ddl_config_defaults(),
                                      .precision = (enum ddl_precision)f->dtype,
                                      .batch = f->batch,
                                      .seq = f->seq,
                                      .warmup = f->warmup,
                                      .steps = f->steps,
                                      .profiled = f->ops ? 3 : 0 };
    ddl_status status = ddl_config_set_preset(&out->model, f->model, err);
    if (!status)
        status = ddl_config_set_size(&out->model, f->size, err);
    out->model.block_size = f->seq;
    return status;
}

static void print_result(const struct flags *f, const struct ddl_bench_result *r, const char *backend)
{
    printf("%s %s, %s, batch %zu x %zu, %zu parameters, %s\n", f->model, f->size, dtypes[f->dtype], f->batch,
           f->seq, r->n_params, backend);
    printf("step    median %.4f s, best %.4f, worst %.4f: %.0f tokens/s, %.1f GFLOP/s, peak %.3f GiB\n",
           r->median, r->best, r->worst, r->tokens_per_s, r->flops / r->median * 1e-9,
           r->peak_memory / 1073741824);
    for (size_t i = 0; i < r->n_ops; i++)
        printf("%-16s %9.3f ms %5.1f %%  %5.0f calls\n", r->op[i].name, 1e3 * r->op[i].seconds,
               100 * r->op[i].seconds / r->profiled, r->op[i].calls);
}

static void print_json(const struct flags *f, const struct ddl_bench_result *r, const char *backend)
{
    printf("{\"model\": \"%s\", \"size\": \"%s\", \"dtype\": \"%s\", \"batch\": %zu, \"seq\": %zu, "
           "\"backend\": \"%s\", "
           "\"params\": %zu, "
           "\"step_s\": %.5f, \"best_s\": %.5f, \"worst_s\": %.5f, \"tokens_per_s\": %.1f, \"flops\": %.6g, "
           "\"peak_gib\": %.3f, \"ops\": {",
           f->model, f->size, dtypes[f->dtype], f->batch, f->seq, backend, r->n_params, r->median, r->best,
           r->worst, r->tokens_per_s, r->flops, r->peak_memory / 1073741824);
    for (size_t i = 0; i < r->n_ops; i++)
        printf("%s\"%s\": %.6f", i ? ", " : "", r->op[i].name, r->op[i].seconds);
    printf("}}\n");
}

static int bench_step(const struct flags *f)
{
    struct ddl_bench_config config;
    struct ddl_bench_result result;
    struct ddl_error err;
    ddl_backend *backend = NULL;
    ddl_status status = configure(f, &config, &err);
    if (!status)
        status = ddl_backend_create(&backend, f->backend, f->threads, &err);
    if (!status)
        status = ddl_bench_step(&config, backend, &result, &err);
    if (!status)
        (f->json ? print_json : print_result)(f, &result, ddl_backend_description(backend));
    ddl_backend_free(backend);
    return status ? report_error(&err) : EXIT_OK;
}

static int cmd_bench_step(int argc, char **argv)
{
    struct flags f = {
        .model = "baseline", .size = "mini", .backend = "cpu", .batch = 2, .seq = 512, .warmup = 2, .steps = 8
    };
    struct ddl_error err;
    int n = 0;
    if (ddl_option_parse(rows, &f, NULL, NULL, argc, argv, &n, &err))
        return report_error(&err);
    if (n != 0) {
        ddl_error_set(&err, DDL_E_USAGE, "bench step takes options only, found '%.200s'", argv[1]);
        return report_error(&err);
    }
    return bench_step(&f);
}

static const struct command step_command = {
    .name = "bench step",
    .usage = "[--option value ...]",
    .about = "forward, backward, clipping and AdamW on random tokens",
    .options = { { .rows = rows } },
    .run = cmd_bench_step,
};

const struct command bench_command = {
    .name = "bench",
    .usage = "step [--option value ...]",
    .about = "how long a training step takes, op by op",
    .actions = (const struct command *const[]){ &step_command, NULL },
    .examples = (const struct note[]){ { "ddl bench step --model ddl-cc-ec --size mini --ops",
                                         "the median step of a named model, and what its ops take" },
                                       { 0 } },
};
