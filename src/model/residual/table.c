#include "model/residual/table.h"

/* clang-format off */
static const struct residual_rule *const rules[DDL_RESIDUALS] = {
#define ROW(constant, name) [DDL_RESIDUAL_##constant] = &residual_##name,
    DDL_RESIDUAL_RULES(ROW)
#undef ROW
};

const char *const residual_rule_names[] = {
#define NAME(constant, name) [DDL_RESIDUAL_##constant] = #name,
    DDL_RESIDUAL_RULES(NAME)
#undef NAME
    [DDL_RESIDUALS] = NULL
};
/* clang-format on */

const struct residual_rule *residual_rule_at(int rule)
{
    return rules[rule];
}

const struct residual_rule *residual_rule_of(const struct ddl_config *config, size_t layer)
{
    const struct residual_rule *rule = rules[ddl_config_residual(config, layer)];
    return config->f_norm && rule->normalized ? rule->normalized : rule;
}

unsigned residual_reads(const struct ddl_config *config, size_t layer)
{
    const struct residual_rule *rule = residual_rule_of(config, layer);
    unsigned reads = rule->reads ? rule->reads(config) : 0;
    return ddl_config_normalizes_f(config, layer) ? reads | RULE_SUMS_DF : reads;
}

size_t ddl_config_residual_steps(const struct ddl_config *config, size_t layer)
{
    const struct residual_rule *rule = residual_rule_of(config, layer);
    return rule->steps ? rule->steps(config) : 1;
}

size_t ddl_config_steps(const struct ddl_config *config)
{
    size_t n = 0;
    for (size_t l = 0; l < config->n_layers; l++)
        n += DDL_SUBLAYERS * ddl_config_residual_steps(config, l);
    return n;
}

bool ddl_config_normalizes_f(const struct ddl_config *config, size_t layer)
{
    return config->f_norm && rules[ddl_config_residual(config, layer)]->normalizes_f;
}

const char *ddl_config_residual_name(const struct ddl_config *config, size_t layer)
{
    return residual_rule_names[ddl_config_residual(config, layer)];
}

const struct state_form *state_form_of(const struct ddl_config *config)
{
    const struct state_form *form = residual_rule_of(config, 0)->state;
    return form ? form : &state_channels;
}

bool state_is_read(const struct ddl_config *config)
{
    return ddl_config_state_channels(config) > 1 || state_form_of(config)->is_always_read;
}

size_t ddl_config_state_channels(const struct ddl_config *config)
{
    return state_form_of(config)->channels(config);
}

bool ddl_config_has_streams(const struct ddl_config *config)
{
    return state_form_of(config)->is_mixed;
}
