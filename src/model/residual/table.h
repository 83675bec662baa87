/* The residual rules. */
#ifndef DDL_MODEL_RESIDUAL_TABLE_H
#define DDL_MODEL_RESIDUAL_TABLE_H

#include "model/residual/rule.h"

/* One row per rule: its constant of enum ddl_residual without the prefix, and its name. The name is the value
 * of ddl_residual, and names the struct: residual_<name>. */
#define DDL_RESIDUAL_RULES(RULE)                                                                             \
    RULE(ADD, add)                                                                                           \
    RULE(DELTA, delta)                                                                                       \
    RULE(SCALE, scale)                                                                                       \
    RULE(GATED, gated)                                                                                       \
    RULE(HIGHWAY, highway)                                                                                   \
    RULE(HYPER, hyper)                                                                                       \
    RULE(MHC, mhc)                                                                                           \
    RULE(LAUREL, laurel)                                                                                     \
    RULE(ATTNRES, attnres)

#define DDL_DECLARE_RULE(constant, name) extern const struct residual_rule residual_##name;
DDL_RESIDUAL_RULES(DDL_DECLARE_RULE)
#undef DDL_DECLARE_RULE

/* By enum ddl_residual, ended by NULL: choices for a struct ddl_option. */
extern const char *const residual_rule_names[];
/* Rule number `rule` < DDL_RESIDUALS, and the rule of a layer of a checked configuration. */
const struct residual_rule *residual_rule_at(int rule);
const struct residual_rule *residual_rule_of(const struct ddl_config *config, size_t layer);
/* The form of the state, which all rules of a checked configuration share. */
const struct state_form *state_form_of(const struct ddl_config *config);
/* Whether x_in and the readout have memory of their own; false: they are the state. */
bool state_is_read(const struct ddl_config *config);
/* What that rule, or the norm of f after it, reads: constants of rule.h. */
unsigned residual_reads(const struct ddl_config *config, size_t layer);

#endif
