/* The loss of a grafted model, and a sweep over layers. In the sweep's folder a row is NAME.json (its
 * result), NAME/ (the run that fine-tunes it) and NAME-model/ (the grafted model), where NAME is layer-003 or
 * source. */
#include "study/graft_record.h"

#include "base/file.h"
#include "checkpoint/files.h"
#include "ddl/backend.h"
#include "ddl/tokenizer.h"
#include "train/config/run_data.h"
#include "train/config/train_config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_SIZE = 1024 };

/* ---- the loss ---- */

struct data {
    ddl_shards *train, *val;  /* each may be NULL */
    ddl_tokenizer *tokenizer; /* of the model; may be NULL */
};

static void close_data(struct data *d)
{
    ddl_shards_close(d->train);
    ddl_shards_close(d->val);
    ddl_tokenizer_free(d->tokenizer);
}

static bool has_tokenizer(const char *folder)
{
    char path[PATH_SIZE];
    return ddl_path_join(path, sizeof path, folder, ddl_run_file_name(DDL_FILE_TOKENIZER)) &&
           ddl_file_exists(path);
}

/* Opens the data, and checks that it fits the model in `folder` of this configuration. */
static ddl_status open_data(struct data *d, const char *folder, const struct ddl_config *config,
                            const struct ddl_train_config *t, struct ddl_error *err)
{
    ddl_status status = DDL_OK;
    *d = (struct data){ 0 };
    if (*t->train_data)
        status = ddl_train_open_train(t, &d->train, err);
    if (!status && (d->train || strcmp(t->val_data, "auto") != 0))
        status = ddl_train_open_val(t, d->train, &d->val, err);
    if (!status && !d->train && !d->val)
        status = ddl_option_missing("graft", "--train-data PATH or --val-data PATH", err);
    if (!status && has_tokenizer(folder))
        status = ddl_tokenizer_load(&d->tokenizer, folder, err);
    const struct ddl_vocabulary vocabulary = { .vocab_size = config->vocab_size,
                                               .tokenizer = d->tokenizer,
                                               .tokenizer_path = folder,
                                               .train = d->train,
                                               .val = d->val };
    return status ? status : ddl_vocabulary_check(&vocabulary, NULL, NULL, NULL, err);
}

ddl_status ddl_graft_loss(const char *folder, const struct ddl_train_config *train, ddl_progress_fn *progress,
                          void *user, struct ddl_eval_result *out, struct ddl_error *err)
{
    const struct ddl_eval_config windows = { .seq = train->seq,
                                             .batch = train->batch,
                                             .max_tokens = train->val_tokens,
                                             .progress = progress,
                                             .user = user };
    struct data data = { 0 };
    struct ddl_config config;
    ddl_backend *backend = NULL;
    ddl_model *model = NULL;
    ddl_status status = ddl_config_load(&config, folder, NULL, NULL, err);
    if (!status)
        status = open_data(&data, folder, &config, train, err);
    if (!status)
        status = ddl_backend_create(&backend, train->backend, train->threads, err);
    if (!status)
        status = ddl_model_load_with(
            &model, folder, backend,
            &(struct ddl_load_options){ .ignore_extra = true, .no_verify = !train->verify }, err);
    if (!status) {
        status = ddl_eval_shards(model, NULL, data.val ? data.val : data.train, &windows, out, err);
        if (status == DDL_E_FORMAT)
            status = ddl_error_prefix(err, status, data.val ? "val_data" : "train_data");
    }
    ddl_model_free(model);
    if (backend)
        ddl_backend_free(backend);
    close_data(&data);
    return status;
}

/* ---- the sweep ---- */

struct sweep {
    const struct ddl_graft_sweep *s;
    const struct ddl_graft_callbacks *callbacks;
    struct ddl_config config; /* of the source */
    struct graft_source source;
    uint64_t eval_tokens, train_tokens; /* of one evaluation, of one run */
    uint64_t done, total, part;         /* done: without the part under way; part: of it */
    char what[64];
};

static void name_of(const struct ddl_graft_row *row, char name[32])
{
    if (row->grafted)
        snprintf(name, 32, "layer-%03zu", row->layer);
    else
        snprintf(name, 32, "source");
}

static void note(const struct sweep *w, const char *message)
{
    if (w->callbacks->note)
        w->callbacks->note(w->callbacks->user, message);
}

static int report(struct sweep *w)
{
    return w->callbacks->progress
               ? w->callbacks->progress(w->callbacks->user, w->what, w->done + w->part, w->total)
               : 0;
}

static void begin_part(struct sweep *w, const struct ddl_graft_row *row, const char *what)
{
    if (row && row->grafted)
        snprintf(w->what, sizeof w->what, "layer %zu: %s", row->layer, what);
    else
        snprintf(w->what, sizeof w->what, "source: %s", what);
    w->part = 0;
}

