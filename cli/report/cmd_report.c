/* ddl report RUN: what a run has done so far, as text, as JSON and as an HTML page. */
#include "cli/cli.h"
#include "cli/output/escape.h"
#include "cli/output/page.h"
#include "cli/report/report.h"

#include "ddl/sweep.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct flags {
    char html[PAGE_PATH];
    bool is_default; /* html is RUN/report.html */
    bool json;
};

#define AT(field) offsetof(struct flags, field)
static const struct ddl_other_name html_others[] = {
    { "out", NULL, DDL_OTHER_DIFFERS },
    { "output", NULL, DDL_OTHER_DIFFERS },
    { 0 },
};
static const struct ddl_option rows[] = {
    { "html", DDL_OPTION_PATH, AT(html), PAGE_PATH, 0, 0, NULL, "FILE",
      "file of the page (empty: RUN/report.html, and none with --json)", .others = html_others },
    { "json", DDL_OPTION_BOOL, AT(json), 0, 0, 0, NULL, NULL, "print the data of the page as JSON" },
    { 0 },
};

/* ---- text ---- */

/* "validation 3.2100", or nothing. */
static void print_loss(const char *join, const char *name, double loss)
{
    if (!isnan(loss))
        printf("%s%s %.4f", join, name, loss);
}

static void print_text(const struct report *r)
{
    const struct ddl_run_point *last = &r->log.points[r->log.n - 1], *best = report_best(r);
    const char *preset = r->log.has_config ? ddl_config_preset_name(&r->log.config) : NULL;
    printf("%s: %s, step %llu", printable(r->folder), printable(r->status), (unsigned long long)last->step);
    if (r->log.recipe)
        printf(" of %llu", (unsigned long long)r->log.recipe->steps);
    if (preset)
        printf(", %s", printable(preset));
    if (r->log.n_params)
        printf(", %zu parameters", r->log.n_params);
    printf("\n");
    print_loss("loss: ", "training", ddl_run_log_final_train(&r->log));
    print_loss(", ", "validation", ddl_run_log_final_val(&r->log));
    if (best)
        printf(", best %.4f at step %llu", best->val_loss, (unsigned long long)best->step);
    printf("\n%.0f tokens", last->tokens);
    if (!isnan(last->train_seconds))
        printf(" in %.1f s of training", last->train_seconds);
    double speed = ddl_run_log_speed(&r->log);
    if (!isnan(speed))
        printf(", %.0f tokens/s", speed);
    if (!isnan(last->peak_memory))
        printf(", at most %.0f MiB", last->peak_memory / 1048576);
    printf("\n%zu checkpoints, %zu telemetry records, %llu skipped updates, %zu divergence dumps\n",
           r->n_checkpoints, r->telemetry.total, (unsigned long long)r->n_skipped, r->dumps.n);
}

/* ---- the command ---- */

static void write_data(struct ddl_json *json, const void *object)
{
    write_report_json(json, "result", object);
    page_put_figures(json);
}

static ddl_status write_page(const struct report *r, const struct flags *flags, struct ddl_error *err)
{
    char title[1200];
    snprintf(title, sizeof title, "Report of %s", r->folder);
    const struct page page = {
        .path = flags->html,
        .is_own = flags->is_default,
        .kind = "report",
        .title = title,
        .write = write_data,
        .object = r,
    };
    return page_write(&page, err);
}

static ddl_status show(const struct report *r, const struct flags *flags, struct ddl_error *err)
{
    if (*flags->html) {
        ddl_status status = write_page(r, flags, err);
        if (status)
            return status;
    }
    if (flags->json) {
        struct ddl_json json = { stdout, false };
        write_report_json(&json, NULL, r);
        putchar('\n');
        return DDL_OK;
    }
    print_text(r);
    char why[512];
    if (ddl_sweep_run_is_stale(r->folder, why, sizeof why))
        printf("stale run of a sweep: %s\n", printable(why));
    printf("page: %s\n", printable(flags->html));
    return DDL_OK;
}

static int cmd_report(int argc, char **argv)
{
    struct ddl_error err = { 0 };
    struct flags flags = { 0 };
    struct report r = { 0 };
    int n;
    ddl_status status = ddl_option_parse(rows, &flags, NULL, NULL, argc, argv, &n, &err);
    if (!status)
        status = check_arguments("report", n, argv, 1, 1, "a run folder (RUN)", &err);
    if (status)
        return report_error(&err);
    char *folder = argv[1];
    trim_slashes(folder);
    if (!*flags.html && !flags.json) {
        flags.is_default = true;
        int length = snprintf(flags.html, sizeof flags.html, "%s/report.html", folder);
        if (length < 0 || (size_t)length >= sizeof flags.html)
            status = ddl_error_set(&err, DDL_E_USAGE, "%.200s...: the path is too long", folder);
    }
    if (!status)
        status = page_check(flags.html, &err);
    if (!status)
        status = report_read(&r, folder, &err);
    if (!status)
        status = show(&r, &flags, &err);
    report_free(&r);
    return status ? report_error(&err) : EXIT_OK;
}

const struct command report_command = {
    .name = "report",
    .usage = "RUN [--html FILE] [--json]",
    .about = "write a page about one run: curves, gates, samples, recipe",
    .text =
        (const char *const[]){
            "Writes an HTML page about a run of ddl train (running, stopped or finished): training and",
            "validation loss, learning rate, gradient norm and speed, the gates of each sublayer over",
            "the steps and their histograms (from telemetry records), task scores, samples, the recipe,",
            "checkpoints, resumes, skipped updates and divergence dumps. The page is one file that needs no",
            "network. For a long run it has every n-th logged step and each step with a validation. A",
            "summary is printed.", NULL },
    .options = { { .rows = rows } },
    .examples = (const struct note[]){ { "ddl report my/run", "writes my/run/report.html" },
                                       { "ddl report my/run --html run.html", "another file" },
                                       { "ddl report my/run --json", "the data of the page" },
                                       { 0 } },
    .files = (const struct note[]){ { "RUN/report.html", "the page" }, { 0 } },
    .run = cmd_report,
};
