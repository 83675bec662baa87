/* The hidden folder .build in the output folder of a build: what its processes have finished so far, and
 * their locks.
 *
 *   plan.json            options, tokenizer and inputs of the build
 *   part-000000.ids      tokens of a part; part-000000.docs: its documents
 *   part-000000.json     its manifest: the part is finished
 *   shard-0-of-4/.lock   held by the process with --shard 0/4
 *   merge/.lock          held by the process that writes the shards, the last one that works
 *   .lock                held while any of these is compared or changed, and while shards are moved
 *   shards/              shards being written
 *   ready/               complete shards, being moved to the output folder */
#ifndef DDL_DATA_BUILD_FOLDER_H
#define DDL_DATA_BUILD_FOLDER_H

#include "base/lock.h"
#include "ddl/status.h"

#include <stdbool.h>
#include <stddef.h>

#define DDL_BUILD_PLAN "plan.json"
#define DDL_BUILD_SHARDS "shards"
#define DDL_BUILD_READY "ready"

enum { DDL_BUILD_PATH = 1152 };

struct ddl_build_folder {
    char out[1024], path[1056]; /* output folder; .build in it */
    char mine[64];              /* "shard-0-of-4" */
    size_t n_shards;
    size_t out_kept; /* length of the part of `out` that existed before */
    struct ddl_lock lock, shard, merge;
};

/* Creates the folders and locks the shard. DDL_E_IO if another process builds the same shard, or one of
 * another number of shards. After success the folder is locked (see ddl_build_folder_lock). Close it also
 * after an error. */
ddl_status ddl_build_folder_open(struct ddl_build_folder *f, const char *out, size_t shard, size_t n_shards,
                                 struct ddl_error *err);
/* Releases all locks. Removes what is empty. */
void ddl_build_folder_close(struct ddl_build_folder *f);
/* Excludes the other processes of the build for a short time; waits for them. Has no effect on a folder that
 * is locked already. */
ddl_status ddl_build_folder_lock(struct ddl_build_folder *f, struct ddl_error *err);
void ddl_build_folder_unlock(struct ddl_build_folder *f);
/* In the locked folder: DDL_OK if no other process works on parts. DDL_E_IO with its name and *busy if one
 * does, and DDL_E_IO without *busy if this cannot be found out. */
ddl_status ddl_build_folder_alone(const struct ddl_build_folder *f, bool *busy, struct ddl_error *err);
/* DDL_E_IO if the folder was moved or removed since this process works in it. */
ddl_status ddl_build_folder_in_place(const struct ddl_build_folder *f, struct ddl_error *err);
/* In the locked folder: releases the shard, on which this process no longer works. */
void ddl_build_folder_leave(struct ddl_build_folder *f);
/* In the locked folder: locks the writing of the shards, until close. DDL_E_IO if another process writes. */
ddl_status ddl_build_folder_lock_merge(struct ddl_build_folder *f, struct ddl_error *err);
/* In the locked folder: true if another process writes the shards. */
bool ddl_build_folder_merging(const struct ddl_build_folder *f);
/* Path of a file in the folder. */
void ddl_build_folder_file(const struct ddl_build_folder *f, const char *name, char path[DDL_BUILD_PATH]);
bool ddl_build_folder_has(const struct ddl_build_folder *f, const char *name);
/* Into *n: the number of finished parts; 0 after an error. */
ddl_status ddl_build_folder_count(const struct ddl_build_folder *f, size_t *n, struct ddl_error *err);
/* Removes the temporary files of processes that were killed; no other process may build. */
ddl_status ddl_build_folder_tidy(const struct ddl_build_folder *f, struct ddl_error *err);
/* Removes everything but the locks that this process holds and DDL_BUILD_READY; nothing if the folder cannot
 * be listed. */
ddl_status ddl_build_folder_clear(const struct ddl_build_folder *f, struct ddl_error *err);

#endif
