/* The files of ddl_export_hf_files. */
#ifndef DDL_STUDY_HF_H
#define DDL_STUDY_HF_H

#include "ddl/config.h"
#include "ddl/export.h"

/* Writes README.md, the model card of a model with `config`, to `folder`. */
ddl_status ddl_hf_write_card(const struct ddl_export_hf *hf, const struct ddl_config *config,
                             const char *folder, struct ddl_error *err);

#endif
