/* The keys match_parameters and match_flops of a run. */
#include "train/config/train_config.h"

ddl_status ddl_train_match(struct ddl_train_config *config, struct ddl_match *out, struct ddl_error *err)
{
    const char *parameters = config->match_parameters, *flops = config->match_flops;
    enum ddl_match_kind kind = *flops ? DDL_MATCH_FLOPS : DDL_MATCH_PARAMETERS;
    *out = (struct ddl_match){ 0 };
    if (!*parameters && !*flops)
        return DDL_OK;
    if (*parameters && *flops)
        return ddl_error_set(err, DDL_E_USAGE,
                             "match_parameters, match_flops: expected one of them, found %s and %s",
                             parameters, flops);
    if (*config->init_from)
        return ddl_error_set(err, DDL_E_USAGE,
                             "%s: expected a new model, found init_from %.200s, whose MLP has its width",
                             ddl_match_key(kind), config->init_from);
    return ddl_config_match(&config->config, *flops ? flops : parameters, kind, config->seq, out, err);
}
