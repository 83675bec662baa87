/* Tables and JSON of ddl sweep. */
#define _POSIX_C_SOURCE 200809L
#include "cli/output/escape.h"
#include "cli/sweep/sweep.h"
#include "cli/output/table.h"

#include "ddl/json.h"

#include <math.h>
#include <string.h>

static void print_time_cell(struct table *t, double seconds)
{
    char text[32] = "-";
    if (!isnan(seconds))
        format_seconds(seconds, text, sizeof text);
    print_text_cell(t, text);
}

static void print_choices(const struct ddl_sweep *sweep)
{
    bool any = false;
    for (size_t i = 0; i < sweep->n_settings; i++) {
        if (!sweep->settings[i].n_values)
            continue;
        if (!any)
            putchar('\n');
        any = true;
        print_choice(stdout, &sweep->settings[i]);
    }
}

/* The protocol, before the results that it is about. */
static void print_protocol(const struct ddl_sweep_protocol *protocol)
{
    if (!ddl_sweep_protocol_is_set(protocol))
        return;
    if (*protocol->question)
        printf("question: %s\n", printable(protocol->question));
    printf("primary contrast: %s\n", printable(protocol->primary));
    for (const char *at = protocol->secondary; *at;) {
        const size_t n = strcspn(at, "\n");
        printf("secondary contrast: %s\n", printable_bytes(at, n));
        at += n + (at[n] == '\n');
    }
    if (protocol->margin > 0)
        printf("margin of equivalence: %g\n", protocol->margin);
    printf("level: %g\npower: %g\n", protocol->level, protocol->power);
    if (*protocol->stopping)
        printf("stopping rule: %s\n", printable(protocol->stopping));
    printf("\n");
}

void print_states(const struct ddl_sweep *sweep)
{
    print_protocol(&sweep->protocol);
    static const struct column columns[] = { { "state", -8 },   { "step", 8 }, { "steps", 8 }, { "loss", 8 },
                                             { "val loss", 8 }, { "time", 9 }, { "left", 9 },  { "run", 0 } };
    struct table t = begin_table(columns, sizeof columns / sizeof *columns, false);
    for (size_t i = 0; i < sweep->n_runs; i++) {
        const struct ddl_sweep_run *run = &sweep->runs[i];
        print_text_cell(&t, ddl_sweep_state_names[run->state]);
        print_number_cell(&t, (double)run->step, 0);
        print_number_cell(&t, (double)run->config->steps, 0);
        print_number_cell(&t, run->loss, 4);
        print_number_cell(&t, run->val_loss, 4);
        print_time_cell(&t, run->seconds > 0 ? run->seconds : (double)NAN);
        print_time_cell(&t, run->state == DDL_SWEEP_FINISHED ? (double)NAN : run->seconds_left);
        print_text_cell(&t, run->name);
    }
    print_choices(sweep);
    bool any = false;
    for (size_t i = 0; i < sweep->n_runs; i++) {
        const struct ddl_sweep_run *run = &sweep->runs[i];
        if (run->state != DDL_SWEEP_FAILED && run->state != DDL_SWEEP_STALE)
            continue;
        printf("%s%s: %s\n", any ? "" : "\n", printable(run->name), printable(run->message));
        any = true;
    }
}

/* ---- forecast ---- */

/* Sums over the runs. */
struct totals {
    double tokens, memory, seconds, open_seconds, disk; /* memory: the largest; open: of those not finished */
};

static struct totals sum_up(const struct ddl_sweep *sweep, const struct ddl_sweep_forecast *forecast,
                            size_t jobs)
{
    struct totals sum = { 0 };
    for (size_t i = 0; i < sweep->n_runs; i++) {
        const struct ddl_sweep_forecast *f = &forecast[i];
        bool open = sweep->runs[i].state != DDL_SWEEP_FINISHED;
        sum.tokens += f->plan.tokens;
        sum.memory = fmax(sum.memory, (double)f->plan.bytes_total);
        sum.seconds += f->seconds / (double)jobs;
        sum.open_seconds += open ? f->seconds / (double)jobs : 0;
        sum.disk += f->disk;
    }
    return sum;
}

/* Runs by which lists of values may still be extended. */
static size_t further_runs(const struct ddl_sweep *sweep)
{
    size_t n = 0;
    for (size_t i = 0; i < sweep->n_settings; i++) {
        const struct ddl_sweep_setting *s = &sweep->settings[i];
        n += s->n_values && !s->is_chosen ? s->max_added - s->n_added : 0;
    }
    return n;
}

