/* The width of the MLP with which a model costs as much as another: ddl_config_match. */
#include "ddl/config.h"
#include "ddl/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const struct {
    const char *key, *unit;
} kinds[] = { [DDL_MATCH_PARAMETERS] = { "match_parameters", "parameters" },
              [DDL_MATCH_FLOPS] = { "match_flops", "training FLOPs per token" } };

const char *ddl_match_key(enum ddl_match_kind kind)
{
    return kinds[kind].key;
}

const char *ddl_match_unit(enum ddl_match_kind kind)
{
    return kinds[kind].unit;
}

static ddl_status count_parameters(const struct ddl_config *config, double *out, struct ddl_error *err)
{
    struct ddl_param *rows;
    size_t n;
    ddl_status status = ddl_params_plan(config, &rows, &n, err);
    *out = 0;
    for (size_t i = 0; !status && i < n; i++)
        *out += (double)rows[i].count;
    free(rows);
    return status;
}

/* The cost of config with this width of the MLP; 0: the default width. */
static ddl_status cost_of(const struct ddl_config *config, size_t mlp_size, enum ddl_match_kind kind,
                          size_t seq, double *out, struct ddl_error *err)
{
    struct ddl_config k = *config;
    k.mlp_size = mlp_size;
    ddl_status status = count_parameters(&k, out, err);
    if (!status && kind == DDL_MATCH_FLOPS)
        *out = ddl_config_flops_per_token(&k, seq ? seq : k.block_size, true);
    return status;
}

/* The cost is linear in the width: of width m, first + (m - 1) step. */
struct line {
    double first, step;
};

static ddl_status line_of(const struct ddl_config *config, enum ddl_match_kind kind, size_t seq,
                          struct line *out, struct ddl_error *err)
{
    double second = 0;
    ddl_status status = cost_of(config, 1, kind, seq, &out->first, err);
    if (!status)
        status = cost_of(config, 2, kind, seq, &second, err);
    out->step = second - out->first;
    return status;
}

/* The width whose cost is nearest to out->target, within the range of mlp_size. */
static ddl_status choose(const struct line *line, struct ddl_match *out, struct ddl_error *err)
{
    const double most = ddl_option_find(ddl_config_options(), "mlp_size")->max;
    const char *key = kinds[out->kind].key, *unit = kinds[out->kind].unit;
    if (line->step <= 0)
        return ddl_error_set(err, DDL_E_USAGE,
                             "%s: the MLP has no effect in this model: expected a model whose %s depend on "
                             "its width",
                             key, unit);
    double m = fmin(fmax(round(1 + (out->target - line->first) / line->step), 1), most);
    out->mlp_size = (size_t)m;
    out->cost = line->first + (m - 1) * line->step;
    if (fabs(out->cost - out->target) > line->step)
        return ddl_error_set(err, DDL_E_USAGE,
                             "%s: no width of the MLP matches %s: expected %.0f %s, found %.0f with the "
                             "%s width, %.0f",
                             key, out->model, out->target, unit, out->cost, m > 1 ? "largest" : "smallest",
                             m);
    return DDL_OK;
}

ddl_status ddl_config_match(struct ddl_config *config, const char *model, enum ddl_match_kind kind,
                            size_t seq, struct ddl_match *out, struct ddl_error *err)
{
    struct ddl_config other = *config;
    struct ddl_match match = { .kind = kind };
    struct line line;
    *out = (struct ddl_match){ 0 };
    snprintf(match.model, sizeof match.model, "%s", model);
    ddl_status status = ddl_config_set_preset(&other, model, err);
    if (status)
        return ddl_error_prefix(err, status, kinds[kind].key);
    other.beta_init =
        ddl_config_defaults().beta_init; /* config's need not lie in the range of the named model */
    status = cost_of(&other, 0, kind, seq, &match.target, err);
    if (!status)
        status = line_of(config, kind, seq, &line, err);
    if (!status)
        status = choose(&line, &match, err);
    if (status)
        return status;
    if (config->mlp_size && config->mlp_size != match.mlp_size)
        return ddl_error_set(err, DDL_E_USAGE, "mlp_size: expected %zu, which matches %s %s, found %zu",
                             match.mlp_size, kinds[kind].key, model, config->mlp_size);
    config->mlp_size = match.mlp_size;
    config->mlp_size = ddl_config_resolved(config).mlp_size; /* 0 if it is the default */
    *out = match;
    return DDL_OK;
}
