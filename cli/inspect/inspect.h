/* What the files of ddl inspect share. */
#ifndef DDL_CLI_INSPECT_H
#define DDL_CLI_INSPECT_H

#include "ddl/inspect.h"
#include "cli/model/folder.h"

#include <stdbool.h>
#include <stddef.h>

/* A finished inspection, and what it is of. */
struct inspected {
    const char *dir;
    const struct folder *folder;
    const ddl_inspection *inspection;
    const char *force; /* specs of --force, one a line */
    bool prompt;       /* of one prompt, which is shown token by token */
};

/* Print it to standard output. */
void print_inspection(const struct inspected *i);
void print_inspection_json(const struct inspected *i);
/* Writes the page of --html to the file `path`. */
ddl_status write_inspection_html(const struct inspected *i, const char *path, struct ddl_error *err);

/* The read vector of a layer's compressor, or with DDL_MAX_LAYERS of the readout, into out (c numbers); false
 * if the model has none. */
bool read_vector(const ddl_model *model, size_t layer, float *out);
/* The weights of the sum of states that follows a layer, row *row of the model's parameters; NULL if there is
 * none. */
const struct ddl_param *average_weights(const ddl_model *model, size_t layer, size_t *row);

#endif