static int evaluated(void *user, uint64_t done, uint64_t total)
{
    struct sweep *w = user;
    (void)total;
    w->part = done;
    return report(w);
}

/* *loss is NAN if the loss of a row is not finite; for the source (no row) that is an error. */
static ddl_status measure(struct sweep *w, const char *folder, const struct ddl_graft_row *row,
                          const char *what, double *loss, struct ddl_error *err)
{
    struct ddl_eval_result result;
    begin_part(w, row, what);
    ddl_status status = ddl_graft_loss(folder, &w->s->run, evaluated, w, &result, err);
    if (status && !(status == DDL_E_NUMERIC && row))
        return status;
    w->done += w->eval_tokens;
    if (!status)
        w->source.tokens = result.tokens;
    *loss = status ? (double)NAN : result.loss;
    return DDL_OK;
}

/* ---- fine-tuning ---- */

static void stepped(void *user, const struct ddl_train_progress *progress)
{
    struct sweep *w = user;
    w->part = progress->tokens;
}

static int stop(void *user)
{
    return report(user);
}

static int checked(void *user, uint64_t done, uint64_t total)
{
    (void)done, (void)total;
    return report(user);
}

/* The run in `out` that starts from `model`. One that was interrupted is resumed. */
static ddl_status run_config(const struct sweep *w, const char *model, const char *out,
                             const struct ddl_graft_result *graft, struct ddl_train_config *t,
                             struct ddl_error *err)
{
    struct ddl_checkpoint *list;
    size_t n;
    *t = w->s->run;
    t->config = graft->config;
    t->model[0] = t->size[0] = t->ddl_residual_by_layer[0] = t->sample_prompt[0] = t->tasks[0] = '\0';
    t->freeze[0] = '\0';
    snprintf(t->init_from, sizeof t->init_from, "%s", model);
    snprintf(t->init_which, sizeof t->init_which, "last");
    snprintf(t->tokenizer, sizeof t->tokenizer, "%s", has_tokenizer(model) ? model : "");
    snprintf(t->out, sizeof t->out, "%s", out);
    snprintf(t->val_data, sizeof t->val_data, "none");
    snprintf(t->train_only, sizeof t->train_only, "%s",
             w->s->train == DDL_GRAFT_TRAIN_NEW ? graft->new_params : "");
    t->val_every = t->sample_every = t->checkpoint_every = 0;
    t->ignore_extra = w->s->ignore_extra;
    ddl_status status = ddl_checkpoint_list(out, &list, &n, err);
    free(list);
    t->resume = n > 0;
    t->overwrite = n == 0;
    return status;
}

static ddl_status tune(struct sweep *w, const char *model, const char *out, struct ddl_graft_row *row,
                       const struct ddl_graft_result *graft, struct ddl_error *err)
{
    const struct ddl_train_callbacks callbacks = {
        .user = w, .check = checked, .progress = stepped, .stop = stop
    };
    struct ddl_train_progress last;
    struct ddl_train_config *t = malloc(sizeof *t);
    if (!t)
        return ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory", out);
    begin_part(w, row, "fine-tuning");
    ddl_status status = run_config(w, model, out, graft, t, err);
    if (!status)
        status = ddl_train_run(t, &callbacks, &last, err);
    free(t);
    if (!status) {
        row->seconds = last.train_seconds;
        w->done += w->train_tokens;
    }
    return status;
}

/* ---- a row ---- */

/* Removes what only the row's computation needs: the grafted model, and the weights of the run. Its log and
 * recipe stay. */
static ddl_status clean(const char *model, const char *out, struct ddl_error *err)
{
    char path[PATH_SIZE];
    struct ddl_checkpoint *list;
    size_t n;
    ddl_status status = ddl_checkpoint_list(out, &list, &n, err);
    for (size_t i = 0; i < n && !status; i++) {
        snprintf(path, sizeof path, "%.900s/checkpoint-%llu", out, (unsigned long long)list[i].step);
        status = ddl_file_remove_dir(path, err);
    }
    free(list);
    for (int file = 0; file < DDL_RUN_FILES && !status; file++) {
        if (!ddl_run_file_is((enum ddl_run_file)file, DDL_IN_RUN | DDL_IS_RESULT) ||
            !ddl_path_join(path, sizeof path, out, ddl_run_file_name((enum ddl_run_file)file)) ||
            !ddl_file_exists(path))
            continue;
        if (unlink(path) != 0)
            status = ddl_file_error(err, path, "remove");
    }
    return status || !ddl_file_is_dir(model) ? status : ddl_file_remove_dir(model, err);
}

