/* What `ddl data build` is asked to read: files by their endings, folders walked in name order. */
#ifndef DDL_DATA_INPUTS_H
#define DDL_DATA_INPUTS_H

#include "data/source.h"

struct ddl_input {
    char *path;
    bool json; /* .jsonl; else text */
    enum ddl_packing packing;
    uint64_t size; /* bytes of the file; 0 for standard input */
};

struct ddl_inputs {
    struct ddl_input *items;
    size_t n, capacity;
    uint64_t bytes; /* of all; 0 where standard input is among them */
};

/* Zero-initialised inputs; free them after a failure too. A file named in `names` must have a known ending
 * (.txt, .jsonl, each also with .gz or .zst); in folders, other files and hidden ones are passed over, and a
 * folder without any is refused. "-" is standard input, once. */
ddl_status ddl_inputs_list(struct ddl_inputs *inputs, const char *const *names, size_t n,
                           struct ddl_error *err);
void ddl_inputs_free(struct ddl_inputs *inputs);

#endif
