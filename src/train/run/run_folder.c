#include "train/run/run_folder.h"

#include "base/file.h"

#include <stdio.h>
#include <string.h>

static const char *model_of(const struct ddl_train_config *t)
{
    const char *name = *t->model ? t->model : ddl_config_preset_name(&t->config);
    return name ? name : "custom";
}

static const char *size_of(const struct ddl_train_config *t)
{
    const char *name = *t->size ? t->size : ddl_config_size_name(&t->config);
    return name ? name : "custom";
}

ddl_status ddl_run_folder_create(struct ddl_train_config *t, struct ddl_error *err)
{
    enum { MAX_RUNS = 1000000 };
    bool made = false;
    for (int n = 1; n <= MAX_RUNS && !made; n++) {
        snprintf(t->out, sizeof t->out, "runs/%s-%s-%d", model_of(t), size_of(t), n);
        ddl_status status = ddl_file_make_new_dir(t->out, &made, err);
        if (status)
            return status;
    }
    return made ? DDL_OK : ddl_error_set(err, DDL_E_IO, "%s: exists already: expected a free number", t->out);
}
