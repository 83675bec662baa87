/* --force: updates of the model that are replaced while it is evaluated (ddl/force.h). */
#ifndef DDL_CLI_FORCE_H
#define DDL_CLI_FORCE_H

#include "cli/cli.h"
#include "ddl/force.h"
#include "ddl/inspect.h"
#include "ddl/json.h"
#include "ddl/option.h"

#include <stdbool.h>
#include <stddef.h>

enum { FORCE_SIZE = 4096 };

/* The row of the member `force`, a char[FORCE_SIZE], of `type`. */
#define FORCE_ROW(type, help)                                                                                \
    {                                                                                                        \
        "force", DDL_OPTION_STRINGS, offsetof(type, force), FORCE_SIZE, 0, 0, NULL, "SPEC", help             \
    }

/* What is forced in one sublayer. */
struct sublayer_force {
    struct ddl_force force; /* no keys: nothing */
    bool mean;              /* beta is the mean of its gate, which is measured first */
};
/* In a model. */
struct force_plan {
    struct sublayer_force *sublayer; /* (n), attention before MLP, layer by layer */
    size_t n;
    bool needs_means;
};

/* Reads `specs`, one a line, for a model of this config: "layers=7-9,sub=mlp,beta=0". A spec applies to the
 * sublayers that it names; with layers=all, to those of them whose rule accepts its keys. Later specs change
 * what earlier ones set. DDL_E_USAGE with `name`, which the option has, and the spec for an error in it, a
 * layer that the model does not have, and keys that do not apply. Free after an error too. */
ddl_status force_plan_make(struct force_plan *plan, const char *name, const char *specs,
                           const struct ddl_config *config, struct ddl_error *err);
/* The default of ddl ablate: beta=0, and f_scale=0 where there is no gate of the delta rule. */
ddl_status force_plan_close_all(struct force_plan *plan, const struct ddl_config *config,
                                struct ddl_error *err);
void force_plan_free(struct force_plan *plan);

/* Forces sublayer s of the model. `means`: an inspection of the model without forces; NULL unless
 * needs_means. */
ddl_status force_plan_apply_one(const struct force_plan *plan, size_t s, ddl_model *model,
                                const ddl_inspection *means, struct ddl_error *err);
/* Forces every sublayer of the plan. */
ddl_status force_plan_apply(const struct force_plan *plan, ddl_model *model, const ddl_inspection *means,
                            struct ddl_error *err);
/* "beta=0", "scale=0.5,update=write": what is forced, as a spec has it. */
void force_describe(const struct sublayer_force *force, char *out, size_t size);

/* The keys of a spec that force something: for the help. */
const struct note *force_notes(void);

/* The key "force" of an object: the list of specs, one a line; nothing if there is none. */
void print_force_json(struct ddl_json *json, const char *specs);

#endif
