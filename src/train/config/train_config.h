/* A run's configuration inside the library. */
#ifndef DDL_TRAIN_CONFIG_H
#define DDL_TRAIN_CONFIG_H

#include "ddl/generate.h"
#include "ddl/train.h"

/* A copy with the values that depend on other keys: seq 0, global_batch 0, the list of rules by layer, and
 * each DDL_OPTION_AUTO. config->config is valid. */
struct ddl_train_config ddl_train_resolved(const struct ddl_train_config *config);

/* Notes that the row's value is computed, so that a stored recipe lists it. */
void ddl_train_set_computed(const struct ddl_option *row, struct ddl_train_config *config);
bool ddl_train_is_computed(const struct ddl_option *row, const struct ddl_train_config *config);
/* The field of a row that may be computed. */
uint64_t *ddl_train_automatic_field(const struct ddl_option *row, struct ddl_train_config *config);

/* The ranks of a run. */
size_t ddl_train_ranks(const struct ddl_train_config *config);
/* The part of each step's sequences that a rank takes; of a resolved configuration. */
struct ddl_share {
    size_t first, n;      /* sequences [first, first + n) of the step */
    size_t batch;         /* of a micro-batch, on all ranks the same  */
    size_t micro_batches; /* that it takes, */
    size_t last;          /* and the sequences of the last one */
    size_t most;          /* micro-batches of the rank with the most sequences */
};
struct ddl_share ddl_train_share(const struct ddl_train_config *config, size_t rank);

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

/* How paths are written. */
enum ddl_path_use {
    DDL_PATHS_STORE,     /* in a file in `folder`: relative to it; so is every path of `out`           */
    DDL_PATHS_LOAD,      /* as read from a file in `folder`: relative to the working directory again   */
    DDL_PATHS_CANONICAL, /* absolute and equal for all names of a file; `folder` is not used           */
};
enum { DDL_PATHS_SIZE = 8192 };
/* Converts the value of a row of paths. False if it does not fit. */
bool ddl_train_map_paths(const struct ddl_option *row, enum ddl_path_use use, const char *folder,
                         const char *value, char *out, size_t size);
/* Converts the paths of *config, found by the rows of its table, to the form in which a file in `folder`
 * stores them. */
ddl_status ddl_train_store_paths(const struct ddl_option *rows, struct ddl_train_config *config,
                                 const char *folder, struct ddl_error *err);

/* The key of a recipe, and of the configuration in state.json, that says what relative paths in it are
 * relative to. */
extern const char ddl_relative_to_key[];
enum ddl_relative_to { DDL_RELATIVE_TO_WORKING_DIRECTORY, DDL_RELATIVE_TO_RECIPE };
extern const char *const ddl_relative_to_names[];

#endif
