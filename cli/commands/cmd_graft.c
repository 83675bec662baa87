/* ddl graft: another residual rule in chosen layers of a trained model. */
#define _POSIX_C_SOURCE 200809L
#include "cli/cli.h"
#include "ddl/graft.h"
#include "ddl/json.h"
#include "cli/output/escape.h"
#include "cli/model/folder.h"
#include "cli/model/layers.h"
#include "cli/output/table.h"
#include "cli/output/terminal.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct flags {
    char out[900], which[32], layers[2048];
    int rule, train;
    bool sweep, keep_models, ignore_extra, verify, json, csv, markdown, quiet;
};

/* ---- options ---- */

/* The choices of the option ddl_residual: the names of the rules. */
static const char *const *rule_names(void)
{
    return ddl_option_find(ddl_config_options(), "ddl_residual")->choices;
}

#define AT(field) offsetof(struct flags, field)
#define FLAG(field, help)                                                                                    \
    {                                                                                                        \
#field, DDL_OPTION_BOOL, AT(field), 0, 0, 0, NULL, NULL, help                                        \
    }
enum { RULE_ROW = 3 };
static const struct ddl_option flag_rows[] = {
    { "out", DDL_OPTION_PATH, AT(out), 900, 0, 0, NULL, "DIR",
      "folder of the grafted model; with --sweep, of the results" },
    WHICH_ROW(flags),
    { "layers", DDL_OPTION_STRING, AT(layers), sizeof((struct flags *)0)->layers, 0, 0, NULL, "LIST",
      "layers whose rule is replaced, such as 0,3-5 or all (empty "
      "with --sweep: those whose rule is not --rule)" },
    [RULE_ROW] = { "rule", DDL_OPTION_CHOICE, AT(rule), 0, 0, 0, NULL, "NAME", "their new residual rule" },
    FLAG(sweep, "graft one layer at a time and fine-tune each grafted model"),
    { "train", DDL_OPTION_CHOICE, AT(train), 0, 0, 0, ddl_graft_train_names, "NAME",
      "fine-tune all parameters, or only the new ones" },
    FLAG(keep_models, "with --sweep: keep the grafted and the fine-tuned models"),
    FLAG(ignore_extra, "ignore tensors that are not parameters"),
    VERIFY_ROW_OF(struct flags, verify),
    FLAG(json, "print JSON"),
    FLAG(csv, "with --sweep: print CSV, a line per layer"),
    FLAG(markdown, "with --sweep: print the table in Markdown"),
    FLAG(quiet, "print nothing but errors and the result"),
    { 0 },
};
enum { FLAG_ROWS = sizeof flag_rows / sizeof *flag_rows };

static const struct flags initial = { .which = "last", .rule = DDL_RESIDUAL_DELTA, .verify = true };
static const void *flag_defaults(void)
{
    return &initial;
}

/* The rows with the names of the rules. */
static const struct ddl_option *flag_table(void)
{
    static struct ddl_option table[FLAG_ROWS];
    memcpy(table, flag_rows, sizeof table);
    table[RULE_ROW].choices = rule_names();
    return table;
}

/* The keys of the residual rules, as rows of struct ddl_config. */
enum { MAX_KEYS = 64 };
static const struct ddl_option *rule_table(void)
{
    static struct ddl_option table[MAX_KEYS];
    size_t n = 0;
    for (const struct ddl_option *row = ddl_config_options(); row->name && n + 1 < MAX_KEYS; row++) {
        if (!ddl_graft_may_set(row))
            continue;
        table[n] = *row;
        if (strcmp(row->name, "ddl_beta_init") == 0)
            table[n].aliases = "beta_init";
        n++;
    }
    table[n] = (struct ddl_option){ 0 };
    return table;
}

