/* ddl ablate: the loss of a model with one sublayer changed, for every sublayer. */
#define _POSIX_C_SOURCE 200809L
#include "cli/cli.h"
#include "ddl/json.h"
#include "cli/model/folder.h"
#include "cli/model/force.h"
#include "cli/output/page.h"
#include "cli/output/terminal.h"
#include "cli/model/token_data.h"
#include "cli/model/windows.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

struct flags {
    struct token_flags tokens;
    struct model_flags model;
    struct ddl_eval_config windows;
    char force[FORCE_SIZE];
    bool json, quiet;
    char html[PAGE_PATH];
};

#define AT(field) offsetof(struct flags, field)
static const struct ddl_option rows[] = {
    TOKEN_ROWS(struct flags),
    FORCE_ROW(struct flags,
              "change to make in each sublayer in turn, as for ddl eval; may be repeated (empty: beta=0, "
              "or f_scale=0 in sublayers without the delta rule)"),
    MODEL_ROWS(struct flags),
    WINDOW_ROWS(struct flags),
    { "val_tokens", DDL_OPTION_U64, AT(windows.max_tokens), 0, 0, 9e15, NULL, "N",
      "number of tokens to evaluate each time, rounded up to whole windows (0: all)", "max_tokens" },
    { "json", DDL_OPTION_BOOL, AT(json), 0, 0, 0, NULL, NULL, "print JSON" },
    HTML_ROW(struct flags),
    { "quiet", DDL_OPTION_BOOL, AT(quiet), 0, 0, 0, NULL, NULL, "print nothing but errors and the result" },
    { 0 },
};

static const struct flags initial = { .model = MODEL_DEFAULTS, .windows = { .max_tokens = 16384 } };
static const void *defaults(void)
{
    return &initial;
}

/* One sublayer's result. */
struct row {
    size_t sublayer;
    double loss, increase;
};

struct ablation {
    const struct flags *flags;
    struct folder folder;
    struct token_data data;
    struct force_plan plan;
    ddl_inspection *means; /* or NULL */
    struct ddl_eval_result base;
    struct row *rows; /* (plan.n) of which n_rows are known */
    size_t n_rows, n_total;
    struct work_line work;
    uint64_t done; /* tokens of the evaluations before this one */
    char what[64];
};

static int show_progress(void *user, uint64_t done, uint64_t total)
{
    struct ablation *a = user;
    a->work.done = a->done + done;
    a->work.total = (a->n_total + 1 + (a->plan.needs_means ? 1 : 0)) * total;
    work_line_show(&a->work, "ablate", a->what);
    return interrupted();
}

static ddl_status evaluate(struct ablation *a, struct ddl_eval_result *out, struct ddl_error *err)
{
    struct ddl_eval_config config = a->flags->windows;
    config.progress = show_progress;
    config.user = a;
    ddl_status status = token_data_eval(&a->data, &a->folder, &a->flags->model, &config, out, err);
    a->done += out->positions;
    return status;
}

static ddl_status measure_means(struct ablation *a, struct ddl_error *err)
{
    const struct ddl_inspect_config config = { .seq = a->flags->windows.seq,
                                               .max_tokens = a->flags->windows.max_tokens,
                                               .progress = show_progress,
                                               .user = a };
    if (!a->plan.needs_means)
        return DDL_OK;
    snprintf(a->what, sizeof a->what, "mean gates");
    ddl_status status = token_data_inspect(&a->data, &a->folder, &a->flags->model, &config, &a->means, err);
    a->done += a->means ? ddl_inspect_tokens(a->means) : 0;
    return status;
}

