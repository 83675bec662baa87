/* The models in a run's folder. */
#define _POSIX_C_SOURCE 200809L
#include "ddl/run.h"

#include "base/file.h"
#include "base/held.h"
#include "base/lock.h"
#include "base/path.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/files.h"
#include "checkpoint/folder.h"
#include "ddl/train.h"
#include "model/files/sums.h"
#include "tensor/safetensors.h"
#include "train/log/metrics.h"
#include "train/config/recipe.h"
#include "train/config/run_model.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { PATH_SIZE = 1280 };

/* ---- what is wanted ---- */

enum which { LAST, BEST, FINAL, STEP };
static const char *const which_names[] = { [LAST] = "last", [BEST] = "best", [FINAL] = "final" };

static bool parse_which(const char *text, enum which *which, uint64_t *step)
{
    for (enum which w = LAST; w < STEP; w++) {
        if (strcmp(text, which_names[w]) == 0) {
            *which = w;
            return true;
        }
    }
    *which = STEP;
    errno = 0;
    *step = strtoull(text, NULL, 10);
    return *text && text[strspn(text, "0123456789")] == '\0' && errno == 0;
}

ddl_status ddl_run_check_which(const char *name, const char *which, struct ddl_error *err)
{
    enum which parsed;
    uint64_t step;
    if (parse_which(which, &parsed, &step))
        return DDL_OK;
    return ddl_error_set(err, DDL_E_USAGE, "%s: expected last, best, final or a step, found '%.80s'", name,
                         which);
}

/* ---- what exists ---- */

/* The models of a folder. */
struct saved {
    const char *folder;
    struct ddl_checkpoint *list; /* n checkpoints, oldest first */
    size_t n;
    bool verify; /* checksums are compared */
    bool is_run, has_final;
    bool has_step;      /* the step of the final model is known      */
    uint64_t step;      /* then this                                 */
    bool is_superseded; /* it counts as older than all checkpoints   */
};

static bool exists(const char *folder, enum ddl_run_file file)
{
    char path[PATH_SIZE];
    return ddl_path_join(path, sizeof path, folder, ddl_run_file_name(file)) && ddl_file_exists(path);
}

/* A file that is not what it should be is as good as none; one that cannot be read is an error. */
static ddl_status except_format(ddl_status status)
{
    return status == DDL_E_FORMAT ? DDL_OK : status;
}

/* The step that is recorded in the final model. */
static ddl_status read_recorded_step(struct saved *s, struct ddl_error *err)
{
    char path[PATH_SIZE];
    ddl_safetensors *st;
    enum which which;
    if (!ddl_path_join(path, sizeof path, s->folder, ddl_run_file_name(DDL_FILE_MODEL)))
        return DDL_OK;
    ddl_status status = ddl_safetensors_open(&st, path, err);
    if (status)
        return except_format(status);
    const char *text = ddl_safetensors_metadata(st, DDL_STEP_KEY);
    s->has_step = text && parse_which(text, &which, &s->step) && which == STEP;
    ddl_safetensors_close(st);
    return DDL_OK;
}

ddl_status ddl_run_final_step(uint64_t *step, const char *folder, struct ddl_error *err)
{
    struct saved s = { .folder = folder };
    /* config.json is the last file that is written. */
    bool is_whole = exists(folder, DDL_FILE_CONFIG) && exists(folder, DDL_FILE_MODEL);
    ddl_status status = is_whole ? read_recorded_step(&s, err) : DDL_OK;
    *step = s.has_step ? s.step : 0;
    return status;
}

/* The steps of the whole run by its recipe; 0 if it does not say. */
static ddl_status read_recipe_steps(const char *folder, uint64_t *steps, struct ddl_error *err)
{
    char path[PATH_SIZE];
    struct ddl_recipe recipe = { 0 };
    ddl_status status = DDL_OK;
    *steps = 0;
    if (ddl_path_join(path, sizeof path, folder, ddl_run_file_name(DDL_FILE_RECIPE)) && ddl_file_exists(path))
        status = ddl_recipe_read(&recipe, path, err);
    for (size_t i = 0; !status && i < recipe.n; i++) {
        if (strcmp(recipe.entries[i].key, "steps") == 0)
            *steps = strtoull(recipe.entries[i].value, NULL, 10);
    }
    ddl_recipe_free(&recipe);
    return except_format(status);
}

/* The step of the final model. Earlier versions of the program did not record it: there it is the last step
 * of a run whose log is complete, else unknown. A log that ends before the step is that of a run that was
 * resumed from an earlier checkpoint: the final model is from steps that have been discarded. */