/* The keys of the data and of fine-tuning, as rows of struct ddl_train_config. */
static const struct ddl_option *run_table(void)
{
    static const char *const names[] = {
        "train_data",   "val_data",  "format", "val_tokens",   "steps",     "batch",       "accumulate",
        "global_batch", "seq",       "lr",     "lr_min_ratio", "schedule",  "decay_ratio", "warmup",
        "beta1",        "beta2",     "eps",    "weight_decay", "clip",      "spike_z",     "spike_window",
        "dtype",        "recompute", "seed",   "order",        "log_every", "backend",     "threads",
    };
    enum { N = sizeof names / sizeof *names };
    static struct ddl_option table[N + 1];
    for (size_t i = 0; i < N; i++)
        table[i] = *ddl_option_find(ddl_train_options(), names[i]);
    table[N] = (struct ddl_option){ 0 };
    return table;
}

static const void *run_defaults(void)
{
    static struct ddl_train_config defaults;
    defaults = ddl_train_defaults();
    defaults.steps = 100;
    defaults.lr = 1e-4;
    defaults.val_tokens = 16384;
    return &defaults;
}

/* Both tables above as rows of struct ddl_train_config. */
static const struct ddl_option *key_table(void)
{
    static struct ddl_option table[2 * MAX_KEYS];
    size_t n = 0;
    for (const struct ddl_option *row = run_table(); row->name; row++)
        table[n++] = *row;
    for (const struct ddl_option *row = rule_table(); row->name; row++) {
        table[n] = *row;
        table[n++].offset += offsetof(struct ddl_train_config, config);
    }
    table[n] = (struct ddl_option){ 0 };
    return table;
}

/* ---- one graft ---- */

/* What the command works on. */
struct work {
    struct flags flags;
    struct ddl_run_model found;
    struct ddl_train_config run; /* run.config: the keys of the rule; the rest is the source's */
    struct ddl_config source;
    struct ddl_graft graft;
    struct work_line line;
};

static int show_loss(void *user, uint64_t done, uint64_t total)
{
    struct work *w = user;
    w->line.done = done;
    w->line.total = total;
    work_line_show(&w->line, "graft", "loss");
    return interrupted();
}

static bool has_data(const struct ddl_train_config *run)
{
    bool val = *run->val_data && strcmp(run->val_data, "auto") != 0 && strcmp(run->val_data, "none") != 0;
    return *run->train_data || val;
}

struct losses {
    struct ddl_eval_result before, after;
};

static bool has_layers(const struct work *w)
{
    bool any = false;
    for (size_t l = 0; l < w->source.n_layers; l++)
        any = any || w->graft.layer[l];
    return any;
}

static void print_graft_json(const struct work *w, const struct ddl_graft_result *r,
                             const struct losses *losses)
{
    struct ddl_json json = { stdout, false };
    ddl_json_open(&json, NULL, '{');
    print_saved_model_json(&json, &w->found);
    ddl_json_string(&json, "out", w->flags.out);
    ddl_json_string(&json, "rule", has_layers(w) ? rule_names()[w->graft.rule] : NULL);
    ddl_json_open(&json, "layers", '[');
    for (size_t l = 0; l < r->config.n_layers; l++) {
        if (w->graft.layer[l])
            ddl_json_count(&json, NULL, l);
    }
    ddl_json_close(&json, ']');
    ddl_json_count(&json, "tensors_copied", r->n_copied);
    ddl_json_count(&json, "tensors_new", r->n_new);
    ddl_json_count(&json, "tensors_dropped", r->n_dropped);
    ddl_json_count(&json, "new_parameters", r->new_numbers);
    ddl_json_string(&json, "train_only", r->new_params);
    if (losses) {
        ddl_json_number(&json, "loss_before", losses->before.loss, 9);
        ddl_json_number(&json, "loss", losses->after.loss, 9);
        ddl_json_count(&json, "tokens", losses->after.tokens);
    }
    ddl_json_close(&json, '}');
    putchar('\n');
}

