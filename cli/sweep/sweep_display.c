#define _POSIX_C_SOURCE 200809L
#include "cli/output/escape.h"
#include "cli/sweep/sweep.h"

#include <math.h>
#include <string.h>

/* ---- what is redrawn ---- */

static void add_time_left(struct line_fields *fields, int rank, double seconds)
{
    char left[32];
    if (isnan(seconds))
        return;
    format_seconds(seconds, left, sizeof left);
    add_field(fields, rank, "%s left", left);
}

static struct line_fields total_line(const struct ddl_sweep *sweep)
{
    struct line_fields fields = { 0 };
    size_t failed = ddl_sweep_count(sweep, DDL_SWEEP_FAILED);
    size_t stale = ddl_sweep_count(sweep, DDL_SWEEP_STALE);
    add_field(&fields, 0, "%zu/%zu runs finished", ddl_sweep_count(sweep, DDL_SWEEP_FINISHED), sweep->n_runs);
    add_field(&fields, 1, "%zu running", ddl_sweep_count(sweep, DDL_SWEEP_RUNNING));
    if (failed)
        add_field(&fields, 1, "%zu failed", failed);
    if (stale)
        add_field(&fields, 1, "%zu stale", stale);
    add_field(&fields, 3, "%zu waiting",
              ddl_sweep_count(sweep, DDL_SWEEP_WAITING) + ddl_sweep_count(sweep, DDL_SWEEP_STOPPED));
    add_time_left(&fields, 2, sweep->seconds_left);
    return fields;
}

static struct line_fields run_line(const struct ddl_sweep_run *run)
{
    enum { NAME = 44 }; /* columns of the name: its end, which tells runs apart */
    struct line_fields fields = { 0 };
    size_t length = strlen(run->name);
    char speed[16];
    add_field(&fields, 0, "  %s", run->name + (length > NAME ? length - NAME : 0));
    if (isnan(run->loss)) {
        add_field(&fields, 1, "starting");
        return fields;
    }
    format_count(run->tokens_per_s, speed, sizeof speed);
    add_field(&fields, 1, "step %llu/%llu", (unsigned long long)run->step,
              (unsigned long long)run->config->steps);
    add_field(&fields, 2, "loss %.4f", run->loss);
    if (!isnan(run->val_loss))
        add_field(&fields, 5, "val %.4f", run->val_loss);
    if (run->tokens_per_s > 0)
        add_field(&fields, 4, "%s tok/s", speed);
    add_time_left(&fields, 3, run->seconds_left);
    return fields;
}

static void show_update(void *user, const struct ddl_sweep *sweep)
{
    enum { MOST = 64 };
    struct sweep_display *d = user;
    struct line_fields lines[MOST];
    size_t n = 0;
    if (d->quiet || !progress_line_due(&d->block.line))
        return;
    lines[n++] = total_line(sweep);
    for (size_t i = 0; i < sweep->n_runs && n < MOST; i++) {
        if (sweep->runs[i].state == DDL_SWEEP_RUNNING)
            lines[n++] = run_line(&sweep->runs[i]);
    }
    progress_block_show(&d->block, lines, n);
}

/* ---- what stays ---- */

static void print_losses(const struct ddl_sweep_run *run)
{
    char time[32];
    format_seconds(run->seconds, time, sizeof time);
    fprintf(stderr, ", loss %.4f", run->loss);
    if (!isnan(run->val_loss))
        fprintf(stderr, ", validation loss %.4f", run->val_loss);
    fprintf(stderr, ", %s", time);
}

static void show_event(void *user, const struct ddl_sweep *sweep, const struct ddl_sweep_run *run)
{
    struct sweep_display *d = user;
    (void)sweep;
    if (d->quiet)
        return;
    progress_block_clear(&d->block);
    fprintf(stderr, "%s: %s", printable(run->name),
            run->state == DDL_SWEEP_RUNNING ? "started" : ddl_sweep_state_names[run->state]);
    if (run->state == DDL_SWEEP_RUNNING && run->step > 0)
        fprintf(stderr, ", continues after step %llu", (unsigned long long)run->step);
    else if (run->state == DDL_SWEEP_FINISHED)
        print_losses(run);
    else if (run->state == DDL_SWEEP_STOPPED)
        fprintf(stderr, " at step %llu of %llu", (unsigned long long)run->step,
                (unsigned long long)run->config->steps);
    else if (run->state == DDL_SWEEP_FAILED || run->state == DDL_SWEEP_STALE)
        fprintf(stderr, ": %s", printable(run->message));
    putc('\n', stderr);
}

void print_choice(FILE *out, const struct ddl_sweep_setting *setting)
{
    fprintf(out, "%s: %s ", printable(setting->name), printable(setting->key));
    if (setting->is_chosen)
        fprintf(out, "%s chosen by %s:", printable(setting->values[setting->chosen].text),
                setting->loss_name);
    else
        fprintf(out, "not chosen yet:");
    for (size_t i = 0; i < setting->n_values; i++) {
        const struct ddl_sweep_value *value = &setting->values[i];
        fprintf(out, "%s %s", i ? "," : "", printable(value->text));
        if (!isnan(value->loss))
            fprintf(out, " %.4f", value->loss);
        else
            fprintf(out, " -");
    }
    fprintf(out, "%s\n",
            setting->is_chosen && setting->at_edge
                ? "; at the edge of the values: a better one may be outside"
                : "");
}

static void show_choice(void *user, const struct ddl_sweep *sweep, const struct ddl_sweep_setting *setting)
{
    struct sweep_display *d = user;
    (void)sweep;
    if (d->quiet)
        return;
    progress_block_clear(&d->block);
    print_choice(stderr, setting);
}

static void show_extension(void *user, const struct ddl_sweep *sweep, const struct ddl_sweep_setting *setting)
{
    struct sweep_display *d = user;
    (void)sweep;
    if (d->quiet)
        return;
    progress_block_clear(&d->block);
    fprintf(stderr, "%s: %s %s is at the edge of the values: %s is tried, too\n", printable(setting->name),
            printable(setting->key), printable(setting->values[setting->chosen].text),
            printable(setting->values[setting->n_values - 1].text));
}

static int show_check(void *user, uint64_t done, uint64_t total)
{
    struct sweep_display *d = user;
    if (!d->quiet && progress_line_due(&d->block.line)) {
        struct line_fields fields = { 0 };
        add_field(&fields, 0, "checking the data %3.0f%%", 100 * (double)done / (double)total);
        progress_block_show(&d->block, &fields, 1);
    }
    return interrupted();
}

static int stop_requested(void *user)
{
    (void)user;
    return interrupted();
}

struct sweep_display sweep_display_on_stderr(bool quiet)
{
    return (struct sweep_display){ .block = { .line = progress_line_on_stderr(quiet) }, .quiet = quiet };
}

struct ddl_sweep_callbacks sweep_display_callbacks(struct sweep_display *display)
{
    return (struct ddl_sweep_callbacks){ .user = display,
                                         .check = show_check,
                                         .update = show_update,
                                         .event = show_event,
                                         .choice = show_choice,
                                         .extend = show_extension,
                                         .stop = stop_requested };
}

void sweep_display_end(struct sweep_display *display)
{
    progress_block_clear(&display->block);
}
