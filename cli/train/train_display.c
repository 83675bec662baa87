#define _POSIX_C_SOURCE 200809L
#include "cli/train/train_display.h"
#include "cli/output/escape.h"

#include "cli/cli.h"
#include "cli/output/match_print.h"

#include <math.h>
#include <string.h>

/* ---- header ---- */

static void print_label(FILE *out, bool color, const char *label)
{
    fprintf(out, "%s%-9s%s ", color ? "\033[2m" : "", label, color ? "\033[0m" : "");
}

static void print_data(FILE *out, const struct ddl_train_summary *s)
{
    char have[16], val[16], used[16];
    format_count((double)s->train_tokens, have, sizeof have);
    format_count((double)s->val_tokens, val, sizeof val);
    format_count(s->plan.tokens, used, sizeof used);
    if (!s->train_tokens)
        fprintf(out, "none; the run needs %s tokens\n", used);
    else
        fprintf(out, "%s tokens, of which the run reads %s (%.3g epochs); validation: %s\n", have, used,
                s->epochs, s->val_tokens ? val : "none");
}

void print_header(FILE *out, bool color, const struct ddl_train_summary *s)
{
    const struct ddl_train_config *config = s->config;
    const struct ddl_config *model = &config->config;
    char params[16];
    format_count((double)s->plan.params_total, params, sizeof params);
    print_label(out, color, "model");
    fprintf(out, "%s, %s parameters\n", s->model ? printable(s->model) : "no named model", params);
    print_label(out, color, "shape");
    fprintf(out, "%zu layer%s, width %zu, %zu head%s x %zu, MLP width %zu\n", model->n_layers,
            model->n_layers == 1 ? "" : "s", model->d_model, model->n_heads, model->n_heads == 1 ? "" : "s",
            model->head_dim, ddl_config_mlp_size(model));
    if (s->match.mlp_size) {
        print_label(out, color, "match");
        print_match(out, &s->match);
    }
    print_label(out, color, "backend");
    fprintf(out, "%s, dtype %s", s->backend, ddl_precision_names[config->precision]);
    if (s->plan.peak_rate > 0)
        fprintf(out, ", at most %.4g TFLOP/s", s->plan.peak_rate / 1e12);
    putc('\n', out);
    print_label(out, color, "data");
    print_data(out, s);
    print_label(out, color, "memory");
    fprintf(out, "%.0f MiB predicted, %.0f MiB available\n", (double)s->plan.bytes_total / 0x1p20,
            (double)s->plan.bytes_capacity / 0x1p20);
    print_label(out, color, "folder");
    fprintf(out, "%s\n",
            *config->out ? printable(config->out) : "the first free one of runs/<model>-<size>-<n>");
    if (s->step) {
        print_label(out, color, "resumed");
        fprintf(out, "after step %llu of %llu\n", (unsigned long long)s->step,
                (unsigned long long)config->steps);
    }
}

static void print_time(FILE *out, bool color, double seconds, const char *basis)
{
    char text[32];
    format_seconds(seconds, text, sizeof text);
    print_label(out, color, "time");
    fprintf(out, "about %s, %s\n", text, basis);
}

void print_estimate(FILE *out, bool color, const struct ddl_train_preview *preview, ddl_status status)
{
    char basis[80];
    if (!isnan(preview->seconds)) {
        snprintf(basis, sizeof basis, "from a micro-batch of %zu tokens and %zu layer%s",
                 preview->measured_tokens, preview->measured_layers,
                 preview->measured_layers == 1 ? "" : "s");
        print_time(out, color, preview->seconds, basis);
        return;
    }
    print_label(out, color, "time");
    fprintf(out, "not measured: %s\n", status ? "see the error" : preview->not_measured);
}

/* ---- progress ---- */

/* Steps and seconds of training after which the time is estimated, whichever comes first. */
enum { WARMUP_STEPS = 3, WARMUP_SECONDS = 2 };

/* Prints the estimated time once enough steps are measured. False: they are not. */
static bool show_time(struct train_display *d, const struct ddl_train_progress *p)
{
    if (d->timed)
        return true;
    uint64_t done = p->step - d->first_step;
    if (done == 0 || (done < WARMUP_STEPS && p->train_seconds - d->train_seconds < WARMUP_SECONDS))
        return p->has_val || p->n_tasks || p->step == p->steps;
    d->timed = true;
    if (p->step < p->steps) {
        char basis[64];
        snprintf(basis, sizeof basis, "measured over %llu step%s", (unsigned long long)done,
                 done == 1 ? "" : "s");
        progress_line_clear(&d->line);
        print_time(stderr, terminal_has_color(stderr), p->seconds_left, basis);
        d->line.shown = 0; /* the progress of this step follows */
    }
    return true;
}

bool train_has_loss(const struct ddl_train_progress *p)
{
    return p->loss != 0 || (p->step > 0 && !p->skipped);
}

