#include "cli/output/match_print.h"

static double relative_difference(const struct ddl_match *match)
{
    return match->cost / match->target - 1;
}

void print_match(FILE *out, const struct ddl_match *match)
{
    fprintf(out, "MLP width %zu: %.0f %s, %s has %.0f (%+.3f %%)\n", match->mlp_size, match->cost,
            ddl_match_unit(match->kind), match->model, match->target, 100 * relative_difference(match));
}

void print_match_json(struct ddl_json *json, const struct ddl_match *match)
{
    ddl_json_open(json, "match", '{');
    ddl_json_string(json, "key", ddl_match_key(match->kind));
    ddl_json_string(json, "model", match->model);
    ddl_json_count(json, "mlp_size", match->mlp_size);
    ddl_json_fixed(json, "cost", match->cost, 0);
    ddl_json_fixed(json, "target", match->target, 0);
    ddl_json_number(json, "relative_difference", relative_difference(match), 6);
    ddl_json_close(json, '}');
}
