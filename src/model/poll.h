/* A loss whose computation can be interrupted. */
#ifndef DDL_MODEL_POLL_H
#define DDL_MODEL_POLL_H

#include "ddl/model.h"

/* ddl_model_scores (rows NULL: only the loss) that also calls progress(user, done, total), if it is not NULL,
 * several times during the pass: DDL_E_INTERRUPTED after a nonzero return value. */
struct ddl_poll {
    ddl_progress_fn *progress;
    void *user;
    uint64_t done, total; /* passed on unchanged */
};
ddl_status ddl_model_loss_polled(ddl_model *model, ddl_workspace *ws, const struct ddl_batch *batch,
                                 const struct ddl_poll *poll, struct ddl_loss *loss,
                                 const struct ddl_row_scores *rows, struct ddl_error *err);

#endif