static ddl_status date_final(struct saved *s, struct ddl_error *err)
{
    char path[PATH_SIZE];
    uint64_t logged = 0, steps = 0;
    bool has_log = false;
    ddl_status status = read_recorded_step(s, err);
    if (!status && ddl_path_join(path, sizeof path, s->folder, ddl_run_file_name(DDL_FILE_METRICS)) &&
        ddl_file_exists(path)) {
        has_log = true;
        status = except_format(ddl_metrics_last_step(path, &logged, err));
    }
    if (!status && !s->has_step && logged)
        status = read_recipe_steps(s->folder, &steps, err);
    if (!s->has_step && logged && logged == steps) {
        s->has_step = true;
        s->step = logged;
    }
    s->is_superseded = !s->has_step || (has_log && logged < s->step);
    return status;
}

static ddl_status look(struct saved *s, const char *folder, struct ddl_error *err)
{
    *s = (struct saved){ .folder = folder };
    ddl_status status = ddl_checkpoint_list(folder, &s->list, &s->n, err);
    if (status)
        return status;
    s->is_run = s->n > 0 || exists(folder, DDL_FILE_RECIPE) || exists(folder, DDL_FILE_METRICS);
    s->has_final = exists(folder, DDL_FILE_CONFIG) && exists(folder, DDL_FILE_MODEL);
    return s->is_run && s->has_final ? date_final(s, err) : DDL_OK;
}

ddl_status ddl_run_read_final(struct ddl_run_final *out, const char *folder, struct ddl_error *err)
{
    struct saved s;
    struct stat st;
    char path[PATH_SIZE];
    *out = (struct ddl_run_final){ 0 };
    ddl_status status = look(&s, folder, err);
    free(s.list);
    if (status || !s.is_run || !s.has_final || !s.has_step || s.is_superseded)
        return status;
    if (ddl_path_join(path, sizeof path, folder, ddl_run_file_name(DDL_FILE_MODEL)) &&
        ddl_held_stat(path, &st) == 0)
        *out = (struct ddl_run_final){ true, s.step, st.st_mtime };
    return DDL_OK;
}

/* ---- messages ---- */

void ddl_run_describe(const struct ddl_run_model *model, char *out, size_t size)
{
    bool is_final = strcmp(model->name, which_names[FINAL]) == 0;
    if (is_final && model->has_step)
        snprintf(out, size, "the final model (step %llu)", (unsigned long long)model->step);
    else if (is_final)
        snprintf(out, size, "the final model");
    else
        snprintf(out, size, "%s%s", model->name, model->is_newer ? " (the final model is older)" : "");
}

/* "checkpoint-4, checkpoint-6, the final model (step 6)"; of many, the newest. */
static void list_models(const struct saved *s, char *out, size_t size)
{
    enum { MOST = 8 };
    size_t first = s->n > MOST ? s->n - MOST : 0, used = 0;
    struct ddl_run_model final = { .name = "final", .has_step = s->has_step, .step = s->step };
    char text[64] = "no model";
    if (s->has_final)
        ddl_run_describe(&final, text, sizeof text);
    snprintf(out, size, "%s", first ? "..., " : "");
    for (size_t i = first; i < s->n && (used = strlen(out)) < size; i++)
        snprintf(out + used, size - used, "checkpoint-%llu%s", (unsigned long long)s->list[i].step,
                 i + 1 < s->n || s->has_final ? ", " : "");
    used = strlen(out);
    if (s->has_final || s->n == 0)
        snprintf(out + used, size - used, "%s", text);
}

static ddl_status missing(const struct saved *s, const char *what, struct ddl_error *err)
{
    char list[400];
    list_models(s, list, sizeof list);
    return ddl_error_set(err, DDL_E_IO, "%.400s: expected %s, found %s", s->folder, what, list);
}

/* ---- choosing ---- */

static ddl_status check(const struct saved *s, const struct ddl_run_model *model, struct ddl_error *err)
{
    return s->verify ? ddl_checkpoint_check_model(model->path, err) : DDL_OK;
}

/* A run's checkpoint has a state.json, with the checksums of its files: without one it is incomplete, such as
 * a copy that has not ended. */
static ddl_status check_state(const char *path, struct ddl_error *err)
{
    json_t *state = NULL;
    ddl_status status = ddl_checkpoint_read_state(path, &state, err);
    json_decref(state);
    return status;
}

