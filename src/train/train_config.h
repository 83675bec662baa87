/* A run's configuration inside the library. */
#ifndef DDL_TRAIN_CONFIG_H
#define DDL_TRAIN_CONFIG_H

#include "ddl/generate.h"
#include "ddl/train.h"

/* A copy with the values that depend on other keys: seq 0, and each DDL_OPTION_AUTO. */
struct ddl_train_config ddl_train_resolved(const struct ddl_train_config *config);

/* Options of the run's workspace; of a resolved configuration. */
struct ddl_workspace_options ddl_train_workspace(const struct ddl_train_config *config);

/* How text is sampled after `step` steps. */
struct ddl_generate_config ddl_train_sample(const struct ddl_train_config *config, uint64_t step);

/* What a resumed run may change. A key is compared with the checkpoint's unless its row says otherwise. */
enum ddl_on_resume {
    DDL_RESUME_SAME,  /* nothing: the key decides which numbers come next       */
    DDL_RESUME_NOTED, /* the value, with a warning: it is not the same run then */
    DDL_RESUME_ANY,   /* the value: it has no effect on the numbers             */
};
/* Of a row of ddl_train_options. */
enum ddl_on_resume ddl_train_on_resume(const struct ddl_option *row);

/* The present name of a key's value: recipes and run files of earlier versions may have a former one. */
const char *ddl_train_current_value(const char *key, const char *value);

/* Writes the recipe that gives this configuration to `path`, without keys that the model's names imply. */
ddl_status ddl_train_save_recipe(const struct ddl_train_config *config, const char *path,
                                 struct ddl_error *err);

#endif