/* The step and its loss. */
static void add_step(struct line_fields *fields, const struct ddl_train_progress *p)
{
    add_field(fields, 0, "step %llu/%llu", (unsigned long long)p->step, (unsigned long long)p->steps);
    if (train_has_loss(p))
        add_field(fields, 1, "loss %.4f", p->loss);
}

/* A line with the main value of each task. */
static void show_scores(struct train_display *d, const struct ddl_train_progress *p)
{
    progress_line_keep(&d->line);
    fprintf(stderr, "step %llu/%llu:", (unsigned long long)p->step, (unsigned long long)p->steps);
    for (size_t i = 0; i < p->n_tasks; i++) {
        const struct ddl_task_value *value = ddl_task_main_value(&p->tasks[i]);
        fprintf(stderr, "%s %s %s %.3f", i ? "," : "", printable(p->tasks[i].task), value->name,
                value->value);
    }
    putc('\n', stderr);
}

static void show_progress(void *user, const struct ddl_train_progress *p)
{
    struct train_display *d = user;
    bool stays = p->has_val || p->n_tasks || p->step == p->steps;
    if (d->quiet || !show_time(d, p) || (!stays && !progress_line_due(&d->line)))
        return;
    struct line_fields fields = { 0 };
    char speed[16], left[32];
    format_count(p->tokens_per_s, speed, sizeof speed);
    format_seconds(p->seconds_left, left, sizeof left);
    add_step(&fields, p);
    if (p->has_val)
        add_field(&fields, 2, "val %.4f", p->val_loss);
    if (p->step > 0) {
        add_field(&fields, 5, "lr %.2e", p->lr);
        add_field(&fields, 6, "norm %.3g", p->grad_norm);
        add_field(&fields, 4, "%s tok/s", speed);
        if (p->mfu > 0)
            add_field(&fields, 4, "MFU %.1f%%", 100 * p->mfu);
    }
    if (p->step > 0 && p->step < p->steps)
        add_field(&fields, 3, "%s left", left);
    progress_line_show(&d->line, &fields);
    if (stays)
        progress_line_keep(&d->line);
    if (p->n_tasks)
        show_scores(d, p);
}

static void show_share(struct train_display *d, struct line_fields *fields, const char *what, uint64_t done,
                       uint64_t total)
{
    add_field(fields, 1, "%s %3.0f%%", what, 100 * (double)done / (double)total);
    progress_line_show(&d->line, fields);
}

static int show_evaluation(struct train_display *d, const struct ddl_train_progress *p, const char *what,
                           uint64_t done, uint64_t total)
{
    if (progress_line_due(&d->line)) {
        struct line_fields fields = { 0 };
        add_step(&fields, p);
        show_share(d, &fields, what, done, total);
    }
    return interrupted();
}

static int show_validation(void *user, const struct ddl_train_progress *p, uint64_t done, uint64_t total)
{
    return show_evaluation(user, p, "validation", done, total);
}

static int show_tasks(void *user, const struct ddl_train_progress *p, uint64_t done, uint64_t total)
{
    return show_evaluation(user, p, "tasks", done, total);
}

static int show_check(void *user, uint64_t done, uint64_t total)
{
    struct train_display *d = user;
    if (progress_line_due(&d->line)) {
        struct line_fields fields = { 0 };
        show_share(d, &fields, "checking the data", done, total);
    }
    return interrupted();
}

static void show_begin(void *user, const struct ddl_train_summary *summary)
{
    struct train_display *d = user;
    exit_on_interrupt(false);
    memcpy(d->out, summary->config->out, sizeof d->out);
    d->first_step = summary->step;
    d->train_seconds = summary->train_seconds;
    if (d->quiet)
        return;
    progress_line_clear(&d->line);
    print_header(stderr, terminal_has_color(stderr), summary);
}

static void show_sample(void *user, uint64_t step, const char *prompt, const char *text, size_t size)
{
    struct train_display *d = user;
    if (d->quiet)
        return;
    progress_line_keep(&d->line);
    fprintf(d->samples, "--- step %llu\n", (unsigned long long)step);
    print_prompt(d->samples, prompt, strlen(prompt));
    print_generated(d->samples, text, size);
    fprintf(d->samples, "\n---\n");
    fflush(d->samples);
}

static void show_note(void *user, const char *message)
{
    struct train_display *d = user;
    if (d->quiet)
        return;
    progress_line_keep(&d->line);
    fprintf(stderr, "ddl: %s\n", printable(message));
}

static int stop_requested(void *user)
{
    (void)user;
    return interrupted();
}

struct train_display train_display_on_stderr(bool quiet, FILE *samples)
{
    return (
        struct train_display){ .line = progress_line_on_stderr(quiet), .samples = samples, .quiet = quiet };
}

struct ddl_train_callbacks train_display_callbacks(struct train_display *display)
{
    return (struct ddl_train_callbacks){ .user = display,
                                         .check = show_check,
                                         .begin = show_begin,
                                         .progress = show_progress,
                                         .validation = show_validation,
                                         .tasks = show_tasks,
                                         .sample = show_sample,
                                         .note = show_note,
                                         .stop = stop_requested };
}
