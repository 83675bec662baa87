/* The inputs of `ddl data build`: files classified by extension, folders walked in name order. */
#ifndef DDL_DATA_INPUTS_H
#define DDL_DATA_INPUTS_H

#include "data/source.h"

struct ddl_input {
    char *path;
    bool json; /* .jsonl; else text */
    enum ddl_packing packing;
    uint64_t size; /* file size in bytes; 0 for standard input */
};

struct ddl_inputs {
    struct ddl_input *items;
    size_t n, capacity;
    uint64_t bytes; /* total size; 0 if standard input is among them */
};

/* Collects the inputs. Zero-initialize `inputs`; free it even after a failure. A file in `names` must have a
 * known extension (.txt, .jsonl, each also with .gz or .zst). In folders, other files and hidden files are
 * ignored; a folder without any matching file is an error. "-" is standard input, allowed once. */
ddl_status ddl_inputs_list(struct ddl_inputs *inputs, const char *const *names, size_t n,
                           struct ddl_error *err);
void ddl_inputs_free(struct ddl_inputs *inputs);

#endif
