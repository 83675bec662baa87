/* Reports: filling them, timing their rows, and what changed between two. */
#include "bench/bench.h"
#include "base/clock.h"
#include "base/machine.h"

#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A difference this small is never called a change, whatever the spreads say. */
static const double smallest_change = 0.02;

void bench_begin(struct ddl_bench_report *report, const char *kind, const ddl_backend *backend)
{
    *report = (struct ddl_bench_report){ 0 };
    snprintf(report->kind, sizeof report->kind, "%s", kind);
    snprintf(report->backend, sizeof report->backend, "%s",
             backend ? ddl_backend_description(backend) : "one thread");
    ddl_machine_processor(report->machine, sizeof report->machine);
}

void bench_set(struct ddl_bench_report *report, const char *name, const char *format, ...)
{
    assert(report->n_settings < DDL_BENCH_SETTINGS);
    struct ddl_bench_setting *setting = &report->setting[report->n_settings++];
    va_list args;
    snprintf(setting->name, sizeof setting->name, "%s", name);
    va_start(args, format);
    vsnprintf(setting->value, sizeof setting->value, format, args);
    va_end(args);
}

/* The sizes beside the names: a configuration may have been changed by hand. */
void bench_set_model(struct ddl_bench_report *report, const struct ddl_bench_config *config)
{
    const struct ddl_config *k = &config->model;
    const char *name = ddl_config_preset_name(k);
    bench_set(report, "model", "%s", name ? name : "own");
    bench_set(report, "layers", "%zu", k->n_layers);
    bench_set(report, "width", "%zu", k->d_model);
    bench_set(report, "heads", "%zu x %zu", k->n_heads, k->head_dim);
    bench_set(report, "vocabulary", "%zu", k->vocab_size);
    if (k->mlp_size)
        bench_set(report, "mlp", "%zu", k->mlp_size);
    bench_set(report, "batch", "%zu", config->batch);
    bench_set(report, "seq", "%zu", config->seq);
}

void bench_figure(struct ddl_bench_report *report, const char *name, double value)
{
    assert(report->n_figures < DDL_BENCH_FIGURES);
    struct ddl_bench_figure *figure = &report->figure[report->n_figures++];
    snprintf(figure->name, sizeof figure->name, "%s", name);
    figure->value = value;
}

void bench_device(struct ddl_bench_report *report, const ddl_backend *backend)
{
    const struct ddl_ops *ops = backend->ops;
    size_t bytes = ops->memory_used ? ops->memory_used(backend->ctx) : ddl_clock_peak_memory();
    const char *warning = ops->warning ? ops->warning(backend->ctx) : NULL;
    bench_figure(report, "peak_gib", (double)bytes / 0x1p30);
    if (warning)
        bench_set(report, "warning", "%s", warning);
}

double ddl_bench_figure(const struct ddl_bench_report *report, const char *name)
{
    for (size_t i = 0; i < report->n_figures; i++) {
        if (strcmp(report->figure[i].name, name) == 0)
            return report->figure[i].value;
    }
    return NAN;
}

const struct ddl_bench_row *ddl_bench_find(const struct ddl_bench_report *report, const char *name)
{
    for (size_t i = 0; i < report->n_rows; i++) {
        if (strcmp(report->row[i].name, name) == 0)
            return &report->row[i];
    }
    return NULL;
}