/* The changed options, the rules excepted. */
static void print_options(const struct ddl_graft_result *r)
{
    for (const struct ddl_option *row = ddl_config_options(); row->name; row++) {
        char was[64], now[64];
        ddl_option_format(row, &r->source, was, sizeof was);
        ddl_option_format(row, &r->config, now, sizeof now);
        if (ddl_graft_is_option(row) && strcmp(was, now) != 0)
            printf("%s: %s, was %s\n", row->name, printable(now), printable(was));
    }
}

static void print_graft(const struct work *w, const struct ddl_graft_result *r, const struct losses *losses)
{
    char layers[2048];
    describe_layers(w->graft.layer, r->config.n_layers, layers, sizeof layers);
    if (has_layers(w))
        printf("%s: rule %s in layers %s\n", printable(w->flags.out), rule_names()[w->graft.rule], layers);
    print_options(r);
    printf("tensors: %zu copied, %zu new (%zu parameters), %zu dropped\n", r->n_copied, r->n_new,
           r->new_numbers, r->n_dropped);
    if (losses)
        printf("loss: %.6f before, %.6f after (%+.6f), on %llu tokens\n", losses->before.loss,
               losses->after.loss, losses->after.loss - losses->before.loss,
               (unsigned long long)losses->after.tokens);
    printf("to fine-tune it: ddl train --init-from %s", printable(w->flags.out));
    if (w->flags.train == DDL_GRAFT_TRAIN_NEW)
        printf(" --train-only '%s'", printable(r->new_params));
    printf(" --train-data PATH --steps N --lr X\n");
}

/* Whether the graft has parameters of its own to train. */
static ddl_status check_train(const struct work *w, struct ddl_error *err)
{
    if (w->flags.train == DDL_GRAFT_TRAIN_NEW && w->graft.rule == DDL_RESIDUAL_ADD && has_layers(w) &&
        !ddl_graft_changed_option(&w->source, &w->graft))
        return ddl_error_set(err, DDL_E_USAGE, "--train: expected all: the rule add has no parameters");
    return DDL_OK;
}

static ddl_status graft(struct work *w, struct ddl_error *err)
{
    const struct flags *flags = &w->flags;
    const struct ddl_load_options options = { .ignore_extra = flags->ignore_extra,
                                              .no_verify = true, /* folder_find does */
                                              .warn = print_warning };
    struct ddl_graft_result result;
    struct losses losses;
    bool measured = has_data(&w->run);
    ddl_status status = DDL_OK;
    w->line = work_line_on_stderr("tokens", flags->quiet);
    status = check_train(w, err);
    if (!status && measured)
        status = ddl_graft_loss(w->found.path, &w->run, show_loss, w, &losses.before, err);
    if (!status)
        status = ddl_graft_write(w->found.path, flags->out, &w->graft, &options, &result, err);
    if (!status && measured)
        status = ddl_graft_loss(flags->out, &w->run, show_loss, w, &losses.after, err);
    progress_line_clear(&w->line.line);
    if (!status)
        (flags->json ? print_graft_json : print_graft)(w, &result, measured ? &losses : NULL);
    return status;
}

/* ---- the sweep ---- */

static int show_sweep(void *user, const char *what, uint64_t done, uint64_t total)
{
    struct work *w = user;
    w->line.done = done;
    w->line.total = total;
    work_line_show(&w->line, "graft", what);
    return interrupted();
}

