/* State of `ddl data build`, shared by its steps: build_plan.c compares the build with what an earlier
 * process has begun, build_part.c encodes a part, build_finish.c turns the parts into shards. */
#ifndef DDL_DATA_BUILD_H
#define DDL_DATA_BUILD_H

#include "data/build_folder.h"
#include "data/part_file.h"
#include "data/parts.h"
#include "ddl/data.h"

#include <jansson.h>

enum { DDL_BUILD_PROGRESS_MS = 100, DDL_BUILD_MAX_THREADS = 1024 };

struct ddl_build {
    const struct ddl_build_config *config;
    struct ddl_inputs inputs;
    struct ddl_parts parts;
    size_t shard, n_shards;
    bool resumable; /* standard input is not among the inputs */
    ddl_tokenizer *tokenizer;
    struct ddl_tokenizer_identity identity;
    int32_t end_of_text;
    bool cut_at_space; /* see ddl_cut_find */
    char name[65];     /* identifies the build: see ddl_build_identify */
    struct ddl_build_folder folder;
    bool worthless; /* the parts cannot become shards */
    struct ddl_build_result result;
    /* progress */
    ddl_build_progress_fn *progress;
    void *user;
    struct ddl_build_progress shown;
    double start, reported;
};

/* Calls progress if it is due, or `always`. DDL_E_INTERRUPTED if it returns nonzero. */
ddl_status ddl_build_show(struct ddl_build *b, bool always, struct ddl_error *err);

ddl_status ddl_build_check_config(const struct ddl_build_config *config, struct ddl_error *err);
/* Options that determine the shards, as text, or NULL without memory. `parts`: also those that determine the
 * parts. */
json_t *ddl_build_recorded_options(const struct ddl_build_config *config, bool parts);

/* In the locked folder: writes the plan, or compares it with that of an earlier process, whose sizes of the
 * inputs are used to divide them. A different plan is replaced if no part is finished and no other process
 * works; otherwise DDL_E_USAGE with the first difference. */
ddl_status ddl_build_plan(struct ddl_build *b, struct ddl_error *err);
/* Sets the name: the SHA-256 of the tokenizer, the options, and the names and sizes of the inputs, in
 * hexadecimal. Before the plan, which may have other sizes. */
ddl_status ddl_build_identify(struct ddl_build *b, struct ddl_error *err);

/* How its parts are written. */
struct ddl_part_layout ddl_build_part_layout(const struct ddl_build *b);
/* Encodes part i and writes it to the folder. */
ddl_status ddl_build_part(struct ddl_build *b, size_t i, struct ddl_error *err);
/* Checks that the inputs of the finished part i have not changed since. Reads an input only if its size is
 * the same but not its modification time. */
ddl_status ddl_build_check_part(struct ddl_build *b, size_t i, struct ddl_error *err);

/* Turns the finished parts into shards, and publishes them. */
ddl_status ddl_build_finish(struct ddl_build *b, struct ddl_error *err);
/* *same: the record of the published shards is of this build; then fills the result from it. Standard input
 * is never the same. */
ddl_status ddl_build_read_result(struct ddl_build *b, bool *same, struct ddl_error *err);

#endif
