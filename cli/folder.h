/* What the commands that read a model folder share. */
#ifndef DDL_CLI_FOLDER_H
#define DDL_CLI_FOLDER_H

#include "ddl/model.h"
#include "ddl/tokenizer.h"

#include <stdbool.h>

/* A model with its backend, and its tokenizer. */
struct folder {
    ddl_backend *backend;
    ddl_model *model;
    ddl_tokenizer *tokenizer; /* NULL if there is none and none was needed */
};

/* What is read, and how. */
struct folder_request {
    const char *dir, *tokenizer; /* "": the folder's own */
    bool needs_tokenizer, ignore_extra;
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
