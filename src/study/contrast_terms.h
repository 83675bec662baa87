/* The terms of a contrast, and the groups that they name. */
#ifndef DDL_STUDY_CONTRAST_TERMS_H
#define DDL_STUDY_CONTRAST_TERMS_H

#include "ddl/status.h"

#include <stddef.h>

struct contrast_groups {
    const char *source;  /* of the contrast, the start of error messages: "--contrast" */
    const char **names;  /* (n)                                                        */
    const char **models; /* (n) NULL: not the configuration of a named model           */
    size_t n;
};

/* Sets the weights (n) of the groups in the contrast `text`: 1/n_left on the left, -1/n_right on the right, 0
 * for other groups. DDL_E_USAGE as ddl_contrasts_test. */
ddl_status contrast_set_weights(const struct contrast_groups *groups, const char *text, double *weights,
                                struct ddl_error *err);

#endif
