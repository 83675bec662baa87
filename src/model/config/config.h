/* Properties of the rows of ddl_config_options. */
#ifndef DDL_MODEL_CONFIG_H
#define DDL_MODEL_CONFIG_H

#include "ddl/config.h"

/* The residual rules in which the key has an effect with one value channel: bit r for rule r (enum
 * ddl_residual); 0 for a key that is of no rule in particular, or has an effect only if c > 1. */
unsigned ddl_config_row_rules(const struct ddl_option *row);
/* For a row with rules: whether the key is only about initial values. */
bool ddl_config_row_is_initial(const struct ddl_option *row);
/* Whether the key is an option that is separate from the residual rules, which a graft may change. */
bool ddl_config_row_is_separate(const struct ddl_option *row);
/* A copy of config in which keys of residual rules that have no effect have their defaults. */
struct ddl_config ddl_config_without_idle(const struct ddl_config *config);

#endif