static ddl_status sweep(struct ablation *a, struct ddl_error *err)
{
    ddl_model *model = a->folder.model;
    ddl_status status = measure_means(a, err);
    snprintf(a->what, sizeof a->what, "unchanged");
    if (!status)
        status = evaluate(a, &a->base, err);
    for (size_t s = 0; s < a->plan.n && !status; s++) {
        struct ddl_eval_result result;
        if (!a->plan.sublayer[s].force.keys)
            continue;
        snprintf(a->what, sizeof a->what, "layer %zu %s", s / DDL_SUBLAYERS,
                 ddl_sublayer_names[s % DDL_SUBLAYERS]);
        ddl_model_clear_forces(model);
        status = force_plan_apply_one(&a->plan, s, model, a->means, err);
        if (!status)
            status = evaluate(a, &result, err);
        if (status == DDL_E_NUMERIC) { /* due to the change: the unchanged model has a finite loss */
            result.loss = NAN;
            status = DDL_OK;
        }
        if (!status)
            a->rows[a->n_rows++] = (struct row){ s, result.loss, result.loss - a->base.loss };
    }
    ddl_model_clear_forces(model);
    progress_line_clear(&a->work.line);
    return status;
}

/* ---- results ---- */

/* The largest increase first; a loss that is not a number before all. */
static int by_increase(const void *a, const void *b)
{
    const struct row *x = a, *y = b;
    int nan_first = (y->increase != y->increase) - (x->increase != x->increase);
    int larger = (x->increase < y->increase) - (x->increase > y->increase);
    int order = nan_first ? nan_first : larger;
    return order ? order : (x->sublayer > y->sublayer) - (x->sublayer < y->sublayer);
}

static void print_table(const struct ablation *a)
{
    const struct ddl_config *k = ddl_model_config(a->folder.model);
    printf("loss %.6f on %llu tokens\n\n", a->base.loss, (unsigned long long)a->base.tokens);
    printf("rank  layer  sub   rule     force               loss    increase\n");
    for (size_t i = 0; i < a->n_rows; i++) {
        const struct row *row = &a->rows[i];
        char text[128];
        force_describe(&a->plan.sublayer[row->sublayer], text, sizeof text);
        printf("%4zu  %5zu  %-4s  %-7s  %-14s  %9.6f  %+10.6f\n", i + 1, row->sublayer / DDL_SUBLAYERS,
               ddl_sublayer_names[row->sublayer % DDL_SUBLAYERS],
               ddl_config_residual_name(k, row->sublayer / DDL_SUBLAYERS), text, row->loss, row->increase);
    }
}

static void write_json(struct ddl_json *json, const char *key, const struct ablation *a)
{
    const struct ddl_config *k = ddl_model_config(a->folder.model);
    ddl_json_open(json, key, '{');
    print_saved_model_json(json, &a->folder.found);
    ddl_json_number(json, "loss", a->base.loss, 9);
    ddl_json_count(json, "tokens", a->base.tokens);
    ddl_json_bool(json, "complete", a->n_rows == a->n_total);
    ddl_json_open(json, "sublayers", '[');
    for (size_t i = 0; i < a->n_rows; i++) {
        const struct row *row = &a->rows[i];
        char text[128];
        force_describe(&a->plan.sublayer[row->sublayer], text, sizeof text);
        ddl_json_open(json, NULL, '{');
        ddl_json_count(json, "layer", row->sublayer / DDL_SUBLAYERS);
        ddl_json_string(json, "sub", ddl_sublayer_names[row->sublayer % DDL_SUBLAYERS]);
        ddl_json_string(json, "rule", ddl_config_residual_name(k, row->sublayer / DDL_SUBLAYERS));
        ddl_json_string(json, "force", text);
        ddl_json_number(json, "loss", row->loss, 9);
        ddl_json_number(json, "increase", row->increase, 9);
        ddl_json_close(json, '}');
    }
    ddl_json_close(json, ']');
    ddl_json_close(json, '}');
}

static void print_json(const struct ablation *a)
{
    struct ddl_json json = { stdout, false };
    write_json(&json, NULL, a);
    putchar('\n');
}

static void write_data(struct ddl_json *json, const void *object)
{
    write_json(json, "result", object);
}

/* The page of --html, if there is one. */
static ddl_status write_page(const struct ablation *a, const char *dir, struct ddl_error *err)
{
    char title[1200];
    snprintf(title, sizeof title, "Ablation of %s", dir);
    const struct page page = {
        .path = a->flags->html, .kind = "ablate", .title = title, .write = write_data, .object = a
    };
    return *page.path ? page_write(&page, err) : DDL_OK;
}

