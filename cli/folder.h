/* What the commands that read a model folder share. */
#ifndef DDL_CLI_FOLDER_H
#define DDL_CLI_FOLDER_H

#include "ddl/json.h"
#include "ddl/model.h"
#include "ddl/run.h"
#include "ddl/tokenizer.h"

#include <stdbool.h>
#include <stddef.h>

/* The row of --which for the field `which` of `struct type`, whose initial value is "last". */
#define WHICH_ROW(type)                                                                                      \
    {                                                                                                        \
        "which", DDL_OPTION_STRING, offsetof(struct type, which), sizeof((struct type *)0)->which, 0, 0,     \
            NULL, "MODEL", DDL_WHICH_HELP                                                                    \
    }

/* Finds the model of a folder that --which names: ddl_run_find. Warnings go to standard error, and so, unless
 * `quiet`, does a line that says which model of a run is used. */
ddl_status folder_find(struct ddl_run_model *out, const char *dir, const char *which, bool quiet,
                       struct ddl_error *err);
/* The key "saved_model" of an object: the name and step of a model in a run; none for another folder's. */
void print_saved_model_json(struct ddl_json *json, const struct ddl_run_model *model);

/* A model with its backend, and its tokenizer. */
struct folder {
    struct ddl_run_model found;
    ddl_backend *backend;
    ddl_model *model;
    ddl_tokenizer *tokenizer; /* NULL if there is none and none was needed */
};

/* What is read, and how. */
struct folder_request {
    const char *dir, *which;
    const char *tokenizer; /* "": the folder's own */
    bool needs_tokenizer, ignore_extra;
    bool quiet; /* as in folder_find */
    const char *backend;
    size_t threads;
    int dtype; /* enum ddl_precision */
};

/* Reads `dir` for inference; the tokenizer from `tokenizer` or, where that is "", from `dir`. Warnings go to
 * standard error. Close after a failure too. */
ddl_status folder_open(struct folder *f, const struct folder_request *request, struct ddl_error *err);
void folder_close(struct folder *f);

/* A ddl_warn_fn. */
void print_warning(void *user, const char *sentence);

#endif