/* A candidate: a checkpoint of the list, or (index n) the final model. */
static ddl_status take(struct ddl_run_model *out, const struct saved *s, size_t i, struct ddl_error *err)
{
    *out = (struct ddl_run_model){ 0 };
    if (i == s->n) {
        snprintf(out->path, sizeof out->path, "%s", s->folder);
        snprintf(out->name, sizeof out->name, "%s", which_names[FINAL]);
        out->has_step = s->has_step;
        out->step = s->step;
        return check(s, out, err);
    }
    out->has_step = true;
    out->step = s->list[i].step;
    out->is_newer = s->has_final && (s->is_superseded || s->list[i].step > s->step);
    snprintf(out->name, sizeof out->name, "checkpoint-%llu", (unsigned long long)out->step);
    if (!ddl_checkpoint_path(s->folder, out->step, false, out->path, sizeof out->path))
        return ddl_error_set(err, DDL_E_USAGE, "%.200s: the path is too long", s->folder);
    ddl_status status = s->verify ? check_state(out->path, err) : DDL_OK;
    return status ? status : check(s, out, err);
}

/* The first of the candidates that is not corrupted. A corrupted final model is an error: it is the result of
 * the run, and an older checkpoint is not what is meant. */
static ddl_status take_first(struct ddl_run_model *out, const struct saved *s, const size_t *candidates,
                             size_t n, ddl_warn_fn *warn, void *user, struct ddl_error *err)
{
    struct ddl_error first = { 0 }, why, message;
    for (size_t i = 0; i < n; i++) {
        why = (struct ddl_error){ 0 };
        ddl_status status = take(out, s, candidates[i], &why);
        if (!first.status)
            first = why;
        if (status && ((status != DDL_E_FORMAT && status != DDL_E_IO) || candidates[i] == s->n)) {
            first = why;
            break;
        }
        if (!status)
            return DDL_OK;
        ddl_error_set(&message, DDL_OK, "%.900s; skipped", why.text);
        if (warn && i + 1 < n)
            warn(user, message.text);
    }
    if (err)
        *err = first;
    return first.status;
}

/* Newest first, with the final model where it belongs. Checkpoints by time come last: the run is about to
 * remove them. */
static size_t order_by_age(const struct saved *s, size_t *candidates)
{
    size_t n = 0, i = s->n;
    for (; i > 0 && !(s->has_final && !s->is_superseded && s->list[i - 1].step <= s->step); i--) {
        if (!s->list[i - 1].by_time)
            candidates[n++] = i - 1;
    }
    if (s->has_final)
        candidates[n++] = s->n;
    for (; i > 0; i--) {
        if (!s->list[i - 1].by_time)
            candidates[n++] = i - 1;
    }
    for (i = s->n; i > 0; i--) {
        if (s->list[i - 1].by_time)
            candidates[n++] = i - 1;
    }
    return n;
}

/* Reports the checkpoints whose loss cannot be read: one of them may be the best. */
static void warn_unreadable(const struct saved *s, ddl_warn_fn *warn, void *user)
{
    for (size_t i = 0; warn && i < s->n; i++) {
        char path[PATH_SIZE];
        struct ddl_error why, message;
        json_t *state = NULL;
        if (s->list[i].readable || !ddl_checkpoint_path(s->folder, s->list[i].step, false, path, sizeof path))
            continue;
        if (!ddl_checkpoint_read_state(path, &state, &why))
            ddl_error_set(&why, DDL_E_FORMAT, "%.600s/state.json: expected losses, found none", path);
        json_decref(state);
        ddl_error_set(&message, DDL_OK, "%.900s; skipped", why.text);
        warn(user, message.text);
    }
}

static size_t order_by_loss(const struct saved *s, bool *marked, size_t *candidates)
{
    size_t n = 0;
    for (size_t best; (best = ddl_checkpoint_lowest(s->list, s->n, marked)) < s->n; n++) {
        marked[best] = true;
        candidates[n] = best;
    }
    return n;
}

static ddl_status take_ordered(struct ddl_run_model *out, const struct saved *s, enum which which,
                               ddl_warn_fn *warn, void *user, struct ddl_error *err)
{
    size_t *candidates = calloc(s->n + 1, sizeof *candidates);
    bool *marked = calloc(s->n + 1, sizeof *marked);
    ddl_status status;
    if (!candidates || !marked) {
        status = ddl_error_set(err, DDL_E_MEMORY, "%.200s: out of memory for its list of models", s->folder);
    } else {
        if (which == BEST)
            warn_unreadable(s, warn, user);
        size_t n = which == LAST ? order_by_age(s, candidates) : order_by_loss(s, marked, candidates);
        status = n ? take_first(out, s, candidates, n, warn, user, err)
                   : missing(s,
                             which == LAST ? "a checkpoint or a final model"
                                           : "a checkpoint with a validation loss",
                             err);
    }
    free(candidates);
    free(marked);
    return status;
}