/* Writes the grafted model of a row to the folder `model`. Without a graft `source` is that model. */
static ddl_status graft_row(const struct sweep *w, const struct ddl_graft_row *row, const char *model,
                            struct ddl_graft_result *result, struct ddl_error *err)
{
    struct ddl_graft graft = w->s->graft;
    if (!row->grafted) {
        result->config = w->config;
        return DDL_OK;
    }
    const struct ddl_load_options options = { .ignore_extra = w->s->ignore_extra,
                                              .no_verify = !w->s->run.verify };
    memset(graft.layer, 0, sizeof graft.layer);
    graft.layer[row->layer] = true;
    ddl_status status = ddl_file_is_dir(model) ? ddl_file_remove_dir(model, err) : DDL_OK;
    return status ? status : ddl_graft_write(w->s->source, model, &graft, &options, result, err);
}

/* A run that diverges has no model and no loss. */
static ddl_status after_tuning(struct sweep *w, ddl_status status, const char *out, struct ddl_graft_row *row,
                               struct ddl_error *err)
{
    if (status == DDL_E_NUMERIC) {
        struct ddl_error message;
        ddl_error_set(&message, DDL_OK, "%s: the run diverged: %.800s", w->what, err ? err->text : "");
        note(w, message.text);
        row->tuned_loss = (double)NAN;
        w->done += w->train_tokens + w->eval_tokens;
        return DDL_OK;
    }
    return status ? status : measure(w, out, row, "loss after fine-tuning", &row->tuned_loss, err);
}

static ddl_status compute_row(struct sweep *w, struct ddl_graft_row *row, const char *name, const char *out,
                              const char *grafted, struct ddl_error *err)
{
    struct ddl_error why = { 0 };
    struct ddl_graft_result *result = calloc(1, sizeof *result);
    const char *model = row->grafted ? grafted : w->s->source;
    ddl_status status = result ? graft_row(w, row, model, result, &why)
                               : ddl_error_set(&why, DDL_E_MEMORY, "%s: out of memory", out);
    row->loss = w->source.loss;
    if (!status && row->grafted)
        status = measure(w, model, row, "loss after the graft", &row->loss, &why);
    if (!status)
        status = tune(w, model, out, row, result, &why);
    if (result)
        status = after_tuning(w, status, out, row, &why);
    if (!status)
        status = graft_record_write_row(w->s->out, name, row, &why);
    free(result);
    if (status && err)
        *err = why;
    return status;
}

/* Tokens of a row: the control's first loss is the source's. */
static uint64_t row_tokens(const struct sweep *w, const struct ddl_graft_row *row)
{
    return w->train_tokens + (row->grafted ? 2 : 1) * w->eval_tokens;
}

static ddl_status finish_row(struct sweep *w, struct ddl_graft_row *row, struct ddl_error *err)
{
    char name[32], out[PATH_SIZE], grafted[PATH_SIZE];
    bool found;
    uint64_t before = w->done;
    name_of(row, name);
    snprintf(out, sizeof out, "%.900s/%s", w->s->out, name);
    snprintf(grafted, sizeof grafted, "%.900s/%s-model", w->s->out, name);
    ddl_status status = graft_record_read_row(w->s->out, name, row, &found, err);
    if (!status && !found)
        status = compute_row(w, row, name, out, grafted, err);
    if (!status && !w->s->keep_models)
        status = clean(grafted, out, err);
    w->done = before + row_tokens(w, row);
    return status;
}

/* ---- the whole ---- */

static ddl_status measure_source(struct sweep *w, struct ddl_error *err)
{
    bool found;
    ddl_status status = graft_record_read_source(w->s->out, &w->source, &found, err);
    if (!status && !found)
        status = measure(w, w->s->source, NULL, "loss", &w->source.loss, err);
    if (!status && !found)
        status = graft_record_write_source(w->s->out, &w->source, err);
    w->done = w->eval_tokens;
    return status;
}

static ddl_status list_rows(const struct sweep *w, struct ddl_graft_table *table, struct ddl_error *err)
{
    table->rows = calloc(w->config.n_layers + 1, sizeof *table->rows);
    if (!table->rows)
        return ddl_error_set(err, DDL_E_MEMORY, "graft: out of memory");
    if (w->s->train == DDL_GRAFT_TRAIN_ALL)
        table->rows[table->n_total++] = (struct ddl_graft_row){ .rule_was = "" };
    for (size_t l = 0; l < w->config.n_layers; l++) {
        if (w->s->graft.layer[l])
            table->rows[table->n_total++] = (struct ddl_graft_row){
                .grafted = true, .layer = l, .rule_was = ddl_config_residual_name(&w->config, l)
            };
    }
    return DDL_OK;
}