static int by_seconds(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The p-th part of sorted numbers, between two where it falls there. */
static double quantile(const double *sorted, size_t n, double p)
{
    double at = p * (double)(n - 1);
    size_t i = (size_t)at;
    return i + 1 < n ? sorted[i] + (at - (double)i) * (sorted[i + 1] - sorted[i]) : sorted[n - 1];
}

double bench_median(double *x, size_t n)
{
    qsort(x, n, sizeof *x, by_seconds);
    return quantile(x, n, 0.5);
}

struct ddl_bench_row *bench_row(struct ddl_bench_report *report, const char *name, double *seconds, size_t n)
{
    assert(report->n_rows < DDL_BENCH_ROWS && n > 0);
    struct ddl_bench_row *row = &report->row[report->n_rows++];
    snprintf(row->name, sizeof row->name, "%s", name);
    qsort(seconds, n, sizeof *seconds, by_seconds);
    row->repetitions = n;
    row->median = quantile(seconds, n, 0.5);
    row->q1 = quantile(seconds, n, 0.25);
    row->q3 = quantile(seconds, n, 0.75);
    row->best = seconds[0];
    row->worst = seconds[n - 1];
    return row;
}

static double time_calls(const ddl_backend *backend, bench_fn *fn, void *user, size_t calls)
{
    double start = ddl_clock_seconds();
    for (size_t i = 0; i < calls; i++)
        fn(user);
    if (backend)
        backend->ops->synchronize(backend->ctx);
    return (ddl_clock_seconds() - start) / (double)calls;
}

struct ddl_bench_row *bench_time(struct ddl_bench_report *report, const char *name,
                                 const ddl_backend *backend, bench_fn *fn, void *user, size_t warmup,
                                 size_t least, double budget)
{
    static const double shortest = 1e-3;
    double seconds[DDL_BENCH_REPETITIONS], once = time_calls(backend, fn, user, 1), spent = 0;
    for (size_t i = 1; i < warmup; i++) {
        double again = time_calls(backend, fn, user, 1);
        once = again < once ? again : once;
    }
    size_t calls = once > 0 && once < shortest ? (size_t)(shortest / once) + 1 : once > 0 ? 1 : 1000, n = 0;
    while (n < least || (spent < budget && n < DDL_BENCH_REPETITIONS)) {
        seconds[n] = time_calls(backend, fn, user, calls);
        spent += seconds[n++] * (double)calls;
    }
    return bench_row(report, name, seconds, n);
}

static int longest_first(const void *a, const void *b)
{
    double x = ((const struct ddl_bench_share *)a)->seconds, y = ((const struct ddl_bench_share *)b)->seconds;
    return (x < y) - (x > y);
}

void bench_sort_shares(struct ddl_bench_report *report)
{
    qsort(report->share, report->n_shares, sizeof *report->share, longest_first);
}

void bench_shares(struct ddl_bench_report *report, const struct ddl_profile *profile, size_t n,
                  double seconds)
{
    for (const struct ddl_profile_row *row = profile->rows; row->name && report->n_shares < DDL_BENCH_SHARES;
         row++) {
        if (!row->calls)
            continue;
        struct ddl_bench_share *share = &report->share[report->n_shares++];
        snprintf(share->op, sizeof share->op, "%s", row->name);
        share->seconds = row->seconds / (double)n;
        share->calls = (double)row->calls / (double)n;
        share->flops = row->flops / (double)n;
        share->bytes = row->bytes / (double)n;
    }
    bench_sort_shares(report);
    bench_figure(report, "profiled_s", seconds / (double)n);
}

ddl_status bench_check_steps(size_t steps, struct ddl_error *err)
{
    if (steps >= 1 && steps <= DDL_BENCH_REPETITIONS)
        return DDL_OK;
    return ddl_error_set(err, DDL_E_USAGE, "bench: repetitions: expected 1 to %d, found %zu",
                         DDL_BENCH_REPETITIONS, steps);
}

static bool same_settings(const struct ddl_bench_report *a, const struct ddl_bench_report *b)
{
    if (strcmp(a->kind, b->kind) != 0 || a->n_settings != b->n_settings)
        return false;
    for (size_t i = 0; i < a->n_settings; i++) {
        if (strcmp(a->setting[i].name, b->setting[i].name) != 0 ||
            strcmp(a->setting[i].value, b->setting[i].value) != 0)
            return false;
    }
    return true;
}

const struct ddl_bench_report *ddl_bench_match(const struct ddl_bench_report *now,
                                               const struct ddl_bench_report *old, size_t n)
{
    while (n-- > 0) {
        if (same_settings(&old[n], now))
            return &old[n];
    }
    return NULL;
}

static struct ddl_bench_change changed(const struct ddl_bench_row *old, const struct ddl_bench_row *now)
{
    double before = old->q3 - old->q1, after = now->q3 - now->q1;
    double noise = sqrt(before * before + after * after), moved = now->median - old->median;
    struct ddl_bench_change c = {
        .name = now->name, .before = old->median, .now = now->median, .noise = noise / old->median
    };
    if (fabs(moved) > noise && fabs(moved) > smallest_change * old->median)
        c.outcome = moved < 0 ? DDL_BENCH_FASTER : DDL_BENCH_SLOWER;
    return c;
}

size_t ddl_bench_compare(const struct ddl_bench_report *old, const struct ddl_bench_report *now,
                         struct ddl_bench_change *out)
{
    size_t n = 0;
    for (size_t i = 0; i < now->n_rows; i++) {
        const struct ddl_bench_row *row = &now->row[i], *before = ddl_bench_find(old, row->name);
        out[n++] = before ? changed(before, row)
                          : (struct ddl_bench_change){ row->name, DDL_BENCH_NEW, NAN, row->median, NAN };
    }
    for (size_t i = 0; i < old->n_rows; i++) {
        const struct ddl_bench_row *row = &old->row[i];
        if (!ddl_bench_find(now, row->name))
            out[n++] = (struct ddl_bench_change){ row->name, DDL_BENCH_GONE, row->median, NAN, NAN };
    }
    return n;
}