static void print_sweep_json(const struct work *w, const struct ddl_graft_table *table)
{
    struct ddl_json json = { stdout, false };
    ddl_json_open(&json, NULL, '{');
    print_saved_model_json(&json, &w->found);
    ddl_json_string(&json, "rule", rule_names()[w->graft.rule]);
    ddl_json_string(&json, "train", ddl_graft_train_names[w->flags.train]);
    ddl_json_count(&json, "steps", w->run.steps);
    ddl_json_number(&json, "source_loss", table->source_loss, 9);
    ddl_json_count(&json, "tokens", table->tokens);
    ddl_json_bool(&json, "complete", table->n == table->n_total);
    ddl_json_open(&json, "rows", '[');
    for (size_t i = 0; i < table->n; i++) {
        const struct ddl_graft_row *row = &table->rows[i];
        ddl_json_open(&json, NULL, '{');
        if (row->grafted) {
            ddl_json_count(&json, "layer", row->layer);
            ddl_json_string(&json, "rule_was", row->rule_was);
        } else {
            ddl_json_null(&json, "layer");
        }
        ddl_json_number(&json, "loss", row->loss, 9);
        ddl_json_number(&json, "increase", row->loss - table->source_loss, 9);
        ddl_json_number(&json, "tuned_loss", row->tuned_loss, 9);
        ddl_json_number(&json, "tuned_increase", row->tuned_loss - table->source_loss, 9);
        ddl_json_fixed(&json, "seconds", row->seconds, 6);
        ddl_json_close(&json, '}');
    }
    ddl_json_close(&json, ']');
    ddl_json_close(&json, '}');
    putchar('\n');
}

/* Numbers that are not finite are empty fields. */
static void print_csv_number(double value)
{
    if (isfinite(value))
        printf(",%.9g", value);
    else
        putchar(',');
}

static void print_sweep_csv(const struct work *w, const struct ddl_graft_table *table)
{
    printf("layer,rule_was,rule,loss,increase,tuned_loss,tuned_increase,seconds\n");
    for (size_t i = 0; i < table->n; i++) {
        const struct ddl_graft_row *row = &table->rows[i];
        if (row->grafted)
            printf("%zu,%s,%s", row->layer, row->rule_was, rule_names()[w->graft.rule]);
        else
            printf("none,,");
        print_csv_number(row->loss);
        print_csv_number(row->loss - table->source_loss);
        print_csv_number(row->tuned_loss);
        print_csv_number(row->tuned_loss - table->source_loss);
        printf(",%.6f\n", row->seconds);
    }
}

static void print_sweep(const struct work *w, const struct ddl_graft_table *table)
{
    static const struct column columns[] = { { "layer", 5 },     { "was", -7 },          { "rule", -7 },
                                             { "loss", 10 },     { "increase", 10 },     { "tuned loss", 10 },
                                             { "increase", 10 }, { "train seconds", 13 } };
    enum { N = sizeof columns / sizeof *columns };
    printf("source loss %.6f on %llu tokens; tuned: %llu steps of %s parameters\n", table->source_loss,
           (unsigned long long)table->tokens, (unsigned long long)w->run.steps,
           ddl_graft_train_names[w->flags.train]);
    struct table t = begin_table(columns, N, w->flags.markdown);
    for (size_t i = 0; i < table->n; i++) {
        const struct ddl_graft_row *row = &table->rows[i];
        char layer[32] = "none";
        if (row->grafted)
            snprintf(layer, sizeof layer, "%zu", row->layer);
        print_text_cell(&t, layer);
        print_text_cell(&t, row->grafted ? row->rule_was : "-");
        print_text_cell(&t, row->grafted ? rule_names()[w->graft.rule] : "-");
        print_number_cell(&t, row->loss, 6);
        print_number_cell(&t, row->loss - table->source_loss, 6);
        print_number_cell(&t, row->tuned_loss, 6);
        print_number_cell(&t, row->tuned_loss - table->source_loss, 6);
        print_number_cell(&t, row->seconds, 1);
    }
}

static void print_note(void *user, const char *message)
{
    struct work *w = user;
    progress_line_clear(&w->line.line);
    print_warning(NULL, message);
}