void print_forecast(const struct ddl_sweep *sweep, const struct ddl_sweep_forecast *forecast, size_t jobs)
{
    print_protocol(&sweep->protocol);
    static const struct column columns[] = { { "parameters", 11 }, { "FLOPs/token", 11 }, { "tokens", 8 },
                                             { "memory MiB", 10 }, { "time", 9 },         { "disk MiB", 9 },
                                             { "state", -8 },      { "run", 0 } };
    struct table t = begin_table(columns, sizeof columns / sizeof *columns, false);
    for (size_t i = 0; i < sweep->n_runs; i++) {
        const struct ddl_sweep_forecast *f = &forecast[i];
        char work[32], tokens[32];
        snprintf(work, sizeof work, "%.4g", f->plan.flops_per_token);
        format_count(f->plan.tokens, tokens, sizeof tokens);
        print_number_cell(&t, (double)f->plan.params_total, 0);
        print_text_cell(&t, work);
        print_text_cell(&t, tokens);
        print_number_cell(&t, (double)f->plan.bytes_total / 0x1p20, 1);
        print_time_cell(&t, f->seconds);
        print_number_cell(&t, f->disk / 0x1p20, 1);
        print_text_cell(&t, ddl_sweep_state_names[sweep->runs[i].state]);
        print_text_cell(&t, sweep->runs[i].name);
    }
    print_choices(sweep);
    const struct totals sum = sum_up(sweep, forecast, jobs);
    char tokens[32], seconds[32], open[32], time[96] = "time not measured";
    format_count(sum.tokens, tokens, sizeof tokens);
    if (!isnan(sum.seconds)) {
        format_seconds(sum.seconds, seconds, sizeof seconds);
        format_seconds(sum.open_seconds, open, sizeof open);
        snprintf(time, sizeof time, "time %s, of which %s left", seconds, open);
    }
    printf("\n%zu run%s, %zu at a time: %s tokens, %s, up to %.1f MiB of memory, %.1f MiB on disk\n",
           sweep->n_runs, sweep->n_runs == 1 ? "" : "s", jobs, tokens, time,
           sum.memory * (double)jobs / 0x1p20, sum.disk / 0x1p20);
    const size_t further = further_runs(sweep);
    if (further)
        printf("up to %zu further run%s where the lowest loss is at an edge of the values\n", further,
               further == 1 ? "" : "s");
}

void print_forecast_json(const struct ddl_sweep *sweep, const struct ddl_sweep_forecast *forecast,
                         size_t jobs)
{
    const struct totals sum = sum_up(sweep, forecast, jobs);
    struct ddl_json json = { stdout, false };
    ddl_json_open(&json, NULL, '{');
    ddl_json_string(&json, "out", sweep->out);
    ddl_json_count(&json, "jobs", jobs);
    ddl_json_count(&json, "further_runs", further_runs(sweep));
    ddl_json_fixed(&json, "tokens", sum.tokens, 0);
    ddl_json_fixed(&json, "seconds", sum.seconds, 1);
    ddl_json_fixed(&json, "seconds_left", sum.open_seconds, 1);
    ddl_json_fixed(&json, "disk", sum.disk, 0);
    ddl_json_open(&json, "runs", '[');
    for (size_t i = 0; i < sweep->n_runs; i++) {
        const struct ddl_sweep_run *run = &sweep->runs[i];
        const struct ddl_sweep_forecast *f = &forecast[i];
        ddl_json_open(&json, NULL, '{');
        ddl_json_string(&json, "name", run->name);
        ddl_json_string(&json, "state", ddl_sweep_state_names[run->state]);
        ddl_json_bool(&json, "candidate", run->is_candidate);
        ddl_json_count(&json, "seed", run->config->seed);
        ddl_json_count(&json, "steps", run->config->steps);
        ddl_json_count(&json, "parameters", f->plan.params_total);
        ddl_json_number(&json, "flops_per_token", f->plan.flops_per_token, 9);
        ddl_json_fixed(&json, "tokens", f->plan.tokens, 0);
        ddl_json_count(&json, "memory", f->plan.bytes_total);
        ddl_json_fixed(&json, "disk", f->disk, 0);
        ddl_json_fixed(&json, "seconds", f->seconds, 1);
        ddl_json_close(&json, '}');
    }
    ddl_json_close(&json, ']');
    ddl_json_close(&json, '}');
    putchar('\n');
}
