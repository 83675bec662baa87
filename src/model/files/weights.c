#include "model/files/weights.h"

#include "base/mem.h"
#include "model/files/tensor_names.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 1 << 15 }; /* floats compared at a time */

const char ddl_head_name[] = "lm_head.weight";

static const char embedding_name[] = "transformer.wte.weight";

/* ---- messages about several tensors ---- */

enum { NAMED = 4 };

struct names {
    char text[NAMED * 202 + 8];
    size_t n, used;
};

/* The text has the first few names, and the count of all. */
static void add_name(struct names *list, const char *name)
{
    const char *comma = list->n ? ", " : "";
    if (list->n < NAMED)
        list->used += (size_t)snprintf(list->text + list->used, sizeof list->text - list->used, "%s%.160s",
                                       comma, name);
    else if (list->n == NAMED)
        snprintf(list->text + list->used, sizeof list->text - list->used, ", ...");
    list->n++;
}

/* ---- checks ---- */

static ddl_status check_shape(const ddl_safetensors *st, const struct ddl_param *param,
                              const struct ddl_tensor *found, struct ddl_error *err)
{
    if (ddl_tensor_has_shape(found, param->ndim, param->shape))
        return DDL_OK;
    const char *path = ddl_safetensors_path(st, found);
    bool embedding = strcmp(param->name, embedding_name) == 0;
    if (embedding && found->ndim == 2 && found->shape[1] == param->shape[1])
        return ddl_error_set(err, DDL_E_FORMAT, "%s: %s has %zu rows, config.json says vocab_size %zu", path,
                             found->name, found->shape[0], param->shape[0]);
    char has[160], wanted[160];
    struct ddl_tensor plan = { .ndim = param->ndim };
    memcpy(plan.shape, param->shape, sizeof param->shape);
    ddl_tensor_shape_text(found, has, sizeof has);
    ddl_tensor_shape_text(&plan, wanted, sizeof wanted);
    return ddl_error_set(err, DDL_E_FORMAT, "%s: %s has shape %s, config.json requires %s", path, found->name,
                         has, wanted);
}

/* Finds every parameter's tensor. */
static ddl_status find_all(struct ddl_weights *w, const char *folder, struct ddl_error *err)
{
    struct names missing = { 0 };
    for (size_t i = 0; i < w->n; i++) {
        w->tensor[i] = ddl_safetensors_find(w->st, w->row[i].name);
        /* A saver that keeps one name of tied tensors may have kept this one. */
        if (!w->tensor[i] && strcmp(w->row[i].name, embedding_name) == 0)
            w->tensor[i] = ddl_safetensors_find(w->st, ddl_head_name);
        if (!w->tensor[i])
            add_name(&missing, w->row[i].name);
    }
    if (missing.n == 1)
        return ddl_error_set(err, DDL_E_FORMAT, "%s: there is no tensor %s, which config.json requires",
                             folder, missing.text);
    if (missing.n)
        return ddl_error_set(
            err, DDL_E_FORMAT,
            "%s: there is no tensor %s (%zu of the %zu that config.json requires are missing)", folder,
            missing.text, missing.n, w->n);
    ddl_status status = DDL_OK;
    for (size_t i = 0; i < w->n && !status; i++)
        status = check_shape(w->st, &w->row[i], w->tensor[i], err);
    return status;
}

/* The first place where bits differ (NaN equals itself here, and -0 is not 0), or n. */
static size_t first_difference(const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t x, y;
        memcpy(&x, &a[i], sizeof x);
        memcpy(&y, &b[i], sizeof y);
        if (x != y)
            return i;
    }
    return n;
}