static ddl_status sweep(struct work *w, struct ddl_error *err)
{
    const struct flags *flags = &w->flags;
    const struct ddl_graft_sweep config = { .source = w->found.path,
                                            .out = flags->out,
                                            .graft = w->graft,
                                            .train = flags->train,
                                            .run = w->run,
                                            .ignore_extra = flags->ignore_extra,
                                            .keep_models = flags->keep_models };
    const struct ddl_graft_callbacks callbacks = { .user = w, .note = print_note, .progress = show_sweep };
    struct ddl_graft_table table;
    w->line = work_line_on_stderr("tokens", flags->quiet);
    ddl_status status = ddl_graft_sweep(&config, &callbacks, &table, err);
    progress_line_clear(&w->line.line);
    if (!status || (status == DDL_E_INTERRUPTED && table.n > 0))
        (flags->json ? print_sweep_json : flags->csv ? print_sweep_csv : print_sweep)(w, &table);
    if (status == DDL_E_INTERRUPTED)
        ddl_error_set(err, status,
                      "graft: interrupted after %zu of %zu runs; the same command line continues", table.n,
                      table.n_total);
    free(table.rows);
    return status;
}

/* ---- the command ---- */

static ddl_status choose_layers(struct work *w, struct ddl_error *err)
{
    const struct flags *flags = &w->flags;
    if (*flags->layers)
        return select_layer_list(flags->layers, w->source.n_layers, w->graft.layer, err);
    if (!flags->sweep)
        return ddl_graft_changed_option(&w->source, &w->graft)
                   ? DDL_OK
                   : ddl_option_missing("graft",
                                        "--layers LIST, --sweep or an option such as --value-residual with "
                                        "a value different from the source's",
                                        err);
    for (size_t l = 0; l < w->source.n_layers; l++)
        w->graft.layer[l] = ddl_config_residual(&w->source, l) != flags->rule;
    return DDL_OK;
}

static ddl_status check_flags(const struct flags *flags, struct ddl_error *err)
{
    if (!*flags->out)
        return ddl_option_missing("graft", "--out DIR", err);
    if (flags->json + flags->csv + flags->markdown > 1)
        return ddl_error_set(err, DDL_E_USAGE,
                             "graft: expected one of --json, --csv and --markdown, found several");
    if (!flags->sweep && (flags->csv || flags->markdown))
        return ddl_error_set(err, DDL_E_USAGE, "--csv, --markdown: expected with --sweep");
    return DDL_OK;
}

/* That no option of fine-tuning is given where nothing is trained. */
static ddl_status check_sweep(int argc, char **argv, struct ddl_error *err)
{
    static const char *const of_flags[] = { "keep_models", NULL };
    static const char *const of_keys[] = {
        "steps", "accumulate", "global_batch", "lr",           "lr_min_ratio", "schedule", "decay_ratio",
        "beta1", "beta2",      "eps",          "weight_decay", "clip",         "spike_z",  "spike_window",
        "dtype", "recompute",  "order",        "log_every",    "warmup",       NULL,
    };
    bool given[2 * MAX_KEYS];
    ddl_option_find_given(flag_table(), key_table(), argc, argv, given);
    ddl_status status = check_needs(flag_table(), given, of_flags, "--sweep", err);
    ddl_option_find_given(key_table(), flag_table(), argc, argv, given);
    return status ? status : check_needs(key_table(), given, of_keys, "--sweep", err);
}

/* The options twice: first for the folder, whose configuration gives the defaults of the rule's keys. */
static ddl_status read_options(struct work *w, int argc, char **argv, struct ddl_error *err)
{
    char **copy = calloc((size_t)argc + 1, sizeof *copy);
    int n;
    if (!copy)
        return ddl_error_set(err, DDL_E_MEMORY, "graft: out of memory");
    memcpy(copy, argv, (size_t)argc * sizeof *copy);
    w->flags = initial;
    w->run = *(const struct ddl_train_config *)run_defaults();
    ddl_status status = ddl_option_parse(flag_table(), &w->flags, key_table(), &w->run, argc, copy, &n, err);
    if (!status)
        status = check_arguments("graft", n, copy, 1, 1, "a model folder (DIR)", err);
    if (!status)
        status = check_flags(&w->flags, err);
    if (!status && !w->flags.sweep)
        status = check_sweep(argc, argv, err);
    if (!status)
        status = folder_find(&w->found, copy[1], w->flags.which, w->flags.verify,
                             w->flags.json || w->flags.csv || w->flags.quiet, err);
    if (!status)
        status = ddl_config_load(&w->source, w->found.path, NULL, NULL, err);
    if (!status) {
        w->run.config = w->source;
        w->run.verify = w->flags.verify;
        memcpy(copy, argv, (size_t)argc * sizeof *copy);
        status = ddl_option_parse(flag_table(), &w->flags, key_table(), &w->run, argc, copy, &n, err);
    }
    free(copy);
    return status;
}

