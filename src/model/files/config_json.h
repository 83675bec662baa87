/* The text of config.json. ddl_config_load (ddl/model.h) reads it. */
#ifndef DDL_MODEL_CONFIG_JSON_H
#define DDL_MODEL_CONFIG_JSON_H

#include "ddl/config.h"

/* config.json: the release's keys. */
struct ddl_config_text {
    char bytes[16384]; /* enough for every row */
    size_t used;
};
/* Errors as ddl_config_save; `path` is for the message. */
ddl_status ddl_config_text(struct ddl_config_text *t, const struct ddl_config *config, const char *path,
                           struct ddl_error *err);

#endif