/* The lowest loss first, a loss that is not a number last. */
static int by_loss(const void *a, const void *b)
{
    const struct ddl_graft_row *x = a, *y = b;
    int nan_last = (x->tuned_loss != x->tuned_loss) - (y->tuned_loss != y->tuned_loss);
    int higher = (x->tuned_loss > y->tuned_loss) - (x->tuned_loss < y->tuned_loss);
    int order = nan_last ? nan_last : higher;
    return order ? order : (x->layer > y->layer) - (x->layer < y->layer);
}

/* val_tokens rounded up to windows, as ddl_eval_shards does, and at most what the shards have. */
static uint64_t scored_tokens(const ddl_shards *shards, const struct ddl_train_config *t,
                              const struct ddl_config *config)
{
    uint64_t most = ddl_shards_count(shards) - 1, seq = t->seq ? t->seq : config->block_size;
    uint64_t windows = t->val_tokens / seq + (t->val_tokens % seq != 0);
    return t->val_tokens && windows < most / seq + 1 && windows * seq < most ? windows * seq : most;
}

/* Each row grafts one layer alone, which may be wrong where a graft of all of them together is not. */
static ddl_status check_rows(const struct sweep *w, struct ddl_error *err)
{
    struct ddl_graft graft = w->s->graft;
    ddl_status status = DDL_OK;
    memset(graft.layer, 0, sizeof graft.layer);
    for (size_t l = 0; l < w->config.n_layers && !status; l++) {
        struct ddl_config config;
        char what[64];
        if (!w->s->graft.layer[l])
            continue;
        graft.layer[l] = true;
        status = ddl_graft_config(&config, &w->config, &graft, err);
        graft.layer[l] = false;
        snprintf(what, sizeof what, "graft of layer %zu alone", l);
        if (status)
            (void)ddl_error_prefix(err, status, what);
    }
    return status;
}

/* Everything that can be wrong, before anything is computed. */
static ddl_status check(struct sweep *w, struct ddl_error *err)
{
    const struct ddl_graft_sweep *s = w->s;
    struct ddl_config config;
    struct data data = { 0 };
    ddl_status status = ddl_choice_check("train", ddl_graft_train_names, s->train, err);
    if (!status)
        status = ddl_config_load(&w->config, s->source, NULL, NULL, err);
    if (!status)
        status = ddl_graft_config(&config, &w->config, &s->graft, err);
    const struct ddl_option *option = status ? NULL : ddl_graft_changed_option(&w->config, &s->graft);
    if (option) {
        char was[64];
        ddl_option_format(option, &w->config, was, sizeof was);
        status =
            ddl_error_set(err, DDL_E_USAGE, "%s: expected %s, as in the source: a sweep changes rules only",
                          option->name, was);
    }
    if (!status)
        status = check_rows(w, err);
    if (!status && s->train == DDL_GRAFT_TRAIN_NEW && s->graft.rule == DDL_RESIDUAL_ADD)
        status = ddl_error_set(err, DDL_E_USAGE, "train: expected all: the rule add has no parameters");
    if (!status && !*s->run.train_data)
        status = ddl_option_missing("graft", "--train-data PATH", err);
    if (!status && strlen(s->out) > 900)
        status = ddl_error_set(err, DDL_E_USAGE, "%.200s: the folder's path is too long", s->out);
    if (!status)
        status = open_data(&data, s->source, &w->config, &s->run, err);
    if (!status)
        w->eval_tokens = scored_tokens(data.val ? data.val : data.train, &s->run, &w->config);
    close_data(&data);
    return status;
}

ddl_status ddl_graft_sweep(const struct ddl_graft_sweep *sweep, const struct ddl_graft_callbacks *callbacks,
                           struct ddl_graft_table *table, struct ddl_error *err)
{
    static const struct ddl_graft_callbacks silent = { 0 };
    struct sweep w = { .s = sweep, .callbacks = callbacks ? callbacks : &silent };
    *table = (struct ddl_graft_table){ .source_loss = (double)NAN };
    ddl_status status = check(&w, err);
    if (!status)
        status = list_rows(&w, table, err);
    if (!status)
        status = graft_record_settings(sweep, err);
    if (status)
        return status;
    const struct ddl_train_config run = ddl_train_resolved(&sweep->run);
    w.train_tokens = run.steps * run.global_batch * (run.seq ? run.seq : w.config.block_size);
    w.total = w.eval_tokens;
    for (size_t i = 0; i < table->n_total; i++)
        w.total += row_tokens(&w, &table->rows[i]);
    status = measure_source(&w, err);
    table->source_loss = w.source.loss;
    table->tokens = w.source.tokens;
    for (size_t i = 0; i < table->n_total && !status; i++) {
        status = finish_row(&w, &table->rows[i], err);
        table->n += !status;
    }
    qsort(table->rows, table->n, sizeof *table->rows, by_loss);
    return status;
}
