/* Event files of TensorBoard: a folder has one for each process that wrote to it, in the order of their
 * names. A file is a sequence of records (TFRecord): the length as 64 bits and its checksum, the data and its
 * checksum, all little-endian; a checksum is a CRC-32C, rotated and offset. */
#ifndef DDL_TRAIN_EVENT_FILE_H
#define DDL_TRAIN_EVENT_FILE_H

#include "ddl/status.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct ddl_event_file {
    FILE *stream;
    char path[1400];
    int failed; /* errno of a write that failed: nothing is written after it, so that only the last record of
                   a file can be incomplete */
};

/* Creates the next file of the folder, which is created too. */
ddl_status ddl_event_file_create(struct ddl_event_file *f, const char *folder, struct ddl_error *err);
/* Writes a record; buffered. */
ddl_status ddl_event_file_add(struct ddl_event_file *f, const void *data, size_t size, struct ddl_error *err);
ddl_status ddl_event_file_flush(struct ddl_event_file *f, struct ddl_error *err);
/* Flushes, then fsync. */
ddl_status ddl_event_file_sync(struct ddl_event_file *f, struct ddl_error *err);
void ddl_event_file_close(struct ddl_event_file *f); /* zeroed or closed is allowed */
/* Removes the event files of the folder, and the folder if it is empty then. It may not exist. */
ddl_status ddl_event_file_remove_all(const char *folder, struct ddl_error *err);

#endif
