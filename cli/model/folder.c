#define _POSIX_C_SOURCE 200809L
#include "cli/model/folder.h"
#include "cli/output/escape.h"

#include "ddl/file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void print_warning(void *user, const char *message)
{
    (void)user;
    fprintf(stderr, "ddl: warning: %s\n", printable(message));
}

/* DDL_E_IO if the folder has neither config.json nor a file of torch.save, which may hold its configuration:
 * a word among the arguments may be no folder at all. */
static ddl_status check_is_model(const char *dir, const struct ddl_run_model *model, struct ddl_error *err)
{
    static const char *const files[] = { "config.json", "ckpt.pt", "pytorch_model.bin",
                                         "pytorch_model.bin.index.json" };
    int code = 0; /* of config.json */
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", model->path, files[i]);
        if (access(path, F_OK) == 0)
            return DDL_OK;
        code = i ? code : errno;
    }
    return ddl_error_set(
        err, DDL_E_IO,
        "%.400s/config.json: cannot open: %s: %.300s is not a model folder: expected a run, a "
        "checkpoint or another folder with config.json",
        model->path, strerror(code), dir);
}

static bool has_tokenizer(const char *dir)
{
    static const char *const files[] = { "tokenizer.json", "vocab.bpe" };
    bool found = false;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", dir, files[i]);
        found = found || ddl_file_exists(path);
    }
    return found;
}

static ddl_status find(struct ddl_run_model *out, const char *dir, const char *which, bool verify, bool quiet,
                       ddl_warn_fn *warn, struct ddl_error *err)
{
    char about[128];
    ddl_status status = ddl_run_check_which("--which", which, err);
    if (!status)
        status = ddl_run_find(out, dir, which, verify, warn, NULL, err);
    if (!status)
        status = check_is_model(dir, out, err);
    if (status || quiet || !*out->name)
        return status;
    ddl_run_describe(out, about, sizeof about);
    fprintf(stderr, "ddl: %s: using %s\n", printable(dir), printable(about));
    return DDL_OK;
}

ddl_status folder_find(struct ddl_run_model *out, const char *dir, const char *which, bool verify, bool quiet,
                       struct ddl_error *err)
{
    return find(out, dir, which, verify, quiet, print_warning, err);
}

void print_saved_model_json(struct ddl_json *json, const struct ddl_run_model *model)
{
    if (!*model->name)
        return;
    ddl_json_open(json, "saved_model", '{');
    ddl_json_string(json, "name", model->name);
    if (model->has_step)
        ddl_json_count(json, "step", model->step);
    ddl_json_close(json, '}');
}

ddl_status folder_open(struct folder *f, const struct folder_request *request, struct ddl_error *err)
{
    const struct model_flags *model = request->model;
    ddl_warn_fn *warn = request->silent ? NULL : print_warning;
    const struct ddl_load_options options = { .ignore_extra = model->ignore_extra,
                                              .warn = warn,
                                              .precision = (enum ddl_precision)model->dtype,
                                              .no_verify = true }; /* ddl_run_find does */
    *f = (struct folder){ 0 };
    ddl_status status = find(&f->found, request->dir, model->which, model->verify, request->quiet, warn, err);
    const char *dir = f->found.path;
    if (!status)
        status = ddl_backend_create(&f->backend, model->backend, model->threads, err);
    if (!status)
        status = ddl_model_load_with(&f->model, dir, f->backend, &options, err);
    if (status)
        return status;
    bool own = *model->tokenizer == '\0';
    if (own && !request->needs_tokenizer && !has_tokenizer(dir))
        return DDL_OK;
    const char *path = own ? dir : model->tokenizer;
    if (!own && model->verify)
        status = ddl_run_check_tokenizer(path, err);
    if (!status)
        status = ddl_tokenizer_load(&f->tokenizer, path, err);
    if (status && own && err && !has_tokenizer(dir)) {
        const struct ddl_error why = *err;
        return ddl_error_set(err, status, "%.900s; --tokenizer names a folder that has one", why.text);
    }
    if (status)
        return status;
    size_t n = ddl_tokenizer_vocab_size(f->tokenizer), vocab = ddl_model_config(f->model)->vocab_size;
    if (n > vocab)
        return ddl_error_set(err, DDL_E_FORMAT,
                             "%s: the tokenizer has %zu tokens, %s/config.json says "
                             "vocab_size %zu",
                             path, n, dir, vocab);
    return DDL_OK;
}

void folder_close(struct folder *f)
{
    ddl_tokenizer_free(f->tokenizer);
    ddl_model_free(f->model);
    ddl_backend_free(f->backend);
}
