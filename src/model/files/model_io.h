/* Weights from a folder into an existing model, and a model into a folder. */
#ifndef DDL_MODEL_IO_H
#define DDL_MODEL_IO_H

#include "ddl/model.h"
#include "tensor/safetensors.h"

/* Fills the parameters from the folder's safetensors; the shapes must be those of the model's own
 * configuration. After an error the parameters are unspecified. */
ddl_status ddl_model_read_weights(ddl_model *model, const char *folder, ddl_warn_fn *warn, void *user,
                                  struct ddl_error *err);
/* The same with options; NULL: strict, and no warnings. */
ddl_status ddl_model_read_weights_with(ddl_model *model, const char *folder,
                                       const struct ddl_load_options *options, struct ddl_error *err);
/* Whether a model of `config` can be filled so, by names and shapes. No checksum is compared, and no value
 * but those of a stored head with the embedding. */
ddl_status ddl_model_check_weights(const struct ddl_config *config, const char *folder,
                                   const struct ddl_load_options *options, struct ddl_error *err);

/* ddl_model_save, with an entry in the __metadata__ of model.safetensors beside the model's own; it may be
 * NULL. */
ddl_status ddl_model_save_with(const ddl_model *model, const char *folder,
                               const struct ddl_safetensors_metadata *entry, struct ddl_error *err);
/* Whether a save that replaced an earlier model in the folder was interrupted: checksums.json has both. */
bool ddl_model_save_is_pending(const char *folder);
/* ddl_model_save without checksums.json, for a new folder that has checksums in another file. */
ddl_status ddl_model_save_files(const ddl_model *model, const char *folder, struct ddl_error *err);

#endif