/* ---- the command ---- */

static ddl_status open_all(struct ablation *a, const char *dir, struct ddl_error *err)
{
    const struct flags *flags = a->flags;
    const struct folder_request request = { .dir = dir,
                                            .model = &flags->model,
                                            .needs_tokenizer = *flags->tokens.text != '\0',
                                            .quiet = flags->json || flags->quiet };
    ddl_status status = folder_open(&a->folder, &request, err);
    if (status)
        return status;
    const struct ddl_config *k = ddl_model_config(a->folder.model);
    status = *flags->force ? force_plan_make(&a->plan, "--force", flags->force, k, err)
                           : force_plan_close_all(&a->plan, k, err);
    for (size_t s = 0; s < a->plan.n && !status; s++)
        a->n_total += a->plan.sublayer[s].force.keys != 0;
    if (!status && !(a->rows = calloc(a->plan.n, sizeof *a->rows)))
        status = ddl_error_set(err, DDL_E_MEMORY, "ablate: out of memory");
    return status ? status : token_data_open(&a->data, &flags->tokens, flags->quiet, err);
}

/* Prints the results, those of an interrupted sweep too, and writes the page; returns the command's status.
 */
static ddl_status show_results(struct ablation *a, const char *dir, ddl_status status, struct ddl_error *err)
{
    bool any = !status || (status == DDL_E_INTERRUPTED && a->n_rows > 0);
    if (status == DDL_E_INTERRUPTED)
        ddl_error_set(err, status, "ablate: interrupted after %zu of %zu sublayers", a->n_rows, a->n_total);
    if (!any)
        return status;
    qsort(a->rows, a->n_rows, sizeof *a->rows, by_increase);
    (a->flags->json ? print_json : print_table)(a);
    ddl_status written = write_page(a, dir, err);
    return written ? written : status;
}

static int cmd_ablate(int argc, char **argv)
{
    struct ddl_error err = { 0 };
    struct flags flags = initial;
    struct ablation a = { .flags = &flags };
    int n;
    ddl_status status = ddl_option_parse(rows, &flags, NULL, NULL, argc, argv, &n, &err);
    if (!status)
        status = check_arguments("ablate", n, argv, 1, 1, "a model folder (DIR)", &err);
    if (!status)
        status = token_flags_check(&flags.tokens, "ablate", &err);
    if (!status)
        status = page_check(flags.html, &err);
    if (status)
        return report_error(&err);
    catch_interrupts();
    a.work = work_line_on_stderr("tokens", flags.quiet);
    status = open_all(&a, argv[1], &err);
    if (!status)
        status = sweep(&a, &err);
    status = show_results(&a, argv[1], status, &err);
    ddl_inspect_free(a.means);
    token_data_close(&a.data);
    force_plan_free(&a.plan);
    folder_close(&a.folder);
    free(a.rows);
    return status ? report_error(&err) : EXIT_OK;
}

const struct command ablate_command = {
    .name = "ablate",
    .usage = "DIR (--val-data PATH | --text FILE) [--force SPEC] [--json]",
    .about = "rank sublayers by the increase in loss when each is left out",
    .text =
        (const char *const[]){
            "Evaluates the model unchanged, then with one sublayer changed at a time: by default the gate",
            "of a delta sublayer is closed (beta=0), and the output of any other sublayer is left out",
            "(f_scale=0). --force selects other changes and the sublayers that they apply to, as for",
            "'ddl eval'. The table is sorted by the increase in loss. If interrupted, the",
            "command prints the sublayers evaluated so far.", NULL },
    .options = { { .rows = rows, .defaults = defaults } },
    .keys_title = "keys of --force",
    .keys = force_notes,
    .examples =
        (const struct note[]){
            { "ddl ablate my/run --val-data my/shards", "each sublayer left out in turn" },
            { "ddl ablate my/run --val-data my/shards --force sub=mlp,update=write",
              "each delta MLP sublayer in turn without its erase term" },
            { "ddl ablate my/run --val-data my/shards --html ablation.html", "bars on a page for a browser" },
            { 0 } },
    .run = cmd_ablate,
};
