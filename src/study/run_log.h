/* Lines of metrics.jsonl, as ddl_run_log_read reads them. */
#ifndef DDL_STUDY_RUN_LOG_H
#define DDL_STUDY_RUN_LOG_H

#include <jansson.h>
#include <stdbool.h>

/* Whether targets were counted for the loss of a line. Where the masks count none, a skipped step has the
 * loss 0, and step 0 that of step 1. */
bool run_log_has_loss(const json_t *line);

#endif
