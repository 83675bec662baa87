/* What a run writes to TensorBoard: the values of metrics.jsonl as scalars, gates as histograms, samples as
 * text. Every function but the first two has no effect on a zeroed or closed struct ddl_tensorboard. */
#ifndef DDL_TRAIN_TENSORBOARD_H
#define DDL_TRAIN_TENSORBOARD_H

#include "ddl/train.h"
#include "train/log/event_file.h"
#include "train/log/telemetry.h"

struct ddl_tensorboard {
    struct ddl_event_file file;
};

/* DDL_E_USAGE where this library was built without protobuf-c. */
ddl_status ddl_tensorboard_check(struct ddl_error *err);
/* Creates an event file in the folder. It supersedes what earlier files have of `step` and later steps. */
ddl_status ddl_tensorboard_open(struct ddl_tensorboard *tb, const char *folder, uint64_t step,
                                struct ddl_error *err);
void ddl_tensorboard_close(struct ddl_tensorboard *tb);

/* What a line of metrics.jsonl has. */
ddl_status ddl_tensorboard_line(struct ddl_tensorboard *tb, const struct ddl_train_progress *p,
                                struct ddl_error *err);
/* What a telemetry record of metrics.jsonl has. */
ddl_status ddl_tensorboard_telemetry(struct ddl_tensorboard *tb, uint64_t step, const struct ddl_telemetry *t,
                                     struct ddl_error *err);
/* A sample of text (size bytes). Bytes that are not UTF-8 are replaced by U+FFFD. */
ddl_status ddl_tensorboard_sample(struct ddl_tensorboard *tb, uint64_t step, const char *prompt,
                                  const char *text, size_t size, struct ddl_error *err);
/* What was written is on the disk. */
ddl_status ddl_tensorboard_sync(struct ddl_tensorboard *tb, struct ddl_error *err);

#endif
