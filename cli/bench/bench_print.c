#include "cli/bench/bench_print.h"
#include "cli/output/escape.h"

#include <math.h>
#include <string.h>

/* What the row's products are measured against: 0 where that was not measured, as for tf32. */
static double peak_of(const struct ddl_bench_report *report, const struct ddl_bench_row *row)
{
    const char *dtype = "";
    for (size_t i = 0; i < report->n_settings; i++)
        dtype = strcmp(report->setting[i].name, "dtype") == 0 ? report->setting[i].value : dtype;
    if (strncmp(row->name, "matmul_bf16", strlen("matmul_bf16")) == 0 || strcmp(dtype, "bf16") == 0)
        return report->roofline.gemm_bf16;
    return strcmp(dtype, "tf32") == 0 ? 0 : report->roofline.gemm_f32;
}

/* "  123.4 GFLOP/s  56 %"; "-" in place of a rate of 0, blanks in place of an unknown share. */
static void print_rate(FILE *out, double amount, double seconds, double peak, const char *unit)
{
    if (amount > 0)
        fprintf(out, " %9.1f %s", 1e-9 * amount / seconds, unit);
    else
        fprintf(out, " %9s %s", "-", unit);
    if (amount > 0 && peak > 0)
        fprintf(out, " %3.0f %%", 100 * amount / seconds / peak);
    else
        fprintf(out, " %5s", "");
}

static void print_seconds(FILE *out, double seconds)
{
    static const struct {
        double most, scale;
        const char *unit;
    } units[] = { { 1e-3, 1e6, "us" }, { 1, 1e3, "ms" }, { INFINITY, 1, "s " } };
    size_t i = 0;
    while (seconds >= units[i].most)
        i++;
    fprintf(out, " %8.3f %s", seconds * units[i].scale, units[i].unit);
}

static void print_row(FILE *out, const struct ddl_bench_report *report, const struct ddl_bench_row *row)
{
    fprintf(out, "%-23s", printable(row->name));
    print_seconds(out, row->median);
    fprintf(out, "  -%2.0f +%2.0f %%", 100 * (row->median - row->q1) / row->median,
            100 * (row->q3 - row->median) / row->median);
    print_seconds(out, row->best);
    fprintf(out, " %5zu x", row->repetitions);
    print_rate(out, row->flops, row->median, peak_of(report, row), "GFLOP/s");
    print_rate(out, row->bytes, row->median, report->roofline.copy, "GB/s");
    if (row->units > 0)
        fprintf(out, "  %.6g %s/s", row->units / row->median, printable(row->unit));
    fputc('\n', out);
}

static void print_roofline(FILE *out, const struct ddl_bench_roofline *r)
{
    if (r->gemm_f32 > 0)
        fprintf(out,
                "machine: products %.1f GFLOP/s in float32, %.1f in bfloat16; copy %.1f GB/s, read %.1f\n",
                1e-9 * r->gemm_f32, 1e-9 * r->gemm_bf16, 1e-9 * r->copy, 1e-9 * r->read);
}

static void print_shares(FILE *out, const struct ddl_bench_report *report)
{
    double whole = ddl_bench_figure(report, "profiled_s");
    for (size_t i = 0; i < report->n_shares; i++) {
        const struct ddl_bench_share *s = &report->share[i];
        fprintf(out, "%-18s %9.3f ms %5.1f %%  %5.0f calls %10.2f GFLOP %9.3f GB\n", printable(s->op),
                1e3 * s->seconds, 100 * s->seconds / whole, s->calls, 1e-9 * s->flops, 1e-9 * s->bytes);
    }
}

void print_bench(FILE *out, const struct ddl_bench_report *report)
{
    fprintf(out, "%s: ", printable(report->kind));
    for (size_t i = 0; i < report->n_settings; i++)
        fprintf(out, "%s%s %s", i ? ", " : "", printable(report->setting[i].name),
                printable(report->setting[i].value));
    fprintf(out, "\n%s, %s\n", printable(report->machine), printable(report->backend));
    print_roofline(out, &report->roofline);
    fprintf(out, "checked: %s\n", printable(report->check));
    if (report->n_rows)
        fprintf(out, "%-23s %11s %11s %11s %7s\n", "", "median", "quartiles", "best", "times");
    for (size_t i = 0; i < report->n_rows; i++)
        print_row(out, report, &report->row[i]);
    for (size_t i = 0; i < report->n_figures; i++)
        fprintf(out, "%-23s %.6g\n", printable(report->figure[i].name), report->figure[i].value);
    print_shares(out, report);
}

static const char *const outcomes[] = { "same", "faster", "slower", "new", "gone" };

void print_bench_changes(FILE *out, const struct ddl_bench_report *old, const struct ddl_bench_report *now,
                         const char *path)
{
    struct ddl_bench_change change[2 * DDL_BENCH_ROWS];
    if (!old) {
        fprintf(out, "%s has no report of %s at these settings: nothing to compare\n", printable(path),
                printable(now->kind));
        return;
    }
    size_t n = ddl_bench_compare(old, now, change), same = 0;
    if (strcmp(old->machine, now->machine) != 0 || strcmp(old->backend, now->backend) != 0)
        fprintf(out, "then: %s, %s\n", printable(old->machine), printable(old->backend));
    for (size_t i = 0; i < n; i++) {
        const struct ddl_bench_change *c = &change[i];
        same += c->outcome == DDL_BENCH_SAME;
        if (c->outcome == DDL_BENCH_FASTER || c->outcome == DDL_BENCH_SLOWER)
            fprintf(out, "%-23s %s: %.2f x the time (%.4g s, was %.4g s; noise %.0f %%)\n",
                    printable(c->name), outcomes[c->outcome], c->now / c->before, c->now, c->before,
                    100 * c->noise);
        else if (c->outcome != DDL_BENCH_SAME)
            fprintf(out, "%-23s %s\n", printable(c->name), outcomes[c->outcome]);
    }
    fprintf(out, "%zu of %zu within noise of %s\n", same, n, printable(path));
}
