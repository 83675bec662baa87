/* Memory of the weights of a configuration. */
#include "model/params/params.h"
#include "model/params/precision.h"

size_t ddl_config_weight_bytes(const struct ddl_config *config, enum ddl_precision precision,
                               const ddl_backend *backend)
{
    struct params params;
    size_t bytes = 0;
    if (ddl_config_check(config, NULL) || precision_check(precision, NULL) ||
        params_plan(&params, config, NULL))
        return SIZE_MAX;
    for (size_t i = 0; i < params.n; i++)
        bytes += precision_row_bytes(&params, i, precision, backend);
    params_free(&params);
    return bytes;
}
