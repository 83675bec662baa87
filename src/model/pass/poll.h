/* Passes that can be interrupted. */
#ifndef DDL_MODEL_POLL_H
#define DDL_MODEL_POLL_H

#include "model/pass/decode.h"

/* progress(user, done, total), if it is not NULL, is called several times during a pass, which ends with
 * DDL_E_INTERRUPTED after a nonzero return value. */
struct ddl_poll {
    ddl_progress_fn *progress;
    void *user;
    uint64_t done, total; /* passed on unchanged */
};
/* ddl_model_scores; rows NULL: only the loss. */
ddl_status ddl_model_loss_polled(ddl_model *model, ddl_workspace *ws, const struct ddl_batch *batch,
                                 const struct ddl_poll *poll, struct ddl_loss *loss,
                                 const struct ddl_row_scores *rows, struct ddl_error *err);
/* ddl_model_decode. */
ddl_status ddl_model_decode_polled(ddl_model *model, ddl_workspace *ws, ddl_cache *cache,
                                   const struct ddl_decode_batch *batch, const struct ddl_poll *poll,
                                   struct ddl_error *err);

#endif
