/* Writes a model folder: config.json, tensors in one file or several, copies of another folder's tokenizer,
 * and checksums.json. */
#ifndef DDL_MODEL_FOLDER_WRITER_H
#define DDL_MODEL_FOLDER_WRITER_H

#include "ddl/config.h"
#include "ddl/export.h"
#include "tensor/safetensors.h"

#include <stdint.h>

struct ddl_folder_content {
    const struct ddl_config *config;
    const struct ddl_tensor *tensors; /* (n) measured (ddl_tensor_measure) */
    size_t n;
    ddl_tensor_fill_fn *fill; /* of tensor i of `tensors`; called with `user` */
    void *user;
    uint64_t max_file_size;     /* bytes of tensors in a file; beyond, several and an index (0: one file) */
    const char *from;           /* the folder whose tokenizer files are copied */
    ddl_export_extra_fn *extra; /* may be NULL: further files */
    void *extra_user;
};

/* DDL_E_USAGE unless `to` does not exist or is an empty folder. */
ddl_status ddl_folder_check_free(const char *to, struct ddl_error *err);
/* Writes the folder `to` under another name in the same folder and renames it. *n_files becomes the number of
 * files of tensors. After an error nothing is left behind. */
ddl_status ddl_folder_write(const struct ddl_folder_content *content, const char *to, size_t *n_files,
                            struct ddl_error *err);

#endif
