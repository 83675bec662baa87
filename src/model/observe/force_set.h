/* Forced updates that are kept apart from a model, to apply to some of its passes. */
#ifndef DDL_MODEL_FORCE_SET_H
#define DDL_MODEL_FORCE_SET_H

#include "ddl/force.h"

/* What is forced in all sublayers of a model, as ddl_model keeps it; zeroed: nothing. */
struct force_set {
    struct ddl_force *sublayer; /* (n_layers, DDL_SUBLAYERS), host memory, or NULL */
    size_t n;                   /* sublayers in which something is forced          */
};
/* Sets *out to forces (n_layers, DDL_SUBLAYERS) for this model, which has its own as before afterwards.
 * Errors as ddl_model_force. Free after an error too. */
ddl_status force_set_make(struct force_set *out, ddl_model *model, const struct ddl_force *forces,
                          struct ddl_error *err);
void force_set_free(struct force_set *set); /* zeroed is allowed */
/* Exchanges what is forced in the model for the set. */
void force_exchange(ddl_model *model, struct force_set *set);

#endif
