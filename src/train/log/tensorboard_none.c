/* A build without protobuf-c writes no event files. */
#include "train/log/tensorboard.h"

ddl_status ddl_tensorboard_check(struct ddl_error *err)
{
    return ddl_error_set(err, DDL_E_USAGE,
                         "tensorboard: not available: this ddl was built without protobuf-c (packages "
                         "libprotobuf-c-dev, protobuf-c-compiler)");
}

ddl_status ddl_tensorboard_open(struct ddl_tensorboard *tb, const char *folder, uint64_t step,
                                struct ddl_error *err)
{
    (void)tb;
    (void)folder;
    (void)step;
    return ddl_tensorboard_check(err);
}

void ddl_tensorboard_close(struct ddl_tensorboard *tb)
{
    (void)tb;
}

ddl_status ddl_tensorboard_line(struct ddl_tensorboard *tb, const struct ddl_train_progress *p,
                                struct ddl_error *err)
{
    (void)tb;
    (void)p;
    (void)err;
    return DDL_OK;
}

ddl_status ddl_tensorboard_telemetry(struct ddl_tensorboard *tb, uint64_t step, const struct ddl_telemetry *t,
                                     struct ddl_error *err)
{
    (void)tb;
    (void)step;
    (void)t;
    (void)err;
    return DDL_OK;
}

ddl_status ddl_tensorboard_sample(struct ddl_tensorboard *tb, uint64_t step, const char *prompt,
                                  const char *text, size_t size, struct ddl_error *err)
{
    (void)tb;
    (void)step;
    (void)prompt;
    (void)text;
    (void)size;
    (void)err;
    return DDL_OK;
}

ddl_status ddl_tensorboard_sync(struct ddl_tensorboard *tb, struct ddl_error *err)
{
    (void)tb;
    (void)err;
    return DDL_OK;
}