/* lm_head.weight is the embedding once more, or the file is of a model that is none of ours. */
static ddl_status check_head(const struct ddl_weights *w, const struct ddl_tensor *head,
                             const struct ddl_tensor *embedding, struct ddl_error *err)
{
    const char *path = ddl_safetensors_path(w->st, head);
    if (!ddl_tensor_has_shape(head, embedding->ndim, embedding->shape)) {
        char shape[160], wanted[160];
        ddl_tensor_shape_text(head, shape, sizeof shape);
        ddl_tensor_shape_text(embedding, wanted, sizeof wanted);
        return ddl_error_set(err, DDL_E_FORMAT, "%s: %s has shape %s, the embedding it is tied to %s", path,
                             ddl_head_name, shape, wanted);
    }
    float *piece = ddl_mem_alloc(2 * PIECE * sizeof *piece);
    ddl_status status =
        piece ? DDL_OK
              : ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory to compare %s", path, ddl_head_name);
    for (size_t at = 0; at < head->count && !status; at += PIECE) {
        size_t n = head->count - at < PIECE ? head->count - at : PIECE;
        status = ddl_tensor_read_f32(head, at, n, piece, err);
        if (!status)
            status = ddl_tensor_read_f32(embedding, at, n, piece + PIECE, err);
        if (status)
            (void)ddl_error_prefix(err, status, path);
        ddl_safetensors_release(w->st, head, at, n);
        ddl_safetensors_release(w->st, embedding, at, n);
        size_t j = status ? n : first_difference(piece, piece + PIECE, n);
        if (j < n)
            status = ddl_error_set(err, DDL_E_FORMAT, "%s: %s differs from %s in row %zu; they are tied",
                                   path, ddl_head_name, embedding->name, (at + j) / head->shape[1]);
    }
    ddl_mem_free(piece);
    return status;
}

static int by_address(const void *a, const void *b)
{
    const struct ddl_tensor *x = *(const struct ddl_tensor *const *)a,
                            *y = *(const struct ddl_tensor *const *)b;
    return (x > y) - (x < y);
}

/* Reports the tensors that are not parameters, in one message. */
static ddl_status check_extra(const struct ddl_weights *w, const char *folder,
                              const struct ddl_load_options *options, struct ddl_error *err)
{
    const struct ddl_tensor **taken = malloc((w->n + 1) * sizeof *taken);
    if (!taken)
        return ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory for its table of tensors", folder);
    memcpy(taken, w->tensor, w->n * sizeof *taken);
    qsort(taken, w->n, sizeof *taken, by_address);
    struct names extra = { 0 };
    for (size_t i = 0; i < ddl_safetensors_count(w->st); i++) {
        const struct ddl_tensor *t = ddl_safetensors_at(w->st, i);
        if (strcmp(t->name, ddl_head_name) != 0 && !bsearch(&t, taken, w->n, sizeof *taken, by_address))
            add_name(&extra, t->name);
    }
    free(taken);
    if (!extra.n)
        return DDL_OK;
    const char *are = extra.n == 1 ? "is not a parameter" : "are not parameters";
    if (!options || !options->ignore_extra)
        return ddl_error_set(err, DDL_E_FORMAT,
                             "%s: %s %s of this model (%zu in all; --ignore-extra ignores them)", folder,
                             extra.text, are, extra.n);
    if (options->warn) {
        struct ddl_error message;
        ddl_error_set(&message, DDL_OK, "%s: %s %s of this model (%zu in all); ignored", folder, extra.text,
                      are, extra.n);
        options->warn(options->user, message.text);
    }
    return DDL_OK;
}

ddl_status ddl_weights_open(struct ddl_weights *w, const char *folder, const struct ddl_config *config,
                            const struct ddl_load_options *options, struct ddl_error *err)
{
    *w = (struct ddl_weights){ 0 };
    ddl_status status = ddl_model_tensors_open(&w->st, folder, err);
    if (!status)
        status = ddl_params_plan(config, &w->row, &w->n, err);
    if (!status && !(w->tensor = calloc(w->n + 1, sizeof *w->tensor)))
        status = ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory for its table of tensors", folder);
    if (!status)
        status = find_all(w, folder, err);
    const struct ddl_tensor *head = status ? NULL : ddl_safetensors_find(w->st, ddl_head_name);
    const struct ddl_tensor *embedding = status ? NULL : ddl_safetensors_find(w->st, embedding_name);
    if (head && embedding)
        status = check_head(w, head, embedding, err);
    return status ? status : check_extra(w, folder, options, err);
}

void ddl_weights_close(struct ddl_weights *w)
{
    ddl_safetensors_close(w->st);
    free(w->row);
    free(w->tensor);
    *w = (struct ddl_weights){ 0 };
}

size_t ddl_weights_embedding(const struct ddl_weights *w)
{
    size_t i = 0;
    while (w->row[i].group != DDL_GROUP_EMBEDDING)
        i++;
    return i;
}
