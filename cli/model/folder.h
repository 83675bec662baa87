/* What the commands that read a model folder share. */
#ifndef DDL_CLI_FOLDER_H
#define DDL_CLI_FOLDER_H

#include "ddl/json.h"
#include "ddl/model.h"
#include "ddl/run.h"
#include "ddl/tokenizer.h"

#include <stdbool.h>
#include <stddef.h>

/* How the commands that compute with a model read it. */
struct model_flags {
    char which[32], tokenizer[4096], backend[32];
    size_t threads;
    int dtype; /* enum ddl_precision */
    bool ignore_extra, verify;
};
#define MODEL_DEFAULTS                                                                                       \
    {                                                                                                        \
        .which = "last", .backend = "cpu", .verify = true                                                    \
    }
/* The row of --which for `field` of `type`, whose initial value is "last". */
#define WHICH_ROW_OF(type, field)                                                                            \
    {                                                                                                        \
        "which", DDL_OPTION_STRING, offsetof(type, field), sizeof(((type *)0)->field), 0, 0, NULL, "MODEL",  \
            DDL_WHICH_HELP                                                                                   \
    }
#define WHICH_ROW(type) WHICH_ROW_OF(struct type, which)
#define TOKENIZER_ROW_OF(type, field)                                                                        \
    {                                                                                                        \
        "tokenizer", DDL_OPTION_PATH, offsetof(type, field), sizeof(((type *)0)->field), 0, 0, NULL, "PATH", \
            "tokenizer, a file, a folder or " DDL_TOKENIZER_SHIPPED " (empty: the one in the model folder)"  \
    }
#define BACKEND_ROW_OF(type, field)                                                                          \
    {                                                                                                        \
        "backend", DDL_OPTION_STRING, offsetof(type, field), sizeof(((type *)0)->field), 0, 0, NULL, "NAME", \
            DDL_BACKEND_HELP, DDL_BACKEND_ALIASES                                                            \
    }
#define THREADS_ROW_OF(type, field)                                                                          \
    {                                                                                                        \
        "threads", DDL_OPTION_SIZE, offsetof(type, field), 0, 0, 4096, NULL, "N",                            \
            "threads (0: one per core, divided by the ranks on the host)", DDL_THREADS_ALIASES               \
    }
#define DTYPE_ROW_OF(type, field)                                                                            \
    {                                                                                                        \
        "dtype", DDL_OPTION_CHOICE, offsetof(type, field), 0, 0, 0, ddl_precision_names, "NAME",             \
            "format of the weights in products (tf32: only with backend cuda)"                               \
    }
#define EXTRA_ROW_OF(type, field)                                                                            \
    {                                                                                                        \
        "ignore_extra", DDL_OPTION_BOOL, offsetof(type, field), 0, 0, 0, NULL, NULL,                         \
            "ignore tensors that are not parameters"                                                         \
    }
/* The row of --verify for `field` of `type`, whose initial value is true. */
#define VERIFY_ROW_OF(type, field)                                                                           \
    {                                                                                                        \
        "verify", DDL_OPTION_BOOL, offsetof(type, field), 0, 0, 0, NULL, NULL,                               \
            "compare the model's files with the checksums saved with them"                                   \
    }
/* The rows of the member `model`, a struct model_flags, of `type`. */
#define MODEL_ROWS(type)                                                                                     \
    WHICH_ROW_OF(type, model.which), TOKENIZER_ROW_OF(type, model.tokenizer),                                \
        BACKEND_ROW_OF(type, model.backend), THREADS_ROW_OF(type, model.threads),                            \
        DTYPE_ROW_OF(type, model.dtype), EXTRA_ROW_OF(type, model.ignore_extra),                             \
        VERIFY_ROW_OF(type, model.verify)

/* Finds the model of a folder that --which names: ddl_run_find. Warnings go to standard error, and so, unless
 * `quiet`, does a line that says which model of a run is used. */
ddl_status folder_find(struct ddl_run_model *out, const char *dir, const char *which, bool verify, bool quiet,
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
    const char *dir;
    const struct model_flags *model;
    bool needs_tokenizer;
    bool quiet;  /* as in folder_find */
    bool silent; /* no warnings either */
};

/* Reads `dir` for inference; the tokenizer from model->tokenizer or, where that is "", from `dir`. Warnings
 * go to standard error. Close after a failure too. */
ddl_status folder_open(struct folder *f, const struct folder_request *request, struct ddl_error *err);
void folder_close(struct folder *f);

/* A ddl_warn_fn. */
void print_warning(void *user, const char *message);

#endif
