/* Properties of the rows of ddl_config_options, and what follows from a configuration. */
#ifndef DDL_MODEL_CONFIG_H
#define DDL_MODEL_CONFIG_H

#include "ddl/config.h"

enum { DDL_CONFIG_KEYS = 128 }; /* rows of ddl_config_options, at most */

/* Whether a row of ddl_config_options is a key of our own, which the release does not have (config.c). */
bool ddl_config_row_is_own(const struct ddl_option *row);
/* Whether the metadata of this configuration has the row. */
bool ddl_config_row_is_metadata(const struct ddl_option *row, const struct ddl_config *config);
/* The residual rules in which the key has an effect with one value channel: bit r for rule r (enum
 * ddl_residual); 0 for a key that is of no rule in particular, or has an effect only if c > 1. */
unsigned ddl_config_row_rules(const struct ddl_option *row);
/* For a row with rules: whether the key is only about initial values. */
bool ddl_config_row_is_initial(const struct ddl_option *row);
/* Whether the key is an option that is separate from the residual rules, which a graft may change. */
bool ddl_config_row_is_separate(const struct ddl_option *row);

/* How many states the weighted sum after a layer has, with dense_average. */
static inline size_t ddl_config_average_terms(const struct ddl_config *config, size_t layer)
{
    return (layer + 1) / config->dense_dilation + 1;
}

#endif
