/* Comparison of the tensors of a folder with a configuration: finds the tensor of each parameter, checks its
 * shape, and reports tensors that are not parameters. */
#ifndef DDL_MODEL_WEIGHTS_H
#define DDL_MODEL_WEIGHTS_H

#include "ddl/model.h"
#include "tensor/safetensors.h"

/* The tied head's name in files: written too, because loaders that do not know the tie would fill in noise.
 */
extern const char ddl_head_name[];

struct ddl_weights {
    ddl_safetensors *st;
    struct ddl_param *row;            /* (n) the plan, as ddl_params_plan gives it */
    const struct ddl_tensor **tensor; /* (n) owned by st                           */
    size_t n;
};

/* DDL_E_FORMAT, with names and both shapes, for tensors that are missing, of another shape or no parameters
 * (these are warned of instead where the options say so). The embedding may be called lm_head.weight, and
 * where both are there they must be equal. options NULL: strict, and no warnings. Close after a failure too.
 */
ddl_status ddl_weights_open(struct ddl_weights *w, const char *folder, const struct ddl_config *config,
                            const struct ddl_load_options *options, struct ddl_error *err);
void ddl_weights_close(struct ddl_weights *w);
/* The row of the embedding, which the head is tied to. */
size_t ddl_weights_embedding(const struct ddl_weights *w);

#endif