static int cmd_graft(int argc, char **argv)
{
    struct ddl_error err = { 0 };
    struct work *w = calloc(1, sizeof *w);
    if (!w) {
        ddl_error_set(&err, DDL_E_MEMORY, "graft: out of memory");
        return report_error(&err);
    }
    ddl_status status = read_options(w, argc, argv, &err);
    w->graft.rule = w->flags.rule;
    w->graft.keys = w->run.config;
    w->graft.seed = w->run.seed;
    if (!status)
        status = choose_layers(w, &err);
    if (!status) {
        catch_interrupts();
        status = w->flags.sweep ? sweep(w, &err) : graft(w, &err);
    }
    free(w);
    return status ? report_error(&err) : EXIT_OK;
}

const struct command graft_command = {
    .name = "graft",
    .usage = "DIR --out DIR (--layers LIST | --sweep | --value-residual BOOL | --dense-average BOOL)"
             " [--rule NAME] [--beta-init X]",
    .about = "replace the residual rule in selected layers of a trained model",
    .text =
        (const char *const[]){
            "DIR is a run, a checkpoint or a model; --rule requires one value channel. The new folder has",
            "the chosen rule in the chosen layers; the tensors of their former rule are left out, those of",
            "the new rule are initialized as in a new model with this --seed, and all others are copied",
            "unchanged, but --ddl-steps adds rows to output projections and makes them float32.",
            "A gate starts at --beta-init, that of the rule highway at --ddl-highway-init, the factor of the",
            "rule scale at --ddl-scale-init. --rule add restores the addition.",
            "--value-residual true mixes the values of attention with those of layer 0, at first with the",
            "factors (1, 0); --dense-average true adds weighted sums of states, at first with the weights",
            "(0, ..., 0, 1). Both leave the results of the model as they were, and neither needs --layers.",
            "With data (--val-data, or --train-data) the loss before and after is printed.",
            "--sweep grafts each layer alone and fine-tunes the grafted model on --train-data: the table has",
            "the loss right after the graft and after --steps steps, the lowest first. With --train all a",
            "row 'none' is the source fine-tuned in the same way. Finished layers are kept in --out: the",
            "same command line continues an interrupted sweep.", NULL },
    .options = { { .table = flag_table, .defaults = flag_defaults },
                 { .title = "keys of the residual rule (default: as in DIR)", .table = rule_table },
                 { .title = "data and fine-tuning", .table = run_table, .defaults = run_defaults } },
    .examples =
        (const struct note[]){
            { "ddl graft my/run --layers 2-3 --rule delta --beta-init 0.1 --out my/grafted",
              "two layers with the delta rule, their gates almost closed" },
            { "ddl graft my/run --sweep --steps 200 --train-data my/shards --out my/sweep",
              "each layer in turn, with 200 steps of fine-tuning" },
            { 0 } },
    .files = (const struct note[]){ { "OUT/graft.json", "settings of a sweep" },
                                    { "OUT/layer-NNN.json, OUT/source.json", "results of a sweep" },
                                    { "OUT/layer-NNN/, OUT/source/", "runs of a sweep: recipe and metrics" },
                                    { 0 } },
    .run = cmd_graft,
};