static ddl_status take_step(struct ddl_run_model *out, const struct saved *s, uint64_t step,
                            struct ddl_error *err)
{
    char what[64];
    for (size_t i = 0; i < s->n; i++) {
        if (s->list[i].step == step)
            return take(out, s, i, err);
    }
    if (s->has_final && s->has_step && s->step == step)
        return take(out, s, s->n, err);
    snprintf(what, sizeof what, "a checkpoint of step %llu", (unsigned long long)step);
    return missing(s, what, err);
}

static ddl_status take_of_run(struct ddl_run_model *out, const struct saved *s, enum which which,
                              uint64_t step, ddl_warn_fn *warn, void *user, struct ddl_error *err)
{
    switch (which) {
    case STEP:
        return take_step(out, s, step, err);
    case FINAL:
        return s->has_final ? take(out, s, s->n, err) : missing(s, "a final model", err);
    default:
        return take_ordered(out, s, which, warn, user, err);
    }
}

/* A folder that is not a run's. */
static ddl_status take_folder(struct ddl_run_model *out, const struct saved *s, const char *which,
                              struct ddl_error *err)
{
    const char *folder = s->folder;
    if (strcmp(which, which_names[LAST]) != 0 && strcmp(which, which_names[FINAL]) != 0)
        return ddl_error_set(err, DDL_E_IO,
                             "%.400s: no model '%.40s': expected a run folder, found none of "
                             "its files (recipe.yaml, metrics.jsonl, checkpoints)",
                             folder, which);
    if (strlen(folder) >= sizeof out->path)
        return ddl_error_set(err, DDL_E_USAGE, "%.200s: the path is too long", folder);
    *out = (struct ddl_run_model){ 0 };
    strcpy(out->path, folder);
    return check(s, out, err);
}

ddl_status ddl_run_find(struct ddl_run_model *out, const char *folder, const char *which, bool verify,
                        ddl_warn_fn *warn, void *user, struct ddl_error *err)
{
    const char *text = which ? which : which_names[LAST];
    struct saved saved;
    enum which wanted;
    uint64_t step = 0;
    ddl_status status = ddl_run_check_which("which", text, err);
    if (status)
        return status;
    (void)parse_which(text, &wanted, &step);
    status = look(&saved, folder, err);
    saved.verify = verify;
    if (!status)
        status = saved.is_run ? take_of_run(out, &saved, wanted, step, warn, user, err)
                              : take_folder(out, &saved, text, err);
    free(saved.list);
    return status;
}

ddl_status ddl_run_check_tokenizer(const char *path, struct ddl_error *err)
{
    static const char *const names[] = { "tokenizer.json", "vocab.bpe", "encoder.json" };
    char folder[PATH_SIZE];
    const char *slash = strrchr(path, '/');
    ddl_status status = DDL_OK;
    if (strcmp(path, DDL_TOKENIZER_SHIPPED) == 0) /* the shipped one has no checksums */
        return DDL_OK;
    if (!ddl_file_is_dir(path))
        return ddl_path_folder(path, folder, sizeof folder)
                   ? ddl_checkpoint_check_file(folder, slash ? slash + 1 : path, err)
                   : ddl_error_set(err, DDL_E_USAGE, "%.200s: the path is too long", path);
    for (size_t i = 0; !status && i < sizeof names / sizeof *names; i++)
        status = ddl_checkpoint_check_file(path, names[i], err);
    return status;
}

bool ddl_run_is_training(const char *folder)
{
    return ddl_lock_is_held(folder);
}

/* Where to load the config of a checkpoint, and whom to warn. */
struct config_request {
    struct ddl_config *out;
    ddl_warn_fn *warn;
    void *user;
};

static ddl_status load_config(void *user, const char *path, struct ddl_error *err)
{
    const struct config_request *request = user;
    return ddl_config_load(request->out, path, request->warn, request->user, err);
}

ddl_status ddl_run_config(struct ddl_config *out, const char *folder, bool verify, ddl_warn_fn *warn,
                          void *user, struct ddl_error *err)
{
    char path[PATH_SIZE];
    struct ddl_checkpoint *list;
    size_t n;
    ddl_status status = ddl_checkpoint_list(folder, &list, &n, err);
    if (status)
        return status;
    if (n == 0 || exists(folder, DDL_FILE_CONFIG)) {
        free(list);
        status = verify ? ddl_model_sums_check_file(folder, "config.json", err) : DDL_OK;
        return status ? status : ddl_config_load(out, folder, warn, user, err);
    }
    free(list);
    struct config_request request = { out, warn, user };
    return ddl_checkpoint_take_newest(folder, load_config, &request, NULL, NULL, path, sizeof path, err);
}
